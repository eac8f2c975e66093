# SPDX-License-Identifier: Apache-2.0
"""The epoch of the stock, with --write fenced: who raises it, who adopts it, and whom it shuts out. A lock's key is
deleted where it would expire. The token of a lock's server is set far ahead where its clock would have to be wrong."""
import pathlib

import lua_scripts
import pytest

from failpoints import arm, park, paused
from world import Background, LossyProxy, Redis, read_history, wait_until

LUA = pathlib.Path(__file__).resolve().parents[2] / "service" / "lua"
STOCK, TOKEN, MARK, LOCK = "inventory:{phone}", "dlock:token:lock:{phone}", "inventory:{phone}:fence", "lock:{phone}"
EPOCH_KEY, IDENTITY_KEY = "inventory:epoch", "dlock:identity"
EPOCH, MINE, OTHER = 1763680000000001, 1763690000123456, 1763690000123457
FAR = 8000000000000000  # a token that no clock of today comes to
ON = ("--enable-failpoints", "--admin-writes", "--write", "fenced")
FENCED = ("--lock", "fair", *ON)


# ---- The scripts --------------------------------------------------------------------------------


@pytest.fixture
def run(server):
    """A script of the fence, as a writer or reader of EPOCH with the token MINE; the stock is 5. there: the stock's epoch;
    mark: as it is stored; here: the identity of this server; epochs: the epoch's."""
    def call(script, *command, there=EPOCH, mark=None, newest=MINE, here="x:1", epochs="x:1"):
        server("FLUSHALL")
        for key, value in ((STOCK, 5), (MARK, mark), (TOKEN, newest), (IDENTITY_KEY, here)):
            if value is not None:
                server("SET", key, value)
        if there:
            server("HSET", EPOCH_KEY, "epoch", there, "identity", epochs)
        keys = {"fenced": (STOCK, TOKEN, EPOCH_KEY), "fenced_off": (TOKEN, EPOCH_KEY)}.get(
            script, (STOCK, MARK, TOKEN, EPOCH_KEY, IDENTITY_KEY))
        answer = server("EVAL", lua_scripts.text(LUA / f"{script}.lua"), len(keys), *keys, MINE, EPOCH, *command)
        return str(answer) if isinstance(answer, Exception) else answer
    return call


@pytest.mark.parametrize("there", [EPOCH + 1, EPOCH - 1, None])
@pytest.mark.parametrize("script,command", [("fenced", ("DECR",)), ("fenced_apart", ("DECR",)), ("fenced_read", ())])
def test_only_the_epoch_that_stands_reads_and_writes(server, run, script, command, there):
    before = {"mark": f"{EPOCH} {MINE}", "newest": MINE}
    assert run(script, *command, **before) in (4, "5")
    assert run(script, *command, there=there, **before) == f"EPOCH {EPOCH}: the stock is in {there or 'none'}"
    assert server("GET", STOCK) == "5" and server("GET", MARK) == before["mark"]


@pytest.mark.parametrize("there,then", [(EPOCH, MINE + 1), (EPOCH + 1, MINE), (None, MINE)])
def test_a_token_of_another_epoch_is_not_shut_out(server, run, there, then):
    """It is shut out already, and the newest token may be another lock's."""
    assert run("fenced_off", there=there, newest=MINE) is None and server("GET", TOKEN) == str(then)


@pytest.mark.parametrize("mark", [f"{EPOCH - 1} {OTHER}", f"{EPOCH + 1} {OTHER}", str(OTHER), "?"])
def test_a_mark_of_another_epoch_is_none(server, run, mark):
    """A higher token of another epoch cannot be compared; an older version left a token without an epoch."""
    assert run("fenced_read", mark=mark) == "5" and server("GET", MARK) == f"{EPOCH} {MINE}"
    assert run("fenced_apart", "DECR", mark=mark).startswith("STALE") and server("GET", STOCK) == "5"


@pytest.mark.parametrize("mark", [str(MINE), f"{EPOCH - 1} {MINE}"])
def test_a_writer_needs_its_own_epoch_in_the_mark(server, run, mark):
    assert run("fenced_apart", "DECR", mark=mark).startswith("STALE") and server("GET", STOCK) == "5"


