# SPDX-License-Identifier: Apache-2.0
"""Redis that is away, hangs, restarts, refuses, holds the wrong thing, or whose replies are lost."""
import json
import socket
import time

import pytest

from redis_server import Connection
from world import Background, LossyProxy, Redis, hold_lock, read_history, release_lock, wait_until

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
    if lock == "none":
        return
    assert shop.metric("lock_redis_lost_total") == 1 and shop.metric("lock_redis_back_total") == 0
    assert shop.metric("lock_redis_connects_failed_total") > 0 and shop.metric("lock_redis_refused_total") == 0
    redis.start()
    wait_until(lambda: shop.stock(value=5).status == 200 and shop.sell().status == 200, "a sale after Redis came back")
    assert shop.metric("lock_redis_back_total") == 1
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
    """Read, then no answer: what was sent may have been carried out."""
    shop = start(redis, "--lock", "none", "--write", "decr", "--redis-timeout-ms", 200, "--enable-failpoints",
                 "--failpoints", "sale.after_read=pause")
    shop.stock(value=5)
    sale = Background(shop.sell)
    wait_until(lambda: shop.admin("GET", "/failpoints").json["failpoints"][0]["parked"] == 1, "the sale has read")
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


@pytest.mark.parametrize("value", ["many", "", "1.5", " 5", "5 ", "0x10", "99999999999999999999", "1e3",
                                   "9007199254740992", "9223372036854775807", "-9007199254740992"])
@pytest.mark.parametrize("write", ["decr", "set", "atomic"])
def test_stock_that_is_no_number(redis, start_once, write, value):
    shop = start_once("--write", write)
    shop.redis("SET", "inventory:{phone}", value)
    reply = shop.sell()
    assert reply.status == 500 and reply.problem == "stock-invalid"
    assert shop.stock().problem == "stock-invalid"
    assert shop.redis("GET", "inventory:{phone}") == value


@pytest.mark.parametrize("write", ["decr", "set", "atomic"])
def test_the_largest_stock(redis, start_once, write):
    shop = start_once("--write", write)
    shop.redis("SET", "inventory:{phone}", 2**53 - 1)
    assert shop.sell().json["left"] == 2**53 - 2


@pytest.mark.parametrize("write", ["decr", "set", "atomic"])
def test_stock_of_another_type(redis, start, write):
    shop = start(redis, "--write", write)
    redis("LPUSH", "inventory:{phone}", "x")
    reply = shop.sell()
    assert reply.status == 500 and reply.problem == "stock-invalid"
    assert shop.stock().problem == "stock-invalid"
    assert shop.stock(value=5).status == 200  # SET replaces it: this is how it is mended
    assert shop.sell().status == 200


@pytest.mark.parametrize("rung", ["set_nx_ex", "owner_lua", "reentrant", "watchdog", "notify", "read_write"])
def test_lock_of_another_type(redis, start, rung):
    shop = start(redis, "--lock", rung, *QUICK)
    redis("SET", "inventory:{phone}", 5)
    redis("LPUSH", "lock:{phone}", "x")
    reply = shop.sell()
    # For a flawed rung that sends SET NX any key means "held"; the others see, or ask, what it is.
    expected = {"set_nx_ex": "lock-timeout"}.get(rung, "lock-invalid")
    assert reply.problem == expected and redis("GET", "inventory:{phone}") == "5"


def test_instances_that_are_switched_one_after_the_other(redis, start):
    """Two sound rungs whose keys are of different types: nothing is sold twice, and what was refused is sold later."""
    old = start(redis, "--lock", "owner_lua", "--write", "atomic", "--admin-writes", "--enable-failpoints", *QUICK)
    new = start(redis, "--lock", "owner_lua", "--write", "atomic", "--admin-writes", *QUICK, name="b")
    assert old.stock(value=5).status == 200
    sold = new.sell(key="sold")
    assert new.switch(rung="watchdog").status == 200
    point = {"point": "sale.before_write", "action": "1*pause"}
    assert old.admin("PUT", "/failpoints", json.dumps(point)).status == 200
    slow = old.in_background(old.sell)
    wait_until(lambda: old.admin("GET", "/failpoints").json["failpoints"][0]["parked"], "a sale under the old rung")
    for key in (None, "sold", "another"):
        reply = new.sell(key=key)
        assert reply.status == 500 and reply.problem == "lock-invalid" and redis("GET", "inventory:{phone}") == "4", key
    assert old.admin("PUT", "/failpoints", json.dumps({**point, "action": "off"})).status == 200
    assert slow.result().json["unit"] == 4 and old.switch(rung="watchdog").status == 200
    again = new.sell(key="sold")
    assert (again.status, again.body) == (200, sold.body) and new.sell(key="another").json["unit"] == 3


