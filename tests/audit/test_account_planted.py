# SPDX-License-Identifier: Apache-2.0
"""Plants a fault into a clean run of accounts, and sees that it is found; and its twin, which is none, is not."""
import re

import account
import pytest
from judge import SEEDS, judge
from planted import worlds_of
from shop import MS
from test_account import TIMED_OUT, UNKNOWN, begun, dies, does, has_one, leaves, looks, reads, writes

PLANTERS, TWINS = [], []


def plant(result, reason, amount=None, **kwargs):
    """Registers a planter: it takes a clean world and changes one thing; None: that world has no place for it. amount: how much
    money is missing (below 0) or too much; the planter may return it instead."""
    def register(function):
        def make(seed):
            world = account.clean(seed, **kwargs)
            planted = function(world, world.random)
            world.planted = amount if planted is True else planted
            return world if planted is not None and planted is not False else None
        PLANTERS.append(pytest.param(make, result, reason, id=function.__name__))
        return function
    return register


def twin(**kwargs):
    def register(function):
        def make(seed):
            world = account.clean(seed, **kwargs)
            return world if function(world, world.random) else None
        TWINS.append(pytest.param(make, id=function.__name__))
        return function
    return register


def made(result, reason, amount=None):
    """Registers a run that is made by hand."""
    def register(function):
        def make(seed):
            world, now = begun(seed, **function.__kwdefaults__ or {})
            function(world, now)
            world.planted = amount
            return world.end()
        PLANTERS.append(pytest.param(make, result, reason, id=function.__name__))
        return function
    return register


@pytest.mark.parametrize("make, result, reason", PLANTERS)
def test_found(make, result, reason):
    worlds = worlds_of(make, SEEDS)
    with judge(worlds) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            assert verdict["result"] == result, (seed, folder, verdict["result"], verdict["reasons"])
            assert any(re.search(reason, text) for text in verdict["reasons"]), (seed, folder, verdict["reasons"])
            if worlds[seed].planted is not None:
                assert verdict["off"] == worlds[seed].planted, (seed, folder, verdict["off"], verdict["reasons"])
            numbers = getattr(worlds[seed], "numbers", {})
            assert {name: verdict[name] for name in numbers} == numbers, (seed, folder, verdict["reasons"])


@pytest.mark.parametrize("make", TWINS)
def test_its_twin_is_not_accused(make):
    with judge(worlds_of(make, SEEDS)) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            assert verdict["result"] == "ok", (seed, folder, verdict["reasons"])


# ---- UNBALANCED: an update is lost -------------------------------------------------------------------
LOST = r"updates that were lost: 1; first: as version \d+ of .* wrote .* and then .* wrote .*overwrote the first one's"


@made("unbalanced", LOST, -200)
def lost_the_first_one(world, now, *, rung="none"):
    """X = 100: one adds 200, one takes 100, and both read 100."""
    one, two = reads(world, "a", now, 200), reads(world, "b", now + 1, -100)
    leaves(world, writes(world, one, now + 10), now + 20)
    leaves(world, writes(world, two, now + 40), now + 50)


@made("unbalanced", LOST, 100)
def lost_the_second_one(world, now, *, rung="none"):
    """As above, and the other one writes last: there is too much."""
    one, two = reads(world, "a", now, 200), reads(world, "b", now + 1, -100)
    leaves(world, writes(world, two, now + 10), now + 20)
    leaves(world, writes(world, one, now + 40), now + 50)


@made("unbalanced", LOST + r" \+200", -200)
def lost_under_stamps_that_overlap(world, now, *, rung="none"):
    """Both are sent before either is answered; the next one shows which of them stayed."""
    one, two = reads(world, "a", now, 200), reads(world, "b", now + 1, -100)
    writes(world, one, now + 10)
    leaves(world, writes(world, two, now + 9), now + 50)
    leaves(world, one, now + 51)
    looks(world, "a", now + 90)


@made("unbalanced", r"updates that were lost: 2", -300)
def lost_under_a_lock_that_expired(world, now):
    """It stood still for 600 ms; two others wrote meanwhile, and the next one goes on from what it wrote."""
    late = reads(world, "a", now, 50)
    does(world, "b", now + 600 * MS, 100)
    does(world, "b", now + 601 * MS, 200)
    leaves(world, writes(world, late, now + 602 * MS), now + 602 * MS + 20)
    does(world, "b", now + 603 * MS, 7)


