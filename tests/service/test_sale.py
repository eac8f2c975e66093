# SPDX-License-Identifier: Apache-2.0
"""Selling: every rung with every way to write; several instances; what is lost and what is not."""
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from world import hold_lock, release_lock, wait_until

RUNGS = ["none", "local", "setnx", "setnx_expire", "setnx_multi", "set_nx_ex", "owner_check", "owner_lua", "reentrant_tls",
         "reentrant_getset", "reentrant", "watchdog_timer", "watchdog", "blpop_wake", "notify", "fair", "rw_counter",
         "read_write"]
WRITES = ["decr", "set", "atomic"]


def sell_many(instances, count, at_once=50):
    """count sales, spread evenly; their replies."""
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(lambda i: instances[i % len(instances)].sell(), range(count)))


def units_of(replies):
    return [reply.json["unit"] for reply in replies if reply.status == 200]


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("rung", RUNGS)
def test_every_rung_with_every_write_sells_one_by_one(redis, start, rung, write):
    shop = start(redis, "--lock", rung, "--write", write)
    shop.stock(value=5)
    assert [shop.sell().json["unit"] for _ in range(3)] == [5, 4, 3]
    assert shop.sell(quantity=3).problem == "insufficient-stock"
    assert shop.sell(quantity=2).json["unit"] == 1
    assert shop.sell().problem == "sold-out"
    assert shop.sell("other").problem == "unknown-item"
    assert redis("GET", "inventory:{phone}") == "0"
    assert redis("EXISTS", "lock:{phone}") == 0  # released
    flawed = shop.logged("flawed-rung")
    assert bool(flawed) == (rung not in ("owner_lua", "reentrant", "watchdog", "notify", "fair", "read_write"))


def test_a_worker_keeps_its_lock_open(redis, start):
    """The timers of watchdog_timer, each a thread, live as long as the lock is open: they tell."""
    shop = start(redis, "--lock", "watchdog_timer", "--workers", 1)
    shop.stock(value=9)
    assert shop.sell().status == 200
    before = shop.threads()
    assert [shop.sell().status for _ in range(3)] == [200] * 3
    assert shop.threads() == before + 3


@pytest.mark.parametrize("rung", ["notify", "watchdog", "setnx"])
@pytest.mark.parametrize("write", WRITES)
def test_two_instances_do_not_oversell_under_a_shared_lock(redis, start, rung, write):
    shops = [start(redis, "--lock", rung, "--write", write, "--retry-ms", 2, name=name) for name in "ab"]
    shops[0].stock(value=60)
    replies = sell_many(shops, 100)
    assert sorted(units_of(replies)) == list(range(1, 61))
    assert [reply.problem for reply in replies if reply.status != 200] == ["sold-out"] * 40
    assert redis("GET", "inventory:{phone}") == "0"
    assert {reply.json["instance"] for reply in replies if reply.status == 200} == {"a", "b"}


@pytest.mark.parametrize("rung", ["none", "local"])
def test_two_instances_oversell_without_a_shared_lock(redis, start, rung):
    """Both have read before either writes: the lock (or none) must let that happen, every time."""
    shops = [start(redis, "--lock", rung, "--write", "set", "--work-ms", 300, name=name) for name in "ab"]
    shops[0].stock(value=1)
    replies = sell_many(shops, 2)
    assert units_of(replies) == [1, 1]


def test_a_local_lock_holds_within_one_instance(redis, start):
    shop = start(redis, "--lock", "local", "--write", "set")
    shop.stock(value=60)
    assert sorted(units_of(sell_many([shop], 100))) == list(range(1, 61))


def test_decr_does_not_look_at_what_it_gets(redis, start):
    """The article's -1: two read the last one, both decrement."""
    shop = start(redis, "--lock", "none", "--work-ms", 300)
    shop.stock(value=1)
    replies = sell_many([shop], 2)
    assert sorted(units_of(replies)) == [0, 1]
    assert sorted(reply.json["left"] for reply in replies) == [-1, 0]
    assert redis("GET", "inventory:{phone}") == "-1"


@pytest.mark.parametrize("lock,write", [("watchdog", "decr"), ("fair", "fenced")])
def test_what_is_not_there_is_not_sold(redis, start, lock, write):
    """Somebody empties the stock between the read and the write, without the lock."""
    shop = start(redis, "--lock", lock, "--write", write, "--enable-failpoints", "--failpoints", "sale.before_write=1*pause")
    shop.stock(value=5)
    sale = shop.in_background(shop.sell, quantity=2)
    wait_until(lambda: shop.admin("GET", "/failpoints").json["failpoints"][0]["paused"] == 1, "the sale has read")
    redis("DEL", "inventory:{phone}")
    assert shop.admin("PUT", "/failpoints", '{"point": "sale.before_write", "action": "off"}').status == 200
    reply = sale.result()
    assert reply.status == 500 and reply.problem == "stock-invalid" and "5 when it was read, -2 after" in str(reply.json)
    assert redis("GET", "inventory:{phone}") == "0" and shop.sell().problem == "sold-out"