def test_the_reply_to_the_write_is_lost(redis, start, proxy, tmp_path):
    """Of a script that reads and writes; for the others see test_doubt.py."""
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


def test_scripts_are_loaded_from_a_host_with_a_long_name(redis, start):
    """No message about it has room for what Redis says. The name is octal, and means 127.0.0.1."""
    name = "0177.0.0.1".rjust(240, "0")
    shop = start(None, "--lock-redis", redis.url, "--stock-redis", f"redis://{name}:{redis.port}", "--write", "atomic")
    assert shop.stock(value=5).status == 200
    assert shop.sell().json["unit"] == 5 and shop.sell().json["unit"] == 4


def test_lock_and_stock_on_different_servers(redis, start, tmp_path):
    other = Redis(tmp_path / "other")
    try:
        shop = start(None, "--lock-redis", redis.url, "--stock-redis", other.url, *QUICK)
        assert shop.admin("GET", "/readyz").status == 200
        shop.stock(value=5)
        assert other("GET", "inventory:{phone}") == "5" and redis("GET", "inventory:{phone}") is None
        hold_lock(redis)
        assert shop.sell().problem == "lock-timeout"
        redis.restart()  # a lock server that comes back empty does not take the stock with it
        assert shop.sell().json["left"] == 4
        redis.kill()
        reply = shop.admin("GET", "/readyz")
        assert reply.status == 503 and str(redis.port) in reply.json["detail"]
        assert shop.stock().status == 200
    finally:
        other.kill()


def test_login_and_database(redis, start):
    redis.restart("--requirepass", "s3cret:/@")
    url = f"redis://default:s3cret%3A%2F%40@127.0.0.1:{redis.port}/3"
    shop = start(url, *QUICK)
    assert shop.stock(value=5).status == 200 and shop.sell().status == 200
    assert shop.admin("GET", "/readyz").status == 200
    assert b"s3cret" not in shop.log and b"s3cret" not in shop.admin("GET", "/config").body
    wrong = start(f"redis://:nope@127.0.0.1:{redis.port}", *QUICK, name="b")
    reply = wrong.admin("GET", "/readyz")
    assert reply.status == 503 and "WRONGPASS" in reply.json["detail"] and "nope" not in reply.json["detail"]


@pytest.mark.parametrize("login", ["", "default:@"])
@pytest.mark.parametrize("word,line", [("s3cret:/@%", "s3cret:/@%"), ("pass word", "pass word\r\nmore\n"),
                                       ("x" * 512, "x" * 512 + "\n")])
def test_password_from_a_file(redis, start, tmp_path, login, word, line):
    redis.restart("--requirepass", word)
    (tmp_path / "password").write_bytes(line.encode())
    shop = start(f"redis://{login}127.0.0.1:{redis.port}", *QUICK, "--redis-password-file", tmp_path / "password",
                 "--stock-redis", f"unix:{login}{redis.unix_socket}")
    assert shop.stock(value=5).status == 200 and shop.sell().status == 200
    assert shop.admin("GET", "/readyz").status == 200
    assert word.encode() not in shop.log and word.encode() not in shop.admin("GET", "/config").body


def test_a_password_in_the_url_is_kept(redis, start, tmp_path):
    redis.restart("--requirepass", "right")
    (tmp_path / "password").write_text("wrong")
    shop = start(f"redis://:right@127.0.0.1:{redis.port}", *QUICK, "--redis-password-file", tmp_path / "password")
    assert shop.admin("GET", "/readyz").status == 200


def test_unix_socket(redis, start):
    shop = start(f"unix:{redis.unix_socket}?db=2")
    assert shop.stock(value=5).status == 200 and shop.sell().status == 200
    assert shop.admin("GET", "/readyz").status == 200


