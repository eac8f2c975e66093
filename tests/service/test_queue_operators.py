# SPDX-License-Identifier: Apache-2.0
"""--on-conflict queue: an operator's switches and mistakes, many items, and who waits for an outcome."""
import pathlib
import re

import lua_scripts
import pytest

from failpoints import arm, paused
from queue_shop import FAST, LISTED, STOCK, STREAM, accepted, buy, is_empty, length, opened, outcome
from world import Background, Redis, hold_lock, inventoryd_redis_up, release_lock, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS, LUA = ROOT / "docs" / "reference", ROOT / "service" / "lua"
SHORT = ("--admin-writes", "--wait-ms", 200, "--redis-timeout-ms", 200)


# ---- A switch -----------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [{}, {"on_conflict": "wait"}])
def test_a_switch_cures_a_lock_that_is_lost(redis, other, start, more):
    """The lock's server is away for good. The new lock needs none, and the queue moves on under it."""
    shop = opened(redis, start, "watchdog", "atomic", "--lock-redis", other.url, *SHORT)
    other.kill()
    location = buy(shop)
    reply = shop.switch(rung="local", write="atomic", **more)
    assert reply.status == 200 and reply.json["rung"] == "local", reply
    assert outcome(shop, location).json["unit"] == 5
    assert shop.admin("GET", "/lock").json["on_conflict"] == more.get("on_conflict", "queue")


@pytest.mark.parametrize("more", [{}, {"on_conflict": "wait"}])
def test_a_switch_cures_an_instance_that_was_not_switched(redis, start, more):
    """The stock's epoch stands for another lock, so this instance sells nothing."""
    shop = opened(redis, start, "fair", "fenced", "--failpoints", "queue.taken=1*pause", *SHORT)
    location = buy(shop)
    wait_until(lambda: paused(shop, "queue.taken") == 1, "it is taken")
    switched = start(redis, "--lock", "fair", "--write", "fenced", *FAST, *SHORT, name="b")
    assert switched.switch(rung="notify").status == 200
    arm(shop, "queue.taken", "off")
    wait_until(lambda: shop.admin("GET", "/lock").json["epoch"]["ours"] is False, "it sells nothing")
    assert outcome(shop, location, 0).status == 202
    assert shop.switch(**more).status == 200
    assert outcome(shop, location).json["unit"] == 5


def test_a_switch_that_keeps_the_queue_waits_for_none(redis, start):
    shop = opened(redis, start, "watchdog", "atomic", *SHORT)
    hold_lock(redis)
    location = buy(shop)
    assert shop.switch(rung="reentrant").status == 200
    release_lock(redis)
    assert outcome(shop, location).status == 200


def test_a_switch_says_why_a_queue_does_not_move(redis, start):
    shop = opened(redis, start, "watchdog", "atomic", *SHORT)
    redis("SET", STOCK, "nine")
    location = buy(shop)
    reply = shop.switch(on_conflict="wait")
    assert reply.problem == "switch-timeout"
    assert "queue of phone" in reply.json["detail"] and "whole number" in reply.json["detail"], reply
    assert shop.admin("GET", "/lock").json["on_conflict"] == "queue"
    redis("SET", STOCK, 5)
    assert outcome(shop, location).status == 200
    assert shop.switch(write="decr", on_conflict="wait").status == 200


def no_number(redis):
    redis("SET", STOCK, "nine")


def no_record(redis):
    redis("DEL", f"{STOCK}:key:k")
    redis("SADD", f"{STOCK}:key:k", "one")


def no_entry(redis):
    number = redis("XRANGE", STREAM, "-", "+")[0][0]
    redis("DEL", STREAM)
    redis("XADD", STREAM, number, "some", "thing")


def other_layout(redis):
    redis("DEL", STOCK)
    redis("HSET", STOCK, "stock", "9", "version", "1")


@pytest.mark.parametrize("broken, told", [(other_layout, "with a version"), (no_number, "whole number"), (no_record, "is a set"),
                                          (no_entry, "not written by this shop")])
def test_a_switch_does_not_wait_for_what_an_operator_must_mend(redis, start, broken, told):
    """It would wait for ten minutes."""
    shop = opened(redis, start, "watchdog", "atomic", "--admin-writes", "--wait-ms", 600000, "--failpoints", "sale.entered=pause")
    buy(shop, key="k")
    wait_until(lambda: paused(shop, "sale.entered") == 1, "it has the lock")
    broken(redis)
    arm(shop, "sale.entered", "off")
    wait_until(lambda: shop.logged("queue"), "the sale has failed")
    reply = shop.switch(on_conflict="wait")
    assert reply.problem == "switch-timeout" and told in reply.json["detail"], reply


