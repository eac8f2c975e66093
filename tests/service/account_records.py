# SPDX-License-Identifier: Apache-2.0
"""The records of a load on accounts beside its histories, as the judge reads them (docs/reference/run.md)."""
import csv
import json
import os
import pathlib
import subprocess
import time

COLUMNS = ("timeStamp", "elapsed", "label", "responseCode", "success", "failureMessage", "URL", "request", "item", "instance", "version")


class Sampler:
    """What one client sent, and what came back."""

    def __init__(self):
        self.rows = []

    def begin(self):
        self.began_s = time.time()

    def end(self, path, request, status, answer):
        """status 502: no answer came."""
        told = [answer["account"], answer["instance"], answer["version"]] if status == 200 else ["", "", ""]
        self.rows.append([round(self.began_s * 1000), round((time.time() - self.began_s) * 1000), "POST transfer", status,
                          "true" if status == 200 else "false", "", "http://127.0.0.1" + path, request, *told])


def moment(redis, accounts):
    """For redis.json."""
    return {"accounts": {name: {"balance": balance, "version": version} for name, (balance, version) in accounts.items()},
            "locks": {name: {"type": redis("TYPE", "lock:{%s}" % name), "pttl_ms": redis("PTTL", "lock:{%s}" % name)}
                      for name in accounts}}


def write_records(folder, run, before, after, samplers):
    """run: further members of run.json."""
    rows = sorted(row for sampler in samplers for row in sampler.rows)
    clients = {"boot_id": pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip(), "clock": "CLOCK_REALTIME",
               "time_namespace": os.readlink("/proc/self/ns/time"), "slack_ms": 5}
    run = {"service": "account", "instances": ["a", "b"], "direct": True, "requests": len(rows), "min_share": 0, "expect": None,
           "clients": clients, "items": {name: account["balance"] for name, account in before["accounts"].items()}, **run}
    for name, value in ("run.json", run), ("redis.json", {"before": before, "after": after}):
        pathlib.Path(folder, name).write_text(json.dumps(value))
    with open(os.path.join(folder, "load.jtl"), "w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])


def judged(judge, folder):
    """What the judge finds wrong; and its verdict."""
    done = subprocess.run([judge, folder], capture_output=True, text=True, check=False)
    verdict = json.loads(pathlib.Path(folder, "verdict.json").read_text())
    return [] if verdict["result"] == "ok" else [f"the judge: {done.stdout}{done.stderr}"], verdict
