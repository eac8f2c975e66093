# SPDX-License-Identifier: Apache-2.0
"""A lock that a majority of several servers grants: how they are named, what a dead one changes, and the switch from a
lock on one server to it and back."""
import threading

import pytest

from failpoints import arm, park
from test_fence_epoch import epoch_of, is_not_switched, is_stale, is_told_by_the_stock
from test_lifecycle import config, run
from world import Background, LossyProxy, Redis, inventoryd_redis_up, read_history, wait_until

SERVERS = 3
URLS = "redis://a,redis://b,redis://c"
LOCK, STOCK, EPOCH_KEY, IDENTITY_KEY = "lock:{phone}", "inventory:{phone}", "inventory:epoch", "dlock:identity:set"


@pytest.fixture
def several(tmp_path):
    servers = [Redis(tmp_path / f"lock{number}") for number in range(SERVERS)]
    yield servers
    for server in servers:
        server.kill()


def urls(servers):
    return ",".join(server.url for server in servers)


def names(servers):
    return [f"127.0.0.1:{server.port}/0" for server in servers]


@pytest.fixture
def shop(redis, several, start):
    instance = start(redis, "--lock", "redlock", "--lock-servers", urls(several), "--admin-writes")
    instance.redis = redis
    instance.stock(value=100)
    return instance


def up(shop, servers):
    return [shop.metric('inventoryd_redis_up{role="lock_servers",server="%s"}' % name) for name in names(servers)]


# ---- How they are given --------------------------------------------------------------------------


def refused(*flags, **environment):
    done = run("--print-config", *flags, environment=environment)
    assert done.returncode == 2, done
    return done.stderr


@pytest.mark.parametrize("given, told", [
    ("redis://a", "needs an odd number of servers, 3 to 15, and 1 is given"),
    ("redis://a,redis://b", "and 2 are given"),
    ("redis://a,redis://b,redis://c,redis://d", "and 4 are given"),
    (",".join(f"redis://h{number}" for number in range(17)), "3 to 15, and 17 are given"),
    ("redis://a,redis://b,redis://A:6379/3", "A:6379/3 is given twice, and would count as two"),
    ("redis://a,redis://b,redis://user:secret@a", "a:6379/0 is given twice"),
    ("unix:/a,redis://b,unix:///a?db=2", "unix:/a?db=2 is given twice"),
    ("redis://a,redis://b,redis://a/1", "give each one once, with one database"),
    ("redis://a, redis://b,redis://c", "with its scheme and without blanks"),
    ("redis://a,redis://b,http://c", "a comma is followed by no URL; give each server with its scheme"),
    ("redis://a,redis://b,rediss://c", "needs TLS"),
    ("redis://a,redis://b,redis://c,", "a comma is followed by no URL"),
    ("redis://a,b,c", "a comma is followed by no URL"),
])
def test_what_is_wrong_with_them(given, told):
    for said in (refused("--lock-servers", given), refused(INVENTORYD_LOCK_SERVERS=given)):
        assert told in said
        assert "secret" not in said
    assert "--lock-servers: " in refused("--lock-servers", given)
    assert "INVENTORYD_LOCK_SERVERS: " in refused(INVENTORYD_LOCK_SERVERS=given)


def test_a_comma_begins_a_url_only_before_a_scheme():
    given = "redis://:a,b@h1,sentinel://u:c,d@s1,s2:27000/shop,unix:e,f@/run/redis.sock"
    given = given.replace("unix:e,f@", "unix:u:e,f@")
    shown = config("--lock", "redlock", "--lock-servers", given)["lock_servers"]
    assert shown == "redis://***@h1,sentinel://***@s1,s2:27000/shop,unix:***@/run/redis.sock"


def test_the_lock_says_that_it_needs_them():
    assert "--lock redlock keeps its lock on several independent Redis servers, and --lock-servers names none: start it with" in refused("--lock", "redlock")
    assert config("--lock-servers", URLS)["lock"] == "watchdog"  # they wait for a switch


@pytest.mark.parametrize("write", ["fenced", "fenced_textbook"])
def test_it_gives_tokens(write):
    given = config("--lock", "redlock", "--lock-servers", URLS, "--write", write)
    assert (given["lock"], given["write"]) == ("redlock", write)


