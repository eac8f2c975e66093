# SPDX-License-Identifier: Apache-2.0
"""menud: how often the database is asked when a menu leaves the cache, and which menu readers see after an update."""
import ctypes
import json
import os
import pathlib
import re
import resource
import signal
import sqlite3
import subprocess

import pytest

import lua_scripts
from test_resolve import LatePost, refuse_kills
from world import wait_until

MENUD = os.environ["MENUD"]
LUA = pathlib.Path(__file__).resolve().parents[2] / "menu" / "lua"
JSON = {"Content-Type": "application/json"}
READERS = 6
PR_CAPBSET_DROP, CAP_SYS_RESOURCE = 24, 24


@pytest.fixture
def menud(redis, start, monkeypatch, tmp_path):
    monkeypatch.setenv("INVENTORYD", MENUD)
    return lambda *flags, **named: start(redis, "--database", tmp_path / "menu.db", "--db-ms", 0, "--enable-failpoints",
                                         "--cache-ms", 600000, *flags, **named)


def read(service, name="lunch"):
    return service.ask("GET", f"/menus/{name}")


def update(service, *dishes, name="lunch"):
    return service.admin("PUT", f"/menus/{name}", json.dumps({"dishes": dishes}), JSON)


def point(service, name, action):
    assert service.admin("PUT", "/failpoints", json.dumps({"point": name, "action": action}), JSON).status == 200


def paused(service, name):
    points = service.admin("GET", "/failpoints").json["failpoints"]
    return sum(point["paused"] for point in points if point["point"] == name)


def stay(service, name, count=1):
    wait_until(lambda: paused(service, name) == count, f"{count} are at {name}")


def test_a_menu_is_read_and_updated(redis, menud):
    service, other = menud(), menud(name="b")
    assert read(service).problem == "unknown-menu"
    assert update(service, "soup", "rice").json == {"menu": "lunch", "version": 1, "dishes": ["soup", "rice"],
                                                    "from": "database", "instance": "a"}
    assert [read(service).json["from"] for _ in range(2)] == ["database", "cache"]
    assert read(other).json == {"menu": "lunch", "version": 1, "dishes": ["soup", "rice"], "from": "cache",
                                "instance": "b"}
    assert 0 < int(redis("PTTL", "menu:{lunch}")) <= 600000
    assert update(other, "tea").json["version"] == 2
    assert [(read(service).json[what]) for what in ("version", "dishes")] == [2, ["tea"]]
    assert read(service, "dinner").problem == "unknown-menu"
    assert service.metric("menu_queries_total") == 4 and service.metric("menu_fills_total") == 2


def test_what_is_refused(redis, menud):
    service = menud()
    assert read(service, "Lunch").problem == "invalid-name"
    assert service.ask("PUT", "/menus/lunch", "{}", JSON).problem == "operators-only"
    for body in ('{"dishes":"soup"}', '{"dishes":[1]}', '{"dishes":["a"],"more":1}', "{}",
                 json.dumps({"dishes": ["x" * 700]})):
        answer = service.admin("PUT", "/menus/lunch", body, JSON)
        assert answer.problem == "invalid-value" and '{"dishes":["soup","rice"]}' in answer.json["detail"]
    assert service.admin("PUT", "/menus/lunch", b'{"dishes":["so\xffup"]}', JSON).problem == "invalid-json"
    assert read(service).problem == "unknown-menu"
    redis("SADD", "menu:{lunch}", "x")
    assert read(service).problem == "data-invalid"
    for wrong in ("garbage", "1", "1 x", "0 []", "1 [" + 700 * "1" + "]"):
        redis("SET", "menu:{dinner}", wrong)
        answer = read(service, "dinner")
        assert answer.problem == "data-invalid" and "menu:{dinner} holds no menu" in answer.json["detail"]


def missed_by_all(service):
    """Of that many readers at once: how often the database was asked."""
    assert update(service, "soup").status == 200
    before = service.metric("menu_queries_total")
    point(service, "menu.missed", "pause")
    readers = [service.in_background(read, service) for _ in range(READERS)]
    return before, readers


