# SPDX-License-Identifier: Apache-2.0
"""Runs of tasks that never happened. `play(seed)` makes one: workers of several instances pick tasks from lists in simulated
time, work, and write results. With the right settings nothing goes wrong in it, whoever is killed and whatever reply is lost."""
import heapq

import shop
from shop import EPOCH_MS, MS, World, side

COLUMNS = shop.JTL_COLUMNS[:9] + ["request", "item", "instance", "task"]
LOCKS = [rung for rung in shop.RUNGS if rung not in ("none", "local")]
SETTINGS = {"task_ms": 3, "lease_ms": 30, "result": "plain"}
LOCK_TTL_MS = 20  # of a lock whose holder is killed


class Tasks(World):
    """events: as the shop's. picks: requests with `picked`, by the order in which they were recorded."""

    def __init__(self, seed):
        super().__init__(seed)
        self.clients, self.columns = "load.jtl", COLUMNS
        self.picks, self.idles = [], []

    def start(self, rung=None, instances=None, items=None, fault="none", expect=None, **settings):
        rand = self.random
        self.t0 = rand.choice([50 * MS, 86_400_000 * MS + 1, 2**53 + 12_345, 2**59 + 7])
        instances = instances or ["a", "b", "c"][:rand.randint(1, 3)]
        items = dict(items or {"list-%d" % i: rand.randint(1, 9) for i in range(rand.randint(1, 2))})
        self.settings = {**SETTINGS, **settings}
        self.run = {"service": "tasks", "run": "made-%d" % rand.getrandbits(30), "rung": rung or rand.choice(LOCKS),
                    "fault": fault, "instances": instances, "ttl_ms": 30000, "wait_ms": 20000, "items": items,
                    "requests": 0, "min_share": 0, "expect": expect, "clients": shop.CLIENTS, **self.settings}
        self.begin = {"service": "tasks", **self.settings}
        self.redis = {when: {"locks": side(items)["locks"], "tasks": {
            name: {"open": count, "leased": 0, "done": 0} for name, count in items.items()}} for when in ("before", "after")}
        self.events = {i: [] for i in instances}
        return self

    def left(self, item, done, open_=None, leased=0):
        """What Redis has of the list in the end. done: the tasks with a result."""
        count = self.run["items"][item]
        missing = [task for task in range(1, count + 1) if task not in done]
        self.redis["after"]["tasks"][item] = {
            "open": len(missing) - leased if open_ is None else open_, "leased": leased, "done": count - len(missing),
            "missing": missing[:1000], "missing_count": len(missing)}

    # ---- lines ----
    def ask(self, item, instance, t_ns, name=None, does="work"):
        request = {"id": name or "%08x%08x" % (self.random.getrandbits(32), len(self.requests)), "item": item,
                   "instance": instance, "t_ns": t_ns, "does": does}
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

    def look(self, request, t_ns, task):
        line = self.about(request, t_ns, "looked", task=task)
        request.setdefault("looks", []).append(line)
        if task == 0:
            self.idles.append((request, line))
        return line

    def token_of(self, request):
        return request["section"]["granted"]["token"] or 0 if "section" in request else 0

    def picked(self, request, sent_ns, t_ns, task=None):
        request["picked"] = self.about(
            request, t_ns, "picked", task=request["looks"][-1]["task"] if task is None else task, token=self.token_of(request),
            sent_ns=sent_ns, lease_ms=self.settings["lease_ms"],
            **({"hold": request["section"]["hold"]} if "section" in request else {}))
        self.picks.append(request)
        return request["picked"]

    def pick_refused(self, request, t_ns, newest):
        request["pick_refused"] = self.about(request, t_ns, "pick_refused", task=request["looks"][-1]["task"],
                                             token=self.token_of(request), newest=newest)

    def leave(self, request, t_exit, t_release):
        section = request["section"]
        section["exit"] = self.about(request, t_exit, "exit", hold=section["hold"])
        section["release"] = self.about(request, max(t_release, section["granted"]["t_ns"] + 1), "release",
                                        hold=section["hold"], status="OK")

    def worked(self, request, t_ns):
        request["worked"] = self.about(request, t_ns, "worked", task=request["picked"]["task"])

    def sending(self, request, t_ns):
        request["sending"] = self.about(request, t_ns, "sending", task=request["picked"]["task"], token=request["picked"]["token"])

    def result(self, request, sent_ns, t_ns):
        request["result"] = self.about(request, t_ns, "result", task=request["picked"]["task"], token=request["picked"]["token"],
                                       sent_ns=sent_ns)

    def result_refused(self, request, t_ns, newest):
        request["result_refused"] = self.about(request, t_ns, "result_refused", task=request["picked"]["task"],
                                               token=request["picked"]["token"], newest=newest)

    def told(self, request, t_ns):
        request["outcome"] = self.about(request, t_ns, "answered", code=200, task=request["picked"]["task"])
        self.sample(request, t_ns, 200, request["picked"]["task"])

    def turned_away(self, request, t_ns, code=409, reason="no-task", event="refused"):
        request["outcome"] = self.about(request, t_ns, event, code=code, reason=reason)
        self.sample(request, t_ns, code)

    def cut(self, request, t_ns):
        """Its instance died."""
        self.sample(request, t_ns, 502)

    def sample(self, request, t_ns, code, task=""):
        start_ms = EPOCH_MS + (request["t_ns"] - self.t0) // MS
        good = code == 200
        self.samples.append({
            **dict.fromkeys(COLUMNS, ""), "timeStamp": start_ms, "elapsed": (t_ns - request["t_ns"]) // MS + 1,
            "label": "POST work", "responseCode": code, "success": "true", "request": request["id"],
            "URL": "http://127.0.0.1:8888/lists/%s/work" % request["item"], "item": request["item"] if good else "",
            "instance": request["instance"] if good else "", "task": task})
        self.passed.append({"t_s": start_ms / 1000, "request": request["id"], "method": "POST",
                            "uri": "/lists/%s/work" % request["item"], "status": code, "upstream": "127.0.0.1:8000",
                            "upstream_status": str(code), "time_s": 0.004})
        request["code"] = code

    def end(self):
        self.run["requests"] = len(self.requests)
        for lines in self.events.values():
            lines.sort(key=lambda line: line["t_ns"])
        for item in self.run["items"]:
            if "missing" not in self.redis["after"]["tasks"][item]:
                self.left(item, {r["result"]["task"] for r in self.picks if r["item"] == item and "result" in r})
        return self