def test_the_identity_of_a_master_of_sentinels_counts_too(run):
    """It ends with the sentinels' epoch, which the server itself does not have."""
    before = {"mark": f"{EPOCH} {MINE}", "newest": OTHER, "epochs": "x:1@12"}
    assert run("fenced_read", **before).startswith("STALE") and run("fenced_apart", "DECR", **before).startswith("STALE")
    assert run("fenced_read", here="x:12", **before) == "5"


@pytest.mark.parametrize("here,counts", [("x:1", True), ("y:1", False), (None, False)])
def test_a_newest_token_counts_if_this_server_gave_it(run, here, counts):
    """A lock that was on this server before leaves its newest token there, for up to a day."""
    before = {"mark": f"{EPOCH} {MINE}", "newest": OTHER, "here": here}
    assert (run("fenced_read", **before) == "5") != counts
    assert (run("fenced_apart", "DECR", **before) == 4) != counts


@pytest.mark.parametrize("here,counts", [("x:1", True), ("y:1", False), (None, False)])
def test_a_newest_token_that_is_lost_excludes_all(server, run, here, counts):
    """It counts only if this server gives the tokens. Then nobody can tell which one is the newest."""
    before = {"mark": f"{EPOCH} {MINE}", "newest": None, "here": here}
    answers = [run("fenced_read", **before), run("fenced_apart", "DECR", **before)]
    assert answers == ([f"STALE {MINE}: the last that read is unknown"] * 2 if counts else ["5", 4])
    assert server("GET", MARK) == before["mark"]


@pytest.fixture
def epoch(server):
    """epoch.lua: raises from that number; its answer."""
    server("FLUSHALL")
    return lambda old, above=0, rung="fair": server(
        "EVAL", (LUA / "epoch.lua").read_text(), 1, EPOCH_KEY, old, above, rung, "redis", "s", "i")


def test_an_epoch_is_raised_from_exactly_one_number(server, epoch):
    seconds, micros = server("TIME")
    first = epoch("")
    assert first[1:] == ["fair", "redis", "s", "i", 1] and int(first[0]) >= int(seconds) * 1000000 + int(micros)
    assert epoch("", rung="notify") == epoch(int(first[0]) - 1, rung="notify") == first[:5] + [0]
    second = epoch(first[0], rung="notify")
    assert int(second[0]) > int(first[0]) and second[1] == "notify" and second[5] == 1
    assert epoch(first[0]) == second[:5] + [0]
    assert server("PTTL", EPOCH_KEY) == -1


@pytest.mark.parametrize("lost", [False, True])
def test_epochs_grow_whatever_the_clock_says(server, epoch, lost):
    """The clock was ahead; and if the key is lost as well, the instance that makes it again knows the highest."""
    server("HSET", EPOCH_KEY, "epoch", FAR)
    if lost:
        server("DEL", EPOCH_KEY)
    assert int(epoch("" if lost else FAR, FAR if lost else 0)[0]) == FAR + 1


# ---- Stages -------------------------------------------------------------------------------------


def epoch_of(server):
    """What stands in the stock's server."""
    words = server("HGETALL", EPOCH_KEY)
    found = dict(zip(words[::2], words[1::2]))
    return {**found, "epoch": int(found["epoch"])} if found else None


def told(shop):
    return shop.admin("GET", "/lock").json["epoch"]


def ended(shop, outcome):
    return shop.metric(f'inventory_sales_total{{outcome="{outcome}"}}')


def is_stale(shop, reply):
    return reply.status == 503 and reply.problem == "lock-lost" and ended(shop, "stale_epoch") == 1


def is_told_by_the_stock(shop, server):
    """The first sale after another instance's switch: the stock refuses it, and the instance learns why."""
    return is_stale(shop, shop.sell()) and is_not_switched(shop, server, shop.sell)


def is_not_switched(shop, server, call):
    """It refuses, says so everywhere, and leaves the epoch as it is."""
    before = epoch_of(server)
    reply = call()
    assert reply.status == 503 and reply.problem == "not-switched" and "PUT /lock" in reply.json["detail"], reply
    assert told(shop)["ours"] is False and told(shop)["number"] == before["epoch"]
    assert shop.metric("inventoryd_epoch_refused") == 1 and len(shop.logged("not-switched")) == 1
    return epoch_of(server) == before


# ---- Beginning ----------------------------------------------------------------------------------


