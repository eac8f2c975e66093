# SPDX-License-Identifier: Apache-2.0
"""Sales that are accepted into their item's queue, and processed: --on-conflict queue."""
import os
import pathlib
import subprocess

import lua_scripts
import pytest

from failpoints import arm, paused
from queue_shop import LISTED, STOCK, STREAM, accepted, buy, is_empty, keepers, length, opened, outcome
from world import Background, LossyProxy, Redis, check_history, hold_lock, read_history, release_lock, wait_until

LUA = pathlib.Path(__file__).resolve().parents[2] / "service" / "lua"
RECORD = STOCK + ":key:k"


@keepers
def test_a_sale_is_accepted_and_sold(redis, start, lock, write):
    shop = opened(redis, start, lock, write)
    location = buy(shop, quantity=2)
    reply = outcome(shop, location)
    assert reply.status == 200 and "idempotency-replayed" not in reply.headers, reply
    assert reply.json == {"sold": 2, "left": 3, "unit": 4, "item": "phone", "instance": "a"}
    assert redis("GET", STOCK) == "3" and is_empty(redis)
    again = outcome(shop, location, 0)
    assert (again.status, again.body) == (reply.status, reply.body)


@keepers
def test_a_repeated_key_is_one_sale(redis, start, lock, write):
    shop = opened(redis, start, lock, write, "--failpoints", "queue.taken=pause")
    location = buy(shop, key="k")
    assert buy(shop, key="k") == location
    assert shop.sell(key="k", quantity=2).problem == "idempotency-key-reused"
    assert outcome(shop, location, 0).status == 202
    shop.admin("PUT", "/failpoints", '{"point":"queue.taken","action":"off"}')
    first = outcome(shop, location)
    replay = shop.sell(key="k")
    assert (replay.status, replay.body) == (200, first.body) and replay.headers["idempotency-replayed"] == "true"
    assert redis("GET", STOCK) == "4" and is_empty(redis)


@keepers
def test_refusals_are_outcomes(redis, start, lock, write):
    shop = opened(redis, start, lock, write, stock=2)
    assert outcome(shop, buy(shop, quantity=3)).problem == "insufficient-stock"
    assert outcome(shop, buy(shop, quantity=2)).status == 200
    location = buy(shop, key="k")
    reply = outcome(shop, location)
    assert reply.problem == "sold-out" and reply.json["left"] == 0
    replay = shop.sell(key="k")
    assert replay.body == reply.body and replay.headers["idempotency-replayed"] == "true"
    assert shop.sell(item="nothing").problem == "unknown-item"
    assert is_empty(redis)


# ---- The question for the outcome ---------------------------------------------------------------


@pytest.mark.parametrize("path,status,problem", [
    ("/sales/phone", 400, "invalid-sale-id"), ("/sales/phone.12", 400, "invalid-sale-id"),
    ("/sales/Phone." + 32 * "0", 400, "invalid-sale-id"), ("/sales/phone." + 32 * "A", 400, "invalid-sale-id"),
    ("/sales/phone." + 33 * "0", 400, "invalid-sale-id"), ("/sales/" + 65 * "p" + "." + 32 * "0", 400, "invalid-sale-id"),
    ("/sales/phone." + 32 * "0", 404, "unknown-sale"), ("/sales/" + 64 * "p" + "." + 32 * "0", 404, "unknown-sale"),
    ("/sales/phone." + 32 * "0" + "?wait=61", 400, "invalid-query"),
    ("/sales/phone." + 32 * "0" + "?wait=", 400, "invalid-query"),
    ("/sales/phone." + 32 * "0" + "?quantity=1", 400, "invalid-query"),
    ("/sales/phone." + 32 * "0" + "?wait=1&wait=1", 400, "invalid-query")])
def test_ids_and_parameters(shop, path, status, problem):
    reply = shop.ask("GET", path)
    assert (reply.status, reply.problem) == (status, problem)


def test_a_sale_takes_no_wait(shop):
    assert shop.ask("POST", "/inventory/phone/sale?wait=1").problem == "invalid-query"
    assert shop.ask("POST", "/sales/phone." + 32 * "0").problem == "method-not-allowed"


