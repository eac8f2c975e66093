# SPDX-License-Identifier: Apache-2.0
"""The shop with its lock on etcd, where that differs from ZooKeeper (test_zookeeper.py): TLS, the time to live, what the
check of the ensemble asks for, and what a switch leaves behind. On one server."""
import base64
import resource

import pytest

from etcds import Cluster
from failpoints import arm, park
from ports import free_ports
from redis_server import spawn
from test_lifecycle import config, drop_rights, run
from test_lock_servers import refused
from world import wait_until


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    made = Cluster(tmp_path_factory.mktemp("etcd"))
    del made.nodes[1:]
    made.start()
    yield made
    made.end()


@pytest.fixture
def root(request):
    """Each test has a path of its own, and so locks of its own."""
    return f"/{request.node.name.partition('[')[0]}"


@pytest.fixture
def flags(cluster, root):
    return "--lock", "etcd", "--lock-servers", cluster.url() + root, "--admin-writes", "--enable-failpoints"


def ask(cluster, path, **body):
    return cluster.nodes[0].ask(path, **body)


def encoded(text):
    return base64.b64encode(text.encode()).decode()


def keys(cluster, under):
    said = ask(cluster, "/v3/kv/range", key=encoded(under), range_end=encoded(under[:-1] + chr(ord(under[-1]) + 1)))
    return [base64.b64decode(one["key"]).decode() for one in said.get("kvs", [])]


# ---- How it is given -----------------------------------------------------------------------------


@pytest.mark.parametrize("given, says", [
    (("--lock-servers", "etcd://a,etcds://b"), "etcd:// is given twice; give one URL with all servers, as in etcd://h1,h2,h3"),
    (("--lock-servers", "etcds://a,b:99999"), "a port from 1 to 65535; right is etcd://[user:password@]host[:port],..."),
    (("--lock-servers", "etcds://me@a"), "has a login that is not user:password"),
    (("--lock-servers", "etcds://a?cert=/c"), "one of cert= and key="),
    (("--lock-servers", "etcd://a?ca=/c"), "belong to etcds://"),
    (("--redis", "etcds://a"), "--redis: etcds:// begins the URL of an ensemble, which keeps only locks"),
])
def test_what_is_wrong_with_it(given, says):
    assert says in refused(*given)


def test_its_login_is_not_shown():
    shown = config("--lock", "etcd", "--lock-servers", "etcds://me:se,cret@h1,h2:2382/shop?ca=/c,redis://a,redis://b,redis://c")
    assert (shown["lock"], shown["lock_servers"]) == ("etcd", "redis://a,redis://b,redis://c,etcds://***@h1,h2:2382/shop?ca=/c")


def test_over_tls(redis, start, tmp_path):
    client, peer = free_ports(2)
    address = f"https://127.0.0.1:{client}"
    server = spawn(["etcd", "--data-dir", str(tmp_path / "data"), "--auto-tls", "--listen-client-urls", address,
                    "--advertise-client-urls", address, "--listen-peer-urls", f"http://127.0.0.1:{peer}",
                    "--logger", "zap", "--log-level", "error"])
    try:
        certificate = tmp_path / "data" / "fixtures" / "client" / "cert.pem"
        wait_until(certificate.exists, "it has a certificate")
        name = f"etcds://127.0.0.1:{client}/shop"
        shop = start(redis, "--lock", "etcd", "--lock-servers", f"{name}?ca={certificate}")
        wait_until(lambda: shop.admin("GET", "/readyz").status == 200, "it is ready")
        assert shop.stock(value=5).status == 200 and shop.sell().json["unit"] == 5
        assert shop.admin("GET", "/lock").json["servers"] == [name]
        server.kill()
        reply = wait_until(lambda: (reply := shop.sell()).problem == "lock-unavailable" and "(" in reply.json["detail"] and reply,
                           "sales are refused at once")
        assert "(etcd could not be connected to); the instance keeps trying" in reply.json["detail"]
    finally:
        server.kill()
        server.wait()


