# SPDX-License-Identifier: Apache-2.0
"""scripts/shop restart under 1,500 buyers: nobody is refused, no sale is lost, and every instance is a
new process under the lock of the old one."""
import collections
import itertools
import json
import os
import pathlib
import select
import shlex
import signal
import socket
import threading
import time
import urllib.request

import pytest

import needs
from place import PATIENCE_S, SCRIPTS, listens, wait_until

BUYERS = 1500
ITEMS = [f"phone-{number}" for number in range(8)]
STOCK = 1_000_000
LOOK_S = 0.02  # between two looks at the answers, of which each takes a fiftieth of the crowd's: the restart needs the processors, too


class Crowd:
    """Buyers that buy again and again, each on a connection that it keeps, each time under a key of its own."""

    def __init__(self, port, count):
        self.port, self.count = port, count
        self.statuses = collections.Counter()
        self.units = collections.Counter()  # (item, unit)
        self.again = 0  # requests that met nginx closing their idle connection, and were sent again
        self.replayed = 0
        self.sellers = set()
        self.keys = itertools.count()
        self.faults = []
        self.ending = False
        self.poll = select.epoll()
        self.buyers = {}
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        for number in range(self.count):
            self.connect(ITEMS[number % len(ITEMS)])
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ending = True
        self.thread.join()

    def connect(self, item, key=None):
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)
        sock.setblocking(False)
        self.buyers[sock.fileno()] = buyer = [sock, item, b"", 0, None]
        self.poll.register(sock, select.EPOLLIN)
        self.send(buyer, key)

    def send(self, buyer, key=None):
        sock, item = buyer[:2]
        buyer[2], buyer[4] = b"", next(self.keys) if key is None else key
        try:
            sock.sendall(f"POST /inventory/{item}/sale HTTP/1.1\r\nHost: shop\r\n"
                         f"Idempotency-Key: {buyer[4]}\r\n\r\n".encode())
        except (BrokenPipeError, ConnectionResetError):
            pass  # what was closed is told by reading

    def closed(self, buyer):
        _, item, piece, answered, key = buyer
        self.drop(buyer)
        if piece or not answered:
            self.faults.append(f"closed after {answered} answers and {piece!r}")
            return
        self.again += 1
        try:
            self.connect(item, key)
        except OSError as error:
            self.faults.append(f"no new connection: {error}")

    def drop(self, buyer):
        self.poll.unregister(buyer[0])
        del self.buyers[buyer[0].fileno()]
        buyer[0].close()

    def answered(self, buyer):
        head, body = buyer[2].split(b"\r\n\r\n", 1)
        status = int(head.split()[1])
        self.statuses[status] += 1
        self.replayed += b"idempotency-replayed" in head.lower()
        buyer[3] += 1
        if status == 200:
            sale = json.loads(body)
            self.units[(sale["item"], sale["unit"])] += 1
            self.sellers.add(sale["instance"])
        else:
            self.faults.append(buyer[2].decode())
        if self.ending:
            self.drop(buyer)
        else:
            self.send(buyer)

    def run(self):
        deadline = time.monotonic() + PATIENCE_S
        while self.buyers and time.monotonic() < deadline:
            time.sleep(LOOK_S)
            for fd, _ in self.poll.poll(1, max(1, self.count // 50)):
                buyer = self.buyers[fd]
                try:
                    piece = buyer[0].recv(4096)
                except BlockingIOError:
                    continue
                except ConnectionResetError:
                    piece = b""
                buyer[2] += piece
                if not piece:
                    self.closed(buyer)
                elif b"\r\n\r\n{" in buyer[2] and buyer[2].endswith(b"}"):
                    self.answered(buyer)
        self.faults += [f"never answered: {buyer[1]}" for buyer in self.buyers.values()]


def stock_up(place):
    for item in ITEMS:
        urllib.request.urlopen(urllib.request.Request(
            f"http://127.0.0.1:{place.ports.operators}/inventory/{item}", json.dumps({"stock": STOCK}).encode(),
            {"Content-Type": "application/json"}, method="PUT"), timeout=PATIENCE_S).close()


def left(place):
    return sum(json.loads(place.get(f"/inventory/{item}"))["stock"] for item in ITEMS)


def setting(place, number):
    answer = json.loads(place.get("/lock", place.ports.instance(number) + 1))
    return {name: answer[name] for name in ("rung", "write", "admit", "on_conflict", "local_first", "segments", "run")}


def switch(place, number, wish):
    urllib.request.urlopen(urllib.request.Request(
        f"http://127.0.0.1:{place.ports.instance(number) + 1}/lock", json.dumps(wish).encode(),
        {"Content-Type": "application/json"}, method="PUT"), timeout=PATIENCE_S).close()


def test_nobody_is_refused_and_nothing_is_lost(place):
    needs.descriptors(8192)
    assert place.shop("up", "--lock", "watchdog").code == 0
    stock_up(place)
    for number in range(2):
        switch(place, number, {"rung": "fair", "write": "fenced", "run": "monday"})
    before = place.parts()
    with Crowd(place.ports.nginx, BUYERS) as crowd:
        wait_until(lambda: crowd.statuses[200] > BUYERS, "each buyer has bought about once")
        restart = place.shop("restart")
        sold = crowd.statuses[200]
        wait_until(lambda: crowd.statuses[200] > sold + BUYERS, "all instances sell")
    assert restart.code == 0, restart
    assert restart.out == f"all 2 instances of the shop on port {place.ports.nginx} are new\n"
    assert not crowd.faults, crowd.faults[:5]
    assert set(crowd.statuses) == {200}
    assert max(crowd.units.values()) == 1
    assert left(place) == len(ITEMS) * STOCK - crowd.statuses[200]
    assert crowd.replayed == 0
    after = place.parts()
    assert list(after) == list(before)
    assert {name for name in after if after[name] != before[name]} == {"a", "b"}
    assert [setting(place, number) for number in range(2)] == 2 * [
        {"rung": "fair", "write": "fenced", "admit": "off", "on_conflict": "wait", "local_first": False, "segments": "1",
         "run": "monday"}]
    print(f"{crowd.statuses[200]} sales; {crowd.again} requests met nginx closing an idle connection and were sent "
          f"again, {crowd.replayed} of them had been carried out")
    assert place.shop("down").code == 0
    place.check_nothing_is_left()


def old_workers(place):
    """By parent and title: they are another user's, and root in a container sees no more of them."""
    parent, found = f"\nPPid:\t{place.parts()['nginx']}\n", []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if parent in (folder / "status").read_text() and b"shutting down" in (folder / "cmdline").read_bytes():
                found.append(folder.name)
        except OSError:
            pass  # it has ended
    return found


def test_an_instance_ends_after_nginx_has_no_request_for_it(place):
    """The old worker reads half a request: it may still send it to any instance that it knows."""
    assert place.shop("up", "--lock", "fenced").code == 0
    stock_up(place)
    first = place.parts()["a"]
    with socket.create_connection(("127.0.0.1", place.ports.nginx), timeout=PATIENCE_S) as buyer:
        buyer.sendall(b"POST /inventory/phone-1/sale HTTP/1.1\r\n")
        # The worker has read it: a request that is sent after it, to each worker, was answered.
        with Crowd(place.ports.nginx, 20) as crowd:
            wait_until(lambda: crowd.statuses.total() > 100, "nginx has looked at all its connections")
        restart = place.start(SCRIPTS / "shop", "restart", "--port", place.ports.nginx)
        wait_until(lambda: old_workers(place), "nginx was told to leave a out")
        seen_until = time.monotonic() + 2
        while time.monotonic() < seen_until:
            assert first in place.processes()
            time.sleep(0.05)
        buyer.sendall(b"Host: shop\r\n\r\n")
        assert buyer.recv(4096).startswith(b"HTTP/1.1 200 ")
    assert restart.finish().code == 0, restart
    assert place.shop("down").code == 0


def test_what_ended_is_started_as_the_others_are(place):
    assert place.shop("up", "--lock", "fenced").code == 0
    stock_up(place)
    switch(place, 0, {"rung": "fair", "write": "fenced", "run": "monday"})
    crash(place, 1)
    with Crowd(place.ports.nginx, 20) as crowd:
        restart = place.shop("restart")
    assert restart.code == 0 and "instance b had ended" in restart.err, restart
    assert set(crowd.statuses) == {200} and not crowd.faults, crowd.faults[:5]  # a stays until b is there
    assert setting(place, 1)["run"] == "monday"
    assert place.shop("status").code == 0
    assert place.shop("down").code == 0


@pytest.mark.parametrize("words,sentence", [
    ((), "no shop is up on port"),
    (("--instances", 1), "the shop has one instance"),
])
def test_what_it_refuses(place, words, sentence):
    if words:
        assert place.shop("up", *words).code == 0
    restart = place.shop("restart")
    assert restart.code == 2 and sentence in restart.err, restart
    assert place.shop("down").code == 0


def part_of(place, number):
    return place.parts()["abc"[number]]


def crash(place, number):
    """Its other threads take connections for a moment after the first one has gone."""
    pid = part_of(place, number)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: pid not in place.processes() and not listens(place.ports.instance(number)), "it is gone")


def readiness(place):
    lines = [line.split(maxsplit=3) for line in place.shop("status").out.splitlines()]
    return {line[0]: line[3] for line in lines}


def restart_until(place, command, then, instance=None):
    """Starts a restart that does something as soon as it is about to run the command, while it replaces the instance."""
    hook = place.folder / "hook"
    replaced = "" if instance is None else f"&& ${{name-}} == {instance}"
    hook.write_text(f"hook() {{ if [[ $BASH_COMMAND == {shlex.quote(command)}* {replaced} ]]; then {then}; fi; }}\n"
                    "set -T; trap hook DEBUG\n")
    return place.start(SCRIPTS / "shop", "restart", "--port", place.ports.nginx, BASH_ENV=hook)


def cut_restart(place, command, instance=None):
    restart = restart_until(place, command, "kill -KILL $$ $BASHPID", instance).finish()
    assert restart.code == -signal.SIGKILL, restart
    wait_until(lambda: not [title for title in place.processes().values() if "scripts/shop" in title],
               "what it had begun is done")


# What comes next is done in this order.
CUTS = ["keep_lock", 'mv "$out.new', "need_own_ports", "shop_note", "await_part", "tell_lock", "rm -f"]
READINESS = {"keep_lock": "yes", "need_own_ports": "ended, left-out", "shop_note": "ended, left-out"}  # of a
LOCK = {"rung": "fair", "write": "fenced", "admit": "1000000,5000", "on_conflict": "wait", "local_first": True,
        "segments": "1", "run": "monday"}
IN_SEGMENTS = {**LOCK, "write": "atomic", "segments": "3"}  # buyers send no keys then


def test_a_restart_that_was_cut_short_is_made_good_by_the_next(place):
    """Wherever it was cut, and although the instance that it had not begun with crashes: lock and stock stay as they
    were."""
    assert place.shop("up").code == 0
    for number in range(2):
        switch(place, number, IN_SEGMENTS)
    stock_up(place)
    for command in CUTS:
        cut_restart(place, command)
        assert readiness(place)["a"] == READINESS.get(command, "left-out"), command
        crash(place, 1)
        restart = place.shop("restart")
        assert restart.code == 0, (command, restart)
        assert [setting(place, number) for number in range(2)] == 2 * [IN_SEGMENTS], command
        assert place.shop("status").code == 0, command
    assert left(place) == len(ITEMS) * STOCK
    assert place.shop("down").code == 0
    place.check_nothing_is_left()


def test_one_that_may_have_missed_a_switch_is_left_out_until_it_is_told(place):
    """It was started by a restart that was cut; the others were switched while nobody was there."""
    assert place.shop("up", "--instances", 3).code == 0
    stock_up(place)
    cut_restart(place, "follow_others", "b")
    switch(place, 0, LOCK)
    switch(place, 2, LOCK)
    assert setting(place, 1) != LOCK
    crash(place, 0)
    cut_restart(place, "follow_others", "a")
    assert setting(place, 0) == LOCK
    assert [readiness(place)[name] for name in "abc"] == ["left-out", "left-out", "yes"]
    with Crowd(place.ports.nginx, 20) as crowd:
        wait_until(lambda: crowd.statuses.total() > 100, "buyers are answered")
    assert crowd.sellers == {"c"} and not crowd.faults, crowd.faults[:5]
    assert place.shop("restart").code == 0
    assert [setting(place, number) for number in range(3)] == 3 * [LOCK]
    assert place.shop("status").code == 0
    assert place.shop("down").code == 0


def restarts_while_buyers_buy(place):
    with Crowd(place.ports.nginx, 20) as crowd:
        restart = place.shop("restart")
    assert restart.code == 0, restart
    assert set(crowd.statuses) == {200} and not crowd.faults, crowd.faults[:5]
    return restart


def test_the_next_restart_serves_buyers_although_all_were_left_out(place):
    """a is new and nginx is about to take it in; b was left out just now. The next restart is cut short, too."""
    assert place.shop("up").code == 0
    stock_up(place)
    for number in range(2):
        switch(place, number, {"rung": "fair", "write": "fenced"})
    cut_restart(place, "tell_nginx", "b")
    assert readiness(place) | {"a": "left-out", "b": "left-out"} == readiness(place)
    for number in range(2):
        switch(place, number, LOCK)
    for command in ["take_one_in", 'mv "$out.new', "nginx_reload", 'rm -f "$(shop_folder)', "build_programs"]:
        with Crowd(place.ports.nginx, 20) as crowd:
            cut_restart(place, command)
        assert set(crowd.statuses) == {200} and not crowd.faults, (command, crowd.faults[:5])
    assert list(readiness(place).values()).count("left-out") == 1
    cut_restart(place, "tell_nginx", "a")
    restart = restarts_while_buyers_buy(place)
    assert "lost" not in restart.err, restart
    assert [setting(place, number) for number in range(2)] == 2 * [LOCK]
    assert place.shop("status").code == 0
    assert place.shop("down").code == 0


def test_all_that_are_left_out_and_one_that_crashed(place):
    """a was not begun with when it was left out: it serves again before anything else, and has missed nothing."""
    assert place.shop("up").code == 0
    stock_up(place)
    cut_restart(place, "nginx_reload")
    for number in range(2):
        switch(place, number, LOCK)
    crash(place, 1)
    cut_restart(place, "build_programs")
    assert readiness(place)["a"] == "yes"
    restart = restarts_while_buyers_buy(place)
    assert "lost" not in restart.err and "instance b had ended" in restart.err, restart
    assert [setting(place, number) for number in range(2)] == 2 * [LOCK]
    assert place.shop("down").code == 0


def test_one_that_missed_nothing_is_taken_in_first(place):
    """b was started and not told of the switch. c was told, and a has crashed."""
    assert place.shop("up", "--instances", 3).code == 0
    stock_up(place)
    cut_restart(place, "follow_others", "b")
    switch(place, 0, LOCK)
    switch(place, 2, LOCK)
    assert setting(place, 1) != LOCK
    crash(place, 0)
    (place.state / str(place.ports.nginx) / "left-out" / "c").write_text("{}")
    cut_restart(place, "build_programs")
    assert [readiness(place)[name] for name in "abc"] == ["ended", "left-out", "yes"]
    restart = restarts_while_buyers_buy(place)
    assert "lost" not in restart.err, restart
    assert [setting(place, number) for number in range(3)] == 3 * [LOCK]
    assert place.shop("status").code == 0
    assert place.shop("down").code == 0


@pytest.mark.parametrize("command,told", [
    ("tell_nginx", [1]),  # one hears of it, and the other has ended when it is told
    ("mark_behind", [0, 1]),  # both of them hear of it, and one ends
    ("need_own_ports", [1]),  # one has ended
    ("follow_others", [1]),  # the new one was started with the old lock
])
def test_a_switch_during_a_restart_stays(place, command, told):
    assert place.shop("up").code == 0
    reached, go_on = place.folder / "reached", place.folder / "go-on"
    restart = restart_until(place, command, f"{{ : >{reached}; until [[ -e {go_on} ]]; do sleep 0.05; done; }}", "a")
    wait_until(reached.exists, command)
    for number in told:
        switch(place, number, LOCK)
    go_on.touch()
    assert restart.finish().code == 0, restart
    assert [setting(place, number) for number in range(2)] == 2 * [LOCK]
    assert place.shop("down").code == 0


def test_a_switch_that_waits_for_its_sales_while_another_is_replaced_stays(place):
    """Until they have ended, it tells the old lock."""
    assert place.shop("up", "--work-ms", 4000).code == 0
    stock_up(place)
    reached, go_on = place.folder / "reached", place.folder / "go-on"
    restart = restart_until(place, "need_own_ports", f"{{ : >{reached}; until [[ -e {go_on} ]]; do sleep 0.05; done; }}", "a")
    wait_until(reached.exists, "a has ended")
    sale = place.start("curl", "--silent", "--request", "POST",
                       f"http://127.0.0.1:{place.ports.instance(1)}/inventory/{ITEMS[0]}/sale")
    wait_until(lambda: "\ninventoryd_sales_in_flight 1\n" in place.get("/metrics", place.ports.instance(1) + 1), "b sells")
    told = threading.Thread(target=switch, args=(place, 1, LOCK))
    told.start()
    wait_until(lambda: json.loads(place.get("/lock", place.ports.instance(1) + 1))["switching"], "b waits for its sale")
    go_on.touch()
    assert restart.finish().code == 0, restart
    told.join()
    assert json.loads(sale.finish().out)["sold"] == 1
    assert [setting(place, number) for number in range(2)] == 2 * [LOCK]
    assert place.shop("down").code == 0


def test_a_load_waits_for_an_instance_that_is_just_being_replaced(place):
    assert place.shop("up", "--lock", "fenced").code == 0
    reached, go_on = place.folder / "reached", place.folder / "go-on"
    restart = restart_until(place, "need_own_ports", f"{{ : >{reached}; until [[ -e {go_on} ]]; do sleep 0.05; done; }}", "b")
    wait_until(reached.exists, "b has ended, and a was replaced")
    load = place.start(SCRIPTS / "jmeter", "smoke", "-Jkeys=true", "--port", place.ports.nginx, "--runs", place.runs)
    wait_until(lambda: setting(place, 0)["run"] != "none" or load.process.poll() is not None, "a was told the run")
    go_on.touch()
    assert restart.finish().code == 0, restart
    assert load.finish().out.splitlines()[-1:] == ["expected OK, got OK"], load
    assert place.shop("down").code == 0


@pytest.mark.parametrize("command", ["need_own_ports", "await_part"])
def test_a_switch_that_nobody_can_tell_any_more_is_not_lost_without_a_word(place, command):
    """The only one that had heard of it crashed. The other had ended, or had just begun with an older lock."""
    assert place.shop("up", "--lock", "watchdog").code == 0
    before = setting(place, 1)
    cut_restart(place, command, "a")
    switch(place, 1, LOCK)
    crash(place, 1)
    restart = place.shop("restart")
    assert restart.code == 0, restart
    for name in "ab":
        assert (f"no instance in service is left to tell its lock: {name} has that of a, which was left out, "
                '{"rung":"watchdog","write":"decr",') in restart.err, restart
    assert restart.err.count("; a PUT /lock that a missed is lost\n") == 2
    assert [setting(place, number) for number in range(2)] == 2 * [before]
    assert place.shop("down").code == 0


def test_nothing_is_lost_as_long_as_one_in_service_can_tell(place):
    assert place.shop("up").code == 0
    cut_restart(place, "await_part", "a")
    for number in (0, None):  # left out and ended, and neither
        if number is not None:
            crash(place, number)
        restart = place.shop("restart")
        assert restart.code == 0 and "lost" not in restart.err and "no instance" not in restart.err, restart
    assert place.shop("down").code == 0


def test_ctrl_c_forgets_no_new_instance(place):
    """It comes while the pid is written down, and reaches all that the restart runs."""
    assert place.shop("up").code == 0
    parts = place.state / str(place.ports.nginx) / "parts"
    tool = place.folder / "tools" / "grep"
    tool.parent.mkdir()
    tool.write_text('#!/bin/bash\n[[ "$*" != "-q ^a "* ]] || kill -INT 0\nexec /bin/grep "$@"\n')
    tool.chmod(0o755)
    restart = place.shop("restart", PATH=f"{tool.parent}:{os.environ['PATH']}")
    assert restart.code == 130, restart
    assert f"instance a is left out: scripts/shop restart --port {place.ports.nginx} goes on" in restart.err, restart
    assert [line.split()[0] for line in parts.read_text().splitlines()] == ["redis", "a", "b", "nginx"]
    assert place.shop("restart").code == 0
    assert place.shop("down").code == 0
    place.check_nothing_is_left()


def listener_of(port):
    """The threads of a killed process may have the port for a moment after its first one is gone."""
    taken = []

    def take():
        try:
            taken.append(socket.create_server(("127.0.0.1", port)))
        except OSError:
            pass
        return taken

    wait_until(take, "the port is free")
    return taken[0]


def test_a_port_that_somebody_took_is_named(place):
    assert place.shop("up").code == 0
    crash(place, 0)
    port = place.ports.instance(0) + 1
    with listener_of(port):
        restart = place.shop("restart")
    assert restart.code == 2 and f"port {port} of instance a is taken by" in restart.err, restart
    assert place.shop("restart").code == 0
    assert place.shop("down").code == 0


def test_another_process_with_the_pid_is_not_ended(place):
    libraries = "; ".join(f"source {SCRIPTS}/lib/{name}.sh" for name in ("common", "shop", "restart"))
    done = place.run("bash", "-c", f"{libraries}; sleep 60 & end_instance a $! 1 1; kill -KILL $!; wait || true")
    assert done.code == 0, done


@pytest.mark.parametrize("alive,says", [(2, "the others of its ensemble go on"), (1, "those that are left are no majority")])
def test_what_is_left_of_an_ensemble_is_said(place, alive, says):
    folder = place.state / str(place.ports.nginx)
    folder.mkdir(parents=True)
    (folder / "settings").touch()
    libraries = "; ".join(f"source {SCRIPTS}/lib/{name}.sh" for name in ("common", "shop", "ensemble"))
    lines = "".join(f"etcd{i} $$ $(process_start $$) 1\\n" if i <= alive else f"etcd{i} $$ 0 1\\n" for i in (1, 2, 3))
    done = place.run("bash", "-c", f'{libraries}; SHOP_PORT={place.ports.nginx}; printf "{lines}" >"$(shop_folder)/parts"; '
                                   "shop_each say_remedy")
    assert done.code == 0 and f"the lock's server etcd3 has ended, and {says}" in done.err, done


def test_it_is_started_as_up_was_told(place):
    """By options, by the environment, and from the folder it was told them in."""
    servers = "redis://:secret@127.0.0.1:1,redis://127.0.0.1:2,redis://127.0.0.1:3"
    assert place.shop("up", "--log-file", "shop.log", INVENTORYD_WAIT_MS=97777, INVENTORYD_LOCK_SERVERS=servers).code == 0
    settings = place.state / str(place.ports.nginx) / "settings"
    assert "secret" in settings.read_text() and settings.stat().st_mode & 0o777 == 0o600
    log = place.folder / "shop.log"
    before = log.read_text().count('"started"')
    restart = place.start("sh", "-c", 'cd / && exec "$@"', "sh", SCRIPTS / "shop", "restart", "--port",
                          place.ports.nginx, INVENTORYD_WAIT_MS=None).finish()
    assert restart.code == 0, restart
    for number in range(2):
        assert json.loads(place.get("/config", place.ports.instance(number) + 1))["wait_ms"] == 97777
    nginx = (settings.parent / "nginx" / "nginx.conf").read_text()  # it waits for longer than a sale does
    assert "proxy_read_timeout 112s;" in nginx and "worker_shutdown_timeout 137s;" in nginx
    assert log.read_text().count('"started"') == before + 2
    assert place.shop("down").code == 0


@pytest.mark.parametrize("part,sentence", [("nginx", "nginx"), ("a", "no instance except b is ready")])
def test_what_stands_still_is_named(place, part, sentence):
    """Nothing is ended: the shop is as it was."""
    assert place.shop("up").code == 0
    parts = place.parts()
    os.kill(parts[part], signal.SIGKILL if part == "nginx" else signal.SIGSTOP)
    restart = place.shop("restart")
    assert restart.code == 2, restart
    assert sentence in restart.err or f"instance {part} does not answer: end it (kill -KILL {parts[part]})" in restart.err
    assert place.parts() == parts
    if part == "a":  # else `down` would wait for as long as its sales may last
        os.kill(parts[part], signal.SIGCONT)
    assert place.shop("down").code == 0
    place.check_nothing_is_left()


BUILD = os.path.abspath(os.environ["LADDER_BUILD"])


def build_of(place, script):
    """A build whose program is that script; None: there is none."""
    folder = place.folder / "build"
    if script is not None:
        program = folder / "service" / "inventoryd"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    return folder


@pytest.mark.parametrize("script,sentence", [
    (None, "build/service/inventoryd: build it, or unset LADDER_BUILD"),
    (f'exec {BUILD}/service/inventoryd "$@" --idempotency-ms 25000', "must be longer than --wait-ms 30000"),
    ('case " $*" in *--instance\\ b*" --lock fair "*) echo b may not be fair; exit 1; esac', "b may not be fair"),
], ids=["none", "options", "lock"])
def test_a_program_that_could_not_start_ends_nothing(place, script, sentence):
    """It is asked with all that an instance will be told, by options and by the environment of up."""
    assert place.shop("up", INVENTORYD_WAIT_MS=30000).code == 0
    switch(place, 1, LOCK)
    parts = place.parts()
    restart = place.shop("restart", LADDER_BUILD=build_of(place, script))
    assert restart.code == 2 and sentence in restart.err and "no instance was ended" in restart.err, restart
    assert place.parts() == parts
    assert place.shop("status").code == 0
    assert setting(place, 1) == LOCK
    assert place.shop("down").code == 0


def test_a_folder_that_has_gone_ends_nothing(place):
    folder = place.folder / "gone"
    folder.mkdir()
    assert place.run("sh", "-c", f'cd {folder} && exec "$@"', "sh", SCRIPTS / "shop", "up", *place.ports.options).code == 0
    folder.rmdir()
    restart = place.shop("restart")
    assert restart.code == 2 and "the folder that the shop was started in has gone" in restart.err, restart
    assert place.shop("status").code == 0
    assert place.shop("down").code == 0


def test_a_build_may_be_named_from_where_one_is(place):
    assert place.shop("up").code == 0
    restart = place.run("sh", "-c", 'cd / && exec "$@"', "sh", SCRIPTS / "shop", "restart", "--port",
                        place.ports.nginx, LADDER_BUILD=os.path.relpath(BUILD, "/"))
    assert restart.code == 0, restart
    assert place.shop("status").code == 0
    assert place.shop("down").code == 0


def test_an_instance_that_does_not_start_is_left_out(place):
    """The program takes its options and ends: the shop goes on with what it has."""
    assert place.shop("up", "--lock", "fenced").code == 0
    stock_up(place)
    broken = build_of(place, 'case "$*" in *--print-config*) exit 0; esac; echo broken; exit 1')
    restart = place.shop("restart", LADDER_BUILD=broken)
    assert restart.code == 2 and "a did not become ready" in restart.err, restart
    with Crowd(place.ports.nginx, 20) as crowd:
        wait_until(lambda: crowd.statuses.total() > 100, "buyers are answered")
    assert set(crowd.statuses) == {200} and not crowd.faults, crowd.faults[:5]
    assert place.shop("restart").code == 0
    assert place.shop("status").code == 0
    assert place.shop("down").code == 0
