# SPDX-License-Identifier: Apache-2.0
"""policy_kills.py in a small size; and that it finds what it is to find."""
import collections
import types

import policy_kills
import pytest


@pytest.mark.parametrize("policy", ["segments", "segments-none", "cas"])
def test_killed_instances_and_redis(tmp_path, policy):
    faults, counts = policy_kills.run(str(tmp_path), policy, 240, 1, every=30)
    assert not faults and counts["sold"] > 0, (counts, faults)


def test_it_finds_who_is_refused_though_there_is_enough(tmp_path, monkeypatch):
    monkeypatch.setitem(policy_kills.POLICIES, "naive", ("--lock", "watchdog", "--segments", "naive:16"))
    faults, counts = policy_kills.run(str(tmp_path), "naive", 480, 1, every=1000)
    assert any("was refused" in fault for fault in faults), (counts, faults)


def bought(units, refused=(), unknown=0):
    return types.SimpleNamespace(error=None, bought=collections.defaultdict(list, phone=units),
                                 unknown=collections.Counter(phone=unknown),
                                 refused=collections.defaultdict(list, phone=list(refused)))


@pytest.mark.parametrize("buyers, left, fault", [
    ([bought([3]), bought([2])], 1, None),
    ([bought([3]), bought([3])], 1, "sold twice: [3]"),
    ([bought([4]), bought([2])], 1, "no such units: [4]"),
    ([bought([3])], 1, "1 are missing"), ([bought([3], unknown=1)], 1, None),
    ([bought([3])], 3, "-1 are missing"), ([bought([3, 2], [1])], 1, "was refused"), ([bought([3, 2], [2])], 1, None)])
def test_what_it_judges(buyers, left, fault):
    others = dict.fromkeys(policy_kills.ITEMS, 3)
    faults = policy_kills.judge(buyers, {**others, "phone": left}, 3)
    assert not faults if fault is None else len(faults) == 1 and fault in faults[0], faults
