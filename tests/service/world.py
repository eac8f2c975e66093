# SPDX-License-Identifier: Apache-2.0
"""What the tests of the service are made of: a real redis-server, real inventoryd processes, a client
that says what came back, a proxy that loses replies. Everything is private to a test and is ended by
its process id."""
import contextlib
import functools
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

import waiting
from redis_server import Redis
from started import Started

PATIENCE_S = 30  # how long something may take that must come about; never how long it should take
wait_until = functools.partial(waiting.wait_until, patience_s=PATIENCE_S)
ESTABLISHED, CLOSE_WAIT = "01", "08"  # of /proc/net/tcp
SANITIZERS = re.compile(rb"(ERROR|WARNING): (Address|Leak|Thread|UndefinedBehavior)Sanitizer|runtime error:")


def hold_lock(redis, item="phone", rung="watchdog"):
    """Somebody else holds the lock, until release_lock()."""
    if rung in ("reentrant", "watchdog"):
        redis("HSET", "lock:{%s}" % item, "the test", 1)
    else:
        redis("SET", "lock:{%s}" % item, "the test")


def release_lock(redis, item="phone"):
    redis("DEL", "lock:{%s}" % item)


def inventoryd_redis_up(shop):
    """What the gauges say of the lock's server and of the stock's."""
    return [shop.metric('inventoryd_redis_up{role="%s"}' % role) for role in ("lock", "stock")]


class Reply:
    def __init__(self, status, headers, body):
        self.status = status
        self.headers = {name.lower(): value for name, value in headers}
        self.body = body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def problem(self):
        """The problem's type, once it is seen to be a well-formed problem."""
        assert self.headers["content-type"] == "application/problem+json", self
        problem = self.json
        assert problem["status"] == self.status, self
        assert problem["title"] and "detail" in problem, self
        prefix = "urn:lockladder:problem:"
        assert problem["type"].startswith(prefix), self
        name = problem["type"][len(prefix):]
        is_final = "this is its outcome" in problem["detail"]  # of a sale in a queue
        assert ("retry-after" in self.headers) == (
            (self.status == 503 and not is_final) or name in ("request-in-flight", "lock-invalid", "too-many-requests", "no-task")), self
        return name

    def __repr__(self):
        return f"{self.status} {self.headers} {self.body!r}"


def server_sockets(port):
    """The open sockets of a server's clients, on its side: (state, bytes not read yet)."""
    with open("/proc/net/tcp", encoding="ascii") as table:
        rows = [line.split() for line in table.readlines()[1:]]
    return [(row[3], int(row[4].split(":")[1], 16)) for row in rows
            if int(row[1].split(":")[1], 16) == port and row[3] in (ESTABLISHED, CLOSE_WAIT)]


class Inventoryd(Started):
    """An instance that runs. Its log is in a file; at its end the log must be free of complaints."""

    def __init__(self, folder, redis, *flags, name="a", environment=None, ready=True, log_path=None, stderr=None):
        os.makedirs(folder, exist_ok=True)
        output = os.path.join(folder, f"{name}-{time.monotonic_ns()}.log")
        command = [os.environ["INVENTORYD"], "--listen", "127.0.0.1:0", "--admin-listen",
                   "127.0.0.1:0", "--instance", name]
        if redis is not None:
            command += ["--redis", redis if isinstance(redis, str) else redis.url]
        with open(output, "wb") as log:
            process = subprocess.Popen(command + [str(flag) for flag in flags],
                                       stderr=log if stderr is None else stderr, stdout=log, env={**os.environ, **(environment or {})})
        super().__init__(name, process, log_path or output)  # another one, where a flag says so, or who reads `stderr`
        if ready:
            self.wait_started(PATIENCE_S)

    # ---- asking ----

    def ask(self, method, path, body=None, headers=None, port=None):
        return Reply(*self.exchange(method, path, port or self.port, body, headers, PATIENCE_S))

    def admin(self, method, path, body=None, headers=None):
        return self.ask(method, path, body, headers, self.admin_port)

    def sell(self, item="phone", quantity=None, request=None, key=None):
        query = "" if quantity is None else f"?quantity={quantity}"
        headers = {"X-Request-Id": request} if request else {}
        if key is not None:
            headers["Idempotency-Key"] = key
        return self.ask("POST", f"/inventory/{item}/sale{query}", headers=headers)

    def stock(self, item="phone", value=None):
        if value is None:
            return self.ask("GET", f"/inventory/{item}")
        return self.admin("PUT", f"/inventory/{item}", json.dumps({"stock": value}),
                          {"Content-Type": "application/json"})

    def restock(self, add, item="phone"):
        return self.admin("POST", f"/inventory/{item}/restock", json.dumps({"add": add}),
                          {"Content-Type": "application/json"})

    def switch(self, **wanted):
        return self.admin("PUT", "/lock", json.dumps(wanted), {"Content-Type": "application/json"})

    def threads(self):
        return len(os.listdir(f"/proc/{self.process.pid}/task"))

    def metric(self, name):
        """The value of one line of /metrics: name{labels} as it stands there."""
        for line in self.admin("GET", "/metrics").body.decode().splitlines():
            if line.startswith(name + " "):
                return float(line.rsplit(" ", 1)[1])
        return None

    def in_background(self, function, *args, **named):
        """Runs it in a thread; .result() waits for what it returned."""
        return Background(function, *args, **named)

    def connection(self, port=None):
        return socket.create_connection(("127.0.0.1", port or self.port), PATIENCE_S)

    def raw(self, data, count=1, port=None):
        """Sends bytes as they are; the first answers, fewer when the server closes before."""
        with self.connection(port) as sock:
            sock.sendall(data)
            return read_answers(sock, count)

    def unread(self):
        return sum(size for _, size in server_sockets(self.port))

    def clients(self):
        return len(server_sockets(self.port))

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    # ---- ending ----

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def wait(self):
        code = self.process.wait(PATIENCE_S)
        assert not SANITIZERS.search(self.log), self.log.decode(errors="replace")
        return code

    def end(self):
        if self.process.poll() is None:
            self.signal()
            assert self.wait() == 0, self.log.decode(errors="replace")
        assert not SANITIZERS.search(self.log), self.log.decode(errors="replace")

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE_S)


