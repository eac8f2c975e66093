# SPDX-License-Identifier: Apache-2.0
"""The shop's policies: when the lock is taken, and what is done without one."""
from scenarios.scenario import of_policies
from scenarios.steps import beside, long
from stage import RENEWED_TTL_MS
from waiting import Inconclusive, wait_until

ENTERED = "sale.entered"
LATE, TOO_LATE, SHORTLY = 0.7, 0.8, 0.45  # in seconds of Redis' clock: shortly is less than a token of the bucket needs


@of_policies("two buyers come one after the other; the second finds its segment empty, and another segment has a unit",
             "the sale tries the other segments", shows={"segments_naive": "segments"}, breaks_as="undersold", stock=2)
def empty_segment(stage):
    stage.open()
    a = long(stage, "a")
    for _ in range(2):  # one after the other they begin at the same segment
        stage.wait_answered(a.sell())


def clock(stage):
    """Redis' own, in seconds."""
    seconds, us = stage.redis("TIME")
    return int(seconds) + int(us) / 10**6


@of_policies("two bursts come where two seconds of Redis' clock meet", "what the first burst took is still missing",
             limits={"admit_window": "admit_bucket"}, stock=2)
def two_bursts(stage):
    stage.open()
    shops = [long(stage, name) for name in "ab"]
    wait_until(lambda: LATE <= clock(stage) % 1 < TOO_LATE, "a second is nearly over")
    stage.note("a second of Redis' clock is nearly over", "a second is nearly over")
    begun = clock(stage)
    for shop in shops:
        stage.wait_answered(shop.sell())
    wait_until(lambda: int(clock(stage)) > int(begun), "the next second begins")
    stage.note("the next second begins", "the next second begins")
    for shop in shops:
        stage.wait_answered(shop.sell())
    if clock(stage) - begun > SHORTLY:
        raise Inconclusive("the two bursts were not close to each other: the machine is too slow")
    asked = [sale.name for sale in stage.sales if any(
        event["event"] == "granted" and event["request"] == sale.name for event in sale.instance.events())]
    stage.note(f"within half a second {len(asked)} sales held the lock: {', '.join(asked)}")


@of_policies("a worker dies between a sale and its acknowledgement, and another one processes the queue",
             "the sale and the acknowledgement are one step", shows={"queue_decr": "queue_atomic"}, breaks_as="oversold", stock=2)
def dead_worker(stage):
    stage.open()
    a = stage.instance("a", RENEWED_TTL_MS)
    a.set_point("queue.before_ack", "crash")
    a.arm(ENTERED)
    sale = a.sell()
    stage.wait_answered(sale)
    wait_until(lambda: a.paused(ENTERED) == 1, "its worker has the lock")
    stage.note("a processes its queue, has the lock and pauses")
    a.resume(ENTERED)
    a.wait_dead("a is killed at queue.before_ack")
    stage.wait_expired()
    b = long(stage)
    stage.wait_answered(b.ask_outcome(sale))
    wait_until(lambda: not stage.having_key(), "the lock is released")


@of_policies("two sales read the same stock, and each writes what it has computed", "the second one reads again",
             shows={"none": "cas"}, breaks_as="oversold", cured_as="overlap",
             stock=2)
def stale_read(stage):
    stage.open()
    beside(stage, long(stage, "a"), long(stage, "b"))