@made("unbalanced", LOST, -57)
def lost_of_a_transfer(world, now, *, rung="none"):
    """Of a transfer the account that gives keeps its part; the other part is overwritten."""
    move = reads(world, "a", now, 57, to="y")
    add = reads(world, "b", now + 1, 5, "y")
    leaves(world, writes(world, move, now + 10), now + 20)
    leaves(world, writes(world, add, now + 40), now + 50)


@made("unbalanced", LOST)
def lost_to_an_unknown_one(world, now):
    """A command whose reply is lost arrives late, over a later holder's write: the next one reads what it wrote."""
    late = reads(world, "a", now, 50)
    balance = [100 + 50, 2]
    writes(world, late, now + 10, False, False)
    leaves(world, late, now + 20, UNKNOWN)
    does(world, "b", now + 100, 7)
    world.balances["x"] = balance
    does(world, "b", now + 200, 1)


@made("unbalanced", "versions that were read, and are gone: 1; first: request .* read version 3 of x, which has version 2 in the end")
def went_back_behind_a_look(world, now, *, rung="none"):
    """Two replies are lost. A look shows that the one was carried out, and the account in the end that the other came over it."""
    late = reads(world, "a", now, 1)
    does(world, "b", now + 10, 1)
    lost = reads(world, "b", now + 100, 1)
    writes(world, lost, now + 110, True, False)
    leaves(world, lost, now + 120, UNKNOWN)
    looks(world, "a", now + 200)
    writes(world, late, now + 300, False, False)
    leaves(world, late, now + 310, UNKNOWN)
    world.balances["x"] = [101, 2]


@made("unbalanced", LOST + " -5", 5)
def lost_of_a_script_whose_reply_is_lost(world, now, *, rung="none", write="script"):
    """A transfer's answer is lost. Its account y shows that it was carried out; so its write of x is the one that an add came
    over."""
    move, add = reads(world, "a", now, 5, to="y"), reads(world, "b", now + 1, 7)
    leaves(world, writes(world, move, now + 10, answered=False), now + 20, UNKNOWN)
    leaves(world, writes(world, add, now + 40), now + 50)
    world.numbers = {"lost": 1, "torn": 0}


def last_write(world, rand, wanted=lambda request: True):
    """A request with the last version of an account in the chain, told done."""
    for item in rand.sample(list(world.balances), len(world.balances)):
        found = [r for r in world.requests if item in r["wrote"] and r.get("outcome", {}).get("event") == "answered"
                 and r["writing"][item]["version"] == world.balances[item][1] and wanted(r)]
        if found:
            return found[0], item
    return None, None


def far(world):
    return max(line["t_ns"] for lines in world.events.values() for line in lines) + MS


def ask_again(world, request, item, amount, arrives):
    """One more request had read what this one read, and writes at the very end."""
    now, read = far(world), request["read"][item]
    more = world.ask(item, world.run["instances"][0], now, amount)
    world.seen(more, now + 1, item, read["balance"], read["version"])
    world.is_writing(more, now + 2, item)
    if arrives:
        world.balances[item] = [more["writing"][item]["balance"], more["writing"][item]["version"]]
    world.has_written(more, now + 5, item, now + 3)
    world.told(more, now + 6)
    world.end()
    return more


@plant("unbalanced", LOST)
def written_by_two(world, rand):
    request, item = last_write(world, rand)
    if request is None:
        return None
    ask_again(world, request, item, 3, True)
    return -world.change(request, item)


@plant("unbalanced", LOST)
def written_by_two_of_which_the_first_stays(world, rand):
    """As the balance in Redis shows."""
    request, item = last_write(world, rand)
    if request is None:
        return None
    ask_again(world, request, item, 3, False)
    return -3


@twin(tokens=False)
def written_by_one_that_read_it_all(world, rand):
    request, item = last_write(world, rand)
    if request is None:
        return False
    now, died = far(world), world.run["instances"][0] in world.unended
    return not died and bool(leaves(world, writes(world, reads(world, world.run["instances"][0], now, 3, item), now + 10), now + 20)) \
        and bool(world.end())