@pytest.mark.parametrize("flags, together, queries", [
    (("--lock", "none"), READERS, READERS),
    (("--lock", "watchdog", "--second-look", "off"), 1, READERS),
    (("--lock", "watchdog"), 1, 1),
    (("--lock", "fair"), 1, 1),
], ids=["none", "no-second-look", "watchdog", "fair"])
def test_how_often_the_database_is_asked(menud, tmp_path, flags, together, queries):
    history = tmp_path / "h.jsonl"
    service = menud(*flags, "--fill", "plain", "--history", history)
    before, readers = missed_by_all(service)
    stay(service, "menu.missed", together)
    wait_until(lambda: history.read_text().count('"looked"') >= READERS, "all have looked")
    point(service, "menu.missed", "off")
    assert {reader.result().json["version"] for reader in readers} == {1}
    assert service.metric("menu_queries_total") - before == queries


@pytest.mark.parametrize("flags, then", [
    (("--guard-update", "off", "--fill", "plain"), 1),
    (("--guard-update", "off", "--lock", "fair", "--fill", "fenced"), 2),
], ids=["plain", "fenced"])
def test_an_update_without_the_lock_while_a_reader_fills(menud, flags, then):
    service = menud(*flags)
    assert update(service, "old").status == 200
    point(service, "menu.before_fill", "1*pause")
    reader = service.in_background(read, service)
    stay(service, "menu.before_fill")
    assert update(service, "new").json["version"] == 2
    point(service, "menu.before_fill", "off")
    assert reader.result().json["version"] == 1
    assert read(service).json["version"] == then
    assert service.metric("menu_fills_refused_total") == (then == 2)


def test_an_update_under_the_lock_waits_for_the_reader(menud):
    service = menud("--fill", "plain")
    assert update(service, "old").status == 200
    point(service, "menu.before_fill", "1*pause")
    reader = service.in_background(read, service)
    stay(service, "menu.before_fill")
    updating = service.in_background(update, service, "new")
    wait_until(lambda: service.metric("lock_contended_total") > 0, "the update waits")
    point(service, "menu.before_fill", "off")
    assert reader.result().json["version"] == 1
    assert updating.result().json["version"] == 2
    assert read(service).json["version"] == 2


def frozen(service, redis):
    """Its process stands still for longer than its lock lives."""
    service.signal(signal.SIGSTOP)
    wait_until(lambda: not redis("EXISTS", "lock:{lunch}"), "the lock expires")


@pytest.mark.parametrize("lock, fill, then", [("owner_lua", "plain", 1), ("fair", "plain", 1), ("fair", "fenced", 2)])
def test_a_reader_that_is_frozen_beyond_its_time_to_live(redis, menud, lock, fill, then):
    flags = ("--lock", lock, "--ttl-ms", 1000, "--fill", fill)
    service, other = menud(*flags), menud(*flags, name="b")
    assert update(other, "old").status == 200
    point(service, "menu.before_fill", "1*pause")
    reader = service.in_background(read, service)
    stay(service, "menu.before_fill")
    frozen(service, redis)
    assert update(other, "new").json["version"] == 2
    service.signal(signal.SIGCONT)
    point(service, "menu.before_fill", "off")
    assert reader.result().json["version"] == 1
    assert read(service).json["version"] == read(other).json["version"] == then


def test_an_update_that_is_frozen_beyond_its_time_to_live(redis, menud):
    """A reader takes the lock meanwhile, and reads what the database has still. Its claim is void after the update."""
    flags = ("--lock", "fair", "--ttl-ms", 1000, "--fill", "fenced")
    service, other = menud(*flags), menud(*flags, name="b")
    assert update(service, "old").status == 200
    point(service, "menu.before_write", "1*pause")
    updating = service.in_background(update, service, "new")
    stay(service, "menu.before_write")
    frozen(service, redis)
    point(other, "menu.before_fill", "1*pause")
    reader = other.in_background(read, other)
    stay(other, "menu.before_fill")
    service.signal(signal.SIGCONT)
    point(service, "menu.before_write", "off")
    assert updating.result().json["version"] == 2
    point(other, "menu.before_fill", "off")
    assert reader.result().json["version"] == 1
    assert read(service).json["version"] == 2


