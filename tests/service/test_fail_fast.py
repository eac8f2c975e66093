# SPDX-License-Identifier: Apache-2.0
"""Failing fast: an outage of Redis ends waits and refuses sales, and nothing else does."""
import time

import pytest

from redis_server import Connection
from world import Background, Redis, hold_lock, inventoryd_redis_up, release_lock, wait_until

PATIENT = ("--wait-ms", 600000, "--fail-fast-ms", 300)  # only an outage can end a wait


def assert_still_wait(sales, s):
    """For longer than --fail-fast-ms."""
    until = time.monotonic() + s
    while time.monotonic() < until:
        assert all(sale.is_alive() for sale in sales)
        time.sleep(0.05)


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
    assert inventoryd_redis_up(shop) == [1, 1]


def test_a_line_of_one_instance_ends_as_well(redis, start):
    """On `fair` they stand in line inside the instance, behind a sale in its section."""
    shop = start(redis, "--lock", "fair", *PATIENT, "--enable-failpoints", "--failpoints", "sale.after_read=1*pause")
    shop.stock(value=500)
    first = Background(shop.sell)
    wait_until(lambda: shop.admin("GET", "/failpoints").json["failpoints"][0]["paused"] == 1, "the first has the lock")
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
    wait_until(lambda: 0 in inventoryd_redis_up(shop), "it is away")
    redis.start()
    redis("SET", "inventory:{phone}", 5)
    wait_until(lambda: inventoryd_redis_up(shop) == [1, 1], "it is found")
    assert shop.sell().status == 200


def test_an_outage_that_is_short_ends_no_wait(redis, start, tmp_path):
    locks = Redis(tmp_path / "locks")
    shop = start(None, "--lock-redis", locks.url, "--stock-redis", redis.url, "--wait-ms", 600000, "--fail-fast-ms", 600000)
    shop.stock(value=5)
    hold_lock(locks)
    sale = Background(shop.sell)
    wait_until(lambda: shop.metric("inventoryd_sales_waiting") == 1, "a sale waits")
    locks.kill()
    wait_until(lambda: inventoryd_redis_up(shop) == [0, 1], "it is away")
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
    wait_until(lambda: shop.admin("GET", "/readyz") and proxy.refuse == 0, "a connection was refused")
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
    assert inventoryd_redis_up(shop) == [1, 1] and not shop.logged("stock-server-lost")


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
    wait_until(lambda: inventoryd_redis_up(shop) == [0, 0], "that it could not be asked is said")
    time.sleep(1)  # longer than --fail-fast-ms
    assert [shop.sell().status for _ in range(20)] == [200] * 20
    wait_until(lambda: shop.logged("redis-server-restored"), "who sells is told to be served")
    if why == "full":
        admin("CONFIG", "SET", "maxclients", 1000)
    else:
        admin("CONFIG", "SET", "requirepass", "")
    wait_until(lambda: shop.admin("GET", "/readyz").status == 200 and inventoryd_redis_up(shop) == [1, 1], "it is asked again")


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
    assert inventoryd_redis_up(shop) == [1, 1] and not shop.logged("redis-server-lost")


@pytest.mark.parametrize("apart", [False, True])
def test_a_second_outage_is_seen_though_nobody_sold_meanwhile(redis, start, apart, tmp_path):
    locks = Redis(tmp_path / "locks")
    shop = start(None, "--lock-redis", locks.url, "--stock-redis", redis.url if apart else locks.url, *PATIENT)
    shop.stock(value=5)
    for _ in range(2):
        locks.kill()
        sales = [Background(shop.sell) for _ in range(5)]
        assert {sale.result().problem for sale in sales} == {"lock-unavailable"}
        wait_until(lambda: inventoryd_redis_up(shop)[0] == 0, "it is away")
        locks.start()
        wait_until(lambda: inventoryd_redis_up(shop) == [1, 1], "it is found")
    which = "lock" if apart else "redis"
    assert [len(shop.logged(f"{which}-server-{what}")) for what in ("lost", "restored")] == [2, 2]
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
    wait_until(lambda: 0 in inventoryd_redis_up(shop), "it is away")
    redis.start("--maxmemory", memory, "--maxmemory-policy", policy)
    wait_until(lambda: inventoryd_redis_up(shop) == expected, "what it is now")
    if expected == [1, 1]:
        redis("SET", "inventory:{phone}", 5)
        wait_until(lambda: shop.sell().status == 200, "a sale")
    else:
        assert not shop.logged("redis-server-restored") and shop.sell().status == 503
        redis("CONFIG", "SET", "maxmemory", 0)
        wait_until(lambda: inventoryd_redis_up(shop) == [1, 1], "it takes writes")


def test_who_asks_whether_it_is_ready_finds_an_outage(redis, start):
    """Nobody sells."""
    shop = start(redis, *PATIENT)
    redis.kill()
    assert shop.admin("GET", "/readyz").status == 503
    wait_until(lambda: inventoryd_redis_up(shop) == [0, 0], "both roles are told")
    redis.start()
    wait_until(lambda: inventoryd_redis_up(shop) == [1, 1], "it is found")


