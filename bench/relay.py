# SPDX-License-Identifier: Apache-2.0
"""usage: relay.py LISTEN-PORT PORT DELAY-MS

Passes connections on to PORT of this machine. Each reply comes DELAY-MS later; none waits for the one before it."""
import asyncio
import contextlib
import socket
import sys

# What comes within this time is passed on together, which spares the measured program's processor. Sockets, because
# asyncio's streams wake up for each packet, also while nobody reads.
GATHER_S = 0.002


async def pass_on(source, target, delay_s=0.0):
    loop, waiting = asyncio.get_running_loop(), asyncio.Queue()

    async def deliver():
        while (item := await waiting.get()) is not None:
            due, data = item
            await asyncio.sleep(max(0, due - loop.time()))
            await loop.sock_sendall(target, data)
        target.shutdown(socket.SHUT_WR)

    task = asyncio.create_task(deliver())
    with contextlib.suppress(ConnectionError):
        while data := await loop.sock_recv(source, 1 << 20):
            waiting.put_nowait((loop.time() + delay_s, data))
            await asyncio.sleep(GATHER_S)
    waiting.put_nowait(None)
    await asyncio.gather(task, return_exceptions=True)  # the other side may be gone


async def connected(client, port, delay_ms):
    with client, socket.socket() as server, contextlib.suppress(ConnectionError):
        for one in client, server:
            one.setblocking(False)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(server, ("127.0.0.1", port))
        await asyncio.gather(pass_on(client, server), pass_on(server, client, delay_ms / 1000))


async def main(listen_port, port, delay_ms):
    connections = set()
    with socket.create_server(("127.0.0.1", listen_port)) as listener:
        listener.setblocking(False)
        while True:
            client, _ = await asyncio.get_running_loop().sock_accept(listener)
            task = asyncio.create_task(connected(client, port, delay_ms))
            connections.add(task)  # else it could be collected
            task.add_done_callback(connections.discard)


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:])))
