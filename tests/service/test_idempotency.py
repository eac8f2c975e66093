# SPDX-License-Identifier: Apache-2.0
"""Sales with an Idempotency-Key: sent again, from anywhere, they get the answer of the first time and sell nothing more."""
import json

import pytest

from idempotency import ON, OUT, RECORD, SALE, SHORT, SOLD, STOCK, events_of, is_record, is_replay, keepers, opened
from failpoints import arm, park_a_sale
from world import Background, hold_lock, read_history, release_lock, wait_until

DAY_MS = 86400000


# ---- The same key again -------------------------------------------------------------------------

@keepers
def test_the_same_answer_from_any_instance(redis, start, lock, write, tmp_path):
    a = opened(redis, start, lock, write, "--history", tmp_path / "a.jsonl", name="a")
    b = start(redis, "--lock", lock, "--write", write, "--history", tmp_path / "b.jsonl", name="b")
    first = a.sell(key="k", request="first")
    assert first.status == 200 and first.json == {"sold": 1, "left": 4, "unit": 5, "item": "phone", "instance": "a"}
    b.sell()
    again = b.sell(key="k", request="again")
    assert is_replay(again, first) and again.headers["x-instance"] == "b"
    assert is_replay(a.sell(key="k"), first) and redis("GET", STOCK) == "3"
    assert is_record(redis("GET", RECORD), SOLD) and DAY_MS - 60000 < redis("PTTL", RECORD) <= DAY_MS
    assert events_of(tmp_path / "a.jsonl", "first")[0]["key"] == "k"
    told = events_of(tmp_path / "b.jsonl", "again")
    assert [event["event"] for event in told] == ["invoke", "granted", "enter", "replay", "exit", "release"]
    assert told[0]["key"] == "k" and told[3]["answered_by"] == "a" and told[3]["hold"] == told[2]["hold"]
    assert (told[3]["code"], told[3]["unit"], told[3]["stock_after"], told[3]["quantity"]) == (200, 5, 4, 1)
    assert b.metric('inventory_sales_total{outcome="sold"}') == 1 and b.metric("inventory_sales_replayed_total") == 1
    assert b.metric('inventory_stock{item="phone"}') == 3  # not what was left then


def test_a_key_belongs_to_its_item_and_shares_the_slot_of_its_stock(redis, start):
    shop = opened(redis, start)
    shop.stock("case", 9)
    assert shop.sell(key="k").json["unit"] == 5 and shop.sell("case", key="k").json["unit"] == 9
    assert sorted(redis("KEYS", "*:key:*")) == ["inventory:{case}:key:k", RECORD]
    shop.end()
    article = opened(redis, start, "fair", "fenced", "--keys", "article")
    first = article.sell(key="}{k")
    assert redis("KEYS", "*}{k") == ["{inventory}:key:}{k"] and is_replay(article.sell(key="}{k"), first)


def slot(key):
    """Redis' rule: the text between the first brace and the next closing one, if there is any."""
    tag = key[key.index("{") + 1:key.index("}")] if "{" in key else key
    crc = 0
    for byte in tag.encode():
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xffff
    return crc % 16384


@pytest.mark.parametrize("keys", ["item", "article"])
def test_the_record_is_in_the_slot_of_the_stock(redis, start, keys):
    shop = opened(redis, start, "watchdog", "atomic", "--keys", keys)
    shop.sell(key="}{other}")
    stock = "inventory" if keys == "article" else STOCK
    record, = redis("KEYS", "*:key:*")
    assert redis("EXISTS", stock) == 1 and slot(stock) == slot(record)


@pytest.mark.parametrize("keys", ["item", "article"])
@pytest.mark.parametrize("admit", ["1", "window:1"])
def test_what_admissions_need_is_in_the_slot_of_the_stock(redis, start, keys, admit):
    """Each of their scripts has several of these keys."""
    shop = opened(redis, start, "watchdog", "atomic", "--keys", keys, "--admit", admit)
    shop.sell(key="k")
    ends = {key.rsplit(":", 1)[1] if "}:" in key else "" for key in redis("KEYS", "*inventory*")}
    assert ends == {"", "set", "k", "bucket" if admit == "1" else "window"}
    assert len({slot(key) for key in redis("KEYS", "*inventory*")}) == 1


