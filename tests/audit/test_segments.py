# SPDX-License-Identifier: Apache-2.0
"""--segments N: the stock of an item lies over N keys, with a lock for each. The judge accuses no correct run, and it finds
what goes wrong with the segments, their units and the parts of a sale."""
import re

import pytest
from judge import SEEDS, audit, judge
from segments import Shop
from shop import MS

SOME = min(SEEDS, 40)


def judged(make, seeds=SOME):
    """(seed, verdict, reasons, world) of that many worlds that can be made."""
    worlds, seed = {}, 0
    while len(worlds) < seeds:
        assert seed < 50 * seeds, "no such world is made"
        world = make(seed)
        if world:
            worlds[seed] = world
        seed += 1
    with judge(worlds) as verdicts:
        return [(seed, verdict, "\n".join(verdict["reasons"]), worlds[seed]) for seed, (verdict, _) in verdicts.items()]


def check(make, result, reason="", agrees=None, seeds=SOME):
    for seed, verdict, told, _ in judged(make, seeds):
        assert verdict["result"] == result and re.search(reason, told), (seed, verdict["result"], told)
        assert agrees is None or verdict["agrees"] == agrees, (seed, verdict["expected"], told)


# ---- Correct runs ----------------------------------------------------------------------------------
@pytest.mark.parametrize("asked", [
    {}, {"segments": 64}, {"write": "set"}, {"segments": 1}, {"rung": "redlock", "segments": 16}],
    ids=lambda asked: "-".join(map(str, asked.values())) or "any")
def test_a_correct_run_is_accused_of_nothing(asked):
    parts = {}
    for seed, verdict, told, world in judged(lambda seed: Shop(seed, **asked).buyers(20, readers=seed % 3).end()):
        assert verdict["result"] == "ok" and verdict["agrees"], (seed, told)
        assert verdict["overlaps"] == 0 and verdict["sold"] == sum(line["quantity"] for line in lines_of(world, "write"))
        for line in lines_of(world, "write"):
            parts[line.get("parts", 1)] = True
    assert asked.get("segments") == 1 or {1, 2, 3} <= set(parts)


def lines_of(world, event):
    return [line for lines in world.events.values() for line in lines if line["event"] == event]


def moved(seed):
    """The first segments are empty, and buyers come there."""
    run = Shop(seed, segments=4, stock=5).buyers(8, quantity=1)
    return run.end() if any(sale["request"]["moves"] >= 2 for sale in run.sales) else None


def spans(parts):
    def make(seed):
        run = Shop(seed, segments=5, stock=12).buyers(4, quantity=5)
        return run.end() if any(len(sale["writes"]) == parts for sale in run.sales) else None
    return make


@pytest.mark.parametrize("make", [moved, spans(2), spans(3)], ids=["moves-twice", "two-parts", "three-parts"])
def test_who_looks_on_and_who_needs_several_is_no_fault(make):
    check(make, "ok", agrees=True)


def test_tokens_are_those_of_one_lock_and_order_is_that_of_the_first_segment():
    def make(seed):
        run = Shop(seed, rung="fair", segments=3, stock=9)
        run.tokens = {}
        return run.buyers(6, quantity=1).end()
    check(make, "ok", agrees=True)


def test_tokens_of_one_segment_grow():
    def make(seed):
        run = Shop(seed, rung="fair", segments=3, stock=9)
        run.tokens = {}
        run.buyers(6, quantity=1)
        last = max(run.world.sections, key=lambda section: section["granted"]["t_ns"])
        if last["granted"]["token"] == 7 * last["segment"] + 1:
            return None
        last["granted"]["token"] = 7 * last["segment"]
        return run.end()
    check(make, "overlap", "tokens that did not grow: 1", seeds=10)


def test_who_looks_on_overtakes_nobody():
    """One comes first, to an empty segment. Another one comes later, to that where the first one looks on."""
    def make(seed, begins=(1, 2)):
        run = Shop(seed, rung="fair", segments=2, stock=3, min_share=0)
        run.parts = [0, 3]
        run.world.events["a"][0].update(stock_after=3, parts_after=[0, 3])
        run.buyers(2, quantity=1, begins=begins, at=[0, 10])
        if begins == (2, 2):  # here the second one overtakes the first
            run.world.requests[1]["invoke"]["t_ns"] -= 100
            return run.end()
        grants = [line["request"] for line in sorted(lines_of(run.world, "granted"), key=lambda line: line["t_ns"])
                  if line["lock"] == "lock:{phone}:2"]
        return run.end() if grants == [request["id"] for request in reversed(run.world.requests)] else None
    for seed, verdict, told, _ in judged(make, 10):
        assert verdict["order_inversions"] == 0, (seed, told)
    for seed, verdict, told, _ in judged(lambda seed: make(seed, (2, 2)), 10):
        assert verdict["order_inversions"] == 1, (seed, told)


