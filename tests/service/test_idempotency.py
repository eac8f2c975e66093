# SPDX-License-Identifier: Apache-2.0
"""Sales with an Idempotency-Key: sent again, from anywhere and after whatever, they get the answer of the first time and
sell nothing more."""
import hashlib
import json
import pathlib
import re
import signal

import pytest

from test_doubt import NIL, LatePost, refuse_kills, strange
from test_failpoints import arm, park_a_sale
from world import Background, Redis, hold_lock, read_history, release_lock, running, wait_until

LUA = pathlib.Path(__file__).resolve().parents[2] / "service" / "lua" / "sell_once.lua"
STOCK, LOCK, TOKEN, MARK = "inventory:{phone}", "lock:{phone}", "dlock:token:lock:{phone}", "inventory:{phone}:fence"
RECORD = STOCK + ":key:k"
KEEPERS = [("watchdog", "atomic"), ("fair", "fenced")]
ON = ("--enable-failpoints", "--workers", 2)
SALE = "/inventory/phone/sale"
DAY_MS = 86400000
SHORT = ("--wait-ms", 2000, "--idempotency-ms", 2001)  # as short as may be, and no shorter than a busy machine bears

keepers = pytest.mark.parametrize("lock,write", KEEPERS)


@pytest.fixture
def post(redis):
    between = LatePost(redis)
    yield between
    between.end()


def opened(redis, start, lock="fair", write="fenced", *flags, stock=5, **named):
    shop = start(redis, "--lock", lock, "--write", write, *flags, **named)
    assert shop.stock(value=stock).status == 200
    return shop


def is_replay(reply, first):
    """The answer of the first time, to the byte, and marked as such."""
    assert reply.headers.get("idempotency-replayed") == "true", reply
    assert (reply.status, reply.body) == (first.status, first.body)
    assert "idempotency-replayed" not in first.headers
    return True


def events_of(history, request):
    return [event for event in read_history(history) if event.get("request") == request]


# ---- The script ---------------------------------------------------------------------------------

def is_record(text, words):
    """Those words, and the sale's mark behind them."""
    return re.fullmatch(words + " [0-9a-f]{16}", text) is not None


OLD, NEW = 1763690000123455, 1763690000123456
SOLD, OUT = "200 1 4 a", "409 1 0 a"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    redis = Redis(tmp_path_factory.mktemp("script") / "redis")
    yield redis
    redis.kill()


@pytest.fixture
def run(server):
    """The script over those keys; its answer, an error in its own words."""
    server("FLUSHALL")

    def call(*fence, quantity=1, mine=NEW, **before):
        names = {"stock": STOCK, "record": RECORD, "token": TOKEN, "mark": MARK}
        for name, value in before.items():
            server("SET", names[name], value)
        answer = server("EVAL", LUA.read_text(), 2 + len(fence), STOCK, RECORD, *fence, quantity, "a", 60000, mine)
        return str(answer) if isinstance(answer, Exception) else answer
    return call


@pytest.mark.parametrize("fence", [(), (TOKEN,), (MARK, TOKEN)])
def test_it_sells_and_keeps_in_one_step(server, run, fence):
    assert run(*fence, stock=5, token=NEW, mark=NEW) == ["made", SOLD]
    assert server("GET", STOCK) == "4" and server("GET", RECORD) == SOLD and 0 < server("PTTL", RECORD) <= 60000
    assert run(*fence) == ["kept", SOLD] and server("GET", STOCK) == "4"


@pytest.mark.parametrize("fence,why", [((TOKEN,), "the newest is unknown"),
                                       ((MARK, TOKEN), "the last that read is unknown")])
def test_a_fence_that_is_lost_lets_nothing_in(server, run, fence, why):
    assert run(*fence, stock=5) == f"STALE {NEW}: {why}"
    assert server("GET", STOCK) == "5" and server("EXISTS", RECORD) == 0


@pytest.mark.parametrize("fence,marks", [((TOKEN,), {"token": NEW}), ((MARK, TOKEN), {"mark": NEW}),
                                         ((MARK, TOKEN), {"mark": OLD, "token": NEW})])