def test_waits_that_need_no_lock_server_go_on(redis, start, tmp_path):
    locks = Redis(tmp_path / "locks")
    shop = start(None, "--lock-redis", locks.url, "--stock-redis", redis.url, *PATIENT, "--lock", "local",
                 "--enable-failpoints", "--failpoints", "sale.after_read=1*pause")
    shop.stock(value=5)
    sales = [Background(shop.sell) for _ in range(4)]
    wait_until(lambda: shop.metric("inventoryd_sales_waiting") == 3, "three wait")
    locks.kill()
    assert shop.admin("GET", "/readyz").status == 200
    wait_until(lambda: inventoryd_redis_up(shop) == [0, 1], "the lock's server is away")
    assert_still_wait(sales, s=1)
    assert shop.admin("PUT", "/failpoints", '{"point": "sale.after_read", "action": "off"}').status == 200
    assert [sale.result().status for sale in sales] == [200] * 4
    shop.end()
    locks.kill()


def test_the_gauge_is_true_from_the_start(redis, start):
    redis.kill()
    shop = start(redis, *PATIENT)
    wait_until(lambda: inventoryd_redis_up(shop) == [0, 0], "it was looked for")
    redis.start()
    wait_until(lambda: inventoryd_redis_up(shop) == [1, 1], "it is found")
    assert shop.stock(value=5).status == 200 and shop.sell().status == 200


def paused(shop):
    return shop.admin("GET", "/failpoints").json["failpoints"][0]["paused"]


def resume(shop, point):
    assert shop.admin("PUT", "/failpoints", '{"point": "%s", "action": "off"}' % point).status == 200


def test_who_comes_during_an_outage_needs_no_worker(redis, start):
    """The only one is kept: at a point of a rung a sale keeps its thread."""
    point = "owner_check.between_get_and_del"
    shop = start(redis, "--lock", "owner_check", "--guard-reads", "--workers", 1, *PATIENT, "--enable-failpoints",
                 "--failpoints", f"{point}=1*pause")
    redis("SET", "inventory:{phone}", 500)
    first = Background(shop.sell)
    wait_until(lambda: paused(shop) == 1, "the worker is kept")
    redis.kill()
    assert shop.admin("GET", "/readyz").status == 503
    early = []

    def is_one_refused():
        early.append(Background(shop.sell))
        return not all(sale.is_alive() for sale in early)

    wait_until(is_one_refused, "the outage is long enough")
    asked = [Background(ask) for ask in (shop.sell, shop.stock, lambda: shop.stock(value=5))]
    assert [reply.result().problem for reply in asked] == ["lock-unavailable"] * 3
    assert paused(shop) == 1
    resume(shop, point)
    assert first.result().status == 200
    assert {sale.result().problem for sale in early} == {"lock-unavailable"}


def test_a_sale_in_its_section_writes_nothing_to_a_server_that_is_away(redis, start):
    """A write without a reply would leave its outcome unknown."""
    shop = start(redis, *PATIENT, "--enable-failpoints", "--failpoints", "sale.after_read=1*pause")
    shop.stock(value=5)
    sale = Background(shop.sell)
    wait_until(lambda: paused(shop) == 1, "it has read")
    redis.freeze()
    wait_until(lambda: "keeps trying" in shop.stock().json["detail"], "the outage is long enough")
    resume(shop, "sale.after_read")
    assert sale.result().problem == "stock-unavailable"
    redis.thaw()
    wait_until(lambda: shop.stock().status == 200, "the server is back")
    assert shop.stock().json["stock"] == 5


def test_a_sale_that_cannot_reach_the_stock_takes_no_lock(redis, other, start):
    """It waits for the stock's server first. So a short outage fails no sale, and keeps no lock."""
    other.kill()
    shop = start(redis, "--stock-redis", other.url, "--wait-ms", 600000, "--fail-fast-ms", 600000)
    sales = [Background(shop.sell) for _ in range(20)]
    wait_until(lambda: shop.logged("stock-server-lost"), "the outage is noticed")
    assert_still_wait(sales, 1)
    assert shop.metric("lock_attempts_total") == 0
    other.start()
    assert {sale.result().problem for sale in sales} == {"unknown-item"}  # it is empty
    assert shop.metric("lock_acquired_total") == 20


def test_waiting_for_the_stocks_server_ends(redis, other, start):
    other.kill()
    shop = start(redis, "--stock-redis", other.url, "--wait-ms", 300, "--fail-fast-ms", 600000)
    reply = shop.sell()
    assert reply.problem == "stock-unavailable" and "Connection refused" in reply.json["detail"]
    patient = start(redis, "--stock-redis", other.url, "--wait-ms", 600000, "--fail-fast-ms", 600000,
                    "--drain-ms", 8000, name="b")  # half of it is for the answers
    sales = [Background(patient.sell) for _ in range(3)]
    wait_until(lambda: patient.logged("stock-server-lost"), "the outage is noticed")
    assert_still_wait(sales, 0.3)
    patient.signal()
    assert {sale.result().problem for sale in sales} == {"draining"}
    assert patient.wait() == 0
