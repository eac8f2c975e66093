# SPDX-License-Identifier: Apache-2.0
"""Writes with tokens: what each script lets in on a real server, and what becomes of a sale whose lock is another's by
then. The lock's key is deleted where it would expire: only who holds it must not know."""
import json
import os
import pathlib
import socket
import subprocess

import pytest

from failpoints import arm, park, paused
from world import PATIENCE_S, Background, LossyProxy, hold_lock, read_history, release_lock, running, wait_until

import ladder  # from flaws/, of which world knows

LUA = pathlib.Path(__file__).resolve().parents[2] / "service" / "lua"
STOCK, TOKEN, MARK, LOCK = "inventory:{phone}", "dlock:token:lock:{phone}", "inventory:{phone}:fence", "lock:{phone}"
OLD, NEW, NEXT = 1763690000123455, 1763690000123456, 1763690000123457  # neighbours that a careless print would merge
APART = (STOCK, MARK, TOKEN)
EPOCH, EPOCH_KEY, IDENTITY_KEY = 1763680000000000, "inventory:epoch", "dlock:identity"
EPOCH_KEYS = {"fenced": [EPOCH_KEY], "fenced_off": [EPOCH_KEY], "fenced_read": [EPOCH_KEY, IDENTITY_KEY],
              "fenced_apart": [EPOCH_KEY, IDENTITY_KEY], "fenced_textbook": []}
DAY_MS = 86400000
GIVING = [rung for rung in ladder.rungs() if rung.tokens and not rung.write]
TOKENS = [rung.name for rung in GIVING if not rung.quorum]  # of redlock tells test_lock_servers.py
THESE_DO = "these do: " + ", ".join(rung.name for rung in GIVING)
ALONE = ("--enable-failpoints", "--workers", 1)


# ---- The scripts --------------------------------------------------------------------------------


@pytest.fixture
def run(server):
    """A script, with what the keys hold before; its answer, an error in its own words. Lock and stock are on one server
    if there is a newest token. Writer and stock are in one epoch, unless the test changes that (test_fence_epoch.py
    does)."""
    server("FLUSHALL")
    server("HSET", EPOCH_KEY, "epoch", EPOCH, "identity", "x:1")

    def call(script, keys, mine, *arguments, epoch=EPOCH, **before):
        more = EPOCH_KEYS[script]
        server("SET", IDENTITY_KEY, "x:1" if "token" in before else "y:1")  # else the lock is elsewhere
        for key, value in before.items():
            value = f"{EPOCH} {value}" if key == "mark" and more else value
            server("SET", {"stock": STOCK, "token": TOKEN, "mark": MARK}[key], value, "PX", 5000)
        answer = server("EVAL", (LUA / f"{script}.lua").read_text(), len(keys) + len(more), *keys, *more, mine,
                        *([epoch] if more else []), *arguments)
        return str(answer) if isinstance(answer, Exception) else answer
    return call


@pytest.mark.parametrize("mine,newest,answer,left", [
    (NEW, NEW, 4, "4"), (NEXT, NEW, 4, "4"),  # above the newest given out: the lock was passed on inside its client
    (OLD, NEW, f"STALE {OLD}: the newest is {NEW}", "5"),
    (NEW, None, f"STALE {NEW}: the newest is unknown", "5"),  # lost: nobody can tell
    (0, None, "STALE 0: the newest is unknown", "5")])
def test_only_the_newest_token_writes(server, run, mine, newest, answer, left):
    before = {"token": newest} if newest else {}
    assert run("fenced", (STOCK, TOKEN), mine, "DECR", stock=5, **before) == answer
    assert server("GET", STOCK) == left
    assert server("GET", TOKEN) == (str(newest) if newest else None)


