# SPDX-License-Identifier: Apache-2.0
"""A shop to measure: a private Redis, two inventoryd and nginx, on free ports, in a temporary folder. It ends
its processes by pid. It records no histories, because only the judge needs them."""
import contextlib
import http.client
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "flaws"))

from ports import free_port  # noqa: E402
from redis_server import Redis  # noqa: E402
from waiting import Inconclusive, wait_until  # noqa: E402

BUILD = pathlib.Path(os.environ.get("LADDER_BUILD", ROOT / "build" / "release"))
STOCK = 1_000_000_000  # never runs out


def request(port, method, path, body=None):
    """(code, body) of one request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


class Place:
    """A temporary folder, and processes that end with it. start_all() says which."""

    def __init__(self):
        self.stack = contextlib.ExitStack()
        self.folder = pathlib.Path(self.stack.enter_context(
            tempfile.TemporaryDirectory(prefix="ladder-bench-", ignore_cleanup_errors=True)))

    def __enter__(self):
        try:
            self.start_all()
        except BaseException:
            self.stack.close()
            raise
        return self

    def __exit__(self, *_):
        self.stack.close()

    def start(self, command):
        log = self.stack.enter_context(open(self.folder / f"{len(os.listdir(self.folder))}.log", "w"))
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.stack.callback(self.end, process)
        return process

    @staticmethod
    def end(process):
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def wait(self, ready, what):
        def is_ready():
            with contextlib.suppress(OSError, http.client.HTTPException):
                return ready()
        try:
            wait_until(is_ready, f"{what} is ready")
        except Inconclusive as why:
            logs = "\n".join(p.read_text()[-500:] for p in self.folder.glob("*.log"))
            raise SystemExit(f"bench: {why}\n{logs}") from why


class RedisWorld(Place):
    """A private Redis that writes nothing to disk."""

    def start_all(self):
        self.redis = Redis(self.folder / "redis", spawn=self.start)

    def redis_commands(self):
        """Commands that Redis ran, also inside scripts, without those that only ask for its state."""
        calls = 0
        for name, count in re.findall(r"cmdstat_(\S+?):calls=(\d+)", self.redis("INFO", "commandstats")):
            if name.split("|")[0] not in ("info", "ping", "config", "client", "hello"):
                calls += int(count)
        return calls


class World(RedisWorld):
    """A Redis and the shop."""

    def __init__(self, options):
        super().__init__()
        self.instances = []  # (port, admin port) of each
        self.options = options

    def start_all(self):
        super().start_all()
        for name in "ab":
            port, admin = free_port(), free_port()
            self.instances.append((port, admin))
            self.start([str(BUILD / "service" / "inventoryd"), "--instance", name,
                        "--listen", f"127.0.0.1:{port}", "--admin-listen", f"127.0.0.1:{admin}",
                        "--admin-writes", "--redis", self.redis.url,
                        *self.options])
            self.wait(lambda a=admin: request(a, "GET", "/readyz")[0] == 200, "inventoryd")
        self.start_nginx()
        self.wait(lambda: self.set_stock(STOCK), "nginx")

    def set_stock(self, stock):
        return request(self.operators_port, "PUT", "/inventory/phone", json.dumps({"stock": stock}))[0] == 200

    def start_nginx(self):
        """Starts nginx with the configuration that the shop uses."""
        self.port, self.operators_port = free_port(), free_port()
        conf = self.folder / "nginx.conf"
        upstreams = " ".join(f"--upstream {n}=127.0.0.1:{p} --admin {n}=127.0.0.1:{a}"
                             for n, (p, a) in zip("ab", self.instances))
        subprocess.run(["bash", "-c", f"source {ROOT}/scripts/lib/common.sh; "
                        f"source {ROOT}/scripts/lib/nginx.sh; nginx_render --out {conf} "
                        f"--listen 127.0.0.1:{self.port} --operators 127.0.0.1:{self.operators_port} "
                        f"--log {self.folder}/access.log {upstreams}"],
                       check=True)
        self.start(["nginx", "-p", str(self.folder), "-c", str(conf), "-g", "daemon off;"])

    def switch(self, rung, write):
        for _, admin in self.instances:
            code, body = request(admin, "PUT", "/lock", json.dumps({"rung": rung, "write": write}))
            if code != 200:
                raise SystemExit(f"bench: an instance did not switch to {rung}, {write}: {body}")


def wrk(port, path, connections, seconds, sale=False, threads=1):
    """What wrk measured; rate leaves out the answers that wrk calls bad."""
    command = ["wrk", f"-t{threads}", f"-c{connections}", f"-d{seconds}s", "--latency",
               "--timeout", "30s"]
    if sale:
        command += ["-s", str(ROOT / "bench" / "sale.lua")]
    out = subprocess.run([*command, f"http://127.0.0.1:{port}{path}"], check=True,
                         capture_output=True, text=True).stdout
    requests, took = re.search(r"(\d+) requests in ([\d.]+)s", out).groups()
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", out)
    broken = re.search(r"Socket errors: (.*)", out)
    good = int(requests) - (int(bad[1]) if bad else 0)
    return {"rate": good / float(took), "good": good, "bad": int(bad[1]) if bad else 0,
            "broken": broken[1] if broken else "", "p50_ms": latency_ms(out, "50%"),
            "p99_ms": latency_ms(out, "99%")}


def latency_ms(out, quantile):
    value, unit = re.search(rf"{quantile}\s+([\d.]+)(us|ms|s|m)", out).groups()
    return float(value) * {"us": 0.001, "ms": 1, "s": 1000, "m": 60000}[unit]


def redis_version():
    version = subprocess.run(["redis-server", "--version"], capture_output=True, text=True).stdout
    return f"Redis {re.search(r'v=([0-9.]+)', version)[1]}"


def nginx_version():
    return subprocess.run(["nginx", "-v"], capture_output=True, text=True).stderr.strip().rsplit(" ", 1)[-1]


def machine(*versions):
    """The machine and the versions, for the end of every table."""
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return ", ".join([f"{os.cpu_count()} cores of {cpu[1] if cpu else 'an unknown processor'}",
                      f"Linux {os.uname().release}", *versions])
