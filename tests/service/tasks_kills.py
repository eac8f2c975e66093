#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Workers do the tasks of lists, while instances and Redis are killed, and steps are delayed beyond their lease. Each task's
result is accepted once, and none is lost.

    TASKSD=build/dev/tasks/tasksd tests/service/tasks_kills.py --seed 1 --tasks 10000 --audit build/dev/audit/ladder-audit
"""
import argparse
import collections
import contextlib
import csv
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), *(str(HERE.parent.parent / folder) for folder in ("flaws", "tests/support"))]

from killed_shop import LOST, SAFE, KilledShop  # noqa: E402
from world import Inventoryd, Redis, read_history, wait_until  # noqa: E402

LIST_TASKS = 120  # of each list. A short one soon has only tasks that were picked before: so they are taken over
POINTS = ("tasks.looked", "tasks.picked", "tasks.worked")
WORKERS = 12
COLUMNS = ("timeStamp", "elapsed", "label", "responseCode", "responseMessage", "threadName", "success", "failureMessage", "URL",
           "request", "item", "instance", "task")
TTL_MS, TASK_MS = 1500, 2
LEASE_MS = 400  # shorter than a delay
DELAY_MS = 900
# What the instances are told, and which harm comes, as often as it is named.
KILLS = ("instance", "point", "point", "point")
SETTINGS = {
    "fenced": (("--lock", "fair", "--result", "fenced", "--lease-ms", LEASE_MS), (*KILLS, "delay", "delay", "freeze")),
    # A lock alone does not help against who is late: so nobody is.
    "plain": (("--lock", "watchdog", "--result", "plain", "--lease-ms", 3000), KILLS),
    # Flawed: for the test that faults are found.
    "late": (("--lock", "fair", "--result", "plain", "--lease-ms", LEASE_MS), ("delay",)),
    "no-lease": (("--lock", "fair", "--lease", "off"), KILLS),
}


class Killed(KilledShop):
    """Each instance goes on in its history when it is started again."""

    def start(self, name):
        history = os.path.join(self.folder, f"history-{name}.jsonl")
        return Inventoryd(self.folder, self.redis, *self.flags, "--history", history, name=name)

    def hurt(self, chance, kinds):
        what = super().hurt(chance, kinds)
        if what == "delay":
            with contextlib.suppress(*LOST):
                action = '{"point":"%s","action":"1*delay(%d)"}' % (chance.choice(POINTS), DELAY_MS)
                self.any(chance).admin("PUT", "/failpoints", action)
        elif what == "freeze":  # its lock expires, too
            instance = self.any(chance)
            instance.signal(signal.SIGSTOP)
            time.sleep(TTL_MS / 1000 + 0.2)
            instance.signal(signal.SIGCONT)
        return what


class Worker(threading.Thread):
    """Takes one step after the other, until no task of any list is left."""

    def __init__(self, service, lists, number, seed):
        super().__init__(daemon=True)
        self.service, self.lists, self.number = service, lists, number
        self.chance = random.Random(f"{seed} worker {number}")
        self.accepted, self.unknown = [], set()  # ((list, task), request); requests
        self.samples = []  # as JMeter would write them
        self.steps, self.done, self.seen, self.error = 0, 0, collections.Counter(), None
        self.start()

    def run(self):
        try:
            for name in self.lists:
                while self.step(name) != "all-done":
                    pass
        except BaseException as error:  # told by judge()
            self.error = error

    def step(self, name):
        """How it ended."""
        self.steps += 1
        request, began_ns = f"w{self.number}-{self.steps}", time.time_ns()
        try:
            reply = self.service.any(self.chance).ask("POST", f"/lists/{name}/work", headers={"X-Request-Id": request})
        except LOST as error:
            self.sample(name, request, began_ns, f"Non HTTP response code: {type(error).__name__}")
            if isinstance(error, ConnectionRefusedError):
                return self.pause("refused")
            self.unknown.add(request)
            return self.pause("lost")
        self.sample(name, request, began_ns, reply.status, reply.json)
        if reply.status == 200:
            self.accepted.append(((name, reply.json["task"]), request))
            self.done += 1
            self.seen["accepted"] += 1
            return "accepted"
        problem = reply.problem
        if problem == "outcome-unknown":
            self.unknown.add(request)
        assert reply.status in (409, 503) or problem == "outcome-unknown", reply
        return self.pause(problem)

    def sample(self, name, request, began_ns, code, answer=None):
        done = code == 200
        self.samples.append(dict(
            timeStamp=began_ns // 10**6, elapsed=time.time_ns() // 10**6 - began_ns // 10**6, label="POST work", responseCode=code,
            threadName=f"w{self.number}", success=str(done).lower(), URL=f"http://127.0.0.1/lists/{name}/work", request=request,
            item=name if done else "", instance=answer["instance"] if done else "", task=answer["task"] if done else ""))

    def pause(self, why):
        self.seen[why] += 1
        time.sleep(self.chance.random() / 50)
        return why


def judge(workers, results, members, wanted, recorded):
    """results: task -> request, as Redis has them; members: tasks without a result; wanted: all that were laid; recorded: how
    many results of each task the histories have."""
    faults = [f"a worker: {worker.error!r}" for worker in workers if worker.error]
    accepted, unknown = collections.defaultdict(list), set()
    for worker in workers:
        unknown |= worker.unknown
        for task, request in worker.accepted:
            accepted[task].append(request)
    twice = {task: requests for task, requests in accepted.items() if len(requests) > 1}
    if twice:
        faults.append(f"accepted twice: {twice}")
    if any(count > 1 for count in recorded.values()):
        faults.append(f"recorded twice: {sorted(task for task, count in recorded.items() if count > 1)}")
    if lost := sorted(wanted - set(results) - members):
        faults.append(f"lost: {lost}")
    if left := sorted(members):
        faults.append(f"not done: {left}")
    if strange := sorted((set(results) | set(accepted) | members) - wanted):
        faults.append(f"no such tasks: {strange}")
    for task in sorted(wanted & set(results)):
        if task in accepted and results[task] not in accepted[task]:
            faults.append(f"task {task}: {accepted[task]} was told that it is done, the result is {results[task]}'s")
        if task not in accepted and results[task] not in unknown:
            faults.append(f"task {task}: the result is {results[task]}'s, who was not told so")
    if vanished := sorted(set(accepted) - set(results)):
        faults.append(f"told done, and without a result: {vanished}")
    return faults


def recorded_results(folder):
    return collections.Counter((event["item"], event["task"]) for name in "ab"
                               for event in read_history(os.path.join(folder, f"history-{name}.jsonl"))
                               if event["event"] == "result")


def stored(redis, lists):
    """Which request made each task's result; and the tasks that have none and are still in their list."""
    results, members = {}, set()
    for name in lists:
        pairs = redis("HGETALL", "tasks:{%s}:results" % name)
        results.update({(name, int(task)): request for task, request in zip(pairs[::2], pairs[1::2])})
        members |= {(name, int(task)) for task in redis("ZRANGE", "tasks:{%s}" % name, 0, -1)}
    return results, members


