# SPDX-License-Identifier: Apache-2.0
"""The stage of one demonstration: a redis-server, the instances of inventoryd that it needs, one item on
sale, and a test driver that lets them act one after the other. Everything is real, private to the stage, and
ended by its process id. Nothing is waited for by time: every wait is for a cause, with a limit behind
which the demonstration is broken off."""
import csv
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

from proxy import Proxy
from instance import ITEM, Instance
from redis_server import spawn
from waiting import PATIENCE_S, Inconclusive, wait_until
from witness import WitnessedRedis

DURABLE = ("--appendonly", "yes", "--appendfsync", "always")  # what it has answered survives its death
LOCK_KEY, STOCK_KEY = "lock:{phone}", "inventory:{phone}"
COUNT_KEY = f"{LOCK_KEY}:read_count"  # of who reads, where a rung counts them
SHORT_TTL_MS, LONG_TTL_MS = 500, 30000
RENEWED_TTL_MS = 2000  # of a lock that must live by its renewals: a machine that stalls for 600 ms is let pass
WAIT_MS = 3000  # how long a sale waits for a lock that never comes: far longer than a short one lives


def clients_clock():
    """The clock of the samples, for the judge."""
    try:
        namespace = os.readlink("/proc/self/ns/time")
    except OSError:
        namespace = "none"  # the kernel has none
    return {"boot_id": pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip(),
            "clock": "CLOCK_REALTIME", "time_namespace": namespace, "slack_ms": 2}


def new_folder(runs, name):
    """A folder that nobody else has, for a run that begins now."""
    pathlib.Path(runs).mkdir(parents=True, exist_ok=True)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{stamp}-{name}-", dir=runs))
    folder.chmod(0o755)
    return folder


