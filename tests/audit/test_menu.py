# SPDX-License-Identifier: Apache-2.0
"""Of a menu: clean runs and near misses are never accused."""
import menu
import pytest
import shop
from judge import SEEDS, audit, judge
from menu import MS, Menu


def begun(seed, rung="watchdog", **settings):
    """A world and a time in it; instances a and b, one menu, version 3."""
    world = Menu(seed).start(**{"rung": rung, "instances": ["a", "b"], "items": {"lunch": 3}, "fault": "made", "expect": ["ok"],
                                **settings})
    return world, world.t0 + MS


def rebuild(world, instance, t_ns, version, invoked=None, token=None, fills=True, filled_after=40):
    """A reader that finds nothing, and asks for all; what it fills in is sent at t_ns + 30. Returns its request."""
    request = world.ask("lunch", instance, t_ns - 10 if invoked is None else invoked)
    world.look(request, t_ns - 5, None)
    world.enter(request, t_ns - 4, t_ns - 3, token)
    world.look(request, t_ns - 1, None, True)
    query = world.query(request, t_ns)
    world.queried(query, t_ns + 20, version)
    if fills:
        world.filled(query, t_ns + 30, t_ns + filled_after)
    return request


def leave(world, request, t_ns, version, source="database"):
    section = request["section"]
    section["exit"] = world.about(request, t_ns, "exit", hold=section["hold"])
    section["release"] = world.about(request, t_ns + 1, "release", hold=section["hold"], status="OK")
    world.told(request, t_ns + 2, version, source)


def hit(world, instance, t_ns, version, name=None):
    request = world.ask("lunch", instance, t_ns, name=name)
    world.look(request, t_ns + 5, version)
    world.told(request, t_ns + 6, version, "cache")
    return request


def update(world, instance, t_ns, version, token=None, guarded=True, sent=None):
    """Asked at t_ns, in the database at t_ns + 10, deleted by t_ns + 20, answered at t_ns + 30."""
    request = world.ask("lunch", instance, t_ns, "update")
    if guarded:
        world.enter(request, t_ns + 1, t_ns + 2, token)
    world.updated(request, t_ns + 10, version)
    world.deleted(request, t_ns + 15 if sent is None else sent, t_ns + 20)
    if guarded:
        section = request["section"]
        section["exit"] = world.about(request, t_ns + 22, "exit", hold=section["hold"])
        section["release"] = world.about(request, t_ns + 24, "release", hold=section["hold"], status="OK")
    world.told(request, t_ns + 30, version)
    return request


# ---- Near misses ----------------------------------------------------------------------------------
def asked_at_the_end(seed):
    """The second query comes at the nanosecond at which the time to live of the first one's answer is over."""
    world, now = begun(seed)
    leave(world, rebuild(world, "a", now, 3), now + 50, 3)
    end = now + 30 + world.settings["cache_ms"] * MS
    leave(world, rebuild(world, "b", end, 3), end + 50, 3)
    return world.end()


def updated_at_the_invoke(seed):
    """A reader comes at the very stamp at which the update is answered, and gets what was there before it."""
    world, now = begun(seed, guard_update="off")
    leave(world, rebuild(world, "a", now, 3), now + 50, 3)
    done = update(world, "b", now + 100, 4, guarded=False)["outcome"]["t_ns"]
    request = world.ask("lunch", "a", done)
    world.look(request, done, 3)
    world.told(request, done + 1, 3, "cache")
    return world.end()


def died_rebuilding(seed):
    """Its query has no end; the lock expires, another asks."""
    world, now = begun(seed)
    dead = rebuild(world, "a", now, 3, fills=False)
    world.sample(dead, now + 30, 502, "")
    world.unended.add("a")
    leave(world, rebuild(world, "b", now + 600 * MS, 3), now + 600 * MS + 50, 3)
    return world.end()


def died_after_its_fill(seed):
    """The menu is in the cache, and nobody could say that it filled it in."""
    world, now = begun(seed)
    dead = rebuild(world, "a", now, 3, fills=False)
    world.sample(dead, now + 30, 502, "")
    world.unended.add("a")
    hit(world, "b", now + 100, 3)
    return world.end()


def die_updating(world, now):
    """Instance b dies behind its write to the database: it may have deleted the menu."""
    request = world.ask("lunch", "b", now, "update")
    world.updated(request, now + 10, 4)
    world.sample(request, now + 20, 502, "")
    world.unended.add("b")


def died_deleting(seed):
    """The update died behind its write to the database: it may have deleted the menu, so one may ask."""
    world, now = begun(seed)
    leave(world, rebuild(world, "a", now, 3), now + 50, 3)
    die_updating(world, now + 100)
    leave(world, rebuild(world, "a", now + 2 * MS, 4), now + 2 * MS + 50, 4)
    return world.end()