@pytest.mark.parametrize("flags, told", [
    (("--fill", "fenced"), "--fill fenced needs a rung that gives tokens, as --lock fair does; --lock watchdog gives none"),
    (("--lock", "redlock"), "--lock redlock needs other servers than the one that menud has"),
    (("--refresh-ms", "5000"), "--refresh-ms 5000 must be less than --cache-ms 5000"),
    (("--database", "/"), "cannot open the database /: unable to open database file"),
])
def test_settings_that_do_not_fit(redis, tmp_path, flags, told):
    done = subprocess.run([MENUD, "--listen", "127.0.0.1:0", "--admin-listen", "off", "--redis", redis.url, *flags],
                          capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 1 and f"menud: {told}" in done.stderr, done


@pytest.fixture
def post(redis):
    between = LatePost(redis)
    yield between
    between.end()


def slow_deletion(redis, start, post, monkeypatch, tmp_path, *flags):
    """An update whose deletion is on its way, while it is sent again: the cache is empty."""
    monkeypatch.setenv("INVENTORYD", MENUD)
    service = start(post, "--database", tmp_path / "menu.db", "--db-ms", 0, "--cache-ms", 600000, "--lock", "fair", *flags)
    assert update(service, "soup").status == 200 and read(service).json["from"] == "database"
    post.keep = b"\r\nDEL\r\n"
    assert update(service, "tea").json["version"] == 2 and post.kept
    return service


@pytest.mark.parametrize("guard_update", ["on", "off"])
def test_a_late_deletion_does_not_come_any_more(redis, start, post, monkeypatch, tmp_path, guard_update):
    """It would delete what the next reader has filled in."""
    service = slow_deletion(redis, start, post, monkeypatch, tmp_path, "--guard-update", guard_update)
    assert read(service).json["from"] == "database"
    assert post.deliver() == b""
    assert read(service).json["from"] == "cache"


def test_a_deletion_that_may_come_late(redis, start, post, monkeypatch, tmp_path):
    """Its connection cannot be ended, so the lock is left to expire. Who comes with another deletion does not change that."""
    refuse_kills(redis)
    service = slow_deletion(redis, start, post, monkeypatch, tmp_path, "--ttl-ms", 600000, "--wait-ms", 300)
    assert service.logged("abandoned") and redis("EXISTS", "lock:{lunch}")
    assert read(service).problem == "lock-timeout"


class DeafPost(LatePost):
    """The first of two deletions that it keeps cannot be taken back: no CLIENT KILL gets through until the second one."""

    deaf, kept_count = True, 0

    def meanwhile(self):
        self.kept_count += 1
        self.deaf = self.kept_count == 1
        if self.deaf:
            self.keep = b"\r\nDEL\r\n"

    def _carry(self, command, server):
        return None if self.deaf and b"KILL" in command else super()._carry(command, server)


def test_a_connection_that_was_not_ended_stays_in_mind(redis, start, monkeypatch, tmp_path):
    """The second lost deletion is taken back, the first one may come late all the same."""
    post = DeafPost(redis)
    service = slow_deletion(redis, start, post, monkeypatch, tmp_path, "--ttl-ms", 600000, "--redis-timeout-ms", 200)
    assert not post.deaf and post.deliver() == b""
    assert service.logged("abandoned") and redis("EXISTS", "lock:{lunch}")
    post.end()


def test_a_late_look_does_not_take_the_menu_from_a_newer_token(redis, menud):
    service, newest = menud("--lock", "fair", "--fill", "fenced"), str(2**53 - 1)
    assert update(service, "soup").status == 200
    redis("SET", "menu:{lunch}:claim", newest)
    assert read(service).json["from"] == "database"
    assert redis("GET", "menu:{lunch}:claim") == newest and not redis("EXISTS", "menu:{lunch}")
    assert service.metric("menu_fills_refused_total") == 1
    redis("SET", "menu:{lunch}:claim", "1")
    assert read(service).json["from"] == "database" and redis("EXISTS", "menu:{lunch}")


@pytest.mark.parametrize("point_of", ["start", "menu.before_fill"])
@pytest.mark.parametrize("claim", ["inf", "0x10", "", " ", "7 ", "07", "-7", "7.0", "1e3", "no token", '7"', 17 * "1"])
def test_a_claim_that_is_no_token(redis, menud, tmp_path, point_of, claim):
    service = menud("--lock", "fair", "--fill", "fenced", "--history", tmp_path / "h.jsonl")
    assert update(service, "soup").status == 200
    if point_of == "start":
        redis("SET", "menu:{lunch}:claim", claim)
        answer = read(service)
        assert answer.problem == "data-invalid" and "menu:{lunch}:claim" in answer.json["detail"]
        assert "retry-after" not in answer.headers
    else:
        point(service, point_of, "1*pause")
        reader = service.in_background(read, service)
        stay(service, point_of)
        redis("SET", "menu:{lunch}:claim", claim)
        point(service, point_of, "off")
        assert reader.result().json["from"] == "database" and service.logged("cache")
    assert redis("GET", "menu:{lunch}:claim") == claim and not redis("EXISTS", "menu:{lunch}")
    service.end()
    assert [json.loads(line) for line in (tmp_path / "h.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("command", ["set", "del"])
def test_a_fill_that_redis_refuses_fills_nothing(redis, command):
    keys = ("menu:{lunch}", "menu:{lunch}:claim")
    redis("SET", keys[1], "7")
    fill = lua_scripts.text(LUA / "fill.lua"), 2, *keys, '1 ["soup"]', 60000, 7
    redis("ACL", "SETUSER", "default", "-" + command)
    try:
        assert isinstance(redis("EVAL", *fill), Exception)
    finally:
        redis("ACL", "SETUSER", "default", "+@all")
    assert not redis("EXISTS", keys[0])


def test_where_redis_is_remains_untold(redis, menud):
    service = menud("--lock", "none", "--wait-ms", 100)
    assert update(service, "soup").status == 200
    redis("ACL", "SETUSER", "default", "-del")
    answer = update(service, "tea")
    redis("ACL", "SETUSER", "default", "+@all")
    assert answer.problem == "outcome-unknown" and "version 2" in answer.json["detail"]
    assert "Redis: " in answer.json["detail"] and "127.0.0.1" not in answer.json["detail"], answer


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_database_that_stays_locked_ends_the_start(redis, tmp_path, mode):
    """At one deadline, though there are many tries."""
    database = sqlite3.connect(tmp_path / "menu.db", isolation_level=None)
    database.execute(f"PRAGMA journal_mode = {mode}")
    database.execute("CREATE TABLE another (one)")
    database.execute("BEGIN EXCLUSIVE")
    done = subprocess.run([MENUD, "--listen", "127.0.0.1:0", "--admin-listen", "off", "--redis", redis.url, "--workers", "1"],
                          capture_output=True, text=True, timeout=60, cwd=tmp_path)
    database.close()
    assert done.returncode == 1 and "cannot open the database menu.db: database is locked" in done.stderr, done


def test_a_reader_whose_lock_has_expired_does_not_ask_the_database(redis, menud):
    flags = ("--lock", "fair", "--ttl-ms", 1000)
    service, other = menud(*flags), menud(*flags, name="b")
    assert update(other, "soup").status == 200
    point(service, "menu.missed", "1*pause")
    reader = service.in_background(read, service)
    stay(service, "menu.missed")
    frozen(service, redis)
    assert read(other).json["from"] == "database"
    service.signal(signal.SIGCONT)
    point(service, "menu.missed", "off")
    assert reader.result().problem == "lock-lost" and reader.result().headers["retry-after"]
    assert service.metric("menu_queries_total") == 0


@pytest.mark.parametrize("lock, fill", [("owner_lua", "plain"), ("fair", "plain")])
def test_a_reader_whose_lock_expires_at_its_query_does_not_fill_the_cache(redis, menud, lock, fill):
    service = menud("--lock", lock, "--fill", fill, "--db-ms", 500, "--ttl-ms", 200)
    assert update(service, "soup").status == 200
    answer = read(service)
    assert (answer.status, answer.json["from"]) == (200, "database")
    assert redis("EXISTS", "menu:{lunch}") == (0 if lock == "owner_lua" else 1)  # fair renews its lock


def test_a_locked_database_keeps_an_update_no_longer_than_its_time(redis, menud, tmp_path):
    """It would keep the lock until that expires."""
    service = menud("--lock", "owner_lua", "--ttl-ms", 3000, "--wait-ms", 300, "--history", tmp_path / "h.jsonl")
    assert update(service, "soup").status == 200
    database = sqlite3.connect(tmp_path / "menu.db", isolation_level=None)
    database.execute("BEGIN IMMEDIATE")
    assert update(service, "tea").problem == "database-unavailable"
    database.close()
    assert read(service).json["version"] == 1
    service.end()
    lines = [json.loads(line) for line in (tmp_path / "h.jsonl").read_text().splitlines()]
    assert [line["status"] for line in lines if line["event"] == "release"] == ["OK"] * 3


def descriptors_needed(tmp_path, workers):
    done = subprocess.run([MENUD, "--connections", "100", "--workers", str(workers)], capture_output=True, text=True, timeout=60,
                          cwd=tmp_path, preexec_fn=lambda: limit_descriptors(50))
    assert done.returncode == 1, done
    return int(re.search(r"needs (\d+) file descriptors", done.stderr)[1])


def limit_descriptors(count):
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))
    if os.geteuid() == 0:  # root may raise any limit without it
        assert ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_SYS_RESOURCE, 0, 0, 0) == 0


