# SPDX-License-Identifier: Apache-2.0
"""Plants a fault into a clean run of a menu, and sees that it is found; and its twin, which is none, is not."""
import re

import menu
import pytest
from judge import SEEDS, judge
from planted import worlds_of
from menu import MS

PLANTERS, TWINS = [], []


def plant(result, reason, **kwargs):
    """Registers a planter: it takes a clean world and changes one thing; None: that world has no place for it."""
    def register(function):
        def make(seed):
            world = menu.clean(seed, **kwargs)
            return world if function(world, world.random) else None
        PLANTERS.append(pytest.param(make, result, reason, id=function.__name__))
        return function
    return register


def twin(**kwargs):
    def register(function):
        def make(seed):
            world = menu.clean(seed, **kwargs)
            return world if function(world, world.random) else None
        TWINS.append(pytest.param(make, id=function.__name__))
        return function
    return register


@pytest.mark.parametrize("make, result, reason", PLANTERS)
def test_found(make, result, reason):
    with judge(worlds_of(make, SEEDS)) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            assert verdict["result"] == result, (seed, folder, verdict["result"], verdict["reasons"])
            assert any(re.search(reason, text) for text in verdict["reasons"]), (seed, folder, verdict["reasons"])


@pytest.mark.parametrize("make", TWINS)
def test_its_twin_is_not_accused(make):
    with judge(worlds_of(make, SEEDS)) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            assert verdict["result"] == "ok", (seed, folder, verdict["reasons"])


# ---- STAMPEDE -------------------------------------------------------------------------------------
def last_fill(world, rand):
    """The last query of a menu, if it filled the cache, and nobody deletes or updates the menu after it began."""
    for item in rand.sample(list(world.run["items"]), len(world.run["items"])):
        queries = [q for q in world.queries if q["request"]["item"] == item]
        last = max(queries, key=lambda q: q["query"]["t_ns"], default=None)
        if last and not any(line["t_ns"] >= last["query"]["t_ns"] and line.get("item") == item
                            for lines in world.events.values() for line in lines
                            if line["event"] in ("updated", "deleted")):
            return last
    return None


def ask_at(world, fill, t_ns):
    """One more reader asks then, without a lock. It fills in nothing."""
    request = world.ask(fill["request"]["item"], world.run["instances"][0], t_ns - 2)
    world.look(request, t_ns - 1, None)
    query = world.query(request, t_ns)
    world.queried(query, t_ns + 1, fill["queried"]["version"])
    world.told(request, t_ns + 2, fill["queried"]["version"])
    world.end()
    return True


def end_of(world, fill):
    return fill["filled"]["sent_ns"] + world.settings["cache_ms"] * MS


NOT_NEEDED = r"queries of the database that were not needed: 1 of \d+; first: request .* asked for .* at .* ms, but request"


@plant("stampede", NOT_NEEDED + ".* filled the cache with it until", refresh_ms=0)
def asked_a_nanosecond_early(world, rand):
    fill = last_fill(world, rand)
    return fill and ask_at(world, fill, end_of(world, fill) - 1)


@twin(refresh_ms=0)
def asked_at_the_end(world, rand):
    fill = last_fill(world, rand)
    return fill and ask_at(world, fill, end_of(world, fill))


@plant("stampede", NOT_NEEDED, refresh_ms=0)
def asked_behind_a_fill(world, rand):
    fill = last_fill(world, rand)
    return fill and ask_at(world, fill, fill["filled"]["t_ns"] + 1)


@plant("stampede", NOT_NEEDED + ".* its query was still open", refresh_ms=0)
def asked_while_another_asks(world, rand):
    fill = last_fill(world, rand)
    return fill and fill["queried"]["t_ns"] > fill["query"]["t_ns"] + 1 and ask_at(world, fill, fill["query"]["t_ns"] + 1)


@plant("stampede", NOT_NEEDED, refresh_ms=2)
def refreshed_a_nanosecond_early(world, rand):
    fill = last_fill(world, rand)
    return fill and ask_at(world, fill, end_of(world, fill) - 3 * MS - 1)


@twin(refresh_ms=2)
def refreshed_at_the_first_moment(world, rand):
    fill = last_fill(world, rand)
    return fill and ask_at(world, fill, end_of(world, fill) - 3 * MS)


@plant("stampede", NOT_NEEDED, refresh_ms=2)
def refreshed_by_two(world, rand):
    """Both in the last moments, the second while the first is still asking."""
    fill = last_fill(world, rand)
    return (fill and ask_at(world, fill, end_of(world, fill) - MS) and ask_at(world, fill, end_of(world, fill) - MS + 1))


