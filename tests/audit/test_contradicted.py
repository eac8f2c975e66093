# SPDX-License-Identifier: Apache-2.0
"""Records that contradict each other convict nobody, and hide nothing. Each of these was found by fuzz_evidence.py."""
import re
import shutil

import pytest
import shop
import test_clean
import test_fenced
from judge import audit, judge, verdict_of
from shop import MS
from simulate import simulate
from test_evidence import check, clean, cut_before_its_write, one_by_one


def edited(world, instance, edit):
    """The instance's lines changed after they were numbered; edit(lines)."""
    world.cover()
    world.covers = False
    world.seq_edits[instance] = edit
    return world


def sale_of(world, instance):
    return next(s for s in world.sales() if s["request"]["instance"] == instance)


def line_of(lines, section, event):
    return next(line for line in lines if line.get("hold") == section["hold"] and line["event"] == event)


# ---- A client that alone tells of a sale -----------------------------------------------------------
def one_more_sample(world, start_ms=None):
    """A 200 for a unit that another client holds, too, by a request that no history has."""
    request = sale_of(world, "a")["request"]
    sample = {**world.sample_of(request), "request": "nobody's"}
    if start_ms is not None:
        sample["timeStamp"] = start_ms
    world.samples.append(sample)
    return world


def direct(world):
    world.run["direct"], world.logged = True, False
    return world


def test_a_client_alone_proves_nothing_against_whole_histories():
    check(one_more_sample(direct(clean())), "inconclusive", "no instance's history has it")


def test_a_client_alone_proves_nothing_against_nginx():
    world = one_by_one()
    world.unended.add("b")
    check(one_more_sample(world), "inconclusive", "it is not in nginx.log")


def test_a_client_alone_proves_nothing_of_a_time_when_no_instance_lived():
    world = direct(one_by_one())
    world.unended.add("b")
    check(one_more_sample(world, shop.EPOCH_MS + 3_600_000), "inconclusive", "no instance's history has it")


def test_a_client_alone_proves_nothing_of_a_request_of_another_time():
    """Its instance accepted it, was killed, and did so an hour before its client asked."""
    def make(later_ms):
        world = direct(cut_before_its_write(1, unit=5))
        sale = next(s for s in world.sections if "write" in s and s["write"] not in world.events["a"] + world.events["b"])
        world.cover()
        world.covers = False
        world.sample_of(sale["request"])["timeStamp"] += later_ms
        return world
    check(make(0), "oversold", "unit 5 of phone was sold twice")
    check(make(3_600_000), "inconclusive", "outside of the time that their clients saw")


def test_a_client_alone_proves_a_sale_of_an_instance_that_was_killed():
    world = direct(one_by_one())
    world.unended.add("b")
    check(one_more_sample(world), "oversold", r"unit \d of phone was sold twice: .* as its client was told")


# ---- Times -----------------------------------------------------------------------------------------
def test_a_time_that_goes_back_is_no_overlap():
    """The exit of a section is written down as later than what its instance did next."""
    world = clean()
    first = world.sections_of("phone")[0]
    last = world.sections_of("phone")[-1]
    late = last["release"]["t_ns"]
    edited(world, first["request"]["instance"], lambda lines: line_of(lines, first, "exit").update(t_ns=late))
    check(world, "inconclusive", r"history-\w.jsonl line \d+: t_ns is \d+, before that of the line above, \d+; it must not go back")


def test_who_only_reads_has_the_clock_of_the_others():
    """Their clients are in no other view: where a history's times are not its clients', they prove nothing either."""
    world = clean(seed=3, readers=0.9, rung="read_write")
    assert world.readers

    def move(lines):
        for line in lines:
            line["t_ns"] += 20 * MS
            if "clock_ns_realtime" in line:
                line["clock_ns_realtime"] += 20 * MS
    for seed in range(20):
        world = clean(seed=seed, readers=0.9, rung="read_write")
        check(edited(world, "b", move), "inconclusive", "outside of the time that their clients saw")


def killed_with_a_record_of_another_day():
    world = test_clean.killed_in_the_section(1)
    victim = next(s for s in world.sections if s["exit"] is None)
    known = [s for s in world.sections if s["exit"] and s["request"]["instance"] == "b"][-1]
    events = world.events["b"]
    events.remove(known["release"])  # written down last, and dated a day later
    events.append(known["release"])
    known["release"]["t_ns"] = victim["enter"]["t_ns"] + 86_400_000 * MS
    world.covers = False
    return world


def test_a_killed_holder_did_not_live_until_a_time_that_its_client_denies():
    check(killed_with_a_record_of_another_day(), "inconclusive", "outside of the time that their clients saw")