def test_descriptors_for_the_database(redis, menud, tmp_path):
    """Each worker has two connections to Redis, and the database's file and its log."""
    assert descriptors_needed(tmp_path, 30) - descriptors_needed(tmp_path, 10) == 20 * 4
    service = menud("--workers", 30)
    files = [os.readlink(entry.path) for entry in os.scandir(f"/proc/{service.process.pid}/fd")]
    assert 30 < sum(file.startswith(str(tmp_path / "menu.db")) for file in files) <= (30 + 2) * 2 + 1


def test_early_refresh_by_one_reader(redis, menud):
    service = menud("--refresh-ms", 599999)
    assert update(service, "soup").status == 200
    assert read(service).json["from"] == "database"
    wait_until(lambda: int(redis("PTTL", "menu:{lunch}")) < 599999, "it is due")
    point(service, "menu.before_fill", "1*pause")
    one = service.in_background(read, service)
    stay(service, "menu.before_fill")
    assert [read(service).json["from"] for _ in range(3)] == ["cache"] * 3
    point(service, "menu.before_fill", "off")
    assert one.result().json["from"] == "database"


def due(redis, menud, *flags):
    """A menu in the cache that is to be refreshed."""
    service = menud("--refresh-ms", 599999, *flags)
    assert update(service, "soup").status == 200
    assert read(service).json["from"] == "database"
    wait_until(lambda: int(redis("PTTL", "menu:{lunch}")) < 599999, "it is due")
    return service


