# SPDX-License-Identifier: Apache-2.0
"""--admit: how many sales of an item may ask for the lock. How long something took is read from Redis' own clock, so a
slow machine only makes the bounds wider."""
import json
import os
import pathlib
import struct
import subprocess

import pytest

from idempotency import is_replay
from world import Redis, check_history, hold_lock, read_history, release_lock, wait_until

STOCK, SET, BUCKET, WINDOW = "inventory:{phone}", "inventory:{phone}:set", "inventory:{phone}:bucket", "inventory:{phone}:window"
CLOCK = pathlib.Path(__file__).resolve().parents[2] / "flaws" / "clock_jump.c"
REFUSED = 'inventory_admissions_total{outcome="refused"}'
ADMITTED = 'inventory_admissions_total{outcome="admitted"}'
STORED = 'inventory_admissions_total{outcome="stored_answer"}'


def time_us(redis):
    """The clock by which Redis admits."""
    seconds, us = redis("TIME")
    return int(seconds) * 10**6 + int(us)


def opened(redis, start, admit, *flags, stock=1000, **named):
    shop = start(redis, "--admit", admit, *flags, **named)
    assert shop.stock(value=stock).status == 200
    return shop


class Rush:
    """Many sales one after the other. `admitted`: how many were; `us`: the most that passed between the first and the last
    decision, or since the bucket was seen to be empty, by Redis' clock."""

    def __init__(self, redis, *sales, empty_us=None):
        begin = empty_us or time_us(redis)
        self.replies = [sell() for sell in sales]
        self.us = time_us(redis) - begin
        self.admitted = sum(reply.status != 429 for reply in self.replies)

    def is_burst(self, burst, rate=1):
        """As many were admitted as the bucket held, and what came in meanwhile."""
        most = burst + self.us * rate // 10**6 + 1
        assert min(burst, len(self.replies)) <= self.admitted <= most, (burst, rate, self.admitted, self.us)
        return True


def drain(redis, shop):
    """Buys until the bucket is empty, and says when it was not yet known to be."""
    for _ in range(200):
        before_us = time_us(redis)
        if shop.sell().status == 429:
            return before_us
    raise AssertionError("the bucket is never empty")


# ---- The flag ------------------------------------------------------------------------------------

def config(*flags, environment=None):
    return subprocess.run([os.environ["INVENTORYD"], *flags, "--print-config"], capture_output=True, text=True, timeout=60,
                          env={**os.environ, **(environment or {})}, check=False)


@pytest.mark.parametrize("value", ["off", "1", "100", "100,50", "1,1", "1000000000,1000000000", "window:100", "window:1"])
def test_what_may_be_given(value):
    assert json.loads(config("--admit", value).stdout)["admit"] == value
    assert json.loads(config(environment={"INVENTORYD_ADMIT": value}).stdout)["admit"] == value


def test_it_is_off_by_default():
    assert json.loads(config().stdout)["admit"] == "off"


WRONG = [("", "the rate"), ("on", "the rate"), ("0", "the rate"), ("-1", "the rate"), ("+1", "the rate"), ("1.5", "the rate"),
         ("1e3", "the rate"), (" 1", "the rate"), ("1 ", "the rate"), ("1000000001", "the rate"), ("9" * 30, "the rate"), (",5", "the rate"),
         ("100,", "the burst"), ("100,0", "the burst"), ("100,1000000001", "the burst"), ("100,50,2", "the burst"), ("100,5x", "the burst"),
         ("window:", "the rate"), ("window:0", "the rate"), ("window:100,50", "a window has no burst"), ("window", "the rate"),
         ("Off", "the rate")]


@pytest.mark.parametrize("value,wrong", WRONG)
def test_what_may_not_be_given(value, wrong):
    done = config("--admit", value)
    assert done.returncode == 2 and f"--admit: \"{value}\"" in done.stderr, done
    assert f"{wrong}" in done.stderr and "whole number from 1 to 1000000000" in done.stderr
    assert "off, RATE[,BURST] or window:RATE" in done.stderr and ("window:100" if "window:" in value else "100,50") in done.stderr
    assert config(environment={"INVENTORYD_ADMIT": value}).returncode == 2


