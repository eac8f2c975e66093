# SPDX-License-Identifier: Apache-2.0
"""bench quorum: libdlock's redlock and the Go library redsync on the same five Redis servers, in alternating rounds.
bench-quorum and peers/redsync measure one round each; both print the same line. HELP says what is compared."""
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
TOKENS = f"{OURS} with tokens"
ILL = f"{OURS} on ill servers"
NOISE = OURS + AGAIN
ROUND_LIMIT_S = 300
NEEDS_BENCH = "cmake --preset release -D LADDER_BUILD_BENCH=ON && cmake --build --preset release"


class Load:
    """What is played: its waiters and contestants. What is told: the figure, the ratios of its medians, the bars."""

    def __init__(self, words, waiters, contestants, figure, ratios, bars):
        self.words = words
        self.waiters = waiters
        self.contestants = [*contestants, NOISE]
        self.figure = figure
        self.ratios = [*ratios, (OURS, NOISE)]
        self.bars = bars


def with_peer(words, waiters, least):
    return Load(words, waiters, [OURS, PEER, TOKENS], "pairs_per_s", [(OURS, PEER), (TOKENS, PEER), (TOKENS, OURS)],
                [ratio_bar(OURS, PEER, least, "pairs/s", "pairs_per_s")])


LOADS = {"pairs": with_peer("nobody else wants the lock", 1, 0.9),
         "crowd": with_peer("all waiters are in one process, and want one lock", 100, 1),
         "ill": Load(f"on ill servers, the replies of one come {DELAY_MS} ms late, and another is silent", 1, [OURS, ILL],
                     "us_per_pair", [(ILL, OURS)], [cost_bar(ILL, OURS, 1.5, "us_per_pair")])}

HELP = f"""\
Compares libdlock's redlock with the Go library redsync on the same {SERVERS} Redis servers, and with itself on ill
servers. A pair is an acquire and its release. The command starts the servers itself, and ends them.

shapes:
  pairs   {OURS}, {PEER} and {TOKENS}: one waiter.
          Bar: pairs/s of {OURS} / pairs/s of {PEER} is at least 0.9.
  crowd   The same three: {LOADS["crowd"].waiters} waiters in one process want one lock. Bar: the same ratio is at least 1.
  ill     {OURS} on {SERVERS} servers that are well, and on ill ones: the replies of one server come {DELAY_MS} ms
          late, and another server never answers. One waiter.
          Bar: time of a pair on ill servers / time of a pair on well ones is at most 1.5.

"With tokens" means that each acquire also draws a fencing token, which costs a second round to the servers.
redsync has no tokens, so that row has no bar.

In each shape the contestants take turns, round by round, and the first pass is a warm-up. The first contestant plays
twice in each pass: the ratio of its two results is the noise. Every ratio is of the medians over all rounds.

It needs Go, and Go's module proxy the first time, except for `--shape ill`. Build the rest before:
  {NEEDS_BENCH}

A round is valid if every pair succeeded, no two waiters held the lock at once, each token is larger than the one
before, and the late server was asked all the time. Exit code 0: every round was valid, and no bar was missed. 2: an
option is wrong, or the machine is busy. 1: anything else, with the reason.
"""


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


def our_program():
    program = BUILD / "bench" / "bench-quorum"
    if not program.exists():
        raise SystemExit(f"bench: {program} is missing; build it: {NEEDS_BENCH}")
    return program


def build_peer():
    """Builds redsync with Go's module proxy; go keeps what it has built. Returns the program."""
    go = shutil.which("go")
    if go is None:
        raise SystemExit("bench: redsync is written in Go, and there is no `go` on PATH: install the Go that "
                         "bench/peers/redsync/go.mod names, or a later one; `--shape ill` needs none")
    program = BUILD.resolve() / "bench" / "redsync"
    done = subprocess.run([go, "build", "-o", str(program), "."], cwd=ROOT / "bench" / "peers" / "redsync",
                          capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        raise SystemExit(f"bench: redsync cannot be built:\n{done.stderr}")
    return program


def play(world, programs, contestant, waiters, pairs):
    """Runs one round. Returns its line."""
    program = programs[PEER if contestant == PEER else OURS]
    more = {ILL: ["-warm-ms", str(WARM_MS)], TOKENS: ["-tokens"]}.get(contestant, [])
    command = [str(program), "-waiters", str(waiters), "-pairs", str(pairs), *more,
               *(f"127.0.0.1:{port}" for port in world.ports(contestant.removesuffix(AGAIN)))]
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
    row |= {"pairs_per_s": round(row["pairs"] / row["seconds"], 1),
            "us_per_pair": round(row["seconds"] * 1e6 / max(1, row["pairs"]), 3),
            "verdict": "INVALID" if reasons else "ok", "reasons": "; ".join(reasons)}
    if reasons:
        print(f"INVALID: {contestant}, {waiters} waiters: {row['reasons']}\n{errors}", flush=True)
    return row


def run_rounds(world, programs, name, arguments):
    """One round of each contestant, again and again; the first pass is the warm-up."""
    load = LOADS[name]
    waiters = arguments.waiters if name == "crowd" and arguments.waiters else load.waiters
    print(f"\n{name}, waiters: {waiters}; {load.words}\n  for each row a warm-up, then rounds: {arguments.rounds}, each "
          f"of {arguments.pairs} pairs; a pair is an acquire and its release", flush=True)
    rows = []
    for number in range(-1, arguments.rounds):
        for contestant in load.contestants:
            row = play(world, programs, contestant, waiters, arguments.pairs)
            if number >= 0 or row["verdict"] != "ok":
                rows.append({"load": name, "round": number if number >= 0 else "warm-up", "who": contestant,
                             "processes": 1, "waiters": waiters, **row})
    return rows


FIGURES = {"pairs_per_s": "pairs/s", "us_per_pair": "time of a pair"}


def tell(name, rows, seed):
    """Prints the table, the ratios and the bars. True if every round was valid and no bar was missed."""
    load = LOADS[name]
    rounds = Rounds([row for row in rows if row["round"] != "warm-up"], seed)
    print(f"\n  {'':24}{'pairs/s, median [min-max]':>28}{'us for a pair, median':>24}")
    for who in load.contestants:
        rates = rounds.of(who, "pairs_per_s")
        spread = f"{statistics.median(rates):.0f} [{min(rates):.0f}-{max(rates):.0f}]"
        print(f"  {who:24}{spread:>28}{rounds.median(who, 'us_per_pair'):24.0f}")
    print(f"\n  {FIGURES[load.figure]}: ratio of the medians [interval of 95 %]")
    for one, other in load.ratios:
        ratio = rounds.ratio(one, other, load.figure)
        if ratio:
            noise = "   (the noise: both are the same)" if other == NOISE else ""
            print(f"    {f'{one} / {other}':36}{ratio[0]:6.2f} [{ratio[1]:.2f}-{ratio[2]:.2f}]{noise}")
    print()
    return tell_bars(load.bars, rounds, rows)


def quorum(parser, arguments, keep):
    """Compares libdlock's redlock with redsync on five Redis servers, and with itself if two of them are ill."""
    refuse_busy(parser, arguments)
    loads = arguments.shape or LOADS
    programs = {OURS: our_program()}
    if any(PEER in LOADS[name].contestants for name in loads):
        programs[PEER] = build_peer()
    well = True
    with QuorumWorld() as world:
        for name in loads:
            rows = run_rounds(world, programs, name, arguments)
            well &= tell(name, rows, arguments.seed)
            keep(f"quorum-{name}", rows, arguments.results)
    tell_machine(arguments)
    return 0 if well else 1