def test_an_old_token_neither_sells_nor_keeps(server, run, fence, marks):
    answer = run(*fence, mine=OLD, stock=5, **marks)
    assert answer.startswith(f"STALE {OLD}") and answer.endswith(str(NEW))
    assert server("GET", STOCK) == "5" and server("EXISTS", RECORD) == 0
    assert run(*fence, mine=OLD, record=SOLD) == ["kept", SOLD]  # an old token too gets the record


@pytest.mark.parametrize("stock,fence,answer,kept", [
    ("0", (), ["made", OUT], OUT), ("-2", (), ["made", "409 1 -2 a"], "409 1 -2 a"),
    ("0", (TOKEN,), ["few", "0"], None),  # it had read enough: somebody wrote without the lock
    ("nine", (), ["few", "nine"], None), ("-0.5", (), ["few", "-0.5"], None), ("", (), ["few", ""], None),
    ("9007199254740993", (), ["few", "9007199254740993"], None),
    ("-9007199254740993", (), ["few", "-9007199254740993"], None),
    ("-99999999999999999999", (), ["few", "-99999999999999999999"], None),
    ("1.5", (), "ERR value is not an integer or out of range", None),
    ("nan", (), "ERR value is not an integer or out of range", None),
    (" 7", (), "ERR value is not an integer or out of range", None)])
def test_what_is_no_sale_keeps_no_sale(server, run, stock, fence, answer, kept):
    assert run(*fence, stock=stock, token=NEW) == answer
    assert server("GET", STOCK) == stock
    wait_until(lambda: server("GET", RECORD) == kept, "nothing but that is kept")


def test_too_few_are_not_kept(server, run):
    assert run(stock=5, quantity=6) == ["few", "5"] and server("EXISTS", RECORD) == 0
    server("DEL", STOCK)
    assert run() is None and server("EXISTS", RECORD) == 0


@pytest.mark.parametrize("refused", [["-decrby"], ["-decrby", "-del"]])
def test_a_decrement_that_is_refused_takes_the_record_back(server, run, refused):
    server("ACL", "SETUSER", "default", *refused)
    try:
        error = run(stock=5)
        assert "can't run this command" in error or "no permissions to run the 'decrby' command" in error  # of Redis 8
    finally:
        server("ACL", "SETUSER", "default", "+@all")
    assert server("GET", STOCK) == "5" and run()[0] == "made"  # a record that is being taken back is none
    assert server("GET", STOCK) == "4"


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
    assert told[0]["key"] == "k" and told[3]["seller"] == "a" and told[3]["hold"] == told[2]["hold"]
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
    stock, = [key for key in redis("KEYS", "inventory*") if ":key:" not in key]
    record, = redis("KEYS", "*:key:*")
    assert slot(stock) == slot(record)


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
    assert shop.sell(key="k", quantity=6).problem == "too-few"
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
        assert is_replay(shop.ask("POST", SALE + "?look=1&gift=1", headers={"Idempotency-Key": "k"}), first)


def test_a_look_under_the_read_lock_finds_the_record_first(redis, start):
    shop = opened(redis, start, "read_write", "atomic", "--guard-reads", "on", stock=1)
    first = shop.ask("POST", SALE + "?look=1", headers={"Idempotency-Key": "k"})
    assert first.json["unit"] == 1
    assert is_replay(shop.ask("POST", SALE + "?look=1", headers={"Idempotency-Key": "k"}), first)


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
    ("SET", RECORD, "200 1 -1 a"), ("SET", RECORD, "409 1 1 a"), ("SET", RECORD, "200 1 4 a\0b")])
def test_something_else_under_its_name(redis, start, lock, write, words):
    shop = opened(redis, start, lock, write)
    redis(*words)
    reply = shop.sell(key="k")
    assert reply.status == 500 and reply.problem == "idempotency-record-invalid", reply
    assert redis("GET", STOCK) == "5"
    redis("DEL", RECORD)
    assert shop.sell(key="k").json["unit"] == 5