def test_off_admits_all_and_keeps_nothing_but_the_stock_as_set(redis, start):
    shop = opened(redis, start, "off", stock=30)
    assert [shop.sell().status for _ in range(31)] == [200] * 30 + [409]
    assert sorted(redis("KEYS", "*")) == [STOCK, SET] and redis("GET", SET) == "30"
    assert shop.metric(ADMITTED) == shop.metric(REFUSED) == 0


# ---- The bucket ----------------------------------------------------------------------------------

def test_a_burst_and_then_refusals(redis, start, tmp_path):
    shop = opened(redis, start, "1,20", "--history", tmp_path / "h.jsonl")
    rush = Rush(redis, *[shop.sell] * 60)
    assert rush.is_burst(20) and redis("GET", STOCK) == str(1000 - rush.admitted)
    refused = [reply for reply in rush.replies if reply.status == 429]
    assert {reply.problem for reply in refused} == {"too-many-requests"}
    assert {reply.headers["retry-after"] for reply in refused} == {"1"}
    assert "sales of phone" in refused[0].json["detail"] and "1 a second" in refused[0].json["detail"], refused[0]
    assert (shop.metric(ADMITTED), shop.metric(REFUSED), shop.metric(STORED)) == (rush.admitted, len(refused), 0)
    assert shop.metric('inventory_sales_total{outcome="not_admitted"}') == len(refused)
    assert shop.metric('http_requests_total{route="/inventory/{item}/sale",method="POST",code="429"}') == len(refused)
    shop.end()
    events = read_history(tmp_path / "h.jsonl")
    check_history(events)
    ends = [event for event in events if event.get("reason") == "not-admitted"]
    assert len(ends) == len(refused) and {(event["event"], event["code"]) for event in ends} == {("refused", 429)}
    assert [event["event"] for event in events if event.get("request") == ends[0]["request"]] == ["invoke", "refused"]
    assert events[0]["admit"] == "1,20"


def test_it_fills_by_its_rate(redis, start):
    """Over two seconds and more, whatever the machine does meanwhile."""
    shop = opened(redis, start, "40,1")
    drain(redis, shop)
    begin, sold = time_us(redis), 0
    while time_us(redis) < begin + 2 * 10**6:
        sold += shop.sell().status == 200
    us = time_us(redis) - begin
    # it holds one, so what comes in while nobody asks is lost: only the upper bound holds on every machine
    assert 2 <= sold <= 40 * us // 10**6 + 1, (sold, us)


def test_what_came_in_is_there(redis, start):
    shop = opened(redis, start, "10,1000", stock=5000)
    redis("SET", BUCKET, f"0 {time_us(redis)}")
    begin = time_us(redis)
    wait_until(lambda: time_us(redis) >= begin + 10**6, "a second has passed on Redis' clock")
    assert Rush(redis, *[shop.sell] * 60).admitted >= 10


def test_a_refused_sale_does_not_ask_for_the_lock(redis, start):
    """The lock is somebody else's: an admitted sale waits for it in vain."""
    shop = opened(redis, start, "1,1", "--wait-ms", 300)
    hold_lock(redis)
    replies = []
    while not replies or replies[-1].status != 429:
        replies.append(shop.sell())
        assert len(replies) < 100 and replies[-1].status in (429, 503), replies[-1]
    assert shop.metric("lock_attempts_total") <= 100 and shop.metric(REFUSED) == 1
    assert shop.metric('inventory_sales_total{outcome="lock_timeout"}') == len(replies) - 1
    release_lock(redis)


def test_two_instances_share_a_bucket(redis, start):
    a = opened(redis, start, "1,20", name="a")
    b = start(redis, "--admit", "1,20", name="b")
    rush = Rush(redis, *[a.sell, b.sell] * 20)
    assert rush.is_burst(20) and {reply.headers["x-instance"] for reply in rush.replies if reply.status == 200} == {"a", "b"}


