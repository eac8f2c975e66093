# SPDX-License-Identifier: Apache-2.0
"""Lock and stock at the master that sentinels name. The servers run with the files of deploy/sentinel."""
import collections
import re
import threading

import pytest

from failpoints import arm, park
from ports import free_port
from sentinels import Group
from test_fail_fast import PATIENT
from test_redis import QUICK
from waiting import freeze
from world import PATIENCE_S, Background, inventoryd_redis_up, wait_until


@pytest.fixture
def group(tmp_path):
    group = Group(tmp_path / "group")
    yield group
    group.end()


def replicate(group):
    """What a replica does not have is lost if it is promoted."""
    wait_until(group.named().is_confirmed, "the replicas have it all")


def restored(shop):
    """How long the server was away, and how long sales were refused, as the log says."""
    lines = shop.logged("redis-server-restored")
    found = re.fullmatch(r"it accepts writes; it was away for (\d+) ms, and sales were refused for (\d+) ms of them",
                         lines[-1]["detail"])
    return len(lines), int(found[1]), int(found[2])


def test_sales_go_on_at_the_new_master(group, start):
    shop = start(group.url, *PATIENT)
    assert shop.stock(value=5).status == 200 and shop.sell().json["unit"] == 5
    replicate(group)
    former = group.named()
    former.kill()
    wait_until(lambda: "keeps trying" in shop.sell().json["detail"], "sales are refused at once")
    assert "127.0.0.1" not in shop.sell().json["detail"]
    group.fail_over()
    wait_until(lambda: inventoryd_redis_up(shop) == [1, 1], "it is found")
    assert shop.sell().json["unit"] == 4
    times, away_ms, refused_ms = restored(shop)
    assert times == 1 and away_ms >= refused_ms > 0


@pytest.mark.parametrize("how", ["frozen", "killed"])
@pytest.mark.parametrize("lock,write", [("watchdog", "decr"), ("fenced", "fenced")])
@pytest.mark.parametrize("over", ["stock", "both"])
def test_sales_go_on_without_sentinels(group, start, redis, how, lock, write, over):
    """No connection can be made, and those that exist are enough, for more buyers than there were before. A sale that
    waited for a connection under its lock would keep the lock from the others."""
    lock_url = group.url if over == "both" else redis.url
    shop = start(None, "--lock-redis", lock_url, "--stock-redis", group.url, "--lock", lock, "--write", write,
                 "--redis-timeout-ms", 3000)  # a busy machine must not cost a connection: there is no other
    assert shop.stock(value=1000).status == 200 and shop.sell().status == 200
    for watcher in group.watchers:
        if how == "frozen":
            freeze(watcher.process)
        else:
            watcher.kill()
    buyers = [Background(lambda: [shop.sell() for _ in range(20)]) for _ in range(12)]
    replies = [reply for buyer in buyers for reply in buyer.result()]
    assert collections.Counter(reply.status for reply in replies) == {200: 240}, [
        reply for reply in replies if reply.status != 200][:3]
    assert "no master" in shop.admin("GET", "/readyz").json["detail"]


def test_a_release_keeps_no_connection_to_the_stock(group, start, redis, proxy):
    """No other connection can be made, and the lock's server hangs for this release."""
    shop = start(None, "--lock-redis", proxy.url, "--stock-redis", group.url, "--lock", "owner_lua", "--workers", 2,
                 "--redis-timeout-ms", 20000)
    group.named()("MSET", "inventory:{phone}", 5, "inventory:{pen}", 5)
    assert shop.sell().status == 200
    carry, reached, goes_on = proxy._carry, threading.Event(), threading.Event()

    def hold(command, server):
        if b"EVAL" in command and b"lock:{phone}" in command:
            reached.set()
            goes_on.wait(PATIENCE_S)
        return carry(command, server)

    proxy._carry = hold
    for watcher in group.watchers:
        freeze(watcher.process)
    try:
        first = Background(shop.sell)
        assert reached.wait(PATIENCE_S)
        assert shop.sell("pen").status == 200 and first.is_alive()
        goes_on.set()
        assert first.result().status == 200
    finally:
        goes_on.set()


