#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plays short bursts on a whole shop under faults, one seed for each burst, and judges them. No unit may be lost or
sold twice, and every buyer must get a correct answer.

Buyers ask again with their Idempotency-Key until the answer is definite (200, or sold out). With a write mode
that stores no keys (decr) they do not. There the sales of unknown outcome must explain the missing units.
"""
import argparse
import collections
import concurrent.futures
import contextlib
import ctypes
import http.client
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

from post import FAULTS
from shop import ITEM, ROOT, STOCK_KEY, Shop

import stocks

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
PATIENCE_S = 240  # the longest time that a buyer asks
HTTP_S = 60
WAYS = [("fair", "fenced"), ("watchdog", "atomic"), ("fair", "decr"), ("watchdog", "decr")]
KEEPS_KEYS = {"fenced", "atomic"}
BEFALL = {  # name -> its argument's choices
    "kill_instance": "ab", "stop_instance": "ab", "roll_over": "ab", "reload_nginx": " ", "fill_disk": "ab",
    "freeze_redis": ("lock", "stock"), "restart_redis": ("lock", "stock"), "forget_locks": " ",
    "cut_connections": ("lock", "stock"), "flush_scripts": ("lock", "stock"),
    "forbid_writes": ("lock", "stock"), "fill_memory": ("lock", "stock"),
}
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
UNDO_S = 1.2  # the longest time that a fault lasts
CALM = 10  # one of so many seeds plays without faults


class Plan:
    """The plan of a burst, drawn from its seed."""

    def __init__(self, seed):
        self.seed = seed
        r = random.Random(seed)
        self.lock, self.write = r.choice(WAYS)
        self.keeps = self.write in KEEPS_KEYS
        self.apart = r.random() < 0.6
        self.profile = r.choice(["proof", "failover"])
        self.ttl_ms = r.choice([800, 2000])
        self.redis_timeout_ms = r.choice([200, 600])
        self.fail_fast_ms = r.choice([300, 1000])
        self.buyers = r.randrange(6, 20)
        self.each = r.randrange(2, 6)
        self.stock = int(self.buyers * self.each * r.choice([0.5, 0.9, 1.5]))
        self.hang_up = r.choice([0, 0, 0.1])  # how often a buyer closes the connection, and asks again
        self.twice = r.choice([0, 0.2]) if self.keeps else 0  # how often two requests with one key are sent at once
        self.posts = {"lock": {}, "stock": {}}
        self.befall = []  # (answers before it, name, argument, answers until its end)
        self.calm = seed % CALM == 0
        if self.calm:
            return
        for _ in range(r.randrange(0, 5)):
            self.posts[r.choice(["lock", "stock", "stock"])][r.randrange(5, 60 + 4 * self.buyers)] = r.choice(list(FAULTS))
        for _ in range(r.randrange(0, 3) + (not any(self.posts.values()))):
            name = r.choice(list(BEFALL))
            if name == "forget_locks" and not (self.apart and self.keeps):
                name = "reload_nginx"  # one Redis would lose the stock, and decr depends on the lock
            if name == "stop_instance" and not self.keeps:
                name = "kill_instance"  # it would outlive its lock, and decr has no fence
            self.befall.append((r.randrange(1, self.buyers * self.each), name, r.choice(BEFALL[name]),
                                r.randrange(1, 20)))
        self.befall.sort()

    @property
    def flags(self):
        return ["--ttl-ms", self.ttl_ms, "--redis-timeout-ms", self.redis_timeout_ms, "--fail-fast-ms",
                self.fail_fast_ms, "--wait-ms", 4000, "--work-ms", 2]

    def __str__(self):
        posts = [f"{role} {number}: {fault}" for role, plan in self.posts.items()
                 for number, fault in sorted(plan.items())]
        befall = [f"after {after} answers: {name} {argument}" for after, name, argument, _ in self.befall]
        return (f"seed {self.seed}: --lock {self.lock} --write {self.write}, "
                f"{'two Redis' if self.apart else 'one Redis'}, {self.profile}, {self.buyers} buyers, "
                f"{self.each} each of {self.stock}; {'; '.join(posts + befall) or 'calm'}")


class Burst:
    def __init__(self, plan, folder):
        self.plan, self.folder = plan, pathlib.Path(folder)
        self.shop = None
        self.mutex = threading.Lock()
        self.answers = 0
        self.seen = collections.Counter()
        self.told = collections.defaultdict(set)  # key -> definite answers
        self.unknown = 0
        self.faults = collections.Counter()
        self.wrong = []
        self.log = []
        self.buying = threading.Event()

    def note(self, text):
        with self.mutex:
            self.log.append(f"{time.monotonic():.3f} {text}")

    # ---- buyers ----

    def ask(self, key, hangs_up=False):
        """Returns (status, unit or problem); status 0: no answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.shop.port, timeout=HTTP_S)
        try:
            headers = {"Idempotency-Key": key} if self.plan.keeps else {}
            connection.request("POST", f"/inventory/{ITEM}/sale", headers=headers)
            if hangs_up:
                return 0, "hung up"
            answer = connection.getresponse()
            body = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            return 0, type(error).__name__
        finally:
            connection.close()
        if answer.status == 200:
            return 200, body["unit"]
        return answer.status, body["type"].rsplit(":", 1)[1]

    def buy(self, key, draw):
        """Asks until the answer is definite."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            hangs_up = draw.random() < self.plan.hang_up
            status, what = self.ask(key, hangs_up)
            definite = status == 200 or what == "sold-out"
            with self.mutex:
                self.answers += status != 0
                self.seen[f"{status} {what if status != 200 else 'sold'}"] += 1
                self.log.append(f"{time.monotonic():.3f} {key}: {status} {what}")
                if definite:
                    self.told[key].add((status, what if status == 200 else None))
                if not self.plan.keeps and (status in (0, 502, 504) or what == "outcome-unknown"):
                    self.unknown += 1
                    return
            if definite:
                return
            if 400 <= status < 500 and what != "request-in-flight":
                self.wrong.append(f"{key} was answered {status} {what}")
                return
            time.sleep(0.02 + 0.08 * draw.random())
        self.wrong.append(f"{key} had no definite answer within {PATIENCE_S} s")

    def buyer(self, number):
        draw = random.Random(self.plan.seed * 1000 + number)
        for purchase in range(self.plan.each):
            key = f"{self.plan.seed}-{number}-{purchase}"
            if draw.random() >= self.plan.twice:
                self.buy(key, draw)
                continue
            both = [threading.Thread(target=self.buy, args=(key, random.Random(draw.random()))) for _ in range(2)]
            for thread in both:
                thread.start()
            for thread in both:
                thread.join()

    # ---- faults ----

    def befall(self):
        undo = []
        for after, name, argument, lasts in self.plan.befall:
            self.await_answers(after)
            self.finish(undo, self.answers)
            self.note(f"-- {name} {argument}")
            self.faults[name] += 1
            undone = getattr(self.shop, name)(argument)
            if undone:
                undo.append((after + lasts, time.monotonic() + UNDO_S, name, undone))
                # One at a time besides those of the Posts: the end of one must not disturb another.
                self.finish(undo, None)
        self.finish(undo, None)

    def await_answers(self, count):
        while self.answers < count and self.buying.is_set():
            time.sleep(0.005)

    def finish(self, undo, answers):
        for due, until, name, undone in undo:
            while self.answers < due and time.monotonic() < until and self.buying.is_set():
                time.sleep(0.005)
            self.note(f"-- end of {name}")
            undone()
        undo.clear()

    # ---- all of it ----

    def play(self):
        plan = self.plan
        self.shop = Shop(self.folder, plan.lock, plan.write, plan.apart, plan.profile, plan.flags)
        try:
            stocks.lay(self.shop.stock_redis, STOCK_KEY, plan.stock)
            self.shop.stock_post.plan.update({self.shop.stock_post.requests + n: f
                                              for n, f in plan.posts["stock"].items()})
            self.shop.lock_post.plan.update({self.shop.lock_post.requests + n: f
                                             for n, f in plan.posts["lock"].items()})
            self.buying.set()
            befall = threading.Thread(target=self.guard, args=(self.befall,), daemon=True)
            buyers = [threading.Thread(target=self.guard, args=(self.buyer, n), daemon=True)
                      for n in range(plan.buyers)]
            for thread in [*buyers, befall]:
                thread.start()
            for thread in buyers:
                thread.join()
            self.buying.clear()
            befall.join()
            for post in (self.shop.stock_post, self.shop.lock_post):
                self.faults.update(post.done)
            if not self.wrong:
                self.shop.heal()
                self.judge()
        finally:
            try:
                self.shop.end()
            except AssertionError as error:
                self.wrong.append(f"an instance failed at its end: {error}")

    def guard(self, function, *args):
        try:
            function(*args)
        except Exception:
            self.wrong.append(traceback.format_exc())

    def judge(self):
        plan = self.plan
        left = stocks.left(self.shop.stock_redis, STOCK_KEY)
        units = [unit for told in self.told.values() for status, unit in told if status == 200]
        sold = len([key for key, told in self.told.items() if any(status == 200 for status, _ in told)])
        for key, told in self.told.items():
            if len(told) > 1:
                self.wrong.append(f"{key} has {len(told)} answers: {told}")
        if len(set(units)) < len(units):
            twice = [unit for unit, count in collections.Counter(units).items() if count > 1]
            self.wrong.append(f"units sold twice: {twice}")
        gone = plan.stock - left
        if not sold <= gone <= sold + self.unknown:
            self.wrong.append(f"{gone} units are gone, {sold} were sold, {self.unknown} are not known")
        if left < 0:
            self.wrong.append(f"the stock is {left}")
        if left > 0 and any(status == 409 for told in self.told.values() for status, _ in told):
            self.wrong.append(f"a buyer was told that everything is sold, but {left} are left")
        if plan.keeps:
            self.ask_again()

    def ask_again(self):
        """Asks again with every key, after all faults: the answer must be the same."""
        for key, told in list(self.told.items()):
            for _ in range(20):
                again = self.ask(key)
                if again[0] in (200, 409):
                    break
                time.sleep(0.1)
            if (again[0], again[1] if again[0] == 200 else None) not in told:
                self.wrong.append(f"{key} was told {told}, and later {again}")


def play(seed, keep, folder):
    """Returns (seed, calm, what was wrong, faults, answers)."""
    plan = Plan(seed)
    burst = Burst(plan, folder)
    try:
        burst.play()
    except Exception:
        burst.wrong.append(traceback.format_exc())
    if burst.wrong:
        kept = pathlib.Path(keep) / f"seed-{seed}"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(folder, kept, symlinks=True, ignore=shutil.ignore_patterns("appendonlydir", "*.sock"))
        (kept / "burst.txt").write_text("\n".join([str(plan), *burst.wrong, "", *burst.log]) + "\n")
    return seed, plan.calm, burst.wrong, burst.faults, burst.seen


# ---- The end -----------------------------------------------------------------------------------------


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def end_descendants():
    """Kills all that this process started. It is a subreaper: what a killed child leaves becomes its own."""
    while True:
        lists = [path.read_text(encoding="ascii").split() for path in pathlib.Path("/proc/self/task").glob("*/children")]
        children = [int(pid) for pid in sum(lists, []) if alive(pid)]
        if not children:
            return
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def heed_signals(end):
    """The first signal calls end(); those that follow change nothing. The process becomes a subreaper, which
    end_descendants needs."""
    def stop(*_):
        for number in ENDS:
            signal.signal(number, lambda *_: None)
        end()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    for number in ENDS:
        signal.signal(number, stop)


def play_alone(seed, keep, starter):
    """Told to end, or left alone by its starter, it ends what it started first."""
    with tempfile.TemporaryDirectory(prefix=f"shop-{seed}-") as folder:
        def end():
            end_descendants()
            shutil.rmtree(folder, ignore_errors=True)
            os._exit(1)
        heed_signals(end)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != starter:  # it ended before the signal was asked for
            end()
        return play(seed, keep, folder)


def play_apart(seed, keep):
    """Plays the burst in a separate process, so that nothing of it is left in the next one."""
    words = [sys.executable, "-B", __file__, "--play", str(os.getpid()), "--seed", str(seed), "--folder", keep]
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        return seed, False, [f"the burst ended with {done.returncode}: {done.stderr}"], {}, {}
    return json.loads(done.stdout.splitlines()[-1])


@contextlib.contextmanager
def side_by_side(jobs):
    """A pool. A signal to end breaks off what it plays."""
    def end():
        raise KeyboardInterrupt
    heed_signals(end)
    pool = concurrent.futures.ThreadPoolExecutor(jobs)
    with tempfile.TemporaryDirectory(prefix="shops-") as folder:
        os.environ["TMPDIR"] = folder  # of those who play
        try:
            yield pool
            pool.shutdown()
        except KeyboardInterrupt:
            ending = threading.Thread(target=pool.shutdown, kwargs={"cancel_futures": True})
            ending.start()
            while ending.is_alive():
                end_descendants()
                ending.join(0.05)
            end_descendants()  # what a burst has started in its last moment
            sys.exit("torture: stopped; all that was started is ended")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seed", type=int, default=1, help="the first one (default 1)")
    parser.add_argument("--bursts", type=int, default=20, help="how many (default 20)")
    parser.add_argument("--minutes", type=float, help="start no burst after this time")
    parser.add_argument("--jobs", type=int, default=2, help="how many at once (default 2)")
    # Plays one burst for the process of that pid, and prints JSON.
    parser.add_argument("--play", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", default=str(ROOT / "runs" / "torture-shop"), help="where failures are kept")
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(16384, hard), hard))
    os.makedirs(options.folder, exist_ok=True)
    if options.play:
        print(json.dumps(play_alone(options.seed, options.folder, options.play)))
        return 0
    begun, told = time.monotonic(), time.monotonic()
    seeds = iter(range(options.seed, options.seed + options.bursts))
    played = calm = failed = 0
    faults, seen = collections.Counter(), collections.Counter()
    with side_by_side(options.jobs) as pool:
        running = set()
        while True:
            over = options.minutes and time.monotonic() > begun + 60 * options.minutes
            while len(running) < options.jobs and not over and (seed := next(seeds, None)) is not None:
                running.add(pool.submit(play_apart, seed, options.folder))
            if not running:
                break
            done, running = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in done:
                seed, was_calm, wrong, its_faults, its_seen = future.result()
                played, calm = played + 1, calm + was_calm
                faults.update(its_faults)
                seen.update(its_seen)
                if wrong:
                    failed += 1
                    print(f"{Plan(seed)}\n  " + "\n  ".join(wrong) +
                          f"\n  again: {sys.argv[0]} --seed {seed} --bursts 1; kept in {options.folder}/seed-{seed}",
                          flush=True)
            if time.monotonic() > told + 10:
                told = time.monotonic()
                print(f"{played} bursts, {failed} failed", file=sys.stderr, flush=True)
    print("answers: " + ", ".join(f"{count} {what}" for what, count in seen.most_common()))
    print("faults: " + ", ".join(f"{count} {what}" for what, count in faults.most_common()))
    print(f"{played} bursts, {calm} of them calm, in {time.monotonic() - begun:.0f} s: {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
