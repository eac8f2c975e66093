# SPDX-License-Identifier: Apache-2.0
"""Sales that are accepted into their item's queue, and worked off: --on-conflict queue."""
import os
import subprocess

import pytest

from queue_shop import STOCK, STREAM, accepted, buy, is_empty, keepers, length, opened, outcome
from world import wait_until


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
