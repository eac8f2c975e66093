# SPDX-License-Identifier: Apache-2.0
"""The table of expected results: one cell for every run, and simulated runs do as it says."""
import itertools
import os
import re
import subprocess

import ladder as the_ladder
import named
import pytest
import shop
from judge import audit, judge
from scenarios import OF_ENSEMBLES, ON_LADDER
from simulate import simulate

ROOT = os.path.join(os.path.dirname(__file__), "../..")
TABLE = os.path.join(ROOT, "audit/expected.def")
TEXT = r'("[^"]*"|ANY_TEXT),\s*'
CELL = re.compile(r'CELL\(' + 2 * TEXT + r'"([\w+]+)",\s*(\w+),\s*(\w+),\s*([A-Z| ]+?),\s*'
                  r'((?:"[^"]+"\s*)+)\)')
POLICY = re.compile(r'POLICY\(' + 3 * TEXT + r'(?:GIVE_UP|ANY),\s*(?:UNDERSOLD|OVERSOLD),\s*(?:"[^"]+"\s*)+\)')
NAIVE_SEGMENTS = re.compile(r'NAIVE_SEGMENTS\(UNDERSOLD,\s*(?:"[^"]+"\s*)+\)')
CHECK = "+check"  # behind a scenario's name: the sale looks at its hold before it writes
ANYTHING = ("ANY", "ANY_TEXT")


def cells():
    """Rung, write, fault, instances, stock, results, why. Some cells are made by macros."""
    text = subprocess.run(["cc", "-E", "-P", "-x", "c", TABLE], capture_output=True, check=True,
                          encoding="utf-8").stdout
    rest = NAIVE_SEGMENTS.sub("", POLICY.sub("", CELL.sub("", text)))
    assert not rest.strip(), "not a cell that the pattern knows: " + rest.strip()[:200]
    return [tuple(field.strip('"') for field in cell) for cell in CELL.findall(text)]


ALL = {**ON_LADDER, **OF_ENSEMBLES}  # of a policy, run.json says what is expected
EVERY = [*the_ladder.rungs(), *the_ladder.ensembles()]
RUNGS = {rung.name: (rung.lock.name, rung.write or "set") for rung in EVERY}


def ladder():
    """The rungs that are a file of their own."""
    return [rung for rung in the_ladder.rungs() if not rung.write]


def fits(cell, *run):
    """run: rung, write, instances, stock, and the fault, if there is one."""
    rung, write, instances, stock, fault = (*run, "none")[:5]
    wanted = (rung, write, fault, instances, stock)
    return all(field in (*ANYTHING, value) for field, value in zip(cell, wanted))


def words(cell):
    return {word.strip() for word in cell[5].split("|")}


def test_one_cell_speaks_for_each_run():
    table, used = cells(), set()
    worlds, wanted = {}, {}
    for rung, write, instances, stock in itertools.product(
            [*ladder(), *the_ladder.others()], the_ladder.writes(), ["ONE", "MANY"], ["SHORT", "ENOUGH"]):
        if named.why_not(rung, write):
            continue
        rung = rung.name
        matching = [cell for cell in table if fits(cell, rung, write, instances, stock)]
        assert len(matching) == 1, (rung, write, instances, stock)
        used.add(matching[0])
        key = "-".join((rung, write, instances, stock))
        wanted[key] = {word.lower() for word in words(matching[0])}
        worlds[key] = shop.clean(
            1, rung=rung, write=write, unknowns=0, quantities=False, requests=10, retries=1,
            instances=["a", "b", "c"] if instances == "MANY" else ["a"],
            items={"phone": 4 if stock == "SHORT" else 10})
    unused = {cell for cell in table if cell[2] == "none"} - used
    assert not unused, "a cell that speaks for no run"
    with judge(worlds) as verdicts:
        for key, (verdict, _) in verdicts.items():
            assert set(verdict["expected"]) == wanted[key], key
            assert verdict["expected_why"]


KILLED = "master_killed", "minority_killed"  # by scripts/demo --kill


def speaking(table, rung, instances, stock, fault):
    """The cells for a scenario; where none knows of the look at the hold, those without it."""
    matching = [cell for cell in table if fits(cell, *RUNGS[rung], instances, stock, fault)]
    if matching or not fault.endswith(CHECK):
        return matching
    return speaking(table, rung, instances, stock, fault[:-len(CHECK)])