def test_the_password_is_for_each_of_them(tmp_path, redis, start):
    servers = [Redis(tmp_path / f"lock{number}", "--requirepass", "se,cret") for number in range(SERVERS)]
    file = tmp_path / "password"
    file.write_text("se,cret\n")
    try:
        shop = start(redis, "--redis", f"redis://127.0.0.1:{redis.port}", "--lock", "redlock",
                     "--lock-servers", urls(servers), "--redis-password-file", file, ready=False)
        wait_until(lambda: shop.logged("started"), "it starts")
        redis("CONFIG", "SET", "requirepass", "se,cret")
        shop.port, shop.admin_port = shop.port_of("listening"), shop.port_of("admin-listening")
        wait_until(lambda: shop.stock(value=2).status == 200, "the stock's server takes the password")
        assert shop.sell().status == 200
    finally:
        for server in servers:
            server.kill()


# ---- What tells of them --------------------------------------------------------------------------


def test_they_are_named(shop, several):
    assert shop.sell().status == 200
    assert shop.admin("GET", "/lock").json["servers"] == names(several)
    assert shop.logged("started")[0]["detail"].endswith("lock on " + ",".join(sorted(names(several))))
    assert up(shop, several) == [1, 1, 1] and inventoryd_redis_up(shop) == [1, 1]
    assert shop.metric("lock_acquired_total") == 2  # the stock was set under it, too
    shop.switch(rung="fair")
    assert shop.admin("GET", "/lock").json["servers"] == [f"127.0.0.1:{shop.redis.port}/0"]
    shop.switch(rung="local")
    assert shop.admin("GET", "/lock").json["servers"] == []
    assert shop.metric("lock_acquired_total") == 2  # of both clients


def test_one_may_die(shop, several):
    assert shop.sell().status == 200
    several[0].kill()
    for _ in range(5):
        assert shop.sell().status == 200
    wait_until(lambda: up(shop, several) == [0, 1, 1], "it is away")
    assert shop.admin("GET", "/readyz").status == 200
    lost = shop.logged("lock-server-lost")
    assert len(lost) == 1 and lost[0]["detail"].startswith(f"redis://{names(several)[0]}: ")
    several[0].start()
    wait_until(lambda: up(shop, several) == [1, 1, 1], "it is back")
    assert shop.logged("lock-server-restored")[0]["detail"].startswith(f"redis://{names(several)[0]}: it accepts writes")
    assert shop.sell().status == 200


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_without_a_majority_nothing_is_sold(shop, several, how):
    assert shop.sell().status == 200
    for server in several[1:]:
        server.kill() if how == "killed" else server.freeze()
    reply = shop.sell()
    assert reply.problem == "lock-unavailable" and shop.redis("GET", "inventory:{phone}") == "99"
    wait_until(lambda: up(shop, several) == [1, 0, 0], "both are away")
    wait_until(lambda: "away" in shop.sell().json["detail"], "sales are refused at once")
    assert shop.sell().json["detail"].count("Redis: ") == 2  # what each of the two says
    ready = shop.admin("GET", "/readyz")
    assert ready.problem == "not-ready" and "2 of the lock's 3 servers are not ready, and 2 are needed" in ready.json["detail"]
    for name in names(several[1:]):
        assert f"redis://{name}: " in ready.json["detail"]
    assert shop.redis("GET", "inventory:{phone}") == "99"
    several[1].start() if how == "killed" else several[1].thaw()
    wait_until(lambda: shop.sell().status == 200, "one is back, and a majority is there")
    assert shop.admin("GET", "/readyz").status == 200
    if how == "frozen":
        several[2].thaw()


def on_several(start, redis, lock_servers):
    """The time-outs are longer than the test: an answer that waited for a server that hangs would not come."""
    return start(redis, "--lock", "redlock", "--lock-servers", urls(lock_servers), "--redis-timeout-ms", 60000)


def test_ready_though_a_minority_hangs(redis, start, tmp_path):
    servers = [Redis(tmp_path / f"lock{number}") for number in range(7)]
    shop = on_several(start, redis, servers)
    for server in servers[:3]:
        server.freeze()
    for _ in range(3):
        done = run("--healthcheck", f"http://127.0.0.1:{shop.admin_port}/readyz")
        assert done.returncode == 0, done.stderr
    for server in servers[:3]:
        server.thaw()
    shop.end()
    for server in servers:
        server.kill()


