# SPDX-License-Identifier: Apache-2.0
"""Runs with --on-conflict queue: each sale is accepted by one instance, and processed by any. The buyer is told 202,
and asks for the outcome later."""
import shop
from shop import EPOCH_MS, MS


def ms_of(world, t_ns):
    return EPOCH_MS + (t_ns - world.t0) // MS


class Sale:
    """A sale that is accepted at t_ns, between the times of its request's two lines."""

    def __init__(self, world, request, t_ns):
        self.world, self.request, self.t_ns = world, request, t_ns
        self.item, self.quantity = request["item"], request["quantity"]
        self.id = "%s.%032x" % (request["item"], world.random.getrandbits(128))
        self.place, self.worker, self.lines, self.asks = "", None, [], []
        self.accepted = self.sample = self.read = self.write = self.refused = self.taken = self.end = None

    def accept(self, place):
        self.place = place
        self.accepted = self.tell(self.request, self.t_ns + self.world.random.choice([0, 1, 9, MS]))
        self.sample = self.world.samples[-1]

    def tell(self, request, t_ns):
        """The request is answered 202."""
        line = self.world.about(request, t_ns, "accepted", code=202, id=self.id, entry=self.place, quantity=self.quantity)
        self.answer(request, t_ns, 202)
        return line

    def answer(self, request, t_ns, code):
        self.world.answer(request, t_ns, code)
        self.world.samples[-1].update(sale=self.id if code == 202 else "", key=request.get("key", ""))

    def work(self, t_ns, event, **fields):
        line = self.world.add(self.worker, t_ns, event, thread=1, request=self.request["id"], item=self.item,
                              rung=self.world.run["rung"], lock="lock:{%s}" % self.item, **fields)
        self.lines.append(line)
        return line

    def requeue(self, worker, t_ns):
        self.worker = worker
        self.work(t_ns, "requeued", code=503, reason="lock-timeout")

    def take(self, worker, t_ns):
        """Returns the time after it. With a hold, unless its life is over."""
        self.worker = worker
        self.hold = "uuid-%s:1#%d" % (worker, len(self.world.sections) + 1)
        self.world.sections.append({"request": self.request, "hold": self.hold})
        self.work(t_ns, "granted", hold=self.hold, owner="uuid", token=0, waited_ns=1)
        self.work(t_ns + 1, "enter", hold=self.hold)
        self.taken = self.work(t_ns + 2, "taken", hold=self.hold, id=self.id, entry=self.place, quantity=self.quantity)
        return t_ns + 3

    def leave(self, t_ns):
        self.work(t_ns, "exit", hold=self.hold)
        self.work(t_ns + 1, "release", hold=self.hold, status="OK")
        return t_ns + 2

    def sell(self, t_ns, before):
        after = before - self.quantity
        self.read = self.work(t_ns, "read", hold=self.hold, stock_before=before)
        self.write = self.work(t_ns + 1, "write", hold=self.hold, stock_before=before, stock_after=after, unit=after + 1,
                               quantity=self.quantity)
        self.end = t_ns + 1
        return t_ns + 2

    def refuse(self, t_ns, before):
        self.read = self.work(t_ns, "read", hold=self.hold, stock_before=before)
        now = self.leave(t_ns + 1)
        self.refused = self.work(now, "refused", code=409, reason="sold-out" if before < 1 else "insufficient-stock",
                                 kept=True, entry=self.place)
        self.end = now
        return now + 1

    def expire(self, worker, t_ns):
        self.worker = worker
        self.taken = self.work(t_ns, "taken", id=self.id, entry=self.place, quantity=self.quantity)
        self.refused = self.work(t_ns + 1, "refused", code=503, reason="deadline", kept=True, entry=self.place)
        self.end = t_ns + 1
        return t_ns + 2

    def work_off(self, worker, t_ns):
        """It is its turn. Returns when the next one may come."""
        left = self.world.stock[self.item]
        if left < self.quantity and self.world.random.random() < 0.2:
            return self.expire(worker, t_ns)
        now = self.take(worker, t_ns)
        if left < self.quantity:
            return self.refuse(now, left)
        self.world.stock[self.item] -= self.quantity
        return self.leave(self.sell(now, left))

    def ask(self, t_ns, code=None, unit="", left=""):
        """A GET of its id; the answer is its outcome unless it is given."""
        if code is None and self.write:
            code, unit, left = 200, self.write["unit"], self.write["stock_after"]
        elif code is None:
            code, left = self.refused["code"], self.read["stock_before"] if self.read else ""
        sample = {**{column: "" for column in shop.VARIABLES + shop.JTL_COLUMNS}, "timeStamp": ms_of(self.world, t_ns),
                  "elapsed": 1, "label": "GET outcome", "responseCode": code, "success": "true", "sale": self.id,
                  "request": "ask-%d" % len(self.world.samples), "unit": unit, "left": left}
        self.world.samples.append(sample)
        self.asks.append(sample)
        return sample

    def undo(self, *keep):
        """Nobody has worked it off, or only some lines say so."""
        for line in [line for line in self.lines if line not in keep]:
            self.world.remove(line)
            self.lines.remove(line)
        for sample in self.asks:
            self.world.samples.remove(sample)
        if self.write:
            self.world.stock[self.item] += self.quantity
            self.world.redis["after"]["stock"] = dict(self.world.stock)
        self.asks, self.read, self.write, self.refused, self.end = [], None, None, None, None