# ---- Lines of one instance that differ -------------------------------------------------------------
@pytest.mark.parametrize("event", ["invoke", "write"])
def test_a_sale_of_more_than_was_asked_for(event):
    world = clean(items={"phone": 6}, requests=9, quantities=False)
    section = sale_of(world, "a")
    (section["write"] if event == "write" else section["request"]["invoke"])["quantity"] = 2
    check(world, "inconclusive", r"a sale of \d by request \w+, which asked for \d; they must be the same")


@pytest.mark.parametrize("event, sentence", [("invoke", "asked for another quantity"), ("outcome", r"unknown of 3 by request \w+, which asked for 1")])
def test_a_sale_of_an_unknown_end_that_took_more_than_was_asked_for(event, sentence):
    """Two units are gone that nobody was told to have bought."""
    world = clean(seed=2, unknowns=0.5, items={"phone": 20}, requests=9, quantities=False)
    request = next(r for r in world.requests if r["outcome"]["event"] == "unknown")
    world.redis["after"]["stock"]["phone"] -= 2
    for request in [r for r in world.requests if r["outcome"]["event"] == "unknown"]:
        request[event]["quantity"] = 3
    check(world, "inconclusive", sentence)


@pytest.mark.parametrize("change", [lambda line: line.pop("lock"), lambda line: line.update(lock="another")],
                         ids=["none", "another"])
@pytest.mark.parametrize("event", ["granted", "exit"])
def test_a_hold_whose_lock_is_not_known(event, change):
    """It neither meets others nor hides that they meet."""
    for make, result in ((lambda: clean(items={"lamp": 4, "phone": 9}, requests=16), "inconclusive"),
                         (lambda: simulate(1, 60, rung="local", write="decr", instances=["a", "b"], items={"phone": 70}), "overlap")):
        world = make()
        change(sale_of(world, "b")[event])
        if event == "granted" or "another" in str(sale_of(world, "b")[event].get("lock")):
            check(world, result, r'no "lock"; it must be a text|lock "\S+" in a line of a hold of "\S+"; it must be the same')
        else:
            check(world, "ok" if result == "inconclusive" else result, "")


def test_a_lock_renamed_in_one_line_hides_no_overlap():
    """Two sections, of which one says in its first line that it has another lock."""
    world, now = test_fenced.begin("decr", 9)
    first, second = test_fenced.enter(world, "a", 5, now), test_fenced.enter(world, "b", 6, now + MS)
    test_fenced.sell(world, first, now + 2 * MS)
    test_fenced.sell(world, second, now + 3 * MS)
    shop.finish(world)
    check(world, "overlap", "sections that began while another")
    first["granted"]["lock"] = "another"
    check(world, "inconclusive", "in a line of a hold of")


# ---- An instance and its client that differ --------------------------------------------------------
@pytest.mark.parametrize("change", [lambda write, sample: write.update(stock_after=write["stock_after"] + 2),
                                    lambda write, sample: sample.update(left=sample["left"] + 2)], ids=["history", "client"])
def test_what_was_left_is_no_proof_where_its_client_was_told_another_number(change):
    world = clean(tokens=True, rung="fair", write="fenced", items={"phone": 30}, expect=["ok"])
    section = sale_of(world, "b")
    change(section["write"], world.sample_of(section["request"]))
    check(world, "inconclusive", "another number was left")


def test_an_answer_is_never_ahead_of_its_record():
    """a was killed, says the fault; its client has an answer, and a's history ends before it."""
    world = one_by_one()
    last = [r for r in world.requests if r["instance"] == "a"][-1]

    def cut(lines):
        at = next(i for i, line in enumerate(lines) if line.get("request") == last["id"] and line["event"] == "read")
        del lines[at:]
    check(edited(world, "a", cut), "inconclusive", "the instance's history does not tell how it ended")
    check(cut_before_its_write(1, unit=None), "inconclusive", "the instance's history does not tell how it ended")


@pytest.mark.parametrize("left", ["begin", "invoke", "granted"])
def test_what_a_killed_instance_did_not_tell_is_unknown(left):
    """It was killed behind its write, its client has no answer, and its history is cut: one unit is gone, and nobody is
    accused of that."""
    world = one_by_one()
    last = [s for s in world.sales() if s["request"]["instance"] == "a"][-1]
    world.samples.remove(world.sample_of(last["request"]))
    world.passed.remove(world.passed_of(last["request"]))
    world.answer(last["request"], last["write"]["t_ns"], 502)

    def cut(lines):
        at = next(i for i, line in enumerate(lines) if line.get("request") == last["request"]["id"])
        del lines[at + ["begin", "invoke", "granted"].index(left):]
    check(edited(world, "a", cut), "ok", "8 requests, 7 of 9 sold, 1 left")


