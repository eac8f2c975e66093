# SPDX-License-Identifier: Apache-2.0
"""The load of one of the small services: two instances behind nginx, a Redis of their own, JMeter, and the records for
the judge. All of it is private to the run, and ended by its process id."""
import csv
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import xml.etree.ElementTree

from build import ROOT, Failed
from records import clients_clock, new_folder
from redis_server import Redis, spawn
from started import Started
from waiting import STOP, Inconclusive, dying_with, run_unless_stopped, wait_until

INSTANCES = ("a", "b")
NAME = re.compile("[a-z0-9_-]{1,64}")
NAMED_MAX = 1000  # tasks, by the judge
END_S = 60  # how long nginx and the instances may take for the requests in flight
WRITTEN_BY_US = ("host", "port", "admin_host", "admin_port", "admin_token_file")
RANGES = {"threads": (1, 20000), "pace": (0, 600000), "duration": (1, 86400), "response_ms": (1000, 3600000), "update_every": (0, 3600000),
          "accounts": (2, 99), "balance": (0, 10**12), "amount": (1, 10**12), "tasks": (1, 100000), "wait": (0, 60000)}


class Refused(Failed):
    """What was asked for cannot be done; the text says why, and what can."""


def call(function, *words, **more):
    """A function of scripts/lib: its process, when it has ended."""
    environment = {**os.environ, "LADDER_PROGRAM": "scenario", **more.pop("environment", {})}
    return run_unless_stopped([str(ROOT / "scripts" / "lib" / "call"), function, *map(str, words)], stdin=subprocess.DEVNULL,
                              env=environment, **more)


def said_by(function, *words, **more):
    """What it prints. A refusal has been told on standard error."""
    done = call(function, *words, stdout=subprocess.PIPE, **more)
    if done.returncode != 0:
        raise Refused("")
    return done.stdout


# ---- The numbers of a load -------------------------------------------------------------------------


class Numbers:
    """JMeter's properties, as the plan will see them: its own table, then the set, then the user's words. What the set
    has for the service itself, as in menud.cache-ms=1500, is in `flags`."""

    def __init__(self, service, scenario, words):
        self.plan, self.words = ROOT / "jmeter" / f"{service.name}.jmx", words
        self.file = next((file for file in (service.folder / f"{scenario}.properties", pathlib.Path(scenario)) if file.is_file()), None)
        if self.file is None:
            raise Refused(f'there is no load "{scenario}"; there are {", ".join(service.loads())}, or name a file of JMeter properties')
        self.name, self.flags = self.file.stem, {}
        self.values = table_of(self.plan)
        given = self.read() + [word[2:].split("=", 1) for word in words]
        self.given = {name for name, _ in given}
        for name, value in given:
            if name.startswith(service.program + "."):
                self.flags[name.partition(".")[2]] = value
            elif name in WRITTEN_BY_US:
                raise Refused(f"-J{name}: the load goes to the service that this starts")
            elif name in self.values:
                self.values[name] = value
            elif "." not in name:  # with a dot it is one of JMeter's own
                raise Refused(f'the plan has no property "{name}"; it has {", ".join(self.values)}')
        self.check()

    def read(self):
        lines = (line.strip() for line in self.file.read_text(encoding="utf-8").splitlines())
        return [[part.strip() for part in line.split("=", 1)] for line in lines if "=" in line and line[0] not in "#!"]

    def __getitem__(self, name):
        """A number, if it must be one."""
        return int(self.values[name]) if name in RANGES or name == "loops" else self.values[name]

    def names(self, name):
        return self.values[name].split(",")

    def check(self):
        """JMeter takes any text, and makes 0 of what is no number."""
        for name, value in self.values.items():
            least, most = RANGES.get(name, (1, 1000000))
            if name == "loops" and value == "-1":
                if "duration" not in self.given:
                    raise Refused("loops is -1, for as long as duration says: give a duration in seconds")
            elif name in RANGES or name == "loops":
                if not re.fullmatch("0|[1-9][0-9]{0,12}", value) or not least <= int(value) <= most:
                    raise Refused(f'{name} is "{value}"; it must be a whole number from {least} to {most}')
            elif name in ("menus", "list") and not all(NAME.fullmatch(word) for word in (value.split(",") if name == "menus" else [value])):
                raise Refused(f'{name} is "{value}"; a name has 1 to 64 of a-z 0-9 _ -')
        if self.values.get("update_every", "0") != "0" and self["loops"] != -1:
            raise Refused("update_every goes on until duration is over: it needs loops=-1")


def table_of(plan):
    """The plan's table of properties: name -> default."""
    found = {}
    for one in xml.etree.ElementTree.parse(plan).iter("elementProp"):
        value = one.find("stringProp[@name='Argument.value']")
        match = re.fullmatch(r"\$\{__P\((\w+),(.*)\)\}", value.text or "") if value is not None else None
        if match and one.get("elementType") == "Argument":
            found[match[1]] = match[2]
    return found


