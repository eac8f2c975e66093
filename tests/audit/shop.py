# SPDX-License-Identifier: Apache-2.0
"""Runs that never happened: clean ones, made from a seed, with all views consistent.

A World holds what the records of a run would say. `clean(seed)` makes one in which a correct lock
guarded a correct sale; planters (planted.py) then change it. `write` lays it down as a run folder.
"""
import json
import os
import random

# reentrant_getset is not among them: it lets two in even of one process, and sends others away; nor is
# blpop_wake, which may send some away.
RUNGS = ["none", "local", "setnx", "setnx_expire", "setnx_multi", "set_nx_ex", "owner_check",
         "owner_lua", "reentrant_tls", "reentrant", "watchdog_timer", "watchdog",
         "notify", "fair", "rw_counter", "read_write"]
WRITES = ["decr", "set", "atomic"]
MS = 1_000_000
EPOCH_MS = 1_767_268_800_000  # CLOCK_REALTIME when a world's t_ns is its t0
CLOCK = {"boot_id": "b151cbf7-debb-4045-b78a-41adb14bc50d", "clock": "CLOCK_MONOTONIC",
         "time_namespace": "time:[4026531834]"}
CLIENTS = {**CLOCK, "clock": "CLOCK_REALTIME", "slack_ms": 1}
SPECIAL = frozenset(',"\n\r')
JTL_COLUMNS = ["timeStamp", "elapsed", "label", "responseCode", "responseMessage", "threadName",
               "success", "failureMessage", "URL", "request", "item", "instance", "unit", "left"]
KEY_COLUMNS = ["key", "replayed"]
BUYER_COLUMNS = ["buyer"]
QUEUE_COLUMNS = ["sale"]
VARIABLES = JTL_COLUMNS[9:] + KEY_COLUMNS + BUYER_COLUMNS + QUEUE_COLUMNS