def test_the_first_section_makes_the_epoch_and_others_adopt_it(redis, start, place):
    server, flags = place
    a, b = (start(redis, *FENCED, *flags, name=name) for name in "ab")
    assert epoch_of(server) is None and told(a) is None and a.metric("inventoryd_epoch") == 0
    assert a.stock(value=5).status == 200
    made = epoch_of(server)
    assert (made["rung"], made["engine"], made["servers"]) == ("fair", "redis", f"127.0.0.1:{redis.port}/0")
    assert made["identity"] == redis("GET", IDENTITY_KEY) and redis("PTTL", IDENTITY_KEY) == -1
    assert [shop.sell().json["unit"] for shop in (a, b, a, b)] == [5, 4, 3, 2]
    assert epoch_of(server) == made and told(a) == told(b) == {
        "number": made["epoch"], "rung": "fair", "engine": "redis", "servers": made["servers"],
        "identity": made["identity"], "ours": True}
    assert [shop.metric("inventoryd_epoch_raised_total") for shop in (a, b)] == [1, 0]
    assert a.metric("inventoryd_epoch") == made["epoch"] and a.metric("inventoryd_epoch_refused") == 0
    assert len(a.logged("epoch-raised")) == len(a.logged("epoch")) == len(b.logged("epoch")) == 1


def test_other_write_modes_have_no_epoch(redis, start):
    for write in ("decr", "set", "atomic", "fenced_textbook"):
        shop = start(redis, "--lock", "fair", "--write", write, name=write[-1])
        shop.stock(value=5)
        assert shop.sell().status == 200
    assert epoch_of(redis) is None and redis("EXISTS", IDENTITY_KEY) == 0


def sent_for(path, request):
    """The sale's commands, a script by its file's name."""
    names = {}
    for event in read_history(path):
        words = event.get("sent", "").split()
        if words[:1] == ["EVAL"] and (event.get("request") or "") != request:
            continue
        if event.get("request") == request and event["event"] == "command":
            names.setdefault(request, []).append(words[0] if words[0] != "SET" else f"SET {words[1]}")
    return names.get(request, [])


def test_what_a_sale_costs(redis, start, place, tmp_path):
    """One command more than without an epoch, and no round trip: it goes out with the acquire. None, for a sale that has
    the lock from another one of its client."""
    _, flags = place
    shop = start(redis, *FENCED, *flags, "--history", tmp_path / "h.jsonl", "--history-commands", "--ttl-ms", 600000,
                 "--handoff-ms", 30000)
    shop.stock(value=9)
    shop.sell(request="first")  # the scripts are known now
    shop.sell(request="alone")
    read = "GET" if not flags else "EVALSHA"
    assert sent_for(tmp_path / "h.jsonl", "alone") == [f"SET {IDENTITY_KEY}", "EVALSHA", read, "EVALSHA", "EVALSHA"]
    first = park(shop, "sale.before_write", shop.sell, request="holder")
    second = Background(shop.sell, request="next")
    wait_until(lambda: shop.metric("inventoryd_sales_waiting") == 1, "the next sale waits in the client")
    arm(shop, "sale.before_write", "off")
    assert first.result().status == second.result().status == 200
    assert shop.metric("lock_handoffs_total") == 1
    assert sent_for(tmp_path / "h.jsonl", "next") == [read, "EVALSHA", "EVALSHA"]


def test_the_mark_of_an_older_version_is_no_hindrance(redis, start, other):
    """It has a token and no epoch."""
    other("SET", MARK, FAR)
    shop = start(redis, *FENCED, "--stock-redis", other.url)
    shop.stock(value=5)
    assert shop.sell().json["unit"] == 5 and other("GET", MARK).startswith(f"{epoch_of(other)['epoch']} ")