@pytest.mark.parametrize("script,key", [("fenced", "token"), ("fenced_apart", "mark"), ("fenced_textbook", "mark")])
def test_a_fence_carries_out_the_command_as_it_is(server, run, script, key):
    keys = APART if script == "fenced_apart" else (STOCK, {"token": TOKEN, "mark": MARK}[key])
    assert run(script, keys, NEW, "DECRBY", 3, stock=5, **{key: NEW}) == 2
    assert run(script, keys, NEW, "SET", 9, "GET") == "2" and server("GET", STOCK) == "9"
    assert run(script, keys, NEW, "SET", 7) == "OK" and server("GET", STOCK) == "7"
    server("DEL", STOCK)
    server("LPUSH", STOCK, "x")
    assert run(script, keys, NEW, "DECR").startswith("WRONGTYPE")
    assert server("LRANGE", STOCK, 0, -1) == ["x"]


def test_reading_raises_the_mark_and_shuts_older_ones_out(server, run):
    assert run("fenced_read", APART, OLD, stock=5) == "5" and server("GET", MARK) == f"{EPOCH} {OLD}"
    assert DAY_MS - 60000 < server("PTTL", MARK) <= DAY_MS  # it leaves nothing behind
    assert run("fenced_read", APART, NEW) == "5" and server("GET", MARK) == f"{EPOCH} {NEW}"
    stale = f"STALE {OLD}: the last that read is {NEW}"
    assert run("fenced_read", APART, OLD) == stale and server("GET", MARK) == f"{EPOCH} {NEW}"
    assert run("fenced_read", APART, NEW) == "5"  # the same one may look again


@pytest.mark.parametrize("mine,mark,answer,left", [
    (NEW, NEW, 4, "4"), (OLD, NEW, f"STALE {OLD}: the last that read is {NEW}", "5"),
    (NEW, OLD, f"STALE {NEW}: the last that read is {OLD}", "5"),  # it has not read since
    (NEW, None, f"STALE {NEW}: the last that read is unknown", "5")])
def test_apart_only_who_read_last_writes(server, run, mine, mark, answer, left):
    before = {"mark": mark} if mark else {}
    assert run("fenced_apart", APART, mine, "DECR", stock=5, **before) == answer
    assert server("GET", STOCK) == left


@pytest.mark.parametrize("mine,newest,lets_in", [(OLD, NEW, False), (NEW, NEW, True), (NEXT, NEW, True)])
def test_apart_a_lock_that_is_here_after_all_counts_too(server, run, mine, newest, lets_in):
    """One server by two names: not every instance may have noticed."""
    assert str(run("fenced_read", APART, mine, stock=5, token=newest)).startswith("5" if lets_in else "STALE")
    answer = run("fenced_apart", APART, mine, "DECR", stock=5, token=newest, mark=mine)
    assert answer == (4 if lets_in else f"STALE {mine}: the last that read is {newest}")


def test_apart_a_lost_mark_costs_a_sale_and_lets_no_late_write_in(server, run):
    """Both have read, the mark is evicted, the older one reads anew: one of the two writes, not both."""
    run("fenced_read", APART, OLD, stock=5)
    run("fenced_read", APART, NEW)
    server("DEL", MARK)
    assert run("fenced_apart", APART, OLD, "DECR").startswith("STALE")
    assert run("fenced_read", APART, OLD) == "5"
    assert run("fenced_apart", APART, NEW, "DECR").startswith("STALE")
    assert run("fenced_apart", APART, OLD, "DECR") == 4


@pytest.mark.parametrize("order,answers", [
    ((NEW, OLD), [4, f"STALE {OLD}: the last that wrote is {NEW}"]),
    ((OLD, NEW), [4, 3])])  # the flaw: both had read 5
def test_the_textbook_compares_with_the_last_that_wrote(server, run, order, answers):
    server("SET", STOCK, 5)
    assert [run("fenced_textbook", (STOCK, MARK), token, "DECR") for token in order] == answers
    assert server("GET", MARK) == str(NEW) and DAY_MS - 60000 < server("PTTL", MARK) <= DAY_MS


