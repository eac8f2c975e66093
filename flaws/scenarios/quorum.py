# SPDX-License-Identifier: Apache-2.0
"""Servers of the lock die, forget, or misjudge the time. A rung that a majority of several servers grants has five, any
other one."""
from scenarios.scenario import scenario
from scenarios.steps import READ, beside, enter, finish, park, tell_entry
from stage import SEVERAL_TTL_MS

JUMP_MS = SEVERAL_TTL_MS + 60000
IMPATIENT = ("--wait-ms", "1000", "--redis-timeout-ms", "1000")


def loses_servers(stage):
    """A sale of a, and then as many of the lock's servers die as it can lose, or its only one. Returns a, and these."""
    stage.open(lock_apart=True)
    a = stage.instance("a", SEVERAL_TTL_MS, *IMPATIENT)
    stage.wait_answered(a.sell())
    return a, stage.kill_lock_servers(max(1, len(stage.lock_servers) - stage.needed))


@scenario("the lock's only server dies, or two of its five", {}, "the others are a majority, and sales go on",
          limits={"watchdog": "redlock"}, stock=3)
def minority_down(stage):
    a, _ = loses_servers(stage)
    stage.wait_answered(a.sell())


@scenario("the lock's only server dies, or two of its five, and a third one stands still; all come back", {},
          "buyers are refused in time, nothing is left behind, and sales go on", on="redlock", stock=3)
def majority_down(stage):
    a, victims = loses_servers(stage)
    hung = stage.lock_servers[:stage.needed][2:]
    for server in hung:
        server.freeze()
        stage.note(f"{stage.numbers([server])} stands still (SIGSTOP)")
    stage.wait_answered(a.sell())
    for server in hung:
        server.thaw()
    stage.tell_left_behind()
    for server in victims:
        server.start()
    stage.note("all of them are back")
    stage.wait_answered(a.sell())


def loses_a_granter(stage, durable=False):
    """A sale of a has the lock on a bare majority, and one of those servers dies. Returns the sale, b and the server."""
    stage.open(lock_apart=True, durable=durable)
    a = stage.instance("a", SEVERAL_TTL_MS, reaches=stage.needed)
    b = stage.instance("b", SEVERAL_TTL_MS)
    first = park(stage, a, READ)
    server = stage.lock_servers[0]
    server.wait_told()
    server.kill()
    stage.note(f"{stage.numbers([server])} of the lock dies", "a server of the lock dies")
    return first, b, server


def restarts(stage, told, seen, durable=False):
    """That server comes back at once; then a sale of b comes. told: for the transcript; seen: for the picture."""
    first, b, server = loses_a_granter(stage, durable)
    server.start()
    stage.note(told, seen)
    second, inside = enter(stage, b, READ)
    finish(stage, first, True)
    finish(stage, second, inside)


@scenario("a server that granted the lock is restarted empty, and had the vote that counted", {"redlock": "fenced"},
          "a write without the newest token is refused")
def restart_empty(stage):
    restarts(stage, "it comes back at once, and empty", "it comes back empty")


@scenario("a server that granted the lock is restarted with its data (appendfsync always)", {},
          "the next client waits", on="redlock")
def restart_durable(stage):
    restarts(stage, "it comes back, and knows all that it has answered", "it comes back with its data", durable=True)


@scenario("a server that granted the lock dies, and comes back empty after every earlier hold has ended", {},
          "the next client waits", on="redlock")
def restart_late(stage):
    first, b, server = loses_a_granter(stage)
    asked = b.count("attempts")
    second, inside = stage.enter(b, READ, or_else=lambda: b.count("attempts") >= asked + 3)
    tell_entry(stage, second, inside)
    finish(stage, first, True)
    b.freeze()  # else it asks before the second witness listens
    server.start()
    stage.note("it comes back, and empty, when a1's hold has ended", "it comes back empty")
    b.thaw()
    finish(stage, second, inside)


@scenario("the clock of the lock's only server jumps ahead, or of three of its five", {"redlock": "fenced"},
          "a write without the newest token is refused")
def clock_jump(stage):
    def jump():
        stage.wait_on_all()
        a.freeze()  # else a renewal that some servers get before the jump may set the key again on the others
        stage.jump_clocks(stage.lock_servers[:stage.needed], JUMP_MS)
        a.thaw()
    stage.open(lock_apart=True, clocks=True)
    a, b = (stage.instance(name, SEVERAL_TTL_MS) for name in "ab")
    beside(stage, a, b, jump)
