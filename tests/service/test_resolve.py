# SPDX-License-Identifier: Apache-2.0
"""Writes whose reply is lost: what the shop finds out, what it answers, and what a late write can still do."""
import socket

import pytest

from failpoints import arm, park
from world import PATIENCE_S, LossyProxy, Redis, read_history, wait_until

STOCK, LOCK = "inventory:{phone}", "lock:{phone}"
PUT = b":set\r\n"  # an operator's: set_stock.lua has this key
WORDS = {"decr": b"DECR", "set": b"SET\r\n", "fenced": b"DECR", "atomic": b"EVALSHA"}
FOR_EVER = ("--ttl-ms", 600000)


class LatePost(LossyProxy):
    """Cuts the client's end of a connection at the next command that holds the word `keep`, and keeps the command and the
    server's end: deliver() brings it, as a slow network would. `meanwhile` is called just before the cut. `drop`: such a
    command is never brought."""

    keep = drop = kept = meanwhile = None

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}"  # no database to select: the first word is CLIENT ID

    def _serve(self, client, number):
        server = socket.create_connection(("127.0.0.1", self.redis.port), PATIENCE_S)
        with client:
            while command := client.recv(65536):
                if self.keep and self.keep in command:
                    self.keep, self.kept = None, (command, server)
                    if self.meanwhile:
                        self.meanwhile()
                    return
                reply = None if self.drop and self.drop in command else self._carry(command, server)
                if reply is None:
                    self.drop = None
                    break
                client.sendall(reply)
        server.close()

    def deliver(self):
        """Redis' answer; nothing, if it has ended that connection."""
        command, server = self.kept
        try:
            server.sendall(command)
            return server.recv(65536)
        except OSError:
            return b""


@pytest.fixture
def post(redis):
    between = LatePost(redis)
    yield between
    between.end()


def opened(redis, start, post, lock, write, *flags):
    """A shop with 5 phones that has sold one, so that Redis knows its scripts."""
    shop = start(redis, "--stock-redis", post.url, "--lock", lock, "--write", write, *flags)
    assert shop.stock(value=5).status == 200 and shop.sell().json["left"] == 4
    return shop


def refuse_kills(redis):
    assert redis("ACL", "SETUSER", "default", "-client|kill") == "OK"


def sold_soon(shop):
    """A sale, once the shop has found the server again."""
    return wait_until(lambda: (reply := shop.sell()).status == 200 and reply, "a sale")


def events_of(history, request):
    return [event for event in read_history(history) if event.get("request") == request]


# ---- The connection is ended, and the stock is read ---------------------------------------------

WRITES = [("watchdog", "decr"), ("watchdog", "set"), ("fair", "decr"), ("fair", "set"), ("fair", "fenced")]


@pytest.mark.parametrize("lock,write", WRITES)
def test_a_write_that_was_carried_out_is_a_sale(redis, start, post, lock, write, tmp_path):
    history = tmp_path / "h.jsonl"
    shop = opened(redis, start, post, lock, write, "--history", history)
    post.lose = WORDS[write]
    reply = shop.sell(request="lost")
    assert reply.status == 200 and reply.json["unit"] == 4 and reply.json["left"] == 3 and post.lost == 1
    assert redis("GET", STOCK) == "3" and shop.sell().json["unit"] == 3
    assert [event["event"] for event in events_of(history, "lost")][-3:] == ["write", "exit", "release"]
    assert shop.metric('inventory_sales_total{outcome="outcome_unknown"}') == 0


@pytest.mark.parametrize("lock,write", WRITES)
def test_a_write_that_never_came_is_none(redis, start, post, lock, write):
    shop = opened(redis, start, post, lock, write)
    post.drop = WORDS[write]
    reply = shop.sell()
    assert reply.status == 503 and reply.problem == "stock-unavailable" and "retry-after" in reply.headers
    assert redis("GET", STOCK) == "4" and shop.sell().json["unit"] == 4


@pytest.mark.parametrize("lock,write", WRITES)
def test_a_late_write_does_not_come_any_more(redis, start, post, lock, write):
    """It was on its way when the connection was ended: the next sale's unit stays sold."""
    shop = opened(redis, start, post, lock, write)
    post.keep = WORDS[write]
    assert shop.sell().problem == "stock-unavailable"
    assert shop.sell().json["unit"] == 4
    assert post.deliver() == b""
    assert redis("GET", STOCK) == "3" and shop.sell().json["unit"] == 3


