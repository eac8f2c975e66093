# SPDX-License-Identifier: Apache-2.0
"""Every planted fault is found, with the right result and the right reason.

A planter takes a clean world, changes one thing, and returns the changed world, or None where that
seed has nothing to plant it into; then the next seed is tried, so that SEEDS worlds are judged."""
import re

import pytest
import shop
from judge import SEEDS, judge
from shop import MS

PLANTERS = []


def plant(result, reason, agrees=None, **kwargs):
    """Registers a planter: what the judge must conclude, and a pattern that a reason must match."""
    def register(function):
        def make(seed):
            world = shop.clean(seed, **{"unknowns": 0, **kwargs})
            return world if function(world, world.random) else None
        PLANTERS.append(pytest.param(make, result, reason, agrees, id=function.__name__))
        return function
    return register


def pick(world, sections):
    return world.random.choice(sections) if sections else None


def neighbours(world, both_sold=False):
    """Two sections of one lock, one right after the other."""
    pairs = []
    for item in world.run["items"]:
        ordered = world.sections_of(item)
        pairs += [(a, b) for a, b in zip(ordered, ordered[1:])
                  if b["exit"]["t_ns"] > b["enter"]["t_ns"]
                  and not (both_sold and not ("write" in a and "write" in b))]
    return pick(world, pairs)


def drop(world, *lines):
    for line in lines:
        world.remove(line)


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


@plant("oversold", r"\d+ sold, but only \d+ were there: \d+ too many")
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


@plant("undersold", r"vanished, nobody was told")
def vanished_units(world, rand):
    items = [i for i, left in world.redis["after"]["stock"].items() if left > 0]
    if not items:
        return False
    world.redis["after"]["stock"][rand.choice(items)] -= 1
    return True


@plant("undersold", r"vanished, nobody was told", unknowns=0.3)
def more_gone_than_unknown_sales_can_explain(world, rand):
    item = rand.choice(list(world.run["items"]))
    sold = sum(s["request"]["quantity"] for s in world.sales(item))
    unknown = sum(r["quantity"] for r in world.requests
                  if r["item"] == item and r["outcome"]["event"] == "unknown")
    left = world.run["items"][item] - sold - unknown - 1
    world.redis["after"]["stock"][item] = left
    return left >= 0 and unknown > 0


# ---- liveness ----------------------------------------------------------------------------------
@plant("undersold", r"sent away while enough was left: 1; first: request \w+ got 503")
def timed_out_with_stock_left(world, rand):
    sections = [s for s in world.sections if "write" in s]
    section = pick(world, sections)
    if section is None:
        return False
    request = world.request(section["request"]["item"], section["request"]["instance"], world.t0)
    world.refuse(request, section["enter"]["t_ns"] - rand.choice([1, 1000]), 503,
                 rand.choice(["lock-timeout", "queue-full", "deadline", "lock-busy"]))
    return True


@plant("undersold", r"sent away while enough was left: 1; first: request \w+ got 409")
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


# ---- witness: the evidence is not complete -----------------------------------------------------
@plant("inconclusive", r"history-\w.jsonl: sections without an exit: 1, first that of")
def missing_exit(world, _):
    """The process lived and ended in order, and nothing else is missing."""
    section = pick(world, [s for s in world.sections if s["exit"]])
    drop(world, section["exit"], section["release"])
    return True


@plant("inconclusive", r"history-\w.jsonl line \d+: release of hold .* comes right after")
def missing_exit_before_its_release(world, _):
    drop(world, pick(world, world.sections)["exit"])
    return True


@plant("inconclusive", r"holds without a release: 1, first that of")
def missing_release(world, _):
    drop(world, pick(world, world.sections)["release"])
    return True


@plant("inconclusive", r"history-\w.jsonl line \d+: seq is \d+; it must be \d+: lines are missing")
def lost_line(world, rand):
    instance = rand.choice(world.run["instances"])
    world.seq_edits[instance] = lambda lines: lines.pop(rand.randrange(len(lines) - 1))
    return True


@plant("inconclusive", r"history-\w.jsonl: no end line")
def lost_last_line(world, rand):
    world.unended.add(rand.choice(world.run["instances"]))
    return True


@plant("inconclusive", r"history-\w.jsonl line \d+: seq is")
def doubled_line(world, rand):
    instance = rand.choice(world.run["instances"])
    world.seq_edits[instance] = lambda lines: lines.insert(2, lines[rand.randrange(1, len(lines))])
    return True


@plant("inconclusive", r"history-\w.jsonl line \d+: exit of hold .* comes right after exit")
def exit_twice(world, _):
    section = pick(world, world.sections)
    line = section["exit"]
    events = world.events[line["instance"]]
    events.insert(events.index(line), dict(line))
    return True