@pytest.mark.parametrize("newest,then", [(OLD, NEXT), (NEW, NEXT), (NEXT, NEXT), (None, None)])
def test_a_token_is_shut_out(server, run, newest, then):
    before = {"token": newest} if newest else {}
    assert run("fenced_off", (TOKEN,), NEW, **before) is None
    assert server("GET", TOKEN) == (str(then) if then else None)
    assert not newest or 0 < server("PTTL", TOKEN) <= 5000  # the time to live is the lock's affair
    assert run("fenced", (STOCK, TOKEN), NEW, "DECR", stock=5).startswith("STALE")


def test_a_token_that_was_shut_out_stays_so_after_the_newest_is_lost(server, run):
    """The next section of the client has the same grant, with the next number. Its renewal must not let the lost write in."""
    fair = (LUA.parents[1] / "lock" / "lua" / "fair.lua").read_text()
    lock = (LOCK, "dlock:queue:lock:{phone}", TOKEN, "dlock:grant:lock:{phone}")
    grant = server("EVAL", fair, len(lock), *lock, "acquire", "me", 60000, 200, 0, 0, 1)[1]

    def writes():
        return run("fenced", (STOCK, TOKEN), grant, "DECR", stock=5)
    assert writes() == 4
    server("DEL", TOKEN)
    assert run("fenced_off", (TOKEN,), grant) is None  # nothing is to be done: nobody writes
    assert server("EVAL", fair, len(lock), *lock, "renew", "me", 60000, 200, grant, 0, 0) == [1]
    assert writes() == f"STALE {grant}: the newest is unknown"
    kept = server("EVAL", fair, len(lock), *lock, "release", "me", 60000, 200, grant, 1, 0, grant)
    assert kept[0] == 2 and writes() == f"STALE {grant}: the newest is {kept[1]}"


# ---- Selling ------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", ["fenced", "fenced_textbook"])
@pytest.mark.parametrize("lock", TOKENS)
def test_sells_one_by_one(redis, start, place, lock, write):
    server, flags = place
    shop = start(redis, "--lock", lock, "--write", write, *flags)
    shop.stock(value=6)
    assert [shop.sell().json["unit"] for _ in range(3)] == [6, 5, 4]
    assert shop.ask("POST", "/inventory/phone/sale?reenter=1").json["unit"] == 3  # its inner hold has a newer token
    assert shop.sell(quantity=3).problem == "insufficient-stock"
    assert shop.sell(quantity=2).json["unit"] == 1
    assert shop.sell().problem == "sold-out"
    assert shop.sell("other").problem == "unknown-item"
    assert server("GET", STOCK) == "0" and redis("EXISTS", LOCK) == 0
    assert shop.stock(value=2).status == 200 and shop.sell().json["left"] == 1
    assert bool(shop.logged("flawed-write")) == (write == "fenced_textbook")


@pytest.mark.parametrize("lock", TOKENS)
def test_two_instances_sell_each_unit_once(redis, start, place, lock):
    server, flags = place
    shops = [start(redis, "--lock", lock, "--write", "fenced", *flags, name=name) for name in "ab"]
    shops[0].stock(value=60)
    sales = [Background(shops[i % 2].sell) for i in range(100)]
    replies = [sale.result() for sale in sales]
    assert sorted(reply.json["unit"] for reply in replies if reply.status == 200) == list(range(1, 61))
    assert [reply.problem for reply in replies if reply.status != 200] == ["sold-out"] * 40
    assert server("GET", STOCK) == "0"
    assert sum(shop.metric('inventory_sales_total{outcome="stale_token"}') for shop in shops) == 0


def test_the_lock_is_named_fenced(redis, start):
    shop = start(redis, "--lock", "fenced")
    lock = shop.admin("GET", "/lock").json
    assert (lock["rung"], lock["write"]) == ("fair", "fenced")
    assert shop.metric('inventoryd_info{version="0.2.0",instance="a",rung="fair",write="fenced",on_conflict="wait",local_first="off",admit="off",segments="1"}') == 1


# ---- Overtaken ----------------------------------------------------------------------------------


