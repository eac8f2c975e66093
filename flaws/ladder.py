# SPDX-License-Identifier: Apache-2.0
"""The ladder, read from its files: the rungs in order, the card on top of each, the code, and the points where it can be
stopped. And the change from one rung to the next. On top of them
stand the names that mean a rung and a way to write together. The rungs of other engines have no file in lock/rungs, so
they have a list of their own."""
import difflib
import json
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(os.environ.get("LADDER_ROOT") or pathlib.Path(__file__).resolve().parent.parent)
LADDER = ROOT / "docs" / "reference" / "rungs.json"
CARD = re.compile(r"^(?: \*|--) (ADDS|FLAW|SHOW|CURE|NEXT|COST) +(.*)$", re.MULTILINE)


class Rung:
    """One of rungs.json, where inventoryd says what the library has."""

    def __init__(self, said):
        self.name, self.flawed, self.adds, self.flaw = (said[key] for key in ("name", "flawed", "adds", "flaw"))
        self.engine = said["engine"]
        self.traits = {key: value for key, value in said.items() if isinstance(value, bool) and key != "flawed"}
        self.lock, self.write, self.chapter = self, None, self.name
        self.said, self.herds, self.settings, self.is_policy = said, False, {}, False

    @property
    def path(self):
        return ROOT / "lock" / "rungs" / f"{self.name}.c"

    @property
    def text(self):
        return self.path.read_text(encoding="utf-8")

    @property
    def card(self):
        """ADDS, FLAW, SHOW, CURE, NEXT, COST, as the file's head says them."""
        return dict(CARD.findall(self.text))

    @property
    def scripts(self):
        """The Lua scripts that it runs, by name."""
        names = sorted(set(re.findall(r"\blua_(\w+)", self.text)))
        return {name: (ROOT / "lock" / "lua" / f"{name}.lua").read_text(encoding="utf-8") for name in names}

    @property
    def ensemble(self):
        """Whether its servers are not Redis': the engine's own, of which a majority decides."""
        return self.engine not in ("none", "redis")

    @property
    def points(self):
        """Where it can be stopped, without the rung's name."""
        steps = (ROOT / "lock" / "redis" / "round_trip.c").read_text(encoding="utf-8") if ".send_" in self.lock.text else ""
        return re.findall(r'\bpoint\((?:env|&trip->env), "(\w+)"\)', self.lock.text + steps)

    def __getattr__(self, trait):
        """distributed, expires, renewed ...: as in struct dlock_rung."""
        try:
            return self.__dict__["traits"][trait]
        except KeyError:
            raise AttributeError(f"a rung has no {trait}") from None

    @property
    def waits(self):
        """How one that finds it busy learns that it is free."""
        for kind, how in (("WAIT_LOCAL", "woken in its process"), ("WAIT_CHANNEL", "woken by a message"),
                          ("WAIT_LIST", "woken by a list"), ("WAIT_SIGNALS", "woken by a list")):
            if kind in self.lock.text:
                return f"polls, or {how}" if self.quorum else how
        return "polls" if self.distributed else "never waits"

    @property
    def listens(self):
        """Whether who finds it busy sleeps until the server says something."""
        return any(kind in self.lock.text for kind in ("WAIT_CHANNEL", "WAIT_LIST", "WAIT_SIGNALS"))

    @property
    def attempts_before_waiting(self):
        """After how many attempts a sale certainly waits. One that listens tries once before it subscribes and once
        after. One that polls has been refused that often, and might still get in later."""
        return 1 if not self.distributed else 2 if self.listens else 3

    @property
    def code(self):
        """What a learner compares: the file without its card, the scripts behind it."""
        head, _, body = self.text.partition("*/\n")
        lines = body.splitlines()
        for name, text in self.scripts.items():
            lines += ["", f"-- {name}.lua"] + text.splitlines()
        return [line.replace(f"rung_{self.name}", "rung_").replace(f'"{self.name}"', '"..."') for line in lines]


class Engine(Rung):
    """The rung of another engine: no file of lock/rungs, and no point of its own where it can be stopped."""
    waits, listens, points, text = "woken by a message", True, [], ""


class FencedEngine(Engine):
    """One of them, and a way to write that takes its tokens."""

    def __init__(self, said, lock):
        super().__init__({**said, **lock.traits, "engine": lock.engine, "name": f"{lock.name}_{said['name']}"})
        self.lock, self.write = lock, said["name"]


class HerdingEngine(Engine):
    """ZooKeeper's queue as a demonstration's own program waits in it: each waiter watches the parent of all nodes. It is
    no rung of the library."""

    def __init__(self, lock):
        super().__init__({**lock.said, "name": f"{lock.name}_herd"})
        self.lock, self.herds = lock, True


class Policy(Rung):
    """A way to sell on a rung, or to use it in another service: settings of an instance, by the names that run.json has for
    them. It is no rung of the library, and no step of the ladder."""

    def __init__(self, lock, name, chapter, write, settings):
        super().__init__({**lock.said, "name": name})
        self.lock, self.write, self.chapter, self.settings, self.is_policy = lock, write, chapter, settings, True

    @property
    def service(self):
        """The other service that it is of, or None: the shop."""
        return self.chapter if self.chapter in SERVICES else None


