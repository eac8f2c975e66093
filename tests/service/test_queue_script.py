# SPDX-License-Identifier: Apache-2.0
"""The scripts of an item's queue, alone on a real server."""
import pathlib
import re

import lua_scripts
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
    answer = redis("EVAL", lua_scripts.text(LUA / f"{script}.lua"), len(keys), *keys, *arguments)
    return str(answer) if isinstance(answer, Exception) else answer


def accept(redis, key="k", quantity=1, random=32 * "0", life=MINUTE, most=10):
    keys = (STOCK, f"{STOCK}:key:{key}", STREAM, f"{STOCK}:id:{random}", LISTED)
    return run(redis, "queue_accept", keys, quantity, key, random, "request", "a", life, most, "phone")


def sell(redis, number, fence=(), by=BY, how="sell", token=NEW, epoch=EPOCH, record=RECORD, random=32 * "0"):
    keys = (STOCK, record, STREAM, POINTER, *fence)
    return run(redis, "queue_sell", keys, number, "workers", by, MINUTE, how, random, token, epoch)


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
    assert sell(redis, two, fence, record=OTHER, random=32 * "1") == ["not", one] and redis("GET", STOCK) == "5"
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
    redis("CONFIG", "RESETSTAT")
    assert {take("a") for _ in range(3)} == {first(redis)}
    errors = re.findall(r"errorstat_(\w+):count=(\d+)", redis("INFO", "errorstats"))
    assert errors == [("NOGROUP", "1")], "its group is made once"


HOUR = 3600000


def now_ms(redis):
    seconds, micros = redis("TIME")
    return int(seconds) * 1000 + int(micros) // 1000


def tidy(redis, age=MINUTE):
    return run(redis, "queue_tidy", (LISTED, STREAM), "phone", "workers", age)


def test_the_item_is_listed_with_its_entry(redis):
    """Also if someone has deleted the list: a repeated request lists it again, and so does a full queue."""
    redis("DEL", STOCK)
    assert accept(redis) is None and redis("EXISTS", LISTED) == 0
    redis("SET", STOCK, 0)
    begun = now_ms(redis)
    for asks in ({}, {"random": 32 * "1"}, {"key": "l", "random": 32 * "2", "most": 1}):
        redis("DEL", LISTED)
        what = accept(redis, **asks)[0]
        assert begun <= float(redis("ZSCORE", LISTED, "phone")) <= now_ms(redis), what
    assert redis("XLEN", STREAM) == 1


def test_an_item_that_may_not_be_listed_is_not_accepted(redis):
    redis("SET", LISTED, "no list")
    assert "WRONGTYPE" in accept(redis) and redis("EXISTS", RECORD, POINTER, STREAM) == 0


def test_what_nobody_uses_is_removed(redis):
    """Not while the queue has an entry, whatever its age; and not at once."""
    redis("ZADD", LISTED, 1, "phone")
    accept(redis)
    run(redis, "queue_take", (STREAM,), "workers", "a")
    assert tidy(redis) == 0 and redis("ZCARD", LISTED) == redis("XLEN", STREAM) == 1
    sell(redis, first(redis))
    redis("ZADD", LISTED, now_ms(redis), "phone")
    assert tidy(redis) == 0 and redis("EXISTS", STREAM) == 1
    redis("ZADD", LISTED, 1, "phone")
    assert tidy(redis) == 1 and redis("EXISTS", STREAM, LISTED) == 0
    assert tidy(redis) == 1  # there is nothing
    assert accept(redis, "l", random=32 * "1")[0] == "made"
    assert run(redis, "queue_take", (STREAM,), "workers", "a") == first(redis)


def test_a_time_in_the_future_counts_from_now(redis):
    redis("ZADD", LISTED, now_ms(redis) + HOUR, "phone")
    assert tidy(redis) == 0 and float(redis("ZSCORE", LISTED, "phone")) <= now_ms(redis)


def test_consumers_that_own_nothing_are_removed(redis):
    accept(redis)
    accept(redis, "l", random=32 * "1")
    redis("ZADD", LISTED, now_ms(redis), "phone")
    run(redis, "queue_take", (STREAM,), "workers", "dead")
    run(redis, "queue_take", (STREAM,), "workers", "a")
    assert names(redis) == {"dead", "a"} and tidy(redis) == 0 and names(redis) == {"dead", "a"}
    assert tidy(redis, -1) == 0 and names(redis) == {"a"}


def names(redis):
    return {consumer[1] for consumer in redis("XINFO", "CONSUMERS", STREAM, "workers")}


