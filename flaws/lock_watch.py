# SPDX-License-Identifier: Apache-2.0
"""What became of the lock's key, for the picture: when it was set, until when it lives, when it was gone. Redis itself
tells of each change (keyspace notifications), whatever rung caused it; the watch asks then what the key is like now."""
import collections
import dataclasses
import threading
import time

from redis_server import Connection

GONE_MS, NEVER_MS = -2, -1  # answers of PTTL
SAME_NS = 20_000_000  # ends that are so close are one: the watch asks a moment after the change
LOOK_S = 0.04  # between two looks at an ensemble
LATE_NS = 300_000_000  # by so much a notification may come later than the answer to its command


@dataclasses.dataclass
class Change:
    t_ns: int
    there: bool
    value: str = ""  # as it stands in Redis; the fields of a hash one after the other
    expires_ns: int = None  # None: never


class LockWatch(threading.Thread):
    """One redis-server's notifications about one key, from now until the server or the watch ends."""

    def __init__(self, port, key):
        super().__init__(daemon=True)
        self.key, self.changes = key, []
        self.asks, self.hears = Connection(port), Connection(port)
        self.addresses = {self.asks.address, self.hears.address}
        self.asks("CONFIG", "SET", "notify-keyspace-events", "KA")
        self.hears("SUBSCRIBE", f"__keyspace@0__:{key}")
        self.hears.socket.settimeout(None)  # it may have nothing to tell for long
        self.look(time.monotonic_ns())  # what a restarted server has loaded
        self.start()

    def run(self):
        try:
            while self.hears.reply():
                self.look(time.monotonic_ns())
        except (OSError, ValueError):
            self.changes.append(Change(time.monotonic_ns(), False))  # the server is gone

    def look(self, t_ns):
        asked_ns, ttl_ms = time.monotonic_ns(), self.asks("PTTL", self.key)
        if ttl_ms == GONE_MS:
            change = Change(t_ns, False)
        else:
            value = self.asks("HGETALL" if self.asks("TYPE", self.key) == "hash" else "GET", self.key)
            change = Change(t_ns, True, " ".join(value) if isinstance(value, list) else str(value),
                            None if ttl_ms == NEVER_MS else asked_ns + ttl_ms * 1_000_000)
        last = self.changes[-1] if self.changes else Change(0, False)
        if not self.is_same(last, change):
            self.changes.append(change)

    @staticmethod
    def is_same(last, change):
        if (last.there, last.value, last.expires_ns is None) != (change.there, change.value, change.expires_ns is None):
            return False
        return change.expires_ns is None or abs(change.expires_ns - last.expires_ns) < SAME_NS


class QueueWatch(threading.Thread):
    """Which node or key is the first in a lock's queue in an ensemble. It looks again and again, until it is ended."""

    def __init__(self, ensemble, lock):
        super().__init__(daemon=True)
        self.ensemble, self.lock, self.changes = ensemble, lock, []
        self.over, self.mutex = threading.Event(), threading.Lock()
        self.start()

    def run(self):
        while not self.over.wait(LOOK_S):
            self.look()

    def look(self, after_change=False):
        """after_change: what it sees is told, even if it has not seen what was there before."""
        t_ns, first = time.monotonic_ns(), self.ensemble.first(self.lock)
        with self.mutex:
            last = self.changes[-1] if self.changes else Change(0, False)
            if first is not None and t_ns > last.t_ns and (after_change or first != last.value):
                self.changes.append(Change(t_ns, first != "", first))

    def end(self):
        self.over.set()
        self.join()

    def told(self, names, grants):
        """The changes as run.json has them. grants: the instances' records, which may tell of a hold that was over before
        the next look. Others than granted sales may be in the queue. names: transcript.Names."""
        def holder(value):
            granted = (event["request"] for event in grants if event["owner"] in value)
            return next(granted, names.found_in(value) or "another")
        seen = [(change.t_ns, holder(change.value) if change.there else None) for change in self.changes]
        last = None
        for t_ns, now in sorted(seen + [(event["t_ns"], event["request"]) for event in grants], key=lambda one: one[0]):
            if now != last:
                yield {"t_ns": t_ns, "holder": now, **({"session": True} if now else {})}
            last = now


def told(changes, names, commands):
    """The changes as run.json has them. The holder is the sale that the key's value names; else the one whose command
    was under way. A key that keeps its value keeps its holder. names: transcript.Names; commands: (sent_ns, answered_ns, sale) of those that name the key."""
    holder, value = None, None
    for change in sorted(changes, key=lambda change: change.t_ns):
        if not change.there:
            if holder is not None:
                yield {"t_ns": change.t_ns, "holder": None}
            holder, value = None, None
            continue
        named = names.found_in(change.value)
        under_way = [(change.t_ns - sent_ns, sale) for sent_ns, answered_ns, sale in commands
                     if sent_ns <= change.t_ns and change.t_ns <= answered_ns + LATE_NS]
        sender = min(under_way)[1] if under_way else None
        if holder is None or change.value != value:
            holder = named if named and not (sender or "").startswith(named) else sender or holder or "?"
        value = change.value
        yield {"t_ns": change.t_ns, "holder": holder, "expires_ns": change.expires_ns}


def agreed(told_by_server, needed):
    """The changes of a lock that a majority grants, from the changes on each server. The holder is the sale that has the
    key on `needed` servers. Its hold ends when fewer than `needed` servers have the key."""
    events = sorted(((change["t_ns"], number, change) for number, changes in enumerate(told_by_server) for change in changes),
                    key=lambda event: event[0])
    now, last = {}, {"holder": None, "expires_ns": 0}
    for t_ns, number, change in events:
        now[number] = change
        ends = collections.defaultdict(list)
        for one in now.values():
            if one["holder"] is not None:
                ends[one["holder"]].append(one["expires_ns"] or 0)
        holder = next((holder for holder, found in ends.items() if len(found) >= needed), None)
        until_ns = sorted(ends[holder])[-needed] if holder else 0
        if holder != last["holder"] or abs(until_ns - last["expires_ns"]) >= SAME_NS:
            last = {"holder": holder, "expires_ns": until_ns}
            yield {"t_ns": t_ns, **(last if holder else {"holder": None})}


def thinned(changes, most):
    """At most so many: renewals of a hold are left out, every other one, until they fit."""
    while len(changes) > most:
        kept = [change for number, change in enumerate(changes)
                if number % 2 == 0 or change["holder"] is None or change["holder"] != changes[number - 1]["holder"]]
        if len(kept) == len(changes):
            return changes[:most]
        changes = kept
    return changes
