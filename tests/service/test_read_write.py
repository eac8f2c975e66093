# SPDX-License-Identifier: Apache-2.0
"""--guard-reads on the rungs with a read lock: readers together, writers alone; a sale that looks first; what a
reader's token does to a writer that was overtaken."""
import pytest

from test_guard_reads import READS, arm, guarded, names, of, park, read, waits
from world import Background, Redis, read_history, wait_until

RW = ("--lock", "read_write")
BOTH = ["rw_counter", "read_write"]
LOCK, TOKEN, STOCK = "lock:{phone}", "dlock:token:lock:{phone}", "inventory:{phone}"


def look(shop, request="r", more=""):
    return shop.ask("POST", f"/inventory/phone/sale?upgrade=1{more}", headers={"X-Request-Id": request})


def modes(path):
    return [event["mode"] for event in read_history(path) if event["event"] == "granted"]


@pytest.mark.parametrize("lock", BOTH)
def test_readers_are_inside_together(redis, start, tmp_path, lock):
    shop = guarded(redis, start, "--lock", lock, "--history", tmp_path / "h.jsonl")
    first = park(shop, "read.entered", read, shop, "r1")
    second = park(shop, "read.entered", read, shop, "r2", count=2)
    arm(shop, "read.entered", "off")
    assert [one.result().json["stock"] for one in (first, second)] == [5, 5]
    assert modes(tmp_path / "h.jsonl") == ["shared", "shared"]
    assert shop.sell().status == 200 and modes(tmp_path / "h.jsonl")[2] == "exclusive"


@pytest.mark.parametrize("lock", BOTH)
def test_a_writer_waits_for_all_readers(redis, start, lock):
    shop = guarded(redis, start, "--lock", lock)
    readers = [park(shop, "read.entered", read, shop, f"r{i}", count=i) for i in (1, 2)]
    sale = Background(shop.sell)
    waits(shop)
    assert sale.is_alive() and redis("GET", STOCK) == "5"
    arm(shop, "read.entered", "off")
    assert [one.result().json["stock"] for one in readers] == [5, 5]
    assert sale.result().json["left"] == 4


@pytest.mark.parametrize("lock", BOTH)
def test_a_reader_waits_for_the_writer(redis, start, lock):
    a, b = (guarded(redis, start, "--lock", lock, name=name) for name in "ab")
    sale = park(a, "sale.before_write", a.sell)
    readers = [Background(read, b, f"r{i}") for i in range(5)]
    waits(b, 5)
    arm(a, "sale.before_write", "off")
    assert sale.result().status == 200
    assert [one.result().json["stock"] for one in readers] == [4] * 5


def test_a_thousand_readers_need_no_thread_each(redis, start):
    shop = guarded(redis, start, *RW, "--workers", 2)
    read(shop)
    before = shop.threads()
    sale = park(shop, "sale.entered", shop.sell)
    readers = [Background(read, shop, f"r{i}") for i in range(1000)]
    waits(shop, 1000)
    assert shop.threads() <= before + 3, "of the lock library's, which start when somebody waits"
    arm(shop, "sale.entered", "off")
    assert sale.result().status == 200
    assert {one.result().json["stock"] for one in readers} == {4}
    assert shop.metric(READS % "read") == 1001 and redis("EXISTS", LOCK) == 0


def test_the_deadline_behind_a_writer(redis, start):
    a, b = (guarded(redis, start, *RW, "--wait-ms", wait, name=name) for name, wait in (("a", 20000), ("b", 1000)))
    sale = park(a, "sale.entered", a.sell)
    assert read(b).problem == "lock-timeout"
    arm(a, "sale.entered", "off")
    assert sale.result().status == 200 and read(b).json["stock"] == 4


def test_a_server_that_hangs(redis, start):
    shop = guarded(redis, start, *RW, "--redis-timeout-ms", 200, "--wait-ms", 500)
    redis.freeze()
    assert read(shop).problem in ("lock-timeout", "lock-unavailable")
    redis.thaw()
    wait_until(lambda: shop.sell().status == 200, "nothing of the reader is left")


def test_a_reader_that_dies_delays_a_writer_by_its_ttl(redis, start):
    a, b = (guarded(redis, start, *RW, "--ttl-ms", 500, name=name) for name in "ab")
    reader = park(a, "read.entered", read, a)
    a.kill()
    assert b.sell().status == 200
    with pytest.raises(OSError):
        reader.result()


def test_a_reader_that_dies_in_rw_counter_stays(redis, start):
    a, b = (guarded(redis, start, "--lock", "rw_counter", "--wait-ms", 1000, name=name) for name in "ab")
    reader = park(a, "read.entered", read, a)
    a.kill()
    assert b.sell().problem == "lock-timeout" and read(b).status == 200
    assert redis("GET", "lock:{phone}:read_count") == "1"
    with pytest.raises(OSError):
        reader.result()


def test_switched_while_a_reader_waits(redis, start, tmp_path):
    """It ends under the rung it came under; the next one has no read lock."""
    a, b = (guarded(redis, start, *RW, "--history", tmp_path / f"{name}.jsonl", name=name) for name in "ab")
    sale = park(a, "sale.entered", a.sell)
    reader = Background(read, b)
    waits(b)
    switch = Background(b.switch, rung="watchdog")
    wait_until(lambda: b.admin("GET", "/lock").json["switching"], "the switch is under way")
    arm(a, "sale.entered", "off")
    assert switch.result().status == 200 and reader.result().status == 200 and sale.result().status == 200
    assert read(b).status == 200
    assert modes(tmp_path / "b.jsonl") == ["shared", "exclusive"]


# ---- A sale that looks first --------------------------------------------------------------------


