# SPDX-License-Identifier: Apache-2.0
"""Runs whose verdict is known: made from a seed, or recorded from real processes."""
import dataclasses
import json
import pathlib

import shop
import simulate
import test_bruteforce
import test_clean
import test_faults
import test_fenced
import test_planted
import test_restocks
import test_rotated
from planted import PLANTERS
from segments import Shop

FAULTS = ("oversold", "overlap", "undersold", "deadlock")


@dataclasses.dataclass
class Base:
    """files: the run folder's, as text by name. truth: the right result."""
    name: str
    files: dict
    truth: str

    @property
    def is_bad(self):
        return self.truth != "ok"


# ---- Made from a seed ----------------------------------------------------------------------------
def simulated(seed):
    rung, write = [("none", "set"), ("local", "set"), ("local", "decr"), ("none", "decr"),
                   ("watchdog", "set")][seed % 5]
    return simulate.simulate(seed, 20, rung=rung, write=write, instances=["a", "b"],
                             items={"phone": [12, 30][seed % 2]})


def on_a_rung(seed):
    """A correct run of each rung in turn; the fences are two of them."""
    if seed % 9 == 0:
        return shop.clean(seed, tokens=True, rung="fair", write=["fenced", "fenced_textbook"][seed % 2])
    return shop.clean(seed, rung=shop.RUNGS[seed % len(shop.RUNGS)], readers=0.3 * (seed % 2))


def fenced(seed):
    write, stock, order, lets_in, _, _ = test_fenced.CASES[seed % len(test_fenced.CASES)]
    return test_fenced.overtaken(write, stock, order, lets_in)


def planted(seed):
    """(world, result) of a planter that plants a fault, or None."""
    planters = [param.values for param in PLANTERS[test_planted.__name__]]
    make, result = planters[seed % len(planters)][:2]
    world = make(seed)
    return (world, result) if world else None


def lost_restock(seed):
    """Of a restock only the intent is told; what was sold says whether it was carried out."""
    came = seed % 2 == 0
    return test_restocks.Story().buyers(4).restock(["restock_unknown", "restock_failed"][seed % 4 == 1], came, add=3).buyers(6).end()


def from_nowhere(seed):
    """More came than the restock adds."""
    story = test_restocks.Story().buyers(4).restock("restock_unknown", add=2 + seed % 3)
    story.world.stock["phone"] += 1 + seed % 2
    return story.buyers(12).end()


def segmented(seed):
    """A stock over segments; sometimes a restock lays it over others."""
    shop_of = Shop(seed, **({"segments": 3, "stock": 9} if seed % 3 == 0 else {})).buyers(9)
    if seed % 3 == 0:
        shop_of.switch(2).restock(add=5).buyers(5)
        del shop_of.world.run["segments"]
    return shop_of.end()


def sent_away(seed):
    """Naive segments: a buyer whose segment is empty is told that all is sold."""
    shop_of = Shop(seed, segments=4, stock=13, naive=True).buyers(12, quantity=1)
    return shop_of.end() if any(holds[0]["read"]["all"] > 0 for _, holds in shop_of.refused) else sent_away(seed + 1)


def rotated(files, rand):
    """The same run; the history of an instance was moved away while it sold, once or twice. As they are where it ended more
    than once."""
    name = rand.choice(sorted(file for file in files if file.endswith(".jsonl")))
    lines = [json.loads(line) for line in files[name].splitlines()]
    if sum(line["event"] == "begin" for line in lines) != 1 or len(lines) < 3:
        return files
    parts = test_rotated.parts_of(lines, rand.sample(range(1, len(lines)), min(rand.choice([1, 2]), len(lines) - 1)))
    texts = ["".join(json.dumps(line) + "\n" for line in part) for part in parts]
    stem = name[:-len(".jsonl")]
    moved = {f"{stem}.{number + 1}.jsonl": text for number, text in enumerate(texts[:-1])}
    return {**files, **moved, name: texts[-1]}


