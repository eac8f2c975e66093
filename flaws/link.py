# SPDX-License-Identifier: Apache-2.0
"""A link between two servers of an ensemble, which can be cut without a word."""
import contextlib
import socket
import threading


class Link:
    """A port that leads to another one. While the gate of a connection is shut, nothing goes on there, and nothing is
    closed: who connects is accepted, and nobody answers."""

    def __init__(self, port, target, gate_of=None):
        """gate_of: the gate of a connection, by its socket; without it all have one, `open`."""
        self.target, self.open = target, threading.Event()
        self.open.set()
        self.gate_of = gate_of or (lambda near: self.open)
        self.listener = socket.create_server(("127.0.0.1", port))
        self.sockets = [self.listener]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near = self.listener.accept()[0]
            except OSError:
                return
            self.sockets.append(near)
            threading.Thread(target=self.connect, args=(near,), daemon=True).start()

    def connect(self, near):
        try:
            gate = self.gate_of(near)
            gate.wait()
            far = socket.create_connection(("127.0.0.1", self.target))
        except OSError:
            near.close()
            return
        self.sockets.append(far)
        for one, other in ((near, far), (far, near)):
            threading.Thread(target=self.carry, args=(one, other, gate), daemon=True).start()

    @staticmethod
    def carry(one, other, gate):
        with contextlib.suppress(OSError):
            while (read := one.recv(65536)) and gate.wait():
                other.sendall(read)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        for end in self.sockets:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self.open.set()
