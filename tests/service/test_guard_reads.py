# SPDX-License-Identifier: Apache-2.0
"""--guard-reads: GET /inventory/{item} under the item's lock. Here on rungs without a read lock, where a reader waits
as a sale does, for readers too; test_read_write.py has those with one."""
import json
import os
import subprocess

import pytest

from failpoints import arm, park, paused
from world import (PATIENCE_S, Background, check_history, hold_lock, read_answers, read_history, release_lock,
                   wait_until)

ON = ("--guard-reads", "--enable-failpoints", "--admin-writes")
READS = 'inventory_guarded_reads_total{outcome="%s"}'


def read(shop, request="r", item="phone"):
    return shop.ask("GET", f"/inventory/{item}", headers={"X-Request-Id": request})


def waits(shop, count=1):
    wait_until(lambda: shop.metric("inventoryd_sales_waiting") == count, f"{count} wait for the lock")


def of(path, request):
    return [event for event in read_history(path) if event.get("request") == request]


def names(events):
    return [event["event"] for event in events]


def guarded(redis, start, *flags, stock=5, **named):
    shop = start(redis, *ON, *flags, **named)
    shop.stock(value=stock)
    return shop


def test_off_is_the_default_and_asks_for_no_lock(redis, start, tmp_path):
    shop = start(redis, "--history", tmp_path / "h.jsonl")
    shop.stock(value=5)
    hold_lock(redis)
    assert shop.stock().json["stock"] == 5
    assert shop.admin("GET", "/lock").json["guard_reads"] is False
    assert "invoke" not in names(read_history(tmp_path / "h.jsonl"))
    assert shop.metric(READS % "read") == 0


@pytest.mark.parametrize("lock", ["none", "local", "setnx", "reentrant_tls", "watchdog", "notify", "fair"])
def test_what_a_guarded_read_says_and_records(redis, start, tmp_path, lock):
    shop = guarded(redis, start, "--lock", lock, "--history", tmp_path / "h.jsonl")
    reply = read(shop)
    assert reply.status == 200 and reply.json == {"item": "phone", "stock": 5, "instance": "a"}
    assert shop.ask("HEAD", "/inventory/phone").status == 200
    shop.end()
    events = of(tmp_path / "h.jsonl", "r")
    check_history(read_history(tmp_path / "h.jsonl"))
    assert names(events) == ["invoke", "granted", "enter", "read", "exit", "release"]
    assert events[0]["quantity"] == 0 and events[1]["mode"] == "exclusive"
    assert events[3]["stock_before"] == 5 and events[5]["status"] == "OK"
    assert len({event["hold"] for event in events[1:]}) == 1
    assert (events[1]["token"] > 0) == (lock in ("notify", "fair"))
    assert read_history(tmp_path / "h.jsonl")[0]["guard_reads"] is True


def test_counts(redis, start):
    shop = guarded(redis, start, stock=0)
    assert read(shop).json["stock"] == 0  # nothing to sell is an answer
    assert read(shop, item="other").problem == "unknown-item"
    redis("SET", "inventory:{odd}", "many")
    assert read(shop, item="odd").problem == "stock-invalid"
    told = {name: shop.metric(READS % name) for name in ("read", "unknown_item", "stock_invalid", "lock_timeout")}
    assert told == {"read": 1, "unknown_item": 1, "stock_invalid": 1, "lock_timeout": 0}
    assert all(shop.metric('inventory_sales_total{outcome="%s"}' % name) == 0
               for name in ("sold", "sold_out", "unknown_item", "stock_invalid"))
    assert shop.metric('inventory_stock{item="phone"}') == 0
    assert shop.metric("lock_acquire_time_seconds_count") == 4  # a restock's, and three reads'


def test_the_article_has_one_item(redis, start):
    shop = guarded(redis, start, "--keys", "article")
    assert read(shop).json["stock"] == 5
    assert read(shop, item="other").problem == "unknown-item"


def test_without_a_read_lock_readers_wait_for_each_other(redis, start):
    shop = guarded(redis, start)
    first = park(shop, "read.entered", read, shop, "r1")
    second = Background(read, shop, "r2")
    waits(shop)
    assert paused(shop, "read.entered") == 1
    arm(shop, "read.entered", "off")
    assert [one.result().json["stock"] for one in (first, second)] == [5, 5]


