# SPDX-License-Identifier: Apache-2.0
"""Redis that is away, hangs, restarts, is loading, or whose replies are lost."""
import pytest

from world import Background, read_history, wait_until

QUICK = ("--redis-timeout-ms", 200, "--wait-ms", 1000)


def test_starts_without_redis_and_finds_it_later(redis, start):
    redis.kill()
    shop = start(redis, *QUICK)
    assert shop.admin("GET", "/livez").status == 200
    reply = shop.admin("GET", "/readyz")
    assert reply.status == 503 and reply.problem == "not-ready" and str(redis.port) in reply.json["detail"]
    assert shop.sell().status == 503
    redis.start()
    wait_until(lambda: shop.admin("GET", "/readyz").status == 200, "it finds it")
    assert shop.stock(value=5).status == 200 and shop.sell().status == 200


@pytest.mark.parametrize("lock,problem", [("watchdog", "lock-unavailable"), ("none", "stock-unavailable")])
def test_redis_dies(redis, start, lock, problem):
    shop = start(redis, "--lock", lock, *QUICK)
    shop.stock(value=5)
    redis.kill()
    reply = shop.sell()
    assert reply.status == 503 and reply.problem == problem
    assert shop.stock().problem == "stock-unavailable"
    assert shop.admin("GET", "/livez").status == 200 and shop.admin("GET", "/readyz").status == 503
    redis.start()
    wait_until(lambda: shop.stock(value=5).status == 200 and shop.sell().status == 200, "a sale after Redis came back")


def test_the_locks_server_dies(redis, other, start):
    shop = start(redis, "--stock-redis", other.url, "--lock", "watchdog", *QUICK)
    shop.stock(value=5)
    redis.kill()
    assert shop.sell().problem == "lock-unavailable" and shop.stock().status == 200
    assert shop.metric("lock_redis_lost_total") == 1 and shop.metric("lock_redis_restored_total") == 0
    assert shop.metric("lock_redis_connects_failed_total") > 0 and shop.metric("lock_redis_refused_total") == 0
    redis.start()
    wait_until(lambda: shop.stock(value=5).status == 200 and shop.sell().status == 200, "a sale after it came back")
    assert shop.metric("lock_redis_restored_total") == 1
    assert shop.metric("lock_released_total") == shop.metric("lock_acquired_total") > 1


@pytest.mark.parametrize("write", ["decr", "set", "atomic"])
@pytest.mark.parametrize("lock", ["watchdog", "none"])
def test_redis_restarts_between_two_sales(redis, start, lock, write):
    """Connections that went stale meanwhile do not cost a sale, and leave no outcome unknown."""
    shop = start(redis, "--lock", lock, "--write", write, "--workers", 2)
    shop.stock(value=5)
    for _ in range(4):
        shop.sell()
    redis.restart()
    redis("SET", "inventory:{phone}", 100)
    assert [shop.sell().status for _ in range(10)] == [200] * 10
    assert redis("GET", "inventory:{phone}") == "90"


def test_redis_hangs(redis, start):
    """An acquire that it carries out when it wakes up is nobody's: it costs one time to live."""
    shop = start(redis, *QUICK, "--ttl-ms", 1000)
    shop.stock(value=5)
    redis.freeze()
    sales = [Background(shop.sell) for _ in range(5)]
    assert shop.admin("GET", "/livez").status == 200
    assert shop.admin("GET", "/readyz").problem == "not-ready"
    assert shop.admin("GET", "/metrics").status == 200
    assert {sale.result().status for sale in sales} == {503}
    redis.thaw()
    wait_until(lambda: shop.sell().status == 200, "a sale after Redis came back")
    assert redis("GET", "inventory:{phone}") == "4"


def test_redis_hangs_in_the_section(redis, start):
    """Read, then no answer: what was sent may have been carried out. The only worker is connected when it writes."""
    shop = start(redis, "--lock", "none", "--write", "decr", "--redis-timeout-ms", 200, "--workers", 1,
                 "--enable-failpoints", "--failpoints", "sale.after_read=pause")
    shop.stock(value=5)
    sale = Background(shop.sell)
    wait_until(lambda: shop.admin("GET", "/failpoints").json["failpoints"][0]["paused"] == 1, "the sale has read")
    redis.freeze()
    assert shop.admin("PUT", "/failpoints", '{"point": "sale.after_read", "action": "off"}').status == 200
    reply = sale.result()
    assert reply.status == 500 and reply.problem == "outcome-unknown"
    redis.thaw()
    wait_until(lambda: redis("GET", "inventory:{phone}") == "4", "the write that nobody answered for")


