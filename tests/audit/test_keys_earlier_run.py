# SPDX-License-Identifier: Apache-2.0
"""Idempotency keys whose first answer was given before the run."""
import pytest
from judge import SEEDS, judge
from keyed import end_of, judged, keyed, replay_refusal, sold_before_the_run


@pytest.mark.parametrize("unit, result", [(9, "inconclusive"), (10, "ok")])
def test_an_answer_of_before_the_run_is_not_that_of_another_key(unit, result):
    """Two buyers may hold unit 9. Unit 10 was sold before the run for certain."""
    world = keyed(1, instances=["a"], items={"phone": 9}, quantities=False)
    verdict = judged(sold_before_the_run(world, unit=unit))
    assert verdict["result"] == result, verdict["reasons"]
    assert (result == "ok") != ("with key of yesterday got a stored answer with unit 9 of phone, which another key sold" in
                                verdict["reasons"][0])


def test_a_refusal_from_before_the_run_sent_nobody_away():
    """Its key was told sold-out in an earlier run; now there is stock."""
    worlds = {}
    for seed in range(SEEDS):
        world = keyed(seed, instances=["a", "b"])
        request = {"item": next(iter(world.run["items"])), "quantity": 1, "key": "of yesterday", "instance": "a"}
        worlds[seed] = replay_refusal(world, request)
        world.run["requests"] += 1
    with judge(worlds) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            assert verdict["result"] == "ok", (seed, folder, verdict["reasons"])
            assert "stored answers from before the run that were sent again in it: 1" in verdict["reasons"]


@pytest.mark.parametrize("answered_by", ["a", "of yesterday"])
def test_a_sale_from_before_the_run_is_none_of_it(answered_by):
    worlds = {seed: sold_before_the_run(keyed(seed), answered_by) for seed in range(SEEDS)}
    with judge(worlds) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            assert verdict["result"] == "ok", (seed, folder, verdict["reasons"])
            assert verdict["sold"] == sum(s["write"]["quantity"] for s in worlds[seed].sales())
            assert verdict["replayed"] == 1


def test_there_is_no_answer_from_before_the_run_where_all_keys_are_new():
    """A shop that tells a buyer what another key's sale got."""
    world = sold_before_the_run(keyed(1))
    world.run["fresh_keys"] = True
    verdict = judged(world)
    assert verdict["result"] == "inconclusive", verdict["reasons"]
    assert "stored answers that no request of the run can have left, though all keys are new: 1" in verdict["reasons"]


def test_a_sale_from_before_the_run_is_not_that_of_an_instance_that_was_killed():
    """b was asked for the key's answer and died; a had sold, in an earlier run."""
    worlds = {}
    for seed in range(SEEDS // 2):
        world = keyed(seed, instances=["a", "b"], fault="killed", expect=["ok"])
        asked = world.request(next(iter(world.stock)), "b", end_of(world))
        world.requests.remove(asked)  # it is one buyer with who comes again
        asked["invoke"]["key"] = "of yesterday"
        world.answer(asked, asked["t_ns"], 502)
        world.samples[-1]["key"] = "of yesterday"
        world.unended.add("b")
        worlds[seed] = sold_before_the_run(world)
    with judge(worlds) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            assert verdict["result"] == "ok", (seed, folder, verdict["reasons"])
            assert verdict["sold"] == sum(s["write"]["quantity"] for s in worlds[seed].sales())


def test_a_sale_that_may_be_from_before_the_run_proves_nothing():
    """A record of its seller is missing. If that was the sale's, its unit is not missed, either."""
    def without(seed, took):
        world = sold_before_the_run(keyed(seed, instances=["a", "b"]))
        world.add("a", world.t0, "stall", late_ns=0)
        world.seq_edits["a"] = lambda lines: lines.pop(next(i for i, e in enumerate(lines) if e["event"] == "stall"))
        item = next(iter(world.stock))
        if took and world.stock[item] > 0:
            world.redis["after"]["stock"][item] -= 1
        return world
    worlds = {(seed, took): without(seed, took) for seed in range(SEEDS // 2) for took in (False, True)}
    with judge({f"{seed}-{took}": world for (seed, took), world in worlds.items()}) as verdicts:
        for name, (verdict, folder) in verdicts.items():
            assert (verdict["result"], verdict["shortfall"]) == ("inconclusive", 0), (name, folder, verdict["reasons"])