class Play:
    """Simulated time: a heap of steps. A command takes effect between its sending and its answer. Redis' clock is whole
    milliseconds. A request of an instance that was killed goes no step further."""

    def __init__(self, world, lost=0.0, slow=0.0, steps=None):
        self.world, self.steps, self.number, self.lost, self.slow = world, [], 0, lost, slow
        self.holder, self.waiting, self.token, self.dead, self.left = {}, {}, {}, {}, {}
        self.phase, self.loops, self.last = world.random.randrange(MS), {}, world.t0
        self.free = {item: dict.fromkeys(range(1, count + 1), 0) for item, count in world.run["items"].items()}
        self.newest = {item: {} for item in self.free}  # of each task, its latest pick's token
        self.done = {item: set() for item in self.free}
        rand = world.random
        self.step = steps or (lambda: rand.choice([0, 1, 2, 700, rand.randint(3, MS)]))

    def now_ms(self, t_ns):
        return (t_ns + self.phase) // MS

    def at(self, t_ns, request, function, *arguments):
        self.number += 1
        heapq.heappush(self.steps, (t_ns, self.number, request, function, arguments))

    def is_dead(self, request, t_ns):
        return request is not None and t_ns >= self.dead.get(request["instance"], t_ns + 1)

    def run(self):
        while self.steps:
            t_ns, _, request, function, arguments = heapq.heappop(self.steps)
            self.last = max(self.last, t_ns)
            if not self.is_dead(request, t_ns):
                function(t_ns, *arguments)
        world = self.world
        for request in world.requests:
            if "code" not in request:
                world.cut(request, max(self.last, self.dead[request["instance"]]))
        for item, free in self.free.items():
            leased = sum(self.now_ms(self.last) < until for until in free.values())
            world.left(item, self.done[item], len(free) - leased, leased)
        return world.end()

    def kill(self, instance, t_ns):
        self.dead[instance] = t_ns
        self.world.unended.add(instance)

        def expire(now):
            for scope, request in list(self.holder.items()):
                if request["instance"] == instance:
                    self.freed(now, scope)
        self.at(t_ns + LOCK_TTL_MS * MS, None, expire)
        self.at(t_ns, None, lambda now: None)

    def command(self, now, request, effect, answered, lost=None):
        """effect(at) takes place, even if its sender dies meanwhile; then answered(at, its result). lost: called instead if the
        answer is lost, and perhaps the command."""
        done, chance = now + self.step(), self.world.random.random()

        def carry_out(t_ns):
            back = None if lost and chance < self.lost / 2 else effect(t_ns)
            if lost and chance < self.lost:
                self.at(t_ns + self.step(), request, lost)
            else:
                self.at(t_ns + self.step(), request, answered, back)
        self.at(done, None, carry_out)

    # ---- the lock ----
    def scope(self, request):
        return {"none": request["id"], "local": (request["instance"], request["item"])}.get(self.world.run["rung"], request["item"])

    def acquire(self, now, request):
        scope = self.scope(request)
        if scope in self.holder:
            self.waiting.setdefault(scope, []).append(request)
            return
        self.holder[scope] = request
        self.token[scope] = self.token.get(scope, 0) + self.world.random.randint(1, 3)
        token = self.token[scope] if self.world.settings["result"] == "fenced" or self.world.tokens else None
        granted = now + self.step()
        enter = granted + self.step()
        self.at(enter, request, self.inside, request, granted, token)

    def freed(self, now, scope):
        del self.holder[scope]
        line = [r for r in self.waiting.get(scope, []) if not self.is_dead(r, now)]
        self.waiting[scope] = line
        if line:
            self.acquire(now, line.pop(self.world.random.randrange(len(line))))

    def release(self, now, request, then):
        self.world.leave(request, now, now)
        scope, line = self.scope(request), request["section"]["release"]
        lines = self.world.events[request["instance"]]
        lines.remove(line)  # until its answer comes

        def answered(t_ns, _):
            line["t_ns"] = max(t_ns, request["section"]["granted"]["t_ns"] + 1)
            lines.append(line)
            then(line["t_ns"])
        self.command(now, request, lambda t: self.freed(t, scope), answered)

    # ---- a worker's step ----
    def work(self, now, item, instance, again):
        if now >= self.dead.get(instance, now + 1):
            return
        request = self.world.ask(item, instance, now)
        request["again"] = again
        self.acquire(now, request)

    def next(self, now, request, finds=True):
        request["again"] -= 1
        if request["again"] > 0 and finds:
            self.at(now + self.step(), None, self.work, request["item"], request["instance"], request["again"])

    def inside(self, now, request, granted, token):
        self.world.enter(request, granted, now, token)
        self.look(now, request)

    def look(self, now, request):
        self.command(now, request, lambda t: self.first(t, request["item"]), lambda t, task: self.looked(t, request, task))

    def first(self, t_ns, item):
        """As a sorted set has them."""
        task = min(self.free[item], key=lambda task: (self.free[item][task], task), default=0)
        return task if task and self.free[item][task] <= self.now_ms(t_ns) else 0

    def looked(self, now, request, task):
        self.world.look(request, now, task)
        if task == 0:
            def gone(t_ns):
                self.world.turned_away(request, t_ns, reason="no-task" if self.free[request["item"]] else "all-done")
                self.next(t_ns + 5 * MS, request, bool(self.free[request["item"]]))
            self.release(now + self.step(), request, gone)
            return
        sent = now + self.step()
        self.at(sent, request, lambda t: self.command(
            t, request, lambda at: self.take(at, request, task), lambda at, back: self.taken(at, request, sent, back),
            lambda at: self.unknown(at, request)))

    def take(self, t_ns, request, task):
        item, token = request["item"], self.world.token_of(request)
        if task in self.done[item]:
            return "done"
        if self.world.settings["result"] == "fenced" and token < self.newest[item].get(task, 0):
            return self.newest[item][task]
        self.newest[item][task] = token
        if self.world.settings["lease_ms"]:
            self.free[item][task] = self.now_ms(t_ns) + self.world.settings["lease_ms"]
        else:
            self.free[item].pop(task, None)
        return "picked"

    def unknown(self, now, request):
        def gone(t_ns):
            self.world.turned_away(request, t_ns, 500, "store-error", "unknown")
            self.next(t_ns, request)
        if "picked" in request:
            gone(now)
        else:
            self.release(now, request, gone)

    def taken(self, now, request, sent, back):
        if back == "done":
            self.look(now, request)
        elif back == "picked":
            self.world.picked(request, sent, now)
            self.release(now + self.step(), request, lambda t: self.at(t + self.takes(), request, self.write, request))
        else:
            self.world.pick_refused(request, now, back)
            self.release(now + self.step(), request, lambda t: self.refused(t, request, "pick-refused"))

    def takes(self):
        rand, world = self.world.random, self.world
        slow = rand.random() < self.slow
        return (world.settings["lease_ms"] + rand.randint(0, 10) if slow else world.settings["task_ms"]) * MS + rand.randint(0, MS)

    def refused(self, now, request, reason):
        self.world.turned_away(request, now, reason=reason)
        self.next(now, request)

    def write(self, now, request):
        self.world.worked(request, now)
        sending = now + self.step()
        self.at(sending, request, lambda t: (self.world.sending(request, t), self.command(
            t, request, lambda at: self.store(request), lambda at, newest: self.stored(at, request, t, newest),
            lambda at: self.unknown(at, request))))

    def store(self, request):
        """None: it was accepted."""
        item, task = request["item"], request["picked"]["task"]
        if self.world.settings["result"] == "fenced" and (
                task in self.done[item] or request["picked"]["token"] < self.newest[item][task]):
            return self.newest[item][task]
        self.free[item].pop(task, None)
        self.done[item].add(task)
        return None

    def stored(self, now, request, sent, newest):
        if newest is not None:
            self.world.result_refused(request, now, newest)
            self.refused(now + self.step(), request, "result-refused")
            return
        self.world.result(request, sent, now)
        answered = now + self.step()
        self.at(answered, request, lambda t: (self.world.told(request, t), self.next(t, request)))