def test_redis_is_loading(redis, start):
    shop = start(redis, *QUICK, "--lock", "none")
    redis("CONFIG", "SET", "rdbcompression", "no")
    for i in range(1000):
        redis("SET", f"filler{i}", "x" * 2000)
    shop.stock(value=5)
    redis("SAVE")
    redis.restart("--key-load-delay", "10000", "--loading-process-events-interval-bytes", "1024", ready=False)
    wait_until(lambda: redis.ping().startswith(b"-LOADING"), "Redis says LOADING")
    reply = shop.sell()
    assert reply.status == 503 and reply.problem == "stock-unavailable" and "LOADING" in reply.json["detail"]
    assert "LOADING" in shop.stock().json["detail"]


def test_the_reply_to_the_write_is_lost(redis, start, proxy, tmp_path):
    """Of a script that reads and writes; for the others see test_resolve.py."""
    history = tmp_path / "h.jsonl"
    shop = start(f"redis://127.0.0.1:{redis.port}", "--stock-redis", proxy.url, "--write", "atomic", "--history", history)
    shop.stock(value=5)
    shop.sell()
    proxy.lose = b"EVALSHA"
    reply = shop.sell(request="lost")
    assert reply.status == 500 and reply.problem == "outcome-unknown" and proxy.lost == 1
    assert redis("GET", "inventory:{phone}") == "3"  # it was carried out
    assert redis("EXISTS", "lock:{phone}") == 0  # and the lock was released
    assert shop.sell().json["left"] == 2
    events = [event["event"] for event in read_history(history) if event.get("request") == "lost"]
    assert "unknown" in events and "write" not in events and events[-1] == "release"
    assert shop.metric('inventory_sales_total{outcome="outcome_unknown"}') == 1


def test_the_reply_to_the_read_is_lost(redis, start, proxy):
    shop = start(f"redis://127.0.0.1:{redis.port}", "--stock-redis", proxy.url)
    shop.stock(value=5)
    proxy.lose = b"GET\r\n"
    reply = shop.sell()
    assert reply.status == 503 and reply.problem == "stock-unavailable" and proxy.lost == 1
    assert redis("GET", "inventory:{phone}") == "5" and redis("EXISTS", "lock:{phone}") == 0
    assert shop.sell().status == 200


def test_the_reply_to_the_release_is_lost(redis, start, proxy, tmp_path):
    """What was written is written: 200, and the history says how the release went."""
    history = tmp_path / "h.jsonl"
    shop = start(f"redis://127.0.0.1:{redis.port}", "--lock-redis", proxy.url, "--lock", "set_nx_ex", "--ttl-ms", 1000,
                 "--history", history)
    shop.stock(value=5)
    proxy.lose = b"DEL\r\n"
    assert shop.sell(request="r").status == 200 and proxy.lost == 1
    release = [event for event in read_history(history) if event["event"] == "release" and event["request"] == "r"]
    assert [event["status"] for event in release] == ["UNKNOWN"]
    assert redis("GET", "inventory:{phone}") == "4"


def test_the_reply_to_the_acquire_is_lost(redis, start, proxy):
    shop = start(f"redis://127.0.0.1:{redis.port}", "--lock-redis", proxy.url, "--lock", "setnx", "--wait-ms", 500)
    redis("SET", "inventory:{phone}", 5)
    proxy.lose = b"SETNX"
    reply = shop.sell()
    assert reply.status == 503 and reply.problem in ("lock-unavailable", "lock-timeout")
    assert redis("GET", "inventory:{phone}") == "5"


def test_scripts_are_loaded_again(redis, start):
    shop = start(redis, "--write", "atomic")
    shop.stock(value=5)
    assert shop.sell().status == 200
    redis("SCRIPT", "FLUSH")
    assert shop.sell().status == 200 and shop.stock().json["stock"] == 3
