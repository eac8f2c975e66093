# SPDX-License-Identifier: Apache-2.0
"""The second witness: what a redis-server says that it was sent."""
import threading

from lock_watch import LockWatch
from redis_server import Connection, Redis
from waiting import wait_until


class Monitor(threading.Thread):
    """MONITOR's lines."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.lines = []
        self.connection = Connection(port)
        self.connection("MONITOR")
        self.connection.socket.settimeout(None)  # it may have nothing to tell for long
        self.start()

    def run(self):
        try:
            while line := self.connection.stream.readline():
                self.lines.append(line[1:].decode(errors="replace").rstrip("\r\n"))
        except (OSError, ValueError):
            pass


class WitnessedRedis(Redis):
    """A redis-server, all that it was sent since it began, and what became of one key. A replica is witnessed only from
    its promotion on: what it is sent before comes from its master, and its promotion ends all connections."""

    def __init__(self, folder, *options, key, **how):
        self.monitors, self.watches, self.own, self.key = [], [], set(), key
        self.is_replica = "--replicaof" in options
        super().__init__(folder, *options, **how)

    def start(self, *more, ready=True):
        super().start(*more, ready=ready)
        if not self.is_replica:
            self.witness()

    def promoted(self):
        self.is_replica = False
        self.witness()

    def witness(self):
        self.connection = Connection(self.port)
        self.monitors.append(Monitor(self.port))
        self.watches.append(LockWatch(self.port, self.key))
        self.own |= {self.connection.address, self.monitors[-1].connection.address, *self.watches[-1].addresses}

    def wait_told(self):
        """Until the monitor has told what the server has answered: a death may cut it off."""
        self.connection("ECHO", "the end")
        lines = self.monitors[-1].lines
        wait_until(lambda: any('"the end"' in line for line in list(lines)), "the monitor has told it all")

    def forget(self):
        """What it was sent so far is no part of what is told."""
        for monitor in self.monitors:
            monitor.lines.clear()

    def __call__(self, *words):
        """One command, on a connection that is known to be the test driver's."""
        return super().__call__(*words) if self.is_replica else self.connection(*words)

    def witnessed(self):
        """(client, command) of everything that it was sent, the test driver's own left out; what a script did
        has the client "lua"."""
        told = []
        for monitor in self.monitors:
            for line in list(monitor.lines):
                client, _, command = line.partition("[")[2].partition("] ")
                client = client.split(" ", 1)[1]
                if client not in self.own:
                    told.append((client, command))
        return told
