# SPDX-License-Identifier: Apache-2.0
"""A place of a test's own for the project's commands: state, runs and ports that nobody else uses,
and a list of every process that came of them, so that a test can say that nothing was left."""
import functools
import os
import pathlib
import signal
import socket
import subprocess
import time
import urllib.request

import waiting
from ports import free_ports

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"
PATIENCE_S = 500  # how long something may take that must come about; never how long it should take
STEP = 4  # from one instance's port to the next
wait_until = functools.partial(waiting.wait_until, patience_s=PATIENCE_S)


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Ports:
    """A hundred ports, which no test that runs beside draws."""

    def __init__(self):
        self.first = free_ports(100)[0]
        self.nginx = self.first + 1
        self.operators = self.first + 2
        self.redis = self.first + 3
        self.lock = self.first + 4  # and the next, five at most: a lock's own servers
        self.base = self.first + 10
        self.sentinel = self.first + 80  # and the four next: the other servers of a group
        self.ensemble = self.first + 75  # an ensemble's servers are ten ports behind

    def instance(self, number):
        return self.base + number * STEP

    @property
    def options(self):
        return ["--port", self.nginx, "--redis-port", self.redis, "--base-port", self.base,
                "--port-step", STEP]

    @property
    def lock_option(self):
        return ["--lock-port", self.lock]

    @property
    def ensemble_option(self):
        return ["--lock-port", self.ensemble]

    @property
    def sentinel_option(self):
        return ["--sentinel-port", self.sentinel]

    def all(self, instances=2):
        return [*self.of_a_shop(instances), *range(self.lock, self.lock + 5), *range(self.sentinel, self.sentinel + 5),
                *range(self.ensemble + 10, self.ensemble + 19)]

    def of_a_shop(self, instances=2):
        """Without servers of its lock's own, and without a group."""
        ports = [self.nginx, self.operators, self.redis]
        for number in range(instances):
            ports += [self.instance(number), self.instance(number) + 1]
        return ports


class Place:
    def __init__(self, folder):
        self.folder = folder
        self.state = folder / "state"
        self.runs = folder / "runs"
        self.environment = {**os.environ, "LADDER_STATE": str(self.state)}
        self.ports = Ports()

    # ---- commands ----

    def start(self, *words, around=(), **environment):
        """Starts a command as a terminal would: a group of its own, and Ctrl-C means something."""
        log = self.folder / f"command-{time.monotonic_ns()}"
        with open(f"{log}.out", "wb") as out, open(f"{log}.err", "wb") as err:
            process = subprocess.Popen(
                [*around, *(str(word) for word in words)], stdout=out, stderr=err,
                stdin=subprocess.DEVNULL, start_new_session=True, cwd=self.folder,
                env={name: str(value) for name, value in {**self.environment, **environment}.items()
                     if value is not None},
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
        return Command(process, log)

    def run(self, *words, **more):
        """Runs a command to its end."""
        return self.start(*words, **more).finish()

    def shop(self, verb, *words, ports=None, **more):
        ports = ports or self.ports
        options = ports.options if verb == "up" else ["--port", ports.nginx]
        return self.run(SCRIPTS / "shop", verb, *options, *words, **more)

    def demo(self, *words, **more):
        return self.run(*self.demo_words(*words), **more)

    def demo_words(self, *words):
        return [SCRIPTS / "demo", *self.ports.options, "--runs", self.runs, *words]

    def jmeter(self, *words, **more):
        return self.run(SCRIPTS / "jmeter", *words, "--port", self.ports.nginx, "--runs", self.runs,
                        **more)

    def parts(self, ports=None):
        """name -> pid of the shop's parts, as `up` wrote them down."""
        file = self.state / str((ports or self.ports).nginx) / "parts"
        if not file.exists():
            return {}
        return {line.split()[0]: int(line.split()[1]) for line in file.read_text().splitlines()}

    def get(self, path, port=None):
        with urllib.request.urlopen(f"http://127.0.0.1:{port or self.ports.nginx}{path}",
                                    timeout=PATIENCE_S) as answer:
            return answer.read().decode()

    # ---- what is left ----

    def processes(self):
        """Every process that was started in this place, by whomever: they inherit LADDER_STATE, or,
        as nginx, which writes its title over its environment, the working folder."""
        mark = f"LADDER_STATE={self.state}".encode()
        found = {}
        for folder in pathlib.Path("/proc").iterdir():
            try:
                if folder.name.isdigit() and (
                        mark in (folder / "environ").read_bytes().split(b"\0") or
                        pathlib.Path(os.readlink(folder / "cwd")).is_relative_to(self.folder)):
                    words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    if words:  # a zombie has none
                        found[int(folder.name)] = words
            except OSError:
                pass
        return found

    def check_nothing_is_left(self, instances=2):
        left = self.processes()
        assert not left, f"these go on: {left}"
        assert [port for port in self.ports.all(instances) if listens(port)] == []

    def close(self):
        """A group goes with its leader: nginx's workers are another user's, and root in a container cannot see
        where they are."""
        for pid in self.processes():
            try:
                if os.getpgid(pid) == pid:
                    os.killpg(pid, signal.SIGKILL)
                else:
                    os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


class Command:
    def __init__(self, process, log):
        self.process = process
        self.log = log

    @property
    def out(self):
        return pathlib.Path(f"{self.log}.out").read_text()

    @property
    def err(self):
        return pathlib.Path(f"{self.log}.err").read_text()

    @property
    def code(self):
        return self.process.returncode

    def finish(self):
        self.process.wait(PATIENCE_S)
        return self

    def press_ctrl_c(self):
        """What a terminal does: SIGINT to the whole group in its foreground. And what a person does: again, if nothing
        happens. A shell drops the one that comes just as its child ends by itself."""
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None and time.monotonic() < deadline:
            os.killpg(self.process.pid, signal.SIGINT)
            try:
                self.process.wait(2)
            except subprocess.TimeoutExpired:
                pass

    def __repr__(self):
        return f"exit code {self.code}\n--- out\n{self.out}\n--- err\n{self.err}"
