# SPDX-License-Identifier: Apache-2.0
"""bench quorum: libdlock's redlock and the Go library redsync on the same five Redis servers, in alternating rounds.
bench-quorum and peers/redsync measure one round each; both print the same line."""
import contextlib
import json
import re
import shutil
import socket
import statistics
import subprocess
import sys

from locks import AGAIN, refuse_busy, tell_machine
from rounds import Rounds, cost_bar, ratio_bar, tell_bars
from world import BUILD, ROOT, RedisWorld, wait_until
from ports import free_port
from redis_server import Redis

SERVERS = 5
DELAY_MS = 200
WARM_MS = 3000  # until the late server is connected, which takes several replies
OURS, PEER = "redlock", "redsync"
ILL = f"{OURS}, one server late, one silent"
ROUND_LIMIT_S = 300


def rate_bar(least):
    return ratio_bar(OURS, PEER, least, "pairs/s", "pairs_per_s")


# The waiters of each load, its contestants, and its bars.
LOADS = {"pairs": (1, [OURS, PEER], [rate_bar(0.9)]),
         "crowd": (100, [OURS, PEER], [rate_bar(1)]),
         "ill": (1, [OURS, ILL], [cost_bar(ILL, OURS, 1.5, "us_per_pair")])}


class Hole:
    """An address that drops the first packet of each new connection."""

    def __init__(self):
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(0)
        self.port = self.listener.getsockname()[1]
        self.fillers = [socket.socket() for _ in range(8)]
        for filler in self.fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", self.port))

    def close(self):
        for one in [self.listener, *self.fillers]:
            one.close()


class QuorumWorld(RedisWorld):
    """Independent Redis servers; a relay before the last but one delays each reply, and an address is silent."""

    def start_all(self):
        self.servers = [Redis(self.folder / f"redis-{number}", spawn=self.start) for number in range(SERVERS)]
        self.late_port = free_port()
        self.start([sys.executable, str(ROOT / "bench" / "relay.py"), str(self.late_port),
                    str(self.servers[-2].port), str(DELAY_MS)])
        self.wait(self.relay_listens, "the relay")
        self.hole = self.stack.enter_context(contextlib.closing(Hole()))

    def relay_listens(self):
        with socket.create_connection(("127.0.0.1", self.late_port)):
            return True

    def ports(self, contestant):
        ports = [server.port for server in self.servers]
        return [*ports[:-2], self.late_port, self.hole.port] if contestant == ILL else ports

    def commands_of_the_late(self):
        return int(re.search(r"total_commands_processed:(\d+)", self.servers[-2]("INFO", "stats"))[1])

    def is_empty(self):
        """A late request may still arrive: the peer's, of an attempt that was refused."""
        return all(server("EXISTS", "lock:{phone}") == 0 for server in self.servers)