# ---- Entries and records that do not belong together --------------------------------------------


def test_a_number_that_is_given_again_is_another_sale(redis):
    """The queue was deleted; the number stands for a sale with another key now. A late worker has the old one in mind."""
    accept(redis)
    number = first(redis)
    redis("DEL", STREAM)
    redis("XADD", STREAM, number, "key", "l", "id", 32 * "1", "quantity", 2, "request", "r", "at", now_ms(redis), "life", MINUTE)
    assert sell(redis, number) == ["not", number] and redis("GET", STOCK) == "5" and redis("XLEN", STREAM) == 1
    assert accept(redis, random=32 * "2")[0] == "made"  # its key is free
    assert redis("GET", RECORD) == f"202 1 {redis('XREVRANGE', STREAM, '+', '-')[0][0]} {32 * '2'} a"


def test_an_entry_whose_key_was_accepted_anew_is_no_sale(redis):
    accept(redis)
    number = first(redis)
    redis("DEL", RECORD)
    what, record = accept(redis, random=32 * "1")
    assert what == "made" and redis("XLEN", STREAM) == 2
    assert sell(redis, number) == ["kept", record]
    assert redis("GET", STOCK) == "5" and redis("GET", RECORD) == record and redis("XLEN", STREAM) == 1
    assert sell(redis, first(redis), random=32 * "1")[0] == "made" and redis("GET", STOCK) == "4"


def test_a_record_counts_while_its_entry_is_there(redis):
    def recall():
        return run(redis, "queue_recall", (RECORD, STREAM))
    assert recall() is None
    _, record = accept(redis)
    assert recall() == record and redis("PTTL", RECORD) == -1
    redis("XDEL", STREAM, first(redis))
    assert recall() is None and not redis("GET", RECORD)
    redis("SET", RECORD, f"200 1 4 {BY}")
    assert recall() == f"200 1 4 {BY}"


def test_who_sends_the_acceptance_again_writes(redis):
    """So WAIT on that connection asks about the acceptance."""
    accept(redis)
    for again in ({}, {"random": 32 * "1"}):
        before = changes(redis)
        accept(redis, **again)
        assert changes(redis) > before, again


def changes(redis):
    return int(redis("INFO", "persistence").split("rdb_changes_since_last_save:")[1].split()[0])


# ---- Its life -----------------------------------------------------------------------------------


def enter(redis, at, life=MINUTE):
    redis("XADD", STREAM, "*", "key", "k", "id", 32 * "0", "quantity", 1, "request", "r", "at", at, "life", life)
    return first(redis)


@pytest.mark.parametrize("ahead,left", [(-HOUR, "over"), (1000, "whole"), (MINUTE - 9000, "whole"), (HOUR, "over")])
def test_a_clock_that_was_set_back_gives_no_more_than_the_life(redis, ahead, left):
    number = enter(redis, now_ms(redis) + ahead)
    left_ms = int(run(redis, "queue_oldest", (STREAM,))[5])
    assert left_ms == MINUTE if left == "whole" else left_ms <= 0
    sold = sell(redis, number, how="expire")
    assert sold == (["not", number] if left == "whole" else ["made", f"503 1 0 {BY}"])


# ---- Rights -------------------------------------------------------------------------------------


COMMANDS = ("time get decrby set xlen xadd xrange xrevrange xgroup|create xgroup|delconsumer xinfo|consumers xreadgroup "
            "xautoclaim xclaim xack xdel del zadd zscore zrem zscan").split()


def probe(redis):
    item = "inventory:{readyz}:none"
    return run(redis, "queue_probe", (LISTED, item, item + ":key:none", item + ":queue", item + ":id:none"))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_right_that_is_missing_is_named(redis, command):
    keys = redis("DBSIZE")
    assert probe(redis) == "" and redis("DBSIZE") == keys
    redis("ACL", "SETUSER", "default", "-" + command)
    try:
        answer = probe(redis)
    finally:
        redis("ACL", "SETUSER", "default", "+@all")
    assert answer.startswith(command.split("|")[0].upper() + ": ") and redis("DBSIZE") == keys


def test_a_queue_needs_no_other_command(redis):
    """What its scripts send is what is asked for."""
    sent = set()
    for file in LUA.glob("queue_*.lua"):
        words = re.findall(r"redis\.p?call\('(\w+)'(?:, '(\w+)')?", file.read_text())
        sent |= {f"{word}|{sub}".lower() if word in ("XGROUP", "XINFO") else word.lower() for word, sub in words}
    assert sent - {"hmget", "mget"} <= set(COMMANDS)  # those two are the fence's
