# SPDX-License-Identifier: Apache-2.0
"""An etcd cluster of one's own: three processes on free ports. The links between them can be cut without a word."""
import base64
import contextlib
import http.client
import json
import pathlib
import re
import shutil
import signal
import threading
import time
import urllib.request

from connections import has_socket, inodes
from link import Link
from ports import free_ports
from redis_server import spawn
from waiting import wait_until

START_S = 60
SOON_S = 0.3  # an answer that only those wait for who look again


class Member:
    def __init__(self, cluster, number, ports, election_ms):
        self.cluster, self.number, self.election_ms = cluster, number, election_ms
        self.client_port, self.peer_port, self.link_port = ports
        self.process = None

    def start(self):
        client, peer = (f"http://127.0.0.1:{port}" for port in (self.client_port, self.peer_port))
        others = ",".join(f"n{other.number}={other.peer_url()}" for other in self.cluster.nodes)
        with open(self.cluster.folder / f"log{self.number}", "ab") as log:
            self.process = self.cluster.spawn(
                ["etcd", "--name", f"n{self.number}", "--data-dir", str(self.cluster.folder / str(self.number)),
                 "--heartbeat-interval", "50", "--election-timeout", str(self.election_ms), "--unsafe-no-fsync",
                 "--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
                 "--initial-advertise-peer-urls", self.peer_url(), "--initial-cluster", others,
                 "--logger", "zap", "--log-level", "warn"], log)

    def peer_url(self):
        """As the others know it."""
        return f"http://127.0.0.1:{self.link_port if self.cluster.with_links else self.peer_port}"

    def ask(self, path, timeout_s=10, **body):
        request = urllib.request.Request(f"http://127.0.0.1:{self.client_port}{path}", json.dumps(body).encode())
        return json.load(urllib.request.urlopen(request, timeout=timeout_s))

    def status(self):
        """None: it does not answer, or has no leader."""
        with contextlib.suppress(OSError):
            said = self.ask("/v3/maintenance/status")
            if said.get("leader", "0") != "0":
                return said
        time.sleep(0.05)  # the links need the processor, too
        return None

    def reads(self):
        """It answers after it has asked the leader. One that was cut off may hear the leader seconds before the leader
        hears it again."""
        with contextlib.suppress(OSError):
            return self.ask("/v3/kv/range", timeout_s=1, key=base64.b64encode(b"none").decode())
        return None

    def leases_expired(self):
        """How many leases it has ended since it started, because their time was over; None: it does not tell."""
        with contextlib.suppress(OSError):
            text = urllib.request.urlopen(f"http://127.0.0.1:{self.client_port}/metrics", timeout=10).read().decode()
            return int(float(re.search(r"^etcd_debugging_server_lease_expired_total (\S+)$", text, re.M)[1]))
        return None

    def kill(self):
        self.process.kill()
        self.process.wait()

    def forget(self):
        """It is dead, and what it had written is lost."""
        shutil.rmtree(self.cluster.folder / str(self.number))