def test_who_waits_keeps_no_thread(redis, start):
    """More wait than there are threads for reads; the shop still answers reads, and all get the outcome."""
    shop = opened(redis, start, "watchdog", "atomic", "--failpoints", "queue.taken=pause")
    location = buy(shop)
    waiting = [Background(outcome, shop, location, 60) for _ in range(20)]
    wait_until(lambda: shop.clients() >= 20, "they wait")
    assert shop.stock().status == 200 and outcome(shop, location, 0).status == 202
    arm(shop, "queue.taken", "off")
    assert {reply.result().body for reply in waiting} == {outcome(shop, location).body}


def test_who_waits_is_answered_at_the_end_and_at_a_drain(redis, start):
    shop = opened(redis, start, "watchdog", "atomic", "--failpoints", "queue.taken=pause")
    location = buy(shop)
    assert accepted(outcome(shop, location, 1)) == location
    wait_until(lambda: paused(shop, "queue.taken") == 1, "it is taken")
    waiting = Background(outcome, shop, location, 60)
    wait_until(lambda: shop.clients() >= 1, "it waits")
    shop.end()
    assert waiting.result().status in (200, 202)


def test_outcomes_expire(redis, start):
    shop = opened(redis, start, "watchdog", "atomic", "--wait-ms", 100, "--idempotency-ms", 2000)
    location = buy(shop, key="k")
    assert outcome(shop, location).status == 200
    wait_until(lambda: outcome(shop, location, 0).status == 404, "it expires")
    assert [key for key in redis("KEYS", "*phone*:key:*") + redis("KEYS", "*:id:*")] == []
    assert outcome(shop, buy(shop, key="k")).json["unit"] == 4


# ---- Limits -------------------------------------------------------------------------------------


def test_a_full_queue_refuses(redis, start):
    shop = opened(redis, start, "watchdog", "atomic", "--queue-max", 2, "--failpoints", "queue.taken=pause")
    locations = [buy(shop, key=key) for key in "ab"]
    assert shop.sell(key="c").problem == "queue-full" and length(redis) == 2
    assert buy(shop, key="a") == locations[0]  # it is in the queue already
    assert redis("KEYS", "*:key:c") == []
    arm(shop, "queue.taken", "off")
    assert [outcome(shop, location).status for location in locations] == [200, 200]
    assert outcome(shop, buy(shop, key="c")).status == 200


def test_what_is_not_admitted_is_not_accepted(redis, start):
    """Who repeats a key needs no token, and neither does the worker."""
    shop = opened(redis, start, "watchdog", "atomic", "--admit", "1,2", "--failpoints", "queue.taken=pause")
    locations = [buy(shop, key=key) for key in "ab"]
    redis("SET", STOCK + ":bucket", "0 9007199254740000")  # it is empty, whatever the time is
    assert shop.sell(key="c").problem == "too-many-requests" and length(redis) == 2
    assert buy(shop, key="a") == locations[0]
    arm(shop, "queue.taken", "off")
    assert [outcome(shop, location).status for location in locations] == [200, 200]


@keepers
def test_a_life_that_is_over_is_a_deadline(redis, start, lock, write):
    """Nobody gets the lock; no lock is needed to say so. The next entry is not held up."""
    shop = opened(redis, start, lock, write, "--queue-life-ms", 300, "--wait-ms", 100)
    hold_lock(redis, rung="owner_lua")  # neither of the two takes its key
    locations = [buy(shop, key=key) for key in "ab"]
    for location in locations:
        reply = outcome(shop, location)
        assert reply.problem == "deadline" and "--queue-life-ms" in reply.json["detail"]
    replay = shop.sell(key="a")
    assert replay.problem == "deadline" and replay.headers["idempotency-replayed"] == "true"
    assert redis("GET", STOCK) == "5" and is_empty(redis)


