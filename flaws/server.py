# SPDX-License-Identifier: Apache-2.0
"""What whoever starts a server of his own needs: a port for it, and a connection to a Redis."""
import random
import socket


def free_port():
    """One below those that the kernel gives to connections, so that it is still free when a server comes back
    to it."""
    while True:
        port = random.randrange(22000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass


class Connection:
    """One connection to Redis. No reply may take longer than patience_s."""

    def __init__(self, port, patience_s):
        self.socket = socket.create_connection(("127.0.0.1", port), patience_s)
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