def overtaken(redis, start, tmp_path, *flags, point="sale.after_read"):
    """a's sale has read, and its lock is gone; b."""
    shops = [start(redis, *ALONE, *flags, "--history", tmp_path / f"{name}.jsonl", name=name) for name in "ab"]
    shops[0].stock(value=5)
    sale = park(shops[0], point, shops[0].sell, request="late")
    assert redis("DEL", LOCK) == 1
    return *shops, sale


def is_refused(shop, reply, by="token"):
    word = {"token": "STALE", "epoch": "EPOCH"}[by]
    return reply.status == 503 and reply.problem == "lock-lost" and word in reply.json["detail"] and \
        shop.metric(f'inventory_sales_total{{outcome="stale_{by}"}}') == 1


@pytest.mark.parametrize("point", ["sale.after_read", "sale.before_write"])
@pytest.mark.parametrize("lock", TOKENS)
def test_a_write_behind_the_next_holders_is_refused(redis, start, place, tmp_path, lock, point):
    server, flags = place
    a, b, sale = overtaken(redis, start, tmp_path, "--lock", lock, "--write", "fenced", *flags, point=point)
    assert b.sell().json["unit"] == 5
    arm(a, point, "off")
    assert is_refused(a, sale.result())
    assert server("GET", STOCK) == "4"
    refused = [event for event in read_history(tmp_path / "a.jsonl") if event.get("request") == "late"][-1]
    granted = [event for event in read_history(tmp_path / "b.jsonl") if event["event"] == "granted"][-1]
    assert (refused["event"], refused["code"], refused["reason"]) == ("refused", 503, "stale-token")
    assert refused["newest"] == granted["token"] > refused["token"] > 0


@pytest.mark.parametrize("lock", TOKENS)
def test_a_write_ahead_of_the_next_holders_is_refused(redis, start, place, tmp_path, lock):
    """Both have read the same: the case that the textbook's fence lets through."""
    server, flags = place
    a, b, sale = overtaken(redis, start, tmp_path, "--lock", lock, "--write", "fenced", *flags)
    second = park(b, "sale.after_read", b.sell)
    arm(a, "sale.after_read", "off")
    assert is_refused(a, sale.result()) and server("GET", STOCK) == "5"
    arm(b, "sale.after_read", "off")
    assert second.result().json["unit"] == 5 and server("GET", STOCK) == "4"


def test_the_textbook_lets_the_write_ahead_in(redis, start, place, tmp_path):
    server, flags = place
    a, b, sale = overtaken(redis, start, tmp_path, "--lock", "fenced_textbook", *flags)
    second = park(b, "sale.after_read", b.sell)
    redis_stock = server("GET", STOCK)
    arm(a, "sale.after_read", "off")
    assert sale.result().status == 200
    arm(b, "sale.after_read", "off")
    assert second.result().status == 200 and redis_stock == "5" and server("GET", STOCK) == "3"
    reads = [event["stock_before"] for name in "ab" for event in read_history(tmp_path / f"{name}.jsonl")
             if event["event"] == "read"]
    assert reads == [5, 5]


def test_the_textbook_refuses_the_write_behind(redis, start, place, tmp_path):
    server, flags = place
    a, b, sale = overtaken(redis, start, tmp_path, "--lock", "fenced_textbook", *flags)
    assert b.sell().status == 200
    arm(a, "sale.after_read", "off")
    assert is_refused(a, sale.result()) and server("GET", STOCK) == "4"


def test_a_lock_that_was_lost_but_is_nobody_elses_still_sells(redis, start, place, tmp_path):
    """Nobody has a newer token: nothing can have been written since."""
    server, flags = place
    a, _, sale = overtaken(redis, start, tmp_path, "--lock", "fenced", *flags)
    arm(a, "sale.after_read", "off")
    assert sale.result().json["unit"] == 5 and server("GET", STOCK) == "4"


