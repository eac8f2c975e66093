# SPDX-License-Identifier: Apache-2.0
"""Plants a fault into a clean run of tasks, and sees that it is found; and its twin, which is none, is not."""
import re

import pytest
import tasks
from judge import SEEDS, judge
from planted import worlds_of
from tasks import MS
from test_tasks import finish, nothing, pick, refuse, send

PLANTERS, TWINS = [], []
ONE = {"items": {"list": 40}, "instances": ["a", "b"], "kills": 0, "lost": 0, "slow": 0, "lease_ms": 30}


def made(function, kwargs):
    def make(seed):
        world = tasks.clean(seed, **{**ONE, **kwargs})
        return world if function(world, world.random) else None
    return make


def plant(wanted, reason, /, **kwargs):
    """Registers a planter: it takes a clean world and changes one thing; None: that world has no place for it."""
    def register(function):
        PLANTERS.append(pytest.param(made(function, kwargs), wanted, reason, id=function.__name__))
        return function
    return register


def twin(**kwargs):
    def register(function):
        TWINS.append(pytest.param(made(function, kwargs), id=function.__name__))
        return function
    return register


@pytest.mark.parametrize("make, result, reason", PLANTERS)
def test_found(make, result, reason):
    with judge(worlds_of(make, SEEDS // 2)) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            assert verdict["result"] == result, (seed, folder, verdict["result"], verdict["reasons"])
            assert any(re.search(reason, text) for text in verdict["reasons"]), (seed, folder, verdict["reasons"])


@pytest.mark.parametrize("make", TWINS)
def test_its_twin_is_not_accused(make):
    with judge(worlds_of(make, SEEDS // 2)) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            assert verdict["result"] == "ok", (seed, folder, verdict["reasons"])


# ---- Places ---------------------------------------------------------------------------------------
def end(world):
    """A time behind all others."""
    return max(line["t_ns"] for lines in world.events.values() for line in lines) + 10


def token(world, more=10):
    """Newer than all others."""
    given = [s["granted"]["token"] or 0 for s in world.sections]
    return max(given) + more if any(given) else None


def done(world):
    return {r["result"]["task"] for r in world.picks if "result" in r}


def over(world):
    """Ends the run: what Redis has follows from the results."""
    world.left("list", done(world))
    world.end()
    return True


def one_of(world, rand, wanted):
    """A pick whose task nobody else picked."""
    tasks_of = [r["picked"]["task"] for r in world.picks]
    found = [r for r in world.picks if tasks_of.count(r["picked"]["task"]) == 1 and wanted(r)]
    return rand.choice(found) if found else None


def open_tasks(world):
    touched = {line["task"] for r in world.requests for line in r.get("looks", [])}
    return [task for task in range(1, world.run["items"]["list"] + 1) if task not in touched]


def move(world, request, t_ns):
    """Its picked line, and all behind it, come so that it is answered at t_ns."""
    since = request["picked"]["t_ns"]
    by = t_ns - since
    for line in world.events[request["instance"]]:
        if line.get("request") == request["id"] and line["t_ns"] >= since and line is not request["looks"][-1]:
            line["t_ns"] += by
            if "sent_ns" in line and line is not request["picked"]:
                line["sent_ns"] += by


TWICE = r"1 task has two results; first: task \d+ of list: request .* on . picked it at .* ms, and its result was accepted by .*; request "
ONCE_MORE = r"1 task was picked though it had its result; first: task \d+ of list"
AT_ONCE = r"1 task was picked while another worker had it; first: task \d+ of list"


# ---- REPEATED: two results ------------------------------------------------------------------------
@plant("repeated", TWICE, result="plain")
def a_late_worker_writes_a_second_result(world, _):
    """It was taken over, and writes first."""
    if not open_tasks(world):
        return False
    now, task = end(world), open_tasks(world)[0]
    late = pick(world, "a", now, task, token(world))
    again = now + 31 * MS
    other = pick(world, "b", again, task, token(world))
    finish(world, late, again + 40)
    finish(world, other, again + 60)
    return over(world)


@twin(result="plain")
def a_late_worker_writes_the_only_result(world, _):
    if not open_tasks(world):
        return False
    now, task = end(world), open_tasks(world)[0]
    late = pick(world, "a", now, task, token(world))
    again = now + 31 * MS
    other = pick(world, "b", again, task, token(world))
    finish(world, late, again + 40)
    send(world, other, again + 60)
    world.turned_away(other, again + 80, 503, "deadline", "fail")
    return over(world)


@plant("repeated", TWICE, result="fenced", lease_ms=30)
def the_fence_lets_two_through(world, _):
    if not open_tasks(world):
        return False
    now, task = end(world), open_tasks(world)[0]
    late = pick(world, "a", now, task, token(world))
    again = now + 31 * MS
    finish(world, pick(world, "b", again, task, token(world)), again + 60)
    finish(world, late, again + 100)
    return over(world)


@twin(result="fenced", lease_ms=30)
def the_fence_lets_one_through(world, _):
    if not open_tasks(world):
        return False
    now, task = end(world), open_tasks(world)[0]
    late = pick(world, "a", now, task, token(world))
    again, newest = now + 31 * MS, token(world)
    finish(world, pick(world, "b", again, task, newest), again + 60)
    refuse(world, late, again + 100, newest)
    return over(world)


@plant("repeated", TWICE, lease_ms=0, result="plain")
def one_request_has_the_task_of_another(world, rand):
    """All its lines say so, and its client."""
    results = [r for r in world.picks if "result" in r]
    if len(results) < 2:
        return False
    one, two = rand.sample(results, 2)
    task = two["picked"]["task"]
    for line in world.events[one["instance"]]:
        if line.get("request") == one["id"] and "task" in line:
            line["task"] = task
    world.sample_of(one)["task"] = task
    world.left("list", done(world), open_=0, leased=0)
    world.redis["after"]["tasks"]["list"]["open"] = world.redis["after"]["tasks"]["list"]["missing_count"]
    world.end()
    return True


# ---- REPEATED: picked while another one had it ----------------------------------------------------
def picked_again(world, after_ns):
    """A worker holds a task; another one's pick of it is answered so long after the first was sent. Neither ends its work."""
    if not open_tasks(world):
        return False
    now, task = end(world), open_tasks(world)[0]
    first = pick(world, "a", now, task, token(world))
    again = first["picked"]["sent_ns"] + after_ns - 20
    second = pick(world, "b", again, task, token(world), sent=again)
    for request in (first, second):
        world.turned_away(request, again + 100, 503, "deadline", "fail")
    return over(world)


@plant("repeated", AT_ONCE, result="plain")
def picked_while_the_lease_ran(world, _):
    return picked_again(world, 29 * MS - 1)


@twin(result="plain")
def picked_when_the_lease_may_be_over(world, _):
    return picked_again(world, 29 * MS)


@twin(result="fenced", lease_ms=30)
def picked_while_the_lease_ran_and_the_fence_tells_them_apart(world, _):
    return picked_again(world, MS)


@plant("repeated", AT_ONCE, result="plain", lease_ms=0)
def picked_again_without_a_lease(world, _):
    """However late: nobody gave it back."""
    if not world.picks or not open_tasks(world):
        return False
    now, task = end(world), open_tasks(world)[0]
    for instance, later in (("a", 0), ("b", 900 * MS)):
        request = pick(world, instance, now + later, task, token(world))
        world.turned_away(request, now + later + 50, 503, "deadline", "fail")
    return over(world)


# ---- REPEATED: picked though it was done ----------------------------------------------------------
def picked_behind(world, rand, lease_ns, later):
    """Behind a result, and behind the lease of the pick that led to it."""
    request = one_of(world, rand, lambda r: "result" in r)
    if not request:
        return False
    now = max(end(world), request["picked"]["t_ns"] + lease_ns)
    move(world, request, now - 20)
    now = request["result"]["t_ns"] if later else request["result"]["t_ns"] - 1
    now = max(now, request["picked"]["t_ns"] + lease_ns) if later else now
    again = world.ask("list", "b", now - 40)
    world.enter(again, now - 30, now - 29, token(world))
    world.look(again, now - 20, request["picked"]["task"])
    world.picked(again, now + 1, now + 10)
    world.leave(again, now + 20, now + 21)
    world.turned_away(again, now + 60, 503, "deadline", "fail")
    return over(world)


@plant("repeated", ONCE_MORE, result="plain")
def picked_behind_its_result(world, rand):
    return picked_behind(world, rand, 31 * MS, True)


@plant("repeated", ONCE_MORE, result="fenced", lease_ms=30)
def picked_behind_its_result_in_spite_of_the_fence(world, rand):
    return picked_behind(world, rand, 31 * MS, True)


@twin(result="fenced", lease_ms=30)
def picked_at_the_stamp_of_its_result(world, rand):
    return picked_behind(world, rand, 0, False)


# ---- LOST_TASK ------------------------------------------------------------------------------------
LOST = r"(1 task is|\d+ tasks are) lost: without a result in the end, and nobody can pick (it|them) any more; first: of list list"


@plant("lost_task", LOST)
def no_longer_in_the_list(world, rand):
    left = world.redis["after"]["tasks"]["list"]
    where = rand.choice(["open", "leased"])
    left[where] -= 1
    return left[where] >= 0


@plant("lost_task", LOST + r"\. Request .* picked task \d+ at .* ms, and wrote no result", lease_ms=0)
def died_without_a_lease(world, _):
    if not open_tasks(world):
        return False
    now, task = end(world), open_tasks(world)[0]
    request = pick(world, "a", now, task, token(world))
    world.turned_away(request, now + 50, 503, "deadline", "fail")
    over(world)
    world.redis["after"]["tasks"]["list"]["open"] -= 1
    return True


@twin()
def leased_in_the_end(world, _):
    if not open_tasks(world):
        return False
    now, task = end(world), open_tasks(world)[0]
    request = pick(world, "a", now, task, token(world))
    world.turned_away(request, now + 50, 503, "deadline", "fail")
    over(world)
    left = world.redis["after"]["tasks"]["list"]
    left.update(open=left["open"] - 1, leased=left["leased"] + 1)
    return True


@plant("lost_task", r"1 result was accepted, and is not in Redis in the end; first: task \d+ of list, whose result request")
def a_result_is_gone(world, rand):
    """The task can be picked again, so it is not lost; what was accepted is."""
    if not done(world):
        return False
    world.left("list", done(world) - {rand.choice(sorted(done(world)))})
    return True


def test_results_are_gone_and_too_many_are_missing_to_name_them():
    """Only a thousand are named, and they are others."""
    world = tasks.clean(3, **{**ONE, "items": {"list": 12}, "workers": 3, "loops": 6, "result": "plain"})
    gone, count = max(done(world)), 3000
    world.left("list", done(world) - {gone})
    left = world.redis["after"]["tasks"]["list"]
    left.update(missing=list(range(2001, 3001)), missing_count=left["missing_count"] + count - 12, open=left["open"] + count - 12)
    world.run["items"]["list"] = world.redis["before"]["tasks"]["list"]["open"] = count
    with judge({3: world}) as verdicts:
        verdict, _ = verdicts[3]
    assert verdict["result"] == "lost_task" and verdict["vanished"] == 1, verdict["reasons"]
    assert re.search(r"list: \d+ tasks got a result, and Redis has \d+ in the end", verdict["reasons"][0]), verdict["reasons"]


# ---- The lock and its tokens ----------------------------------------------------------------------
def one_behind_the_other(world, between_ns):
    if len(open_tasks(world)) < 2:
        return False
    now, tasks_ = end(world), open_tasks(world)
    for instance, at, task in (("a", now, tasks_[0]), ("b", now + 35 + between_ns, tasks_[1])):
        request = pick(world, instance, at, task, token(world))
        world.turned_away(request, at + 90, 503, "deadline", "fail")
    return over(world)


@plant("overlap", "sections that began while another one of their lock was still inside: 1", result="plain")
def inside_a_nanosecond_too_long(world, _):
    return one_behind_the_other(world, -1)


@twin(result="plain")
def enters_as_the_other_leaves(world, _):
    return one_behind_the_other(world, 0)


@twin(result="fenced", lease_ms=30)
def inside_together_with_a_fence(world, _):
    return one_behind_the_other(world, -1)


@plant("overlap", r"picks or results accepted with an old token: 1; first: request .* with token \d+, but request .* had picked task",
       result="fenced", lease_ms=30)
def picked_with_an_old_token(world, _):
    if not open_tasks(world):
        return False
    now, task = end(world), open_tasks(world)[0]
    for instance, at, given in (("a", now, token(world)), ("b", now + 32 * MS, token(world, -1))):
        request = pick(world, instance, at, task, given)
        world.turned_away(request, at + 60, 503, "deadline", "fail")
    return over(world)


@plant("overlap", "picks or results accepted with an old token: 1", result="fenced", lease_ms=30)
def wrote_with_an_old_token(world, _):
    if not open_tasks(world):
        return False
    now, task = end(world), open_tasks(world)[0]
    late = pick(world, "a", now, task, token(world))
    again = now + 32 * MS
    other = pick(world, "b", again, task, token(world))
    finish(world, late, again + 60)
    world.turned_away(other, again + 90, 503, "deadline", "fail")
    return over(world)


@twin(result="fenced", lease_ms=30)
def wrote_before_the_newer_pick_was_answered(world, _):
    if not open_tasks(world):
        return False
    now, task = end(world), open_tasks(world)[0]
    late = pick(world, "a", now, task, token(world))
    again = now + 32 * MS
    other = pick(world, "b", again, task, token(world))
    world.worked(late, again + 18)
    world.sending(late, again + 19)
    world.result(late, other["picked"]["t_ns"], again + 40)
    world.told(late, again + 41)
    world.turned_away(other, again + 90, 503, "deadline", "fail")
    return over(world)


@plant("overlap", "tokens that did not grow", result="plain", tokens=True)
def a_lock_gives_an_old_token(world, _):
    if not open_tasks(world):
        return False
    now = end(world)
    request = pick(world, "a", now, open_tasks(world)[0], 1)
    if max(s["granted"]["token"] for s in world.sections) == 1:
        return False
    world.turned_away(request, now + 60, 503, "deadline", "fail")
    return over(world)


# ---- UNFINISHED -----------------------------------------------------------------------------------
AWAY = r"workers that found nothing to pick, though a task could be picked: 1; first: request .* looked into list by .* ms, when "


@plant("unfinished", AWAY + "a task that nobody ever picked was free")
def nothing_is_found_though_a_task_is_open(world, _):
    if not open_tasks(world):
        return False
    nothing(world, "a", end(world) + 20, token=token(world))
    return over(world)


def nothing_behind_a_lease(world, rand, spare_ns):
    """All are done but one, whose worker gave up; another looks so long after its lease may be over."""
    count = max(done(world), default=0) + 1
    if done(world) != set(range(1, count)) or open_tasks(world)[0] != count:
        return False
    world.run["items"]["list"] = world.redis["before"]["tasks"]["list"]["open"] = count
    now = end(world)
    request = pick(world, "a", now, count, token(world))
    world.turned_away(request, now + 60, 503, "deadline", "fail")
    free = request["picked"]["t_ns"] + 31 * MS
    looker = world.ask("list", rand.choice("ab"), free + spare_ns - 5)
    world.enter(looker, free + spare_ns - 3, free + spare_ns, token(world))
    world.look(looker, free + spare_ns + 9, 0)
    world.leave(looker, free + spare_ns + 20, free + spare_ns + 21)
    world.turned_away(looker, free + spare_ns + 30)
    return over(world)


@plant("unfinished", AWAY + r"task \d+ was free")
def nothing_is_found_though_a_lease_is_over(world, rand):
    return nothing_behind_a_lease(world, rand, 0)


@twin()
def nothing_is_found_while_a_lease_may_run(world, rand):
    return nothing_behind_a_lease(world, rand, -1)


# ---- Records that are missing or contradict each other ----------------------------------------------
@plant("inconclusive", "requests without an end: 1, first .*; every invoke must have its answered, refused, fail or unknown")
def no_end(world, rand):
    world.remove(rand.choice(world.requests)["outcome"])
    return True


@plant("inconclusive", "seq is .*: lines are missing")
def a_line_is_lost(world, rand):
    instance = rand.choice(world.run["instances"])
    world.seq_edits[instance] = lambda lines: lines.pop(rand.randint(1, len(lines) - 2))
    return len(world.events[instance]) > 2


@plant("inconclusive", "results of list in Redis that nobody wrote: 1")
def redis_has_a_result_more(world, _):
    if not open_tasks(world):
        return False
    world.left("list", done(world) | {open_tasks(world)[0]})
    return True


@plant("inconclusive", "redis.json contradicts itself: of 40 tasks of list")
def redis_has_a_task_more(world, _):
    world.redis["after"]["tasks"]["list"]["open"] += 1
    return True


@plant("inconclusive", "redis.json contradicts itself: of 40 tasks of list")
def redis_says_that_a_result_is_missing_and_there(world, rand):
    """It names a task as one without a result, and counts it as done: nobody has lost it."""
    if not done(world):
        return False
    left = world.redis["after"]["tasks"]["list"]
    left["missing"] = sorted(left["missing"] + [rand.choice(sorted(done(world)))])
    left["missing_count"] += 1
    return True


@plant("inconclusive", "redis.json contradicts itself: of 40 tasks of list")
def redis_has_fewer_results_and_they_are_not_missing(world, _):
    if not done(world):
        return False
    world.redis["after"]["tasks"]["list"]["done"] = 0
    return True


@plant("inconclusive", "the run began with 39 open, 0 leased and 0 done tasks of list; run.json says 40")
def a_result_is_gone_from_a_list_that_was_another_one(world, rand):
    if not done(world):
        return False
    world.left("list", done(world) - {rand.choice(sorted(done(world)))})
    world.redis["before"]["tasks"]["list"]["open"] -= 1
    return True


@plant("inconclusive", "the run began with 39 open, 0 leased and 1 done tasks of list; run.json says 40, and all must be open")
def a_task_was_done_before(world, _):
    world.redis["before"]["tasks"]["list"].update(open=39, done=1)
    return True


@plant("inconclusive", '"missing" must list .* tasks from 1 to 40')
def too_few_are_named(world, _):
    left = world.redis["after"]["tasks"]["list"]
    return bool(left["missing"]) and left["missing"].pop() > 0


@plant("inconclusive", "the instance's history says that it told another task")
def the_client_got_another_task(world, rand):
    answered = [r for r in world.requests if r["code"] == 200]
    if not answered:
        return False
    sample = world.sample_of(rand.choice(answered))
    sample["task"] += 1
    return True


@plant("inconclusive", "another instance's history has the answer")
def the_client_names_another_instance(world, rand):
    answered = [r for r in world.requests if r["code"] == 200]
    if not answered:
        return False
    sample = world.sample_of(rand.choice(answered))
    sample["instance"] = "b" if sample["instance"] == "a" else "a"
    return True


@plant("inconclusive", "results that were accepted, of requests that ended with refused or fail: 1")
def wrote_and_failed(world, rand):
    answered = [r for r in world.requests if r["code"] == 200]
    if not answered:
        return False
    request = rand.choice(answered)
    request["outcome"].update(event="fail", code=500, reason="store-error")
    world.sample_of(request).update(responseCode=500, task="", item="", instance="")
    world.passed_of(request)["status"] = 500
    return True


def other_task(world, rand, lines):
    """Those lines of a request that wrote a result name the task of another one that did."""
    results = [r for r in world.picks if "result" in r]
    if len(results) < 2:
        return None
    one, two = rand.sample(results, 2)
    for line in world.events[one["instance"]]:
        if line.get("request") == one["id"] and line["event"] in lines:
            line["task"] = two["picked"]["task"]
    return one


@plant("inconclusive", "worked of task .*, and its request had task")
def two_lines_against_the_others(world, rand):
    """It did not pick what it worked at: that proves nothing about either task."""
    return other_task(world, rand, ("looked", "picked")) is not None


@plant("inconclusive", "the instance's history says that it told another task")
def all_lines_against_the_client(world, rand):
    request = other_task(world, rand, ("looked", "picked", "worked", "sending", "result", "answered"))
    if not request:
        return False
    world.left("list", done(world) | {world.sample_of(request)["task"]})
    return True


def changed(event, **fields):
    def change(world, rand):
        lines = [r[event] for r in world.requests if event in r]
        if not lines:
            return False
        line = rand.choice(lines)
        line.update({name: value(line) for name, value in fields.items()})
        return True
    return change


@plant("inconclusive", "picked of task .*, and its request had task")
def picked_another_than_it_found(world, rand):
    return changed("picked", task=lambda line: line["task"] % 40 + 1)(world, rand)


@plant("inconclusive", "result of task .*, and its request had task")
def wrote_another_than_it_picked(world, rand):
    return changed("result", task=lambda line: line["task"] % 40 + 1)(world, rand)


@plant("inconclusive", "answered of task .*, and its request had task")
def told_another_than_it_wrote(world, rand):
    return changed("outcome", task=lambda line: line["task"] % 40 + 1 if "task" in line else 1)(world, rand) and any(
        r["outcome"]["event"] == "answered" and r["outcome"]["task"] != r["result"]["task"] for r in world.requests if "result" in r)


@plant("inconclusive", "picked with token .*, and its lock was granted with", tokens=True)
def picked_with_another_token(world, rand):
    return changed("picked", token=lambda line: line["token"] + 1)(world, rand)


@plant("inconclusive", r"picked with token 0, and its lock was granted with 0; they must be the same, and above 0", result="fenced", lease_ms=30)
def a_fence_without_tokens(world, rand):
    if not world.picks:
        return False
    request = rand.choice(world.picks)
    request["section"]["granted"]["token"] = request["picked"]["token"] = 0
    return True


@plant("inconclusive", '"sent_ns" is .*; it must lie between the line before it')
def sent_before_it_looked(world, rand):
    if not world.picks:
        return False
    request = rand.choice(world.picks)
    request["picked"]["sent_ns"] = request["looks"][-1]["t_ns"] - 1
    return True


@plant("inconclusive", "in which its request is not inside; it must be")
def picked_under_another_hold(world, rand):
    return changed("picked", hold=lambda line: "nobody:1#1")(world, rand)


@plant("inconclusive", "is out of order; it must be looked, picked or pick_refused, worked, sending, result or result_refused")
def a_line_is_missing(world, rand):
    found = [r for r in world.picks if "result" in r]
    if not found:
        return False
    world.remove(rand.choice(found)[rand.choice(["picked", "worked", "sending"])])
    return True


@plant("inconclusive", "is answered without a result; its result must come first")
def answered_without_a_result(world, rand):
    found = [r for r in world.picks if "result" in r]
    if not found:
        return False
    world.remove(rand.choice(found)["result"])
    return True


@plant("inconclusive", '"task" must be a whole number from 1 to 40')
def a_task_that_is_none(world, rand):
    return changed("picked", task=lambda line: 41)(world, rand)


@plant("inconclusive", "recorded with another task_ms, lease_ms or result")
def other_settings(world, rand):
    name, value = rand.choice([("task_ms", 6), ("lease_ms", 7)])
    world.begin[name] = value
    return True


@plant("inconclusive", 'recorded with service "shop"; it must be run.json.s "tasks"')
def records_of_a_shop(world, _):
    del world.begin["service"]
    return True


@plant("inconclusive", 'there is no event "filled"')
def an_event_of_a_menu(world, rand):
    if not world.picks:
        return False
    rand.choice(world.picks)["picked"]["event"] = "filled"
    return True
