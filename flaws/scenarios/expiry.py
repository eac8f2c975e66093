# SPDX-License-Identifier: Apache-2.0
"""The lock expires while its holder is in its section."""
from scenarios.scenario import scenario
from scenarios.steps import READ, WRITE, beside, enter, finish, long, outlive, point_of
from stage import RENEWED_TTL_MS, SHORT_TTL_MS


def releases_late(stage, point):
    """a is slow to release, its lock expires, b acquires it; what does a's release do to b's lock?"""
    stage.open()
    a, b = stage.instance("a", RENEWED_TTL_MS if stage.rung.renewed else SHORT_TTL_MS), long(stage)
    first = stage.park(a, point)
    stage.note(f"{first.name} pauses at {point}")
    outlive(stage, a)
    second, inside = enter(stage, b, READ)
    finish(stage, first, True, point)
    if not inside:  # it polls: the third must not be quicker
        inside = stage.wait_inside(second, READ)
    third, too = enter(stage, a, READ)
    finish(stage, second, inside)
    finish(stage, third, too)


@scenario("a slow holder releases a lock that belongs to another by then", {"set_nx_ex": "owner_check"},
          "the other's lock is left alone", stock=3)
def late_release(stage):
    releases_late(stage, point_of(stage, "before_release"))


@scenario("the lock expires between the comparison and the delete", {"owner_check": "owner_lua"},
          "the other's lock is left alone", stock=3)
def release_gap(stage):
    releases_late(stage, point_of(stage, "between_get_and_del", "before_release"))


@scenario("the work takes longer than the lock lives", {"reentrant": "watchdog"}, "the lock lives as long as the work")
def long_section(stage):
    stage.open()
    a, b = stage.instance("a", RENEWED_TTL_MS), long(stage)
    beside(stage, a, b, lambda: outlive(stage, a))


@scenario("the holder is frozen for longer than its lock lives, wakes, and writes before the next holder does",
          {"watchdog": "fenced", "fair": "fenced", "read_write": "fenced", "fenced_textbook": "fenced"}, "a write without the newest token is refused")
def frozen(stage):
    freezes_at(stage, READ)


@scenario("the holder is frozen for longer than its lock lives, wakes, and writes after the next holder did",
          {"watchdog": "fenced_textbook"}, "a write with an older token than the last one is refused")
def frozen_late(stage):
    freezes_at(stage, READ, late=True)


@scenario("the holder is frozen between its last check of its hold and its write",
          {"watchdog": "fenced", "redlock": "fenced"},
          "a write without the newest token is refused")
def frozen_writing(stage):
    freezes_at(stage, WRITE)


def freezes_at(stage, point, late=False):
    stage.open()
    a, b = stage.instance("a", RENEWED_TTL_MS), long(stage)
    first = stage.park(a, point)
    stage.note(f"{first.name} pauses at {point}")
    a.freeze()
    stage.note("a is frozen (SIGSTOP)")
    if stage.has_ttl():
        stage.wait_expired()
    second, inside = enter(stage, b, READ)
    if late and inside:
        finish(stage, second, inside)
    stage.note("a wakes (SIGCONT), and knows nothing")
    a.resume(point)
    a.thaw()
    stage.wait_answered(first)
    if not second.answered:
        finish(stage, second, inside)
