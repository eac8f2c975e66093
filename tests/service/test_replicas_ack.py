# SPDX-License-Identifier: Apache-2.0
"""Sales whose acquire and write replicas must confirm: real replicas, frozen, killed, cut off, and back."""
import re
import socket

import pytest

from idempotency import KEEPERS, ON, RECORD, STOCK, events_of, is_replay, keepers
from failpoints import arm, park_a_sale
from test_idempotency_lost import script_words
from world import LossyProxy, Redis, inventoryd_redis_up, wait_until

IMPATIENT = ("--replicas-ack", "all", "--replicas", 2, "--redis-timeout-ms", 2000)  # WAIT takes half of it
ALL = (*IMPATIENT, "--fail-fast-ms", 60000)  # no sale is refused because replicas did not confirm an earlier one
NONE_OF_2 = "0 of 2 replicas confirmed the write in time; 2 must"
WRITES = [("none", "decr"), ("none", "set"), ("local", "atomic"), ("watchdog", "decr"), ("watchdog", "atomic"),
          ("fair", "fenced"), ("fair", "fenced_textbook")]


def online(redis):
    return redis("INFO", "replication").count("state=online")


@pytest.fixture
def replicas(redis, tmp_path):
    """Two replicas of the test's Redis."""
    redis("CONFIG", "SET", "repl-diskless-sync-delay", 0)
    both = [Redis(tmp_path / f"replica-{i}", "--replicaof", "127.0.0.1", str(redis.port)) for i in range(2)]
    wait_until(redis.is_confirmed, "the replicas are there")
    yield both
    for replica in both:
        replica.kill()


def freeze(replicas):
    for replica in replicas:
        replica.freeze()


def thaw(redis, replicas):
    for replica in replicas:
        replica.thaw()
    wait_until(redis.is_confirmed, "the replicas are there again")


def calls(redis, command):
    found = re.search(rf"cmdstat_{command}:calls=(\d+)", redis("INFO", "commandstats"))
    return int(found.group(1)) if found else 0


def opened(redis, start, lock, write, *flags, **named):
    """A shop with 5 phones that has sold one, so that Redis knows its scripts."""
    shop = start(redis, "--lock", lock, "--write", write, *(flags or ALL), **named)
    assert shop.stock(value=5).status == 200 and shop.sell().json["left"] == 4
    return shop


def parked_write(shop, replicas, **named):
    """A sale that has its lock, and writes when the replicas are frozen."""
    arm(shop, "sale.before_write", "1*pause")
    sale = park_a_sale(shop, "sale.before_write", **named)
    freeze(replicas)
    arm(shop, "sale.before_write", "off")
    return sale.result()


# ---- Settings -----------------------------------------------------------------------------------

def test_it_needs_the_number_of_replicas(redis, start):
    shop = start(redis, "--replicas-ack", "one", ready=False)
    assert shop.process.wait(30) == 2
    assert b"--replicas-ack needs --replicas: give how many replicas the Redis server has" in shop.log
    shop.end = lambda: None


def test_a_value_that_is_none_of_them(redis, start):
    shop = start(redis, "--replicas-ack", "two", ready=False)
    assert shop.process.wait(30) == 2 and b'"two" is not one of none|one|majority|all' in shop.log
    shop.end = lambda: None


@pytest.mark.parametrize("lock,write", WRITES)
def test_without_it_nothing_is_asked(redis, start, lock, write):
    shop = opened(redis, start, lock, write, "--replicas", 2)
    assert calls(redis, "wait") == 0 and "--replicas-ack none" in shop.logged("started")[0]["detail"]
    assert "--replicas 2 has no effect" in shop.logged("no-effect")[0]["detail"]


def test_the_log_says_who_must_confirm(redis, start):
    shop = start(redis, *ALL)
    assert "--replicas-ack all" in shop.logged("started")[0]["detail"] and shop.logged("no-effect") == []


@pytest.mark.parametrize("lock,write", WRITES)
def test_a_sale_asks_after_its_acquire_and_after_its_write(redis, start, replicas, lock, write):
    shop = opened(redis, start, lock, write)
    before = calls(redis, "wait")
    assert shop.sell().json["left"] == 3
    assert calls(redis, "wait") - before == (1 if lock in ("none", "local") else 2)


# ---- The acquire --------------------------------------------------------------------------------

def test_an_acquire_that_too_few_confirm(redis, start, replicas):
    shop = opened(redis, start, "watchdog", "decr", *ALL, "--wait-ms", 1500)
    freeze(replicas)
    reply = shop.sell()
    assert reply.problem in ("lock-unavailable", "lock-timeout") and reply.status == 503, reply
    assert redis("GET", STOCK) == "4"
    wait_until(lambda: redis("EXISTS", "lock:{phone}") == 0, "the lock is released")
    thaw(redis, replicas)
    assert shop.sell().json["left"] == 3


