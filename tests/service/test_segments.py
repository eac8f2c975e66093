# SPDX-License-Identifier: Apache-2.0
"""--segments: the stock of an item lies over several keys, each with a lock of its own."""
import json
import os
import random
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from failpoints import arm, park, paused
from test_resolve import LatePost
from world import Background, check_history, read_history, wait_until

KEY = "inventory:{phone}"


def segment(number):
    return f"{KEY}:segment:{number}"


def state(redis, count):
    return [int(redis("GET", segment(number))) for number in range(1, count + 1)]


def set_stock(shop, stock, status=200):
    answer = shop.admin("PUT", "/inventory/phone", b'{"stock":%d}' % stock)
    assert answer.status == status, answer
    return answer


def add(shop, units):
    return shop.admin("POST", "/inventory/phone/restock", b'{"add":%d}' % units, {"Content-Type": "application/json"})


def units_of(answers):
    """Each unit that was sold."""
    return [part["unit"] + answer.json["segments"] * number for answer in answers if answer.status == 200
            for part in answer.json["parts"] for number in range(part["quantity"])]


def opened(redis, start, *flags, stock=10, count=4, **named):
    shop = start(redis, "--segments", count, "--enable-failpoints", "--admin-writes", *flags, **named)
    if stock is not None:
        set_stock(shop, stock)
    return shop


# ---- Selling ------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", ["decr", "set", "atomic"])
@pytest.mark.parametrize("lock", ["none", "local", "watchdog", "fair"])
def test_it_sells_to_the_last_unit(redis, start, tmp_path, lock, write):
    shop = opened(redis, start, "--lock", lock, "--write", write, "--history", tmp_path / "h.jsonl")
    assert redis("HGETALL", KEY) == ["segments", "4"] and state(redis, 4) == [3, 3, 2, 2]
    answers = [shop.sell(quantity=quantity) for quantity in (1, 1, 5, 1, 2)]
    assert [(answer.status, answer.json["left"]) for answer in answers] == [(200, left) for left in (9, 8, 3, 2, 0)]
    assert sorted(units_of(answers)) == list(range(1, 11))
    assert [len(answer.json["parts"]) for answer in answers] == [1, 1, 2, 1, 1]
    assert all(answer.json["unit"] == answer.json["parts"][0]["unit"] for answer in answers)
    assert shop.sell().problem == "sold-out" and state(redis, 4) == [0] * 4
    shop.end()
    events = read_history(tmp_path / "h.jsonl")
    check_history(events)
    assert events[0]["segments"] == "4"
    granted = [event["hold"] for event in events if event["event"] == "granted"]
    assert granted and all(sorted(event["hold"] for event in events if event["event"] == name) == sorted(granted)
                           for name in ("enter", "exit", "release"))
    span = [event for event in events if event["event"] == "write" and event["parts"] == 2]
    assert [event["part"] for event in span] == [1, 2] and sum(event["quantity"] for event in span) == 5
    assert len({event["lock"] for event in span}) == len({event["hold"] for event in span}) == 2


def test_an_empty_segment_is_not_an_empty_stock(redis, start):
    """A sale looks on; with naive it is told that nothing is left."""
    shop = opened(redis, start, "--segments", "naive:4", stock=8)
    answers = [shop.sell() for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 409] and answers[2].problem == "sold-out"
    assert answers[2].json["left"] == 0 and sum(state(redis, 4)) == 6 and shop.logged("flawed-segments")
    assert shop.switch(segments=4).status == 200
    assert [shop.sell().status for _ in range(7)] == [200] * 6 + [409]


def test_too_few_are_left_in_all(redis, start):
    shop = opened(redis, start, stock=5)
    answer = shop.sell(quantity=6)
    assert answer.problem == "insufficient-stock" and answer.json["left"] == 5
    assert shop.sell(quantity=5).status == 200 and shop.sell().problem == "sold-out"


def test_large_numbers(redis, start):
    shop = opened(redis, start, stock=10 ** 12, count=16)
    answer = shop.sell(quantity=1000000)
    assert answer.json["unit"] == answer.json["parts"][0]["unit"] == int(redis("GET", segment(2))) * 16 + 2
    assert b"e+" not in answer.body and answer.json["left"] == 10 ** 12 - 1000000
    assert shop.ask("GET", "/inventory/phone").json["stock"] == 10 ** 12 - 1000000
    item = "i" * 64
    assert shop.admin("PUT", f"/inventory/{item}", b'{"stock":1000000}').status == 200
    assert len(shop.sell(item, quantity=999999).json["parts"]) == 16  # a long answer


