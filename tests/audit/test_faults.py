# SPDX-License-Identifier: Apache-2.0
"""Runs with a fault, as the scenarios of flaws/ leave them: locks that nobody gives back, requests
that wait for themselves, clients without an nginx, commands between the lines. What is planted is
found, and its near misses are not taken for it."""
import re

import pytest
import shop
import test_clean
import test_planted_evidence
from judge import SEEDS, judge
from shop import MS
from test_bruteforce import dirty

SELF_WAIT = "waited for itself"
FOR_EVER = "held for ever"
RENEWED = ("watchdog_timer", "watchdog", "blpop_wake", "notify", "fair", "read_write", "redlock")


def check(make, result, reason=None, never=None):
    """make(seed) on many seeds; a reason that must be given, and one that must not."""
    with judge({seed: make(seed) for seed in range(SEEDS)}) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            reasons = "\n".join(verdict["reasons"])
            assert verdict["result"] == result, (seed, folder, reasons)
            assert reason is None or re.search(reason, reasons), (seed, folder, reasons)
            assert never is None or never not in reasons, (seed, folder, reasons)


def with_fault(seed, rung, fault, **more):
    world = shop.World(seed)
    shop.start(world, rung=rung, fault=fault, **{"items": {"phone": 9}, "instances": ["a", "b"],
                                                 **more})
    return world


def some_buy(world, count=3):
    """Requests of both instances, and some sales before anything goes wrong.
    The time after them."""
    items = list(world.run["items"])
    queue = [world.request(items[0], "ab"[i % 2], world.t0) for i in range(count + 4)]
    now = world.t0 + MS
    for request in queue[:count]:
        now = shop.turn(world, request, now)
    return now, queue[count:]


# ---- A request that waits for itself -------------------------------------------------------------
def asks_again(seed, status, between=None, items=None):
    """A holder asks for its own lock once more. between: which item another one is granted
    meanwhile."""
    world = with_fault(seed, "owner_lua", "reentry", items=items or {"phone": 9})
    now, (request, other, *rest) = some_buy(world)
    section = world.section(request, (now, now + 1))
    section["read"] = world.about(request, now + 2, "read", hold=section["hold"],
                                  stock_before=world.stock["phone"])
    answered = now + 500 * MS
    if between:
        other["item"] = other["invoke"]["item"] = between
        other["invoke"]["lock"] = "lock:{%s}" % between
        shop.turn(world, other, now + 100 * MS, lengths=lambda: world.random.randint(1, MS))
    world.about(request, answered, "reacquire", hold=section["hold"], status=status)
    if status == "OK":
        world.sell(section, 0, answered + 1, world.stock["phone"])
        world.remove(next(e for e in world.events[request["instance"]] if e["t_ns"] == 0))
        world.stock["phone"] -= 1
    world.leave(section, answered + 2, answered + 3)
    if status != "OK":
        world.refuse(request, answered + 4, 503, "lock-timeout")
    now = answered + 5
    for request in rest if between else [other, *rest]:
        now = shop.turn(world, request, now)
    return shop.finish(world)


@pytest.mark.parametrize("status", ["TIMED_OUT", "BUSY"])
def test_waits_for_itself(status):
    check(lambda seed: asks_again(seed, status), "deadlock", SELF_WAIT)


@pytest.mark.parametrize("status", ["UNREACHABLE", "REFUSED", "UNKNOWN", "CANCELLED"])
def test_asks_again_and_gets_no_answer(status):
    """It was not its own hold that kept it out."""
    check(lambda seed: asks_again(seed, status), "undersold", never=SELF_WAIT)


def test_a_lock_that_is_left_to_expire():
    def make(seed):
        world = asks_again(seed, "OK")
        next(e for lines in world.events.values() for e in lines if e["event"] == "release")["status"] = "ABANDONED"
        return world
    check(make, "ok", never="there is no status")


@pytest.mark.parametrize("event", ["reacquire", "release"])
def test_a_status_that_is_none(event):
    def make(seed):
        world = asks_again(seed, "OK")
        next(e for lines in world.events.values() for e in lines if e["event"] == event)["status"] = "200"
        return world
    check(make, "inconclusive", 'there is no status "200"; it must be the name of a dlock_status')


def test_waits_for_itself_while_another_has_another_lock():
    check(lambda seed: asks_again(seed, "TIMED_OUT", "lamp", {"phone": 9, "lamp": 9}), "deadlock",
          SELF_WAIT)


def test_let_in_again():
    check(lambda seed: asks_again(seed, "OK"), "ok")


def test_waits_for_another():
    """Its lock had expired: two are inside, but it is the other one that it waits for."""
    check(lambda seed: asks_again(seed, "TIMED_OUT", "phone"), "overlap", never=SELF_WAIT)