LOOKED_AT = [simulated, test_bruteforce.quiet, test_bruteforce.dirty]  # whose truth is worked out
STATED = [(on_a_rung, "ok"), (on_a_rung, "ok"), *((make, "ok") for make in test_clean.NEAR_MISSES),
          (lambda seed: test_faults.left(seed), "deadlock"),
          (lambda seed: test_faults.asks_again(seed, "TIMED_OUT"), "deadlock"),
          (lambda seed: test_faults.asks_again(seed, "OK"), "ok"),
          (lambda seed: test_faults.lost_reply(seed, ("string", -1)), "deadlock"),
          (lost_restock, "ok"), (from_nowhere, "oversold"), (segmented, "ok"), (sent_away, "undersold")]


def made(rand):
    """A base from rand alone: the same each time."""
    while True:
        seed, kind = rand.randrange(1 << 30), rand.randrange(10)
        if kind < 3:
            found = planted(seed)
        elif kind < 4:
            world = fenced(seed)
            found = world, test_fenced.CASES[seed % len(test_fenced.CASES)][4]
        elif kind < 6:
            world = rand.choice(LOOKED_AT)(seed)
            found = world, test_bruteforce.look(world)["result"]
        else:
            make, truth = rand.choice(STATED)
            found = make(seed), truth
        if found:
            files = found[0].files()
            return Base(f"made-{seed}", rotated(files, rand) if rand.random() < 0.2 else files, found[1])


# ---- Recorded ------------------------------------------------------------------------------------
CROWD, STOCK = 6, 8  # sales of each instance; units


def crowd(stage):
    """Two instances, each with some buyers at once."""
    stage.open()
    sales = [stage.instance(name, 30000, "--work-ms", "2") for name in ("a", "b")]
    sales = [instance.sell() for _ in range(CROWD) for instance in sales]
    stage.wait_answered(*sales)


def scenarios():
    """(name, function, rung, settings): a crowd on every rung, and each flaw on the rung that has it and on its cure."""
    import ladder  # pylint: disable=import-outside-toplevel
    from scenarios import shown  # pylint: disable=import-outside-toplevel
    found = [("crowd", crowd, rung, {"stock": STOCK}) for rung in ladder.rungs()]
    for flaw, *names in shown():
        found += [(flaw.name, flaw.run, ladder.find(name), flaw.settings) for name in names if name]
    return found


def record(folder, inventoryd, auditor, tell, wanted=None):
    """Plays each scenario once; what the machine spoils is left out. wanted: (name, rung) pairs; None: all."""
    import matrix  # pylint: disable=import-outside-toplevel
    from stage import Stage  # pylint: disable=import-outside-toplevel
    from waiting import Inconclusive  # pylint: disable=import-outside-toplevel

    def play(scenario):
        name, function, rung, settings = scenario
        settings = {"write": rung.write or "set", **settings}
        try:
            with Stage(rung, name, inventoryd, auditor, folder, **settings) as stage:
                function(stage)
                stage.judge()
        except (Inconclusive, OSError) as why:
            tell(f"{name} on {rung.name}: left out: {why}")
    chosen = [one for one in scenarios() if wanted is None or (one[0], one[2].name) in wanted]
    with matrix.side_by_side(play, chosen, 2) as done:
        list(done)


def recorded(folder):
    """The bases in a folder of runs, sorted by name: those that did what is expected of them. scripts/demo leaves such runs,
    too, with nginx's log."""
    found = []
    for path in sorted(pathlib.Path(folder).glob("*/verdict.json")):
        if path.parent.is_symlink():
            continue
        verdict = json.loads(path.read_text(encoding="utf-8"))
        truth = verdict["result"]
        names = [file for file in path.parent.iterdir()
                 if file.suffix in (".jsonl", ".jtl") or file.name in ("run.json", "redis.json", "nginx.log")]
        files = {file.name: file.read_text(encoding="utf-8") for file in sorted(names)}
        if truth in ("ok", *FAULTS) and (verdict["agrees"] or not verdict["expected"]):
            found.append(Base(json.loads(files["run.json"])["run"], files, truth))
    return found