def test_it_looks_on_until_it_has_enough(redis, start):
    """Where it looks on, the units are gone when it has the lock; so it looks on again."""
    shop = opened(redis, start, stock=8)
    assert shop.sell(quantity=2).json["parts"][0]["segment"] == 2
    sale = park(shop, "sale.between_segments", shop.sell)
    redis("SET", segment(3), 0)  # where it wants to look
    arm(shop, "sale.between_segments", "1*pause")
    wait_until(lambda: paused(shop, "sale.between_segments") == 1, "it looks on again")
    arm(shop, "sale.between_segments", "off")
    assert sale.result().json["parts"] == [{"segment": 4, "unit": 8, "quantity": 1}]


def test_sales_of_several_segments_at_once_do_not_wait_for_each_other(redis, start):
    shop = opened(redis, start)
    first = park(shop, "sale.after_read", shop.sell)
    second = park(shop, "sale.after_read", shop.sell, count=2)
    assert {redis("EXISTS", name) for name in ("lock:{phone}:2", "lock:{phone}:3")} == {1}
    arm(shop, "sale.after_read", "off")
    answers = [first.result(), second.result()]
    assert sorted(answer.json["parts"][0]["segment"] for answer in answers) == [2, 3]


def test_a_sale_of_many_units_waits_for_those_in_its_segments(redis, start):
    shop = opened(redis, start, stock=8)
    inside = park(shop, "sale.after_read", shop.sell)  # in segment 2
    arm(shop, "sale.between_segments", "1*pause")
    many = Background(shop.sell, quantity=7)
    wait_until(lambda: paused(shop, "sale.between_segments") == 1, "it has read")
    arm(shop, "sale.between_segments", "off")
    wait_until(lambda: shop.metric("inventoryd_sales_waiting") == 1, "it waits")
    arm(shop, "sale.after_read", "off")
    assert [inside.result().status, many.result().status] == [200, 200] and state(redis, 4) == [0] * 4


def test_within_its_time(redis, start):
    """A sale that wants several locks gives up with all of them."""
    shop = opened(redis, start, "--wait-ms", 1500, stock=8)
    redis("HSET", "lock:{phone}:4", "the test", 1)
    answer = shop.sell(quantity=8)
    assert answer.problem == "lock-timeout" and "lock:{phone}:4" in answer.json["detail"]
    assert not redis("KEYS", "lock:{phone}") and not redis("KEYS", "lock:{phone}:[123]")
    redis("DEL", "lock:{phone}:4")
    assert shop.sell(quantity=8).status == 200


def test_it_fails_at_once(redis, start):
    shop = opened(redis, start, "--on-conflict", "fail")
    redis("HSET", "lock:{phone}:2", "the test", 1)
    assert shop.sell().problem == "lock-busy"
    redis("DEL", "lock:{phone}:2")
    redis("HSET", "lock:{phone}:3", "the test", 1)
    assert shop.sell(quantity=10).problem == "lock-busy" and shop.sell().status == 200


def test_it_acquires_its_lock_again(redis, start):
    shop = opened(redis, start, "--lock", "watchdog")
    for quantity in (1, 5):
        assert shop.ask("POST", f"/inventory/phone/sale?quantity={quantity}&reenter=1", b"").status == 200
    assert sum(state(redis, 4)) == 4 and not redis("KEYS", "lock:*")


def test_a_guarded_read_holds_all_locks(redis, start):
    shop = opened(redis, start, "--guard-reads")
    reader = park(shop, "read.entered", shop.ask, "GET", "/inventory/phone")
    assert len(redis("KEYS", "lock:{phone}*")) == 4
    sale = Background(shop.sell)
    wait_until(lambda: shop.metric("inventoryd_sales_waiting") == 1, "the sale waits")
    arm(shop, "read.entered", "off")
    assert reader.result().json["stock"] == 10 and sale.result().status == 200


def test_the_articles_keys(redis, start):
    shop = opened(redis, start, "--keys", "article", stock=5)
    assert redis("HGET", "inventory", "segments") == "4"
    assert [redis("GET", "{inventory}:segment:%d" % number) for number in range(1, 5)] == ["2", "1", "1", "1"]
    assert shop.sell(quantity=5).status == 200 and shop.ask("GET", "/inventory/phone").json["stock"] == 0


