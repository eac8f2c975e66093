# SPDX-License-Identifier: Apache-2.0
"""Flags and environment, what is printed, how an instance starts, is checked, drains and ends."""
import ctypes
import fcntl
import json
import os
import resource
import signal
import socket
import subprocess
import threading

import pytest

import needs
from ports import free_port
from world import (PATIENCE_S, Background, hold_lock, is_closed, read_answers, read_history, release_lock,
                   wait_until)

PR_CAPBSET_DROP, CAP_SYS_RESOURCE = 24, 24
SALE = b"POST /inventory/phone/sale HTTP/1.1\r\nHost: x\r\n\r\n"


def run(*flags, environment=None, **named):
    """inventoryd with these flags, to its end."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("INVENTORYD_")}
    return subprocess.run([os.environ["INVENTORYD"], *map(str, flags)], capture_output=True, text=True,
                          timeout=PATIENCE_S, env={**clean, **(environment or {})}, **named)


def config(*flags, environment=None):
    done = run(*flags, "--print-config", environment=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# ---- Settings ----------------------------------------------------------------------------------

def test_defaults():
    settings = config()
    assert settings == {
        "listen": "127.0.0.1:8000", "admin_listen": "127.0.0.1:8001", "instance": "a",
        "redis": "redis://127.0.0.1:6379/0", "lock_redis": "redis://127.0.0.1:6379/0",
        "lock_servers": "", "stock_redis": "redis://127.0.0.1:6379/0", "lock_service": "", "redis_password_file": "", "replicas_ack": "none", "replicas": 0,
        "sentinel_user": "", "sentinel_password_file": "", "lock": settings["lock"], "write": "decr",
        "on_conflict": "wait", "local_first": False, "check_hold": False, "guard_reads": False, "admit": "off", "segments": "1",
        "keys": "item", "work_ms": 0, "workers": 16, "queue": 4096, "wait_ms": 20000, "queue_max": 100000, "queue_life_ms": 300000, "ttl_ms": 30000, "retry_ms": 20, "contenders": 16, "handoff_max": 64, "handoff_ms": 10, "grant_ms": 200,
        "idempotency_ms": 86400000, "redis_timeout_ms": 1000, "connections": 4096, "request_ms": 10000, "fail_fast_ms": 500, "owner": "thread", "history": "", "history_commands": False, "history_required": False, "log_file": "",
        "run": "", "admin_writes": False, "admin_token_file": "", "enable_failpoints": False, "failpoints": "", "failpoint_files": "",
        "drain_ms": 30000, "log_level": "info", "log_requests": False}


def test_a_flag_beats_the_environment_which_beats_the_default():
    environment = {"INVENTORYD_WORK_MS": "7", "INVENTORYD_LOCK": "setnx", "INVENTORYD_ADMIN_WRITES": "on",
                   "INVENTORYD_REDIS": "redis://h:1/2"}
    settings = config("--lock=local", "--check-hold", "on", "--log-requests", environment=environment)
    assert (settings["work_ms"], settings["lock"], settings["admin_writes"]) == (7, "local", True)
    assert (settings["check_hold"], settings["log_requests"]) == (True, True)
    assert settings["stock_redis"] == settings["lock_redis"] == "redis://h:1/2"
    assert config("--admin-writes=off", environment=environment)["admin_writes"] is False
    assert config("--admin-writes", "--lock", "none")["lock"] == "none"


def test_every_setting_has_a_flag_and_a_variable():
    names = set(config()) | {"print_config", "print_rungs", "healthcheck", "help", "version"}
    table = run("--help=markdown").stdout.splitlines()[2:]
    rows = {line.split("`")[1].split()[0].lstrip("-").replace("-", "_") for line in table}
    assert rows == names
    for line in table:
        if "INVENTORYD_" in line:
            flag, variable = line.split("`")[1], line.split("`")[3]
            assert variable == "INVENTORYD_" + flag.lstrip("-").replace("-", "_").upper()
    for name in names - {"print_config"}:
        assert f"--{name.replace('_', '-')}" in run("--help").stdout


@pytest.mark.parametrize("flags,words", [
    (["--colour", "red"], ["--colour", "--lock", "--healthcheck"]), (["-h"], ["-h", "--"]),
    (["x"], ['"x"', "--help"]),
    (["--"], ["--help"]),
    (["--lock", "best"], ["--lock", '"best"', "none, local, setnx", "watchdog"]),
    (["--write", "guess"], ["--write", "decr|set|atomic|cas|fenced_textbook|fenced"]), (["--keys=x"], ["item|article"]),
    (["--workers", "0"], ["1 to 1024"]), (["--workers", "many"], ['"many"', "1 to 1024"]),
    (["--workers"], ["--workers"]),
    (["--work-ms", "-1"], ["0 to"]), (["--work-ms", "1.5"], ["0 to"]), (["--ttl-ms", "99"], ["100 to"]),
    (["--wait-ms", "99999999999999999999"], ["1 to"]), (["--check-hold=maybe"], ['"on"', '"off"']),
    (["--listen", "8000"], ["host:port", "127.0.0.1:8000"]), (["--listen", "off"], ["host:port"]),
    (["--listen", "127.0.0.1:99999"], ["host:port"]), (["--admin-listen", "x"], ["off"]),
    (["--instance", "a b"], ["--instance"]), (["--instance", "a" * 33], ["32"]), (["--instance", ""], ["--instance"]),
    (["--redis", "localhost"], ["--redis", "redis://"]), (["--redis", ""], ["redis://"]),
    (["--lock-redis", "http://x"], ["--lock-redis", "redis://"]), (["--redis", "redis://u:secret@h:x/"], ["--redis"]),
    (["--log-level", "loud"], ["error|warning|info|debug"]), (["--help=html"], ["markdown"]),
    (["--healthcheck"], ["URL"]), (["--history", "x" * 5000], ["--history"]),
    (["--history-commands"], ["--history-commands", "--history FILE"]), (["--owner", "me"], ["thread|object"]),
    (["--run", "a b"], ["--run", "letters, digits"]), (["--run", "-a"], ["--run"]), (["--run", "r" * 65], ["64"]),
    (["--failpoints", "sale.entered=pause"], ["--enable-failpoints"]),
    (["--idempotency-ms", "19999"], ["--idempotency-ms 19999", "longer than --wait-ms 20000"]),
    (["--idempotency-ms", "5000", "--wait-ms", "5000"], ["--idempotency-ms 5000", "longer than --wait-ms 5000"]),
    (["--failpoint-files", "/tmp"], ["--enable-failpoints"]),
    (["--lock-server=zk://me:secret@h"], ["--lock-server is no flag"]), (["--redis-password=hunter2"], ["--redis-password is no flag"]), (["zk://me:secret@h"], ['"zk://***@h" is not a flag']),
    (["--workers", "redis://:secret@h"], ['"redis://***@h"']), (["--check-hold", "unix:me:secret@/r"], ['"unix:***@/r"']),
    (["--lock", "etcds://me:secret@h,h2"], ['"etcds://***@h,h2"']), (["--keys=me:secret@h"], ['"***@h"']),
    (["--write", "redis://a:secret@h,redis://b:secret@h"], ['"redis://***@h"']), (["--instance", "sentinel://:secret@h/m"], ["sentinel://***@h/m"]),
    (["--listen", "redis://:secret@h"], ["redis://***@h"]), (["--help=redis://:secret@h"], ["redis://***@h"]),
    (["--admin-token-file", "redis://:secret@h"], ["redis://***@h: No such file"])])
def test_bad_flags(flags, words):
    done = run(*flags)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("inventoryd: ") and done.stderr.count("\n") == 1
    for word in words:
        assert word in done.stderr
    assert "secret" not in done.stderr


@pytest.mark.parametrize("flag", ["--history", "--log-file", "--failpoint-files", "--failpoints"])
def test_a_password_at_a_wrong_place_is_not_printed(flag):
    done = run(flag, "redis://me:secret@h/1", "--enable-failpoints", "--listen", "127.0.0.1:0", "--admin-listen", "off")
    assert done.returncode == 1 and "redis://***@h/1" in done.stderr and "secret" not in done.stderr


def test_nor_is_that_of_a_health_check():
    done = run("--healthcheck", "http://me:secret@127.0.0.1:1/")
    assert done.returncode == 1 and "http://***@127.0.0.1:1/ is not" in done.stderr


def test_a_bad_variable_is_named():
    done = run("--print-config", environment={"INVENTORYD_WORKERS": "0"})
    assert done.returncode == 2 and "INVENTORYD_WORKERS" in done.stderr and "1 to 1024" in done.stderr


@pytest.mark.parametrize("url", ["redis://user:s3cret@h:1/2", "redis://:s3cret@h", "unix:user:s3cret@/run/r.sock",
                                 "unix://:s3cret@/run/r.sock?db=1", "redis://:s3%40cret@h",
                                 "sentinel://user:s3cret@h1,h2:1/shop"])
def test_passwords_are_not_printed(url):
    settings = config("--redis", url)
    assert "cret" not in json.dumps(settings) and "***@" in settings["redis"] and "***@" in settings["stock_redis"]


@pytest.mark.parametrize("line,words", [(None, ["No such file"]), ("", ["first line", "512"]),
                                        ("\nsecret", ["first line"]), ("s" * 513, ["first line", "512"])])
def test_a_password_file_that_is_none(tmp_path, line, words):
    file = tmp_path / "password"
    if line is not None:
        file.write_text(line)
    for flag in ("--redis-password-file", "--sentinel-password-file"):
        done = run("--print-config", flag, file)
        assert done.returncode == 2 and done.stderr.startswith(f"inventoryd: {flag}: ")
        for word in [str(file), *words]:
            assert word in done.stderr


def test_a_user_of_the_sentinels_needs_a_password():
    done = run("--print-config", "--sentinel-user", "u")
    assert done.returncode == 2 and done.stderr == "inventoryd: --sentinel-user needs --sentinel-password-file, too\n"


def test_version_and_help():
    assert run("--version").stdout.startswith("inventoryd 0.")
    assert run("--help").returncode == 0
    problems = run("--help=problems").stdout
    assert "| 409 | `sold-out` |" in problems and "| 500 | `outcome-unknown` |" in problems


# ---- Start --------------------------------------------------------------------------------------

@pytest.mark.parametrize("flag", ["--listen", "--admin-listen"])
def test_a_busy_port(redis, tmp_path, flag):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        flags = {"--listen": "127.0.0.1:0", "--admin-listen": "127.0.0.1:0", flag: address}
        done = run(*[word for pair in flags.items() for word in pair], "--redis", redis.url, "--history",
                   tmp_path / "h.jsonl")
    assert done.returncode == 1 and address in done.stderr and "another port" in done.stderr
    assert not (tmp_path / "h.jsonl").exists()


def test_a_history_that_cannot_be_written(redis, tmp_path):
    done = run("--listen", "127.0.0.1:0", "--admin-listen", "off", "--redis", redis.url, "--history",
               tmp_path / "no" / "h.jsonl")
    assert done.returncode == 1 and "h.jsonl" in done.stderr and "No such file" in done.stderr


def test_the_descriptor_limit_is_raised_or_said(redis, start):
    shop = start(redis, "--connections", "3000")
    with open(f"/proc/{shop.process.pid}/limits", encoding="ascii") as limits:
        line = next(line for line in limits if line.startswith("Max open files"))
    assert int(line.split()[3]) >= 3000

    def lower():
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        drop_rights()

    done = run("--listen", "127.0.0.1:0", "--admin-listen", "off", "--redis", redis.url, preexec_fn=lower)
    assert done.returncode == 1 and "ulimit" in done.stderr and "--connections" in done.stderr


def drop_rights():
    """Root may raise any limit: without this capability it may not."""
    if os.geteuid() == 0:
        assert ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_SYS_RESOURCE, 0, 0, 0) == 0


def test_admin_off(redis, start):
    shop = start(redis, "--admin-listen", "off")
    assert shop.admin_port is None and shop.ask("GET", "/healthz").status == 200


def test_a_variable_that_is_no_setting_is_warned_of(redis, start):
    shop = start(redis, environment={"INVENTORYD_WORKER": "4"})
    assert "INVENTORYD_WORKER " in shop.logged("unknown-variable")[0]["detail"]
    assert not start(redis, name="b").logged("unknown-variable")


def test_ipv6(redis, start):
    needs.ipv6()
    shop = start(redis, "--listen", "[::1]:0")
    with socket.create_connection(("::1", shop.port), PATIENCE_S) as sock:
        sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_answers(sock)[0][0] == 200


def test_logs_are_json_and_requests_are_logged_when_asked_for(redis, start):
    shop = start(redis, "--log-requests")
    shop.ask("GET", "/healthz?", headers={"X-Request-Id": "r1"})
    shop.ask("GET", "/%22%0a", headers={"X-Request-Id": "r2"})
    lines = wait_until(lambda: len(shop.logged("request")) == 2 and shop.logged("request"), "two lines")
    first = lines[0]
    assert (first["request"], first["method"], first["path"], first["status"]) == ("r1", "GET", "/healthz?", 200)
    assert lines[1]["status"] == 404 and lines[0]["time_ms"] >= 0
    for line in shop.log.splitlines():
        assert {"time", "level", "instance", "event"} <= set(json.loads(line))
    quiet = start(redis, name="b")
    quiet.ask("GET", "/healthz")
    assert not quiet.logged("request")


def test_a_flood_of_log_lines_is_cut(redis, start):
    """libmicrohttpd has two lines to say of each of these."""
    shop = start(redis, "--log-level", "debug")
    for _ in range(600):
        assert shop.raw(b"GET / HTTP/9.9\r\nHost: x\r\n\r\n")[0][0] == 505
    lines = [json.loads(line) for line in shop.log.splitlines()]
    assert len(lines) < 600
    said = lambda: [json.loads(line).get("left_out", 0) for line in shop.log.splitlines()]
    wait_until(lambda: shop.raw(b"GET / HTTP/9.9\r\n\r\n") and max(said()) > 0, "how many were left out")


class Reader(threading.Thread):
    """The far end of an instance's standard error, written to a file: it reads, or it does not."""

    def __init__(self, end, path):
        super().__init__(daemon=True)
        self.end, self.path, self.reads = end, path, threading.Event()
        self.reads.set()
        self.start()

    def run(self):
        try:
            with open(self.path, "ab", buffering=0) as copy:
                while piece := os.read(self.end, 4096):
                    copy.write(piece)
                    self.reads.wait()
        except OSError:  # a terminal whose other end is closed
            pass


