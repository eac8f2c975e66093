# SPDX-License-Identifier: Apache-2.0
"""What a sale does if another one has its lock: --on-conflict, and --local-first."""
import os
import subprocess

import pytest

from failpoints import arm, paused
from world import Background, check_history, hold_lock, read_history, release_lock, wait_until

FOREVER_MS = 600000
POLLING = ["set_nx_ex", "owner_lua", "reentrant", "watchdog"]
OTHERS = ["local", "notify", "fair", "read_write"]


def holding(redis, start, *flags, stock=5, **named):
    """An instance one of whose sales stays in its section."""
    shop = start(redis, "--enable-failpoints", "--wait-ms", FOREVER_MS, "--retry-ms", 60000, "--idempotency-ms",
                 86400000, *flags, **named)
    redis("SET", "inventory:{phone}", stock)
    arm(shop, "sale.after_read", "1*pause")
    first = Background(shop.sell, "phone")
    wait_until(lambda: paused(shop, "sale.after_read") == 1, "it has its lock")
    return shop, first


def end_holding(shop, first):
    arm(shop, "sale.after_read", "off")
    assert first.result().status == 200


@pytest.mark.parametrize("rung", [*POLLING, *OTHERS])
def test_a_sale_fails_at_once_and_says_so(redis, start, tmp_path, rung):
    shop, first = holding(redis, start, "--lock", rung, "--on-conflict", "fail", "--history", tmp_path / "h.jsonl")
    for _ in range(3):
        answer = shop.sell("phone")
        assert answer.status == 503 and answer.problem == "lock-busy" and answer.headers["retry-after"] == "1"
    end_holding(shop, first)
    assert shop.sell("phone").status == 200
    assert redis("GET", "inventory:{phone}") == "3"
    assert shop.metric('inventory_sales_total{outcome="lock_busy"}') == 3
    shop.end()
    events = read_history(tmp_path / "h.jsonl")
    check_history(events)
    assert [event["reason"] for event in events if event["event"] == "refused"] == ["lock-busy"] * 3
    assert events[0]["on_conflict"] == "fail"


def test_the_lock_of_another_process_is_a_conflict_too(redis, start):
    shop = start(redis, "--on-conflict", "fail")
    redis("SET", "inventory:{phone}", 2)
    hold_lock(redis)
    assert shop.sell("phone").problem == "lock-busy"
    release_lock(redis)
    assert shop.sell("phone").status == 200


def test_with_wait_it_waits_for_its_turn(redis, start):
    shop, first = holding(redis, start, "--lock", "notify")
    second = Background(shop.sell, "phone")
    wait_until(lambda: shop.metric("inventoryd_sales_waiting") == 1, "it waits")
    end_holding(shop, first)
    assert second.result().status == 200


def test_a_wait_that_ends_is_no_conflict(redis, start):
    shop = start(redis, "--on-conflict", "wait", "--wait-ms", 200)
    redis("SET", "inventory:{phone}", 2)
    hold_lock(redis)
    assert shop.sell("phone").problem == "lock-timeout"


def test_operators_and_guarded_readers_wait(redis, start):
    shop, first = holding(redis, start, "--lock", "notify", "--on-conflict", "fail", "--guard-reads")
    others = [Background(shop.ask, "GET", "/inventory/phone"),
              Background(shop.admin, "PUT", "/inventory/phone", b'{"stock":9}')]
    wait_until(lambda: shop.metric("inventoryd_sales_waiting") == 2, "they wait")
    assert shop.sell("phone").problem == "lock-busy"
    end_holding(shop, first)
    assert [other.result().status for other in others] == [200, 200]


def test_a_holder_that_acquires_again_waits(redis, start):
    """It is no conflict with another sale: on a rung that is not re-entrant it waits for itself."""
    shop = start(redis, "--lock", "owner_lua", "--on-conflict", "fail", "--wait-ms", 300)
    redis("SET", "inventory:{phone}", 2)
    assert shop.ask("POST", "/inventory/phone/sale?reenter=1").problem == "lock-timeout"
    assert shop.ask("POST", "/inventory/phone/sale").status == 200