@pytest.mark.parametrize("segments", [1, 4])
@pytest.mark.parametrize("lost", ["reply", "late"])
def test_the_units_of_a_refused_sale_do_not_come_back_late(redis, start, post, segments, lost):
    """The DECR went below zero, and the reply to the INCRBY after it is lost."""
    shop = opened(redis, start, post, "watchdog", "decr", "--enable-failpoints", "--segments", segments, *FOR_EVER)
    key = STOCK if segments == 1 else f"{STOCK}:segment:2"
    assert shop.stock(value=8).status == 200
    sale = park(shop, "sale.before_write", shop.sell)
    redis("SET", key, 0)
    setattr(post, {"reply": "lose", "late": "keep"}[lost], b"INCRBY")
    arm(shop, "sale.before_write", "off")
    assert sale.result().problem == "stock-invalid"
    assert shop.metric("lock_abandoned_total") == 0 and not redis("KEYS", "lock:*")
    assert redis("GET", key) == {"reply": "0", "late": "-1"}[lost]
    assert bool(shop.logged("stock")) == (lost == "late")  # it says that units are missing
    if lost == "late":
        assert post.deliver() == b"" and redis("GET", key) == "-1"


@pytest.mark.parametrize("lock", ["watchdog", "fair"])
def test_a_restock(redis, start, post, lock):
    shop = opened(redis, start, post, lock, "decr")
    post.lose = PUT
    assert shop.stock(value=100).status == 200 and post.lost == 1 and redis("GET", STOCK) == "100"
    post.keep = PUT
    assert shop.stock(value=7).problem == "stock-unavailable"
    assert shop.sell().json["unit"] == 100
    assert post.deliver() == b"" and redis("GET", STOCK) == "99"


@pytest.mark.parametrize("lock", ["watchdog", "fair"])
def test_with_atomic_a_restock_is_ended_and_not_found_out(redis, start, post, lock):
    """The stock tells nothing: a late sale may have written beside the lock. But the restock does not come late."""
    shop = opened(redis, start, post, lock, "atomic", *FOR_EVER)
    post.lose = PUT
    assert shop.stock(value=100).problem == "outcome-unknown" and post.lost == 1 and redis("GET", STOCK) == "100"
    post.keep = PUT
    assert shop.stock(value=7).problem == "outcome-unknown"
    assert shop.sell().json["unit"] == 100 and shop.metric("lock_abandoned_total") == 0
    assert post.deliver() == b"" and redis("GET", STOCK) == "99"


@pytest.mark.parametrize("word,add,left", [(PUT, None, "99"), (b"INCRBY", 1, "4")])
def test_a_late_sale_does_not_hide_a_restock(redis, start, post, word, add, left, tmp_path):
    """It comes between the restock and the look at the stock, which then holds what it would without the restock."""
    history = tmp_path / "h.jsonl"
    shop = opened(redis, start, post, "watchdog", "atomic", "--history", history)
    refuse_kills(redis)
    post.keep = WORDS["atomic"]
    assert shop.sell().problem == "outcome-unknown"
    assert redis("ACL", "SETUSER", "default", "+client|kill") == "OK"
    carry, late = post._carry, []

    def come_late(command, server):
        if word not in command or late:
            return carry(command, server)
        carry(command, server)
        late.append(post.deliver())
        return None

    post._carry = come_late
    reply = shop.restock(add) if add else shop.stock(value=100)
    assert late[0].startswith(b":") and redis("GET", STOCK) == left
    assert reply.status == 500 and reply.problem == "outcome-unknown" and "retry-after" not in reply.headers
    told = [event["event"] for event in read_history(history) if event["event"].startswith("restock")]
    assert told[-2:] == ["restock_intent", "restock_unknown"]


@pytest.mark.parametrize("lock,write", [("watchdog", "decr"), ("fair", "fenced")])
@pytest.mark.parametrize("there", [None, "a list", "no number", 4])
def test_a_restock_that_never_came_wrote_nothing(redis, start, post, lock, write, there):
    """Whatever the key holds, and where it is not there."""
    shop = opened(redis, start, post, lock, write)
    redis("DEL", STOCK)
    if there == "a list":
        redis("LPUSH", STOCK, "x")
    elif there:
        redis("SET", STOCK, there)
    post.drop = PUT
    reply = shop.stock(value=100)
    assert reply.status == 503 and reply.problem == "stock-unavailable" and "retry-after" in reply.headers
    assert "carried out" in reply.json["detail"]
    assert redis("TYPE", STOCK) == {None: "none", "a list": "list"}.get(there, "string")
    assert shop.stock(value=100).status == 200 and redis("GET", STOCK) == "100"


