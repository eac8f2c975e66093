# SPDX-License-Identifier: Apache-2.0
"""Of tasks: clean runs and near misses are never accused."""
import json

import pytest
import tasks
from judge import SEEDS, audit, judge
from tasks import MS, Tasks


def begun(seed, rung="watchdog", count=2, **settings):
    """A world and a time in it; instances a and b, one list of two tasks."""
    world = Tasks(seed).start(**{"rung": rung, "instances": ["a", "b"], "items": {"list": count}, "fault": "made", "expect": ["ok"],
                                 **settings})
    return world, world.t0 + MS


def pick(world, instance, t_ns, task, token=None, sent=None, name=None):
    """Looks at t_ns, picks by t_ns + 20, has released by t_ns + 31. Returns the request."""
    request = world.ask("list", instance, t_ns - 10, name=name)
    world.enter(request, t_ns - 6, t_ns - 5, token)
    world.look(request, t_ns, task)
    world.picked(request, t_ns + 10 if sent is None else sent, t_ns + 20)
    world.leave(request, t_ns + 30, t_ns + 31)
    return request


def send(world, request, t_ns):
    """It has done its work by t_ns, and sends the result at t_ns + 2."""
    world.worked(request, t_ns)
    world.sending(request, t_ns + 1)
    return t_ns + 2


def finish(world, request, t_ns):
    """Its result is there by t_ns + 10, and it is answered at t_ns + 12."""
    world.result(request, send(world, request, t_ns), t_ns + 10)
    world.told(request, t_ns + 12)
    return request


def refuse(world, request, t_ns, newest):
    send(world, request, t_ns)
    world.result_refused(request, t_ns + 10, newest)
    world.turned_away(request, t_ns + 12, reason="result-refused")


def die(world, request, t_ns):
    world.cut(request, t_ns)
    world.unended.add(request["instance"])


def nothing(world, instance, t_ns, reason="no-task", token=None):
    """Enters at t_ns - 5, and finds nothing by t_ns."""
    request = world.ask("list", instance, t_ns - 10)
    world.enter(request, t_ns - 6, t_ns - 5, token)
    world.look(request, t_ns, 0)
    world.leave(request, t_ns + 30, t_ns + 31)
    world.turned_away(request, t_ns + 32, reason=reason)


LEASE = tasks.SETTINGS["lease_ms"] * MS


# ---- Near misses ----------------------------------------------------------------------------------
def taken_over(seed):
    """A worker dies with its task; another one picks it at the first moment at which its lease may be over."""
    world, now = begun(seed)
    die(world, pick(world, "a", now, 1), now + 40)
    late = now + 10 + LEASE - MS - 20
    finish(world, pick(world, "b", late, 1), late + 100)
    return world.end()


def taken_over_before_its_answer_came(seed):
    """The first pick's answer comes so late that its lease is over by then."""
    world, now = begun(seed, rung="none")
    request = world.ask("list", "a", now - 10)
    world.look(request, now, 1)
    world.picked(request, now + 10, now + 2 * LEASE)
    die(world, request, now + 2 * LEASE)
    other = world.ask("list", "b", now + LEASE)
    world.look(other, now + LEASE, 1)
    world.picked(other, now + LEASE, now + LEASE + 10)
    finish(world, other, now + LEASE + 100)
    return world.end()


def picked_before_or_behind(seed):
    """The first pick's answer comes late: it may be Redis carried it out behind the second one's lease."""
    world, now = begun(seed, rung="none")
    request, other = world.ask("list", "a", now - 10), world.ask("list", "b", now - 10)
    for looker in (request, other):
        world.look(looker, now, 1)
    world.picked(other, now + 20, now + 30)
    world.picked(request, now + 10, now + 2 * LEASE)
    die(world, request, now + 2 * LEASE)
    finish(world, other, now + 100)
    return world.end()


def picked_at_the_stamp_of_a_result(seed):
    """Redis may have carried out the pick before it."""
    world, now = begun(seed)
    late = pick(world, "a", now, 1)
    again = now + LEASE
    world.worked(late, again)
    world.sending(late, again + 1)
    world.result(late, again + 2, again + 10)
    world.told(late, again + 12)
    die(world, pick(world, "b", again - 5, 1, sent=again + 10), again + 40)
    return world.end()


def late_and_alone(seed):
    """Its lease is over, another one has picked its task and died: the late result is the only one."""
    world, now = begun(seed)
    late = pick(world, "a", now, 1)
    die(world, pick(world, "b", now + LEASE, 1), now + LEASE + 40)
    finish(world, late, now + LEASE + 50)
    return world.end()