# ---- The header ---------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lab")
    with running(folder, "--lock", "fenced", "--history", folder / "history.jsonl") as instance:
        instance.history = folder / "history.jsonl"
        yield instance


def post_key(shop, *lines, path=SALE, method="POST"):
    answers = shop.raw(f"{method} {path} HTTP/1.1\r\nHost: x\r\n".encode() +
                       b"".join(line + b"\r\n" for line in lines) + b"Content-Length: 0\r\n\r\n")
    assert len(answers) == 1, answers
    return answers[0]


VISIBLE = "".join(chr(code) for code in range(0x21, 0x7f))


@pytest.mark.parametrize("sent,key", [
    ("k-plain", "k-plain"), ("x" * 64, "x" * 64), ("!" + VISIBLE[1:64], "!" + VISIBLE[1:64]), (VISIBLE[64:], VISIBLE[64:]),
    ('"k-quoted"', "k-quoted"), ('"a\\"b\\\\c"', 'a"b\\c'), ('"' + "y" * 64 + '"', "y" * 64), (" \tk-blank \t", "k-blank"),
    ("k\"mid", "k\"mid"), ("k\\", "k\\"), ("%7d%0a{}", "%7d%0a{}"), ("../../inventory:{case}", "../../inventory:{case}"),
    ("k*?[a]", "k*?[a]"), ("',1);redis.call('FLUSHALL')--", "',1);redis.call('FLUSHALL')--")])
def test_keys_that_are_taken_as_they_are(lab, sent, key):
    lab.stock(value=5)
    status, headers, body = post_key(lab, b"Idempotency-Key: " + sent.encode())
    assert status == 200, body
    assert is_record(lab.redis("GET", f"{STOCK}:key:{key}"), f"200 1 {json.loads(body)['left']} a")
    status, headers, again = post_key(lab, b"iDEMPOTENCY-kEY:" + sent.encode())
    assert (status, again) == (200, body) and headers["idempotency-replayed"] == "true"
    assert read_history(lab.history)[-6]["key"] == key


@pytest.mark.parametrize("lines", [
    [b"Idempotency-Key:"], [b"Idempotency-Key: "], [b"Idempotency-Key: " + b"x" * 65], [b"Idempotency-Key: a b"],
    [b"Idempotency-Key: a\tb"], [b"Idempotency-Key: a\x7f"], [b"Idempotency-Key: \xc3\xa4"], [b"Idempotency-Key: a\x01"],
    [b'Idempotency-Key: "'], [b'Idempotency-Key: ""'], [b'Idempotency-Key: "a'], [b'Idempotency-Key: "a"b'],
    [b'Idempotency-Key: "a";x=1'], [b'Idempotency-Key: "a", "b"'], [b'Idempotency-Key: "a\\b"'], [b'Idempotency-Key: "a\\'],
    [b'Idempotency-Key: "a b"'], [b'Idempotency-Key: "' + b"x" * 65 + b'"'], [b"Idempotency-Key: a, b"],
    [b"Idempotency-Key: a", b"Idempotency-Key: a"], [b"Idempotency-Key: a", b"idempotency-key: b"],
    [b"Idempotency-Key:", b"Idempotency-Key: b"], [b"Idempotency-Key: a", b" b"]])
def test_keys_that_are_refused(lab, lines):
    lab.stock(value=5)
    status, headers, body = post_key(lab, *lines)
    assert status == 400 and json.loads(body)["type"].endswith(":invalid-idempotency-key"), body
    assert "64 visible ASCII characters" in json.loads(body)["detail"]
    assert lab.redis("GET", STOCK) == "5"


def test_a_name_that_ends_in_a_blank_is_refused(lab):
    """By libmicrohttpd itself from 1.0 on."""
    lab.stock(value=5)
    assert post_key(lab, b"Idempotency-Key : a")[0] == 400 and lab.redis("GET", STOCK) == "5"


