# SPDX-License-Identifier: Apache-2.0
"""The scripts of an item's queue, alone on a real server."""
import pathlib

import pytest

from queue_shop import LISTED, STOCK, STREAM

LUA = pathlib.Path(__file__).resolve().parents[2] / "service" / "lua"
RECORD, POINTER, OTHER = STOCK + ":key:k", STOCK + ":id:" + 32 * "0", STOCK + ":key:l"
TOKEN, MARK, EPOCH_KEY, IDENTITY_KEY = "dlock:token:lock:{phone}", STOCK + ":fence", "inventory:epoch", "dlock:identity"
OLD, NEW, EPOCH = 1763690000123455, 1763690000123456, 1763680000000000
FENCES = {"none": (), "newest": (TOKEN, EPOCH_KEY), "last read": (MARK, TOKEN, EPOCH_KEY, IDENTITY_KEY)}
fenced = pytest.mark.parametrize("fence", FENCES.values(), ids=FENCES)
BY, MINUTE = "a 00000000000000ff", 60000


@pytest.fixture
def redis(server):
    server("FLUSHALL")
    server("SET", STOCK, 5)
    server("HSET", EPOCH_KEY, "epoch", EPOCH, "identity", "x:1")
    server("MSET", IDENTITY_KEY, "x:1", TOKEN, NEW, MARK, f"{EPOCH} {NEW}")
    return server


def run(redis, script, keys, *arguments):
    answer = redis("EVAL", (LUA / f"{script}.lua").read_text(), len(keys), *keys, *arguments)
    return str(answer) if isinstance(answer, Exception) else answer


def accept(redis, key="k", quantity=1, random=32 * "0", life=MINUTE, most=10):
    keys = (STOCK, f"{STOCK}:key:{key}", STREAM, f"{STOCK}:id:{random}")
    return run(redis, "queue_accept", keys, quantity, key, random, "request", "a", life, most)


def sell(redis, number, fence=(), by=BY, how="sell", token=NEW, epoch=EPOCH, record=RECORD):
    return run(redis, "queue_sell", (STOCK, record, STREAM, POINTER, *fence), number, "workers", by, MINUTE, how, token, epoch)


def first(redis):
    return redis("XRANGE", STREAM, "-", "+", "COUNT", 1)[0][0]


def test_it_accepts_once(redis):
    what, record = accept(redis)
    assert what == "made" and record == f"202 1 {first(redis)} {32 * '0'} a"
    assert redis("GET", POINTER) == "k" and redis("PTTL", RECORD) == redis("PTTL", POINTER) == -1
    assert accept(redis) == ["was"]  # its reply was lost
    assert accept(redis, random=32 * "1") == ["kept", record] and redis("XLEN", STREAM) == 1
    assert redis("EXISTS", f"{STOCK}:id:{32 * '1'}") == 0


def test_what_is_not_accepted_leaves_nothing(redis):
    redis("DEL", STOCK)
    assert accept(redis) is None
    redis("SET", STOCK, 5)
    assert accept(redis, most=0) == ["full"] and redis("EXISTS", RECORD, POINTER, STREAM) == 0
    redis("ACL", "SETUSER", "default", "-xadd")
    try:
        assert accept(redis).startswith(("ERR", "NOPERM"))
    finally:
        redis("ACL", "SETUSER", "default", "+@all")
    assert redis("EXISTS", POINTER, STREAM) == 0 and accept(redis)[0] == "made"


@fenced
def test_it_sells_the_oldest_once(redis, fence):
    accept(redis, quantity=2)
    accept(redis, "l", random=32 * "1")
    one, two = (entry[0] for entry in redis("XRANGE", STREAM, "-", "+"))
    assert sell(redis, two, fence, record=OTHER) == ["not", one] and redis("GET", STOCK) == "5"
    assert sell(redis, one, fence) == ["made", f"200 2 3 {BY}"]
    assert redis("GET", STOCK) == "3" and 0 < redis("PTTL", RECORD) <= MINUTE and 0 < redis("PTTL", POINTER) <= MINUTE
    assert sell(redis, one, fence) == ["made", f"200 2 3 {BY}"]  # its reply was lost
    assert sell(redis, one, fence, by="b 00000000000000fe") == ["not", two] and redis("GET", STOCK) == "3"
    assert redis("XLEN", STREAM) == 1


