# SPDX-License-Identifier: Apache-2.0
"""--on-conflict queue: how often those who wait for an outcome ask Redis, and that none waits in vain."""
import contextlib
import re
import socket

import pytest

from failpoints import arm, paused
from queue_shop import STOCK, STREAM, buy, is_empty, opened, outcome
from world import Background, wait_until


@contextlib.contextmanager
def monitored(redis):
    """Gives a function: the commands that Redis was sent since its latest call, one a line, without those of scripts."""
    with socket.create_connection(("127.0.0.1", redis.port), 30) as monitor:
        monitor.sendall(b"MONITOR\r\n")
        marks = 0

        def commands():
            nonlocal marks
            marks += 1
            mark = b"until mark %d." % marks
            redis("ECHO", mark.decode())
            seen = b""
            while mark not in seen:
                seen += monitor.recv(65536)
            return [line for line in seen.decode(errors="replace").split("\r\n") if " lua] " not in line]
        commands()
        yield commands


def count(commands, command, key):
    return sum(re.search(rf'\] "{command}" "{re.escape(key)}', line) is not None for line in commands)


def held(shop, count_of_sales=1):
    """The locations of so many sales. The oldest one is paused."""
    locations = [buy(shop) for _ in range(count_of_sales)]
    wait_until(lambda: paused(shop, "queue.taken") == 1, "the oldest is taken")
    return locations


def waits(shop, location):
    waiting = Background(outcome, shop, location, 60)
    wait_until(lambda: shop.clients() >= 1, "it waits")
    return waiting


def test_one_looks_for_all(redis, start):
    """While the head stays, those who wait hardly read their records."""
    shop = opened(redis, start, "fair", "atomic", "--failpoints", "queue.taken=1*pause")
    locations = held(shop, 3)
    waiting = [Background(outcome, shop, location, 60) for location in locations]
    wait_until(lambda: shop.clients() >= 3, "they wait")
    with monitored(redis) as commands:
        seen = []

        def has_looked():
            seen.extend(commands())
            return count(seen, "XRANGE", STREAM) >= 80
        wait_until(has_looked, "the head was looked at")
    assert count(seen, "GET", STOCK + ":key:") < 40
    arm(shop, "queue.taken", "off")
    assert [reply.result().json["unit"] for reply in waiting] == [5, 4, 3]


def test_who_waits_is_told_by_the_instance_that_sells(redis, start):
    """One that waits until the next look would need a look for each sale. A slow machine may need several rounds."""
    shop = opened(redis, start, "none", "atomic", "--work-ms", 2, stock=1000000)

    def needs_few_looks():
        with monitored(redis) as commands:
            for _ in range(40):
                assert outcome(shop, buy(shop)).status == 200
            return count(commands(), "XRANGE", STREAM) < 30
    wait_until(needs_few_looks, "the waiters are resumed at once")


def test_two_instances_do_not_compete_for_each_entry(redis, start):
    """The lock is acquired once for most entries, not once by each instance. A slow machine may need several rounds."""
    shops = [opened(redis, start, "fair", "atomic", "--work-ms", 2, name=name, stock=1000000) for name in "ab"]

    def takes_few_locks():
        with monitored(redis) as commands:
            arm(shops[0], "queue.taken", "1*pause")
            arm(shops[1], "queue.taken", "1*pause")
            for i in range(100):
                buy(shops[i % 2])
            for shop in shops:
                arm(shop, "queue.taken", "off")
            assert is_empty(redis)
            asked = sum('"release"' in line for line in commands())
        assert asked >= 100
        return asked < 150
    assert any(takes_few_locks() for _ in range(8))


@pytest.mark.parametrize("removal", ["entry", "queue", "queue and clock"])
def test_an_entry_that_is_removed_is_noticed(redis, start, removal):
    """Also by one who waits already. With the clock set back, younger entries have smaller numbers."""
    shop = opened(redis, start, "watchdog", "atomic", "--failpoints", "queue.taken=pause")
    _, location = held(shop, 2)
    waiting = waits(shop, location)
    if removal == "entry":
        redis("XDEL", STREAM, redis("XRANGE", STREAM, "-", "+")[1][0])
    elif removal == "queue":
        redis("DEL", STREAM)
    else:
        redis("EVAL", "redis.call('DEL', KEYS[1]) redis.call('XADD', KEYS[1], '1-1', 'a', 'b')", 1, STREAM)
    wait_until(lambda: not waiting.is_alive(), "it is told")
    assert waiting.result().problem == "unknown-sale"


def test_who_waits_at_another_instance_is_told(redis, start):
    """Which sells nothing itself."""
    shop = opened(redis, start, "watchdog", "atomic", "--failpoints", "queue.taken=pause")
    other = start(redis, "--lock", "watchdog", "--write", "atomic", name="b")
    (location,) = held(shop)
    waiting = waits(other, location)
    arm(shop, "queue.taken", "off")
    assert waiting.result().json["unit"] == 5


def test_many_items_are_waited_for(redis, start):
    """Each has its own head, and none is kept afterwards."""
    shop = opened(redis, start, "none", "atomic", "--work-ms", 20, stock=1000000)
    items = [f"item-{number}" for number in range(30)]
    for item in items:
        redis("SET", "inventory:{%s}" % item, 2)
    waiting = [Background(outcome, shop, buy(shop, item=item)) for item in 2 * items]
    assert sorted(reply.result().json["unit"] for reply in waiting) == 30 * [1] + 30 * [2]
    with monitored(redis) as commands:
        def looks_at_none():
            for _ in range(3):
                assert outcome(shop, buy(shop)).status == 200
            return not any("item-" in line and '"XRANGE"' in line for line in commands())
        wait_until(looks_at_none, "no head is looked at that nobody waits for")
