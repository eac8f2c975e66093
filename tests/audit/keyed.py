# SPDX-License-Identifier: Apache-2.0
"""Runs whose requests have idempotency keys, and what may become of a key that is sent again."""
import shop
from judge import judge

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
    line = {"code": 200, "answered_by": request["instance"], "unit": write["unit"], "stock_after": write["stock_after"],
            "quantity": write["quantity"], **fields}
    repetition["outcome"] = world.about(repetition, now + 1, "replay", hold=section["hold"], **line)
    world.leave(section, now + 2, now + 3)
    told(world, repetition, line["code"], line["unit"] if line["code"] == 200 else "", line["stock_after"])
    return sort(world)


def replay_refusal(world, request, left=0, **fields):
    repetition, section = again(world, request)
    now = section["enter"]["t_ns"]
    world.about(repetition, now + 1, "replay", hold=section["hold"], **{
        "code": 409, "answered_by": request["instance"], "stock_after": left, "quantity": request["quantity"], **fields})
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
    if reason in ("sold-out", "insufficient-stock"):
        section["read"] = world.about(repetition, now + 3, "read", hold=section["hold"], stock_before=0)
    world.leave(section, now + 4, now + 5)
    world.refuse(repetition, now + 6, code, reason)
    give_key(world, repetition, request["key"])
    return sort(world)


def lose(world, request):
    """Its client got no answer; so it was not told of a replay, either."""
    world.sample_of(request).update(responseCode="Non HTTP response code: org.apache.http.NoHttpResponseException",
                                    success="false", item="", instance="", unit="", left="")


def comes_again(world, request, code, reason):
    """The same key is sent once more when all is over, and sent away."""
    repetition = world.request(request["item"], request["instance"], end_of(world), request["quantity"])
    world.refuse(repetition, repetition["t_ns"] + 1, code, reason)
    give_key(world, repetition, request["key"])
    return repetition


def judged(world):
    with judge({1: world}) as verdicts:
        return verdicts[1][0]


def sold_before_the_run(world, answered_by="a", unit=100):
    """A key that this run has no sale of is answered as it was in an earlier one, of more units."""
    item = next(iter(world.run["items"]))
    request = {"item": item, "quantity": 1, "key": "of yesterday"}
    repetition, section = again(world, request)
    now = section["enter"]["t_ns"]
    repetition["outcome"] = world.about(repetition, now + 1, "replay", hold=section["hold"], code=200, answered_by=answered_by,
                                        unit=unit, stock_after=unit - 1, quantity=1)
    world.leave(section, now + 2, now + 3)
    told(world, repetition, 200, unit, unit - 1)
    world.run["requests"] += 1
    return sort(world)
