# SPDX-License-Identifier: Apache-2.0
"""A redis-server of one's own, and a connection to it."""
import contextlib
import os
import signal
import socket
import subprocess

from ports import free_port
from waiting import Inconclusive, freeze, wait_until

PATIENCE_S = 30  # for a reply, and for a server that starts


class Connection:
    """One connection to Redis."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self.address = "%s:%d" % self.socket.getsockname()
        self.stream = self.socket.makefile("rb")

    def __call__(self, *words):
        """The reply of one command; an error reply comes back as an exception object."""
        data = [str(word).encode() for word in words]
        self.socket.sendall(b"*%d\r\n" % len(data) + b"".join(b"$%d\r\n%s\r\n" % (len(d), d) for d in data))
        return self.reply()

    def reply(self):
        line = self.stream.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("Redis closed the connection")
        kind, rest = line[:1], line[1:-2].decode(errors="replace")
        if kind == b"-":
            return RuntimeError(rest)
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == "-1" else self.stream.read(int(rest) + 2)[:-2].decode(errors="replace")
        if kind == b"*":
            return None if rest == "-1" else [self.reply() for _ in range(int(rest))]
        return rest

    def close(self):
        self.stream.close()
        self.socket.close()


def spawn(command, out=subprocess.DEVNULL):
    """A process in a session of its own: Ctrl-C is for those who started it."""
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)


class Redis:
    """A redis-server in a folder of its own. It keeps its port and its options when it is started again."""

    def __init__(self, folder, *options, spawn=spawn, prefix=()):
        """prefix: the words before the command, as of `env`."""
        self.folder, self.options, self.spawn, self.prefix = folder, options, spawn, prefix
        self.port = None
        self.start()

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}"

    @property
    def unix_socket(self):
        return os.path.join(self.folder, "redis.sock")

    def start(self, *more, ready=True):
        """more: options for this start alone. With ready=False it is not waited for."""
        os.makedirs(self.folder, exist_ok=True)
        for _ in range(5):  # another process may take a free port first
            port = self.port or free_port()
            self.process = self.spawn([*self.prefix, "redis-server", "--port", str(port), "--bind", "127.0.0.1", "--unixsocket", "redis.sock",
                                       "--save", "", "--dir", str(self.folder), *self.options, *more])
            if ready:
                wait_until(lambda: self.answers() or self.process.poll() is not None, "redis-server answers", PATIENCE_S)
            if self.process.poll() is None:
                self.port = port
                return
        raise Inconclusive("redis-server does not start")

    def ping(self):
        """The reply of this server, and of no other that may have taken the port; empty while there is none."""
        try:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(PATIENCE_S)
                probe.connect(f"/proc/{self.process.pid}/cwd/redis.sock")  # a folder's path may be too long for a socket
                probe.sendall(b"PING\r\n")
                return probe.recv(256)
        except OSError:
            return b""

    def answers(self):
        reply = self.ping()
        return reply != b"" and not reply.startswith(b"-LOADING")

    def __call__(self, *words):
        """One command, on a connection of its own; its reply."""
        with contextlib.closing(Connection(self.port)) as connection:
            return connection(*words)

    def is_confirmed(self, replicas=2):
        """Whether so many replicas have all that it was sent up to now. WAIT is about its own connection's writes, so
        there is one."""
        with contextlib.closing(Connection(self.port)) as connection:
            return connection("SET", "replicated", 1, "PX", 1) == "OK" and connection("WAIT", replicas, 1000) >= replicas

    @property
    def lives(self):
        return self.process.poll() is None

    def freeze(self):
        freeze(self.process)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def restart(self, *more, ready=True):
        self.kill()
        self.start(*more, ready=ready)
