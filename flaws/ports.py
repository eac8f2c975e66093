# SPDX-License-Identifier: Apache-2.0
"""Free ports for servers of one's own."""
import collections
import contextlib
import random
import socket

# The names of the last ports, held while this process lives: a server may be away for a while, and another process must
# not draw its port then.
reserved = collections.deque(maxlen=256)


def reserve(port):
    name = socket.socket(socket.AF_UNIX)
    reserved.append(name)
    name.bind(f"\0lockladder-port-{port}")


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
                for port in ports:
                    reserve(port)
                return ports
            except OSError:
                pass


def free_port():
    return free_ports(1)[0]
