# SPDX-License-Identifier: Apache-2.0
"""On small histories of any kind, the judge agrees with a check that looks at every pair and every
unit, written from the definitions and from nothing else."""
import itertools
import re

import shop
from judge import SEEDS, judge
from shop import MS
from simulate import simulate

FENCES = ["fenced", "fenced_textbook"]
FIELDS = ["initial", "sold", "left", "oversold", "surplus", "shortfall", "unsold", "unknown",
          "distinct", "duplicate_units", "rejected_early", "overlaps", "max_parallel", "token_refusals"]


def dirty(seed):
    """All views agree, all lines are there, and anything may have happened: times, units, stocks
    and tokens from ranges so small that they often meet."""
    world = shop.World(seed)
    rand = world.random
    tokens = rand.random() < 0.4
    fenced = tokens and rand.random() < 0.6
    shop.start(world, items={"lamp": rand.randint(0, 4), "phone": rand.randint(0, 4)},
               instances=["a", "b"][:rand.randint(1, 2)],
               write=rand.choice(FENCES) if fenced else None)
    start, span = world.t0 + 10, rand.choice([6, 20, 60])
    for i in range(rand.randint(4, 14)):
        item = "phone" if i < 4 else rand.choice(["phone", "lamp"])
        request = world.request(item, world.run["instances"][i % len(world.run["instances"])],
                                world.t0, rand.choice([1, 1, 1, 2, 3]))
        times = sorted(start + rand.randint(0, span) for _ in range(6))
        what = rand.choice(["sold"] * 6 * (seed % 8 > 0) + ["looked", "timeout", "unknown", "failed"]
                           + ["stale"] * 4 * fenced)
        if what in ("timeout", "failed"):
            world.refuse(request, times[0], 503 if what == "timeout" else 500, "lock-busy",
                         "refused" if what == "timeout" else "fail")
            continue
        if rand.random() < 0.2:  # it looked first, under the read lock
            looked = sorted(start + rand.randint(0, span) for _ in range(5))
            looked[0] = min(looked[0], times[0])
            world.reading(request, looked, rand.randint(-1, 5), rand.randint(1, 9) if tokens else None)
        mode = rand.choice([{}, {"mode": "exclusive"}])
        section = world.section(request, times, rand.randint(1, 9) if tokens else None, **mode)
        if what == "sold":
            before = rand.randint(-1, 5)
            after = rand.randint(-2, 4) if not fenced or rand.random() < 0.1 else None
            world.sell(section, times[2], times[3], before, after)
        else:
            section["read"] = world.about(request, times[2], "read", hold=section["hold"],
                                          stock_before=rand.randint(-1, 4))
        if what == "unknown":
            request["outcome"] = world.about(request, times[3], "unknown", code=500,
                                             hold=section["hold"], quantity=request["quantity"])
            world.answer(request, times[3], 500)
        world.leave(section, times[4], times[5])
        if what == "looked":
            world.refuse(request, times[5], 409, "sold-out")
        if what == "stale":
            world.refuse(request, times[5], 503, rand.choice(["stale-token", "lock-lost"]))
    for _ in range(rand.choice([0, 0, 1, 3, 8])):
        times = sorted(start + rand.randint(0, span) for _ in range(5))
        world.reader(rand.choice(["phone", "lamp"]), rand.choice(world.run["instances"]), times,
                     rand.randint(-1, 4), rand.randint(1, 9) if tokens else None,
                     rand.choice(["shared", "shared", "exclusive"]))
    return shop.finish(world, {i: rand.randint(-1, 4) for i in ("lamp", "phone")})


def is_shared(section):
    return section["granted"].get("mode") == "shared"


def clash(one, two):
    """They meet, and are not both readers that share the lock."""
    return meet(one, two) and not (is_shared(one) and is_shared(two))


def meet(one, two):
    """Half-open intervals with a point in common, or an empty one strictly inside another."""
    return (one["enter"]["t_ns"] < two["exit"]["t_ns"]
            and two["enter"]["t_ns"] < one["exit"]["t_ns"])


def look_at_sections(world, found):
    for item in world.run["items"]:
        sections = world.sections_of(item)
        sections.sort(key=lambda s: (s["enter"]["t_ns"], s["exit"]["t_ns"], is_shared(s)))
        for i, section in enumerate(sections):
            before = sum(meet(other, section) for other in sections[:i])
            found["overlaps"] += any(clash(other, section) for other in sections[:i])
            found["max_parallel"] = max(found["max_parallel"], before + 1)
        fenced = world.run["write"] in FENCES
        for one in sections:
            if fenced and one["granted"]["token"] and "write" in one:
                write = one["write"]
                took = one["read"]["stock_before"] - write["stock_after"]
                found["fencing"] += took != write["quantity"]
            for two in sections:
                found["fencing"] += (falls_back(one, two, fenced) or wrote_late(one, two)
                                     or (fenced and sold_late(one, two)))
                found["harm"] += one is not two and clash(one, two) and not fenced


