# SPDX-License-Identifier: Apache-2.0
"""nginx in front: a real one, made from deploy/nginx, with small HTTP servers behind it."""
import collections
import concurrent.futures
import http.client
import http.server
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading

import pytest

from bench import call, run, wait_until
from ports import free_ports

PROBLEM = b'{"type":"urn:lockladder:problem:queue-full","title":"Too many","status":503}'


class Behind(http.server.ThreadingHTTPServer):
    """An instance: answers with its name, or does what the path says."""
    daemon_threads = True
    request_queue_size = 4096

    def __init__(self, name, port):
        super().__init__(("127.0.0.1", port), Answer)
        self.name = name
        self.seen = collections.Counter()
        self.ids = []
        self.tokens = []
        self.keys = []
        self.origins = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def close(self):
        self.shutdown()
        self.server_close()


class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *words):
        pass

    def do_GET(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.split("?")[0]
        self.server.seen[self.command, path] += 1
        self.server.ids.append(self.headers["X-Request-Id"])
        self.server.tokens.append(self.headers["Authorization"])
        self.server.keys.append(self.headers.get_all("Idempotency-Key"))
        self.server.origins.append((self.headers["Host"], self.headers["Origin"]))
        if "/hang-up" in path:
            self.close_connection = True
            return
        if "/silent" in path:
            self.server.silence.wait()
            self.close_connection = True
            return
        body = PROBLEM if path == "/problem-of-its-own" else self.server.name.encode()
        status = 503 if body is PROBLEM else 200
        self.wfile.write(
            f"HTTP/1.1 {status} x\r\nContent-Length: {len(body)}\r\n"
            f"Content-Type: {'application/problem+json' if body is PROBLEM else 'text/plain'}\r\n"
            f"{'Retry-After: 7' if body is PROBLEM else 'Idempotency-Replayed: true'}\r\n\r\n".encode() + body)

    do_POST = do_PUT = do_GET


class Front:
    def __init__(self, folder, ports, *more, change=lambda conf: conf):
        self.conf = folder / "front" / "nginx.conf"
        self.log = folder / "access.log"
        self.port, self.operators_port = ports[0], ports[3]
        done = call("nginx_render", "--out", self.conf, "--listen", f"127.0.0.1:{ports[0]}",
                    "--operators", f"127.0.0.1:{ports[3]}", "--log", self.log,
                    "--upstream", f"a=127.0.0.1:{ports[1]}", "--upstream", f"b=127.0.0.1:{ports[2]}",
                    "--admin", f"a=127.0.0.1:{ports[4]}", "--admin", f"b=127.0.0.1:{ports[5]}", *more)
        assert done.returncode == 0, done.stderr
        self.conf.write_text(change(self.conf.read_text()))
        started = call("nginx_start", self.conf)
        assert started.returncode == 0, started.stderr
        assert not started.stderr

    def ask(self, method, path, headers=None, body=None, port=None):
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=60)
        try:
            connection.request(method, path, body=body, headers=headers or {})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def operate(self, method, path, headers=None, body="{}"):
        return self.ask(method, path, headers, body, self.operators_port)

    def raw(self, text):
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
            connection.sendall(text)
            return connection.makefile("rb").read()

    def lines(self, count):
        """nginx logs a request once it is over, a moment after its answer."""
        wait_until(lambda: len(self.log.read_text().splitlines()) >= count, f"{count} lines")
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def stop(self):
        stopped = call("nginx_stop", self.conf)
        assert stopped.returncode == 0, stopped.stderr


@pytest.fixture
def ports():
    return free_ports(6)


def serve(names_and_ports):
    servers = [Behind(name, port) for name, port in names_and_ports]
    for server in servers:
        server.silence = threading.Event()
    yield servers
    for server in servers:
        server.silence.set()
        server.close()


@pytest.fixture
def behind(ports):
    yield from serve([("a", ports[1]), ("b", ports[2])])


@pytest.fixture
def admins(ports):
    yield from serve([("admin-a", ports[4]), ("admin-b", ports[5])])


@pytest.fixture
def start(tmp_path, ports):
    fronts = []

    def starter(*more, **change):
        fronts.append(Front(tmp_path, ports, *more, **change))
        return fronts[-1]
    yield starter
    for front in fronts:
        front.stop()


@pytest.fixture
def front(start, behind):
    return start()


