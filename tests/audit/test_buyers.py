# SPDX-License-Identifier: Apache-2.0
"""Buyers whom the shop sends away, as it says lock-busy, and who ask again: these are attempts of one wish. Who gives
up while enough is left was sent away."""
import pytest
import shop
from judge import SEEDS, judge
from planted import check_found
from shop import MS

EARLIER_MS = 100
REASONS = [(503, "lock-busy"), (429, "not-admitted")]


def crowd(seed, **asked):
    """A correct run, in which each buyer has asked once; the stock was set long before."""
    world = shop.clean(seed, **{"unknowns": 0, "rung": "watchdog", "on_conflict": "fail", "retries": 9,
                                "instances": ["a", "b"], **asked})
    if world.t0 < EARLIER_MS * MS:
        return crowd(seed + SEEDS * 100, **asked)
    for line in [line for lines in world.events.values() for line in lines if line["event"] == "restock"]:
        line["t_ns"] -= EARLIER_MS * MS
    world.columns = shop.JTL_COLUMNS + shop.BUYER_COLUMNS
    for number, request in enumerate(world.requests):
        name_buyer(world, request, f"buyer {number}")
    return world


def name_buyer(world, request, buyer):
    request["buyer"] = buyer
    for sample in world.samples:
        if sample["request"] == request["id"]:
            sample["buyer"] = buyer


def attempt(world, request, code=503, reason="lock-busy", before_ms=3, buyer=None, item=None):
    """So long before its request the same buyer was sent away."""
    start = min(request["t_ns"], world.t0) - before_ms * MS
    first = world.request(item or request["item"], request["instance"], start, request["quantity"])
    world.refuse(first, start + 1, code, reason)
    name_buyer(world, first, request["buyer"] if buyer is None else buyer)
    return first


def finished(world, attempts):
    """The attempts are none of the requests that run.json asks for."""
    for lines in world.events.values():
        lines.sort(key=lambda line: line["t_ns"])
    world.run["requests"] = len(world.requests) - attempts
    return world


@pytest.mark.parametrize("code, reason", REASONS)
def test_who_asks_again_was_not_sent_away(code, reason):
    """However it ends: it bought, or the stock was sold out by then."""
    worlds, attempts = {}, {}
    for seed in range(SEEDS):
        world = crowd(seed)
        again = [request for request in world.requests if world.random.random() < 0.6]
        for request in again:
            for number in range(world.random.randint(1, 3)):
                attempt(world, request, code, reason, 3 * (number + 1))
                attempts[seed] = attempts.get(seed, 0) + 1
        worlds[seed] = finished(world, attempts.get(seed, 0))
    with judge(worlds) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            assert verdict["result"] == "ok" and verdict["agrees"], (seed, folder, verdict["reasons"])
            assert verdict["attempts"] == attempts.get(seed, 0)
            assert verdict["requests"] == worlds[seed].run["requests"]


def with_stock_left(seed, **asked):
    """A run in which units of its first item are left for a buyer who comes last; or None."""
    world = crowd(seed, items={"item-0": 60}, quantities=False, **asked)
    return world


def gives_up(world):
    """It has asked twice."""
    request = world.requests[0]
    first = attempt(world, request, buyer="one who gives up", before_ms=9)
    attempt(world, first, before_ms=3)
    return finished(world, 1)


def another_buyer_buys(world):
    attempt(world, world.requests[0], buyer="another one")
    return finished(world, 0)


def has_no_name(world):
    attempt(world, world.requests[0], buyer="")
    return finished(world, 0)


def is_sent_away_in_another_way(world):
    """It waited for the lock in vain: that is no attempt, whoever asks again."""
    attempt(world, world.requests[0], 503, "lock-timeout")
    return finished(world, 0)


def asks_for_another_item(world):
    """What it asks for later is another wish."""
    world.run["items"]["other"] = 5
    for side in ("before", "after"):
        world.redis[side]["stock"]["other"] = 5
        world.redis[side]["locks"]["other"] = {"type": "none", "pttl_ms": -2}
    world.add(world.run["instances"][0], world.t0 - 20 * MS, "restock", item="other", stock_after=5)
    attempt(world, world.requests[0], item="other")
    return finished(world, 0)


