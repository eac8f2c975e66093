# SPDX-License-Identifier: Apache-2.0
"""Small rounds on several servers: a round is valid only if nobody entered beside another."""
import argparse
import csv
import json
import os
import pathlib
import re
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench"))

import quorum  # noqa: E402
import versus  # noqa: E402
from peers import built_with_go  # noqa: E402
from redis_server import Connection  # noqa: E402

BENCH_PAIRS = pathlib.Path(os.environ["LADDER_BUILD"]) / "bench" / "bench-pairs"
TOKEN = "dlock:token:lock:{phone}"
PATIENCE_S = 240


@pytest.fixture(scope="module")
def world():
    with quorum.QuorumWorld() as its:
        yield its


def sets(server):
    """How many SET the server has run."""
    return re.search(r"cmdstat_set:calls=(\d+)|$", server("INFO", "commandstats"))[1]


def bench(*more):
    return subprocess.run([ROOT / "bench" / "bench", "quorum", "--anyway", "--rounds", "1", *more],
                          capture_output=True, text=True, timeout=PATIENCE_S)


@pytest.mark.parametrize("waiters", [1, 20])
@pytest.mark.parametrize("who, drawn", [(quorum.OURS, 0), (quorum.TOKENS, 60)])
def test_a_round_of_ours(world, who, drawn, waiters):
    for server in world.servers:
        server("FLUSHALL")
    row = versus.play(world, {quorum.OURS: BENCH_PAIRS}, who, waiters, 60)
    assert (row["verdict"], row["pairs"], row["failed"], row["inside_max"]) == ("ok", 60, 0, 1)
    tokens = [int(server("GET", TOKEN) or 0) for server in world.servers]
    assert sorted(tokens)[2] >= drawn, "a majority has the last token"
    assert drawn or [server("DBSIZE") for server in world.servers] == [0] * 5


@pytest.mark.parametrize("said, reason", [
    ({"pairs": 60, "failed": 0, "inside_max": 2}, "2 holders at once"),
    ({"pairs": 59, "failed": 1, "inside_max": 1}, "59 of 60 pairs succeeded")])
def test_a_round_in_which_the_lock_failed_is_not_valid(world, tmp_path, said, reason):
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho ready; read go; echo '{json.dumps({**said, 'seconds': 1})}'\n")
    program.chmod(0o755)
    row = versus.play(world, {quorum.OURS: program}, quorum.OURS, 1, 60)
    assert (row["verdict"], row["reasons"]) == ("INVALID", reason)


def test_the_late_server_is_late_and_the_silent_one_is_silent(world):
    connection = Connection(world.late_port)
    start = time.monotonic()
    assert connection("PING") == "PONG"
    assert time.monotonic() - start >= quorum.DELAY_MS / 1000
    connection.close()
    before = sets(world.servers[-1])
    for _ in range(10):  # on a busy machine the late server may be so late that it is given up for a while
        row = versus.play(world, {quorum.OURS: BENCH_PAIRS}, quorum.ILL, 1, 60)
        assert (row["pairs"], row["inside_max"]) == (60, 1)
        if row["verdict"] == "ok":
            break
        assert row["reasons"].startswith("the late server was asked only")
    assert row["verdict"] == "ok" and row["late_commands"] >= 120, "the late server is asked, too"
    assert sets(world.servers[-1]) == before, "nobody reaches it by the silent address"


@pytest.mark.parametrize("words, reason", [
    (("redis://127.0.0.1:1",), "an odd number"), ((), "no server"),
    (("-rung", "fair", "redis://127.0.0.1:1"), "must be redlock"),
    (("-waiters", "0", "redis://127.0.0.1:1"), "from 1")])
def test_what_cannot_be_played_is_refused(words, reason):
    done = subprocess.run([BENCH_PAIRS, *words], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (2, "") and reason in done.stderr


def test_the_verb_takes_turns_and_keeps_them(tmp_path):
    done = bench("--shape", "ill", "--pairs", "60", "--results", tmp_path)
    assert done.returncode in (0, 1) and "(bar: at most 1.5)" in done.stdout, done
    with open(tmp_path / "quorum-ill.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["who"] for row in rows] == [quorum.OURS, quorum.ILL, quorum.OURS + versus.AGAIN]
    assert [row["pairs"] for row in rows] == ["60"] * 3


@pytest.mark.parametrize("name", ["pairs", "crowd"])
def test_a_row_with_tokens_takes_its_turn(world, monkeypatch, capsys, name):
    """Here the peer is our own program, so that no Go is needed."""
    monkeypatch.setattr(world, "words", lambda who: type(world).words(world, who if who != quorum.PEER else quorum.OURS))
    arguments = argparse.Namespace(rounds=2, pairs=40, waiters=5)
    load = quorum.LOADS[name]
    rows = versus.run_rounds(world, dict.fromkeys([quorum.OURS, quorum.PEER], BENCH_PAIRS), name, load, arguments)
    assert [row["who"] for row in rows] == [quorum.OURS, quorum.PEER, quorum.TOKENS, load.noise] * 2
    assert {(row["pairs"], row["waiters"]) for row in rows} == {(40, 5 if name == "crowd" else 1)}
    asked = {row["who"]: row["late_commands"] for row in rows}
    assert asked[quorum.TOKENS] > asked[quorum.OURS], "the token is a second round"
    versus.tell(load, rows, 1)
    told = capsys.readouterr().out
    for ratio in ("redlock / redsync", "redlock with tokens / redsync", "redlock with tokens / redlock"):
        assert re.search(rf"^ +{ratio} +\d+\.\d\d \[", told, re.M), told
    assert told.count("(bar: ") == 1, "none on the row with tokens"


def test_the_verb_refuses_a_busy_machine():
    done = subprocess.run([ROOT / "bench" / "bench", "quorum", "--load-max", "-1"], capture_output=True, text=True,
                          timeout=PATIENCE_S)
    assert done.returncode == 2 and "load average" in done.stderr


def test_without_go_the_peer_is_told_to_be_missing(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SystemExit, match="no `go` on PATH"):
        versus.build_with_go(quorum.PEER)


def test_a_round_of_the_peer(world):
    programs = {quorum.PEER: built_with_go(quorum.PEER)}
    for waiters in 1, 5:
        row = versus.play(world, programs, quorum.PEER, waiters, 20)
        assert (row["verdict"], row["pairs"], row["inside_max"]) == ("ok", 20, 1)
