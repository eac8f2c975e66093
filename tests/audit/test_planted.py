# SPDX-License-Identifier: Apache-2.0
"""Every planted fault of the lock or of the shop is found, with the right result and the right reason."""
import re

import pytest
import shop
from judge import SEEDS, judge
from planted import PLANTERS, check_found, drop, pick, plant
from shop import MS


def neighbours(world, both_sold=False):
    """Two sections of one lock, one right after the other."""
    pairs = []
    for item in world.run["items"]:
        ordered = world.sections_of(item)
        pairs += [(a, b) for a, b in zip(ordered, ordered[1:])
                  if b["exit"]["t_ns"] > b["enter"]["t_ns"]
                  and not (both_sold and not ("write" in a and "write" in b))]
    return pick(world, pairs)


def change_sale(world, section, **fields):
    """Tells all views of a sale the same new numbers."""
    section["write"].update(fields)
    sample = world.sample_of(section["request"])
    sample.update({"unit": section["write"]["unit"], "left": section["write"]["stock_after"]})


# ---- mutual exclusion --------------------------------------------------------------------------
@plant("overlap", r"sections that began while another .* inside: 1, up to 2 at once")
def overlap_by_one_ns(world, _):
    pair = neighbours(world)
    if pair is None:
        return False
    first, second = pair
    first["exit"]["t_ns"] = second["enter"]["t_ns"] + 1
    first["release"]["t_ns"] = max(first["release"]["t_ns"], first["exit"]["t_ns"])
    return first["exit"]["t_ns"] >= first["enter"]["t_ns"]


@plant("overlap", r"sections that began while another")
def section_within_a_section(world, rand):
    """The later one begins and ends while the earlier one is inside."""
    pair = neighbours(world)
    if pair is None:
        return False
    pair[0]["exit"]["t_ns"] = pair[1]["exit"]["t_ns"] + rand.randint(0, MS)
    pair[0]["release"]["t_ns"] = pair[0]["exit"]["t_ns"]
    return True


# ---- distinct, conservation --------------------------------------------------------------------
@plant("oversold", r"unit -?\d+ of item-\d was sold twice: to request \w+ by \w+ at",
       quantities=False)
def unit_sold_twice(world, _):
    """Only the number that buyers were told is wrong: everything else adds up."""
    pair = neighbours(world, both_sold=True)
    if pair is None:
        return False
    change_sale(world, pair[1], unit=pair[0]["write"]["unit"])
    return True


@plant("oversold", r"was sold twice", write="set", quantities=False)
def lost_update(world, _):
    """Both read N, both write N - 1: one unit more is left than there should be."""
    pair = neighbours(world, both_sold=True)
    if pair is None:
        return False
    item = pair[0]["request"]["item"]
    at = pair[1]["enter"]["t_ns"]
    for section in world.sections_of(item):
        if section["enter"]["t_ns"] < at:
            continue
        if "write" not in section:
            return False  # would have been refused early
        write = section["write"]
        section["read"]["stock_before"] += 1
        change_sale(world, section, stock_before=write["stock_before"] + 1,
                    stock_after=write["stock_after"] + 1, unit=write["unit"] + 1)
    if any(r["code"] != 200 and r["item"] == item for r in world.requests):
        return False
    world.redis["after"]["stock"][item] += 1
    return True


@plant("oversold", r"came from nowhere \(lost updates\)")
def conjured_units(world, rand):
    item = rand.choice(list(world.run["items"]))
    world.redis["after"]["stock"][item] += rand.randint(1, 5)
    return True


@plant("oversold", r"the stock ended at -\d+, below zero")
def negative_stock(world, rand):
    item = rand.choice(list(world.run["items"]))
    world.redis["after"]["stock"][item] = -rand.randint(1, 5)
    return True


