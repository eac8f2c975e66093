# SPDX-License-Identifier: Apache-2.0
"""--write cas: a section whose stock has changed since it read it reads again."""
import pytest
import shop
from judge import SEEDS, judge


def sold(seed):
    """A correct run, and the sections that sold."""
    world = shop.clean(seed, unknowns=0, write="cas", rung="watchdog", instances=["a", "b"])
    return world, [section for section in world.sections if "write" in section]


def insert(world, before, event, **fields):
    """A line of the same section, right before that line."""
    line = {**before, "event": event, **fields}
    lines = world.events[before["instance"]]
    lines.insert(next(i for i, other in enumerate(lines) if other is before), line)
    return line


def reads_twice(world, section, stock):
    insert(world, section["read"], "read", stock_before=stock)
    insert(world, section["read"], "abort")


def test_what_was_read_before_an_abort_counts_for_nothing():
    worlds = {}
    for seed in range(SEEDS):
        world, sections = sold(seed)
        for section in sections:
            for _ in range(world.random.randint(0, 2)):
                reads_twice(world, section, world.random.randint(-5, 50))
        worlds[seed] = world
    with judge(worlds) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            assert verdict["result"] == "ok" and verdict["agrees"], (seed, folder, verdict["reasons"])


def of_nothing(world, section):
    insert(world, section["read"], "abort")


def after_the_sale(world, section):
    insert(world, section["exit"], "abort")


def of_another_hold(world, section):
    insert(world, section["write"], "abort", hold=section["hold"] + "9")


def and_no_second_read(world, section):
    insert(world, section["write"], "abort")


@pytest.mark.parametrize("abort, reason", [
    (of_nothing, "has not read the stock"), (after_the_sale, "has not read the stock"),
    (of_another_hold, "has not read the stock"), (and_no_second_read, "write")])
def test_an_abort_follows_a_read_and_another_read_follows_it(abort, reason):
    worlds = {}
    for seed in range(min(SEEDS, 40)):
        world, sections = sold(seed)
        if sections:
            abort(world, sections[0])
            worlds[seed] = world
    with judge(worlds) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            assert verdict["result"] == "inconclusive", (seed, folder, verdict["reasons"])
            assert any(reason in text for text in verdict["reasons"]), (seed, folder, verdict["reasons"])