def test_a_folded_key_is_refused_or_whole(lab):
    """libmicrohttpd takes the second line for a part of the name, and from 1.0 on for the value."""
    lab.stock(value=5)
    status, _, body = post_key(lab, b"Idempotency-Key:", b" a")
    again = post_key(lab, b"Idempotency-Key: a")
    if status == 200:
        assert again[2] == body and again[1]["idempotency-replayed"] == "true"
    else:
        assert status == 400 and json.loads(body)["type"].endswith(":invalid-idempotency-key")
    assert again[0] == 200 and lab.redis("GET", STOCK) == "4"


def test_where_nothing_is_changed_it_means_nothing(lab):
    lab.stock(value=5)
    for lines in ([b"Idempotency-Key: k"], [b"Idempotency-Key: a", b"Idempotency-Key: a b"]):
        assert post_key(lab, *lines, path="/inventory/phone", method="GET")[0] == 200
        assert post_key(lab, *lines, path="/healthz", method="GET")[0] == 200
    assert lab.ask("HEAD", "/inventory/phone", headers={"Idempotency-Key": "k"}).status == 200


@pytest.mark.parametrize("method,path,body", [
    ("PUT", "/inventory/phone", {"stock": 9}), ("POST", "/inventory/phone/restock", {"add": 9}),
    ("PUT", "/lock", {"write": "atomic"})])
def test_operators_changes_take_none(lab, method, path, body):
    lab.stock(value=5)
    reply = lab.admin(method, path, json.dumps(body), {"Content-Type": "application/json", "Idempotency-Key": "k"})
    assert reply.status == 400 and reply.problem == "idempotency-key-not-kept" and lab.redis("GET", STOCK) == "5"


# ---- Ways to write that keep none ----------------------------------------------------------------

@pytest.mark.parametrize("lock,write", [("local", "decr"), ("watchdog", "decr"), ("watchdog", "set"),
                                        ("fair", "fenced_textbook")])
def test_a_key_that_would_not_be_kept_is_refused(redis, start, lock, write, tmp_path):
    shop = opened(redis, start, lock, write, "--history", tmp_path / "h.jsonl")
    reply = shop.sell(key="k", request="keyed")
    assert reply.status == 400 and reply.problem == "idempotency-key-not-kept"
    assert f'"{write}"' in reply.json["detail"] and "atomic, fenced" in reply.json["detail"]
    assert redis("GET", STOCK) == "5" and redis("KEYS", "*:key:*") == []
    assert shop.sell().json["unit"] == 5
    told = events_of(tmp_path / "h.jsonl", "keyed")
    assert [event["event"] for event in told] == ["invoke", "refused"] and told[1]["reason"] == "key-not-kept"


def test_the_lock_is_switched(redis, start):
    """The record is the stock's: it is found whatever the lock."""
    shop = opened(redis, start, "watchdog", "atomic", "--admin-writes")
    first = shop.sell(key="k")
    assert shop.switch(rung="watchdog", write="decr").status == 200
    assert shop.sell(key="k").problem == "idempotency-key-not-kept"
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
    wait_until(lambda: shop.metric('inventory_sales_total{outcome="hung_up"}') == 1, "it was seen")
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


# ---- Lost on the way ----------------------------------------------------------------------------

@keepers
def test_killed_between_write_and_answer(redis, start, lock, write):
    shop = opened(redis, start, lock, write, *ON, "--ttl-ms", 1000, "--failpoints", "sale.after_write=crash")
    with pytest.raises(ConnectionError):
        shop.sell(key="k")
    assert shop.process.wait(30) == -signal.SIGKILL
    shop.end = lambda: None  # it did not end in order
    assert redis("GET", STOCK) == "4"
    other = start(redis, "--lock", lock, "--write", write, name="b")
    reply = other.sell(key="k")
    assert reply.status == 200 and reply.headers["idempotency-replayed"] == "true"
    assert reply.json == {"sold": 1, "left": 4, "unit": 5, "item": "phone", "instance": "a"}
    assert redis("GET", STOCK) == "4"


