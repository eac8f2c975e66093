# SPDX-License-Identifier: Apache-2.0
"""usage: relay.py LISTEN-PORT PORT DELAY-MS

Passes connections on to PORT of this machine. Each reply comes DELAY-MS later; none waits for the one before it."""
import asyncio
import sys

GATHER_S = 0.002  # what comes within this time is passed on together, which spares the measured program's processor


async def pass_on(reader, writer, delay_s=0.0):
    loop, waiting = asyncio.get_running_loop(), asyncio.Queue()

    async def deliver():
        while (item := await waiting.get()) is not None:
            due, data = item
            await asyncio.sleep(max(0, due - loop.time()))
            writer.write(data)
            await writer.drain()
        writer.close()

    task = asyncio.create_task(deliver())
    try:
        while data := await reader.read(1 << 20):
            waiting.put_nowait((loop.time() + delay_s, data))
            await asyncio.sleep(GATHER_S)
    except ConnectionError:
        pass
    waiting.put_nowait(None)
    await asyncio.gather(task, return_exceptions=True)  # the other side may be gone


async def main(listen_port, port, delay_ms):
    async def connected(reader, writer):
        up, down = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        await asyncio.gather(pass_on(reader, down), pass_on(up, writer, delay_ms / 1000))

    async with await asyncio.start_server(connected, "127.0.0.1", listen_port, limit=1 << 20) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:])))
