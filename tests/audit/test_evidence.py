# SPDX-License-Identifier: Apache-2.0
"""What the judge must have to say OK, and what it still proves where some of that is missing."""
import os
import re

import pytest
import shop
import test_clean
from judge import audit, judge, verdict_of
from shop import MS
from simulate import simulate
from test_faults import left


def check(world, result, reason):
    with judge({0: world}) as verdicts:
        verdict, folder = verdicts[0]
        reasons = "\n".join(verdict["reasons"])
        assert verdict["result"] == result, (folder, reasons)
        assert re.search(reason, reasons), (folder, reasons)


def clean(seed=1, **asked):
    return shop.clean(seed, **{"unknowns": 0, "instances": ["a", "b"], "items": {"phone": 9}, **asked})


# ---- Redis ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("cut, missing", [
    (lambda side: side.update(stock={}), "the stock of phone"),
    (lambda side: side["stock"].update(phone=None), "the stock of phone"),
    (lambda side: side.pop("stock"), "the stock of phone"),
    (lambda side: side.update(locks={}), "the lock of phone"),
    (lambda side: side.pop("locks"), "the lock of phone"),
    (lambda side: side["locks"].update(phone=None), "the lock of phone")],
    ids=["empty stock", "null stock", "no stock", "empty locks", "no locks", "null lock"])
def test_redis_must_tell_the_stock_and_the_locks(moment, cut, missing):
    world = clean()
    cut(world.redis[moment])
    check(world, "inconclusive", f'redis.json: "{moment}" does not state {missing}; it must')


# ---- What is proven stays proven -----------------------------------------------------------------
def oversold():
    return simulate(1, 60, rung="local", write="set", instances=["a", "b"], items={"phone": 40})


def overlap():
    return simulate(1, 60, rung="local", write="decr", instances=["a", "b"], items={"phone": 70})


def deadlock():
    world = left(1)
    world.logged = True
    return world


def undersold():
    world = clean(items={"phone": 9}, requests=8)
    world.redis["after"]["stock"]["phone"] -= 1
    return world


FAULTS = {"oversold": oversold, "overlap": overlap, "deadlock": deadlock, "undersold": undersold}


def append(name, text):
    def spoil(folder):
        with open(os.path.join(folder, name), "a", encoding="utf-8") as file:
            file.write(text)
    return spoil


def remove(name):
    return lambda folder: os.remove(os.path.join(folder, name))


def cut(name, lines):
    """So many lines fewer, in the middle."""
    def spoil(folder):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            text = file.readlines()
        middle = len(text) // 2
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.writelines(text[:middle] + text[middle + lines:])
    return spoil


OUTSIDE = {"a bad line of nginx": append("nginx.log", "nonsense\n"), "no nginx.log": remove("nginx.log"),
           "a bad line of the clients": append("sale.jtl", '1,2\n'), "no sale.jtl": remove("sale.jtl"),
           "lines of nginx lost": cut("nginx.log", 2), "samples lost": cut("sale.jtl", 2)}
INSIDE = {"a bad line of an instance": append("history-a.jsonl", "nonsense\n"), "no redis.json": remove("redis.json"),
          "lines of an instance lost": cut("history-a.jsonl", 9)}


@pytest.mark.parametrize("how", [*OUTSIDE, *INSIDE])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_stays_proven(tmp_path, fault, how):
    """That something never happened is proven by all the records of those who would have done it."""
    folder = FAULTS[fault]().write(str(tmp_path / "run"))
    audit(folder)
    assert verdict_of(folder)["result"] == fault
    {**OUTSIDE, **INSIDE}[how](folder)
    audit(folder)
    verdict = verdict_of(folder)
    proven = how in OUTSIDE or fault in ("oversold", "overlap")
    assert verdict["result"] == (fault if proven else "inconclusive"), verdict["reasons"]
    assert any(text.startswith(("nginx.log", "sale.jtl", "history-a", "redis.json", "views", "sections")) or "nginx.log" in text
               for text in verdict["reasons"]), verdict["reasons"]


