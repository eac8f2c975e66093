# SPDX-License-Identifier: Apache-2.0
"""scripts/rung: looking at the ladder, seeing one rung break and the next survive, and what it says to
slips."""
import contextlib
import json
import os
import tempfile
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import time

import pytest

from rung import ROOT, TOOLS, left_behind, rung

import ladder
import named
import transcript
from lock_watch import agreed
from scenarios import ALL, OF_ENSEMBLES, OF_POLICIES, OF_SERVICES, demonstrations, shown
from scenarios.readers import check_none_met
from scenarios.steps import beside
from services import STAGES
from stage import FAILOVER_TTL_MS, Stage
from waiting import Inconclusive, wait_until

NAMES = [one.name for one in ladder.rungs()]


# ---- Looking ----


def test_the_ladder_as_a_table():
    done = rung("list")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[::4]] == NAMES + [one.name for one in ladder.others()]
    cures, has = lines[2::4], lines[3::4]
    assert cures[NAMES.index("none")].split(None, 1) == ["cure", "local; next: local"]
    assert has[NAMES.index("none")].split(None, 1) == ["has", "nothing; a waiter: never waits"]
    assert has[NAMES.index("read_write")].split(None, 1) == [
        "has", "distributed, expires, renewed, reentrant, tokens, shared; a waiter: woken by a message"]
    waits = {name: has[at].rpartition(": ")[2] for at, name in enumerate(NAMES)}
    assert (waits["local"], waits["watchdog"], waits["fair"]) == ("woken in its process", "polls", "woken by a list")
    assert "flawed" in done.stdout and "sound" in done.stdout


def test_a_card_and_its_code():
    done = rung("show", "owner_lua")
    assert done.returncode == 0
    assert "ADDS" in done.stdout and "try_acquire" in done.stdout
    assert "redis.call('DEL', KEYS[1])" in done.stdout  # the script belongs to the code


@pytest.mark.parametrize("name", NAMES)
def test_every_card_is_whole_and_its_command_is_real(name):
    card = ladder.find(name).card
    assert list(card) == ["ADDS", "FLAW", "SHOW", "CURE", "NEXT", "COST"]
    if name == NAMES[-1]:  # what breaks it lies elsewhere
        assert card["SHOW"] == "scripts/rung cure fenced_textbook"
        assert named.demonstration("cure", "fenced_textbook")[1].name == name
    else:
        assert card["SHOW"] == f"scripts/rung break {name}"
        assert any(name in flaw.shows for flaw in ALL.values())
    assert ladder.find(card["NEXT"]) is not None or card["NEXT"].startswith("(")
    shown_on = [flaw for flaw in ALL.values() if name in flaw.cures]
    assert card["CURE"] == shown_on[0].cures[name] if shown_on else card["CURE"].startswith("(")


def test_the_ladder_the_cards_and_the_book_agree_on_steps_and_detours():
    steps = [one.name for one in ladder.steps()]
    assert steps == [name for name in NAMES if name in steps] and steps[-1] == NAMES[-1]  # NEXT never leads back
    for number, chapter in enumerate(ladder.chapters(), 1):
        path = ladder.ROOT / "docs" / f"{number:02}-{chapter}.md"
        told = re.search(r"^\*A detour: .* \[\d+\. (\w+)\]", path.read_text(encoding="utf-8"), re.MULTILINE)
        detour = ladder.find(chapter) and chapter not in steps
        assert (told and told[1]) == (ladder.find(chapter).card["NEXT"] if detour else None), chapter


def test_a_step_is_its_lesson_alone():
    """As far as watchdog, from each rung to the one behind it and to the one that its card calls NEXT. Counted are the
    lines that come: C without its card, and the scripts. What goes is not, nor how much stands in a line, nor what
    several rungs share in the library."""
    steps = NAMES[:NAMES.index("watchdog") + 1]
    pairs = {*zip(steps, steps[1:]), *((name, ladder.find(name).card["NEXT"]) for name in steps[:-1])}
    sizes = {pair: len(ladder.added(*map(ladder.find, pair))) for pair in pairs}
    assert len(sizes) == 16
    assert statistics.median(sizes.values()) <= 15 and max(sizes.values()) <= 25, sizes


