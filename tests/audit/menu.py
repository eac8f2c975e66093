# SPDX-License-Identifier: Apache-2.0
"""Runs of a menu that never happened. `play(seed)` makes one: readers and updates meet in simulated time, at a cache
whose keys expire, a slow database and a lock. With the right settings nothing goes wrong in it."""
import heapq

import shop
from shop import EPOCH_MS, MS, World, side

COLUMNS = shop.JTL_COLUMNS[:9] + ["request", "item", "instance", "version"]
LOCKS = [rung for rung in shop.RUNGS if rung not in ("none", "local")]
SETTINGS = {"cache_ms": 5, "db_ms": 1, "refresh_ms": 0, "second_look": "on", "guard_update": "on", "fill": "plain"}


class Menu(World):
    """events: as the shop's. queries, deletions, answers: dicts of lines by event, and the request."""

    def __init__(self, seed):
        super().__init__(seed)
        self.clients, self.columns = "load.jtl", COLUMNS
        self.queries, self.deletions, self.answers, self.looks = [], [], [], []

    def start(self, rung=None, instances=None, items=None, fault="none", expect=None, **settings):
        rand = self.random
        self.t0 = rand.choice([50 * MS, 86_400_000 * MS + 1, 2**53 + 12_345, 2**59 + 7])
        instances = instances or ["a", "b", "c"][:rand.randint(1, 3)]
        items = items or {"menu-%d" % i: rand.randint(0, 9) for i in range(rand.randint(1, 3))}
        self.settings = {**SETTINGS, **settings}
        self.run = {"service": "menu", "run": "made-%d" % rand.getrandbits(30), "rung": rung or rand.choice(LOCKS),
                    "fault": fault, "instances": instances, "ttl_ms": 30000, "wait_ms": 20000, "items": items,
                    "requests": 0, "min_share": 0, "expect": expect, "clients": shop.CLIENTS, **self.settings}
        self.begin = {"service": "menu", **self.settings}
        moment = {"cached": dict.fromkeys(items, 0), "locks": side(items)["locks"]}
        self.redis = {"before": moment, "after": moment}
        self.events = {i: [] for i in instances}
        return self

    # ---- lines ----
    def ask(self, item, instance, t_ns, does="read", name=None):
        request = {"id": name or "%08x%08x" % (self.random.getrandbits(32), len(self.requests)), "item": item,
                   "instance": instance, "does": does, "t_ns": t_ns}
        request["invoke"] = self.about(request, t_ns, "invoke", does=does)
        self.requests.append(request)
        return request

    def enter(self, request, granted, enter, token=None):
        hold = "uuid-%s:1#%d" % (request["instance"], len(self.sections) + 1)
        section = {"request": request, "hold": hold, "exit": None}
        section["granted"] = self.about(request, granted, "granted", hold=hold, owner="uuid", token=token, waited_ns=1)
        section["enter"] = self.about(request, enter, "enter", hold=hold)
        self.sections.append(section)
        request["section"] = section
        return section

    def held(self, request):
        return {"hold": request["section"]["hold"]} if "section" in request else {}

    def look(self, request, t_ns, version, second=False):
        hit = {"hit": version is not None, **({} if version is None else {"version": version})}
        line = self.about(request, t_ns, "looked", **hit, **({"second": True} if second else {}))
        request["looked"] = line
        self.looks.append((request, line))
        return line

    def query(self, request, t_ns):
        query = {"request": request, "query": self.about(request, t_ns, "query", **self.held(request))}
        self.queries.append(query)
        request["query"] = query
        return query

    def queried(self, query, t_ns, version):
        query["queried"] = self.about(query["request"], t_ns, "queried", version=version, **self.held(query["request"]))

    def filled(self, query, sent_ns, t_ns):
        query["filled"] = self.about(query["request"], t_ns, "filled", version=query["queried"]["version"], sent_ns=sent_ns,
                                     cache_ms=self.settings["cache_ms"], **self.held(query["request"]))

    def fill_refused(self, query, t_ns, token, newest):
        query["fill_refused"] = self.about(query["request"], t_ns, "fill_refused", token=token, newest=newest,
                                           **self.held(query["request"]))

    def updated(self, request, t_ns, version):
        request["updated"] = self.about(request, t_ns, "updated", version=version, **self.held(request))

    def deleted(self, request, sent_ns, t_ns):
        line = self.about(request, t_ns, "deleted", version=request["updated"]["version"], sent_ns=sent_ns,
                          **self.held(request))
        request["deleted"] = line
        self.deletions.append({"request": request, "deleted": line})

    def told(self, request, t_ns, version, source="database"):
        line = self.about(request, t_ns, "answered", code=200, version=version,
                          **({"from": source} if request["does"] == "read" else {}))
        request["outcome"] = line
        self.answers.append((request, line))
        self.sample(request, t_ns, 200, version)

    def turned_away(self, request, t_ns, code=503, reason="lock-timeout", event="refused"):
        request["outcome"] = self.about(request, t_ns, event, code=code, reason=reason)
        self.sample(request, t_ns, code, "")

    def sample(self, request, t_ns, code, version):
        start_ms = EPOCH_MS + (request["t_ns"] - self.t0) // MS
        method = "GET" if request["does"] == "read" else "PUT"
        good = code == 200
        self.samples.append({
            **dict.fromkeys(COLUMNS, ""), "timeStamp": start_ms, "elapsed": (t_ns - request["t_ns"]) // MS + 1,
            "label": method + " menu", "responseCode": code, "success": "true", "request": request["id"],
            "URL": "http://127.0.0.1:8888/menus/" + request["item"], "item": request["item"] if good else "",
            "instance": request["instance"] if good else "", "version": version})
        self.passed.append({"t_s": start_ms / 1000, "request": request["id"], "method": method,
                            "uri": "/menus/" + request["item"], "status": code, "upstream": "127.0.0.1:8000",
                            "upstream_status": str(code), "time_s": 0.004})
        request["code"] = code

    def end(self):
        self.run["requests"] = len(self.requests)
        for lines in self.events.values():
            lines.sort(key=lambda line: line["t_ns"])
        return self


