# SPDX-License-Identifier: Apache-2.0
"""What a sale does if another one has its lock: three answers to one burst of buyers, and four kinds of buyers."""
import asyncio
import json
import random
import statistics
import subprocess
import time

from world import World, machine, nginx_version, redis_version

# By name: how the shop answers, and the buyer's pause before it asks again, in seconds.
BUYERS = {
    "wait": ("wait", None),
    "fail and pause": ("fail", 0.05),
    "fail at once": ("fail", 0.0),
    "queue": ("queue", None),
}
PATIENCE_S = 1.0  # a buyer without an answer gives up then
PLOT = """\
set terminal svg size 760,420 font "sans,13" background "white"
set output "{out}"
set datafile separator ","
set key bottom right
set title "{buyers} buyers at once, {stock} units: how long until a buyer has a unit"
set xlabel "ms since the burst began"
set ylabel "buyers with a unit"
set xrange [0:*]
set yrange [0:{stock}]
plot {curves}
"""


class Buyer:
    """One of the burst: its own connection, one purchase."""

    def __init__(self, port, pause_s, chance):
        self.port, self.pause_s, self.chance = port, pause_s, chance
        self.requests = 0
        self.accepted_s = self.ended_s = self.result = None

    async def ask(self, method, path):
        """(code, headers, body) of one request."""
        self.requests += 1
        self.writer.write(f"{method} {path} HTTP/1.1\r\nHost: shop\r\nContent-Length: 0\r\n\r\n".encode())
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
        body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return int(head.split()[1]), headers, body

    async def buy(self, began_s):
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        code, headers, body = await self.ask("POST", "/inventory/phone/sale")
        while code == 503 and self.pause_s is not None and time.monotonic() < began_s + PATIENCE_S:
            await asyncio.sleep(self.chance.random() * self.pause_s)
            code, headers, body = await self.ask("POST", "/inventory/phone/sale")
        while code == 202:
            self.accepted_s = self.accepted_s or time.monotonic() - began_s
            code, _, body = await self.ask("GET", headers["location"] + "?wait=5")
        self.ended_s = time.monotonic() - began_s
        self.result = {200: "sold", 409: "sold out", 503: "gave up"}.get(code, f"{code} {json.loads(body).get('type')}")
        self.writer.close()


async def burst(port, count, pause_s, seed):
    buyers = [Buyer(port, pause_s, random.Random(f"{seed} {number}")) for number in range(count)]
    began_s = time.monotonic()
    await asyncio.gather(*(buyer.buy(began_s) for buyer in buyers))
    return buyers


def measured(name, arguments, seed):
    """One burst, in a shop of its own."""
    on_conflict, pause_s = BUYERS[name]
    options = ["--lock", "fair", "--write", "atomic", "--on-conflict", on_conflict, "--work-ms", str(arguments.work_ms),
               "--queue-life-ms", "60000"]
    if on_conflict == "wait":
        options += ["--wait-ms", str(int(PATIENCE_S * 1000))]
    with World(options) as world:
        world.set_stock(arguments.stock)
        before = world.redis_commands()
        buyers = asyncio.run(burst(world.port, arguments.buyers, pause_s, seed))
        commands = world.redis_commands() - before
    had = sorted(buyer.ended_s * 1000 for buyer in buyers if buyer.result == "sold")
    count = {result: sum(buyer.result == result for buyer in buyers) for result in ("sold", "sold out", "gave up")}
    if sum(count.values()) != len(buyers) or count["sold"] > arguments.stock:
        raise SystemExit(f"bench: {name}: answers that it does not expect: {sorted({buyer.result for buyer in buyers})}")
    accepted = sorted(buyer.accepted_s * 1000 for buyer in buyers if buyer.accepted_s)
    return {"buyers": name, **{key.replace(" ", "_"): value for key, value in count.items()},
            "left": arguments.stock - count["sold"],
            "accepted_p99_ms": round(accepted[len(accepted) * 99 // 100], 1) if accepted else "",
            "p50_ms": round(had[len(had) // 2], 1), "p99_ms": round(had[len(had) * 99 // 100], 1),
            "requests_per_sale": round(sum(buyer.requests for buyer in buyers) / count["sold"], 1),
            "commands_per_sale": round(commands / count["sold"], 1)}, had


def plot(curves, arguments):
    """When the buyers of one burst had their units, as a picture."""
    out = arguments.results / "conflict.svg"
    data = arguments.results / "conflict-burst.csv"
    data.write_text("".join(f"{name},{ms:.1f},{number}\n" for name, had in curves.items()
                            for number, ms in enumerate(had, 1)), encoding="utf-8")
    drawn = ", ".join(f'"< grep \\"^{name},\\" {data}" using 2:3 with lines linewidth 2 title "{name}"' for name in curves)
    subprocess.run(["gnuplot"], input=PLOT.format(out=out, buyers=arguments.buyers, stock=arguments.stock, curves=drawn),
                   text=True, check=True)
    print(f"picture: {out}")


def conflict(arguments, keep):
    """Compares --on-conflict wait, fail and queue under one burst of buyers: how long they wait, how many give up after a
    second, and what a sale costs. Draws a picture."""
    rows, curves = [], {}
    for number in range(arguments.rounds):
        for name in BUYERS:
            row, had = measured(name, arguments, number)
            rows.append({"round": number, **row})
            curves.setdefault(name, had)
    print(f"{'buyers':14} {'sold':>6} {'sold out':>9} {'gave up':>8} {'left':>6} {'p50 ms':>8} {'p99 ms':>8} "
          f"{'requests/sale':>14} {'commands/sale':>14}")
    for name in BUYERS:
        mine = [row for row in rows if row["buyers"] == name]
        sold, out, gone, left, p50, p99, asked, commands = (
            statistics.median(row[field] for row in mine)
            for field in ("sold", "sold_out", "gave_up", "left", "p50_ms", "p99_ms", "requests_per_sale", "commands_per_sale"))
        print(f"{name:14} {sold:6.0f} {out:9.0f} {gone:8.0f} {left:6.0f} {p50:8.0f} {p99:8.0f} {asked:14.1f} {commands:14.1f}")
    queued = [row["accepted_p99_ms"] for row in rows if row["accepted_p99_ms"] != ""]
    print(f"queue: a buyer was accepted within {statistics.median(queued):.0f} ms (p99)")
    print(f"medians of {arguments.rounds} bursts of {arguments.buyers} buyers for {arguments.stock} units, "
          f"{arguments.work_ms} ms of business; {machine(redis_version(), nginx_version())}")
    keep("conflict", rows, arguments.results)
    plot(curves, arguments)
    return 0