def test_a_later_rung_is_short():
    """Behind watchdog come protocols, which are no small steps: their file of C has a limit, their scripts have none."""
    later = [one for one in ladder.rungs()[NAMES.index("watchdog") + 1:] if not one.lock.quorum]
    sizes = {one.name: len(one.lock.text.splitlines()) for one in later}
    assert max(sizes.values()) <= 150, sizes


def test_what_changes_between_two_rungs():
    done = rung("diff", "setnx_expire", "set_nx_ex")
    assert done.returncode == 0
    assert '-    struct answer set = CALL(env, "SETNX", hold->key, "1");' in done.stdout
    assert "\n7 lines change.\n" in done.stdout
    assert len(done.stdout.splitlines()) <= 40  # a screen


def test_every_demonstration_is_listed():
    done = rung("scenarios")
    assert done.returncode == 0
    lines = [line.split() for line in done.stdout.splitlines() if line[0] != " "]
    assert list(dict.fromkeys(line[0] for line in lines)) == list(ALL)
    others = [(flaw.name, breaks) for flaws in (OF_ENSEMBLES, OF_POLICIES, *OF_SERVICES.values()) for flaw in flaws.values() for breaks in flaw.cures]
    assert [(line[0], line[2]) for line in lines if line[1] == "break"] == [
        *((flaw.name, breaks) for flaw, breaks, _ in shown()), *others]


# ---- Breaking and curing ----