def tokens_of(one, two):
    return one["granted"]["token"], two["granted"]["token"]


def falls_back(one, two, fenced):
    """Two came behind one, and its token is not newer. With a fence that harms only if both sold."""
    token, newer = tokens_of(one, two)
    return (token and one is not two and newer <= token and not (is_shared(one) and is_shared(two))
            and one["exit"]["t_ns"] <= two["enter"]["t_ns"] and one["enter"]["t_ns"] < two["enter"]["t_ns"]
            and (not fenced or ("write" in one and "write" in two)))


def wrote_late(one, two):
    """Two has the newer token, and read the stock from before one's write."""
    token, newer = tokens_of(one, two)
    reads = is_shared(two) or two["request"]["quantity"] == 0
    return (token and "write" in one and newer > token and not reads
            and two["granted"]["t_ns"] < one["write"]["t_ns"]
            and two["read"]["stock_before"] > one["write"]["stock_after"])


def sold_late(one, two):
    """The stock shows that two wrote behind one, and its token is not newer."""
    token, newer = tokens_of(one, two)
    return (token and newer <= token and "write" in one and "write" in two
            and two["write"]["stock_after"] < one["write"]["stock_after"])


def look_at_units(world, item, stock, found):
    units = {}
    for section in world.sales(item):
        first = section["write"]["unit"]
        for unit in range(first, first + section["write"]["quantity"]):
            units[unit] = units.get(unit, 0) + 1
    found["distinct"] += len(units)
    found["duplicate_units"] += sum(times - 1 if 1 <= unit <= stock else times
                           for unit, times in units.items())


def look_at_refusals(world, item, left, shelf, found):
    wanted = 0
    falls = world.run["write"] != "set" and not any(
        r["item"] == item and r["outcome"]["event"] == "unknown" for r in world.requests)
    for request in world.requests:
        if request["item"] != item or request["outcome"]["event"] not in ("refused", "fail"):
            continue
        quantity = request["quantity"]
        own = [s for s in world.sections if s["request"] is request]
        reason, fenced = request["outcome"]["reason"], world.run["write"] in FENCES
        found["token_refusals"] += reason == "stale-token"
        fresh = own and not (fenced and reason in ("stale-token", "lock-lost"))  # else it read what was old
        seen = [own[-1]["read"]["stock_before"]] if fresh else []
        if not fresh or falls:
            seen += [left] + [s["read"]["stock_before"] for s in world.sections_of(item)
                              if s["enter"]["t_ns"] > (own[-1]["read"] if fresh else request["outcome"])["t_ns"]]
        found["rejected_early"] += max(seen) >= quantity
        wanted += quantity if quantity <= shelf else 0
    found["unsold"] += min(shelf, wanted) if wanted else 0


def sums_of(quantities):
    """What a choice of them sums up to, for every choice."""
    return {sum(chosen) for count in range(len(quantities) + 1)
            for chosen in itertools.combinations(quantities, count)}


def look(world):
    found = dict.fromkeys(FIELDS + ["fencing", "below", "harm", "unexplained"], 0)
    look_at_sections(world, found)
    for item, stock in world.run["items"].items():
        left = world.redis["after"]["stock"][item]
        sold = sum(s["write"]["quantity"] for s in world.sales(item))
        open_ones = [r["quantity"] for r in world.requests if r["item"] == item and r["outcome"]["event"] == "unknown"]
        unknown, missing = sum(open_ones), stock - sold - left
        found["initial"] += stock
        found["sold"] += sold
        found["left"] += left
        found["unknown"] += unknown
        found["oversold"] += max(0, sold - stock)
        found["surplus"] += max(0, sold + left - stock)
        found["shortfall"] += max(0, missing - unknown)
        found["below"] += left < 0
        taken = max(0, min(unknown, missing))
        if taken == missing and missing not in sums_of(open_ones):
            if world.run["write"] == "set":
                found["unexplained"] += 1
            else:
                taken = max(amount for amount in sums_of(open_ones) if amount < missing)
                found["shortfall"] += missing - taken
        look_at_units(world, item, stock, found)
        look_at_refusals(world, item, left, stock - sold - taken, found)
    if found["oversold"] or found["surplus"] or found["duplicate_units"] or found["below"]:
        found["result"] = "oversold"
    elif found["harm"] or found["fencing"]:
        found["result"] = "overlap"
    elif found["shortfall"] or found["unsold"] or found["rejected_early"]:
        found["result"] = "undersold"
    elif found["unexplained"]:
        found["result"] = "inconclusive"
    else:
        found["result"] = "ok"
    return found