def test_a_refusal_of_another_item():
    """Rightly refused, as its item was sold out; its history says that it asked for one that was not."""
    world = clean(items={"phone": 2, "lamp": 9}, requests=12, quantities=False)
    request = next(r for r in world.requests if r["item"] == "phone" and r["code"] == 409)
    request["invoke"]["item"] = "lamp"
    check(world, "inconclusive", "the instance's history says that it asked for another item")


def test_a_buyer_whom_its_instance_takes_for_a_reader():
    """Sent away while enough was left, and its history says that it wanted nothing."""
    world = refused_though_enough_was_left()
    for request in world.requests[-2:]:
        request["invoke"]["quantity"] = 0
        world.sample_of(request)["URL"] = "http://127.0.0.1:8888/inventory/lamp/sale"
    check(world, "inconclusive", "the instance's history says that it only read")


# ---- What run.json asked for -----------------------------------------------------------------------
def refused_though_enough_was_left(**asked):
    world = shop.World(1)
    shop.start(world, rung="setnx", instances=["a", "b"], items={"phone": 9, "lamp": 9}, **asked)
    now = world.t0 + MS
    for i in range(6):
        now = shop.turn(world, world.request("phone", "ab"[i % 2], world.t0), now)
    for i in range(2):
        world.refuse(world.request("lamp", "ab"[i], world.t0), now, 503, "lock-timeout")
    return shop.finish(world)


def test_an_item_that_run_json_forgets():
    world = refused_though_enough_was_left()
    check(world, "undersold", "rejected while enough was left: 2")
    del world.run["items"]["lamp"]
    check(world, "inconclusive", "run.json does not name the item that it asked for")


def test_restocked_excuses_nothing_where_nobody_restocked():
    check(refused_though_enough_was_left(restocked=True), "undersold", "rejected while enough was left: 2")


def test_the_sentences_name_both():
    """What is proven comes first, and beside it stands what is missing."""
    world = simulate(1, 60, rung="local", write="set", instances=["a", "b"], items={"phone": 40})
    world.run["rung"] = "watchdog"
    world.run["ttl_ms"] = 3000
    last = max(world.sections, key=lambda s: s["exit"]["t_ns"])
    for name in ("exit", "release"):
        last[name]["t_ns"] += 1500 * MS
    world.add("a", world.t0 + 30, "stall", late_ns=1001 * MS)
    with judge({1: world}) as verdicts:
        reasons = verdicts[1][0]["reasons"]
        assert verdicts[1][0]["result"] == "oversold"
        assert "sold twice" in " ".join(reasons[:3]) and re.search("the machine stood still for 1001 ms", " ".join(reasons))


def test_a_history_that_is_there_twice(tmp_path):
    """Its restocks took units off the shelf: they did so once."""
    world = test_clean.restocked(2)
    name = world.run["instances"][0]
    line = [e for e in world.events[name] if e["event"] == "restock"][-1]
    line.update(stock_before=line["stock_after"] + 9, stock_after=line["stock_after"])
    folder = world.write(str(tmp_path / "run"))
    shutil.copy(f"{folder}/history-{name}.jsonl", f"{folder}/history-{name}-copy.jsonl")
    audit(folder)
    verdict = verdict_of(folder)
    assert verdict["result"] == "inconclusive", verdict["reasons"]
    assert f"history-{name}-copy.jsonl and history-{name}.jsonl cover the same time" in "".join(verdict["reasons"])


def test_a_restock_of_an_item_that_run_json_does_not_name():
    """It may have been of one that it names: what was on the shelf is not known."""
    world = test_clean.restocked(2)
    line = [e for lines in world.events.values() for e in lines if e["event"] == "restock"][-1]
    line["item"] = "phonex"
    check(world, "inconclusive", "a restock of phonex, which run.json does not name")


@pytest.mark.parametrize("query, result", [("", "ok"), ("?quantity=9", "inconclusive"), ("?quantity=1", "inconclusive")])
def test_nginx_may_log_no_query(query, result):
    """Then its log does not say how many units were asked for, and does not contradict sale.jtl."""
    world = shop.clean(3, unknowns=0, rung="watchdog", instances=["a", "b"], items={"phone": 9})
    for line in world.passed:
        line["uri"] = "/inventory/phone/sale" + query
    assert {2, 3} & {request["quantity"] for request in world.requests}
    check(world, result, "its uri asks for another quantity than the URL in sale.jtl" if query else "no unit twice")
