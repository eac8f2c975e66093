# SPDX-License-Identifier: Apache-2.0
"""Small rounds on an ensemble of three: ours and the peer, each valid, and nothing of them left on the servers."""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench"))

import ensembles  # noqa: E402
import versus  # noqa: E402
from peers import built_curator, built_with_go  # noqa: E402

BENCH_PAIRS = pathlib.Path(os.environ["LADDER_BUILD"]) / "bench" / "bench-pairs"
NEEDS = {"zookeeper": pathlib.Path("/usr/share/java/zookeeper.jar").exists(), "etcd": shutil.which("etcd")}
BUILT = {"zookeeper": built_curator, "etcd": lambda: built_with_go("etcd")}
PATIENCE_S = 240


def has_engine(rung):
    """bench-pairs has it only if the library of the engine was built."""
    done = subprocess.run([BENCH_PAIRS, "-rung", rung, "none://"], capture_output=True, text=True, timeout=PATIENCE_S)
    return "must be redlock" not in done.stderr


@pytest.fixture(scope="module", params=ensembles.VERBS)
def world(request):
    if not NEEDS[request.param]:
        pytest.skip(f"there is no {request.param} server")
    with ensembles.VERBS[request.param].world() as its:
        its.warm_ms = 1
        yield its


def test_rounds_of_ours_and_of_the_peer(world, monkeypatch, capsys):
    if not has_engine(world.ours):
        pytest.skip(f"libdlock-{world.ours} was not built")
    seen = []
    monkeypatch.setattr(world, "look", lambda: seen.append(world.is_empty()))
    verb = ensembles.VERBS[world.ours]
    load = verb.loads["crowd"]
    programs = {verb.ours: BENCH_PAIRS, verb.peer: BUILT[world.ours]()}
    rows = versus.run_rounds(world, programs, "crowd", load, argparse.Namespace(rounds=1, pairs=12, waiters=4))
    assert [row["who"] for row in rows] == [verb.ours, verb.peer, load.noise]
    assert {(row["verdict"], row["pairs"], row["failed"], row["inside_max"], row["waiters"]) for row in rows} == {
        ("ok", 12, 0, 1, 4)}
    assert len(seen) == 6 and not any(seen[::3]), "a client of ours that lives is seen on the servers"
    versus.tell(load, rows, 1)
    assert f"pairs/s, {verb.ours} / {verb.peer}: " in capsys.readouterr().out
    assert world.version().startswith(("ZooKeeper 3.", "etcd 3."))


def test_all_ask_one_follower(world):
    ours, peer = world.words(world.ours)[-1], world.words("peer")[-1]
    assert ours == f"{world.scheme}://{peer}"
    assert peer.endswith(f":{world.ensemble.followers()[0].client_port}")


@pytest.mark.parametrize("verb", ensembles.VERBS)
def test_the_verb_refuses_a_busy_machine(verb):
    done = subprocess.run([ROOT / "bench" / "bench", verb, "--load-max", "-1"], capture_output=True, text=True,
                          timeout=PATIENCE_S)
    assert done.returncode == 2 and "load average" in done.stderr


def test_without_its_tools_the_peer_is_told_to_be_missing(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SystemExit, match="no `mvn` on PATH: install Debian's maven"):
        ensembles.build_curator()
