# SPDX-License-Identifier: Apache-2.0
"""Idempotency keys: a second sale under a key, or a second answer, is found though the stock was enough for it."""
import re

import pytest
from judge import SEEDS, judge
from keyed import a_refusal, a_sale, give_key, keyed, lose, refused_inside, replay, replay_refusal, sell_again, sold_before_the_run, sort


def sold_twice(world):
    request = a_sale(world)
    return request and sell_again(world, request)


def another_unit_is_told(world):
    request = a_sale(world)
    if request is None:
        return None
    write = request["outcome"]
    return replay(world, request, unit=write["unit"] + 1, stock_after=write["stock_after"] + 1)


def sold_out_is_told_after_a_sale(world):
    request = a_sale(world)
    return request and replay_refusal(world, request)


def sold_after_a_kept_refusal(world):
    """The item was restocked, or another quantity would do: the key's answer stands all the same."""
    sale, request = a_sale(world), a_refusal(world)
    if sale is None or request is None or sale["item"] != request["item"]:
        return None
    request["outcome"]["kept"] = True
    give_key(world, sale, request["key"])
    return world


def refused_after_its_sale(reason, code):
    def refused(world):
        request = a_sale(world)
        return request and refused_inside(world, request, reason, code)
    refused.__name__ = "sale_then_" + reason
    return refused


def refused_after_its_refusal(reason, code):
    def refused(world):
        request = a_refusal(world)
        if request is None:
            return None
        request["outcome"]["kept"] = True
        return refused_inside(world, request, reason, code)
    refused.__name__ = "kept_then_" + reason
    return refused


def told_otherwise(**fields):
    """Each tells the next number, or the other instance: the unit is the same."""
    def otherwise(world):
        request = a_sale(world)
        if request is None:
            return None
        write = request["outcome"]
        others = [i for i in world.run["instances"] if i != request["instance"]]
        if "answered_by" in fields and not others:
            return None
        return replay(world, request, **{name: others[0] if name == "answered_by" else write[name] + 1 for name in fields})
    otherwise.__name__ = "another_" + "_".join(fields)
    return otherwise


def refused_otherwise(world):
    request = a_refusal(world)
    if request is None:
        return None
    request["outcome"]["kept"] = True
    return replay_refusal(world, request, left=5)


def told_two_ways(world):
    """The instance that sold has recorded nothing; two repetitions tell."""
    request = a_sale(world)
    if request is None:
        return None
    replay(world, request)
    replay(world, request, stock_after=request["outcome"]["stock_after"] + 1)
    section = next(s for s in world.sections if s["request"] is request and "write" in s)
    world.remove(section["write"])
    lose(world, request)
    world.unended.add(request["instance"])
    world.run["fault"] = "killed"
    return world


def told_two_ways_of_before_the_run(world):
    return sold_before_the_run(sold_before_the_run(world), unit=2)


FAULTS = [
    (told_two_ways_of_before_the_run, "answers that differ .*: 1; first: .* with key of yesterday got 200"),
    (told_otherwise(stock_after=1), "answers that differ .*: 1; first: .* got 200"),
    (told_otherwise(answered_by=1), "answers that differ .*: 1; first: .* got 200"),
    (refused_otherwise, "answers that differ .*: 1; first: .* got 409"),
    (told_two_ways, "answers that differ .*: 1; first: .* got 200"),
    (refused_after_its_sale("sold-out", 409), "answers that differ .*: 1; first: .* got 409"),
    (refused_after_its_sale("insufficient-stock", 409), "answers that differ .*: 1; first: .* got 409"),
    (refused_after_its_sale("unknown-item", 404), "answers that differ .*: 1; first: .* got 404"),
    (refused_after_its_sale("key-reused", 422), "answers that differ .*: 1; first: .* got 422"),
    (refused_after_its_refusal("unknown-item", 404), "answers that differ .*: 1; first: .* got 404"),
    (refused_after_its_refusal("key-reused", 422), "answers that differ .*: 1; first: .* got 422"),
    (sold_twice, r"units sold again under an idempotency key: \d+; first: key key\d+-.* of item-\d sold unit \d+ to request"),
    (another_unit_is_told, r"answers that differ from another one under the same idempotency key: 1"),
    (sold_out_is_told_after_a_sale, r"answers that differ from another one .* got 409"),
    (sold_after_a_kept_refusal, r"answers that differ from another one .* got 409")]