@pytest.mark.parametrize("lock,write", [("watchdog", "decr"), ("fair", "fenced")])
def test_units_that_are_added(redis, start, post, lock, write):
    shop = opened(redis, start, post, lock, write)
    post.lose = b"INCRBY"
    reply = shop.restock(10)
    assert reply.status == 200 and reply.json["stock"] == 14 and post.lost == 1 and redis("GET", STOCK) == "14"
    post.keep = b"INCRBY"
    assert shop.restock(10).problem == "stock-unavailable"
    assert shop.sell().json["unit"] == 14
    assert post.deliver() == b"" and redis("GET", STOCK) == "13"


def test_a_restock_is_recorded_ahead_of_its_write(redis, start, post, tmp_path):
    """Its intent, and what became of it; of a killed instance the intent alone."""
    history = tmp_path / "h.jsonl"
    shop = opened(redis, start, post, "watchdog", "decr", "--history", history, "--ttl-ms", 1000)

    def latest():
        events = [event for event in read_history(history) if event["event"].startswith("restock")]
        at = max(i for i, event in enumerate(events) if event["event"] == "restock_intent")
        return [(event["event"], event.get("add"), event.get("set")) for event in events[at:]]

    post.lose = b"INCRBY"
    assert shop.restock(10).status == 200
    assert latest() == [("restock_intent", 10, None), ("restock", None, None)]
    post.keep = b"INCRBY"
    assert shop.restock(11).problem == "stock-unavailable"
    assert latest() == [("restock_intent", 11, None), ("restock_failed", None, None)]
    refuse_kills(redis)
    post.keep = PUT
    assert shop.stock(value=7).problem == "outcome-unknown"
    assert latest() == [("restock_intent", None, 7), ("restock_unknown", None, None)]
    wait_until(lambda: not redis("EXISTS", LOCK), "the lock has expired")
    post.keep, post.meanwhile = b"INCRBY", shop.process.kill
    with pytest.raises(OSError):
        shop.restock(3)
    shop.kill()  # waits for its end, too
    assert latest() == [("restock_intent", 3, None)] and post.deliver() == b":17\r\n"


# ---- A reply that cannot be read ---------------------------------------------------------------------

STATUS, INTEGER, NIL = "a status", "an integer", "nil"
STRANGE = {
    STATUS: b"+OK\r\n", "another status": b"+QUEUED\r\n", INTEGER: b":3\r\n", "nothing at all": b"*0\r\n", NIL: b"$-1\r\n",
    "the largest number": b":9223372036854775807\r\n", "the smallest": b":-9223372036854775808\r\n",
    "one beyond a double": b":9007199254740992\r\n", "a string": b"$1\r\n3\r\n", "an empty string": b"$0\r\n\r\n",
    "a string with a NUL": b"$3\r\n3\0x\r\n", "another protocol": b"HTTP/1.1 400\r\n\r\n",
    "one word": b"*1\r\n$4\r\nmade\r\n", "one number": b"*1\r\n:7\r\n", "one nil": b"*1\r\n$-1\r\n",
    "too few that were enough": b"*1\r\n$1\r\n9\r\n", "two nils": b"*2\r\n$-1\r\n$-1\r\n", "two numbers": b"*2\r\n:1\r\n:2\r\n",
    "made of a number": b"*2\r\n$4\r\nmade\r\n:3\r\n", "made of nothing": b"*2\r\n$4\r\nmade\r\n$0\r\n\r\n",
    "another's sale": b"*2\r\n$4\r\nmade\r\n$9\r\n200 1 3 b\r\n", "few of nil": b"*2\r\n$3\r\nfew\r\n$-1\r\n",
    "few that are enough": b"*2\r\n$3\r\nfew\r\n$1\r\n9\r\n", "kept of an array": b"*2\r\n$4\r\nkept\r\n*0\r\n",
    "arrays": b"*2\r\n*1\r\n:1\r\n*0\r\n", "three words": b"*3\r\n$4\r\nkept\r\n$0\r\n\r\n$0\r\n\r\n"}