def test_agrees_with_brute_force():
    results = {}
    worlds = {seed: dirty(seed) for seed in range(max(600, 10 * SEEDS))}
    with judge(worlds) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            found = look(worlds[seed])
            told = {name: verdict[name] for name in FIELDS}
            assert told == {name: found[name] for name in FIELDS}, (seed, folder)
            assert verdict["result"] == found["result"], (seed, verdict["reasons"])
            results[found["result"]] = results.get(found["result"], 0) + 1
    assert set(results) >= {"oversold", "overlap", "undersold"}, results


def first_sold_twice(world):
    """The two buyers of one unit who were the first to both have it."""
    pairs = [(max(a["write"]["t_ns"], b["write"]["t_ns"]), {a["request"]["id"], b["request"]["id"]})
             for i, a in enumerate(world.sections) for b in world.sections[:i]
             if "write" in a and "write" in b and a["write"]["unit"] == b["write"]["unit"]]
    return min(pairs, key=lambda pair: pair[0])[1]


def test_names_the_first_two_buyers_of_one_unit():
    worlds = {seed: simulate(seed, 60, rung="local", write="set", instances=["a", "b"],
                             items={"phone": 40}) for seed in range(40)}
    with judge(worlds) as verdicts:
        for seed, (verdict, _) in verdicts.items():
            reason = next(text for text in verdict["reasons"] if "was sold twice" in text)
            assert set(re.findall(r"request (\w+)", reason)) == first_sold_twice(worlds[seed])


def test_a_restock_adds_what_it_adds():
    """5 on the shelf, 2 sold, filled up from 3 to 5: units 4 and 5 are new, unit 3 is not."""
    world = shop.World(1)
    shop.start(world, rung="setnx", write="set", instances=["a"], items={"phone": 5},
               restocked=True)
    requests = [world.request("phone", "a", world.t0) for _ in range(6)]
    now = world.t0 + MS
    for request in requests[:2]:
        now = shop.turn(world, request, now)
    world.add("a", now, "restock", item="phone", stock_before=3, stock_after=5)
    world.stock["phone"] = 5
    for request in requests[2:]:
        now = shop.turn(world, request, now + 1)
    assert [s["write"]["unit"] for s in world.sales()] == [5, 4, 5, 4, 3, 2]
    world.sales()[-1]["write"]["unit"] = 3
    world.sample_of(requests[-1])["unit"] = 3
    with judge({1: shop.finish(world)}) as verdicts:
        verdict = verdicts[1][0]
        assert (verdict["result"], verdict["initial"], verdict["duplicate_units"]) == ("oversold", 7, 1)
        assert verdict["oversold"] == verdict["surplus"] == verdict["shortfall"] == 0


def test_counts_who_was_overtaken():
    """On rungs with an order: grants to a request while a later one of its instance had had one."""
    worlds = {seed: shop.clean(seed, rung="fair" if seed % 2 else "watchdog", expect=["ok"])
              for seed in range(40)}
    with judge(worlds) as verdicts:
        for seed, (verdict, _) in verdicts.items():
            sections = worlds[seed].sections
            overtaken = sum(any(
                other["request"]["item"] == one["request"]["item"]
                and other["request"]["instance"] == one["request"]["instance"]
                and other["granted"]["t_ns"] < one["granted"]["t_ns"]
                and other["request"]["t_ns"] > one["request"]["t_ns"] for other in sections)
                for one in sections)
            assert verdict["order_inversions"] == (overtaken if seed % 2 else 0), seed
    assert verdict["result"] == "ok"


def quiet(seed):
    """Worlds in which little goes wrong, so that the finer results come up too."""
    fenced = {"write": FENCES[seed % 2], "tokens": True} if seed % 3 == 0 else {}
    world = shop.clean(seed, unknowns=0.2, readers=0.4 * (seed % 2), **fenced)
    rand = world.random
    for _ in range(rand.randint(0, 2)):
        section, longer = rand.choice(world.sections), rand.choice([1, 2, 700])
        section["exit"]["t_ns"] += longer
        section["release"]["t_ns"] += longer
    item = rand.choice(list(world.run["items"]))
    world.redis["after"]["stock"][item] += rand.choice([0, 0, 0, -1, 1])
    return world


def test_agrees_on_worlds_that_are_nearly_clean():
    results = {}
    worlds = {seed: quiet(seed) for seed in range(max(600, 3 * SEEDS))}
    with judge(worlds) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            found = look(worlds[seed])
            told = {name: verdict[name] for name in FIELDS}
            assert told == {name: found[name] for name in FIELDS}, (seed, folder)
            assert verdict["result"] == found["result"], (seed, verdict["reasons"])
            results[found["result"]] = results.get(found["result"], 0) + 1
    assert set(results) == {"oversold", "overlap", "undersold", "inconclusive", "ok"}, results
