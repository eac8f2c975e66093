#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients transfer money between accounts, while two instances of accountd and Redis are killed. No money appears or
vanishes, no version is written twice, and no two requests wait for each other.

    ACCOUNTD=build/dev/account/accountd tests/service/account_kills.py --seed 1 --transfers 200000 --every 1000 \
        --audit build/dev/audit/ladder-audit
"""
import argparse
import collections
import http.client
import itertools
import json
import os
import pathlib
import random
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), *(str(HERE.parent.parent / folder) for folder in ("flaws", "tests/support"))]

from account_records import Sampler, judged, moment, write_records  # noqa: E402
from killed_shop import KINDS, LOST, SAFE, KilledShop  # noqa: E402
from world import PATIENCE_S, Inventoryd, Redis, wait_until  # noqa: E402

SOUND = ("--lock", "fair", "--locks", "many", "--write", "script")
POINTS = ("account.read", "account.before_answer")
ACCOUNTS = [f"acc-{number:02}" for number in range(1, 21)]
BALANCE = 1000
CLIENTS = 12
TTL_MS = 1000


class KilledBank(KilledShop):
    """Each instance goes on in its history."""

    def start(self, name):
        return Inventoryd(self.folder, self.redis, *self.flags, "--history", os.path.join(self.folder, f"history-{name}.jsonl"),
                          name=name)


Told = collections.namedtuple("Told", "account change balance version")


class Client(threading.Thread):
    """Makes one transfer after the other, until so many are done."""

    def __init__(self, bank, number, count, seed):
        super().__init__(daemon=True)
        self.bank, self.count = bank, count
        self.chance = random.Random(f"{seed} client {number}")
        self.told, self.unknown = [], collections.Counter()  # by account
        self.connections = {}  # by port
        self.done, self.seen, self.error = 0, collections.Counter(), None
        self.number, self.sampler = number, Sampler()
        self.start()

    def run(self):
        try:
            while self.done < self.count:
                self.transfer(*self.chance.sample(ACCOUNTS, 2), self.chance.randint(1, 10))
        except BaseException as error:  # told by judge()
            self.error = error

    def transfer(self, source, to, amount):
        path, request = f"/transfers?from={source}&to={to}&amount={amount}", f"{self.number}-{sum(self.seen.values())}"
        self.sampler.begin()
        try:
            status, answer = self.post(path, request)
        except ConnectionRefusedError:
            time.sleep(0.02)
            return
        except LOST:
            answer, status = {"type": "lost"}, 502
        self.sampler.end(path, request, status, answer)
        what = "done" if status == 200 else answer["type"].rsplit(":", 1)[-1]
        self.seen[what] += 1
        if status == 200:
            self.told += [Told(source, -amount, answer["balance"], answer["version"]),
                          Told(to, amount, answer["to_balance"], answer["to_version"])]
            self.done += 1
        elif what in ("lost", "outcome-unknown"):
            self.unknown.update([source, to])
        else:
            assert status in (409, 503), answer
            time.sleep(self.chance.random() / 50)

    def post(self, path, request):
        """On a connection that is kept."""
        port = self.bank.any(self.chance).port
        connection = self.connections.pop(port, None) or http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        try:
            connection.request("POST", path, headers={"X-Request-Id": request})
            answer = connection.getresponse()
            said = answer.status, json.loads(answer.read())
        except BaseException:
            connection.close()
            raise
        self.connections[port] = connection
        return said


def judge_account(told, unknown, balance, version):
    """What is wrong with an account that has now this balance and this version. told: what answers said of it. unknown: how
    many transfers of it have an unknown outcome."""
    by_version = {1: Told(None, 0, BALANCE, 1)}
    for one in told:
        other = by_version.setdefault(one.version, one)
        if other is not one:
            yield f"its version {one.version} was written twice: {other}, {one}"
    for before, after in itertools.pairwise(sorted(by_version)):
        if after == before + 1 and by_version[before].balance + by_version[after].change != by_version[after].balance:
            yield f"it lost what came before its version {after}: {by_version[before]}, {by_version[after]}"
    if max(by_version) > version:
        yield f"it has version {version}, and {max(by_version)} was told"
    missing = version - len(by_version)
    if not 0 <= missing <= unknown:
        yield f"{missing} of its {version} versions were not told, and {unknown} transfers have an unknown outcome"
    if version in by_version and by_version[version].balance != balance:
        yield f"it has {balance} in its version {version}, and {by_version[version].balance} was told"


def judge(clients, left):
    """left: (balance, version) of each account."""
    faults = [f"a client: {client.error!r}" for client in clients if client.error]
    told, unknown = collections.defaultdict(list), collections.Counter()
    for client in clients:
        unknown.update(client.unknown)
        for one in client.told:
            told[one.account].append(one)
    for account, (balance, version) in left.items():
        faults += [f"{account}: {fault}" for fault in judge_account(told[account], unknown[account], balance, version)]
    total = sum(balance for balance, _ in left.values())
    if total != len(left) * BALANCE:
        faults.append(f"the balances are {total} in all, and were {len(left) * BALANCE}")
    waited = sum(client.seen["lock-timeout"] for client in clients)
    if waited:
        faults.append(f"{waited} transfers did not get their locks, though each lock is free after {TTL_MS} ms")
    return faults


def balances(instance):
    """(balance, version) of each account, as it answers."""
    left = {}
    for account in ACCOUNTS:
        wait_until(lambda: instance.ask("GET", f"/accounts/{account}").status == 200, "Redis answers")
        answer = instance.ask("GET", f"/accounts/{account}").json
        left[account] = answer["balance"], answer["version"]
    return left


def run(folder, transfers, seed, every, flags=SOUND, kinds=KINDS, wait_ms=20000, points=POINTS):
    """The faults that were found, and what was counted. The records are in folder/bank."""
    chance = random.Random(f"{seed} kills")
    redis = Redis(os.path.join(folder, "redis"), *SAFE)
    counts, bank, records = collections.Counter(), None, os.path.join(folder, "bank")
    try:
        bank = KilledBank(records, redis, (
            *flags, "--run", "kills", "--enable-failpoints", "--ttl-ms", TTL_MS, "--retry-ms", 2, "--redis-timeout-ms", 500,
            "--wait-ms", wait_ms), points)
        for account in ACCOUNTS:
            assert bank.instances["a"].admin("PUT", f"/accounts/{account}", '{"balance":%d}' % BALANCE).status == 200
        before = moment(redis, dict.fromkeys(ACCOUNTS, (BALANCE, 1)))
        clients = [Client(bank, number, transfers // CLIENTS + (number < transfers % CLIENTS), seed) for number in range(CLIENTS)]
        next_kill = chance.randint(1, 2 * every)
        while any(client.is_alive() for client in clients):
            time.sleep(0.01)
            counts["died at a point"] += bank.restart_dead()
            if sum(client.done for client in clients) >= next_kill:
                counts[bank.hurt(chance, kinds)] += 1
                next_kill = sum(client.done for client in clients) + chance.randint(1, 2 * every)
        bank.calm()
        for client in clients:
            counts.update(client.seen)
        left = balances(bank.instances["b"])
        for instance in bank.instances.values():
            instance.end()
        wait_until(lambda: not redis("EXISTS", *("lock:{%s}" % account for account in ACCOUNTS)), "the locks of the dead expire")
        said = dict(zip(flags[::2], flags[1::2]))
        write_records(records, {
            "run": "kills", "rung": said["--lock"], "write": said.get("--write", "script"), "locks": said["--locks"], "fault": "killed",
            "ttl_ms": TTL_MS, "wait_ms": wait_ms, "work_ms": int(said.get("--work-ms", 0)), "workers": 16,
        }, before, moment(redis, left), [client.sampler for client in clients])
        return judge(clients, left), dict(counts)
    finally:
        for instance in bank.instances.values() if bank else ():
            instance.kill()
        redis.kill()


def main():
    parser = argparse.ArgumentParser(description=" ".join(__doc__.split("\n\n")[0].split()))
    parser.add_argument("--transfers", type=int, default=20000)
    parser.add_argument("--every", type=int, default=500, help="so many transfers, on average, from one kill to the next")
    parser.add_argument("--seed", type=int, action="append", help="may be given several times")
    parser.add_argument("--spare-redis", action="store_true", help="do not kill Redis")
    parser.add_argument("--folder", help="where the records are kept; default: they are removed")
    parser.add_argument("--audit", metavar="LADDER-AUDIT", help="let this judge look at the records, too")
    arguments, flags = parser.parse_known_args()
    os.environ["INVENTORYD"] = os.environ["ACCOUNTD"]
    failed = False
    for seed in arguments.seed or [1]:
        with tempfile.TemporaryDirectory(prefix="account-") as folder:
            began_s = time.monotonic()
            faults, counts = run(arguments.folder or folder, arguments.transfers, seed, arguments.every, (*SOUND, *flags),
                                 [kind for kind in KINDS if kind != "redis" or not arguments.spare_redis])
            if arguments.audit:
                found, verdict = judged(arguments.audit, os.path.join(arguments.folder or folder, "bank"))
                faults, counts = faults + found, {**counts, "verdict": verdict["result"]}
        print(f"seed {seed}, {time.monotonic() - began_s:.0f} s: {counts}", *faults, sep="\n", flush=True)
        failed = failed or bool(faults)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