def strange(*but):
    """Each kind of reply but those that the command may have."""
    assert not set(but) - set(STRANGE)
    return [(kind, reply) for kind, reply in STRANGE.items() if kind not in but]


@pytest.mark.parametrize("lock,write", WRITES)
def test_a_write_whose_reply_cannot_be_read_is_found_out(redis, start, post, lock, write):
    """It was carried out: what it was answered tells nothing of that."""
    shop = opened(redis, start, post, lock, write)
    for kind, post.instead in strange(STATUS if write == "set" else INTEGER):
        assert shop.stock(value=5).status == 200
        post.lose = WORDS[write]
        reply = shop.sell()
        assert (reply.status, post.lose) == (200, None) and reply.json["left"] == 4, (kind, reply)
        assert redis("GET", STOCK) == "4", kind


def test_with_atomic_the_reply_alone_told(redis, start, post):
    shop = opened(redis, start, post, "watchdog", "atomic")
    for kind, post.instead in strange(INTEGER, NIL, "one word"):  # as it says that the stock holds one
        assert shop.stock(value=5).status == 200
        post.lose = WORDS["atomic"]
        assert shop.sell().problem == "outcome-unknown" and redis("GET", STOCK) == "4", kind


def test_a_restock_whose_reply_cannot_be_read_is_found_out(redis, start, post):
    shop = opened(redis, start, post, "fair", "fenced")
    for kind, post.instead in strange("a string", "an empty string", "a string with a NUL", NIL):
        post.lose = PUT
        assert (shop.stock(value=5).status, post.lose, redis("GET", STOCK)) == (200, None, "5"), kind
    for kind, post.instead in strange(INTEGER):
        assert shop.stock(value=5).status == 200
        post.lose = b"INCRBY"
        reply = shop.restock(2)
        assert (reply.status, post.lose) == (200, None) and reply.json["stock"] == 7, (kind, reply)


def test_a_stock_that_cannot_be_read_sells_nothing(redis, start, post):
    shop = opened(redis, start, post, "watchdog", "decr")
    for kind, post.instead in strange("a string", NIL, "another protocol"):
        post.lose = b"GET\r\n"
        assert shop.sell().problem == "stock-invalid" and redis("GET", STOCK) == "4", kind


def test_a_connection_that_is_ended_in_no_known_words_is_not(redis, start, post):
    """The write may still come: the lock is left to expire."""
    shop = opened(redis, start, post, "watchdog", "decr", "--ttl-ms", 1000)
    for count, kind in enumerate((STATUS, "a string", "nothing at all", "the largest number"), 1):
        carry, reply = post._carry, STRANGE[kind]

        def lie(command, server):
            return reply if b"KILL" in command else carry(command, server)

        post.keep, post._carry = b"DECR", lie
        assert shop.sell().problem == "outcome-unknown", kind
        assert shop.metric("lock_abandoned_total") == count, kind
        post._carry = carry
        wait_until(lambda: not redis("EXISTS", LOCK), "the lock has expired")
        post.kept[1].close()


# ---- What else may happen meanwhile -------------------------------------------------------------------

def test_another_process_answers_meanwhile(start, redis, post, tmp_path):
    """The numbers of its connections begin anew: no innocent's is ended. Nor is its stock believed: it may be a replica
    that lags, or may have forgotten the lock."""
    locks = Redis(tmp_path / "locks")
    shop = opened(locks, start, post, "watchdog", "decr")
    innocents = []

    def restart():
        redis.restart()
        redis("SET", STOCK, 4)
        innocents.extend(socket.create_connection(("127.0.0.1", redis.port), PATIENCE_S) for _ in range(50))

    post.keep, post.meanwhile = b"DECR", restart
    assert shop.sell().problem == "outcome-unknown" and len(innocents) == 50
    for innocent in innocents:
        innocent.sendall(b"PING\r\n")
        assert innocent.recv(64) == b"+PONG\r\n"
        innocent.close()
    assert shop.metric("lock_abandoned_total") == 1
    shop.end()
    locks.kill()


