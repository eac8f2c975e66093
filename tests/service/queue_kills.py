#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Buyers buy from instances with --on-conflict queue, while instances and Redis are killed. Each request has one
outcome, the units are exact, and each item's queue is processed in order.

    INVENTORYD=build/dev/service/inventoryd tests/service/queue_kills.py --requests 10000 --seed 1

What happened is read from Redis' append-only file, which has every write in its order: it is flushed before a reply."""
import argparse
import collections
import os
import pathlib
import random
import sys
import tempfile
import threading

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), *(str(HERE.parent.parent / folder) for folder in ("flaws", "tests/support"))]

from killed_shop import ITEMS, LOST, SAFE, KilledShop  # noqa: E402
from world import Redis, wait_until  # noqa: E402

POINTS = ("queue.accepted", "queue.taken", "queue.before_ack", "sale.entered", "sale.before_write", "sale.after_write")
BUYERS = 8
HOUR_MS = 3600000


def opened(folder, redis, lock, write):
    return KilledShop(folder, redis, (
        "--lock", lock, "--write", write, "--on-conflict", "queue", "--enable-failpoints", "--ttl-ms", 500,
        "--retry-ms", 2, "--queue-life-ms", HOUR_MS, "--redis-timeout-ms", 500), POINTS)


class Buyer(threading.Thread):
    """Sends each request again with its key, until an instance has accepted or decided it. Some are sent again all the
    same, as if the answer had been lost."""

    def __init__(self, shop, number, count, seed):
        super().__init__(daemon=True)
        self.shop, self.number, self.count = shop, number, count
        self.chance = random.Random(f"{seed} buyer {number}")
        self.requests = []  # (item, quantity, key, Location or None, the decided answer or None)
        self.error = None
        self.start()

    def run(self):
        try:
            for i in range(self.count):
                self.requests.append(self.buy(self.chance.choice(ITEMS), self.chance.randint(1, 3), f"{self.number}-{i}"))
        except BaseException as error:  # told by judge()
            self.error = error

    def buy(self, item, quantity, key):
        while True:
            try:
                reply = self.shop.any(self.chance).sell(item, quantity, key=key)
            except LOST:
                continue
            if reply.status in (200, 202, 409) and self.chance.random() < 0.1:
                continue
            if reply.status == 202:
                return item, quantity, key, reply.headers["location"], None
            if reply.status in (200, 409) and "idempotency-replayed" in reply.headers:
                return item, quantity, key, None, reply
            assert reply.status in (500, 503) or reply.problem == "request-in-flight", reply
            assert reply.status != 500 or reply.problem == "outcome-unknown", reply


def commands(redis):
    """What Redis wrote, in its order."""
    folder = pathlib.Path(redis.folder) / "appendonlydir"
    for file in sorted(folder.glob("*.incr.aof"), key=lambda path: int(path.name.split(".")[-3])):
        with open(file, "rb") as stream:
            while line := stream.readline():
                if line.startswith(b"*"):
                    words = []
                    for _ in range(int(line[1:])):
                        size = int(stream.readline()[1:])
                        words.append(stream.read(size).decode())
                        stream.read(2)
                    yield words


def judge_queues(redis):
    """Each entry was added and removed once, and per queue in order; each key has one entry and one outcome."""
    added, removed = collections.defaultdict(list), collections.defaultdict(list)
    keys, outcomes = collections.Counter(), collections.Counter()
    for words in commands(redis):
        name = words[0].upper()
        if name == "XADD":
            number = next(word for word in words[2:] if "-" in word and word.replace("-", "").isdigit())
            added[words[1]].append(number)
            keys[words[1], words[words.index("key") + 1]] += 1
        elif name == "XDEL":
            removed[words[1]].append(words[2])
        elif name == "SET" and ":key:" in words[1] and words[2] and not words[2].startswith("202 "):
            outcomes[words[1]] += 1
    faults = [f"{key} has {count} entries" for key, count in keys.items() if count != 1]
    faults += [f"{key} has {count} outcomes" for key, count in outcomes.items() if count != 1]
    faults += [f"{queue} was not processed in order" for queue, numbers in added.items() if numbers != removed[queue]]
    count = sum(len(numbers) for numbers in added.values())
    if len(outcomes) != count:
        faults.append(f"{count} entries have {len(outcomes)} outcomes")
    return faults, count


