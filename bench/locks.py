# SPDX-License-Identifier: Apache-2.0
"""bench locks: compares libdlock's rungs with the replayed peers, in alternating rounds. bench-lock measures
one round; this module has the loads, the order of the rounds, the ratios and the bars."""
import json
import math
import os
import statistics
import subprocess

from rounds import (Rounds, cost_bar, faster_bar, median_bar, most_bar, processes_of, ratio_bar,
                    same_bar, tell_bars)
from world import BUILD, ROOT, RedisWorld, machine, redis_version

# bench-lock has one Redis, so the rungs that a majority of several grants, and those of other servers are left out.
RUNGS = [rung["name"] for rung in json.loads((ROOT / "docs" / "reference" / "rungs.json").read_text())["rungs"]
         if not rung["quorum"] and rung["engine"] in ("none", "redis")]
PEERS = ("redisson", "python_redis_lock")
ROUND_LIMIT_S = 300  # longer than bench-lock's own limits
CLIENTS = (2, 4, 8, 16, 32, 64)
AGAIN = " again"  # the same contestant a second time: its difference is the noise


def command_of(contestant):
    """The command line of a contestant: redisson, python_redis_lock; RUNG: a thread for each waiter; RUNG-async;
    :N sets its handoff_max; floor:RUNG: empty scripts with that rung's arguments."""
    name, _, number = contestant.removesuffix(AGAIN).partition(":")
    if name in PEERS:
        return [name]
    if name == "floor":
        return ["floor", "--rung", number]
    kind = "dlock_async" if name.endswith("-async") else "dlock"
    more = ["--handoff-max", number] if number else []
    return [kind, "--rung", name.removesuffix("-async"), *more]


def rung_of(contestant):
    words = command_of(contestant)
    return words[words.index("--rung") + 1] if "--rung" in words else None


class Load:
    """A shape and its sizes, its default contestants, and the bars that they must reach."""

    def __init__(self, shape, contestants, bars, sizes=((2, 50),), once=False):
        self.shape = shape
        self.contestants = contestants
        self.bars = bars
        self.sizes = sizes  # (processes, waiters)
        self.once = once  # the stock is one unit for each waiter


LOADS = {
    "burst": Load(
        "burst", ["fair-async", "redisson", "python_redis_lock", "notify-async", "fair", "notify"],
        [ratio_bar("fair-async", "redisson", 3), ratio_bar("fair-async", "python_redis_lock", 1.5),
         faster_bar("notify-async", "redisson"), faster_bar("notify", "redisson")],
        sizes=((2, 750),), once=True),
    "loop": Load(
        "loop", ["fair-async", "fair-async:1", "notify-async", "redisson", "python_redis_lock"],
        [median_bar("fair-async", "jain_processes", 0.99, "least"),
         median_bar("fair-async", "jain_waiters", 0.98, "least"),
         median_bar("fair-async", "commands_per_sale", 5, "most"),
         ratio_bar("fair-async:1", "fair-async", 0.5)]),
    "clients": Load(
        "loop", ["fair-async"],
        [most_bar("fair-async", "commands_per_sale", 5),
         same_bar("fair-async", "commands_per_sale", 1.2)],
        sizes=tuple((n, 50) for n in CLIENTS)),
    "pairs": Load(
        "pairs", ["notify", "floor:notify", "fair", "floor:fair", "redisson", "python_redis_lock"],
        [cost_bar("notify", "floor:notify", 1.5), cost_bar("fair", "floor:fair", 1.5),
         median_bar("notify", "round_trips_per_sale", 2.01, "most"),
         median_bar("fair", "round_trips_per_sale", 2.01, "most")],
        sizes=((1, 1),)),
}