def test_a_hold_that_is_not_released(redis, start):
    """sale.after_write=fail leaves all of its locks behind."""
    shop = opened(redis, start, "--failpoints", "sale.after_write=1*fail", "--ttl-ms", 1000)
    assert shop.sell(quantity=10).status == 200
    assert len(redis("KEYS", "lock:{phone}*")) == 4


# ---- Bursts -------------------------------------------------------------------------------------


def burst(redis, shops, seed):
    """An odd stock, odd quantities, all at once: exact to the last unit."""
    dice = random.Random(seed)
    stock = dice.randint(1, 90)
    quantities = [dice.choice([1, 1, 1, 2, 3, 5, 11, 29]) for _ in range(60)]
    set_stock(shops[0], stock)
    with ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(lambda pair: shops[pair[0] % len(shops)].sell(quantity=pair[1]), enumerate(quantities)))
    units = units_of(answers)
    assert len(units) == len(set(units)) and set(units) <= set(range(1, stock + 1)), seed
    left = sum(state(redis, 16))
    assert len(units) + left == stock, seed
    assert {answer.status for answer in answers} <= {200, 409}, [answer for answer in answers if answer.status > 409]
    refused = [quantity for quantity, answer in zip(quantities, answers) if answer.status == 409]
    assert all(quantity > left for quantity in refused), "nobody is refused while there is enough"


@pytest.mark.parametrize("lock, write", [("watchdog", "decr"), ("fair", "set"), ("none", "atomic"), ("notify", "atomic")])
def test_a_burst_is_exact_to_the_last_unit(redis, start, lock, write):
    shops = [opened(redis, start, "--lock", lock, "--write", write, "--retry-ms", 2, stock=None, count=16, name=name)
             for name in "ab"]
    for seed in range(int(os.environ.get("LADDER_BURSTS", "3"))):
        burst(redis, shops, seed)


# ---- Laying the stock ---------------------------------------------------------------------------


def test_units_are_added_and_shared_evenly(redis, start, tmp_path):
    shop = opened(redis, start, "--history", tmp_path / "h.jsonl")
    shop.sell(quantity=8)
    assert add(shop, 5).json["stock"] == 7 and state(redis, 4) == [2, 2, 2, 1]
    assert shop.ask("GET", "/inventory/phone").json["stock"] == 7
    assert set_stock(shop, 3).json["stock"] == 3 and state(redis, 4) == [1, 1, 1, 0]
    shop.end()
    rows = [event for event in read_history(tmp_path / "h.jsonl") if event["event"] == "restock"]
    assert [(row.get("stock_before"), row["stock_after"]) for row in rows] == [(None, 10), (2, 7), (7, 3)]
    assert rows[2]["parts_before"] == [2, 2, 2, 1] and rows[2]["parts_after"] == [1, 1, 1, 0]


def test_an_unknown_item_gets_no_units(redis, start):
    shop = opened(redis, start, stock=None)
    assert add(shop, 5).problem == "unknown-item" and shop.sell().problem == "unknown-item"
    assert shop.ask("GET", "/inventory/phone").problem == "unknown-item" and not redis("KEYS", "inventory*")


OTHERS = {"number": ["--segments", 1], "version": ["--segments", 1, "--lock", "none", "--write", "cas"],
          "2": ["--segments", 2], "16": ["--segments", 16]}
WAYS = {**OTHERS, "4": ["--segments", 4]}


@pytest.mark.parametrize("way", OTHERS)
def test_an_instance_set_otherwise_refuses_to_sell(redis, start, way):
    shop, other = opened(redis, start), start(redis, *OTHERS[way], name="b")
    for one, stock in ((shop, 10), (other, 6), (shop, 7)):
        set_stock(one, stock)
        elsewhere = other if one is shop else shop
        for ask in (elsewhere.sell, lambda: elsewhere.ask("GET", "/inventory/phone"), lambda: add(elsewhere, 1)):
            answer = ask()
            assert answer.problem == "other-layout" and "PUT /inventory/phone" in answer.json["detail"], answer
        assert one.ask("GET", "/inventory/phone").json["stock"] == stock and one.sell().status == 200
    assert set(redis("HKEYS", KEY)) <= {"segments", "version"} and sum(state(redis, 4)) == 6


