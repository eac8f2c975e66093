# SPDX-License-Identifier: Apache-2.0
"""A rung of libdlock that a majority of servers grants, and a library that does the same, on the same servers, in
alternating rounds. bench-pairs and the peers measure one round each; all print the same line. The modules of the verbs
have the servers, the loads, and what is compared."""
import json
import shutil
import statistics
import subprocess
import threading

from locks import AGAIN, tell_machine
from rounds import Rounds, ratio_bar, tell_bars
from world import BUILD, ROOT, Place, wait_until

ROUND_LIMIT_S = 300
BUILD_LIMIT_S = 900
NEEDS_BENCH = "cmake --preset release -D LADDER_BUILD_BENCH=ON && cmake --build --preset release"
PEERS = ROOT / "bench" / "peers"
CROWD = 100  # waiters

FAIR = """\
In each shape the contestants take turns, round by round, and the first pass is a warm-up. The first contestant plays
twice in each pass: the ratio of its two results is the noise. Every ratio is of the medians over all rounds."""

EXIT_CODES = """\
Exit code 0: every round was valid, and no bar was missed. 2: an option is wrong, or the machine is busy. 1: anything
else, with the reason."""


class Load:
    """What is played: its waiters and contestants. What is told: the figure, the ratios of its medians, the bars."""

    def __init__(self, words, waiters, contestants, figure, ratios, bars):
        self.words = words
        self.waiters = waiters
        self.noise = contestants[0] + AGAIN
        self.contestants = [*contestants, self.noise]
        self.figure = figure
        self.ratios = [*ratios, (contestants[0], self.noise)]
        self.bars = bars


def with_peer(waiters, least, ours, peer, more=(), ratios=()):
    """One waiter, or a crowd, of ours and of its peer. least: the bar of their ratio."""
    words = ("nobody else wants the lock" if waiters == 1 else
             "all waiters are in one process, and want one lock")
    return Load(words, waiters, [ours, peer, *more], "pairs_per_s", [(ours, peer), *ratios],
                [ratio_bar(ours, peer, least, "pairs/s", "pairs_per_s")])


class VersusWorld(Place):
    """Servers that all contestants share. `ours` names the rung."""
    ours = None

    def words(self, who):
        """Of a contestant's command line: its own options, and the servers."""
        raise NotImplementedError

    def version(self):
        """The servers' name and version."""
        raise NotImplementedError

    def is_empty(self):
        """Nothing of the lock is left on the servers."""
        raise NotImplementedError

    def look(self):
        """What judge() gets as it was before the round."""

    def judge(self, who, pairs, before):
        """More columns of a round, and the reasons why it is not valid."""
        return {}, []


def our_program():
    program = BUILD / "bench" / "bench-pairs"
    if not program.exists():
        raise SystemExit(f"bench: {program} is missing; build it: {NEEDS_BENCH}")
    return program


def build(peer, command, **options):
    """Runs one of the commands that build a peer, which may fetch it."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_LIMIT_S, **options)
    except subprocess.TimeoutExpired as late:
        raise SystemExit(f"bench: {peer}: not built within {BUILD_LIMIT_S} s: {command}") from late
    if done.returncode != 0:
        raise SystemExit(f"bench: {peer} cannot be built:\n{done.stdout[-2000:]}{done.stderr}")


def build_with_go(peer):
    """Builds bench/peers/<peer> with Go's module proxy; go keeps what it has built. Returns the program."""
    go = shutil.which("go")
    if go is None:
        raise SystemExit(f"bench: {peer} is written in Go, and there is no `go` on PATH: install the Go that "
                         "bench/peers/go.mod names, or a later one")
    program = BUILD.resolve() / "bench" / peer
    build(peer, [go, "build", "-o", str(program), f"./{peer}"], cwd=PEERS)
    return program


def play(world, programs, contestant, waiters, pairs):
    """Runs one round. Returns its line."""
    who = contestant.removesuffix(AGAIN)
    program = programs[who if who in programs else world.ours]
    command = [str(program), *world.words(who)]
    command[1:1] = ["-waiters", str(waiters), "-pairs", str(pairs)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    limit = threading.Timer(ROUND_LIMIT_S, process.kill)
    limit.start()
    try:
        process.stdout.readline()  # "ready"; it ends if it cannot be
        before = world.look()
        out, errors = process.communicate("go\n")
    finally:
        limit.cancel()
        process.kill()
        process.wait()
    if process.returncode != 0:
        raise SystemExit(f"bench: {' '.join(command)}: exit code {process.returncode} (it may take {ROUND_LIMIT_S} s)"
                         f"\n{errors}")
    row = json.loads(out)
    reasons = []
    if row["failed"] or row["pairs"] != pairs:
        reasons.append(f"{row['pairs']} of {pairs} pairs succeeded")
    if row["inside_max"] != 1:
        reasons.append(f"{row['inside_max']} holders at once")
    wait_until(world.is_empty, "the lock's key is gone", ROUND_LIMIT_S)
    more, why = world.judge(who, pairs, before)
    reasons += why
    row |= {**more, "pairs_per_s": round(row["pairs"] / row["seconds"], 1),
            "us_per_pair": round(row["seconds"] * 1e6 / max(1, row["pairs"]), 3),
            "verdict": "INVALID" if reasons else "ok", "reasons": "; ".join(reasons)}
    if reasons:
        print(f"INVALID: {contestant}, {waiters} waiters: {row['reasons']}\n{errors}", flush=True)
    return row


def run_rounds(world, programs, name, load, arguments):
    """One round of each contestant, again and again; the first pass is the warm-up."""
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


def tell(load, rows, seed):
    """Prints the table, the ratios and the bars. True if every round was valid and no bar was missed."""
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
            noise = "   (the noise: both are the same)" if other == load.noise else ""
            print(f"    {f'{one} / {other}':36}{ratio[0]:6.2f} [{ratio[1]:.2f}-{ratio[2]:.2f}]{noise}")
    print()
    return tell_bars(load.bars, rounds, rows)


def compare(verb, world_of, loads, programs, arguments, keep):
    """Plays the loads, tells and keeps them. Returns the exit code."""
    well = True
    with world_of() as world:
        for name in arguments.shape or loads:
            rows = run_rounds(world, programs, name, loads[name], arguments)
            well &= tell(loads[name], rows, arguments.seed)
            keep(f"{verb}-{name}", rows, arguments.results)
        tell_machine(arguments, world.version())
    return 0 if well else 1