@keepers
def test_another_quantity_is_another_sale(redis, start, lock, write):
    shop = opened(redis, start, lock, write)
    first = shop.sell(key="k", quantity=2)
    reply = shop.sell(key="k")
    assert reply.status == 422 and reply.problem == "idempotency-key-reused"
    assert "quantity=2" in reply.json["detail"] and "idempotency-replayed" not in reply.headers
    assert redis("GET", STOCK) == "3" and is_replay(shop.sell(key="k", quantity=2), first)
    assert shop.metric('inventory_sales_total{outcome="key_reused"}') == 1


def test_sold_out_is_kept_where_the_step_that_sells_finds_it(redis, start):
    shop = opened(redis, start, "watchdog", "atomic", stock=0)
    first = shop.sell(key="k")
    assert first.problem == "sold-out" and is_record(redis("GET", RECORD), OUT)
    shop.stock(value=5)
    assert is_replay(shop.sell(key="k"), first) and shop.sell(key="l").status == 200


def test_sold_out_frees_the_key_where_another_step_finds_it(redis, start):
    shop = opened(redis, start, stock=0)
    assert shop.sell(key="k").problem == "sold-out" and redis("EXISTS", RECORD) == 0
    shop.stock(value=5)
    assert shop.sell(key="k").status == 200


@keepers
def test_any_other_answer_frees_the_key(redis, start, lock, write):
    shop = opened(redis, start, lock, write, "--wait-ms", 300)
    assert shop.sell(key="k", quantity=6).problem == "insufficient-stock"
    assert shop.sell("none", key="k").problem == "unknown-item"
    if lock == "watchdog":
        hold_lock(redis)
        assert shop.sell(key="k").problem == "lock-timeout"
        release_lock(redis)
    redis("SET", STOCK, "nine")
    assert shop.sell(key="k").problem == "stock-invalid"
    redis("SET", STOCK, 5)
    assert redis("KEYS", "*:key:*") == []
    assert shop.sell(key="k").json["unit"] == 5 and is_record(redis("GET", RECORD), SOLD)


@keepers
def test_the_record_is_looked_for_before_the_stock(redis, start, lock, write):
    """Whatever has become of the stock: the sale is done."""
    shop = opened(redis, start, lock, write, "--guard-reads", "on")
    first = shop.sell(key="k")
    for ruin in (("SET", STOCK, 0), ("SET", STOCK, "nine"), ("DEL", STOCK)):
        redis(*ruin)
        assert is_replay(shop.sell(key="k"), first)
        assert is_replay(shop.ask("POST", SALE + "?upgrade=1&reenter=1", headers={"Idempotency-Key": "k"}), first)


def test_a_look_under_the_read_lock_finds_the_record_first(redis, start):
    shop = opened(redis, start, "read_write", "atomic", "--guard-reads", "on", stock=1)
    first = shop.ask("POST", SALE + "?upgrade=1", headers={"Idempotency-Key": "k"})
    assert first.json["unit"] == 1
    assert is_replay(shop.ask("POST", SALE + "?upgrade=1", headers={"Idempotency-Key": "k"}), first)


def test_it_is_kept_for_its_time(redis, start):
    shop = opened(redis, start, "fair", "fenced", *SHORT)
    assert shop.sell(key="k").json["unit"] == 5
    wait_until(lambda: redis("EXISTS", RECORD) == 0, "the record has expired")
    reply = shop.sell(key="k")
    assert reply.json["unit"] == 4 and "idempotency-replayed" not in reply.headers