def test_items_have_buckets_of_their_own(redis, start):
    shop = opened(redis, start, "1,20")
    assert shop.stock("pen", 1000).status == 200
    assert Rush(redis, *[shop.sell] * 40).is_burst(20)
    assert Rush(redis, *[lambda: shop.sell("pen")] * 40).is_burst(20)


def test_a_sale_takes_one_token_and_nothing_else_takes_any(redis, start):
    shop = opened(redis, start, "1,20", "--lock", "read_write", "--guard-reads")
    for query in ("?quantity=5", "?upgrade=1", "?reenter=1"):  # some ask for the lock twice
        assert shop.ask("POST", f"/inventory/phone/sale{query}").status == 200
    for _ in range(30):
        assert shop.stock().status == 200 and shop.restock(1).status == 200
    assert shop.metric(ADMITTED) == 3 and shop.metric(REFUSED) == 0


def test_an_item_that_does_not_exist(redis, start):
    """Admission does not look at the stock: as many ask as there may be sales."""
    shop = start(redis, "--admit", "3")
    rush = Rush(redis, *[lambda: shop.sell("none")] * 30)
    assert rush.is_burst(3, 3) and {reply.status for reply in rush.replies} == {404, 429}


# ---- Keys ----------------------------------------------------------------------------------------

@pytest.mark.parametrize("admit", ["1,5", "window:5"])
@pytest.mark.parametrize("lock,write", [("watchdog", "atomic"), ("fair", "fenced")])
def test_a_stored_answer_is_given_without_a_token(redis, start, admit, lock, write):
    shop = opened(redis, start, admit, "--lock", lock, "--write", write)
    first = shop.sell(key="k")
    assert first.status == 200
    before = shop.metric(ADMITTED)
    for _ in range(40):
        assert is_replay(shop.sell(key="k"), first)
    assert shop.metric(STORED) == 40 and shop.metric(ADMITTED) == before == 1
    drain(redis, shop)
    assert is_replay(shop.sell(key="k"), first)
    assert shop.sell(key="k", quantity=2).problem == "idempotency-key-reused"
    assert int(redis("GET", STOCK)) == 1000 - shop.metric(ADMITTED)


def test_a_refusal_is_not_stored(redis, start):
    """The buyer who tries again with the key is a buyer, as if there had been no refusal."""
    shop = opened(redis, start, "1,1", "--write", "atomic")
    statuses = []
    while 429 not in statuses:
        statuses.append(shop.sell(key=f"k{len(statuses)}").status)
    refused = f"k{len(statuses) - 1}"
    assert redis("EXISTS", f"{STOCK}:key:{refused}") == 0
    reply = wait_until(lambda: (again := shop.sell(key=refused)).status == 200 and again, "it is admitted")
    assert "idempotency-replayed" not in reply.headers and redis("EXISTS", f"{STOCK}:key:{refused}") == 1


# ---- How many fit --------------------------------------------------------------------------------

def test_a_stock_newly_set_fills_the_bucket(redis, start):
    shop = opened(redis, start, "1", stock=15)
    assert Rush(redis, *[shop.sell] * 60).is_burst(15)
    assert shop.stock(value=25).status == 200
    assert Rush(redis, *[shop.sell] * 60).is_burst(25)
    assert shop.stock(value=0).status == 200 and shop.restock(50).status == 200
    assert Rush(redis, *[shop.sell] * 30).is_burst(1)


def test_a_given_burst_is_filled_too(redis, start):
    shop = opened(redis, start, "1,20")
    drain(redis, shop)
    assert shop.stock(value=5).status == 200
    assert Rush(redis, *[shop.sell] * 60).is_burst(20)


def test_units_that_are_added_neither_fill_nor_widen_it(redis, start):
    shop = opened(redis, start, "1", stock=15)
    empty_us = drain(redis, shop)
    assert shop.restock(500).status == 200 and redis("GET", SET) == "15"
    assert Rush(redis, *[shop.sell] * 60, empty_us=empty_us).is_burst(0)
    redis("DEL", BUCKET)  # full
    assert Rush(redis, *[shop.sell] * 60).is_burst(15)