def play(seed, workers=None, loops=None, kills=0, lost=0.0, slow=0.0, tokens=None, steps=None, **asked):
    """A run of so many workers, each of which works at a list so often, or until it is done. Its settings say whether it can go
    wrong."""
    if kills:
        asked = {"instances": ["a", "b", "c"], "fault": "killed", **asked}
    world = Tasks(seed).start(**asked)
    rand = world.random
    world.tokens = rand.random() < 0.3 if tokens is None else tokens
    played = Play(world, lost, slow, steps)
    instances, items = world.run["instances"], list(world.run["items"])
    for i in range(workers or rand.randint(2, 6)):
        item = items[0] if i < 2 else rand.choice(items)
        played.at(world.t0 + (0 if i < 2 else rand.randint(0, 2 * MS)), None, played.work, item, instances[i % len(instances)],
                  loops or rand.randint(2, 6))
    for instance in rand.sample(instances[1:], min(kills, len(instances) - 1)):
        played.kill(instance, world.t0 + rand.randint(1, 25) * MS + rand.randrange(MS))
    return played.run()


def clean(seed, **asked):
    """A run in which nothing goes wrong: there is a lock, and nobody works for longer than a lease, or the token is compared."""
    rand = Tasks(seed ^ 0x5eed).random
    result = asked.get("result", rand.choice(["plain", "fenced"]))
    settings = {"result": result, "kills": rand.choice([0, 0, 1, 2])}
    if asked.get("lease_ms") == 0:
        settings["kills"] = 0
    elif result == "fenced":
        settings.update(slow=rand.choice([0, 0.3]), lost=rand.choice([0, 0.1]), lease_ms=rand.choice([2, 8, 30]))
    else:
        settings.update(lost=rand.choice([0, 0.1]))
    return play(seed, **{**settings, **asked})