def test_a_life_that_is_over_while_it_is_worked_at(redis, start):
    """The script that sells looks once more."""
    shop = opened(redis, start, "watchdog", "atomic", "--queue-life-ms", 1500, "--failpoints", "sale.before_write=pause")
    location = buy(shop)
    wait_until(lambda: paused(shop, "sale.before_write") == 1, "it is worked at")
    wait_until(lambda: redis("EVAL", "local t = redis.call('TIME') return t[1] * 1000 + t[2] / 1000 - ARGV[1]", 0,
                             redis("XRANGE", STREAM, "-", "+")[0][0].split("-")[0]) > 1500, "its life is over")
    arm(shop, "sale.before_write", "off")
    assert outcome(shop, location).problem == "deadline" and redis("GET", STOCK) == "5"


def test_what_passes_leaves_it_queued(redis, start, tmp_path):
    """The lock is not to be had, and the stock is no number, for a while."""
    shop = opened(redis, start, "watchdog", "atomic", "--wait-ms", 100, "--history", tmp_path / "h.jsonl")
    hold_lock(redis)
    location = buy(shop)
    wait_until(lambda: shop.metric("inventory_queue_requeued_total") >= 2, "it is tried again")
    redis("SET", STOCK, "nine")
    release_lock(redis)
    wait_until(lambda: "stock-error" in reasons(tmp_path), "it was tried with that stock")
    redis("SET", STOCK, 7)
    assert outcome(shop, location).json["unit"] == 7
    shop.end()
    check_history(read_history(tmp_path / "h.jsonl"))
    assert set(reasons(tmp_path)) >= {"lock-timeout", "stock-error"}


def reasons(folder):
    return [event["reason"] for event in read_history(folder / "h.jsonl") if event["event"] == "requeued"]


def test_an_item_that_is_gone_is_unknown(redis, start):
    shop = opened(redis, start, "watchdog", "atomic", "--failpoints", "queue.taken=pause")
    location = buy(shop)
    redis("DEL", STOCK)
    arm(shop, "queue.taken", "off")
    assert outcome(shop, location).problem == "unknown-item" and is_empty(redis)


# ---- Other things in its keys -------------------------------------------------------------------


@pytest.mark.parametrize("key", [STREAM, RECORD, STOCK, LISTED])
def test_a_key_of_another_type_accepts_nothing(redis, start, key):
    shop = opened(redis, start, "watchdog", "atomic")
    redis("DEL", key)
    redis("SADD", key, "x")
    reply = shop.sell(key="k")
    assert reply.problem == "stock-invalid" and key in reply.json["detail"], reply
    assert redis("TYPE", key) == "set" and not redis("EXISTS", STREAM) - (key == STREAM)
    redis("DEL", key)
    redis("SET", STOCK, 5)
    assert outcome(shop, buy(shop, key="k")).status == 200


@pytest.mark.parametrize("key", [STREAM, RECORD, "the pointer"])
def test_a_key_that_becomes_another_type_sells_nothing(redis, start, key):
    shop = opened(redis, start, "watchdog", "atomic", "--failpoints", "sale.before_write=pause")
    location = buy(shop, key="k")
    wait_until(lambda: paused(shop, "sale.before_write") == 1, "it is worked at")
    key = f"{STOCK}:id:{location[-32:]}" if key == "the pointer" else key
    redis("RENAME", key, "aside")
    redis("SADD", key, "x")
    arm(shop, "sale.before_write", "off")
    wait_until(lambda: shop.metric("inventory_queue_requeued_total") >= 1, "it was tried")
    assert redis("GET", STOCK) == "5"
    redis("RENAME", "aside", key)
    assert outcome(shop, location).json["unit"] == 5


def test_an_entry_that_is_not_the_shops_stops_its_item(redis, start):
    shop = opened(redis, start, "watchdog", "atomic")
    strange = redis("XADD", STREAM, "*", "a", "b")
    location = buy(shop)
    wait_until(lambda: shop.logged("queue"), "it says so")
    assert "XRANGE" in shop.logged("queue")[0]["detail"] and outcome(shop, location, 0).status == 202
    redis("XDEL", STREAM, strange)
    assert outcome(shop, location).status == 200


