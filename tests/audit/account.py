# SPDX-License-Identifier: Apache-2.0
"""Runs of accounts that never happened. `play(seed)` makes one: adds, transfers and looks meet in simulated time, at balances
with versions and at a lock for each account. With the right settings nothing goes wrong in it. Replies may be lost, and
instances may be killed."""
import heapq

import shop
from shop import EPOCH_MS, MS, World, side

COLUMNS = shop.JTL_COLUMNS[:9] + ["request", "item", "instance", "version"]
LOCKS = [rung for rung in shop.RUNGS if rung not in ("none", "local")]
SETTINGS = {"write": "script", "locks": "many", "work_ms": 1}
NOTHING = (None, None)


class Bank(World):
    """events: as the shop's. A request has its lines: `read`, `writing`, `wrote` by account."""

    def __init__(self, seed):
        super().__init__(seed)
        self.clients, self.columns = "load.jtl", COLUMNS

    def start(self, rung=None, instances=None, items=None, fault="none", expect=None, versions=None, **settings):
        rand = self.random
        self.t0 = rand.choice([50 * MS, 86_400_000 * MS + 1, 2**53 + 12_345, 2**59 + 7])
        instances = instances or ["a", "b", "c"][:rand.randint(1, 3)]
        items = items or {"acc-%d" % i: rand.choice([0, 5, 100, 1000]) for i in range(rand.randint(2, 4))}
        self.settings = {**SETTINGS, **settings}
        self.run = {"service": "account", "run": "made-%d" % rand.getrandbits(30), "rung": rung or rand.choice(LOCKS),
                    "fault": fault, "instances": instances, "ttl_ms": 30000, "wait_ms": 20000, "items": items,
                    "requests": 0, "min_share": 0, "expect": expect, "clients": shop.CLIENTS, **self.settings}
        self.begin = {"service": "account", **self.settings}
        self.balances = {item: [balance, (versions or {}).get(item, rand.choice([1, 1, 7]))] for item, balance in items.items()}
        self.redis = {"before": self.moment(), "after": self.moment()}
        self.events = {i: [] for i in instances}
        return self

    def moment(self):
        accounts = {item: {"balance": balance, "version": version} for item, (balance, version) in self.balances.items()}
        return {"accounts": accounts, "locks": side(accounts)["locks"]}

    # ---- lines ----
    def ask(self, item, instance, t_ns, amount=None, to=None, name=None):
        does = "look" if amount is None else "transfer" if to else "add"
        request = {"id": name or "%08x%08x" % (self.random.getrandbits(32), len(self.requests)), "item": item, "to": to,
                   "instance": instance, "does": does, "amount": amount, "t_ns": t_ns, "sections": {}, "read": {},
                   "writing": {}, "wrote": {}}
        fields = {name: value for name, value in (("amount", amount), ("to", to)) if value is not None}
        request["invoke"] = self.about(request, t_ns, "invoke", does=does, **fields)
        self.requests.append(request)
        return request

    @staticmethod
    def change(request, item):
        return -request["amount"] if request["to"] and item == request["item"] else request["amount"]

    def enter(self, request, granted, enter, token=None, item=None):
        item = item or request["item"]
        hold = "uuid-%s:1#%d" % (request["instance"], len(self.sections) + 1)
        section = {"request": request, "hold": hold, "exit": None, "item": item, "lock": "lock:{%s}" % item}
        section["granted"] = self.about(request, granted, "granted", hold=hold, owner="uuid", token=token or 0, waited_ns=1,
                                        lock=section["lock"])
        section["enter"] = self.about(request, enter, "enter", hold=hold, lock=section["lock"])
        self.sections.append(section)
        request["sections"][item] = section
        return section

    def leave(self, section, t_exit, t_release=None, status="OK"):
        self.exits(section, t_exit)
        self.released(section, t_exit if t_release is None else t_release, status)

    def exits(self, section, t_ns):
        section["exit"] = self.about(section["request"], t_ns, "exit", hold=section["hold"], lock=section["lock"])

    def released(self, section, t_ns, status="OK"):
        t_ns = max(t_ns, section["granted"]["t_ns"] + 1)
        section["release"] = self.about(section["request"], t_ns, "release", status=status, hold=section["hold"], lock=section["lock"])

    def wants(self, request, t_ns):
        section = request["sections"][request["item"]]
        request["wants"] = self.about(request, t_ns, "wants", wants="lock:{%s}" % request["to"], hold=section["hold"])

    def seen(self, request, t_ns, item, balance, version):
        request["read"][item] = self.about(request, t_ns, "read", account=item, balance=balance, version=version)

    def is_writing(self, request, t_ns, item):
        read, section = request["read"][item], request["sections"].get(item)
        held = {"hold": section["hold"], "token": section["granted"]["token"]} if section else {"token": 0}
        request["writing"][item] = self.about(
            request, t_ns, "writing", account=item, before=read["balance"], version=read["version"] + 1,
            balance=read["balance"] + self.change(request, item), **held)

    def has_written(self, request, t_ns, item, sent_ns):
        request["wrote"][item] = self.about(request, t_ns, "wrote", account=item, sent_ns=sent_ns,
                                            version=request["writing"][item]["version"])

    def is_refused(self, request, t_ns, item, token, newest):
        request["write_refused"] = self.about(request, t_ns, "write_refused", account=item, token=token, newest=newest)

    def told(self, request, t_ns):
        lines = request["read"] if request["does"] == "look" else request["writing"]
        fields = {prefix + name: lines[item][name] for prefix, item in (("", request["item"]), ("to_", request["to"])) if item
                  for name in ("balance", "version")}
        request["outcome"] = self.about(request, t_ns, "answered", code=200, **fields)
        self.sample(request, t_ns, 200, fields["version"])

    def turned_away(self, request, t_ns, code=503, reason="lock-timeout", event="refused"):
        request["outcome"] = self.about(request, t_ns, event, code=code, reason=reason)
        self.sample(request, t_ns, code, "")

    def sample(self, request, t_ns, code, version=""):
        start_ms = EPOCH_MS + (request["t_ns"] - self.t0) // MS
        uri = {"look": "/accounts/" + request["item"], "add": "/accounts/%s/add" % request["item"]}.get(
            request["does"], "/transfers")
        query = {"look": "", "add": "?amount=%s" % request["amount"]}.get(
            request["does"], "?from=%s&to=%s&amount=%s" % (request["item"], request["to"], request["amount"]))
        method, good = "GET" if request["does"] == "look" else "POST", code == 200
        self.samples.append({
            **dict.fromkeys(COLUMNS, ""), "timeStamp": start_ms, "elapsed": (t_ns - request["t_ns"]) // MS + 1,
            "label": "GET account" if request["does"] == "look" else "POST " + request["does"], "responseCode": code,
            "success": "true", "request": request["id"], "URL": "http://127.0.0.1:8888" + uri + query,
            "item": request["item"] if good else "", "instance": request["instance"] if good else "", "version": version})
        self.passed.append({"t_s": start_ms / 1000, "request": request["id"], "method": method, "uri": uri, "status": code,
                            "upstream": "127.0.0.1:8000", "upstream_status": str(code), "time_s": 0.004})
        request["code"] = code

    def end(self):
        self.run["requests"] = len(self.requests)
        self.redis["after"] = self.moment()
        for lines in self.events.values():
            lines.sort(key=lambda line: line["t_ns"])
        return self


