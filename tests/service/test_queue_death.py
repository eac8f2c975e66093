# SPDX-License-Identifier: Apache-2.0
"""--on-conflict queue, where an instance or Redis dies: each accepted sale has one outcome."""
import os
import pathlib

import lua_scripts
import pytest

from failpoints import arm, paused
from queue_shop import (LISTED, STOCK, STREAM, accepted, buy, died, flags, is_empty, keepers, length, let_go, opened, outcome)
from world import Background, Redis, wait_until

LUA = pathlib.Path(__file__).resolve().parents[2] / "service" / "lua"
SAFE = ("--appendonly", "yes", "--appendfsync", "always")


def take_over(redis, start, lock, write, name="b"):
    return start(redis, *flags(lock, write), name=name)


@keepers
@pytest.mark.parametrize("points", ["queue.accepted=crash;queue.taken=pause", "sale.entered=crash;queue.accepted=pause"])
def test_killed_before_the_acceptance_is_answered(redis, start, lock, write, points):
    shop = opened(redis, start, lock, write, "--failpoints", points)
    with pytest.raises(ConnectionError):
        shop.sell(key="k")
    assert died(shop) and length(redis) == 1 and redis("GET", STOCK) == "5"
    other = take_over(redis, start, lock, write)
    wait_until(lambda: redis("GET", STOCK) == "4", "another instance sells it")
    again = other.sell(key="k")
    assert again.json == {"sold": 1, "left": 4, "unit": 5, "item": "phone", "instance": "b"}
    assert again.headers["idempotency-replayed"] == "true" and is_empty(redis)


@keepers
@pytest.mark.parametrize("point,by", [("queue.taken", "b"), ("sale.after_read", "b"),
                                      ("sale.before_write", "b"), ("queue.before_ack", "a"), ("sale.after_write", "a")])
def test_a_worker_is_killed(redis, start, lock, write, point, by):
    """By: who has sold. An instance that starts later processes what is left, and finds what was sold."""
    shop = opened(redis, start, lock, write, "--failpoints", "sale.entered=pause")
    locations = [buy(shop), buy(shop, quantity=2)]
    arm(shop, point, "crash")
    let_go(shop, "sale.entered")
    wait_until(lambda: shop.process.poll() is not None, "it dies")
    assert died(shop)
    other = take_over(redis, start, lock, write)
    first, second = (outcome(other, location).json for location in locations)
    assert (first["unit"], first["instance"]) == (5, by) and (second["unit"], second["instance"]) == (3, "b")
    assert redis("GET", STOCK) == "2" and is_empty(redis)


def test_a_dead_workers_entry_comes_first(redis, start):
    """It is pending, and an entry behind it is new."""
    shop = opened(redis, start, "watchdog", "atomic", "--failpoints", "queue.taken=pause")
    first = buy(shop, key="first")
    wait_until(lambda: paused(shop, "queue.taken") == 1, "it is taken")
    second = buy(shop, key="second")
    shop.kill()
    assert died(shop) and redis("XPENDING", STREAM, "workers")[0] == 1
    other = take_over(redis, start, "watchdog", "atomic")
    assert [outcome(other, location).json["unit"] for location in (first, second)] == [5, 4]
    assert is_empty(redis)


@pytest.mark.parametrize("again", range(int(os.environ.get("LADDER_AGAIN", "10"))))
@pytest.mark.parametrize("write,left", [("decr", "3"), ("set", "3"), ("atomic", "4")])
def test_a_worker_dies_between_sale_and_acknowledgement(redis, start, write, left, again):
    """With decr and set one request takes two units (set: one more, because the next worker reads the stock anew).
    With atomic it takes one, at the same point."""
    shop = opened(redis, start, "watchdog", write, "--failpoints", "sale.entered=pause;queue.before_ack=crash")
    location = buy(shop)
    let_go(shop, "sale.entered")
    wait_until(lambda: shop.process.poll() is not None, "it dies")
    assert died(shop) and redis("GET", STOCK) == "4"
    other = take_over(redis, start, "watchdog", write)
    assert outcome(other, location).json["unit"] == int(left) + 1
    assert redis("GET", STOCK) == left and is_empty(redis)


@pytest.mark.parametrize("write", ["decr", "set"])
def test_the_flawed_ways_to_write_sell_in_order_if_nobody_dies(redis, start, write):
    shop = opened(redis, start, "watchdog", write, stock=2)
    locations = [buy(shop) for _ in range(3)]
    assert [outcome(shop, location).status for location in locations] == [200, 200, 409]
    assert redis("GET", STOCK) == "0" and is_empty(redis)