def died_deleting_late(seed):
    """Its deletion arrives long after its death, behind another one's fill."""
    world, now = begun(seed)
    leave(world, rebuild(world, "a", now, 3), now + 50, 3)
    die_updating(world, now + 100)
    end = now + 30 + world.settings["cache_ms"] * MS
    leave(world, rebuild(world, "a", end, 4), end + 50, 4)
    leave(world, rebuild(world, "a", end + MS, 4), end + MS + 50, 4)
    return world.end()


def asked_after_a_deletion(seed):
    world, now = begun(seed)
    leave(world, rebuild(world, "a", now, 3), now + 50, 3)
    update(world, "b", now + 100, 4)
    leave(world, rebuild(world, "b", now + 200, 4), now + 250, 4)
    return world.end()


def asked_while_it_is_deleted(seed):
    """The deletion is carried out before its answer is recorded; an update that takes no lock."""
    world, now = begun(seed, guard_update="off")
    leave(world, rebuild(world, "a", now, 3), now + 50, 3)
    update(world, "b", now + 100, 4, guarded=False, sent=now + 112)
    leave(world, rebuild(world, "a", now + 112, 4, invoked=now + 90), now + 170, 4)
    return world.end()


def refreshed(seed):
    """One asks before the end; PTTL counts whole milliseconds, so up to one earlier."""
    world, now = begun(seed, refresh_ms=2)
    leave(world, rebuild(world, "a", now, 3), now + 50, 3)
    early = now + 30 + (world.settings["cache_ms"] - 3 + seed % 3) * MS
    request = world.ask("lunch", "b", early - 10)
    world.look(request, early - 5, 3)
    world.enter(request, early - 4, early - 3)
    query = world.query(request, early)
    world.queried(query, early + 20, 3)
    world.filled(query, early + 30, early + 40)
    leave(world, request, early + 50, 3)
    hit(world, "a", early + 45, 3)
    return world.end()


def gave_up(seed):
    """The database does not answer; the next one asks as soon as the section is over, before the answer is told."""
    world, now = begun(seed)
    request = rebuild(world, "a", now, 3, fills=False)
    section = request["section"]
    section["exit"] = world.about(request, now + 30, "exit", hold=section["hold"])
    section["release"] = world.about(request, now + 31, "release", hold=section["hold"], status="OK")
    world.turned_away(request, now + 90, 500, "cache-error", "fail")
    leave(world, rebuild(world, "b", now + 40, 3, invoked=now), now + 95, 3)
    return world.end()


def refused_by_the_fence(seed):
    """It stood still beyond its lock's time; the next holder asks, and the fence refuses what the first one brings."""
    world, now = begun(seed, fill="fenced")
    late = rebuild(world, "a", now, 3, token=5, fills=False)
    update(world, "b", now + 600 * MS, 4, token=6)
    leave(world, rebuild(world, "b", now + 601 * MS, 4, token=7), now + 601 * MS + 50, 4)
    world.fill_refused(late["query"], now + 602 * MS, 5, 7)
    leave(world, late, now + 602 * MS + 10, 3)
    return world.end()


def asked_for_one_who_cannot_fill(seed):
    """As above, without an update: the second holder's query is needed, since the first one's fill will be refused."""
    world, now = begun(seed, fill="fenced")
    late = rebuild(world, "a", now, 3, token=5, fills=False)
    leave(world, rebuild(world, "b", now + 601 * MS, 3, token=6), now + 601 * MS + 50, 3)
    world.fill_refused(late["query"], now + 602 * MS, 5, 6)
    leave(world, late, now + 602 * MS + 10, 3)
    return world.end()


def filled_at_the_stamp_of_a_newer_one(seed):
    """The older fill is sent at the stamp at which the newer deletion is answered: which was first is not known."""
    world, now = begun(seed, fill="fenced")
    late = rebuild(world, "a", now, 3, token=5, fills=False)
    gone = update(world, "b", now + 100, 4, token=6)["deleted"]["t_ns"]
    world.filled(late["query"], gone, gone + 5)
    leave(world, late, gone + 20, 3)
    return world.end()


def asked_behind_a_newer_deletion(seed):
    """It stood still before it looked again. An update with a newer token has come meanwhile, and its claim is gone."""
    world, now = begun(seed, fill="fenced")
    late = world.ask("lunch", "a", now)
    world.look(late, now + 5, None)
    world.enter(late, now + 6, now + 7, 5)
    update(world, "b", now + 100, 4, token=6)
    world.look(late, now + 200, None, True)
    query = world.query(late, now + 201)
    world.queried(query, now + 220, 4)
    world.filled(query, now + 230, now + 240)
    leave(world, late, now + 250, 4)
    return world.end()


