# SPDX-License-Identifier: Apache-2.0
"""What is said of a Redis that is away: in the log, to buyers, and by /readyz."""
import pytest

from test_redis import QUICK
from world import Background, Redis, inventoryd_redis_up, wait_until

CALM = ("--redis-timeout-ms", 5000, "--wait-ms", 1000)


def test_an_outage_is_said_once_and_so_is_its_end(redis, start, tmp_path):
    locks = Redis(tmp_path / "locks")
    shop = start(None, "--lock-redis", locks.url, "--stock-redis", redis.url, *CALM)
    assert shop.stock(value=5).status == 200 and inventoryd_redis_up(shop) == [1, 1]
    redis.kill()
    for _ in range(5):
        assert shop.sell().problem == "stock-unavailable"
    wait_until(lambda: inventoryd_redis_up(shop) == [1, 0], "the stock's server is away")
    redis.start()
    redis("SET", "inventory:{phone}", 5)
    wait_until(lambda: shop.sell().status == 200, "a sale after the stock's server came back")
    wait_until(lambda: inventoryd_redis_up(shop) == [1, 1], "the stock's server is there")
    assert [len(shop.logged(f"stock-server-{what}")) for what in ("lost", "restored")] == [1, 1]
    locks.kill()
    assert shop.sell().problem == "lock-unavailable"
    wait_until(lambda: inventoryd_redis_up(shop) == [0, 1], "the lock's server is away")
    locks.start()
    wait_until(lambda: shop.sell().status == 200 and inventoryd_redis_up(shop) == [1, 1], "a sale after the lock's server came back")
    shop.end()
    locks.kill()


@pytest.mark.parametrize("lock", ["watchdog", "fair", "none"])
@pytest.mark.parametrize("login", ["", "nobody:wrong@"])
def test_buyers_are_not_told_where_the_servers_are(redis, start, lock, login):
    shop = start(f"redis://{login}127.0.0.1:{redis.port}", "--lock", lock, *QUICK)
    if not login:
        redis.kill()
    for reply in (shop.sell(), shop.stock()):
        text = reply.body.decode()
        assert reply.status == 503 and str(redis.port) not in text and "redis:" not in text, text
    assert str(redis.port) in shop.admin("GET", "/readyz").json["detail"]


NOT_READY = {
    "read-only": (lambda redis: redis("REPLICAOF", "127.0.0.1", 1), "READONLY"),
    "full": (lambda redis: redis("CONFIG", "SET", "maxmemory", 1), "OOM"),
    "evicting": (lambda redis: redis("CONFIG", "SET", "maxmemory", "1gb", "maxmemory-policy", "allkeys-lru"),
                 "maxmemory-policy noeviction"),
    "refused": (lambda redis: redis("ACL", "SETUSER", "default", "resetkeys", "~lock:*", "~dlock:*"), "NOPERM"),
    "locks refused": (lambda redis: redis("ACL", "SETUSER", "default", "resetkeys", "~inventory:*"), "NOPERM"),
}


@pytest.mark.parametrize("why", NOT_READY)
@pytest.mark.parametrize("apart", [False, True])
def test_not_ready_where_it_could_not_sell(redis, start, why, apart, tmp_path):
    """Nothing is written by looking. Each server of the two is looked at."""
    other = Redis(tmp_path / "other")
    lock, stock = (redis, other) if apart == (why == "locks refused") else (other, redis)
    servers = ("--lock-redis", lock.url, "--stock-redis", stock.url) if apart else ()
    shop = start(None if apart else redis, *servers, *CALM)
    assert shop.admin("GET", "/readyz").status == 200 and redis("DBSIZE") == 0
    spoil, word = NOT_READY[why]
    spoil(redis)
    reply = shop.admin("GET", "/readyz")
    assert reply.status == 503 and word in reply.json["detail"] and str(redis.port) in reply.json["detail"]
    shop.end()
    other.kill()


@pytest.mark.parametrize("lock", ["none", "local"])
def test_ready_without_the_locks_server_where_the_lock_asks_none(redis, start, lock, tmp_path):
    locks = Redis(tmp_path / "locks")
    shop = start(None, "--lock-redis", locks.url, "--stock-redis", redis.url, *CALM, "--lock", lock, "--admin-writes")
    locks.kill()
    assert shop.stock(value=5).status == 200 and shop.sell().status == 200
    assert shop.admin("GET", "/readyz").status == 200
    wait_until(lambda: inventoryd_redis_up(shop) == [0, 1], "the lock's server was looked for all the same")
    assert shop.switch(rung="watchdog").status == 200
    reply = shop.admin("GET", "/readyz")
    assert reply.status == 503 and str(locks.port) in reply.json["detail"]
    shop.end()
    locks.kill()


def test_ready_though_the_network_forgot_the_connections(redis, start, proxy):
    shop = start(proxy.url)
    asked = [Background(shop.admin, "GET", "/readyz") for _ in range(16)]  # each thread has its connection
    assert {one.result().status for one in asked} == {200}
    known = proxy.connections
    proxy.silent = lambda number: number <= known
    assert [shop.admin("GET", "/readyz").status for _ in range(8)] == [200] * 8
    assert proxy.unanswered > 0
    proxy.silent = lambda number: True
    assert shop.admin("GET", "/readyz").status == 503


def test_it_ends_while_it_looks_for_a_server_that_hangs(start, proxy):
    """Nothing is in flight: the look is given up."""
    proxy.silent = lambda number: True
    shop = start(proxy.url, "--redis-timeout-ms", 60000, "--fail-fast-ms", 60000)
    wait_until(lambda: proxy.unanswered == 1, "it looks")
    shop.end()  # exit 0, before the look would end
    assert not shop.logged("redis-server-lost")
