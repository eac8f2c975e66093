# SPDX-License-Identifier: Apache-2.0
"""A master, two replicas, and three sentinels that watch them, with the settings of deploy/sentinel."""
import contextlib
import pathlib
import shlex

import waiting
from ports import free_port
from redis_server import Connection, Redis, spawn

SHIPPED = pathlib.Path(__file__).resolve().parents[1] / "deploy" / "sentinel"
PATIENCE_S = 60  # a sentinel that got no processor for 2 s decides nothing for 30 s


def wait_until(condition, what):
    return waiting.wait_until(condition, what, PATIENCE_S)


def shipped(name):
    """The settings of a shipped file, as lists of words."""
    lines = (SHIPPED / name).read_text(encoding="utf-8").splitlines()
    return [shlex.split(line) for line in lines if line.strip() and not line.startswith("#")]


def as_options(settings):
    return [word for name, *values in settings if name not in ("bind", "port") for word in (f"--{name}", *values)]


class Sentinel:
    """Only an order makes it promote a replica: a busy machine makes servers look dead."""

    def __init__(self, folder, master_port, spawn=spawn):
        folder.mkdir()
        self.port = free_port()
        own = {"port": [str(self.port)], "sentinel monitor": ["shop", "127.0.0.1", str(master_port), "2"],
               "sentinel down-after-milliseconds": ["shop", "20000"]}
        lines = [f"dir {folder}"]
        for words in shipped("sentinel.conf"):
            name = " ".join(words[:2]) if words[0] == "sentinel" else words[0]
            lines.append(" ".join([name, *own.pop(name, words[len(name.split()):])]))
        assert not own
        (folder / "sentinel.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")
        self.spawn = lambda: spawn(["redis-server", str(folder / "sentinel.conf"), "--sentinel"])
        self.start()

    def start(self):
        self.process = self.spawn()
        wait_until(self.answers, "the sentinel answers")
        self("SENTINEL", "DEBUG", "info-period", 500, "publish-period", 200)  # ms; 10000 and 2000 are long waits

    def answers(self):
        with contextlib.suppress(OSError):
            return self("PING") == "PONG"
        return False

    def __call__(self, *words):
        with contextlib.closing(Connection(self.port)) as connection:
            return connection(*words)

    def fields(self):
        words = self("SENTINEL", "MASTER", "shop")
        return dict(zip(words[::2], words[1::2]))

    def kill(self):
        self.process.kill()
        self.process.wait()


class Group:
    def __init__(self, folder, server=Redis, front=lambda master: master, **how):
        """server: makes a redis-server from a folder and options. front: what has the port at which all others know
        the first master."""
        options = as_options(shipped("redis.conf"))
        master = server(folder / "0", *options, **how)
        self.port = front(master).port
        replica_of = ("--replicaof", "127.0.0.1", str(self.port))
        self.nodes = [master] + [server(folder / str(number), *options, *replica_of, **how) for number in (1, 2)]
        self.watchers = [Sentinel(folder / f"sentinel-{number}", self.port, **how) for number in range(3)]
        self.await_ready()

    @property
    def hosts(self):
        return ",".join(f"127.0.0.1:{watcher.port}" for watcher in self.watchers)

    @property
    def url(self):
        return f"sentinel://{self.hosts}/shop"

    def port_of(self, node):
        return self.port if node is self.nodes[0] else node.port

    def named(self):
        """The node that all sentinels name; None: they differ."""
        ports = {watcher("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "shop")[1] for watcher in self.watchers}
        return next((node for node in self.nodes if {str(self.port_of(node))} == ports), None)

    def await_ready(self, replicas=2):
        def is_ready():
            states = [watcher.fields() for watcher in self.watchers]
            return all((state["flags"], state["num-other-sentinels"], state["num-slaves"]) == ("master", "2", "2")
                       for state in states) and self.named()("INFO", "replication").count("state=online") == replicas
        wait_until(is_ready, "the sentinels and the replicas know each other")

    def fail_over(self):
        former = self.named()

        def is_over():
            state = self.watchers[0].fields()
            if state["port"] == str(self.port_of(former)) and "failover_in_progress" not in state["flags"]:
                self.watchers[0]("SENTINEL", "FAILOVER", "shop")  # again: it gives an order up if a replica is silent
            return self.named() not in (None, former)
        wait_until(is_over, "there is another master")
        return self.named()

    def end(self):
        for one in self.watchers + self.nodes:
            one.kill()