def test_a_restock_that_was_overtaken_writes_nothing(redis, start, place):
    server, flags = place
    a, b = (start(redis, *ALONE, "--lock", "fenced", *flags, name=name) for name in "ab")
    a.stock(value=5)
    restock = park(a, "fair.acquired", a.stock, value=100)
    assert redis("DEL", LOCK) == 1
    assert b.sell().json["unit"] == 5
    arm(a, "fair.acquired", "off")
    reply = restock.result()
    assert reply.status == 503 and reply.problem == "lock-lost" and server("GET", STOCK) == "4"


@pytest.mark.parametrize("lock", TOKENS)
def test_a_reentrant_acquire_that_took_too_long(redis, start, place, tmp_path, lock):
    """The lock was another's during the re-entrant acquire: the newer token does not make the old reading true."""
    server, flags = place
    a, b = (start(redis, *ALONE, "--lock", lock, "--write", "fenced", *flags, "--wait-ms", 5000, name=name) for name in "ab")
    a.stock(value=5)
    sale = park(a, "sale.after_read", a.ask, "POST", "/inventory/phone/sale?reenter=1")
    assert redis("DEL", LOCK) == 1
    assert b.sell().json["unit"] == 5
    arm(a, "sale.after_read", "off")
    assert sale.result().problem == "lock-lost" and server("GET", STOCK) == "4"


@pytest.mark.parametrize("lock", TOKENS)
def test_a_reentrant_acquire_under_a_hold_that_is_known_to_be_lost(redis, start, place, lock):
    """The inner hold was then one of its own, and is given back: its token is no longer this sale's."""
    server, flags = place
    shop = start(redis, *ALONE, "--lock", lock, "--write", "fenced", "--ttl-ms", 600, *flags)
    shop.stock(value=5)
    sale = park(shop, "sale.after_read", shop.ask, "POST", "/inventory/phone/sale?reenter=1")
    redis("DEL", LOCK)
    wait_until(lambda: shop.metric("lock_lost_total") == 1, "the loss is noticed")
    arm(shop, "sale.after_read", "off")
    assert sale.result().problem == "lock-lost" and server("GET", STOCK) == "5"


def test_a_restock_takes_over_a_key_of_another_type(redis, start, place):
    server, flags = place
    shop = start(redis, "--lock", "fenced", *flags)
    server("LPUSH", STOCK, "x")
    assert shop.sell().problem == "stock-invalid"
    assert shop.stock(value=5).status == 200 and shop.sell().json["unit"] == 5


def test_what_is_not_there_is_not_sold_after_the_hold_either(redis, start, place):
    """The stock was lowered without the fence meanwhile, so the fence accepts the write; and the hold has ended."""
    server, flags = place
    shop = start(redis, *ALONE, "--lock", "fenced", "--ttl-ms", 600, *flags)
    shop.stock(value=2)
    sale = park(shop, "sale.before_write", shop.sell, quantity=2)
    assert redis("DEL", LOCK) == 1 and server("DECR", STOCK) == 1
    wait_until(lambda: shop.metric("lock_lost_total") == 1, "the loss is noticed")
    arm(shop, "sale.before_write", "off")
    reply = sale.result()
    assert reply.status == 500 and reply.problem == "stock-invalid", reply
    assert server("GET", STOCK) == "1" and shop.sell().json["unit"] == 1


# ---- What Redis forgets -------------------------------------------------------------------------


def test_with_the_newest_token_evicted_nothing_is_written(redis, start, tmp_path):
    a, _, sale = overtaken(redis, start, tmp_path, "--lock", "fenced")
    assert redis("DEL", TOKEN) == 1
    arm(a, "sale.after_read", "off")
    assert is_refused(a, sale.result()) and redis("GET", STOCK) == "5"
    refused = [event for event in read_history(tmp_path / "a.jsonl") if event["event"] == "refused"][-1]
    assert refused["newest"] == 0
    assert a.sell().json["unit"] == 5


