#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Changes one witness of a run whose verdict is known, and judges it. Whatever was changed: a bad run is never OK, a good
one is never accused of a fault that the changed witness does not state itself, and the judge ends within its bounds."""
import argparse
import functools
import json
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support"), str(HERE.parents[1] / "flaws")]
BUILD = pathlib.Path(os.environ.get("LADDER_BUILD", HERE.parents[1] / "build" / "dev"))
os.environ.setdefault("LADDER_AUDIT", str(BUILD / "audit" / "ladder-audit"))
INVENTORYD = os.environ.get("INVENTORYD", str(BUILD / "service" / "inventoryd"))

from bases import made, record, recorded  # noqa: E402 pylint: disable=wrong-import-position
from judge import FOLDERS, JUDGE  # noqa: E402 pylint: disable=wrong-import-position
from mutations import MUTATIONS  # noqa: E402 pylint: disable=wrong-import-position

MEMORY = 512 << 20  # bytes of address space; such runs take a tenth of it
PATIENCE_S = 120    # never how long it should take
PROVEN = ("oversold", "overlap")  # by records that are there, whatever else is missing


class Case:
    """What the seed, and the recorded runs, make: a base, what was changed of it, and what may follow."""

    def __init__(self, seed, runs):
        self.seed = seed
        rand = random.Random(seed)
        while True:
            self.base = rand.choice(runs) if runs and rand.random() < 0.5 else made(rand)
            mutate = rand.choice(MUTATIONS)
            self.files = dict(self.base.files)
            more = {}
            if mutate.__name__.startswith("other"):
                same = [run for run in runs if run is not self.base and self.base in runs]
                more["other"] = (rand.choice(same) if same else made(rand)).files
            self.may = mutate(self.files, rand, self.base.truth, **more)
            if self.may and self.files != self.base.files:
                return

    def write(self, folder, files=None):
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        for name, text in (files or self.files).items():
            with open(os.path.join(folder, name), "w", encoding="utf-8", newline="") as file:
                file.write(text)

    def is_sole(self, folder):
        """Whether, without the changed witness, nobody tells of the fault."""
        files = {name: text for name, text in self.base.files.items() if not name.startswith(self.may.sole)}
        self.write(folder, files)
        return run_judge(folder)[0] == "inconclusive"

    def wrong(self, folder):
        """What is wrong with the judge's answer, or ""."""
        self.write(folder)
        result, flaw = run_judge(folder)
        truth, may = self.base.truth, self.may
        if flaw:
            return flaw
        if self.base.is_bad and result == "ok":
            return "" if may.sole and self.is_sole(folder + "-sole") else "OK about a bad run"
        if not self.base.is_bad and result not in ("ok", "inconclusive") and result not in may.accuse:
            return f"{result} about a good run"
        if may.same and result != truth:
            return f"{result}, though only the order of lines has changed"
        if may.keeps and truth in PROVEN and result != truth:
            return f"{result}, though other records prove {truth}"
        return ""


@functools.cache
def bounds():
    """What the judge is run by. A sanitizer reserves far more memory than it uses."""
    with open(JUDGE, "rb") as file:
        return [] if b"__asan_" in file.read() else ["prlimit", f"--as={MEMORY}"]


def run_judge(folder):
    """(result, what is wrong with how it ended or "")."""
    try:
        done = subprocess.run([*bounds(), JUDGE, folder], capture_output=True, timeout=PATIENCE_S, check=False, text=True, errors="replace")
    except subprocess.TimeoutExpired:
        return None, f"the judge has not ended within {PATIENCE_S} s"
    if done.returncode not in (0, 1, 2):
        return None, f"the judge ended with {done.returncode}: {done.stderr[-2000:]}"
    try:
        with open(os.path.join(folder, "verdict.json"), encoding="utf-8") as file:
            verdict = json.load(file)
    except FileNotFoundError:
        fine = done.returncode == 2 and "run.json" in done.stderr
        return "inconclusive", "" if fine else f"no verdict.json, exit code {done.returncode}: {done.stderr}"
    if done.stderr:
        return None, f"a verdict, and on standard error: {done.stderr}"
    code = 2 if verdict["result"] == "inconclusive" or not verdict["expected"] else 0 if verdict["agrees"] else 1
    return verdict["result"], "" if code == done.returncode else f"exit code {done.returncode} and {verdict['result']}"


