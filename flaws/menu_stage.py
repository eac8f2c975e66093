# SPDX-License-Identifier: Apache-2.0
"""The stage of a menu: a list of dishes in a database, and its copy in Redis."""
import re

from instance import Instance, Request
from service_stage import ServiceStage
from transcript import Line

LUNCH = "lunch"
CACHE_KEY = f"menu:{{{LUNCH}}}"
CACHE_MS = 600000  # nothing is lost from the cache by chance
# A cached menu is told as its version. What is the same each time is left out: the claim's key, and how long it lives.
CACHED = re.compile(r'"(\d+) \[(?:[^"\\]|\\.)*"')
LOOK = re.compile(r'^(look\.lua) 2 (\S+) \S+ (\S+) \d+ \d+$')
FILL = re.compile(r'^(fill\.lua) 2 (\S+) \S+ (.*) \d+ (T\S+)$')
LEFT_MS = re.compile(r"^\[(.*), (?:\(integer\) )?\d+\]$")


class Visit(Request):
    """One who reads the menu, or changes it."""
    item = LUNCH

    def __init__(self, instance, name, dishes=None):
        self.label = f"{'GET' if dishes is None else 'PUT'} menu"
        super().__init__(instance, name, self.label.split()[0], f"/menus/{LUNCH}", *(() if dishes is None else (
            instance.admin_port, {"dishes": dishes})))

    @property
    def success(self):
        return f"version {self.body['version']}" + (f", from the {self.body['from']}" if self.method == "GET" else "")


class MenuInstance(Instance):
    def read(self):
        return self.stage.add_request(Visit(self, self.stage.new_name(self)))

    def update(self):
        return self.stage.add_request(Visit(self, self.stage.new_name(self), ["rice"]))


class MenuStage(ServiceStage):
    service, program, item = "menu", "menud", LUNCH
    settings = {"cache_ms": CACHE_MS, "db_ms": 0, "second_look": "on", "guard_update": "on", "fill": "plain", "refresh_ms": 0}
    items, columns, instances_are = {LUNCH: 1}, ("version",), MenuInstance
    points = {"menu.missed": "is about to ask the database", "menu.before_fill": "is about to fill the cache"}

    @property
    def data(self):
        return "--database", str(self.folder / "menu.db")

    def flags(self):
        return [*super().flags(), *self.data]

    def lay(self):
        self.by_operator(f"/menus/{LUNCH}", {"dishes": ["soup"]}, *self.data)

    def redis_side(self):
        cached = self.redis("GET", CACHE_KEY)
        return {"cached": {LUNCH: int(cached.split()[0]) if cached else 0}, "locks": self.lock_sides()}

    def place_of(self, event):
        return "cache" if CACHE_KEY in event["sent"] else "lock"

    def in_short(self, sent, reply):
        sent, reply = (CACHED.sub(r"<version \1>", text) for text in (sent, reply))
        sent = FILL.sub(r"\1 \2 \3 \4", LOOK.sub(r"\1 \2 \3", sent)).replace(f"{CACHE_KEY}:claim", "<claim>")
        return sent.replace(' ""', ""), LEFT_MS.sub(r"\1", reply) if sent.startswith("look.lua") else reply

    def told_lines(self):
        """What the database was asked and told."""
        for instance in self.instances.values():
            for event in instance.told("queried"):
                yield Line(event["t_ns"], event["request"], f"read {LUNCH}", f"version {event['version']}", at="database")
            for event in instance.told("updated"):
                yield Line(event["t_ns"], event["request"], f"write {LUNCH}", f"version {event['version']}", at="database")