@pytest.mark.parametrize("lock", TOKENS)
def test_after_its_loss_tokens_go_on_growing(redis, start, tmp_path, lock):
    shop = start(redis, "--lock", lock, "--write", "fenced", "--history", tmp_path / "h.jsonl")
    shop.stock(value=5)
    for _ in range(3):
        assert shop.sell().status == 200
        assert redis("DEL", TOKEN) == 1
    tokens = [event["token"] for event in read_history(tmp_path / "h.jsonl") if event["event"] == "granted"]
    assert tokens == sorted(set(tokens)) and len(tokens) == 3
    seconds, micros = redis("TIME")
    assert tokens[-1] <= int(seconds) * 1000000 + int(micros)


@pytest.mark.parametrize("who", ["a", "b"])
def test_one_server_by_two_names(redis, start, tmp_path, who):
    """One instance takes lock and stock for apart, the other does not: each is overtaken by the other."""
    names = {"a": ("--stock-redis", f"redis://localhost:{redis.port}/0"), "b": ()}
    shops = {name: start(redis, *ALONE, "--lock", "fenced", *flags, name=name) for name, flags in names.items()}
    late, other = shops[who], shops["b" if who == "a" else "a"]
    late.stock(value=5)
    sale = park(late, "sale.after_read", late.sell)
    redis("DEL", LOCK)
    assert other.sell().json["unit"] == 5
    arm(late, "sale.after_read", "off")
    assert is_refused(late, sale.result()) and redis("GET", STOCK) == "4"


@pytest.mark.parametrize("key", [None, "k"])
def test_one_server_by_two_names_that_lost_the_newest_token(redis, start, key):
    """The other's write left no mark, and nothing shows any more that it was granted the lock."""
    names = {"a": ("--stock-redis", f"redis://localhost:{redis.port}/0"), "b": ()}
    late, other = (start(redis, *ALONE, "--lock", "fenced", *flags, name=name) for name, flags in names.items())
    late.stock(value=5)
    sale = park(late, "sale.after_read", late.sell, key=key)
    redis("DEL", LOCK)
    assert other.sell().json["unit"] == 5 and redis("DEL", TOKEN) == 1
    arm(late, "sale.after_read", "off")
    assert is_refused(late, sale.result()) and redis("GET", STOCK) == "4"


@pytest.mark.parametrize("lock", TOKENS)
@pytest.mark.parametrize("first", ["late", "next"])
def test_the_lock_server_comes_back_empty(redis, start, other, tmp_path, lock, first):
    """It gives the lock away a second time. The stock is elsewhere, and has heard of both."""
    a, b = (start(redis, *ALONE, "--lock", lock, "--write", "fenced", "--stock-redis", other.url, name=name)
            for name in "ab")
    a.stock(value=5)
    sale = park(a, "sale.after_read", a.sell)
    redis.restart()
    second = park(b, "sale.after_read", b.sell)
    if first == "next":
        arm(b, "sale.after_read", "off")
        assert second.result().json["unit"] == 5
    arm(a, "sale.after_read", "off")
    assert is_refused(a, sale.result(), by="epoch")
    arm(b, "sale.after_read", "off")
    assert second.result().json["unit"] == 5 and other("GET", STOCK) == "4"


# ---- A write whose reply is lost, and that may still come ---------------------------------------

REFUSES_KILLS = ("ACL", "SETUSER", "default", "-client|kill")


class SlowPost(LossyProxy):
    """Keeps the next command that holds the word `keep`, and cuts its connection; deliver() brings it to Redis late, as a
    network may. While `shut` is set it brings nothing that holds that word."""

    keep = shut = kept = None
    refused = 0

    def _carry(self, command, server):
        if self.keep and self.keep in command:
            self.keep, self.kept = None, command
            return None
        if self.shut and self.shut in command:
            self.refused += 1
            return None
        return super()._carry(command, server)

    def deliver(self):
        with socket.create_connection(("127.0.0.1", self.redis.port), PATIENCE_S) as server:
            server.sendall(self.kept)
            return server.recv(65536)


@pytest.fixture
def post(redis):
    between = SlowPost(redis)
    yield between
    between.end()


