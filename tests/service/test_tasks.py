# SPDX-License-Identifier: Apache-2.0
"""tasksd: which tasks are picked twice, which are lost with their worker, and which results are accepted twice."""
import json
import os
import pathlib
import signal
import subprocess
import time

import pytest

import lua_scripts
from failpoints import arm, park, paused
from test_resolve import LatePost
from world import Redis, check_history, read_history, wait_until

TASKSD = os.environ["TASKSD"]
LUA = pathlib.Path(__file__).resolve().parents[2] / "tasks" / "lua"
JSON = {"Content-Type": "application/json"}
KEYS = ["tasks:{x}", "tasks:{x}:tokens", "tasks:{x}:results", "tasks:{x}:list"]
LONG, SHORT = ("--lease-ms", 600000), ("--lease-ms", 300)
FENCED = ("--lock", "fair", "--result", "fenced")


@pytest.fixture
def tasksd(redis, start, monkeypatch):
    monkeypatch.setenv("INVENTORYD", TASKSD)
    return lambda *flags, of=None, **named: start(of or redis, "--task-ms", 0, "--enable-failpoints", *flags, **named)


def lay(service, tasks, name="x"):
    answer = service.admin("PUT", f"/lists/{name}", json.dumps({"tasks": tasks}), JSON)
    assert answer.status == 200, answer
    return answer.json


def work(service, request=None, name="x"):
    return service.ask("POST", f"/lists/{name}/work", headers={"X-Request-Id": request} if request else {})


def state(service, name="x"):
    """How many are open, leased, done."""
    answer = service.ask("GET", f"/lists/{name}").json
    return answer["open"], answer["leased"], answer["done"]


def taken_over(service, request):
    """The first task is picked once its lease has ended."""
    answers = []
    wait_until(lambda: answers.append(work(service, request)) or answers[-1].status == 200, "the lease ends")
    assert {answer.problem for answer in answers[:-1]} <= {"no-task"}
    return answers[-1]


def sha1(name):
    return lua_scripts.sha1(LUA / f"{name}.lua").encode()


# ---- One list, and what is no list ----


def test_a_list_is_worked_on(redis, tasksd):
    service, other = tasksd(*FENCED), tasksd(*FENCED, name="b")
    assert work(service).problem == "unknown-list" and service.ask("GET", "/lists/x").problem == "unknown-list"
    assert lay(service, 3) == {"list": "x", "tasks": 3, "instance": "a"}
    assert state(service) == (3, 0, 0)
    answers = [work(one, f"r{number}") for number, one in enumerate((service, other, service))]
    assert sorted(answer.json["task"] for answer in answers) == [1, 2, 3]
    tokens = [answer.json["token"] for answer in answers]
    assert tokens == sorted(tokens) and {answer.json["instance"] for answer in answers} == {"a", "b"}
    assert [redis("HGET", KEYS[2], answer.json["task"]) for answer in answers] == ["r0", "r1", "r2"]
    assert [redis("HGET", KEYS[1], answer.json["task"]) for answer in answers] == [str(token) for token in tokens]
    assert work(service).problem == "all-done"
    assert state(other) == (0, 0, 3) and not redis("EXISTS", KEYS[0])
    assert other.ask("GET", "/lists/x").json == {"list": "x", "tasks": 3, "open": 0, "leased": 0, "done": 3, "instance": "b"}
    assert [service.metric(f"tasks_{what}_total") for what in ("picked", "results", "refused", "taken_over")] == [2, 2, 0, 0]
    lay(service, 1)
    assert state(service) == (1, 0, 0) and not redis("EXISTS", *KEYS[1:3])
    assert service.admin("GET", "/readyz").status == 200