# ---- A switch -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rung", ["notify", "read_write"])
@pytest.mark.parametrize("key", [None, "k"])
def test_a_frozen_holder_and_an_instance_that_is_not_switched(redis, start, place, tmp_path, rung, key):
    server, flags = place
    a, b = (start(redis, *FENCED, *flags, "--history", tmp_path / f"{name}.jsonl", name=name) for name in "ab")
    a.stock(value=5)
    before = epoch_of(server)
    frozen = park(a, "sale.after_read", a.sell, request="frozen", key=key)
    assert redis("DEL", LOCK) == 1
    assert b.switch(rung=rung).status == 200
    switched = epoch_of(server)
    assert switched["epoch"] > before["epoch"] and switched["rung"] == rung
    arm(a, "sale.after_read", "off")
    assert is_stale(a, frozen.result()) and server("GET", STOCK) == "5"
    assert is_not_switched(a, server, lambda: a.sell(request="late"))
    assert b.sell().json["unit"] == 5 and epoch_of(server)["rung"] == rung
    assert is_not_switched(a, server, a.sell) and is_not_switched(a, server, lambda: a.restock(1))
    assert ended(a, "not_switched") == 2 and server("GET", STOCK) == "4"
    stands = epoch_of(server)
    assert a.switch(rung=rung).json["epoch"] == told(b) and told(b)["number"] == stands["epoch"]
    assert a.sell().json["unit"] == 4 and b.sell().json["unit"] == 3 and epoch_of(server) == stands
    reasons = {event["request"]: event["reason"] for event in read_history(tmp_path / "a.jsonl")
               if event["event"] == "refused"}
    assert (reasons["frozen"], reasons["late"]) == ("stale-epoch", "not-switched")


def test_who_starts_with_another_lock_refuses_until_it_is_switched(redis, start, place):
    server, flags = place
    a = start(redis, *FENCED, *flags)
    a.stock(value=5)
    b = start(redis, "--lock", "notify", *ON, *flags, name="b")
    assert is_not_switched(b, server, b.sell) and is_not_switched(b, server, lambda: b.stock(value=7))
    assert a.sell().json["unit"] == 5
    assert b.switch().json["epoch"]["rung"] == "notify"  # the lock that it has: this is an operator's word
    assert b.sell().json["unit"] == 4 and is_told_by_the_stock(a, server)


def test_the_locks_server_is_switched(redis, start, other, tmp_path):
    """The old server's tokens are far above the new one's: without an epoch nothing would be sold any more."""
    stock = Redis(tmp_path / "stock")
    try:
        a = start(redis, *FENCED, "--stock-redis", stock.url)
        b = start(other, *FENCED, "--stock-redis", stock.url, name="b")
        redis("SET", TOKEN, FAR)
        a.stock(value=5)
        frozen = park(a, "sale.after_read", a.sell)
        assert int(stock("GET", MARK).split()[1]) > FAR
        assert is_not_switched(b, stock, b.sell)
        assert b.switch(rung="fair").json["epoch"]["servers"] == f"127.0.0.1:{other.port}/0"
        assert b.sell().json["unit"] == 5
        arm(a, "sale.after_read", "off")
        assert is_stale(a, frozen.result()) and is_not_switched(a, stock, a.sell) and stock("GET", STOCK) == "4"
    finally:
        stock.kill()


def test_a_lost_reply_after_a_switch_proves_nothing(redis, start, other, tmp_path):
    """a still has its own lock, and the stock is what its write would have left: another instance has sold that unit."""
    stock = Redis(tmp_path / "stock")
    post = LossyProxy(stock)
    try:
        a = start(redis, *FENCED, "--stock-redis", post.url, "--lock-service", "a", "--ttl-ms", 600000)
        b = start(other, *FENCED, "--stock-redis", stock.url, name="b")
        a.stock(value=6)
        assert a.sell().json["unit"] == 6  # so that the stock's server knows the scripts
        frozen = park(a, "sale.before_write", a.sell)
        b.switch(rung="fair")
        assert b.sell().json["unit"] == 5
        post.lose = b"DECR"
        arm(a, "sale.before_write", "off")
        reply = frozen.result()
        assert post.lost == 1 and reply.problem == "outcome-unknown", reply
        assert stock("GET", STOCK) == "4"
    finally:
        post.end()
        stock.kill()


def test_a_lock_that_leaves_the_stocks_server_leaves_its_newest_token(redis, start, other):
    """It is far above those of the new server, and counts no more."""
    a = start(redis, *FENCED)
    redis("SET", TOKEN, FAR)
    a.stock(value=5)
    b = start(other, *FENCED, "--stock-redis", redis.url, name="b")
    assert b.switch().status == 200 and int(redis("GET", TOKEN)) > FAR
    assert b.sell().json["unit"] == 5 and is_told_by_the_stock(a, redis)


