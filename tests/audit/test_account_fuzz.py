# SPDX-License-Identifier: Apache-2.0
"""Lines of the records of accounts are lost, doubled, cut or changed. A good run is never accused for that. What is lost of a
bad one never makes it a good one."""
import json
import os
import random
import tempfile

import account
import test_account_bruteforce
from judge import FOLDERS, SEEDS, audit, verdict_of

EVENTS = ["invoke", "read", "writing", "wrote", "write_refused", "wants", "answered", "granted", "enter", "exit", "release", "refused",
          "fail", "unknown", "looked", "filled", "write", "restock", "stall", "end", "begin"]
TEXTS = ["", "a", "acc-0", "acc-1", "add", "transfer", "look", "none:1#1", None, True, [], {}]
NUMBERS = [-1, 0, 1, 2, 4, 99, 2**53, 1.5]
TRUE_OTHERWISE = {"t_ns", "sent_ns", "clock_ns_realtime", "token"}  # nothing else tells the time or the token of that line


def changed(line, rand):
    """The same line with another value in one field, or without it."""
    try:
        fields = json.loads(line)
    except ValueError:
        return line
    name = rand.choice(sorted(set(fields) - TRUE_OTHERWISE) or ["t_ns"])
    how = rand.randrange(3)
    if how == 0:
        del fields[name]
    elif how == 1 and "event" in fields:
        fields["event"] = rand.choice(EVENTS)
    else:
        fields[name] = rand.choice(NUMBERS if isinstance(fields[name], int) else TEXTS)
    return json.dumps(fields)


def damage(files, rand, lost_only):
    name = rand.choice(sorted(file for file in files if file.endswith((".jsonl", ".jtl", ".log"))))
    lines = files[name].split("\n")
    at, how = rand.randrange(len(lines)), 0 if lost_only else rand.randrange(5)
    if how == 0:
        del lines[at]
    elif how == 1:
        lines.insert(at, rand.choice(lines))
    elif how == 2:
        lines[at] = lines[at][:rand.randrange(len(lines[at]) + 1)]
    elif not name.endswith(".jtl"):
        lines[at] = changed(lines[at], rand)
    files[name] = "\n".join(lines)


def judged(make, first, count, lost_only):
    """(seed, verdict) of so many damaged runs."""
    with tempfile.TemporaryDirectory(prefix="ladder-audit-", dir=FOLDERS) as root:
        folders = []
        for seed in range(first, first + count):
            rand = random.Random(seed)
            files = make(seed).files()
            for _ in range(rand.randint(1, 3)):
                damage(files, rand, lost_only)
            folder = os.path.join(root, str(seed))
            os.makedirs(folder)
            for name, text in files.items():
                with open(os.path.join(folder, name), "w", encoding="utf-8", newline="") as file:
                    file.write(text)
            folders.append(folder)
        done = audit(*folders)
        assert done.returncode in (0, 1, 2) and done.stderr == "", done.stderr
        return [(seed, verdict_of(folder)) for seed, folder in zip(range(first, first + count), folders)]


def good(seed):
    """Of a killed instance the last lines may be lost, and nothing shows it; so none is killed."""
    return account.clean(seed, died=False, fault="none")


def test_a_good_run_is_never_accused():
    for first in range(0, 10 * SEEDS, 100):
        for seed, verdict in judged(good, first, 100, False):
            assert verdict["result"] in ("ok", "inconclusive"), (seed, verdict["reasons"])


def test_what_is_lost_excuses_nobody():
    def bad(seed):
        world = test_account_bruteforce.played(seed)
        return world if test_account_bruteforce.look(world)[0] != "ok" else bad(seed + 100_003)
    for first in range(0, 5 * SEEDS, 100):
        for seed, verdict in judged(bad, first, 100, True):
            assert verdict["result"] != "ok", (seed, verdict["reasons"])