@pytest.mark.parametrize("how", [*OUTSIDE, *INSIDE])
def test_nothing_missing_is_a_fault(tmp_path, how):
    """Of a clean run it proves nothing, neither way."""
    for seed in range(20):
        folder = clean(seed).write(str(tmp_path / str(seed)))
        {**OUTSIDE, **INSIDE}[how](folder)
        audit(folder)
        assert verdict_of(folder)["result"] == "inconclusive", (seed, verdict_of(folder)["reasons"])


def test_a_stock_that_was_greater_is_no_oversale():
    """Ten were there and were sold, and run.json says nine: the records contradict each other."""
    world = clean(items={"phone": 10}, requests=14, quantities=False)
    world.run["items"]["phone"] = 9
    check(world, "inconclusive", "the run began with 10 of phone; run.json says 9")


def test_a_restock_that_was_lost_is_no_oversale():
    """The shelf was filled up, and the line that says so is gone."""
    def lose(lines):
        lines.remove([line for line in lines if line["event"] == "restock"][-1])
    world = test_clean.restocked(1)
    for instance in world.run["instances"]:
        if [e for e in world.events[instance] if e["event"] == "restock"][1:]:
            world.seq_edits[instance] = lose
    check(world, "inconclusive", "lines are missing")


def test_what_is_proven_stays_proven_though_the_machine_stood_still():
    """A hold that lives by renewal, and a machine that stood still: two were inside, whatever the cause. Both are named."""
    world = clean(rung="watchdog", ttl_ms=3000, items={"phone": 12}, requests=8, quantities=False)
    first, second = world.sections_of("phone")[:2]
    first["exit"]["t_ns"] = second["exit"]["t_ns"] + 1500 * MS
    first["release"]["t_ns"] = first["exit"]["t_ns"]
    world.add("a", world.t0 + 30, "stall", late_ns=1001 * MS)
    check(world, "overlap", "sections that began while another(.|\n)*the machine stood still for")


# ---- nginx ---------------------------------------------------------------------------------------
def sent_twice(told_by_both=False, ended=True, **log):
    """Two instances were sent one sale; b's record of it is there or not."""
    world = clean(fault="none" if ended else "killed_holding", requests=10, quantities=False)
    request = next(r for r in world.requests if r["code"] == 200 and r["instance"] == "a")
    world.passed_of(request).update({"upstream": "127.0.0.1:9000, 127.0.0.1:8000", "upstream_status": "502, 200", **log})
    if told_by_both:
        world.add("b", request["t_ns"], "invoke", thread=1, request=request["id"], item="phone", quantity=1)
        world.events["b"].sort(key=lambda line: line["t_ns"])
    if not ended:
        world.unended.add("b")
    return world


def test_a_sale_that_nginx_sent_twice_is_looked_at():
    check(sent_twice(ended=False), "inconclusive", "was sent to 2 instances by nginx, and not every history tells")
    check(sent_twice(told_by_both=True), "inconclusive", "was accepted twice")


@pytest.mark.parametrize("how", [{"ended": True}, {"ended": False, "upstream_bytes_sent": "0, 213"},
                                 {"ended": False, "upstream_bytes_sent": "-, 213"}], ids=str)
def test_a_sale_that_one_instance_refused_to_take_was_sent_once(how):
    check(sent_twice(**how), "ok", "no unit twice")


# ---- Files ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["run.json", "redis.json", "sale.jtl", "nginx.log", "history-a.jsonl"])
def test_a_byte_order_mark_is_read_over(tmp_path, name):
    folder = clean().write(str(tmp_path / "run"))
    path = tmp_path / "run" / name
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    audit(folder)
    assert verdict_of(folder)["result"] == "ok", verdict_of(folder)["reasons"]


# ---- Restarts ------------------------------------------------------------------------------------
def begin_again(lines, t_ns):
    return {**lines[0], "t_ns": t_ns, "pid": 2, "clock_ns_realtime": lines[0]["clock_ns_realtime"] + t_ns - lines[0]["t_ns"]}


