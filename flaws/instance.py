# SPDX-License-Identifier: Apache-2.0
"""An instance of a service as a stage has it, and the requests that it is sent."""
import contextlib
import http.client
import json
import re
import signal
import threading
import time

from started import Started
from waiting import Inconclusive, freeze, wait_until


class Request(threading.Thread):
    """A client's request, from its sending to its answer."""
    accepted = None  # of one who asks what became of another request: that one

    def __init__(self, instance, name, method, path, port=None, body=None):
        super().__init__(daemon=True)
        self.instance, self.name, self.method, self.path = instance, name, method, path
        self.sent = (port or instance.port, *((json.dumps(body),) if body else ()))
        self.status, self.body, self.took_ms, self.answered_ns = 0, {}, 0, None
        self.at_s, self.began = time.time(), time.monotonic()
        self.start()

    def run(self):
        headers = {"X-Request-Id": self.name, **({"Content-Type": "application/json"} if self.sent[1:] else {})}
        try:
            self.status, self.body = self.instance.ask(self.method, self.path, *self.sent, headers=headers)
        except OSError:  # its instance died
            self.status = 0
        self.answered_ns = time.monotonic_ns()
        self.took_ms = int((time.monotonic() - self.began) * 1000)

    @property
    def answered(self):
        return self.answered_ns is not None

    @property
    def answer(self):
        """In words, as the client would tell it."""
        if self.status == 200:
            return self.success
        if self.status == 0:
            return "no answer: the connection broke"
        return f"{self.status} {self.body.get('type', '?').rsplit(':', 1)[-1]}"

    @property
    def success(self):
        """The same of a 200."""
        raise NotImplementedError


class Program(Started):
    """A process of a service on a stage."""

    def __init__(self, stage, name, command):
        self.stage, log_path = stage, stage.folder / f"{name}.log"
        self.dead_ns, self.frozen = 0, False
        with open(log_path, "wb") as log:
            words = [*command, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--instance", name]
            super().__init__(name, stage.spawn(words, log), log_path)
        self.wait_started()

    def ask(self, method, path, port, body=None, headers=None):
        try:
            status, _, data = self.exchange(method, path, port, body, headers)
            return status, json.loads(data) if data[:1] == b"{" else data.decode()
        except OSError as error:
            if port == self.admin_port:
                self.must_live()
            raise error
        except http.client.HTTPException as error:
            raise ConnectionError(str(error)) from error

    def must_not_complain(self):
        """A sanitizer's report is the program's mistake, and says nothing of the rung."""
        if complaint := self.complaint():
            raise RuntimeError(f"instance {self.name}: {complaint}")

    def must_live(self):
        """Unless the test driver has killed it, or has ended it in order."""
        if not self.dead_ns and self.process.poll() not in (None, 0):
            self.must_not_complain()
            raise Inconclusive(f"process {self.name} ended by itself, with {self.ending()}: see {self.log_path}")

    def freeze(self):
        freeze(self.process)
        self.frozen = True

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)
        self.frozen = False

    def end(self):
        if self.process.poll() is None and self.frozen:
            self.thaw()
        super().end()

    def ending(self):
        code = self.process.returncode
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    def complaint(self):
        """What a sanitizer said of it, or ""."""
        found = re.search(r".*(?:ERROR|WARNING): \w+Sanitizer.*|.*runtime error:.*", self.log.decode(errors="replace"))
        return found[0] if found else ""


class Instance(Program):
    """One that records what it does, and can be stopped at points of its code."""

    def __init__(self, stage, program, name, ttl_ms, words):
        """words: the flags of its service and those of the scenario."""
        self.files = stage.folder / f"files-{name}"
        self.files.mkdir()
        self.history = stage.folder / f"history-{name}.jsonl"
        self.armed = set()
        self.parsed = 0, []  # how much of its history, and the events in it
        super().__init__(stage, name, [
            str(program), "--lock", stage.rung.lock.name, "--ttl-ms", str(ttl_ms), "--workers", "4",
            "--history", str(self.history), "--run", stage.folder.name, "--history-commands",
            "--enable-failpoints", "--failpoint-files", str(self.files), *words])

    def set_point(self, point, action):
        status, answer = self.ask("PUT", "/failpoints", self.admin_port, json.dumps({"point": point, "action": action}))
        if status != 200:
            raise Inconclusive(f"instance {self.name} refused {point}={action}: {answer}")

    def arm(self, point, action="pause"):
        """A request that reaches the point is paused. To set it anew would release those that are paused already."""
        if point not in self.armed:
            self.set_point(point, action)
        self.armed.add(point)

    def paused(self, point):
        _, answer = self.ask("GET", "/failpoints", self.admin_port)
        return next((one["paused"] for one in answer["failpoints"] if one["point"] == point), 0)

    def resume(self, point):
        """A request that is paused there continues. By a file, so that it works for a frozen process too."""
        (self.files / point).touch()

    def resume_one(self, point):
        """A request that is paused there continues; the next one is paused."""
        self.set_point(point, "pause")

    def metric(self, name):
        _, text = self.ask("GET", "/metrics", self.admin_port)
        return int(next(line.split()[1] for line in text.splitlines() if line.startswith(f"{name} ")))

    def count(self, what):
        """One of the lock's counts: contended (acquires that found it busy), attempts, renewals, grants_expired,
        redis_commands, redis_connects."""
        return self.metric(f"lock_{what}_total")

    def events(self):
        """What is in its history so far."""
        text = self.history.read_text(encoding="utf-8") if self.history.exists() else ""
        if len(text) != self.parsed[0]:
            self.parsed = len(text), [json.loads(line) for line in text.splitlines() if line.endswith("}")]
        return self.parsed[1]

    def told(self, event):
        """Those of its events that are of that kind."""
        return [one for one in self.events() if one["event"] == event]

    def wait_dead(self, how):
        wait_until(lambda: self.process.poll() is not None, f"instance {self.name} dies")
        self.dead_ns = self.stage.note(how, how, killed=self.name)

    def crash_at(self, point, how):
        """The next request that reaches the point ends the process: perhaps before the process has answered this."""
        with contextlib.suppress(Inconclusive, OSError):
            self.set_point(point, "1*crash")
        self.wait_dead(how)
