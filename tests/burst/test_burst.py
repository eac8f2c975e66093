# SPDX-License-Identifier: Apache-2.0
"""A burst of sales on two instances, and in the midst of it something dies, is cut, stands still or forgets.
Whatever it is: not one unit too many, no two sections at once, every buyer answered, and the cause is to be
seen in a counter."""
import os
import pathlib

import pytest

import ladder
from stage import LOCK_KEY, Stage
from waiting import wait_until

BUILD = pathlib.Path(os.environ["LADDER_BUILD"])

SALES = 100  # of each instance
STOCK = 150
TTL_MS = 2000
FLAGS = ("--wait-ms", "60000", "--work-ms", "4", "--redis-timeout-ms", "1000")
QUEUE = f"dlock:queue:{LOCK_KEY}"

class Burst:
    def __init__(self, stage, lock_apart=False):
        self.stage = stage
        stage.open(lock_apart, durable=not lock_apart, several=3)
        self.lock_servers = stage.lock_servers
        self.a = stage.instance("a", TTL_MS, *FLAGS)
        self.b = stage.instance("b", TTL_MS, *FLAGS)
        self.before = {}

    @property
    def redis(self):
        return self.stage.redis

    def begin(self):
        """Half of the buyers come to each while the first of them is in its section; the fault comes when
        some more were served."""
        self.hold_up()
        for _ in range(SALES):
            self.a.sell()
            self.b.sell()
        self.all_have_come()
        self.go_on()
        wait_until(lambda: self.a.count("acquired") > 3 and self.b.count("acquired") > 3, "the burst is on its way")

    def hold_up(self):
        """a has the lock and pauses in its section."""
        self.a.set_point("sale.before_write", "1*pause")
        self.a.sell()
        wait_until(lambda: self.a.paused("sale.before_write") == 1, "a pauses in its section")

    def all_have_come(self):
        wait_until(lambda: self.a.in_flight() == SALES + 1 and self.b.in_flight() == SALES, "all buyers have come")

    def go_on(self):
        self.a.set_point("sale.before_write", "off")

    def note(self, *counts):
        for instance in (self.a, self.b):
            for count in counts:
                self.before[instance.name, count] = instance.count(count)

    def grew(self, instance, count):
        return instance.count(count) > self.before[instance.name, count]

    def client_id(self, instance):
        """The lock library's, as its holds name it."""
        return next(event["owner"] for event in instance.events() if event["event"] == "granted").rsplit(":", 1)[0]

    def sold(self, instance):
        return instance.metric('inventory_sales_total{outcome="sold"}')

    def refused_by_the_stock(self):
        return sum(instance.metric(f'inventory_sales_total{{outcome="stale_{mark}"}}') for instance in (self.a, self.b)
                   for mark in ("token", "epoch"))

    def kill(self, instance, how):
        instance.process.kill()
        instance.wait_dead(how)

    def judge(self):
        """What the judge says of it, once every buyer was answered: the survivors' with a sale or a refusal,
        but for those whose write's reply was lost."""
        stage = self.stage
        stage.wait_answered(*stage.sales)
        odd = [f"{sale.name}: {sale.answer}" for sale in stage.sales
               if sale.status not in (200, 409) and not sale.instance.dead_ns]
        verdict = stage.judge()
        assert verdict["oversold"] == verdict["overlaps"] == verdict["duplicate_units"] == verdict["surplus"] == 0, verdict
        assert verdict["result"] == ("undersold" if odd and verdict["rejected_early"] else "ok"), verdict
        return odd


def on(*rungs):
    """A stage for each of the rungs that the ladder has; every test takes `burst`."""
    there = [rung for rung in rungs if ladder.find(rung)]
    return pytest.mark.parametrize("burst", there, indirect=True) if there else lambda test: None


def stage_of(name, folder):
    rung = ladder.find(name)
    return Stage(rung, "burst", BUILD / "service" / "inventoryd", BUILD / "audit" / "ladder-audit", folder,
                 write=rung.write or "set", stock=STOCK)


@pytest.fixture
def burst(request, tmp_path):
    with stage_of(request.param, tmp_path) as stage:
        yield Burst(stage)


@on("watchdog", "notify", "fair", "read_write", "redlock", "fenced")
def test_nothing_happens(burst):
    burst.begin()
    assert burst.judge() == []


# ---- Somebody dies ---------------------------------------------------------------------------------


@on("notify", "fair", "read_write", "fenced")
def test_the_holder_dies(burst):
    burst.begin()
    burst.note("missed_wakeups")
    burst.a.crash_at("sale.before_write", "a dies inside its section")
    wait_until(lambda: burst.grew(burst.b, "missed_wakeups"), "b finds the lock free without having been woken")
    assert burst.judge() == []


def first_in_the_queue(burst):
    """a holds and pauses, b stands in the queue alone; the client that b is there."""
    burst.begin()
    burst.note("grants_expired")
    owner = burst.client_id(burst.b)
    burst.hold_up()
    wait_until(lambda: burst.redis("LRANGE", QUEUE, 0, -1) == [f"{owner} 200"], "b stands in the queue")
    return owner


def one_grant_ran_out(burst):
    wait_until(lambda: burst.grew(burst.a, "grants_expired"), "a finds that the grant ran out")
    assert burst.a.count("grants_expired") == burst.before["a", "grants_expired"] + 1
    assert burst.judge() == []
    assert burst.redis("EXISTS", LOCK_KEY, QUEUE) == 0