class Pair(Rung):
    """A rung, and a way to write that has its name and takes its tokens."""

    def __init__(self, said, lock):
        super().__init__({**said, **lock.traits, "engine": lock.engine})
        self.lock, self.write, self.chapter = lock, self.name, "fenced"

    @property
    def path(self):
        return ROOT / "service" / "lua" / f"{self.name}.lua"

    @property
    def scripts(self):
        return {}

    @property
    def code(self):
        """The lock's, and the script that writes behind it."""
        script = [line for line in self.text.splitlines() if not line.startswith("--")]
        return self.lock.code + ["", "-- the write"] + script


def said():
    """What rungs.json says: "rungs", "writes", in learning order."""
    return json.loads(LADDER.read_text(encoding="utf-8"))


def as_lines(ladder):
    """rungs.json's text: a line for each, so that a diff shows which."""
    parts = [f'"{part}": [\n' + ",\n".join(json.dumps(one) for one in ones) + "\n]" for part, ones in ladder.items()]
    return "{" + ",\n".join(parts) + "}\n"


def writes():
    """The names of the ways to write."""
    return [way["name"] for way in said()["writes"]]


def fences():
    """Those of them that need a rung with tokens."""
    return [way["name"] for way in said()["writes"] if way["rung"]]


def others():
    """The rungs of other engines, each in a package of its own: libdlock-<engine>."""
    return [rung for rung in map(Engine, said()["rungs"]) if rung.ensemble]


def ensembles():
    """These, and each with the last way to write, which takes tokens; and ZooKeeper's queue with waiters that herd."""
    fence = [way for way in said()["writes"] if way["rung"]][-1]
    herding = (HerdingEngine(rung) for rung in others() if rung.name == "zookeeper")
    return [*others(), *(FencedEngine(fence, rung) for rung in others()), *herding]


SERVICES = ("menu", "account", "tasks")  # beside the shop; each has a page of the book, and a folder with its program

# Of each: the rung, its name, its page of the book, the way to write (None: the scenario's), the settings.
POLICIES = (
    ("watchdog", "segments_naive", "segments", None, {"segments": "naive:2"}),
    ("watchdog", "segments", "segments", None, {"segments": "2"}),
    ("watchdog", "admit_window", "admission", None, {"admit": "window:2"}),
    ("watchdog", "admit_bucket", "admission", None, {"admit": "2,2"}),
    ("watchdog", "queue_decr", "conflict", "decr", {"on_conflict": "queue"}),
    ("watchdog", "queue_atomic", "conflict", "atomic", {"on_conflict": "queue"}),
    ("none", "cas", "optimistic", "cas", {}),
    ("watchdog", "menu_one_look", "menu", None, {"second_look": "off"}),
    ("watchdog", "menu_unguarded", "menu", None, {"guard_update": "off"}),
    ("fair", "menu_fenced", "menu", None, {"fill": "fenced"}),
    ("watchdog", "account_two", "account", None, {"write": "two"}),
    ("watchdog", "account_unordered", "account", None, {"locks": "unordered"}),
    ("watchdog", "tasks_no_lease", "tasks", None, {"lease_ms": 0}),
    ("fair", "tasks_fenced", "tasks", None, {"result": "fenced"}),
)


def policies():
    """The ways to sell, and to use a lock in other services, that scenarios show."""
    return [Policy(find(lock), *row) for lock, *row in POLICIES]


def rungs():
    """The whole ladder, except for these."""
    ladder = said()
    alone = [rung for rung in map(Rung, ladder["rungs"]) if not rung.ensemble]
    locks = {rung.name: rung for rung in alone}
    return alone + [Pair(way, locks[way["rung"]]) for way in ladder["writes"] if way["rung"]]


def all_on_stage():
    """All that a scenario may run on."""
    return [*rungs(), *ensembles(), *policies()]


def steps():
    """The rungs by which one climbs: from the first, each to the one that its card calls NEXT. The others are detours:
    nothing builds on them."""
    found, at = [], rungs()[0]
    while at:
        found.append(at)
        at = find(at.card["NEXT"])
    return found


def chapters():
    """The book's, in its order: of each rung on one server one, one of the fences, that of no rung, of each rung on
    several servers one, and of each rung of another engine one."""
    one, several = ([rung.chapter for rung in rungs() if rung.lock.quorum == quorum] for quorum in (False, True))
    return list(dict.fromkeys([*one, "failover", *several, *(rung.name for rung in others())]))


def told_by(inventoryd):
    """What that program says of its rungs, as said()."""
    told = subprocess.run([inventoryd, "--print-rungs"], check=True, capture_output=True, text=True, env={})
    return json.loads(told.stdout)


def refresh(inventoryd):
    """Writes rungs.json anew where that program, which knows all its rungs, says something else of them."""
    its = told_by(inventoryd)
    knows_all = {rung["name"] for rung in its["rungs"]} >= {rung["name"] for rung in said()["rungs"]}
    text = as_lines(its)
    if knows_all and text != LADDER.read_text(encoding="utf-8"):
        new = LADDER.with_suffix(f".{os.getpid()}")
        new.write_text(text, encoding="utf-8")
        new.replace(LADDER)


def find(name):
    """The rung, or None."""
    return next((rung for rung in rungs() if rung.name == name), None)


def diff(one, other):
    """The lines that change, with two lines around them."""
    lines = list(difflib.unified_diff(one.code, other.code, one.name, other.name, n=2, lineterm=""))
    return [line for line in lines if not line.startswith("@@")]


def changed(one, other):
    """How many lines of code change: those that go, those that come; empty ones are none."""
    return [line for line in diff(one, other)[2:] if line[:1] in "+-" and line[1:].strip()]


def added(one, other):
    """Those that come: what is to be read to understand the step."""
    return [line for line in changed(one, other) if line[0] == "+"]