def test_one_cell_speaks_for_each_scenario_on_each_rung():
    """Whatever the number of instances and the stock; and the judge reads the same table."""
    table, worlds, wanted, used = cells(), {}, {}, set()
    fitting = [(name + looks, rung.name) for looks in ("", CHECK) for name in ALL for rung in EVERY if ALL[name].fits(rung)]
    for (fault, rung), instances, stock in itertools.product(fitting, ["ONE", "MANY"], ["SHORT", "ENOUGH"]):
        matching = speaking(table, rung, instances, stock, fault)
        assert len(matching) == 1, (rung, fault, instances, stock, matching)
        used.add(matching[0])
        key = fault + "-" + rung
        wanted[key] = {word.lower() for word in words(matching[0])}
        lock, write = RUNGS[rung]
        worlds[key] = shop.clean(1, rung=lock, write=write, fault=fault, unknowns=0, requests=8,
                                 instances=["a", "b"])
    unnamed = {cell for cell in table  # no name means the two together
               if cell[:2] in (("read_write", "fenced"), ("redlock", "fenced"))}
    assert used == {cell for cell in table if cell[2] not in ("none", *KILLED)} - unnamed, "a cell for no scenario"
    assert all(cell[2] in ALL for cell in unnamed)
    with judge(worlds) as verdicts:
        for key, (verdict, _) in verdicts.items():
            assert set(verdict["expected"]) == wanted[key], key
            assert verdict["expected_why"]


def test_servers_that_are_killed_under_load_let_nobody_sell_too_much():
    told = {cell[0]: words(cell) for cell in cells() if cell[2] in KILLED}
    assert [told.pop(name) for name in ("redlock", "zookeeper", "etcd")] == [{"OK"}] * 3
    assert set(told) == {"owner_lua", "reentrant", "watchdog", "notify", "fair", "read_write"}
    assert all(results == {"OK", "UNDERSOLD"} for results in told.values())


REFUSED_IN_VAIN = [{"UNDERSOLD"}, {"UNDERSOLD", "OVERLAP"}]  # the second: the key is freed before the check


def test_a_look_at_the_hold_does_no_harm():
    """With it nothing is oversold that was not without it, and some is saved; who renews without telling
    the hold makes it refuse in vain."""
    table, saved = cells(), 0
    for name, rung in [(name, rung.name) for name in ALL for rung in EVERY if ALL[name].fits(rung)]:
        looked, blind = (words(speaking(table, rung, "MANY", "SHORT", fault)[0])
                         for fault in (name + CHECK, name))
        in_vain = rung == "watchdog_timer" and blind == {"OK"} and looked in REFUSED_IN_VAIN
        harmless = {"OK"} if RUNGS[rung][1] in the_ladder.fences() else {"OVERLAP"}
        chance = name == "data_lost" and looked == blind | harmless  # whether it has heard of it by then
        assert looked == blind or in_vain or chance or (blind == {"OVERSOLD"} and looked == harmless), (name, rung)
        saved += looked != blind
    assert saved > 0


def test_no_two_cells_for_one_run():
    """Whichever fault, rung and write they name, or leave open."""
    table = cells()
    for one, other in itertools.combinations(table, 2):
        assert any(a != b and a not in ANYTHING and b not in ANYTHING
                   for a, b in zip(one[:5], other[:5])), (one, other)


def test_every_cell_gives_its_reason():
    for cell in cells():
        assert len(cell[6]) > 10 and len(cell[6].split()) >= 4, cell
        assert words(cell) <= {"OK", "OVERSOLD", "OVERLAP", "DEADLOCK", "UNDERSOLD"}, cell


# What the ladder promises, said once more in other words than the table's.
def test_promises():
    table = cells()

    def expected(*key):
        return words(next(cell for cell in table if fits(cell, *key)))
    assert expected("local", "set", "MANY", "SHORT") == {"OVERSOLD"}
    assert expected("local", "decr", "MANY", "SHORT") == {"OVERSOLD", "OVERLAP"}
    for rung, write, instances, stock in itertools.product(
            shop.RUNGS, [*shop.WRITES, "cas"], ["ONE", "MANY"], ["SHORT", "ENOUGH"]):
        results = expected(rung, write, instances, stock)
        if rung not in ("none", "local") or (rung == "local" and instances == "ONE"):
            assert results == {"OK"}
        if write in ("atomic", "cas"):
            assert "OVERSOLD" not in results
        assert results <= {"OK", "OVERSOLD", "OVERLAP"}


