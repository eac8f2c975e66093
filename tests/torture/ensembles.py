#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plays histories of a rung on a real ensemble of three whose servers are lost meanwhile, and judges each. The program
torture_<rung> plays a history and judges it; the losses are drawn here, from the seed.

Histories that are played at once share the ensemble and its losses. A history's faults are over when the three serve
again and have one leader; then it must come to its end in time.
"""
import argparse
import collections
import contextlib
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "flaws"))

from etcds import Cluster
from redis_server import spawn
from waiting import STOP, Inconclusive, Stopped, dying_with, run_stoppable, wait_until
from zookeepers import Ensemble

ENSEMBLES = {"etcd": Cluster, "zookeeper": Ensemble}
WELL_S = 60  # for servers to be well again, on a busy machine
HISTORY_S = 90  # for a history after its faults, which ends itself long before
PROGRESS_S = 10
CALM = 12  # one of so many rounds is without losses
LASTS_S, MAJORITY_LASTS_S, PAUSE_S = 3, 1, 1  # the most
KINDS = ["killed", "stopped", "cut off"]
FAULTS = [*KINDS, "deposed", "two at once"]
# What is excused if the servers' own data differ: a node that one of them keeps for ever stops a queue.
DIVERGED = re.compile(r"^VIOLATED seed \d+: (STUCK|ANSWER|BOUND): ")
# What is excused if a former leader of etcd has revoked leases that its successor had renewed (etcd#15247).
REVOKED = re.compile(r"^VIOLATED seed \d+: (CUT|OVERLAP): ")
LISTED = 32  # the most violations that a program prints: VIOLATIONS_MAX
COUNTS = ["calls", "for several locks", "got all", "stopped", "killed", "connections cut"]  # of a history, as its program prints them


def pause(draw, most_s):
    if STOP.wait(draw.uniform(0.05, most_s)):
        raise Stopped


class Loss:
    """What befalls one member, and its end."""

    def __init__(self, ensemble, member, kind):
        self.ensemble, self.member, self.kind = ensemble, member, kind

    def begin(self):
        if self.kind == "killed":
            self.member.kill()
        elif self.kind == "stopped":
            self.member.process.send_signal(signal.SIGSTOP)
        else:
            self.ensemble.cut_off(self.member)

    def end(self):
        if self.kind == "killed":
            self.member.start()
        elif self.kind == "stopped":
            self.member.process.send_signal(signal.SIGCONT)
        else:
            self.ensemble.cut_off(self.member, False)


class Round:
    """Some histories at once, and what befalls their servers."""

    def __init__(self, settings, ensemble, seeds):
        self.settings, self.ensemble, self.seeds = settings, ensemble, seeds
        self.draw = random.Random(seeds[0])
        self.calm = not settings.always and self.draw.randrange(CALM) == 0
        self.faults, self.counts = collections.Counter(), collections.Counter()
        self.leader_changed = self.diverged = self.revoked = False
        self.frozen = {}  # leaders that were stopped and have not led since -> how many leases they had ended
        self.broken = ""  # why the servers were not well again
        self.programs = {}

    def start(self):
        for seed in self.seeds:
            words = [self.settings.program, "--members", ",".join(str(one.client_port) for one in self.ensemble.nodes),
                     str(seed)]
            with open(self.transcript(seed), "wb") as out:
                self.programs[seed] = subprocess.Popen(
                    dying_with(words), stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT,
                    start_new_session=True, env={**os.environ, "TORTURE_TELL": "1"})

    def transcript(self, seed):
        return self.settings.folder / f"{self.settings.rung}-{seed}.txt"

    def tell(self, text):
        for program in self.programs.values():
            with contextlib.suppress(OSError):
                program.stdin.write(f"{text}\n".encode())
                program.stdin.flush()

    def well(self):
        """The leader: all members serve, and agree."""
        return wait_until(self.ensemble.agreed, "an ensemble that is well", WELL_S)

    def befall(self, losses, lasts_s, leader):
        for loss in losses:
            self.faults[loss.kind] += 1
            role = "the leader" if loss.member is leader else "a follower"
            self.tell(f"FAULT server {loss.member.number}, {role}, is {loss.kind}")
            if loss.member is leader and loss.kind == "stopped":
                self.frozen[leader] = leader.leases_expired()
            loss.begin()
        pause(self.draw, lasts_s)
        for loss in losses:
            self.tell(f"server {loss.member.number} is no longer {loss.kind}")
            loss.end()

    def move_leader(self, leader):
        self.faults["deposed"] += 1
        self.tell(f"FAULT server {leader.number}, the leader, is deposed")
        self.ensemble.depose()

    def lose(self):
        leader = self.well()
        others = [one for one in self.ensemble.nodes if one is not leader]
        drawn = self.draw.random()
        if drawn < 0.15:
            self.move_leader(leader)
        elif drawn < 0.3:
            self.faults["two at once"] += 1
            losses = [Loss(self.ensemble, one, self.draw.choice(KINDS))
                      for one in self.draw.sample(self.ensemble.nodes, 2)]
            self.befall(losses, MAJORITY_LASTS_S, leader)
        else:
            member = leader if self.draw.random() < 0.5 else self.draw.choice(others)
            self.befall([Loss(self.ensemble, member, self.draw.choice(KINDS))], LASTS_S, leader)
        now = self.well()
        self.frozen.pop(now, None)  # what it ends from now on is its own affair
        self.tell(f"all servers are well, server {now.number} leads")
        self.leader_changed |= now is not leader

    def play(self):
        try:
            self.start()
            for _ in range(0 if self.calm else self.draw.randint(1, 3)):
                pause(self.draw, PAUSE_S)
                self.lose()
            pause(self.draw, PAUSE_S)
            for program in self.programs.values():
                with contextlib.suppress(OSError):  # it has died: its end is judged
                    program.stdin.close()
            wait_until(self.over, "the end of the histories", HISTORY_S)
            self.diverged, self.revoked = self.ensemble.have_diverged(), self.have_revoked()
        except Inconclusive as error:
            self.broken = str(error)
        finally:
            for program in self.programs.values():
                program.kill()
                program.wait()

    def have_revoked(self):
        """Whether one of these has ended leases since. Its successor may have renewed them: releases of etcd before 3.4.31
        and 3.5.13 do that, etcd#15247."""
        return any(before is not None and (leader.leases_expired() or 0) > before for leader, before in self.frozen.items())

    def over(self):
        return all(program.poll() is not None for program in self.programs.values())

    def is_excused(self, lines):
        said = [line for line in lines if line.startswith("VIOLATED")]
        known = [excuse for happened, excuse in ((self.diverged, DIVERGED), (self.revoked, REVOKED)) if happened]
        return 0 < len(said) < LISTED and all(any(excuse.match(line) for excuse in known) for line in said)

    def failures(self):
        """Those that failed: seed -> the first line that says how. And the seeds of those that are excused. The
        transcripts of the others are deleted."""
        failed, excused = {}, []
        for seed, program in self.programs.items():
            lines = self.transcript(seed).read_text(errors="replace").splitlines()
            if lines and (counts := re.search(r"; (\d+) calls; (\d+) for several locks, (\d+) got all; (\d+) stops, (\d+) kills, (\d+) cuts", lines[-1])):
                self.counts.update(dict(zip(COUNTS, map(int, counts.groups()))))
            if program.returncode == 0:
                self.transcript(seed).unlink()
            elif self.is_excused(lines):
                excused.append(seed)
            else:
                failed[seed] = next((line for line in lines if line.startswith("VIOLATED")),
                                    f"could not be played: exit code {program.returncode}")
        return failed, excused