def test_the_sentence_reaches_the_buyer(redis, start, replicas):
    shop = opened(redis, start, "watchdog", "decr", *ALL, "--wait-ms", 1000)
    redis("ACL", "SETUSER", "default", "-wait")
    reply = shop.sell()
    assert reply.problem == "lock-unavailable" and "WAIT was answered: NOPERM" in reply.json["detail"]


def test_a_waiting_sale_goes_on_when_they_are_back(redis, start, replicas):
    shop = opened(redis, start, "watchdog", "decr")
    freeze(replicas)
    tries = calls(redis, "wait")
    sale = shop.in_background(shop.sell)
    wait_until(lambda: calls(redis, "wait") >= tries + 2, "it has tried twice")
    thaw(redis, replicas)
    assert sale.result().json["left"] == 3


# ---- The write ----------------------------------------------------------------------------------

@pytest.mark.parametrize("lock,write", WRITES)
def test_a_write_that_too_few_confirm(redis, start, replicas, lock, write, tmp_path):
    """It was carried out, and may be lost in a failover: nobody knows."""
    history = tmp_path / "h.jsonl"
    shop = opened(redis, start, lock, write, *ALL, *ON, "--history", history)
    reply = parked_write(shop, replicas, request="few")
    assert reply.status == 500 and reply.problem == "outcome-unknown", reply
    assert NONE_OF_2 in reply.json["detail"], reply
    assert redis("GET", STOCK) == "3"
    names = [event["event"] for event in events_of(history, "few")]
    assert names[-3:] == ["unknown", "exit", "release"] and "write" not in names
    thaw(redis, replicas)
    assert shop.sell().json["left"] == 2 and shop.metric("lock_abandoned_total") == 0


def test_while_replicas_are_gone_the_stock_is_not_eaten_up(redis, start, replicas):
    """A sale without a key costs a unit that no buyer gets. So the server counts as away until they confirm again."""
    shop = opened(redis, start, "local", "decr", *IMPATIENT)
    monitor = socket.create_connection(("127.0.0.1", redis.port), 30)
    monitor.sendall(b"MONITOR\r\n")
    freeze(replicas)
    wait_until(lambda: shop.sell().problem == "stock-unavailable", "the stock's server counts as away")
    left = redis("GET", STOCK)
    for reply in [shop.sell() for _ in range(5)]:
        assert reply.problem == "stock-unavailable", reply
        assert f"too few replicas of the stock's server confirm its writes (Redis: {NONE_OF_2})" in reply.json["detail"], reply
    assert redis("GET", STOCK) == left and shop.admin("GET", "/readyz").status == 503
    redis("ECHO", "it is over")
    seen = b""
    while b"it is over" not in seen:
        seen += monitor.recv(65536)
    monitor.close()
    waits = [int(ms) for ms in re.findall(rb'"WAIT" "2" "(\d+)"', seen)]
    assert len(waits) > 2 and min(waits) > 900, waits  # the check gives them as long as a sale does: half of 2000 ms
    thaw(redis, replicas)
    wait_until(lambda: shop.sell().status == 200, "it is back")
    assert b"redis-server-lost" in shop.log and b"0 of 2 replicas confirmed the write in time" in shop.log


def test_a_user_who_may_not_ask_them(redis, start, replicas):
    shop = opened(redis, start, "local", "decr", *ALL)
    try:
        redis("ACL", "SETUSER", "default", "resetkeys", "~inventory:{phone}*", "~inventory:{readyz}")
        detail = shop.admin("GET", "/readyz").json["detail"]
        assert "its user may not SET inventory:{readyz}:acks, by which replicas are asked" in detail, detail
    finally:
        redis("ACL", "SETUSER", "default", "allkeys")
    assert shop.admin("GET", "/readyz").status == 200


def test_one_of_two_is_a_majority_with_the_master(redis, start, replicas):
    shop = opened(redis, start, "watchdog", "decr", "--replicas-ack", "majority", "--replicas", 2)
    replicas[0].kill()
    assert shop.sell().json["left"] == 3
    replicas[0].start()
    wait_until(redis.is_confirmed, "the replicas are there again")
    assert shop.sell().json["left"] == 2