def test_a_former_master_that_wakes_sells_nothing(group, start):
    """It takes writes for seconds. Without the shipped min-replicas-to-write, which is off here, it always would."""
    shop = start(group.url, *PATIENT)
    shop.stock(value=50)
    replicate(group)
    former = group.named()
    former("CONFIG", "SET", "min-replicas-to-write", 0)
    former.freeze()
    group.fail_over()
    wait_until(lambda: shop.sell().status == 200, "it sells at the new master")
    before = int(group.named()("GET", "inventory:{phone}"))
    former.thaw()
    assert former("SET", "probe", 1) == "OK"
    assert [shop.sell().status for _ in range(10)] == [200] * 10
    assert former("GET", "inventory:{phone}") == "50" and former("GET", "probe") == "1"
    assert group.named()("GET", "inventory:{phone}") == str(before - 10)


def test_a_sale_is_not_read_of_one_master_and_written_to_another(group, start, redis):
    """The other one may lack the last sales, or have later ones."""
    shop = start(redis, "--stock-redis", group.url, "--write", "set", "--enable-failpoints", *PATIENT)
    shop.stock(value=5)
    sale = park(shop, "sale.before_write", shop.sell)
    group.fail_over()
    wait_until(lambda: shop.admin("GET", "/readyz").status == 200, "the shop finds the new master")
    assert group.named()("SET", "inventory:{phone}", 3) == "OK"
    arm(shop, "sale.before_write", "off")
    reply = sale.result()
    assert reply.problem == "stock-unavailable" and "another master" in reply.json["detail"], reply
    assert group.named()("GET", "inventory:{phone}") == "3" and shop.sell().json["unit"] == 3


def test_a_promoted_replica_begins_a_new_epoch(group, start, redis):
    """Its clock is far behind the former master's, whose token the stock's mark still names."""
    shop = start(None, "--lock-redis", group.url, "--stock-redis", redis.url, "--lock", "fair", "--write", "fenced",
                 *PATIENT)
    assert shop.stock(value=5).status == 200 and shop.sell().json["unit"] == 5
    epoch, identity = redis("HMGET", "inventory:epoch", "epoch", "identity")
    wait_until(lambda: {node("GET", "dlock:identity") for node in group.nodes} == {identity.rpartition("@")[0]},
               "the replicas have the value")
    redis("SET", "inventory:{phone}:fence", f"{epoch} 8000000000000000")
    assert shop.sell().problem == "lock-lost"
    group.fail_over()
    wait_until(lambda: shop.sell().status == 200, "it sells at the new master")
    after = redis("HMGET", "inventory:epoch", "epoch", "identity")
    assert int(after[0]) > int(epoch) and after[1].rpartition("@")[0] == identity.rpartition("@")[0]
    assert int(after[1].rpartition("@")[2]) > int(identity.rpartition("@")[2]) and redis("GET", "inventory:{phone}") == "3"
    assert len(shop.logged("epoch-raised")) == 2


def test_a_write_under_way_at_a_failover_keeps_no_lock(group, start):
    """Its outcome is found out at the new master, where the fence is told that it must not come any more."""
    shop = start(group.url, "--lock", "fair", "--write", "fenced", "--enable-failpoints", "--redis-timeout-ms", 20000, *PATIENT)
    assert shop.stock(value=5).status == 200
    sale = park(shop, "sale.before_write", shop.sell)
    former = group.named()
    replicate(group)
    former.freeze()
    arm(shop, "sale.before_write", "off")
    group.fail_over()
    assert sale.result().problem == "outcome-unknown"
    wait_until(lambda: shop.sell().status == 200, "it sells again")
    assert shop.metric("lock_abandoned_total") == 0


def test_a_master_without_replicas_refuses(group, start):
    """By the shipped settings. The sentinels name it still."""
    shop = start(group.url, *QUICK)
    shop.stock(value=5)
    master = group.named()
    replicas = [node for node in group.nodes if node is not master]
    for node in replicas:
        node.kill()
    wait_until(lambda: shop.sell().status == 503, "it refuses")
    assert "NOREPLICAS" in shop.admin("GET", "/readyz").json["detail"]
    for node in replicas:
        node.start("--replicaof", "127.0.0.1", str(master.port))
    group.await_ready()
    wait_until(lambda: shop.sell().status == 200, "it sells again")