# ---- The services ----------------------------------------------------------------------------------


class Service:
    """What is its own of each: which configurations are shown, and what lies in Redis."""
    rows = {}      # name -> its flags
    settings = ()  # of an instance's configuration, for run.json
    labels = ()    # how the labels of the samples begin that the judge counts

    @property
    def name(self):
        return type(self).__name__.lower()

    @property
    def program(self):
        return f"{self.name}d"

    @property
    def folder(self):
        return ROOT / "jmeter" / "scenarios" / self.name

    def loads(self):
        return sorted(file.stem for file in self.folder.glob("*.properties"))

    def own_flags(self, folder):
        """Of each instance, beside what all services have."""
        return {}

    def data(self, numbers):
        """What operators lay before the load: path -> body."""
        return {}

    def samples(self, numbers):
        """How many samples the judge will count, or None."""
        return None

    def setting(self, config, name):
        """One of an instance's settings, as run.json has it."""
        return {True: "on", False: "off"}[config[name]] if isinstance(config[name], bool) else config[name]

    def redis_side(self, redis, numbers):
        """For redis.json, beside the locks."""
        return {}


class Menu(Service):
    load = "readers"
    labels = ("GET menu", "PUT menu")
    variables = "request,item,instance,version"
    settings = ("cache_ms", "db_ms", "second_look", "guard_update", "fill", "refresh_ms")
    rows = {"none": {"lock": "none"},
            "local": {"lock": "local"},
            "no-second-look": {"lock": "watchdog", "second-look": "off"},
            "watchdog": {"lock": "watchdog"},
            "fenced": {"lock": "fair", "fill": "fenced"}}
    shown = ("GET", "/menus/lunch"), ("PUT", "/menus/lunch", '{"dishes":["soup","rice"]}')

    def own_flags(self, folder):
        return {"database": folder / "menu.db"}

    def locks(self, numbers):
        return numbers.names("menus")

    def items(self, numbers):
        """No menu is there: the load puts each, which the judge sees."""
        return {name: 0 for name in self.locks(numbers)}

    def samples(self, numbers):
        return numbers["threads"] * numbers["loops"] + len(self.locks(numbers)) if numbers["loops"] > 0 else None

    def redis_side(self, redis, numbers):
        menus = {name: redis("GET", "menu:{%s}" % name) for name in self.locks(numbers)}
        return {"cached": {name: int(menu.split(" ", 1)[0]) if menu else 0 for name, menu in menus.items()}}


class Account(Service):
    load = "transfers"
    labels = ("POST transfer",)
    variables = "request,item,instance,version"
    settings = ("work_ms", "write", "locks")
    rows = {"none": {"lock": "none", "write": "two"},
            "local": {"lock": "local", "write": "two"},
            "unordered": {"lock": "watchdog", "locks": "unordered"},
            "watchdog": {"lock": "watchdog"},
            "fair": {"lock": "fair"}}
    shown = ("GET", "/accounts/acc-01"), ("POST", "/transfers?from=acc-01&to=acc-02&amount=5"), ("PUT", "/accounts/acc-01", '{"balance":1000}')

    def locks(self, numbers):
        return [f"acc-{number:02}" for number in range(1, numbers["accounts"] + 1)]

    def items(self, numbers):
        return {name: numbers["balance"] for name in self.locks(numbers)}

    def data(self, numbers):
        return {f"/accounts/{name}": {"balance": balance} for name, balance in self.items(numbers).items()}

    def samples(self, numbers):
        return numbers["threads"] * numbers["loops"] if numbers["loops"] > 0 else None

    def redis_side(self, redis, numbers):
        found = {name: redis("HMGET", "account:{bank}:%s" % name, "balance", "version") for name in self.locks(numbers)}
        return {"accounts": {name: {"balance": int(balance), "version": int(version)} for name, (balance, version) in found.items()}}


