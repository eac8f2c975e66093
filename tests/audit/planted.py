# SPDX-License-Identifier: Apache-2.0
"""Plants a fault into a clean world, and sees that it is found.

A planter takes a clean world, changes one thing, and returns the changed world, or None where that
seed has nothing to plant it into; then the next seed is tried, so that SEEDS worlds are judged."""
import collections
import re

import pytest
import shop
from judge import SEEDS, judge

PLANTERS = collections.defaultdict(list)  # by the file in which they stand


def plant(result, reason, agrees=None, **kwargs):
    """Registers a planter: what the judge must conclude, and a pattern that a reason must match."""
    def register(function):
        def make(seed):
            world = shop.clean(seed, **{"unknowns": 0, **kwargs})
            return world if function(world, world.random) else None
        PLANTERS[function.__module__].append(pytest.param(make, result, reason, agrees, id=function.__name__))
        return function
    return register


def pick(world, sections):
    return world.random.choice(sections) if sections else None


def drop(world, *lines):
    for line in lines:
        world.remove(line)


def worlds_of(make, count, tries=40):
    """So many worlds, by seed, into which something can be planted: at least one of so many tries."""
    worlds, seed = {}, 0
    while len(worlds) < count:
        assert seed < tries * count, "nothing can be planted into such worlds"
        world = make(seed)
        if world:
            worlds[seed] = world
        seed += 1
    return worlds


def check_found(make, result, reason, agrees, count=SEEDS):
    """It is found in so many worlds, of those in which it can be planted."""
    worlds = worlds_of(make, count, tries=20)
    with judge(worlds) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            assert verdict["result"] == result, (seed, folder, verdict["reasons"])
            assert any(re.search(reason, text) for text in verdict["reasons"]), \
                (seed, folder, verdict["reasons"])
            assert verdict["agrees"] == (result in verdict["expected"])
            if agrees is not None:
                assert verdict["agrees"] == agrees