def test_one_service_by_two_addresses(redis, start, other):
    """Its name is given; the addresses do not matter then."""
    shops = [start(f"redis://{host}:{redis.port}/0", *FENCED, "--stock-redis", other.url, *flags, name=name)
             for name, host, flags in (("a", "127.0.0.1", ("--lock-service", "l1")),
                                       ("b", "localhost", ("--lock-service", "l1")), ("c", "localhost", ()))]
    shops[0].stock(value=5)
    assert shops[1].sell().json["unit"] == 5 and epoch_of(other)["servers"] == "l1"
    assert is_not_switched(shops[2], other, shops[2].sell)


@pytest.mark.parametrize("write,lines", [("fenced", 0), ("decr", 1)])
def test_a_name_without_a_fence_has_no_effect_yet(redis, start, write, lines):
    shop = start(redis, "--lock", "fair", "--write", write, "--lock-service", "l1")
    assert len(shop.logged("no-effect")) == lines


@pytest.mark.parametrize("comes_back", [False, True])
def test_leaving_the_fence_shuts_its_writers_out(redis, start, other, comes_back):
    """After the switch, or between two switches, b's sales leave no mark."""
    a, b = (start(redis, *FENCED, "--stock-redis", other.url, name=name) for name in "ab")
    a.stock(value=5)
    frozen = park(a, "sale.after_read", a.sell)
    assert redis("DEL", LOCK) == 1
    assert b.switch(write="decr").status == 200 and b.sell().json["unit"] == 5
    assert not comes_back or b.switch(write="fenced").status == 200
    arm(a, "sale.after_read", "off")
    assert is_stale(a, frozen.result()) and other("GET", STOCK) == "4"
    assert a.sell().json["unit"] == 4 and b.sell().json["unit"] == 3  # the lock is the same, so a goes on


def test_coming_to_the_fence_shuts_earlier_writers_out(redis, start, other):
    """b's sales have left no mark, so the mark still names a's frozen one."""
    a = start(redis, *FENCED, "--stock-redis", other.url)
    b = start(redis, "--lock", "fair", *ON[:2], "--stock-redis", other.url, name="b")
    a.stock(value=5)
    before = epoch_of(other)
    frozen = park(a, "sale.after_read", a.sell)
    assert redis("DEL", LOCK) == 1
    assert b.sell().json["unit"] == 5
    assert b.switch(write="fenced").status == 200 and epoch_of(other)["epoch"] > before["epoch"]
    arm(a, "sale.after_read", "off")
    assert is_stale(a, frozen.result()) and other("GET", STOCK) == "4"
    assert a.sell().json["unit"] == 4 and b.sell().json["unit"] == 3
    stands = epoch_of(other)
    assert b.switch(write="fenced").status == 200 and epoch_of(other) == stands


def test_a_switch_without_the_stocks_server_changes_nothing(redis, start, other):
    shop = start(redis, *FENCED, "--stock-redis", other.url, "--redis-timeout-ms", 200)
    shop.stock(value=5)
    other.kill()
    reply = shop.switch(rung="notify")
    assert reply.status == 503 and reply.problem == "stock-unavailable" and str(other.port) not in reply.json["detail"]
    assert shop.admin("GET", "/lock").json["rung"] == "fair"


def test_two_operators(redis, start):
    """The last switch stands; both instances say which one it is."""
    a, b = (start(redis, *FENCED, name=name) for name in "ab")
    a.stock(value=5)
    assert a.switch(rung="notify").status == b.switch(rung="read_write").status == 200
    assert is_not_switched(a, redis, a.sell) and b.sell().json["unit"] == 5 and told(a)["rung"] == "read_write"


# ---- Another server answers ---------------------------------------------------------------------


def test_the_locks_server_lost_its_memory(redis, start, other):
    """Its tokens begin far below the earlier ones, one of which the mark still names."""
    a, b = (start(redis, *FENCED, "--stock-redis", other.url, name=name) for name in "ab")
    redis("SET", TOKEN, FAR)
    a.stock(value=5)
    before = epoch_of(other)
    frozen = park(a, "sale.after_read", a.sell)
    redis.restart()
    assert b.sell().json["unit"] == 5
    after = epoch_of(other)
    assert after["epoch"] > before["epoch"] and after["identity"] == redis("GET", IDENTITY_KEY) != before["identity"]
    assert len(b.logged("epoch-raised")) == 1
    arm(a, "sale.after_read", "off")
    assert is_stale(a, frozen.result())
    assert a.sell().json["unit"] == 4 and epoch_of(other) == after and told(a) == told(b)