def test_each_sentinels_answer_is_told_to_operators(group, start):
    shop = start(f"sentinel://{group.hosts}/bank", *QUICK, "--fail-fast-ms", 600000)
    detail = shop.admin("GET", "/readyz").json["detail"]
    assert "no master: 2 of 3 sentinels must name the same one" in detail
    for watcher in group.watchers:
        assert f"sentinel://127.0.0.1:{watcher.port}: it knows no master 'bank'" in detail
    reply = shop.sell()
    assert reply.status == 503 and "127.0.0.1" not in reply.json["detail"]
    assert reply.json["detail"].startswith("Redis: no master: ") and "; sentinel: it knows no" in reply.json["detail"]


@pytest.mark.parametrize("url,says", [
    (lambda group: f"sentinel://127.0.0.1:{free_port()}/shop", "Connection refused (no sentinel listens there)"),
    (lambda group: f"sentinel://127.0.0.1:{group.named().port}/shop",
     "it is no sentinel; give the URL of a Redis server as redis://"),
    (lambda group: f"redis://127.0.0.1:{group.watchers[0].port}",
     "it is a sentinel and keeps no data; give the URL sentinel://host:port/master"),
    (lambda group: f"sentinel://nobody:wrong@{group.hosts}/shop",
     "(by the master that the sentinels name; its login is the URL's)"),
], ids=["nobody", "no-sentinel", "sentinel", "password"])
def test_operators_are_told_what_would_be_right(group, start, url, says):
    """Buyers are told no address. The instance starts, sells nothing, and ends as usual."""
    shop = start(url(group), *QUICK)
    reply = shop.sell()
    assert reply.status == 503 and "127.0.0.1" not in reply.json["detail"], reply
    assert says in shop.admin("GET", "/readyz").json["detail"]
    wait_until(lambda: any(says in line["detail"] for line in shop.logged("redis-server-lost")), "the log tells it")


def test_the_sentinels_know_the_number_of_replicas(group, start):
    shop = start(group.url, "--replicas-ack", "all", "--wait-ms", 3000)
    assert shop.stock(value=5).status == 200
    wait_until(lambda: shop.sell().status == 200, "both confirm")
    replica = next(node for node in group.nodes if node is not group.named())
    replica.freeze()
    too_few = "1 of 2 replicas confirmed the write in time; 2 must"
    wait_until(lambda: too_few in shop.sell().json["detail"], "one is missing")
    replica.thaw()
    group.await_ready()
    wait_until(lambda: shop.sell().status == 200, "both confirm again")


def test_the_sentinels_login(group, start, tmp_path):
    (tmp_path / "password").write_text("s3cret")
    for watcher in group.watchers:
        assert watcher("ACL", "SETUSER", "watcher", "on", ">s3cret", "&*", "+@all") == "OK"
    flags = (*QUICK, "--sentinel-user", "watcher", "--sentinel-password-file", tmp_path / "password")
    shop = start(group.url, *flags)
    assert shop.stock(value=5).status == 200 and shop.sell().status == 200
    assert b"s3cret" not in shop.log and b"s3cret" not in shop.admin("GET", "/config").body
    for watcher in group.watchers:
        assert watcher("ACL", "SETUSER", "watcher", "resetpass", ">other") == "OK"
    assert "WRONGPASS" in start(group.url, *flags, name="b").admin("GET", "/readyz").json["detail"]


def test_only_the_lock(group, start, redis):
    shop = start(None, "--lock-redis", group.url, "--stock-redis", redis.url, *QUICK)
    assert shop.stock(value=5).status == 200 and shop.sell().status == 200
    assert redis("GET", "inventory:{phone}") == "4"


def test_only_the_stock(group, start, redis):
    shop = start(None, "--lock-redis", redis.url, "--stock-redis", group.url, *QUICK)
    assert shop.stock(value=5).status == 200 and shop.sell().status == 200
    assert group.named()("GET", "inventory:{phone}") == "4"