def test_a_refresh_that_fails_gives_what_is_cached(redis, menud, tmp_path):
    service = due(redis, menud, "--history", tmp_path / "h.jsonl")
    database = sqlite3.connect(tmp_path / "menu.db", isolation_level=None)
    database.execute("ALTER TABLE menu RENAME TO gone")
    answer = read(service)
    assert (answer.status, answer.json["version"], answer.json["from"]) == (200, 1, "cache")
    assert service.metric("menu_queries_total") == 2 and service.logged("refresh")
    database.execute("ALTER TABLE gone RENAME TO menu")
    database.close()
    assert wait_until(lambda: read(service).json["from"] == "database", "another one refreshes it")
    service.end()
    lines = [json.loads(line) for line in (tmp_path / "h.jsonl").read_text().splitlines()]
    one = next(line["request"] for line in lines if line.get("from") == "cache")
    assert [line["event"] for line in lines if line.get("request") == one] == [
        "invoke", "looked", "granted", "enter", "looked", "query", "answered", "exit", "release"]


def test_few_readers_ask_for_the_lock_to_refresh(redis, menud):
    """Another instance refreshes it: of this one's readers one asks in --retry-ms."""
    service = due(redis, menud, "--retry-ms", 60000)
    other = menud("--refresh-ms", 599999, "--retry-ms", 60000, name="b")
    point(service, "menu.before_fill", "1*pause")
    one = service.in_background(read, service)
    stay(service, "menu.before_fill")
    assert [read(other).json["from"] for _ in range(READERS)] == ["cache"] * READERS
    assert other.metric("lock_attempts_total") == 1
    point(service, "menu.before_fill", "off")
    assert one.result().json["from"] == "database"


