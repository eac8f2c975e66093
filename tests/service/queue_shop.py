# SPDX-License-Identifier: Apache-2.0
"""What the tests of --on-conflict queue share."""
import contextlib
import http.client
import re
import signal

import pytest

from failpoints import arm
from world import wait_until

STOCK, STREAM, LISTED = "inventory:{phone}", "inventory:{phone}:queue", "inventory:queues"
KEEPERS = [("watchdog", "atomic"), ("fair", "fenced")]
keepers = pytest.mark.parametrize("lock,write", KEEPERS)
LOCATION = re.compile(r"/sales/([a-z0-9_-]+)\.([0-9a-f]{32})")
FAST = ("--ttl-ms", 1000, "--retry-ms", 2, "--enable-failpoints")


def flags(lock="watchdog", write="atomic", *more):
    return ("--lock", lock, "--write", write, "--on-conflict", "queue", *FAST, *more)


def opened(redis, start, lock="watchdog", write="atomic", *more, stock=5, **named):
    shop = start(redis, *flags(lock, write, *more), **named)
    if stock is not None:
        redis("SET", STOCK, stock)
    return shop


def accepted(reply):
    """Its Location, once it is seen to be that of an accepted sale."""
    assert reply.status == 202, reply
    assert LOCATION.fullmatch(reply.headers["location"]) and reply.headers["retry-after"] == "1", reply
    assert reply.headers["location"] == "/sales/" + reply.json["id"]
    assert "idempotency-replayed" not in reply.headers
    return reply.headers["location"]


def buy(shop, **named):
    return accepted(shop.sell(**named))


def outcome(shop, location, wait=30):
    return shop.ask("GET", f"{location}?wait={wait}")


def let_go(shop, point):
    """The sales that are paused there go on. One may kill the instance before this request is answered."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        arm(shop, point, "off")


def died(shop):
    """It was killed at a failpoint, or is killed now; that is no fault."""
    shop.end = lambda: None
    if shop.process.poll() is None:
        shop.kill()
    return shop.process.wait(30) == -signal.SIGKILL


def length(redis, stream=STREAM):
    return int(redis("XLEN", stream))


def is_empty(redis, stream=STREAM):
    wait_until(lambda: length(redis, stream) == 0, "the queue is empty")
    pending = redis("XPENDING", stream, "workers")  # an error: nobody has taken an entry yet
    return isinstance(pending, Exception) or pending[0] == 0
