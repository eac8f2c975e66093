# SPDX-License-Identifier: Apache-2.0
"""The holder asks for its own lock again."""
from scenarios.scenario import scenario
from scenarios.steps import READ, WRITE, beside, enter, finish, long, outlive
from stage import RENEWED_TTL_MS, WAIT_MS

REENTER = "?reenter=1"  # a sale that asks for its lock once more, inside


def asks_twice(stage, *flags):
    stage.open()
    a = long(stage, "a", "--wait-ms", str(WAIT_MS), *flags)
    stage.note("a1 buys with a gift: inside its section it asks for the same lock again")
    sale = a.sell(REENTER)
    stage.wait_answered(sale)


@scenario("inside its section the holder asks for its own lock again", {"owner_lua": "reentrant"},
          "it is let in and counted")
def reentry(stage):
    asks_twice(stage)


@scenario("the holder asks again under another name, as with an identity for every lock object", {"reentrant": None},
          "one identity a process")
def two_identities(stage):
    asks_twice(stage, "--owner", "object")


@scenario("the inner release of a nested hold must not free the lock", {}, "it is freed by the last one")
def inner_release(stage):
    stage.open()
    a, b = long(stage, "a", "--wait-ms", str(WAIT_MS)), long(stage)
    stage.note("a1 buys with a gift: it asks for the same lock again, and gives it back once")
    first, inside = stage.enter(a, WRITE, REENTER)
    if not inside:
        stage.note("a1 waits for itself")
        stage.wait_answered(first)
        stage.wait_answered(b.sell())
        return
    stage.note("a1 is about to write, and pauses")
    second, too = enter(stage, b, READ)
    finish(stage, first, True, WRITE)
    finish(stage, second, too)


@scenario("the holder asks again when its lock has expired and belongs to another", {"reentrant_tls": "reentrant"},
          "nothing is sold on the strength of a lock that is gone")
def expired_reentry(stage):
    stage.open()
    a, b = stage.instance("a", RENEWED_TTL_MS, "--wait-ms", "6000"), long(stage)
    beside(stage, a, b, lambda: outlive(stage, a), REENTER)
