# SPDX-License-Identifier: Apache-2.0
"""Histories whose file was moved away while the instance sold: the parts are read as one."""
import json
import os
import re

import pytest
import shop
from judge import SEEDS, judge
from shop import MS
from test_clean import killed_in_the_section
from test_evidence import clean

NAMES = [["history-a.1.jsonl", "history-a.jsonl"], ["history-a.jsonl.1", "history-a.jsonl"],
         ["history-a.jsonl-20260101", "history-a.jsonl"], ["history-z.jsonl", "history-a.jsonl"]]


def begin_of(first, t_ns, part):
    return {**first, "t_ns": t_ns, "clock_ns_realtime": first["clock_ns_realtime"] + t_ns - first["t_ns"], "part": part}


def parts_of(lines, cuts):
    """The lines of one life of an instance as those of several files: cut in front of these lines."""
    bounds = [0, *sorted(cuts), len(lines)]
    parts = [lines[a:b] for a, b in zip(bounds, bounds[1:])]
    for i in range(1, len(parts)):
        parts[i].insert(0, begin_of(parts[0][0], parts[i][0]["t_ns"], i + 1))
        parts[i - 1].append({"t_ns": parts[i - 1][-1]["t_ns"], "instance": lines[0]["instance"], "event": "end", "continued": True})
    return [[{**line, "seq": i + 1} for i, line in enumerate(part)] for part in parts]


class Rotated:
    """A world with the history of one instance in several files."""

    def __init__(self, world, instance, cuts, names=None, edit=None):
        self.world, self.instance, self.cuts, self.edit = world, instance, cuts, edit
        self.names = names or [f"history-{instance}.{i}.jsonl" for i in range(len(cuts) + 1)]

    def write(self, folder):
        self.world.write(folder)
        os.remove(os.path.join(folder, f"history-{self.instance}.jsonl"))
        parts = parts_of(self.world.lines(self.instance), self.cuts)
        if self.edit:
            self.edit(parts)
        for name, part in zip(self.names, parts):
            if part:
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write("".join(json.dumps(line) + "\n" for line in part))
        return folder


def any_cuts(world, instance):
    """Anywhere behind the begin, and in front of the end."""
    lines = world.lines(instance)
    return world.random.sample(range(1, len(lines)), min(world.random.randint(1, 3), len(lines) - 1))


def check(worlds, result, sentence=""):
    with judge(worlds) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            told = "\n".join(verdict["reasons"])
            assert verdict["result"] == result and re.search(sentence, told), (seed, folder, told)


@pytest.mark.parametrize("make", [clean, killed_in_the_section])
def test_the_parts_are_one(make):
    """Wherever it was cut, in the middle of a hold or of a request too; b of the second was killed in its last part."""
    worlds = {}
    for seed in range(SEEDS):
        world = make(seed)
        instance = "ab"[seed % 2]
        cuts = any_cuts(world, instance)
        names = [f"history-{name}.jsonl" for name in world.random.sample("cdefgh", len(cuts) + 1)] if seed % 2 else None
        worlds[seed] = Rotated(world, instance, cuts, names)
    check(worlds, "ok")