def restart(world, instance, killed=False):
    """It ended and began again at a moment when it held no lock, as base/history.c records it."""
    def edit(lines):
        open_requests, places = set(), []
        for i, line in enumerate(lines):
            if line["event"] == "invoke":
                open_requests.add(line["request"])
            elif line["event"] in ("refused", "fail", "release") and lines[i + 1].get("request") != line["request"]:
                open_requests.discard(line["request"])
            if i > 3 and not open_requests:
                places.append(i + 1)
        at = places[0]
        t_ns = lines[at - 1]["t_ns"]
        begin = begin_again(lines, t_ns)
        end = [] if killed else [{"t_ns": t_ns, "seq": 0, "instance": instance, "event": "end"}]
        lines[at:at] = [*end, begin]
        for i, line in enumerate(lines):
            line["seq"] = i + 1
    world.seq_edits[instance] = edit
    return world


def one_by_one(seed=1, **asked):
    """Requests that come when the one before has its answer, so that a restart finds none under way."""
    world = shop.World(seed)
    shop.start(world, **{"instances": ["a", "b"], "items": {"phone": 9}, "rung": "watchdog", "fault": "killed_holding",
                         "expect": ["ok"], **asked})
    now = world.t0 + MS
    for i in range(8):
        now = shop.turn(world, world.request("phone", "ab"[i % 2], now), now + 1, lengths=lambda: 1000) + 5000
    return shop.finish(world)


def test_a_restarted_instance_is_judged():
    check(restart(one_by_one(), "a"), "ok", "8 requests, 8 of 9 sold")
    check(restart(restart(one_by_one(), "a", killed=True), "b"), "ok", "8 requests, 8 of 9 sold")


def test_a_fault_beside_a_restart_is_found():
    world = restart(one_by_one(), "a")
    first, second = world.sections_of("phone")[4:6]
    first["exit"]["t_ns"] = first["release"]["t_ns"] = second["enter"]["t_ns"] + 1
    check(world, "overlap", "sections that began while another")


def test_a_killed_instance_held_its_section_until_its_last_line():
    """Of its first life: what its second one did is no sign of it."""
    world = one_by_one()
    dead = world.sections_of("phone")[4]
    for name in ("write", "exit", "release"):
        world.remove(dead[name])
    world.samples.remove(world.sample_of(dead["request"]))
    world.passed.remove(world.passed_of(dead["request"]))
    world.answer(dead["request"], dead["write"]["t_ns"], 502)
    for late in world.sections_of("phone")[5:]:
        for name in ("read", "write"):
            late[name]["stock_before"] += 1
    def edit(lines):
        at = next(i for i, line in enumerate(lines) if line is dead["read"] or line.get("hold") == dead["hold"]
                  and line["event"] == "read") + 1
        lines.insert(at, begin_again(lines, lines[at - 1]["t_ns"] + 1))
        for i, line in enumerate(lines):
            line["seq"] = i + 1
    world.seq_edits["a"] = edit
    check(world, "ok", "7 of 9 sold")


def test_a_killed_instance_whose_lines_are_lost_held_nothing_for_certain():
    """Its exit may be among them: that others were inside later is no overlap."""
    world = one_by_one()
    left_out = world.sections_of("phone")[2]
    assert left_out["request"]["instance"] == "a"
    world.unended.add("a")

    def lose(lines):
        for name in ("exit", "release"):
            lines.remove(next(line for line in lines if line.get("hold") == left_out["hold"] and line["event"] == name))
    world.seq_edits["a"] = lose
    check(world, "inconclusive", "lines are missing")


def test_a_history_of_another_run_proves_nothing():
    """Not even that its units were sold a second time."""
    world, other = clean(1), clean(2)
    world.events["b"] = [{**line, "instance": "b"} for lines in other.events.values() for line in lines]
    world.events["b"].sort(key=lambda line: line["t_ns"])
    world.seq_edits["b"] = lambda lines: lines[0].update(run="another")
    check(world, "inconclusive", 'history-b.jsonl line 1: recorded with run "another"')