@on("fair")
def test_who_was_just_granted_it_dies(burst):
    """b stands still in the queue, is granted the lock all the same, and never takes it."""
    owner = first_in_the_queue(burst)
    burst.b.freeze()
    burst.go_on()
    wait_until(lambda: burst.redis("HMGET", LOCK_KEY, "owner", "state") == [owner, "granted"], "b is granted the lock")
    burst.kill(burst.b, "b dies with a grant that it never took")
    one_grant_ran_out(burst)


@on("fair")
def test_the_first_in_the_queue_dies(burst):
    """That costs one grant that runs out, not more."""
    first_in_the_queue(burst)
    burst.kill(burst.b, "b dies at the head of the queue")
    burst.go_on()
    one_grant_ran_out(burst)


@on("notify", "read_write")
def test_a_waiter_dies(burst):
    burst.begin()
    burst.kill(burst.b, "b dies, whatever it was doing")
    assert burst.judge() == []


@on("redlock")
def test_the_holder_dies_and_its_lock_expires(burst):
    burst.hold_up()
    for _ in range(SALES):
        burst.a.sell()
        burst.b.sell()
    burst.all_have_come()
    assert burst.sold(burst.b) == 0
    burst.kill(burst.a, "a dies inside its section")
    assert burst.judge() == []


# ---- One of several lock servers -------------------------------------------------------------------


@on("redlock")
def test_a_lock_server_dies(burst):
    burst.begin()
    burst.note("redis_lost")
    burst.lock_servers[0].kill()
    wait_until(lambda: burst.grew(burst.a, "redis_lost") or burst.grew(burst.b, "redis_lost"), "who sells notices it")
    assert burst.judge() == []


@on("redlock")
def test_a_lock_server_hangs(burst):
    burst.begin()
    burst.lock_servers[0].freeze()
    sold = burst.sold(burst.a) + burst.sold(burst.b)
    wait_until(lambda: burst.sold(burst.a) + burst.sold(burst.b) > sold + 10, "the two others grant it")
    burst.lock_servers[0].thaw()
    assert burst.judge() == []


@on("redlock")
def test_two_lock_servers_are_away_for_a_while(burst):
    """No majority is left: nothing is sold, and afterwards the sales go on. What the two had is expired by then."""
    burst.begin()
    for server in burst.lock_servers[:2]:
        server.freeze()
    burst.note("attempts")
    wait_until(lambda: burst.grew(burst.a, "attempts") or burst.grew(burst.b, "attempts"), "the lock is asked for")
    for server in burst.lock_servers[:2]:
        server.thaw()
    odd = burst.judge()
    assert len(odd) < SALES, odd


# ---- Something between them and Redis --------------------------------------------------------------


@on("notify", "fair", "read_write")
def test_the_listeners_are_cut_off(burst):
    burst.begin()
    burst.note("redis_connects")
    wait_until(burst.stage.cut_listeners, "somebody listens, and is cut off")
    wait_until(lambda: burst.grew(burst.a, "redis_connects") or burst.grew(burst.b, "redis_connects"),
               "who listened listens anew")
    assert burst.judge() == []


@on("notify", "fair", "read_write", "fenced")
def test_redis_answers_nobody_for_a_while(burst):
    """Longer than a command may take: replies are lost, and what was sent may be carried out late."""
    burst.begin()
    burst.note("redis_connects")
    burst.redis("CLIENT", "PAUSE", 1500, "ALL")
    wait_until(lambda: burst.grew(burst.a, "redis_connects") or burst.grew(burst.b, "redis_connects"),
               "somebody gave a connection up")
    odd = burst.judge()
    assert len(odd) < SALES, odd


@on("notify", "fair", "read_write")
def test_redis_forgets_its_scripts(burst):
    burst.begin()
    burst.note("scripts_loaded")
    burst.redis("SCRIPT", "FLUSH")
    wait_until(lambda: burst.grew(burst.a, "scripts_loaded") or burst.grew(burst.b, "scripts_loaded"),
               "the scripts are sent in full again")
    assert burst.judge() == []


@on("notify", "fair", "read_write", "fenced")
def test_redis_is_restarted_and_has_forgotten_nothing(burst):
    """It writes down what it does before it answers (appendfsync always)."""
    burst.begin()
    burst.note("redis_connects")
    burst.redis.kill()
    burst.redis.start()
    wait_until(lambda: burst.grew(burst.a, "redis_connects") and burst.grew(burst.b, "redis_connects"),
               "both are back")
    odd = burst.judge()
    assert len(odd) < SALES, odd


@pytest.mark.parametrize("name", ["fair", "fenced"])
def test_the_locks_redis_comes_back_empty(tmp_path, name):
    """Two have the lock then, as on every lock of one Redis. The stock, elsewhere, takes the newer one's write alone,
    if it looks."""
    with stage_of(name, tmp_path) as stage:
        burst = Burst(stage, lock_apart=True)
        burst.begin()
        burst.hold_up()
        sold = burst.sold(burst.b)
        stage.lock_redis.kill()
        stage.lock_redis.start()
        wait_until(lambda: burst.sold(burst.b) > sold, "b sells under the lock that a believes to have")
        burst.go_on()
        if name == "fenced":
            wait_until(lambda: burst.refused_by_the_stock() > 0, "the stock refuses one of them")
        stage.wait_answered(*stage.sales)
        verdict = stage.judge()
        assert verdict["overlaps"] > 0, verdict
        sold_twice = verdict["oversold"] + verdict["duplicate_units"] + verdict["surplus"]
        assert (sold_twice == 0) == (name == "fenced"), verdict
