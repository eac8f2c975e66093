# SPDX-License-Identifier: Apache-2.0
"""Records that contradict each other, or what was asked for: nothing can be concluded from them."""
import re

import pytest
import shop
from judge import judge
from shop import MS
from simulate import simulate

URL = "http://127.0.0.1:8888"


def check(world, result, reason):
    with judge({0: world}) as verdicts:
        verdict, folder = verdicts[0]
        reasons = "\n".join(verdict["reasons"])
        assert verdict["result"] == result and re.search(reason, reasons), (folder, verdict["result"], reasons)


def clean(**asked):
    return shop.clean(1, unknowns=0, quantities=False, **{
        "rung": "watchdog", "write": "atomic", "instances": ["a", "b"], "items": {"phone": 9, "pad": 9}, **asked})


def of_two(quantity=1):
    """Two buy at once; the first may ask for more than one."""
    world = shop.World(1)
    shop.start(world, rung="watchdog", write="atomic", instances=["a", "b"], items={"phone": 9, "pad": 9})
    now = world.t0 + MS
    for request in [world.request("phone", "a", world.t0, quantity), world.request("phone", "b", world.t0)]:
        now = shop.turn(world, request, now) + 10
    return shop.finish(world)


def first_sale(world):
    return world.sales()[0]


# ---- The lock ------------------------------------------------------------------------------------
def test_every_record_has_the_rung_of_the_run():
    world = clean()
    check(world, "ok", "sold")
    first_sale(world)["granted"]["rung"] = "watchdog"
    check(world, "ok", "sold")
    first_sale(world)["granted"]["rung"] = "none"
    check(world, "inconclusive", 'recorded with rung "none"; it must be run.json.s "watchdog"')


@pytest.mark.parametrize("field, other", [("rung", "none"), ("write", "atomic")])
def test_a_switch_during_the_run_is_told(field, other):
    """The history tells of it by another begin. What was sold behind it is sold all the same."""
    def switched(lines):
        at = 3  # almost all is behind it
        t_ns = lines[at]["t_ns"]
        begin = {**lines[0], "t_ns": t_ns, field: other}
        begin["clock_ns_realtime"] += t_ns - lines[0]["t_ns"]
        lines[at:at] = [{"t_ns": t_ns, "instance": begin["instance"], "event": "end"}, begin]
        lines[:] = [{**line, "seq": seq} for seq, line in enumerate(lines, 1)]
    reason = f'recorded with {field} "{other}"; it must be run.json.s'
    oversold = simulate(1, 60, rung="local", write="set", instances=["a", "b"], items={"phone": 40})
    for world, result in (clean(write="decr"), "inconclusive"), (oversold, "oversold"):
        world.run["fault"] = "switched"
        if result == "oversold":  # the histories alone tell of it
            world.samples, world.passed = [], []
        world.seq_edits = {instance: switched for instance in world.events}
        check(world, result, reason)


def test_an_item_has_one_lock():
    world = clean(items={"phone": 9})
    for section in world.sections:
        section["granted"]["lock"] = "lock:{phone}"
    check(world, "ok", "sold")
    section["granted"]["lock"] = "redisLock"
    check(world, "inconclusive", 'phone is sold under lock ".*" and under ".*"; it must have one')


def test_no_lock_stays_for_ever():
    world = clean()
    world.redis["after"]["locks"]["phone"] = {"type": "hash", "pttl_ms": 20000}
    check(world, "ok", "sold")
    world.redis["after"]["locks"]["phone"]["pttl_ms"] = -1
    check(world, "inconclusive", "the lock of phone is there after the run, and its key never expires")


# ---- Answers -------------------------------------------------------------------------------------
@pytest.mark.parametrize("event", ["refused", "fail", "unknown"])
def test_a_refusal_has_the_code_of_one(event):
    """Its client holds a unit, which another buyer holds, too."""
    world = clean(items={"phone": 1})
    request = next(r for r in world.requests if r["outcome"]["event"] == "refused")
    request["outcome"].update(event=event, code=200)
    world.sample_of(request).update(responseCode=200, item="phone", instance=request["instance"], unit=1, left=0)
    world.passed_of(request).update(status=200, upstream_status="200")
    check(world, "inconclusive", f"{event} of request .* with code 200; it must be one of 400 to 599")


@pytest.mark.parametrize("before, unit, reason", [
    (9, 5, "the unit that it sold must be one more than it left"),
    (8, 9, "it left more than it had read, less what it sold")])
def test_a_sale_adds_up(before, unit, reason):
    world = of_two()
    sale = first_sale(world)
    sale["read"]["stock_before"] = sale["write"]["stock_before"] = before
    sale["write"]["unit"] = unit
    world.sample_of(sale["request"])["unit"] = unit
    check(world, "inconclusive", "sales that contradict themselves: 1, first that of request .*: " + reason)


# ---- What was asked for --------------------------------------------------------------------------
@pytest.mark.parametrize("uri, reason", [
    ("/inventory/phone/sale", "asked for another quantity"),
    ("/inventory/phone/sale?quantity=2", "asked for another quantity"),
    ("/inventory/pad/sale?quantity=3", "asked for another item"),
    ("/inventory/%70ad/sale?quantity=3", "asked for another item"),
    ("/inventory/phonex/sale?quantity=3", "asked for another item")])
@pytest.mark.parametrize("witness", ["client", "nginx", "both"])
def test_what_was_sold_was_asked_for(uri, reason, witness):
    world = of_two(3)
    request = world.requests[0]
    check(world, "ok", "4 of 18 sold")
    if witness != "nginx":
        world.sample_of(request)["URL"] = URL + uri
    else:
        world.columns = [column for column in world.columns if column != "URL"]
    if witness != "client":
        world.passed_of(request)["uri"] = uri
    else:
        reason += "|uri asks for another (item|quantity) than the URL"
    check(world, "inconclusive", reason)


def test_an_item_may_be_asked_for_in_code():
    world = of_two(3)
    world.sample_of(world.requests[0])["URL"] = URL + "/inventory/p%68%6Fne/sale?quantity=3"
    check(world, "ok", "4 of 18 sold")


def test_a_killed_client_was_not_sent_away():
    """The instance saw that it hung up; its client wrote nothing down."""
    world = shop.World(1)
    shop.start(world, rung="watchdog", write="atomic", instances=["a"], items={"phone": 9})
    requests = [world.request("phone", "a", world.t0) for _ in range(2)]
    shop.turn(world, requests[0], world.t0 + MS)
    requests[1]["outcome"] = world.about(requests[1], world.t0 + 9 * MS, "refused", code=503, reason="client-closed")
    world.logged, world.run["direct"] = False, True
    check(shop.finish(world), "inconclusive", "it is not in sale.jtl, though nginx or an instance saw it")


# ---- Space ---------------------------------------------------------------------------------------
def test_the_heaviest_reasons_are_told():
    world = simulate(1, 60, rung="local", write="set", instances=["a", "b"], items={"phone": 40})
    check(world, "oversold", "units sold more often than they were in stock")
    for i in range(70):
        world.events[f"odd-{i}"] = []
    check(world, "oversold", "units sold more often than they were in stock")