def test_an_upgrade_is_refused_and_the_sale_looks_again(redis, start, tmp_path):
    shop = guarded(redis, start, *RW, "--history", tmp_path / "h.jsonl")
    assert look(shop).json["unit"] == 5
    assert look(shop, "r2", "&quantity=2&reenter=1").json["left"] == 2
    shop.end()
    events = of(tmp_path / "h.jsonl", "r")
    assert names(events) == ["invoke", "granted", "enter", "read", "reacquire", "exit", "release",
                             "granted", "enter", "read", "write", "exit", "release"]
    assert [(e["mode"], e["token"] > 0) for e in events if e["event"] == "granted"] == \
        [("shared", True), ("exclusive", True)]
    assert events[4]["status"] == "UPGRADE" and events[4]["hold"] == events[1]["hold"]
    assert [e["hold"] for e in events if e["event"] == "release"] == [events[1]["hold"], events[7]["hold"]]


def test_two_that_look_sell_one_after_the_other(redis, start):
    """Both hold the read lock when they ask for the other: neither waits for the other for ever."""
    shop = guarded(redis, start, *RW, stock=1)
    first = park(shop, "sale.before_upgrade", look, shop, "r1")
    second = park(shop, "sale.before_upgrade", look, shop, "r2", count=2)
    arm(shop, "sale.before_upgrade", "off")
    assert sorted(one.result().status for one in (first, second)) == [200, 409]
    assert redis("GET", STOCK) == "0" and redis("EXISTS", LOCK) == 0


def test_in_rw_counter_an_upgrade_waits_for_itself(redis, start, tmp_path):
    shop = guarded(redis, start, "--lock", "rw_counter", "--wait-ms", 1500, "--history", tmp_path / "h.jsonl")
    assert look(shop).problem == "lock-timeout"
    assert redis("GET", STOCK) == "5" and shop.sell().status == 200  # it gave the read lock back
    events = of(tmp_path / "h.jsonl", "r")
    assert names(events) == ["invoke", "granted", "enter", "read", "reacquire", "exit", "release", "refused"]
    assert events[4]["status"] == "TIMED_OUT"


def test_a_look_that_finds_too_few_asks_for_no_more(redis, start, tmp_path):
    shop = guarded(redis, start, *RW, "--history", tmp_path / "h.jsonl")
    assert look(shop, more="&quantity=6").problem == "insufficient-stock"
    assert modes(tmp_path / "h.jsonl") == ["shared"] and redis("EXISTS", LOCK) == 0
    redis("DEL", STOCK)
    assert look(shop).problem == "unknown-item"


def test_a_look_waits_for_a_writer_and_a_writer_for_a_look(redis, start):
    a, b = (guarded(redis, start, *RW, name=name) for name in "ab")
    sale = park(a, "sale.entered", a.sell)
    looks = Background(look, b)
    waits(b)
    arm(a, "sale.entered", "off")
    assert sale.result().json["unit"] == 5 and looks.result().json["unit"] == 4
    looks = park(b, "sale.before_upgrade", look, b)
    sale = Background(a.sell)
    waits(a)
    arm(b, "sale.before_upgrade", "off")
    assert sorted(one.result().json["unit"] for one in (looks, sale)) == [2, 3]


def test_without_guarded_reads_a_look_is_a_sale(redis, start, tmp_path):
    shop = start(redis, *RW, "--history", tmp_path / "h.jsonl")
    shop.stock(value=5)
    assert look(shop).json["unit"] == 5 and modes(tmp_path / "h.jsonl") == ["exclusive"]


# ---- Behind a fence -----------------------------------------------------------------------------


def overtaken(redis, start, *flags):
    """a's sale has read, its lock is gone, and b's reader came and went."""
    a, b = (guarded(redis, start, *RW, "--write", "fenced", "--workers", 1, *flags, name=name) for name in "ab")
    sale = park(a, "sale.after_read", a.sell)
    assert redis("DEL", LOCK) == 1
    before = redis("GET", TOKEN)
    assert read(b).json["stock"] == 5 and int(redis("GET", TOKEN)) > int(before)
    arm(a, "sale.after_read", "off")
    return a, b, sale.result()


def test_a_writer_that_a_reader_has_overtaken_is_refused(redis, start):
    """Its token is not the newest any more."""
    a, b, reply = overtaken(redis, start)
    assert reply.problem == "lock-lost" and "STALE" in reply.json["detail"]
    assert redis("GET", STOCK) == "5" and b.sell().json["unit"] == 5
    assert a.metric('inventory_sales_total{outcome="stale_token"}') == 1


def test_apart_a_reader_shuts_nobody_out(redis, start, tmp_path):
    """Nothing is written on what it read, so its reading leaves no mark: the sale is not lost."""
    other = Redis(tmp_path / "other")
    try:
        _, b, reply = overtaken(redis, start, "--stock-redis", other.url)
        assert reply.json["unit"] == 5
        assert b.sell().json["unit"] == 4 and other("GET", STOCK) == "3"
        readers = [park(b, "read.entered", read, b)]  # b has one worker
        arm(b, "read.entered", "off")
        assert readers[0].result().json["stock"] == 3
    finally:
        other.kill()


def test_apart_readers_share(redis, start, tmp_path):
    """The older token reads last: a mark that readers left would shut it out."""
    other = Redis(tmp_path / "other")
    try:
        a, b = (guarded(redis, start, *RW, "--write", "fenced", "--stock-redis", other.url, name=name) for name in "ab")
        older = park(a, "read.entered", read, a)
        assert read(b).json["stock"] == 5
        arm(a, "read.entered", "off")
        assert older.result().json["stock"] == 5
    finally:
        other.kill()
