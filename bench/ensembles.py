# SPDX-License-Identifier: Apache-2.0
"""bench zookeeper and bench etcd: the rungs of those names, each beside the library that its users know, on one ensemble
of three. help says what is compared."""
import re
import shutil

from locks import refuse_busy
from versus import (CROWD, EXIT_CODES, FAIR, NEEDS_BENCH, PEERS, VersusWorld, build, build_with_go, compare, our_program,
                    with_peer)
from world import BUILD
from etcds import Cluster
from zookeepers import Ensemble

WARM_MS = 3000  # until Java has compiled what it runs often
TICK_MS = 2000  # ZooKeeper's own, so the URL needs none
ELECTION_MS = 3000  # no election because the machine is busy


class EnsembleWorld(VersusWorld):
    """Three servers. Each contestant is told of one follower alone, the same for all: which server a client happens to
    choose would decide whether a request takes a step more."""
    warm_ms = WARM_MS

    def words(self, who):
        port = self.ensemble.followers()[0].client_port
        options = ["-warm-ms", str(self.warm_ms)]
        if who == self.ours:
            return ["-rung", self.ours, "-tokens", *options, f"{self.scheme}://127.0.0.1:{port}"]
        return [*options, f"127.0.0.1:{port}"]

    def start_all(self):
        self.ensemble = self.started(self.folder, self.stack)

    @classmethod
    def started(cls, folder, stack):
        """Three servers, which end with the stack."""
        (folder / cls.ours).mkdir()
        ensemble = cls.make(folder / cls.ours)
        stack.callback(ensemble.end)
        ensemble.start()
        return ensemble


class ZooKeeperWorld(EnsembleWorld):
    ours, scheme = "zookeeper", "zk"

    @staticmethod
    def make(folder):
        return Ensemble(folder, tick_ms=TICK_MS)

    def version(self):
        return f"ZooKeeper {re.search(r'version: ([0-9.]+)', ' '.join(self.ensemble.nodes[0].said(b'srvr')))[1]}"

    def is_empty(self):
        return all("zk_ephemerals_count\t0" in node.said(b"mntr") for node in self.ensemble.nodes)


class EtcdWorld(EnsembleWorld):
    ours = scheme = "etcd"

    @staticmethod
    def make(folder):
        return Cluster(folder, election_ms=[ELECTION_MS] * 3, links=False)

    def version(self):
        return f"etcd {self.ensemble.nodes[0].status()['version']}"

    def is_empty(self):
        return not any(member.ask("/v3/lease/leases").get("leases") for member in self.ensemble.nodes)


def build_curator():
    """Fetches Curator from Maven Central and compiles the program around it, unless that is done. Returns a launcher."""
    for tool, package in (("mvn", "maven"), ("javac", "default-jdk-headless")):
        if shutil.which(tool) is None:
            raise SystemExit(f"bench: curator is written in Java, and there is no `{tool}` on PATH: install Debian's "
                             f"{package}, as scripts/setup --for bench does")
    home = BUILD.resolve() / "bench" / "curator"
    sources = [PEERS / "curator" / name for name in ("pom.xml", "Curator.java")]
    text = "".join(source.read_text() for source in sources)
    program, stamp = home / "curator", home / "stamp"
    if stamp.exists() and stamp.read_text() == text:
        return program
    shutil.rmtree(home, ignore_errors=True)
    build("curator", ["mvn", "--quiet", "--batch-mode", "--strict-checksums", "--file", str(sources[0]), f"-Dhome={home}",
                      "-Daether.connector.connectTimeout=20000", "-Daether.connector.requestTimeout=60000", "package"])
    build("curator", ["javac", "-cp", f"{home}/*", "-d", str(home), str(sources[1])])
    program.write_text(f"#!/bin/sh\nexec java -cp '{home}:{home}/*' Curator \"$@\"\n")
    program.chmod(0o755)
    stamp.write_text(text)
    return program


class Verb:
    """A verb of bench/bench. least: the bars for one waiter and for a crowd."""

    def __init__(self, world, peer, peer_is, build_peer, least, needs):
        self.world, self.ours, self.peer, self.build_peer = world, world.ours, peer, build_peer
        self.loads = {"pairs": with_peer(1, least[0], world.ours, peer),
                      "crowd": with_peer(CROWD, least[1], world.ours, peer)}
        self.help = f"""\
Compares libdlock's rung {self.ours} with {peer_is}, on the same three servers.
A pair is an acquire and its release. The command starts the servers itself, and ends them.

shapes:
  pairs   {self.ours} and {peer}: one waiter. Bar: pairs/s of {self.ours} / pairs/s of {peer} is at least {least[0]}.
  crowd   The same two: {CROWD} waiters in one process want one lock. Bar: the same ratio is at least {least[1]}.

All ask the same follower. The servers write to the disk, and do not wait for it. Before a round each contestant
acquires and releases for {WARM_MS} ms.

{FAIR}

{needs}
Build the rest before, with the engine: {NEEDS_BENCH}

A round is valid if every pair succeeded, no two waiters held the lock at once, and each token of ours is larger than
the one before.
{EXIT_CODES}
"""
        self.short = f"Compares libdlock's {self.ours} with {peer_is}."

    def compare(self, parser, arguments, keep):
        refuse_busy(parser, arguments)
        programs = {self.ours: our_program(), self.peer: self.build_peer()}
        return compare(self.ours, self.world, self.loads, programs, arguments, keep)


VERBS = {
    "zookeeper": Verb(ZooKeeperWorld, "curator", "InterProcessMutex of Apache Curator", build_curator, (0.9, 1),
                      "It needs ZooKeeper, a JDK and Maven (scripts/setup --for bench), and Maven Central the first time."),
    "etcd": Verb(EtcdWorld, "etcd-go", "Session and Mutex of etcd's own client in Go", lambda: build_with_go("etcd"),
                 (0.8, 1), "It needs etcd (scripts/setup --for bench), Go, and Go's module proxy the first time."),
}
