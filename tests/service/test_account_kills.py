# SPDX-License-Identifier: Apache-2.0
"""account_kills.py in a small size; and that it finds what it is to find."""
import collections
import os
import types

import account_kills
import pytest
from account_records import judged
from account_kills import ACCOUNTS, KINDS, Told


@pytest.fixture(autouse=True)
def accountd(monkeypatch):
    monkeypatch.setenv("INVENTORYD", os.environ["ACCOUNTD"])


def result_of(folder):
    """The judge's word; None if the machine stood still, so that the judge has none."""
    _, verdict = judged(os.environ["LADDER_AUDIT"], str(folder / "bank"))
    return None if verdict["result"] == "inconclusive" and verdict["stalls"] else verdict["result"]


def test_killed_instances_and_redis(tmp_path):
    faults, counts = account_kills.run(str(tmp_path), 600, 3, every=60)
    assert not faults and counts["done"] == 600, (counts, faults)
    assert counts["died at a point"] and counts["instance"] and counts["redis"], counts
    assert result_of(tmp_path) in ("ok", None)


def test_it_finds_a_torn_transfer(tmp_path):
    faults, counts = account_kills.run(str(tmp_path), 48, 1, 8, ("--lock", "fair", "--locks", "many", "--write", "two"), ("point",),
                                       points=("account.between",))
    assert any("the balances are " in fault for fault in faults), (counts, faults)


def test_it_finds_lost_updates(tmp_path):
    faults, counts = account_kills.run(str(tmp_path), 1200, 1, 10000, ("--lock", "none", "--locks", "many", "--write", "script"), KINDS)
    assert any("was written twice" in fault for fault in faults), (counts, faults)
    assert result_of(tmp_path) == "unbalanced"


def test_it_finds_transfers_that_wait_for_each_other(tmp_path):
    faults, counts = account_kills.run(str(tmp_path), 600, 1, 10000, ("--lock", "watchdog", "--locks", "unordered", "--work-ms", 5), KINDS,
                                       wait_ms=500)
    assert any("did not get their locks" in fault for fault in faults), (counts, faults)
    assert result_of(tmp_path) in ("deadlock", None)


def told(*said, unknown=(), timeouts=0):
    return types.SimpleNamespace(error=None, told=[Told(*one) for one in said], unknown=collections.Counter(unknown),
                                 seen=collections.Counter({"lock-timeout": timeouts}))


@pytest.mark.parametrize("clients, one, other, fault", [
    ([], (1000, 1), (1000, 1), None),
    ([told(("one", -5, 995, 2), ("other", 5, 1005, 2))], (995, 2), (1005, 2), None),
    ([told(("one", -5, 995, 2), ("other", 5, 1005, 2))], (1000, 1), (1000, 1), "version 1, and 2 was told"),
    ([told(("one", -5, 995, 2), ("other", 5, 1005, 2)), told(("one", -7, 993, 2))], (993, 2), (1007, 3), "written twice"),
    ([told(("one", -5, 995, 2)), told(("one", -7, 993, 3))], (993, 3), (1007, 1), "lost what came before its version 3"),
    ([told(("one", -5, 995, 2), ("other", 5, 1005, 2))], (996, 2), (1004, 2), "it has 996 in its version 2, and 995 was told"),
    ([], (995, 2), (1005, 1), "1 of its 2 versions were not told"),
    ([told(unknown=("one", "other"))], (995, 2), (1005, 2), None),
    ([told(unknown=("one", "other"))], (995, 2), (1000, 1), "the balances are"),
    ([told(unknown=("one", "other"))], (995, 3), (1005, 2), "2 of its 3 versions"),
    ([told(timeouts=1)], (1000, 1), (1000, 1), "1 transfers did not get their locks")])
def test_what_it_judges(clients, one, other, fault):
    left = {**dict.fromkeys(ACCOUNTS, (1000, 1)), "one": one, "other": other}
    faults = account_kills.judge(clients, left)
    assert not faults if fault is None else any(fault in found for found in faults), faults