def test_a_sale_and_a_reader_wait_for_each_other(redis, start):
    shop = guarded(redis, start)
    reader = park(shop, "read.entered", read, shop)
    sale = Background(shop.sell)
    waits(shop)
    arm(shop, "read.entered", "off")
    assert reader.result().json["stock"] == 5 and sale.result().status == 200
    sale = park(shop, "sale.after_write", shop.sell)
    reader = Background(read, shop)
    waits(shop)
    arm(shop, "sale.after_write", "off")
    assert sale.result().status == 200 and reader.result().json["stock"] == 3


@pytest.mark.parametrize("lock", ["watchdog", "notify"])
def test_a_thousand_readers_need_no_thread_each(redis, start, lock):
    shop = guarded(redis, start, "--lock", lock, "--workers", 2)
    read(shop)
    before = shop.threads()
    hold_lock(redis)
    readers = [Background(read, shop, f"r{i}") for i in range(1000)]
    waits(shop, 1000)
    assert shop.threads() <= before + 2, "of the lock library's, which start when somebody waits"
    release_lock(redis)
    if lock == "notify":
        redis("PUBLISH", "redisson_lock__channel:{lock:{phone}}", 0)
    assert {one.result().status for one in readers} == {200}
    assert shop.metric(READS % "read") == 1001 and redis("EXISTS", "lock:{phone}") == 0


def test_the_deadline_is_that_of_a_sale(redis, start, tmp_path):
    shop = guarded(redis, start, "--wait-ms", 1000, "--history", tmp_path / "h.jsonl")
    hold_lock(redis)
    reply = read(shop)
    assert reply.problem == "lock-timeout", reply  # with Retry-After: .problem looks
    assert [(e["event"], e.get("reason")) for e in of(tmp_path / "h.jsonl", "r")] == \
        [("invoke", None), ("refused", "lock-timeout")]
    assert shop.metric(READS % "lock_timeout") == 1


def test_a_reader_that_is_late_reads_nothing(redis, start, tmp_path):
    shop = guarded(redis, start, "--wait-ms", 1000, "--history", tmp_path / "h.jsonl")
    arm(shop, "read.entered", "1*delay(1500)")
    assert read(shop).problem == "deadline"
    assert names(of(tmp_path / "h.jsonl", "r")) == ["invoke", "granted", "enter", "exit", "release", "refused"]


@pytest.mark.parametrize("check_hold,problem", [("off", None), ("on", "lock-lost")])
def test_a_reader_that_lost_its_lock(redis, start, check_hold, problem):
    shop = guarded(redis, start, "--lock", "reentrant", "--ttl-ms", 200, "--check-hold", check_hold)
    reader = park(shop, "read.entered", read, shop)
    wait_until(lambda: redis("EXISTS", "lock:{phone}") == 0, "the lock expires")
    wait_until(lambda: shop.metric("lock_lost_total") == 1, "the loss is noticed")
    arm(shop, "read.entered", "off")
    reply = reader.result()
    assert reply.status == 200 if problem is None else reply.problem == problem


def test_the_queue_is_that_of_sales(redis, start):
    """On a rung that counts in the thread's memory who is paused keeps the worker."""
    shop = guarded(redis, start, "--lock", "reentrant_tls", "--workers", 1, "--queue", 1)
    reader = park(shop, "read.entered", read, shop)
    other = Background(read, shop)
    wait_until(lambda: shop.metric("inventoryd_queue_depth") == 1, "one is in the queue")
    assert read(shop).problem == "queue-full"
    arm(shop, "read.entered", "off")
    assert (reader.result().status, other.result().status) == (200, 200)


def test_a_server_that_hangs(redis, start):
    shop = guarded(redis, start, "--redis-timeout-ms", 200, "--wait-ms", 500)
    redis.freeze()
    assert read(shop).problem in ("lock-timeout", "lock-unavailable")
    redis.thaw()
    wait_until(lambda: read(shop).status == 200, "it reads again")


