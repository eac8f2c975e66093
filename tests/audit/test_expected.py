# SPDX-License-Identifier: Apache-2.0
"""The table of expected results: one cell for every run, and simulated runs do as it says."""
import itertools
import os
import re

import pytest
import shop
from judge import audit, judge
from simulate import simulate

TABLE = os.path.join(os.path.dirname(__file__), "../../audit/expected.def")
CELL = re.compile(r'^CELL\((".*?"|ANY_TEXT), (".*?"|ANY_TEXT), "(\w+)", (\w+), (\w+), '
                  r'([A-Z| ]+),\s*((?:"[^"]+"\s*)+)\)$', re.M)


def cells():
    with open(TABLE, encoding="utf-8") as file:
        text = file.read()
    found = CELL.findall(text)
    assert len(found) == text.count("\nCELL("), "a cell that the pattern does not know"
    return found


def fits(cell, rung, write, instances, stock):
    return (cell[0] in ("ANY_TEXT", '"%s"' % rung) and cell[1] in ("ANY_TEXT", '"%s"' % write)
            and cell[2] == "none" and cell[3] in ("ANY", instances) and cell[4] in ("ANY", stock))


def test_one_cell_speaks_for_each_run():
    table, used = cells(), set()
    worlds, wanted = {}, {}
    for rung, write, instances, stock in itertools.product(
            shop.RUNGS, shop.WRITES, ["ONE", "MANY"], ["SHORT", "ENOUGH"]):
        matching = [cell for cell in table if fits(cell, rung, write, instances, stock)]
        assert len(matching) == 1, (rung, write, instances, stock)
        used.add(matching[0])
        key = "-".join((rung, write, instances, stock))
        wanted[key] = {word.strip().lower() for word in matching[0][5].split("|")}
        worlds[key] = shop.clean(
            1, rung=rung, write=write, unknowns=0, quantities=False, requests=10,
            instances=["a", "b", "c"] if instances == "MANY" else ["a"],
            items={"phone": 4 if stock == "SHORT" else 10})
    assert used == set(table), "a cell that speaks for no run"
    with judge(worlds) as verdicts:
        for key, (verdict, _) in verdicts.items():
            assert set(verdict["expected"]) == wanted[key], key
            assert verdict["expected_why"]


def test_every_cell_gives_its_reason():
    for cell in cells():
        assert len(cell[6]) > 20, cell


# What the ladder promises, said once more in other words than the table's.
def test_promises():
    table = cells()

    def expected(*key):
        cell = next(cell for cell in table if fits(cell, *key))
        return {word.strip() for word in cell[5].split("|")}
    assert expected("local", "set", "MANY", "SHORT") == {"OVERSOLD"}
    assert expected("local", "decr", "MANY", "SHORT") == {"OVERSOLD", "OVERLAP"}
    for rung, write, instances, stock in itertools.product(
            shop.RUNGS, shop.WRITES, ["ONE", "MANY"], ["SHORT", "ENOUGH"]):
        results = expected(rung, write, instances, stock)
        if rung not in ("none", "local") or (rung == "local" and instances == "ONE"):
            assert results == {"OK"}
        if write == "atomic":
            assert "OVERSOLD" not in results
        assert results <= {"OK", "OVERSOLD", "OVERLAP"}


@pytest.mark.parametrize("stock", ["SHORT", "ENOUGH"])
def test_simulated_runs_do_as_expected(stock):
    worlds = {}
    for rung, write, names in itertools.product(shop.RUNGS, shop.WRITES, (["a"], ["a", "b"])):
        worlds["-".join([rung, write, *names])] = simulate(
            len(worlds), 60, rung=rung, write=write, instances=names,
            items={"phone": 40 if stock == "SHORT" else 70})
    with judge(worlds) as verdicts:
        for key, (verdict, _) in verdicts.items():
            assert verdict["agrees"], (key, verdict["expected"], verdict["reasons"])


def test_run_json_overrules_the_table(tmp_path):
    world = shop.clean(1, rung="watchdog", unknowns=0, expect=["oversold", "deadlock"])
    done = audit(world.write(str(tmp_path / "run")))
    assert done.returncode == 1
    assert done.stdout.endswith("\nexpected OVERSOLD or DEADLOCK, got OK\n")


@pytest.mark.parametrize("asked", [{"rung": "notify"}, {"write": "fenced"}, {"fault": "kill"}])
def test_no_cell_no_opinion(tmp_path, asked):
    """The result is told, but whether it is the expected one nobody says."""
    done = audit(shop.clean(1, **asked).write(str(tmp_path / "run")))
    assert done.returncode == 2
    assert done.stdout.endswith("\nexpected ?, got OK\n")
    assert '"expect" in run.json must name the results' in done.stdout