@pytest.mark.parametrize("names", NAMES, ids=lambda names: names[0])
def test_the_names_that_are_taken(names):
    world = clean()
    check({0: Rotated(world, "a", [len(world.lines("a")) // 2], names)}, "ok")


@pytest.mark.parametrize("name", ["history-a.jsonl.gz", "history-a.jsonl~", "history-a.jsonl.1x", "history-.jsonl1", "history-1"])
def test_names_that_are_not(name):
    world = clean()
    check({0: Rotated(world, "a", [len(world.lines("a")) // 2], [name, "history-a.jsonl"])}, "inconclusive",
          "part 2 of a history, and no file ends with its part 1")


@pytest.mark.parametrize("missing, sentence", [
    (0, "part 2 of a history, and no file ends with its part 1"), (1, "part 3 of a history, and no file ends with its part 2"),
    (2, "its part 2 continues in a file that is missing")])
def test_a_part_that_is_missing(missing, sentence):
    """Were it not told, the sales in it would be missing, too."""
    worlds = {}
    for seed in range(SEEDS // 4):
        world = clean(seed)
        third = len(world.lines("a")) // 3
        worlds[seed] = Rotated(world, "a", [third, 2 * third], edit=lambda parts: parts[missing].clear())
    check(worlds, "inconclusive", sentence)


@pytest.mark.parametrize("change", [{"pid": 2}, {"part": 3}, {"boot_id": "another"},
                                    {"time_namespace": "another"}], ids=lambda change: next(iter(change)))
def test_a_part_of_another_life(change):
    def edit(parts):
        parts[1][0].update(change)
    world = clean()
    check({0: Rotated(world, "a", [len(world.lines("a")) // 2], edit=edit)}, "inconclusive", "of a history, and no file ends with its part")


@pytest.mark.parametrize("part", [1, 2])
@pytest.mark.parametrize("by_ns", [200_000, -200_000, 60_000 * MS])
def test_a_clock_that_was_set_between_the_parts(part, by_ns):
    """It is told, and nothing else is wrong: no part is called missing."""
    def edit(parts):
        for later in parts[part:]:
            later[0]["clock_ns_realtime"] += by_ns
    worlds = {}
    for seed in range(SEEDS // 4):
        world = clean(seed)
        third = len(world.lines("a")) // 3
        worlds[seed] = Rotated(world, "a", [third, 2 * third], edit=edit)
    with judge(worlds) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            reasons = [reason for reason in verdict["reasons"] if not reason.startswith("history-a.")]
            told = [reason for reason in verdict["reasons"] if reason.startswith("history-a.")]
            assert verdict["result"] == "inconclusive" and not reasons and len(told) == 3 - part, (seed, folder, verdict["reasons"])
            sentence = rf"history-a\.\d\.jsonl line 1: the times of part \d are {-by_ns / MS:.3f} ms off those of the first part, history-a\.0"
            assert all(re.match(sentence, reason) for reason in told), (seed, folder, told)


@pytest.mark.parametrize("by_ns", [MS, -MS, 60_000 * MS])
def test_a_part_that_was_moved_in_time_proves_no_overlap(by_ns):
    def edit(parts):
        for line in parts[1]:
            line["t_ns"] += by_ns
    worlds = {}
    for seed in range(SEEDS // 4):
        world = clean(seed)
        world.cover()
        world.covers = False
        worlds[seed] = Rotated(world, "a", [len(world.lines("a")) // 2], edit=edit)
    check(worlds, "inconclusive")


def test_what_is_lost_in_one_part_is_lost():
    def edit(parts):
        del parts[1][len(parts[1]) // 2]
    world = clean()
    check({0: Rotated(world, "a", [len(world.lines("a")) // 2], edit=edit)}, "inconclusive", "lines are missing")


def test_an_overlap_across_the_parts():
    """One was inside when the file was moved away, and left when another one was inside as well."""
    world = shop.World(1)
    shop.start(world, rung="local", instances=["a", "b"], items={"phone": 9}, expect=["overlap"])
    one, two = (world.request("phone", name, world.t0) for name in "ab")
    first = world.section(one, (world.t0 + 10, world.t0 + 20))
    second = world.section(two, (world.t0 + 30, world.t0 + 40))
    world.sell(first, world.t0 + 25, world.t0 + 50, 9)
    world.sell(second, world.t0 + 60, world.t0 + 70, 8)
    world.leave(first, world.t0 + 80, world.t0 + 90)
    world.leave(second, world.t0 + 100, world.t0 + 110)
    world.stock["phone"] = 7
    shop.finish(world)
    cut = next(i for i, line in enumerate(world.lines("a")) if line["event"] == "write")
    check({0: Rotated(world, "a", [cut])}, "overlap", "sections that began while another")