def test_without_a_stock_that_was_set_the_rate_fits(redis, start):
    """As after an older version of this service, or a SET by hand."""
    shop = start(redis, "--admit", "7")
    redis("SET", STOCK, 1000)
    assert Rush(redis, *[shop.sell] * 60).is_burst(7, 7)


def test_a_redis_that_was_emptied(redis, start):
    shop = opened(redis, start, "2", stock=30)
    drain(redis, shop)
    redis("FLUSHALL")
    rush = Rush(redis, *[shop.sell] * 30)
    assert rush.is_burst(2, 2) and {reply.status for reply in rush.replies} == {404, 429}
    assert shop.stock(value=30).status == 200
    assert Rush(redis, *[shop.sell] * 60).is_burst(30, 2)


@pytest.mark.parametrize("lock", ["fenced", "fenced_textbook"])
def test_a_fenced_stock_is_set_and_kept_in_one_step(place, redis, start, lock):
    stock, flags = place
    shop = opened(redis, start, "1", "--lock", lock, *flags, stock=15)
    assert Rush(stock, *[shop.sell] * 40).is_burst(15)
    assert shop.stock(value=25).status == 200 and stock("GET", SET) == "25"
    assert Rush(stock, *[shop.sell] * 60).is_burst(25)


def test_a_stock_with_a_version_is_set_and_kept_in_one_step(redis, start):
    """And one that was laid out otherwise before."""
    shop = opened(redis, start, "1", "--lock", "none", "--write", "cas", "--admin-writes", stock=15)
    assert Rush(redis, *[shop.sell] * 40).is_burst(15)
    empty_us = drain(redis, shop)
    assert shop.restock(500).status == 200 and redis("GET", SET) == "15"
    assert Rush(redis, *[shop.sell] * 40, empty_us=empty_us).is_burst(0)
    assert shop.stock(value=25).status == 200 and redis("GET", SET) == "25" and redis("TYPE", STOCK) == "hash"
    assert Rush(redis, *[shop.sell] * 60).is_burst(25)
    assert shop.switch(write="decr").status == 200 and shop.stock(value=35).status == 200
    assert redis("GET", SET) == "35" and redis("TYPE", STOCK) == "string"
    assert Rush(redis, *[shop.sell] * 60).is_burst(35)


def test_keys_of_the_article(redis, start):
    shop = opened(redis, start, "1", "--keys", "article", "--write", "atomic", stock=15)
    first = shop.sell(key="k")
    drain(redis, shop)
    assert is_replay(shop.sell(key="k"), first) and shop.sell("pen").problem == "unknown-item"
    assert sorted(redis("KEYS", "*inventory*")) == ["inventory", "{inventory}:bucket", "{inventory}:key:k", "{inventory}:set"]
    assert shop.stock(value=25).status == 200
    assert Rush(redis, *[shop.sell] * 60).is_burst(25)


# ---- Switches ------------------------------------------------------------------------------------

def test_a_switch(redis, start, tmp_path):
    shop = opened(redis, start, "off", "--admin-writes", "--history", tmp_path / "h.jsonl")
    assert shop.admin("GET", "/lock").json["admit"] == "off"
    assert Rush(redis, *[shop.sell] * 40).admitted == 40
    assert shop.switch(admit="1,20").json["admit"] == "1,20"
    assert shop.switch(rung="set_nx_ex").json["admit"] == "1,20"  # what is not named stays
    assert Rush(redis, *[shop.sell] * 60).is_burst(20)
    assert shop.metric('inventoryd_info{version="0.2.0",instance="a",rung="set_nx_ex",write="decr",on_conflict="wait",local_first="off",admit="1,20",segments="1"}') == 1
    for wrong in "0", "1,", "window:1,2", 7, None, True:
        reply = shop.switch(admit=wrong, rung="none")
        assert reply.status == 422 and reply.problem == "invalid-value" and "off, RATE[,BURST] or window:RATE" in reply.json["detail"]
    assert (shop.admin("GET", "/lock").json["rung"], shop.admin("GET", "/lock").json["admit"]) == ("set_nx_ex", "1,20")
    assert shop.switch(admit="window:1000").json["admit"] == "window:1000"
    assert "flawed" in shop.logged("lock")[-1]["detail"] and shop.logged("lock")[-1]["level"] == "warning"
    assert shop.switch(admit="off").json["admit"] == "off"
    assert Rush(redis, *[shop.sell] * 40).admitted == 40
    assert shop.admin("GET", "/config").json["admit"] == "off"
    shop.end()
    events = read_history(tmp_path / "h.jsonl")
    check_history(events)
    assert [event["admit"] for event in events if event["event"] == "begin"] == ["off", "1,20", "1,20", "window:1000", "off"]


