# SPDX-License-Identifier: Apache-2.0
"""Idempotency keys in records that contradict each other."""
import shutil
import subprocess
import sys

import pytest
from judge import JUDGE, SEEDS, judge
from keyed import a_sale, end_of, keyed, replay, sort


def test_another_key_without_the_item_is_another_one():
    world = client_has_another_key(keyed(1))
    world.columns = [column for column in world.columns if column != "URL"]
    with judge({0: world}) as verdicts:
        assert "has another idempotency key than in sale.jtl" in "\n".join(verdicts[0][0]["reasons"])


def accepted_again(world, request, key, instance):
    """One request id comes twice, and is sold to twice; the stock is enough."""
    before, now = world.stock[request["item"]], end_of(world)
    if before < request["quantity"]:
        return None
    world.about({**request, "instance": instance}, now, "invoke", quantity=request["quantity"], key=key)
    section = world.section({**request, "instance": instance}, (now + 1, now + 2))
    world.sell(section, now + 3, now + 4, before)
    world.samples.pop()
    world.passed.pop()
    world.leave(section, now + 5, now + 6)
    world.stock[request["item"]] -= request["quantity"]
    world.redis["after"]["stock"] = dict(world.stock)
    return sort(world)


@pytest.mark.parametrize("instance", ["a", "b"])
def test_an_id_that_comes_twice(instance):
    """With one key it is one buyer, who was sold to twice. With two keys it may be two buyers, and nobody knows whose
    sale is whose."""
    def make(seed, key=None):
        world = keyed(seed, items={"phone": 99}, instances=["a", "b"], quantities=False, requests=8)
        request = next(r for r in world.requests if r["instance"] == "a")
        return accepted_again(world, request, key or request["key"], instance)
    worlds = {(seed, key): make(seed, key) for seed in range(SEEDS // 10) for key in (None, "other", "key1-x")}
    with judge({f"{seed}-{key}": world for (seed, key), world in worlds.items()}) as verdicts:
        for name, (verdict, folder) in verdicts.items():
            told = "\n".join(verdict["reasons"])
            assert "was accepted twice" in told, (folder, told)
            assert ("units sold again" in told) == name.endswith("None"), (folder, told)
            assert ("another idempotency key" in told) != name.endswith("None"), (folder, told)
            assert verdict["result"] == ("oversold" if name.endswith("None") else "inconclusive"), (folder, told)


# In a process of its own: the greatest size of a child begins with that of its parent, which is large here.
MEASURED = """import resource, subprocess, sys
print(subprocess.run(sys.argv[1:], capture_output=True, encoding="utf-8").stdout)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"""


def test_keys_of_one_request_take_no_memory(tmp_path):
    """However often its line comes, and with whatever keys, it is one request."""
    lines, took = 120_000, {}
    for name in ("one key", "many keys"):
        world = keyed(1)
        request, now = world.requests[0], end_of(world)
        for i in range(lines):
            key = f"{i if name == 'many keys' else 0:0160d}"
            world.about(request, now, "invoke", quantity=request["quantity"], key=key)
        folder = world.write(str(tmp_path / name))
        told = subprocess.run([sys.executable, "-c", MEASURED, JUDGE, folder], capture_output=True, check=True,
                              encoding="utf-8").stdout
        shutil.rmtree(folder)
        assert "was accepted twice" in told, told
        took[name] = int(told.split()[-1])
    assert took["many keys"] - took["one key"] < 4096, took  # KiB; the keys are 18 MiB


def without_a_key(world):
    request = a_sale(world)
    if request is None:
        return None
    replay(world, request)
    for sample in world.samples[-1:]:
        sample["key"] = ""
    del world.requests[-1]["invoke"]["key"]
    return world


def of_another_hold(world):
    request = a_sale(world)
    if request is None:
        return None
    replay(world, request)
    world.requests[-1]["outcome"]["hold"] = next(s["hold"] for s in world.sections if s["request"] is request)
    return world


def client_was_not_told_so(world):
    request = a_sale(world)
    if request is None:
        return None
    replay(world, request)
    world.samples[-1]["replayed"] = ""
    return world


def client_was_told_so_of_a_sale(world):
    request = a_sale(world)
    if request:
        world.sample_of(request)["replayed"] = "true"
    return request and world


def client_was_told_other_numbers(world):
    request = a_sale(world)
    if request is None:
        return None
    replay(world, request)
    world.samples[-1]["left"] += 1
    return world


def client_has_another_key(world):
    request = world.random.choice(world.requests)
    world.sample_of(request)["key"] = "other"
    return world


def client_was_told_of_another(column):
    def told_of(world):
        request = a_sale(world)
        if request is None:
            return None
        replay(world, request)
        world.samples[-1][column] = "nobody"
        return world
    told_of.__name__ = "client_was_told_of_another_" + column
    return told_of


@pytest.mark.parametrize("change,reason", [
    (client_was_told_of_another("item"), "the stored answer is a sale of another item"),
    (client_was_told_of_another("instance"), "an instance that neither sold nor answered"),
    (without_a_key, "was not granted to that request, or without a key"),
    (of_another_hold, "was not granted to that request, or without a key"),
    (client_was_not_told_so, "differ on whether the answer is a stored one"),
    (client_was_told_so_of_a_sale, "differ on whether the answer is a stored one"),
    (client_was_told_other_numbers, "the stored answer has other numbers"),
    (client_has_another_key, "has another idempotency key than in sale.jtl")],
    ids=lambda value: getattr(value, "__name__", None))
def test_records_that_contradict_each_other(change, reason):
    worlds = {seed: world for seed in range(SEEDS // 4) if (world := change(keyed(seed)))}
    assert worlds
    with judge(worlds) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            assert verdict["result"] == "inconclusive", (seed, folder, verdict["reasons"])
            assert reason in "\n".join(verdict["reasons"]), (seed, folder, verdict["reasons"])