class Tasks(Service):
    load = "list"
    labels = ("POST work",)
    variables = "request,item,instance,task"
    settings = ("task_ms", "lease_ms", "result")
    rows = {"none": {"lock": "none"},
            "local": {"lock": "local"},
            "watchdog": {"lock": "watchdog"},
            "fenced": {"lock": "fair", "result": "fenced"}}
    shown = ("POST", "/lists/list/work"), ("GET", "/lists/list"), ("PUT", "/lists/list", '{"tasks":1000}')

    def locks(self, numbers):
        return [numbers["list"]]

    def items(self, numbers):
        return {numbers["list"]: numbers["tasks"]}

    def data(self, numbers):
        return {f"/lists/{numbers['list']}": {"tasks": numbers["tasks"]}}

    def setting(self, config, name):
        return 0 if name == "lease_ms" and not config["lease"] else super().setting(config, name)

    def redis_side(self, redis, numbers):
        key = "tasks:{%s}" % numbers["list"]
        seconds, micros = redis("TIME")
        members, results = redis("ZRANGE", key, 0, -1, "WITHSCORES"), redis("HKEYS", f"{key}:results")
        now_ms = int(seconds) * 1000 + int(micros) // 1000
        leased = sum(float(score) > now_ms for score in members[1::2])
        missing = sorted(set(range(1, numbers["tasks"] + 1)) - {int(task) for task in results})
        return {"tasks": {numbers["list"]: {"open": len(members) // 2 - leased, "leased": leased, "done": len(results),
                                            "missing": missing[:NAMED_MAX], "missing_count": len(missing)}}}


SERVICES = {service.name: service for service in (Menu(), Account(), Tasks())}


# ---- The parts of a run ----------------------------------------------------------------------------


class World:
    """A Redis, the instances and nginx, in a folder. Used by `with`."""

    def __init__(self, service, folder, program, flags, port, record=True):
        self.service, self.folder, self.program, self.flags, self.port, self.record = service, folder, program, flags, port, record
        self.parts, self.instances, self.nginx, self.redis = folder / "parts", [], None, None

    def __enter__(self):
        try:
            self.parts.mkdir()
            self.redis = Redis(self.parts / "redis", spawn=of_this_thread)
            self.instances = [self.start(name) for name in INSTANCES]
            for instance in self.instances:
                instance.wait_started()
            self.start_nginx()
            return self
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        self.end_service()
        if self.redis:
            self.redis.kill()
        shutil.rmtree(self.parts, ignore_errors=True)

    def start(self, name):
        flags = {"listen": "127.0.0.1:0", "admin-listen": "127.0.0.1:0", "instance": name, "redis": self.redis.url,
                 **self.service.own_flags(self.parts), **self.flags}
        if self.record:
            flags |= {"history": self.folder / f"history-{name}.jsonl", "run": self.folder.name}
        log_path = self.folder / f"{name}.log"
        words = [self.program, *(str(word) for flag, value in flags.items() for word in (f"--{flag}", value) if word is not None)]
        with open(log_path, "wb") as log:
            return Started(name, of_this_thread(words, log), log_path)

    def start_nginx(self):
        conf = self.parts / "nginx" / "nginx.conf"
        said_by("nginx_render", "--out", conf, "--service", self.service.name, "--listen", f"127.0.0.1:{self.port}", "--operators",
                f"127.0.0.1:{self.port + 1}", "--log", self.folder / "nginx.log",
                *(word for one in self.instances for word in ("--upstream", f"{one.name}=127.0.0.1:{one.port}", "--admin",
                                                              f"{one.name}=127.0.0.1:{one.admin_port}")))
        words = said_by("nginx_command", conf).splitlines()
        with open(self.parts / "nginx" / "error.log", "ab") as log:
            self.nginx = of_this_thread([*words, "-g", "daemon off;"], log, signal_name="QUIT")
        pid_file = conf.with_name("nginx.pid")
        wait_until(lambda: self.nginx.poll() is not None or pid_file.exists() and pid_file.stat().st_size > 0, "nginx listens")
        if self.nginx.poll() is not None:
            raise Inconclusive(f"nginx does not start: {conf.with_name('error.log').read_text(errors='replace').strip()}")

    def end_service(self):
        """In order: first who takes requests, then who serves those that were taken."""
        if self.nginx and self.nginx.poll() is None:
            self.nginx.send_signal(signal.SIGQUIT)
            try:
                self.nginx.wait(END_S)
            except subprocess.TimeoutExpired:
                self.nginx.terminate()
                self.nginx.wait()
        for instance in self.instances:
            if instance.process.poll() is None:
                instance.process.terminate()
        for instance in self.instances:
            instance.wait_ended(END_S)

    def must_live(self):
        for instance in self.instances:
            if instance.process.poll() is not None:
                raise Inconclusive(f"instance {instance.name} has ended by itself: see {instance.log_path}")

    def config(self):
        return json.loads(self.instances[0].exchange("GET", "/config", self.instances[0].admin_port)[2])

    def lay(self, data):
        """By an operator, at an instance itself: nginx's log is about the load alone."""
        for path, body in data.items():
            status, _, answer = self.instances[0].exchange("PUT", path, self.instances[0].admin_port, json.dumps(body),
                                                           {"Content-Type": "application/json"})
            if status != 200:
                raise Inconclusive(f"PUT {path} was refused: {answer.decode(errors='replace')}")

    def side(self, numbers, after):
        """What Redis holds, without the commands that look."""
        def commands():
            return int(re.search(r"total_commands_processed:(\d+)", self.redis("INFO", "stats"))[1])
        seen = commands() if after else None
        locks = {name: {"type": self.redis("TYPE", "lock:{%s}" % name), "pttl_ms": self.redis("PTTL", "lock:{%s}" % name)}
                 for name in self.service.locks(numbers)}
        found = {**self.service.redis_side(self.redis, numbers), "locks": locks}
        return {**found, "commands": seen if after else commands()}


