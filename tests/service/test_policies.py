# SPDX-License-Identifier: Apache-2.0
"""The table in docs/policies.md: which settings go together. Each pair is tried."""
import json
import os
import pathlib
import subprocess

import pytest

from world import wait_until

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "policies.md"
WRITES = "decr", "set", "atomic", "cas", "fenced"
FLAGS = {"fail": ["--on-conflict", "fail"], "queue": ["--on-conflict", "queue"], "a key": []}
MEMBERS = {"fail": {"on_conflict": "fail"}, "queue": {"on_conflict": "queue"}, "--local-first": {"local_first": True},
           "--admit 1000": {"admit": "1000"}, "--segments 4": {"segments": 4},
           "--guard-reads": {"guard_reads": True}, "--check-hold": {"check_hold": True}}


def table():
    """(one, other, whether they go together) for each cell."""
    rows = [[cell.strip().strip("`") for cell in line.strip("|").split("|")]
            for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    start = next(i for i, row in enumerate(rows) if row[0] == "" and "fail" in row)
    head = rows[start]
    for row in rows[start + 1:]:
        for other, word in zip(head[1:], row[1:]):
            if word:
                yield pytest.param(row[0], other, {"yes": True, "no": False}[word], id=f"{row[0]}+{other}")


def flags_of(name):
    return ["--write", name] if name in WRITES else FLAGS.get(name, name.split())


def members_of(name):
    return {"write": name} if name in WRITES else MEMBERS.get(name)


def word_of(name):
    return name.split()[0].strip("-")


def settings(one, other):
    names = [name for name in (one, other) if name != "a key"]
    flags = [flag for name in names for flag in flags_of(name)]
    if not any(name in WRITES for name in names):
        flags += ["--write", "atomic"]
    return ["--lock", "fair", *flags]


def outcome(shop, answer):
    """The answer of a sale, or, if it was accepted, its outcome."""
    if answer.status != 202:
        return answer
    found = []

    def is_known():
        found[:] = [shop.ask("GET", answer.headers["location"])]
        return found[0].status != 202
    wait_until(is_known, "there is an outcome")
    return found[0]


def test_the_table_has_each_pair_once():
    pairs = [frozenset(param.values[:2]) for param in table()]
    names = {name for pair in pairs for name in pair}
    writes, others = [n for n in names if n in WRITES], [n for n in names if n not in WRITES]
    assert len(pairs) == len(set(pairs)) and sorted(writes) == sorted(WRITES)
    # fail and queue are values of one flag, as the write modes are
    assert len(pairs) == len(writes) * len(others) + len(others) * (len(others) - 1) // 2 - 1


@pytest.mark.parametrize("one, other, together", table())
def test_what_goes_together(redis, start, one, other, together):
    flags, key = settings(one, other), "k1" if "a key" in (one, other) else None
    if not together and key is None:
        ended = subprocess.run([os.environ["INVENTORYD"], "--redis", redis.url, "--listen", "127.0.0.1:0", "--admin-listen",
                                "127.0.0.1:0", *flags], capture_output=True, text=True, timeout=20, check=False)
        assert ended.returncode == 2 and any(word_of(name) in ended.stderr for name in (one, other)), ended.stderr
        shop = start(redis, "--admin-writes", "--lock", "fair", "--write", "atomic")
        body = json.dumps({**members_of(one), **members_of(other)})
        answer = shop.admin("PUT", "/lock", body)
        assert answer.problem == "invalid-value" and word_of(other) in answer.json["detail"], answer
        return
    shop = start(redis, *flags)
    assert shop.admin("PUT", "/inventory/phone", b'{"stock":2}').status == 200
    answer = outcome(shop, shop.sell(key=key))
    if not together:
        assert answer.problem == "idempotency-key-unsupported"
        return
    assert answer.status == 200 and answer.json["left"] == 1, answer
    assert shop.ask("GET", "/inventory/phone").json["stock"] == 1


@pytest.mark.parametrize("one, other", [param.values[:2] for param in table()
                                        if param.values[2] and all(members_of(n) for n in param.values[:2])])
def test_a_running_shop_is_switched_to_it(redis, start, one, other):
    shop = start(redis, "--admin-writes", "--lock", "fair", "--write", "atomic")
    switched = shop.admin("PUT", "/lock", json.dumps({**members_of(one), **members_of(other)}))
    assert switched.status == 200, switched
    assert shop.admin("PUT", "/inventory/phone", b'{"stock":2}').status == 200
    answer = outcome(shop, shop.sell())
    assert answer.status == 200 and answer.json["left"] == 1, answer