class Play:
    """Simulated time: a heap of steps. A command takes effect between its sending and its answer."""

    def __init__(self, world, versions, steps=None):
        self.world, self.versions, self.cache = world, dict(versions), {}  # item: (version, until)
        self.steps, self.number, self.holder, self.waiting, self.token = [], 0, {}, {}, {}
        rand = world.random
        self.step = steps or (lambda: rand.choice([0, 1, 2, 700, rand.randint(3, MS)]))

    def at(self, t_ns, function, *arguments):
        self.number += 1
        heapq.heappush(self.steps, (t_ns, self.number, function, arguments))

    def command(self, now, effect, answered):
        """effect(at) takes place; then answered(at, its result)."""
        done = now + self.step()
        self.at(done, lambda t: self.at(t + self.step(), answered, effect(t)))

    def run(self):
        while self.steps:
            t_ns, _, function, arguments = heapq.heappop(self.steps)
            function(t_ns, *arguments)
        return self.world.end()

    # ---- the lock: an item has one; on local one an instance; on none, nobody waits ----
    def scope(self, request):
        return {"none": request["id"], "local": (request["instance"], request["item"])}.get(
            self.world.run["rung"], request["item"])

    def acquire(self, now, request, then):
        scope = self.scope(request)
        if scope in self.holder:
            self.waiting.setdefault(scope, []).append((request, then))
            return
        self.holder[scope] = request
        self.token[scope] = self.token.get(scope, 0) + self.world.random.randint(1, 3)
        granted = now + self.step()
        self.at(granted, lambda t: self.entered(t, request, t + self.step(), self.token[scope], then))

    def entered(self, granted, request, enter, token, then):
        tokens = self.world.run["fill"] == "fenced" or self.world.tokens
        self.at(enter, lambda t: (self.world.enter(request, granted, t, token if tokens else None), then(t, request)))

    def release(self, now, request, then):
        section, scope = request["section"], self.scope(request)
        section["exit"] = self.world.about(request, now, "exit", hold=section["hold"])

        def freed(t_ns):
            del self.holder[scope]
            if self.waiting.get(scope):
                line = self.waiting[scope]
                self.acquire(t_ns, *line.pop(self.world.random.randrange(len(line))))

        def answered(t_ns, _):
            late = max(t_ns, section["granted"]["t_ns"] + 1)
            section["release"] = self.world.about(request, late, "release", hold=section["hold"], status="OK")
            del request["section"]
            then(late)
        self.command(now, freed, answered)

    # ---- a reader ----
    def read(self, now, item, instance):
        request = self.world.ask(item, instance, now)
        self.command(now, lambda t: self.cached(t, item), lambda t, found: self.looked(t, request, found))

    def cached(self, t_ns, item):
        version, until = self.cache.get(item, (None, t_ns))
        return (version, until - t_ns) if t_ns < until else (None, 0)

    def looked(self, now, request, found):
        version, rest = found
        self.world.look(request, now, version)
        if version is None:
            self.acquire(now, request, self.inside)
        elif 0 < rest <= self.world.settings["refresh_ms"] * MS and self.scope(request) not in self.holder:
            self.acquire(now, request, self.refresh)
        else:
            self.world.told(request, now + self.step(), version, "cache")

    def refresh(self, now, request):
        self.command(now, lambda t: self.cached(t, request["item"]), lambda t, found: self.looked_early(t, request, found))

    def looked_early(self, now, request, found):
        version, rest = found
        self.world.look(request, now, version, True)
        if version is not None and rest > self.world.settings["refresh_ms"] * MS:
            self.release(now + self.step(), request, lambda t: self.world.told(request, t, version, "cache"))
        else:
            self.rebuild(now + self.step(), request)

    def inside(self, now, request):
        if self.world.settings["second_look"] == "on":
            self.command(now, lambda t: self.cached(t, request["item"]), lambda t, found: self.looked_again(t, request, found))
        else:
            self.rebuild(now + self.step(), request)

    def looked_again(self, now, request, found):
        self.world.look(request, now, found[0], True)
        if found[0] is None:
            self.rebuild(now + self.step(), request)
        else:
            self.release(now + self.step(), request, lambda t: self.world.told(request, t, found[0], "cache"))

    def rebuild(self, now, request):
        query = self.world.query(request, now)

        def told(t_ns, version):
            self.world.queried(query, t_ns, version)
            sent = t_ns + self.step()
            self.command(sent, lambda t: self.cache.__setitem__(request["item"], (version, t + self.world.settings["cache_ms"] * MS)),
                         lambda t, _: self.refilled(t, request, query, sent))
        self.command(now, lambda t: self.versions[request["item"]], told)

    def refilled(self, now, request, query, sent):
        self.world.filled(query, sent, now)
        self.release(now + self.step(), request, lambda t: self.world.told(request, t, query["queried"]["version"]))

    # ---- an update ----
    def update(self, now, item, instance):
        request = self.world.ask(item, instance, now, "update")
        if self.world.settings["guard_update"] == "on":
            self.acquire(now, request, self.change)
        else:
            self.change(now, request)

    def change(self, now, request):
        item = request["item"]

        def write(_):
            self.versions[item] += 1
            return self.versions[item]

        def written(t_ns, version):
            self.world.updated(request, t_ns, version)
            sent = t_ns + self.step()
            self.command(sent, lambda t: self.cache.pop(item, None), lambda t, _: gone(t, sent))

        def gone(t_ns, sent):
            self.world.deleted(request, sent, t_ns)
            last = lambda t: self.world.told(request, t, request["updated"]["version"])  # noqa: E731
            if "section" in request:
                self.release(t_ns + self.step(), request, last)
            else:
                last(t_ns + self.step())
        self.command(now, write, written)


def play(seed, requests=None, updates=0.15, tokens=None, span_ms=None, steps=None, **asked):
    """A run of readers and updates. Its settings say whether it can go wrong."""
    world = Menu(seed).start(**asked)
    rand = world.random
    world.tokens = rand.random() < 0.3 if tokens is None else tokens
    played = Play(world, world.run["items"], steps)
    count = requests or rand.randint(8, 40)
    instances, items = world.run["instances"], list(world.run["items"])
    span = (span_ms or rand.choice([1, 10, 30])) * MS
    for i in range(count):
        item = items[0] if i < 4 else rand.choice(items)
        begins = world.t0 + (0 if i < 4 else rand.randint(0, span))
        does = played.update if i >= 4 and rand.random() < updates else played.read
        played.at(begins, does, item, instances[i % len(instances)])
    return played.run()


def clean(seed, **asked):
    """A run in which nothing goes wrong."""
    rand = Menu(seed ^ 0x5eed).random
    settings = {"fill": rand.choice(["plain", "fenced"]), "refresh_ms": rand.choice([0, 0, 2])}
    return play(seed, **{**settings, **asked})