def asks_at_the_same_time(world):
    """Its second request was sent before the first one was answered: each is a wish of its own."""
    request = world.requests[0]
    first = attempt(world, request)
    sample, later = world.sample_of(first), world.sample_of(request)
    sample["elapsed"] = later["timeStamp"] - sample["timeStamp"] + 1
    return finished(world, 0)


def is_rejected_by_nginx(world):
    """nginx's own 429 is no attempt: it reached no instance."""
    request = world.requests[0]
    first = attempt(world, request, 429, "not-admitted")
    for line in [line for line in world.events[first["instance"]] if line.get("request") == first["id"]]:
        world.remove(line)
    world.passed_of(first).update(upstream="", upstream_status="")
    return finished(world, 0)


FAULTS = [gives_up, another_buyer_buys, has_no_name, is_sent_away_in_another_way, asks_for_another_item,
          asks_at_the_same_time, is_rejected_by_nginx]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_who_gives_up_while_enough_is_left_was_sent_away(fault):
    check_found(lambda seed: fault(with_stock_left(seed)), "undersold", "rejected while enough was left", False)


@pytest.mark.parametrize("asked, expected", [
    ({"on_conflict": "fail", "retries": 0}, True), ({"on_conflict": "fail", "retries": 1}, False),
    ({"on_conflict": "wait", "retries": 0}, False), ({"on_conflict": "wait", "write": "cas", "retries": 0}, True),
    ({"on_conflict": "wait", "write": "cas", "retries": 1}, False),
    ({"on_conflict": "wait", "admit": "100,50", "retries": 0}, True),
    ({"on_conflict": "wait", "admit": "off", "retries": 0}, False),
    ({"on_conflict": "wait", "admit": "100,50", "retries": 1}, False)])
def test_that_is_expected_of_buyers_who_never_ask_again(asked, expected):
    worlds = {seed: another_buyer_buys(with_stock_left(seed, **{"write": "decr", **asked}))
              for seed in range(min(SEEDS, 20))}
    with judge(worlds) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            assert verdict["result"] == "undersold" and verdict["agrees"] == expected, (seed, folder, verdict["expected"])


def takes_one_more(world):
    """One unit is gone that nobody bought."""
    another_buyer_buys(world)
    world.redis["after"]["stock"]["item-0"] -= 1
    return world


@pytest.mark.parametrize("fault", [is_sent_away_in_another_way, takes_one_more], ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("asked", [{"on_conflict": "fail"}, {"on_conflict": "wait", "write": "cas"},
                                   {"on_conflict": "wait", "admit": "100,50"}])
def test_a_policy_excuses_nothing_else(fault, asked):
    worlds = {seed: fault(with_stock_left(seed, retries=0, **{"write": "decr", **asked}))
              for seed in range(min(SEEDS, 20))}
    with judge(worlds) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            assert verdict["result"] == "undersold" and not verdict["agrees"], (seed, folder, verdict["expected"])


@pytest.mark.parametrize("field, told", [("on_conflict", "wait"), ("admit", "off")])
def test_each_instance_must_have_the_policies_of_the_run(field, told):
    """Another one had been set on this one."""
    def judged(value):
        world = crowd(1, on_conflict="fail", admit="100,50")
        instance = world.run["instances"][0]
        world.seq_edits[instance] = lambda lines: lines[0].update({field: value})
        with judge({1: world}) as verdicts:
            return verdicts[1][0]
    assert judged(crowd(1, on_conflict="fail", admit="100,50").run[field])["result"] == "ok"
    verdict = judged(told)
    assert verdict["result"] == "inconclusive"
    assert any(f'recorded with {field} "{told}"' in text for text in verdict["reasons"]), verdict["reasons"]


def test_a_client_that_names_no_buyers_is_judged_as_before():
    worlds = {seed: shop.clean(seed) for seed in range(min(SEEDS, 20))}
    with judge(worlds) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            assert verdict["result"] in ("ok", "inconclusive") and verdict["attempts"] == 0, (seed, folder)
