# SPDX-License-Identifier: Apache-2.0
"""Loses, doubles, cuts or changes lines of a run's records, and lets the judge read what is left."""
import collections
import json
import os
import random
import tempfile

from judge import FOLDERS, audit, verdict_of

# What a changed line may get. true_otherwise: fields that are never changed, since another value may be a true one.
Words = collections.namedtuple("Words", "events texts numbers true_otherwise")


def changed(line, rand, words):
    """The same line with another value in one field, or without it."""
    try:
        fields = json.loads(line)
    except ValueError:
        return line
    name = rand.choice(sorted(set(fields) - words.true_otherwise) or ["t_ns"])
    how = rand.randrange(3)
    if how == 0:
        del fields[name]
    elif how == 1 and "event" in fields:
        fields["event"] = rand.choice(words.events)
    else:
        fields[name] = rand.choice(words.numbers if isinstance(fields[name], int) else words.texts)
    return json.dumps(fields)


def damage(files, rand, lost_only, words):
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
        lines[at] = changed(lines[at], rand, words)
    files[name] = "\n".join(lines)


def judged(make, first, lost_only, words, count=100):
    """(seed, verdict) of so many damaged runs."""
    with tempfile.TemporaryDirectory(prefix="ladder-audit-", dir=FOLDERS) as root:
        folders = []
        for seed in range(first, first + count):
            rand = random.Random(seed)
            files = make(seed).files()
            for _ in range(rand.randint(1, 3)):
                damage(files, rand, lost_only, words)
            folder = os.path.join(root, str(seed))
            os.makedirs(folder)
            for name, text in files.items():
                with open(os.path.join(folder, name), "w", encoding="utf-8", newline="") as file:
                    file.write(text)
            folders.append(folder)
        done = audit(*folders)
        assert done.returncode in (0, 1, 2) and done.stderr == "", done.stderr
        return [(seed, verdict_of(folder)) for seed, folder in zip(range(first, first + count), folders)]