def queued(seed, keys=False, asks=0.8, quantities=True, told=None, workers="ab", **asked):
    """A correct run. told: whether redis.json says how many are in the queues; workers: the instances that work."""
    world = shop.World(seed)
    rand = world.random
    shop.start(world, **{"rung": rand.choice(["setnx", "watchdog", "fair", "notify"]), "write": "atomic", "instances": ["a", "b"],
                         "on_conflict": "queue", **asked})
    world.columns = shop.JTL_COLUMNS + shop.KEY_COLUMNS + shop.QUEUE_COLUMNS
    world.covers = False
    items = list(world.run["items"])
    world.queue = []  # the sales, in the order of acceptance
    for i in range(rand.randint(8, 16)):
        t_ns = world.t0 + 2 * MS + rand.randint(0, MS)
        request = world.request(items[0] if i < 4 else rand.choice(items), "ab"[i % 2], t_ns,
                                rand.randint(1, 3) if quantities and rand.random() < 0.3 else 1)
        if keys:
            request["key"] = request["invoke"]["key"] = "key%d" % i
        world.queue.append(Sale(world, request, t_ns + rand.randint(1, MS)))
    world.queue.sort(key=lambda sale: sale.t_ns)
    for i, sale in enumerate(world.queue):
        sale.accept("%d-%d" % (ms_of(world, sale.t_ns), i))
    for item in items:
        now = 0
        for sale in (sale for sale in world.queue if sale.item == item):
            now = max(now, sale.t_ns + 1) + rand.choice([0, 1, rand.randint(0, MS)])
            if rand.random() < 0.2:
                sale.requeue(rand.choice(workers), now)
                now += 1
            now = sale.work_off(rand.choice(workers), now)
    over = max(line["t_ns"] for lines in world.events.values() for line in lines) + MS
    for sale in world.queue:
        if rand.random() < 0.3:
            sale.ask(sale.t_ns, 202)
        if rand.random() < asks:
            sale.ask(over)
    shop.finish(world)
    if rand.random() < 0.5 if told is None else told:
        for side in world.redis.values():
            side["queues"] = {item: 0 for item in items}
    return world


def sort(world):
    for lines in world.events.values():
        lines.sort(key=lambda line: line["t_ns"])
    world.redis["after"]["stock"] = dict(world.stock)
    world.run["requests"] = sum(sample["label"].startswith("POST ") and not sample.get("again") for sample in world.samples)
    return world


def end_of(world):
    return max(line["t_ns"] for lines in world.events.values() for line in lines) + 1


def last_of(world, sold=None):
    """The last accepted sale of an item; one that was sold, or refused, if that is asked for."""
    last = {sale.item: sale for sale in world.queue}
    fits = [sale for sale in last.values() if sold is None or bool(sale.write) == sold]
    return world.random.choice(fits) if fits else None


def lose(sample):
    """Its client got no answer."""
    sample.update(responseCode="Non HTTP response code: org.apache.http.NoHttpResponseException", success="false",
                  item="", instance="", unit="", left="", sale="")


def repeat(sale, t_ns, instance=None):
    """The same key is sent once more, and its sale is still in the queue."""
    world, first = sale.world, sale.request
    again = world.request(sale.item, instance or world.random.choice("ab"), t_ns, sale.quantity)
    again["key"] = again["invoke"]["key"] = first["key"]
    line = sale.tell(again, t_ns + 1)
    world.samples[-1].update(label="POST sale again", again=True)
    return again, line


def kill(world, instance, t_ns):
    """It writes nothing from then on."""
    lines = world.events[instance]
    lines[:] = [line for line in lines if line["t_ns"] < t_ns]
    world.unended.add(instance)
    world.run["fault"] = "killed"