def test_what_is_refused(redis, tasksd):
    service = tasksd()
    for method, path in (("POST", "/lists/X/work"), ("GET", "/lists/" + 65 * "x"), ("POST", "/lists//work")):
        assert service.ask(method, path).problem == "invalid-name"
    assert service.ask("POST", "/lists/x/work?tasks=1").problem == "invalid-query"
    assert service.ask("PUT", "/lists/x", "{}", JSON).problem == "operators-only"
    for body in ('{"tasks":0}', '{"tasks":100001}', '{"tasks":-1}', '{"tasks":1.0}', '{"tasks":1e3}', '{"tasks":"3"}',
                 '{"tasks":3,"more":1}', '{"task":3}', "{}", "[3]"):
        answer = service.admin("PUT", "/lists/x", body, JSON)
        assert answer.problem == "invalid-value" and "1 to 100000" in answer.json["detail"], answer
        assert '{"tasks":1000}' in answer.json["detail"]
    answer = service.admin("PUT", "/lists/x", "3 tasks", JSON)
    assert answer.problem == "invalid-json" and '{"tasks":1000}' in answer.json["detail"]
    assert redis("DBSIZE") == 0


def test_the_longest_list(redis, tasksd):
    service = tasksd()
    lay(service, 100000)
    assert state(service) == (100000, 0, 0)
    assert redis("ZSCORE", KEYS[0], 100000) == "0" and redis("ZCARD", KEYS[0]) == 100000
    assert work(service).status == 200


def dump(redis):
    return [redis("DUMP", key) for key in KEYS]


@pytest.mark.parametrize("key", KEYS)
def test_a_key_of_another_type(redis, tasksd, key):
    service = tasksd(*FENCED)
    lay(service, 3)
    points = {point: park(service, f"tasks.{point}", work, service) for point in ("worked", "looked")}
    redis("DEL", key)
    redis("RPUSH", key, "somebody's")
    before = dump(redis)
    for point, one in points.items():
        arm(service, f"tasks.{point}", "off")
        assert one.result().problem == "data-invalid" and key + " is a list, " in one.result().json["detail"]
    for answer in (work(service), service.ask("GET", "/lists/x"), service.admin("PUT", "/lists/x", '{"tasks":1}', JSON)):
        assert answer.problem == "data-invalid" and key + " is a list, " in answer.json["detail"]
    assert dump(redis) == before


@pytest.mark.parametrize("task", ["a", "1.0", "-1", "", "1\"", 10 * "1"])
def test_a_task_that_is_no_number(redis, tasksd, task):
    service = tasksd()
    lay(service, 1)
    redis("ZADD", KEYS[0], -1, task)
    before = dump(redis)
    answer = work(service)
    assert answer.problem == "data-invalid" and KEYS[0] in answer.json["detail"]
    assert dump(redis) == before


SCRIPTS = {"lay": (3,), "look": (7, "fenced"), "take": (1, "l", 7, 60000, "fenced"), "result": (1, "l", 7, "r", "fenced")}
WITHOUT_LEASE = (1, "l", 7, 0, "fenced")
COMMANDS = {"lay": "type time zadd unlink hset", "look": "type time hmget zrange zcard hset",
            "take": "type time hmget hexists zscore zadd hset", "result": "type time hget hexists zrem hset"}


def listed(redis):
    """A list `l` of two tasks: 7 is the token that looked last, and picked the first."""
    redis("DEL", *KEYS)
    redis("ZADD", KEYS[0], 0, 1, 0, 2)
    redis("HSET", KEYS[1], 1, 7)
    redis("HSET", KEYS[2], 3, "somebody")
    redis("HSET", KEYS[3], "laid", "l", "tasks", 2, "token", 7)
    return dump(redis)


def run(redis, script, *words):
    """An error in its own words."""
    answer = redis("EVAL", lua_scripts.text(LUA / f"{script}.lua"), len(KEYS), *KEYS, *(words or SCRIPTS[script]))
    return str(answer) if isinstance(answer, Exception) else answer