def test_readyz_asks_all_that_hang_together(redis, start, several):
    proxies = [LossyProxy(server) for server in several]
    shop = on_several(start, redis, proxies)
    assert shop.stock(value=1).status == 200 and shop.sell().status == 200
    wait_until(lambda: up(shop, proxies) == [1, 1, 1], "those who use them have their connections")
    known = [proxy.connections for proxy in proxies]
    for server in several:
        server.freeze()
    ready = Background(shop.admin, "GET", "/readyz")
    wait_until(lambda: all(proxy.connections > before for proxy, before in zip(proxies, known)), "all were asked")
    assert ready.is_alive()
    for server in several:
        server.kill()
    reply = ready.result()
    assert reply.problem == "not-ready" and "3 of the lock's 3 servers are not ready, and 2 are needed" in reply.json["detail"]
    for proxy in proxies:
        assert f"{proxy.url}: " in reply.json["detail"]
        proxy.end()


def replicas(folder):
    master = Redis(folder / "master")
    return [master] + [Redis(folder / f"replica{number}", "--replicaof", "127.0.0.1", str(master.port), "--replica-read-only", "no")
                       for number in range(2)]


def nodes(folder):
    servers = [Redis(folder / "master")] + [Redis(folder / f"node{number}", "--cluster-enabled", "yes") for number in range(2)]
    for server in servers[1:]:
        assert server("CLUSTER", "ADDSLOTSRANGE", 0, 16383) == "OK"
        wait_until(lambda server=server: "cluster_state:ok" in server("CLUSTER", "INFO"), "the node takes writes")
    return servers


def silent(folder):
    """They do not tell who they are."""
    servers = [Redis(folder / f"lock{number}") for number in range(SERVERS)]
    for server in servers:
        server("ACL", "SETUSER", "default", "-info")
    return servers


@pytest.fixture
def without_votes(request, tmp_path):
    servers = request.param(tmp_path)
    yield servers
    for server in servers:
        server.kill()


@pytest.mark.parametrize("without_votes, word", [
    (replicas, "it is a replica"), (nodes, "it is a node of a cluster"), (silent, "INFO does not say"),
], indirect=["without_votes"])
def test_readyz_counts_whom_the_lock_counts(redis, without_votes, start, word):
    """All of them take writes. The lock refuses them, and so no sale ever takes place."""
    shop = start(redis, "--lock", "redlock", "--lock-servers", urls(without_votes), "--wait-ms", 1000)
    redis("SET", STOCK, 1)
    assert shop.sell().problem == "lock-unavailable"
    reply = shop.admin("GET", "/readyz")
    assert reply.problem == "not-ready" and word in reply.json["detail"], reply.json


def test_readyz_finds_a_server_with_two_names(redis, start, several):
    """A majority takes writes, and the lock refuses all of them."""
    again = several[0].url.replace("127.0.0.1", "localhost")
    shop = start(redis, "--lock", "redlock", "--lock-servers", ",".join([several[0].url, several[1].url, again]))
    redis("SET", STOCK, 1)
    wait_until(lambda: shop.admin("GET", "/readyz").status == 503, "it is known which servers they are")
    reply = shop.admin("GET", "/readyz")
    assert reply.problem == "not-ready" and reply.json["detail"] == (
        f"{several[0].url}/0 and {again}/0 are the same server; each server may be named only once")
    assert shop.sell().problem == "lock-unavailable"


# ---- Tokens --------------------------------------------------------------------------------------


def pair_on(stock, several, start, folder):
    """Two instances, which may stop in a section. All servers have the same identity."""
    flags = ("--lock", "redlock", "--lock-servers", urls(several), "--write", "fenced", "--enable-failpoints",
             "--workers", 1)
    shops = [start(stock, *flags, "--history", folder / f"{name}.jsonl", name=name) for name in "ab"]
    assert shops[0].stock(value=5).status == 200
    wait_until(lambda: len({server("GET", IDENTITY_KEY) for server in several}) == 1, "all servers have one identity")
    return shops


@pytest.fixture
def pair(several, redis, start, tmp_path):
    return pair_on(redis, several, start, tmp_path)


def expire(servers):
    """No server has the key, as if its time were over. A late one gets it only after its majority."""
    wait_until(lambda: sum(server("DEL", LOCK) for server in servers) == 0 and
               not any(server("EXISTS", LOCK) for server in servers), "the lock is gone")


def granted(folder, name):
    return [event for event in read_history(folder / f"{name}.jsonl") if event["event"] == "granted"]