def play(port, load, contestant, size, arguments):
    """Runs one round of bench-lock. Returns its line."""
    processes, waiters = size
    command = [str(BUILD / "bench" / "bench-lock"), *command_of(contestant),
               "--redis", f"redis://127.0.0.1:{port}", "--shape", load.shape,
               "--processes", str(processes), "--waiters", str(waiters),
               "--loop-ms", str(math.ceil(arguments.seconds * 1000)),
               "--pairs", str(arguments.pairs)]
    if load.once:
        command += ["--stock", str(processes * waiters)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ROUND_LIMIT_S)
    except FileNotFoundError:
        raise SystemExit(f"bench: {command[0]} is missing: build with -D LADDER_BUILD_BENCH=ON")
    if done.returncode not in (0, 1) or not done.stdout:
        raise SystemExit(f"bench: {' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    row = json.loads(done.stdout)
    row["reasons"] = "; ".join(row["reasons"])
    if row["verdict"] != "ok":
        print(f"INVALID: {contestant}, {processes} x {waiters}: {row['reasons']}\n{done.stderr}",
              flush=True)
    return row


def run_rounds(world, name, load, contestants, arguments):
    """Runs one round of each contestant, again and again; the first pass is the warm-up."""
    rows = []
    sizes = load.sizes
    if name != "pairs" and (arguments.processes or arguments.waiters):
        sizes = tuple((arguments.processes or p, arguments.waiters or w) for p, w in sizes)
        sizes = tuple(dict.fromkeys(sizes))
    for number in range(-1, arguments.rounds):
        for size in sizes:
            for contestant in contestants:
                row = play(world.redis.port, load, contestant, size, arguments)
                if number >= 0:
                    rows.append({"load": name, "round": number, "who": contestant, **row})
                elif row["verdict"] != "ok":
                    rows.append({"load": name, "round": "warm-up", "who": contestant, **row})
    return rows


HEAD = (f"{'':24}{'clients':>8} {'sales/s':>24}{'p50 ms':>9}{'p99 ms':>9}{'max ms':>9}"
        f"{'commands':>10}{'Redis us':>9}{'own us':>8}{'conns':>7}{'threads':>8}{'Jain':>14}")


def print_row(rounds, who, processes):
    def median(figure):
        return rounds.median(who, figure, processes)
    sales = rounds.of(who, "sales_per_s", processes)
    spread = f"{statistics.median(sales):.0f} [{min(sales):.0f}-{max(sales):.0f}]"
    print(f"{who:24}{processes:8} {spread:>24}{median('wait_p50_ms'):9.2f}"
          f"{median('wait_p99_ms'):9.1f}{median('wait_max_ms'):9.1f}"
          f"{median('commands_per_sale'):10.1f}{median('redis_cpu_us_per_sale'):9.0f}"
          f"{median('client_cpu_us_per_sale'):8.0f}{median('connections'):7.0f}"
          f"{median('threads'):8.0f}{median('jain_processes'):8.3f}{median('jain_waiters'):6.3f}",
          flush=True)


def tell(name, load, rows, contestants, seed):
    """Prints the table, the ratios and the bars. True if every round was valid and no bar was missed."""
    rounds = Rounds([row for row in rows if row["round"] != "warm-up"], seed)
    print(f"\n{name}: medians of the rounds; per sale: commands that Redis ran, its CPU, the "
          f"clients' CPU; Jain's index over clients and waiters\n{HEAD}")
    for who in contestants:
        for processes in processes_of(rounds, who):
            print_row(rounds, who, processes)
    first, figure = contestants[0], "us_per_sale" if name == "pairs" else "sales_per_s"
    for other in contestants[1:] if name != "clients" else []:
        ratio = rounds.ratio(first, other, figure)
        if ratio:
            print(f"  {figure}, {first} / {other}: {ratio[0]:.2f} [{ratio[1]:.2f}-{ratio[2]:.2f}]")
    return tell_bars(load.bars, rounds, rows)


def refuse(parser, arguments):
    """Rejects what cannot be measured, before the first round."""
    kinds = (f"one of {', '.join(PEERS)}, RUNG, RUNG-async, RUNG-async:HANDOFF_MAX or floor:RUNG, "
             f"with RUNG one of {', '.join(RUNGS)}")
    for contestant in arguments.contestant or []:
        if rung_of(contestant) not in (None, *RUNGS):
            parser.error(f"--contestant {contestant}: must be {kinds}")
    for name in arguments.shape or LOADS:
        missing = {rung_of(c) for c in LOADS[name].contestants} - {None, *RUNGS}
        if missing and not arguments.contestant:
            parser.error(f"--shape {name} needs the rungs {', '.join(sorted(missing))}, which the "
                         f"ladder does not have: name others with --contestant, {kinds}")
    refuse_busy(parser, arguments)


def refuse_busy(parser, arguments):
    load = os.getloadavg()[0]
    if load > arguments.load_max and not arguments.anyway:
        parser.error(f"the load average is {load:.2f}, above {arguments.load_max:g}: other programs "
                     "on this machine would disturb the figures; wait, or pass --anyway")


def tell_machine(arguments, version):
    print(f"\n{machine(version)}; {arguments.rounds} rounds, intervals of 95 %, seed "
          f"{arguments.seed}, load average now {os.getloadavg()[0]:.2f}")


def locks(parser, arguments, keep):
    """Compares libdlock's rungs with the command sequences of Redisson and python-redis-lock."""
    refuse(parser, arguments)
    well = True
    with RedisWorld() as world:
        for name in arguments.shape or LOADS:
            load = LOADS[name]
            contestants = list(arguments.contestant or load.contestants)
            if name != "clients":
                contestants.append(contestants[0] + AGAIN)
            rows = run_rounds(world, name, load, contestants, arguments)
            well &= tell(name, load, rows, contestants, arguments.seed)
            keep(f"locks-{name}", rows, arguments.results)
    tell_machine(arguments, redis_version())
    return 0 if well else 1