class Stage:
    """One run of one scenario on one rung. Used by `with`: at its end nothing is left but the run's folder."""

    def __init__(self, rung, fault, inventoryd, auditor, runs, write="set", check_hold=False, stock=1, expect=None):
        self.rung, self.inventoryd, self.auditor = rung, inventoryd, auditor
        self.fault = fault + ("+check" if check_hold else "")
        self.write, self.check_hold, self.stock, self.expect = write, check_hold, stock, expect
        self.runs = pathlib.Path(runs)
        self.instances, self.sales, self.proxies, self.names, self.processes = {}, [], [], {}, []
        self.notes, self.seen = [], []
        self.crowd = set()  # the names of those whose sales are told together
        self.redis = self.lock_redis = None
        self.restocked = False  # whether the stock is changed while it is sold

    def __enter__(self):
        self.folder = new_folder(self.runs, f"{self.rung.name}-{self.fault.replace('+', '.')}")
        return self

    def __exit__(self, *_):
        for instance in self.instances.values():
            instance.end()
        for proxy in self.proxies:
            proxy.end()
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        for name in ("redis", "lock-redis", *(f"files-{name}" for name in self.instances)):
            shutil.rmtree(self.folder / name, ignore_errors=True)

    def spawn(self, *what):
        """A process of this stage, which ends it."""
        self.processes.append(spawn(*what))
        return self.processes[-1]

    # ---- setting up ----

    def open(self, lock_apart=False, durable=False):
        """Redis and the stock. lock_apart: the lock has a server of its own."""
        options = DURABLE if durable else ()
        self.redis = WitnessedRedis(self.folder / "redis", *options, spawn=self.spawn)
        self.lock_redis = self.redis
        if lock_apart:
            self.lock_redis = WitnessedRedis(self.folder / "lock-redis", *options, spawn=self.spawn)
        self.redis("SET", STOCK_KEY, self.stock)
        self.before = self.redis_side()

    def instance(self, name, ttl_ms, *flags, proxy=None):
        url = proxy.url if proxy else self.lock_redis.url
        self.ttl_ms = ttl_ms if not self.instances else self.ttl_ms  # the first one's is what may run out
        self.instances[name] = Instance(self, name, ttl_ms, flags, url)
        return self.instances[name]

    def proxy(self):
        self.proxies.append(Proxy(self.lock_redis))
        return self.proxies[-1]

    def new_name(self, instance):
        self.names[instance.name] = self.names.get(instance.name, 0) + 1
        return f"{instance.name}{self.names[instance.name]}"

    def add_sale(self, sale):
        self.sales.append(sale)
        return sale

    # ---- directing ----

    def note(self, text, seen=None):
        """What the test driver does or sees, for the transcript. Its time. seen: the same for the picture, in short."""
        self.notes.append((time.monotonic_ns(), text))
        if seen:
            self.seen.append({"t_ns": self.notes[-1][0], "text": seen})
        return self.notes[-1][0]

    def enter(self, instance, point, query="", or_else=lambda: False):
        """A sale of that instance (with None for its query: who only reads), up to the point, where it is paused; or
        the lock keeps it out, or_else something does. The sale, and whether it is at the point."""
        waited, asked, paused = instance.count("contended"), instance.count("attempts"), instance.paused(point)
        enough = asked + self.rung.asks_in_vain
        # Its client has the lock: it does not ask, it stands in the client's own line.
        in_line = self.rung.handoff and any(sale.instance is instance and not sale.answered for sale in self.sales)
        waiting = instance.waiting()
        instance.arm(point)
        sale = instance.sell(query) if query is not None else instance.read()

        def is_kept_out():
            if in_line:
                return instance.waiting() > waiting
            return instance.count("contended") > waited and instance.count("attempts") >= enough
        wait_until(lambda: instance.paused(point) > paused or is_kept_out() or sale.answered or or_else(),
                   f"{sale.name} comes to {point}, or waits")
        if sale.answered:
            raise Inconclusive(f"{sale.name} was answered before it came to {point}: {sale.answer}")
        return sale, instance.paused(point) > paused

    def park(self, instance, point, query=""):
        """The same where nothing keeps it out."""
        sale, inside = self.enter(instance, point, query)
        if not inside:
            raise Inconclusive(f"{sale.name} waits for a lock that should be free")
        return sale

    def wait_inside(self, sale, point):
        """A sale that waited for the lock has it, and is paused."""
        wait_until(lambda: sale.instance.paused(point) == 1, f"{sale.name} comes to {point}")
        self.note(f"{sale.name} has read the stock and pauses")
        return True

    def let_go(self, sale, point):
        """The sale that is paused there goes on. Said before it does."""
        self.note(f"{sale.name} goes on")
        sale.instance.let_go(point)

    def wait_answered(self, *sales):
        for sale in sales:
            wait_until(lambda: sale.answered, f"{sale.name} is answered", 2 * PATIENCE_S)

    def listeners(self):
        """The connections on which somebody waits for what the lock's Redis will say, each as CLIENT LIST has it."""
        lines = self.lock_redis("CLIENT", "LIST").splitlines()
        clients = [dict(word.split("=", 1) for word in line.split()) for line in lines]
        return [client for client in clients if {"P", "b"} & set(client["flags"])]

    def cut_listeners(self):
        """How many of them were cut."""
        return sum(self.lock_redis("CLIENT", "KILL", "ID", client["id"]) for client in self.listeners())

    def wait_second(self):
        """A second by Redis' own clock."""
        self.redis("SET", "a second", 1, "PX", 1000)
        wait_until(lambda: self.redis("EXISTS", "a second") == 0, "a second goes by")

    def wait_expired(self):
        """The lock's key goes by itself."""
        wait_until(lambda: self.lock_redis("EXISTS", LOCK_KEY) == 0, "the lock expires")
        self.note("the lock expires", "the lock expires")

    def handed_over(self):
        """Whether the lock was given to somebody who has not answered yet."""
        return self.rung.handoff and self.lock_redis("HGET", LOCK_KEY, "state") == "granted"

    def has_ttl(self):
        return self.lock_redis("PTTL", LOCK_KEY) >= 0

    def redis_side(self):
        """A lock is there, too, while readers are counted."""
        counted = self.lock_redis("GET", COUNT_KEY) not in (None, "0")
        key = COUNT_KEY if counted and self.lock_redis("EXISTS", LOCK_KEY) == 0 else LOCK_KEY
        kind, pttl = self.lock_redis("TYPE", key), self.lock_redis("PTTL", key)
        stock = self.redis("GET", STOCK_KEY)
        return {"stock": {ITEM: None if stock is None else int(stock)},
                "locks": {ITEM: {"type": kind, "pttl_ms": pttl}}}

    # ---- judging ----

    def judge(self):
        """Ends the instances in order and asks the judge. verdict.json, as it stands in the folder."""
        self.wait_answered(*self.sales)
        after = self.redis_side()
        self.ended_ns = time.monotonic_ns()
        for instance in self.instances.values():
            instance.end()
            if instance.complaint():
                raise RuntimeError(f"instance {instance.name}: {instance.complaint()}")
        write = lambda name, value: (self.folder / name).write_text(json.dumps(value) + "\n", encoding="utf-8")
        write("redis.json", {"before": self.before, "after": after})
        write("run.json", {
            "run": self.folder.name, "rung": self.rung.lock.name, "write": self.write, "fault": self.fault,
            "instances": list(self.instances), "workers": 4, "ttl_ms": self.ttl_ms, "work_ms": 0, "wait_ms": WAIT_MS,
            "keys": "item", "guard": "lock", "items": {ITEM: self.stock}, "requests": sum(sale.buys for sale in self.sales), "quantity": 1,
            "clients": clients_clock(), "scenario": self.fault, "min_share": 0, "expect": self.expect, "restocked": self.restocked, "direct": True, "annotations": self.seen})
        self.write_jtl()
        done = subprocess.run([str(self.auditor), str(self.folder)], capture_output=True, text=True, timeout=60)
        if done.returncode not in (0, 1, 2) or not (self.folder / "verdict.json").exists():
            raise Inconclusive(f"the judge ended with {done.returncode}: {done.stderr.strip()}")
        return json.loads((self.folder / "verdict.json").read_text(encoding="utf-8"))

    def write_jtl(self):
        with open(self.folder / "sale.jtl", "w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(["timeStamp", "elapsed", "label", "responseCode", "success", "failureMessage",
                           "request", "item", "instance", "unit", "left"])
            for sale in filter(lambda sale: sale.buys, self.sales):
                code = sale.status or "Non HTTP response code: java.net.SocketException"
                rows.writerow([int(sale.at_s * 1000), sale.took_ms, f"POST /inventory/{ITEM}/sale", code,
                               "true" if sale.status in (200, 409, 503) else "false", "", sale.name, ITEM,
                               sale.instance.name if sale.status else "", sale.body.get("unit", ""), sale.body.get("left", "")])
