# SPDX-License-Identifier: Apache-2.0
"""Idempotency keys: a sale counts once, however often it was asked for; a second one under its key is found though the
stock was enough for it."""
import re
import shutil
import subprocess
import sys

import pytest
import shop
import small
from judge import JUDGE, SEEDS, judge
from shop import MS

HOSTILE = ['"k"', "\\", "k,", "'", "<k>", "%s"]


def end_of(world):
    return max(line["t_ns"] for lines in world.events.values() for line in lines) + 1


def sort(world):
    for lines in world.events.values():
        lines.sort(key=lambda line: line["t_ns"])
    return world


def give_key(world, request, key):
    request["key"] = request["invoke"]["key"] = key
    for sample in world.samples:
        if sample["request"] == request["id"]:
            sample["key"] = key


def keyed(seed, **asked):
    """A correct run of requests that all have a key; nobody has repeated one."""
    world = shop.clean(seed, **{"unknowns": 0, "write": "atomic", **asked})
    world.columns = shop.JTL_COLUMNS + shop.KEY_COLUMNS
    for section in world.sections:  # as those that are added have none
        section["granted"]["token"] = None
    for i, request in enumerate(world.requests):
        give_key(world, request, f"key{i}-" + world.random.choice(HOSTILE))
    return world


def again(world, request, instance=None, quantity=None):
    """The same key, sent once more when all is over. Returns the request and its section, which it has entered."""
    now = end_of(world)
    repetition = world.request(request["item"], instance or world.random.choice(world.run["instances"]), now,
                               quantity or request["quantity"])
    give_key(world, repetition, request["key"])
    return repetition, world.section(repetition, (now + 1, now + 2))


def told(world, repetition, code, unit, left):
    world.answer(repetition, end_of(world), code, unit, left)
    world.samples[-1].update(key=repetition["key"], replayed="true")


def replay(world, request, instance=None, **fields):
    """It gets the answer of the first time; fields: what is told instead."""
    write = next(s["write"] for s in world.sections if s["request"] is request and "write" in s)
    repetition, section = again(world, request, instance)
    now = section["enter"]["t_ns"]
    line = {"code": 200, "seller": request["instance"], "unit": write["unit"], "stock_after": write["stock_after"],
            "quantity": write["quantity"], **fields}
    repetition["outcome"] = world.about(repetition, now + 1, "replay", hold=section["hold"], **line)
    world.leave(section, now + 2, now + 3)
    told(world, repetition, line["code"], line["unit"] if line["code"] == 200 else "", line["stock_after"])
    return sort(world)


def replay_refusal(world, request, left=0, **fields):
    repetition, section = again(world, request)
    now = section["enter"]["t_ns"]
    world.about(repetition, now + 1, "replay", hold=section["hold"], **{
        "code": 409, "seller": request["instance"], "stock_after": left, "quantity": request["quantity"], **fields})
    world.leave(section, now + 2, now + 3)
    told(world, repetition, 409, "", left)
    return sort(world)


def sell_again(world, request):
    """It is sold to, as if nobody had sold under its key; the stock is enough, and says so."""
    repetition, section = again(world, request)
    now, item = section["enter"]["t_ns"], request["item"]
    before = world.stock[item]
    if before < repetition["quantity"]:
        return None
    world.sell(section, now + 1, now + 2, before)
    world.samples[-1]["key"] = request["key"]
    world.leave(section, now + 3, now + 4)
    world.stock[item] -= repetition["quantity"]
    world.redis["after"]["stock"][item] = world.stock[item]
    return sort(world)


def a_sale(world):
    sales = world.sales()
    return world.random.choice(sales)["request"] if sales else None


def a_refusal(world):
    refused = [r for r in world.requests if r["outcome"].get("reason") == "sold-out"]
    return world.random.choice(refused) if refused else None