def test_a_server_that_speaks_something_else(start):
    with socket.socket() as nobody:  # keeps the port, and takes no connection
        nobody.bind(("127.0.0.1", 0))
        listener = LossyProxy(type("Nothing", (), {"port": nobody.getsockname()[1]})())
        shop = start(listener.url, *QUICK)
        assert shop.sell().status == 503
        assert shop.admin("GET", "/readyz").problem == "not-ready"
        listener.end()


@pytest.fixture(scope="module")
def start_once(tmp_path_factory):
    """One instance for each set of flags, for tests that only ask."""
    from world import Inventoryd
    folder = tmp_path_factory.mktemp("once")
    server = Redis(folder / "redis")
    running = {}

    def get(*flags):
        if flags not in running:
            running[flags] = Inventoryd(str(folder), server, *flags)
            running[flags].redis = server
        return running[flags]

    yield get
    try:
        for instance in running.values():
            instance.end()
    finally:
        for instance in running.values():
            instance.kill()
        server.kill()


# ---- What is said of a server that is away -------------------------------------------------------


CALM = ("--redis-timeout-ms", 5000, "--wait-ms", 1000)


def assert_still_wait(sales, s):
    """For longer than --fail-fast-ms."""
    until = time.monotonic() + s
    while time.monotonic() < until:
        assert all(sale.is_alive() for sale in sales)
        time.sleep(0.05)


def up(shop):
    return [shop.metric('redis_up{role="%s"}' % role) for role in ("lock", "stock")]


def test_an_outage_is_said_once_and_so_is_its_end(redis, start, tmp_path):
    locks = Redis(tmp_path / "locks")
    shop = start(None, "--lock-redis", locks.url, "--stock-redis", redis.url, *CALM)
    assert shop.stock(value=5).status == 200 and up(shop) == [1, 1]
    redis.kill()
    for _ in range(5):
        assert shop.sell().problem == "stock-unavailable"
    wait_until(lambda: up(shop) == [1, 0], "the stock's server is away")
    redis.start()
    redis("SET", "inventory:{phone}", 5)
    wait_until(lambda: shop.sell().status == 200, "a sale after the stock's server came back")
    wait_until(lambda: up(shop) == [1, 1], "the stock's server is there")
    assert [len(shop.logged(f"stock-server-{what}")) for what in ("lost", "back")] == [1, 1]
    locks.kill()
    assert shop.sell().problem == "lock-unavailable"
    wait_until(lambda: up(shop) == [0, 1], "the lock's server is away")
    locks.start()
    wait_until(lambda: shop.sell().status == 200 and up(shop) == [1, 1], "a sale after the lock's server came back")
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
    wait_until(lambda: up(shop) == [0, 1], "the lock's server was looked for all the same")
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


# ---- Failing fast --------------------------------------------------------------------------------

PATIENT = ("--wait-ms", 600000, "--fail-fast-ms", 300)  # only an outage can end a wait


@pytest.mark.parametrize("lock,held_as", [("owner_lua", "owner_lua"), ("watchdog", "watchdog"), ("notify", "watchdog")])
def test_who_waits_when_the_locks_server_goes_is_answered(redis, start, lock, held_as):
    shop = start(redis, "--lock", lock, *PATIENT)
    shop.stock(value=500)
    hold_lock(redis, rung=held_as)
    sales = [Background(shop.sell) for _ in range(100)]
    wait_until(lambda: shop.metric("inventoryd_sales_waiting") == 100, "all wait")
    redis.kill()
    assert {sale.result().problem for sale in sales} == {"lock-unavailable"}
    assert shop.sell().status == 503 and shop.stock().status == 503
    redis.start()
    wait_until(lambda: shop.stock(value=5).status == 200 and shop.sell().status == 200, "a sale after it came back")
    assert up(shop) == [1, 1]


def test_a_line_of_one_instance_ends_as_well(redis, start):
    """On `fair` they stand in line inside the instance, behind a sale in its section."""
    shop = start(redis, "--lock", "fair", *PATIENT, "--enable-failpoints", "--failpoints", "sale.after_read=1*pause")
    shop.stock(value=500)
    first = Background(shop.sell)
    wait_until(lambda: shop.admin("GET", "/failpoints").json["failpoints"][0]["parked"] == 1, "the first has the lock")
    sales = [Background(shop.sell) for _ in range(100)]
    wait_until(lambda: shop.metric("inventoryd_sales_waiting") == 100, "all wait")
    redis.kill()
    assert {sale.result().problem for sale in sales} == {"lock-unavailable"}
    assert shop.admin("PUT", "/failpoints", '{"point": "sale.after_read", "action": "off"}').status == 200
    assert first.result().status == 503
    redis.start()
    wait_until(lambda: shop.stock(value=5).status == 200 and shop.sell().status == 200, "a sale after it came back")


