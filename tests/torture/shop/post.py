# SPDX-License-Identifier: Apache-2.0
"""A proxy between the shop and a Redis. It can lose or delay the n-th request, or make its connection cut, mute or
slow."""
import socket
import threading
import time

# The faults of the n-th request, or of its connection.
FAULTS = {
    "reply-lost": "Redis carries it out; the connection is cut instead of a reply",
    "late": "the shop's end is cut; Redis gets the request some requests later",
    "never": "the connection is cut, and Redis never gets the request",
    "mute": "Redis carries it out; this connection brings no more replies",
    "black-hole": "the connection passes no more bytes, in either direction",
    "slow": "the request is delayed",
}
LATE_BY = 12  # requests
SLOW_S = 0.4  # longer than --redis-timeout-ms in some bursts
CONNECT_S = 5


class Post:
    def __init__(self, port):
        self.to = port
        self.plan = {}  # the number of a request -> fault
        self.done = []
        self.requests = 0
        self.late = []  # (due, bytes, the connection to Redis)
        self.open = set()
        self.mutex = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}"

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        try:
            server = socket.create_connection(("127.0.0.1", self.to), CONNECT_S)
            server.settimeout(None)
        except OSError:
            client.close()
            return
        with self.mutex:
            self.open |= {client, server}
        state = {"mute": False, "kept": False, "replied": threading.Event()}
        threading.Thread(target=self.carry_replies, args=(client, server, state), daemon=True).start()
        try:
            while request := client.recv(65536):
                if not self.carry(request, client, server, state):
                    break
        except OSError:
            pass
        finally:
            cut(client)
            if not state["kept"]:
                cut(server)

    def carry(self, request, client, server, state):
        """Handles one request. False: the shop's end of the connection must be closed."""
        with self.mutex:
            self.requests += 1
            fault = self.plan.pop(self.requests, None)
            if fault:
                self.done.append(fault)
        self.deliver(self.requests)
        if fault == "never":
            return False
        if fault == "late":
            state["kept"] = True
            with self.mutex:
                self.late.append((self.requests + LATE_BY, request, server))
            return False
        if fault == "slow":
            time.sleep(SLOW_S)
        if fault in ("mute", "black-hole", "reply-lost"):
            state["mute"] = True
        if fault == "black-hole":
            while client.recv(65536):
                pass
            return False
        server.sendall(request)
        if fault == "reply-lost":
            state["replied"].wait(CONNECT_S)
            return False
        return True

    def carry_replies(self, client, server, state):
        try:
            while reply := server.recv(65536):
                if not state["mute"]:
                    client.sendall(reply)
                else:
                    state["replied"].set()
        except OSError:
            pass
        if not state["mute"]:
            cut(client)

    def deliver(self, due):
        """Sends the late requests that are due at that number."""
        with self.mutex:
            now = [entry for entry in self.late if entry[0] <= due]
            self.late = [entry for entry in self.late if entry[0] > due]
        for _, request, server in now:
            try:
                server.sendall(request)
            except OSError:
                pass  # Redis has closed it

    def cut_all(self):
        with self.mutex:
            connections, self.open = self.open, set()
        for connection in connections:
            cut(connection)

    def end(self):
        self.listener.close()
        self.cut_all()


def cut(sock):
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    sock.close()
