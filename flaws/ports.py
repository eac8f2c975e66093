# SPDX-License-Identifier: Apache-2.0
"""Free ports for servers of one's own."""
import contextlib
import random
import socket


def free_ports(count):
    """So many in a row, below those that the kernel gives to connections, so that they are still free when a server
    comes back to them."""
    while True:
        first = random.randrange(22000, 32000)
        ports = list(range(first, first + count))
        with contextlib.ExitStack() as probes:
            try:
                for port in ports:
                    probes.enter_context(socket.socket()).bind(("127.0.0.1", port))
                return ports
            except OSError:
                pass


def free_port():
    return free_ports(1)[0]