@plant("oversold", r"\d+ sold of a stock of \d+: \d+ too many")
def unit_zero_sold(world, rand):
    """DECR past the end: the buyer got unit 0, the stock is -1."""
    refused = [s for s in world.sections if "write" not in s
               and s["request"]["quantity"] == 1 and s["read"]["stock_before"] == 0]
    section = pick(world, refused)
    if section is None:
        return False
    request, item = section["request"], section["request"]["item"]
    read = section["read"]
    drop(world, request["outcome"], read)
    world.samples.remove(world.sample_of(request))
    world.passed.remove(world.passed_of(request))
    world.sell(section, read["t_ns"], read["t_ns"], 1, after=-1)
    events = world.events[request["instance"]]
    drop(world, section["read"], section["write"])
    at = events.index(section["enter"]) + 1
    events[at:at] = [section["read"], section["write"]]
    world.redis["after"]["stock"][item] = -1
    return True


@plant("undersold", r"vanished without a recorded sale")
def vanished_units(world, rand):
    items = [i for i, left in world.redis["after"]["stock"].items() if left > 0]
    if not items:
        return False
    world.redis["after"]["stock"][rand.choice(items)] -= 1
    return True


@plant("undersold", r"vanished without a recorded sale", unknowns=0.3)
def more_gone_than_unknown_sales_can_explain(world, rand):
    item = rand.choice(list(world.run["items"]))
    sold = sum(s["request"]["quantity"] for s in world.sales(item))
    unknown = sum(r["quantity"] for r in world.requests
                  if r["item"] == item and r["outcome"]["event"] == "unknown")
    left = world.run["items"][item] - sold - unknown - 1
    world.redis["after"]["stock"][item] = left
    return left >= 0 and unknown > 0


# ---- liveness ----------------------------------------------------------------------------------
@plant("undersold", r"rejected while enough was left: 1; first: request \w+ got 503")
def timed_out_with_stock_left(world, rand):
    sections = [s for s in world.sections if "write" in s]
    section = pick(world, sections)
    if section is None:
        return False
    request = world.request(section["request"]["item"], section["request"]["instance"], world.t0)
    world.refuse(request, section["enter"]["t_ns"] - rand.choice([1, 1000]), 503,
                 rand.choice(["lock-timeout", "queue-full", "deadline", "lock-busy"]))
    return True


@plant("undersold", r"rejected while enough was left: 1; first: request \w+ got 409")
def sold_out_said_too_early(world, rand):
    """The last sale becomes a refusal, though its own read found enough."""
    item = rand.choice(list(world.run["items"]))
    sales = world.sales(item)
    if not sales:
        return False
    section = max(sales, key=lambda s: s["enter"]["t_ns"])
    request = section["request"]
    later = [r for r in world.requests if r["item"] == item and r["code"] != 200]
    drop(world, section["write"])
    del section["write"]
    world.redis["after"]["stock"][item] += request["quantity"]
    request["outcome"] = world.about(request, section["release"]["t_ns"], "refused", code=409,
                                     reason="sold-out")
    world.sample_of(request).update(responseCode=409, unit="", left="")
    world.passed_of(request)["status"] = 409
    return not later


@plant("undersold", r"units not sold, though there were requests for them: \d")
def unsold_units(world, rand):
    return sold_out_said_too_early(world, rand)


# ---- fencing -----------------------------------------------------------------------------------
@plant("overlap", r"tokens that did not grow: [12];", tokens=True)
def token_goes_back(world, _):
    pair = neighbours(world)
    if pair is None:
        return False
    one, two = pair[0]["granted"], pair[1]["granted"]
    one["token"], two["token"] = two["token"], one["token"]
    return True


@plant("overlap", r"tokens that did not grow: [12];", tokens=True)
def token_given_twice(world, _):
    pair = neighbours(world)
    if pair is None or pair[0]["enter"]["t_ns"] == pair[1]["enter"]["t_ns"]:
        return False
    pair[1]["granted"]["token"] = pair[0]["granted"]["token"]
    return True


