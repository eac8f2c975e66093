# SPDX-License-Identifier: Apache-2.0
"""Runs that might have happened: workers of several instances, a lock that keeps apart what its
rung keeps apart, and the article's sale between reading and writing."""
import heapq

import shop
from shop import MS


def scope(rung, instance, item):
    """Who shares a mutex: nobody, the threads of a process, or all."""
    if rung == "none":
        return None
    return (instance if rung == "local" else "all", item)


class Simulation:
    def __init__(self, seed, requests, workers=4, **asked):
        self.world = shop.World(seed)
        shop.start(self.world, **asked)
        self.world.t0 = 50_000 * MS
        for lines in self.world.events.values():
            for line in lines:
                line["t_ns"] = self.world.t0 - 1000
        self.heap, self.ticket = [], 0
        run = self.world.run
        self.queue = {i: [] for i in run["instances"]}
        self.held, self.waiting = set(), {}
        items = list(run["items"])
        for i in range(requests):
            instance = run["instances"][i % len(run["instances"])]
            request = self.world.request(self.world.random.choice(items), instance,
                                         self.world.t0 + self.between(0, 4))
            self.queue[instance].append(request)
        for instance in run["instances"]:
            self.queue[instance].sort(key=lambda r: -r["t_ns"])
            for _ in range(workers):
                self.at(self.world.t0 + self.between(4, 5), self.take, instance)

    def between(self, low, high):
        return int(self.world.random.uniform(low, high) * MS)

    def at(self, t_ns, what, *arguments):
        self.ticket += 1
        heapq.heappush(self.heap, (t_ns, self.ticket, what, arguments))

    def run(self):
        while self.heap:
            t_ns, _, what, arguments = heapq.heappop(self.heap)
            what(t_ns, *arguments)
        return shop.finish(self.world)

    # ---- what a worker does, step by step ----
    def take(self, now, instance):
        if self.queue[instance]:
            self.ask(now, self.queue[instance].pop())

    def ask(self, now, request):
        mutex = scope(self.world.run["rung"], request["instance"], request["item"])
        if mutex in self.held:
            self.waiting.setdefault(mutex, []).append(request)
            return
        if mutex:
            self.held.add(mutex)
        section = self.world.section(request, (now, now + 2000))
        self.at(now + 2000 + self.between(0.1, 0.3), self.read, section)

    def read(self, now, section):
        world, request = self.world, section["request"]
        before = world.stock[request["item"]]
        atomic = world.run["write"] == "atomic"
        if atomic and before > 0:
            world.stock[request["item"]] -= 1
        if before < 1:
            section["read"] = world.about(request, now, "read", hold=section["hold"],
                                          stock_before=before)
            self.at(now + 2000, self.leave, section, 409)
        elif atomic:
            world.sell(section, now, now + 1000, before)
            self.at(now + 3000, self.leave, section, 200)
        else:
            section["before"] = (now, before)
            self.at(now + self.between(1, 1.4), self.write, section)

    def write(self, now, section):
        world, item = self.world, section["request"]["item"]
        read_ns, before = section["before"]
        if world.run["write"] == "set":
            world.stock[item] = before - 1
        else:
            world.stock[item] -= 1
        world.sell(section, read_ns, now, before, after=world.stock[item])
        self.at(now + 3000, self.leave, section, 200)

    def leave(self, now, section, code):
        world, request = self.world, section["request"]
        release = now + self.between(0.1, 0.2)
        world.leave(section, now, release)
        if code == 409:
            world.refuse(request, release, 409, "sold-out")
        mutex = scope(world.run["rung"], request["instance"], request["item"])
        self.held.discard(mutex)
        if self.waiting.get(mutex):
            waiting = self.waiting[mutex]
            self.at(release, self.ask, waiting.pop(world.random.randrange(len(waiting))))
        self.at(release + 1000, self.take, request["instance"])


def simulate(seed, requests, **asked):
    return Simulation(seed, requests, **asked).run()