@pytest.mark.parametrize("there", [1, 16])
def test_a_restock_may_move_the_stock_to_other_segments(there):
    """From one key to 16 and back, or the other way round; it counts in run.json as no policy then."""
    def make(seed):
        other = 17 - there
        run = Shop(seed, segments=there, stock=20).buyers(6)
        run.switch(other).restock(add=9).buyers(9, readers=1)
        run.switch(there).restock(**({"add": 3} if seed % 2 else {"set": 7})).buyers(9)
        del run.world.run["segments"]
        return run.end()
    check(make, "ok", agrees=True)


def unknown_span(came):
    def make(seed):
        run = Shop(seed, segments=5, stock=12).buyers(3, quantity=4)
        sale = run.sales[-1]
        if len(sale["writes"]) < 2:
            return None
        request, writes = sale["request"], sale["writes"]
        for line in writes:
            run.world.remove(line)
            run.parts[line["segment"] - 1] += 0 if came else line["quantity"]
        run.world.about(request, writes[0]["t_ns"], "unknown", lock=writes[0]["lock"], hold=writes[0]["hold"], code=503,
                        reason="outcome-unknown", quantity=4, parts=len(writes))
        run.world.sample_of(request).update(responseCode=503, unit="", left="", item="", instance="")
        run.world.passed_of(request)["status"] = 503
        return run.end()
    return make


@pytest.mark.parametrize("came", [True, False])
def test_a_lost_reply_of_a_span_was_carried_out_whole_or_not_at_all(came):
    for seed, verdict, told, _ in judged(unknown_span(came)):
        assert verdict["result"] == "ok" or (not came and verdict["result"] == "undersold" and "rejected" in told), (seed, told)
        assert verdict["unknown"] == 4


def test_a_part_of_a_span_cannot_be_lost_alone():
    """One of its parts came, it seems: no script does that."""
    def make(seed):
        world = unknown_span(True)(seed)
        if world:
            world.redis["after"]["stock"]["phone"] += 1
        return world
    check(make, "undersold", "cannot explain it", agrees=False)


def killed_in_a_span(seed):
    """Its instance was killed before it told of its last part; the client got no answer."""
    run = Shop(seed, segments=5, stock=16, fault="killed", expect=["ok"]).buyers(3, quantity=5)
    sale = run.sales[-1]
    request, writes = sale["request"], sale["writes"]
    if len(writes) < 2 or run.refused:
        return None
    instance, end = request["instance"], writes[-1]["t_ns"]
    if any(line["t_ns"] > end and line.get("request") != request["id"] for line in run.world.events[instance]):
        return None
    kept = [line for line in run.world.events[instance] if line["t_ns"] <= end and line is not writes[-1]]
    run.world.events[instance] = kept
    run.world.unended.add(instance)
    run.world.sample_of(request).update(responseCode="Non HTTP response code: java.net.SocketException", unit="", left="",
                                        item="", instance="", success="false")
    run.world.passed.remove(run.world.passed_of(request))
    return run.end()


def test_a_part_that_a_killed_instance_did_not_tell_of_may_be_sold():
    check(killed_in_a_span, "ok")


# ---- The parts of a sale ---------------------------------------------------------------------------
def broken(change, parts=2, **asked):
    """A run in which a sale of several parts is told wrongly."""
    def make(seed):
        run = Shop(seed, **{"segments": 5, "stock": 12, **asked}).buyers(5, quantity=None if parts == 1 else 5)
        sales = [sale for sale in run.sales if len(sale["writes"]) >= parts]
        if not sales or (parts == 1 and not any(len(sale["writes"]) == 1 for sale in sales)):
            return None
        sale = run.random.choice(sales)
        return run.end() if change(run, sale) is not False else None
    return make