@pytest.mark.parametrize("whose", ["another request's", "nobody's"])
def test_again_of_a_hold_that_it_was_not_granted(whose):
    def make(seed):
        world = asks_again(seed, "OK")
        line = next(e for lines in world.events.values() for e in lines if e["event"] == "reacquire")
        line["hold"] = "nobody:1#1"
        if whose != "nobody's":
            line["hold"] = next(s["hold"] for s in world.sections
                                if s["request"]["id"] != line["request"]
                                and s["request"]["instance"] == line["instance"])
        return world
    check(make, "inconclusive", r"reacquire of hold .*, which was not granted to that request")


# ---- A lock that nobody gives back ---------------------------------------------------------------
def left(seed, fault="forgotten", released=None, renewed=True, waiters="lock-timeout",
         lock=("hash", 400), ttl_ms=500):
    """b sells, leaves its section, and forgets the release; the others are sent away 1500 ms later."""
    world = with_fault(seed, "watchdog", fault, ttl_ms=ttl_ms)
    now, (request, *rest) = some_buy(world)
    section = world.section(request, (now, now + 1))
    world.sell(section, now + 2, now + 3, world.stock["phone"])
    world.stock["phone"] -= 1
    section["exit"] = world.about(request, now + 4, "exit", hold=section["hold"])
    if released:
        world.about(request, now + 5, "release", hold=section["hold"], status=released)
    renewals = range(1, 9) if renewed else range(0)
    for i in renewals:
        world.add(request["instance"], now + 166 * i * MS, "renew", hold=section["hold"])
    for other in rest:
        world.refuse(other, now + 1500 * MS + world.random.randint(0, MS), 503, waiters)
    shop.finish(world)
    world.redis["after"] = shop.side(world.stock, *lock)
    return world


@pytest.mark.parametrize("how", [
    {}, {"waiters": "lock-busy"}, {"ttl_ms": 9000}, {"renewed": False},
    {"released": "UNKNOWN"}, {"released": "UNREACHABLE", "renewed": False}],
    ids=["forgotten", "nobody waits", "renewed within its time", "outlives its time", "not released", "released in vain"])
def test_renewed_though_its_holder_is_gone(how):
    if how.get("released") == "UNKNOWN":
        how = {**how, "fault": "release_lost"}
    check(lambda seed: left(seed, **how), "deadlock", FOR_EVER + ".*renewed though its holder is gone")


@pytest.mark.parametrize("how", [
    {"lock": ("none", -2)}, {"released": "OK"}, {"released": "LOST"}, {"waiters": "queue-full"},
    {"renewed": False, "ttl_ms": 1600},
    {"renewed": False, "ttl_ms": 1600, "released": "UNKNOWN"}],
    ids=["key gone", "released", "another's", "nobody timed out", "its time is not over", "nor there"])
def test_not_for_ever(how):
    check(lambda seed: left(seed, **how), "undersold", never=FOR_EVER)


def test_killed_behind_a_renewal():
    """b dies inside its section; the key still has some time to live, but nobody renews it."""
    def make(seed):
        world = left(seed, fault="killed_holding")
        section = next(s for s in world.sections if "release" not in s)
        world.remove(section["exit"])
        died = section["enter"]["t_ns"] + 1200 * MS
        lines = world.events["b"]
        lines[:] = [line for line in lines if line["t_ns"] <= died]
        world.unended.add("b")
        for request in world.requests:  # an instance answers last of all
            if request["outcome"] not in [*lines, *world.events["a"]] or request is section["request"]:
                world.sample_of(request).update(responseCode=502, success="false", unit="", left="", instance="")
                world.passed_of(request)["status"] = 502
        return world
    check(make, "undersold", never=FOR_EVER)


def test_forgotten_without_a_fault():
    """Then it is the record that is not complete."""
    check(lambda seed: left(seed, fault="none"), "inconclusive", "holds without a release")


# ---- An acquire that may have set the key --------------------------------------------------------
def lost_reply(seed, lock, granted_behind=False, error=True):
    world = with_fault(seed, "setnx", "cut_acquiring")
    now, (request, *rest) = some_buy(world)
    event = world.random.choice(["refused", "fail"])
    world.refuse(request, now + MS, 503, "lock-error" if error else "queue-full", event)
    if granted_behind:
        shop.turn(world, rest.pop(), now + 2 * MS)
    for other in rest:
        world.refuse(other, now + 1500 * MS, 503, "lock-timeout")
    shop.finish(world)
    world.redis["after"] = shop.side(world.stock, *lock)
    return world


def test_lost_reply_left_the_key():
    check(lambda seed: lost_reply(seed, ("string", -1)), "deadlock", FOR_EVER + ".*never expires")