class World:
    """run, redis: as in the files. events: a list of lines for each instance, without seq.
    sales: what a request did, in order. samples and passed: lines of sale.jtl and nginx.log."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.run, self.redis = {}, {}
        self.events, self.samples, self.passed = {}, [], []
        self.sections = []   # dicts: the events of one hold by name, and its request
        self.requests = []   # dicts
        self.readers = []    # the requests of those that only read
        self.unended = set()  # instances that were killed
        self.crlf = self.random.random() < 0.2
        self.logged = True    # nginx.log is there
        self.columns = JTL_COLUMNS
        self.clients = "sale.jtl"
        self.covers = True    # what the clients saw fits what the instances recorded
        self.begin = {}      # more fields of each `begin`
        self.seq_edits = {}  # instance -> function(lines), after seq was given

    # ---- events ---------------------------------------------------------------------------------
    def add(self, instance, t_ns, event, **fields):
        line = {"t_ns": t_ns, "instance": instance, "event": event, **fields}
        self.events[instance].append(line)
        return line

    def about(self, request, t_ns, event, **fields):
        return self.add(request["instance"], t_ns, event, thread=1, request=request["id"],
                        item=request["item"], rung=self.run["rung"],
                        **{"lock": "lock:{%s}" % request["item"], **fields})

    def remove(self, line):
        self.events[line["instance"]].remove(line)

    def sample_of(self, request):
        return next(s for s in self.samples if s["request"] == request["id"])

    def passed_of(self, request):
        return next(p for p in self.passed if p["request"] == request["id"])

    def sales(self, item=None):
        return [s for s in self.sections if "write" in s
                and (item is None or s["request"]["item"] == item)]

    def sections_of(self, item):
        return sorted((s for s in self.sections if s["request"]["item"] == item),
                      key=lambda s: s["enter"]["t_ns"])

    # ---- a request and what became of it ----
    def request(self, item, instance, t_ns, quantity=1, name=None):
        request = {"id": name or "%08x%08x" % (self.random.getrandbits(32), len(self.requests) + len(self.readers)),
                   "item": item, "instance": instance, "quantity": quantity, "t_ns": t_ns}
        request["invoke"] = self.about(request, t_ns, "invoke", quantity=quantity)
        self.requests.append(request)
        return request

    def answer(self, request, t_ns, code, unit="", left=""):
        start_ms = EPOCH_MS + (request["t_ns"] - self.t0) // MS
        sold = code == 200
        self.samples.append({
            "timeStamp": start_ms, "elapsed": (t_ns - request["t_ns"]) // MS + 1,
            "label": "POST /sale", "responseCode": code,
            "responseMessage": self.random.choice(["OK", 'says "no", twice', "two\nlines", ""]),
            "threadName": "burst 1-%d" % len(self.samples), "success": "true",
            "failureMessage": "", "request": request["id"],
            "URL": "http://127.0.0.1:8888/inventory/%s/sale?quantity=%d" % (request["item"], request["quantity"]),
            "item": request["item"] if sold else "",  # JMeter takes it from the answer
            "instance": request["instance"] if sold else "", "unit": unit, "left": left,
            "key": "", "replayed": "", "buyer": "", "sale": ""})
        self.passed.append({
            "t_s": start_ms / 1000, "request": request["id"], "method": "POST",
            "uri": "/inventory/%s/sale?quantity=%d" % (request["item"], request["quantity"]),
            "status": code, "upstream": "127.0.0.1:8000", "upstream_status": str(code),
            "time_s": 0.004})
        request["code"] = code

    def refuse(self, request, t_ns, code, reason, event="refused"):
        request["outcome"] = self.about(request, t_ns, event, code=code, reason=reason)
        self.answer(request, t_ns, code)

    def section(self, request, times, token=None, **mode):
        """granted, enter and later exit, release: times = (granted, enter, exit, release)."""
        hold = "uuid-%s:1#%d" % (request["instance"], len(self.sections) + 1)
        section = {"request": request, "hold": hold}
        section["granted"] = self.about(request, times[0], "granted", hold=hold, owner="uuid",
                                        token=token, waited_ns=1, **mode)
        section["enter"] = self.about(request, times[1], "enter", hold=hold)
        section["exit"] = None
        self.sections.append(section)
        return section

    def leave(self, section, t_exit, t_release):
        t_release = max(t_release, section["granted"]["t_ns"] + 1)  # a clock goes on
        request, hold = section["request"], section["hold"]
        section["exit"] = self.about(request, t_exit, "exit", hold=hold)
        section["release"] = self.about(request, t_release, "release", hold=hold, status="OK")

    def sell(self, section, t_read, t_write, before, after=None):
        request, quantity = section["request"], section["request"]["quantity"]
        after = before - quantity if after is None else after
        section["read"] = self.about(request, t_read, "read", hold=section["hold"],
                                     stock_before=before)
        section["write"] = self.about(request, t_write, "write", hold=section["hold"],
                                      stock_before=before, stock_after=after, unit=after + 1,
                                      quantity=quantity)
        request["outcome"] = section["write"]
        self.answer(request, t_write, 200, after + 1, after)

    def reading(self, request, times, stock, token=None, mode="shared"):
        """A section that only reads: times = (granted, enter, read, exit, release)."""
        section = self.section(request, times, token, mode=mode)
        section["read"] = self.about(request, times[2], "read", hold=section["hold"],
                                     stock_before=stock)
        self.leave(section, times[3], times[4])
        return section

    def reader(self, item, instance, times, stock, token=None, mode="shared"):
        """A guarded read: the client's and nginx's views, which tell of sales, have none of it."""
        request = self.request(item, instance, times[0] - 1, 0)
        self.requests.remove(request)
        self.readers.append(request)
        return self.reading(request, times, stock, token, mode)

    # ---- files ------------------------------------------------------------------------------------
    def lines(self, instance):
        run = self.run
        first = min((e["t_ns"] for e in self.events[instance]), default=self.t0) - 5
        last = max((e["t_ns"] for e in self.events[instance]), default=self.t0) + 5
        lines = [{"t_ns": first, "instance": instance, "event": "begin", "run": run["run"],
                  "rung": run["rung"], **({"write": run["write"]} if "write" in run else {}), "pid": 1, "format": 2, **CLOCK,
                  "clock_ns_realtime": EPOCH_MS * MS + first - self.t0, **self.begin}]
        lines += sorted(self.events[instance], key=lambda line: line["t_ns"])  # as a process writes them
        if instance not in self.unended:
            lines.append({"t_ns": last, "instance": instance, "event": "end"})
        lines = [{"t_ns": line["t_ns"], "seq": i + 1, **line} for i, line in enumerate(lines)]
        if instance in self.seq_edits:
            self.seq_edits[instance](lines)
        return lines

    def cover(self):
        """Each client saw its request for as long as the records of it say, wherever they were moved to."""
        spans = {}
        for event in (e for lines in self.events.values() for e in lines if "request" in e):
            low, high = spans.get(event["request"], (event["t_ns"], event["t_ns"]))
            spans[event["request"]] = min(low, event["t_ns"]), max(high, event["t_ns"])
        for sample in (s for s in self.samples if s["request"] in spans):
            low, high = (EPOCH_MS + (t_ns - self.t0) // MS for t_ns in spans[sample["request"]])
            start = min(sample["timeStamp"], low)
            sample["elapsed"] = max(sample["timeStamp"] + sample["elapsed"], high + 1) - start
            sample["timeStamp"] = start

    def files(self):
        """The texts of the run folder's files, by name."""
        if self.covers:
            self.cover()
        files = {"run.json": json.dumps(self.run), "redis.json": json.dumps(self.redis)}
        if self.logged:
            files["nginx.log"] = "".join(json.dumps(line) + "\n" for line in self.passed)
        end = "\r\n" if self.crlf else "\n"
        rows = [",".join('"%s"' % c if c in VARIABLES else c for c in self.columns)]
        rows += [",".join(csv_field(sample[c]) for c in self.columns) for sample in self.samples]
        files[self.clients] = "".join(row + end for row in rows)
        for instance in self.events:
            files["history-%s.jsonl" % instance] = "".join(
                json.dumps(line) + "\n" for line in self.lines(instance))
        return files

    def write(self, folder):
        os.makedirs(folder)
        for name, text in self.files().items():
            with open(os.path.join(folder, name), "w", encoding="utf-8", newline="") as file:
                file.write(text)
        return folder