@pytest.mark.parametrize("fence", list(FENCES.values())[1:])
@pytest.mark.parametrize("mine,epoch,word", [(OLD, EPOCH, "STALE"), (NEW, EPOCH + 1, "EPOCH")])
def test_an_old_token_or_epoch_sells_nothing(redis, fence, mine, epoch, word):
    accept(redis)
    assert sell(redis, first(redis), fence, token=mine, epoch=epoch).startswith(word)
    assert redis("GET", STOCK) == "5" and redis("GET", RECORD).startswith("202 ") and redis("XLEN", STREAM) == 1


@pytest.mark.parametrize("stock,answer", [
    ("2", f"409 3 2 {BY}"), ("0", f"409 3 0 {BY}"), ("-2", f"409 3 -2 {BY}"), (None, f"404 3 0 {BY}")])
def test_refusals_are_outcomes(redis, stock, answer):
    accept(redis, quantity=3)
    redis("DEL", STOCK)
    if stock:
        redis("SET", STOCK, stock)
    assert sell(redis, first(redis)) == ["made", answer] and redis("GET", STOCK) == stock and redis("XLEN", STREAM) == 0


@pytest.mark.parametrize("stock", ["nine", "", "-0.5", "9007199254740993", "1.5", " 7", "05"])
def test_a_stock_that_is_no_number_is_no_outcome(redis, stock):
    accept(redis)
    record = redis("GET", RECORD)
    redis("SET", STOCK, stock)
    answer = sell(redis, first(redis))
    assert answer == ["few", stock] or "not an integer" in answer
    assert (redis("GET", STOCK), redis("GET", RECORD), redis("PTTL", RECORD)) == (stock, record, -1)
    assert redis("XLEN", STREAM) == 1


def test_a_life_that_is_over(redis):
    accept(redis, life=MINUTE)
    number = first(redis)
    assert sell(redis, number, how="expire") == ["not", number]
    redis("DEL", RECORD, STREAM, POINTER)
    accept(redis, life=0)
    number = first(redis)
    assert int(run(redis, "queue_oldest", (STREAM,))[5]) <= 0
    assert sell(redis, number, FENCES["newest"], token=OLD) == ["made", f"503 1 0 {BY}"]  # to say so needs no lock
    assert redis("GET", STOCK) == "5" and redis("XLEN", STREAM) == 0


def test_an_outcome_that_is_there_is_only_acknowledged(redis):
    accept(redis)
    redis("SET", RECORD, "200 1 4 b 00000000000000fe")
    assert sell(redis, first(redis)) == ["kept", "200 1 4 b 00000000000000fe"]
    assert redis("GET", STOCK) == "5" and redis("XLEN", STREAM) == 0


def test_the_oldest_is_taken_whoever_had_it(redis):
    def take(instance):
        return run(redis, "queue_take", (STREAM,), "workers", instance)
    assert take("a") is None
    accept(redis)
    accept(redis, "l", random=32 * "1")
    one = first(redis)
    for instance in ("dead", "dead", "a", "b"):
        assert take(instance) == one
        assert redis("XPENDING", STREAM, "workers") == [1, one, one, [[instance, "1"]]]
    redis("XACK", STREAM, "workers", one)  # and not deleted
    assert take("a") == one
    redis("XDEL", STREAM, one)
    assert take("a") == first(redis) != one
    redis("XGROUP", "DESTROY", STREAM, "workers")
    assert take("a") == first(redis)


def test_items_are_listed(redis):
    assert run(redis, "queue_list", (LISTED,), "phone", "") == 1
    assert run(redis, "queue_list", (LISTED,), "phone", MINUTE) == 0 and redis("ZCARD", LISTED) == 1
    assert run(redis, "queue_list", (LISTED,), "tablet", MINUTE) == 0
    redis("ZADD", LISTED, 1, "phone")
    assert run(redis, "queue_list", (LISTED,), "phone", MINUTE) == 1 and redis("ZCARD", LISTED) == 0