def test_a_restart_without_an_end_is_a_fault_that_somebody_must_have_asked_for():
    world = restart(one_by_one(fault="none"), "a", killed=True)
    check(world, "inconclusive", r"history-a.jsonl line \d+: no end line, and no fault was asked for")


# ---- Holds are told apart by their whole names ----------------------------------------------------
HOLDS = ["2:1", "1:1", "0:1", "0:01", "0::1", "0:1:1", "plain", ":1", ":", "0#1", "0:1#1", "0:" + 39 * "1", "0:" + 40 * "1",
         "0:" + 60 * "1", "0:" + 60 * "1" + "2", 63 * "p" + ":1", 64 * "p" + ":1", 3000 * "p" + ":1", 3000 * "p" + "q:1"]


def renamed(names):
    """One after the other, in one history."""
    world = clean(instances=["a"], items={"phone": 99}, requests=len(HOLDS), quantities=False)
    for section, name in zip(world.sections, names):
        for line in [line for line in world.events["a"] if line.get("hold") == section["hold"]]:
            line["hold"] = name
    return world


def test_different_holds():
    check(renamed(HOLDS), "ok", f"{len(HOLDS)} sections")


@pytest.mark.parametrize("hold", HOLDS, ids=range(len(HOLDS)))
def test_one_hold_twice(hold):
    check(renamed([hold, hold]), "inconclusive", r"granted of hold .* belongs to another request or instance")


# ---- The client is a witness ---------------------------------------------------------------------
def cut_before_its_write(seed, unit, fault="killed_holding"):
    """a was killed after its write and before its record of it. Its client holds a 200 with that unit."""
    world = one_by_one(seed, fault=fault)
    dead = [s for s in world.sections_of("phone") if s["request"]["instance"] == "a"][-1]
    for name in ("write", "exit", "release"):
        world.remove(dead[name])
    world.unended.add("a")
    world.sample_of(dead["request"])["unit"] = unit if unit is not None else dead["write"]["unit"]
    return world


def test_two_clients_that_hold_one_unit():
    """One of them by its history, too."""
    check(cut_before_its_write(1, unit=5), "oversold",
          r"unit 5 of phone was sold twice: to request \w+ by . at [\d.]+ ms and to request \w+ by a, as its client was told")


def test_two_clients_that_hold_one_unit_without_any_history_of_it():
    world = cut_before_its_write(1, unit=77)
    for request in [r for r in world.requests if r["code"] == 200][:2]:
        for line in [e for lines in world.events.values() for e in lines if e.get("request") == request["id"]]:
            world.remove(line)
        world.sample_of(request)["unit"] = 3
        world.passed_of(request)["status"] = 200
    check(world, "oversold", r"unit 3 of phone was sold twice: .* as its client was told .* as its client was told")


def test_a_client_that_holds_a_unit_that_never_was():
    check(cut_before_its_write(1, unit=0), "oversold", r"unit 0 of phone was sold to request \w+ by a, as its client was told")


def test_the_sale_that_only_its_client_tells_of_is_counted():
    """8 were sold, and 1 is left of 9. An instance records before it answers, so its record of that sale was lost."""
    with judge({0: cut_before_its_write(1, unit=None)}) as verdicts:
        verdict = verdicts[0][0]
        assert (verdict["result"], verdict["sold"], verdict["unknown"], verdict["distinct"]) == ("inconclusive", 8, 0, 8), verdict
        assert "the instance's history does not tell how it ended" in "".join(verdict["reasons"])


def test_a_sale_more_than_there_were():
    world = cut_before_its_write(1, unit=None)
    world.redis["after"]["stock"]["phone"] = 2  # its write was lost: a client holds a unit that is there, too
    check(world, "oversold", "8 sold and 2 left of a stock of 9: 1 came from nowhere")