@pytest.mark.parametrize("first", ["late", "next"])
def test_a_late_write_is_refused(pair, redis, several, tmp_path, first):
    """a's sale has the lock, and has read. Its lock is lost, and b's sale has it: b's write alone is accepted."""
    a, b = pair
    sale = park(a, "sale.before_write", a.sell, request="late")
    expire(several)
    second = park(b, "sale.before_write", b.sell)
    if first == "next":
        arm(b, "sale.before_write", "off")
        assert second.result().json["unit"] == 5
    arm(a, "sale.before_write", "off")
    reply = sale.result()
    assert reply.status == 503 and reply.problem == "lock-lost" and "STALE" in reply.json["detail"]
    arm(b, "sale.before_write", "off")
    assert second.result().json["unit"] == 5 and redis("GET", STOCK) == "4"
    refused = [event for event in read_history(tmp_path / "a.jsonl") if event["event"] == "refused"][-1]
    assert refused["newest"] == granted(tmp_path, "b")[-1]["token"] > refused["token"] > 0


def test_the_newest_token_of_one_server_does_not_count(several, start, tmp_path):
    """The stock is on one of the lock's servers, which has not accepted b's token."""
    a, b = pair_on(several[0], several, start, tmp_path)
    sale = park(a, "sale.before_write", a.sell)
    newest = f"dlock:token:{LOCK}"
    wait_until(lambda: len({server("GET", newest) for server in several}) == 1, "all have accepted a's token")
    several[0]("DEL", IDENTITY_KEY)
    several[0]("RPUSH", IDENTITY_KEY, "none")  # so it has no vote
    expire(several)
    second = park(b, "sale.before_write", b.sell)
    assert int(several[0]("GET", newest)) < int(several[1]("GET", newest))
    arm(a, "sale.before_write", "off")
    reply = sale.result()
    assert reply.problem == "lock-lost" and "STALE" in reply.json["detail"]
    arm(b, "sale.before_write", "off")
    assert second.result().json["unit"] == 5 and several[0]("GET", STOCK) == "4"


def test_each_sale_has_a_larger_token_of_one_identity(pair, redis, several, tmp_path):
    a, b = pair
    assert [shop.sell().json["unit"] for shop in (a, b, a, b)] == [5, 4, 3, 2]
    mine, others = ([event["token"] for event in granted(tmp_path, name)] for name in "ab")
    assert mine[-2] < others[-2] < mine[-1] < others[-1]
    identity = redis("HGET", EPOCH_KEY, "identity")
    wait_until(lambda: all(server("GET", IDENTITY_KEY) == identity for server in several), "all have it")
    assert not any(server("EXISTS", "dlock:identity") for server in several)


def test_a_server_that_lost_its_memory_raises_the_epoch(pair, redis, several):
    a, b = pair
    assert a.sell().json["unit"] == 5 and b.sell().json["unit"] == 4
    epoch, identity = redis("HMGET", EPOCH_KEY, "epoch", "identity")
    several[2]("FLUSHALL")
    several[1].kill()  # so the empty one is needed for a majority
    assert b.sell().json["unit"] == 3
    now, new = redis("HMGET", EPOCH_KEY, "epoch", "identity")
    assert int(now) > int(epoch) and new != identity and several[2]("GET", IDENTITY_KEY) == new
    assert len(b.logged("epoch-raised")) == 1


# ---- The switch ----------------------------------------------------------------------------------


def test_without_servers_it_is_not_switched(redis, start):
    shop = start(redis, "--admin-writes")
    reply = shop.switch(rung="redlock")
    assert reply.problem == "invalid-value" and "start it with --lock-servers URL,URL,URL" in reply.json["detail"]
    assert shop.admin("GET", "/lock").json["rung"] == "watchdog"


class Buyers:
    """Buy until they are stopped. No sale may fail."""

    def __init__(self, count, *shops):
        self.sold, self.over, self.threads = [], threading.Event(), []
        self.shops = shops * count
        self.start()

    def start(self):
        self.over.clear()
        self.threads = [Background(self.buy, shop) for shop in self.shops]

    def buy(self, shop):
        while not self.over.is_set():
            reply = shop.sell()
            assert reply.status == 200, reply
            self.sold.append(reply.json["unit"])

    def stop(self):
        self.over.set()
        for thread in self.threads:
            thread.result()

    def wait_sold(self):
        count = len(self.sold)
        wait_until(lambda: len(self.sold) > count + 20, "sales go on")

    def check(self, redis, stock):
        """Each unit was sold once."""
        assert len(set(self.sold)) == len(self.sold) and int(redis("GET", "inventory:{phone}")) == stock - len(self.sold)


