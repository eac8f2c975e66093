# SPDX-License-Identifier: Apache-2.0
"""The judge and a check that tries everything agree on small histories of tasks. The check is written from
docs/reference/run.md, not from the judge: no sorting, no search, every pair is looked at."""
import tasks
from judge import SEEDS, judge
from tasks import MS, Tasks
from test_menu_bruteforce import count_overlaps

FIELDS = ["picks", "results", "repeated", "picked_twice", "taken_over", "late", "lost", "vanished", "sent_away", "unknown", "refused",
          "nothing_found", "unfinished", "overlaps"]


def is_lost(world, request):
    """Nobody knows how it ended."""
    return request["outcome"]["event"] == "unknown" if "outcome" in request else request["instance"] in world.unended


def is_rival(world, one, two):
    """Both had the task at once, at whatever time Redis carried out each pick."""
    lease_ms = world.settings["lease_ms"]
    if lease_ms == 0:
        return True
    one, two = one["picked"], two["picked"]
    return all(abs(a - b) < (lease_ms - 1) * MS for a in (one["sent_ns"], one["t_ns"]) for b in (two["sent_ns"], two["t_ns"]))


def is_taken(world, other, first, last):
    """Whether that request may have the task, or its result, at some time from first to last."""
    if "picked" not in other:
        taken = other["looks"][-1]["t_ns"] if is_lost(world, other) and "pick_refused" not in other else last + 1
        return taken <= last
    line, lease_ms = other["picked"], world.settings["lease_ms"]
    over = lease_ms > 0 and line["t_ns"] + (lease_ms + 1) * MS <= first
    writes = "sending" in other and "result_refused" not in other and other["worked"]["t_ns"] <= last
    return (line["sent_ns"] <= last and not over) or writes


def is_sent_away(world, request, line):
    looks = [other["t_ns"] for other in request["looks"] if other is not line and other["t_ns"] <= line["t_ns"]]
    first = max([world_enter(request), *looks])
    at_it = [r for r in world.requests if r["item"] == request["item"] and r.get("looks")]
    return any(not any(r["looks"][-1]["task"] == task and is_taken(world, r, first, line["t_ns"]) for r in at_it)
               for task in range(1, world.run["items"][request["item"]] + 1))


def world_enter(request):
    return request["section"]["enter"]["t_ns"] if "section" in request else request["invoke"]["t_ns"]


def old_tokens(world, group):
    """Picks, and with a fence results, behind a pick with a newer token."""
    count = 0
    for request in group:
        times = [request["picked"]["sent_ns"]]
        if world.run["result"] == "fenced" and "result" in request:
            times.append(request["result"]["sent_ns"])
        token = request["picked"]["token"]
        count += sum(any(o["picked"]["token"] > token > 0 and o["picked"]["t_ns"] < t_ns for o in group) for t_ns in times)
    return count


def falls_back(world):
    """A section came behind another, and its token is not newer. With a fence it may."""
    return world.run["result"] != "fenced" and any(
        one is not two and one["granted"]["token"] and two["granted"]["token"] and one["request"]["item"] == two["request"]["item"]
        and two["granted"]["token"] <= one["granted"]["token"] and one["exit"] and one["exit"]["t_ns"] <= two["enter"]["t_ns"]
        and one["enter"]["t_ns"] < two["enter"]["t_ns"] for one in world.sections for two in world.sections)


def look(world):
    fenced = world.run["result"] == "fenced"
    found = dict.fromkeys(FIELDS, 0)
    wrongly = old = 0
    for item, count in world.run["items"].items():
        left = world.redis["after"]["tasks"][item]
        found["lost"] += max(0, left["missing_count"] - left["open"] - left["leased"])
        found["unfinished"] += left["open"] + left["leased"]
        for task in range(1, count + 1):
            group = [r for r in world.requests if "picked" in r and r["item"] == item and r["picked"]["task"] == task]
            group.sort(key=lambda r: (r["picked"]["sent_ns"], r["instance"], world.events[r["instance"]].index(r["picked"])))
            done = [r for r in group if "result" in r]
            rivals = sum(any(is_rival(world, r, o) for o in group[:i]) for i, r in enumerate(group))
            finished = sum(any(o["result"]["t_ns"] < r["picked"]["sent_ns"] for o in done) for r in group)
            found["results"] += len(done)
            found["repeated"] += len(done) > 1
            found["picked_twice"] += rivals + finished > 0
            wrongly += (rivals > 0 and not fenced) or finished > 0
            found["taken_over"] += max(0, len(group) - 1 - rivals)
            found["late"] += sum(any(o["picked"]["sent_ns"] > r["picked"]["t_ns"] and o["picked"]["t_ns"] < r["result"]["sent_ns"]
                                     for o in group) for r in done)
            found["vanished"] += len(done) if task in left["missing"] else 0
            old += old_tokens(world, group)
    for request in world.requests:
        found["picks"] += "picked" in request
        found["refused"] += ("pick_refused" in request) + ("result_refused" in request)
        if is_lost(world, request) and request.get("looks") and request["looks"][-1]["task"]:
            found["unknown"] += ("picked" not in request and "pick_refused" not in request) or (
                "sending" in request and "result" not in request and "result_refused" not in request)
        for line in request.get("looks", []):
            if line["task"] == 0:
                found["nothing_found"] += 1
                found["sent_away"] += is_sent_away(world, request, line)
    if not world.unended:
        found["overlaps"] = count_overlaps(world)
    harm = (found["overlaps"] and not fenced) or old or falls_back(world)
    found["result"] = ("repeated" if found["repeated"] or wrongly else "lost_task" if found["lost"] or found["vanished"]
                       else "overlap" if harm else "unfinished" if found["sent_away"] else "ok")
    return found