@plant("overlap", r"writes accepted with an old token: 1; first: request", tokens=True)
def write_with_an_old_token(world, _):
    """A holder that was overtaken writes after the new one had read."""
    pair = neighbours(world, both_sold=True)
    if pair is None:
        return False
    old, new = pair
    if old["request"]["instance"] == new["request"]["instance"]:
        return False
    gap = new["write"]["stock_before"] + 1
    for section in (new,):  # as if the old one's write had not been there yet
        section["read"]["stock_before"] = old["write"]["stock_before"]
        section["write"]["stock_before"] = old["write"]["stock_before"]
    late = new["exit"]["t_ns"] + 5
    for name in ("write", "exit", "release"):
        old[name]["t_ns"] = late
        late += gap
    return True


@pytest.mark.parametrize("make, result, reason, agrees", PLANTERS[__name__])
def test_found(make, result, reason, agrees):
    check_found(make, result, reason, agrees)


# ---- deadlock ----------------------------------------------------------------------------------
def die_holding(world, rand, how):
    """b takes the lock and never gives it back; everybody who is still there waits in vain."""
    queue = [world.request("phone", "ab"[i % 2], world.t0) for i in range(10)]
    now = world.t0 + MS
    for request in queue[:3]:
        now = shop.turn(world, request, now)
    lost = queue[3::2]
    if how != "before_it_could_tell":
        section = world.section(queue[3], (now, now + 1))
    if how == "skipped_the_release":  # an error path without DEL; the process lives on
        section["exit"] = world.about(queue[3], now + 2, "exit", hold=section["hold"])
        world.refuse(queue[3], now + 3, 500, "stock-error", "fail")
        for request in lost[1:]:
            world.refuse(request, now + 20_000 * MS, 503, "lock-timeout")
    else:
        for request in lost:
            world.answer(request, now + 9, 502)
        world.unended.add("b")
    for request in queue[4::2]:
        world.refuse(request, now + 20_000 * MS + rand.randint(0, MS), 503, "lock-timeout")
    shop.finish(world)
    world.redis["after"] = shop.side(world.stock, "string", -1)


@pytest.mark.parametrize("how", ["inside", "before_it_could_tell", "skipped_the_release"])
def test_deadlock(how):
    worlds = {}
    for seed in range(SEEDS):
        world = worlds[seed] = shop.World(seed)
        shop.start(world, rung="setnx", instances=["a", "b"], items={"phone": 9}, fault="crash",
                   expect=["deadlock"])
        die_holding(world, world.random, how)
    with judge(worlds) as verdicts:
        for seed, (verdict, _) in verdicts.items():
            assert verdict["result"] == "deadlock" and verdict["agrees"], (seed, verdict)
            assert re.search(r"held for ever: .* timed out waiting for it: \d",
                             verdict["reasons"][0])


@pytest.mark.parametrize("pttl_ms, result", [(-1, "deadlock"), (9000, "undersold")])
def test_a_lock_of_another_item_that_stays_hides_no_fault(pttl_ms, result):
    world = shop.World(1)
    shop.start(world, rung="setnx", instances=["a", "b"], items={"phone": 9, "pad": 9}, fault="crash", expect=[result])
    die_holding(world, world.random, "inside")
    world.redis["after"]["locks"]["phone"]["pttl_ms"] = pttl_ms
    with judge({1: world}) as verdicts:
        verdict, _ = verdicts[1]
        assert verdict["result"] == result, verdict["reasons"]
        assert any("the lock of pad is there after the run" in reason for reason in verdict["reasons"])


def test_a_lock_that_will_expire_is_no_deadlock():
    worlds = {}
    for seed in range(20):
        world = worlds[seed] = shop.World(seed)
        shop.start(world, rung="set_nx_ex", instances=["a", "b"], items={"phone": 9},
                   fault="crash", expect=["undersold"])
        die_holding(world, world.random, "inside")
        world.redis["after"] = shop.side(world.stock, "string", 9000)
    with judge(worlds) as verdicts:
        for seed, (verdict, _) in verdicts.items():
            assert verdict["result"] == "undersold" and verdict["agrees"], (seed, verdict)