def test_an_entry_that_was_deleted_is_no_sale(redis, start):
    """Its key is free again."""
    shop = opened(redis, start, "watchdog", "atomic", "--failpoints", "queue.taken=pause")
    location = buy(shop, key="k")
    wait_until(lambda: paused(shop, "queue.taken") == 1, "it is taken")
    redis("DEL", STREAM)
    assert outcome(shop, location, 0).problem == "unknown-sale"
    again = buy(shop, key="k")
    arm(shop, "queue.taken", "off")
    assert outcome(shop, again).json["unit"] == 5 and redis("GET", STOCK) == "4"


def test_an_entry_that_was_acknowledged_and_not_deleted_is_sold(redis, start):
    shop = opened(redis, start, "watchdog", "atomic", "--failpoints", "queue.taken=1*pause")
    location = buy(shop)
    wait_until(lambda: paused(shop, "queue.taken") == 1, "it is taken")
    redis("XACK", STREAM, "workers", redis("XRANGE", STREAM, "-", "+")[0][0])
    arm(shop, "queue.taken", "off")
    assert outcome(shop, location).status == 200 and is_empty(redis)


# ---- Lost replies -------------------------------------------------------------------------------


@pytest.mark.parametrize("script", ["queue_accept", "queue_oldest", "queue_take", "queue_sell"])
@keepers
def test_a_lost_reply_changes_nothing(redis, start, proxy, lock, write, script, tmp_path):
    shop = opened(redis, start, lock, write, "--stock-redis", proxy.url, "--history", tmp_path / "h.jsonl")
    assert outcome(shop, buy(shop)).status == 200  # Redis knows the scripts
    proxy.lose = lua_scripts.sha1(LUA / f"{script}.lua").encode()
    reply = outcome(shop, buy(shop, key="k", request="lost"))
    assert proxy.lost == 1 and reply.json["unit"] == 4 and redis("GET", STOCK) == "3" and is_empty(redis)
    shop.end()
    events = [event["event"] for event in read_history(tmp_path / "h.jsonl") if event.get("request") == "lost"]
    assert events.count("accepted") == events.count("write") == 1


class Forgetful(LossyProxy):
    """Once a reply was lost, each reply to a command that holds the word `then` is lost, too."""
    then = b""

    def _carry(self, command, server):
        reply = super()._carry(command, server)
        return None if self.lost and self.then in command else reply


def test_a_lost_acceptance_is_not_told_as_a_refusal(redis, start):
    """That its connection was ended says that it does not arrive any more, and not that it did not arrive."""
    between = Forgetful(redis)
    shop = opened(redis, start, "watchdog", "atomic", "--stock-redis", between.url, "--redis-timeout-ms", 300,
                  "--failpoints", "queue.taken=pause")
    buy(shop)
    between.then = between.lose = lua_scripts.sha1(LUA / "queue_accept.lua").encode()
    reply = shop.sell(key="k")
    assert reply.problem == "outcome-unknown" and "GET /sales/phone." in reply.json["detail"], reply
    assert between.lost == 1 and length(redis) == 2
    between.end()


def test_a_lost_reply_to_the_question(redis, start, proxy):
    shop = opened(redis, start, "watchdog", "atomic", "--stock-redis", proxy.url)
    location = buy(shop)
    assert outcome(shop, location).status == 200
    proxy.lose = b":id:"
    assert outcome(shop, location, 0).problem == "stock-unavailable" and proxy.lost == 1
    proxy.lose = b":id:"  # who waits looks again
    assert outcome(shop, location).status == 200 and proxy.lost == 2


# ---- The setting --------------------------------------------------------------------------------


@pytest.mark.parametrize("write", ["decr", "set", "fenced_textbook", "cas"])
def test_other_ways_to_write_refuse_it(redis, start, write):
    lock = "fair" if write == "fenced_textbook" else "watchdog"
    words = [os.environ["INVENTORYD"], "--lock", lock, "--write", write, "--on-conflict", "queue", "--print-config"]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 2 and "sells the request again" in ended.stderr
    shop = start(redis, "--admin-writes", "--lock", lock, "--write", write)
    reply = shop.switch(on_conflict="queue")
    assert reply.problem == "invalid-value" and "sells the request again" in reply.json["detail"]
    assert shop.admin("GET", "/lock").json["on_conflict"] == "wait"