def test_replicas_that_are_cut_off(redis, start, replicas):
    """As before a failover that loses the sale: no answer says that it was sold."""
    shop = opened(redis, start, "none", "decr", "--replicas-ack", "one", "--replicas", 2)
    redis("ACL", "SETUSER", "default", "-psync", "-sync")
    redis("CLIENT", "KILL", "TYPE", "replica")
    wait_until(lambda: online(redis) == 0, "no replica is left")
    reply = shop.sell()
    assert reply.problem == "outcome-unknown" and "0 of 2 replicas confirmed the write in time; 1 must" in reply.json["detail"]
    redis("ACL", "SETUSER", "default", "+psync")  # without SYNC: a replica that joins by it never confirms
    wait_until(redis.is_confirmed, "the replicas are there again")
    assert shop.sell().json["left"] == 2


def test_a_refusal_needs_no_replica(redis, start, replicas):
    """Nothing was sold, so nothing can be lost."""
    shop = opened(redis, start, "none", "atomic")
    freeze(replicas)
    assert shop.sell(quantity=5).problem == "insufficient-stock"
    assert shop.stock().json["stock"] == 4 and shop.stock(value=0).status == 200
    assert shop.sell().problem == "sold-out"


# ---- With a key ---------------------------------------------------------------------------------

@keepers
def test_a_repetition_is_answered_once_its_own_write_is_confirmed(redis, start, replicas, lock, write):
    shop = opened(redis, start, lock, write, *ALL, *ON, "--wait-ms", 3000)
    assert parked_write(shop, replicas, key="k").problem == "outcome-unknown"
    assert redis("GET", STOCK) == "3" and redis("GET", RECORD).startswith("200 1 3 a ")
    assert shop.sell(key="k").status in (500, 503) and redis("GET", STOCK) == "3"
    wait_until(lambda: inventoryd_redis_up(shop)[1] == 0, "the stock's server counts as away")
    thaw(redis, replicas)
    wait_until(lambda: inventoryd_redis_up(shop)[1] == 1, "the server is looked at no more")
    writes, waits = calls(redis, "pexpire"), calls(redis, "wait")
    again = shop.sell(key="k")
    assert again.json == {"sold": 1, "left": 3, "unit": 4, "item": "phone", "instance": "a"}
    assert again.headers["idempotency-replayed"] == "true" and redis("GET", STOCK) == "3"
    assert calls(redis, "pexpire") > writes and calls(redis, "wait") == waits + 3  # the script is sent once more in full
    assert is_replay(shop.sell(key="k"), type(again)(again.status, [], again.body))


def test_a_repetition_that_too_few_confirm(redis, start, replicas):
    """It finds the record, and the replicas do not have what it writes. `local` asks no server."""
    shop = opened(redis, start, "local", "atomic")
    first = shop.sell(key="k")
    assert first.json["unit"] == 4
    freeze(replicas)
    reply = shop.sell(key="k")
    assert reply.problem == "outcome-unknown" and NONE_OF_2 in reply.json["detail"], reply
    other = start(redis, "--lock", "local", "--write", "atomic", *ALL, name="b")
    assert other.sell(key="k").problem == "outcome-unknown"
    thaw(redis, replicas)
    assert is_replay(shop.sell(key="k"), first) and is_replay(other.sell(key="k"), first)
    assert redis("GET", STOCK) == "3"


def test_a_confirmation_never_shortens_a_record(redis, start, replicas):
    """Instances may differ in --idempotency-ms; and somebody may have given the record no end."""
    shop = opened(redis, start, "local", "atomic", *ALL, "--idempotency-ms", 600000)
    first = shop.sell(key="k")
    brief = start(redis, "--lock", "local", "--write", "atomic", *ALL, "--idempotency-ms", 60000, name="b")
    assert is_replay(brief.sell(key="k"), first) and 300000 < redis("PTTL", RECORD) <= 600000
    redis("PEXPIRE", RECORD, 50000)
    assert is_replay(brief.sell(key="k"), first) and 50000 < redis("PTTL", RECORD) <= 60000
    redis("PERSIST", RECORD)
    writes = calls(redis, "set")
    assert is_replay(brief.sell(key="k"), first) and redis("PTTL", RECORD) == -1 and calls(redis, "set") == writes + 1


def test_a_key_that_is_used_for_another_sale(redis, start, replicas):
    shop = opened(redis, start, "local", "atomic")
    assert shop.sell(key="k").status == 200
    freeze(replicas)
    assert shop.sell(key="k", quantity=2).problem == "idempotency-key-reused"


def test_a_repetition_of_sold_out(redis, start, replicas):
    shop = opened(redis, start, "local", "atomic")
    shop.stock(value=0)
    freeze(replicas)
    first = shop.sell(key="k")
    assert first.problem == "sold-out" and is_replay(shop.sell(key="k"), first)