def late_and_refused(seed):
    world, now = begun(seed, result="fenced")
    late = pick(world, "a", now, 1, token=5)
    finish(world, pick(world, "b", now + LEASE, 1, token=6), now + LEASE + 100)
    refuse(world, late, now + LEASE + 120, 6)
    return world.end()


def picked_at_once_with_a_fence(seed):
    """The lock expired under the first one; of two results the older token's is refused."""
    world, now = begun(seed, result="fenced")
    first = pick(world, "a", now, 1, token=5)
    second = pick(world, "b", now + 100, 1, token=6)
    refuse(world, first, now + 200, 6)
    finish(world, second, now + 300)
    return world.end()


def frozen_before_its_pick(seed):
    """The lock expires under it; its pick is refused."""
    world, now = begun(seed, result="fenced")
    late = world.ask("list", "a", now - 10)
    world.enter(late, now - 6, now - 5, 5)
    world.look(late, now, 1)
    finish(world, pick(world, "b", now + 100, 1, token=6), now + 200)
    world.pick_refused(late, now + 300, 6)
    world.leave(late, now + 310, now + 311)
    world.turned_away(late, now + 312, reason="pick-refused")
    return world.end()


def older_token_and_another_task(seed):
    """With a fence a section with an old token may pick a task that nobody else had."""
    world, now = begun(seed, result="fenced")
    finish(world, pick(world, "a", now, 1, token=6), now + 50)
    finish(world, pick(world, "b", now + 100, 2, token=5), now + 150)
    return world.end()