@contextlib.contextmanager
def running(folder, *flags):
    """An instance with a Redis of its own, as long as the block lasts."""
    redis = Redis(folder / "redis")
    try:
        instance = Inventoryd(str(folder), redis, *flags)
        instance.redis = redis
        try:
            yield instance
            instance.end()
        finally:
            instance.kill()
    finally:
        redis.kill()


class Background(threading.Thread):
    def __init__(self, function, *args, **named):
        super().__init__(daemon=True)
        self.call = lambda: function(*args, **named)
        self.value = self.error = None
        self.start()

    def run(self):
        try:
            self.value = self.call()
        except BaseException as error:  # handed to whoever asks for the result
            self.error = error

    def result(self):
        self.join(PATIENCE_S)
        assert not self.is_alive(), "it did not end"
        if self.error:
            raise self.error
        return self.value


def read_answers(sock, count=1):
    """The next answers, as (status, headers, body); fewer when the server closes before."""
    sock.settimeout(PATIENCE_S)
    answers, data = [], b""
    while len(answers) < count:
        head, end, rest = data.partition(b"\r\n\r\n")
        size = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        size = int(size.group(1)) if size else 0
        if end and len(rest) >= size:
            lines = head.decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
            answers.append((int(lines[0].split()[1]), headers, rest[:size]))
            data = rest[size:]
            continue
        try:
            piece = sock.recv(65536)
        except ConnectionResetError:
            return answers
        if not piece:
            return answers
        data += piece
    return answers


def is_closed(sock):
    """Whether the server ends the connection; what it still sends is thrown away."""
    sock.settimeout(PATIENCE_S)
    try:
        while sock.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return True


def read_history(path):
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def check_history(events):
    """What holds for every history: numbers without gaps, stamps in order, the first and last line."""
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    stamps = [event["t_ns"] for event in events]
    assert stamps == sorted(stamps)
    assert events[0]["event"] == "begin"
    assert len({event["instance"] for event in events}) == 1


class LossyProxy:
    """Stands between inventoryd and Redis. `lose` is a word: the reply to the next command that holds
    it is thrown away and the connection cut, after Redis has carried the command out. `instead`: bytes that are sent
    in its place, and nothing is cut. `refuse`: so many connections to come are closed at once. `byte_s`: replies come
    byte by byte. `hold`: commands that hold this word wait until it is None again; `held`: how many wait. `silent(number)`: whether nothing crosses the connection of that number, from 1 on, any more, as
    behind a network that forgot it."""

    def __init__(self, redis):
        self.redis = redis
        self.lose = self.instead = self.hold = None
        self.held = self.lost = self.refuse = self.connections = self.byte_s = 0
        self.silent = lambda number: False
        self.unanswered = 0  # commands that were swallowed
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}/0"

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            if self.refuse:
                self.refuse -= 1
                client.close()
                continue
            threading.Thread(target=self._serve, args=(client, self.connections), daemon=True).start()

    def _serve(self, client, number):
        try:
            with client, socket.create_connection(("127.0.0.1", self.redis.port)) as server:
                while command := client.recv(65536):
                    if self.silent(number):
                        self.unanswered += 1
                        continue
                    self._wait(command)
                    reply = self._carry(command, server)
                    if reply is None:
                        return
                    self._send(client, reply)
        except OSError:
            pass

    def _wait(self, command):
        self.held += (waits := self.hold is not None and self.hold in command)
        while self.hold is not None and self.hold in command:
            time.sleep(0.005)
        self.held -= waits

    def _send(self, client, reply):
        for size in [1] * len(reply) if self.byte_s else [len(reply)]:
            time.sleep(self.byte_s)
            client.sendall(reply[:size])
            reply = reply[size:]

    def _carry(self, command, server):
        """Redis' reply, or what is sent in its place; None: the connection is to be cut."""
        server.sendall(command)
        reply = server.recv(65536)
        if self.lose is None or self.lose not in command:
            return reply or None
        self.lose = None
        self.lost += 1
        return self.instead

    def end(self):
        self.listener.close()
