# SPDX-License-Identifier: Apache-2.0
"""Redis, or the connection to it, fails."""
from scenarios.scenario import scenario
from scenarios.steps import beside, impatient, long, short
from stage import FAILOVER_TTL_MS


@scenario("the lock's Redis is restarted empty", {"watchdog": "fenced"}, "a write without the newest token is refused")
def redis_empty(stage):
    def restart():
        stage.lock_redis.kill()
        stage.lock_redis.start()
        stage.note("the lock's Redis dies, and comes back empty", "Redis comes back empty")
    stage.open(lock_apart=True)
    beside(stage, long(stage, "a"), long(stage), restart)


@scenario("the lock's master dies before its replicas have the lock, and one of them is promoted",
          {"watchdog": "fenced"}, "a write without the newest token is refused")
def failover(stage):
    stage.open_group()
    a, b = stage.instance("a", FAILOVER_TTL_MS), stage.instance("b", FAILOVER_TTL_MS)
    stage.hold_replication()
    beside(stage, a, b, stage.fail_over)


@scenario("the master of lock and stock dies before its replicas have the last sale, and one of them is promoted",
          {"watchdog": None}, "a sale is answered only when all replicas have it", stock=2)
def failover_stock(stage):
    stage.open_group(stock_too=True)
    a, b = stage.instance("a", FAILOVER_TTL_MS), stage.instance("b", FAILOVER_TTL_MS)
    stage.hold_replication()
    stage.wait_answered(a.sell())
    stage.fail_over()
    stage.wait_answered(b.sell())


@scenario("Redis forgets its scripts while the lock is held", {}, "scripts are sent again", stock=2)
def script_flush(stage):
    def flush():
        stage.redis("SCRIPT", "FLUSH")
        stage.note("SCRIPT FLUSH")
    stage.open()
    beside(stage, long(stage, "a"), long(stage), flush)


@scenario("the reply to the holder's first command is lost", {"set_nx_ex": "owner_check"},
          "it asks who holds the lock, and finds its own name", stock=2)
def cut_acquiring(stage):
    stage.open(lock_apart=True)
    proxy = stage.proxy()
    a, b = short(stage, proxy=proxy), impatient(stage)
    proxy.lose_next = True
    stage.note("a's connection to the lock's Redis will be cut before the first reply comes")
    stage.wait_answered(a.sell())
    stage.wait_answered(b.sell())


@scenario("the connection is cut while the lock is held, and healed before its release", {},
          "the release arrives", stock=2)
def cut_holding(stage):
    def cut():
        proxy.cut()
        stage.note("a's connections to the lock's Redis are cut; new ones work", "a's connections are cut")
    stage.open(lock_apart=True)
    proxy = stage.proxy()
    beside(stage, long(stage, "a", proxy=proxy), long(stage), cut)