def test_requests_go_round_and_the_log_says_where(front, behind, ports):
    answers = [front.ask("POST", "/inventory/phone/sale?quantity=1") for _ in range(20)]
    assert collections.Counter(body for _, _, body in answers) == {b"a": 10, b"b": 10}
    lines = {line["request"]: line for line in front.lines(20)}  # two workers write it
    for status, headers, body in answers:
        line = lines[headers["X-Request-Id"]]
        upstream = f"127.0.0.1:{ports[1 if body == b'a' else 2]}"
        assert status == 200
        assert headers["X-Upstream"] == upstream
        assert line.pop("t_s") > 1.7e9 and line.pop("time_s") >= 0
        assert int(line.pop("upstream_bytes_sent")) > 0
        assert line == {"request": headers["X-Request-Id"], "method": "POST",
                        "uri": "/inventory/phone/sale", "status": 200, "upstream": upstream,
                        "upstream_status": "200"}
    assert "Server" not in answers[0][1] or answers[0][1]["Server"] == "nginx"


def test_a_sane_id_is_kept_and_any_other_replaced(front, behind):
    _, headers, _ = front.ask("GET", "/", {"X-Request-Id": "0f3a-b_C.9"})
    assert headers["X-Request-Id"] == "0f3a-b_C.9"
    made = set()
    for bad in ("", "a b", 'a"b', "x" * 65, "a\tb"):
        _, headers, _ = front.ask("GET", "/", {"X-Request-Id": bad})
        assert re.fullmatch("[0-9a-f]{32}", headers["X-Request-Id"])
        made.add(headers["X-Request-Id"])
    assert len(made) == 5
    told = behind[0].ids + behind[1].ids
    assert sorted(told) == sorted(["0f3a-b_C.9", *made])
    assert sorted(line["request"] for line in front.lines(6)) == sorted(told)


def test_what_clients_send_cannot_break_the_log(front, behind):
    front.ask("GET", "/%22%0a%7b?" + "q" * 100, {"X-Request-Id": '","status":1', "User-Agent": '"'})
    front.raw(b'GET /"\\x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n')
    front.raw(b"\x00\x01\x02\r\n\r\n")
    front.raw(b"GET /old\r\n")  # HTTP/0.9: no status is sent
    lines = front.lines(4)
    assert {line["uri"] for line in lines} == {"/%22%0a%7b", '/"\\x', "", "/old"}
    assert all(isinstance(line["status"], int) for line in lines)


OWN = [
    (b"GARBAGE\r\n\r\n", 400, "malformed-request", "", ""),
    (b"GET /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: no\r\n\r\n", 501, "gateway-error", "GET",
     "/x"),
    (b"TRACE /x HTTP/1.1\r\nHost: x\r\n\r\n", 405, "method-not-allowed", "TRACE", "/x"),
    (b"POST /x/sale?q HTTP/1.1\r\nHost: x\r\nContent-Length: 9000\r\n\r\n", 413, "body-too-large",
     "POST", "/x/sale"),
    (b"GET /" + b"u" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414, "url-too-long", "GET", ""),
    (b"POST /x HTTP/1.1\r\nHost: x\r\nX-Long: " + b"h" * 9000 + b"\r\n\r\n", 431,
     "headers-too-large", "POST", "/x"),
    (b"POST /x HTTP/1.1\r\nHost: x\r\n" + 3 * (b"X-Long: " + b"h" * 3900 + b"\r\n") + b"\r\n", 431,
     "headers-too-large", "POST", "/x"),
    (b"GET /x HTTP/9.9\r\nHost: x\r\n\r\n", 505, "gateway-error", "GET", ""),
]


def check_problem(answer, status, kind):
    head, body = answer.split(b"\r\n\r\n", 1)
    assert re.match(rb"HTTP/1.1 %d " % status, head)
    assert b"Content-Type: application/problem+json" in head
    assert b"X-Request-Id: " in head
    problem = json.loads(body)
    assert problem["type"] == f"urn:lockladder:problem:{kind}"
    assert problem["status"] == status
    assert problem["title"] and problem["detail"]


@pytest.mark.parametrize("text,status,kind,method,uri", OWN, ids=[str(row[1]) for row in OWN])
def test_its_own_errors_are_problems_too(front, text, status, kind, method, uri):
    check_problem(front.raw(text), status, kind)
    line = front.lines(1)[0]
    assert (line["method"], line["uri"], line["status"], line["upstream"]) == (
        method, uri, status, "")


