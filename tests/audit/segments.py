# SPDX-License-Identifier: Apache-2.0
"""Runs that never happened, of a shop with --segments N: correct ones, made from a seed. Sales of different segments
overlap; who finds its segment empty looks on, and who needs more than any segment has takes several locks at once."""
import heapq

import shop
from shop import MS


def level(units, segments):
    return [max(0, (units - segment) // segments + 1) for segment in range(1, segments + 1)]


class Shop:
    """sales: of each request that bought, the lines of its parts. locks: when each one is free."""

    def __init__(self, seed, segments=None, stock=None, naive=False, **asked):
        self.world = shop.World(seed)
        self.random = self.world.random
        self.segments, self.naive = segments or self.random.choice([2, 3, 5, 16]), naive
        stock = self.random.randint(0, 3 * self.segments) if stock is None else stock
        shop.start(self.world, **{"rung": "watchdog", "write": self.random.choice(["decr", "atomic"]), "instances": ["a", "b"],
                                  "items": {"phone": stock}, "segments": self.text(), **asked})
        self.world.events = {name: [] for name in self.world.events}  # start() laid it in one key
        self.now, self.sales, self.refused, self.held = self.world.t0 + MS, [], [], set()
        self.parts, self.tokens = level(stock, self.segments), None
        self.world.begin = {"segments": self.text()}
        if self.segments > 1:
            self.world.add("a", self.world.t0 - 1000, "restock", item="phone", stock_before=stock, stock_after=stock,
                           parts_before=[stock], parts_after=self.parts[:])
        else:
            self.world.add("a", self.world.t0 - 1000, "restock", item="phone", stock_after=stock)

    def text(self):
        return ("naive:" if self.naive else "") + str(self.segments)

    def lock(self, segment):
        return "lock:{phone}" + (f":{segment}" if segment > 1 else "")

    # ---- One buyer, as a generator that yields the time of its next step ----
    def step(self):
        return self.random.choice([1, 2, 700, self.random.randint(3, MS)])

    def acquire(self, request, now, segments):
        """The locks of all of them; yields while one is taken."""
        while any(segment in self.held for segment in segments):
            now += self.step()
            yield now
        self.held.update(segments)
        holds = []
        for segment in segments:
            hold = "uuid-%s:1#%d" % (request["instance"], len(self.world.sections) + 1)
            section = {"request": request, "hold": hold, "segment": segment, "exit": None}
            section["granted"] = self.about(section, now, "granted", owner="uuid", waited_ns=1, **self.token(segment))
            self.world.sections.append(section)
            holds.append(section)
        now += self.step()
        yield now
        for section in holds:
            section["enter"] = self.about(section, now, "enter")
        now += self.step()
        yield now
        for section in holds:
            self.read(section, now)
        return now, holds

    def token(self, segment):
        """Each lock has its own."""
        if self.tokens is None:
            return {}
        self.tokens[segment] = self.tokens.get(segment, 7 * segment) + 1
        return {"token": self.tokens[segment]}

    def about(self, section, now, event, **fields):
        return self.world.about(section["request"], now, event, lock=self.lock(section["segment"]), hold=section["hold"],
                                **fields)

    def read(self, section, now):
        more = {"segment": section["segment"], "all": sum(self.parts)} if self.segments > 1 else {}
        section["read"] = self.about(section, now, "read", stock_before=self.parts[section["segment"] - 1], **more)

    def release(self, holds, now):
        now += self.step()
        yield now
        for section in holds:
            section["exit"] = self.about(section, now, "exit")
        now += self.step()
        yield now
        for section in holds:
            section["release"] = self.about(section, now, "release", status="OK")
            self.held.discard(section["segment"])
        return now

    def choose(self, quantity):
        """Where it looks on: in one segment, or in as few as are enough, the largest first."""
        for segment, units in enumerate(self.parts, 1):
            if units >= quantity:
                return [segment]
        chosen = []
        for segment in sorted(range(1, self.segments + 1), key=lambda one: -self.parts[one - 1]):
            chosen.append(segment)
            if sum(self.parts[one - 1] for one in chosen) >= quantity:
                break
        return chosen

    def sell(self, request, holds, now):
        """One script takes all parts; then the lines follow each other."""
        rest, part, sale = request["quantity"], 0, []
        left = sum(self.parts) - rest
        takes = {}
        for section in holds:
            takes[section["segment"]] = min(rest, self.parts[section["segment"] - 1])
            rest -= takes[section["segment"]]
        for section in holds:
            segment, part = section["segment"], part + 1
            before = self.parts[segment - 1]
            after = self.parts[segment - 1] = before - takes[segment]
            more = {"segment": segment, "segments": self.segments, "part": part, "parts": len(holds),
                    "left": left} if self.segments > 1 else {}
            section["write"] = self.about(section, now, "write", stock_before=before, stock_after=after,
                                          unit=after * self.segments + segment, quantity=takes[segment], **more)
            sale.append(section["write"])
        self.sales.append({"request": request, "holds": holds, "writes": sale})
        request["outcome"] = sale[-1]
        self.world.answer(request, now, 200, sale[0]["unit"], left)

    def buyer(self, request, now, begins=None):
        segments, quantity = [begins or self.random.randint(1, self.segments)], request["quantity"]
        moves = 0
        while True:
            now, holds = yield from self.acquire(request, now, segments)
            total = sum(self.parts)
            mine = sum(self.parts[segment - 1] for segment in segments)
            if mine >= quantity:
                now += self.step()
                yield now  # nobody else takes of these segments meanwhile
                self.sell(request, holds, now)
                now = yield from self.release(holds, now)
                request["moves"] = moves
                return
            now = yield from self.release(holds, now)
            if total < quantity or self.naive:
                self.refused.append((request, holds))
                self.world.refuse(request, now, 409, "sold-out" if total < 1 or self.naive else "insufficient-stock")
                self.world.sample_of(request)["left"] = 0 if self.naive else total
                return
            segments, moves = self.choose(quantity), moves + 1

    def reader(self, request, now):
        """A guarded read: it needs the locks of all segments."""
        now, holds = yield from self.acquire(request, now, list(range(1, self.segments + 1)))
        yield from self.release(holds, now)

    def buyers(self, count, quantity=None, begins=None, readers=0, at=None):
        """So many at once, and readers beside them; quantity: None: 1 to 4 each. begins, at: the segment and time of each."""
        self.held, turns = set(), []
        for number in range(readers):
            invoked = self.now + self.random.randint(0, MS)
            request = self.world.request("phone", "ab"[number % 2], invoked, 0)
            self.world.requests.remove(request)
            self.world.readers.append(request)
            heapq.heappush(turns, (invoked + 1, -1 - number, self.reader(request, invoked + 1)))
        for number in range(count):
            invoked = self.now + (at[number] if at else self.random.randint(0, MS))
            request = self.world.request("phone", "a" if at else "ab"[number % 2], invoked,
                                         quantity or self.random.choice([1, 1, 1, 2, 3, 4]))
            heapq.heappush(turns, (invoked + 1, number, self.buyer(request, invoked + 1, begins and begins[number])))
        while turns:
            now, number, turn = heapq.heappop(turns)
            self.now = max(self.now, now)
            try:
                heapq.heappush(turns, (next(turn), number, turn))
            except StopIteration:
                pass
        self.now += 10 * MS
        return self

    # ---- The operator ----
    def switch(self, segments, naive=False):
        """PUT /lock at every instance."""
        self.segments, self.naive = segments, naive
        for name in self.world.events:
            self.now += 10
            self.world.add(name, self.now, "end")
            self.world.add(name, self.now, "begin", run=self.world.run["run"], rung=self.world.run["rung"],
                           write=self.world.run["write"], pid=1, format=2, segments=self.text(), **shop.CLOCK,
                           clock_ns_realtime=shop.EPOCH_MS * MS + self.now - self.world.t0)
        return self

    def restock(self, outcome="restock", came=True, **wanted):
        """wanted: add or set; it is laid over the segments that are set now."""
        number = sum(line["event"] == "restock_intent" for lines in self.world.events.values() for line in lines)
        told = {"thread": 1, "request": f"op-{number}", "item": "phone"}
        self.world.add("a", self.now + 1, "restock_intent", **told, **wanted)
        before = self.parts[:]
        if came:
            self.parts = level(wanted.get("set", sum(before) + wanted.get("add", 0)), self.segments)
        if outcome == "restock":
            more = {} if len(before) == len(self.parts) == 1 else {"parts_before": before, "parts_after": self.parts[:]}
            self.world.add("a", self.now + 2, "restock", **told, stock_before=sum(before), stock_after=sum(self.parts), **more)
        elif outcome:
            self.world.add("a", self.now + 2, outcome, **told)
        self.world.run["restocked"] = True
        self.now += MS
        return self

    def end(self):
        self.world.stock["phone"] = sum(self.parts)
        return shop.finish(self.world)
