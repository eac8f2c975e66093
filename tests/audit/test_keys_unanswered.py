# SPDX-License-Identifier: Apache-2.0
"""Idempotency keys of clients that got no answer: a repetition may tell it."""
import pytest
import shop
import small
from judge import SEEDS, judge
from keyed import a_refusal, a_sale, comes_again, end_of, give_key, keyed, lose, replay, replay_refusal, sort
from shop import MS


@pytest.mark.parametrize("arrived", [True, False])
def test_who_got_no_answer_and_asks_again_has_it(arrived):
    """The first attempt was carried out, or it never came; either way it is one buyer with one answer."""
    worlds = {}
    for seed in range(min(SEEDS, 60)):
        world = keyed(seed)
        request = a_sale(world)
        if request is None:
            continue
        if arrived:
            replay(world, request)
        else:  # as if the sample were of the repetition, and another one had been sent before
            first = dict(world.sample_of(request), request=request["id"][::-1] + "x")
            first["timeStamp"] -= 1
            world.samples.append(first)
        lose(world, request if arrived else {"id": request["id"][::-1] + "x"})
        worlds[seed] = world
    with judge(worlds) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            told = "\n".join(verdict["reasons"])
            assert verdict["result"] == "ok" and "idempotency keys, and answered: 1" in told, (seed, folder, told)
            assert verdict["requests"] == worlds[seed].run["requests"]


def lost_then(find, code, reason):
    """The answer to what is found was lost; it came again, and was sent away."""
    def lost(world):
        request = find(world)
        if request:
            comes_again(world, request, code, reason)
            lose(world, request)
        return request and sort(world)
    lost.__name__ = f"lost_{find.__name__}_then_{reason}"
    return lost


def first_sent_away(code, reason):
    """It was sold to when it came again, the answer to that was lost, and it gave up."""
    def sent_away(world):
        request = a_sale(world)
        if request is None:
            return None
        first = world.request(request["item"], request["instance"], world.t0 - MS, request["quantity"])
        world.refuse(first, first["t_ns"] + 1, code, reason)
        give_key(world, first, request["key"])
        lose(world, request)
        return sort(world)
    sent_away.__name__ += f"_by_{reason}_then_lost_sale"
    return sent_away


def the_answered_one_was_sent_before(world):
    """It was sold to, and knows it; the answer to its repetition was lost. Nothing was sent again."""
    request = a_sale(world)
    if request:
        replay(world, request)
        lose(world, world.requests[-1])
    return request and world


def outcome_unknown_then_sold_out(world):
    """Nobody knows whether the first one took a unit. A refusal that is not kept does not tell, either."""
    request = next((r for r in world.requests if r["outcome"]["event"] == "unknown"), None)
    if request:
        comes_again(world, request, 409, "sold-out")
        lose(world, request)
    return request and sort(world)


@pytest.mark.parametrize("change", [
    lost_then(a_sale, 503, "lock-error"), lost_then(a_sale, 409, "request-in-flight"), lost_then(a_sale, 409, "sold-out"),
    lost_then(a_sale, 422, "key-reused"), first_sent_away(503, "lock-error"), first_sent_away(409, "request-in-flight"),
    lost_then(a_refusal, 503, "lock-timeout"), lost_then(a_refusal, 409, "request-in-flight"),
    the_answered_one_was_sent_before, outcome_unknown_then_sold_out],
                         ids=lambda value: value.__name__)
def test_who_got_no_answer_and_is_not_told_the_end_has_none(change):
    """A unit may have left the stock, and its buyer does not know."""
    unknowns = 0.3 if change is outcome_unknown_then_sold_out else 0
    worlds = {seed: world for seed in range(min(SEEDS, 60)) if (world := change(keyed(seed, unknowns=unknowns)))}
    assert len(worlds) > 5
    with judge(worlds) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            told = "\n".join(verdict["reasons"])
            assert "(transport errors): 1, first" in told and "keys, and answered" not in told, (seed, folder, told)
            assert verdict["result"] in ("inconclusive", "undersold"), (seed, folder, told)


@pytest.mark.parametrize("how", ["refused", "replayed"])
def test_who_got_no_answer_and_is_refused_later_has_it(how):
    """Nothing was sold under the key, and both times it was too late: that is the end."""
    worlds = {}
    for seed in range(min(SEEDS, 60)):
        world = keyed(seed)
        request = a_refusal(world)
        if request is None:
            continue
        if how == "replayed":
            request["outcome"]["kept"] = True
            replay_refusal(world, request)
        else:
            comes_again(world, request, 409, "sold-out")
        lose(world, request)
        worlds[seed] = sort(world)
    assert len(worlds) > 5
    with judge(worlds) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            told = "\n".join(verdict["reasons"])
            assert verdict["result"] == "ok" and "idempotency keys, and answered: 1" in told, (seed, folder, told)