@pytest.mark.parametrize("script, words, command", [
    *((script, SCRIPTS[script], command) for script, commands in COMMANDS.items() for command in commands.split()),
    ("take", WITHOUT_LEASE, "zrem"), ("take", WITHOUT_LEASE, "hset"), ("take with a result", SCRIPTS["take"], "zrem")],
    ids=lambda value: value if isinstance(value, str) else "off" if value == WITHOUT_LEASE else "on")
def test_a_command_that_redis_refuses(redis, script, words, command):
    """Redis undoes nothing of a script, so the refused one comes before all that is written."""
    listed(redis)
    if script == "take with a result":
        redis("HSET", KEYS[2], 1, "somebody")
    before = dump(redis)
    redis("ACL", "SETUSER", "default", "-" + command)
    try:
        answer = run(redis, script.split()[0], *words)
    finally:
        redis("ACL", "SETUSER", "default", "+@all")
    assert isinstance(answer, str) and ("run" in answer or "perm" in answer), answer
    assert dump(redis) == before
    assert not isinstance(run(redis, script.split()[0], *words), str)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_key_that_redis_refuses(redis, script, key):
    before = listed(redis)
    redis("ACL", "SETUSER", "default", "resetkeys", *("~" + name for name in KEYS if name != key))
    try:
        assert isinstance(run(redis, script), str)
    finally:
        redis("ACL", "SETUSER", "default", "allkeys")
    assert dump(redis) == before


TOKENS = ["inf", "0x10", "", " ", "7 ", "07", "-7", "7.0", "1e3", "nan", "somebody's", '7"', 17 * "1"]


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize("point", ["start", "looked", "worked"])
def test_a_token_that_is_no_number(redis, tasksd, tmp_path, point, token):
    service = tasksd(*FENCED, *LONG, "--history", tmp_path / "h.jsonl")
    lay(service, 1)
    one = park(service, f"tasks.{point}", work, service) if point != "start" else None
    key, field = (KEYS[1], 1) if point == "worked" else (KEYS[3], "token")
    redis("HSET", key, field, token)
    before = dump(redis)
    if one:
        arm(service, f"tasks.{point}", "off")
    answer = one.result() if one else work(service)
    assert answer.problem == "data-invalid" and key in answer.json["detail"] and "retry-after" not in answer.headers
    assert dump(redis) == before
    service.end()
    check_history(read_history(tmp_path / "h.jsonl"))