@pytest.mark.parametrize("way", ["number", "2", "16"])
def test_the_stock_moves_under_all_locks(redis, start, way):
    """A sale is inside a segment that the other instance does not know of, or that this one leaves."""
    shop, other = opened(redis, start), start(redis, *OTHERS[way], name="b")
    sale = park(shop, "sale.after_read", shop.sell)  # in segment 2
    move = Background(set_stock, other, 6)
    wait_until(lambda: other.metric("inventoryd_sales_waiting") == 1 and redis("EXISTS", "lock:{phone}"), "it waits")
    assert redis("GET", segment(2)) == "3"
    arm(shop, "sale.after_read", "off")
    assert sale.result().status == 200
    move.result()
    assert other.ask("GET", "/inventory/phone").json["stock"] == 6 and shop.sell().problem == "other-layout"


@pytest.mark.parametrize("way, to", [(one, two) for one in ("none", "number", "version", "2", "4")
                                     for two in ("number", "version", "2", "4")])
def test_a_right_that_is_missing_changes_nothing(redis, start, way, to):
    """Redis undoes nothing of a script that it refuses half-way."""
    def held():
        return {key: redis("HGETALL" if redis("TYPE", key) == "hash" else "GET", key) for key in redis("KEYS", "inventory*")}
    shops = {name: start(redis, "--lock", "none", *WAYS[name], name=name) for name in {way, to} - {"none"}}
    for right in ("hset", "hdel", "del", "set", "exists", "type"):
        redis("FLUSHALL")
        if way != "none":
            set_stock(shops[way], 10)
        before = held()
        redis("ACL", "SETUSER", "default", f"-{right}")
        answer = shops[to].admin("PUT", "/inventory/phone", b'{"stock":7}')
        redis("ACL", "SETUSER", "default", "+@all")
        if answer.status == 200:
            assert shops[to].ask("GET", "/inventory/phone").json["stock"] == 7, right
        else:
            assert answer.problem == "stock-unavailable" and held() == before, right


def test_a_restock_that_may_not_read_discards_nothing(redis, start):
    shop = opened(redis, start)
    redis("ACL", "SETUSER", "default", "-get")
    answer = shop.restock(5)
    redis("ACL", "SETUSER", "default", "+@all")
    assert answer.problem == "stock-unavailable", answer
    assert shop.ask("GET", "/inventory/phone").json["stock"] == 10


@pytest.mark.parametrize("way", ["number", "2"])
def test_a_late_write_meets_no_segment(redis, start, way):
    """The lock of a sale is lost, and its DECR arrives after the stock has moved: nothing is sold."""
    between = LatePost(redis)
    shop = start(redis, "--segments", 4, "--stock-redis", between.url, "--ttl-ms", 1000, "--wait-ms", 8000)
    other = start(redis, *OTHERS[way], name="b")
    set_stock(shop, 16)
    between.keep = b"DECR"
    between.meanwhile = lambda: redis("DEL", "lock:{phone}:2")
    answer = Background(shop.sell)
    wait_until(lambda: between.kept, "its write is under way")
    answer.result()
    set_stock(other, 5)
    between.deliver()
    assert other.ask("GET", "/inventory/phone").json["stock"] == 5
    between.end()
    if way == "number":  # one that could not be stopped finds no number
        assert redis("GET", segment(2)) == "moved" and "not an integer" in str(redis("DECR", segment(2)))
        assert 0 < redis("TTL", segment(2)) <= 86400


# ---- Lost replies -------------------------------------------------------------------------------


@pytest.mark.parametrize("write, told", [("decr", {200}), ("atomic", {500})])
def test_the_reply_of_several_segments_is_lost(redis, proxy, start, tmp_path, write, told):
    """They were written, all of them. With a lock around it the sale finds out."""
    shop = start(redis, "--segments", 4, "--write", write, "--stock-redis", proxy.url, "--history", tmp_path / "h.jsonl")
    set_stock(shop, 10)
    shop.sell(quantity=10)  # the script is known from here on
    set_stock(shop, 10)
    proxy.lose = b"\r\n$1\r\n4\r\n$1\r\n3\r\n"  # of take_segments.lua: 4 segments, the first 3 units
    answer = shop.sell(quantity=10)
    assert proxy.lost == 1 and answer.status in told and state(redis, 4) == [0] * 4, answer
    shop.end()
    events = read_history(tmp_path / "h.jsonl")
    if 500 in told:
        assert [event["parts"] for event in events if event["event"] == "unknown"] == [4]
    else:
        assert [event["part"] for event in events if event["event"] == "write"][-4:] == [1, 2, 3, 4]