@twin()
def written_by_one_whose_reply_is_lost(world, rand):
    """It had read what another one read, and it is not certain that it wrote: it did not."""
    request, item = last_write(world, rand)
    if request is None or world.run["instances"][0] in world.unended:
        return False
    now, read = far(world), request["read"][item]
    more = world.ask(item, world.run["instances"][0], now, 3)
    world.seen(more, now + 1, item, read["balance"], read["version"])
    world.is_writing(more, now + 2, item)
    world.turned_away(more, now + 6, *UNKNOWN)
    return bool(world.end())


# ---- UNBALANCED: a transfer is torn ------------------------------------------------------------------
TORN = "transfers of which one account has its part, and the other has not: 1; first: request .* moved 57 from x to y"


@made("unbalanced", TORN + r"\. It is taken from the first one \(version 2\), and not in the second one", -57)
def killed_between(world, now, *, write="two"):
    """Two commands; it dies when the first one is answered."""
    dies(world, writes(world, reads(world, "b", now, 57, to="y"), now + 10, items=["x"]), now + 20)


@made("unbalanced", TORN, -57)
def killed_between_with_others_after_it(world, now, *, write="two"):
    dies(world, writes(world, reads(world, "b", now, 57, to="y"), now + 10, items=["x"]), now + 20)
    does(world, "a", now + 600 * MS, 5, "y", "x")


@made("unbalanced", TORN, -57)
def killed_when_the_first_one_was_sent(world, now, *, write="two"):
    """Its answer was not recorded; the version shows it."""
    dies(world, writes(world, reads(world, "b", now, 57, to="y"), now + 10, True, False, ["x"]), now + 20)


@made("unbalanced", TORN, -57)
def the_second_reply_is_lost_and_it_did_not_arrive(world, now, *, write="two"):
    move = writes(world, reads(world, "b", now, 57, to="y"), now + 10, items=["x"])
    leaves(world, writes(world, move, now + 20, False, False, ["y"]), now + 30, UNKNOWN)
    does(world, "a", now + 600 * MS, 5, "y", "x")


@made("unbalanced", TORN + r"\. It is still in the first one \(version 2\), and in the second one", 57)
def only_the_second_one_arrived(world, now, *, write="script"):
    move = reads(world, "b", now, 57, to="y")
    writes(world, move, now + 10, False, False, ["x"])
    leaves(world, writes(world, move, now + 10, True, False, ["y"]), now + 30, UNKNOWN)


@made("unbalanced", "transfers of which one account has its part", -5)
def whichever_took_effect(world, now, *, write="two"):
    """Two transfers share a version of x. Whichever took effect, its other account has nothing of it."""
    for i in range(2):
        move = reads(world, "b", now + 100 * i, 5, to="y")
        writes(world, move, now + 100 * i + 10, i == 1, False, ["x"])
        leaves(world, writes(world, move, now + 100 * i + 10, False, False, ["y"]), now + 100 * i + 30, UNKNOWN)
    does(world, "a", now + 600 * MS, 1, "y")


# ---- UNBALANCED: versions and sums --------------------------------------------------------------------
@plant("unbalanced", r"writes that were answered, and are gone: 1; first: request .* wrote version \d+ of .*, which has version")
def the_last_one_is_gone(world, rand):
    """Redis came back without it."""
    request, item = last_write(world, rand, lambda r: r["does"] == "add")
    if request is None:
        return None
    line = request["writing"][item]
    readers = [r for r in world.requests if item in r["read"] and r["read"][item]["version"] == line["version"]]
    if readers:
        return None
    world.redis["after"]["accounts"][item] = {"balance": line["before"], "version": line["version"] - 1}
    return -world.change(request, item)


@plant("unbalanced", r"versions that no request wrote: 1; first: version \d+ of")
def somebody_else_wrote(world, rand):
    item = rand.choice(list(world.balances))
    balance, version = world.balances[item]
    world.redis["after"]["accounts"][item] = {"balance": balance + 9, "version": version + 1}
    return 9


@plant("unbalanced", r"accounts that hold something else than was written to them: 1; first: .* holds \d+, and must hold")
def the_balance_is_another_one(world, rand):
    item = rand.choice(list(world.balances))
    if any(item in r["writing"] and item not in r["wrote"] for r in world.requests):
        return None
    world.redis["after"]["accounts"][item]["balance"] += 1
    return 1