def test_a_lock_that_asks_no_server_goes_on(redis, start, tmp_path):
    locks = Redis(tmp_path / "locks")
    shop = start(None, "--lock-redis", locks.url, "--stock-redis", redis.url, *PATIENT, "--admin-writes")
    shop.stock(value=5)
    locks.kill()
    assert shop.sell().problem == "lock-unavailable"
    assert shop.switch(rung="local").status == 200 and shop.sell().json["unit"] == 5
    assert shop.switch(rung="watchdog").status == 200 and shop.sell().problem == "lock-unavailable"
    locks.start()
    wait_until(lambda: shop.sell().status == 200, "a sale after it came back")
    shop.end()
    locks.kill()


def test_nobody_has_to_sell_for_it_to_be_found_again(redis, start):
    """A thread looks for it: the first sale behind an outage is not the one that finds out."""
    shop = start(redis, *PATIENT)
    shop.stock(value=5)
    redis.kill()
    assert shop.sell().status == 503
    wait_until(lambda: 0 in up(shop), "it is away")
    redis.start()
    redis("SET", "inventory:{phone}", 5)
    wait_until(lambda: up(shop) == [1, 1], "it is found")
    assert shop.sell().status == 200


def test_an_outage_that_is_short_ends_no_wait(redis, start, tmp_path):
    locks = Redis(tmp_path / "locks")
    shop = start(None, "--lock-redis", locks.url, "--stock-redis", redis.url, "--wait-ms", 600000, "--fail-fast-ms", 600000)
    shop.stock(value=5)
    hold_lock(locks)
    sale = Background(shop.sell)
    wait_until(lambda: shop.metric("inventoryd_sales_waiting") == 1, "a sale waits")
    locks.kill()
    wait_until(lambda: up(shop) == [0, 1], "it is away")
    locks.start()
    assert sale.result().status == 200
    shop.end()
    locks.kill()


def test_a_stock_server_that_hangs_does_not_make_each_sale_wait_for_it(redis, start, tmp_path):
    """The lock's server is well. One sale after the other would get the lock, and wait for the stock's server."""
    locks = Redis(tmp_path / "locks")
    shop = start(None, "--lock-redis", locks.url, "--stock-redis", redis.url, *PATIENT, "--redis-timeout-ms", 1000)
    shop.stock(value=5)
    redis.freeze()
    sales = [Background(shop.sell) for _ in range(200)]
    problems = {sale.result().problem for sale in sales}
    assert problems <= {"stock-unavailable", "outcome-unknown"}, problems
    redis.thaw()
    wait_until(lambda: shop.sell().status == 200, "a sale after it came back")
    shop.end()
    locks.kill()


def test_one_connection_that_fails_is_no_outage(redis, start, proxy):
    """All wait for one holder, and nobody else asks: the server is looked at before a wait is ended."""
    shop = start(None, "--lock-redis", redis.url, "--stock-redis", proxy.url, "--wait-ms", 600000, "--fail-fast-ms", 2000)
    assert shop.admin("PUT", "/inventory/phone", '{"stock": 5}').status == 200
    hold_lock(redis)
    sales = [Background(shop.sell) for _ in range(4)]
    wait_until(lambda: shop.metric("inventoryd_sales_waiting") == 4, "all wait")
    proxy.refuse = 1
    wait_until(lambda: shop.stock() and proxy.refuse == 0, "a connection was refused")
    assert_still_wait(sales, s=3)
    release_lock(redis)
    assert [sale.result().status for sale in sales] == [200] * 4