def test_its_history(menud, tmp_path):
    service = menud("--history", tmp_path / "h.jsonl", "--run", "r1", "--second-look", "on")
    update(service, "soup")
    read(service)
    read(service)
    service.end()
    lines = [json.loads(line) for line in (tmp_path / "h.jsonl").read_text().splitlines()]
    begin = lines[0]
    assert (begin["service"], begin["fill"], begin["second_look"], begin["guard_update"]) == ("menu", "plain", "on", "on")
    requests = {}
    for line in lines:
        requests.setdefault(line.get("request"), []).append(line["event"])
    assert list(requests.values())[1:] == [
        ["invoke", "granted", "enter", "updated", "deleted", "answered", "exit", "release"],
        ["invoke", "looked", "granted", "enter", "looked", "query", "queried", "filled", "answered", "exit", "release"],
        ["invoke", "looked", "answered"]]
    filled = next(line for line in lines if line["event"] == "filled")
    assert filled["version"] == 1 and filled["cache_ms"] == 600000 and filled["sent_ns"] < filled["t_ns"]


def test_a_cache_or_a_database_that_is_away(redis, menud, tmp_path):
    service = menud("--wait-ms", 500, "--redis-timeout-ms", 200)
    update(service, "soup")
    assert service.admin("GET", "/readyz").status == 200
    redis.kill()
    assert read(service).problem == "data-unavailable"
    assert update(service, "tea").problem == "lock-unavailable"
    assert service.admin("GET", "/readyz").problem == "not-ready"


def test_a_menu_in_its_last_moment_is_not_refreshed(redis, menud):
    """PTTL may say 0 of a key that is still there."""
    service = menud()
    assert update(service, "soup").status == 200
    redis("SET", "menu:{lunch}", '1 ["soup"]')  # it never expires: PTTL says -1
    assert [read(service).json["from"] for _ in range(3)] == ["cache"] * 3
    assert service.metric("lock_attempts_total") == 1  # the update's


def test_without_a_second_look_each_claim_counts(menud, tmp_path):
    history = tmp_path / "h.jsonl"
    service = menud("--second-look", "off", "--lock", "fair", "--fill", "fenced", "--history", history)
    assert update(service, "soup").status == 200
    point(service, "menu.missed", "pause")
    readers = [service.in_background(read, service) for _ in range(3)]
    stay(service, "menu.missed")
    wait_until(lambda: history.read_text().count('"second":false') == 3, "all have looked")
    point(service, "menu.missed", "off")
    assert {reader.result().json["from"] for reader in readers} == {"database"}
    assert service.metric("menu_fills_total") == 3 and service.metric("menu_fills_refused_total") == 0


def test_many_instances_make_the_database(redis, tmp_path):
    started = [subprocess.Popen([MENUD, "--listen", "127.0.0.1:0", "--admin-listen", "off", "--redis", redis.url,
                                 "--database", tmp_path / "new.db", "--instance", f"i{number}"],
                                stderr=subprocess.PIPE, text=True) for number in range(8)]
    for instance in started:
        lines = iter(instance.stderr.readline, "")
        assert any('"started"' in line for line in lines), instance.args
    for instance in started:
        instance.terminate()
        assert instance.wait(60) == 0
        instance.stderr.close()


def test_a_request_that_no_worker_serves_is_in_the_history(redis, menud, tmp_path):
    service = menud("--workers", 1, "--wait-ms", 300, "--history", tmp_path / "h.jsonl")
    update(service, "soup")
    point(service, "menu.missed", "pause")
    first = service.in_background(read, service)
    stay(service, "menu.missed")
    assert read(service).problem == "deadline"
    point(service, "menu.missed", "off")
    assert first.result().status == 200
    lines = [json.loads(line) for line in (tmp_path / "h.jsonl").read_text().splitlines()]
    refused = next(line for line in lines if line["event"] == "refused")
    assert (refused["code"], refused["reason"], refused["item"]) == (503, "deadline", "lunch")
    assert [line["event"] for line in lines if line.get("request") == refused["request"]] == ["invoke", "refused"]
