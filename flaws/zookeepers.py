# SPDX-License-Identifier: Apache-2.0
"""A ZooKeeper ensemble of one's own: processes of Java's on free ports, and the links between them, which can be cut
without a word."""
import contextlib
import pathlib
import re
import shutil
import signal
import socket

from link import Link
from ports import free_ports
from redis_server import spawn
from waiting import Inconclusive, wait_until

JARS = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar"
JAVA = ["java", "-Xms16m", "-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
START_S = 60  # for three of Java's processes on a busy machine


class Node:
    def __init__(self, ensemble, number, ports):
        self.ensemble, self.number = ensemble, number
        self.client_port, self.quorum_port, self.election_port = ports
        self.folder = ensemble.folder / str(number)
        self.folder.mkdir()
        (self.folder / "myid").write_text(str(number))
        self.process = None

    def configure(self):
        lines = [f"tickTime={self.ensemble.tick_ms}", "initLimit=25", f"syncLimit={self.ensemble.sync_limit}",
                 "minSessionTimeout=100", "maxSessionTimeout=600000", "maxClientCnxns=0", "forceSync=no",
                 "admin.enableServer=false", "4lw.commands.whitelist=*", f"dataDir={self.folder}",
                 f"clientPort={self.client_port}", "clientPortAddress=127.0.0.1"]
        for other in self.ensemble.nodes:
            quorum, election = self.ensemble.way(self, other)
            lines.append(f"server.{other.number}=127.0.0.1:{quorum}:{election}")
        path = self.folder / "zoo.cfg"
        path.write_text("\n".join(lines) + "\n")
        return path

    def start(self):
        with open(self.folder / "log", "ab") as log:
            self.process = self.ensemble.spawn(
                [*JAVA, "-cp", JARS, "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(self.configure())], log)

    def said(self, word):
        """The lines of its answer to a word of four letters; none: it does not answer."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.client_port), 1) as asked:
            asked.sendall(word)
            return b"".join(iter(lambda: asked.recv(4096), b"")).decode().splitlines()
        return []

    def contents(self):
        """The latest change that it has carried out, and how many nodes it has."""
        return [line for line in self.said(b"srvr") if line.startswith(("Zxid:", "Node count:"))]

    def mode(self):
        """leader, follower; None: it does not serve."""
        return next((line.split()[1] for line in self.said(b"srvr") if line.startswith("Mode:")), None)

    def counts(self):
        """What it counts, by name: "zk_watch_count" are watches that are set; "zk_sum_node_deleted_watch_count" are those
        that were fired since it was started, a message to a client each."""
        return dict(line.split()[:2] for line in self.said(b"mntr"))

    def signal(self, number):
        self.process.send_signal(number)

    def leases_expired(self):
        """See etcds.py: it has none."""
        return None

    def kill(self):
        self.process.kill()
        self.process.wait()

    def forget(self):
        """It is dead, and what it had written is lost."""
        shutil.rmtree(self.folder / "version-2")


class Ensemble:
    NEEDS = ["java", *JARS.split(":")]

    def __init__(self, folder, count=3, tick_ms=200, sync_limit=10, links=False, serves_on=False, spawn=spawn):
        """links: a node can be cut off from the others. sync_limit: for how many ticks it goes on then; serves_on: for
        longer than any session."""
        links, sync_limit = links or serves_on, 300 if serves_on else sync_limit
        self.folder, self.tick_ms, self.sync_limit, self.spawn = pathlib.Path(folder), tick_ms, sync_limit, spawn
        self.folder.mkdir(exist_ok=True)
        ports = free_ports(3 * count)
        self.nodes, self.links = [], {}
        for number in range(1, count + 1):
            self.nodes.append(Node(self, number, ports[3 * number - 3:3 * number]))
        for one in self.nodes:
            for other in self.nodes:
                if one is not other and links:
                    to = [other.quorum_port, other.election_port]
                    self.links[one, other] = [Link(port, target) for port, target in zip(free_ports(2), to)]

    def way(self, one, other):
        """The ports by which a node reaches another."""
        if (one, other) not in self.links:
            return other.quorum_port, other.election_port
        return [link.listener.getsockname()[1] for link in self.links[one, other]]

    def start(self):
        self.mend()

    def mend(self):
        """All nodes serve, again if need be."""
        for node in self.nodes:
            if node.process is None or node.process.poll() is not None:
                node.start()
        for links in self.links.values():
            for link in links:
                link.open.set()
        wait_until(lambda: all(node.mode() for node in self.nodes), "an ensemble that serves", START_S)

    def leader(self):
        return wait_until(lambda: next((node for node in self.nodes if node.process.poll() is None and
                                        node.mode() == "leader"), None), "a leader", START_S)

    def followers(self):
        return [node for node in self.nodes if node.mode() == "follower"]

    def agreed(self):
        """The leader, if the others follow it; else None."""
        modes = [node.process.poll() is None and node.mode() for node in self.nodes]
        alone = sorted(map(str, modes)) == ["follower"] * (len(modes) - 1) + ["leader"]
        return self.nodes[modes.index("leader")] if alone else None

    def have_diverged(self):
        """Whether the nodes have carried out the same changes and keep other data. Releases before 3.8.5 may come to
        that when a leader is lost: ZOOKEEPER-4785, and 5010 is open. Only while no client changes anything."""
        def settled():
            first, again = ([node.contents() for node in self.nodes] for _ in range(2))
            return first if first == again and all(first) and len({one[0] for one in first}) == 1 else None
        return len({one[1] for one in wait_until(settled, "nodes that have carried out the same changes")}) > 1

    def depose(self):
        """Another node becomes the leader. The old one is cut off until then, since it cannot be asked; or for some
        seconds, if nobody is elected."""
        leader = self.leader()
        self.cut_off(leader)
        with contextlib.suppress(Inconclusive):
            wait_until(lambda: any(one.mode() == "leader" for one in self.nodes if one is not leader), "another leader")
        self.cut_off(leader, False)

    def queue(self, lock):
        """The nodes of all who hold that lock or wait for it."""
        said = wait_until(lambda: self.leader().said(b"dump"), "the leader tells of its sessions")
        return [line.strip() for line in said if f"/locks/{lock}/" in line]

    def first(self, lock):
        """The first of these; "": there is none; None: nobody leads."""
        if all(node.process.poll() is not None for node in self.nodes):
            return ""
        leader = next((node for node in self.nodes if node.process.poll() is None and node.mode() == "leader"), None)
        said = leader.said(b"dump") if leader else []
        nodes = [line.strip() for line in said if f"/locks/{lock}/" in line]
        return min(nodes, key=lambda node: node.rpartition("-")[2], default="" if said else None)

    def serving(self):
        return [node for node in self.nodes if node.mode()]

    def cut_off(self, node, cut=True):
        """Nothing goes between that node and the others any more, and no connection is closed."""
        for pair, links in self.links.items():
            for link in links if node in pair else []:
                (link.open.clear if cut else link.open.set)()

    def count(self, what):
        """Of all nodes, the counts of names that match."""
        return sum(int(value) for node in self.nodes for name, value in node.counts().items() if re.fullmatch(what, name))

    def url(self, *nodes, path=""):
        hosts = ",".join(f"127.0.0.1:{node.client_port}" for node in nodes or self.nodes)
        return f"zk://{hosts}{path}?tick_ms={self.tick_ms}"

    def kill(self):
        for node in self.nodes:
            node.kill()

    def end(self):
        for node in self.nodes:
            if node.process is not None:
                with contextlib.suppress(ProcessLookupError):
                    node.signal(signal.SIGCONT)
                node.kill()
        for links in self.links.values():
            for link in links:
                link.close()
