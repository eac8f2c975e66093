# SPDX-License-Identifier: Apache-2.0
"""tasks_kills.py in a small size; and that it finds what it is to find."""
import collections
import os
import types

import pytest
import tasks_kills


@pytest.fixture(autouse=True)
def tasksd(monkeypatch):
    monkeypatch.setenv("INVENTORYD", os.environ["TASKSD"])


@pytest.mark.parametrize("setting", ["fenced", "plain"])
def test_killed_instances_and_redis(tmp_path, setting):
    faults, counts = tasks_kills.run(str(tmp_path), setting, tasks_kills.LIST_TASKS, 1, every=15, auditor=os.environ.get("LADDER_AUDIT"))
    assert not faults and counts["accepted"] > 0, (counts, faults)


@pytest.mark.parametrize("setting, fault", [("late", "recorded twice"), ("no-lease", "lost")])
def test_it_finds(tmp_path, setting, fault):
    """Chance says who is late or dies, and who then takes the task over: so several seeds are tried."""
    found = []
    for seed in range(6):
        found, counts = tasks_kills.run(str(tmp_path / str(seed)), setting, tasks_kills.LIST_TASKS, seed, every=5)
        if any(one.startswith(fault) for one in found):
            return
    pytest.fail(f"{fault} is not among {found}, {counts}")


def worker(*accepted, unknown=()):
    return types.SimpleNamespace(error=None, accepted=list(accepted), unknown=set(unknown))


ONE, TWO = (1, "a"), (2, "b")
BOTH = {1: "a", 2: "b"}


@pytest.mark.parametrize("workers, results, members, fault", [
    ([worker(ONE), worker(TWO)], BOTH, (), None),
    ([worker(ONE, TWO), worker((1, "c"))], BOTH, (), "accepted twice"),
    ([worker(ONE)], {1: "a"}, (), "lost: [2]"), ([worker(ONE)], {1: "a"}, (2,), "not done: [2]"),
    ([worker(ONE)], BOTH, (), "who was not told so"), ([worker(ONE, unknown="b")], BOTH, (), None),
    ([worker(ONE, TWO, unknown="c")], {1: "c", 2: "b"}, (), "the result is c's"),
    ([worker(ONE, TWO)], {**BOTH, 3: "c"}, (), "no such tasks: [3]"),
    ([worker(ONE, TWO)], {1: "a"}, (2,), "not done: [2]")])
def test_what_it_judges(workers, results, members, fault):
    faults = tasks_kills.judge(workers, results, set(members), {1, 2}, collections.Counter(list(results)))
    assert not faults if fault is None else fault in faults[0], faults


def test_it_judges_histories():
    faults = tasks_kills.judge([worker(ONE, TWO)], BOTH, set(), {1, 2}, collections.Counter([1, 1, 2]))
    assert faults == ["recorded twice: [1]"]