def ends_of(kind):
    if kind == "a terminal":
        return os.openpty()
    if kind == "a socket":
        return [end.detach() for end in socket.socketpair()]
    ends = os.pipe()
    fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, 8192)
    return ends


@pytest.mark.parametrize("kind", ["a pipe", "a socket", "a terminal"])
def test_a_log_that_nobody_reads_stops_nothing(redis, start, tmp_path, kind):
    """What has no room is left out, and counted; what is written is whole."""
    far, near = ends_of(kind)
    reader = Reader(far, tmp_path / "read.log")
    (tmp_path / "read.log").touch()
    shop = start(redis, "--log-requests", "--write", "atomic", stderr=near, log_path=reader.path)
    assert shop.stock(value=10000).status == 200
    flags = fcntl.fcntl(near, fcntl.F_GETFL)
    assert not flags & os.O_NONBLOCK  # others have it, too

    def ask(count):
        for _ in range(count):
            assert shop.sell().status == 200 and shop.ask("GET", "/" + 900 * "x").status == 404

    def lines():
        whole = [line for line in shop.log.rpartition(b"\n")[0].splitlines()
                 if kind != "a terminal" or line.endswith(b"}")]  # which takes a part of a line: the next begins anew
        return [json.loads(line) for line in whole]

    def told():
        return sum(line.get("left_out", 0) for line in lines())

    reader.reads.clear()
    ask(200)
    assert shop.admin("GET", "/livez").status == 200
    reader.reads.set()
    wait_until(lambda: shop.sell().status == 200 and told() > 0, "how many were left out")
    assert len(lines()) + told() > 400
    reader.reads.clear()
    ask(200)
    shop.signal()
    assert shop.wait() == 0
    os.close(near)
    reader.reads.set()
    reader.join(PATIENCE_S)
    os.close(far)
    assert lines()