def build_peer():
    """Builds redsync with Go's module proxy; go keeps what it has built. Returns the program."""
    go = shutil.which("go")
    if go is None:
        raise SystemExit("bench: redsync is written in Go, and there is no `go` on PATH: install the Go that "
                         "bench/peers/redsync/go.mod names, or a later one")
    program = BUILD.resolve() / "bench" / "redsync"
    done = subprocess.run([go, "build", "-o", str(program), "."], cwd=ROOT / "bench" / "peers" / "redsync",
                          capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        raise SystemExit(f"bench: redsync cannot be built:\n{done.stderr}")
    return program


def play(world, programs, contestant, waiters, pairs):
    """Runs one round. Returns its line."""
    program = programs[PEER if contestant.startswith(PEER) else OURS]
    warm = ["-warm-ms", str(WARM_MS)] if contestant == ILL else []
    command = [str(program), "-waiters", str(waiters), "-pairs", str(pairs), *warm,
               *(f"127.0.0.1:{port}" for port in world.ports(contestant.removesuffix(AGAIN)))]
    if not program.exists():
        raise SystemExit(f"bench: {program} is missing: build with -D LADDER_BUILD_BENCH=ON")
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        process.stdout.readline()  # "ready"; it ends if it cannot be
        before = world.commands_of_the_late()
        out, errors = process.communicate("go\n", ROUND_LIMIT_S)
    finally:
        process.kill()
        process.wait()
    if process.returncode != 0:
        raise SystemExit(f"bench: {' '.join(command)}: exit code {process.returncode}\n{errors}")
    row = json.loads(out)
    reasons = []
    if row["failed"] or row["pairs"] != pairs:
        reasons.append(f"{row['pairs']} of {pairs} pairs succeeded")
    if row["inside_max"] != 1:
        reasons.append(f"{row['inside_max']} holders at once")
    wait_until(world.is_empty, "the lock's key is gone", ROUND_LIMIT_S)
    row["late_commands"] = world.commands_of_the_late() - before
    if contestant == ILL and row["late_commands"] < 2 * pairs:
        reasons.append(f"the late server was asked only {row['late_commands']} times: it was not connected all the time")
    row |= {"pairs_per_s": row["pairs"] / row["seconds"], "us_per_pair": row["seconds"] * 1e6 / max(1, row["pairs"]),
            "verdict": "INVALID" if reasons else "ok", "reasons": "; ".join(reasons)}
    if reasons:
        print(f"INVALID: {contestant}, {waiters} waiters: {row['reasons']}\n{errors}", flush=True)
    return row


def run_rounds(world, programs, name, arguments):
    """One round of each contestant, again and again; the first pass is the warm-up."""
    waiters, contestants, _ = LOADS[name]
    waiters = arguments.waiters if name == "crowd" and arguments.waiters else waiters
    rows = []
    for number in range(-1, arguments.rounds):
        for contestant in [*contestants, contestants[0] + AGAIN]:
            row = play(world, programs, contestant, waiters, arguments.pairs)
            if number >= 0 or row["verdict"] != "ok":
                rows.append({"load": name, "round": number if number >= 0 else "warm-up", "who": contestant,
                             "processes": 1, "waiters": waiters, **row})
    return rows


def tell(name, rows, seed):
    """Prints the table, the ratios and the bars. True if every round was valid and no bar was missed."""
    rounds = Rounds([row for row in rows if row["round"] != "warm-up"], seed)
    print(f"\n{name}: {'pairs/s, median [min-max]':>50}{'us a pair':>12}")
    contestants = list(dict.fromkeys(row["who"] for row in rounds.rows))
    for who in contestants:
        rates = rounds.of(who, "pairs_per_s")
        spread = f"{statistics.median(rates):.0f} [{min(rates):.0f}-{max(rates):.0f}]"
        print(f"  {who:36}{spread:>24}{rounds.median(who, 'us_per_pair'):12.0f}")
    for other in contestants[1:]:
        ratio = rounds.ratio(contestants[0], other, "pairs_per_s")
        if ratio:
            print(f"  pairs/s, {contestants[0]} / {other}: {ratio[0]:.2f} [{ratio[1]:.2f}-{ratio[2]:.2f}]")
    return tell_bars(LOADS[name][2], rounds, rows)


def quorum(parser, arguments, keep):
    """Compares libdlock's redlock with redsync on five Redis servers, and with itself on two that are ill."""
    refuse_busy(parser, arguments)
    loads = arguments.shape or LOADS
    programs = {OURS: BUILD / "bench" / "bench-quorum"}
    if any(PEER in LOADS[name][1] for name in loads):
        programs[PEER] = build_peer()
    well = True
    with QuorumWorld() as world:
        for name in loads:
            rows = run_rounds(world, programs, name, arguments)
            well &= tell(name, rows, arguments.seed)
            keep(f"quorum-{name}", rows, arguments.results)
    tell_machine(arguments)
    return 0 if well else 1