class Play:
    """Simulated time: a heap of steps. A command takes effect between its sending and its answer. died: when an instance is
    killed; from then on it takes no step, and what it has sent still takes effect."""

    def __init__(self, world, steps=None, unknowns=0.0, died=None):
        self.world, self.unknowns, self.died, self.ttl = world, unknowns, died or {}, 600 * MS
        self.steps, self.number, self.holder, self.waiting, self.token, self.newest = [], 0, {}, [], {}, {}
        self.step = steps or (lambda: rand.choice([0, 1, 2, 700, rand.randint(3, MS)]))
        rand = world.random
        self.wait = rand.choice([20 * MS, 3000 * MS])
        self.rand, self.redis = rand, world.balances

    def at(self, t_ns, function, *arguments, of=None):
        """of: the request whose instance takes the step."""
        self.number += 1
        if of is None or t_ns < self.died.get(of["instance"], t_ns + 1):
            heapq.heappush(self.steps, (t_ns, self.number, function, arguments))

    def command(self, now, request, effect, answered):
        done = now + self.step()
        self.at(done, lambda t: self.at(t + self.step(), answered, effect(t), of=request))

    def run(self):
        world = self.world
        for instance, t_ns in self.died.items():
            world.unended.add(instance)
            self.at(t_ns, self.die, instance)
        while self.steps:
            t_ns, _, function, arguments = heapq.heappop(self.steps)
            function(t_ns, *arguments)
        for request in world.requests:
            if "code" not in request:
                world.sample(request, max(self.died[request["instance"]], request["t_ns"]) + MS, 502)
        return world.end()

    def die(self, t_ns, instance):
        """Its locks expire."""
        self.waiting = [waiter for waiter in self.waiting if waiter[0]["instance"] != instance]
        for scope, request in list(self.holder.items()):
            if request["instance"] == instance:
                self.at(t_ns + self.ttl, self.free, request, [scope])

    # ---- the locks ----
    def scope(self, request, item):
        return {"none": (request["id"], item), "local": (request["instance"], item)}.get(self.world.run["rung"], item)

    def acquire(self, now, request, items, then):
        """All at once, or in vain."""
        waiter = (request, items, then)
        self.waiting.append(waiter)
        self.at(max(now, request["t_ns"] + self.wait), self.give_up, waiter, of=request)
        self.grant(now)

    def give_up(self, now, waiter):
        request = waiter[0]
        if waiter not in self.waiting:
            return
        self.waiting.remove(waiter)
        if request["sections"]:
            self.release(now, request, lambda t: self.world.turned_away(request, t))
        else:
            self.world.turned_away(request, now)

    def grant(self, now):
        for waiter in self.rand.sample(self.waiting, len(self.waiting)):
            request, items, then = waiter
            scopes = [self.scope(request, item) for item in items]
            if any(scope in self.holder for scope in scopes):
                continue
            self.waiting.remove(waiter)
            tokens = {}
            for item, scope in zip(items, scopes):
                self.holder[scope] = request
                self.token[item] = tokens[item] = self.token.get(item, 0) + self.rand.randint(1, 3)
            granted = now + self.step()
            enter = granted + self.step()
            self.at(enter, self.entered, request, granted, tokens, then, of=request)

    def entered(self, now, request, granted, tokens, then):
        for item, token in tokens.items():
            self.world.enter(request, granted, now, token if self.world.tokens else 0, item)
        then(now, request)

    def free(self, now, request, scopes):
        for scope in scopes:
            if self.holder.get(scope) is request:
                del self.holder[scope]
        self.grant(now)

    def release(self, now, request, then, status="OK"):
        sections = [request["sections"][item] for item in reversed(list(request["sections"]))]

        def answered(t_ns, _):
            for section in sections:
                self.world.released(section, t_ns, status)
            then(t_ns)
        for section in sections:  # before the release is sent, so it is there even if the process dies meanwhile
            self.world.exits(section, now)
        self.command(now, request, lambda t: self.free(t, request, [self.scope(request, item) for item in request["sections"]]), answered)

    # ---- requests ----
    def look(self, now, item, instance):
        request = self.world.ask(item, instance, now)

        def read(t_ns, found):
            self.world.seen(request, t_ns, item, *found)
            self.world.told(request, t_ns + self.step())
        self.command(now, request, lambda t: tuple(self.redis[item]), read)

    def change(self, now, item, instance, amount, to=None):
        request = self.world.ask(item, instance, now, amount, to)
        items = [item, to] if to else [item]
        if not to or self.world.settings["locks"] == "many":
            self.acquire(now, request, items, self.inside)
            return

        def first(t_ns, _):
            wants = t_ns + self.step()
            self.at(wants, second, of=request)

        def second(t_ns):
            self.world.wants(request, t_ns)
            self.acquire(t_ns, request, [to], self.inside)
        self.acquire(now, request, [item], first)

    def inside(self, now, request, rest=None):
        rest = [item for item in (request["item"], request["to"]) if item] if rest is None else rest
        if not rest:
            self.at(now + self.step(), self.compute, request, of=request)
            return

        def read(t_ns, found):
            self.world.seen(request, t_ns, rest[0], *found)
            self.inside(t_ns, request, rest[1:])
        self.command(now, request, lambda t: self.claim(request, rest[0]), read)

    def claim(self, request, item):
        token = request["sections"][item]["granted"]["token"]
        self.newest[item] = max(self.newest.get(item, 0), token)
        return tuple(self.redis[item])

    def compute(self, now, request):
        if any(line["balance"] + self.world.change(request, item) < 0 for item, line in request["read"].items()):
            self.release(now, request, lambda t: self.world.turned_away(request, t, 409, "insufficient-funds"))
        elif self.world.settings["write"] == "script":
            self.write(now, request, [list(request["read"])])
        else:
            self.write(now, request, [[item] for item in request["read"]])

    def write(self, now, request, rest):
        if not rest:
            self.finish(now, request)
            return
        for item in rest[0]:
            self.world.is_writing(request, now, item)
        sent = now + self.step()
        lost = self.rand.random() < self.unknowns and len(rest[0]) == len(request["read"])  # never half of a transfer
        arrives = not lost or self.rand.random() < 0.5

        def effect(_):
            old = [item for item in rest[0] if request["writing"][item]["token"] < self.newest.get(item, 0)]
            if self.world.settings["write"] == "script" and self.world.tokens and old:
                return old[0]
            for item in rest[0] if arrives else []:
                self.redis[item][:] = [request["writing"][item]["balance"], request["writing"][item]["version"]]
            return None

        def answered(t_ns, refused):
            if refused:
                self.world.is_refused(request, t_ns, refused, request["writing"][refused]["token"], self.newest[refused])
                self.release(t_ns, request, lambda t: self.world.turned_away(request, t, 503, "lock-lost"))
            elif lost:
                self.release(t_ns, request, lambda t: self.world.turned_away(request, t, 500, "outcome-unknown", "unknown"))
            else:
                for item in rest[0]:
                    self.world.has_written(request, t_ns, item, sent)
                self.at(t_ns + self.step(), self.write, request, rest[1:], of=request)
        self.at(sent, lambda t: self.command(t, request, effect, answered), of=request)

    def finish(self, now, request):
        request["done"] = now
        self.release(now, request, lambda t: self.world.told(request, t))