class Cluster:
    NEEDS = ["etcd"]

    def __init__(self, folder, election_ms=(500, 500, 500), links=False, serves_on=False, spawn=spawn):
        """links: a member can be cut off from the others. serves_on: it must be one that can."""
        self.folder, self.spawn, self.with_links = pathlib.Path(folder), spawn, links or serves_on
        self.folder.mkdir(exist_ok=True)
        ports = free_ports(9)
        self.nodes = [Member(self, i + 1, ports[3 * i:3 * i + 3], election_ms[i]) for i in range(3)]
        self.gates, self.links = {}, []  # between two members; to a member

    def gate(self, one, other):
        return self.gates.setdefault(frozenset((one, other)), self.new_gate())

    @staticmethod
    def new_gate():
        gate = threading.Event()
        gate.set()
        return gate

    def source(self, near):
        """The member whose socket has that port; None: it has ended."""
        for inode in inodes(near.getpeername()[1], near.getsockname()[1]):
            for member in self.nodes:
                if has_socket(member.process.pid, inode):
                    return member
        return None

    def link_to(self, member):
        """The port by which the others reach it."""
        return Link(member.link_port, member.peer_port, lambda near: self.gate(self.source(near), member))

    def start(self):
        self.links = [self.link_to(member) for member in self.nodes if self.with_links]
        self.mend()

    def mend(self):
        """All nodes serve, again if need be."""
        for member in self.nodes:
            if member.process is None or member.process.poll() is not None:
                member.start()
            member.process.send_signal(signal.SIGCONT)
        for gate in self.gates.values():
            gate.set()
        wait_until(lambda: all(member.status() for member in self.nodes), "a cluster of three that serves", START_S)

    def leader(self):
        def find():
            for member in self.nodes:
                said = member.process.poll() is None and member.status()
                if said and said["leader"] == said["header"]["member_id"]:
                    return member
            return None
        return wait_until(find, "a leader", START_S)

    def followers(self):
        leader = self.leader()
        return [member for member in self.nodes if member is not leader]

    def agreed(self):
        """The member that all others, too, say is the leader, and that answers them; None: there is none."""
        said = [member.process.poll() is None and member.status() for member in self.nodes]
        if not all(said) or len({one["leader"] for one in said}) > 1 or len({one["raftTerm"] for one in said}) > 1:
            return None
        if not all(member.reads() for member in self.nodes):
            return None
        return next(member for member, one in zip(self.nodes, said) if one["leader"] == one["header"]["member_id"])

    def lead(self, member):
        """That member becomes the leader."""
        while (leader := self.leader()) is not member:
            said = member.status()
            with contextlib.suppress(OSError):
                if said:
                    leader.ask("/v3/maintenance/transfer-leadership", targetID=said["header"]["member_id"])

    def have_diverged(self):
        """Whether the members keep other data; see zookeepers.py. That of etcd is not known to happen."""
        return False

    def depose(self):
        """Another member becomes the leader."""
        self.lead(self.followers()[0])

    def owners_at(self, member, lock, timeout_s=10):
        """The owners of all who hold that lock or wait for it, the first one first; None: the member does not tell."""
        every = base64.b64encode(b"\0").decode()
        with contextlib.suppress(OSError, http.client.HTTPException):
            said = member.ask("/v3/kv/range", timeout_s, key=every, range_end=every, sort_order="ASCEND",
                              sort_target="CREATE")
            return [base64.b64decode(one.get("value", "")).decode() for one in said.get("kvs", [])
                    if f"/locks/{lock}/" in base64.b64decode(one["key"]).decode()]
        return None

    def queue(self, lock):
        def ask():
            owners = self.owners_at(self.leader(), lock)
            return None if owners is None else [owners]
        return wait_until(ask, "the leader tells of the queue")[0]

    def first(self, lock):
        """The first of these; "": there is none; None: no member tells it at once."""
        living = [member for member in self.nodes if member.process.poll() is None]
        for member in living:
            owners = self.owners_at(member, lock, SOON_S)
            if owners is not None:
                return owners[0] if owners else ""
        return None if living else ""

    def serving(self):
        """Those that know of a leader."""
        return [member for member in self.nodes if member.status()]

    def asked_by(self, pid):
        """The member that the client of that process is connected with."""
        def find():
            for member in self.nodes:
                if any(has_socket(pid, inode) for inode in inodes(0, member.client_port)):
                    return member
            return None
        return wait_until(find, "a connection")

    def cut_off(self, member, cut=True):
        """Nothing goes between that member and the others any more, and no connection is closed."""
        for other in self.nodes:
            if other is not member:
                gate = self.gate(member, other)
                (gate.clear if cut else gate.set)()

    def url(self, *nodes):
        return "etcd://" + ",".join(f"127.0.0.1:{member.client_port}" for member in nodes or self.nodes)

    def kill(self):
        for member in self.nodes:
            member.kill()

    def end(self):
        for member in self.nodes:
            if member.process is not None:
                with contextlib.suppress(ProcessLookupError):
                    member.process.send_signal(signal.SIGCONT)
                member.kill()
        for gate in self.gates.values():
            gate.set()
        for link in self.links:
            link.close()