def test_switched_while_a_reader_waits(redis, start):
    """It ends under the setting it came under; from then on a read asks for no lock."""
    shop = guarded(redis, start)
    hold_lock(redis)
    reader = Background(read, shop)
    waits(shop)
    switch = Background(shop.switch, guard_reads=False)
    wait_until(lambda: shop.admin("GET", "/lock").json["switching"], "the switch is under way")
    late = Background(read, shop, "late")
    wait_until(lambda: shop.metric("inventoryd_queue_depth") == 1, "who comes meanwhile waits")
    assert reader.is_alive() and late.is_alive()
    release_lock(redis)
    assert switch.result().json["guard_reads"] is False
    assert reader.result().status == 200 and late.result().status == 200
    assert shop.metric(READS % "read") == 1
    hold_lock(redis)
    assert read(shop).status == 200
    assert shop.switch(guard_reads=True).json["guard_reads"] is True
    reader = Background(read, shop)
    waits(shop)
    release_lock(redis)
    assert reader.result().status == 200


def test_a_read_without_the_lock_waits_for_no_switch(redis, start):
    shop = start(redis, "--admin-writes")
    shop.stock(value=5)
    hold_lock(redis)
    sale = Background(shop.sell)
    waits(shop)
    switch = Background(shop.switch, guard_reads=True)
    wait_until(lambda: shop.admin("GET", "/lock").json["switching"], "the switch is under way")
    assert read(shop).status == 200 and sale.is_alive()
    release_lock(redis)
    assert switch.result().status == 200 and sale.result().status == 200


def test_when_it_ends_readers_that_wait_are_told(redis, start):
    shop = guarded(redis, start, "--drain-ms", 1000)
    hold_lock(redis)
    reader = Background(read, shop)
    waits(shop)
    shop.signal()
    assert reader.result().problem == "draining"
    assert shop.wait() == 0


@pytest.mark.parametrize("guard,code", [("on", 503), ("off", 200)])
def test_while_it_ends_no_guarded_read_begins(redis, start, guard, code):
    """On a connection that was open; what asks for no lock is still answered."""
    shop = start(redis, "--guard-reads", guard)
    shop.stock(value=5)
    hold_lock(redis)
    sale = Background(shop.sell)
    waits(shop)
    with shop.connection() as kept:
        kept.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_answers(kept)[0][0] == 200
        shop.signal()
        wait_until(lambda: shop.admin("GET", "/readyz").status == 503, "it is not ready any more")
        kept.sendall(b"GET /inventory/phone HTTP/1.1\r\nHost: x\r\n\r\n")
        (told, _, body), = read_answers(kept)
    assert told == code and (code == 200 or json.loads(body)["type"].endswith(":draining"))
    release_lock(redis)
    assert sale.result().status == 200 and shop.wait() == 0


@pytest.mark.parametrize("flags,environment", [
    (["--guard-reads=maybe"], {}), (["--guard-reads", "maybe"], {}), ([], {"INVENTORYD_GUARD_READS": "maybe"})])
def test_bad_values_of_the_flag(flags, environment):
    done = subprocess.run([os.environ["INVENTORYD"], *flags], env={**os.environ, **environment}, capture_output=True,
                          text=True, timeout=PATIENCE_S)
    assert done.returncode == 2 and '"maybe" is neither "on" nor "off"' in done.stderr, done.stderr


def test_a_bad_value_at_run_time(redis, start):
    shop = guarded(redis, start)
    reply = shop.switch(guard_reads="on")
    assert reply.problem == "invalid-value" and "guard_reads must be true or false" in reply.json["detail"]


@pytest.mark.parametrize("query", ["upgrade=2", "upgrade=", "upgrade=-1", "upgrade=1&upgrade=1", "upgrade=yes", "looks=1"])
def test_bad_values_of_look(redis, start, query):
    shop = guarded(redis, start)
    reply = shop.ask("POST", f"/inventory/phone/sale?{query}")
    assert reply.problem == "invalid-query" and "upgrade, 0 or 1" in reply.json["detail"]


@pytest.mark.parametrize("query", ["upgrade=0", "upgrade=1", "quantity=2&upgrade=1", "upgrade=1&reenter=1"])
def test_without_a_read_lock_a_look_is_a_sale(redis, start, tmp_path, query):
    shop = guarded(redis, start, "--history", tmp_path / "h.jsonl")
    reply = shop.ask("POST", f"/inventory/phone/sale?{query}", headers={"X-Request-Id": "r"})
    assert reply.status == 200
    told = [name for name in names(of(tmp_path / "h.jsonl", "r")) if name != "reacquire"]
    assert told == ["invoke", "granted", "enter", "read", "write", "exit", "release"]