def test_a_switch_to_a_write_that_keeps_no_keys_comes_last(redis, start):
    """What was accepted is sold under the old one."""
    shop = opened(redis, start, "watchdog", "atomic", "--admin-writes", "--failpoints", "queue.taken=1*pause")
    location = buy(shop)
    wait_until(lambda: paused(shop, "queue.taken") == 1, "it is taken")
    switch = Background(shop.switch, write="decr", on_conflict="fail")
    wait_until(lambda: shop.admin("GET", "/lock").json["switching"], "the switch has begun")
    arm(shop, "queue.taken", "off")
    assert switch.result().json["write"] == "decr"
    assert outcome(shop, location, 0).json["unit"] == 5


# ---- Many items ---------------------------------------------------------------------------------


def fill(redis, count):
    """So many items are listed, and none of them has an entry."""
    redis("EVAL", "for i = 1, ARGV[1] do redis.call('ZADD', KEYS[1], i, 'item-' .. i) end", 1, LISTED, count)


def calls(redis, command):
    found = re.search(rf"cmdstat_{command}:calls=(\d+)", redis("INFO", "commandstats"))
    return int(found.group(1)) if found else 0


def test_an_item_without_a_stock_is_not_listed(redis, start):
    shop = opened(redis, start)
    for item in ("nothing", "phone"):
        shop.sell(item=item)
    assert redis("ZRANGE", LISTED, 0, -1) == ["phone"]


def test_a_key_is_told_after_its_items_end(redis, start):
    shop = opened(redis, start)
    assert outcome(shop, buy(shop, key="k")).status == 200
    redis("DEL", STOCK)
    assert shop.sell(key="k").json["unit"] == 5 and shop.sell(key="l").problem == "unknown-item"


def test_only_items_with_entries_are_looked_at(redis, start):
    """A look asks for the lengths of all queues in a few exchanges, and wakes nobody whose queue is empty."""
    fill(redis, 300)
    shop = opened(redis, start)
    assert outcome(shop, buy(shop)).status == 200
    wait_until(lambda: calls(redis, "xlen") > 900, "it has looked three times")
    assert calls(redis, "evalsha") + calls(redis, "eval") < 60


def test_a_queue_behind_many_others_is_found(redis, start):
    """Its instance has died, and it is the last on the list."""
    shop = opened(redis, start, "watchdog", "atomic", "--failpoints", "queue.taken=pause")
    location = buy(shop)
    wait_until(lambda: paused(shop, "queue.taken") == 1, "it is taken")
    shop.kill()
    shop.end = lambda: None
    fill(redis, 10100)
    next_one = opened(redis, start, stock=None, name="b")
    reply = outcome(next_one, location)
    assert reply.status == 200 and reply.json["instance"] == "b"


def test_a_switch_knows_of_a_queue_behind_many_others(redis, start):
    shop = opened(redis, start, "watchdog", "atomic", *SHORT)
    fill(redis, 10100)
    hold_lock(redis)
    buy(shop)
    reply = shop.switch(on_conflict="wait")
    assert reply.problem == "switch-timeout" and "queue of phone" in reply.json["detail"] and length(redis) == 1, reply
    release_lock(redis)
    assert is_empty(redis)


def test_entries_take_no_place_of_a_request(redis, start, proxy):
    """The threads for queues are all at work, and more items wait for one. There is room for one request."""
    shop = opened(redis, start, "none", "atomic", "--queue", 1, "--workers", 1, "--stock-redis", proxy.url,
                  "--redis-timeout-ms", 30000)
    items = [f"item-{i}" for i in range(12)]
    for item in items:
        redis("SET", "inventory:{%s}" % item, 1)
        assert outcome(shop, accepted(shop.sell(item=item))).status == 200
    proxy.hold = lua_scripts.sha1(LUA / "queue_oldest.lua").encode()
    for item in items:
        redis("XADD", "inventory:{%s}:queue" % item, "*", "key", "k", "id", 32 * "0", "quantity", 1, "request", "r", "at", 1,
              "life", 1)
    wait_until(lambda: proxy.held >= 1, "entries are asked for")
    locations = [buy(shop) for _ in range(5)]
    proxy.hold = None
    assert [outcome(shop, location).json["unit"] for location in locations] == [5, 4, 3, 2, 1]


# ---- Who waits ----------------------------------------------------------------------------------


def test_who_waits_delays_no_other_read(redis, start, proxy):
    """Redis is slow to say what became of one sale; the read of a stock is not behind those who wait for that."""
    shop = opened(redis, start, "watchdog", "atomic", "--stock-redis", proxy.url, "--redis-timeout-ms", 30000,
                  "--wait-ms", 60000, "--failpoints", "queue.taken=pause")
    location = buy(shop)
    wait_until(lambda: paused(shop, "queue.taken") == 1, "it is taken")
    waiting = [Background(outcome, shop, location, 60) for _ in range(8)]
    wait_until(lambda: shop.clients() >= 8, "they wait")
    wait_until(lambda: calls(redis, "get") > 16, "each has looked")
    proxy.hold = b":key:"
    wait_until(lambda: proxy.held >= 1, "they look again")
    read = Background(lambda: [shop.stock() for _ in range(200)])  # meanwhile all of them look
    wait_until(lambda: not read.is_alive(), "the stock is read")
    assert {reply.json["stock"] for reply in read.result()} == {5}
    proxy.hold = None
    arm(shop, "queue.taken", "off")
    assert {reply.result().json["unit"] for reply in waiting} == {5}


