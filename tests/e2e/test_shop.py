# SPDX-License-Identifier: Apache-2.0
"""scripts/shop: up, down and status, and what can go wrong with them."""
import concurrent.futures
import json
import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request

import pytest

from place import SCRIPTS, Ports, listens, wait_until
from redis_server import Redis
from tools import path_without


def test_it_is_ready_when_up_returns_and_gone_when_down_returns(place):
    up = place.shop("up", "--lock", "setnx", "--write", "set")
    assert up.code == 0, up
    assert {place.get("/healthz") for _ in range(4)} == {
        f'{{"status":"ok","instance":"{name}"}}' for name in "ab"}
    lock = json.loads(place.get("/lock", place.ports.instance(1) + 1))
    assert (lock["rung"], lock["write"]) == ("setnx", "set")
    status = place.shop("status")
    assert status.code == 0, status
    lines = [line.split() for line in status.out.splitlines()[1:]]
    ports = [place.ports.redis, place.ports.instance(0), place.ports.instance(1), place.ports.nginx]
    assert lines == [[name, str(pid), str(port), "yes"]
                     for (name, pid), port in zip(place.parts().items(), ports)]
    assert list(place.parts()) == ["redis", "a", "b", "nginx"]

    down = place.shop("down")
    assert down.code == 0, down
    place.check_nothing_is_left()


def set_stock(place, port, token=None):
    """The status of an operator's request."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/inventory/phone", b'{"stock":7}', method="PUT",
        headers={"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status
    except urllib.error.HTTPError as refusal:
        return refusal.code


def test_operators_have_a_port_of_their_own(shop):
    assert set_stock(shop, shop.ports.operators) == 200
    assert set_stock(shop, shop.ports.nginx) == 405
    assert json.loads(shop.get("/inventory/phone"))["stock"] == 7
    for port in (shop.ports.operators, shop.ports.nginx):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            shop.get("/lock", port)


def test_a_key_by_almost_its_name_is_refused_behind_nginx_too(place):
    """nginx would leave such a header out as invalid, and the instance would sell without a key."""
    assert place.shop("up", "--write", "atomic").code == 0
    assert set_stock(place, place.ports.operators) == 200
    for behind, status in ((b"_", 400), (b".", 400), (b"\xa0", 400), (b"\xc3\xa4", 400), (b"", 200)):
        with socket.create_connection(("127.0.0.1", place.ports.nginx), timeout=60) as buyer:
            buyer.sendall(b"POST /inventory/phone/sale HTTP/1.1\r\nHost: x\r\nIdempotency-Key" + behind + b": abc\r\n"
                          b"Content-Length: 0\r\nConnection: close\r\n\r\n")
            answer = buyer.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 %d " % status), (behind, answer)
        assert status == 200 or b"urn:lockladder:problem:" in answer, (behind, answer)
    assert json.loads(place.get("/inventory/phone"))["stock"] == 6
    assert place.shop("down").code == 0


def test_another_port_and_a_token_for_operators(place):
    token, other = place.folder / "token", place.ports.first + 5
    token.write_text("0123456789abcdef\n")
    up = place.shop("up", "--operators-port", other, "--admin-token-file", "token")
    assert up.code == 0 and f"operators on {other}," in up.out, up
    assert not listens(place.ports.operators)
    assert [set_stock(place, other, word) for word in (None, "fedcba9876543210", "0123456789abcdef")] == [401, 401, 200]
    load = place.jmeter("smoke", "--lock", "owner_lua")  # switches, stocks up, and so does the plan
    assert load.code == 0, load
    assert set_stock(place, place.ports.instance(0) + 1) == 401
    assert place.shop("down").code == 0


def test_a_token_file_that_has_gone_is_told(place):
    token = place.folder / "token"
    token.write_text("0123456789abcdef\n")
    assert place.shop("up", "--admin-token-file", token).code == 0
    token.unlink()
    for load in (place.jmeter("smoke"), place.shop("restart")):
        assert load.code == 2 and f"the operators' token is not in {token}" in load.err, load
        assert "unbound" not in load.err
    assert place.shop("down").code == 0


def test_down_without_a_shop_is_fine_and_status_says_that_there_is_none(place):
    assert place.shop("down").code == 0
    status = place.shop("status")
    assert (status.code, status.out) == (3, f"no shop is up on port {place.ports.nginx}\n")
    assert place.shop("up").code == 0
    assert place.shop("down").code == 0
    assert place.shop("down").code == 0
    assert place.shop("status").code == 3


def test_a_second_up_is_refused_and_harms_nothing(shop):
    parts = shop.parts()
    again = shop.shop("up")
    assert again.code == 2
    assert f"a shop is up on port {shop.ports.nginx} already (redis a b nginx): " in again.err
    assert f"scripts/shop down --port {shop.ports.nginx} ends it" in again.err
    assert "scripts/shop up --port 8890 --base-port 8100 --redis-port 7001" in again.err
    assert shop.parts() == parts
    assert shop.shop("status").code == 0


def test_a_port_of_another_shop_is_told_with_the_command_that_ends_it(shop):
    """Also nginx's, on whose port its workers listen, too."""
    other = Ports()
    for option, port, part in (("--base-port", shop.ports.base, "a"), ("--operators-port", shop.ports.nginx, "nginx")):
        up = shop.shop("up", option, port, ports=other)
        assert up.code == 2, up
        name = "inventoryd" if part == "a" else part
        assert f"is taken by {name}, pid {shop.parts()[part]}, of the shop on port {shop.ports.nginx}. " \
            f"End that shop with scripts/shop down --port {shop.ports.nginx}, or choose another with {option}" in up.err
    load = shop.run(SCRIPTS / "jmeter", "smoke", "--port", shop.ports.redis)
    assert load.code == 2 and f"port {shop.ports.redis} is taken by redis-server, pid {shop.parts()['redis']}, which " \
        "scripts/shop of this clone did not start" in load.err, load
    assert shop.shop("status").code == 0


