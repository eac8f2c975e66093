# SPDX-License-Identifier: Apache-2.0
"""A proxy between an instance and Redis, which can be cut, and can lose replies or hold them back."""
import contextlib
import socket
import threading

from ports import free_port
from waiting import PATIENCE_S

# What is asked first on a new connection: by the library at once, by the service one after the other. The service makes
# one as it starts, to see whether the server is there: no scenario can tell when.
LOGIN = (b"*2\r\n$6\r\nCLIENT\r\n$2\r\nID\r\n", b"*2\r\n$4\r\nINFO\r\n$6\r\nserver\r\n")


class Proxy:
    """The proxy between an instance and Redis. cut() cuts every connection, down() lets none come again before
    up(); with lose_next the next command reaches Redis, but its reply is lost and the connection cut. hold()
    keeps back what Redis answers, until go_on(). A login is no command: it passes."""

    def __init__(self, redis):
        self.redis, self.port = redis, free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        self.lose_next = False
        self.pairs = []
        self.moving, self.held, self.held_back = threading.Condition(), False, 0
        self.up()

    def up(self):
        self.listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self.run, args=(self.listener,), daemon=True).start()

    def down(self):
        self.listener.shutdown(socket.SHUT_RDWR)  # accept() ends, and with it what it would have taken
        self.listener.close()
        self.cut()

    def run(self, listener):
        while True:
            try:
                client, _ = listener.accept()
                server = socket.create_connection(("127.0.0.1", self.redis.port), PATIENCE_S)
            except OSError:
                return
            self.pairs.append((client, server))
            in_login = threading.Event()
            threading.Thread(target=self.ask, args=(client, server, in_login), daemon=True).start()
            threading.Thread(target=self.answer, args=(server, client, in_login), daemon=True).start()

    def ask(self, client, server, in_login):
        try:
            while data := client.recv(65536):
                (in_login.set if data.startswith(LOGIN) else in_login.clear)()
                server.sendall(data)
        except OSError:
            pass
        self.cut_pair(client, server)

    def answer(self, server, client, in_login):
        try:
            while data := server.recv(65536):
                if not in_login.is_set():
                    if self.lose_next:
                        self.lose_next = False
                        break
                    self.wait_free()
                client.sendall(data)
        except OSError:
            pass
        self.cut_pair(server, client)

    def wait_free(self):
        with self.moving:
            self.held_back += self.held
            self.moving.wait_for(lambda: not self.held)

    def hold(self):
        with self.moving:
            self.held, self.held_back = True, 0

    def go_on(self):
        with self.moving:
            self.held = False
            self.moving.notify_all()

    @staticmethod
    def cut_pair(*pair):
        for end in pair:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        for pair in self.pairs:
            self.cut_pair(*pair)

    def end(self):
        self.listener.close()
        self.cut()
        self.go_on()


class ReplicationProxy(Proxy):
    """The proxy before a master. hold() keeps back what the master sends its replicas, and nothing else: what they
    send arrives, so the master still counts them."""

    def ask(self, client, server, passes):
        passes.set()
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                if b"\r\nPSYNC\r\n" in data:
                    passes.clear()
                server.sendall(data)
        self.cut_pair(client, server)