class Totals:
    def __init__(self, settings):
        self.settings, self.begun = settings, time.monotonic()
        self.told = self.begun
        self.histories = self.calm = self.lost = self.leader_changed = self.failed = self.unplayed = 0
        self.excused = self.diverged = self.revoked = 0
        self.faults, self.counts = collections.Counter(), collections.Counter()

    def passed_s(self):
        return int(time.monotonic() - self.begun)

    def go_on(self, begun):
        if self.settings.minutes:
            return self.passed_s() < 60 * self.settings.minutes
        return begun < self.settings.histories

    def add(self, played):
        count = len(played.seeds)
        failures, excused = played.failures()
        self.excused += len(excused)
        self.diverged += played.diverged
        self.revoked += played.revoked
        if played.broken:
            print(f"{self.settings.rung}, seeds {list(played.seeds)}: {played.broken}", flush=True)
        self.calm += count * played.calm
        self.histories += count * (not played.calm)
        self.lost += count * bool(played.faults)
        self.leader_changed += count * played.leader_changed
        self.faults.update(played.faults)
        self.counts.update(played.counts)
        for seed, said in failures.items():
            violated = said.startswith("VIOLATED")
            self.failed += violated
            self.unplayed += not violated
            print(f"{self.settings.rung}, seed {seed}: {said}\n    transcript: {played.transcript(seed)}", flush=True)
        if time.monotonic() - self.told > PROGRESS_S:
            self.told = time.monotonic()
            print(f"{self.passed_s()} s: {self.histories} histories, {self.calm} calm, {self.failed} failed",
                  flush=True)

    def tell(self):
        print("faults of servers:", ", ".join(f"{kind} {self.faults[kind]}" for kind in FAULTS))
        print("faults of clients:", ", ".join(f"{kind} {self.counts[kind]}" for kind in COUNTS[3:]))
        print(f"calls for several locks: {self.counts['for several locks']}, of them {self.counts['got all']} got all")
        print(f"a server was killed, stopped, cut off or deposed in {self.lost} of them")
        print(f"another server led after a fault in {self.leader_changed} of them")
        if self.diverged:
            print(f"the servers' own data differed in {self.diverged} rounds")
        if self.revoked:
            print(f"a former leader revoked leases in {self.revoked} rounds (etcd#15247)")
        if self.excused:
            print(f"{self.excused} histories failed by that, and are not counted as failed")
        print(f"{self.histories} histories and {self.calm} calm ones in {self.passed_s()} s, {self.counts['calls']}"
              f" calls, {self.failed} failed, {self.unplayed} could not be played", flush=True)

    def code(self):
        return 1 if self.failed else 2 if self.unplayed else 0