def test_the_write_of_several_segments_never_arrives(redis, start):
    between = LatePost(redis)
    shop = start(redis, "--segments", 4, "--stock-redis", between.url)
    set_stock(shop, 10)
    between.keep = b"\r\n$1\r\n4\r\n$1\r\n3\r\n"
    answer = shop.sell(quantity=10)
    assert answer.problem == "stock-unavailable" and sum(state(redis, 4)) == 10
    between.deliver()
    assert sum(state(redis, 4)) == 10, "its connection was ended first"
    assert shop.sell(quantity=10).status == 200
    between.end()


def test_the_reply_of_a_restock_is_lost(redis, proxy, start):
    shop = start(redis, "--segments", 4, "--stock-redis", proxy.url)
    set_stock(shop, 1)
    proxy.lose = b"\r\nset\r\n"
    assert set_stock(shop, 10, status=500).problem == "outcome-unknown" and proxy.lost == 1
    assert sum(state(redis, 4)) == 10


# ---- Bad values ---------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["0", "17", "-1", "1x", "", "naive", "naive:", "naive:0", "NAIVE:4", "4.0", " 4", "004"])
def test_bad_values(redis, start, value):
    ended = subprocess.run([os.environ["INVENTORYD"], "--redis", redis.url, "--listen", "127.0.0.1:0", "--segments", value],
                           capture_output=True, text=True, timeout=20, check=False)
    assert ended.returncode == 2 and "N from 1 to 16" in ended.stderr, ended
    shop = start(redis, "--admin-writes")
    answer = shop.admin("PUT", "/lock", json.dumps({"segments": value}))
    assert answer.problem == "invalid-value" and "N from 1 to 16" in answer.json["detail"]


@pytest.mark.parametrize("value", [1.5, -4, 1e30, 0, None, True, [4], {"N": 4}])
def test_bad_json(redis, start, value):
    shop = start(redis, "--admin-writes")
    assert shop.admin("PUT", "/lock", json.dumps({"segments": value})).problem == "invalid-value"


def test_a_switch(redis, start, tmp_path):
    shop = start(redis, "--admin-writes", "--history", tmp_path / "h.jsonl")
    for value, shown in ((4, "4"), ("naive:4", "naive:4"), ("naive:1", "1"), ("16", "16")):
        assert shop.switch(segments=value).json["segments"] == shown
    assert shop.switch(rung="fair").json["segments"] == "16"  # what is not named stays
    assert shop.switch(write="cas").problem == shop.switch(rung="reentrant_tls").problem == "invalid-value"
    assert shop.metric('inventoryd_info{version="0.2.0",instance="a",rung="fair",write="decr",on_conflict="wait",'
                       'local_first="off",admit="off",segments="16"}') == 1
    shop.end()
    events = read_history(tmp_path / "h.jsonl")
    assert [event["segments"] for event in events if event["event"] == "begin"] == ["1", "4", "naive:4", "1", "16", "16"]


def test_a_segment_that_an_operator_broke(redis, start):
    shop = opened(redis, start)
    redis("DEL", segment(3))
    answer = shop.sell()
    assert answer.problem == "stock-invalid" and "segment:3 is missing" in answer.json["detail"]
    redis("SET", segment(3), "many")
    assert shop.sell().problem == "stock-invalid"
    redis("DEL", segment(3))
    redis("SADD", segment(3), "one")
    assert shop.sell().problem == "stock-invalid"
    redis("DEL", segment(3))
    set_stock(shop, 4)
    assert shop.sell(quantity=4).status == 200


def test_the_version_grows_over_segments(redis, start):
    """A sale of cas that has read a version does not meet it again after the stock lay in segments."""
    shop, other = opened(redis, start, stock=None), start(redis, *OTHERS["version"], name="b")
    versions = []
    for _ in range(3):
        set_stock(other, 5)
        versions.append(int(redis("HGET", KEY, "version")))
        set_stock(shop, 5)
        assert redis("HEXISTS", KEY, "stock") == 0 and other.sell().problem == "other-layout"
    assert versions == [1, 2, 3]


# ---- What comes between -------------------------------------------------------------------------