@made("unbalanced", "accounts that hold something else than was written to them", 0)
def two_balances_are_wrong_by_the_same(world, now):
    does(world, "a", now, 5, to="y")
    end = world.end

    def wrong():
        end()
        world.redis["after"]["accounts"]["x"]["balance"] += 3
        world.redis["after"]["accounts"]["y"]["balance"] -= 3
        return world
    world.end = wrong


# ---- The lock and its tokens --------------------------------------------------------------------------
@plant("overlap", r"writes with an old token: \d+; first: request .* wrote version \d+ of .* with token \d+, but request .* had written",
       tokens=True, unknowns=0, died=False, fault="none", requests=20)
def written_with_an_old_token(world, rand):
    for request in sorted(world.requests, key=lambda r: r["t_ns"], reverse=True):
        for item, line in request["wrote"].items():
            older = [r["sections"][item]["granted"]["token"] for r in world.requests
                     if item in r["wrote"] and r["wrote"][item]["t_ns"] < line["sent_ns"]]
            if older and max(older) > 1:
                for told in (request["sections"][item]["granted"], request["writing"][item]):
                    told["token"] = max(older) - 1
                return True
    return None


@plant("overlap", "sections that began while another one of their lock was still inside: 1", tokens=False, died=False, fault="none",
       locks="many")
def inside_a_nanosecond_too_long(world, rand):
    for item in world.run["items"]:
        sections = sorted((s for s in world.sections if s["item"] == item), key=lambda s: s["enter"]["t_ns"])
        for one, two in zip(sections, sections[1:]):
            if one["exit"]["t_ns"] <= two["enter"]["t_ns"] < two["exit"]["t_ns"] and len(one["request"]["sections"]) == 1:
                late = two["enter"]["t_ns"] + 1
                one["exit"]["t_ns"] = late
                for line in (one["release"], one["request"]["outcome"]):
                    line["t_ns"] = max(line["t_ns"], late)
                world.end()
                return True
    return None


# ---- DEADLOCK -----------------------------------------------------------------------------------------
@made("deadlock", "cycles of requests that waited for each other until one timed out: 1; first, of 2, .*held lock:{.} and waited for")
def crossed(world, now, *, locks="unordered"):
    one, two = has_one(world, "a", now, "x", "y"), has_one(world, "b", now + 10, "y", "x")
    leaves(world, one, now + 20 * MS, TIMED_OUT)
    leaves(world, two, now + 21 * MS, TIMED_OUT)


@made("deadlock", "cycles of requests that waited for each other until one timed out: 1; first, of 2")
def crossed_and_the_other_went_on(world, now, *, locks="unordered"):
    one, two = has_one(world, "a", now, "x", "y"), has_one(world, "b", now + 10, "y", "x")
    leaves(world, one, now + 20 * MS, TIMED_OUT)
    world.enter(two, now + 20 * MS, now + 20 * MS + 1, item="x")
    for item in ("y", "x"):
        world.seen(two, now + 20 * MS + 5, item, *world.balances[item])
    leaves(world, writes(world, two, now + 20 * MS + 10), now + 20 * MS + 20)


@made("deadlock", "cycles of requests that waited for each other until one timed out: 1; first, of 2")
def crossed_at_one_stamp(world, now, *, locks="unordered"):
    one, two = has_one(world, "a", now, "x", "y"), has_one(world, "b", now, "y", "x")
    leaves(world, one, now + 20 * MS, TIMED_OUT)
    leaves(world, two, now + 20 * MS, TIMED_OUT)


@made("deadlock", "cycles of requests that waited for each other until one timed out: 1; first, of 4")
def four_in_a_cycle(world, now, *, locks="unordered", items={"w": 9, "x": 9, "y": 9, "z": 9},  # noqa: B006
                     versions={"w": 1, "x": 1, "y": 1, "z": 1}):  # noqa: B006
    cycle = [has_one(world, "ab"[i % 2], now + 10 * i, item, to) for i, (item, to) in enumerate(["wx", "yz", "zw", "xy"])]
    for i, request in enumerate(cycle):
        leaves(world, request, now + (20 + i) * MS, TIMED_OUT)


@made("deadlock", "the lock of y is held for ever: nobody acquired it after request .*, requests that timed out waiting for it: 1")
def the_second_lock_is_held_for_ever(world, now, *, rung="setnx", locks="unordered"):
    """Its holder died. A transfer that has the lock of x waits for it."""
    dead = reads(world, "b", now, 5, "y")
    dies(world, dead, now + 20)
    leaves(world, has_one(world, "a", now + 100, "x", "y"), now + 20 * MS, TIMED_OUT)
    end = world.end

    def stuck():
        end()
        world.redis["after"]["locks"]["y"] = {"type": "string", "pttl_ms": -1}
        return world
    world.end = stuck