@plant("inconclusive", r"history-\w.jsonl line \d+: behind the end; only a begin")
def line_behind_the_end(world, rand):
    def swap(lines):
        lines[-1]["event"], lines[-2] = "stall", {**lines[-1], "seq": lines[-1]["seq"] - 1,
                                                  "event": "end"}
        lines[-1]["late_ns"] = 1
    instance = rand.choice(world.run["instances"])
    world.add(instance, world.t0 + 40, "stall", late_ns=1)
    world.events[instance].sort(key=lambda line: line["event"] == "stall")
    world.seq_edits[instance] = swap
    return True


@plant("inconclusive", r"requests without an end: 1, first")
def missing_outcome(world, rand):
    drop(world, rand.choice(world.requests)["outcome"])
    return True


@plant("inconclusive", r"ends a second time")
def two_outcomes(world, rand):
    request = rand.choice(world.requests)
    world.about(request, request["outcome"]["t_ns"] + 1, "refused", code=409, reason="sold-out")
    return True


@plant("inconclusive", r"was accepted twice")
def accepted_twice(world, rand):
    request = rand.choice(world.requests)
    world.about(request, request["outcome"]["t_ns"] + 1, "invoke", quantity=1)
    return True


@plant("inconclusive", r"history-b.jsonl: missing or empty", instances=["a", "b"])
def missing_history(world, _):
    del world.events["b"]
    return True


@plant("inconclusive", r"instance b served \d+ of \d+ requests; it must serve at least 0.5",
       instances=["a", "b"])
def absent_instance(world, _):
    """All requests went to a; b ran, and ended in order."""
    for line in [e for e in world.events["b"] if e["event"] not in ("restock", "stall")]:
        world.remove(line)
        line["instance"] = "a"
        world.events["a"].append(line)
    world.events["a"].sort(key=lambda line: line["t_ns"])
    for sample in world.samples:
        sample["instance"] = sample["instance"] and "a"
    return True


@plant("inconclusive", r"recorded with rung")
def history_of_another_run(world, rand):
    instance = rand.choice(world.run["instances"])
    world.seq_edits[instance] = lambda lines: lines[0].update(rung="another")
    return True


@plant("inconclusive", r"the machine stood still for \d+ ms", rung="watchdog", ttl_ms=3000)
def stall_where_a_hold_lives_by_renewal(world, rand):
    last = max(world.sections, key=lambda s: s["exit"]["t_ns"])
    for name in ("exit", "release"):
        last[name]["t_ns"] += 1500 * MS
    world.add(rand.choice(world.run["instances"]), world.t0 + 30, "stall", late_ns=1001 * MS)
    return True


@plant("inconclusive", r"requests without an answer of the shop \(transport errors\): 1, first")
def transport_error(world, rand):
    sample = world.sample_of(rand.choice(world.requests))
    sample.update(responseCode=rand.choice([
        "Non HTTP response code: java.net.SocketTimeoutException", 502, 504, ""]),
        success="false", unit="", left="")
    return True


@plant("inconclusive", r"no two attempts at one item", items={"phone": 4}, tokens=False)
def attempts_that_never_met(world, _):
    """One after the other: each request comes when the one before has its answer."""
    spans = sorted(world.requests, key=lambda r: r["outcome"]["t_ns"])
    for i, request in enumerate(spans):
        now = world.t0 + 10 * i * MS
        lines = [e for e in world.events[request["instance"]] if e.get("request") == request["id"]]
        lines.sort(key=lambda e: (e["event"] != "invoke", e["t_ns"]))
        for line in lines:
            line["t_ns"], now = now, now + 3
        world.sample_of(request).update(timeStamp=shop.EPOCH_MS + 10 * i, elapsed=7)
    for lines in world.events.values():
        lines.sort(key=lambda line: line["t_ns"])
    return True


@plant("inconclusive", r"sale.jtl holds \d+ buying samples; run.json asks for \d+")
def too_few_samples(world, rand):
    world.run["requests"] += rand.randint(1, 9)
    return True


@plant("inconclusive", r"the run began with \d+ of")
def wrong_stock_at_the_start(world, rand):
    item = rand.choice(list(world.run["items"]))
    line = next(e for lines in world.events.values() for e in lines
                if e["event"] == "restock" and e["item"] == item)
    line["stock_after"] += 1
    return True


@plant("inconclusive", r"the lock of .* was held before the run began")
def lock_held_before(world, rand):
    item = rand.choice(list(world.run["items"]))
    world.redis["before"]["locks"][item] = {"type": "string", "pttl_ms": 5000}
    return True


@plant("inconclusive", r"the stock of .* was set at .* during the run")
def stock_set_during_the_run(world, rand):
    item = rand.choice(list(world.run["items"]))
    world.add(world.run["instances"][0], world.t0 + 3 * MS, "restock", item=item, stock_after=1)
    return True