def csv_field(value):
    text = str(value)
    if not SPECIAL.isdisjoint(text):
        return '"' + text.replace('"', '""') + '"'
    return text


def side(stock, lock="none", pttl_ms=-2):
    return {"stock": dict(stock), "locks": {i: {"type": lock, "pttl_ms": pttl_ms} for i in stock}}


def start(world, rung=None, write=None, instances=None, items=None, **more):
    """run.json, redis.json and empty histories; items: {name: stock}."""
    rand = world.random
    world.t0 = rand.choice([5 * MS, 86_400_000 * MS + 1, 2**53 + 12_345, 2**59 + 7])
    instances = instances or ["a", "b", "c"][:rand.randint(1, 3)]
    items = items or {"item-%d" % i: rand.randint(0, 9) for i in range(rand.randint(1, 3))}
    world.run = {
        "run": "made-%d" % rand.getrandbits(30), "rung": rung or rand.choice(RUNGS),
        "write": write or rand.choice(WRITES), "fault": "none", "instances": instances,
        "workers": 4, "ttl_ms": 30000, "work_ms": 1, "wait_ms": 20000, "keys": "item",
        "guard": "lock", "items": items, "requests": 0, "quantity": 1, "scenario": "made",
        "min_share": 0.5, "expect": None, "clients": CLIENTS, **more}
    world.redis = {"before": side(items), "after": side(items)}
    world.events = {i: [] for i in instances}
    world.stock = dict(items)
    for item, stock in items.items():
        world.add(rand.choice(instances), world.t0 - 1000, "restock", item=item, stock_after=stock)