def test_a_server_that_drops_records_is_not_ready(redis, start):
    """A record that is gone sells again: such a server is none for a shop."""
    shop = opened(redis, start)
    assert shop.sell(key="k").json["unit"] == 5
    redis("CONFIG", "SET", "maxmemory", 1 << 30)
    redis("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
    ready = shop.admin("GET", "/readyz")
    assert ready.status == 503 and "noeviction" in ready.json["detail"]
    redis("DEL", RECORD)
    assert shop.sell(key="k").json["unit"] == 4


def test_full_memory_neither_sells_nor_keeps(redis, start):
    shop = opened(redis, start, "watchdog", "atomic", "--lock-redis", redis.url)
    shop.sell(key="other")
    redis("CONFIG", "SET", "maxmemory", 1)
    assert shop.sell(key="k").status == 503
    redis("CONFIG", "SET", "maxmemory", 0)
    assert redis("GET", STOCK) == "4" and redis("EXISTS", RECORD) == 0
    assert shop.sell(key="k").json["unit"] == 4


# ---- What stands there that is no record ---------------------------------------------------------

@keepers
@pytest.mark.parametrize("words", [
    ("LPUSH", RECORD, "x"), ("HSET", RECORD, "x", 1), ("SET", RECORD, "nine"), ("SET", RECORD, "200"),
    ("SET", RECORD, "200 1 4"), ("SET", RECORD, "200 1 4 "), ("SET", RECORD, "500 1 4 a"), ("SET", RECORD, "200 x 4 a"),
    ("SET", RECORD, "200  1 4 a"), ("SET", RECORD, "200 1 4 a "), ("SET", RECORD, "200 1 4 a x"),
    ("SET", RECORD, "200 1 4 a b c"), ("SET", RECORD, "200 1 4 a 0123456789abcdef0"), ("SET", RECORD, "200 1 4 " + "a" * 33),
    ("SET", RECORD, "200 1 99999999999999999999 a"), ("SET", RECORD, "200 1 9223372036854775807 a"),
    ("SET", RECORD, "200 1 -1 a"), ("SET", RECORD, "200 0 4 a"), ("SET", RECORD, "200 -1 4 a"),
    ("SET", RECORD, "409 1 1 a"), ("SET", RECORD, "200 1 4 a\0b"),
    ("SET", RECORD, "+200 1 4 a"), ("SET", RECORD, "200 +1 4 a"), ("SET", RECORD, "200 1 +4 a"),
    ("SET", RECORD, "200 1 \t4 a"), ("SET", RECORD, "200 01 4 a"), ("SET", RECORD, "200 1 -0 a"),
    ("SET", RECORD, "200 9223372036854775807 4 a"), ("SET", RECORD, "200 1 9007199254740991 a"),
    ("SET", RECORD, "200 1 4 a 1"), ("SET", RECORD, "200 1 4 a 0123456789ABCDEF"),
    ("SET", RECORD, "200 1 4 a\"b 1"), ("SET", RECORD, "200 1 4 a\n 1"), ("SET", RECORD, "200 1 4 -a 1")])
def test_something_else_under_its_name(redis, start, lock, write, words):
    shop = opened(redis, start, lock, write)
    redis(*words)
    reply = shop.sell(key="k")
    assert reply.status == 500 and reply.problem == "idempotency-record-invalid", reply
    assert redis("GET", STOCK) == "5"
    redis("DEL", RECORD)
    assert shop.sell(key="k").json["unit"] == 5


# ---- Ways to write that keep none ----------------------------------------------------------------

@pytest.mark.parametrize("lock,write", [("local", "decr"), ("watchdog", "decr"), ("watchdog", "set"),
                                        ("fair", "fenced_textbook")])
def test_a_key_that_would_not_be_kept_is_refused(redis, start, lock, write, tmp_path):
    shop = opened(redis, start, lock, write, "--history", tmp_path / "h.jsonl")
    reply = shop.sell(key="k", request="keyed")
    assert reply.status == 400 and reply.problem == "idempotency-key-unsupported"
    assert f'"{write}"' in reply.json["detail"] and "atomic, fenced" in reply.json["detail"]
    assert redis("GET", STOCK) == "5" and redis("KEYS", "*:key:*") == []
    assert shop.sell().json["unit"] == 5
    told = events_of(tmp_path / "h.jsonl", "keyed")
    assert [event["event"] for event in told] == ["invoke", "refused"] and told[1]["reason"] == "key-unsupported"


def test_the_lock_is_switched(redis, start):
    """The record is the stock's: it is found whatever the lock."""
    shop = opened(redis, start, "watchdog", "atomic", "--admin-writes")
    first = shop.sell(key="k")
    assert shop.switch(rung="watchdog", write="decr").status == 200
    assert shop.sell(key="k").problem == "idempotency-key-unsupported"
    assert shop.switch(rung="fenced").status == 200
    assert is_replay(shop.sell(key="k"), first)


# ---- In flight ----------------------------------------------------------------------------------

@keepers
def test_in_flight_on_the_same_instance(redis, start, lock, write, tmp_path):
    shop = opened(redis, start, lock, write, *ON, "--history", tmp_path / "h.jsonl")
    arm(shop, "sale.before_write", "1*pause")
    sale = park_a_sale(shop, "sale.before_write", key="k")
    for _ in range(2):
        reply = shop.sell(key="k", request=None)
        assert reply.status == 409 and reply.problem == "request-in-flight" and "retry-after" in reply.headers
    other = Background(shop.sell, key="l")
    case = shop.sell("case", key="k")
    assert case.problem == "unknown-item"  # another item's key is another one
    arm(shop, "sale.before_write", "off")
    first = sale.result()
    assert first.status == 200 and other.result().status == 200 and is_replay(shop.sell(key="k"), first)
    assert shop.metric('inventory_sales_total{outcome="request_in_flight"}') == 2
    assert [e["reason"] for e in read_history(tmp_path / "h.jsonl") if e["event"] == "refused"][:2] == ["request-in-flight"] * 2


@keepers
def test_in_flight_on_another_instance(redis, start, lock, write):
    """It takes its turn, and finds what the first one did."""
    a = opened(redis, start, lock, write, *ON, name="a")
    b = start(redis, "--lock", lock, "--write", write, name="b")
    arm(a, "sale.before_write", "1*pause")
    sale = park_a_sale(a, "sale.before_write", key="k")
    again = Background(b.sell, key="k")
    wait_until(lambda: b.metric("inventoryd_sales_waiting") == 1, "it waits for the lock")
    arm(a, "sale.before_write", "off")
    first = sale.result()
    assert first.json["instance"] == "a" and is_replay(again.result(), first) and redis("GET", STOCK) == "4"


def test_a_refused_sale_gives_its_key_back(redis, start):
    """However it ends: the queue is full, the answer is late, the buyer hung up."""
    shop = opened(redis, start, "watchdog", "atomic", "--wait-ms", 300, "--queue", 1, "--workers", 1)
    hold_lock(redis)
    waiting = Background(shop.sell, key="k")
    wait_until(lambda: shop.metric("inventoryd_sales_waiting") == 1, "one waits")
    assert shop.sell(key="k").problem == "request-in-flight"
    assert waiting.result().problem == "lock-timeout"
    release_lock(redis)
    assert shop.sell(key="k").json["unit"] == 5


def test_who_hung_up_gives_its_key_back(redis, start):
    shop = opened(redis, start, "watchdog", "atomic")
    hold_lock(redis)
    sock = shop.connection()
    sock.sendall(f"POST {SALE} HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nContent-Length: 0\r\n\r\n".encode())
    wait_until(lambda: shop.metric("inventoryd_sales_waiting") == 1, "it waits")
    sock.close()
    release_lock(redis)
    wait_until(lambda: shop.metric('inventory_sales_total{outcome="client_closed"}') == 1, "it was seen")
    assert shop.sell(key="k").json["unit"] == 5


def test_many_at_once_are_one_sale(redis, start):
    """Each key is sent by ten at once, to two instances; a buyer who is told to come later does."""
    shops = [opened(redis, start, name=name, stock=100) for name in "ab"]

    def buy(i):
        while (reply := shops[i % 2].sell(key=f"k{i // 10}")).status == 409:
            assert reply.problem == "request-in-flight"
        return reply
    replies = [buyer.result() for buyer in [Background(buy, i) for i in range(200)]]
    assert {reply.status for reply in replies} == {200} and redis("GET", STOCK) == "80"
    for key in range(20):
        of_key = replies[10 * key:10 * key + 10]
        assert len({reply.body for reply in of_key}) == 1
        assert sum("idempotency-replayed" not in reply.headers for reply in of_key) == 1
    assert sorted(json.loads(body)["unit"] for body in {reply.body for reply in replies}) == list(range(81, 101))