@keepers
def test_killed_before_the_write(redis, start, lock, write):
    shop = opened(redis, start, lock, write, *ON, "--ttl-ms", 1000, "--failpoints", "sale.before_write=crash")
    with pytest.raises(ConnectionError):
        shop.sell(key="k")
    shop.process.wait(30)
    shop.end = lambda: None
    reply = start(redis, "--lock", lock, "--write", write, name="b").sell(key="k")
    assert reply.json["unit"] == 5 and reply.json["instance"] == "b" and "idempotency-replayed" not in reply.headers


def doubted(redis, start, post, lock, write, *flags):
    """A shop with 4 of 5 phones left, whose scripts Redis knows."""
    shop = opened(redis, start, lock, write, "--stock-redis", post.url, *flags)
    assert shop.sell(key="first").json["left"] == 4
    return shop


def script_words():
    return hashlib.sha1(LUA.read_bytes()).hexdigest().encode()


@pytest.mark.parametrize("lock,write", KEEPERS + [("setnx", "atomic")])
def test_a_lost_reply_of_a_sale_that_was_done(redis, start, post, lock, write, tmp_path):
    """The record tells, with atomic and under a flawed lock too, where the stock tells nothing."""
    shop = doubted(redis, start, post, lock, write, "--history", tmp_path / "h.jsonl")
    post.lose = script_words()
    reply = shop.sell(key="k", request="lost")
    assert post.lost == 1 and reply.status == 200 and reply.json["unit"] == 4, reply
    assert "idempotency-replayed" not in reply.headers and redis("GET", STOCK) == "3"
    assert [event["event"] for event in events_of(tmp_path / "h.jsonl", "lost")][-4:] == ["read", "write", "exit", "release"]
    assert is_replay(shop.sell(key="k"), reply) and shop.metric("lock_abandoned_total") == 0


@pytest.mark.parametrize("lock,write", KEEPERS + [("setnx", "atomic")])
def test_a_lost_reply_of_a_sale_that_was_not_done(redis, start, post, lock, write):
    shop = doubted(redis, start, post, lock, write)
    post.keep = script_words()
    reply = shop.sell(key="k")
    assert reply.status == 503 and reply.problem == "stock-unavailable", reply
    assert post.deliver() == b"" and redis("EXISTS", RECORD) == 0
    assert shop.sell(key="k").json["unit"] == 4


def test_a_lost_reply_of_sold_out(redis, start, post):
    shop = doubted(redis, start, post, "watchdog", "atomic")
    shop.stock(value=0)
    post.lose = script_words()
    first = shop.sell(key="k")
    assert first.problem == "sold-out" and post.lost == 1 and is_replay(shop.sell(key="k"), first)


@keepers
def test_the_record_is_there_though_connections_are_not_ended(redis, start, post, lock, write):
    shop = doubted(redis, start, post, lock, write)
    refuse_kills(redis)
    post.lose = script_words()
    assert shop.sell(key="k").json["unit"] == 4 and shop.metric("lock_abandoned_total") == 0


@keepers
def test_nobody_knows_and_asking_again_is_safe(redis, start, post, lock, write):
    """The write may still come. Behind the repetition it finds the record."""
    shop = doubted(redis, start, post, lock, write, "--ttl-ms", 1000)
    refuse_kills(redis)
    post.keep = script_words()
    assert shop.sell(key="k").problem == "outcome-unknown"
    first = shop.sell(key="k")
    assert first.json["unit"] == 4
    assert b"kept" in post.deliver() and redis("GET", STOCK) == "3"
    assert is_replay(shop.sell(key="k"), first)


@keepers
def test_a_late_write_ahead_of_the_repetition_is_the_sale(redis, start, post, lock, write):
    shop = doubted(redis, start, post, lock, write)
    refuse_kills(redis)
    post.keep = script_words()
    assert shop.sell(key="k").problem == "outcome-unknown"
    assert b"made" in post.deliver()
    again = shop.sell(key="k")
    assert again.json["unit"] == 4 and again.headers["idempotency-replayed"] == "true" and redis("GET", STOCK) == "3"