def test_nobody_behind_is_a_502(start, ports):
    front = start()
    check_problem(front.raw(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n"
                            b"Connection: close\r\n\r\n"), 502, "bad-gateway")
    line = front.lines(1)[0]
    assert (line["method"], line["uri"], line["status"]) == ("POST", "/x", 502)
    assert sorted(line["upstream"].split(", ")) == [f"127.0.0.1:{port}" for port in ports[1:3]]


def test_silence_behind_is_a_504_and_no_second_try(start, behind):
    front = start(change=lambda conf: conf.replace("proxy_read_timeout 35s", "proxy_read_timeout 1s"))
    check_problem(front.raw(b"POST /silent HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n"
                            b"Connection: close\r\n\r\n"), 504, "gateway-timeout")
    assert sum(server.seen["POST", "/silent"] for server in behind) == 1


def test_an_instances_own_problem_passes_untouched(front, behind):
    status, headers, body = front.ask("POST", "/problem-of-its-own")
    assert (status, body) == (503, PROBLEM)
    assert headers["Content-Type"] == "application/problem+json"
    assert headers["Retry-After"] == "7"


def test_a_sale_that_was_sent_is_never_sent_again(front, behind):
    status, _, _ = front.ask("POST", "/hang-up")
    assert status == 502
    assert sum(server.seen["POST", "/hang-up"] for server in behind) == 1
    status, _, _ = front.ask("GET", "/hang-up")  # reading twice does no harm
    assert status == 502
    assert sum(server.seen["GET", "/hang-up"] for server in behind) == 2


@pytest.mark.parametrize("sent", [["k-1"], ['"k\\"1"'], ["k-1", "k-2"]])
def test_a_key_is_handed_on_as_it_is_and_its_answer_back(front, behind, sent):
    """Twice is twice: the instance refuses it."""
    lines = "".join(f"Idempotency-Key: {key}\r\n" for key in sent)
    answer = front.raw(f"POST /inventory/phone/sale HTTP/1.1\r\nHost: x\r\n{lines}Content-Length: 0\r\n"
                       "Connection: close\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 200") and b"\r\nIdempotency-Replayed: true\r\n" in answer
    assert behind[0].keys + behind[1].keys == [sent]


def test_nor_is_a_sale_with_a_key(front, behind):
    """Its buyer sends it again, when he wants to."""
    for _ in range(6):
        assert front.ask("POST", "/hang-up", {"Idempotency-Key": "k"})[0] == 502
    assert len(behind[0].keys) + len(behind[1].keys) == 6


OPERATE = [("PUT", "/inventory/%s"), ("POST", "/inventory/%s/restock")]


@pytest.mark.parametrize("method,path", OPERATE)
def test_operators_reach_the_admin_listeners(front, behind, admins, method, path):
    token = {"Authorization": "Bearer 0123456789abcdef"}
    answers = [front.operate(method, path % "phone", token) for _ in range(4)]
    assert collections.Counter((status, body) for status, _, body in answers) == {
        (200, b"admin-a"): 2, (200, b"admin-b"): 2}
    assert admins[0].tokens + admins[1].tokens == ["Bearer 0123456789abcdef"] * 4
    assert not behind[0].seen and not behind[1].seen
    assert "0123456789abcdef" not in front.log.read_text()


@pytest.mark.parametrize("method,path", OPERATE)
def test_instances_can_judge_who_asks(front, admins, method, path):
    """Without a token they refuse a page of another site: by Host and Origin, as its browser sent them."""
    origin = ("rebound.example:1", "http://evil.example")
    assert front.operate(method, path % "phone", dict(zip(("Host", "Origin"), origin)))[0] == 200
    front.operate(method, path % "phone")
    assert set(admins[0].origins + admins[1].origins) == {origin, (f"127.0.0.1:{front.operators_port}", None)}


@pytest.mark.parametrize("path", ["/", "/lock", "/config", "/metrics", "/failpoints", "/inventory", "/inventory/", "/healthz",
                                  "/inventory/phone/", "/inventory/phone/sale", "/inventory/phone/restock/x",
                                  "/inventory/../lock", "/inventory/..%2flock", "//lock", "/inventory/phone/../../lock"])
