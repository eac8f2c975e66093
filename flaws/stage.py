# SPDX-License-Identifier: Apache-2.0
"""The stage of a demonstration with the shop: the servers of its stock and of its lock, the instances of inventoryd that
it needs, and one item on sale."""
import functools
import pathlib
import struct

import etcds
import lock_watch
import stocks
import transcript
import zookeepers
from base_stage import CHANGES_MAX, LONG_TTL_MS, RENEWED_TTL_MS, SHORT_TTL_MS, WAIT_MS, BaseStage
from ports import free_port
from proxy import Proxy, ReplicationProxy
from records import clients_clock
from sentinels import Group
from shop_instance import ITEM, ShopInstance
from waiting import Inconclusive, wait_until
from witness import WitnessedRedis

__all__ = ["LONG_TTL_MS", "RENEWED_TTL_MS", "SHORT_TTL_MS"]  # for scenarios

DURABLE = ("--appendonly", "yes", "--appendfsync", "always")  # what it has answered survives its death
LOCK_KEY, STOCK_KEY, EPOCH_KEY = "lock:{phone}", "inventory:{phone}", "inventory:epoch"
IDENTITY_KEY = "dlock:identity"  # of a lock's server
SET_IDENTITY_KEY = "dlock:identity:set"  # of all servers of a lock that a majority of them grants
COUNT_KEY = f"{LOCK_KEY}:read_count"  # how many readers are inside, where a rung counts them
LOCK_SERVERS = 5  # of a rung that a majority of several grants
SEVERAL_TTL_MS = 600000  # of a lock on those; its first renewal comes after 20 s if a server was late to grant it
FAILOVER_TTL_MS = 120000  # not renewed before the sentinels have promoted a replica
CUT_OFF_TTL_MS = 6000  # of a lock in an ensemble whose holder is cut off from it
LASTING_TTL_MS = 20000  # of a lock in an ensemble that loses a server: longer than others take to lead
CROWD_TTL_MS = 600000  # of one with a crowd of waiters, which would look again by themselves after half of it
ENSEMBLES = {"zookeeper": zookeepers.Ensemble, "etcd": etcds.Cluster}


