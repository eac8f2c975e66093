# SPDX-License-Identifier: Apache-2.0
"""Clean runs and near misses are never accused."""
import pytest
import shop
from judge import SEEDS, judge
from shop import MS


def any_clean(seed):
    return shop.clean(seed)


def touching(seed):
    """Each section begins at the nanosecond at which the one before ended."""
    world = shop.World(seed)
    shop.start(world)
    instances, items = world.run["instances"], list(world.run["items"])
    requests = [world.request(items[0], instances[i % len(instances)], world.t0)
                for i in range(12)]
    now = world.t0
    for token, request in enumerate(requests):
        now = shop.turn(world, request, now, token + 1, lengths=lambda: 0)
    world.random.shuffle(world.samples)
    return shop.finish(world)


def equal_stamps(seed):
    """A clock so coarse that many sections begin and end at one stamp. They are not over at once: a release is a
    command, and what takes no time at all is a clock that stands still."""
    world = shop.clean(seed)
    coarse = world.random.choice([1000, 10_000, MS])
    for lines in world.events.values():
        for line in lines:
            line["t_ns"] -= max(0, line["t_ns"] - world.t0) % coarse
    for section in world.sections:
        section["release"]["t_ns"] += section["release"]["t_ns"] == section["granted"]["t_ns"]
    for request in world.requests:  # attempts must still be seen to meet
        request["invoke"]["t_ns"] = world.t0 - 500
    return world


def quantity_edges(seed):
    """Sales that empty the shelf to the unit; who then asks for one more than there is."""
    world = shop.World(seed)
    shop.start(world)
    rand, instances = world.random, world.run["instances"]
    now = world.t0 + MS
    for item, stock in world.run["items"].items():
        asked, rest = [], stock
        while rest > 0:
            asked.append(rand.randint(1, rest))
            rest -= asked[-1]
            asked.append(rest + 1)  # one too many: refused, nothing sold
        for i, quantity in enumerate(asked + [1, 2, 1, 2, 1, 2]):
            request = world.request(item, instances[i % len(instances)], world.t0, quantity)
            now = shop.turn(world, request, now)
    return shop.finish(world)


def unknown_within_bounds(seed):
    return shop.clean(seed, unknowns=0.6)


def too_few_left(seed):
    """409 though something is left: less than was asked for."""
    world = shop.World(seed)
    shop.start(world, items={"phone": 2})
    instances = world.run["instances"]
    now = world.t0 + MS
    for i in range(6):
        request = world.request("phone", instances[i % len(instances)], world.t0, 3)
        now = shop.turn(world, request, now)
    assert world.stock["phone"] == 2
    return shop.finish(world)


def timed_out_as_the_last_was_sold(seed):
    """Refused at the very stamp at which the last sale's section began, or later."""
    world = shop.clean(seed, items={"phone": 6}, requests=24, unknowns=0, quantities=False)
    last = max(world.sales(), key=lambda s: s["write"]["t_ns"])
    when = last["enter"]["t_ns"] + world.random.choice([0, 1])
    request = world.request("phone", world.run["instances"][0], world.t0)
    world.refuse(request, when, 503, "lock-timeout")
    world.events[request["instance"]].sort(key=lambda line: line["t_ns"])
    return world


def stalls_that_do_no_harm(seed):
    """A long stall where nothing lives by renewal, and a short one where something does."""
    rung = ["watchdog", "owner_lua"][seed % 2]
    world = shop.clean(seed, rung=rung, ttl_ms=3000)
    for lines in world.events.values():
        lines[:] = [line for line in lines if line["event"] != "stall"]
    late_ms = 5000
    if seed % 4 < 2:
        late_ms = 1000
        last = max(world.sections, key=lambda s: s["exit"]["t_ns"])
        for line in world.events[last["request"]["instance"]]:
            if line is last["exit"] or line is last["release"]:
                line["t_ns"] += 2000 * MS
    world.add(world.run["instances"][0], world.t0 + 20, "stall", late_ns=late_ms * MS)
    return world


def killed_in_the_section(seed):
    """A process dies inside a section, the lock expires, others go on. Whether its sale took
    anything is not known."""
    world = shop.World(seed)
    shop.start(world, rung="owner_lua", instances=["a", "b"], items={"phone": 6},
               fault="kill", expect=["ok"])
    rand = world.random
    requests = [world.request("phone", "ab"[i % 2], world.t0) for i in range(16)]
    now = world.t0 + MS
    for request in requests[:4]:
        now = shop.turn(world, request, now)
    victim = world.section(requests[5], (now, now + 1))
    if rand.random() < 0.7:
        victim["read"] = world.about(requests[5], now + 2, "read", hold=victim["hold"],
                                     stock_before=world.stock["phone"])
        world.stock["phone"] -= rand.choice([0, 1])
    for request in requests[5::2]:  # all that b had accepted get no answer
        world.answer(request, now + 3, 502)
    now += 30_000 * MS
    for request in requests[4::2]:
        now = shop.turn(world, request, now)
    world.unended.add("b")
    return shop.finish(world)


def restocked(seed):
    """The same units again and again, each time after the shelf was filled."""
    exact = seed % 2 == 0
    world = shop.World(seed)
    shop.start(world, items={"phone": 5}, restocked=True)
    rand, instances = world.random, world.run["instances"]
    requests = [world.request("phone", instances[i % len(instances)], world.t0)
                for i in range(30)]
    now = world.t0 + MS
    for request in requests:
        now = shop.turn(world, request, now) + 10
        if world.stock["phone"] == 0 or rand.random() < 0.2:
            before, world.stock["phone"] = world.stock["phone"], rand.randint(1, 6)
            more = {"stock_before": before} if exact else {}
            world.add(rand.choice(instances), now, "restock", item="phone",
                      stock_after=world.stock["phone"], **more)
            now += 10
    return shop.finish(world)


def items_at_once(seed):
    """Sections of different locks may overlap as they like."""
    return shop.clean(seed, items={"phone": 4, "lamp": 4, "chair": 4}, requests=30)


NEAR_MISSES = [any_clean, touching, equal_stamps, quantity_edges, unknown_within_bounds,
               too_few_left, timed_out_as_the_last_was_sold, stalls_that_do_no_harm,
               killed_in_the_section, restocked, items_at_once]


@pytest.mark.parametrize("make", NEAR_MISSES, ids=lambda make: make.__name__)
def test_never_accused(make):
    with judge({seed: make(seed) for seed in range(SEEDS)}) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            assert verdict["result"] == "ok", (seed, folder, verdict["reasons"])
            assert verdict["agrees"] == ("ok" in verdict["expected"]), (seed, verdict)
            for count in ("oversold", "surplus", "shortfall", "unsold", "overlaps", "duplicate_units",
                          "rejected_early"):
                assert verdict[count] == 0, (seed, count, verdict)
            assert verdict["max_parallel"] <= 1
