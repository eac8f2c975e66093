# SPDX-License-Identifier: Apache-2.0
"""The stage of one demonstration: a redis-server, the instances of inventoryd that it needs, one item on
sale, and a test driver that lets them act one after the other. Everything is real, private to the stage, and
ended by its process id. Nothing is waited for by time: every wait is for a cause, with a limit behind
which the demonstration is broken off."""
import csv
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

from server import Connection, free_port
from waiting import PATIENCE_S, Spoiled, wait_until

ITEM = "phone"
LOCK_KEY, STOCK_KEY = "lock:{phone}", "inventory:{phone}"
COUNT_KEY = f"{LOCK_KEY}:read_count"  # of who reads, where a rung counts them
SHORT_TTL_MS, LONG_TTL_MS = 500, 30000
RENEWED_TTL_MS = 2000  # of a lock that must live by its renewals: a machine that stalls for 600 ms is let pass
WAIT_MS = 3000  # how long a sale waits for a lock that never comes: far longer than a short one lives


def clients_clock():
    """The clock of the samples, for the judge."""
    try:
        namespace = os.readlink("/proc/self/ns/time")
    except OSError:
        namespace = "none"  # the kernel has none
    return {"boot_id": pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip(),
            "clock": "CLOCK_REALTIME", "time_namespace": namespace, "slack_ms": 2}


def new_folder(runs, name):
    """A folder that nobody else has, for a run that begins now."""
    pathlib.Path(runs).mkdir(parents=True, exist_ok=True)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{stamp}-{name}-", dir=runs))
    folder.chmod(0o755)
    return folder


# ---- Redis -----------------------------------------------------------------------------------------