def test_records_that_contradict_each_other_prove_nothing():
    """a's history refused, its client holds a sold unit; b's history sold one unit, its client holds another."""
    world = clean(items={"phone": 3}, requests=10, quantities=False)
    refused = next(r for r in world.requests if r["code"] != 200)
    sold = world.sales()
    world.sample_of(refused).update(responseCode=200, unit=1, left=0, instance=refused["instance"], item="phone")
    world.passed_of(refused)["status"] = 200
    world.sample_of(sold[0]["request"])["unit"] = sold[1]["write"]["unit"]
    check(world, "inconclusive", "views disagree")
    world = clean(items={"phone": 9}, requests=8, quantities=False)
    sale = world.sales()[0]
    for line in [e for lines in world.events.values() for e in lines if e.get("request") == sale["request"]["id"]]:
        world.remove(line)
    world.sample_of(sale["request"])["unit"] = world.sales()[1]["write"]["unit"]
    world.passed_of(sale["request"])["status"] = 503  # nginx denies what its client alone tells
    check(world, "inconclusive", "no instance's history has it")
    world = clean(items={"phone": 9}, requests=8, quantities=False)
    one, other = world.sales()[:2]
    one["write"]["unit"] = other["write"]["unit"]  # its client holds its own unit
    check(world, "inconclusive", "the instance's history says that another unit was sold")


@pytest.mark.parametrize("fields, result", [
    ({}, "ok"), ({"upstream_status": "200"}, "inconclusive"), ({"upstream_bytes_sent": "213"}, "inconclusive"),
    ({"method": "POST"}, "inconclusive"), ({"uri": "/inventory/phone/sale"}, "inconclusive"),
    ({"uri": None}, "inconclusive")], ids=str)
def test_a_connection_without_a_request_is_no_sale(fields, result):
    """nginx logs what is no HTTP without a method and a uri. What it sent on was something."""
    world = clean()
    world.passed.append({"t_s": 1.0, "request": "zz", "method": "", "uri": "", "status": 400, "upstream": "",
                         "upstream_status": "", "upstream_bytes_sent": "", "time_s": 0, **fields})
    check(world, result, "" if result == "ok" else r"nginx.log line \d+: ")


# ---- Who never got to an instance ----------------------------------------------------------------
def turned_away(code, count=54, sold=4, stock=8, upstream="", item="phone"):
    """Some buy, and somebody before the instances refuses the rest."""
    world = shop.World(1)
    shop.start(world, rung="watchdog", instances=["a", "b"], items={item: stock})
    requests = [world.request(item, "ab"[i % 2], world.t0) for i in range(sold + count)]
    now = world.t0 + MS
    for request in requests[:sold]:
        now = shop.turn(world, request, now)
    for request in requests[sold:]:
        world.remove(request["invoke"])
        world.answer(request, now, code)
        world.passed_of(request).update(upstream=upstream, upstream_status=str(code) if upstream else "")
    return shop.finish(world)


@pytest.mark.parametrize("code", [401, 403, 404, 409, 413, 429, 500, 503])
def test_whom_somebody_else_refused_was_sent_away(code):
    check(turned_away(code), "undersold", "rejected while enough was left: 54; first: request .* got %d before any "
          "instance accepted it, when at least 4 of phone were left" % code)
    check(turned_away(code, sold=8), "ok", "62 requests, 8 of 8 sold")


@pytest.mark.parametrize("label", ["POST sale", "POST /inventory/phone/sale"])
def test_direct_clients_that_were_refused(label):
    """Their samples name the item in the URL, or in the label."""
    world = turned_away(429)
    world.run["direct"], world.logged = True, False
    for sample in world.samples:
        if sample["label"].startswith("POST"):
            sample["label"] = label
            sample["URL"] = "" if "phone" in label else sample["URL"]
    check(world, "undersold", "rejected while enough was left: 54")


def test_an_item_whose_name_begins_as_the_path_goes_on():
    check(turned_away(503, item="sale-phone"), "undersold", "rejected while enough was left: 54")