def of_this_thread(command, out=subprocess.DEVNULL, signal_name="KILL"):
    """A process that does not outlive it."""
    return spawn(dying_with(command, signal_name), out)


# ---- A run -----------------------------------------------------------------------------------------


class Run:
    """One row, fired once."""

    def __init__(self, service, row, numbers, flags, tools, options):
        self.service, self.numbers, self.flags, self.options = service, numbers, flags, options
        self.program, self.auditor = tools
        self.folder = new_folder(options.runs, f"{service.name}-{row}")

    def fire(self):
        """The judge's exit code. Nothing is left if there was no load, or if the user stops it before there is a verdict."""
        try:
            with World(self.service, self.folder, self.program, self.flags, self.options.port) as world:
                world.lay(self.service.data(self.numbers))
                before, config = world.side(self.numbers, after=False), world.config()
                (self.folder / "env.txt").write_text(said_by(
                    "write_env", self.service.program, f"127.0.0.1:{world.instances[0].admin_port}",
                    environment={"LADDER_REDIS": f"127.0.0.1:{world.redis.port}"}), encoding="utf-8")
                self.load()
                world.must_live()
                world.end_service()
                self.write("redis.json", {"before": before, "after": world.side(self.numbers, after=True)})
            self.write("run.json", self.spec(config))
            return self.judge()
        finally:
            if not (self.folder / ("verdict.json" if STOP.is_set() else "load.jtl")).exists():
                shutil.rmtree(self.folder, ignore_errors=True)

    def write(self, name, content):
        (self.folder / name).write_text(json.dumps(content) + "\n", encoding="utf-8")

    def load(self):
        words = [*self.numbers.words, f"-Jsample_variables={self.service.variables}", "-Jhost=127.0.0.1", f"-Jport={self.options.port}",
                 "-Jadmin_host=127.0.0.1", f"-Jadmin_port={self.options.port + 1}"]
        with open(self.folder / "jmeter.out", "wb") as out:
            done = call("jmeter_fire", self.numbers.plan, self.folder / "load.jtl", self.numbers.file, *words, stdout=out, stderr=out)
        self.samples = 0
        if (self.folder / "load.jtl").exists():
            with open(self.folder / "load.jtl", newline="", encoding="utf-8") as file:
                self.samples = sum(row["label"].startswith(self.service.labels) for row in csv.DictReader(file))
        asked = self.service.samples(self.numbers)
        if done.returncode != 0 or self.samples == 0:
            raise Refused(f"JMeter ended with code {done.returncode} after {self.samples} requests: see {self.folder}/jmeter.out and jmeter.log")
        if asked and asked != self.samples:
            raise Refused(f"JMeter sent {self.samples} requests, asked for were {asked}: see {self.folder}/jmeter.log")

    def spec(self, config):
        return {"run": self.folder.name, "service": self.service.name, "rung": config["lock"], "fault": "none", "instances": INSTANCES,
                **{name: self.service.setting(config, name) for name in ("workers", "ttl_ms", "wait_ms", *self.service.settings)},
                "items": self.service.items(self.numbers), "requests": self.samples, "scenario": self.numbers.name,
                "min_share": 0.5, "expect": None, "clients": clients_clock(slack_ms=5)}

    def judge(self):
        done = run_unless_stopped([self.auditor, str(self.folder)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        (self.folder / "audit.out").write_text(done.stdout, encoding="utf-8")
        if done.returncode not in (0, 1, 2):
            raise Refused(f"the judge ended with {done.returncode}: {done.stdout[-500:]}")
        self.said = done.stdout.splitlines()
        latest = self.folder.parent / "latest"
        latest.unlink(missing_ok=True)
        latest.symlink_to(self.folder.name)
        return done.returncode

    @property
    def is_spoiled(self):
        """The machine disturbed it. (Code 2 alone may also mean that nobody wrote down what is expected.)"""
        verdict = self.folder / "verdict.json"
        return verdict.exists() and json.loads(verdict.read_text(encoding="utf-8"))["result"] == "inconclusive"


def refuse_busy_port(port, what):
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
    except OSError:
        by = call("who_listens", port, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout or "somebody"
        raise Refused(f"port {port}, wanted for {what}, is taken by {by}: choose another with --port") from None