def test_a_lock_that_was_forgotten_proves_nothing(redis, start, post, tmp_path):
    """Somebody else had it, and sold the very unit: the stock looks as if the write had been carried out."""
    locks = Redis(tmp_path / "locks")
    shop = opened(locks, start, post, "watchdog", "decr", *FOR_EVER)
    other = start(locks, "--stock-redis", redis.url, name="b")

    def forget():
        locks("FLUSHALL")
        assert other.sell().json["unit"] == 4

    post.keep, post.meanwhile = b"DECR", forget
    assert shop.sell().problem == "outcome-unknown"
    assert redis("GET", STOCK) == "3" and post.deliver() == b""
    shop.end()
    other.kill()
    locks.kill()


@pytest.mark.parametrize("lock,write", WRITES)
def test_whether_the_lock_is_still_its_own_is_asked_again(redis, start, post, lock, write):
    locks = LossyProxy(redis)
    shop = start(redis, "--lock-redis", locks.url, "--stock-redis", post.url, "--lock", lock, "--write", write)
    assert shop.stock(value=5).status == 200 and shop.sell().json["left"] == 4

    def lose():
        locks.lose = b"EVALSHA"

    post.keep, post.meanwhile = WORDS[write], lose
    reply = shop.sell()
    assert reply.problem == "stock-unavailable" and locks.lost == 1, reply
    assert shop.sell().json["unit"] == 4
    shop.end()
    locks.end()


def test_a_server_that_is_busy_is_asked_again(redis, start, post):
    """While a script runs, Redis refuses to tell a new connection its number: that is no answer, and it is asked again."""
    redis("CONFIG", "SET", "busy-reply-threshold", 1)
    shop = opened(redis, start, post, "watchdog", "decr", "--redis-timeout-ms", 20000)
    script = socket.create_connection(("127.0.0.1", redis.port), PATIENCE_S)

    def keep_busy():
        script.sendall(b"EVAL \"for i = 1, 1e8 do end\" 0\r\n")
        wait_until(lambda: "BUSY" in str(redis("PING")), "the server is busy")

    post.keep, post.meanwhile = b"DECR", keep_busy
    assert shop.sell().problem == "stock-unavailable"
    assert shop.metric("lock_abandoned_total") == 0 and sold_soon(shop).json["unit"] == 4
    script.close()


# ---- It can't be found out ----------------------------------------------------------------------


@pytest.mark.parametrize("lock,write", [("watchdog", "decr"), ("fair", "set")])
def test_the_lock_is_left_to_expire(redis, start, post, lock, write, tmp_path):
    """A server that refuses to end connections: nobody else has the lock while it lives."""
    history = tmp_path / "h.jsonl"
    shop = opened(redis, start, post, lock, write, "--history", history, *FOR_EVER, "--wait-ms", 500)
    refuse_kills(redis)
    post.keep = WORDS[write]
    reply = shop.sell(request="lost")
    assert reply.status == 500 and reply.problem == "outcome-unknown" and "retry-after" not in reply.headers
    assert shop.sell().problem == "lock-timeout" and redis("PTTL", LOCK) > 0
    assert shop.metric("lock_abandoned_total") == 1 and shop.logged("abandoned")
    assert [event["event"] for event in events_of(history, "lost")][-3:] == ["unknown", "exit", "release"]
    assert events_of(history, "lost")[-1]["status"] == "ABANDONED"
    assert post.deliver() != b"" and redis("GET", STOCK) == "3"


def test_it_is_had_again_when_it_has_expired(redis, start, post):
    shop = opened(redis, start, post, "watchdog", "decr", "--ttl-ms", 1000)
    refuse_kills(redis)
    post.keep = b"DECR"
    assert shop.sell().problem == "outcome-unknown"
    assert post.deliver() == b":3\r\n"
    assert shop.sell().json["unit"] == 3


@pytest.mark.parametrize("lock,write,late", [("watchdog", "atomic", b":2"), ("fair", "fenced", b"-STALE")])
def test_a_stock_that_looks_for_itself_needs_no_lock(redis, start, post, lock, write, late):
    """What comes late finds an older token, or sells what there is then."""
    shop = opened(redis, start, post, lock, write, *FOR_EVER)
    refuse_kills(redis)
    post.keep = WORDS[write]
    assert shop.sell().problem == "outcome-unknown"
    assert shop.metric("lock_abandoned_total") == 0
    assert shop.sell().json["unit"] == 4
    assert post.deliver().startswith(late)