def finish(world, after=None):
    world.run["requests"] = len(world.requests)
    stock = world.stock if after is None else after
    world.redis["after"]["stock"] = dict(stock)
    for lines in world.events.values():  # as a process writes them: in time, holds in their order
        lines.sort(key=lambda line: line["t_ns"])
    world.samples.insert(0, {**{c: "" for c in VARIABLES + JTL_COLUMNS}, "label": "PUT reset",
                             "timeStamp": 1, "elapsed": 1, "responseCode": 200})
    return world


def turn(world, request, t_ns, token=None, lengths=None):
    """The request has the lock from t_ns on: it buys, or finds too few. Returns when it leaves."""
    rand, item, quantity = world.random, request["item"], request["quantity"]
    step = lengths or (lambda: rand.choice([0, 1, 2, 700, rand.randint(3, 2 * MS)]))
    granted = t_ns
    enter = granted + step()
    read = enter + step()
    write = read + 1 + step()
    leave, release = write + step(), 0
    release = leave + step()
    before = world.stock[item]
    section = world.section(request, (granted, enter), token)
    if before < quantity:
        section["read"] = world.about(request, read, "read", hold=section["hold"],
                                      stock_before=before)
        world.leave(section, leave, release)
        world.refuse(request, release, 409, "sold-out" if before < 1 else "insufficient-stock")
    elif request.get("unknown"):
        section["read"] = world.about(request, read, "read", hold=section["hold"],
                                      stock_before=before)
        request["outcome"] = world.about(request, write, "unknown", hold=section["hold"], code=500,
                                         quantity=quantity)
        world.leave(section, leave, release)
        world.answer(request, release, 500)
        if rand.random() < 0.5:
            world.stock[item] -= quantity
    else:
        world.sell(section, read, write, before)
        world.leave(section, leave, release)
        world.stock[item] -= quantity
    return leave


def readers_come(world, item, t_ns, tokens):
    """Some read together from t_ns on, in any order. Returns when the last has left."""
    rand, until = world.random, t_ns
    for token in rand.sample(tokens, len(tokens)):
        times = sorted(t_ns + rand.randint(0, MS) for _ in range(5))
        world.reader(item, rand.choice(world.run["instances"]), times, world.stock[item], token)
        until = max(until, times[3])
    return until


def clean(seed, tokens=None, unknowns=0.1, quantities=True, requests=None, readers=0, **asked):
    """A correct run. Sections of one lock follow each other, some touch; who comes when all is sold
    may also be told so without a look, or time out waiting."""
    world = World(seed)
    rand = world.random
    start(world, **asked)
    instances, items = world.run["instances"], list(world.run["items"])
    count = requests or rand.randint(8, 18)
    tokens = rand.random() < 0.3 if tokens is None else tokens
    waiting = {item: [] for item in items}
    for i in range(count):  # at first one item, so that every instance contends for it
        item = items[0] if i < 2 * len(instances) else rand.choice(items)
        quantity = rand.randint(1, 3) if quantities and rand.random() < 0.3 else 1
        request = world.request(item, instances[i % len(instances)],
                                world.t0 + rand.randint(0, MS), quantity)
        request["unknown"] = rand.random() < unknowns
        waiting[item].append(request)
    for item in items:
        now, token = world.t0 + 2 * MS, 0
        queue = waiting[item]
        rand.shuffle(queue)
        for request in queue:
            if world.stock[item] < request["quantity"] and rand.random() < 0.4:
                code, reason, event = rand.choice([
                    (503, "lock-timeout", "refused"), (503, "queue-full", "refused"),
                    (503, "deadline", "refused"), (500, "stock-error", "fail")])
                world.refuse(request, now + rand.randint(0, 3 * MS), code, reason, event)
                continue
            if rand.random() < readers:
                count = rand.randint(1, 4)
                come = [token + i + 1 if tokens else None for i in range(count)]
                now, token = readers_come(world, item, now, come), token + count
            token += rand.randint(1, 5)
            now = turn(world, request, now, token if tokens else rand.choice([None, 0]))
            now += rand.choice([0, 0, 1, rand.randint(0, MS)])
    for instance in instances:
        if rand.random() < 0.3:
            world.add(instance, world.t0 + 10, "stall", late_ns=rand.randint(0, 40_000 * MS))
    return finish(world)
