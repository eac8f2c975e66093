# SPDX-License-Identifier: Apache-2.0
"""The shop with its lock on ZooKeeper: how the ensemble is named, what is sold while it is there, away, and empty, and the
switch to it and back. On one server; of three tells test_zookeeper_ensemble.py."""
import signal
import time

import pytest

from failpoints import arm, park
from test_fence_epoch import STOCK, epoch_of, is_stale, told
from test_lifecycle import config, run
from test_lock_servers import Buyers, refused, urls
from world import Background, Redis, read_history, wait_until
from zookeepers import Ensemble

REDIS = "redis://a,redis://b,redis://c"
UP = 'inventoryd_ensemble_up{engine="zookeeper",servers="%s"}'


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory):
    made = Ensemble(tmp_path_factory.mktemp("zookeeper"), count=1)
    made.start()
    yield made
    made.end()


@pytest.fixture
def several(tmp_path):
    """Redis servers, of which a majority grants a lock."""
    servers = [Redis(tmp_path / f"lock{number}") for number in range(3)]
    yield servers
    for server in servers:
        server.kill()


@pytest.fixture
def flags(ensemble, request):
    """Each test has a path of its own, and so a lock and an identity."""
    return "--lock", "zookeeper", "--lock-servers", ensemble.url(path=f"/{request.node.name}"), "--admin-writes"


def name_of(ensemble, request):
    return ensemble.url(path=f"/{request.node.name}").partition("?")[0]


# ---- How it is given -----------------------------------------------------------------------------


@pytest.mark.parametrize("given, says", [
    (("--lock-servers", "zk://a,zk://b"), "--lock-servers: zk:// is given twice; give one URL with all servers, as in zk://h1,h2,h3/path"),
    (("--lock-servers", "zk://a,b:99999"), "a port from 1 to 65535; right is zk://[user:password@]host[:port],..."),
    (("--lock-servers", "zk://"), "has a host that is not host or host:port"),
    (("--lock-servers", "zk://user@a"), "has a login without ':'"),
    (("--lock-servers", "redis://a,zk://h1,h2,h3"), "a majority needs an odd number of servers, 3 to 15, and 1 is given"),
    (("--lock-servers", "zookeeper://a"), "or zk://h1,h2,h3/path, or etcd://h1,h2,h3"),
    (("--lock", "zookeeper"), "--lock zookeeper keeps its lock on an ensemble, and --lock-servers names none with zk://: "
                              "start it with --lock-servers zk://h1,h2,h3/path"),
    (("--lock", "zookeeper", "--lock-servers", REDIS), "--lock-servers names none with zk://"),
    (("--lock", "redlock", "--lock-servers", "zk://a,b,c"), "several independent Redis servers, and --lock-servers names none"),
    (("--redis", "zk://a"), "--redis: zk:// begins the URL of an ensemble, which keeps only locks; give it to --lock-servers"),
    (("--lock", "watchdog", "--write", "fenced"), "zookeeper, etcd"),
])
def test_what_is_wrong_with_it(given, says):
    assert says in refused(*given)


def test_its_login_is_not_shown():
    shown = config("--lock", "zookeeper", "--lock-servers", f"zk://me:se,cret@h1,h2:2182/shop,{REDIS}")
    assert (shown["lock"], shown["lock_servers"]) == ("zookeeper", f"{REDIS},zk://***@h1,h2:2182/shop")


def test_an_engine_that_this_build_does_not_have():
    """None is left out of every build; the linker says which are."""
    said = run("--print-config", "--lock", "etcd").stderr
    if "names none with etcd://" not in said:
        assert "needs an engine that this build does not have; build it with cmake -D DLOCK_ETCD=ON, which needs Debian's package" in said


def test_without_its_url_it_is_not_switched(redis, start):
    shop = start(redis, "--admin-writes")
    reply = shop.switch(rung="zookeeper")
    assert reply.problem == "invalid-value" and "zookeeper keeps its lock on an ensemble" in reply.json["detail"]
    assert shop.admin("GET", "/lock").json["rung"] == "watchdog"


def test_a_time_to_live_that_it_does_not_grant(redis, ensemble, start, flags):
    shop = start(redis, *flags, "--ttl-ms", 3 * ensemble.tick_ms - 1)
    reply = shop.stock(value=1)
    assert reply.problem == "lock-unavailable" and "a session of at least 3 ticks is right" in reply.json["detail"]
    ready = shop.admin("GET", "/readyz")
    assert ready.problem == "not-ready" and "at least 3 ticks" in ready.json["detail"]


