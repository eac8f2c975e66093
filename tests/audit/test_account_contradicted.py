# SPDX-License-Identifier: Apache-2.0
"""Records of accounts that contradict themselves, or state numbers that no run has: nobody is accused by them, and the judge
does not stumble."""
import resource

import pytest
from judge import audit, verdict_of
from test_account import UNKNOWN, begun, does, leaves, looks, reads, writes

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


# ---- More unknown writes than the judge tries ---------------------------------------------------------
def undecided(adds):
    """34 accounts give 1 each, to 35; two transfers whose replies are lost fit each step from account to account. Nobody gave
    what one of them got, unless it is by an add whose reply is lost, too."""
    givers, takers = ["give-%d" % i for i in range(34)], ["take-%d" % i for i in range(35)]
    names = givers + takers
    world, now = begun(1, items=dict.fromkeys(names, 100), versions=dict.fromkeys(names, 1), expect=["unbalanced", "ok"])
    asked = [(1, giver, taker) for i, giver in enumerate(givers) for taker in takers[i:i + 2] * 2] + [
        (1, taker, None) for taker in takers[:1] * adds]
    for i, (amount, item, to) in enumerate(asked):
        request = reads(world, "a", now + 100 * i, amount, item, to)
        leaves(world, writes(world, request, now + 100 * i + 10, False, False), now + 100 * i + 20, UNKNOWN)
    for name in names:
        world.balances[name] = [99 if name in givers else 101, 2]
    return world.end()


def test_a_sum_is_a_proof_whatever_transfers_took_effect(tmp_path):
    """Which of the transfers is torn is not certain, so none is called so."""
    verdict = judged(undecided(0), tmp_path / "run")
    assert verdict["result"] == "unbalanced" and verdict["off"] == 1 and verdict["torn"] == 0, verdict["reasons"]
    assert any("all accounts together: 6900 at the start, +0 by adds, 6901 in the end: 1 too much" in text
               for text in verdict["reasons"]), verdict["reasons"]


def test_a_sum_is_no_proof_if_an_add_may_explain_it(tmp_path):
    """The add is what happened, and the judge's guess is another one."""
    verdict = judged(undecided(1), tmp_path / "run")
    assert verdict["result"] == "inconclusive" and verdict["off"] == 1, verdict["reasons"]
    assert any("1 too much, but it is not certain which adds took effect" in text for text in verdict["reasons"]), verdict["reasons"]


# ---- What redis.json states cannot be ------------------------------------------------------------------
def test_redis_began_with_something_else(tmp_path):
    """run.json says 100, and the first one read 100."""
    world, now = begun(1, expect=None)
    does(world, "a", now, 5)
    looks(world, "b", now + 100)
    world.end()
    world.redis["before"]["accounts"]["x"]["balance"] = 90
    verdict = judged(world, tmp_path / "run")
    assert verdict["result"] == "inconclusive" and verdict["off"] == 0, verdict["reasons"]


def test_redis_began_with_another_version(tmp_path):
    """The sums fit; but the first one read version 1 of 100."""
    world, now = begun(1, expect=None)
    does(world, "a", now, 5)
    world.end()
    world.redis["before"]["accounts"]["x"]["version"] = 0
    verdict = judged(world, tmp_path / "run")
    assert verdict["result"] == "inconclusive", verdict["reasons"]
    assert any("balances that nobody wrote: 1;" in text for text in verdict["reasons"]), verdict["reasons"]


@pytest.mark.parametrize("field, value", [("balance", 90), ("version", 0)])
def test_what_is_gone_from_a_redis_that_began_otherwise(tmp_path, field, value):
    """What Redis has in the end is that of the start, as if it had been read there."""
    world, now = begun(1, expect=None)
    does(world, "a", now, 5)
    world.end()
    world.redis["before"]["accounts"]["x"][field] = value
    world.redis["after"] = world.redis["before"]
    verdict = judged(world, tmp_path / "run")
    assert verdict["result"] == "inconclusive", verdict["reasons"]


# ---- What takes long to decide -------------------------------------------------------------------------
def unknown(world, t_ns, amount, item, to, read):
    """No lock, and no answer. read: of each account what it read there."""
    request = world.ask(item, "a", t_ns, amount, to)
    for name, (balance, version) in read.items():
        world.seen(request, t_ns + 1, name, balance, version)
        world.is_writing(request, t_ns + 2, name)
    world.turned_away(request, t_ns + 3, *UNKNOWN)


def one_after_the_other(count):
    """A version of g has twice as many writers as count, and each version of y rules out one more of them."""
    world, now = begun(1, rung="none", items={"h": count, "g": 1000, "y": 0}, versions=dict.fromkeys("hgy", 1), expect=["ok"])
    unknown(world, now, -1, "g", None, {"g": (1000, 1)})
    for i in range(count):
        unknown(world, now + 20 * i + 10, 1, "g", "y", {"g": (1000, 1), "y": (i, i + 1)})
        unknown(world, now + 20 * i + 20, 1, "h", "y", {"h": (count - i, i + 1), "y": (i, i + 1)})
    world.balances.update(g=[999, 2], h=[0, count + 1], y=[count, count + 1])
    return world.end()


def costs(make, counts, folder):
    """The seconds of the processor that each run takes, and the last verdict."""
    took = []
    for count in counts:
        world = make(count)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        verdict = judged(world, folder / str(count))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    print(took)
    return took, verdict


def test_writes_that_are_ruled_out_one_after_the_other(tmp_path):
    """Four times as many take at most eight times as long."""
    took, verdict = costs(one_after_the_other, (6_000, 24_000), tmp_path)
    assert verdict["result"] == "ok" and verdict["took_effect"] == 24_001 and verdict["off"] == 0, verdict["reasons"]
    assert took[1] < 8 * took[0] + 1, took