def test_a_flaw_is_shown_and_its_cure(tmp_path):
    done = rung("break", "setnx_expire", "--runs", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "expected DEADLOCK, got DEADLOCK"
    told = [" ".join(line.split()[1:]) for line in done.stdout.splitlines() if "killed at" in line or "no answer" in line]
    assert told == ["-- a is killed at setnx_expire.between_setnx_and_expire",
                    "a1 no answer: the connection broke"]  # the death first, though the buyer may notice first
    assert done.stdout.count("SETNX lock:{phone} 1") == 2  # a's, and b's many in one line
    assert "PEXPIRE" not in done.stdout
    (folder,) = tmp_path.iterdir()
    assert {file.name for file in folder.iterdir()} >= {
        "run.json", "redis.json", "sale.jtl", "history-a.jsonl", "history-b.jsonl", "verdict.json", "timeline.svg",
        "transcript.txt"}
    assert (folder / "transcript.txt").read_text().strip() in done.stdout
    done = rung("cure", "setnx_expire", "--runs", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("set_nx_ex: ") and done.stdout.endswith("\nexpected OK, got OK\n")
    assert "sold unit 2, 1 left" in done.stdout
    assert not left_behind(tmp_path)


def test_the_interleaving_is_the_same_again(tmp_path):
    """Of every demonstration, see test_matrix.py and test_book.py."""
    done = rung("repeat", "--times", 3, "--scenarios", "two_instances,stale_read", "--runs", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = re.findall(r"^(\S+) +(\S+) +3 of 3 alike, 3 as expected", done.stdout, re.MULTILINE)
    pairs = [(on, flaw.name) for flaw, on in demonstrations() if flaw.name in ("two_instances", "stale_read")]
    assert sorted(lines) == sorted(pairs) and len(pairs) >= 4
    assert f"\n{len(pairs)} of {len(pairs)} scenarios had the same interleaving each time\n" in done.stdout
    assert not left_behind(tmp_path)


def test_a_look_at_the_hold_helps_unless_it_comes_too_early(tmp_path):
    done = rung("break", "frozen", "--check-hold", "--runs", tmp_path)
    assert done.returncode == 0 and "503 lock-lost" in done.stdout, done.stdout + done.stderr
    assert done.stdout.endswith("\nexpected OVERLAP, got OVERLAP\n")
    done = rung("break", "frozen_writing", "--check-hold", "--runs", tmp_path)
    assert done.returncode == 0 and "lock-lost" not in done.stdout, done.stdout + done.stderr
    assert done.stdout.endswith("\nexpected OVERSOLD, got OVERSOLD\n")


# ---- What a crowd costs ----


def asked_by_a_crowd(rung, crowd, folder):
    """What so many buyers of one process send to the lock's Redis: in the second in which they wait in vain; in all."""
    with Stage(ladder.find(rung), "thundering_herd", *TOOLS, folder, stock=crowd + 1) as stage:
        ALL["thundering_herd"].run(stage, crowd)
        assert stage.judge()["result"] == "ok"
        assert transcript.disagreement(stage) == ""
        return [int(times) for times in re.findall(r" -- .*\((\d+) times\)", transcript.text_of(stage))]


@pytest.mark.parametrize("crowd", [4, 16])
def test_a_crowd_that_polls_costs_and_one_that_is_told_does_not(tmp_path, crowd):
    """With each who waits, and each second; of a process that listens one asks, and twice before it sleeps."""
    polled, polled_in_all = asked_by_a_crowd("watchdog", crowd, tmp_path)
    told, told_in_all = asked_by_a_crowd("notify", crowd, tmp_path)
    assert polled >= 4 * crowd and polled_in_all >= polled + 2 * crowd  # 50 tries each, where nothing is slow
    assert told <= 2 and 2 * crowd + 3 <= told_in_all <= 2 * crowd + 10  # a try and a release for each sale


def woken_in_herd(name, crowd, folder):
    """How often so many waiters are woken, until all have had the lock; and how many watches ZooKeeper's servers fire."""
    with Stage(named.on_stage(name), "herd", *TOOLS, folder, stock=crowd + 1) as stage:
        ALL["herd"].run(stage, crowd)
        assert stage.judge()["result"] == "ok"
        told = transcript.text_of(stage)
    return [int(number) for number in re.findall(r"(?:were woken|have fired) (\d+) (?:times|watches)$", told, re.MULTILINE)]


def test_waiters_that_watch_the_queue_are_all_woken_and_those_that_watch_the_one_before_once(tmp_path):
    """A waiter of the herd is also told of its own release, and a holder of the library's that has no waiter behind it in
    its client."""
    crowd, in_all = 20, 20 * 21 // 2
    assert woken_in_herd("zookeeper_herd", crowd, tmp_path) == [in_all, in_all + crowd + 1]
    assert woken_in_herd("zookeeper", crowd, tmp_path) == [crowd, crowd + 2]
    assert woken_in_herd("etcd", crowd, tmp_path) == [crowd]


# ---- Policies ----


def shown_by(tmp_path, verb, name, result):
    done = rung(verb, name, "--runs", tmp_path)
    assert done.returncode == 0 and done.stdout.endswith(f"\nexpected {result}, got {result}\n"), done.stdout + done.stderr
    return done.stdout


def test_an_empty_segment_is_taken_for_an_empty_stock_and_the_cure_looks_on(tmp_path):
    told = shown_by(tmp_path, "break", "segments_naive", "UNDERSOLD")
    assert "sold unit 2, 1 left" in told and "409 sold-out" in told and "its own segment, 2 of 2, had 0" in " ".join(told.split())
    told = shown_by(tmp_path, "cure", "segments_naive", "OK")
    assert "sold unit 1, 0 left" in told and told.count("reentrant_acquire.lua 1 lock:{phone}:2 <a2>") == 1
    assert not left_behind(tmp_path)


def test_two_bursts_pass_the_window_and_not_the_bucket(tmp_path):
    told = shown_by(tmp_path, "break", "admit_window", "OK")
    assert "4 sales held the lock: a1, b1, a2, b2" in told and told.count('["admitted"]') == 4
    told = shown_by(tmp_path, "cure", "admit_window", "OK")
    assert "2 sales held the lock: a1, b1" in told and told.count('["refused", us]') == told.count("429 too-many-requests") == 2


def test_a_write_that_compares_the_version_is_not_made_from_an_old_read(tmp_path):
    told = shown_by(tmp_path, "break", "stale_read", "OVERSOLD")
    assert told.count("sold unit 2, 1 left") == 2
    told = shown_by(tmp_path, "cure", "stale_read", "OVERLAP")
    assert told.count("cas.lua") == 3 and told.count("sold unit 2, 1 left") == told.count("sold unit 1, 0 left") == 1


def test_a_worker_that_dies_before_its_acknowledgement_has_sold_once_more_unless_both_are_one_step(tmp_path):
    told = shown_by(tmp_path, "break", "queue_decr", "OVERSOLD")
    assert told.count("DECR inventory:{phone}") == 2 and "got unit 2 of instance a and unit 1 of instance b" in " ".join(told.split())
    told = shown_by(tmp_path, "cure", "queue_decr", "OK")
    assert told.count("queue_sell.lua") == 1 and "b1   sold unit 2, 1 left" in told


def test_a_policy_is_no_rung():
    names = [policy.name for policy in ladder.policies()]
    assert not set(names) & {line.split()[0] for line in rung("list").stdout.splitlines()}
    done = rung("check", names[0])
    assert done.returncode == 2 and "is no rung, but a policy of the shop" in done.stderr
    done = rung("run", "two_instances", names[0])
    assert done.returncode == 2 and f"two_instances cannot happen to {names[0]}" in done.stderr


LATE = {"frozen": {"watchdog": "OVERSOLD", "fenced_textbook": "OVERSOLD", "fenced": "OK"},  # ahead of the next one's write
        "frozen_late": {"watchdog": "OVERSOLD", "fenced_textbook": "OK", "fenced": "OK"}}  # and behind it


@pytest.mark.parametrize("flaw, name", [(flaw, name) for flaw, results in LATE.items() for name in results])
def test_a_late_write_in_both_orders(tmp_path, flaw, name):
    done = rung("run", flaw, name, "--runs", tmp_path)
    result = LATE[flaw][name]
    assert done.returncode == 0 and done.stdout.endswith(f"\nexpected {result}, got {result}\n"), done.stdout + done.stderr
    refused = [line for line in done.stdout.splitlines() if "STALE" in line or "503 lock-lost" in line]
    if result == "OK":
        assert ["(error) STALE T1: " in refused[0], "503 lock-lost" in refused[1]] == [True, True] and len(refused) == 2
        assert "2 sections, 1 of them while another was inside; the stock refused 1" in " ".join(done.stdout.split())
        (folder,) = tmp_path.iterdir()
        assert json.loads((folder / "verdict.json").read_text())["token_refusals"] == 1
    else:
        assert refused == []


def test_a_lock_on_one_redis_is_lost_with_it_and_the_write_refused(tmp_path):
    done = rung("break", "redis_empty", "--runs", tmp_path)
    assert done.returncode == 0 and done.stdout.endswith("\nexpected OVERSOLD, got OVERSOLD\n"), done.stdout + done.stderr
    done = rung("cure", "redis_empty", "--runs", tmp_path)
    assert done.returncode == 0 and done.stdout.endswith("\nexpected OK, got OK\n"), done.stdout + done.stderr
    told = " ".join(done.stdout.split())
    assert "fenced_read.lua" in told and "epoch.lua E1 <lock> E2" in told and "EPOCH E1: the stock is in E2" in told


# ---- The second witness ----


def test_what_an_operator_lays_is_no_part_of_the_run(tmp_path):
    """And what happens behind it is seen by both witnesses."""
    flaw = ALL["menu_late_fill"]
    with STAGES["menu"](ladder.find("watchdog"), flaw, *TOOLS, tmp_path, ["ok"]) as stage:
        flaw.run(stage)
        assert stage.judge()["agrees"] and transcript.disagreement(stage) == ""
        assert stage.before["cached"] == {"lunch": 0} and not (stage.folder / "operator.log").exists()
        assert not any("operator" in file.name for file in stage.folder.iterdir())
        history = stage.instances["b"].history
        lines = history.read_text().splitlines()
        history.write_text("\n".join(line for line in lines if '"sent":"DEL ' not in line) + "\n")
        assert "recorded by nobody: DEL" in transcript.disagreement(stage)


def test_what_redis_did_not_see_is_not_believed(tmp_path):
    with Stage(ladder.find("setnx"), "two_instances", *TOOLS, tmp_path) as stage:
        ALL["two_instances"].run(stage)
        assert stage.judge()["agrees"]
        assert transcript.disagreement(stage) == ""
        history = stage.instances["a"].history
        lines = history.read_text().splitlines()
        command = next(line for line in lines if '"command"' in line and "SETNX" in line)
        history.write_text("\n".join([*lines, command]) + "\n")
        assert "not seen by Redis: SETNX" in transcript.disagreement(stage)
        history.write_text("\n".join(line for line in lines if line != command) + "\n")
        assert "recorded by nobody: SETNX" in transcript.disagreement(stage)


class Acted:
    """An instance as check_none_met sees it: what it sent and was answered, and how often it was kept out."""

    def __init__(self, name, *answers, kept_out=0):
        self.name, self.kept_out = name, kept_out
        self.told = [{"event": "command", "sent": sent, "reply": reply} for sent, reply in answers]

    def events(self):
        return self.told

    def count(self, _):
        return self.kept_out


def test_a_failover_loses_a_lock_and_the_stock_refuses_its_holder(tmp_path):
    done = rung("break", "failover", "--runs", tmp_path)
    assert done.returncode == 0 and done.stdout.endswith("\nexpected OVERSOLD, got OVERSOLD\n"), done.stdout + done.stderr
    places = re.findall(r"^ *\d+  (\w+) +(old|new|stock) +(\w+)", done.stdout, re.MULTILINE)
    assert places == [("a1", "old", "reentrant_acquire"), ("a1", "stock", "GET"), ("b1", "new", "reentrant_acquire"),
                      ("b1", "stock", "GET"), ("a1", "stock", "SET"), ("a1", "new", "reentrant_release"),
                      ("b1", "stock", "SET"), ("b1", "new", "reentrant_release")]
    done = rung("cure", "failover", "--runs", tmp_path)
    assert done.returncode == 0 and done.stdout.endswith("\nexpected OK, got OK\n"), done.stdout + done.stderr
    assert "(error) EPOCH E1: the stock is in E2" in done.stdout
    assert not left_behind(tmp_path)


def test_a_failover_loses_no_lock_that_the_replicas_have(tmp_path):
    """So it is what the scenario holds back that is lost."""
    with Stage(ladder.find("watchdog"), "failover", *TOOLS, tmp_path) as stage:
        stage.open_group()

        def meanwhile():
            stage.wait_replicated()
            stage.fail_over()
        beside(stage, *(stage.instance(name, FAILOVER_TTL_MS) for name in "ab"), meanwhile)
        verdict = stage.judge()
        assert verdict["result"] == "ok" and verdict["overlaps"] == 0 and transcript.disagreement(stage) == ""
        assert [sale.status for sale in stage.sales] == [200, 409]


def test_the_judge_names_the_sales_that_a_failover_loses(tmp_path):
    done = rung("break", "failover_stock", "--runs", tmp_path)
    assert done.returncode == 0 and done.stdout.endswith("\nexpected OVERSOLD, got OVERSOLD\n"), done.stdout + done.stderr
    assert "unit 2 of phone was sold twice: to request a1 by a at" in done.stdout and "to request b1 by b" in done.stdout


# ---- Several servers ----


def places_of(told):
    return re.findall(r"^ *\d+  (\w+) +(lock|stock) +(\w+).*?(from most|no majority|)(?: +\(\d+ times\))?$", told, re.MULTILINE)


def test_a_majority_grants_its_lock_while_two_of_five_are_down(tmp_path):
    done = rung("cure", "minority_down", "--runs", tmp_path)
    assert done.returncode == 0 and done.stdout.endswith("\nexpected OK, got OK\n"), done.stdout + done.stderr
    assert "servers 4 and 5 of the lock die" in done.stdout and done.stdout.count("  sold unit ") == 2
    assert places_of(done.stdout) == [
        (who, place, what, most) for who in ("a1", "a2") for place, what, most in (
            ("lock", "SET", "from most"), ("stock", "GET", ""), ("stock", "SET", ""), ("lock", "delete_if_owner", "from most"))]
    assert not left_behind(tmp_path)


def test_without_a_majority_a_buyer_is_refused_and_what_two_servers_granted_is_taken_back(tmp_path):
    with Stage(ladder.find("redlock"), "majority_down", *TOOLS, tmp_path, stock=3) as stage:
        ALL["majority_down"].run(stage)
        verdict = stage.judge()
        assert verdict["agrees"] and verdict["result"] == "undersold" and transcript.disagreement(stage) == ""
        assert [sale.answer for sale in stage.sales] == ["sold unit 3, 2 left", "503 lock-unavailable", "sold unit 2, 1 left"]
        for server in stage.lock_servers[:2]:  # both had set its key
            mine = [command for client, command in server.witnessed() if client != "lua" and "lock:{phone}" in command]
            mine = list(dict.fromkeys(mine))  # a release may be sent twice
            assert [command.split()[0] for command in mine[2:4]] == ['"SET"', '"EVAL"'], mine
        assert "none of servers 1, 2 and 3 has the lock's key" in transcript.text_of(stage)


@pytest.mark.parametrize("flaw", ["restart_empty", "clock_jump"])
def test_a_majority_that_forgets_grants_twice(tmp_path, flaw):
    done = rung("break", flaw, "--runs", tmp_path)
    assert done.returncode == 0 and done.stdout.endswith("\nexpected OVERSOLD, got OVERSOLD\n"), done.stdout + done.stderr
    granted = re.findall(r"^ *\d+  (\w+) +lock +SET .* OK from most$", done.stdout, re.MULTILINE)
    assert granted == ["a1", "b1"]


@pytest.mark.parametrize("flaw", ["restart_empty", "clock_jump", "frozen_writing"])
def test_a_fence_refuses_the_late_one_of_two_that_a_majority_granted(tmp_path, flaw):
    done = rung("run", flaw, "redlock", "--write", "fenced", "--runs", tmp_path)
    assert done.returncode == 0 and done.stdout.endswith("\nexpected OK, got OK\n"), done.stdout + done.stderr
    granted = re.findall(r"^ *\d+  (\w+) +lock +redlock_token\.lua T\d .* from most$", done.stdout, re.MULTILINE)
    assert granted == ["a1", "b1"], done.stdout
    assert re.search(r"^ *\d+  a1 +503 lock-lost$", done.stdout, re.MULTILINE), done.stdout


def test_the_clock_must_have_jumped_by_a_time_to_live(tmp_path):
    """So it is the jump that lets the second one in."""
    with Stage(ladder.find("redlock"), "clock_jump", *TOOLS, tmp_path) as stage:
        stage.open(clocks=True)
        beside(stage, *(stage.instance(name, FAILOVER_TTL_MS) for name in "ab"),
               lambda: stage.jump_clocks(stage.lock_servers[:stage.needed], FAILOVER_TTL_MS // 4))
        verdict = stage.judge()
        assert verdict["result"] == "ok" and verdict["overlaps"] == 0


def test_the_picture_shows_the_lock_as_most_servers_have_it():
    """One that has it alone is nobody's lock."""
    at = lambda t_ns, holder, until_ns=None: {"t_ns": t_ns, "holder": holder, "expires_ns": until_ns}
    gone = lambda t_ns: {"t_ns": t_ns, "holder": None}
    ms = 1000000
    servers = [[at(1, "a1", 100 * ms), gone(5)], [at(2, "a1", 200 * ms), gone(9), at(10, "b1", 300 * ms)],
               [at(3, "b1", 300 * ms)]]
    assert list(agreed(servers, 2)) == [at(2, "a1", 100 * ms), gone(5), at(10, "b1", 300 * ms)]


def test_readers_that_met_the_writer_have_spoiled_the_run():
    alone, beside_two = [("SET", "OK"), ("GET", "1")], [("SET", "OK"), ("GET", "2")]
    check_none_met(Acted("a"), Acted("b"), Acted("c", *alone, *alone, *alone))
    for instances in ([Acted("a"), Acted("b"), Acted("c", *alone, *beside_two)],
                      [Acted("a"), Acted("b", kept_out=1), Acted("c", *alone, *alone)]):
        with pytest.raises(Inconclusive):
            check_none_met(*instances)


# ---- Slips ----


@pytest.mark.parametrize("words, says", [
    (["shwo"], ['"shwo" is no command', "matrix"]),
    (["show", "redlok"], ['"redlok" is no rung', "setnx_expire"]),
    (["break", "setnx", "--runs", "/dev/null"], ["/dev/null cannot take the runs: File exists", "--runs DIR"]),
    (["show"], ["show takes 1 NAME, not 0; for instance: scripts/rung show setnx"]),
    (["diff", "setnx"], ["diff takes 2 NAMEs, not 1; for instance: scripts/rung diff setnx setnx_expire"]),
    (["break", "nobody"], ['"nobody" is no scenario', "watchdog", "release_gap"]),
    (["cure", "two_identities"], ["no rung of the ladder cures two_identities"]),
    (["run", "frozen", "fenced", "--write", "set"], ['"fenced" is fair with --write fenced', "leave --write set out"]),
    (["run", "frozen", "watchdog", "--write", "fenced"], ["watchdog gives none, these do: "]),
    (["run", "leader_lost", "redlock"], ["leader_lost cannot happen to redlock, but to zookeeper, etcd"]),
    (["run", "frozen", "etcd"], ["frozen cannot happen to etcd, but to none, "]),
    (["run", "menu_both_ask", "setnx"], ["menu_both_ask cannot happen to setnx, but to none, local, watchdog"]),
    (["show", "menu_fenced"], ['"menu_fenced" is no rung, but a way to use fair for the service menu', "menu_frozen_fill"]),
    (["break", "menu_both_ask", "--write", "decr"], ["menu_both_ask is about menud, which has no --write: leave it out"]),
    (["matrix", "--check-hold", "--scenarios", "task_twice"], ["none of these scenarios can happen to one of these rungs"]),
    (["matrix", "--rungs", "setnx", "--scenarios", "leader_lost"], ["none of these scenarios can happen to one of these rungs"]),
    (["show", "zookeeper"], ['"zookeeper" is no file of lock/rungs', "scripts/rung run SCENARIO zookeeper", "leader_lost"]),
    (["new", "mine", "--from", "fenced"], ['"fenced" is fair with --write fenced', "take fair"]),
    (["break", "setnx", "--write", "guess"], ["--write", "decr"]),
    (["matrix", "--jobs", "0"], ['--jobs: "0" is no number from 1 to 64']),
    (["matrix", "--jobs", "65"], ['--jobs: "65" is no number from 1 to 64']),
    (["matrix", "--rungs", "setnx,setny"], ['"setny" is no rung']),
    (["matrix", "--scenarios", "gap"], ['"gap" is no scenario']),
    (["check", "setnx", "--scenarios", "forgotten, forgoten"], ['"forgoten" is no scenario', "Did you mean forgotten?"]),
    (["check", "setnx", "--scenarios", ""], ['--scenarios takes names with commas between them; in "" one is empty']),
    (["matrix", "--rungs", "none,,local"], ['in "none,,local" one is empty']),
    (["repeat", "--times", "x"], ["--times"]),
    (["list", "--colour"], ["--colour"]),
])
def test_slips_are_answered_with_what_would_be_right(words, says):
    done = rung(*words)
    assert done.returncode == 2
    assert all(text in done.stderr for text in says), done.stderr
    assert len(done.stderr.splitlines()) <= 3 and "Traceback" not in done.stderr


def test_what_nobody_expects_and_where_nothing_can_be_kept(tmp_path):
    done = rung("break", "two_instances", "--write", "decr", "--runs", tmp_path)
    assert done.returncode == 0 and "\ngot OVERSOLD; the table of expected results has no entry for it\n" in done.stdout
    done = rung("matrix", "--runs", "/dev/null/runs", "--rungs", "setnx")
    assert done.returncode == 2 and "/dev/null" in done.stderr and "Traceback" not in done.stderr


def test_help_and_nothing():
    assert rung("--help").returncode == 0 and rung("--help").stdout.startswith("usage: scripts/rung")
    assert rung().returncode == 2


def test_no_build_and_no_redis(tmp_path):
    done = rung("break", "setnx", LADDER_BUILD=str(tmp_path))
    assert done.returncode == 2 and "build them first" in done.stderr
    done = rung("break", "setnx", PATH=str(tmp_path))
    assert done.returncode == 2 and "redis-server is not on PATH" in done.stderr


def test_a_service_that_was_not_built_is_left_out(tmp_path):
    for program in TOOLS:
        folder = tmp_path / program.parent.name
        folder.mkdir()
        shutil.copy(program, folder)
    done = rung("break", "menu_both_ask", "--runs", tmp_path / "runs", LADDER_BUILD=str(tmp_path))
    assert done.returncode == 2 and "menu_both_ask: there is no menud: scripts/setup --for rung" in done.stderr
    done = rung("repeat", "--scenarios", "menu_both_ask,stale_read", "--times", 1, "--runs", tmp_path / "runs", LADDER_BUILD=str(tmp_path))
    assert done.returncode == 0 and "left out: menu_both_ask: there is no menud" in done.stderr
    assert "\n2 of 2 scenarios had the same" in done.stdout


def test_what_is_spoiled_is_tried_three_times_and_not_called_shown(tmp_path):
    broken = tmp_path / "redis-server"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    done = rung("break", "setnx", "--runs", tmp_path / "runs", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert done.returncode == 2
    assert done.stdout.splitlines()[-1] == "It could not be shown."
    assert [f"try {n} of 3: redis-server does not start" in done.stderr for n in (1, 2, 3)] == [True] * 3
    assert "got" not in done.stdout


# ---- Stopped ----


SMALL = ("repeat", "--scenarios", "frozen,killed_holding,redis_empty,two_instances")  # instances stand still, too


@contextlib.contextmanager
def at_work(runs, *words):
    """scripts/rung while its demonstrations run."""
    process = subprocess.Popen([str(ROOT / "scripts" / "rung"), *words, "--runs", str(runs)],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    with process:
        wait_until(lambda: len(left_behind(runs)) >= 4 and len(list(runs.iterdir())) >= 2, "demonstrations run")
        yield process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("times", [1, 4])
def test_whoever_stops_it_leaves_nothing_running(tmp_path, number, times):
    with at_work(tmp_path, *SMALL) as process:
        for _ in range(times):  # who is impatient presses Ctrl-C again
            process.send_signal(number)
            time.sleep(0.2)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130 and "stopped" in said and "Traceback" not in said, said
    assert not left_behind(tmp_path)
    assert all((run / "verdict.json").exists() and not (run / "redis").exists() for run in tmp_path.iterdir())


def test_what_nohup_keeps_alive_lives_on_when_the_terminal_closes(tmp_path):
    process = subprocess.Popen(["nohup", str(ROOT / "scripts" / "rung"), "break", "setnx", "--runs", str(tmp_path)],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: len(left_behind(tmp_path)) >= 3, "the demonstration runs")
    process.send_signal(signal.SIGHUP)
    out, said = process.communicate(timeout=60)
    assert process.returncode == 0, (out, said)


def test_a_death_without_warning_takes_all_servers_along(tmp_path):
    with at_work(tmp_path, *SMALL) as process:
        process.kill()
    wait_until(lambda: not left_behind(tmp_path), "all has ended")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_oracle_ends_with_it(number):
    """It runs in a folder of its own, and so do its servers; the folder goes with all but a death without warning. Its
    path is short: it is a socket's."""
    with tempfile.TemporaryDirectory(prefix="o-", dir="/tmp") as folder:
        stop_the_oracle(pathlib.Path(folder), number)


def stop_the_oracle(tmp_path, number):
    process = subprocess.Popen([str(ROOT / "scripts" / "rung"), "check", "watchdog", "--scenarios", "oracle"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "TMPDIR": str(tmp_path)})
    wait_until(lambda: any(b"redis-server" in words for words in left_behind(tmp_path)), "the oracle's Redis runs")
    process.send_signal(number)
    process.communicate(timeout=60)
    wait_until(lambda: not left_behind(tmp_path), "all has ended")
    assert number == signal.SIGKILL or not list(tmp_path.iterdir())