def test_a_late_write_behind_another_sale_is_shut_out_by_the_fence(redis, start, post):
    shop = doubted(redis, start, post, "fair", "fenced")
    refuse_kills(redis)
    post.keep = script_words()
    assert shop.sell(key="k").problem == "outcome-unknown"
    assert shop.sell().json["unit"] == 4
    assert b"STALE" in post.deliver() and redis("EXISTS", RECORD) == 0 and redis("GET", STOCK) == "3"
    assert shop.sell(key="k").json["unit"] == 3


@keepers
def test_a_reply_that_cannot_be_read_is_as_a_lost_one(redis, start, post, lock, write):
    """Its record tells: it was sold, whatever the answer looked like."""
    shop = doubted(redis, start, post, lock, write)
    for kind, post.instead in strange(NIL):
        assert shop.stock(value=5).status == 200
        post.lose = script_words()
        reply = shop.sell(key=kind.replace(" ", "-"))
        assert (reply.status, post.lose, redis("GET", STOCK)) == (200, None, "4"), (kind, reply)
        assert reply.json["unit"] == 5 and is_replay(shop.sell(key=kind.replace(" ", "-")), reply), kind


def test_a_record_that_cannot_be_read_sells_nothing(redis, start, post):
    shop = doubted(redis, start, post, "watchdog", "atomic")
    for kind, post.instead in strange("an empty string", NIL, "another protocol"):
        post.lose = b"GET\r\n"
        assert shop.sell(key="k").problem == "idempotency-record-invalid" and redis("GET", STOCK) == "4", kind


@pytest.mark.parametrize("name", ["b", "a"])
def test_another_instance_has_sold_it_meanwhile(redis, start, post, name, tmp_path):
    """The lock was forgotten: the record, not the stock, says whose sale it was, and not by the instance's name."""
    shop = doubted(redis, start, post, "fair", "fenced", "--history", tmp_path / "h.jsonl")
    other = start(redis, "--lock", "fenced", name=name)

    def forget():
        redis("DEL", LOCK)
        post.sold = other.sell(key="k")

    post.keep, post.meanwhile = script_words(), forget
    reply = shop.sell(key="k", request="lost")
    assert is_replay(reply, post.sold) and reply.json["instance"] == name and redis("GET", STOCK) == "3"
    assert [event["event"] for event in events_of(tmp_path / "h.jsonl", "lost")][-3:] == ["replay", "exit", "release"]


def test_a_record_of_a_version_that_left_no_mark(redis, start):
    shop = opened(redis, start, "watchdog", "atomic")
    redis("SET", RECORD, SOLD)
    reply = shop.sell(key="k")
    assert reply.json == {"sold": 1, "left": 4, "unit": 5, "item": "phone", "instance": "a"}
    assert reply.headers["idempotency-replayed"] == "true" and redis("GET", STOCK) == "5"


def keep_first_sale(redis, shop, post):
    """Its write comes just before that of the next sale under its key, whose reply is lost."""
    refuse_kills(redis)
    post.keep = script_words()
    assert shop.sell(key="k").problem == "outcome-unknown"
    carry = post._carry

    def late_first(command, server):
        if post.lose and post.lose in command:
            assert b"made" in post.deliver()
        return carry(command, server)

    post.lose, post._carry = script_words(), late_first


def test_a_late_write_of_the_same_instance(redis, start, post, tmp_path):
    """It comes between the look and the write of the next request under its key, whose reply is lost: one sale, told once."""
    shop = doubted(redis, start, post, "watchdog", "atomic", "--history", tmp_path / "h.jsonl")
    keep_first_sale(redis, shop, post)
    reply = shop.sell(key="k", request="again")
    assert reply.json["unit"] == 4 and reply.headers["idempotency-replayed"] == "true" and redis("GET", STOCK) == "3"
    told = [event["event"] for event in events_of(tmp_path / "h.jsonl", "again")]
    assert "replay" in told and "write" not in told