@pytest.mark.parametrize("told", ["at once", "late"])
def test_a_late_write_does_not_come_between_two_of_one_client(redis, start, post, told):
    """The next sale of this instance has the lock without Redis, with the next number of the same grant. Whoever wrote
    before it does not let go until the stock knows."""
    redis(*REFUSES_KILLS)
    shop = start(post.url, "--enable-failpoints", "--workers", 2, "--lock", "fenced", "--ttl-ms", 600000,
                 "--handoff-ms", 30000, "--redis-timeout-ms", 30000)
    shop.stock(value=5)
    assert shop.sell().status == 200  # the script is known now
    first = park(shop, "sale.before_write", shop.sell)
    waiting = Background(shop.sell)
    wait_until(lambda: shop.metric("inventoryd_sales_waiting") == 1, "the next sale waits")
    arm(shop, "sale.after_read", "1*pause")
    post.keep, post.shut = b"DECR\r\n", b"EVAL" if told == "late" else None
    arm(shop, "sale.before_write", "off")
    if told == "late":  # the stock cannot be told
        wait_until(lambda: post.refused > 2, "it was tried again and again")
        assert shop.metric("lock_handoffs_total") == 0 and waiting.is_alive() and first.is_alive()
        post.shut = None
    assert first.result().problem == "outcome-unknown"
    wait_until(lambda: paused(shop, "sale.after_read") == 1, "the next sale has read")
    assert shop.metric("lock_handoffs_total") == 1
    assert b"-STALE" in post.deliver()
    arm(shop, "sale.after_read", "off")
    assert waiting.result().json["unit"] == 4 and redis("GET", STOCK) == "3"


def test_a_late_restock_does_not_come_between_either(redis, start, post):
    redis(*REFUSES_KILLS)
    shop = start(post.url, "--enable-failpoints", "--workers", 2, "--lock", "fenced", "--ttl-ms", 600000,
                 "--handoff-ms", 30000)
    shop.stock(value=5)
    arm(shop, "fair.acquired", "1*pause")
    first = Background(shop.stock, value=100)
    wait_until(lambda: paused(shop, "fair.acquired") == 1, "the restock has the lock")
    waiting = Background(shop.sell)
    wait_until(lambda: shop.metric("inventoryd_sales_waiting") == 2, "a sale waits")
    arm(shop, "sale.after_read", "1*pause")
    post.keep = b":set\r\n"  # a key of set_stock.lua
    arm(shop, "fair.acquired", "off")
    assert first.result().problem == "outcome-unknown"
    wait_until(lambda: paused(shop, "sale.after_read") == 1, "the next sale has read")
    assert b"-STALE" in post.deliver()
    arm(shop, "sale.after_read", "off")
    assert waiting.result().json["unit"] == 5 and redis("GET", STOCK) == "4"


# ---- Names --------------------------------------------------------------------------------------


def started_with(*flags, **environment):
    return subprocess.run([os.environ["INVENTORYD"], *flags, "--print-config"], env=environment, capture_output=True,
                          text=True, timeout=PATIENCE_S, check=False)


@pytest.mark.parametrize("flags,environment,lock,write", [
    (["--lock", "fenced"], {}, "fair", "fenced"),
    (["--lock", "fenced", "--write", "fenced"], {}, "fair", "fenced"),
    (["--write", "fenced", "--lock", "fair"], {}, "fair", "fenced"),
    (["--lock", "fenced_textbook"], {}, "fair", "fenced_textbook"),
    *((["--lock", lock, "--write", "fenced"], {}, lock, "fenced") for lock in TOKENS),
    ([], {"INVENTORYD_LOCK": "fenced"}, "fair", "fenced"),
    (["--lock", "watchdog"], {"INVENTORYD_LOCK": "fenced"}, "watchdog", "decr"),
    (["--lock", "fair"], {}, "fair", "decr"), ([], {}, "watchdog", "decr")])