@plant("inconclusive", r'redis.json: "after" does not tell the stock of')
def stock_not_read(world, rand):
    world.redis["after"]["stock"][rand.choice(list(world.run["items"]))] = None
    return True


# ---- views that disagree -----------------------------------------------------------------------
def any_sale(world):
    section = pick(world, world.sales())
    return section and section["request"]


@plant("inconclusive", r"views disagree: .* another unit was sold")
def client_told_another_unit(world, _):
    request = any_sale(world)
    if request:
        world.sample_of(request)["unit"] += 1
    return request


@plant("inconclusive", r"(read|write|exit|release|refused|fail) of lamp by request \w+, which asked for another item")
def another_item(world, _):
    """It is on sale, too, and nobody asked for it."""
    world.run["items"]["lamp"] = 3
    for side in world.redis.values():
        side["stock"]["lamp"] = 3
        side["locks"]["lamp"] = {"type": "none", "pttl_ms": -2}
    events = ("read", "write", "exit", "release", "refused", "fail")
    lines = [line for lines in world.events.values() for line in lines if line["event"] in events]
    pick(world, lines)["item"] = "lamp"
    return True


@plant("inconclusive", r"views disagree: .* it read another number")
def refused_with_another_number(world, _):
    read = {s["request"]["id"]: s["read"]["stock_before"] for s in world.sections if "read" in s}
    refused = [r for r in world.requests if r["outcome"].get("reason") in ("sold-out", "too-few") and r["id"] in read]
    if not refused:
        return False
    for request in refused:
        world.sample_of(request)["left"] = read[request["id"]]
    world.sample_of(pick(world, refused))["left"] += 7
    return True


@plant("inconclusive", r"views disagree: .* another number was left")
def client_told_another_left(world, _):
    request = any_sale(world)
    if request:
        world.sample_of(request)["left"] -= 1
    return request


@plant("inconclusive", r"views disagree: .* another instance's history has the sale",
       instances=["a", "b"])
def client_told_another_instance(world, _):
    request = any_sale(world)
    if request:
        world.sample_of(request)["instance"] = "b" if request["instance"] == "a" else "a"
    return request


@plant("inconclusive", r"views disagree: .* answered something else")
def client_got_a_sale_that_the_instance_refused(world, rand):
    refused = [r for r in world.requests if r["code"] == 409]
    if not refused:
        return False
    request = rand.choice(refused)
    world.sample_of(request).update(responseCode=200, unit=1, left=0,
                                    instance=request["instance"])
    world.passed_of(request)["status"] = 200
    return True


@plant("inconclusive", r"views disagree: .* answered something else")
def client_was_refused_what_the_instance_sold(world, _):
    request = any_sale(world)
    if request:
        world.sample_of(request).update(responseCode=409, unit="", left="", instance="")
        world.passed_of(request)["status"] = 409
    return request


@plant("inconclusive", r"views disagree: .* nginx.log says that it was answered with another code")
def nginx_saw_another_code(world, rand):
    world.passed_of(rand.choice(world.requests))["status"] = 499
    return True


@plant("inconclusive", r"views disagree: .* it is not in nginx.log")
def nginx_never_saw_it(world, rand):
    world.passed.remove(world.passed_of(rand.choice(world.requests)))
    return True


@plant("inconclusive", r"views disagree: request \w+, the client has no answer: it is not in sale.jtl")
def client_does_not_know_it(world, rand):
    world.samples.remove(world.sample_of(rand.choice(world.requests)))
    return True


@plant("inconclusive", r"views disagree: .* no instance's history has it")
def no_instance_knows_it(world, rand):
    request = rand.choice(world.requests)
    for line in [e for e in world.events[request["instance"]]
                 if e.get("request") == request["id"]]:
        world.remove(line)
    return True


@plant("inconclusive", r"sale.jtl line \d+: request \w+ is there twice")
def sample_twice(world, rand):
    world.samples.append(dict(world.sample_of(rand.choice(world.requests))))
    return True


@plant("inconclusive", r"JMeter calls its answer failed")
def assertion_failed(world, _):
    request = any_sale(world)
    if request:
        world.sample_of(request).update(success="false", failureMessage='no "unit", none')
    return request


@pytest.mark.parametrize("make, result, reason, agrees", PLANTERS)
def test_found(make, result, reason, agrees):
    worlds, seed = {}, 0
    while len(worlds) < SEEDS:
        assert seed < 20 * SEEDS, "nothing can be planted into such worlds"
        world = make(seed)
        if world:
            worlds[seed] = world
        seed += 1
    with judge(worlds) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            assert verdict["result"] == result, (seed, folder, verdict["reasons"])
            assert any(re.search(reason, text) for text in verdict["reasons"]), \
                (seed, folder, verdict["reasons"])
            assert verdict["agrees"] == (result in verdict["expected"])
            if agrees is not None:
                assert verdict["agrees"] == agrees