def lacks_a_part(run, sale):
    run.world.remove(run.random.choice(sale["writes"]))


def lacks_its_last_part(run, sale):
    run.world.remove(sale["writes"][-1])


def repeats_a_part(_, sale):
    sale["writes"][1]["part"] = 1


def takes_too_much(_, sale):
    sale["writes"][0]["quantity"] += 1


def takes_too_little(_, sale):
    sale["writes"][-1]["quantity"] -= 1
    return sale["writes"][-1]["quantity"] > 0


def is_of_another_segment(run, sale):
    """The hold is that of another one's lock."""
    line = run.random.choice(sale["writes"])
    line["segment"] = line["segment"] % run.segments + 1


def has_another_unit(run, sale):
    """Not the next one of its segment; nobody else has it."""
    line = sale["writes"][-1]
    line["unit"] += 1000 * run.segments + run.random.randint(0, 3)
    run.world.run["items"]["phone"] += 10000
    for side in ("before", "after"):
        run.world.redis[side]["stock"]["phone"] += 10000


def is_of_other_segments(_, sale):
    sale["writes"][0]["segments"] = 6


def reads_another_segment(run, sale):
    line = sale["holds"][0]["read"]
    line["segment"] = line["segment"] % run.segments + 1


def tells_more_than_it_read(run, sale):
    for line in sale["writes"]:
        line["left"] += 1
    run.world.sample_of(sale["request"])["left"] += 1


def tells_the_buyer_otherwise(run, sale):
    run.world.sample_of(sale["request"])["left"] += 1


def tells_the_buyer_another_part(run, sale):
    run.world.sample_of(sale["request"])["unit"] = sale["writes"][1]["unit"]


def has_a_lock_beyond(run, sale):
    for line in lines_of(run.world, "granted"):
        if line["hold"] == sale["holds"][0]["hold"]:
            line["lock"] = "lock:{phone}:6"


@pytest.mark.parametrize("change, reason", [
    (lacks_a_part, "without all of their parts: 1|must be part|add up to"),
    (lacks_its_last_part, "without all of their parts: 1, first that of request \\S+, which lacks [1-4] of 5 units"),
    (repeats_a_part, "part 1 of . of a sale .*must be part 2"), (takes_too_much, "the parts must add up"),
    (takes_too_little, "the parts must add up"), (is_of_another_segment, "segment . under the lock of segment ."),
    (has_another_unit, "the next one of its segment"), (is_of_other_segments, "a stock in 6 segments; its begin says 5"),
    (reads_another_segment, "segment . under the lock of segment ."), (tells_more_than_it_read, "it left more than it had read"),
    (tells_the_buyer_otherwise, "another number was left"), (tells_the_buyer_another_part, "another unit was sold"),
    (has_a_lock_beyond, "must have one for each of its segments|must be the same")], ids=lambda value: getattr(value, "__name__", ""))
def test_a_sale_that_is_told_wrongly(change, reason):
    check(broken(change), "inconclusive", reason)


def test_one_key_has_one_lock():
    """Where the stock is not in segments, nothing is sold under another lock."""
    def make(seed):
        run = Shop(seed, segments=1, stock=12).buyers(5)
        holds = run.sales[-1]["holds"]
        for line in (line for lines in run.world.events.values() for line in lines if line.get("hold") == holds[0]["hold"]):
            line["lock"] = "lock:{phone}:2"
        return run.end()
    check(make, "inconclusive", 'sold under lock "lock:{phone}" and under "lock:{phone}:2"; it must have one$|it must have one\n')


def test_a_guarded_read_has_the_locks_of_all_segments_whatever_its_instance_is_set_to():
    """The stock still lies over three, so it is refused."""
    def make(seed):
        run = Shop(seed, segments=3, stock=12).buyers(5).switch(1)
        reader = run.world.request("phone", "a", run.now, 0)
        run.world.requests.remove(reader)
        for number, segment in enumerate([3, 1, 2]):
            section = {"request": reader, "hold": f"uuid-a:2#{number}", "segment": segment}
            for step, event in enumerate(["granted", "enter", "exit"]):
                run.about(section, run.now + step + 1, event)
            run.about(section, run.now + 5, "release", status="OK")
        run.world.about(reader, run.now + 6, "refused", code=503, reason="other-layout")
        del run.world.run["segments"]
        return run.end()
    check(make, "ok", seeds=5)


