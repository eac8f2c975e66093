# SPDX-License-Identifier: Apache-2.0
"""Records of accounts that contradict themselves, or state numbers that no run has: nobody is accused by them, and the judge
does not stumble."""
import json

from judge import audit, judge, verdict_of
from test_account import begun, does

GREATEST = 2**53


def judged(world, folder):
    """The verdict of a run. Nothing may be said on stderr, as a sanitizer would."""
    done = audit(world.write(folder))
    assert done.returncode in (0, 1, 2) and done.stderr == "", done.stderr
    return verdict_of(folder)


# ---- Sums that cannot be counted ----------------------------------------------------------------------
def test_redis_states_more_than_can_be_counted(tmp_path):
    """2,000 accounts with as much as a number may be; of one side, and of both."""
    for first, last in ((100, GREATEST), (GREATEST, GREATEST), (100, -GREATEST)):
        items = {"acc-%d" % i: 100 for i in range(2000)}
        world, now = begun(1, items=items, versions=dict.fromkeys(items, 1), expect=None)
        does(world, "a", now, -5, "acc-1")
        world.end()
        for when, balance in (("before", first), ("after", last)):
            for account in world.redis[when]["accounts"].values():
                account["balance"] = balance
        verdict = judged(world, tmp_path / ("%d %d" % (first, last)))
        assert verdict["result"] == "inconclusive" and verdict["off"] == 0, verdict["reasons"]
        assert any("the balances add up to more than 9007199254740992" in text for text in verdict["reasons"]), verdict["reasons"]


def test_versions_that_cannot_be_counted(tmp_path):
    items = {"acc-%d" % i: 1 for i in range(2000)}
    world, now = begun(1, items=items, versions=dict.fromkeys(items, 1))
    does(world, "a", now, 5, "acc-1")
    world.end()
    for account in world.redis["after"]["accounts"].values():
        account["version"] = GREATEST
    verdict = judged(world, tmp_path / "run")
    assert any("versions that no request wrote: 9007199254740991;" in text for text in verdict["reasons"]), verdict["reasons"]


def test_writes_that_cannot_be_counted(tmp_path):
    """Each of 3,000 adds read nothing in the account and adds as much as a number may be."""
    world, now = begun(1, rung="none", items={"x": 0, "y": 0}, expect=None)
    for i in range(3000):
        world.balances["x"] = [0, i + 1]
        does(world, "a", now + 100 * i, GREATEST)
    verdict = judged(world.end(), tmp_path / "run")
    assert verdict["result"] == "inconclusive" and verdict["off"] == 0, verdict["reasons"]