def test_the_flawed_value_is_told_at_the_start(redis, start):
    assert "admits twice the rate" in start(redis, "--admit", "window:5").logged("flawed-admission")[0]["detail"]
    assert not start(redis, "--admit", "5", name="b").logged("flawed-admission")


# ---- What goes wrong -----------------------------------------------------------------------------

def test_the_stocks_redis_is_away(redis, other, start):
    shop = start(redis, "--stock-redis", other.url, "--admit", "1,20", "--fail-fast-ms", 100)
    shop.stock(value=5)
    other.kill()
    assert shop.sell().problem == "stock-unavailable"  # looks at 503 and Retry-After
    wait_until(lambda: shop.logged("stock-server-lost"), "it counts as away")
    assert shop.sell().problem == "stock-unavailable" and shop.metric(REFUSED) == 0


@pytest.mark.parametrize("admit,key", [("1,20", b":bucket\r\n"), ("window:20", b":window\r\n")])
@pytest.mark.parametrize("instead", [None, b"+OK\r\n", b":1\r\n", b"*0\r\n", b"*1\r\n:1\r\n", b"*1\r\n$1\r\nx\r\n", b"*1\r\n$7\r\nrefused\r\n",
                                     b"*1\r\n$4\r\nkept\r\n", b"*2\r\n$7\r\ninvalid\r\n:3\r\n", b"*2\r\n$7\r\nrefused\r\n$1\r\n9\r\n"])
def test_a_reply_that_is_lost_admits_nothing(redis, start, proxy, admit, key, instead):
    """A token may be gone, which sells nothing."""
    shop = opened(redis, start, admit, "--stock-redis", proxy.url)
    assert shop.sell().status == 200
    proxy.lose, proxy.instead = key, instead
    assert shop.sell().problem == "stock-unavailable"
    assert proxy.lose is None and redis("GET", STOCK) == "999" and redis("EXISTS", "lock:{phone}") == 0
    assert shop.metric(ADMITTED) == 1 and shop.metric(REFUSED) == 0
    assert shop.sell().status == 200


KINDS = [("SET", "nothing of ours"), ("LPUSH", "x"), ("HSET", "level", 1)]