@pytest.mark.parametrize("field, list_", [("parts_after", [9, 9]), ("parts_before", [1]), ("parts_after", [1.5, 2]),
                                          ("parts_after", "all"), ("parts_after", [])])
def test_the_segments_of_a_restock_add_up(field, list_):
    def make(seed):
        run = Shop(seed, segments=2, stock=12).buyers(3)
        run.world.events["a"][0][field] = list_
        return run.end()
    check(make, "inconclusive", f'"{field}" must be a list of 1 to 64 whole numbers', seeds=3)


@pytest.mark.parametrize("change", [{"parts_after": None}, {"parts_before": None}, {"parts_after": [12]},
                                    {"parts_after": [4, 4, 4]}], ids=str)
def test_a_restock_says_how_it_laid_the_stock(change):
    """Over as many segments as its instance has. A record of less accuses nobody."""
    def make(seed):
        run = Shop(seed, segments=2, stock=12).buyers(9)
        line = run.world.events["a"][0]
        line.update(change)
        for name in [name for name, value in change.items() if value is None and seed % 2]:
            del line[name]
        return run.end()
    check(make, "inconclusive", "does not say how it laid the stock over 2 segments", seeds=6)


@pytest.mark.parametrize("change", [{"event": "begi"}, {"segments": None}, {"segments": 3}, {"segments": "three"}], ids=str)
def test_a_begin_that_cannot_be_read_accuses_nobody(change):
    """Over how many segments its instance had the stock is known from its sales."""
    def make(seed):
        run = Shop(seed, segments=3, stock=12).buyers(9)
        for name in run.world.events:
            run.world.seq_edits[name] = lambda lines: lines[0].update(change)
        return run.end()
    check(make, "inconclusive", "", seeds=10)


# ---- Units -----------------------------------------------------------------------------------------
def of_another_segment(run, sale):
    """Two segments claim one unit, and both tell it to their buyers."""
    line, others = sale["writes"][0], [other for other in run.sales if other["writes"][0]["segment"] != sale["writes"][0]["segment"]]
    if not others or line["quantity"] > 1:
        return False
    line["unit"] = others[0]["writes"][0]["unit"]
    run.world.sample_of(sale["request"])["unit"] = line["unit"]
    return True


def of_its_own_segment(run, sale):
    """It is told the unit of a sale before it in its segment, which the stock had no more."""
    line = sale["writes"][0]
    others = [other["writes"][0] for other in run.sales if other["writes"][0]["segment"] == line["segment"] and other is not sale]
    if not others:
        return False
    line.update(unit=others[0]["unit"], stock_before=others[0]["stock_before"], stock_after=others[0]["stock_after"])
    line["quantity"] = 1
    run.world.sample_of(sale["request"])["unit"] = line["unit"]
    return True


@pytest.mark.parametrize("change", [of_another_segment, of_its_own_segment])
def test_a_unit_is_sold_twice(change):
    def make(seed):
        run = Shop(seed, segments=3, stock=14).buyers(9, quantity=1)
        return run.end() if change(run, run.random.choice(run.sales)) else None
    for seed, verdict, told, _ in judged(make):
        assert verdict["result"] == "oversold" and verdict["duplicate_units"] >= 1, (seed, told)
        assert re.search("unit \\d+ of phone was sold twice", told), (seed, told)


def test_a_sale_that_tells_its_buyer_another_part_proves_nothing():
    """Its first part has a unit that was sold before; its buyer was told the unit of the second part."""
    def make(seed, told=1):
        run = Shop(seed, segments=5, stock=16).buyers(9)
        spans = [sale for sale in run.sales if len(sale["writes"]) > 1]
        others = [sale["writes"][0] for sale in run.sales if len(sale["writes"]) == 1]
        if not spans or not others:
            return None
        spans[0]["writes"][0]["unit"] = others[0]["unit"]
        run.world.sample_of(spans[0]["request"])["unit"] = spans[0]["writes"][told]["unit"]
        return run.end()
    check(make, "inconclusive", "another unit was sold", seeds=10)
    check(lambda seed: make(seed, 0), "oversold", "was sold twice", seeds=10)