@plant("stampede", NOT_NEEDED, refresh_ms=0)
def one_deletion_for_two(world, rand):
    """Both ask while it is deleted; that explains one of them."""
    fill = last_fill(world, rand)
    if not fill:
        return False
    t_ns, item = fill["filled"]["t_ns"] + 100, fill["request"]["item"]
    if any(r["item"] == item and r["invoke"]["t_ns"] > t_ns for r in world.requests):
        return False  # it would get the old menu
    request = world.ask(item, world.run["instances"][0], t_ns, "update")
    world.updated(request, t_ns + 1, fill["queried"]["version"] + 1)
    world.deleted(request, t_ns + 2, t_ns + 60)
    world.told(request, t_ns + 90, fill["queried"]["version"] + 1)
    for at in (t_ns + 10, t_ns + 11):
        again = world.ask(item, world.run["instances"][0], at - 2)
        query = world.query(again, at)
        world.queried(query, at + 30, fill["queried"]["version"] + 1)
        world.told(again, at + 31, fill["queried"]["version"] + 1)
    world.end()
    return True


# ---- STALE ----------------------------------------------------------------------------------------
def set_version(world, request, version):
    """All its records tell that version."""
    for lines in world.events.values():
        for line in lines:
            if line.get("request") == request["id"] and "version" in line:
                line["version"] = version
    world.sample_of(request)["version"] = version


def told_before(world, request):
    """The newest version of its menu of which an update was answered before it came."""
    return max((o["outcome"]["version"] for o in world.requests
                if o["does"] == "update" and o["item"] == request["item"] and o["outcome"]["t_ns"] < request["invoke"]["t_ns"]),
               default=None)


@plant("stale", r"answers with an old menu: \d+; first: request .* came at .* ms and got version \d+ of .* from the "
                r"(cache|database)\. Request .* had updated it to version \d+ before, and was told so at", updates=0.4)
def older_by_one(world, rand):
    readers = [r for r in world.requests if r["does"] == "read" and told_before(world, r) is not None]
    if not readers:
        return False
    request = rand.choice(readers)
    set_version(world, request, told_before(world, request) - 1)
    return True


# ---- The lock and its tokens ------------------------------------------------------------------------
@plant("overlap", r"fills with an old token: \d+; first: request .* with token \d+, but request .* had filled or deleted it",
       fill="fenced")
def filled_with_an_old_token(world, rand):
    return delete_under_it(world, 1, -1)


@twin(fill="fenced")
def deleted_from_its_query_on(world, rand):
    """It may have been deleted before the database was asked."""
    return delete_under_it(world, 0, -1)


@twin(fill="fenced")
def deleted_until_its_fill(world, rand):
    return delete_under_it(world, 1, 0)


def delete_under_it(world, behind_query, behind_sending):
    """An update with the next token deletes the menu while a reader asks for it; from so long behind the reader's query on
    until so long behind the sending of its fill. It stays unknown."""
    for query in world.queries:
        own = next(s for s in world.sections if s["request"] is query["request"])
        begin, end = query["query"]["t_ns"] + behind_query, query["filled"]["sent_ns"] + behind_sending
        if end - begin < 1 or begin - own["enter"]["t_ns"] < 4:
            continue
        request = world.ask(query["request"]["item"], query["request"]["instance"], begin - 4, "update")
        section = world.enter(request, begin - 3, begin - 2, own["granted"]["token"] + 1)
        world.updated(request, begin - 1, 1000)
        world.deleted(request, begin, end)
        section["exit"] = world.about(request, end + 1, "exit", hold=section["hold"])
        section["release"] = world.about(request, end + 2, "release", hold=section["hold"], status="OK")
        world.turned_away(request, end + 3, 500, "outcome-unknown", "unknown")
        world.end()
        return True
    return False


@plant("overlap", "sections that began while another one of their lock was still inside: 1", fill="plain", refresh_ms=0)
def inside_a_nanosecond_too_long(world, rand):
    for item in world.run["items"]:
        for one, two in zip(world.sections_of(item), world.sections_of(item)[1:]):
            if one["exit"]["t_ns"] <= two["enter"]["t_ns"] < two["exit"]["t_ns"]:
                late = two["enter"]["t_ns"] + 1
                one["exit"]["t_ns"] = late
                for line in (one["release"], one["request"]["outcome"]):
                    line["t_ns"] = max(line["t_ns"], late)
                world.end()
                return True
    return False


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


@plant("inconclusive", "history-.*: missing or empty")
def an_instance_is_absent(world, rand):
    del world.events[rand.choice(world.run["instances"])]
    return True


@plant("inconclusive", "the instance's history says that it told another version")
def the_client_got_another_version(world, rand):
    world.sample_of(rand.choice(world.requests))["version"] += rand.choice([-1, 1])
    return True