class Stage(BaseStage):
    """One run of one scenario on one rung."""
    samples = "sale.jtl"
    spawned = ("redis", "group", "ensemble", *(f"lock-{number}" for number in range(LOCK_SERVERS)))

    def __init__(self, rung, fault, inventoryd, auditor, runs, write="set", check_hold=False, stock=1, expect=None):
        super().__init__(rung, fault + ("+check" if check_hold else ""), auditor, runs, LOCK_KEY, expect)
        self.inventoryd, self.write, self.check_hold, self.stock = inventoryd, write, check_hold, stock
        self.settings = {"segments": "1", **rung.settings}  # of the shop: as its flags have them, and run.json
        self.proxies, self.queue_watch = [], None
        self.clocks = {}  # the files that set the clocks of these servers
        self.masters = []  # that the group has had: (since when, name, server)
        self.restocked = False  # whether the stock is changed while it is sold

    @property
    def sales(self):
        return self.requests

    @property
    def asks(self):
        return "asked" if self.ensemble else "to Redis"

    def end_servers(self):
        if self.queue_watch:
            self.queue_watch.end()
        if self.ensemble:
            self.ensemble.end()
        for proxy in self.proxies:
            proxy.end()

    # ---- setting up ----

    def open(self, lock_apart=False, durable=False, clocks=False, several=LOCK_SERVERS, **of_ensemble):
        """Redis and the stock. lock_apart: the lock has a server of its own; where a majority of several grants it, it
        always has so many. clocks: those of the lock's servers can be made to jump."""
        options = DURABLE if durable else ()
        self.redis = self.server("redis", options)
        self.stock_url = self.redis.url
        if self.rung.ensemble:
            self.open_ensemble(**of_ensemble)
            return
        count = several if self.rung.quorum else int(lock_apart)
        self.lock_servers = [self.server(f"lock-{number}", options, clocks) for number in range(count)] or [self.redis]
        self.lock_redis = self.lock_servers[0]
        if self.rung.quorum:
            for server in self.lock_servers:
                server("SET", SET_IDENTITY_KEY, "1:the-set")  # as if they had been in use
        self.lock_url = self.lock_redis.url
        self.begin()

    def open_ensemble(self, **how):
        """Three servers for the lock alone, of the rung's kind; how: as their kind has it."""
        self.ensemble = ENSEMBLES[self.rung.engine](self.folder / "ensemble", spawn=self.spawn, **how)
        self.ensemble.start()
        self.queue_watch = lock_watch.QueueWatch(self.ensemble, LOCK_KEY)
        self.begin()

    def server(self, name, options=(), clock=False):
        prefix = ()
        if clock:
            file = self.folder / f"{name}.clock"
            file.write_bytes(bytes(8))
            prefix = ("env", f"LD_PRELOAD={self.built('clock_jump.so')}", f"CLOCK_JUMP={file}")
        server = WitnessedRedis(self.folder / name, *options, key=LOCK_KEY, spawn=self.spawn, prefix=prefix)
        if clock:
            self.clocks[server] = file
        return server

    def built(self, name):
        """What demonstrations need is built beside the programs."""
        found = pathlib.Path(self.inventoryd).resolve().parents[1] / "flaws" / name
        if not found.exists():
            raise Inconclusive(f"there is no {found}: build the target demonstrations")
        return found

    def open_group(self, stock_too=False):
        """The lock has a group of servers that sentinels watch; the stock has a server of its own, or is there, too.
        Where a majority of several servers grants the lock, it has those, and the stock alone may be on a group."""
        if self.rung.quorum and not stock_too:
            self.open()
            return
        server = functools.partial(WitnessedRedis, key=LOCK_KEY)
        self.group = Group(self.folder / "group", server, self.replication_proxy, spawn=self.spawn)
        self.lock_redis = self.group.nodes[0]
        self.masters = [(0, "old", self.lock_redis)]
        self.lock_url = self.stock_url = self.group.url
        self.redis, self.lock_servers = self.lock_redis, [self.lock_redis]
        if not stock_too:
            self.redis = self.server("redis")
            self.stock_url = self.redis.url
        if self.rung.quorum:
            self.lock_servers = [self.server(f"lock-{number}") for number in range(LOCK_SERVERS)]
        self.lock_redis("SET", IDENTITY_KEY, "the group")  # as if it had been in use
        self.begin()

    def replication_proxy(self, master):
        self.replication = ReplicationProxy(master)
        self.proxies.append(self.replication)
        return self.replication

    def begin(self):
        stocks.lay(self.redis, STOCK_KEY, self.stock, int(self.settings["segments"].rpartition(":")[2]), self.write == "cas")
        self.before = self.redis_side()

    @property
    def needed(self):
        """How many of the lock's servers grant it."""
        return len(self.lock_servers) // 2 + 1

    def lock_flags(self, proxy, reaches):
        """Where an instance finds the lock. proxy: before its first server; reaches: so many servers, None: all, or these
        of an ensemble."""
        if self.ensemble:
            return "--lock-servers", self.ensemble.url(*reaches or ())
        if not self.rung.quorum:
            return "--lock-redis", proxy.url if proxy else self.lock_url
        urls = [proxy.url if proxy else self.lock_servers[0].url]
        urls += [server.url for server in self.lock_servers[1:reaches]]
        urls += [f"redis://127.0.0.1:{free_port()}" for _ in self.lock_servers[len(urls):]]
        return "--lock-servers", ",".join(urls)

    def instance(self, name, ttl_ms, *flags, proxy=None, reaches=None):
        self.ttl_ms = ttl_ms if not self.instances else self.ttl_ms  # the first instance's hold is the one that expires
        self.instances[name] = ShopInstance(self, name, ttl_ms, flags, self.lock_flags(proxy, reaches))
        return self.instances[name]

    def proxy(self):
        self.proxies.append(Proxy(self.lock_redis))
        return self.proxies[-1]

    # ---- directing ----

    def kept_out(self, instance):
        is_kept_out = super().kept_out(instance)
        # Its client has the lock: the sale sends no request, it waits in the client's wait queue.
        in_client_queue = self.rung.handoff and any(sale.instance is instance and not sale.answered for sale in self.sales)
        waiting = instance.waiting()
        before = self.ensemble.queue(LOCK_KEY) if self.ensemble else []
        if self.ensemble:
            return lambda: before and len(self.ensemble.queue(LOCK_KEY)) > len(before)
        return (lambda: instance.waiting() > waiting) if in_client_queue else is_kept_out

    def enter(self, instance, point, query="", or_else=lambda: False):
        """Starts a sale of that instance (a read if query is None), and waits until it is paused at the point, or waits
        for the lock, or or_else() is true. Returns the sale, and whether it is at the point."""
        return self.begin_request(instance, point, lambda: instance.sell(query) if query is not None else instance.read(), or_else)

    def park(self, instance, point, query=""):
        """As enter(), where the lock must be free. Returns the sale."""
        sale, inside = self.enter(instance, point, query)
        if not inside:
            raise Inconclusive(f"{sale.name} waits for a lock that should be free")
        return sale

    def wait_inside(self, sale, point):
        """Waits until a sale that waited for the lock has it and is paused, after it has read the stock."""
        wait_until(lambda: sale.instance.paused(point) == 1, f"{sale.name} comes to {point}")
        self.note(f"{sale.name} has read the stock and pauses")
        return True

    def listeners(self):
        """The connections that wait for a message or a list element of the lock's Redis (subscribed or blocked), each as
        CLIENT LIST has it."""
        lines = self.lock_redis("CLIENT", "LIST").splitlines()
        clients = [dict(word.split("=", 1) for word in line.split()) for line in lines]
        return [client for client in clients if {"P", "b"} & set(client["flags"]) and client["addr"] not in self.lock_redis.own]

    def cut_listeners(self):
        """Closes these connections. Returns how many."""
        return sum(self.lock_redis("CLIENT", "KILL", "ID", client["id"]) for client in self.listeners())

    def wait_replicated(self):
        """WAIT is about its own connection's writes, so there is one."""
        wait_until(lambda: self.lock_redis("SET", "replicated", 1, "PX", 1) == "OK" and self.lock_redis("WAIT", 2, 1000) == 2,
                   "the replicas have it all")

    def hold_replication(self):
        """From now on the group's replicas get nothing. They have all that was written so far."""
        if not self.group:
            return
        self.wait_replicated()
        self.replication.hold()
        self.note("what the master sends its replicas is held back on the way", "replication is held back")

    def fail_over(self):
        """The group's master dies, the sentinels promote a replica, and the other one follows it. Where there is no group,
        one of the lock's servers dies."""
        if not self.group:
            self.kill_lock_servers(1)
            return
        former = self.lock_redis
        former.wait_told()
        former.kill()
        self.replication.down()
        since_ns = self.note("the old master dies", "the old master dies")
        self.lock_redis = self.group.fail_over()
        self.lock_redis.promoted()
        if not self.rung.quorum:
            self.lock_servers = [self.lock_redis]
        self.group.await_ready(replicas=1)
        self.masters.append((since_ns, "new", self.lock_redis))
        if self.redis is former:
            self.redis = self.lock_redis
        self.note("the sentinels promote a replica: it is the new master", "a replica is promoted")

    def kill_lock_servers(self, count):
        """So many of them, the last first."""
        victims = self.lock_servers[-count:]
        for server in victims:
            server.wait_told()
            server.kill()
        said = f"{self.numbers(victims)} of the lock {'die' if len(victims) > 1 else 'dies'}"
        self.note(said, said)
        return victims

    def numbers(self, servers):
        """These servers of the lock, as the transcript calls them."""
        if len(self.lock_servers) == 1:
            return "the only server"
        numbers = [str(self.lock_servers.index(server) + 1) for server in servers]
        return f"server{'s' if len(numbers) > 1 else ''} {', '.join(numbers[:-1])}{' and ' if numbers[1:] else ''}{numbers[-1]}"

    def jump_clocks(self, servers, ms):
        """Their wall clocks jump ahead by so much."""
        for server in servers:
            before = int(server("TIME")[0])
            with open(self.clocks[server], "r+b", buffering=0) as clock:  # cut short, it would end the server by SIGBUS
                clock.write(struct.pack("q", ms * 1000))
            wait_until(lambda: int(server("TIME")[0]) >= before + ms // 1000, "the clock has jumped")
        whose = "its clock jumps" if len(self.lock_servers) == 1 else f"the clocks of {self.numbers(servers)} jump"
        self.note(f"{whose} ahead by {ms // 1000} s", whose)

    def place_of(self, event):
        """What a command was sent to, where the lock has several servers: "lock" or "stock"; of a group, which server."""
        if self.ensemble:
            return "stock"
        if self.rung.quorum:
            return "lock" if event["server"].startswith(tuple(f"{one.url}/" for one in self.lock_servers + self.proxies)) else "stock"
        if not self.group:
            return ""
        if self.stock_url != self.lock_url and {STOCK_KEY, EPOCH_KEY} & set(event["sent"].split()):
            return "stock"
        return [name for since_ns, name, _ in self.masters if since_ns <= event["sent_ns"]][-1]

    @property
    def servers(self):
        return {*super().servers, *(server for _, _, server in self.masters)}

    def wait_second(self):
        """Waits for a second by Redis' own clock."""
        self.redis("SET", "a second", 1, "PX", 1000)
        wait_until(lambda: self.redis("EXISTS", "a second") == 0, "a second goes by")

    def wait_on_all(self):
        """A lock on several servers is granted when most have said so: waits until all have its key."""
        if self.rung.quorum:
            wait_until(lambda: len(self.having_key()) == len(self.lock_servers), "all servers have the lock's key")

    def tell_left_behind(self):
        """Which servers of the lock that run have its key after a sale has been refused."""
        if not self.rung.quorum:
            return
        wait_until(lambda: not self.having_key(), "no server has the lock's key")
        self.note(f"none of {self.numbers([one for one in self.lock_servers if one.lives])} has the lock's key")

    def handed_over(self):
        """Whether the server granted the lock to a client that has not taken it yet."""
        return self.rung.handoff and self.lock_redis("HGET", LOCK_KEY, "state") == "granted"

    def redis_side(self):
        """Stock and lock. While readers are counted, their count is the lock."""
        having = self.having_key()
        asked = [server for server in self.lock_servers if server.lives and server("GET", COUNT_KEY) not in (None, "0")]
        key, asked = (LOCK_KEY, having) if having or not asked else (COUNT_KEY, asked)
        kind, pttl = "none", -2
        if len(asked) >= self.needed:
            kind, pttl = asked[0]("TYPE", key), asked[0]("PTTL", key)
        lock, parts = {"type": kind, "pttl_ms": pttl}, stocks.parts(self.redis, STOCK_KEY)
        if parts:  # the lock is a key of one server then
            keys = [LOCK_KEY, *(f"{LOCK_KEY}:{segment}" for segment in range(2, len(parts) + 1))]
            lock = [{"type": self.lock_redis("TYPE", key), "pttl_ms": self.lock_redis("PTTL", key)} for key in keys]
        return {"stock": {ITEM: stocks.left(self.redis, STOCK_KEY)}, "locks": {ITEM: lock},
                **({"parts": {ITEM: parts}} if parts else {}), "queues": {ITEM: self.redis("XLEN", f"{STOCK_KEY}:queue")}}

    def lock_changes(self):
        """How the lock's key changed, for the picture. Empty if the lock is no key in Redis, or if the key is only
        half of it: rw_counter counts its readers in another one."""
        if self.rung.shared and not self.rung.expires:
            return []
        if self.ensemble:
            self.queue_watch.end()
            told = self.queue_watch.told(transcript.Names(self), transcript.in_order(self, "granted"))
            return lock_watch.thinned(list(told), CHANGES_MAX)
        told_by = self.change_teller()
        if self.rung.quorum:
            told = list(lock_watch.agreed([told_by(server) for server in self.lock_servers], self.needed))
        else:
            told = told_by(*([server for _, _, server in self.masters] or self.lock_servers))
        return lock_watch.thinned(told, CHANGES_MAX)

    # ---- judging ----

    def run_json(self):
        return {
            "run": self.folder.name, "rung": self.rung.lock.name, "write": self.write, "fault": self.scenario,
            **self.settings, "instances": list(self.instances), "workers": 4, "ttl_ms": self.ttl_ms, "work_ms": 0, "wait_ms": WAIT_MS,
            "keys": "item", "guard": "lock", "items": {ITEM: self.stock}, "requests": sum(sale.buys for sale in self.sales), "quantity": 1,
            "clients": clients_clock(), "scenario": self.scenario, "min_share": 0, "expect": self.expect, "restocked": self.restocked, "direct": True, "annotations": self.seen,
            "lock_changes": self.lock_changes()}

    def write_rows(self, rows):
        rows.writerow(["timeStamp", "elapsed", "label", "responseCode", "success", "failureMessage",
                       "request", "item", "instance", "unit", "left", "sale"])
        for sale in filter(lambda sale: sale.buys or sale.accepted, self.sales):
            label = f"POST /inventory/{ITEM}/sale" if sale.buys else "GET outcome"
            accepted = sale.accepted.body["id"] if sale.accepted else sale.body["id"] if sale.status == 202 else ""
            code = sale.status or "Non HTTP response code: java.net.SocketException"
            rows.writerow([int(sale.at_s * 1000), sale.took_ms, label, code,
                           "true" if sale.status in (200, 202, 409, 503) else "false", "", sale.name, ITEM,
                           sale.instance.name if sale.status else "", sale.body.get("unit", ""), sale.body.get("left", ""), accepted])