def test_a_switch_cannot_take_the_sound_write_away(redis, start):
    shop = start(redis, "--admin-writes", "--lock", "watchdog", "--write", "atomic", "--on-conflict", "queue")
    assert shop.switch(write="decr").problem == "invalid-value"
    assert shop.switch(write="decr", on_conflict="wait").status == 200


def test_a_switch_waits_for_what_was_accepted(redis, start):
    shop = opened(redis, start, "watchdog", "atomic", "--admin-writes", "--failpoints", "sale.entered=pause")
    locations = [buy(shop) for _ in range(3)]
    wait_until(lambda: paused(shop, "sale.entered") == 1, "the first is under way")
    switch = Background(shop.switch, on_conflict="wait")
    wait_until(lambda: shop.admin("GET", "/lock").json["switching"], "the switch has begun")
    late = Background(shop.sell)
    arm(shop, "sale.entered", "off")
    assert switch.result().json["on_conflict"] == "wait"
    assert [outcome(shop, location, 0).json["unit"] for location in locations] == [5, 4, 3]
    assert late.result().json["unit"] == 2


def test_a_switch_that_cannot_process_in_time_changes_nothing(redis, start):
    shop = opened(redis, start, "watchdog", "atomic", "--admin-writes", "--wait-ms", 100, "--redis-timeout-ms", 200)
    hold_lock(redis)
    location = buy(shop)
    assert shop.switch(on_conflict="wait").problem == "switch-timeout"
    assert shop.admin("GET", "/lock").json["on_conflict"] == "queue"
    release_lock(redis)
    assert outcome(shop, location).status == 200
    assert shop.switch(on_conflict="wait").status == 200


def test_a_switch_to_it_processes_what_others_left(redis, start):
    shop = opened(redis, start, "watchdog", "atomic", "--failpoints", "queue.taken=pause")
    location = buy(shop)
    shop.kill()
    shop.end = lambda: None
    other = start(redis, "--lock", "watchdog", "--write", "atomic", "--admin-writes", name="b")
    assert outcome(other, location, 0).status == 202
    assert other.switch(on_conflict="queue").status == 200
    assert outcome(other, location).json["instance"] == "b"


def test_an_accepted_key_is_told_in_other_modes_too(redis, start):
    shop = opened(redis, start, "watchdog", "atomic", "--failpoints", "queue.taken=pause")
    location = buy(shop, key="k")
    other = start(redis, "--lock", "watchdog", "--write", "atomic", "--wait-ms", 60000, name="b")
    wait_until(lambda: paused(shop, "queue.taken") == 1, "it is taken")
    told = Background(other.sell, key="k")
    arm(shop, "queue.taken", "off")
    assert told.result().json["unit"] == 5 and outcome(shop, location).status == 200


def test_the_articles_keys(redis, start):
    shop = opened(redis, start, "watchdog", "atomic", "--keys", "article", stock=None)
    redis("SET", "inventory", 2)
    assert outcome(shop, buy(shop)).json["unit"] == 2
    assert redis("GET", "inventory") == "1" and is_empty(redis, "{inventory}:queue")


def test_what_it_counts_and_records(redis, start, tmp_path):
    shop = opened(redis, start, "watchdog", "atomic", "--history", tmp_path / "h.jsonl", stock=1)
    locations = [accepted(shop.sell(request=request)) for request in ("one", "two")]
    assert [outcome(shop, location).status for location in locations] == [200, 409]
    assert shop.metric('inventory_sales_total{outcome="accepted"}') == 2
    assert shop.metric('inventory_sales_total{outcome="sold"}') == 1
    assert shop.metric("inventory_queue_processed_total") == 2 and shop.metric("inventory_queue_length") == 0
    assert shop.metric('http_requests_total{route="/inventory/{item}/sale",method="POST",code="202"}') == 2
    shop.end()
    events = read_history(tmp_path / "h.jsonl")
    check_history(events)
    told = {request: [event["event"] for event in events if event.get("request") == request] for request in ("one", "two")}
    assert told["one"] == ["invoke", "accepted", "granted", "enter", "taken", "read", "write", "exit", "release"]
    assert told["two"] == ["invoke", "accepted", "granted", "enter", "taken", "read", "exit", "release", "refused"]
    by = {(event["request"], event["event"]): event for event in events if "request" in event}
    for request, location in zip(("one", "two"), locations):
        one, taken = by[request, "accepted"], by[request, "taken"]
        assert "/sales/" + one["id"] == location and (one["id"], one["entry"]) == (taken["id"], taken["entry"])
        assert taken["hold"] == by[request, "enter"]["hold"] and taken["quantity"] == 1
    assert by["two", "refused"]["entry"] == by["two", "taken"]["entry"] and by["two", "refused"]["kept"] is True