@pytest.mark.parametrize("change,reason", FAULTS, ids=lambda value: getattr(value, "__name__", None))
def test_a_fault_is_found(change, reason):
    worlds = {seed: world for seed in range(SEEDS) if (world := change(keyed(seed)))}
    assert len(worlds) > SEEDS // 10
    with judge(worlds) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            assert verdict["result"] == "oversold", (seed, folder, verdict["reasons"])
            assert any(re.search(reason, text) for text in verdict["reasons"]), (seed, folder, verdict["reasons"])
            # Nothing else is wrong: the stock was enough.
            assert verdict["oversold"] == verdict["surplus"] == verdict["duplicate_units"] == verdict["shortfall"] == 0


@pytest.mark.parametrize("change", ["restocked", "emptied", "another clock"])
def test_a_refusal_that_proves_nothing(change):
    """The item was put there again, or is gone in the end: its Redis may have been emptied. Or nobody knows what was first."""
    def make(seed):
        world = keyed(seed, instances=["a", "b"])
        request = a_sale(world)
        if request is None:
            return None
        refused_inside(world, request, *(("sold-out",) if change == "another clock" else ("unknown-item", 404)))
        if change == "restocked":
            world.run["restocked"] = True
        elif change == "emptied":
            del world.redis["after"]["stock"][request["item"]]
        else:
            world.covers = False
            world.sample_of(world.requests[-1])["timeStamp"] -= 60_000
        return world
    worlds = {seed: world for seed in range(min(SEEDS, 60)) if (world := make(seed))}
    with judge(worlds) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            assert verdict["result"] in ("ok", "inconclusive"), (seed, folder, verdict["reasons"])


def rejected_early(seed, told_again, left_out=False):
    """The first one is told sold-out, which is kept, though all is there; left_out: its instance has died since."""
    world = keyed(seed, items={"phone": 9}, instances=["a", "b"], quantities=False, requests=8, tokens=False)
    first = world.request("phone", "a", world.t0)
    section = world.section(first, (world.t0 + 1, world.t0 + 2))
    if not left_out:
        section["read"] = world.about(first, world.t0 + 3, "read", hold=section["hold"], stock_before=9)
        world.leave(section, world.t0 + 4, world.t0 + 5)
    world.refuse(first, world.t0 + 6, 409, "sold-out")
    first["outcome"]["kept"] = True
    give_key(world, first, "early")
    if left_out:
        for line in (section["granted"], section["enter"], first["outcome"]):
            world.remove(line)
        lose(world, first)
        world.unended.add("a")
        world.run["fault"] = "killed"
    for _ in range(told_again):
        replay_refusal(world, first, left=9)
    return sort(world)


@pytest.mark.parametrize("told_again", [0, 1, 2])
def test_a_refusal_that_was_kept_too_early(told_again):
    """To tell it again makes it no better."""
    with judge({seed: rejected_early(seed, told_again) for seed in range(SEEDS // 4)}) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            assert verdict["result"] == "undersold", (seed, folder, verdict["reasons"])
            assert verdict["rejected_early"] == 1 and verdict["unsold"] == 1, (seed, folder, verdict["reasons"])


def test_a_refusal_that_came_too_early_and_told_another_number():
    """It says that nothing is left, and had read that all is there: what it had read convicts it all the same."""
    world = rejected_early(1, 0)
    world.sample_of(world.requests[-1])["left"] = 0
    with judge({0: world}) as verdicts:
        told = "\n".join(verdicts[0][0]["reasons"])
        assert verdicts[0][0]["result"] == "undersold" and "it read another number" in told, told


def test_a_refusal_of_which_only_its_repetition_tells():
    with judge({seed: rejected_early(seed, 1, left_out=True) for seed in range(SEEDS // 4)}) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            assert verdict["result"] == "undersold", (seed, folder, verdict["reasons"])
            assert verdict["rejected_early"] == 1, (seed, folder, verdict["reasons"])


@pytest.mark.parametrize("taken", [0, 1])
def test_a_kept_refusal_tells_how_an_unknown_sale_ended(taken):
    """It never was done, nor will be: what it took nobody was told of."""
    def make(seed):
        world = keyed(seed, unknowns=0.3, items={"phone": 3}, instances=["a", "b"], quantities=False)
        unknown = [r for r in world.requests if r["outcome"]["event"] == "unknown"]
        refused = a_refusal(world)
        gone = 3 - len(world.sales()) - world.stock["phone"]
        if len(unknown) != 1 or refused is None or gone != taken:
            return None
        refused["outcome"]["kept"] = True
        give_key(world, refused, unknown[0]["key"])
        world.run["requests"] -= 1
        return world
    worlds = {seed: world for seed in range(10 * SEEDS) if (world := make(seed))}
    assert len(worlds) > 5
    with judge(worlds) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            assert verdict["unknown"] == 0 and verdict["shortfall"] == taken, (seed, folder, verdict["reasons"])
            assert verdict["result"] == ("undersold" if taken else "ok"), (seed, folder, verdict["reasons"])