# ---- Histories ------------------------------------------------------------------------------------
def played(seed):
    """As a service leaves them, whose lock or settings may be wrong."""
    rand = Tasks(seed ^ 0xd1).random
    rung = rand.choice(["none", "local", "setnx", "setnx"])
    settings = {"rung": rung, "result": "plain" if rung != "setnx" else rand.choice(["plain", "fenced"]),
                "lease_ms": rand.choice([0, 3, 8, 30]), "slow": rand.choice([0, 0.3]), "lost": rand.choice([0, 0.2]),
                "kills": rand.choice([0, 1]) if rung == "setnx" else 0, "fault": "made", "expect": ["ok"]}
    return tasks.play(seed, workers=rand.randint(2, 8), **settings)


def dirty(seed):
    """A handful of requests whose steps lie anywhere, within and without sections."""
    world = Tasks(seed)
    rand = world.random
    items = {"list": rand.randint(1, 3), "more": 2}
    world.start(rung=rand.choice(["none", "watchdog"]), items=items, result=rand.choice(["plain", "fenced"]),
                lease_ms=rand.choice([0, 1, 2, 3]), fault="made", expect=["ok"])
    coarse, fenced = rand.choice([1, 1, MS // 2]), world.run["result"] == "fenced"
    tokens, at = fenced or rand.random() < 0.5, {}
    lonely = rand.random() < 0.5  # sections of a list come one after the other
    for item, count in items.items():
        for i in range(rand.randint(1, 6)):
            start = at.get(item, world.t0) if lonely else world.t0 + rand.randint(0, 9 * MS)
            start = start // coarse * coarse
            times = sorted(start + rand.randint(0, rand.choice([1, 1, 4]) * MS) // coarse * coarse for _ in range(12))
            request = world.ask(item, rand.choice(world.run["instances"]), start)
            if fenced or rand.random() < 0.7:
                world.enter(request, times[0], times[1], (i + 1 if lonely else rand.randint(1, 9)) if tokens else None)
            step(world, request, times, rand, count)
            at[item] = max(times[6] + 1, request["section"]["release"]["t_ns"] if "section" in request else 0)
        leave_redis(world, rand, item, count)
    return world.end()


def step(world, request, times, rand, count):
    """What one request does at these times. Both lists are short, so that they meet."""
    task, how = rand.randint(0 if rand.random() < 0.4 else 1, count), rand.random()
    fenced = world.run["result"] == "fenced"
    world.look(request, times[2], task)
    if task and how < 0.8:
        world.picked(request, times[3], times[4])
    elif task and fenced and how < 0.9:
        world.pick_refused(request, times[4], 9)
    if "section" in request:
        world.leave(request, times[5], times[6])
    if "picked" in request and how < 0.6:
        world.worked(request, times[7])
        world.sending(request, times[8])
        if how < 0.45:
            world.result(request, times[9], times[10])
        elif fenced and how < 0.5:
            world.result_refused(request, times[10], 9)
    end = max(times[11], times[0] + 1)
    if "result" in request:
        world.told(request, end)
    elif rand.random() < 0.5:
        world.turned_away(request, end, 500, "store-error", "unknown")
    else:
        world.turned_away(request, end, 503, "deadline")


def leave_redis(world, rand, item, count):
    """Redis in the end, as it may be behind such a history; some lose a task or a result."""
    mine = [r for r in world.requests if r["item"] == item and "picked" in r]
    done = {r["picked"]["task"] for r in mine if "result" in r}
    done |= {r["picked"]["task"] for r in mine if "sending" in r and "result" not in r and "result_refused" not in r
             and is_lost(world, r) and rand.random() < 0.5}
    if done and rand.random() < 0.1:
        done.remove(rand.choice(sorted(done)))
    rest = count - len(done)
    lost = min(rest, rand.choice([0] * 9 + [1]))
    leased = rand.randint(0, rest - lost)
    world.left(item, done, rest - lost - leased, leased)


def agree(make, wanted):
    results = {}
    worlds = {seed: make(seed) for seed in range(max(1000, 10 * SEEDS))}
    with judge(worlds) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            found = look(worlds[seed])
            fields = [name for name in FIELDS if name != "overlaps" or not worlds[seed].unended]
            assert {name: verdict[name] for name in fields} == {name: found[name] for name in fields}, (seed, folder, verdict["reasons"])
            assert verdict["result"] == found["result"], (seed, verdict["reasons"])
            results[found["result"]] = results.get(found["result"], 0) + 1
    assert set(results) >= wanted, results


def test_agrees_on_what_a_service_may_leave():
    agree(played, {"ok", "repeated", "lost_task", "overlap"})


def test_agrees_on_steps_that_lie_anywhere():
    agree(dirty, {"ok", "repeated", "lost_task", "overlap", "unfinished"})