def test_a_sale_goes_on_when_the_next_instance_is_switched(redis, start, other):
    """Nobody has written in that epoch yet, so there is nobody to shut out."""
    a, b = (start(redis, "--lock", "fair", *ON[:2], "--stock-redis", other.url, name=name) for name in "ab")
    a.stock(value=5)
    assert a.switch(write="fenced").status == 200
    between = park(a, "sale.entered", a.sell)
    before = epoch_of(other)
    assert b.switch(write="fenced").status == 200
    assert epoch_of(other) == before and before["identity"] == ""
    arm(a, "sale.entered", "off")
    assert between.result().json["unit"] == 5 and b.sell().json["unit"] == 4
    assert epoch_of(other)["identity"] == redis("GET", IDENTITY_KEY)


def test_an_old_holder_does_not_raise_the_epoch_back(redis, start, other):
    """It was granted the lock by the old memory, and its instance has adopted the new epoch since."""
    a, b = (start(redis, *FENCED, "--stock-redis", other.url, name=name) for name in "ab")
    a.stock(value=5)
    a.stock("pen", value=5)
    old = park(a, "sale.entered", a.sell)
    redis.restart()
    assert b.sell().json["unit"] == 5
    arm(a, "sale.after_read", "off")
    after = epoch_of(other)
    second = Background(a.sell, "pen")
    wait_until(lambda: paused(a, "sale.entered") == 2, "both are there")
    arm(a, "sale.entered", "off")
    assert second.result().json["unit"] == 5 and is_stale(a, old.result())
    assert epoch_of(other) == after and other("GET", STOCK) == "4"


def test_a_sale_that_was_handed_the_lock_does_not_raise_the_epoch_back(redis, start, other):
    """It knows the new epoch before it asks for the lock; but its grant is from the old memory."""
    a, b = (start(redis, *FENCED, "--stock-redis", other.url, "--ttl-ms", 600000, "--handoff-ms", 60000, name=name)
            for name in "ab")
    a.stock(value=5)
    a.stock("pen", value=5)
    arm(a, "sale.entered", "1*pause")
    old = Background(a.sell)
    wait_until(lambda: paused(a, "sale.entered") == 1, "the old holder is there")
    redis.restart()
    assert b.sell().json["unit"] == 5 and a.sell("pen").json["unit"] == 5
    after = epoch_of(other)
    assert told(a)["number"] == after["epoch"]
    second = Background(a.sell)
    wait_until(lambda: a.metric("inventoryd_sales_waiting") == 1, "the next sale waits in the client")
    arm(a, "sale.entered", "off")
    assert old.result().problem == second.result().problem == "lock-lost"
    assert a.metric("lock_handoffs_total") == 1 and ended(a, "stale_epoch") == 2
    assert epoch_of(other) == after and other("GET", STOCK) == "4"
    assert a.sell().json["unit"] == 4 and epoch_of(other) == after


def test_a_first_holder_does_not_raise_what_another_one_has_raised(redis, start, other):
    """After a switch the identity is not known yet. The first to have the lock is frozen before it tells its own."""
    a, b = (start(redis, *FENCED, "--stock-redis", other.url, name=name) for name in "ab")
    a.stock(value=5)
    assert a.switch(rung="notify").status == b.switch(rung="notify").status == 200
    assert epoch_of(other)["identity"] == ""
    old = park(a, "sale.entered", a.sell)
    redis.restart()
    assert b.sell().json["unit"] == 5
    after = epoch_of(other)
    arm(a, "sale.entered", "off")
    assert is_stale(a, old.result()) and epoch_of(other) == after
    assert after["identity"] == redis("GET", IDENTITY_KEY) and a.sell().json["unit"] == 4


def test_a_reentrant_acquire_at_another_server(redis, start, other):
    shop = start(redis, "--lock", "notify", *ON, "--stock-redis", other.url)
    shop.stock(value=5)
    sale = park(shop, "sale.after_read", shop.ask, "POST", "/inventory/phone/sale?reenter=1")
    redis("DEL", IDENTITY_KEY)
    arm(shop, "sale.after_read", "off")
    assert sale.result().problem == "lock-lost" and other("GET", STOCK) == "5"
    assert shop.sell().json["unit"] == 5