# ---- While it is there ---------------------------------------------------------------------------


def test_it_is_named(redis, ensemble, start, flags, request):
    shop, name = start(redis, *flags), name_of(ensemble, request)
    assert shop.stock(value=5).status == 200 and shop.admin("GET", "/readyz").status == 200
    assert shop.admin("GET", "/lock").json["servers"] == [name]
    assert shop.logged("started")[0]["detail"].endswith(f"lock on {name}")
    assert shop.metric(UP % name) == 1
    assert shop.switch(rung="fair").status == 200
    assert shop.admin("GET", "/lock").json["servers"] == [f"127.0.0.1:{redis.port}/0"]


def test_it_is_ready_after_a_pause(redis, start, ensemble, request):
    """The session is proven as long as the shop's lock is there. A proof takes a tick, and the check has less time."""
    url = f"{name_of(ensemble, request)}?tick_ms=1000"
    shop = start(redis, "--lock", "zookeeper", "--lock-servers", url, "--ttl-ms", 3000, "--redis-timeout-ms", 500)
    wait_until(lambda: shop.admin("GET", "/readyz").status == 200, "it is ready")
    time.sleep(4)  # more than the time to live
    ready = shop.admin("GET", "/readyz")
    assert ready.status == 200, ready.json


def test_it_is_ready_after_a_switch(redis, start, ensemble, request):
    """The session has not been proven for longer than it lives. The switch awaits the proof, which takes longer than
    one try: buyers are not refused."""
    url = f"{name_of(ensemble, request)}?tick_ms=2000"
    shop = start(redis, "--admin-writes", "--lock", "zookeeper", "--lock-servers", url, "--ttl-ms", 6000, "--redis-timeout-ms", 300)
    wait_until(lambda: shop.admin("GET", "/readyz").status == 200, "it is ready")
    assert shop.switch(rung="watchdog").status == 200
    time.sleep(7)
    assert shop.switch(rung="zookeeper").status == 200
    ready = shop.admin("GET", "/readyz")
    assert ready.status == 200, ready.json
    assert not shop.logged("lock-server-lost")


def test_every_unit_is_sold_once(redis, start, flags, tmp_path):
    """Two instances, by read-modify-write, and one unit fewer than two buyers want at the end."""
    shops = [start(redis, *flags, "--write", "set", "--history", tmp_path / f"{name}.jsonl", name=name) for name in "ab"]
    assert shops[0].stock(value=21).status == 200
    sales = [Background(shop.sell) for shop in shops * 13]
    replies = [sale.result() for sale in sales]
    assert sorted(reply.json["unit"] for reply in replies if reply.status == 200) == list(range(1, 22))
    assert [reply.problem for reply in replies if reply.status != 200] == ["sold-out"] * 5
    granted = [event["token"] for name in "ab" for event in read_history(tmp_path / f"{name}.jsonl")
               if event["event"] == "granted"]
    assert len(granted) == len(set(granted)) == 26 and min(granted) > 0


def test_an_owner_acquires_again(redis, start, flags):
    shop = start(redis, *flags, "--write", "fenced")
    assert shop.stock(value=5).status == 200
    assert shop.ask("POST", "/inventory/phone/sale?reenter=1").json["unit"] == 5


def test_an_older_token_writes_nothing(redis, ensemble, start, flags):
    """The holder's process is stopped beyond its session, and another instance sells."""
    a, b = (start(redis, *flags, "--write", "fenced", "--enable-failpoints", "--ttl-ms", 1000, name=name) for name in "ab")
    assert a.stock(value=5).status == 200 and b.sell().json["unit"] == 5
    sale = park(a, "sale.before_write", a.sell)
    arm(b, "sale.before_write", "off")
    a.signal(signal.SIGSTOP)
    assert b.sell().json["unit"] == 4
    a.signal(signal.SIGCONT)
    arm(a, "sale.before_write", "off")
    reply = sale.result()
    assert reply.problem == "lock-lost" and "STALE" in reply.json["detail"] and redis("GET", STOCK) == "3"
    assert told(a) == told(b) and told(a)["engine"] == "zookeeper"


# ---- Switches ------------------------------------------------------------------------------------