class Monitor(threading.Thread):
    """MONITOR's lines: what the server says that it was sent, the second witness."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.lines = []
        self.connection = Connection(port, PATIENCE_S)
        self.connection("MONITOR")
        self.connection.socket.settimeout(None)  # it may have nothing to tell for long
        self.start()

    def run(self):
        try:
            while line := self.connection.stream.readline():
                self.lines.append(line[1:].decode(errors="replace").rstrip("\r\n"))
        except (OSError, ValueError):
            pass


class Redis:
    """A redis-server. `durable`: what it has answered survives its death."""

    def __init__(self, stage, name="redis", durable=False):
        self.stage, self.folder, self.durable = stage, stage.folder / name, durable
        self.folder.mkdir()
        self.monitors, self.own, self.port = [], set(), None
        self.start()

    def start(self):
        """Again on the same port."""
        for _ in range(5):  # another process may take the free port first
            self.port = self.port or free_port()
            self.process = self.stage.spawn(
                ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self.folder),
                 "--unixsocket", "redis.sock", "--appendonly", "yes" if self.durable else "no", "--appendfsync", "always"], subprocess.DEVNULL)
            wait_until(lambda: self.answers() or self.process.poll() is not None, "redis-server answers")
            if self.process.poll() is None:
                break
            self.port = None
        else:
            raise Spoiled("redis-server does not start")
        self.connection = self.connect()
        self.monitors.append(Monitor(self.port))
        self.own.add(self.monitors[-1].connection.address)

    def answers(self):
        """This server and no other that may have taken the port."""
        try:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(PATIENCE_S)
                probe.connect(f"/proc/{self.process.pid}/cwd/redis.sock")
                probe.sendall(b"PING\r\n")
                return probe.recv(64) == b"+PONG\r\n"
        except OSError:
            return False

    def connect(self):
        connection = Connection(self.port, PATIENCE_S)
        self.own.add(connection.address)
        return connection

    def __call__(self, *words):
        return self.connection(*words)

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE_S)

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

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}"


# What is asked first on a new connection: by the library at once, by the service one after the other. The service makes
# one as it starts, to see whether the server is there: no scenario can tell when.
LOGIN = (b"*2\r\n$6\r\nCLIENT\r\n$2\r\nID\r\n", b"*2\r\n$4\r\nINFO\r\n$6\r\nserver\r\n")


class Cable:
    """The cable between an instance and Redis. cut() cuts every connection, down() lets none come again before
    up(); with lose_next the next command reaches Redis, but its reply is lost and the connection cut. hold()
    keeps back what Redis answers, until go_on(). A login is no command: it passes."""

    def __init__(self, redis):
        self.redis, self.port = redis, free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        self.lose_next = False
        self.pairs = []
        self.moving, self.held, self.held_back = threading.Condition(), False, 0
        self.up()

    def up(self):
        self.listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self.run, args=(self.listener,), daemon=True).start()

    def down(self):
        self.listener.shutdown(socket.SHUT_RDWR)  # accept() ends, and with it what it would have taken
        self.listener.close()
        self.cut()

    def run(self, listener):
        while True:
            try:
                client, _ = listener.accept()
                server = socket.create_connection(("127.0.0.1", self.redis.port), PATIENCE_S)
            except OSError:
                return
            self.pairs.append((client, server))
            in_login = threading.Event()
            threading.Thread(target=self.ask, args=(client, server, in_login), daemon=True).start()
            threading.Thread(target=self.answer, args=(server, client, in_login), daemon=True).start()

    def ask(self, client, server, in_login):
        try:
            while data := client.recv(65536):
                (in_login.set if data.startswith(LOGIN) else in_login.clear)()
                server.sendall(data)
        except OSError:
            pass
        self.cut_pair(client, server)

    def answer(self, server, client, in_login):
        try:
            while data := server.recv(65536):
                if not in_login.is_set():
                    if self.lose_next:
                        self.lose_next = False
                        break
                    self.wait_free()
                client.sendall(data)
        except OSError:
            pass
        self.cut_pair(server, client)

    def wait_free(self):
        with self.moving:
            self.held_back += self.held
            self.moving.wait_for(lambda: not self.held)

    def hold(self):
        with self.moving:
            self.held, self.held_back = True, 0

    def go_on(self):
        with self.moving:
            self.held = False
            self.moving.notify_all()

    @staticmethod
    def cut_pair(*pair):
        for end in pair:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        for pair in self.pairs:
            self.cut_pair(*pair)

    def end(self):
        self.listener.close()
        self.cut()
        self.go_on()


# ---- An instance and its sales ---------------------------------------------------------------------


class Sale(threading.Thread):
    """A buyer's request, from its sending to its answer; or of one who only asks what is there."""

    def __init__(self, instance, name, query="", buys=True):
        super().__init__(daemon=True)
        self.instance, self.name, self.buys = instance, name, buys
        self.method, self.path = ("POST", f"/inventory/{ITEM}/sale{query}") if buys else ("GET", f"/inventory/{ITEM}")
        self.status, self.body, self.took_ms, self.answered_ns = 0, {}, 0, None
        self.at_s, self.began = time.time(), time.monotonic()
        self.start()

    def run(self):
        try:
            self.status, self.body = self.instance.ask(
                self.method, self.path, self.instance.port, headers={"X-Request-Id": self.name})
        except OSError:  # its instance died
            self.status = 0
        self.answered_ns = time.monotonic_ns()
        self.took_ms = int((time.monotonic() - self.began) * 1000)

    @property
    def answered(self):
        return self.answered_ns is not None

    @property
    def answer(self):
        """In words, as the buyer would tell it."""
        if self.status == 200 and not self.buys:
            return f"{self.body['stock']} in stock"
        if self.status == 200:
            return f"sold unit {self.body['unit']}, {self.body['left']} left"
        if self.status == 0:
            return "no answer: the connection broke"
        return f"{self.status} {self.body.get('type', '?').rsplit(':', 1)[-1]}"