def test_a_lock_and_a_way_to_write_by_one_name(flags, environment, lock, write):
    done = started_with(*flags, **environment)
    assert done.returncode == 0, done.stderr
    config = json.loads(done.stdout)
    assert (config["lock"], config["write"]) == (lock, write)


BAD = [
    (["--lock", "fenced", "--write", "decr"], ['"fenced"', 'not with "decr"', 'take the lock "fair"']),
    (["--write", "set", "--lock", "fenced"], ['not with "set"']),
    (["--lock", "fenced", "--write", "fenced_textbook"], ['not with "fenced_textbook"']),
    (["--lock", "watchdog", "--write", "fenced"], ["watchdog gives none", THESE_DO]),
    (["--write", "fenced"], ["watchdog gives none", THESE_DO]),
    (["--lock", "none", "--write", "fenced_textbook"], ["none gives none", THESE_DO]),
    (["--lock", "atomic"], ['"atomic" is no rung', "fenced"]),
    (["--lock", "Fenced"], ['"Fenced" is no rung']),
    (["--write", "token"], ["decr|set|atomic|cas|fenced_textbook|fenced"])]


@pytest.mark.parametrize("flags,words", BAD)
def test_what_does_not_go_together_is_refused_at_start(flags, words):
    done = started_with(*flags)
    assert done.returncode == 2 and done.stdout == "" and len(done.stderr.splitlines()) == 1
    for word in words:
        assert word in done.stderr


@pytest.fixture(scope="module")
def switchable(tmp_path_factory):
    with running(tmp_path_factory.mktemp("switchable"), "--admin-writes") as instance:
        yield instance


@pytest.mark.parametrize("wanted,words", [
    ({"rung": "fenced", "write": "decr"}, ["fenced", "decr", "fair"]),
    ({"write": "decr", "rung": "fenced"}, ["fenced", "decr", "fair"]),
    ({"rung": "watchdog", "write": "fenced"}, ["watchdog gives none", THESE_DO]),
    ({"write": "fenced"}, ["watchdog gives none", THESE_DO]),
    ({"write": "token"}, ["fenced_textbook"]), ({"rung": "atomic"}, ["fenced_textbook"])])
def test_what_does_not_go_together_is_not_switched_to(switchable, wanted, words):
    switchable.switch(rung="watchdog", write="decr")
    reply = switchable.switch(**wanted)
    assert reply.status == 422 and reply.problem == "invalid-value"
    for word in words:
        assert word in reply.json["detail"]
    lock = switchable.admin("GET", "/lock").json
    assert (lock["rung"], lock["write"]) == ("watchdog", "decr")


def test_switching(switchable):
    def told(**wanted):
        reply = switchable.switch(**wanted).json
        return reply["rung"], reply["write"]
    assert told(rung="fenced") == ("fair", "fenced")
    assert told(check_hold=True) == ("fair", "fenced")  # what is not named stays
    assert switchable.switch(rung="watchdog").status == 422
    assert told(rung="fenced_textbook") == ("fair", "fenced_textbook")
    assert "flawed" in switchable.logged("lock")[-1]["detail"]
    assert told(write="fenced") == ("fair", "fenced")
    assert told(rung="watchdog", write="set") == ("watchdog", "set")


def test_a_switch_ends_the_sales_in_flight_under_the_old_fence(redis, start):
    shop = start(redis, "--admin-writes", *ALONE, "--lock", "fenced")
    shop.stock(value=5)
    sale = park(shop, "sale.before_write", shop.sell)
    switch = Background(shop.switch, rung="watchdog", write="decr")
    wait_until(lambda: shop.admin("GET", "/lock").json["switching"], "the switch is under way")
    arm(shop, "sale.before_write", "off")
    assert sale.result().json["unit"] == 5 and switch.result().status == 200
    hold_lock(redis)
    waiting = Background(shop.sell)
    wait_until(lambda: shop.metric("inventoryd_sales_waiting") == 1, "the sale waits")
    release_lock(redis)
    assert waiting.result().json["unit"] == 4
