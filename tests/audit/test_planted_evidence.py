# SPDX-License-Identifier: Apache-2.0
"""Evidence that is not complete, or that contradicts itself, is found, and the run is inconclusive."""
import pytest
import shop
from planted import PLANTERS, check_found, drop, pick, plant
from shop import MS


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


@plant("inconclusive", r"history-\w.jsonl line \d+: after the end; only a begin")
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


@plant("inconclusive", r'redis.json: "after" does not state the stock of')
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
    refused = [r for r in world.requests if r["outcome"].get("reason") in ("sold-out", "insufficient-stock") and r["id"] in read]
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


@pytest.mark.parametrize("make, result, reason, agrees", PLANTERS[__name__])
def test_found(make, result, reason, agrees):
    check_found(make, result, reason, agrees)