def test_switched_with_sales_in_flight(redis, several, ensemble, start, tmp_path, request):
    """From a lock on one Redis to ZooKeeper, to a majority of Redis servers, and back."""
    servers = f"{urls(several)},{ensemble.url(path=f'/{request.node.name}')}"
    shop = start(redis, "--lock", "watchdog", "--write", "set", "--work-ms", 1, "--lock-servers", servers, "--admin-writes",
                 "--history", tmp_path / "h.jsonl")
    shop.stock(value=100001)
    buyers = Buyers(6, shop)
    rungs = "zookeeper", "redlock", "zookeeper", "watchdog"
    for rung in rungs:
        assert shop.switch(rung=rung).status == 200
        buyers.wait_sold()
    buyers.stop()
    buyers.check(redis, 100001)
    assert {event["rung"] for event in read_history(tmp_path / "h.jsonl") if event["event"] == "granted"} == set(rungs)


def test_a_switch_raises_the_epoch(redis, ensemble, start, flags, request):
    shop = start(redis, "--lock", "fair", *flags[2:], "--write", "fenced")
    assert shop.stock(value=5).status == 200
    before = epoch_of(redis)
    assert shop.switch(rung="zookeeper").status == 200 and shop.sell().json["unit"] == 5
    after = epoch_of(redis)
    assert after["epoch"] > before["epoch"] and after["identity"] not in ("", before["identity"])
    assert (after["rung"], after["engine"], after["servers"]) == ("zookeeper", "zookeeper", name_of(ensemble, request))
    assert shop.switch(rung="fair").status == 200 and shop.sell().json["unit"] == 4


# ---- While it is away, and when it comes back empty ----------------------------------------------


def test_away_nothing_is_sold(redis, ensemble, start, flags, request):
    """ZooKeeper's client may wait two thirds of the time to live for a server that is just starting."""
    shop, name = start(redis, *flags, "--ttl-ms", 3000), name_of(ensemble, request)
    assert shop.stock(value=5).status == 200 and shop.sell().json["unit"] == 5
    ensemble.kill()
    wait_until(lambda: "away" in shop.sell().json["detail"], "sales are refused at once")
    reply = shop.sell()
    assert reply.problem == "lock-unavailable" and "zookeeper" in reply.json["detail"] and "zk://" not in reply.json["detail"]
    ready = shop.admin("GET", "/readyz")
    assert ready.problem == "not-ready" and name.rpartition("/")[0] in ready.json["detail"]
    assert shop.metric(UP % name) == 0 and len(shop.logged("lock-server-lost")) == 1 and redis("GET", STOCK) == "4"
    assert shop.stock().json["stock"] == 4  # a read needs no lock
    ensemble.start()
    wait_until(lambda: shop.sell().status == 200, "it is back")
    assert shop.metric(UP % name) == 1 and shop.admin("GET", "/readyz").status == 200
    assert shop.logged("lock-server-restored")[0]["detail"].startswith(f"{name}: ")


def test_another_rung_sells_while_it_is_away(redis, ensemble, start, flags):
    shop = start(redis, *flags, "--ttl-ms", 3000)
    assert shop.stock(value=5).status == 200
    ensemble.kill()
    assert shop.switch(rung="watchdog").status == 200 and shop.sell().json["unit"] == 5
    assert shop.admin("GET", "/readyz").status == 200
    ensemble.start()
    assert shop.switch(rung="zookeeper").status == 200
    wait_until(lambda: shop.sell().status == 200, "it is back")


def test_its_data_is_lost(redis, ensemble, start, flags):
    """The new data has small tokens again. What tells it from the old is its identity, which raises the epoch."""
    a, b = (start(redis, *flags, "--write", "fenced", "--enable-failpoints", "--ttl-ms", 1000, name=name) for name in "ab")
    assert a.stock(value=5).status == 200
    before = epoch_of(redis)
    frozen = park(a, "sale.after_read", a.sell)
    ensemble.kill()
    ensemble.nodes[0].forget()
    ensemble.start()
    sold = wait_until(lambda: (reply := b.sell()).status == 200 and reply, "another instance has the lock")
    assert sold.json["unit"] == 5
    after = epoch_of(redis)
    assert after["epoch"] > before["epoch"] and after["identity"] != before["identity"]
    assert len(b.logged("epoch-raised")) == 1
    arm(a, "sale.after_read", "off")
    assert is_stale(a, frozen.result()) and redis("GET", STOCK) == "4"
    sold = wait_until(lambda: (reply := a.sell()).status == 200 and reply, "the old holder's instance sells, too")
    assert sold.json["unit"] == 4 and epoch_of(redis) == after and told(a) == told(b)