def play(seed, requests=None, adds=0.4, looks=0.15, tokens=None, unknowns=0.0, died=None, span_ms=None, steps=None,
         downwards=True, **asked):
    """A run of adds, transfers and looks. Its settings say whether it can go wrong. downwards: a transfer may also go to the
    account before its own, so that two may wait for each other."""
    world = Bank(seed).start(**asked)
    rand = world.random
    world.tokens = rand.random() < 0.4 if tokens is None else tokens
    instances, items = world.run["instances"], list(world.run["items"])
    span = (span_ms or rand.choice([1, 10, 30])) * MS
    died = {i: world.t0 + rand.randint(0, span) for i in instances[1:]} if died else {}
    played = Play(world, steps, unknowns, died)
    for i in range(requests or rand.randint(8, 30)):
        item, instance = items[0] if i < 4 else rand.choice(items), instances[i % len(instances)]
        begins = world.t0 + (0 if i < 4 else rand.randint(0, span))
        if begins >= died.get(instance, begins + 1):
            continue
        if i >= 4 and rand.random() < looks:
            played.at(begins, played.look, item, instance)
        elif i >= 4 and rand.random() < adds:
            played.at(begins, played.change, item, instance, rand.choice([200, -100, 5, 1, 1]))
        else:
            other = rand.choice([j for j in items if j != item and (downwards or j > item)] or [None])
            played.at(begins, played.change, item, instance, rand.choice([5, 1, 1, 57]), other)
    return played.run()


def clean(seed, **asked):
    """A run in which nothing goes wrong, whatever happens to its replies and its instances."""
    rand = Bank(seed ^ 0x5eed).random
    kills = rand.random() < 0.3
    settings = {"write": "script" if kills else rand.choice(["two", "script"]), "died": kills, "fault": "killed" if kills else "none",
                "locks": rand.choice(["many", "many", "unordered"]), "unknowns": rand.choice([0, 0, 0.2]), "downwards": False}
    return play(seed, **{**settings, **asked})