# ---- Many cases ----------------------------------------------------------------------------------
def work(seeds, runs, folder, kept, told):
    for seed in seeds:
        try:
            case = Case(seed, runs)
            wrong = case.wrong(folder)
            if wrong:
                case.write(os.path.join(kept, f"seed-{seed}"))
                case.write(os.path.join(kept, f"seed-{seed}-before"), case.base.files)
            told.send((seed, wrong, case.may.what, case.base.truth, case.base.name))
        except Exception as error:  # pylint: disable=broad-except
            told.send((seed, f"the fuzzer broke: {error!r}", "", "", ""))


def fuzz(first, count, runs, kept, jobs=2, tell=None):
    """Judges so many cases. What went wrong, as (seed, what, mutation, truth, base)."""
    context, wrong, done, workers = multiprocessing.get_context("fork"), [], 0, {}
    with tempfile.TemporaryDirectory(prefix="ladder-fuzz-", dir=FOLDERS) as folder:
        for number in range(jobs):
            answers, told = context.Pipe(duplex=False)
            seeds = range(first + number, first + count, jobs)
            workers[answers] = context.Process(target=work, daemon=True, args=(
                seeds, runs, os.path.join(folder, str(number)), kept, told))
            workers[answers].start()
            told.close()
        while workers:
            for answers in multiprocessing.connection.wait(list(workers)):
                try:
                    answer = answers.recv()
                except EOFError:  # its worker has ended
                    workers.pop(answers).join()
                    continue
                done += 1
                wrong += [answer] if answer[1] else []
                if tell:
                    tell(done, answer, len(wrong))
    if done < count:
        wrong.append((first, f"{count - done} of {count} cases from this seed on were not judged: a worker died", "", "", ""))
    return sorted(wrong)


def describe(answer, runs, kept):
    seed, what, mutation, truth, base = answer
    again = f"LADDER_AUDIT={JUDGE} {pathlib.Path(__file__).resolve()} --seed {seed} --cases 1" + (f" --runs {runs}" if runs else " --made")
    return f"seed {seed}: {what}\n  {base}, {truth}: {mutation}\n  files: {kept}/seed-{seed}\n  again: {again}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the first case")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--runs", help="a folder of recorded runs; an empty or missing one is filled first")
    parser.add_argument("--made", action="store_true", help="only runs that are made from the seed")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", help="where failing cases are kept (default: a new folder below /tmp)")
    options = parser.parse_args()
    kept = options.keep or tempfile.mkdtemp(prefix="ladder-fuzz-")
    folder = None if options.made else options.runs or os.path.join(kept, "runs")
    if folder and not recorded(folder):
        print(f"recording real runs in {folder}", flush=True)
        record(folder, INVENTORYD, JUDGE, print)
    runs = recorded(folder) if folder else []
    print(f"{len(runs)} recorded runs, {sum(run.is_bad for run in runs)} of them bad", flush=True)
    began = time.monotonic()

    def tell(done, answer, wrong):
        if answer[1]:
            print(describe(answer, folder, kept), flush=True)
        if done % 1000 == 0:
            print(f"{done} cases, {wrong} wrong, {done / (time.monotonic() - began):.0f} a second", flush=True)
    wrong = fuzz(options.seed, options.cases, runs, kept, options.jobs, tell)
    print(f"{options.cases} cases, {len(wrong)} wrong")
    if not wrong and not options.keep:
        shutil.rmtree(kept)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