def test_two_shops_stand_side_by_side(shop):
    other = Ports()
    assert shop.shop("up", "--instances", 3, ports=other).code == 0
    assert list(shop.parts(other)) == ["redis", "a", "b", "c", "nginx"]
    assert shop.shop("down", ports=other).code == 0
    assert not any(listens(port) for port in other.all(3))
    assert shop.shop("status").code == 0


@pytest.mark.parametrize("part, way_out", [
    ("redis", "Redis has ended, and what it held is gone: scripts/shop down --port {}, then up"),
    ("a", "instance a has ended: scripts/shop restart --port {} replaces it"),
    ("nginx", "nginx has ended: scripts/shop down --port {}, then up; what Redis holds is gone then"),
])
def test_a_part_that_was_killed_is_told_and_down_ends_the_rest(place, part, way_out):
    assert place.shop("up").code == 0
    os.kill(place.parts()[part], signal.SIGKILL)
    wait_until(lambda: place.parts()[part] not in place.processes(), "the part is gone")
    status = place.shop("status")
    assert status.code == 1, status
    ready = {line.split()[0]: line.split()[-1] for line in status.out.splitlines()[1:]}
    assert ready[part] == "ended"
    for command in (status, place.shop("up")):
        assert way_out.format(place.ports.nginx) in command.err.splitlines(), command
    down = place.shop("down")
    assert down.code == 0, down
    place.check_nothing_is_left()  # nginx's workers outlive a killed master, but not this