def test_a_client_that_asked_for_too_many_was_not_sent_away():
    world = turned_away(429)
    for request in world.requests[4:]:
        uri = "/inventory/phone/sale?quantity=5"
        world.sample_of(request)["URL"] = "http://127.0.0.1:8888" + uri
        world.passed_of(request)["uri"] = uri
    check(world, "ok", "58 requests, 4 of 8 sold, 4 left")


@pytest.mark.parametrize("code, result, reason", [
    ("Non HTTP response code: java.net.SocketTimeoutException", "inconclusive", r"\(transport errors\): 1, first"),
    (504, "inconclusive", r"\(transport errors\): 1, first"), (503, "undersold", "rejected while enough was left: 1")])
def test_a_buyer_who_hung_up_was_not_sent_away(code, result, reason):
    """He waited no longer, and got no answer. Who got one did not hang up."""
    world = turned_away(503, count=1)
    world.run["direct"], world.logged = True, False
    request = world.requests[-1]
    world.about(request, world.t0, "invoke", quantity=1)
    world.about(request, world.t0 + MS, "refused", code=503, reason="client-closed")
    world.sample_of(request)["responseCode"] = code
    check(shop.finish(world), result, reason)
    world.run["fault"], world.run["expect"] = "stall", ["ok"]
    check(world, "ok" if code != 503 else result, "")


@pytest.mark.parametrize("code, result", [(503, "inconclusive"), (429, "inconclusive"), (404, "ok")])
def test_an_item_that_run_json_does_not_name(code, result):
    """Nobody knows how many of it there are. 404 says that there are none."""
    world = turned_away(code, count=3, sold=8)
    for request in world.requests[8:]:
        world.sample_of(request)["URL"] = "http://127.0.0.1:8888/inventory/lamp/sale"
        world.passed_of(request)["uri"] = "/inventory/lamp/sale"
    check(world, result, "8 of 8 sold" if result == "ok" else "nothing names an item of run.json that it asked for")


def test_an_instance_that_refuses_has_a_record_of_it():
    """nginx says that an instance answered 503, and none has recorded it: that may be a lost line."""
    check(turned_away(503, upstream="127.0.0.1:8000"), "inconclusive", "no instance's history has it")


# ---- Who has read something wrong ----------------------------------------------------------------
def misread(write, unknown=0, at=1):
    """Four come for three; the one at that place reads 0, whatever is there. The first ones may not know how they ended."""
    world = shop.World(1)
    shop.start(world, rung="watchdog", write=write, instances=["a", "b"], items={"phone": 3 + unknown})
    requests = [world.request("phone", "ab"[i % 2], world.t0) for i in range(4 + unknown)]
    now = world.t0 + MS
    for request in requests[:unknown]:
        request["unknown"] = True
    for i, request in enumerate(requests):
        there = world.stock["phone"]
        if i == unknown + at:
            world.stock["phone"] = 0
        now = shop.turn(world, request, now, token=i + 1 if write == "fenced" else None) + 10
        if i == unknown + at:
            world.stock["phone"] = there
    return shop.finish(world)


@pytest.mark.parametrize("write", ["decr", "atomic", "fenced"])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_who_read_less_than_was_there_was_sent_away(write, at):
    """Others read more behind him: the stock only falls."""
    check(misread(write, at=at), "undersold", f"rejected while enough was left: 1; .* when at least {3 - at} of phone were left")


@pytest.mark.parametrize("write, unknown, at", [("decr", 0, 3), ("set", 0, 1), ("decr", 1, 1)])
def test_who_may_have_read_what_was_there(write, unknown, at):
    """He came last; or the stock may have grown behind him."""
    world = misread(write, unknown, at)
    if unknown:
        world.stock["phone"] = world.redis["after"]["stock"]["phone"] = 0
    with judge({0: world}) as verdicts:
        assert verdicts[0][0]["rejected_early"] == 0, verdicts[0][0]["reasons"]