# ---- Health checks --------------------------------------------------------------------------------

def test_healthcheck(redis, start):
    shop = start(redis, "--redis-timeout-ms", 200)
    base = f"http://127.0.0.1:{shop.admin_port}"
    assert run("--healthcheck", f"{base}/readyz").returncode == 0
    assert run(f"--healthcheck=http://localhost:{shop.admin_port}/livez").returncode == 0
    redis.kill()
    done = run("--healthcheck", f"{base}/readyz")
    assert done.returncode == 1 and "503" in done.stderr
    assert run("--healthcheck", f"{base}/livez").returncode == 0
    assert run("--healthcheck", f"{base}/nowhere").returncode == 1
    done = run("--healthcheck", f"http://127.0.0.1:{free_port()}/livez")
    assert done.returncode == 1 and "connect" in done.stderr
    for url in ("ftp://x/", "http://x", "http://:80/", "127.0.0.1:80", ""):
        done = run("--healthcheck", url)
        assert done.returncode == 1 and "http://host:port/path" in done.stderr


def test_healthcheck_of_something_that_never_answers():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        done = run("--healthcheck", f"http://127.0.0.1:{silent.getsockname()[1]}/")
    assert done.returncode == 1 and "no answer" in done.stderr


# ---- The end --------------------------------------------------------------------------------------

