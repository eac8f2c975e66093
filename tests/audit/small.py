# SPDX-License-Identifier: Apache-2.0
"""Runs as demonstrations leave them: two instances, a handful of requests, one fault."""
import shop
from shop import MS

WAITED = 1500 * MS


def begin(rung, fault, seed=1):
    world = shop.World(seed)
    shop.start(world, rung=rung, write="set", fault=fault, instances=["a", "b"],
               items={"phone": 9}, ttl_ms=500, direct=True, min_share=0)
    world.logged = False
    return world, world.t0 + MS


def inside(world, instance, t_ns, invoked=None):
    """A request that has the lock and has read the stock."""
    request = world.request("phone", instance, t_ns if invoked is None else invoked)
    section = world.section(request, (t_ns + 1, t_ns + 2))
    section["read"] = world.about(request, t_ns + 3, "read", hold=section["hold"],
                                  stock_before=world.stock["phone"])
    return section


def sell(world, section, t_ns, release_ns=None, stock=None):
    """It writes what it had read, leaves, and gives the lock back, unless that is forgotten."""
    request, hold = section["request"], section["hold"]
    before = section["read"]["stock_before"]
    world.stock["phone"] = before - 1 if stock is None else stock
    section["write"] = world.about(request, t_ns, "write", hold=hold, stock_before=before,
                                   stock_after=before - 1, unit=before, quantity=1)
    world.answer(request, t_ns, 200, before, before - 1)
    section["exit"] = world.about(request, t_ns + 1, "exit", hold=hold)
    if release_ns != "never":
        world.about(request, release_ns or t_ns + 2, "release", hold=hold, status="OK")


def waits_in_vain(world, instance, t_ns):
    request = world.request("phone", instance, t_ns)
    world.refuse(request, t_ns + WAITED, 503, "lock-timeout")


def die(world, instance):
    world.unended.add(instance)
    for request in world.requests:
        if request["instance"] == instance and "code" not in request:
            world.answer(request, world.t0 + MS, 502)


def stay(world, kind="string", pttl_ms=-1):
    """The lock's key is there in the end."""
    shop.finish(world)
    world.redis["after"] = shop.side(world.stock, kind, pttl_ms)
    return world


def killed_inside():
    world, now = begin("setnx", "killed_holding")
    inside(world, "a", now)
    waits_in_vain(world, "b", now + 5 * MS)
    die(world, "a")
    return stay(world)


def killed_asking():
    """It had the lock, and could not tell."""
    world, now = begin("setnx_expire", "killed_acquiring")
    world.request("phone", "a", now)
    waits_in_vain(world, "b", now + 5 * MS)
    die(world, "a")
    return stay(world)


def killed_and_expired(seen_after_ms=None):
    """seen_after_ms: when an observer saw the death, if one did."""
    world, now = begin("setnx_expire", "killed_holding")
    if seen_after_ms is not None:
        world.run["annotations"] = [{"t_ns": now + seen_after_ms * MS, "text": "a is killed", "killed": "a"}]
    inside(world, "a", now)
    sell(world, inside(world, "b", now + 500 * MS, now + 5 * MS), now + 501 * MS)
    die(world, "a")
    return shop.finish(world)


def forgotten():
    world, now = begin("watchdog", "forgotten")
    section = inside(world, "a", now)
    sell(world, section, now + MS, "never")
    for i in range(1, 9):
        world.add("a", now + 166 * i * MS, "renew", hold=section["hold"])
    waits_in_vain(world, "b", now + 5 * MS)
    return stay(world, "hash", 400)


def reply_lost():
    world, now = begin("setnx", "cut_acquiring")
    world.refuse(world.request("phone", "a", now), now + MS, 503, "lock-error")
    waits_in_vain(world, "b", now + 5 * MS)
    return stay(world)


def waits_for_itself():
    world, now = begin("owner_lua", "reentry")
    section = inside(world, "a", now)
    end = now + WAITED
    world.about(section["request"], end, "reacquire", hold=section["hold"], status="TIMED_OUT")
    world.leave(section, end + 1, end + 2)
    world.refuse(section["request"], end + 3, 503, "lock-timeout")
    return shop.finish(world)


def frozen():
    """a stands still inside, its lock expires, b gets it, and a wakes and writes."""
    world, now = begin("watchdog", "frozen")
    first, woke = inside(world, "a", now), now + 2000 * MS
    second = inside(world, "b", woke - 4 * MS)
    world.add("a", woke, "stall", late_ns=1990 * MS)
    world.add("a", woke + 1, "lost", hold=first["hold"], reason="it could not be renewed in time")
    sell(world, first, woke + 2)
    sell(world, second, woke + 4 * MS)
    world.run["lock_changes"] = [
        {"t_ns": now, "holder": "a1", "expires_ns": now + 1000 * MS},
        {"t_ns": now + 600 * MS, "holder": "a1", "expires_ns": now + 1600 * MS},
        {"t_ns": now + 1601 * MS, "holder": None},
        {"t_ns": woke - 4 * MS, "holder": "b1"}]
    return shop.finish(world)


def slow_release():
    """a's release comes when the lock is b's: a second one of a gets in beside b."""
    world, now = begin("set_nx_ex", "late_release")
    sell(world, inside(world, "a", now), now + MS, now + 510 * MS)
    second = inside(world, "b", now + 505 * MS)
    third = inside(world, "a", now + 515 * MS)
    sell(world, second, now + 520 * MS)
    sell(world, third, now + 525 * MS)
    return shop.finish(world)


def two_in_one():
    """Two inside together in one process."""
    world, now = begin("none", "one_process")
    first, second = inside(world, "a", now), inside(world, "a", now + 5 * MS)
    sell(world, first, now + 10 * MS)
    sell(world, second, now + 15 * MS)
    return shop.finish(world)


def emptied(seed=1, text="Redis comes back empty"):
    """Redis forgets the lock; who stood by saw it."""
    world, now = begin("setnx", "redis_empty", seed)
    first = inside(world, "a", now)
    world.run["annotations"] = [{"t_ns": now + 10 * MS, "text": text}]
    second = inside(world, "b", now + 20 * MS)
    sell(world, first, now + 25 * MS)
    sell(world, second, now + 30 * MS)
    return shop.finish(world)


ALL = [killed_inside, killed_asking, killed_and_expired, forgotten, reply_lost, waits_for_itself,
       frozen, slow_release, two_in_one, emptied]