def test_a_connection_that_the_network_forgot_ends_no_wait(redis, start, proxy):
    """That which the server is looked at by is idle, and so is forgotten first."""
    shop = start(None, "--lock-redis", redis.url, "--stock-redis", proxy.url, "--wait-ms", 600000, "--workers", 1,
                 "--fail-fast-ms", 2000)
    redis("MSET", "inventory:{phone}", 5, "inventory:{other}", 5)
    assert shop.sell("other").status == 200
    hold_lock(redis)
    sales = [Background(shop.sell) for _ in range(4)]
    wait_until(lambda: shop.metric("inventoryd_sales_waiting") == 4, "all wait")
    known = proxy.connections
    proxy.silent = lambda number: number <= known
    assert shop.sell("other").problem == "stock-unavailable"
    wait_until(lambda: proxy.unanswered == 2, "the sale and the look met connections that were forgotten")
    assert_still_wait(sales, s=3)
    release_lock(redis)
    assert [sale.result().status for sale in sales] == [200] * 4
    assert up(shop) == [1, 1] and not shop.logged("stock-server-lost")


SHUT = {"full": "max number of clients", "password": "NOAUTH"}


@pytest.mark.parametrize("why", SHUT)
@pytest.mark.parametrize("database", ["", "/0"])  # what is refused is the first command: CLIENT ID, or SELECT
def test_a_server_that_takes_no_new_connection_sells_on_those_it_has(redis, start, why, database):
    """The connection by which it is looked at was closed, and is not had again."""
    shop = start(f"redis://127.0.0.1:{redis.port}{database}", *PATIENT, "--workers", 1)
    redis("SET", "inventory:{phone}", 100)
    assert [shop.sell().status for _ in range(10)] == [200] * 10
    admin = Connection(redis.port)
    clients = admin("CLIENT", "LIST").splitlines()
    if why == "full":
        assert admin("CONFIG", "SET", "maxclients", len(clients) - 1) == "OK"
    else:
        assert admin("CONFIG", "SET", "requirepass", "changed") == "OK"
    idle = [line.split()[0][len("id="):] for line in clients if "cmd=info" in line]
    assert [admin("CLIENT", "KILL", "ID", number) for number in idle] == [1]
    assert SHUT[why] in shop.admin("GET", "/readyz").json["detail"]
    wait_until(lambda: up(shop) == [0, 0], "that it could not be asked is said")
    time.sleep(1)  # longer than --fail-fast-ms
    assert [shop.sell().status for _ in range(20)] == [200] * 20
    wait_until(lambda: shop.logged("redis-server-back"), "who sells is told to be served")
    if why == "full":
        admin("CONFIG", "SET", "maxclients", 1000)
    else:
        admin("CONFIG", "SET", "requirepass", "")
    wait_until(lambda: shop.admin("GET", "/readyz").status == 200 and up(shop) == [1, 1], "it is asked again")


def test_a_server_that_takes_sales_is_not_away_though_nobody_else_reaches_it(redis, start, proxy):
    """New connections hang, and so does the one by which it is looked at."""
    shop = start(None, "--lock-redis", redis.url, "--stock-redis", proxy.url, "--wait-ms", 600000, "--workers", 1,
                 "--fail-fast-ms", 1500)
    redis("SET", "inventory:{phone}", 10**6)
    wait_until(lambda: proxy.connections == 1, "it is looked at")
    assert shop.sell().status == 200 and proxy.connections == 2
    proxy.silent = lambda number: number != 2
    asking = Background(shop.admin, "GET", "/readyz")
    deadline = time.monotonic() + 30
    while proxy.unanswered < 7:  # /readyz once, a look twice
        assert shop.sell().status == 200 and time.monotonic() < deadline
    assert asking.result().status == 503
    assert not shop.logged("stock-server-lost")


@pytest.mark.parametrize("lock", ["notify", "read_write"])
def test_a_server_that_refuses_wake_ups_is_there(redis, start, lock):
    """Waiters poll: they are not told that it is away."""
    assert redis("ACL", "SETUSER", "default", "resetchannels") == "OK"
    shop = start(redis, "--lock", lock, "--wait-ms", 600000, "--fail-fast-ms", 100, "--enable-failpoints",
                 "--failpoints", "sale.after_read=1*pause")
    shop.stock(value=500)
    sales = [Background(shop.sell) for _ in range(5)]
    wait_until(lambda: shop.metric("inventoryd_sales_waiting") == 4, "four wait")
    wait_until(lambda: shop.logged("lock-server-refuses"), "that it is deaf is told")
    assert_still_wait(sales, s=1)
    assert shop.admin("PUT", "/failpoints", '{"point": "sale.after_read", "action": "off"}').status == 200
    assert [sale.result().status for sale in sales] == [200] * 5
    assert up(shop) == [1, 1] and not shop.logged("redis-server-lost")