def died_behind_its_pick(seed):
    """It could not say that it had picked the task; nobody finds one until its lease is over."""
    world, now = begun(seed, count=1)
    dead = world.ask("list", "a", now - 10)
    world.enter(dead, now - 6, now - 5)
    world.look(dead, now, 1)
    die(world, dead, now + 20)
    nothing(world, "b", now + LEASE // 2)
    finish(world, pick(world, "b", now + LEASE, 1), now + LEASE + 50)
    return world.end()


def lost_the_answer_of_its_pick(seed):
    world, now = begun(seed, count=1)
    request = world.ask("list", "a", now - 10)
    world.enter(request, now - 6, now - 5)
    world.look(request, now, 1)
    world.leave(request, now + 30, now + 31)
    world.turned_away(request, now + 32, 500, "store-error", "unknown")
    nothing(world, "b", now + LEASE + 10 * MS)  # a command may be carried out late
    return world.end()


def wrote_a_result_and_died(seed):
    """Redis has a result that nobody could record."""
    world, now = begun(seed, count=1)
    dead = pick(world, "a", now, 1)
    send(world, dead, now + 40)
    die(world, dead, now + 50)
    nothing(world, "b", now + LEASE + 10 * MS, "all-done")
    world.left("list", {1})
    return world.end()


def sent_a_result_that_never_came(seed):
    """Its request does not know; Redis has none, and another one writes it."""
    world, now = begun(seed, count=1)
    lost = pick(world, "a", now, 1)
    send(world, lost, now + 40)
    world.turned_away(lost, now + 60, 500, "store-error", "unknown")
    finish(world, pick(world, "b", now + LEASE, 1), now + LEASE + 50)
    return world.end()


def all_leased(seed):
    """A worker finds nothing: the only task is leased, for as long as a lease may last."""
    world, now = begun(seed, count=1)
    pick_ = pick(world, "a", now, 1)
    nothing(world, "b", now + 20 + LEASE + MS + 4)
    finish(world, pick_, now + LEASE + 2 * MS)
    return world.end()


def the_last_is_picked_while_it_looks(seed):
    world, now = begun(seed, rung="none", count=1)
    request = world.ask("list", "b", now - 5)
    world.look(request, now + 11, 0)
    world.turned_away(request, now + 20)
    first = world.ask("list", "a", now - 5)
    world.look(first, now, 1)
    world.picked(first, now + 11, now + 20)
    finish(world, first, now + 50)
    return world.end()


def looked_again(seed):
    """What it found had its result by then: it finds another one."""
    world, now = begun(seed)
    late = pick(world, "a", now, 1)
    again = now + LEASE
    request = world.ask("list", "b", again - 10)
    world.enter(request, again - 6, again - 5)
    world.look(request, again, 1)
    finish(world, late, again + 1)
    world.look(request, again + 20, 2)
    world.picked(request, again + 30, again + 40)
    world.leave(request, again + 50, again + 51)
    finish(world, request, again + 60)
    return world.end()


def only_read(seed):
    world, now = begun(seed)
    finish(world, pick(world, "a", now, 1), now + 50)
    reader = world.ask("list", "b", now + 10, does="look")
    world.requests.remove(reader)
    world.about(reader, now + 20, "answered", code=200)
    return world.end()


def without_leases(seed):
    """A pick takes the task out of its list; its worker may take as long as it likes."""
    world, now = begun(seed, lease_ms=0)
    first = pick(world, "a", now, 1)
    finish(world, pick(world, "b", now + 100, 2), now + 200)
    finish(world, first, now + 1000 * MS)
    return world.end()


NEAR_MISSES = [tasks.clean, taken_over, taken_over_before_its_answer_came, picked_before_or_behind,
               picked_at_the_stamp_of_a_result, late_and_alone,
               late_and_refused, picked_at_once_with_a_fence, frozen_before_its_pick, older_token_and_another_task,
               died_behind_its_pick, lost_the_answer_of_its_pick, wrote_a_result_and_died, sent_a_result_that_never_came, all_leased,
               the_last_is_picked_while_it_looks, looked_again, only_read, without_leases]


@pytest.mark.parametrize("make", NEAR_MISSES, ids=lambda make: make.__name__)
def test_never_accused(make):
    with judge({seed: make(seed) for seed in range(2 * SEEDS if make is tasks.clean else 12)}) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            assert verdict["result"] == "ok", (seed, folder, verdict["reasons"])
            assert verdict["agrees"], (seed, verdict["expected"])
            assert verdict["repeated"] == verdict["lost"] == verdict["sent_away"] == verdict["vanished"] == 0, (seed, verdict)


# ---- What the verdict tells -----------------------------------------------------------------------
def told_of(world):
    with judge({1: world.end()}) as verdicts:
        verdict, folder = verdicts[1]
        with open(folder + "/timeline.svg", encoding="utf-8") as file:
            picture = file.read()
        return verdict, audit(folder).stdout, audit("--row", folder).stdout, picture


def test_counts_and_measures():
    """Task 1 is picked, and its worker dies; it is taken over. Task 2 is done at once. Task 3 is open, task 4 leased."""
    world, now = begun(1, count=4, fault="killed", expect=None)
    finish(world, pick(world, "b", now + 100, 2), now + 200)
    dead = pick(world, "a", now, 1)
    die(world, dead, now + 40)
    finish(world, pick(world, "b", now + LEASE, 1), now + LEASE + 5 * MS)
    late = pick(world, "b", now + LEASE + 200, 4)
    send(world, late, now + LEASE + 6 * MS)
    world.turned_away(late, now + LEASE + 7 * MS, 500, "store-error", "unknown")
    world.left("list", {1, 2}, open_=1, leased=1)
    verdict, said, row, picture = told_of(world)
    wanted = {"service": "tasks", "write_result": "plain", "task_ms": 3, "lease_ms": 30, "requests": 4, "tasks": 4, "picks": 4,
              "results": 2, "repeated": 0, "picked_twice": 0, "taken_over": 1, "late": 0, "refused": 0, "nothing_found": 0, "lost": 0,
              "unfinished": 2, "open": 1, "leased": 1, "unknown": 1, "unknown_done": 0, "result": "ok"}
    assert {name: verdict[name] for name in wanted} == wanted, verdict
    assert "write" not in verdict and "sold" not in verdict
    assert verdict["by_instance"] == {"a": {"served": 1, "picks": 1, "results": 0}, "b": {"served": 3, "picks": 3, "results": 2}}
    assert verdict["step_ms"]["max"] == 7 and verdict["take_over_ms"]["p50"] == 30
    assert said.splitlines()[-1] == "expected OK, got OK", said
    assert "tasks that nobody had finished when the run ended: 2 (1 open, 1 leased); they can still be picked" in said
    assert row.split()[:11] == ["watchdog", "plain", "30", "4", "4", "4", "2", "0", "1", "0", "0"], row
    assert "results 2" in picture and "tasks 4" in picture and "rung watchdog, lease 30 ms, result plain" in picture


def test_a_repeated_task():
    """The words, the picture and its steps."""
    world, now = begun(1, rung="none", expect=None, fault="none")
    first, second = world.ask("list", "a", now, name="one"), world.ask("list", "b", now + 1, name="two")
    for request, begins in ((first, now + 10), (second, now + 11)):
        world.enter(request, begins, begins + 2)
        world.look(request, begins + 10, 1)
        world.picked(request, begins + 20, begins + 30)
        world.leave(request, begins + 40, begins + 41)
        finish(world, request, begins + 100)
    verdict, said, row, picture = told_of(world)
    assert verdict["repeated"] == verdict["picked_twice"] == 1 and verdict["results"] == 2
    assert said.splitlines()[-1] == "expected REPEATED or OVERLAP, got REPEATED (+1)", said
    assert said.startswith("- 1 task has two results; first: task 1 of list: request one on a picked it at 0.000 ms, and its result was "
                           "accepted by 0.000 ms; request two on b picked it at"), said
    assert row.rstrip().endswith("REPEATED|OVERLAP REPEATED (+1)"), row
    for step in ("one finds task 1", "two has picked task 1", "one has done the work of task 1", "the result of two for task 1 is there",
                 "Both picked task 1."):
        assert step in picture, step


def test_a_lost_task():
    world, now = begun(1, lease_ms=0, expect=None, fault="killed_working")
    die(world, pick(world, "a", now, 1, name="one"), now + 40)
    finish(world, pick(world, "b", now + 100, 2), now + 200)
    world.left("list", {2}, open_=0)
    verdict, said, _, picture = told_of(world)
    assert verdict["lost"] == 1 and said.splitlines()[-1] == "expected LOST_TASK, got LOST_TASK (-1)", said
    assert said.startswith("- 1 task is lost: without a result in the end, and nobody can pick it any more; first: of list list. Request one "
                           "picked task 1 at 0.000 ms, and wrote no result"), said
    assert "a is killed" in picture


def test_the_head_has_a_word_for_each_number_of_the_row():
    with judge({1: tasks.clean(1, kills=0)}) as verdicts:
        row = audit("--row", verdicts[1][1]).stdout
    head = audit("--head=tasks").stdout.splitlines()[1]
    assert len(head.split()) == len(row.split()) == 15


@pytest.mark.parametrize("field, value, sentence", [
    ("result", "empty", '"result" is "empty"; it must be plain or fenced'), ("lease_ms", None, 'no "lease_ms"'),
    ("task_ms", -1, '"task_ms"')])
def test_a_setting_that_is_none(tmp_path, field, value, sentence):
    world = tasks.clean(1)
    world.run[field] = value
    done = audit(world.write(tmp_path / "run"))
    assert done.returncode == 2 and sentence in done.stderr, done.stderr


def test_a_large_run_with_kills():
    """All tasks are done in the end, those of the dead, too."""
    world = tasks.play(7, workers=18, loops=10000, kills=2, lost=0.01, rung="watchdog", result="fenced", items={"list": 3000},
                       lease_ms=40, tokens=True)
    with judge({1: world}) as verdicts:
        verdict, _ = verdicts[1]
    assert verdict["result"] == "ok", json.dumps(verdict["reasons"])
    assert verdict["unfinished"] == 0 and verdict["taken_over"] > 0 and verdict["unknown"] > 10
    assert verdict["results"] + verdict["unknown_done"] == 3000


# ---- What is expected -----------------------------------------------------------------------------
@pytest.mark.parametrize("settings, wanted", [
    ({}, ["ok"]), ({"lease_ms": 0}, ["ok"]), ({"lease_ms": 3}, ["ok", "repeated"]), ({"lease_ms": 3, "result": "fenced"}, ["ok"]),
    ({"rung": "none"}, ["overlap", "repeated"]), ({"rung": "local"}, ["overlap", "repeated"]),
    ({"rung": "local", "instances": ["a"]}, ["ok"]), ({"fault": "frozen"}, ["repeated"]),
    ({"fault": "frozen", "result": "fenced"}, ["ok"]), ({"fault": "frozen", "lease_ms": 0}, ["ok"]),
    ({"fault": "frozen_looking"}, ["overlap", "repeated"]), ({"fault": "frozen_looking", "result": "fenced"}, ["ok"]),
    ({"fault": "frozen_looking", "rung": "setnx"}, ["ok"]), ({"fault": "killed_working"}, ["ok"]),
    ({"fault": "killed_working", "lease_ms": 0}, ["lost_task"]), ({"fault": "killed_holding"}, ["ok"]),
    ({"fault": "killed_holding", "rung": "setnx"}, ["deadlock"]), ({"fault": "killed"}, ["ok"]),
    ({"fault": "killed", "lease_ms": 0}, ["lost_task", "ok"]), ({"fault": "killed", "rung": "setnx"}, ["deadlock", "ok"]),
    ({"fault": "killed_working", "lease_ms": 0, "rung": "none"}, ["lost_task", "overlap", "repeated"]), ({"fault": "flood"}, [])],
    ids=str)
def test_the_table(settings, wanted):
    world, now = begun(1, **{"fault": "none", "expect": None, **settings})
    finish(world, pick(world, "a", now, 1, token=5), now + 50)
    with judge({1: world.end()}) as verdicts:
        verdict = verdicts[1][0]
        assert sorted(verdict["expected"]) == wanted and len(verdict["expected_why"]) > 20, verdict["expected"]