class Instance:
    def __init__(self, stage, name, ttl_ms, flags, lock_url):
        self.stage, self.name = stage, name
        self.files = stage.folder / f"files-{name}"
        self.files.mkdir()
        self.history = stage.folder / f"history-{name}.jsonl"
        self.log = stage.folder / f"{name}.log"
        self.armed = set()
        self.dead_ns, self.frozen = 0, False
        command = [str(stage.inventoryd), "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--instance", name,
                   "--redis", stage.redis.url, "--lock-redis", lock_url, "--lock", stage.rung.lock.name,
                   "--write", stage.write, "--check-hold", "on" if stage.check_hold else "off",
                   "--ttl-ms", str(ttl_ms), "--workers", "4", "--history", str(self.history), "--run", stage.folder.name, "--history-commands",
                   "--fail-fast-ms", "600000",  # when an outage ends is the scenario's business
                   "--enable-failpoints", "--failpoint-files", str(self.files), *flags]
        with open(self.log, "wb") as log:
            self.process = stage.spawn(command, log)
        wait_until(lambda: self.logged("started") or self.process.poll() is not None, f"instance {name} starts")
        if self.process.poll() is not None:
            raise Spoiled(f"instance {name} does not start: {self.log.read_text(errors='replace').strip()}")
        self.port, self.admin_port = self.port_of("listening"), self.port_of("admin-listening")

    def logged(self, event):
        for line in self.log.read_text(errors="replace").splitlines():
            if line.startswith("{") and line.endswith("}") and json.loads(line)["event"] == event:
                return json.loads(line)
        return None

    def port_of(self, event):
        return int(self.logged(event)["detail"].rsplit(":", 1)[1])

    def ask(self, method, path, port, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2 * PATIENCE_S)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            data = answer.read()
            return answer.status, json.loads(data) if data[:1] == b"{" else data.decode()
        except OSError as error:
            if port == self.admin_port and not self.dead_ns and self.process.poll() is not None:
                raise Spoiled(f"process {self.name} ended by itself, with {self.ending()}: see {self.log}") from error
            raise
        except http.client.HTTPException as error:
            raise ConnectionError(str(error)) from error
        finally:
            connection.close()

    # ---- what the test driver does with it ----

    def sell(self, query=""):
        """A buyer asks this instance; the sale goes on by itself."""
        return self.stage.add_sale(Sale(self, self.stage.new_name(self), query))

    def read(self):
        """One who does not buy asks what is there."""
        return self.stage.add_sale(Sale(self, self.stage.new_name(self), buys=False))

    def set_point(self, point, action):
        status, answer = self.ask("PUT", "/failpoints", self.admin_port, json.dumps({"point": point, "action": action}))
        if status != 200:
            raise Spoiled(f"instance {self.name} refused {point}={action}: {answer}")

    def arm(self, point, action="pause"):
        """Whoever comes there is paused. To set it anew would let go of those who are."""
        if point not in self.armed:
            self.set_point(point, action)
        self.armed.add(point)

    def parked(self, point):
        _, answer = self.ask("GET", "/failpoints", self.admin_port)
        return next((one["parked"] for one in answer["failpoints"] if one["point"] == point), 0)

    def let_go(self, point):
        """Whoever is paused there goes on. By a file, so that it works for a frozen process too."""
        (self.files / point).touch()

    def let_one_go(self, point):
        """Whoever is paused there goes on; the next one is paused."""
        self.set_point(point, "pause")

    def metric(self, name):
        _, text = self.ask("GET", "/metrics", self.admin_port)
        return int(next(line.split()[1] for line in text.splitlines() if line.startswith(f"{name} ")))

    def count(self, what):
        """One of the lock's counts: contended (acquires that found it busy), attempts, renewals, grants_expired,
        redis_commands, redis_connects."""
        return self.metric(f"lock_{what}_total")

    def waiting(self):
        """How many of its sales wait for their lock."""
        return self.metric("inventoryd_sales_waiting")

    def in_flight(self):
        """How many of its sales are not answered yet."""
        return self.metric("inventoryd_sales_in_flight")

    def events(self):
        text = self.history.read_text(encoding="utf-8") if self.history.exists() else ""
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    def state(self):
        return pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: self.state() == "T", f"{self.name} is frozen")
        self.frozen = True

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)
        self.frozen = False

    def wait_dead(self, how):
        wait_until(lambda: self.process.poll() is not None, f"instance {self.name} dies")
        self.dead_ns = self.stage.note(how)

    def end(self):
        """In order where it can: then its history has an end."""
        if self.process.poll() is None:
            if self.frozen:
                self.thaw()
            self.process.terminate()
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def ending(self):
        code = self.process.returncode
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    def complaint(self):
        """What a sanitizer said of it, or ""."""
        found = re.search(r".*(?:ERROR|WARNING): \w+Sanitizer.*|.*runtime error:.*", self.log.read_text(errors="replace"))
        return found[0] if found else ""


# ---- The stage -------------------------------------------------------------------------------------