def test_operators_reach_nothing_else_there(front, behind, admins, path):
    for method in ("GET", "PUT", "POST"):
        status, _, body = front.operate(method, path)
        assert status == 404 and json.loads(body)["type"] == "urn:lockladder:problem:no-such-resource"
    assert not any(server.seen for server in behind + admins)


def test_each_is_told_of_his_own_paths(front, behind, admins):
    """What nginx answers itself; the rest of the buyers' paths the instances answer."""
    for port, told, untold in ((front.port, "/sale", "restock"), (front.operators_port, "restock", "/sale")):
        status, _, body = front.ask("GET", "/problem", port=port)
        assert status == 404 and told in json.loads(body)["detail"] and untold not in body.decode()


def test_buyers_reach_no_admin_listener(front, behind, admins):
    for method, path in OPERATE:
        assert front.ask(method, path % "phone")[2] in (b"a", b"b")
    assert not any(server.seen for server in admins)


@pytest.mark.parametrize("method,path", OPERATE)
def test_what_operators_sent_is_never_sent_again(front, behind, admins, method, path):
    """nginx takes a PUT for idempotent and would send it to the next instance: a stock would be set back."""
    path = path % "hang-up"
    assert front.operate(method, path)[0] == 502
    assert sum(server.seen[method, path] for server in admins) == 1


@pytest.mark.parametrize("method,path", OPERATE)
def test_nor_when_there_is_no_answer(start, behind, admins, method, path):
    path = path % "silent"
    front = start(change=lambda conf: conf.replace("proxy_read_timeout 35s", "proxy_read_timeout 1s"))
    assert front.operate(method, path)[0] == 504
    assert sum(server.seen[method, path] for server in admins) == 1


@pytest.mark.parametrize("service,path", [("menu", "/menus/lunch"), ("account", "/accounts/acc-01"), ("tasks", "/lists/list")])
def test_another_service_has_paths_of_its_own(start, behind, admins, service, path):
    front = start("--service", service)
    assert front.operate("PUT", path)[2] in (b"admin-a", b"admin-b")
    for other in (path + "/more", path.rpartition("/")[0] + "/", "/inventory/phone", "/config", "/healthz"):
        assert front.operate("PUT", other)[0] == 404
    assert sum(sum(server.seen.values()) for server in admins) == 1
    assert front.ask("GET", "/healthz")[2] == b"ok\n" and front.ask("GET", path)[2] in (b"a", b"b")
    told = [json.loads(front.ask("GET", "/problem", port=port)[2])["detail"] for port in (front.port, front.operators_port)]
    assert all(path.split("/")[1] in one and "inventory" not in one for one in told)
    assert "PUT" not in told[0] and "PUT" in told[1]


def test_a_read_of_another_service_is_never_sent_again(start, behind):
    """An instance would accept it twice."""
    front = start("--service", "menu")
    for method in ("GET", "POST"):
        assert front.ask(method, "/hang-up")[0] == 502
        assert sum(server.seen[method, "/hang-up"] for server in behind) == 1


def test_an_instance_that_cannot_be_reached_is_passed_over(front, behind, ports):
    behind[0].close()
    answers = [front.ask("POST", "/x") for _ in range(10)]
    assert {(status, body) for status, _, body in answers} == {(200, b"b")}
    lines = front.lines(10)
    both = f"127.0.0.1:{ports[1]}, 127.0.0.1:{ports[2]}"
    twice = [line for line in lines if line["upstream"] == both]
    assert len(twice) == 5  # in a proof it is asked again and again
    for line in twice:  # the judge tells by the bytes that it was sent once
        assert line["upstream_status"] == "502, 200"
        assert re.fullmatch(r"0, [1-9]\d*", line["upstream_bytes_sent"]), line


def test_the_failover_profile_leaves_it_out(start, behind, ports):
    front = start("--profile", "failover",
                  change=lambda conf: conf.replace("fail_timeout=2s", "fail_timeout=600s"))
    behind[0].close()
    for _ in range(20):
        assert front.ask("POST", "/x")[0] == 200
    tried = [line["upstream"] for line in front.lines(20)]
    assert sum("," in upstream for upstream in tried) == 3