# The same for the scenarios: which rungs a scenario breaks, and how; on all others it does no harm.
BROKEN_BY = {
    "one_process": {"OVERSOLD": "none reentrant_getset"},
    "two_instances": {"OVERSOLD": "none local reentrant_getset"},
    "killed_holding": {"DEADLOCK": "setnx rw_counter setnx_multi", "UNDERSOLD": "blpop_wake"},
    "killed_acquiring": {"DEADLOCK": "setnx rw_counter setnx_expire setnx_multi", "UNDERSOLD": "blpop_wake"},
    "killed_releasing": {"DEADLOCK": "setnx rw_counter setnx_multi", "UNDERSOLD": "blpop_wake"},
    "forgotten": {"DEADLOCK": "setnx rw_counter setnx_multi watchdog_timer watchdog blpop_wake notify fair read_write "
                              "redlock"},
    "redis_dies": {"DEADLOCK": "setnx rw_counter setnx_expire setnx_multi", "UNDERSOLD": "blpop_wake"},
    "release_lost": {"DEADLOCK": "setnx rw_counter setnx_multi watchdog_timer", "UNDERSOLD": "blpop_wake"},
    "late_release": {"OVERSOLD": "none local setnx_expire setnx_multi set_nx_ex reentrant_getset"},
    "release_gap": {"OVERSOLD": "none local setnx_expire setnx_multi set_nx_ex owner_check "
                                "reentrant_getset"},
    "long_section": {"OVERSOLD": "none local setnx_expire setnx_multi set_nx_ex owner_check "
                                 "owner_lua reentrant_tls reentrant_getset reentrant"},
    "frozen_late": {"OVERSOLD": "none local setnx_expire setnx_multi set_nx_ex owner_check owner_lua "
                                "reentrant_tls reentrant_getset reentrant watchdog_timer watchdog "
                                "blpop_wake notify fair read_write redlock"},
    "frozen": {"OVERSOLD": "none local setnx_expire setnx_multi set_nx_ex owner_check owner_lua "
                           "reentrant_tls reentrant_getset reentrant watchdog_timer watchdog "
                           "blpop_wake notify fair read_write redlock"},
    "dead_next": {"OVERSOLD": "none local reentrant_getset"},
    "reentry": {"DEADLOCK": "local setnx rw_counter setnx_expire setnx_multi set_nx_ex owner_check owner_lua redlock"},
    "lost_wakeup": {"OVERSOLD": "none local reentrant_getset", "UNDERSOLD": "blpop_wake"},
    "freed_meanwhile": {"OVERSOLD": "none local"},
    "cut_listening": {"OVERSOLD": "none local reentrant_getset"},
    "dead_reader": {"DEADLOCK": "setnx rw_counter setnx_multi", "UNDERSOLD": "blpop_wake"},
    "writer_starvation": {"OVERLAP": "none local reentrant_getset", "UNDERSOLD": "rw_counter"},
    "upgrade": {"DEADLOCK": "rw_counter"},
    "restart_durable": {"OVERSOLD": "none local reentrant_getset"},
    "clock_jump": {"OVERSOLD": "none local setnx_expire setnx_multi set_nx_ex owner_check owner_lua reentrant_tls "
                               "reentrant_getset reentrant watchdog_timer watchdog blpop_wake notify fair read_write redlock"},
}


@pytest.mark.parametrize("fault", BROKEN_BY)
def test_promises_of_a_scenario(fault):
    table = cells()
    for rung in [rung.name for rung in ladder()]:
        harm = {result for result, rungs in BROKEN_BY[fault].items() if rung in rungs.split()}
        cell = next(cell for cell in table if fits(cell, rung, "set", "MANY", "SHORT", fault))
        assert words(cell) == (harm or {"OK"}), cell


@pytest.mark.parametrize("name", ALL)
def test_a_scenario_breaks_its_rung_and_spares_the_cure(name):
    """As each scenario says of itself. What it shows, that rung has and its cure has not."""
    table, flaw = cells(), ALL[name]

    def expected(rung):
        return words(next(cell for cell in table if fits(cell, *RUNGS[rung], "MANY", "SHORT", name)))
    for breaks, cured in flaw.shows.items():
        assert "OK" not in expected(breaks)
        assert cured is None or not expected(breaks) & expected(cured)


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


@pytest.mark.parametrize("asked", [{"rung": "mine"}, {"write": "guess"}, {"fault": "kill"}])
def test_no_cell_no_opinion(tmp_path, asked):
    """The result is told, but whether it is the expected one nobody says."""
    done = audit(shop.clean(1, **asked).write(str(tmp_path / "run")))
    assert done.returncode == 2
    assert done.stdout.endswith("\nexpected ?, got OK\n")
    assert '"expect" in run.json must name the results' in done.stdout