class Stage:
    """One run of one scenario on one rung. Used by `with`: at its end nothing is left but the run's folder."""

    def __init__(self, rung, fault, inventoryd, auditor, runs, write="set", check_hold=False, stock=1, expect=None):
        self.rung, self.inventoryd, self.auditor = rung, inventoryd, auditor
        self.fault = fault + ("+check" if check_hold else "")
        self.write, self.check_hold, self.stock, self.expect = write, check_hold, stock, expect
        self.runs = pathlib.Path(runs)
        self.instances, self.sales, self.cables, self.names, self.processes = {}, [], [], {}, []
        self.notes, self.seen = [], []
        self.crowd = set()  # the names of those whose sales are told together
        self.redis = self.lock_redis = None
        self.restocked = False  # whether the stock is changed while it is sold

    def __enter__(self):
        self.folder = new_folder(self.runs, f"{self.rung.name}-{self.fault.replace('+', '.')}")
        return self

    def __exit__(self, *_):
        for instance in self.instances.values():
            instance.end()
        for cable in self.cables:
            cable.end()
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        for name in ("redis", "lock-redis", *(f"files-{name}" for name in self.instances)):
            shutil.rmtree(self.folder / name, ignore_errors=True)

    def spawn(self, command, out):
        """A process of this stage. In a session of its own: Ctrl-C is the test driver's to hear."""
        self.processes.append(subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True))
        return self.processes[-1]

    # ---- setting up ----

    def open(self, lock_apart=False, durable=False):
        """Redis and the stock. lock_apart: the lock has a server of its own."""
        self.redis = Redis(self, durable=durable)
        self.lock_redis = Redis(self, "lock-redis", durable) if lock_apart else self.redis
        self.redis("SET", STOCK_KEY, self.stock)
        self.before = self.redis_side()

    def instance(self, name, ttl_ms, *flags, cable=None):
        url = cable.url if cable else self.lock_redis.url
        self.ttl_ms = ttl_ms if not self.instances else self.ttl_ms  # the first one's is what may run out
        self.instances[name] = Instance(self, name, ttl_ms, flags, url)
        return self.instances[name]

    def cable(self):
        self.cables.append(Cable(self.lock_redis))
        return self.cables[-1]

    def new_name(self, instance):
        self.names[instance.name] = self.names.get(instance.name, 0) + 1
        return f"{instance.name}{self.names[instance.name]}"

    def add_sale(self, sale):
        self.sales.append(sale)
        return sale

    # ---- directing ----

    def note(self, text, seen=None):
        """What the test driver does or sees, for the transcript. Its time. seen: the same for the picture, in short."""
        self.notes.append((time.monotonic_ns(), text))
        if seen:
            self.seen.append({"t_ns": self.notes[-1][0], "text": seen})
        return self.notes[-1][0]

    def enter(self, instance, point, query="", or_else=lambda: False):
        """A sale of that instance (with None for its query: who only reads), up to the point, where it is paused; or
        the lock keeps it out, or_else something does. The sale, and whether it is at the point."""
        waited, asked, parked = instance.count("contended"), instance.count("attempts"), instance.parked(point)
        enough = asked + self.rung.asks_in_vain
        # Its client has the lock: it does not ask, it stands in the client's own line.
        in_line = self.rung.hands_over and any(sale.instance is instance and not sale.answered for sale in self.sales)
        waiting = instance.waiting()
        instance.arm(point)
        sale = instance.sell(query) if query is not None else instance.read()

        def is_kept_out():
            if in_line:
                return instance.waiting() > waiting
            return instance.count("contended") > waited and instance.count("attempts") >= enough
        wait_until(lambda: instance.parked(point) > parked or is_kept_out() or sale.answered or or_else(),
                   f"{sale.name} comes to {point}, or waits")
        if sale.answered:
            raise Spoiled(f"{sale.name} was answered before it came to {point}: {sale.answer}")
        return sale, instance.parked(point) > parked

    def park(self, instance, point, query=""):
        """The same where nothing keeps it out."""
        sale, inside = self.enter(instance, point, query)
        if not inside:
            raise Spoiled(f"{sale.name} waits for a lock that should be free")
        return sale

    def wait_inside(self, sale, point):
        """A sale that waited for the lock has it, and is paused."""
        wait_until(lambda: sale.instance.parked(point) == 1, f"{sale.name} comes to {point}")
        self.note(f"{sale.name} has read the stock and pauses")
        return True

    def let_go(self, sale, point):
        """The sale that is paused there goes on. Said before it does."""
        self.note(f"{sale.name} goes on")
        sale.instance.let_go(point)

    def wait_answered(self, *sales):
        for sale in sales:
            wait_until(lambda: sale.answered, f"{sale.name} is answered", 2 * PATIENCE_S)

    def listeners(self):
        """The connections on which somebody waits for what the lock's Redis will say, each as CLIENT LIST has it."""
        lines = self.lock_redis("CLIENT", "LIST").splitlines()
        clients = [dict(word.split("=", 1) for word in line.split()) for line in lines]
        return [client for client in clients if {"P", "b"} & set(client["flags"])]

    def cut_listeners(self):
        """How many of them were cut."""
        return sum(self.lock_redis("CLIENT", "KILL", "ID", client["id"]) for client in self.listeners())

    def wait_second(self):
        """A second by Redis' own clock."""
        self.redis("SET", "a second", 1, "PX", 1000)
        wait_until(lambda: self.redis("EXISTS", "a second") == 0, "a second goes by")

    def wait_expired(self):
        """The lock's key goes by itself."""
        wait_until(lambda: self.lock_redis("EXISTS", LOCK_KEY) == 0, "the lock expires")
        self.note("the lock expires", "the lock expires")

    def handed_over(self):
        """Whether the lock was given to somebody who has not answered yet."""
        return self.rung.hands_over and self.lock_redis("HGET", LOCK_KEY, "state") == "granted"

    def has_ttl(self):
        return self.lock_redis("PTTL", LOCK_KEY) >= 0

    def redis_side(self):
        """A lock is there, too, while readers are counted."""
        counted = self.lock_redis("GET", COUNT_KEY) not in (None, "0")
        key = COUNT_KEY if counted and self.lock_redis("EXISTS", LOCK_KEY) == 0 else LOCK_KEY
        kind, pttl = self.lock_redis("TYPE", key), self.lock_redis("PTTL", key)
        stock = self.redis("GET", STOCK_KEY)
        return {"stock": {ITEM: None if stock is None else int(stock)},
                "locks": {ITEM: {"type": kind, "pttl_ms": pttl}}}

    # ---- judging ----

    def judge(self):
        """Ends the instances in order and asks the judge. verdict.json, as it stands in the folder."""
        self.wait_answered(*self.sales)
        after = self.redis_side()
        self.ended_ns = time.monotonic_ns()
        for instance in self.instances.values():
            instance.end()
            if instance.complaint():
                raise RuntimeError(f"instance {instance.name}: {instance.complaint()}")
        write = lambda name, value: (self.folder / name).write_text(json.dumps(value) + "\n", encoding="utf-8")
        write("redis.json", {"before": self.before, "after": after})
        write("run.json", {
            "run": self.folder.name, "rung": self.rung.lock.name, "write": self.write, "fault": self.fault,
            "instances": list(self.instances), "workers": 4, "ttl_ms": self.ttl_ms, "work_ms": 0, "wait_ms": WAIT_MS,
            "keys": "item", "guard": "lock", "items": {ITEM: self.stock}, "requests": sum(sale.buys for sale in self.sales), "quantity": 1,
            "clients": clients_clock(), "scenario": self.fault, "min_share": 0, "expect": self.expect, "restocked": self.restocked, "direct": True, "seen": self.seen})
        self.write_jtl()
        done = subprocess.run([str(self.auditor), str(self.folder)], capture_output=True, text=True, timeout=60)
        if done.returncode not in (0, 1, 2) or not (self.folder / "verdict.json").exists():
            raise Spoiled(f"the judge ended with {done.returncode}: {done.stderr.strip()}")
        return json.loads((self.folder / "verdict.json").read_text(encoding="utf-8"))

    def write_jtl(self):
        with open(self.folder / "sale.jtl", "w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(["timeStamp", "elapsed", "label", "responseCode", "success", "failureMessage",
                           "request", "item", "instance", "unit", "left"])
            for sale in filter(lambda sale: sale.buys, self.sales):
                code = sale.status or "Non HTTP response code: java.net.SocketException"
                rows.writerow([int(sale.at_s * 1000), sale.took_ms, f"POST /inventory/{ITEM}/sale", code,
                               "true" if sale.status in (200, 409, 503) else "false", "", sale.name, ITEM,
                               sale.instance.name if sale.status else "", sale.body.get("unit", ""), sale.body.get("left", "")])