def entered_behind_a_newer_fill(seed):
    """It stood still behind its grant; the section of a newer token is over, and what that one filled in is lost."""
    world, now = begun(seed, fill="fenced")
    late = world.ask("lunch", "a", now)
    world.look(late, now + 5, None)
    leave(world, rebuild(world, "b", now + 600 * MS, 3, token=6), now + 600 * MS + 50, 3)
    end = now + 600 * MS + 30 + world.settings["cache_ms"] * MS
    world.enter(late, now + 6, end, 5)
    world.look(late, end + 1, None, True)
    query = world.query(late, end + 2)
    world.queried(query, end + 20, 3)
    world.filled(query, end + 30, end + 40)
    leave(world, late, end + 50, 3)
    return world.end()


def refresh_in_vain(seed):
    """The database does not answer; the reader has what it found in the cache. Its second look may find a newer one, or none."""
    world, now = begun(seed, refresh_ms=2)
    leave(world, rebuild(world, "a", now, 3), now + 50, 3)
    early = now + 30 + (world.settings["cache_ms"] - 2) * MS
    request = world.ask("lunch", "b", early)
    world.look(request, early + 5, 3)
    world.enter(request, early + 6, early + 7)
    world.look(request, early + 8, None if seed % 2 else 3, True)
    if seed % 3:
        world.query(request, early + 9)
    leave(world, request, early + 50, 3, "cache")
    hit(world, "a", early + 60, 3)
    return world.end()


def laid_in_the_run(seed):
    """There is no menu at first: who reads is told so. The first update makes version 1."""
    world, now = begun(seed, items={"lunch": 0}, fault="none", expect=None)
    early = rebuild(world, "a", now, 0, fills=False)
    for line in [line for line in world.events["a"] if line["event"] == "queried"]:
        world.remove(line)
    section = early["section"]
    section["exit"] = world.about(early, now + 30, "exit", hold=section["hold"])
    section["release"] = world.about(early, now + 31, "release", hold=section["hold"], status="OK")
    world.turned_away(early, now + 32, 404, "unknown-menu")
    update(world, "b", now + 100, 1)
    leave(world, rebuild(world, "a", now + 200, 1), now + 250, 1)
    hit(world, "b", now + 300, 1)
    update(world, "b", now + 400, 2)
    return world.end()


def only_the_head(seed):
    """A HEAD is a read."""
    world, now = begun(seed)
    leave(world, rebuild(world, "a", now, 3), now + 50, 3)
    request = hit(world, "b", now + 100, 3)
    world.sample_of(request)["label"] = "HEAD menu"
    world.passed_of(request)["method"] = "HEAD"
    return world.end()


def full_at_the_start(seed):
    """The cache had the menu before the run."""
    world, now = begun(seed)
    world.redis["before"] = {**world.redis["before"], "cached": {"lunch": 2}}
    hit(world, "a", now, 2)
    hit(world, "b", now + 2, 2)
    return world.end()


NEAR_MISSES = [menu.clean, asked_at_the_end, updated_at_the_invoke, died_rebuilding, died_after_its_fill, died_deleting,
               died_deleting_late,
               asked_after_a_deletion, asked_while_it_is_deleted, refreshed, gave_up, refused_by_the_fence,
               asked_for_one_who_cannot_fill, filled_at_the_stamp_of_a_newer_one, asked_behind_a_newer_deletion,
               entered_behind_a_newer_fill, refresh_in_vain, laid_in_the_run, only_the_head, full_at_the_start]


@pytest.mark.parametrize("make", NEAR_MISSES, ids=lambda make: make.__name__)
def test_never_accused(make):
    with judge({seed: make(seed) for seed in range(SEEDS if make is menu.clean else 12)}) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            assert verdict["result"] == "ok", (seed, folder, verdict["reasons"])
            assert verdict["agrees"], (seed, verdict["expected"])
            assert verdict["extra"] == verdict["stale"] == 0, (seed, verdict)
            assert verdict["needed"] == verdict["queries"]


@pytest.mark.parametrize("reason, event, code, wanted", [
    ("lock-unavailable", "refused", 503, "deadlock"), ("lock-invalid", "fail", 500, "deadlock"),
    ("queue-full", "refused", 503, "ok")])
def test_who_has_the_lock_that_stays(reason, event, code, wanted):
    """A lost reply may have left it. Others wait in vain, longer than it lives by itself."""
    def make(seed):
        world, now = begun(seed, fault="cut_acquiring")
        world.turned_away(world.ask("lunch", "a", now), now + MS, code, reason, event)
        for at in (now + 17000 * MS, now + 18000 * MS):
            world.turned_away(world.ask("lunch", "b", at), at + 20000 * MS)
        world.redis["after"] = {**world.redis["before"], "locks": shop.side({"lunch": 0}, "hash", 9000)["locks"]}
        return world.end()
    with judge({seed: make(seed) for seed in range(4)}) as verdicts:
        for verdict, folder in verdicts.values():
            assert verdict["result"] == wanted, (folder, verdict["reasons"])