def test_a_login_that_is_refused_is_named(redis, start, tmp_path):
    """Also by a check whose time is over before the client logs in again."""
    cluster = Cluster(tmp_path / "etcd")
    del cluster.nodes[1:]
    cluster.start()
    try:
        for what in ("user", "role"):
            ask(cluster, f"/v3/auth/{what}/add", name="root", password="right")
        ask(cluster, "/v3/auth/user/grant", user="root", role="root")
        ask(cluster, "/v3/auth/enable")
        shop = start(redis, "--lock", "etcd", "--lock-servers", cluster.url().replace("//", "//root:false@"))
        wait_until(lambda: shop.logged("lock-server-lost"), "it is refused")
        for _ in range(3):
            for reply in (shop.admin("GET", "/readyz"), shop.stock(value=5), shop.sell()):
                assert reply.status == 503 and "authentication failed" in reply.json["detail"], reply.json
                assert "away" not in reply.json["detail"] and "connected" not in reply.json["detail"], reply.json
    finally:
        cluster.end()


def test_it_may_need_a_connection_for_each_sale(cluster, root):
    """Enough descriptors for a lock on Redis are not enough."""
    def lower():
        resource.setrlimit(resource.RLIMIT_NOFILE, (600, 600))
        drop_rights()
    flags = "--connections", 300, "--lock-servers", cluster.url() + root, "--listen", "127.0.0.1:0"
    done = run(*flags, preexec_fn=lower)
    assert done.returncode == 1 and "--connections 300 with etcd, which may have a connection for each sale, needs" in done.stderr


def test_a_check_is_not_counted_as_a_sale(redis, start, flags):
    shop = start(redis, *flags)
    for _ in range(3):
        assert shop.admin("GET", "/readyz").status == 200
    assert shop.stock(value=5).status == 200 and shop.sell().status == 200
    assert shop.ask("POST", "/inventory/phone/sale?reenter=1").status == 200
    assert shop.metric("lock_acquired_total") == shop.metric("lock_released_total") == 4  # one sale acquired it twice
    assert shop.metric("lock_checks_total") >= 3


# ---- The time to live ----------------------------------------------------------------------------


def test_what_it_grants_is_told(redis, start, flags):
    """etcd counts whole seconds, and grants two at least."""
    shop = start(redis, *flags, "--ttl-ms", 1001)
    assert shop.stock(value=5).status == 200
    told = shop.admin("GET", "/lock").json
    assert told["ttl_ms"] == 1001 < told["valid_ms"] <= 2000
    assert shop.metric("lock_valid_seconds") == told["valid_ms"] / 1000
    switched = shop.switch(rung="watchdog").json
    assert (switched["ttl_ms"], switched["valid_ms"]) == (1001, None)
    assert shop.sell().status == 200 and shop.admin("GET", "/lock").json["valid_ms"] <= 1001
    assert shop.switch(rung="owner_lua").json["valid_ms"] is None
    assert shop.switch(rung="etcd").json["valid_ms"] >= told["valid_ms"]


# ---- The check -----------------------------------------------------------------------------------


def test_the_check_takes_no_lock_of_a_sale(redis, start, flags):
    shop = start(redis, *flags, "--keys", "article")
    assert shop.stock(value=5).status == 200
    sale = park(shop, "sale.after_read", shop.sell)
    contended = shop.metric("lock_contended_total")
    assert shop.admin("GET", "/readyz").status == 200
    assert shop.metric("lock_contended_total") == contended
    arm(shop, "sale.after_read", "off")
    assert sale.result().status == 200


def test_an_ensemble_that_does_not_grant_in_time_is_not_ready(redis, cluster, start, flags, root):
    """What the check wants is kept from it, by a key before its own."""
    shop = start(redis, *flags)
    assert shop.stock(value=5).status == 200  # the lock stays open, and with it the client's own key
    client = keys(cluster, f"{root}/clients/")[0].rpartition("/")[2]
    key = encoded(f"{root}/locks/lock:{{readyz}}:{client}/before")
    ask(cluster, "/v3/kv/put", key=key)
    reply = shop.admin("GET", "/readyz")
    assert reply.problem == "not-ready" and "has not confirmed a lock within 1000 ms" in reply.json["detail"]
    ask(cluster, "/v3/kv/deleterange", key=key)
    assert shop.admin("GET", "/readyz").status == 200


# ---- What a switch leaves ------------------------------------------------------------------------


def test_nothing_is_left_there_after_a_switch(redis, cluster, start, flags, root):
    shop = start(redis, *flags, "--ttl-ms", 1000)
    assert shop.stock(value=5).status == 200 and keys(cluster, root)
    assert shop.switch(rung="watchdog").status == 200
    wait_until(lambda: not keys(cluster, f"{root}/clients/"), "its lease has ended")
    assert shop.sell().json["unit"] == 5
    assert shop.switch(rung="etcd").status == 200 and shop.sell().json["unit"] == 4