def test_a_record_that_may_have_expired_proves_nothing(redis, start, post):
    shop = doubted(redis, start, post, "watchdog", "atomic", *SHORT, "--redis-timeout-ms", 20000)

    def outlast():  # the script has not come; for all that the shop can tell its record came and went
        wait_until(lambda: redis("EXISTS", STOCK + ":key:first") == 0, "the first sale's record is gone")
        redis("SET", "t", 1, "PX", 2050)
        wait_until(lambda: redis("EXISTS", "t") == 0, "the time of a record is over")

    post.keep, post.meanwhile = script_words(), outlast
    assert shop.sell(key="k").problem == "outcome-unknown"


def test_the_stock_is_on_another_server(redis, start, tmp_path):
    other = Redis(tmp_path / "other")
    shop = opened(redis, start, "fair", "fenced", "--stock-redis", other.url)
    first = shop.sell(key="k")
    assert is_record(other("GET", RECORD), SOLD) and redis("EXISTS", RECORD) == 0
    assert is_replay(shop.sell(key="k"), first) and other("GET", STOCK) == "4"
    shop.end()
    other.kill()


# ---- The fence, and who writes without the lock ---------------------------------------------------

@pytest.mark.parametrize("apart", [False, True])
def test_an_overtaken_sale_neither_sells_nor_keeps(redis, start, tmp_path, apart):
    server = Redis(tmp_path / "apart") if apart else redis
    flags = ("--stock-redis", server.url)
    a = opened(redis, start, "fair", "fenced", *ON, *flags, name="a")
    b = start(redis, "--lock", "fenced", *flags, name="b")
    arm(a, "sale.before_write", "1*pause")
    late = park_a_sale(a, "sale.before_write", key="k")
    redis("DEL", LOCK)
    assert b.sell().json["unit"] == 5
    arm(a, "sale.before_write", "off")
    assert late.result().problem == "lock-lost"
    assert server("GET", STOCK) == "4" and server("EXISTS", RECORD) == 0
    assert a.sell(key="k").json["unit"] == 4
    a.end()
    b.end()
    if apart:
        server.kill()


def test_an_overtaken_sale_finds_its_repetition(redis, start):
    a = opened(redis, start, "fair", "fenced", *ON, name="a")
    b = start(redis, "--lock", "fenced", name="b")
    arm(a, "sale.before_write", "1*pause")
    late = park_a_sale(a, "sale.before_write", key="k")
    redis("DEL", LOCK)
    first = b.sell(key="k")
    arm(a, "sale.before_write", "off")
    assert is_replay(late.result(), first) and redis("GET", STOCK) == "4"


@pytest.mark.parametrize("stock", [0, 1])
def test_what_is_not_there_is_neither_sold_nor_kept(redis, start, stock):
    """Somebody changed the stock without the lock. Nothing is taken, so nothing need be put back."""
    shop = opened(redis, start, "fair", "fenced", *ON)
    arm(shop, "sale.before_write", "1*pause")
    sale = park_a_sale(shop, "sale.before_write", key="k", quantity=2)
    redis("SET", STOCK, stock)
    arm(shop, "sale.before_write", "off")
    reply = sale.result()
    assert reply.status == 500 and reply.problem == "stock-invalid" and "without the lock" in reply.json["detail"]
    assert redis("GET", STOCK) == str(stock) and redis("EXISTS", RECORD) == 0


def test_what_is_not_there_any_more_is_sold_out(redis, start):
    shop = opened(redis, start, "watchdog", "atomic", *ON)
    arm(shop, "sale.before_write", "1*pause")
    sale = park_a_sale(shop, "sale.before_write", key="k")
    redis("SET", STOCK, 0)
    arm(shop, "sale.before_write", "off")
    assert sale.result().problem == "sold-out" and redis("GET", STOCK) == "0" and is_record(redis("GET", RECORD), OUT)


def test_a_late_write_of_another_quantity(redis, start, post):
    """It comes between the look and the write of the next request under its key, whose reply is lost."""
    shop = doubted(redis, start, post, "watchdog", "atomic")
    keep_first_sale(redis, shop, post)
    reply = shop.sell(key="k", quantity=3)
    assert reply.status == 422 and reply.problem == "idempotency-key-reused" and redis("GET", STOCK) == "3"