def test_the_answer_must_come_to_the_last_try():
    """Lost twice, and told in between: the second has no answer. Told behind both: each has it."""
    def make(lost):
        world = keyed(1)
        tries = [a_sale(world)]
        for _ in range(2):
            world.add(tries[0]["instance"], end_of(world) + 2 * MS, "stall", late_ns=0)  # a client's times are in ms
            tries.append(replay(world, tries[0]).requests[-1])
        for i in lost:
            lose(world, tries[i])
        return world
    with judge({"behind": make([0, 1]), "between": make([0, 2])}) as verdicts:
        told = {name: "\n".join(verdict["reasons"]) for name, (verdict, _) in verdicts.items()}
        assert verdicts["behind"][0]["result"] == "ok" and "keys, and answered: 2" in told["behind"], told
        assert verdicts["between"][0]["result"] == "inconclusive", told
        assert "keys, and answered: 1" in told["between"] and "(transport errors): 1, first" in told["between"], told


def test_who_got_no_answer_under_a_key_that_nobody_else_has_spoils_the_run():
    world = keyed(1)
    lose(world, a_sale(world))
    with judge({0: world}) as verdicts:
        told = "\n".join(verdicts[0][0]["reasons"])
        assert verdicts[0][0]["result"] == "inconclusive" and "(transport errors): 1, first" in told, told


# ---- Instances that die, replies that are lost ----------------------------------------------------

def killed(took, told_again, fault="killed_holding"):
    """a's request has read and is never heard of again; b tells, or does not, what the key was answered."""
    world, now = small.begin("setnx_expire", fault)
    world.run["write"] = "atomic"
    world.columns = shop.JTL_COLUMNS + shop.KEY_COLUMNS
    section = small.inside(world, "a", now)
    request = section["request"]
    small.die(world, "a")
    give_key(world, request, "k")
    world.stock["phone"] -= took
    repetition = world.request("phone", "b", now + 600 * MS)
    give_key(world, repetition, "k")
    if told_again:
        other = world.section(repetition, (now + 601 * MS, now + 602 * MS))
        world.about(repetition, now + 603 * MS, "replay", hold=other["hold"], code=200, answered_by="a", unit=9, stock_after=8,
                    quantity=1)
        world.leave(other, now + 604 * MS, now + 605 * MS)
        world.answer(repetition, now + 605 * MS, 200, 9, 8)
        world.samples[-1].update(key="k", replayed="true")
    else:
        world.refuse(repetition, now + 605 * MS, 503, "lock-timeout")
        world.samples[-1]["key"] = "k"
    shop.finish(world)
    world.run.update(requests=1, expect=["ok"])  # what a key wants counts once
    return world


def test_a_sale_of_which_only_its_repetition_tells():
    with judge({"took": killed(1, True), "took not": killed(0, True), "silent": killed(1, False)}) as verdicts:
        verdict = verdicts["took"][0]
        assert verdict["result"] == "ok", verdict["reasons"]
        assert (verdict["sold"], verdict["left"], verdict["unknown"]) == (1, 8, 0)
        assert verdict["by_instance"]["a"]["sold"] == 1 and verdict["by_instance"]["b"]["sold"] == 0
        # A buyer was told of a unit that never left the stock.
        verdict = verdicts["took not"][0]
        assert verdict["result"] == "oversold" and verdict["surplus"] == 1, verdict["reasons"]
        # Two requests, one key: nobody knows of one unit.
        assert verdicts["silent"][0]["unknown"] == 1, verdicts["silent"][0]["reasons"]


def test_units_taken_twice_are_missed():
    """Unknown, and then sold: the key has its answer, and what else is gone has vanished."""
    with judge({"twice": killed(2, True)}) as verdicts:
        verdict = verdicts["twice"][0]
        assert verdict["result"] == "undersold" and verdict["shortfall"] == 1, verdict["reasons"]


def test_a_reply_that_was_lost_and_then_told():
    """Every history is whole, and the write's reply was lost: its key tells that it sold."""
    worlds = {}
    for seed in range(SEEDS):
        world = keyed(seed, fault="cut_writing", expect=["ok"])
        request = a_sale(world)
        if request is None:
            continue
        replay(world, request)
        section = next(s for s in world.sections if s["request"] is request)
        line = section["write"]
        for field in "stock_before", "stock_after", "unit":
            del line[field]
        line.update(event="unknown", code=500)
        world.sample_of(request).update(responseCode=500, item="", instance="", unit="", left="")
        world.passed_of(request).update(status=500, upstream_status="500")
        worlds[seed] = world
    with judge(worlds) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            assert (verdict["result"], verdict["unknown"], verdict["shortfall"]) == ("ok", 0, 0), (
                seed, folder, verdict["reasons"])
            assert verdict["sold"] + verdict["left"] == verdict["initial"], (seed, folder)