@pytest.mark.parametrize("restocked", [False, True])
def test_a_segment_is_sold_below_nothing(restocked):
    """One segment has sold a unit too many, while others have enough. No restock, that may have been, excuses it."""
    def make(seed):
        run = Shop(seed, segments=3, stock=12, **({"write": "set"} if restocked else {})).buyers(9, quantity=1)
        line = run.sales[-1]["writes"][0]
        segment = line["segment"]
        line.update(stock_after=-1, stock_before=0, unit=-run.segments + segment)
        run.world.sample_of(run.sales[-1]["request"])["unit"] = line["unit"]
        if restocked:
            run.restock("restock_unknown", came=False, add=5)
            line["t_ns"] = run.now = run.now + MS  # after it
            for number, event in enumerate(["exit", "release"]):
                run.sales[-1]["holds"][0][event]["t_ns"] = run.now + number
        return run.end()
    for seed, verdict, told, _ in judged(make):
        assert verdict["result"] == "oversold" and "there never was such a unit" in told, (seed, told)


@pytest.mark.parametrize("later", [0, 12])
def test_a_restock_gives_units_once(later):
    """What the move to other segments left is there once: who sells it in the old layout sells it again."""
    def make(seed):
        run = Shop(seed, segments=4, stock=8).buyers(4, quantity=1)
        late = run.sales[-1]
        run.switch(3).restock(add=4).buyers(later, quantity=1)
        before = next(line for line in lines_of(run.world, "restock") if line["stock_after"] == 8 and "request" in line)["parts_before"]
        segment = next(number for number, units in enumerate(before, 1) if units)
        line = late["writes"][0]
        line["unit"] = (before[segment - 1] - 1) * 4 + segment  # that is moved
        run.world.sample_of(late["request"])["unit"] = line["unit"]
        del run.world.run["segments"]
        return run.end()
    for seed, verdict, told, _ in judged(make):
        assert verdict["result"] == "oversold" and verdict["duplicate_units"] == 1, (seed, told)


@pytest.mark.parametrize("outcome", [None, "restock_unknown"])
@pytest.mark.parametrize("there", [3, 16])
def test_a_restock_without_an_outcome_accuses_nobody(outcome, there):
    """It may have levelled all segments, or moved all units to others."""
    def make(seed):
        run = Shop(seed, segments=3, stock=20, fault="killed", expect=["ok"]).buyers(6, quantity=1)
        run.switch(there) if there != 3 else None
        run.restock(outcome, add=2).buyers(9)
        if outcome is None:
            run.world.unended.add("a")
        del run.world.run["segments"]
        return run.end()
    check(make, "ok", "was carried out")


def test_it_excuses_no_unit_that_was_sold_twice_before_it():
    def make(seed):
        run = Shop(seed, segments=3, stock=14).buyers(9, quantity=1)
        if not of_another_segment(run, run.random.choice(run.sales)):
            return None
        return run.restock("restock_unknown", add=2).buyers(3).end()
    check(make, "oversold", "unit \\d+ of phone was sold twice")


# ---- Locks -----------------------------------------------------------------------------------------
def test_sections_of_one_segment_do_not_overlap():
    def make(seed):
        run = Shop(seed, segments=3, stock=14).buyers(9, quantity=1)
        by_segment = {}
        for section in sorted(run.world.sections, key=lambda one: one["enter"]["t_ns"]):
            by_segment.setdefault(section["segment"], []).append(section)
        pairs = [pair for sections in by_segment.values() for pair in zip(sections, sections[1:])]
        if not pairs:
            return None
        one, two = run.random.choice(pairs)
        one["exit"]["t_ns"] = two["enter"]["t_ns"] + 1
        one["release"]["t_ns"] = one["exit"]["t_ns"] + 1
        return run.end()
    check(make, "overlap", "while another one of their lock was still inside: 1,.*entered lock:{phone}")


def stuck(segment, pttl_ms, with_list=True):
    """A sale waited in vain, and the lock of that segment is there in the end."""
    def make(seed):
        run = Shop(seed, segments=3, stock=14).buyers(5, quantity=1)
        request = run.world.request("phone", "a", run.now)
        run.world.refuse(request, run.now + 20000 * MS, 503, "lock-timeout")
        world = run.end()
        locks = [{"type": "none", "pttl_ms": -2} for _ in range(3)]
        if segment:
            locks[segment - 1] = {"type": "string", "pttl_ms": pttl_ms}
        world.redis["after"]["locks"]["phone"] = locks if with_list else locks[segment - 1]
        return world
    return make