def looks_on(redis, start, proxy=None, stock=8, quantity=7, **named):
    """A sale that needs all four segments, and has no lock at this moment."""
    shop = start(redis, "--segments", 4, "--enable-failpoints", *(("--stock-redis", proxy.url) if proxy else ()), **named)
    set_stock(shop, stock)
    return shop, park(shop, "sale.between_segments", shop.sell, quantity=quantity)


def test_a_segment_that_is_not_needed_any_more_is_left_out(redis, start):
    """Units were added while the sale looked on: no part of it has no units."""
    shop, sale = looks_on(redis, start)
    set_stock(shop, 40)
    redis("SET", segment(1), 0)
    arm(shop, "sale.between_segments", "off")
    answer = sale.result()
    assert answer.status == 200 and all(part["quantity"] > 0 for part in answer.json["parts"]), answer
    assert sum(state(redis, 4)) == 23 and not redis("KEYS", "lock:*")


def test_what_was_never_written_is_not_told_as_sold(redis, start):
    """The first segment is empty, and stays as it is: that says nothing of the write."""
    between = LatePost(redis)
    shop, sale = looks_on(redis, start, between)
    set_stock(shop, 40)
    redis("SET", segment(1), 0)
    between.keep = b"\r\n$1\r\n4\r\n"  # how many segments there are: of a script that writes
    arm(shop, "sale.between_segments", "off")
    answer = sale.result()
    between.keep = None
    assert answer.problem == "stock-unavailable" and sum(state(redis, 4)) == 30, answer
    between.end()


@pytest.mark.parametrize("write", ["atomic", "decr", "set"])
def test_a_late_write_meets_no_stock_that_was_laid_anew(redis, start, write):
    """There the units have other numbers."""
    shop = opened(redis, start, "--lock", "none", "--write", write)
    other = start(redis, "--lock", "none", "--segments", 16, name="b")
    sale = park(shop, "sale.before_write", shop.sell)
    set_stock(other, 160)
    arm(shop, "sale.before_write", "off")
    assert sale.result().problem == "other-layout" and sum(state(redis, 16)) == 160


def test_a_read_keeps_to_one_setting(redis, start):
    """The instance is switched while the reply is on its way: it asked for 4 segments, and adds up 4."""
    between = LatePost(redis)
    shop = start(redis, "--segments", 4, "--admin-writes", "--stock-redis", between.url)
    set_stock(shop, 10)
    assert shop.ask("GET", "/inventory/phone").json["stock"] == 10
    switched = []
    carry = between._carry

    def held_back(command, server):
        reply = carry(command, server)
        if b"segment:4" in command and not switched:
            switched.append(shop.switch(segments=16).status)
        return reply
    between._carry = held_back
    assert shop.ask("GET", "/inventory/phone").json["stock"] == 10 and switched == [200]
    between.end()


@pytest.mark.parametrize("asked", ["read", "sell", "add", "write", "write of all"])
@pytest.mark.parametrize("way, other", [("number", "4"), ("number", "version"), ("version", "number"), ("version", "4"),
                                        ("4", "number"), ("4", "version"), ("4", "2")])
def test_a_stock_that_moves_and_comes_back_during_a_request(redis, start, way, other, asked):
    """The request meets another layout. When it looks what the layout is, it is as wanted again."""
    between = LatePost(redis)
    flags = ["--lock", "none", *WAYS[way]]
    shop = start(redis, *flags, "--enable-failpoints", "--stock-redis", between.url)
    away, back = start(redis, "--lock", "none", *WAYS[other], name="b"), start(redis, *flags, name="c")
    for one in (away, back):  # a hash that was a stock of each kind
        set_stock(one, 12)
    carry, came_back = between._carry, []

    def look(command, server):
        if command.endswith(b"\r\n1\r\n$17\r\ninventory:{phone}\r\n") and not came_back:  # of layout.lua
            came_back.append(set_stock(back, 12).status)
        return carry(command, server)
    between._carry = look
    if asked.startswith("write"):
        sale = park(shop, "sale.before_write", shop.sell, quantity=10 if asked == "write of all" else 1)
        set_stock(away, 12)
        arm(shop, "sale.before_write", "off")
        answer = sale.result()
    else:
        set_stock(away, 12)
        answer = {"read": lambda: shop.ask("GET", "/inventory/phone"), "sell": shop.sell, "add": lambda: add(shop, 1)}[asked]()
    assert came_back == [200]
    assert answer.problem == "other-layout" and "changed during the request" in answer.json["detail"], answer
    assert back.ask("GET", "/inventory/phone").json["stock"] == 12 and shop.sell().status == 200
    between.end()