@pytest.mark.parametrize("admit,key", [("1,20", BUCKET), ("window:20", WINDOW), ("1", SET)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_key_that_holds_something_else(redis, start, admit, key, kind):
    """The detail says what helps."""
    shop = opened(redis, start, admit)
    redis("DEL", key)
    redis(kind[0], key, *kind[1:])
    reply = shop.sell()
    assert reply.status == 500 and reply.problem == "stock-invalid" and f"(DEL {key})" in reply.json["detail"], reply
    assert "operator must" in reply.json["detail"] and "127.0.0.1" not in reply.json["detail"]
    assert redis("GET", STOCK) == "1000" and redis("EXISTS", "lock:{phone}") == 0
    redis("DEL", key)
    assert shop.sell().status == 200


@pytest.mark.parametrize("key", [BUCKET, SET])
@pytest.mark.parametrize("kind", KINDS)
def test_a_stock_newly_set_mends_it(redis, start, key, kind):
    shop = opened(redis, start, "1")
    redis("DEL", key)
    redis(kind[0], key, *kind[1:])
    assert shop.sell().status == 500 and shop.stock(value=20).status == 200
    assert Rush(redis, *[shop.sell] * 40).is_burst(20)


def test_a_record_that_holds_something_else_is_reported_as_ever(redis, start):
    shop = opened(redis, start, "1,20", "--write", "atomic")
    redis("LPUSH", f"{STOCK}:key:k", "x")
    assert shop.sell(key="k").problem == "idempotency-record-invalid"


@pytest.fixture
def clocked(tmp_path):
    """A Redis whose wall clock the test sets."""
    library, file = tmp_path / "clock_jump.so", tmp_path / "clock"
    subprocess.run(["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", library, CLOCK], check=True, timeout=60)
    file.write_bytes(bytes(8))
    server = Redis(tmp_path / "clocked", prefix=("env", f"LD_PRELOAD={library}", f"CLOCK_JUMP={file}"))

    def jump(seconds):
        with open(file, "r+b", buffering=0) as clock:  # cut short, it would end the server by SIGBUS
            clock.write(struct.pack("q", int(seconds * 10**6)))
    server.jump = jump
    yield server
    server.kill()


def test_a_clock_that_steps_back(clocked, start):
    """Nothing comes in by it, and sales do not stop until it is where it was."""
    shop = opened(clocked, start, "2,20")
    drain(clocked, shop)
    clocked.jump(-3600)
    assert Rush(clocked, *[shop.sell] * 40).is_burst(0, 2)
    clocked.jump(-3595)
    assert Rush(clocked, *[shop.sell] * 5).admitted == 5  # five seconds have passed since
    drain(clocked, shop)
    clocked.jump(3600)
    assert Rush(clocked, *[shop.sell] * 60).is_burst(20, 2)


# ---- The flaw ------------------------------------------------------------------------------------

RATE = 12
SPAN_US = 600000  # well under a second


class Schedule:
    """RATE sales just before a second of Redis' clock ends, and as many at the beginning of the next one. None of this is
    luck: what Redis' clock said decides whether it came about."""

    def __init__(self, redis, shop):
        wait_until(lambda: time_us(redis) % 10**6 >= 700000, "a second is nearly over")
        begin = time_us(redis)
        before = [shop.sell() for _ in range(RATE)]
        first_end = time_us(redis)
        wait_until(lambda: time_us(redis) // 10**6 > first_end // 10**6, "the next second begins")
        after = [shop.sell() for _ in range(RATE)]
        end = time_us(redis)
        second = begin // 10**6
        self.came_about = first_end // 10**6 == second and end // 10**6 == second + 1 and end - begin < SPAN_US
        self.us, self.replies = end - begin, before + after
        self.admitted = sum(reply.status == 200 for reply in self.replies)


def scheduled(redis, shop):
    """The first schedule that came about, with a bucket that is full and no sale in its seconds before."""
    for _ in range(20):
        now = time_us(redis) // 10**6
        wait_until(lambda: time_us(redis) // 10**6 > now, "a second in which nothing was sold begins")
        assert shop.stock(value=1000).status == 200
        schedule = Schedule(redis, shop)
        assert {reply.status for reply in schedule.replies} <= {200, 429}
        if schedule.came_about:
            return schedule
    pytest.fail("the machine is too slow for this schedule")


def test_two_bursts_pass_a_window_where_two_seconds_meet(redis, start):
    """Twice the rate in well under a second. The bucket, with the same schedule, admits a burst and what came in."""
    shop = start(redis, "--admit", f"window:{RATE}", "--admin-writes")
    flawed = scheduled(redis, shop)
    assert flawed.admitted == 2 * RATE and flawed.us < SPAN_US
    assert shop.switch(admit=f"{RATE},{RATE}").status == 200
    sound = scheduled(redis, shop)
    assert RATE <= sound.admitted <= RATE + RATE * sound.us // 10**6 + 1 < 2 * RATE, (sound.admitted, sound.us)
