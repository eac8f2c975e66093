# SPDX-License-Identifier: Apache-2.0
"""The judge and a check that tries everything agree on small histories of accounts. The check is written from
docs/reference/run.md, not from the judge: every set of writes without an answer is tried."""
import itertools

import account
from account import Bank
from judge import SEEDS, judge
from shop import MS

KEPT = ("refused", "fail")


def deposits_of(world):
    """Of each account that a request was about to write; `sure`: it was carried out, `may`: it may have been."""
    found = []
    for request in world.requests:
        end = request.get("outcome", {"event": None})["event"]
        for item, line in request["writing"].items():
            together = world.run["write"] == "script" and request["wrote"]
            sure = item in request["wrote"] or bool(together)
            found.append({"request": request, "item": item, "line": line, "sure": sure,
                          "may": not sure and end not in KEPT and "write_refused" not in request})
    return found


def is_torn(request, chosen):
    parts = {d["item"] for d in chosen if d["request"] is request}
    return request["does"] == "transfer" and len(parts) == 1


def fits(world, chosen):
    """Whether these writes, and no others, explain all that was seen."""
    for item in world.run["items"]:
        start, end = (world.redis[when]["accounts"][item] for when in ("before", "after"))
        chain = {start["version"]: start["balance"]}
        for deposit in sorted((d for d in chosen if d["item"] == item), key=lambda d: d["line"]["version"]):
            line = deposit["line"]
            if line["version"] in chain or chain.get(line["version"] - 1) != line["before"]:
                return False
            chain[line["version"]] = line["balance"]
        if chain.get(end["version"]) != end["balance"] or max(chain) != end["version"]:
            return False
        reads = [r["read"][item] for r in world.requests if item in r["read"]]
        if any(chain.get(line["version"]) != line["balance"] for line in reads):
            return False
    return not any(is_torn(request, chosen) for request in world.requests)


def explanations(world):
    deposits = deposits_of(world)
    sure, may = [d for d in deposits if d["sure"]], [d for d in deposits if d["may"]]
    assert len(may) <= 14, "too many to try"
    sets = itertools.chain.from_iterable(itertools.combinations(may, count) for count in range(len(may) + 1))
    return [sure + list(some) for some in sets if fits(world, sure + list(some))], len(may)


# ---- The locks --------------------------------------------------------------------------------------
def span_of(world, section):
    last = max(line["t_ns"] for line in world.events[section["request"]["instance"]])
    return section["enter"]["t_ns"], section["exit"]["t_ns"] if section["exit"] else last


def count_overlaps(world):
    count = 0
    for item in world.run["items"]:
        spans = sorted(span_of(world, s) for s in world.sections if s["item"] == item)
        count += sum(any(one[0] < two[1] and two[0] < one[1] for one in spans[:i]) for i, two in enumerate(spans))
    return count


def wait_of(world, request):
    """[from, to) and how it ended."""
    if "wants" not in request:
        return None
    since, got = request["wants"]["t_ns"], request["sections"].get(request["to"])
    if got:
        return since, got["granted"]["t_ns"], "granted"
    own, end = request["sections"][request["item"]], request.get("outcome")
    ends = [line["t_ns"] for line in (own["exit"], end) if line]
    last = max(line["t_ns"] for line in world.events[request["instance"]])
    return since, min(ends, default=last), end["reason"] if end else "killed"


def cycles(world):
    """Each set of requests that wait for each other, if the first to end timed out."""
    def place(request, item):  # a local lock is another one in each instance
        return item, request["instance"] if world.run["rung"] == "local" else None
    waits = {id(r): (r, wait_of(world, r)) for r in world.requests if wait_of(world, r)}
    found = set()
    for now in {wait[0] for _, wait in waits.values()}:
        active = {key: r for key, (r, wait) in waits.items() if wait[0] <= now < wait[1]}
        holds = {}
        for section in sorted(world.sections, key=lambda s: s["granted"]["t_ns"]):
            if section["granted"]["t_ns"] <= now:
                holds[place(section["request"], section["item"])] = section["request"]
        for start in active:
            path, key = [], start
            while key in active and key not in path:
                path.append(key)
                holder = holds.get(place(active[key], active[key]["to"]))
                key = id(holder) if holder is not None and holder["item"] == active[key]["to"] else None
            if key == start:
                first = min((waits[k][1] for k in path), key=lambda w: (w[1], w[2] != "lock-timeout"))
                if first[2] == "lock-timeout":
                    found.add(frozenset(path))
    return len(found)


def has_old_write(world):
    def token(request, item):
        return request["sections"][item]["granted"]["token"] if item in request["sections"] else 0
    acts = [(token(r, item), item, line) for r in world.requests for item, line in r["wrote"].items()]
    return any(0 < one < two and item == other and there["t_ns"] < line["sent_ns"]
               for one, item, line in acts for two, other, there in acts)