def judge_units(redis, stock, sold):
    """sold: of each item the units of each sale. Each unit of the stock was sold once, or is left."""
    faults = []
    for item in ITEMS:
        left = int(redis("GET", "inventory:{%s}" % item))
        units = sorted(sold[item])
        if units != list(range(left + 1, stock + 1)):
            faults.append(f"{item}: {len(units)} units were sold of {stock}, and {left} are left")
    return faults


def judge(shop, redis, buyers, stock, chance):
    faults = [f"buyer {buyer.number}: {buyer.error!r}" for buyer in buyers if buyer.error]
    sold = collections.defaultdict(list)
    for buyer in buyers:
        for item, quantity, key, location, reply in buyer.requests:
            reply = reply or shop.any(chance).ask("GET", location + "?wait=60")
            if reply.status == 200:
                answer = reply.json
                sold[item] += range(answer["unit"], answer["unit"] + answer["sold"])
                if answer["sold"] != quantity:
                    faults.append(f"{key}: {reply}")
            elif reply.status != 409:
                faults.append(f"{key}: {reply}")
    wait_until(lambda: all(redis("XLEN", "inventory:{%s}:queue" % item) == 0 for item in ITEMS), "the queues are empty")
    more, count = judge_queues(redis)
    return faults + more + judge_units(redis, stock, sold), count


def run(folder, requests, seed, every=60):
    """The faults that were found, and what was counted."""
    chance = random.Random(f"{seed} kills")
    lock, write = [("watchdog", "atomic"), ("fair", "fenced")][seed % 2]
    stock = requests * 2 // len(ITEMS) * 7 // 8  # of the items some are sold out
    redis = Redis(os.path.join(folder, "redis"), *SAFE)
    counts = collections.Counter()
    shop = None
    try:
        for item in ITEMS:
            redis("SET", "inventory:{%s}" % item, stock)
        shop = opened(os.path.join(folder, "shop"), redis, lock, write)
        buyers = [Buyer(shop, number, requests // BUYERS, seed) for number in range(BUYERS)]
        done, next_kill = 0, every
        while any(buyer.is_alive() for buyer in buyers):
            wait_until(lambda: sum(len(buyer.requests) for buyer in buyers) >= next_kill
                       or not any(buyer.is_alive() for buyer in buyers)
                       or shop.has_dead(), "buyers go on")
            counts["died at a point"] += shop.restart_dead()
            done = sum(len(buyer.requests) for buyer in buyers)
            if done >= next_kill:
                counts[shop.hurt(chance)] += 1
                next_kill = done + chance.randint(1, 2 * every)
        counts["died at a point"] += shop.restart_dead()
        shop.calm()
        faults, accepted = judge(shop, redis, buyers, stock, chance)
        return faults, {"accepted": accepted, **counts, "lock": lock, "write": write}
    finally:
        for instance in shop.instances.values() if shop else ():
            instance.kill()
        redis.kill()


def main():
    parser = argparse.ArgumentParser(description=" ".join(__doc__.split("\n\n")[0].split()))
    parser.add_argument("--requests", type=int, default=10000)
    parser.add_argument("--seed", type=int, action="append", help="may be given several times; odd: fenced, even: atomic")
    arguments = parser.parse_args()
    failed = False
    for seed in arguments.seed or [1, 2]:
        with tempfile.TemporaryDirectory(prefix="queue-") as folder:
            faults, counts = run(folder, arguments.requests, seed)
        print(f"seed {seed}: {counts}", *faults, sep="\n", flush=True)
        failed = failed or bool(faults)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