DAMAGED = [  # a key, who damages it; the problem of the next sale
    (IDENTITY_KEY, ("LPUSH", "x"), "lock-invalid"), (IDENTITY_KEY, ("SET", ""), "lock-unavailable"),
    (IDENTITY_KEY, ("SET", "x" * 96), "lock-unavailable"), (TOKEN, ("LPUSH", "x"), "lock-invalid"),
    (EPOCH_KEY, ("SET", "x"), "stock-invalid")]


@pytest.mark.parametrize("apart", [False, True])
def test_a_damaged_key_is_named(redis, start, tmp_path, apart):
    locks = Redis(tmp_path / "locks") if apart else redis
    shop = start(None, "--lock-redis", locks.url, "--stock-redis", redis.url, *FENCED, "--ttl-ms", 3600000)
    assert shop.stock(value=100).status == 200
    for key, (command, value), problem in DAMAGED:
        server = redis if key == EPOCH_KEY else locks
        server("DEL", key)
        server(command, key, value)
        reply = shop.sell()
        assert reply.problem == problem and key in reply.json["detail"], (key, command, reply)
        server("DEL", key)
        wait_until(lambda: shop.sell().status == 200, "it sells again, under a lock that was given back")
    assert shop.stock().json["stock"] == 100 - len(DAMAGED)
    shop.end()
    locks.kill()


def test_a_server_that_does_not_tell_its_identity(redis, start):
    redis("SET", IDENTITY_KEY, "x" * 96)  # no value of the library's
    shop = start(redis, *FENCED)
    redis("SET", STOCK, 5)
    reply = shop.sell()
    assert reply.status == 503 and reply.problem == "lock-unavailable" and "identity" in reply.json["detail"]
    assert redis("GET", STOCK) == "5" and epoch_of(redis) is None


# ---- The epoch is lost --------------------------------------------------------------------------


def test_a_lost_epoch_refuses_and_a_new_one_is_higher(redis, start, place):
    server, flags = place
    shop = start(redis, *FENCED, *flags)
    shop.stock(value=5)
    before = epoch_of(server)
    sale = park(shop, "sale.after_read", shop.sell)
    server("DEL", EPOCH_KEY)
    arm(shop, "sale.after_read", "off")
    assert is_stale(shop, sale.result()) and epoch_of(server) is None
    assert shop.sell().json["unit"] == 5 and epoch_of(server)["epoch"] > before["epoch"]


def test_the_stocks_server_lost_its_memory(redis, start, other):
    """The operator sets the stock again: a write from before does not count for it."""
    a, b = (start(redis, *FENCED, "--stock-redis", other.url, name=name) for name in "ab")
    a.stock(value=5)
    before = epoch_of(other)
    frozen = park(a, "sale.after_read", a.sell)
    assert redis("DEL", LOCK) == 1
    other("FLUSHALL")
    assert b.stock(value=9).status == 200 and epoch_of(other)["epoch"] > before["epoch"]
    arm(a, "sale.after_read", "off")
    assert is_stale(a, frozen.result()) and other("GET", STOCK) == "9"


def test_who_was_not_switched_makes_no_lost_epoch_again(redis, start):
    a, b = (start(redis, *FENCED, name=name) for name in "ab")
    a.stock(value=5)
    assert b.switch(rung="notify").status == 200 and is_told_by_the_stock(a, redis)
    redis("DEL", EPOCH_KEY)
    reply = a.sell()
    assert reply.problem == "not-switched" and "lost" in reply.json["detail"] and epoch_of(redis) is None
    assert is_stale(b, b.sell()) and b.sell().json["unit"] == 5 and epoch_of(redis)["rung"] == "notify"


def test_a_key_that_holds_something_else(redis, start):
    shop = start(redis, *FENCED)
    redis("SET", STOCK, 5)
    redis("HSET", EPOCH_KEY, "epoch", "seven", "rung", "fair", "engine", "redis", "servers", "s", "identity", "i")
    assert shop.sell().problem == "stock-invalid"
    redis("DEL", EPOCH_KEY)
    redis("SET", EPOCH_KEY, "x")
    assert shop.sell().problem == "stock-invalid" and redis("GET", STOCK) == "5"


