# SPDX-License-Identifier: Apache-2.0
"""The holder dies, or its release fails."""
from scenarios.scenario import scenario
from scenarios.steps import READ, finish, impatient, long, point_of, short
from stage import LOCK_KEY, RENEWED_TTL_MS
from waiting import Inconclusive


def dies_at(stage, point):
    stage.open()
    a, b = short(stage), impatient(stage)
    a.set_point(point, "crash")
    sale = a.sell()
    a.wait_dead(f"a is killed at {point}")
    stage.wait_answered(sale)
    was_locked = stage.lock_redis("EXISTS", LOCK_KEY) == 1
    sale = b.sell()
    stage.wait_answered(sale)
    if was_locked and sale.status == 200 and b.count("contended") == 0:
        raise Inconclusive("b asked for the lock when it had expired")


@scenario("the holder is killed while it holds the lock", {"setnx": "setnx_expire", "setnx_multi": "set_nx_ex"},
          "the lock frees itself", stock=2)
def killed_holding(stage):
    dies_at(stage, READ)


@scenario("the holder is killed right after its first command", {"setnx_expire": "set_nx_ex"},
          "the lock frees itself", stock=2)
def killed_acquiring(stage):
    dies_at(stage, point_of(stage, "between_setnx_and_expire", "acquired"))


@scenario("the holder is killed before it releases the lock", {"setnx": "setnx_expire"},
          "the lock frees itself", stock=2)
def killed_releasing(stage):
    dies_at(stage, point_of(stage, "between_get_and_del", "before_release"))


@scenario("an error path forgets the release", {"setnx": "setnx_expire"}, "the lock frees itself", stock=2)
def forgotten(stage):
    stage.open()
    a, b = short(stage), impatient(stage)
    a.set_point("sale.after_write", "fail")
    sale = a.sell()
    stage.wait_answered(sale)
    stage.note(f"{sale.name} returned early and forgot to give the lock back; a lives on")
    stage.wait_answered(b.sell())


@scenario("Redis dies right after the holder's first command, and comes back with everything it was told",
          {"setnx_expire": "set_nx_ex"}, "the lock frees itself", stock=2)
def redis_dies(stage):
    stage.open(durable=True)
    a, b = short(stage), impatient(stage)
    point = point_of(stage, "between_setnx_and_expire", "acquired")
    sale = stage.park(a, point)
    stage.redis.kill()
    stage.note("the Redis server dies", "Redis dies")
    a.process.kill()
    a.wait_dead("a is killed")
    stage.wait_answered(sale)
    stage.redis.start()
    stage.note("Redis comes back, with everything that it had answered", "Redis comes back")
    stage.wait_answered(b.sell())


@scenario("the network fails when the lock is released, and comes back", {"watchdog_timer": "watchdog"},
          "the lock frees itself", stock=4)
def release_lost(stage):
    stage.open(lock_apart=True)
    proxy = stage.proxy()
    a = stage.instance("a", RENEWED_TTL_MS, "--workers", "1", proxy=proxy)
    b = long(stage, "b", "--wait-ms", str(3 * RENEWED_TTL_MS))
    stage.wait_answered(a.sell())
    stage.wait_answered(a.sell())
    point = point_of(stage, "before_release")
    third = stage.park(a, point)
    stage.note(f"{third.name} pauses at {point}")
    proxy.down()
    stage.note("a cannot reach the lock's Redis any more", "a cannot reach Redis")
    finish(stage, third, True, point)
    proxy.up()
    stage.note("it can again", "it can again")
    stage.wait_answered(b.sell())