def test_an_acceptance_that_arrives_late_can_be_asked_for(redis, start, proxy):
    """Even without a key: the answer names the sale."""
    shop = opened(redis, start, "watchdog", "atomic", "--stock-redis", proxy.url, "--redis-timeout-ms", 300,
                  "--fail-fast-ms", 600000)
    assert outcome(shop, buy(shop)).status == 200
    proxy.hold = b":id:"
    reply = shop.sell()
    proxy.hold = None
    assert reply.problem == "outcome-unknown", reply
    location = re.search(r"GET (/sales/phone\.[0-9a-f]{32})", reply.json["detail"])[1]
    wait_until(lambda: outcome(shop, location, 0).status == 200, "it was accepted, and is sold")
    assert outcome(shop, location).json["unit"] == 4 and redis("GET", STOCK) == "3" and is_empty(redis)


# ---- Replicas -----------------------------------------------------------------------------------


@pytest.fixture
def replica(redis, tmp_path):
    redis("CONFIG", "SET", "repl-diskless-sync-delay", 0)
    one = Redis(tmp_path / "replica", "--replicaof", "127.0.0.1", str(redis.port))
    wait_until(lambda: redis.is_confirmed(1), "the replica has caught up")
    yield one
    one.kill()


def with_replica(redis, start, *more):
    return opened(redis, start, "watchdog", "atomic", "--stock-redis", redis.url, "--replicas-ack", "one", "--replicas", 1,
                  "--redis-timeout-ms", 1000, *more)


def test_a_refusal_is_told_once_the_replica_has_it(redis, replica, start):
    """If it were lost, the sale would be in the queue again, and perhaps be sold after a restock."""
    shop = with_replica(redis, start, "--fail-fast-ms", 600000)
    location = buy(shop, key="k", quantity=9)
    assert outcome(shop, location).problem == "insufficient-stock"
    replica.freeze()
    assert outcome(shop, location, 0).problem == "outcome-unknown"
    assert shop.sell(key="k", quantity=9).problem == "outcome-unknown"
    replica.thaw()
    wait_until(lambda: outcome(shop, location, 0).status == 409, "it is told again")
    assert shop.sell(key="k", quantity=9).problem == "insufficient-stock"


def test_an_unconfirmed_entry_makes_the_server_look_away(redis, replica, start):
    """Nobody asks for anything; the worker's own write has found it out."""
    shop = with_replica(redis, start, "--fail-fast-ms", 600000, "--failpoints", "sale.before_write=1*pause")
    location = buy(shop)
    wait_until(lambda: paused(shop, "sale.before_write") == 1, "it is worked at")
    replica.freeze()
    arm(shop, "sale.before_write", "off")
    wait_until(lambda: inventoryd_redis_up(shop)[1] == 0, "too few replicas confirm")
    replica.thaw()
    wait_until(lambda: inventoryd_redis_up(shop)[1] == 1, "enough do")
    assert outcome(shop, location).status == 200


# ---- Rights and deletions -----------------------------------------------------------------------


@pytest.mark.parametrize("command", ["xautoclaim", "decrby"])
def test_a_right_that_is_missing_is_seen_by_readyz(redis, start, command):
    shop = opened(redis, start)
    redis("ACL", "SETUSER", "default", "-" + command)
    reply = shop.admin("GET", "/readyz")
    assert reply.problem == "not-ready" and command.upper() in reply.json["detail"], reply
    redis("ACL", "SETUSER", "default", "+@all")
    assert shop.admin("GET", "/readyz").status == 200
    assert redis("KEYS", "*none*") == []


@pytest.mark.parametrize("command", ["xack", "xdel"])
def test_without_a_right_to_finish_nothing_is_sold(redis, start, command):
    """Else the sale would be told and stay queued, and be sold once more when its outcome has expired."""
    shop = opened(redis, start, "watchdog", "atomic", "--failpoints", "sale.entered=1*pause")
    location = buy(shop)
    wait_until(lambda: paused(shop, "sale.entered") == 1, "it has the lock")
    redis("ACL", "SETUSER", "default", "-" + command)
    arm(shop, "sale.entered", "off")
    wait_until(lambda: shop.logged("queue"), "the sale has failed")
    assert redis("GET", STOCK) == "5" and outcome(shop, location, wait=0).status == 202
    redis("ACL", "SETUSER", "default", "+@all")
    assert outcome(shop, location).status == 200
    assert redis("GET", STOCK) == "4"