def buy(port):
    """The status of a sale."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/inventory/phone/sale", b"", method="POST")
    with urllib.request.urlopen(request, timeout=300) as answer:
        return answer.status


@pytest.mark.parametrize("by, said", [
    ("nginx", "waiting for nginx, which finishes the requests under way: it has 120 s"),
    ("instance", "waiting for instance a, which finishes its sales within --drain-ms: it has 115 s"),
])
def test_down_waits_for_a_sale_that_takes_long(place, by, said):
    """Longer than the 15 s that other processes have."""
    assert place.shop("up", "--work-ms", 20000, "--drain-ms", 100000, "--wait-ms", 30000).code == 0
    assert set_stock(place, place.ports.operators) == 200
    with concurrent.futures.ThreadPoolExecutor() as buyers:
        sale = buyers.submit(buy, place.ports.nginx if by == "nginx" else place.ports.instance(0))
        wait_until(lambda: any("\ninventoryd_sales_in_flight 1\n" in place.get("/metrics", place.ports.instance(i) + 1)
                               for i in range(2)), "the sale is under way")
        down = place.shop("down")
        assert sale.result() == 200
    assert down.code == 0 and said in down.err and "killed" not in down.err, down
    place.check_nothing_is_left()


def test_down_ends_an_instance_that_hangs(place):
    assert place.shop("up", "--drain-ms", 100).code == 0
    pid = place.parts()["b"]
    os.kill(pid, signal.SIGSTOP)
    down = place.shop("down")
    assert down.code == 0, down
    assert f"15 s are over, and pid {pid} is killed: instance b, which finishes its sales within --drain-ms" in down.err, down
    place.check_nothing_is_left()


def test_down_never_ends_a_process_that_only_has_the_number(place):
    assert place.shop("up").code == 0
    with subprocess.Popen(["sleep", "600"]) as stranger:
        file = place.state / str(place.ports.nginx) / "parts"
        lines = file.read_text().splitlines()
        gone = lines[1].split()
        os.kill(int(gone[1]), signal.SIGKILL)
        gone[1] = str(stranger.pid)
        file.write_text("\n".join([lines[0], " ".join(gone), *lines[2:]]) + "\n")
        assert place.shop("down").code == 0
        assert stranger.poll() is None
        stranger.kill()
    place.check_nothing_is_left()


@pytest.mark.parametrize("taken, wanted_for, option", [
    ("nginx", "nginx", "--port"),
    ("operators", "nginx's operators", "--operators-port"),
    ("redis", "redis-server", "--redis-port"),
    ("instance", "instance b", "--base-port"),
    ("admin", "the admin listener of instance a", "--base-port"),
])
def test_a_busy_port_is_named_with_its_holder_and_the_way_out(place, taken, wanted_for, option):
    port = {"nginx": place.ports.nginx, "operators": place.ports.operators, "redis": place.ports.redis,
            "instance": place.ports.instance(1), "admin": place.ports.instance(0) + 1}[taken]
    with socket.create_server(("127.0.0.1", port)):
        up = place.shop("up")
    assert up.code == 2
    assert f"port {port}, wanted for {wanted_for}, is taken by python3, pid {os.getpid()}" in up.err
    assert f"choose another with {option}" in up.err
    assert "scripts/shop up --port 8890 --base-port 8100 --redis-port 7001" in up.err
    assert not place.state.exists()
    place.check_nothing_is_left()


@pytest.mark.parametrize("words, told", [
    (["--lock", "setmx"], "watchdog"),
    (["--write", "sett"], "decr|set|atomic"),
    (["--bogus"], "--work-ms"),
    (["--instances", "0"], "a whole number from 1 to 16"),
    (["--instances", "17"], "a whole number from 1 to 16"),
    (["--port-step", "1"], "a whole number from 2 to 10000"),
    (["--port=x"], "a whole number from 1 to 65534"),
    (["--redis-port"], "--redis-port needs a value"),
    (["--redis-conf", "/no/such"], "cannot be read"),
    (["--lock-on", "zookeeper"], "--lock-on says which servers begin at --lock-port: give that, too"),
    (["--lock-port", "7100", "--lock-on", "redis,consul"], '"consul": it must be one of: redis zookeeper etcd'),
    (["--lock-port", "7100", "--lock-on", ","], '--lock-on is ",": give words of redis zookeeper etcd with one comma between two'),
    (["--lock-port", "7100", "--lock-on", "redis, etcd"], '--lock-on is "redis, etcd": give words'),
    (["--lock-port", "7100", "--lock-on", "redis,"], '--lock-on is "redis,": give words'),
    (["--lock-port", "7100", "--lock-on", "etcd,redis,etcd"], "etcd is there twice; give it once"),
    (["--lock-port", "7100", "--lock-on", "zk://me:secret@h"], '--lock-on is "zk:***@h": it must be one of'),
    (["--lock", "zookeeper"], "--lock-servers names none with zk://"),
    (["--lock-port", "7990", "--lock", "zookeeper", "--base-port", "8000"], "(a server of an ensemble) and --base-port"),
    (["--admin-token-file", "/no/such"], "--admin-token-file: /no/such cannot be read"),
    (["--operators-port", "0"], "a whole number from 1 to 65535"),
    (["--operators-port", "8888", "--port", "8888"], "would both be port 8888"),
    (["--redis-port", "8001", "--base-port", "8000"], "the admin listener of instance a) would both be port 8001"),
    (["--work-ms"], "--work-ms needs a value"),
    (["--work-ms", ""], "an argument is empty, behind --work-ms"),
    (["--admin-writes", "off"], "--admin-writes is set by the shop itself: it is always on"),
    (["--redis", "redis://127.0.0.1:6379/0"], "starts a Redis of its own"),
    (["--stock-redis=redis://127.0.0.1:6379/0"], "starts a Redis of its own"),
    (["--history", "/tmp/x"], "set by the shop itself: the histories are in its folder"),
])
def test_a_wrong_option_is_refused_with_what_would_be_right(place, words, told):
    up = place.shop("up", *words)
    assert up.code == 2, up
    assert told in up.err, up
    assert not place.state.exists()
    place.check_nothing_is_left()


def test_an_option_may_need_what_the_shop_sets(place):
    assert place.shop("up", "--history-required").code == 0
    assert place.shop("down").code == 0


@pytest.mark.parametrize("prints, told", [
    ("Built target inventoryd", ""),
    ("Building C object a.o\nBuilding C object b.o", "building inventoryd and ladder-audit (about 20 s the first time)\n"),
])
def test_a_build_is_told_where_something_is_built(place, prints, told):
    cmake = place.folder / "tools" / "cmake"
    cmake.parent.mkdir()
    cmake.write_text(f"#!/bin/sh\nprintf '{prints}\\n'\n")
    cmake.chmod(0o755)
    build = place.run("bash", "-c", f"source {SCRIPTS}/lib/common.sh; build_programs", LADDER_BUILD=None,
                      LADDER_CACHE=place.folder / "cache", PATH=f"{cmake.parent}:{os.environ['PATH']}")
    assert (build.code, build.err) == (0, told), build
    assert prints in (place.folder / "cache" / "build.log").read_text()


def test_a_wrong_verb_is_refused(place):
    for words in ([], ["start"]):
        answer = place.run(SCRIPTS / "shop", *words)
        assert answer.code == 2
        assert "up, check, restart, down or status" in answer.err
    assert place.run(SCRIPTS / "shop", "down", "--instance", "2").code == 2


def test_a_missing_tool_is_named_with_the_command_that_installs_it(place):
    up = place.shop("up", PATH=path_without(place.folder, "redis-server"))
    assert up.code == 2
    assert "redis-server" in up.err
    assert "scripts/setup --for run" in up.err


def test_a_part_that_does_not_start_is_told_with_its_own_words_and_the_rest_is_ended(place):
    conf = place.folder / "redis.conf"
    conf.write_text("maxmemory a lot\n")
    up = place.shop("up", "--redis-conf", conf)
    assert up.code == 2
    assert "maxmemory a lot" in up.err
    assert f"redis did not become ready on port {place.ports.redis}" in up.err
    place.check_nothing_is_left()
    assert place.shop("status").code == 3


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143),
                                          (signal.SIGHUP, 129)])
def test_an_up_that_is_interrupted_leaves_nothing(place, number, code):
    # A Redis that never answers keeps `up` waiting.
    path = path_without(place.folder, "redis-server")
    (place.folder / "bin" / "redis-server").write_text("#!/bin/sh\nexec sleep 600\n")
    (place.folder / "bin" / "redis-server").chmod(0o755)
    up = place.start(SCRIPTS / "shop", "up", *place.ports.options, PATH=path)
    wait_until(lambda: "redis" in place.parts(), "the first part is started")
    if number == signal.SIGINT:
        up.press_ctrl_c()
    else:
        os.kill(up.process.pid, number)
    assert up.finish().code == code, up
    place.check_nothing_is_left()


def test_an_up_that_died_is_told_by_status_and_ended_by_down(place):
    # An nginx that never says anything keeps `up` waiting.
    path = path_without(place.folder, "nginx")
    (place.folder / "bin" / "nginx").write_text("#!/bin/sh\nexec sleep 600\n")
    (place.folder / "bin" / "nginx").chmod(0o755)
    up = place.start(SCRIPTS / "shop", "up", *place.ports.options, PATH=path)

    def silent():
        return [pid for pid, words in place.processes().items() if words == "sleep 600 "]
    wait_until(lambda: "b" in place.parts() and silent(), "nginx is asked")
    os.kill(up.process.pid, signal.SIGKILL)
    up.finish()
    for pid in silent():
        os.kill(pid, signal.SIGKILL)
    status = place.shop("status")
    assert status.code == 1 and "nginx was not started yet" in status.err, status
    again = place.shop("up")
    assert again.code == 2 and f"scripts/shop down --port {place.ports.nginx} ends it" in again.err, again
    assert place.shop("down").code == 0
    place.check_nothing_is_left()


def test_no_redis_but_its_own_is_written_to(place):
    other = Redis(place.folder / "other")
    try:
        assert place.shop("up", "--work-ms", 5, INVENTORYD_REDIS=other.url, INVENTORYD_LOCK_REDIS=other.url,
                          INVENTORYD_STOCK_REDIS=other.url).code == 0
        load = place.jmeter("smoke")
        assert load.code == 0, load
        assert place.shop("down").code == 0
        assert other("DBSIZE") == 0
    finally:
        other.kill()