def test_an_end_without_a_lock_is_recorded(redis, start, tmp_path):
    shop = opened(redis, start, "watchdog", "atomic", "--queue-life-ms", 200, "--wait-ms", 100, "--history", tmp_path / "h.jsonl")
    hold_lock(redis, rung="owner_lua")
    assert outcome(shop, buy(shop, request="late")).problem == "deadline"
    shop.end()
    taken, refused = [event for event in read_history(tmp_path / "h.jsonl")
                      if event.get("request") == "late" and event["event"] in ("taken", "refused")]
    assert "hold" not in taken and refused["reason"] == "deadline" and refused["entry"] == taken["entry"]


def test_an_acceptance_that_nobody_knows_of_is_recorded(redis, start, tmp_path):
    """Redis never answers it, and the sale is in the queue all the same."""
    between = Forgetful(redis)
    shop = opened(redis, start, "watchdog", "atomic", "--stock-redis", between.url, "--redis-timeout-ms", 200,
                  "--history", tmp_path / "h.jsonl")
    accepted(shop.sell())
    between.then = between.lose = lua_scripts.sha1(LUA / "queue_accept.lua").encode()
    reply = shop.sell(request="doubt")
    between.then = b"nothing"
    shop.end()
    told = [event for event in read_history(tmp_path / "h.jsonl") if event.get("request") == "doubt"]
    unknown = [event for event in told if event["event"] == "unknown"]
    assert reply.problem == "outcome-unknown" and len(unknown) == 1 and unknown[0]["code"] == 500 and "hold" not in unknown[0]


# ---- Where the servers are ----------------------------------------------------------------------


@keepers
def test_the_lock_is_on_another_server(redis, other, start, lock, write):
    """While it is away, sales are accepted; they are sold when it is back."""
    shops = [opened(redis, start, lock, write, "--lock-redis", other.url, "--wait-ms", 1000, name=name) for name in "ab"]
    assert outcome(shops[0], buy(shops[0])).status == 200
    other.kill()
    locations = [buy(shops[0])]
    wait_until(lambda: shops[0].metric('inventoryd_redis_up{role="lock"}') == 0, "it is away")
    locations.append(buy(shops[0]))
    other.start()
    assert [outcome(shops[1], location).json["unit"] for location in locations] == [4, 3] and is_empty(redis)


def test_replicas_confirm_the_acceptance_and_the_outcome(redis, tmp_path, start):
    """A replica that hangs: the acceptance is not certain, and the same key asks again."""
    redis("CONFIG", "SET", "repl-diskless-sync-delay", 0)
    replica = Redis(tmp_path / "replica", "--replicaof", "127.0.0.1", str(redis.port))
    try:
        wait_until(lambda: redis.is_confirmed(1), "the replica has caught up")
        shop = opened(redis, start, "watchdog", "atomic", "--stock-redis", redis.url, "--replicas-ack", "one",
                      "--replicas", 1, "--redis-timeout-ms", 2000, "--fail-fast-ms", 600000)
        location = buy(shop, key="k")
        assert outcome(shop, location).json["unit"] == 5
        replica.freeze()
        reply = shop.sell(key="l")
        assert reply.problem == "outcome-unknown" and length(redis) <= 1
        assert outcome(shop, location, 0).problem == "outcome-unknown"
        replica.thaw()
        wait_until(lambda: shop.sell(key="l").status == 200, "it is sold")
        assert outcome(shop, location).status == 200 and redis("GET", STOCK) == "3"
    finally:
        replica.kill()