def refused_inside(world, request, reason, code=409, quantity=None, start=None):
    """Its key comes again, has the lock, and is refused; when all is over, or at start."""
    now = end_of(world) if start is None else start
    repetition = world.request(request["item"], request["instance"], now, quantity or request["quantity"])
    section = world.section(repetition, (now + 1, now + 2))
    if reason in ("sold-out", "too-few"):
        section["read"] = world.about(repetition, now + 3, "read", hold=section["hold"], stock_before=0)
    world.leave(section, now + 4, now + 5)
    world.refuse(repetition, now + 6, code, reason)
    give_key(world, repetition, request["key"])
    return sort(world)


# ---- What is right ------------------------------------------------------------------------------

def nobody_repeats(world):
    return world


def each_is_repeated(world):
    for request in list(world.requests):
        if request["code"] == 200:
            replay(world, request)
            replay(world, request)
    return world


def sold_out_is_told_again(world):
    request = a_refusal(world)
    if request is None:
        return None
    request["outcome"]["kept"] = True
    return replay_refusal(world, request)


def in_flight(world):
    """It is refused while the other is under way, and enough is left."""
    request = a_sale(world)
    if request is None:
        return None
    repetition = world.request(request["item"], request["instance"], request["invoke"]["t_ns"], request["quantity"])
    give_key(world, repetition, request["key"])
    world.refuse(repetition, repetition["t_ns"] + 1, 409, "request-in-flight")
    world.samples[-1]["key"] = request["key"]
    return sort(world)


def in_flight_while_enough_is_left(world):
    """Its first request finds nothing left when its turn comes: that one stands for the key."""
    request = a_refusal(world)
    if request is None or request["outcome"]["reason"] != "sold-out":
        return None
    repetition = world.request(request["item"], request["instance"], world.t0, request["quantity"])
    world.refuse(repetition, world.t0 + 1, 409, "request-in-flight")
    give_key(world, repetition, request["key"])
    return sort(world)


def another_quantity(world):
    request = a_sale(world)
    if request is None:
        return None
    repetition, section = again(world, request, quantity=request["quantity"] + 1)
    world.leave(section, section["enter"]["t_ns"] + 1, section["enter"]["t_ns"] + 2)
    world.refuse(repetition, end_of(world), 422, "key-reused")
    world.samples[-1]["key"] = request["key"]
    return sort(world)


def sent_away_and_then_bought(world):
    """By an instance, ahead of its turn: the same key bought later."""
    request = a_sale(world)
    if request is None:
        return None
    first = world.request(request["item"], request["instance"], world.t0, request["quantity"])
    give_key(world, first, request["key"])
    world.refuse(first, world.t0 + 1, 503, "queue-full")
    world.samples[-1]["key"] = request["key"]
    return sort(world)


def nginx_sent_it_away_and_then_it_bought(world):
    """No history has it: sale.jtl has its key."""
    request = a_sale(world)
    if request is None:
        return None
    first = world.request(request["item"], request["instance"], world.t0, request["quantity"])
    world.remove(first["invoke"])
    world.answer(first, world.t0 + 1, 503)
    give_key(world, first, request["key"])
    world.passed[-1].update(upstream="127.0.0.1:8000", upstream_status="503", upstream_bytes_sent="0")
    return world


def sold_out_ahead_of_its_sale(world):
    """It was refused before the sale of its key was done: the one came after the other."""
    request = a_sale(world)
    return request and refused_inside(world, request, "sold-out", start=world.t0)


def sent_away_again(world):
    """Its key's sale is not looked for: it never had its turn."""
    request = a_sale(world)
    if request:
        comes_again(world, request, 503, "lock-timeout")
    return request and sort(world)


def reused(world):
    request = a_sale(world)
    return request and refused_inside(world, request, "key-reused", 422, request["quantity"] + 1)


@pytest.mark.parametrize("change", [nobody_repeats, sold_out_ahead_of_its_sale, sent_away_again, reused, each_is_repeated,
                                    sold_out_is_told_again, in_flight,
                                    in_flight_while_enough_is_left, another_quantity,
                                    sent_away_and_then_bought, nginx_sent_it_away_and_then_it_bought])
