# SPDX-License-Identifier: Apache-2.0
"""A sale that waits keeps no thread: at a point, in its business, for a second ask of its lock."""

import pytest

from failpoints import arm, paused
from world import Background, check_history, read_history, wait_until

ITEMS = [f"i{i}" for i in range(12)]


def one_worker(redis, start, *flags):
    """One worker, and one of each item."""
    shop = start(redis, "--workers", 1, "--enable-failpoints", *flags)
    for item in [*ITEMS, "other"]:
        redis("SET", f"inventory:{{{item}}}", 1)
    return shop


def check_all_sold(redis, sales):
    assert [sale.result().status for sale in sales] == [200] * len(sales)
    assert {redis("GET", f"inventory:{{{item}}}") for item in ITEMS} == {"0"}
    assert redis("KEYS", "lock:*") in ("", [])


@pytest.mark.parametrize("point", ["entered", "after_read", "before_write", "after_write"])
def test_those_at_a_point_keep_no_worker(redis, start, tmp_path, point):
    shop = one_worker(redis, start, "--history", tmp_path / "h.jsonl")
    threads = shop.threads()
    arm(shop, f"sale.{point}", f"{len(ITEMS)}*pause")
    sales = [Background(shop.sell, item) for item in ITEMS]
    wait_until(lambda: paused(shop, f"sale.{point}") == len(ITEMS), "all are at the point")
    assert shop.sell("other").status == 200  # the one worker answers others
    assert shop.ask("GET", "/inventory/other").json["stock"] == 0
    assert paused(shop, f"sale.{point}") == len(ITEMS) and shop.metric("inventoryd_sales_in_flight") == len(ITEMS)
    assert shop.threads() <= threads + 5  # the timekeeper and the loop of the lock library, and none a sale
    arm(shop, f"sale.{point}", "off")
    check_all_sold(redis, sales)
    shop.end()
    check_history(read_history(tmp_path / "h.jsonl"))


@pytest.mark.parametrize("by_file", [False, True])
def test_those_at_a_point_go_on_in_the_order_in_which_they_came(redis, start, tmp_path, by_file):
    shop = one_worker(redis, start, "--history", tmp_path / "h.jsonl", "--failpoint-files", tmp_path)
    arm(shop, "sale.after_read", "pause")
    sales = []
    for item in ITEMS:
        sales.append(Background(shop.sell, item))
        wait_until(lambda: paused(shop, "sale.after_read") == len(sales), "it is at the point")
    if by_file:
        (tmp_path / "sale.after_read").touch()
    else:
        arm(shop, "sale.after_read", "off")
    check_all_sold(redis, sales)
    shop.end()
    writes = [event["item"] for event in read_history(tmp_path / "h.jsonl") if event["event"] == "write"]
    assert writes == ITEMS


def test_those_in_their_business_keep_no_worker(redis, start):
    shop = one_worker(redis, start, "--work-ms", 3000)
    sales = [Background(shop.sell, item) for item in ITEMS]
    wait_until(lambda: shop.metric("lock_acquired_total") == len(ITEMS), "all have their locks")
    assert shop.metric("inventoryd_sales_in_flight") == len(ITEMS)  # and none is through
    check_all_sold(redis, sales)


@pytest.mark.parametrize("how", ["business", "pause", "delay(60000)"])
def test_what_is_suspended_is_finished_before_the_end(redis, start, tmp_path, how):
    shop = one_worker(redis, start, "--work-ms", 1500 if how == "business" else 0, "--history", tmp_path / "h.jsonl")
    if how != "business":
        arm(shop, "sale.after_read", how)
    sales = [Background(shop.sell, item) for item in ITEMS]
    wait_until(lambda: shop.metric("lock_acquired_total") == len(ITEMS), "all have their locks")
    shop.signal()
    check_all_sold(redis, sales)
    assert shop.wait() == 0 and not shop.logged("drain")
    events = read_history(tmp_path / "h.jsonl")
    check_history(events)
    assert sum(event["event"] == "write" for event in events) == len(ITEMS)


def test_a_second_ask_keeps_no_worker(redis, start):
    """It waits for the lock that the sale itself holds, as long as it may."""
    shop = one_worker(redis, start, "--lock", "owner_lua", "--wait-ms", 20000)
    reentering = [Background(shop.ask, "POST", f"/inventory/{item}/sale?reenter=1") for item in ITEMS]
    wait_until(lambda: shop.metric("inventoryd_sales_waiting") == len(ITEMS), "all ask again")
    assert shop.sell("other").status == 200
    for item in ITEMS:
        redis("DEL", f"lock:{{{item}}}")
    for sale in reentering:
        sale.result()


def test_a_second_ask_needs_no_place_in_the_queue(redis, start):
    """Those that wait for the lock fill --queue. Its holder asks again, and is let in."""
    shop = one_worker(redis, start, "--queue", 2)
    redis("SET", "inventory:{phone}", 3)
    arm(shop, "sale.after_read", "1*pause")
    reentrant = Background(shop.ask, "POST", "/inventory/phone/sale?reenter=1")
    wait_until(lambda: paused(shop, "sale.after_read") == 1, "it has its lock")
    waiters = []
    for number in (1, 2):
        waiters.append(Background(shop.sell, "phone"))
        wait_until(lambda: shop.metric("inventoryd_sales_waiting") == number, "they wait for it")
    assert shop.sell("phone").problem == "queue-full"
    arm(shop, "sale.after_read", "off")
    assert [sale.result().status for sale in (reentrant, *waiters)] == [200] * 3


def test_a_switch_waits_for_those_that_are_suspended(redis, start):
    shop = one_worker(redis, start, "--admin-writes")
    arm(shop, "sale.after_read", f"{len(ITEMS)}*pause")
    sales = [Background(shop.sell, item) for item in ITEMS]
    wait_until(lambda: paused(shop, "sale.after_read") == len(ITEMS), "all are at the point")
    switch = Background(shop.switch, rung="setnx")
    wait_until(lambda: shop.admin("GET", "/lock").json["switching"], "the switch is under way")
    late = Background(shop.sell, "other")
    wait_until(lambda: shop.metric("inventoryd_queue_depth") == 1, "who comes meanwhile waits")
    assert switch.is_alive()
    arm(shop, "sale.after_read", "off")
    assert switch.result().status == 200 and late.result().status == 200
    check_all_sold(redis, sales)