def test_it_says_why_nobody_knows(redis, start, post):
    """Not what shutting the write out went through: the stock is asked by scripts that Redis does not know yet."""
    shop = start(post.url, "--lock", "fenced")  # one Redis for both: the newest token is there
    assert shop.stock(value=5).status == 200 and shop.sell().json["left"] == 4
    refuse_kills(redis)
    post.keep = b"DECR"
    reply = shop.sell()
    assert reply.problem == "outcome-unknown" and "refuses CLIENT ID, INFO or CLIENT KILL" in reply.json["detail"]
    assert shop.metric("lock_abandoned_total") == 0 and post.deliver().startswith(b"-STALE")


def test_a_restock_is_no_sale_that_looks_for_itself(redis, start, post):
    shop = opened(redis, start, post, "watchdog", "atomic", *FOR_EVER, "--wait-ms", 500)
    refuse_kills(redis)
    post.keep = PUT
    assert shop.stock(value=100).problem == "outcome-unknown"
    assert shop.sell().problem == "lock-timeout" and shop.metric("lock_abandoned_total") == 1


def test_the_stock_is_away(redis, start, post, tmp_path):
    """The lock's server is well. It ends in its time, and the instance ends in order."""
    other = Redis(tmp_path / "other")
    shop = start(other, "--stock-redis", post.url, "--redis-timeout-ms", 200, *FOR_EVER)
    assert shop.stock(value=5).status == 200
    post.keep, post.meanwhile = b"DECR", redis.freeze
    assert shop.sell().problem == "outcome-unknown"
    assert other("PTTL", LOCK) > 0 and shop.metric("lock_abandoned_total") == 1
    redis.thaw()
    shop.end()
    other.kill()


def test_a_flawed_lock_is_released_all_the_same(redis, start, post):
    """Others may have written meanwhile: what the stock holds tells nothing."""
    shop = opened(redis, start, post, "setnx", "decr")
    post.lose = b"DECR"
    assert shop.sell().problem == "outcome-unknown" and redis("EXISTS", LOCK) == 0
    assert shop.metric("lock_abandoned_total") == 0 and shop.sell().json["unit"] == 3


# ---- A reply too many --------------------------------------------------------------------------------


@pytest.mark.parametrize("write,word", [("decr", b"GET\r\n"), ("decr", b"DECR"), ("set", b"GET\r\n"), ("set", b"SET\r\n"),
                                        ("atomic", b"EVALSHA")])
def test_a_reply_that_comes_twice_answers_no_other_command(redis, start, proxy, write, word):
    shop = start(redis, "--stock-redis", proxy.url, "--lock", "watchdog", "--write", write, "--workers", 1)
    assert shop.stock(value=10).status == 200 and shop.sell().json["unit"] == 10
    carry, doubled = proxy._carry, []

    def double(command, server):
        reply = carry(command, server)
        if word in command and not doubled:
            doubled.append(reply)
            return reply * 2
        return reply

    proxy._carry = double
    first, *others = [shop.sell() for _ in range(4)]
    assert len(doubled) == 1 and [reply.status for reply in others] == [200] * 3
    if b"GET" in word:  # nothing that came with it is believed
        assert first.problem == "stock-unavailable"
    elif write != "atomic":  # whether it wrote was found out
        assert first.json["unit"] == 9
    else:
        assert first.problem == "outcome-unknown"
    left = 9 if b"GET" in word else 8
    assert [reply.json["unit"] for reply in others] == [left, left - 1, left - 2]
    assert redis("GET", STOCK) == str(left - 3) == str(shop.stock().json["stock"])
    assert shop.sell("none").problem == "unknown-item"


def test_a_reply_too_many_while_a_connection_is_set_up(redis, start, proxy):
    """It would be taken for what the connection is told next."""
    carry = proxy._carry
    proxy._carry = lambda command, server: carry(command, server) * (2 if b"SELECT" in command else 1)
    shop = start(redis, "--stock-redis", proxy.url, "--lock", "none", "--wait-ms", 500, "--fail-fast-ms", 600000)
    redis("SET", STOCK, 5)
    reply = shop.sell()
    assert reply.problem == "stock-unavailable" and "more replies than it got requests" in reply.json["detail"] and redis("GET", STOCK) == "5"
    proxy._carry = carry
    assert sold_soon(shop).json["unit"] == 5