@plant("inconclusive", "the instance's history says that it answered something else")
def the_client_got_another_code(world, rand):
    request = rand.choice(world.requests)
    world.sample_of(request)["responseCode"] = world.passed_of(request)["status"] = 404
    return True


@plant("inconclusive", "another instance's history has the answer", instances=["a", "b"])
def the_client_names_another_instance(world, rand):
    sample = world.sample_of(rand.choice(world.requests))
    sample["instance"] = "b" if sample["instance"] == "a" else "a"
    return True


@plant("inconclusive", "menus in the cache that nobody filled in: 1; first: request .* found version 99")
def nobody_filled_it_in(world, rand):
    found = [r for r, line in world.looks if line["hit"] and "query" not in r]
    if not found:
        return False
    set_version(world, rand.choice(found), 99)
    return True


@plant("inconclusive", "menus in the cache that nobody filled in", updates=0)
def filled_in_only_later(world, rand):
    """The only fill of that version is sent a nanosecond behind the look."""
    for request, line in world.looks:
        fills = [q for q in world.queries if q["request"]["item"] == request["item"]]
        if line["hit"] and len(fills) == 1 and "query" not in request and line["t_ns"] + 1 >= fills[0]["queried"]["t_ns"]:
            fills[0]["filled"]["sent_ns"] = line["t_ns"] + 1
            fills[0]["filled"]["t_ns"] = max(fills[0]["filled"]["t_ns"], line["t_ns"] + 1)
            return fills[0]["filled"]["t_ns"] <= next(
                s for s in world.sections if s["request"] is fills[0]["request"])["exit"]["t_ns"] and bool(world.end())
    return False


@plant("inconclusive", "it filled in version .*, and its database told version")
def filled_in_something_else(world, rand):
    query = rand.choice(world.queries)
    query["filled"]["version"] += 1
    return True


@plant("inconclusive", "answers version .*, and its own lines do not tell that version")
def answered_something_else(world, rand):
    request = rand.choice(world.requests)
    request["outcome"]["version"] += 1
    world.sample_of(request)["version"] += 1
    return True


@plant("inconclusive", "an update is answered, and deleted nothing", updates=0.4)
def an_update_without_a_deletion(world, rand):
    if not world.deletions:
        return False
    world.remove(rand.choice(world.deletions)["deleted"])
    return True


@plant("inconclusive", "updates without a new version of their own: 1", updates=0.6, requests=30)
def two_updates_make_one_version(world, rand):
    """Of the two newest versions; nobody reads behind the later one."""
    for item in world.run["items"]:
        updates = sorted((r for r in world.requests if r["item"] == item and r["does"] == "update"),
                         key=lambda r: r["updated"]["version"])
        if updates and not any(q["queried"]["version"] == updates[-1]["updated"]["version"] for q in world.queries
                               if q["request"]["item"] == item):
            set_version(world, updates[-1], updates[-1]["updated"]["version"] - 1)
            return True
    return False


@plant("inconclusive", "updates that changed the database, and ended with refused or fail: 1", updates=0.4)
def changed_and_failed(world, rand):
    updates = [r for r in world.requests if r["does"] == "update"]
    if not updates:
        return False
    request = rand.choice(updates)
    request["outcome"].update(event="fail", code=500, reason="cache-error")
    sample = world.sample_of(request)
    sample.update(responseCode=500, version="", item="", instance="")
    world.passed_of(request)["status"] = 500
    return True


@plant("inconclusive", '"sent_ns" is .*; it must lie between the line before it')
def sent_before_it_was_known(world, rand):
    query = rand.choice(world.queries)
    query["filled"]["sent_ns"] = query["queried"]["t_ns"] - 1
    return True


@plant("inconclusive", "in which its request is not inside; it must be")
def filled_under_another_hold(world, rand):
    query = rand.choice(world.queries)
    query["filled"]["hold"] = "nobody:1#1"
    return True


@plant("inconclusive", "the order must be query, queried, filled or fill_refused")
def filled_without_an_answer(world, rand):
    world.remove(rand.choice(world.queries)["queried"])
    return True


@plant("inconclusive", "recorded with another cache_ms, db_ms, refresh_ms")
def other_settings(world, rand):
    name, value = rand.choice([("cache_ms", 6), ("db_ms", 7), ("second_look", "off"), ("guard_update", "off")])
    world.begin[name] = value
    return True


@plant("inconclusive", 'recorded with service "shop"; it must be run.json.s "menu"')
def records_of_a_shop(world, rand):
    del world.begin["service"]
    return True


@plant("inconclusive", 'there is no event "write"')
def an_event_of_the_shop(world, rand):
    rand.choice(world.queries)["filled"]["event"] = "write"
    return True