def test_1500_at_once(front, behind):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 16384), hard))
    request = b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n"
    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        clients = list(pool.map(
            lambda _: socket.create_connection(("127.0.0.1", front.port), timeout=120), range(1500)))
        try:
            list(pool.map(lambda client: client.sendall(request), clients))
            heads = list(pool.map(lambda client: client.recv(12), clients))
        finally:
            for client in clients:
                client.close()
    assert collections.Counter(heads) == {b"HTTP/1.1 200": 1500}


def test_starts_without_root_and_ends(clone, as_nobody, ports, behind):
    """Nothing outside its folder is needed."""
    home = clone / "open" / "front"
    script = f"""
        source {clone}/scripts/lib/common.sh; source {clone}/scripts/lib/nginx.sh
        nginx_render --out {home}/nginx.conf --listen 127.0.0.1:{ports[0]} --log {home}/log \\
            --operators 127.0.0.1:{ports[3]} --upstream a=127.0.0.1:{ports[1]} --admin a=127.0.0.1:1
        at_exit nginx_stop {home}/nginx.conf
        nginx_start {home}/nginx.conf
        curl --silent --show-error http://127.0.0.1:{ports[0]}/x
        stat --format ' %u' "/proc/$(<{home}/nginx.pid)"
    """
    done = run(*as_nobody, "bash", "-c", script)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["a", "65534" if as_nobody else str(os.geteuid())]
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", ports[0])) != 0


def test_a_busy_port_is_told(start, behind, ports, tmp_path):
    start()
    second = tmp_path / "second" / "nginx.conf"
    assert call("nginx_render", "--out", second, "--listen", f"127.0.0.1:{ports[0]}", "--log",
                tmp_path / "log", "--operators", f"127.0.0.1:{ports[4]}", "--upstream", "a=127.0.0.1:1",
                "--admin", "a=127.0.0.1:1").returncode == 0
    done = call("nginx_start", second)
    assert done.returncode == 2
    assert "nginx does not start" in done.stderr
    assert f"127.0.0.1:{ports[0]} failed (98: Address already in use)" in done.stderr


def test_a_variable_of_that_name_does_not_keep_it_in_the_foreground(start, monkeypatch):
    monkeypatch.setenv("NGINX", "/usr/sbin/nginx")  # nginx would take it for sockets that it inherits
    start()


def test_nginxs_own_words_about_its_configuration(tmp_path):
    conf = tmp_path / "nginx.conf"
    conf.write_text("events { worker_conections 5; }")
    done = call("nginx_start", conf)
    assert done.returncode == 2
    assert f"nginx refuses {conf}" in done.stderr
    assert 'unknown directive "worker_conections"' in done.stderr


@pytest.mark.parametrize("words,sentence", [
    (["--upstream", "8000", "--admin", "a=x:2"], '--upstream is "8000": it must be NAME=HOST:PORT'),
    (["--upstream", "a=x:1", "--admin", "a=x:2", "--profile", "prof"],
     '--profile is "prof": it must be one of: proof failover'),
    (["--upstream", "a=x:1", "--admin", "8001"], '--admin is "8001": it must be NAME=HOST:PORT'),
    (["--upstream", "a=x:1"], "at least one --upstream and one --admin"),
    (["--upstream", "a=x:1", "--admin", "a=x:2", "--service", "shoe"], 'there is no service "shoe"; there are menu, account, tasks'),
    ([], "nginx_render needs --out, --listen, --operators, --log and at least one --upstream"),
    (["--upstream", "a=x:1", "--admin", "a=x:2", "--log", "/a b"], "paths for nginx must be free of spaces"),
])
def test_what_it_refuses(tmp_path, words, sentence):
    done = call("nginx_render", "--out", tmp_path / "c", "--listen", "127.0.0.1:1",
                "--operators", "127.0.0.1:2", "--log", "/l", *words)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert not (tmp_path / "c").exists()


def test_stop_touches_only_its_own(tmp_path):
    """A pid file that a crash left behind may name another's process by now."""
    conf = tmp_path / "nginx.conf"
    conf.write_text("")
    other = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    try:
        (tmp_path / "nginx.pid").write_text(f"{other.pid}\n")
        assert call("nginx_stop", conf).returncode == 0
        assert other.poll() is None
    finally:
        other.send_signal(signal.SIGKILL)
        other.wait()
    assert call("nginx_stop", conf).returncode == 0
    (tmp_path / "nginx.pid").unlink()
    assert call("nginx_stop", conf).returncode == 0