@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_idle_instance(redis, start, number):
    shop = start(redis)
    shop.stock(value=5)
    shop.sell()
    shop.signal(number)
    assert shop.wait() == 0


def test_drain(redis, start, tmp_path):
    shop = start(redis, "--history", tmp_path / "h.jsonl")
    shop.stock(value=5)
    hold_lock(redis)
    in_flight = [Background(shop.sell) for _ in range(3)]
    kept = shop.connection()
    kept.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert read_answers(kept)[0][0] == 200
    wait_until(lambda: shop.metric("inventoryd_sales_in_flight") == 3, "the sales are in flight")
    shop.signal()
    wait_until(lambda: shop.admin("GET", "/readyz").status == 503, "it is not ready any more")
    assert shop.admin("GET", "/readyz").problem == "not-ready" and shop.admin("GET", "/livez").status == 200
    wait_until(lambda: refuses(shop.port), "new connections are refused")
    kept.sendall(SALE)  # on a connection that was open
    (code, headers, body), = read_answers(kept)
    assert code == 503 and json.loads(body)["type"].endswith(":draining") and headers["connection"] == "close"
    assert is_closed(kept)
    assert shop.process.poll() is None
    release_lock(redis)
    assert [sale.result().status for sale in in_flight] == [200] * 3
    assert shop.wait() == 0
    assert redis("EXISTS", "lock:{phone}") == 0
    events = read_history(tmp_path / "h.jsonl")
    assert events[-1]["event"] == "end"
    assert [event["reason"] for event in events if event["event"] == "refused"] == ["draining"]


