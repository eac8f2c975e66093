# SPDX-License-Identifier: Apache-2.0
"""The judge and a check that tries everything agree on small histories of a menu. The check is written from
docs/reference/run.md, not from the judge: no sorting, no search, every pair is looked at."""
import menu
from judge import SEEDS, judge
from menu import MS, Menu

FIELDS = ["queries", "needed", "extra", "stale", "updates", "overlaps"]


def stamp(query, event):
    return query[event]["t_ns"] if event in query else None


def newer_grant(world, request):
    """When the first newer token of its lock was given."""
    own = next(s for s in world.sections if s["request"] is request)
    times = [s["granted"]["t_ns"] for s in world.sections if s["request"]["item"] == request["item"]
             and (s["granted"]["token"] or 0) > own["granted"]["token"]]
    return min(times, default=None)


def end_of(world, query):
    """Until when it covers its menu."""
    if "filled" in query:
        return query["filled"]["sent_ns"] + query["filled"]["cache_ms"] * MS
    request = query["request"]
    section = next((s for s in world.sections if s["request"] is request), None)
    ends = [stamp(query, "fill_refused"), request["outcome"]["t_ns"] if "outcome" in request else None]
    if section:
        ends.append(section["exit"]["t_ns"] if section["exit"] else None)
        if world.run["fill"] == "fenced" and section["granted"]["token"]:
            ends.append(newer_grant(world, request))
    if request["instance"] in world.unended:
        ends.append(max(line["t_ns"] for line in world.events[request["instance"]]))
    return min(end for end in ends if end is not None)


def possible_deletions(world, item):
    """[from, to] of each, as a list that a query may use up."""
    found = []
    for request in world.requests:
        if request["item"] == item and "updated" in request:
            gone = request.get("deleted")
            found.append([gone["sent_ns"], gone["t_ns"]] if gone else [request["updated"]["t_ns"], 2**63])
    return found


def count_extra(world, item):
    queries = [q for q in world.queries if q["request"]["item"] == item]
    numbered = sorted(range(len(queries)), key=lambda i: (
        stamp(queries[i], "query"), stamp(queries[i], "filled") or end_of(world, queries[i]), end_of(world, queries[i])))
    deletions, extra, before, gone = possible_deletions(world, item), 0, [], set()
    refresh = world.run["refresh_ms"]
    for now, number in ((stamp(queries[i], "query"), i) for i in numbered):
        floors = []
        for other in before:
            query = queries[other]
            filled = "filled" in query and stamp(query, "filled") <= now
            late = filled and refresh and now >= end_of(world, query) - (refresh + 1) * MS
            if now < end_of(world, query) and not late and not (filled and other in gone):
                floors.append(query["filled"]["sent_ns"] if filled else stamp(query, "query"))
        fits = [d for d in deletions if floors and d[0] <= now and d[1] >= max(floors)]
        if fits:
            deletions.remove(min(fits, key=lambda d: d[1]))
            gone |= {i for i in before if "filled" in queries[i] and stamp(queries[i], "filled") <= now}
        extra += bool(floors) and not fits
        before.append(number)
    return extra


def is_stale(world, request):
    return request["does"] == "read" and any(
        other["does"] == "update" and other["item"] == request["item"] and other["outcome"]["event"] == "answered"
        and other["outcome"]["t_ns"] < request["invoke"]["t_ns"] and other["updated"]["version"] > request["outcome"]["version"]
        for other in world.requests if "outcome" in other)


def has_old_fill(world, query):
    """Somebody with a newer token filled or deleted behind its query, and before it was sent."""
    def token(request):
        return next((s["granted"]["token"] or 0 for s in world.sections if s["request"] is request), 0)
    own = token(query["request"])
    acts = [(q["request"], q["filled"]) for q in world.queries if "filled" in q]
    acts += [(d["request"], d["deleted"]) for d in world.deletions]
    return bool(own and "filled" in query and any(
        request["item"] == query["request"]["item"] and token(request) > own
        and query["query"]["t_ns"] < line["sent_ns"] and line["t_ns"] < query["filled"]["sent_ns"]
        for request, line in acts))


def falls_back(world):
    """A section came behind another, and its token is not newer. With a fence that does no harm."""
    return world.run["fill"] == "plain" and any(
        one is not two and one["granted"]["token"] and two["granted"]["token"]
        and one["request"]["item"] == two["request"]["item"] and two["granted"]["token"] <= one["granted"]["token"]
        and one["exit"]["t_ns"] <= two["enter"]["t_ns"] and one["enter"]["t_ns"] < two["enter"]["t_ns"]
        for one in world.sections for two in world.sections)


