# SPDX-License-Identifier: Apache-2.0
"""The stage of a bank: two accounts in Redis, each with a lock of its own."""
import re

from instance import Instance, Request
from service_stage import ServiceStage

X, Y = "x", "y"
KEYS = {name: f"account:{{bank}}:{name}" for name in (X, Y)}
SENT = re.compile(r"^(write\.lua) \d ")


class Change(Request):
    """One who changes accounts, or looks at one."""

    def __init__(self, instance, name, method, what, path, item):
        self.label, self.item = f"{method} {what}", item
        super().__init__(instance, name, method, path)

    @property
    def success(self):
        told = f"{self.item} has {self.body['balance']}"
        return f"{told}, {self.body['to']} has {self.body['to_balance']}" if "to" in self.body else told


class AccountInstance(Instance):
    def ask_for(self, *how):
        return self.stage.add_request(Change(self, self.stage.new_name(self), *how))

    def add(self, amount, item=X):
        return self.ask_for("POST", "add", f"/accounts/{item}/add?amount={amount}", item)

    def transfer(self, source, target, amount):
        return self.ask_for("POST", "transfer", f"/transfers?from={source}&to={target}&amount={amount}", source)

    def look(self, item):
        return self.ask_for("GET", "account", f"/accounts/{item}", item)


class AccountStage(ServiceStage):
    service, program, item = "account", "accountd", X
    settings = {"work_ms": 0, "write": "script", "locks": "many"}
    items, columns, instances_are = {X: 100, Y: 100}, ("version",), AccountInstance
    locks_apart = True
    points = {"account.read": "has read", "account.one_lock": "has one of its two locks"}

    def lay(self):
        for name, balance in self.items.items():
            self.by_operator(f"/accounts/{name}", {"balance": balance})

    def redis_side(self):
        numbers = {name: self.redis("HMGET", key, "balance", "version") for name, key in KEYS.items()}
        return {"accounts": {name: {"balance": int(balance), "version": int(version)}
                             for name, (balance, version) in numbers.items()}, "locks": self.lock_sides()}

    def place_of(self, event):
        return "bank" if "account:{bank}:" in event["sent"] else "lock"

    def in_short(self, sent, reply):
        return SENT.sub(r"\1 ", sent), reply
