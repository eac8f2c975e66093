# SPDX-License-Identifier: Apache-2.0
"""Idempotency keys: a sale counts once, however often it was asked for, and nobody is accused."""
import pytest
import shop
from judge import SEEDS, judge
from keyed import a_refusal, a_sale, again, comes_again, end_of, give_key, judged, keyed, refused_inside, replay, replay_refusal, sort


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
            assert verdict["duplicate_key_units"] == verdict["unknown"] == verdict["rejected_early"] == 0


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


@pytest.mark.parametrize("instance, result", [("a", "ok"), ("b", "inconclusive")])
def test_a_key_is_in_flight_only_where_it_was_accepted(instance, result):
    world = keyed(1, instances=["a", "b"], items={"phone": 9}, quantities=False)
    sale = next(s["request"] for s in world.sales() if s["request"]["instance"] == "a")
    repetition = world.request("phone", instance, end_of(world))
    world.refuse(repetition, end_of(world), 409, "request-in-flight")
    give_key(world, repetition, sale["key"])
    verdict = judged(sort(world))
    assert verdict["result"] == result, verdict["reasons"]
    assert (result == "ok") != ("requests that were answered request-in-flight: 1" in verdict["reasons"][0])


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