@contextlib.contextmanager
def an_ensemble(settings):
    with tempfile.TemporaryDirectory(prefix="ensemble-") as folder:
        ensemble = ENSEMBLES[settings.rung](folder, links=True, spawn=lambda words, out: spawn(dying_with(words), out))
        try:
            ensemble.start()
            yield ensemble
        finally:
            ensemble.end()


def play_all(settings):
    totals = Totals(settings)
    settings.folder.mkdir(parents=True, exist_ok=True)
    begun = 0
    while totals.go_on(begun):
        with an_ensemble(settings) as ensemble:
            well = True
            while well and totals.go_on(begun):
                count = settings.jobs if settings.minutes else min(settings.jobs, settings.histories - begun)
                played = Round(settings, ensemble, range(settings.seed + begun, settings.seed + begun + count))
                played.play()
                totals.add(played)
                begun += count
                well = not played.broken and not played.diverged
    totals.tell()
    return totals.code()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rung", choices=ENSEMBLES, required=True)
    parser.add_argument("--program", required=True, help="torture_zookeeper or torture_etcd")
    parser.add_argument("--seed", type=int, default=1, help="the first one (default 1)")
    parser.add_argument("--histories", type=int, default=20, help="how many (default 20)")
    parser.add_argument("--minutes", type=float, help="instead: as many as begin in so many minutes")
    parser.add_argument("--jobs", type=int, default=4, help="how many at once (default 4)")
    parser.add_argument("--always", action="store_true", help="no round is calm")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "runs" / "torture",
                        help="where transcripts of failures are kept")
    settings = parser.parse_args()
    try:
        return run_stoppable(lambda: play_all(settings), "torture")
    except (Inconclusive, OSError) as error:
        print(f"torture: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