@keepers
def test_redis_dies_and_comes_back(tmp_path, start, lock, write):
    """Entries and outcomes are as safe as the stock."""
    redis = Redis(tmp_path / "safe", *SAFE)
    try:
        shop = opened(redis, start, lock, write, "--failpoints", "queue.taken=pause", "--fail-fast-ms", 600000)
        locations = [buy(shop, key=f"k{i}") for i in range(3)]
        wait_until(lambda: paused(shop, "queue.taken") == 1, "one is taken")
        redis.kill()
        redis.start()
        assert length(redis) == 3
        arm(shop, "queue.taken", "off")
        assert [outcome(shop, location).json["unit"] for location in locations] == [5, 4, 3]
        assert buy_again(shop) == 5 and redis("GET", STOCK) == "2" and is_empty(redis)
        shop.end()
    finally:
        redis.kill()


def buy_again(shop):
    reply = shop.sell(key="k0")
    assert reply.headers["idempotency-replayed"] == "true"
    return reply.json["unit"]


@keepers
def test_redis_is_emptied(redis, start, lock, write):
    """Nothing is left of the sale, and its key is free; the item is listed again."""
    shop = opened(redis, start, lock, write, "--failpoints", "queue.taken=pause")
    location = buy(shop, key="k")
    wait_until(lambda: paused(shop, "queue.taken") == 1, "it is taken")
    redis("FLUSHALL")
    redis("SET", STOCK, 5)
    assert outcome(shop, location, 0).problem == "unknown-sale"
    arm(shop, "queue.taken", "off")
    again = buy(shop, key="k")
    assert again != location and outcome(shop, again).json["unit"] == 5
    assert redis("ZSCORE", LISTED, "phone") and is_empty(redis) and redis("GET", STOCK) == "4"


def test_an_instance_that_drains_leaves_the_rest(redis, start):
    shop = opened(redis, start, "watchdog", "atomic", "--failpoints", "sale.after_read=pause")
    locations = [buy(shop) for _ in range(3)]
    wait_until(lambda: paused(shop, "sale.after_read") == 1, "the first is under way")
    shop.end()  # it lets the paused sale go on
    assert redis("GET", STOCK) == "4" and length(redis) == 2
    other = take_over(redis, start, "watchdog", "atomic")
    assert [outcome(other, location).json["instance"] for location in locations] == ["a", "b", "b"]


def test_two_instances_keep_the_order(redis, start):
    shops = [opened(redis, start, "fair", "fenced", stock=200, name=name) for name in "ab"]
    locations = [buy(shops[i % 2]) for i in range(100)]
    replies = [outcome(shops[0], location).json for location in locations]
    assert [reply["unit"] for reply in replies] == list(range(200, 100, -1)) and is_empty(redis)
    assert {reply["instance"] for reply in replies} <= {"a", "b"}


def test_items_do_not_wait_for_each_other(redis, start):
    shop = opened(redis, start, "watchdog", "atomic", "--failpoints", "queue.taken=1*pause")
    slow = buy(shop)
    wait_until(lambda: paused(shop, "queue.taken") == 1, "it is taken")
    redis("SET", "inventory:{tablet}", 1)
    assert outcome(shop, accepted(shop.sell(item="tablet"))).status == 200
    assert outcome(shop, slow, 0).status == 202
    arm(shop, "queue.taken", "off")
    assert outcome(shop, slow).status == 200


def test_a_queue_of_dead_instances_is_found_at_the_start(redis, start):
    """The instances died at once after they had accepted."""
    shop = opened(redis, start, "watchdog", "atomic", "--failpoints", "queue.accepted=crash;queue.taken=pause")
    background = Background(shop.sell)
    wait_until(lambda: shop.process.poll() is not None, "it dies")
    with pytest.raises(ConnectionError):
        background.result()
    assert died(shop) and length(redis) == 1
    take_over(redis, start, "watchdog", "atomic")
    assert is_empty(redis) and redis("GET", STOCK) == "4"


def test_an_instance_stops_just_before_it_accepts(redis, start, proxy):
    """For longer than the list keeps an item without entries; and it dies at once after it has accepted."""
    shop = opened(redis, start, "watchdog", "atomic", "--stock-redis", proxy.url)
    buy(shop)
    assert is_empty(redis)
    arm(shop, "queue.accepted", "crash")
    proxy.hold = lua_scripts.sha1(LUA / "queue_accept.lua").encode()
    background = Background(shop.sell)
    wait_until(lambda: proxy.held == 1, "it is about to accept")
    redis("DEL", LISTED)  # as queue_tidy.lua does
    proxy.hold = None
    wait_until(lambda: shop.process.poll() is not None, "it dies")
    with pytest.raises(ConnectionError):
        background.result()
    assert died(shop) and length(redis) == 1
    take_over(redis, start, "watchdog", "atomic")
    assert is_empty(redis) and redis("GET", STOCK) == "3"
