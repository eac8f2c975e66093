# SPDX-License-Identifier: Apache-2.0
"""Sales with an Idempotency-Key whose instance dies, whose reply is lost, or that are overtaken: one sale, told once."""
import signal

import lua_scripts
import pytest

from idempotency import KEEPERS, LOCK, LUA, ON, OUT, RECORD, SHORT, SOLD, STOCK, events_of, is_record, is_replay, keepers, opened
from test_resolve import NIL, LatePost, refuse_kills, strange
from failpoints import arm, park_a_sale
from world import Redis, wait_until


@pytest.fixture
def post(redis):
    between = LatePost(redis)
    yield between
    between.end()


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
    return lua_scripts.sha1(LUA).encode()


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
