#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Buyers buy from instances under a policy, while instances and Redis are killed. No unit is sold twice, none appears or
vanishes without a sale of unknown outcome, and nobody is refused while there is enough.

    INVENTORYD=build/dev/service/inventoryd tests/service/policy_kills.py --seed 1 --requests 2000
"""
import argparse
import collections
import os
import pathlib
import random
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), *(str(HERE.parent.parent / folder) for folder in ("flaws", "tests/support"))]

from killed_shop import ITEMS, LOST, SAFE, KilledShop  # noqa: E402
from world import Redis, wait_until  # noqa: E402

POINTS = ("sale.entered", "sale.after_read", "sale.between_segments", "sale.before_write", "sale.after_write")
POLICIES = {
    "wait": ("--lock", "fair", "--write", "decr"),
    "fail": ("--lock", "fair", "--write", "set", "--on-conflict", "fail"),
    "local-first": ("--lock", "watchdog", "--write", "decr", "--local-first"),
    "cas": ("--lock", "none", "--write", "cas"),
    "admit": ("--lock", "notify", "--write", "atomic", "--admit", "100000,50"),
    "segments": ("--lock", "watchdog", "--write", "decr", "--segments", 4),
    "segments-fair": ("--lock", "fair", "--write", "set", "--segments", 5),
    "segments-fail": ("--lock", "notify", "--write", "atomic", "--segments", 16, "--on-conflict", "fail"),
    "segments-none": ("--lock", "none", "--write", "atomic", "--segments", 3),
}
BUYERS = 12
TTL_MS = 2000  # longer than a stall of the machine: no lock that expires can protect a plain write from one


def opened(folder, redis, policy):
    return KilledShop(folder, redis, (
        *POLICIES[policy], "--enable-failpoints", "--ttl-ms", TTL_MS, "--retry-ms", 2, "--redis-timeout-ms", 500), POINTS)


class Buyer(threading.Thread):
    """Buys one after the other."""

    def __init__(self, shop, number, count, seed):
        super().__init__(daemon=True)
        self.shop, self.count = shop, count
        self.chance = random.Random(f"{seed} buyer {number}")
        self.bought = collections.defaultdict(list)  # by item: its units
        self.unknown, self.refused = collections.Counter(), collections.defaultdict(list)
        self.done, self.seen, self.error = 0, collections.Counter(), None
        self.start()

    def run(self):
        try:
            for _ in range(self.count):
                self.buy(self.chance.choice(ITEMS), self.chance.choice([1, 1, 2, 3, 9]))
                self.done += 1
        except BaseException as error:  # told by judge()
            self.error = error

    def buy(self, item, quantity):
        """Asks again while nothing was sold for a reason that passes."""
        while not self.ask(item, quantity):
            time.sleep(self.chance.random() / 50)

    def ask(self, item, quantity):
        """Whether the buyer has an answer that ends it; or may have bought, and does not know."""
        try:
            reply = self.shop.any(self.chance).sell(item, quantity)
        except ConnectionRefusedError:
            return False
        except LOST:
            self.unknown[item] += quantity
            self.seen["lost"] += 1
            return True
        self.seen["sold" if reply.status == 200 else reply.problem] += 1
        if reply.status == 200:
            self.bought[item] += units_of(reply.json)
        elif reply.problem == "outcome-unknown":
            self.unknown[item] += quantity
        elif reply.status == 409:
            self.refused[item].append(quantity)
        else:
            assert reply.status in (429, 503), reply
            return False
        return True


def units_of(answer):
    parts = answer.get("parts", [{"unit": answer["unit"], "quantity": answer["sold"]}])
    step = answer.get("segments", 1)
    units = [part["unit"] + step * number for part in parts for number in range(part["quantity"])]
    assert len(units) == answer["sold"], answer
    return units


def judge(buyers, left, stock):
    faults = [f"a buyer: {buyer.error!r}" for buyer in buyers if buyer.error]
    for item in ITEMS:
        units = [unit for buyer in buyers for unit in buyer.bought[item]]
        unknown = sum(buyer.unknown[item] for buyer in buyers)
        twice = [unit for unit, count in collections.Counter(units).items() if count > 1]
        missing = stock - left[item] - len(units)
        if twice or not set(units) <= set(range(1, stock + 1)):
            faults.append(f"{item}: sold twice: {twice}; no such units: {sorted(set(units) - set(range(1, stock + 1)))}")
        if not 0 <= missing <= unknown:
            faults.append(f"{item}: {missing} are missing of {stock}, sales of unknown outcome had {unknown}")
        most = min((quantity for buyer in buyers for quantity in buyer.refused[item]), default=None)
        if most is not None and left[item] >= most:
            faults.append(f"{item}: {left[item]} are left, and one that asked for {most} was refused")
    return faults


def run(folder, policy, requests, seed, every=60):
    """The faults that were found, and what was counted."""
    chance = random.Random(f"{seed} kills")
    stock = requests * 3 // len(ITEMS) * 3 // 4 | 1  # of the items some are sold out
    redis = Redis(os.path.join(folder, "redis"), *SAFE)
    counts, shop = collections.Counter(), None
    try:
        shop = opened(os.path.join(folder, "shop"), redis, policy)
        for item in ITEMS:
            assert shop.instances["a"].admin("PUT", f"/inventory/{item}", '{"stock":%d}' % stock).status == 200
        buyers = [Buyer(shop, number, requests // BUYERS, seed) for number in range(BUYERS)]
        next_kill = every
        while any(buyer.is_alive() for buyer in buyers):
            wait_until(lambda: sum(buyer.done for buyer in buyers) >= next_kill
                       or not any(buyer.is_alive() for buyer in buyers)
                       or shop.has_dead(), "buyers go on")
            counts["died at a point"] += shop.restart_dead()
            if sum(buyer.done for buyer in buyers) >= next_kill:
                counts[shop.hurt(chance)] += 1
                next_kill += chance.randint(1, 2 * every)
        counts["died at a point"] += shop.restart_dead()
        left = {item: shop.instances["a"].ask("GET", f"/inventory/{item}").json["stock"] for item in ITEMS}
        for buyer in buyers:
            counts.update(buyer.seen)
        return judge(buyers, left, stock), dict(counts)
    finally:
        for instance in shop.instances.values() if shop else ():
            instance.kill()
        redis.kill()


def main():
    parser = argparse.ArgumentParser(description=" ".join(__doc__.split("\n\n")[0].split()))
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--policy", action="append", choices=POLICIES, help="only this one; may be given several times")
    parser.add_argument("--seed", type=int, action="append", help="may be given several times")
    arguments = parser.parse_args()
    failed = False
    for seed in arguments.seed or [1]:
        for policy in arguments.policy or POLICIES:
            with tempfile.TemporaryDirectory(prefix="policy-") as folder:
                faults, counts = run(folder, policy, arguments.requests, seed)
            print(f"seed {seed}, {policy}: {counts}", *faults, sep="\n", flush=True)
            failed = failed or bool(faults)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