@pytest.mark.parametrize("segment", [1, 2, 3])
def test_a_lock_of_any_segment_may_be_held_for_ever(segment):
    check(stuck(segment, -1), "deadlock", f"the lock of segment {segment} of phone is held for ever", seeds=5)


@pytest.mark.parametrize("segment, pttl_ms", [(2, 400), (0, -2)])
def test_a_lock_that_expires_is_not_held_for_ever(segment, pttl_ms):
    check(stuck(segment, pttl_ms), "undersold", "rejected while enough was left", seeds=5)


def test_a_lock_of_a_segment_that_stays_though_nobody_waited():
    def make(seed):
        world = Shop(seed, segments=3, stock=14).buyers(5, quantity=1).end()
        world.redis["after"]["locks"]["phone"] = [{"type": "none", "pttl_ms": -2}, {"type": "string", "pttl_ms": -1}]
        return world
    check(make, "inconclusive", "the lock of phone is there after the run", seeds=5)


# ---- Who was sent away -----------------------------------------------------------------------------
def naive(seed, **asked):
    run = Shop(seed, **{"segments": 4, "stock": 9, "naive": True, **asked}).buyers(9, quantity=1)
    return run if any(holds[0]["read"]["all"] > 0 for _, holds in run.refused) else None


def test_naive_segments_send_buyers_away_while_units_are_left():
    def make(seed):
        run = naive(seed)
        return run and run.end()
    check(make, "undersold", "rejected while enough was left: .*when at least . of phone were left; its own segment, . of 4, had 0",
          agrees=True)


def test_naive_segments_may_run_out_together():
    def make(seed):
        run = Shop(seed, segments=4, stock=9, naive=True).buyers(9, quantity=1)
        return None if any(holds[0]["read"]["all"] > 0 for _, holds in run.refused) else run.end()
    check(make, "ok", agrees=True, seeds=5)


@pytest.mark.parametrize("asked", [{"write": "decr"}, {"write": "set"}, {"on_conflict": "fail", "retries": 0}],
                         ids=lambda asked: "-".join(asked.values() if "write" in asked else asked))
def test_that_is_not_expected_of_sound_segments(asked):
    """With `set` only what it had read itself counts. A policy excuses only those whom it sent away."""
    def make(seed):
        run = naive(seed, **asked)
        if run:
            run.world.run["segments"] = run.world.begin["segments"] = "4"
            run.world.begin["on_conflict"] = asked.get("on_conflict", "wait")
            for request, holds in run.refused:
                run.world.sample_of(request)["left"] = holds[0]["read"]["all"]
        return run and run.end()
    check(make, "undersold", "rejected while enough was left.*; its own segment, . of 4, had 0", agrees=False)


def test_naive_segments_excuse_nothing_else():
    """Who waited for the lock in vain did not find its segment empty."""
    def make(seed):
        run = naive(seed, stock=12)
        if run:
            request = run.world.request("phone", "a", run.world.t0 + MS)
            run.world.refuse(request, run.world.t0 + MS + 1, 503, "lock-timeout")
        return run and run.end()
    check(make, "undersold", "rejected while enough was left", agrees=False)


def test_who_looked_on_in_vain_is_judged_by_the_end_of_its_wait():
    """It had read that units are left in another segment; when it gave up, they were sold."""
    def make(seed):
        run = Shop(seed, segments=4, stock=6).buyers(12, quantity=1)
        movers = [sale for sale in run.sales if sale["request"]["moves"] == 1]
        if not movers or not run.refused or run.parts != [0, 0, 0, 0]:
            return None
        sale, other = movers[0], run.refused[-1]
        # it times out after all, and one who was told that nothing is left takes its place
        request = sale["request"]
        end = max(line["t_ns"] for lines in run.world.events.values() for line in lines) + MS
        hold = sale["holds"][0]
        for name in ("granted", "enter", "read", "write", "exit", "release"):
            line = hold[name]
            line.update(request=other[0]["id"], instance=other[0]["instance"])
            run.world.events[request["instance"]].remove(line)
            run.world.events[other[0]["instance"]].append(line)
        invoke = other[0]["invoke"]
        invoke["t_ns"] = min(invoke["t_ns"], hold["granted"]["t_ns"] - 1)
        for lines in run.world.events.values():
            lines[:] = [line for line in lines if line is not other[0]["outcome"] and
                        not (line.get("request") == other[0]["id"] and line.get("hold") == other[1][0]["hold"])]
        sample, told = run.world.sample_of(other[0]), run.world.sample_of(request)
        sample.update({name: told[name] for name in ("responseCode", "unit", "left", "item")}, instance=other[0]["instance"])
        run.world.passed_of(other[0])["status"] = 200
        run.world.samples.remove(told)
        run.world.passed.remove(run.world.passed_of(request))
        run.world.refuse(request, end, 503, "lock-timeout")
        return run.end()
    check(make, "ok", seeds=10)