@pytest.mark.parametrize("flags, told", [
    (("--result", "fenced"), "--result fenced needs a rung that gives tokens, as --lock fair does; --lock watchdog gives none"),
    (("--lock", "redlock"), "--lock redlock needs other servers than the one that tasksd has"),
])
def test_settings_that_do_not_fit(redis, flags, told):
    done = subprocess.run([TASKSD, "--listen", "127.0.0.1:0", "--admin-listen", "off", "--redis", redis.url, *flags],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and f"tasksd: {told}" in done.stderr, done


# ---- Two workers ----


@pytest.mark.parametrize("lock, twice", [("none", True), ("local", True), ("watchdog", False), ("fair", False)])
@pytest.mark.parametrize("lease", ["on", "off"])
def test_two_workers_look_before_one_picks(redis, tasksd, lock, lease, twice):
    flags = ("--lock", lock, "--lease", lease, *LONG)
    service, other = tasksd(*flags), tasksd(*flags, name="b")
    lay(service, 2)
    first = park(service, "tasks.looked", work, service, "first")
    if twice:
        second = park(other, "tasks.picked", work, other, "second")
    else:
        second = other.in_background(work, other, "second")
        wait_until(lambda: other.metric("lock_contended_total") > 0, "the other one waits")
        arm(service, "tasks.looked", "off")
        assert second.result().status == 200
    arm(service, "tasks.looked", "off")
    assert first.result().status == 200
    arm(other, "tasks.picked", "off")
    assert {first.result().json["task"], second.result().json["task"]} == ({1} if twice else {1, 2})
    assert redis("HGET", KEYS[2], 1) == ("second" if twice else "first")  # who came last, or had it alone
    assert state(service) == ((1, 0, 1) if twice else (0, 0, 2))


def test_a_worker_that_has_a_task_holds_nobody_up(tasksd):
    service = tasksd("--lock", "fair", *LONG)
    lay(service, 2)
    two = park(service, "tasks.worked", work, service)
    one = park(service, "tasks.picked", work, service)
    assert state(service) == (0, 2, 0)
    answer = work(service)
    assert answer.problem == "no-task" and "all 2 that are left" in answer.json["detail"]
    assert 500 < int(answer.headers["retry-after"]) <= 600
    arm(service, "tasks.picked", "off")
    arm(service, "tasks.worked", "off")
    assert {one.result().json["task"], two.result().json["task"]} == {1, 2}


# ---- A worker that dies, or is late ----


def test_a_worker_dies_and_its_task_is_lost(redis, tasksd):
    service, other = tasksd("--lease", "off"), tasksd("--lease", "off", name="b")
    lay(service, 2)
    arm(service, "tasks.picked", "crash")
    with pytest.raises(OSError):
        work(service)
    service.process.wait()
    assert work(other).json["task"] == 2
    assert work(other).problem == "all-done"
    assert state(other) == (0, 0, 1) and redis("HKEYS", KEYS[2]) == ["2"]


@pytest.mark.parametrize("point", ["looked", "picked", "worked"])
def test_a_worker_dies_and_another_takes_over(redis, tasksd, point):
    flags = (*SHORT, "--ttl-ms", 300)
    service, other = tasksd(*flags), tasksd(*flags, name="b")
    lay(service, 1)
    arm(service, f"tasks.{point}", "crash")
    with pytest.raises(OSError):
        work(service)
    service.process.wait()
    assert taken_over(other, "second").json["task"] == 1
    assert state(other) == (0, 0, 1) and redis("HGET", KEYS[2], 1) == "second"
    assert other.metric("tasks_taken_over_total") == (point != "looked")


@pytest.mark.parametrize("flags, refused", [(("--lock", "fair"), False), (("--lock", "watchdog"), False), (FENCED, True)],
                         ids=["fair", "watchdog", "fenced"])
@pytest.mark.parametrize("other_is", ["done", "at work"])
def test_a_worker_that_is_frozen_beyond_its_lease(redis, tasksd, flags, refused, other_is):
    service, other = tasksd(*SHORT, *flags), tasksd(*LONG, *flags, name="b")
    lay(service, 1)
    late = park(service, "tasks.worked", work, service, "late")
    service.signal(signal.SIGSTOP)
    if other_is == "at work":
        arm(other, "tasks.worked", "pause")
    second = other.in_background(taken_over, other, "second")
    wait_until(lambda: other.metric("tasks_taken_over_total") == 1, "the task is taken over")
    if other_is == "done":
        assert second.result().json["task"] == 1
    service.signal(signal.SIGCONT)
    arm(service, "tasks.worked", "off")
    answer = late.result()
    arm(other, "tasks.worked", "off")
    assert second.result().status == 200
    if refused:
        assert answer.problem == "result-refused" and str(second.result().json["token"]) in answer.json["detail"]
    else:
        assert answer.json["task"] == 1
    winner = "second" if refused or other_is == "at work" else "late"  # who writes last
    assert redis("HGET", KEYS[2], 1) == winner and state(other) == (0, 0, 1)
    assert [service.metric(f"tasks_{what}_total") for what in ("results", "refused")] == [not refused, refused]


def test_a_result_after_the_lease_counts_while_nobody_else_has_the_task(redis, tasksd):
    service = tasksd(*FENCED, *SHORT)
    lay(service, 1)
    late = park(service, "tasks.worked", work, service, "late")
    wait_until(lambda: state(service) == (1, 0, 0), "the lease ends")
    arm(service, "tasks.worked", "off")
    assert late.result().status == 200 and state(service) == (0, 0, 1)


def frozen(service, redis):
    """Its process stands still for longer than its lock lives."""
    service.signal(signal.SIGSTOP)
    wait_until(lambda: not redis("EXISTS", "lock:{x}"), "the lock expires")


@pytest.mark.parametrize("flags, refused", [(("--lock", "owner_lua"), False), (("--lock", "fair"), False), (FENCED, True)],
                         ids=["owner_lua", "fair", "fenced"])
@pytest.mark.parametrize("other_is", ["done", "at work"])
def test_a_pick_that_is_frozen_beyond_the_time_to_live_of_its_lock(redis, tasksd, flags, refused, other_is):
    flags = (*flags, "--ttl-ms", 1000, *LONG)
    service, other = tasksd(*flags), tasksd(*flags, name="b")
    lay(service, 1)
    late = park(service, "tasks.looked", work, service, "late")
    frozen(service, redis)
    if other_is == "at work":
        second = park(other, "tasks.worked", work, other, "second")
    else:
        second = other.in_background(work, other, "second")
        assert second.result().json["task"] == 1
    service.signal(signal.SIGCONT)
    arm(service, "tasks.looked", "off")
    answer = late.result()
    if refused:
        assert answer.problem == "lock-lost"
    elif other_is == "done":  # it looks again
        assert answer.problem == "all-done"
    else:
        assert answer.json["task"] == 1
    assert service.metric("tasks_picked_total") == (not refused and other_is == "at work")
    arm(other, "tasks.worked", "off")
    assert second.result().status == 200
    assert state(other) == (0, 0, 1) and work(other).problem == "all-done"


def test_a_late_look_is_refused_too(redis, proxy, tasksd):
    """Whoever looks when the lock is lost would find the task that the next holder is about to pick."""
    flags = (*FENCED, "--ttl-ms", 1000, *LONG)
    service, other = tasksd(*flags, "--redis-timeout-ms", 30000, of=proxy.url), tasksd(*flags, name="b")
    lay(service, 3)
    assert work(service).json["task"] == 1  # Redis knows the scripts from now on
    proxy.hold = sha1("look")
    late = service.in_background(work, service, "late")
    wait_until(lambda: proxy.held == 1, "its look is under way")
    frozen(service, redis)
    second = park(other, "tasks.looked", work, other)
    proxy.hold = None
    service.signal(signal.SIGCONT)
    assert late.result().problem == "lock-lost" and "is not the newest" in late.result().json["detail"]
    arm(other, "tasks.looked", "off")
    assert second.result().json["task"] == 2
    assert [service.metric(f"tasks_{what}_total") for what in ("picked", "refused")] == [1, 1]
    assert state(other) == (1, 0, 2)


@pytest.mark.parametrize("flags", [("--lock", "watchdog"), FENCED], ids=["plain", "fenced"])
def test_a_late_result_comes_between_a_look_and_its_pick(redis, tasksd, flags):
    """The task is not picked again, and does not return into the list: the worker looks for another one."""
    service = tasksd(*flags, *SHORT)
    lay(service, 1)
    late = park(service, "tasks.worked", work, service, "late")
    wait_until(lambda: state(service) == (1, 0, 0), "the lease ends")
    second = park(service, "tasks.looked", work, service, "second")
    arm(service, "tasks.worked", "off")
    assert late.result().json["task"] == 1
    arm(service, "tasks.looked", "off")
    assert second.result().problem == "all-done"
    assert redis("HGET", KEYS[2], 1) == "late" and state(service) == (0, 0, 1)
    assert service.metric("tasks_picked_total") == 1


@pytest.mark.parametrize("flags", [("--lock", "watchdog"), FENCED], ids=["plain", "fenced"])
def test_a_task_that_has_a_result_and_is_still_in_the_list(redis, tasksd, flags):
    """It leaves the list, or the worker would find it again and again, under the lock."""
    service = tasksd(*flags)
    lay(service, 2)
    redis("HSET", KEYS[2], 1, "somebody")
    assert work(service).json["task"] == 2
    assert redis("HGET", KEYS[2], 1) == "somebody" and state(service) == (0, 0, 2)


@pytest.mark.parametrize("why", ["deadline", "draining"])
def test_a_worker_does_not_look_again_for_ever(redis, tasksd, why):
    wait_ms = 1000 if why == "deadline" else 60000
    service = tasksd("--wait-ms", wait_ms)
    lay(service, 3)
    redis("HSET", KEYS[2], 1, "somebody")
    one = park(service, "tasks.looked", work, service)
    if why == "draining":
        service.signal(signal.SIGTERM)
        wait_until(lambda: service.logged("draining"), "it drains")
    else:
        time.sleep(wait_ms / 1000)  # it lasts since the request came
    arm(service, "tasks.looked", "off")
    answer = one.result()
    assert (answer.status, answer.problem) == (503, why) and answer.headers["retry-after"]
    assert redis("ZRANGE", KEYS[0], 0, -1) == ["2", "3"] and not redis("EXISTS", KEYS[1])
    assert why == "deadline" or service.wait() == 0


def test_a_result_that_an_instance_without_tokens_wrote(redis, tasksd):
    """Nobody has picked the task meanwhile, so nobody's token is newer."""
    service = tasksd(*FENCED, *LONG)
    lay(service, 1)
    one = park(service, "tasks.worked", work, service)
    redis("HSET", KEYS[2], 1, "somebody")
    arm(service, "tasks.worked", "off")
    answer = one.result()
    assert answer.problem == "result-refused" and answer.json["detail"] == "task 1 has a result by now"
    assert redis("HGET", KEYS[2], 1) == "somebody"


@pytest.mark.parametrize("lease_is", ["running", "over"])
def test_only_a_lease_that_has_ended_is_taken_over(redis, tasksd, lease_is):
    flags = ("--lock", "none", *(LONG if lease_is == "running" else ("--lease-ms", 10)))
    service, other = tasksd(*flags), tasksd(*flags, name="b")
    lay(service, 1)
    first = park(service, "tasks.looked", work, service, "first")
    second = park(other, "tasks.picked", work, other, "second")
    if lease_is == "over":
        wait_until(lambda: state(service) == (1, 0, 0), "the lease ends")
    arm(service, "tasks.looked", "off")
    assert first.result().status == 200
    arm(other, "tasks.picked", "off")
    assert second.result().status == 200
    assert service.metric("tasks_taken_over_total") == (lease_is == "over")


@pytest.mark.parametrize("point", ["looked", "worked"])
@pytest.mark.parametrize("result", ["plain", "fenced"])
def test_a_list_that_is_laid_anew(redis, tasksd, point, result):
    service = tasksd("--lock", "fair", "--result", result, *LONG)
    lay(service, 1)
    late = park(service, f"tasks.{point}", work, service, "late")
    lay(service, 1)
    before = dump(redis)
    arm(service, f"tasks.{point}", "off")
    assert late.result().problem == "list-replaced"
    assert dump(redis) == before
    assert work(service).json["task"] == 1 and state(service) == (0, 0, 1)


# ---- Redis ----


@pytest.fixture
def post(redis):
    between = LatePost(redis)
    yield between
    between.end()


@pytest.mark.parametrize("flags", [("--lock", "watchdog"), FENCED], ids=["plain", "fenced"])
@pytest.mark.parametrize("script", ["take", "result"])
@pytest.mark.parametrize("carried_out", [True, False])
def test_a_lost_reply(redis, post, tasksd, tmp_path, flags, script, carried_out):
    service = tasksd(*flags, "--lease-ms", 1000, "--history", tmp_path / "h.jsonl", of=post.url)
    lay(service, 2)
    assert work(service).status == 200  # Redis knows the scripts from now on
    if carried_out:
        post.lose = sha1(script)
    else:
        post.drop = sha1(script)
    assert work(service, "lost").problem == "outcome-unknown"
    if script == "result" and carried_out:
        assert state(service) == (0, 0, 2) and redis("HGET", KEYS[2], 2) == "lost"
    else:
        assert taken_over(service, "next").json["task"] == 2
        assert state(service) == (0, 0, 2) and redis("HGET", KEYS[2], 2) == "next"
    assert service.metric("tasks_taken_over_total") == ((script, carried_out) not in (("take", False), ("result", True)))
    events = [line["event"] for line in read_history(tmp_path / "h.jsonl") if line.get("request") == "lost"]
    assert events == {"take": ["invoke", "granted", "enter", "looked", "exit", "release", "unknown"],
                      "result": ["invoke", "granted", "enter", "looked", "picked", "exit", "release", "worked", "sending",
                                 "unknown"]}[script]


@pytest.mark.parametrize("flags", [("--lock", "watchdog"), FENCED], ids=["plain", "fenced"])
@pytest.mark.parametrize("script", ["take", "result"])
def test_a_command_that_arrives_late(redis, post, tasksd, flags, script):
    """Its connection was ended at Redis before the lock was released: it changes nothing."""
    service = tasksd(*flags, *SHORT, of=post.url)
    lay(service, 3)
    assert work(service).status == 200
    post.keep = sha1(script)
    assert work(service, "late").problem == "outcome-unknown"
    assert taken_over(service, "next").json["task"] in (2, 3)
    before = dump(redis)
    post.deliver()
    assert dump(redis) == before


def test_a_reply_to_an_operator_is_lost(redis, post, tasksd):
    service = tasksd(of=post.url)
    lay(service, 3)
    post.keep = sha1("lay")
    assert service.admin("PUT", "/lists/x", '{"tasks":5}', JSON).problem == "outcome-unknown"
    lay(service, 4)
    post.deliver()
    assert state(service) == (4, 0, 0)


def test_redis_is_away(redis, tasksd):
    service = tasksd("--wait-ms", 500, "--redis-timeout-ms", 200)
    lay(service, 3)
    at = {point: park(service, f"tasks.{point}", work, service) for point in ("worked", "looked")}
    redis.kill()
    for point, problem in (("looked", "data-unavailable"), ("worked", "data-unavailable")):
        arm(service, f"tasks.{point}", "off")
        assert at[point].result().problem in (problem, "outcome-unknown")
    assert work(service).problem == "lock-unavailable"
    assert service.ask("GET", "/lists/x").problem == "data-unavailable"
    assert service.admin("PUT", "/lists/x", '{"tasks":1}', JSON).problem == "data-unavailable"
    assert service.admin("GET", "/readyz").problem == "not-ready"


@pytest.mark.parametrize("point", ["looked", "picked", "worked"])
def test_redis_starts_again_and_has_kept_the_list(start, tasksd, tmp_path, point):
    redis = Redis(tmp_path / "kept", "--appendonly", "yes", "--appendfsync", "always")
    try:
        service = tasksd(*FENCED, "--ttl-ms", 1000, "--lease-ms", 1000, of=redis)
        lay(service, 1)
        one = park(service, f"tasks.{point}", work, service, "one")
        redis.kill()
        redis.start()
        arm(service, f"tasks.{point}", "off")
        if one.result().status != 200:  # the connection had broken
            assert one.result().problem in ("outcome-unknown", "data-unavailable")
            assert taken_over(service, "next").json["task"] == 1
        assert state(service) == (0, 0, 1)
    finally:
        redis.kill()


def test_redis_starts_again_empty(redis, tasksd):
    service = tasksd()
    lay(service, 1)
    one = park(service, "tasks.worked", work, service)
    redis("FLUSHALL")
    arm(service, "tasks.worked", "off")
    assert one.result().problem == "list-replaced"
    assert work(service).problem == "unknown-list" and redis("EXISTS", *KEYS) == 0


# ---- The history ----


def test_its_history(tasksd, tmp_path):
    service = tasksd(*FENCED, *SHORT, "--history", tmp_path / "h.jsonl", "--run", "r1")
    lay(service, 1)
    work(service, "done")
    work(service, "end")
    state(service)
    lay(service, 1)
    late = park(service, "tasks.worked", work, service, "late")
    arm(service, "tasks.worked", "1*pause")  # another park would let the first one go
    late.result()
    service.end()
    lines = read_history(tmp_path / "h.jsonl")
    check_history(lines)
    assert {name: lines[0][name] for name in ("service", "task_ms", "lease_ms", "result", "rung")} == {
        "service": "tasks", "task_ms": 0, "lease_ms": 300, "result": "fenced", "rung": "fair"}
    of = {}
    for line in lines[1:]:
        of.setdefault(line.get("request"), []).append(line)
    picked = ["invoke", "granted", "enter", "looked", "picked", "exit", "release", "worked", "sending", "result", "answered"]
    events = {request: [line["event"] for line in those] for request, those in of.items()}
    assert events.pop("done") == events.pop("late") == picked
    assert events.pop("end") == ["invoke", "granted", "enter", "looked", "exit", "release", "refused"]
    assert ["invoke", "answered"] in events.values()
    one = {line["event"]: line for line in of["done"]}
    token = one["granted"]["token"]
    assert one["invoke"]["does"] == "work" and one["looked"]["task"] == one["worked"]["task"] == 1
    assert [one["picked"][name] for name in ("task", "token", "lease_ms", "hold")] == [1, token, 300, one["granted"]["hold"]]
    assert one["looked"]["t_ns"] < one["picked"]["sent_ns"] < one["picked"]["t_ns"]
    assert [one[event][name] for event in ("sending", "result") for name in ("task", "token")] == [1, token, 1, token]
    assert one["sending"]["t_ns"] <= one["result"]["sent_ns"] < one["result"]["t_ns"]
    assert (one["answered"]["code"], one["answered"]["task"], one["answered"]["item"]) == (200, 1, "x")
    end = {line["event"]: line for line in of["end"]}
    assert end["looked"]["task"] == 0 and (end["refused"]["code"], end["refused"]["reason"]) == (409, "all-done")


def test_what_it_records_of_a_refusal(redis, tasksd, tmp_path):
    service = tasksd(*FENCED, *SHORT, "--history", tmp_path / "h.jsonl")
    other = tasksd(*FENCED, *LONG, name="b")
    lay(service, 1)
    late = park(service, "tasks.worked", work, service, "late")
    second = taken_over(other, "second")
    arm(service, "tasks.worked", "off")
    assert late.result().problem == "result-refused"
    lines = [line for line in read_history(tmp_path / "h.jsonl") if line.get("request") == "late"]
    refused, end = lines[-2:]
    picked = next(line for line in lines if line["event"] == "picked")
    assert (refused["event"], refused["task"], refused["token"], refused["newest"]) == (
        "result_refused", 1, picked["token"], second.json["token"])
    assert (end["event"], end["code"], end["reason"]) == ("refused", 409, "result-refused")


def test_without_leases_and_without_a_lock(tasksd, tmp_path):
    service = tasksd("--lock", "none", "--lease", "off", "--history", tmp_path / "h.jsonl")
    lay(service, 1)
    one = park(service, "tasks.picked", work, service, "one")
    assert paused(service, "tasks.picked") == 1 and state(service) == (0, 0, 0)
    arm(service, "tasks.picked", "off")
    assert one.result().json["token"] == 0
    lines = read_history(tmp_path / "h.jsonl")
    picked = next(line for line in lines if line["event"] == "picked")
    assert lines[0]["lease_ms"] == picked["lease_ms"] == picked["token"] == 0