def test_nobody_is_accused(change):
    worlds = {seed: world for seed in range(SEEDS) if (world := change(keyed(seed)))}
    assert len(worlds) > SEEDS // 4
    with judge(worlds) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            world = worlds[seed]
            assert verdict["result"] == "ok", (seed, folder, verdict["reasons"])
            assert verdict["sold"] == sum(s["write"]["quantity"] for s in world.sales())
            assert verdict["requests"] == len({(r["item"], r["key"]) for r in world.requests}) == world.run["requests"]
            assert verdict["replayed"] == sum(sample["replayed"] == "true" for sample in world.samples)
            assert verdict["sold_again"] == verdict["unknown"] == verdict["refused_early"] == 0


def lose(world, request):
    """Its client got no answer; so it was not told of a replay, either."""
    world.sample_of(request).update(responseCode="Non HTTP response code: org.apache.http.NoHttpResponseException",
                                    success="false", item="", instance="", unit="", left="")


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


def comes_again(world, request, code, reason):
    """The same key is sent once more when all is over, and sent away."""
    repetition = world.request(request["item"], request["instance"], end_of(world), request["quantity"])
    world.refuse(repetition, repetition["t_ns"] + 1, code, reason)
    give_key(world, repetition, request["key"])
    return repetition


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


def test_clients_that_tell_of_no_keys():
    """The two columns are optional: the histories have the keys."""
    worlds = {seed: each_is_repeated(keyed(seed)) for seed in range(SEEDS // 4)}
    for world in worlds.values():
        world.columns = shop.JTL_COLUMNS
    with judge(worlds) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            assert verdict["result"] == "ok", (seed, folder, verdict["reasons"])


@pytest.mark.parametrize("logged", [True, False])
def test_clients_that_tell_of_keys_without_the_item(logged):
    """There is no column URL: nginx's uri, the answer or the history has it."""
    worlds = {}
    for seed in range(SEEDS // 4):
        world = each_is_repeated(keyed(seed))
        refused = [request for request in world.requests if request["code"] != 200]
        if logged:  # who was not let in yet is one buyer with who bought
            nginx_sent_it_away_and_then_it_bought(world)
        for request in refused[:1]:
            give_key(world, request, "\u00a9" * 100)  # longer than what is kept of it
        world.run["direct"], world.logged = not logged, logged
        world.columns = [column for column in world.columns if column != "URL"]
        worlds[seed] = world
    with judge(worlds) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            assert verdict["result"] == "ok", (seed, folder, verdict["reasons"])
            assert verdict["requests"] == len({(r["item"], r["key"]) for r in worlds[seed].requests})


def quoted(key):
    return '"%s"' % key.replace("\\", "\\\\").replace('"', '\\"')


def test_keys_that_are_sent_in_quotes():
    """They are what is in the quotes; the history has that, and another one may send it without."""
    worlds = {seed: each_is_repeated(keyed(seed)) for seed in range(SEEDS // 4)}
    for world in worlds.values():
        for request in world.requests:
            if world.random.random() < 0.5:
                world.sample_of(request)["key"] = quoted(request["key"]) + world.random.choice(["", " "])
    with judge(worlds) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            assert verdict["result"] == "ok", (seed, folder, verdict["reasons"])


@pytest.mark.parametrize("key", ['"', '""', '"k', '"k"k', '"k\\"', '"k\\k"', '"\\', '"' + "k" * 500 + '"'])
def test_keys_that_are_no_text_in_quotes_stand_as_they_are(key):
    world = keyed(1)
    give_key(world, world.requests[0], key)
    with judge({0: world}) as verdicts:
        assert verdicts[0][0]["result"] == "ok", verdicts[0][0]["reasons"]


def test_another_key_without_the_item_is_another_one():
    world = client_has_another_key(keyed(1))
    world.columns = [column for column in world.columns if column != "URL"]
    with judge({0: world}) as verdicts:
        assert "has another idempotency key than in sale.jtl" in "\n".join(verdicts[0][0]["reasons"])


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
        world.about(repetition, now + 603 * MS, "replay", hold=other["hold"], code=200, seller="a", unit=9, stock_after=8,
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
        assert verdict["result"] == "oversold" and verdict["conjured"] == 1, verdict["reasons"]
        # Two requests, one key: nobody knows of one unit.
        assert verdicts["silent"][0]["unknown"] == 1, verdicts["silent"][0]["reasons"]


def test_units_taken_twice_are_missed():
    """Unknown, and then sold: the key has its answer, and what else is gone has vanished."""
    with judge({"twice": killed(2, True)}) as verdicts:
        verdict = verdicts["twice"][0]
        assert verdict["result"] == "undersold" and verdict["vanished"] == 1, verdict["reasons"]


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
            assert (verdict["result"], verdict["unknown"], verdict["vanished"]) == ("ok", 0, 0), (
                seed, folder, verdict["reasons"])
            assert verdict["sold"] + verdict["left"] == verdict["initial"], (seed, folder)


@pytest.mark.parametrize("unit, result", [(9, "inconclusive"), (10, "ok")])
def test_an_answer_of_before_the_run_is_not_that_of_another_key(unit, result):
    """Two buyers may hold unit 9. Unit 10 was sold before the run for certain."""
    world = keyed(1, instances=["a"], items={"phone": 9}, quantities=False)
    verdict = judged(sold_before_the_run(world, unit=unit))
    assert verdict["result"] == result, verdict["reasons"]
    assert (result == "ok") != ("with key of yesterday was told again unit 9 of phone, which another key sold" in
                                verdict["reasons"][0])


@pytest.mark.parametrize("instance, result", [("a", "ok"), ("b", "inconclusive")])
def test_a_key_is_in_flight_only_where_it_was_accepted(instance, result):
    world = keyed(1, instances=["a", "b"], items={"phone": 9}, quantities=False)
    sale = next(s["request"] for s in world.sales() if s["request"]["instance"] == "a")
    repetition = world.request("phone", instance, end_of(world))
    world.refuse(repetition, end_of(world), 409, "request-in-flight")
    give_key(world, repetition, sale["key"])
    verdict = judged(sort(world))
    assert verdict["result"] == result, verdict["reasons"]
    assert (result == "ok") != ("requests whose key was in flight, as they were told: 1" in verdict["reasons"][0])


def judged(world):
    with judge({1: world}) as verdicts:
        return verdicts[1][0]


def sold_before_the_run(world, seller="a", unit=100):
    """A key that this run has no sale of is answered as it was in an earlier one, of more units."""
    item = next(iter(world.run["items"]))
    request = {"item": item, "quantity": 1, "key": "of yesterday"}
    repetition, section = again(world, request)
    now = section["enter"]["t_ns"]
    repetition["outcome"] = world.about(repetition, now + 1, "replay", hold=section["hold"], code=200, seller=seller,
                                        unit=unit, stock_after=unit - 1, quantity=1)
    world.leave(section, now + 2, now + 3)
    told(world, repetition, 200, unit, unit - 1)
    world.run["requests"] += 1
    return sort(world)


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
            assert "answers that were given before the run, and told again in it: 1" in verdict["reasons"]


@pytest.mark.parametrize("seller", ["a", "of yesterday"])
def test_a_sale_from_before_the_run_is_none_of_it(seller):
    worlds = {seed: sold_before_the_run(keyed(seed), seller) for seed in range(SEEDS)}
    with judge(worlds) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            assert verdict["result"] == "ok", (seed, folder, verdict["reasons"])
            assert verdict["sold"] == sum(s["write"]["quantity"] for s in worlds[seed].sales())
            assert verdict["replayed"] == 1


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
            assert (verdict["result"], verdict["vanished"]) == ("inconclusive", 0), (name, folder, verdict["reasons"])


# ---- What is wrong ------------------------------------------------------------------------------

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
        if "seller" in fields and not others:
            return None
        return replay(world, request, **{name: others[0] if name == "seller" else write[name] + 1 for name in fields})
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
    (told_otherwise(seller=1), "answers that differ .*: 1; first: .* got 200"),
    (refused_otherwise, "answers that differ .*: 1; first: .* got 409"),
    (told_two_ways, "answers that differ .*: 1; first: .* got 200"),
    (refused_after_its_sale("sold-out", 409), "answers that differ .*: 1; first: .* got 409"),
    (refused_after_its_sale("too-few", 409), "answers that differ .*: 1; first: .* got 409"),
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
            assert verdict["oversold"] == verdict["conjured"] == verdict["resold"] == verdict["vanished"] == 0


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


def refused_early(seed, told_again, left_out=False):
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
    with judge({seed: refused_early(seed, told_again) for seed in range(SEEDS // 4)}) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            assert verdict["result"] == "undersold", (seed, folder, verdict["reasons"])
            assert verdict["refused_early"] == 1 and verdict["unsold"] == 1, (seed, folder, verdict["reasons"])


def test_a_refusal_that_came_too_early_and_told_another_number():
    """It says that nothing is left, and had read that all is there: what it had read convicts it all the same."""
    world = refused_early(1, 0)
    world.sample_of(world.requests[-1])["left"] = 0
    with judge({0: world}) as verdicts:
        told = "\n".join(verdicts[0][0]["reasons"])
        assert verdicts[0][0]["result"] == "undersold" and "it read another number" in told, told


def test_a_refusal_of_which_only_its_repetition_tells():
    with judge({seed: refused_early(seed, 1, left_out=True) for seed in range(SEEDS // 4)}) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            assert verdict["result"] == "undersold", (seed, folder, verdict["reasons"])
            assert verdict["refused_early"] == 1, (seed, folder, verdict["reasons"])


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
            assert verdict["unknown"] == 0 and verdict["vanished"] == taken, (seed, folder, verdict["reasons"])
            assert verdict["result"] == ("undersold" if taken else "ok"), (seed, folder, verdict["reasons"])


def accepted_again(world, request, key, instance):
    """One request id comes twice, and is sold to twice; the stock is enough."""
    before, now = world.stock[request["item"]], end_of(world)
    if before < request["quantity"]:
        return None
    world.about({**request, "instance": instance}, now, "invoke", quantity=request["quantity"], key=key)
    section = world.section({**request, "instance": instance}, (now + 1, now + 2))
    world.sell(section, now + 3, now + 4, before)
    world.samples.pop()
    world.passed.pop()
    world.leave(section, now + 5, now + 6)
    world.stock[request["item"]] -= request["quantity"]
    world.redis["after"]["stock"] = dict(world.stock)
    return sort(world)


@pytest.mark.parametrize("instance", ["a", "b"])
def test_an_id_that_comes_twice(instance):
    """With one key it is one buyer, who was sold to twice. With two keys it may be two buyers, and nobody knows whose
    sale is whose."""
    def make(seed, key=None):
        world = keyed(seed, items={"phone": 99}, instances=["a", "b"], quantities=False, requests=8)
        request = next(r for r in world.requests if r["instance"] == "a")
        return accepted_again(world, request, key or request["key"], instance)
    worlds = {(seed, key): make(seed, key) for seed in range(SEEDS // 10) for key in (None, "other", "key1-x")}
    with judge({f"{seed}-{key}": world for (seed, key), world in worlds.items()}) as verdicts:
        for name, (verdict, folder) in verdicts.items():
            told = "\n".join(verdict["reasons"])
            assert "was accepted twice" in told, (folder, told)
            assert ("units sold again" in told) == name.endswith("None"), (folder, told)
            assert ("another idempotency key" in told) != name.endswith("None"), (folder, told)
            assert verdict["result"] == ("oversold" if name.endswith("None") else "inconclusive"), (folder, told)


# In a process of its own: the greatest size of a child begins with that of its parent, which is large here.
MEASURED = """import resource, subprocess, sys
print(subprocess.run(sys.argv[1:], capture_output=True, encoding="utf-8").stdout)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"""


def test_keys_of_one_request_take_no_memory(tmp_path):
    """However often its line comes, and with whatever keys, it is one request."""
    lines, took = 120_000, {}
    for name in ("one key", "many keys"):
        world = keyed(1)
        request, now = world.requests[0], end_of(world)
        for i in range(lines):
            key = f"{i if name == 'many keys' else 0:0160d}"
            world.about(request, now, "invoke", quantity=request["quantity"], key=key)
        folder = world.write(str(tmp_path / name))
        told = subprocess.run([sys.executable, "-c", MEASURED, JUDGE, folder], capture_output=True, check=True,
                              encoding="utf-8").stdout
        shutil.rmtree(folder)
        assert "was accepted twice" in told, told
        took[name] = int(told.split()[-1])
    assert took["many keys"] - took["one key"] < 4096, took  # KiB; the keys are 18 MiB


def test_keys_of_an_item_whose_name_begins_as_the_path_goes_on():
    worlds = {seed: each_is_repeated(keyed(seed, items={"sale-phone": 9})) for seed in range(SEEDS // 4)}
    with judge(worlds) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            assert verdict["result"] == "ok", (seed, folder, verdict["reasons"])


def test_another_item_s_key_is_another_one():
    def make(seed):
        world = keyed(seed, items={"one": 9, "two": 9})
        for item in world.run["items"]:
            for i, request in enumerate(request for request in world.requests if request["item"] == item):
                give_key(world, request, f"k{i}")
        return world
    with judge({seed: make(seed) for seed in range(SEEDS // 4)}) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            assert verdict["result"] == "ok", (seed, folder, verdict["reasons"])


def without_a_key(world):
    request = a_sale(world)
    if request is None:
        return None
    replay(world, request)
    for sample in world.samples[-1:]:
        sample["key"] = ""
    del world.requests[-1]["invoke"]["key"]
    return world


def of_another_hold(world):
    request = a_sale(world)
    if request is None:
        return None
    replay(world, request)
    world.requests[-1]["outcome"]["hold"] = next(s["hold"] for s in world.sections if s["request"] is request)
    return world


def client_was_not_told_so(world):
    request = a_sale(world)
    if request is None:
        return None
    replay(world, request)
    world.samples[-1]["replayed"] = ""
    return world


def client_was_told_so_of_a_sale(world):
    request = a_sale(world)
    if request:
        world.sample_of(request)["replayed"] = "true"
    return request and world


def client_was_told_other_numbers(world):
    request = a_sale(world)
    if request is None:
        return None
    replay(world, request)
    world.samples[-1]["left"] += 1
    return world


def client_has_another_key(world):
    request = world.random.choice(world.requests)
    world.sample_of(request)["key"] = "other"
    return world


def client_was_told_of_another(column):
    def told_of(world):
        request = a_sale(world)
        if request is None:
            return None
        replay(world, request)
        world.samples[-1][column] = "nobody"
        return world
    told_of.__name__ = "client_was_told_of_another_" + column
    return told_of


@pytest.mark.parametrize("change,reason", [
    (client_was_told_of_another("item"), "a sale of another item was told again"),
    (client_was_told_of_another("instance"), "an instance that neither sold nor answered"),
    (without_a_key, "was not granted to that request, or without a key"),
    (of_another_hold, "was not granted to that request, or without a key"),
    (client_was_not_told_so, "differ on whether the answer is one that was given before"),
    (client_was_told_so_of_a_sale, "differ on whether the answer is one that was given before"),
    (client_was_told_other_numbers, "other numbers were told again"),
    (client_has_another_key, "has another idempotency key than in sale.jtl")],
    ids=lambda value: getattr(value, "__name__", None))
def test_records_that_contradict_each_other(change, reason):
    worlds = {seed: world for seed in range(SEEDS // 4) if (world := change(keyed(seed)))}
    assert worlds
    with judge(worlds) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            assert verdict["result"] == "inconclusive", (seed, folder, verdict["reasons"])
            assert reason in "\n".join(verdict["reasons"]), (seed, folder, verdict["reasons"])