@pytest.mark.parametrize("how", [
    {"lock": ("string", 9000)}, {"lock": ("none", -2)},
    {"lock": ("string", 9000), "granted_behind": True}, {"lock": ("string", 9000), "error": False}],
    ids=["a key that expires", "no key", "granted behind it", "no reply was lost"])
def test_lost_reply_did_no_harm(how):
    check(lambda seed: lost_reply(seed, **how), "undersold", never=FOR_EVER)


@pytest.mark.parametrize("how", [{"granted_behind": True}, {"error": False}],
                         ids=["released, it says", "set by nobody who told"])
def test_a_key_without_an_end_that_nobody_deletes(how):
    """Whoever set it: the run is over, the key stands, and those behind it waited in vain."""
    check(lambda seed: lost_reply(seed, ("string", -1), **how), "deadlock", FOR_EVER + ".*never expires")


# ---- Clients that ask the instances themselves ---------------------------------------------------
def without_log(world, direct):
    world.run["direct"] = direct
    world.logged = False
    world.passed.clear()
    return world


def test_direct_needs_no_log():
    check(lambda seed: without_log(shop.clean(seed), True), "ok")


@pytest.mark.parametrize("direct", [False, None])
def test_a_missing_log_is_missed(direct):
    def make(seed):
        world = without_log(shop.clean(seed), False)
        if direct is None:
            del world.run["direct"]
        return world
    check(make, "inconclusive", r"nginx.log: cannot be opened")


@pytest.mark.parametrize("field", ["unit", "left", "instance", "responseCode"])
def test_direct_clients_are_checked(field):
    """What the client says must still be what its instance says."""
    def make(seed):
        world = without_log(shop.clean(seed, unknowns=0, items={"phone": 9}), True)
        sample = world.sample_of(next(r for r in world.requests if r["code"] == 200))
        sample[field] = {"instance": "elsewhere", "responseCode": 409}.get(field, 77)
        return world
    check(make, "inconclusive", "views disagree")


# ---- Commands between the lines ------------------------------------------------------------------
def sprinkle(world):
    """Commands at any place between begin and end."""
    def edit(lines):
        rand = shop.random.Random(len(lines))
        for _ in range(rand.randint(1, 20)):
            at = rand.randint(1, len(lines) - (lines[-1]["event"] == "end"))
            more = rand.choice([{}, {"request": "nobody's", "thread": 7}, {"hold": "nobody's:1#1"},
                                {"request": lines[at - 1].get("request", "x")}])
            lines.insert(at, {"t_ns": lines[at - 1]["t_ns"], "instance": lines[0]["instance"],
                              "event": "command", "sent": 'GET "lock:{phone}"\r\n\u2028',
                              "reply": "(nil)", "sent_ns": rand.randint(0, 999), **more})
        for i, line in enumerate(lines):
            line["seq"] = i + 1
    for instance in world.events:
        assert instance not in world.seq_edits
        world.seq_edits[instance] = edit
    return world


@pytest.mark.parametrize("make", [
    shop.clean, dirty, test_clean.killed_in_the_section, left,
    lambda seed: asks_again(seed, "TIMED_OUT")],
    ids=["clean", "dirty", "killed", "left", "asks_again"])
def test_commands_change_nothing(make):
    worlds = {"plain-%d" % seed: make(seed) for seed in range(SEEDS)}
    worlds.update({"told-%d" % seed: sprinkle(make(seed)) for seed in range(SEEDS)})
    with judge(worlds) as verdicts:
        for seed in range(SEEDS):
            told, plain = (verdicts["%s-%d" % (how, seed)][0] for how in ("told", "plain"))
            assert told == plain, seed


# ---- What a fault excuses ------------------------------------------------------------------------
@pytest.mark.parametrize("fault, result", [("none", "inconclusive"), ("killed_holding", "ok")])
def test_attempts_need_not_meet_with_a_fault(fault, result):
    def make(seed):
        world = shop.clean(seed, unknowns=0, tokens=False, items={"phone": 4}, fault=fault)
        test_planted_evidence.attempts_that_never_met(world, world.random)
        return world
    check(make, result, "no two attempts at one item" if result == "inconclusive" else None)


@pytest.mark.parametrize("rung, fault, result", [
    *[(rung, "long_section", "inconclusive") for rung in RENEWED], ("set_nx_ex", "long_section", "ok"),
    ("watchdog", "none", "inconclusive"), ("watchdog", "frozen", "ok")])
def test_a_stall_counts_where_a_hold_is_renewed_and_not_frozen(rung, fault, result):
    def make(seed):
        world = shop.clean(seed, unknowns=0, rung=rung, ttl_ms=3000, fault=fault)
        for lines in world.events.values():
            lines[:] = [line for line in lines if line["event"] != "stall"]
        test_planted_evidence.stall_where_a_hold_lives_by_renewal(world, world.random)
        return world
    check(make, result, "the machine stood still for 1001 ms" if result != "ok" else None)
