# SPDX-License-Identifier: Apache-2.0
"""Small rounds of every contestant are valid; a round in which a replay's unlock is broken, or the
stock is touched by another, is not."""
import csv
import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench"))

from rounds import Rounds, faster_bar, judge, median_bar, ratio_bar, same_bar  # noqa: E402
from redis_server import Connection  # noqa: E402
from world import RedisWorld  # noqa: E402

BENCH_LOCK = pathlib.Path(os.environ["LADDER_BUILD"]) / "bench" / "bench-lock"
PATIENCE_S = 120
CONTESTANTS = [("redisson",), ("python_redis_lock",), ("dlock", "--rung", "watchdog"),
               ("dlock_async", "--rung", "watchdog")]


@pytest.fixture(scope="module")
def redis():
    with RedisWorld() as world:
        yield world.redis


@pytest.fixture
def ask(redis):
    connection = Connection(redis.port)
    yield connection
    connection("FLUSHALL")
    connection.close()


def words(redis, *more):
    return [str(BENCH_LOCK), *more, "--redis", redis.url]


def play(redis, *more):
    """(exit code, the line, stderr) of one round."""
    done = subprocess.run(words(redis, *more), capture_output=True, text=True, timeout=PATIENCE_S)
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


@pytest.mark.parametrize("contestant", CONTESTANTS)
def test_a_burst_sells_what_is_there(redis, contestant):
    code, line, error = play(redis, *contestant, "--processes", "2", "--waiters", "10", "--stock", "12")
    assert (code, line["verdict"], line["sold"], line["sold_out"]) == (0, "ok", 12, 8), error
    assert line["stock_left"] == 0 and line["failed"] == line["starved"] == line["overlapped"] == 0
    assert (line["threads"] > 10) == (contestant[0] != "dlock_async") and line["connections"] > 0
    assert redis("DBSIZE") == 0


@pytest.mark.parametrize("contestant", CONTESTANTS)
def test_a_loop_sells_again_and_again(redis, contestant):
    code, line, error = play(redis, *contestant, "--shape", "loop", "--loop-ms", "300", "--processes",
                             "2", "--waiters", "3", "--stock", "100000")
    assert (code, line["verdict"]) == (0, "ok"), error
    assert line["sold"] > 0 and line["stock_left"] == 100000 - line["sold"]


# Commands of a pair, those inside its scripts too, as the sources of the two libraries have them.
@pytest.mark.parametrize("contestant, commands, round_trips", [
    (("redisson",), 12, 2), (("python_redis_lock",), 8, 3), (("floor", "--rung", "watchdog"), 2, 2),
    (("dlock_async", "--rung", "owner_lua"), 4, 2)])
def test_a_pair_sends_what_the_library_sends(redis, contestant, commands, round_trips):
    code, line, error = play(redis, *contestant, "--shape", "pairs", "--pairs", "200")
    assert (code, line["verdict"], line["sold"]) == (0, "ok", 200), error
    assert line["commands_per_sale"] == pytest.approx(commands, abs=0.05)
    # Redisson's DEL that nobody waits for may come with the next command or ahead of it.
    assert round_trips <= line["round_trips_per_sale"] < round_trips + (1.1 if commands == 12 else 0.1)


# A server that refuses the release's message, to every client but the one that asks.
@pytest.mark.parametrize("contestant, command", [("redisson", "publish"), ("python_redis_lock", "lpush")])
def test_a_broken_unlock_is_found(redis, ask, contestant, command):
    ask("ACL", "SETUSER", "default", f"-{command}")
    try:
        code, line, error = play(redis, contestant, "--processes", "2", "--waiters", "5", "--stock", "6",
                                 "--wait-ms", "1000")
    finally:
        ask("ACL", "SETUSER", "default", f"+{command}")
    assert (code, line["verdict"]) == (1, "INVALID")
    assert "waiters failed" in line["reasons"] and contestant in error


