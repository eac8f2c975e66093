# SPDX-License-Identifier: Apache-2.0
"""The ladder as its files tell it: the rungs in learning order, the card on top of each, the code, the
points where it can be stopped, and what a learner must change to get from one rung to the next. On top of them
stand the names that mean a rung and a way to write together."""
import difflib
import os
import pathlib
import re

ROOT = pathlib.Path(os.environ.get("LADDER_ROOT") or pathlib.Path(__file__).resolve().parent.parent)
ROW = re.compile(r'^X\((\w+), (FLAWED|SOUND), "([^"]*)", "([^"]*)"\)', re.MULTILINE)
WAY = re.compile(r'^X\(\w+, (\w+), (FLAWED|SOUND), "(\w*)", "([^"]*)", "([^"]*)"\)', re.MULTILINE)
CARD = re.compile(r"^(?: \*|--) (ADDS|FLAW|SHOW|CURE|NEXT|COST) +(.*)$", re.MULTILINE)


class Rung:
    def __init__(self, name, flawed, adds, flaw):
        self.name, self.flawed, self.adds, self.flaw = name, flawed, adds, flaw
        self.lock, self.write, self.chapter = self, None, name

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
        names = re.findall(r"^extern const struct script lua_(\w+);", self.text, re.MULTILINE)
        return {name: (ROOT / "lock" / "lua" / f"{name}.lua").read_text(encoding="utf-8") for name in names}

    @property
    def points(self):
        """Where it can be stopped, without the rung's name."""
        steps = (ROOT / "lock" / "redis" / "trip.c").read_text(encoding="utf-8") if ".send_" in self.lock.text else ""
        return re.findall(r'\bpoint\((?:env|&trip->env), "(\w+)"\)', self.lock.text + steps)

    @property
    def renewed(self):
        """Whether its lock lives on by renewals."""
        return any("renew" in name for name in self.lock.scripts) or ".send_renew = " in self.lock.text

    @property
    def tokens(self):
        """Whether its holds have one."""
        return "TRAIT_TOKEN" in self.lock.text

    @property
    def traits(self):
        """What dlock_rungs() says of it, by the same names."""
        text = self.lock.text
        return {"expires": "TRAIT_EXPIRES" in text, "renewed": "renew = " in text,
                "reentrant": "TRAIT_REENTRANT" in text, "tokens": self.tokens, "shared": "TRAIT_SHARED" in text}

    @property
    def waits(self):
        """How one that finds it busy learns that it is free."""
        for kind, how in (("WAIT_LOCAL", "woken in its process"), ("WAIT_CHANNEL", "woken by a message"),
                          ("WAIT_LIST", "woken by a list"), ("DLOCK_BUSY", "polls")):
            if kind in self.lock.text:
                return how
        return "never waits"

    @property
    def is_distributed(self):
        """Whether it asks a server."""
        return "TRAIT_SERVERLESS" not in self.lock.text

    @property
    def listens(self):
        """Whether who finds it busy sleeps until the server says something."""
        return "WAIT_CHANNEL" in self.lock.text or "WAIT_LIST" in self.lock.text

    @property
    def asks_in_vain(self):
        """How often a sale has asked that certainly waits. One that polls and has asked so often might yet get
        in; one that listens asks before it does and behind that."""
        return 1 if not self.is_distributed else 2 if self.listens else 3

    @property
    def hands_over(self):
        """Whether its client has the lock, passes it on among its own, and then to the next client."""
        return "TRAIT_HANDOFF" in self.lock.text

    @property
    def code(self):
        """What a learner compares: the file without its card, the scripts behind it."""
        head, _, body = self.text.partition("*/\n")
        lines = body.splitlines()
        for name, text in self.scripts.items():
            lines += ["", f"-- {name}.lua"] + text.splitlines()
        return [line.replace(f"rung_{self.name}", "rung_").replace(f'"{self.name}"', '"..."') for line in lines]


class Pair(Rung):
    """A rung, and a way to write that has its name and takes its tokens."""

    def __init__(self, name, flawed, lock, adds, flaw):
        super().__init__(name, flawed, adds, flaw)
        self.lock, self.write, self.chapter = lock, name, "fenced"

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


def ways():
    return WAY.findall((ROOT / "service" / "writes.def").read_text(encoding="utf-8"))


def writes():
    """The names of the ways to write."""
    return [name for name, *_ in ways()]


def fences():
    """Those of them that need a rung with tokens."""
    return [name for name, _, lock, *_ in ways() if lock]


def rungs():
    text = (ROOT / "lock" / "ladder.def").read_text(encoding="utf-8")
    alone = [Rung(name, flawed == "FLAWED", adds, flaw) for name, flawed, adds, flaw in ROW.findall(text)]
    locks = {rung.name: rung for rung in alone}
    return alone + [Pair(name, flawed == "FLAWED", locks[lock], adds, flaw) for name, flawed, lock, adds, flaw in ways() if lock]


def steps():
    """The rungs by which one climbs: from the first, each to the one that its card calls NEXT. The others are detours:
    nothing builds on them."""
    found, at = [], rungs()[0]
    while at:
        found.append(at)
        at = find(at.card["NEXT"])
    return found


def chapters():
    """The book's, in its order: of each rung one, and one of the fences."""
    return list(dict.fromkeys(rung.chapter for rung in rungs()))


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