@pytest.mark.parametrize("way, key", [(["--segments", 4], segment(2)),
                                      (["--lock", "fair", "--write", "fenced"], "dlock:token:lock:{phone}"),
                                      (["--lock", "fair", "--write", "fenced"], "inventory:epoch")])
def test_another_key_of_another_type_is_no_change_of_the_layout(redis, start, way, key):
    """An operator must mend it: to send the request again does not help."""
    shop = start(redis, "--enable-failpoints", *way)
    set_stock(shop, 8)
    sale = park(shop, "sale.before_write", shop.sell)
    redis("DEL", key)
    redis("SADD", key, "one")
    arm(shop, "sale.before_write", "off")
    answer = sale.result()
    assert answer.problem == "stock-invalid" and f"{key} is a set" in answer.json["detail"], answer


def test_a_lock_is_lost_before_it_has_all(redis, start):
    shop = opened(redis, start, "--ttl-ms", 1000, stock=8)
    redis("HSET", "lock:{phone}:4", "the test", 1)
    sale = Background(shop.sell, quantity=8)
    wait_until(lambda: redis("EXISTS", "lock:{phone}:3"), "it has three of them")
    redis("DEL", "lock:{phone}")
    wait_until(lambda: shop.metric("lock_lost_total") == 1, "its renewal finds none")
    redis("DEL", "lock:{phone}:4")
    answer = sale.result()
    assert answer.status == 503 and answer.problem == "lock-lost" and sum(state(redis, 4)) == 8, answer


def test_an_aborted_sale_of_several_segments_tells_it_of_each(redis, start, tmp_path):
    """Another sale takes a unit between its read and its write. It reads again under all of its locks."""
    shop = opened(redis, start, "--lock", "none", "--write", "atomic", "--history", tmp_path / "h.jsonl", stock=8)
    sale = park(shop, "sale.before_write", shop.sell, quantity=7)
    redis("DECR", segment(1))
    arm(shop, "sale.before_write", "off")
    assert sale.result().status == 200 and sum(state(redis, 4)) == 0
    shop.end()
    events = read_history(tmp_path / "h.jsonl")
    aborted = [event["hold"] for event in events if event["event"] == "abort"]
    assert len(set(aborted)) == len(aborted) == 4


def test_the_units_of_a_refused_sale_come_back_to_the_segment(redis, start):
    """With decr: the stock was changed without the lock between its read and its write."""
    shop = opened(redis, start, stock=8)
    sale = park(shop, "sale.before_write", shop.sell)
    redis("SET", segment(2), 0)
    arm(shop, "sale.before_write", "off")
    assert sale.result().problem == "stock-invalid" and state(redis, 4) == [2, 0, 2, 2]


@pytest.mark.parametrize("flags", [("--lock", "fair", "--write", "fenced"), ("--lock", "reentrant_tls")])
def test_an_instance_that_takes_one_lock_says_how_the_stock_is_moved(redis, start, flags):
    shop, other = opened(redis, start), start(redis, *flags, name="b")
    answer = set_stock(other, 5, status=503)
    assert answer.problem == "other-layout" and "set the stock, and switch it back" in answer.json["detail"], answer
    assert sum(state(redis, 4)) == 10 and shop.sell().status == 200


@pytest.mark.parametrize("count", ["abc", "0", "99", "-1", "1.5", "1", "01"])
def test_what_is_no_number_of_segments_is_replaced(redis, start, count):
    for shop in (start(redis), opened(redis, start, stock=None, name="b")):
        redis("DEL", KEY)
        redis("HSET", KEY, "segments", count)
        assert shop.sell().problem in ("other-layout", "stock-invalid")
        set_stock(shop, 5)
        assert shop.sell().status == 200


@pytest.mark.parametrize("number", ["07", "7.0", " 7", "+7", "-0", "0x7", "many"])
def test_a_segment_that_is_no_number_at_the_write_takes_nothing_of_the_others(redis, start, number):
    shop = opened(redis, start, stock=8)
    sale = park(shop, "sale.before_write", shop.sell, quantity=8)
    redis("SET", segment(3), number)
    arm(shop, "sale.before_write", "off")
    assert sale.result().problem == "stock-invalid"
    assert [redis("GET", segment(one)) for one in range(1, 5)] == ["2", "2", number, "2"]