def test_a_lock_that_does_not_exclude_is_found(redis):
    code, line, _ = play(redis, "dlock", "--rung", "none", "--shape", "loop", "--loop-ms", "500",
                         "--processes", "2", "--waiters", "8", "--stock", "1000000")
    assert code == 1 and "critical sections overlapped" in line["reasons"]


def test_a_unit_that_went_elsewhere_is_found(redis, ask):
    process = subprocess.Popen(words(redis, "redisson", "--shape", "loop", "--loop-ms", "5000",
                                     "--stock", "1000000"), stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + PATIENCE_S
    while int(ask("GET", "stock:{phone}") or 1000000) == 1000000:
        assert process.poll() is None and time.monotonic() < deadline
    ask("DECR", "stock:{phone}")
    line = json.loads(process.communicate(timeout=PATIENCE_S)[0])
    assert process.returncode == 1
    assert "the stock left is not the initial stock minus the units sold" in line["reasons"]


def test_a_server_that_holds_keys_is_refused(redis, ask):
    ask("SET", "mine", "1")
    code, line, error = play(redis, "redisson")
    assert (code, line) == (2, None) and "holds 1 keys" in error
    assert ask("GET", "mine") == "1"


@pytest.mark.parametrize("wrong, right", [
    (("nobody",), "bench-lock --help lists them"), (("redisson", "--waiters", "0"), "from 1 to 20000"),
    (("redisson", "--shape", "round"), "must be burst, loop or pairs"),
    (("floor",), "--shape pairs"), (("dlock", "--rung", "nosuch"), "nosuch")])
def test_what_cannot_be_played_is_refused(redis, wrong, right):
    code, line, error = play(redis, *wrong)
    assert (code, line) == (2, None) and right in error


def bench(*more):
    return subprocess.run([ROOT / "bench" / "bench", "locks", *more], capture_output=True, text=True,
                          timeout=PATIENCE_S)


def test_the_verb_takes_turns_and_keeps_them(tmp_path):
    done = bench("--anyway", "--rounds", "2", "--shape", "burst", "--processes", "2", "--waiters", "5",
                 "--contestant", "redisson", "--contestant", "watchdog", "--results", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    with open(tmp_path / "locks-burst.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["who"] for row in rows] == ["redisson", "watchdog", "redisson again"] * 2
    assert {row["verdict"] for row in rows} == {"ok"} and {row["sold"] for row in rows} == {"10"}
    assert "redisson / redisson again" in done.stdout and "not measured" in done.stdout


def test_the_verb_refuses():
    busy = bench("--load-max", "-1", "--contestant", "redisson")
    assert busy.returncode == 2 and "load average" in busy.stderr
    unknown = bench("--anyway", "--contestant", "nosuch-async")
    assert unknown.returncode == 2 and "watchdog" in unknown.stderr


def rounds_of(**figures):
    rows = [{"who": who.replace("_", "-"), "processes": 2, "sales_per_s": value}
            for who, values in figures.items() for value in values]
    return Rounds(rows, 1)


def test_ratios_and_bars():
    seen = rounds_of(fast=[300, 310, 290], slow=[100, 100, 100], same=[100, 100, 100])
    assert seen.ratio("slow", "same", "sales_per_s") == (1, 1, 1)
    ratio, low, high = seen.ratio("fast", "slow", "sales_per_s")
    assert (ratio, low, high) == (3, 2.9, 3.1)
    bars = [ratio_bar("fast", "slow", 3), ratio_bar("fast", "slow", 3.01), faster_bar("fast", "slow"),
            faster_bar("slow", "same"), median_bar("slow", "sales_per_s", 99, "most"),
            ratio_bar("fast", "nobody", 1), same_bar("fast", "sales_per_s", 1.2)]
    assert [verdict for _, verdict in judge(bars, seen)] == [
        "reached", "missed", "reached", "missed", "missed", "not measured", "not measured"]