def documented(*rows):
    """The commands that docs/reference/http.md lists, in the first row and in those that begin so."""
    table = (DOCS / "http.md").read_text().split("### Rights in Redis")[1].split("## Log")[0]
    lines = [line for line in table.splitlines() if line.startswith(tuple(f"| {row}" for row in ("every instance", *rows)))]
    assert len(lines) == 1 + len(rows)
    return {word.lower() for line in lines for word in re.findall(r"`([A-Z]+)`", line.split("|")[2])}


@pytest.mark.parametrize("write,more,rows", [
    ("decr", (), ["`--write decr`"]), ("set", (), ["`--write set`"]), ("atomic", (), ["`--write atomic`"]),
    ("atomic", ("--admit", "100,100"), ["`--write atomic`", "`--admit`"]), ("cas", (), ["`--write cas`"]),
    ("fenced", (), ["`--write fenced`"]),
    ("atomic", ("--on-conflict", "queue"), ["`--write atomic`", "`--on-conflict queue`"]),
    ("fenced", ("--on-conflict", "queue"), ["`--write fenced`", "`--on-conflict queue`"]),
    ("decr", ("--segments", 4), ["`PUT /inventory", "`--segments N`", "`--write decr`"]),
    ("decr", (), ["`PUT /inventory", "`--write decr`"]), ("cas", (), ["`PUT /inventory", "`--write cas`"])])
def test_the_rights_in_the_documentation_are_enough(redis, other, start, write, more, rows):
    """For the stock's user; the lock is elsewhere."""
    words = documented(*rows)
    keys = ("~inventory:*", "~dlock:token:*", "~dlock:identity")
    assert redis("ACL", "SETUSER", "seller", "on", ">secret", "-@all", *keys, *(f"+{word}" for word in words)) == "OK"
    shop = start(redis, "--lock", "fair" if write == "fenced" else "watchdog", "--write", write, *more, "--lock-redis",
                 other.url, "--stock-redis", f"redis://seller:secret@127.0.0.1:{redis.port}/0")
    redis(*(("HSET", STOCK, "stock", 5, "version", 1) if write == "cas" else ("SET", STOCK, 5)))
    assert "PUT" not in rows[0] or shop.stock(value=5).status == 200
    for unit, key, quantity in [(5, None, 1), (4, None, 2), *([(2, "k", 1)] if write in ("atomic", "fenced") else [])]:
        reply = shop.sell(key=key, quantity=quantity)
        reply = outcome(shop, accepted(reply)) if "queue" in more else reply
        assert reply.status == 200 and ("--segments" in more or reply.json["unit"] in (unit, unit - 1)), reply
    assert shop.admin("GET", "/readyz").status == 200
    assert redis("ACL", "LOG") == []


@pytest.mark.parametrize("conflict", ["wait", "fail"])
def test_a_deleted_entry_frees_its_key_everywhere(redis, start, conflict):
    shop = opened(redis, start, "watchdog", "atomic", "--failpoints", "queue.taken=pause")
    other = start(redis, "--lock", "none", "--write", "atomic", "--on-conflict", conflict, name="b")
    location = buy(shop, key="k")
    assert accepted(other.sell(key="k")) == location
    wait_until(lambda: paused(shop, "queue.taken") == 1, "it is taken")
    redis("XDEL", STREAM, redis("XRANGE", STREAM, "-", "+")[0][0])
    assert other.sell(key="k").json["unit"] == 5
    arm(shop, "queue.taken", "off")
    assert outcome(shop, location).json["unit"] == 5 and redis("GET", STOCK) == "4"


def test_a_stock_in_another_layout_accepts_nothing(redis, start):
    """It would wait in the queue until its life is over."""
    shop = opened(redis, start, stock=None)
    for words in (("segments", 4), ("stock", 5, "version", 1)):
        redis("DEL", STOCK)
        redis("HSET", STOCK, *words)
        answer = shop.sell()
        assert answer.problem == "other-layout" and "PUT /inventory/phone" in answer.json["detail"], answer
        assert length(redis) == 0 and not redis("KEYS", f"{STOCK}:key:*")


def test_a_switch_names_the_queue_that_cannot_be_read(redis, start):
    shop = opened(redis, start, "watchdog", "atomic", "--admin-writes")
    assert outcome(shop, buy(shop)).status == 200
    redis("DEL", STREAM)
    redis("SET", STREAM, "no stream")
    answer = shop.switch(on_conflict="wait")
    assert answer.problem == "switch-timeout" and STREAM in answer.json["detail"], answer
    redis("DEL", STREAM)
    assert shop.switch(on_conflict="wait").status == 200
