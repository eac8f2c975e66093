# SPDX-License-Identifier: Apache-2.0
"""What the stage of each service has: a folder, processes, a redis-server, instances with their requests, a test driver
that lets them act one after the other, and the judge. Everything is real, private to the stage, and ended by its
process id. No wait is a fixed sleep: each is for a condition, with a time-out after which the demonstration is broken
off as inconclusive."""
import csv
import json
import pathlib
import shutil
import subprocess
import time

import lock_watch
import transcript
from records import new_folder
from redis_server import spawn
from waiting import PATIENCE_S, STOP, Inconclusive, dying_with, wait_until

SHORT_TTL_MS, LONG_TTL_MS = 500, 30000
RENEWED_TTL_MS = 2000  # of a lock that only its renewals keep: a machine may stall for 600 ms without losing it
WAIT_MS = 3000  # how long a request waits at most for a lock: far longer than SHORT_TTL_MS
CHANGES_MAX = 64  # of the lock's key: the judge reads no more


class BaseStage:
    """One run of one scenario. Used by `with`: at its end only the run's folder is left. The folder goes, too, if the user
    stopped the run before its verdict."""
    group = ensemble = None  # the servers of the lock, where they are no single ones
    samples = "load.jtl"  # the file of what the clients saw
    locks_apart = False  # whether a request acquires one lock, and may release it because it does not get another
    asks = "asked"  # what the transcript calls what was sent
    spawned = ("redis",)  # the folders of its servers

    def __init__(self, rung, scenario, auditor, runs, lock_key, expect=None):
        self.rung, self.scenario, self.auditor, self.expect = rung, scenario, auditor, expect
        self.runs, self.lock_key = pathlib.Path(runs), lock_key
        self.instances, self.requests, self.names, self.processes = {}, [], {}, []
        self.notes, self.seen = [], []
        self.crowd = set()  # names of requests that the transcript shows as one
        self.redis = self.lock_redis = None
        self.lock_servers = []  # the lock's only one, or those of which a majority grants it

    def __enter__(self):
        self.folder = new_folder(self.runs, f"{self.rung.name}-{self.scenario.replace('+', '.')}")
        return self

    def __exit__(self, *_):
        for instance in self.instances.values():
            instance.end()
        self.end_servers()
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        for name in (*self.spawned, *(f"files-{name}" for name in self.instances)):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        if STOP.is_set() and not (self.folder / "verdict.json").exists():
            shutil.rmtree(self.folder, ignore_errors=True)

    def end_servers(self):
        """Those that need more than the end of their process."""

    def spawn(self, command, *out):
        """A process of this stage, which ends it. It does not outlive this thread."""
        self.processes.append(spawn(dying_with(command), *out))
        return self.processes[-1]

    def new_name(self, instance):
        self.names[instance.name] = self.names.get(instance.name, 0) + 1
        return f"{instance.name}{self.names[instance.name]}"

    def add_request(self, request):
        self.requests.append(request)
        return request

    # ---- directing ----

    def note(self, text, seen=None, **more):
        """Adds a line of the test driver to the transcript. Returns its time. seen: the same in short, for the picture;
        more: fields of that annotation."""
        self.notes.append((time.monotonic_ns(), text))
        if seen:
            self.seen.append({"t_ns": self.notes[-1][0], "text": seen, **more})
        return self.notes[-1][0]

    def kept_out(self, instance):
        """A condition: the next request of that instance waits for the lock."""
        waited, asked = instance.count("contended"), instance.count("attempts")
        enough = asked + self.rung.attempts_before_waiting
        return lambda: instance.count("contended") > waited and instance.count("attempts") >= enough

    def begin_request(self, instance, point, ask, or_else=lambda: False):
        """Starts a request by ask(), and waits until it is paused at the point, or waits for the lock, or or_else() is
        true. Returns the request, and whether it is at the point."""
        is_kept_out, paused = self.kept_out(instance), instance.paused(point)
        instance.arm(point)
        request = ask()
        wait_until(lambda: instance.paused(point) > paused or is_kept_out() or request.answered or or_else(),
                   f"{request.name} comes to {point}, or waits")
        if request.answered:
            raise Inconclusive(f"{request.name} was answered before it came to {point}: {request.answer}")
        return request, instance.paused(point) > paused

    def resume(self, request, point):
        """The paused request continues. Noted before, so that the transcript is in order."""
        self.note(f"{request.name} goes on")
        request.instance.resume(point)

    def wait_answered(self, *requests):
        for request in requests:
            wait_until(lambda: request.answered, f"{request.name} is answered", 2 * PATIENCE_S)

    @property
    def servers(self):
        """All that the instances have had to do with."""
        return {self.redis, *self.lock_servers}

    def having_key(self):
        """The servers of the lock that run and have its key."""
        return [server for server in self.lock_servers if server.lives and server("EXISTS", self.lock_key) == 1]

    def wait_expired(self):
        """Waits until the lock's key expires."""
        wait_until(lambda: not self.having_key(), "the lock expires")
        self.note("the lock expires", "the lock expires")

    def has_ttl(self):
        return any(server("PTTL", self.lock_key) >= 0 for server in self.lock_servers if server.lives)

    def change_teller(self):
        """A function of servers: how the lock's key changed there, as run.json has it."""
        names, sent = transcript.Names(self), transcript.sent_about(self, self.lock_key)

        def told_by(*servers):
            changes = [change for server in servers for watch in server.watches for change in watch.changes
                       if change.t_ns <= self.ended_ns]
            return list(lock_watch.told(changes, names, sent))
        return told_by

    # ---- the transcript ----

    def place_of(self, _event):
        """What a command was sent to, where there are several places."""
        return ""

    def in_short(self, sent, reply):
        """A command and its answer without what differs from run to run."""
        return sent, reply

    def told_lines(self):
        """Further lines of the transcript: what no command to Redis shows."""
        return []

    # ---- judging ----

    def redis_side(self):
        """What Redis holds, as redis.json has it."""
        raise NotImplementedError

    def run_json(self):
        """What the judge has to know of the run."""
        raise NotImplementedError

    def write_rows(self, rows):
        """The head and a line for each request, by rows.writerow()."""
        raise NotImplementedError

    def judge(self):
        """Ends the instances in order and runs the judge. Returns its verdict.json."""
        self.wait_answered(*self.requests)
        for instance in self.instances.values():
            instance.must_live()
        after = self.redis_side()
        self.ended_ns = time.monotonic_ns()
        for instance in self.instances.values():
            instance.end()
            instance.must_not_complain()
        write = lambda name, value: (self.folder / name).write_text(json.dumps(value) + "\n", encoding="utf-8")
        write("redis.json", {"before": self.before, "after": after})
        write("run.json", self.run_json())
        with open(self.folder / self.samples, "w", newline="", encoding="utf-8") as file:
            self.write_rows(csv.writer(file))
        done = subprocess.run([str(self.auditor), str(self.folder)], capture_output=True, text=True, timeout=60)
        if done.returncode not in (0, 1, 2) or not (self.folder / "verdict.json").exists():
            raise Inconclusive(f"the judge ended with {done.returncode}: {done.stderr.strip()}")
        return json.loads((self.folder / "verdict.json").read_text(encoding="utf-8"))
