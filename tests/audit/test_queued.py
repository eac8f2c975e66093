# SPDX-License-Identifier: Apache-2.0
"""--on-conflict queue: the judge knows its events. A sale that was accepted, and tried again, ends as any other one."""
import shop
from judge import SEEDS, judge
from keyed import keyed, replay


def insert(world, before, event, **fields):
    """A line of the same request, right before that line."""
    line = {name: value for name, value in before.items() if name not in ("hold", "mode", "owner", "token", "waited_ns")}
    lines = world.events[before["instance"]]
    lines.insert(next(i for i, other in enumerate(lines) if other is before), {**line, "event": event, **fields})


def test_accepted_and_requeued_are_no_ends():
    worlds = {}
    for seed in range(SEEDS):
        world = shop.clean(seed, unknowns=0, write="atomic", rung="watchdog", instances=["a", "b"])
        for section in world.sections:
            if "write" in section:
                insert(world, section["granted"], "accepted", code=202, id="phone." + 32 * "0")
                for _ in range(world.random.randint(0, 2)):
                    insert(world, section["granted"], "requeued", code=503, reason="lock-timeout")
        worlds[seed] = world
    with judge(worlds) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            assert verdict["result"] == "ok" and verdict["agrees"], (seed, folder, verdict["reasons"])


def test_a_stored_answer_is_given_without_a_lock():
    """Where there is a queue, what is stored under a key is looked at before any lock."""
    worlds = {}
    for seed in range(SEEDS):
        world = keyed(seed, rung="watchdog", instances=["a", "b"])
        sold = [section["request"] for section in world.sections if "write" in section]
        if not sold:
            continue
        replay(world, world.random.choice(sold))
        for lines in world.events.values():
            holds = [line["hold"] for line in lines if line["event"] == "replay"]
            lines[:] = [line for line in lines if line["event"] == "replay" or line.get("hold") not in holds]
            for line in lines:
                if line["event"] == "replay":
                    del line["hold"]
        worlds[seed] = world
    with judge(worlds) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            assert verdict["result"] == "ok" and verdict["replayed"] == 1, (seed, folder, verdict["reasons"])