def test_a_sale_that_looks_first_fails_when_it_asks_to_write(redis, start):
    shop = start(redis, "--lock", "read_write", "--guard-reads", "--on-conflict", "fail", "--enable-failpoints",
                 "--wait-ms", FOREVER_MS, "--idempotency-ms", 86400000)
    redis("SET", "inventory:{phone}", 2)
    arm(shop, "read.entered", "1*pause")
    reader = Background(shop.ask, "GET", "/inventory/phone")
    wait_until(lambda: paused(shop, "read.entered") == 1, "it reads")
    assert shop.ask("POST", "/inventory/phone/sale?upgrade=1").problem == "lock-busy"
    arm(shop, "read.entered", "off")
    assert reader.result().status == 200
    assert shop.ask("POST", "/inventory/phone/sale?upgrade=1").status == 200


def test_a_key_is_free_again_after_a_conflict(redis, start):
    shop, first = holding(redis, start, "--write", "atomic", "--on-conflict", "fail")
    assert shop.sell(key="k1").problem == "lock-busy"
    end_holding(shop, first)
    assert shop.sell(key="k1").status == 200
    assert redis("GET", "inventory:{phone}") == "3"


# ---- --local-first ------------------------------------------------------------------------------


def contended(shop):
    return shop.metric("lock_contended_total")


@pytest.mark.parametrize("local_first, attempts", [(False, 6), (True, 1)])
def test_one_sale_of_an_instance_contends(redis, start, local_first, attempts):
    """Another process has the lock. Of six sales one asks for it, the others stand behind it."""
    shop = start(redis, "--wait-ms", FOREVER_MS, "--idempotency-ms", 86400000, "--retry-ms", 300,
                 *(["--local-first"] if local_first else []))
    redis("SET", "inventory:{phone}", 6)
    hold_lock(redis)
    sales = [Background(shop.sell, "phone") for _ in range(6)]
    wait_until(lambda: shop.metric("inventoryd_sales_waiting") == 6 and contended(shop) >= attempts, "all wait")
    assert contended(shop) == attempts
    release_lock(redis)
    assert [sale.result().status for sale in sales] == [200] * 6


def test_local_first_sells_all(redis, start):
    shops = [start(redis, "--local-first", "--retry-ms", 2, name=name) for name in "ab"]
    redis("SET", "inventory:{phone}", 30)
    sales = [Background(shop.sell, "phone") for _ in range(20) for shop in shops]
    assert sorted(sale.result().status for sale in sales) == [200] * 30 + [409] * 10
    assert redis("GET", "inventory:{phone}") == "0"


# ---- The switch ---------------------------------------------------------------------------------


def test_they_are_switched_as_the_lock_is(redis, start, tmp_path):
    shop, first = holding(redis, start, "--lock", "notify", "--admin-writes", "--history", tmp_path / "h.jsonl")
    switch = Background(shop.admin, "PUT", "/lock", b'{"on_conflict":"fail","local_first":true}')
    end_holding(shop, first)
    answer = switch.result()
    assert answer.status == 200 and answer.json["on_conflict"] == "fail" and answer.json["local_first"] is True
    assert answer.json["rung"] == "notify"  # what was not named stays
    answer = shop.admin("PUT", "/lock", b'{"check_hold":true}')
    assert answer.json["on_conflict"] == "fail" and answer.json["local_first"] is True
    assert shop.admin("GET", "/lock").json["on_conflict"] == "fail"
    shop.end()
    begins = [event for event in read_history(tmp_path / "h.jsonl") if event["event"] == "begin"]
    assert [(event["on_conflict"], event["local_first"], event["check_hold"]) for event in begins] == [
        ("wait", False, False), ("fail", True, False), ("fail", True, True)]


@pytest.mark.parametrize("body, words", [
    (b'{"on_conflict":"give_up"}', "wait|fail"), (b'{"on_conflict":true}', "wait|fail"),
    (b'{"local_first":"on"}', "true or false"), (b'{"conflict":"fail"}', "on_conflict")])
def test_a_wrong_policy_is_refused_and_changes_nothing(redis, start, body, words):
    shop = start(redis, "--admin-writes")
    before = shop.admin("GET", "/lock").json
    answer = shop.admin("PUT", "/lock", body)
    assert answer.problem == "invalid-value" and words in answer.json["detail"]
    assert shop.admin("GET", "/lock").json == before


def test_a_wrong_flag_is_refused():
    ended = subprocess.run([os.environ["INVENTORYD"], "--on-conflict", "maybe"], capture_output=True, text=True,
                           check=False)
    assert ended.returncode == 2 and "not one of wait|fail" in ended.stderr