def count_overlaps(world):
    count = 0
    for item in world.run["items"]:
        sections = sorted(world.sections_of(item), key=lambda s: (s["enter"]["t_ns"], s["exit"]["t_ns"]))
        count += sum(any(one["enter"]["t_ns"] < two["exit"]["t_ns"] and two["enter"]["t_ns"] < one["exit"]["t_ns"]
                         for one in sections[:i]) for i, two in enumerate(sections))
    return count


def look(world):
    found = {"queries": len(world.queries), "extra": sum(count_extra(world, item) for item in world.run["items"]),
             "stale": sum(is_stale(world, r) for r in world.requests if r["outcome"]["event"] == "answered"),
             "updates": sum(r["does"] == "update" and r["outcome"]["event"] == "answered" for r in world.requests),
             "overlaps": count_overlaps(world)}
    found["needed"] = found["queries"] - found["extra"]
    harm = (found["overlaps"] and world.run["fill"] != "fenced") or any(has_old_fill(world, q) for q in world.queries)
    found["result"] = ("stale" if found["stale"] else "stampede" if found["extra"]
                       else "overlap" if harm or falls_back(world) else "ok")
    return found


# ---- Histories ------------------------------------------------------------------------------------
def played(seed):
    """As a service leaves them, whose lock or settings may be wrong."""
    rand = Menu(seed ^ 0xd1).random
    settings = {"second_look": rand.choice(["on", "off"]), "guard_update": rand.choice(["on", "off"]),
                "fill": rand.choice(["plain", "fenced"]), "refresh_ms": rand.choice([0, 0, 2]),
                "rung": rand.choice(["none", "local", "setnx"]), "cache_ms": rand.choice([3, 5])}
    return menu.play(seed, requests=rand.randint(4, 24), updates=rand.choice([0.1, 0.4]), **settings)


def dirty(seed):
    """A handful of requests whose steps lie anywhere, within and without sections."""
    world = Menu(seed)
    rand = world.random
    world.start(rung=rand.choice(["none", "watchdog"]), items={"lunch": 3, "wine": 3}, fill=rand.choice(["plain", "fenced"]),
                refresh_ms=rand.choice([0, 0, 1, 2]), cache_ms=rand.choice([2, 3]), fault="made", expect=["ok"])
    coarse, versions = rand.choice([1, 1, MS // 2]), {"lunch": 3, "wine": 3}
    tokens = world.run["fill"] == "fenced" or rand.random() < 0.5
    started = {item: sorted(world.t0 + rand.randint(0, 8 * MS) // coarse * coarse for _ in range(8)) for item in versions}
    for item, starts in started.items():
        for start in starts[:rand.randint(2, 8)]:
            request = world.ask(item, rand.choice(world.run["instances"]), start, rand.choice(["read", "read", "update"]))
            times = sorted(start + rand.randint(0, 2 * MS) // coarse * coarse for _ in range(9))
            if rand.random() < 0.7:
                world.enter(request, times[0], times[1], rand.randint(1, 9) if tokens else None)
            if request["does"] == "update":
                versions[item] += 1
                world.updated(request, times[2], versions[item])
                if rand.random() < 0.9:
                    world.deleted(request, times[3], times[4])
            else:
                query = world.query(request, times[2])
                world.queried(query, times[3], rand.randint(3, max(3, versions[item])))
                if rand.random() < 0.7:
                    world.filled(query, times[4], times[5])
                elif rand.random() < 0.5:
                    world.fill_refused(query, times[5], 1, 2)
            if "section" in request:
                section = request["section"]
                section["exit"] = world.about(request, times[6], "exit", hold=section["hold"])
                world.about(request, max(times[7], times[0] + 1), "release", hold=section["hold"], status="OK")
            end = max(times[8], times[0] + 1)
            if request["does"] == "update" and "deleted" not in request:
                world.turned_away(request, end, 500, "cache-error", "unknown")
            else:
                world.told(request, end, request["updated"]["version"] if request["does"] == "update"
                           else request["query"]["queried"]["version"])
    return world.end()


def agree(make, wanted):
    results = {}
    worlds = {seed: make(seed) for seed in range(max(600, 5 * SEEDS))}
    with judge(worlds) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            found = look(worlds[seed])
            told = {name: verdict[name] for name in FIELDS}
            assert told == {name: found[name] for name in FIELDS}, (seed, folder, verdict["reasons"])
            assert verdict["result"] == found["result"], (seed, verdict["reasons"])
            results[found["result"]] = results.get(found["result"], 0) + 1
    assert set(results) >= wanted, results


def test_agrees_on_what_a_service_may_leave():
    agree(played, {"ok", "stale", "stampede", "overlap"})


def test_agrees_on_steps_that_lie_anywhere():
    agree(dirty, {"ok", "stale", "stampede", "overlap"})