# ---- A lost reply -------------------------------------------------------------------------------

def whole_replies(data):
    """How many replies there are in the data, with those inside of arrays."""
    count = missing = 0
    while data:
        line, end, data = data.partition(b"\r\n")
        if not end:
            break
        size = int(line[1:]) if line[:1] in b"$*" else -1
        if line[:1] == b"$" and size >= 0:
            if len(data) < size + 2:
                break
            data = data[size + 2:]
        missing += (size if line[:1] == b"*" and size > 0 else 0)
        if missing and line[:1] != b"*":
            missing -= 1
        count += missing == 0
    return count


class Wire(LossyProxy):
    """A proxy for pipelined commands: WAIT's reply comes later than that of the write before it. `before_confirming` is
    called before the write that is sent only to be confirmed."""

    before_confirming = None

    def _carry(self, command, server):
        if self.before_confirming and b"INCRBY" in command:
            self.before_confirming()
        lose, self.lose = self.lose, None
        if lose is not None and lose not in command:
            self.lose, lose = lose, None
        server.sendall(command)
        reply = b""
        while whole_replies(reply) < 1 + command.count(b"\r\nWAIT\r\n"):
            piece = server.recv(65536)
            if not piece:
                return None
            reply += piece
        if lose is None:
            return reply
        self.lost += 1
        return None


@pytest.fixture
def wire(redis):
    between = Wire(redis)
    yield between
    between.end()


@pytest.mark.parametrize("lock,write,word", [("watchdog", "decr", b"DECR"), ("watchdog", "set", b"SET\r\n"),
                                             ("fair", "fenced", b"DECR")])
def test_a_lost_reply_is_no_confirmation(redis, start, replicas, wire, lock, write, word):
    """What was found to be written is confirmed by another write."""
    shop = start(redis, "--stock-redis", wire.url, "--lock", lock, "--write", write, *ALL, *ON)
    assert shop.stock(value=5).status == 200 and shop.sell().json["left"] == 4
    wire.lose, writes = word, calls(redis, "incrby")
    reply = shop.sell()
    assert wire.lost == 1 and reply.json["left"] == 3, reply
    assert calls(redis, "incrby") == writes + 1
    wire.lose = word
    reply = parked_write(shop, replicas)
    assert wire.lost == 2 and reply.problem == "outcome-unknown" and redis("GET", STOCK) == "2", reply


def test_a_server_without_the_write_confirms_nothing(redis, start, replicas, wire):
    """As a promoted replica that the write has not reached: the stock there is what it was before."""
    shop = start(redis, "--stock-redis", wire.url, "--lock", "watchdog", "--write", "decr", *ALL, *ON)
    assert shop.stock(value=5).status == 200 and shop.sell().json["left"] == 4
    wire.lose, wire.before_confirming = b"DECR", lambda: redis("SET", STOCK, 4)
    reply = shop.sell()
    assert wire.lost == 1 and reply.problem == "outcome-unknown" and "does not have the write" in reply.json["detail"], reply


@pytest.mark.parametrize("lock,write", KEEPERS)
def test_a_lost_reply_with_a_key(redis, start, replicas, wire, lock, write):
    shop = start(redis, "--stock-redis", wire.url, "--lock", lock, "--write", write, *ALL, *ON, "--wait-ms", 5000)
    assert shop.stock(value=5).status == 200 and shop.sell(key="first").json["left"] == 4
    wire.lose, writes = script_words(), calls(redis, "pexpire")
    reply = shop.sell(key="k")
    assert wire.lost == 1 and reply.json["unit"] == 4 and calls(redis, "pexpire") > writes, reply
    wire.lose = script_words()
    reply = parked_write(shop, replicas, key="l")
    assert wire.lost == 2 and reply.problem == "outcome-unknown" and NONE_OF_2 in reply.json["detail"], reply
    thaw(redis, replicas)
    again = shop.sell(key="l")
    assert again.json["unit"] == 3 and again.headers["idempotency-replayed"] == "true" and redis("GET", STOCK) == "2"


def test_wait_is_not_answered(redis, start, replicas):
    """The write's reply came; the connection ended while WAIT blocked it."""
    shop = opened(redis, start, "none", "decr", "--replicas-ack", "all", "--replicas", 2, "--redis-timeout-ms", 20000)
    freeze(replicas)
    sale = shop.in_background(shop.sell)
    wait_until(lambda: "blocked_clients:1" in redis("INFO", "clients"), "WAIT blocks")
    redis("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    reply = sale.result()
    assert reply.problem == "outcome-unknown" and "WAIT was not answered" in reply.json["detail"], reply
    assert redis("GET", STOCK) == "3"