def test_atomic_needs_no_lock(redis, start):
    shops = [start(redis, "--lock", "none", "--write", "atomic", name=name) for name in "ab"]
    shops[0].stock(value=60)
    assert sorted(units_of(sell_many(shops, 100))) == list(range(1, 61))


def test_set_writes_what_it_read(redis, start):
    """A decrement between the read and the write is lost: that is what SET does."""
    shop = start(redis, "--lock", "none", "--write", "set", "--work-ms", 500)
    shop.stock(value=10)
    redis("CONFIG", "RESETSTAT")
    sale = shop.in_background(shop.sell)
    wait_until(lambda: "cmdstat_get:" in redis("INFO", "commandstats"), "the sale has read")
    redis("SET", "inventory:{phone}", 5)
    assert sale.result().json["left"] == 9
    assert redis("GET", "inventory:{phone}") == "9"


def test_items_do_not_wait_for_each_other(redis, start):
    shop = start(redis)
    shop.stock("phone", 1)
    shop.stock("case", 1)
    hold_lock(redis, "phone")
    waiting = shop.in_background(shop.sell, "phone")
    wait_until(lambda: shop.metric("inventoryd_sales_in_flight") == 1, "the sale waits")
    assert shop.sell("case").status == 200
    release_lock(redis, "phone")
    assert waiting.result().status == 200


def test_keys_of_the_article(redis, start):
    shop = start(redis, "--keys", "article", "--lock", "set_nx_ex")
    assert shop.stock(value=1000).status == 200
    assert redis("GET", "inventory") == "1000"
    assert shop.sell().json["left"] == 999
    redis("SET", "redisLock", "somebody", "PX", 30000)
    waiting = shop.in_background(shop.sell)
    wait_until(lambda: shop.metric("inventoryd_sales_in_flight") == 1, "the sale waits")
    redis("DEL", "redisLock")
    assert waiting.result().json["left"] == 998
    for reply in (shop.sell("case"), shop.stock("case"), shop.stock("case", 5)):
        assert reply.status == 404 and reply.problem == "unknown-item" and "phone" in reply.json["detail"]


def test_restock_waits_for_the_lock(redis, start):
    shop = start(redis)
    shop.stock(value=5)
    hold_lock(redis)
    restock = shop.in_background(shop.stock, value=9)
    wait_until(lambda: shop.metric("inventoryd_sales_in_flight") == 1, "the restock waits")
    assert redis("GET", "inventory:{phone}") == "5"
    release_lock(redis)
    assert restock.result().status == 200
    assert redis("GET", "inventory:{phone}") == "9"


@pytest.mark.parametrize("check_hold,status", [("off", 200), ("on", 503)])
def test_a_hold_that_is_lost_while_it_works(redis, start, check_hold, status):
    """reentrant is not renewed: work that is longer than the time to live loses the lock."""
    shop = start(redis, "--lock", "reentrant", "--ttl-ms", 200, "--work-ms", 600, "--check-hold", check_hold)
    shop.stock(value=5)
    reply = shop.sell()
    assert reply.status == status
    assert shop.stock().json["stock"] == (4 if status == 200 else 5)
    assert status == 200 or reply.problem == "lock-lost"
    assert shop.metric("lock_lost_total") == 1 and shop.logged("lock-lost")


def test_a_hold_that_is_renewed_survives_its_time_to_live(redis, start):
    shop = start(redis, "--lock", "watchdog", "--ttl-ms", 2000, "--work-ms", 3000, "--check-hold", "on")
    shop.stock(value=5)
    assert shop.sell().status == 200
    assert shop.metric("lock_renewals_total") >= 1 and shop.metric("lock_lost_total") == 0


def test_work_ms_lies_between_read_and_write(redis, start, tmp_path):
    shop = start(redis, "--work-ms", 50, "--history", tmp_path / "h.jsonl")
    shop.stock(value=5)
    shop.sell()
    with open(tmp_path / "h.jsonl", encoding="utf-8") as lines:
        stamps = {event["event"]: event["t_ns"] for event in map(json.loads, lines)}
    assert stamps["write"] - stamps["read"] >= 50_000_000