def side(redis, lists):
    """A moment of redis.json."""
    tasks, locks = {}, {}
    seconds, micros = redis("TIME")
    now_ms = int(seconds) * 1000 + int(micros) // 1000
    for name, count in lists.items():
        key, lock = "tasks:{%s}" % name, "lock:{%s}" % name
        done = {int(task) for task in redis("HKEYS", key + ":results")}
        missing = [task for task in range(1, count + 1) if task not in done]
        open_ = redis("ZCOUNT", key, "-inf", now_ms)
        tasks[name] = {"open": open_, "leased": redis("ZCARD", key) - open_, "done": len(done),
                       "missing": missing[:1000], "missing_count": len(missing)}
        locks[name] = {"type": redis("TYPE", lock), "pttl_ms": redis("PTTL", lock)}
    return {"tasks": tasks, "locks": locks}


def write_records(folder, setting, lists, workers, before, after):
    """What the judge reads beside the histories."""
    flags = dict(zip(SETTINGS[setting][0][::2], SETTINGS[setting][0][1::2]))
    samples = sorted((sample for worker in workers for sample in worker.samples), key=lambda sample: sample["timeStamp"])
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot_id = file.read().strip()
    clock = {"boot_id": boot_id, "clock": "CLOCK_REALTIME", "time_namespace": os.readlink("/proc/self/ns/time"), "slack_ms": 5}
    about = {"service": "tasks", "run": "kills", "rung": flags["--lock"], "fault": "killed", "instances": ["a", "b"], "workers": 16,
             "ttl_ms": TTL_MS, "wait_ms": 20000, "task_ms": TASK_MS, "lease_ms": flags.get("--lease-ms", 0),
             "result": flags.get("--result", "plain"), "items": lists, "requests": len(samples), "min_share": 0, "direct": True,
             "expect": None, "clients": clock}
    for name, content in (("run.json", about), ("redis.json", {"before": before, "after": after})):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(content, file)
    with open(os.path.join(folder, "load.jtl"), "w", encoding="utf-8", newline="") as file:
        lines = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        lines.writeheader()
        lines.writerows(samples)


