# SPDX-License-Identifier: Apache-2.0
"""Who is served first, and who starves."""
from scenarios.scenario import scenario
from scenarios.steps import READ, enter, finish, impatient, long, park
from stage import LOCK_KEY, RENEWED_TTL_MS, WAIT_MS
from waiting import wait_until

CALM = ("--grant-ms", "5000")  # on fair: who is given the lock and stands still for a moment keeps its turn
MOMENT_MS = 300


def stands_still(stage, instance):
    instance.freeze()
    stage.note(f"{instance.name} stands still (SIGSTOP)")


def overtakes(stage, a, lets_go):
    """a's sale has the lock; b's waits for it, and then c's. When it comes free b stands still for a moment:
    is c's served first? If so it keeps the lock until b's has waited too long."""
    b, c = long(stage, "b", "--wait-ms", str(WAIT_MS), *CALM), long(stage, "c", "--wait-ms", str(2 * WAIT_MS), *CALM)
    first = park(stage, a, READ)
    second, inside = enter(stage, b, READ)
    third, too = enter(stage, c, READ)
    lets_go(first, third, b)
    if not inside and not too:
        wait_until(lambda: c.paused(READ) or stage.handed_over() or third.answered, "somebody has the lock, or nobody ever")
        too = c.paused(READ) == 1
        inside = stage.handed_over()
        if too:
            stage.note(f"{third.name}, who came after {second.name}, has read the stock and pauses")
    stage.note("b goes on (SIGCONT)")
    b.thaw()
    if inside and not too:  # what it was given it takes
        stage.wait_inside(second, READ)
    finish(stage, second, inside)
    finish(stage, third, too)


@scenario("the head of the queue stands still for a moment when the lock is released, and another came later",
          {"watchdog": "fair", "notify": "fair"}, "the first waiter is served first", stock=4)
def stalled_first(stage):
    def goes_on(first, _, b):
        stands_still(stage, b)
        finish(stage, first, True)
    stage.open()
    overtakes(stage, long(stage, "a"), goes_on)


@scenario("the holder is dead; the head of the queue stands still for a moment when the lock expires, and another came later",
          {"watchdog": "fair", "notify": "fair"}, "the first waiter is served first", stock=4)
def stalled_at_expiry(stage):
    def dies(first, third, b):
        a.process.kill()
        a.wait_dead("a is killed")
        stage.wait_answered(first)
        if stage.has_ttl():
            wait_until(lambda: 0 <= stage.lock_redis("PTTL", LOCK_KEY) < MOMENT_MS or third.answered or third.instance.paused(READ),
                       "the lock is about to expire")
        stands_still(stage, b)
    stage.open()
    a = stage.instance("a", RENEWED_TTL_MS, *CALM)
    overtakes(stage, a, dies)


@scenario("the head of the queue is killed while it waits", {}, "the next waiter waits once until a grant expires", stock=3)
def dead_next(stage):
    stage.open()
    a, b, c = long(stage, "a"), long(stage, "b"), impatient(stage, "c")
    first = park(stage, a, READ)
    second, inside = enter(stage, b, READ)
    third, too = enter(stage, c, READ)
    b.process.kill()
    b.wait_dead("b is killed")
    stage.wait_answered(second)
    finish(stage, first, True)
    finish(stage, third, too)
    if stage.rung.handoff:
        stage.note(f"grants that ran out unclaimed: {c.count('grants_expired')}")