# ---- Records that are missing or contradict each other ------------------------------------------------
def told_done(world, rand, wanted=lambda request: True):
    found = [r for r in world.requests if r.get("outcome", {}).get("event") == "answered" and r["wrote"] and wanted(r)]
    return rand.choice(found) if found else None


@plant("inconclusive", "requests without an end: 1, first .*; every invoke must have its answered, refused, fail or unknown", died=False,
       fault="none")
def no_end(world, rand):
    request = told_done(world, rand)
    return request and (world.remove(request["outcome"]) or True)


@plant("inconclusive", "seq is .*: lines are missing")
def a_line_is_lost(world, rand):
    instance = rand.choice(world.run["instances"])
    world.seq_edits[instance] = lambda lines: lines.pop(rand.randint(1, len(lines) - 2))
    return len(world.events[instance]) > 2


@plant("inconclusive", "history-.*: missing or empty")
def an_instance_is_absent(world, rand):
    del world.events[rand.choice(world.run["instances"])]
    return True


@plant("inconclusive", "redis.json: \"after\" does not state the balance of")
def redis_does_not_tell(world, rand):
    world.redis["after"] = world.moment()
    del world.redis["after"]["accounts"][rand.choice(list(world.balances))]
    return True


@plant("inconclusive", "the run began with .*; run.json says")
def it_began_with_something_else(world, rand):
    world.run["items"] = {**world.run["items"]}
    world.run["items"][rand.choice(list(world.balances))] += 1
    return True


@plant("inconclusive", "the instance's history says that it told another version")
def the_client_got_another_version(world, rand):
    request = told_done(world, rand)
    if request:
        world.sample_of(request)["version"] += rand.choice([-1, 1])
    return request is not None


@plant("inconclusive", "the instance's history says that it answered something else")
def the_client_got_another_code(world, rand):
    request = told_done(world, rand)
    if request:
        world.sample_of(request)["responseCode"] = world.passed_of(request)["status"] = 404
    return request is not None


@plant("inconclusive", "another instance's history has the answer", instances=["a", "b"])
def the_client_names_another_instance(world, rand):
    request = told_done(world, rand)
    if request:
        sample = world.sample_of(request)
        sample["instance"] = "b" if sample["instance"] == "a" else "a"
    return request is not None


@plant("inconclusive", "the instance's history says that it asked for another quantity")
def the_client_asked_for_another_amount(world, rand):
    request = told_done(world, rand, lambda r: r["does"] == "add")
    if request:
        world.sample_of(request)["URL"] = "http://127.0.0.1/accounts/%s/add?amount=77" % request["item"]
    return request is not None


@plant("inconclusive", "balances that nobody wrote: 1; first: request .* read 987654 in")
def nobody_wrote_it(world, rand):
    found = [r for r in world.requests if r["does"] == "look" and "outcome" in r]
    if not found:
        return None
    request = rand.choice(found)
    request["read"][request["item"]]["balance"] = request["outcome"]["balance"] = 987654
    return True


@plant("inconclusive", "it must be that balance and its amount, .*, as the next version")
def it_computed_wrong(world, rand):
    """The line says so itself: it proves nothing."""
    request = told_done(world, rand)
    if request:
        line = rand.choice(list(request["writing"].values()))
        line[rand.choice(["before", "balance", "version"])] += 1
    return request is not None


@plant("inconclusive", "it wrote version .*; that must be the version and the hold of its writing")
def it_wrote_another_version(world, rand):
    request = told_done(world, rand)
    if request:
        rand.choice(list(request["wrote"].values()))["version"] += 1
    return request is not None


@plant("inconclusive", "is told done, and its own lines do not tell that balance and that version")
def it_answered_something_else(world, rand):
    request = told_done(world, rand)
    if request:
        request["outcome"][rand.choice(["balance"] + (["to_balance", "to_version"] if request["to"] else []))] += 1
    return request is not None


