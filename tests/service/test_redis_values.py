# SPDX-License-Identifier: Apache-2.0
"""Stocks and locks in Redis that are not what they should be."""
import json

import pytest

from test_redis import QUICK
from world import Inventoryd, Redis, wait_until


@pytest.mark.parametrize("value", ["many", "", "1.5", "05", "00", "-0", "-05", " 5", "5 ", "0x10", "99999999999999999999", "1e3",
                                   "9007199254740992", "9223372036854775807", "-9007199254740992", "-9223372036854775808"])
@pytest.mark.parametrize("write", ["decr", "set", "atomic"])
def test_stock_that_is_no_number(redis, start_once, write, value):
    shop = start_once("--write", write)
    shop.redis("SET", "inventory:{phone}", value)
    reply = shop.sell()
    assert reply.status == 500 and reply.problem == "stock-invalid"
    assert shop.stock().problem == "stock-invalid"
    if write == "atomic":
        assert shop.sell(key="k").problem == "stock-invalid"
    assert shop.redis("GET", "inventory:{phone}") == value


@pytest.mark.parametrize("write", ["decr", "set", "atomic"])
def test_the_largest_stock(redis, start_once, write):
    shop = start_once("--write", write)
    shop.redis("SET", "inventory:{phone}", 2**53 - 1)
    assert shop.sell().json["left"] == 2**53 - 2


@pytest.mark.parametrize("write", ["decr", "set", "atomic"])
def test_stock_of_another_type(redis, start, write):
    shop = start(redis, "--write", write)
    redis("LPUSH", "inventory:{phone}", "x")
    reply = shop.sell()
    assert reply.status == 500 and reply.problem == "stock-invalid"
    assert shop.stock().problem == "stock-invalid"
    assert shop.stock(value=5).status == 200  # SET replaces it: this is how it is mended
    assert shop.sell().status == 200


@pytest.mark.parametrize("rung", ["set_nx_ex", "owner_lua", "reentrant", "watchdog", "notify", "read_write"])
def test_lock_of_another_type(redis, start, rung):
    shop = start(redis, "--lock", rung, *QUICK)
    redis("SET", "inventory:{phone}", 5)
    redis("LPUSH", "lock:{phone}", "x")
    reply = shop.sell()
    # For a flawed rung that sends SET NX any key means "held"; the others see, or ask, what it is.
    expected = {"set_nx_ex": "lock-timeout"}.get(rung, "lock-invalid")
    assert reply.problem == expected and redis("GET", "inventory:{phone}") == "5"


def test_instances_that_are_switched_one_after_the_other(redis, start):
    """Two sound rungs whose keys are of different types: nothing is sold twice, and what was refused is sold later."""
    old = start(redis, "--lock", "owner_lua", "--write", "atomic", "--admin-writes", "--enable-failpoints", *QUICK)
    new = start(redis, "--lock", "owner_lua", "--write", "atomic", "--admin-writes", *QUICK, name="b")
    assert old.stock(value=5).status == 200
    sold = new.sell(key="sold")
    assert new.switch(rung="watchdog").status == 200
    point = {"point": "sale.before_write", "action": "1*pause"}
    assert old.admin("PUT", "/failpoints", json.dumps(point)).status == 200
    slow = old.in_background(old.sell)
    wait_until(lambda: old.admin("GET", "/failpoints").json["failpoints"][0]["paused"], "a sale under the old rung")
    for key in (None, "sold", "another"):
        reply = new.sell(key=key)
        assert reply.status == 500 and reply.problem == "lock-invalid" and redis("GET", "inventory:{phone}") == "4", key
    assert old.admin("PUT", "/failpoints", json.dumps({**point, "action": "off"})).status == 200
    assert slow.result().json["unit"] == 4 and old.switch(rung="watchdog").status == 200
    again = new.sell(key="sold")
    assert (again.status, again.body) == (200, sold.body) and new.sell(key="another").json["unit"] == 3


@pytest.fixture(scope="module")
def start_once(tmp_path_factory):
    """One instance for each set of flags, for tests that only ask."""
    folder = tmp_path_factory.mktemp("once")
    server = Redis(folder / "redis")
    running = {}

    def get(*flags):
        if flags not in running:
            running[flags] = Inventoryd(str(folder), server, *flags)
            running[flags].redis = server
        return running[flags]

    yield get
    try:
        for instance in running.values():
            instance.end()
    finally:
        for instance in running.values():
            instance.kill()
        server.kill()