def audited(auditor, folder):
    """The judge's verdict."""
    done = subprocess.run([auditor, folder], capture_output=True, text=True, check=False)
    try:
        with open(os.path.join(folder, "verdict.json"), encoding="utf-8") as file:
            return json.load(file)
    except OSError:
        return {"result": done.stderr}


def run(folder, setting, tasks, seed, every=100, kill_redis=True, auditor=None):
    """The faults that were found, and what was counted. every: how many results come between two harms, about."""
    chance = random.Random(f"{seed} kills")
    flags, kinds = SETTINGS[setting]
    if kill_redis and setting in ("fenced", "plain"):
        kinds += ("redis",)
    if auditor:  # a frozen instance looks like a machine that stood still, which proves nothing
        kinds = tuple(kind for kind in kinds if kind != "freeze")
    redis = Redis(os.path.join(folder, "redis"), *SAFE)
    counts, service = collections.Counter(), None
    try:
        service = Killed(folder, redis, (*flags, "--run", "kills", "--enable-failpoints", "--task-ms", TASK_MS, "--ttl-ms", TTL_MS,
                                         "--retry-ms", 2, "--redis-timeout-ms", 500), POINTS)
        lists = {f"jobs-{number}": min(LIST_TASKS, tasks - first) for number, first in enumerate(range(0, tasks, LIST_TASKS))}
        for name, count in lists.items():
            assert service.instances["a"].admin("PUT", f"/lists/{name}", '{"tasks":%d}' % count).status == 200
        before = side(redis, lists)
        workers = [Worker(service, lists, number, seed) for number in range(WORKERS)]
        next_harm = every
        while any(worker.is_alive() for worker in workers):
            wait_until(lambda: sum(worker.done for worker in workers) >= next_harm or service.has_dead()
                       or not any(worker.is_alive() for worker in workers), "workers go on")
            counts["died at a point"] += service.restart_dead()
            if sum(worker.done for worker in workers) >= next_harm:
                counts[service.hurt(chance, kinds)] += 1
                next_harm += chance.randint(1, 2 * every)
        counts["died at a point"] += service.restart_dead()
        for worker in workers:
            counts.update(worker.seen)
        for instance in service.instances.values():
            counts["taken over"] += int(instance.metric("tasks_taken_over_total"))  # since its last start
            instance.end()
        wanted = {(name, task) for name, count in lists.items() for task in range(1, count + 1)}
        faults = judge(workers, *stored(redis, lists), wanted, recorded_results(folder))
        if auditor:
            write_records(folder, setting, lists, workers, before, side(redis, lists))
            verdict = audited(auditor, folder)
            counts[" ".join(["audited", verdict["result"], *verdict.get("reasons", [])])] += 1
            if verdict["result"] not in ("ok", "inconclusive"):  # the machine may have stood still
                faults.append(f"ladder-audit: {json.dumps(verdict)[:2000]}")
        return faults, dict(counts)
    finally:
        for instance in service.instances.values() if service else ():
            instance.kill()
        redis.kill()


def main():
    parser = argparse.ArgumentParser(description=" ".join(__doc__.split("\n\n")[0].split()))
    parser.add_argument("--tasks", type=int, default=10000)
    parser.add_argument("--setting", action="append", choices=SETTINGS, help="only this one; may be given several times")
    parser.add_argument("--seed", type=int, action="append", help="may be given several times")
    parser.add_argument("--spare-redis", action="store_true", help="do not kill Redis")
    parser.add_argument("--audit", metavar="LADDER-AUDIT", help="let this judge look at the records, too")
    arguments = parser.parse_args()
    os.environ["INVENTORYD"] = os.environ["TASKSD"]
    failed = False
    for seed in arguments.seed or [1]:
        for setting in arguments.setting or ("fenced", "plain"):
            with tempfile.TemporaryDirectory(prefix="tasks-") as folder:
                faults, counts = run(folder, setting, arguments.tasks, seed, kill_redis=not arguments.spare_redis,
                                     auditor=arguments.audit)
            print(f"seed {seed}, {setting}: {counts}", *faults, sep="\n", flush=True)
            failed = failed or bool(faults)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