@pytest.mark.parametrize("apart", [False, True])
def test_a_second_outage_is_seen_though_nobody_sold_meanwhile(redis, start, apart, tmp_path):
    locks = Redis(tmp_path / "locks")
    shop = start(None, "--lock-redis", locks.url, "--stock-redis", redis.url if apart else locks.url, *PATIENT)
    shop.stock(value=5)
    for _ in range(2):
        locks.kill()
        sales = [Background(shop.sell) for _ in range(5)]
        assert {sale.result().problem for sale in sales} == {"lock-unavailable"}
        wait_until(lambda: up(shop)[0] == 0, "it is away")
        locks.start()
        wait_until(lambda: up(shop) == [1, 1], "it is found")
    which = "lock" if apart else "redis"
    assert [len(shop.logged(f"{which}-server-{what}")) for what in ("lost", "back")] == [2, 2]
    shop.end()
    locks.kill()


def test_a_stock_server_that_trickles_is_cut_off(redis, start, proxy):
    """--redis-timeout-ms is for a whole reply, not for each byte."""
    shop = start(None, "--lock-redis", redis.url, "--stock-redis", proxy.url, "--redis-timeout-ms", 300)
    shop.stock(value=5)
    proxy.byte_s = 0.1
    assert shop.sell().problem in ("stock-unavailable", "outcome-unknown")
    proxy.byte_s = 0
    wait_until(lambda: shop.sell().status == 200, "a sale after it was fast again")


SPOILED = {
    "evicting": ("1gb", "allkeys-lru", [1, 1]),  # it does what it did before
    "full": ("1", "noeviction", [0, 0]),
}


@pytest.mark.parametrize("how", SPOILED)
def test_a_server_that_comes_back_spoiled(redis, start, how):
    memory, policy, expected = SPOILED[how]
    shop = start(redis, *PATIENT)
    shop.stock(value=5)
    redis.kill()
    assert shop.sell().status == 503
    wait_until(lambda: 0 in up(shop), "it is away")
    redis.start("--maxmemory", memory, "--maxmemory-policy", policy)
    wait_until(lambda: up(shop) == expected, "what it is now")
    if expected == [1, 1]:
        redis("SET", "inventory:{phone}", 5)
        wait_until(lambda: shop.sell().status == 200, "a sale")
    else:
        assert not shop.logged("redis-server-back") and shop.sell().status == 503
        redis("CONFIG", "SET", "maxmemory", 0)
        wait_until(lambda: up(shop) == [1, 1], "it takes writes")


def test_who_asks_whether_it_is_ready_finds_an_outage(redis, start):
    """Nobody sells."""
    shop = start(redis, *PATIENT)
    redis.kill()
    assert shop.admin("GET", "/readyz").status == 503
    wait_until(lambda: up(shop) == [0, 0], "both roles are told")
    redis.start()
    wait_until(lambda: up(shop) == [1, 1], "it is found")


def test_waits_that_need_no_lock_server_go_on(redis, start, tmp_path):
    locks = Redis(tmp_path / "locks")
    shop = start(None, "--lock-redis", locks.url, "--stock-redis", redis.url, *PATIENT, "--lock", "local",
                 "--enable-failpoints", "--failpoints", "sale.after_read=1*pause")
    shop.stock(value=5)
    sales = [Background(shop.sell) for _ in range(4)]
    wait_until(lambda: shop.metric("inventoryd_sales_waiting") == 3, "three wait")
    locks.kill()
    assert shop.admin("GET", "/readyz").status == 200
    wait_until(lambda: up(shop) == [0, 1], "the lock's server is away")
    assert_still_wait(sales, s=1)
    assert shop.admin("PUT", "/failpoints", '{"point": "sale.after_read", "action": "off"}').status == 200
    assert [sale.result().status for sale in sales] == [200] * 4
    shop.end()
    locks.kill()


def test_the_gauge_is_true_from_the_start(redis, start):
    redis.kill()
    shop = start(redis, *PATIENT)
    wait_until(lambda: up(shop) == [0, 0], "it was looked for")
    redis.start()
    wait_until(lambda: up(shop) == [1, 1], "it is found")
    assert shop.stock(value=5).status == 200 and shop.sell().status == 200
