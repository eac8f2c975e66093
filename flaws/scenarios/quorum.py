# SPDX-License-Identifier: Apache-2.0
"""Servers of the lock die, forget, or misjudge the time. A rung that a majority of several servers grants has five, any
other one."""
from scenarios.scenario import scenario
from scenarios.steps import READ, beside, enter, finish, park, tell_entry
from stage import SEVERAL_TTL_MS

JUMP_MS = SEVERAL_TTL_MS + 60000
IMPATIENT = ("--wait-ms", "1000", "--redis-timeout-ms", "1000")


@scenario("the lock's only server dies, or two of its five", {}, "the others are a majority, and sales go on",
          limits={"watchdog": "redlock"}, stock=3)
def minority_down(stage):
    stage.open(lock_apart=True)
    a = stage.instance("a", SEVERAL_TTL_MS, *IMPATIENT)
    stage.wait_answered(a.sell())
    stage.kill_lock_servers(max(1, len(stage.lock_servers) - stage.needed))
    stage.wait_answered(a.sell())


@scenario("the lock's only server dies, or two of its five, and a third one stands still; all come back", {},
          "buyers are refused in time, nothing is left behind, and sales go on", on="redlock", stock=3)
def majority_down(stage):
    stage.open(lock_apart=True)
    a = stage.instance("a", SEVERAL_TTL_MS, *IMPATIENT)
    stage.wait_answered(a.sell())
    victims = stage.kill_lock_servers(max(1, len(stage.lock_servers) - stage.needed))
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


def restarts(stage, comes_back, durable=False):
    """a's sale has the lock on a bare majority, and one of those servers dies."""
    stage.open(lock_apart=True, durable=durable)
    a = stage.instance("a", SEVERAL_TTL_MS, reaches=stage.needed)
    b = stage.instance("b", SEVERAL_TTL_MS)
    first = park(stage, a, READ)
    server = stage.lock_servers[0]
    server.wait_told()
    server.kill()
    stage.note(f"{stage.numbers([server])} of the lock dies", "a server of the lock dies")
    comes_back(first, b, server)


@scenario("a server that granted the lock is restarted empty, and had the vote that counted", {"redlock": "fenced"},
          "a write without the newest token is refused")
def restart_empty(stage):
    def at_once(first, b, server):
        server.start()
        stage.note("it comes back at once, and empty", "it comes back empty")
        second, inside = enter(stage, b, READ)
        finish(stage, first, True)
        finish(stage, second, inside)
    restarts(stage, at_once)


@scenario("a server that granted the lock is restarted with its data (appendfsync always)", {},
          "the next client waits", on="redlock")
def restart_durable(stage):
    def with_data(first, b, server):
        server.start()
        stage.note("it comes back, and knows all that it has answered", "it comes back with its data")
        second, inside = enter(stage, b, READ)
        finish(stage, first, True)
        finish(stage, second, inside)
    restarts(stage, with_data, durable=True)


@scenario("a server that granted the lock dies, and comes back empty after every earlier hold has ended", {},
          "the next client waits", on="redlock")
def restart_late(stage):
    def later(first, b, server):
        asked = b.count("attempts")
        second, inside = stage.enter(b, READ, or_else=lambda: b.count("attempts") >= asked + 3)
        tell_entry(stage, second, inside)
        finish(stage, first, True)
        b.freeze()  # else it asks before the second witness listens
        server.start()
        stage.note("it comes back, and empty, when a1's hold has ended", "it comes back empty")
        b.thaw()
        finish(stage, second, inside)
    restarts(stage, later)


@scenario("the clock of the lock's only server jumps ahead, or of three of its five", {"redlock": "fenced"},
          "a write without the newest token is refused")
def clock_jump(stage):
    def jump():
        stage.wait_on_all()
        stage.jump_clocks(stage.lock_servers[:stage.needed], JUMP_MS)
    stage.open(lock_apart=True, clocks=True)
    beside(stage, *(stage.instance(name, SEVERAL_TTL_MS) for name in "ab"), jump)