def refuses(port):
    try:
        socket.create_connection(("127.0.0.1", port), PATIENCE_S).close()
        return False
    except ConnectionRefusedError:
        return True


def test_drain_cancels_waits_in_time(redis, start):
    """The lock never comes free: who waits is told so, and the exit code is 0 all the same."""
    shop = start(redis, "--workers", 2, "--drain-ms", 1000, "--redis-timeout-ms", 50)
    shop.stock(value=5)
    hold_lock(redis)
    waiting = [Background(shop.sell) for _ in range(6)]
    wait_until(lambda: shop.metric("inventoryd_sales_in_flight") == 6, "the sales wait")
    shop.signal()
    replies = [sale.result() for sale in waiting]
    assert [reply.status for reply in replies] == [503] * 6
    assert {reply.problem for reply in replies} == {"draining"}
    assert shop.wait() == 0
    assert redis("GET", "inventory:{phone}") == "5"


def test_a_drain_that_takes_too_long_ends_with_1(redis, start):
    shop = start(redis, "--work-ms", 60000, "--drain-ms", 200)
    shop.stock(value=5)
    Background(shop.sell)
    wait_until(lambda: shop.metric("lock_acquired_total") == 2, "the sale works")
    shop.signal()
    assert shop.wait() == 1 and "--drain-ms" in shop.logged("stopped")[0]["detail"]