@plant("inconclusive", "is told done, and its own lines do not tell that balance and that version")
def it_is_told_done_and_wrote_nothing(world, rand):
    request = told_done(world, rand)
    if request:
        world.remove(request["wrote"].popitem()[1])
    return request is not None


@plant("inconclusive", "the order must be read, writing, wrote", write="two")
def it_wrote_without_a_read(world, rand):
    request = told_done(world, rand)
    if request:
        world.remove(request["read"].popitem()[1])
    return request is not None


@plant("inconclusive", "writes by requests that ended with refused or fail: 1", died=False, fault="none", tokens=False)
def wrote_and_was_refused(world, rand):
    request = told_done(world, rand, lambda r: r["does"] == "add")
    if request:
        for name in ("balance", "version"):
            del request["outcome"][name]
        request["outcome"].update(event="refused", code=503, reason="lock-lost")
        world.sample_of(request).update(responseCode=503, version="", item="", instance="")
        world.passed_of(request)["status"] = 503
    return request is not None


@plant("inconclusive", "write_refused (by request .*, which wrote; it must have written nothing|of request .*, which has ended)", died=False, fault="none")
def wrote_and_was_refused_by_the_fence(world, rand):
    request = told_done(world, rand)
    if request:
        line = request["wrote"][request["item"]]
        world.about(request, line["t_ns"], "write_refused", account=request["item"], token=1, newest=2)
        world.end()
    return request is not None


@plant("inconclusive", '"sent_ns" is .*; it must lie between its read and its wrote')
def sent_before_it_was_read(world, rand):
    request = told_done(world, rand)
    if request:
        item = rand.choice(list(request["wrote"]))
        request["wrote"][item]["sent_ns"] = request["read"][item]["t_ns"] - 1
    return request is not None


@plant("inconclusive", "which is not that of its account's lock, or in which its request is not inside")
def written_under_another_hold(world, rand):
    request = told_done(world, rand)
    if request:
        rand.choice(list(request["writing"].values()))["hold"] = "nobody:1#1"
    return request is not None


@plant("inconclusive", "which is not that of its account's lock, or in which its request is not inside", write="two")
def written_under_the_hold_of_the_other_account(world, rand):
    request = told_done(world, rand, lambda r: r["to"])
    if request:
        request["writing"][request["item"]]["hold"] = request["sections"][request["to"]]["hold"]
    return request is not None


@plant("inconclusive", "writing with token .*, and its lock was granted with .*; they must be the same")
def written_with_another_token(world, rand):
    request = told_done(world, rand)
    if request:
        rand.choice(list(request["writing"].values()))["token"] += rand.choice([1, 1000])
    return request is not None


@plant("inconclusive", "writing with token .*, and its lock was granted with .*; they must be the same", tokens=True, unknowns=0, died=False,
       fault="none", requests=20)
def granted_with_another_token_than_it_wrote_with(world, rand):
    """Its grant alone says that the token is an old one."""
    for request in sorted(world.requests, key=lambda r: r["t_ns"], reverse=True):
        for item, line in request["wrote"].items():
            older = [r["sections"][item]["granted"]["token"] for r in world.requests
                     if item in r["wrote"] and r["wrote"][item]["t_ns"] < line["sent_ns"]]
            if older and max(older) > 1:
                request["sections"][item]["granted"]["token"] = max(older) - 1
                return True
    return None


@plant("inconclusive", "which is not about that account; it must be")
def about_another_account(world, rand):
    request = told_done(world, rand)
    others = [i for i in world.balances if request and i not in (request["item"], request["to"])]
    if others:
        request["read"][request["item"]]["account"] = others[0]
    return bool(others)


@plant("inconclusive", "recorded with another locks or work_ms")
def other_settings(world, rand):
    world.begin.update(rand.choice([{"locks": "many" if world.run["locks"] == "unordered" else "unordered"}, {"work_ms": 7}]))
    return True


@plant("inconclusive", 'recorded with write "set"; it must be run.json')
def another_write(world, rand):
    world.begin["write"] = "set"
    return True


@plant("inconclusive", 'recorded with service "shop"; it must be run.json.s "account"')
def records_of_a_shop(world, rand):
    del world.begin["service"]
    return True


@plant("inconclusive", 'there is no event "(write|looked)"')
def an_event_of_another_service(world, rand):
    request = told_done(world, rand)
    if request:
        request["wrote"][request["item"]]["event"] = rand.choice(["write", "looked"])
    return request is not None