@pytest.fixture(params=["another server", "one of the lock's servers"])
def three(request, redis, several, start, tmp_path):
    """The server of the stock, and of `fair`; and three instances with `fair` that know of redlock's servers, too."""
    stock = redis if request.param == "another server" else several[0]
    flags = ("--lock", "fair", "--write", "fenced", "--lock-servers", urls(several), "--enable-failpoints",
             "--admin-writes", "--workers", 1)
    shops = [start(stock, *flags, "--history", tmp_path / f"{name}.jsonl", name=name) for name in "abc"]
    assert shops[0].stock(value=8).status == 200
    return stock, *shops


@pytest.mark.parametrize("to", ["redlock", "fair"])
def test_a_frozen_holder_and_an_instance_that_is_not_switched(three, several, tmp_path, to):
    """a's sale holds the lock, and has read. b is switched, and sells. c is not."""
    stock, a, b, c = three

    def raised():
        return [shop.metric("inventoryd_epoch_raised_total") for shop in (a, c)]

    if to == "fair":
        assert all(shop.switch(rung="redlock").status == 200 for shop in (a, b, c))
    assert [shop.sell().json["unit"] for shop in (a, b, c)] == [8, 7, 6]
    old, before = epoch_of(stock), raised()
    frozen = park(a, "sale.before_write", a.sell, request="frozen")
    expire([stock, *several])  # so c's sale gets the lock that a still believes to hold
    assert b.switch(rung=to).status == 200
    assert epoch_of(stock)["epoch"] > old["epoch"] and epoch_of(stock)["rung"] == to
    assert b.sell().json["unit"] == 5
    stands = epoch_of(stock)
    assert is_told_by_the_stock(c, stock)
    arm(a, "sale.before_write", "off")
    reply = frozen.result()
    assert is_stale(a, reply) and "EPOCH" in reply.json["detail"] and is_not_switched(a, stock, a.sell)
    assert stock("GET", STOCK) == "4" and epoch_of(stock) == stands
    assert b.sell().json["unit"] == 4 and is_not_switched(c, stock, lambda: c.restock(1))
    for shop in (a, c):
        assert shop.switch(rung=to).status == 200
    assert [shop.sell().json["unit"] for shop in (a, b, c)] == [3, 2, 1] and epoch_of(stock) == stands
    assert raised() == before
    tokens = [event["token"] for event in granted(tmp_path, "b")]
    assert tokens == sorted(set(tokens)) and tokens[0] > 0


def test_switched_back_and_forth_under_load(redis, several, start, tmp_path):
    """Two instances, by read-modify-write: two sections at once would sell one unit twice."""
    flags = ("--lock", "fair", "--write", "set", "--work-ms", "1", "--lock-servers", urls(several), "--admin-writes",
             "--wait-ms", "25000")
    shops = [start(redis, *flags, "--history", tmp_path / f"{name}.jsonl", name=name) for name in ("a", "b")]
    shops[0].stock(value=100000)
    buyers = Buyers(4, *shops)
    for rung in ("redlock", "fair", "redlock", "fair"):
        # Both at once: between the two switches the instances would not share a lock.
        buyers.stop()
        for shop in shops:
            assert shop.switch(rung=rung).status == 200
        buyers.start()
        buyers.wait_sold()
    buyers.stop()
    buyers.check(redis, 100000)


def test_one_instance_is_switched_with_sales_in_flight(redis, several, start, tmp_path):
    shop = start(redis, "--lock", "fair", "--write", "set", "--work-ms", "1", "--lock-servers", urls(several),
                 "--admin-writes", "--history", tmp_path / "h.jsonl")
    shop.stock(value=100000)
    buyers = Buyers(8, shop)
    for rung in ("redlock", "fair") * 3:
        assert shop.switch(rung=rung).status == 200
        buyers.wait_sold()
    buyers.stop()
    buyers.check(redis, 100000)
    used = {event["rung"] for event in read_history(tmp_path / "h.jsonl") if event["event"] == "granted"}
    assert used == {"fair", "redlock"}