def falls_back(world, fenced):
    """A section came behind another one, and its token is not newer; with a fence both must have written."""
    sections = [(*span_of(world, s), s) for s in world.sections if s["granted"]["token"]
                and (not fenced or s["item"] in s["request"]["wrote"])]
    return any(one[2] is not two[2] and one[2]["item"] == two[2]["item"] and one[1] <= two[0] and one[0] < two[0]
               and two[2]["granted"]["token"] <= one[2]["granted"]["token"] for one in sections for two in sections)


def look(world):
    found, unknown = explanations(world)
    fenced = world.run["write"] == "script" and any(s["granted"]["token"] for s in world.sections)
    overlaps = count_overlaps(world)
    harm = (overlaps and not fenced) or has_old_write(world) or falls_back(world, fenced)
    result = ("unbalanced" if not found else "overlap" if harm else "deadlock" if cycles(world) else "ok")
    numbers = {"overlaps": overlaps, "cycles": cycles(world)}
    if not unknown:
        sure = [d for d in deposits_of(world) if d["sure"]]
        slots = {(d["item"], d["line"]["version"]) for d in sure}
        numbers["lost"] = len(sure) - len(slots)
        numbers["torn"] = sum(is_torn(r, sure) for r in world.requests)
        sums = [sum(a["balance"] for a in world.redis[when]["accounts"].values()) for when in ("before", "after")]
        numbers["off"] = sums[1] - sums[0] - sum(d["request"]["amount"] for d in sure if d["request"]["does"] == "add")
    elif found and len({sum(d["request"]["amount"] for d in some if d["request"]["does"] == "add") for some in found}) == 1:
        numbers["off"] = numbers["lost"] = numbers["torn"] = 0
    return result, numbers


# ---- Histories --------------------------------------------------------------------------------------
def played(seed):
    """As a service leaves them, whose lock may be none."""
    rand = Bank(seed ^ 0xd1).random
    return account.play(seed, requests=rand.randint(4, 14), write=rand.choice(["two", "script"]), locks=rand.choice(["many", "unordered"]),
                        rung=rand.choice(["none", "local", "setnx", "setnx"]), unknowns=rand.choice([0, 0.2]), fault="made",
                        expect=["ok"], died=rand.random() < 0.2, looks=rand.choice([0, 0.2]))


def step_by_step(seed):
    """One request after the other. Of many the reply is lost: they took effect, or did not, or in half."""
    world = Bank(seed)
    rand = world.random
    world.start(rung="watchdog", instances=["a", "b"], fault="made", expect=["ok"], write=rand.choice(["two", "script"]),
                items={"acc-%d" % i: 50 for i in range(rand.randint(2, 3))})
    now, lost, torn, kinds = world.t0 + MS, rand.choice([0.3, 0.7]), rand.choice([0, 0.1]), rand.choice([0.1, 0.5])
    for _ in range(rand.randint(3, 7)):
        item = rand.choice(list(world.balances))
        to = None if rand.random() < kinds else rand.choice([i for i in world.balances if i != item])
        request = world.ask(item, rand.choice("ab"), now, 1 if to else rand.choice([1, -1]), to)
        items, fate = [i for i in (item, to) if i], rand.random()
        for i in items:
            world.enter(request, now + 1, now + 2, item=i)
        for i in items:
            world.seen(request, now + 3, i, *world.balances[i])
        for i in items:
            world.is_writing(request, now + 4, i)
        unknown = fate < lost
        done = items if not unknown or rand.random() < 0.4 else [rand.choice(items)] if rand.random() < torn else []
        for i in done:
            world.balances[i] = [request["writing"][i]["balance"], request["writing"][i]["version"]]
        for i in items:
            if not unknown:
                world.has_written(request, now + 6, i, now + 5)
        for i in items:
            world.leave(request["sections"][i], now + 7, now + 8)
        if unknown:
            world.turned_away(request, now + 9, 500, "outcome-unknown", "unknown")
        else:
            world.told(request, now + 9)
        now += 20
        if rand.random() < 0.2:
            item = rand.choice(list(world.balances))
            request = world.ask(item, "a", now)
            world.seen(request, now + 1, item, *world.balances[item])
            world.told(request, now + 2)
            now += 10
    return world.end()


def agree(make, wanted, count=None):
    results = {}
    count = count or max(1000, 10 * SEEDS)
    for first in range(0, count, 500):
        worlds = {seed: make(seed) for seed in range(first, first + 500)}
        with judge(worlds) as verdicts:
            for seed, (verdict, folder) in verdicts.items():
                result, numbers = look(worlds[seed])
                assert verdict["result"] == result, (seed, folder, verdict["reasons"])
                assert {name: verdict[name] for name in numbers} == numbers, (seed, folder, verdict["reasons"])
                results[result] = results.get(result, 0) + 1
    assert set(results) >= wanted, results
    return results


def test_agrees_on_what_a_service_may_leave():
    agree(played, {"ok", "unbalanced", "overlap", "deadlock"})


def test_agrees_on_replies_that_are_lost():
    agree(step_by_step, {"ok", "unbalanced"})