def test_each_instance_has_the_segments_of_the_run():
    def make(seed):
        run = Shop(seed, segments=4, stock=9).buyers(5)
        run.world.run["segments"] = "16"
        return run.end()
    check(make, "inconclusive", 'recorded with segments "4"; it must be run.json\'s "16"', seeds=3)


@pytest.mark.parametrize("text", ["0", "65", "many", "naive", "naive:"])
def test_a_begin_names_its_segments(text):
    def make(seed):
        run = Shop(seed, segments=1, stock=9).buyers(5)
        run.world.begin["segments"] = run.world.run["segments"] = text
        return run.end()
    check(make, "inconclusive", "it must be N or naive:N", seeds=1)


# ---- The picture -----------------------------------------------------------------------------------
def drawn(world, tmp_path):
    audit(world.write(tmp_path / "run"))
    return (tmp_path / "run" / "timeline.svg").read_text(encoding="utf-8")


def test_the_picture_shows_the_parts_of_a_sale(tmp_path):
    """One buyer takes three segments; the close up is about one of them, the steps name the others."""
    run = Shop(1, segments=3, stock=8).buyers(1, quantity=8)
    picture = drawn(run.end(), tmp_path)
    units = [line["unit"] for line in run.sales[0]["writes"]]
    assert len(units) == 3
    for part, (line, unit) in enumerate(zip(run.sales[0]["writes"], units), 1):
        last = unit + 3 * (line["quantity"] - 1)
        assert f"sells units {unit} to {last} in steps of 3 (part {part} of 3)" in picture, (part, unit, last)
    assert "write" in picture and ", segments 3<" in picture and re.search("left in segment [123]", picture)


def test_the_picture_of_many_segments_is_no_larger(tmp_path):
    """A lane for each instance, and the close up of one segment's lock."""
    one = drawn(Shop(1, segments=1, stock=90).buyers(90, quantity=1).end(), tmp_path / "one")
    many = drawn(Shop(1, segments=16, stock=90).buyers(90, quantity=1).end(), tmp_path / "many")
    height = lambda picture: int(re.search('height="(\\d+)"', picture).group(1))
    assert height(many) <= height(one) and len(many) < 2 * len(one)
    assert len(re.findall('class="name big"', many)) == 2


def test_sections_of_several_segments_share_a_small_lane(tmp_path):
    """Those of one instance overlap, and none hides another one."""
    picture = drawn(Shop(1, segments=3, stock=8, instances=["a"]).buyers(1, quantity=8).end(), tmp_path)
    strips = picture[picture.index('id="strips"'):].partition("</g>")[0]
    bars = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"[^>]*class="sold"', strips)
    tops = sorted((float(y), float(y) + float(height)) for _, y, _, height in bars)
    assert len(tops) == 3 and all(below <= top for (_, below), (top, _) in zip(tops, tops[1:])), bars


def test_a_stock_without_a_record_of_its_segments_was_levelled():
    def make(seed):
        run = Shop(seed, segments=3, stock=10)
        run.world.events["a"].clear()
        return run.buyers(12, quantity=1).end()
    check(make, "ok", seeds=10)


def test_what_redis_had_in_each_segment_counts_if_no_restock_tells():
    """A stock that was not levelled, and was set before the run."""
    def make(seed, told=True):
        run = Shop(seed, segments=3, stock=6)
        run.parts = [5, 1, 0]
        run.world.events["a"].clear()
        if told:
            run.world.redis["before"]["parts"] = {"phone": [5, 1, 0]}
        return run.buyers(7, quantity=1).end()
    check(make, "ok", seeds=10)
    check(lambda seed: make(seed, False), "oversold", seeds=10)
