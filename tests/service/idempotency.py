# SPDX-License-Identifier: Apache-2.0
"""What the tests of the Idempotency-Key share."""
import pathlib
import re

import pytest

from world import read_history

LUA = pathlib.Path(__file__).resolve().parents[2] / "service" / "lua" / "sell_once.lua"
STOCK, LOCK, TOKEN, MARK = "inventory:{phone}", "lock:{phone}", "dlock:token:lock:{phone}", "inventory:{phone}:fence"
EPOCH_KEY, IDENTITY_KEY = "inventory:epoch", "dlock:identity"
RECORD = STOCK + ":key:k"
KEEPERS = [("watchdog", "atomic"), ("fair", "fenced")]
ON = ("--enable-failpoints", "--workers", 2)
SALE = "/inventory/phone/sale"
SHORT = ("--wait-ms", 2000, "--idempotency-ms", 2001)  # as short as may be, and no shorter than a busy machine bears
SOLD, OUT = "200 1 4 a", "409 1 0 a"
keepers = pytest.mark.parametrize("lock,write", KEEPERS)


def opened(redis, start, lock="fair", write="fenced", *flags, stock=5, **named):
    shop = start(redis, "--lock", lock, "--write", write, *flags, **named)
    assert shop.stock(value=stock).status == 200
    return shop


def is_replay(reply, first):
    """The answer of the first time, to the byte, and marked as such."""
    assert reply.headers.get("idempotency-replayed") == "true", reply
    assert (reply.status, reply.body) == (first.status, first.body)
    assert "idempotency-replayed" not in first.headers
    return True


def events_of(history, request):
    return [event for event in read_history(history) if event.get("request") == request]


def is_record(text, words):
    """Those words, and the sale's mark behind them."""
    return re.fullmatch(words + " [0-9a-f]{16}", text) is not None