@pytest.mark.parametrize("kind", [("SET", EPOCH_KEY, 7), ("HSET", EPOCH_KEY, "epoch", "seven")])
def test_a_switch_that_meets_something_else_says_what_to_do(redis, start, kind):
    """To send it again would not help."""
    shop = start(redis, *FENCED)
    redis(*kind)
    reply = shop.switch(rung="notify")
    assert reply.status == 500 and reply.problem == "stock-invalid" and f"DEL {EPOCH_KEY}" in reply.json["detail"]
    assert shop.admin("GET", "/lock").json["rung"] == "fair"
    redis("DEL", EPOCH_KEY)
    assert shop.switch(rung="notify").status == 200 and told(shop)["ours"]


@pytest.mark.parametrize("key", [None, "k"])
def test_a_key_of_another_type_is_named(redis, start, place, key):
    """The instance knows the epoch by then, so a script meets the key. The script's hash and line are not shown."""
    server, flags = place
    shop = start(redis, *FENCED, *flags)
    shop.stock(value=5)
    assert shop.sell().json["unit"] == 5
    server("DEL", EPOCH_KEY)
    server("RPUSH", EPOCH_KEY, "x")
    reply = shop.sell(key=key)
    assert reply.status == 500 and reply.problem == "stock-invalid", reply
    says = f"{EPOCH_KEY} is a list, where a hash is needed; an operator must delete it (DEL {EPOCH_KEY})"
    assert says in reply.json["detail"], reply
    assert "script" not in reply.json["detail"] and server("GET", STOCK) == "4"
    server("DEL", EPOCH_KEY)
    wait_until(lambda: shop.sell().status == 200, "it sells again")


@pytest.mark.parametrize("key", [None, "k"])
def test_a_mark_that_no_lock_has_left(redis, start, other, key):
    """Above 2^63. To wait would not help, not even for a day."""
    shop = start(redis, *FENCED, "--stock-redis", other.url)
    shop.stock(value=5)
    other("SET", MARK, f"{epoch_of(other)['epoch']} 99999999999999999999")
    reply = shop.sell(key=key)
    assert reply.status == 500 and reply.problem == "stock-invalid", reply
    says = f"{MARK} holds 99999999999999999999, above all tokens that a lock gives; an operator must delete it (DEL {MARK})"
    assert says in reply.json["detail"], reply
    assert other("GET", STOCK) == "5" and other("DEL", MARK) == 1
    assert shop.sell(key=key).json["unit"] == 5


def test_a_newest_token_that_no_lock_has_given(redis, start):
    """Without the note of a release beside it, the lock goes on from there."""
    shop = start(redis, *FENCED)
    shop.stock(value=5)
    grant = TOKEN.replace("token", "grant", 1)
    redis("DEL", grant)
    redis("SET", TOKEN, "99999999999999999999")
    reply = shop.sell()
    assert reply.status == 500 and reply.problem == "stock-invalid" and redis("GET", STOCK) == "5", reply
    assert f"an operator must delete it and its note (DEL {TOKEN} {grant})" in reply.json["detail"], reply
    redis("DEL", TOKEN, grant, LOCK)
    wait_until(lambda: shop.sell().status == 200, "it sells again")


def test_an_epoch_that_leaves_no_room(redis, start):
    """An instance makes no epoch below one that it has seen."""
    shop = start(redis, *FENCED)
    shop.stock(value=5)
    redis("HSET", EPOCH_KEY, "epoch", 2 ** 53 - 1)
    wait_until(lambda: shop.sell().status == 200, "it takes that epoch")
    redis("DEL", EPOCH_KEY)
    wait_until(lambda: shop.sell().status == 500, "it tries to make the next one")
    for reply in (shop.sell(), shop.switch(rung="notify")):
        assert reply.problem == "stock-invalid", reply
        assert (f"an operator must end all instances, delete this key (DEL {EPOCH_KEY}), and start them again"
                in reply.json["detail"]), reply
    shop.end()
    redis("DEL", EPOCH_KEY)
    assert start(redis, *FENCED, name="b").sell().status == 200


def test_the_epoch_is_told_digit_by_digit(redis, start):
    shop = start(redis, *FENCED)
    shop.stock(value=5)
    assert f'"number":{epoch_of(redis)["epoch"]},'.encode() in shop.admin("GET", "/lock").body