def test_an_instance_that_drains_switches_no_lock(redis, start):
    shop = start(redis, "--admin-writes")
    shop.stock(value=5)
    hold_lock(redis)
    sale = Background(shop.sell)
    wait_until(lambda: shop.metric("inventoryd_sales_waiting") == 1, "a sale waits")
    shop.signal()
    wait_until(lambda: shop.admin("GET", "/readyz").status == 503, "it drains")
    assert shop.switch(rung="none").problem == "draining"
    assert shop.admin("GET", "/lock").json["rung"] == "watchdog"
    release_lock(redis)
    assert sale.result().status == 200 and shop.wait() == 0


def test_a_lock_that_cannot_be_released_keeps_no_instance(redis, start):
    """The server hangs. All requests were answered."""
    shop = start(redis, "--drain-ms", 1000, "--redis-timeout-ms", 60000, "--enable-failpoints", "--failpoints",
                 "sale.after_write=1*fail")
    shop.stock(value=5)
    assert shop.sell().status == 200
    redis.freeze()
    shop.signal()
    assert shop.wait() == 1 and [end["level"] for end in shop.logged("stopped")] == ["error"]
    assert not shop.logged("drain") and "--drain-ms" in shop.logged("stopped")[0]["detail"]


def test_a_second_signal_ends_at_once(redis, start):
    shop = start(redis, "--work-ms", 60000)
    shop.stock(value=5)
    Background(shop.sell)
    wait_until(lambda: shop.metric("lock_acquired_total") == 2, "the sale works")
    shop.signal()
    wait_until(lambda: shop.logged("draining"), "it drains")
    shop.signal()
    assert shop.wait() == 128 + signal.SIGTERM


def test_drain_under_load_answers_everything_that_was_accepted(redis, start):
    shop = start(redis, "--lock", "none", "--write", "atomic")
    shop.stock(value=100000)
    sold, ended = [], []

    def sell(sock):
        with sock:
            while True:
                try:
                    sock.sendall(SALE)
                    answers = read_answers(sock)
                except OSError:
                    answers = []
                if not answers or answers[0][0] == 503:
                    ended.append(answers)
                    return
                sold.append(json.loads(answers[0][2])["unit"])

    sellers = [Background(sell, sock) for sock in [shop.connection() for _ in range(30)]]
    wait_until(lambda: len(sold) > 300, "sales")
    shop.signal()
    for seller in sellers:
        seller.result()
    assert shop.wait() == 0 and len(ended) == 30
    assert len(sold) == len(set(sold)) == 100000 - int(redis("GET", "inventory:{phone}"))