# ---- What the verdict tells -----------------------------------------------------------------------
def test_counts_and_measures():
    """Two readers, of which one meets the rebuild, and an update; the numbers are theirs."""
    world, now = begun(1, expect=None, fault="none")
    leave(world, rebuild(world, "a", now, 3, filled_after=20 * MS), now + 20 * MS + 50, 3)
    hit(world, "b", now + 10 * MS, 3)
    hit(world, "b", now + 23 * MS, 3)
    update(world, "a", now + 24 * MS, 4)
    with judge({1: world.end()}) as verdicts:
        verdict, folder = verdicts[1]
        row = audit("--row", folder).stdout.split()
    wanted = {"service": "menu", "second_look": "on", "guard_update": "on", "fill": "plain", "cache_ms": 5, "refresh_ms": 0,
              "requests": 4, "queries": 1, "needed": 1, "extra": 0, "stale": 0, "updates": 1, "result": "ok"}
    assert {name: verdict[name] for name in wanted} == wanted, verdict
    assert "write" not in verdict and "sold" not in verdict
    assert verdict["by_instance"] == {"a": {"served": 2, "queries": 1}, "b": {"served": 2, "queries": 0}}
    assert verdict["readers_ms"]["p99"] == verdict["rebuild_ms"]["max"] == 22
    assert verdict["readers_ms"]["p50"] == verdict["rebuild_ms"]["p50"] == 1
    assert row[:8] == ["watchdog", "on", "on", "plain", "4", "1", "1", "0"], row


def test_the_head_has_a_word_for_each_number_of_the_row():
    with judge({1: menu.clean(1)}) as verdicts:
        row = audit("--row", verdicts[1][1]).stdout
    head = audit("--head=menu").stdout.splitlines()[1]
    assert len(head.split()) == len(row.split()) == 14
    assert "ladder-audit: there is no service shoes; it must be one of shop, menu" in audit("--head=shoes").stderr


def test_a_service_that_nobody_knows(tmp_path):
    world = menu.clean(1)
    world.run["service"] = "shoes"
    done = audit(world.write(tmp_path / "run"))
    assert done.returncode == 2 and '"service" is shoes; it must be one of shop, menu, tasks' in done.stderr, done.stderr


@pytest.mark.parametrize("field, value, sentence", [
    ("second_look", "perhaps", '"second_look" is "perhaps"; it must be on or off'),
    ("fill", "empty", '"fill" is "empty"; it must be plain or fenced'), ("cache_ms", None, 'no "cache_ms"')])
def test_a_setting_that_is_none(tmp_path, field, value, sentence):
    world = menu.clean(1)
    world.run[field] = value
    done = audit(world.write(tmp_path / "run"))
    assert done.returncode == 2 and sentence in done.stderr, done.stderr


# ---- What is expected -----------------------------------------------------------------------------
@pytest.mark.parametrize("settings, wanted", [
    ({}, ["ok"]), ({"refresh_ms": 2}, ["ok"]), ({"second_look": "off"}, ["stampede"]),
    ({"guard_update": "off"}, ["ok", "stale"]), ({"second_look": "off", "guard_update": "off"}, ["stale", "stampede"]),
    ({"rung": "none"}, ["overlap", "stale", "stampede"]), ({"rung": "local"}, ["overlap", "stale", "stampede"]),
    ({"rung": "local", "instances": ["a"]}, ["ok"]), ({"fault": "frozen"}, ["stale"]),
    ({"fault": "frozen", "fill": "fenced"}, ["ok"]), ({"fault": "frozen", "rung": "setnx"}, ["ok"]),
    ({"fault": "frozen", "fill": "fenced", "guard_update": "off"}, ["ok"]), ({"fault": "late_fill"}, ["ok"]),
    ({"fault": "late_fill", "guard_update": "off"}, ["stale"]),
    ({"fault": "late_fill", "fill": "fenced", "guard_update": "off"}, ["ok"]),
    ({"fault": "killed_holding"}, ["ok"]), ({"fault": "killed_holding", "rung": "setnx"}, ["deadlock"]),
    ({"fault": "flood"}, [])], ids=str)
def test_the_table(settings, wanted):
    world, now = begun(1, **{"fault": "none", "expect": None, **settings})
    leave(world, rebuild(world, "a", now, 3), now + 50, 3)
    with judge({1: world.end()}) as verdicts:
        verdict = verdicts[1][0]
        assert sorted(verdict["expected"]) == wanted and len(verdict["expected_why"]) > 20, verdict["expected"]
