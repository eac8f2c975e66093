# SPDX-License-Identifier: Apache-2.0
"""Runs in which the stock looks at tokens: who is overtaken and refused did no harm; a write that got through is found,
whether it oversold or not."""
import re

import pytest
import shop
from judge import SEEDS, judge
from shop import MS


def begin(write, stock, seed=1):
    world = shop.World(seed)
    shop.start(world, rung="fair", write=write, fault="frozen", instances=["a", "b"], items={"phone": stock},
               ttl_ms=2000, direct=True, min_share=0, expect=["ok"])
    world.logged = False
    return world, world.t0 + MS


def enter(world, instance, token, t_ns):
    """It has the lock, and has read what is there."""
    section = world.section(world.request("phone", instance, t_ns), (t_ns + 1, t_ns + 2), token)
    section["before"] = world.stock["phone"]
    section["read"] = world.about(section["request"], t_ns + 3, "read", hold=section["hold"],
                                  stock_before=section["before"])
    return section


def leave(world, section, t_ns):
    world.leave(section, t_ns, t_ns + 1)


def sell(world, section, t_ns):
    """Takes one off what is there, and leaves."""
    request, hold = section["request"], section["hold"]
    world.stock["phone"] -= 1
    after = world.stock["phone"]
    section["write"] = world.about(request, t_ns, "write", hold=hold, stock_before=section["before"],
                                   stock_after=after, unit=after + 1, quantity=1)
    request["outcome"] = section["write"]
    world.answer(request, t_ns, 200, after + 1, after)
    leave(world, section, t_ns + 1)


def refuse(world, section, t_ns, newest):
    leave(world, section, t_ns)
    request = section["request"]
    world.refuse(request, t_ns + 2, 503, "stale-token")
    request["outcome"].update(token=section["granted"]["token"], newest=newest)


def overtaken(write, stock, order, lets_in):
    """a has read and is frozen, b is granted. a wakes ahead of b's write or behind it, and is let in or not."""
    world, now = begin(write, stock)
    first, woke = enter(world, "a", 5, now), now + 2000 * MS
    second = enter(world, "b", 6, woke - 4 * MS)

    def wake(t_ns):
        if lets_in:
            sell(world, first, t_ns)
        else:
            refuse(world, first, t_ns, 6)
    if order == "ahead":
        wake(woke)
        sell(world, second, woke + 4 * MS)
    else:
        sell(world, second, woke - 2 * MS)
        wake(woke)
    return shop.finish(world)


CASES = [  # write, stock, order, lets_in; the result, and what a reason says
    ("fenced", 1, "ahead", False, "ok", ""),
    ("fenced", 1, "behind", False, "ok", ""),
    ("fenced", 9, "ahead", False, "undersold", r"rejected while enough was left: 1; first: request \w+ got 503"),
    ("fenced", 9, "behind", False, "undersold", r"rejected while enough was left: 1; first: request \w+ got 503"),
    ("fenced", 1, "ahead", True, "oversold", r"2 sold of a stock of 1"),
    ("fenced", 1, "behind", True, "oversold", r"2 sold of a stock of 1"),
    ("fenced", 9, "ahead", True, "overlap", r"another one came after their read: 1; .* read 9, took 1 .* left 7"),
    ("fenced", 9, "behind", True, "overlap", r"another one came after their read: 1; .* read 9, took 1 .* left 7"),
    ("fenced_textbook", 1, "behind", False, "ok", ""),
    ("fenced_textbook", 1, "ahead", True, "oversold", r"2 sold of a stock of 1"),
    ("fenced_textbook", 9, "ahead", True, "overlap", r"another one came after their read: 1"),
    ("decr", 9, "ahead", False, "overlap", r"sections that began while another"),  # no fence, no pardon
    ("decr", 9, "ahead", True, "overlap", r"sections that began while another"),
]


def test_overtaken():
    worlds = {number: overtaken(*case[:4]) for number, case in enumerate(CASES)}
    with judge(worlds) as verdicts:
        for number, (verdict, _) in verdicts.items():
            write, _, order, lets_in, result, reason = CASES[number]
            assert verdict["result"] == result, (CASES[number], verdict["reasons"])
            assert re.search(reason, "\n".join(verdict["reasons"])), (CASES[number], verdict["reasons"])
            if result == "ok":
                assert verdict["reasons"][0].endswith("2 sections, 1 of them while another was inside; the stock refused 1")
            assert verdict["overlaps"] == 1 and verdict["max_parallel"] == 2  # they were inside together: that is told
            assert verdict["token_refusals"] == (0 if lets_in else 1)


def in_epochs(first, second):
    """b sells with a token below a's, in an epoch of the stock's. Each epoch may be None: none is recorded."""
    world, now = begin("fenced", 9)
    for instance, token, epoch, t_ns in (("a", 9, first, now), ("b", 5, second, now + 20 * MS)):
        section = enter(world, instance, token, t_ns)
        if epoch is not None:
            section["read"]["epoch"] = epoch
        sell(world, section, t_ns + MS)
    return shop.finish(world)


EPOCHS = [((1, 2), "ok"), ((1, 1), "overlap"), ((2, 1), "overlap"), ((None, None), "overlap"), ((2, None), "overlap")]


def test_tokens_of_a_later_epoch_may_be_lower():
    """The lock's server came back empty, and its clock is behind."""
    with judge({number: in_epochs(*epochs) for number, (epochs, _) in enumerate(EPOCHS)}) as verdicts:
        for number, (verdict, _) in verdicts.items():
            assert verdict["result"] == EPOCHS[number][1], (EPOCHS[number], verdict["reasons"])


def frozen_in_epochs(second):
    """a has read and is frozen; b reads the same, in that epoch and with a lower token. a's write gets through."""
    world, now = begin("fenced", 9)
    first = enter(world, "a", 9, now)
    first["read"]["epoch"] = 1
    second_section = enter(world, "b", 5, now + MS)
    second_section["read"]["epoch"] = second
    sell(world, first, now + 2 * MS)
    refuse(world, second_section, now + 4 * MS, 9)
    return shop.finish(world)


def test_a_write_of_a_former_epoch_is_found():
    with judge({1: frozen_in_epochs(2), 2: frozen_in_epochs(1)}) as verdicts:
        assert "writes accepted with an old token: 1" in "\n".join(verdicts[1][0]["reasons"])
        assert "writes accepted with an old token" not in "\n".join(verdicts[2][0]["reasons"])


def test_a_quantity_that_is_denied_proves_no_stale_write():
    """What it left fits what it recorded, and not what it was asked for: one of the two records is wrong."""
    world, now = begin("fenced", 9)
    section = enter(world, "a", 5, now)
    sell(world, section, now + MS)
    section["write"].update(quantity=3, stock_after=6, unit=7)
    world.sample_of(section["request"]).update(unit=7, left=6)
    world.stock["phone"] = 6
    with judge({1: shop.finish(world)}) as verdicts:
        verdict = verdicts[1][0]
        assert verdict["result"] == "inconclusive", verdict["reasons"]


def test_a_restock_of_another_item_excuses_no_stale_write():
    world, now = begin("fenced", 9)
    world.run.update(restocked=True, items={"phone": 9, "pad": 9})
    for moment in ("before", "after"):
        world.redis[moment]["stock"]["pad"], world.redis[moment]["locks"]["pad"] = 9, {"type": "none", "pttl_ms": -2}
    world.stock["pad"] = 9
    world.add("a", world.t0 - 999, "restock", item="pad", stock_after=9)
    first, woke = enter(world, "a", 5, now), now + 2000 * MS
    world.add("a", woke - 9 * MS, "restock_intent", request="op", item="pad", add=1)
    world.stock["pad"] += 1
    world.add("a", woke - 8 * MS, "restock", request="op", item="pad", stock_before=world.stock["pad"] - 1,
              stock_after=world.stock["pad"])
    second = enter(world, "b", 6, woke - 4 * MS)
    leave(world, second, woke - 3 * MS)
    second["request"]["quantity"] = second["request"]["invoke"]["quantity"] = 100
    world.refuse(second["request"], woke - 2 * MS, 409, "insufficient-stock")
    sell(world, first, woke)
    with judge({1: shop.finish(world)}) as verdicts:
        verdict = verdicts[1][0]
        assert verdict["result"] == "overlap", verdict["reasons"]


def wrote_and_froze():
    """a's write is carried out, and a is frozen before it reads the reply: the next holder reads what a left."""
    world, now = begin("fenced", 2)
    first = enter(world, "a", 5, now)
    sell(world, first, now + MS)
    second = enter(world, "b", 6, now + 2001 * MS)
    sell(world, second, now + 2002 * MS)
    for name, t_ns in (("write", now + 2003 * MS), ("exit", now + 2004 * MS), ("release", now + 2005 * MS)):
        first[name]["t_ns"] = t_ns
    return world


def granted_and_froze(reason, stock=1):
    """a is frozen before it stamps its grant. When it wakes, b has sold, and the stock refuses a."""
    world, now = begin("fenced", stock)
    second = enter(world, "b", 6, now)
    sell(world, second, now + MS)
    first = enter(world, "a", 5, now + 3 * MS)
    refuse(world, first, now + 4 * MS, 6)
    first["request"]["outcome"]["reason"] = reason
    return world


def read_and_wrote_late():
    """a was granted the lock first, reads what b left, and is let in all the same. Each wrote what it had read."""
    world, now = begin("fenced", 2)
    first = enter(world, "a", 5, now)
    second = enter(world, "b", 6, now + 2001 * MS)
    sell(world, second, now + 2002 * MS)
    first["before"] = first["read"]["stock_before"] = 1
    first["read"]["t_ns"] = now + 2003 * MS
    sell(world, first, now + 2004 * MS)
    return world


def entered_late_and_sold():
    """The same, and a's stamps are all behind b's."""
    world, now = begin("fenced", 2)
    sell(world, enter(world, "b", 6, now), now + MS)
    sell(world, enter(world, "a", 5, now + 3 * MS), now + 4 * MS)
    return world


FROZEN = [  # a run; its result, and what its reasons say
    (wrote_and_froze(), "ok", "1 of them while another was inside; the stock refused 0"),
    (granted_and_froze("stale-token"), "ok", ""),
    (granted_and_froze("stale-epoch"), "ok", ""),
    (granted_and_froze("stale-token", stock=2), "undersold", "rejected while enough was left: 1"),
    (read_and_wrote_late(), "overlap", r"token older than that of an earlier write: 1; first: request \w+ left 0 with "
                                       r"token 5, after request \w+ had left 1 with token 6"),
    (entered_late_and_sold(), "overlap", r"tokens that did not grow: 1; .* token older than that of an earlier write"),
]


def test_only_what_the_stocks_show_accuses_who_was_frozen():
    """A fence lets a frozen holder stay inside. It is a fault only if the fence let a wrong write in."""
    worlds = {number: shop.finish(case[0]) for number, case in enumerate(FROZEN)}
    with judge(worlds) as verdicts:
        for number, (verdict, _) in verdicts.items():
            _, result, reason = FROZEN[number]
            assert verdict["result"] == result, (number, verdict["reasons"])
            assert re.search(reason, " ".join(verdict["reasons"])), (number, verdict["reasons"])


def test_behind_a_restock_the_stamps_tell_who_wrote_first():
    world, now = begin("fenced", 2)
    world.run["restocked"] = True
    sell(world, enter(world, "b", 6, now), now + MS)
    world.add("a", now + 2 * MS, "restock_intent", request="op", item="phone", add=1)
    world.stock["phone"] += 1
    world.add("a", now + 3 * MS, "restock", request="op", item="phone", stock_before=1, stock_after=2)
    sell(world, enter(world, "a", 5, now + 4 * MS), now + 5 * MS)
    with judge({1: shop.finish(world)}) as verdicts:
        verdict = verdicts[1][0]
        assert verdict["result"] == "overlap", verdict["reasons"]
        told = "\n".join(verdict["reasons"])
        assert "tokens that did not grow: 1" in told and "that of an earlier write" not in told


def test_who_found_nothing_left_did_no_harm():
    world, now = begin("fenced", 1)
    first = enter(world, "a", 5, now)
    sell(world, first, now + MS)
    second = enter(world, "a", 6, now + 2 * MS)  # frozen with nothing to sell
    third = enter(world, "b", 7, now + 2003 * MS)
    for section, t_ns in ((second, now + 2005 * MS), (third, now + 2006 * MS)):
        leave(world, section, t_ns)
        world.refuse(section["request"], t_ns + 2, 409, "sold-out")
    with judge({1: shop.finish(world)}) as verdicts:
        verdict = verdicts[1][0]
        assert (verdict["result"], verdict["overlaps"]) == ("ok", 1), verdict["reasons"]


@pytest.mark.parametrize("write", ["fenced", "fenced_textbook"])
def test_clean_runs_are_not_accused(write):
    worlds = {seed: shop.clean(seed, tokens=True, rung=["fair", "notify"][seed % 2], write=write, expect=["ok"])
              for seed in range(SEEDS)}
    with judge(worlds) as verdicts:
        for seed, (verdict, _) in verdicts.items():
            assert verdict["result"] == "ok" and verdict["token_refusals"] == 0, (seed, verdict["reasons"])


def test_a_sale_without_a_token_proves_nothing():
    world, now = begin("fenced", 9)
    section = enter(world, "a", 5, now)
    sell(world, section, now + MS)
    section["granted"]["token"] = 0
    with judge({1: shop.finish(world)}) as verdicts:
        verdict = verdicts[1][0]
        assert verdict["result"] == "inconclusive", verdict["reasons"]
        assert "grants without a token: 1, first that of request" in "\n".join(verdict["reasons"])


@pytest.mark.parametrize("token", [0, None])
def test_a_lock_gives_all_of_its_grants_a_token(token):
    world = shop.clean(1, tokens=True, rung="fair", write="decr", unknowns=0)
    world.sections[0]["granted"]["token"] = token
    with judge({1: world}) as verdicts:
        verdict = verdicts[1][0]
        assert verdict["result"] == "inconclusive", verdict["reasons"]
        assert "grants without a token: 1, first that of request" in verdict["reasons"][0]


def test_every_write_that_met_another_stock_is_found():
    """One sale of a clean run told its buyer one unit less: somebody wrote behind its reading."""
    worlds, changed = {}, {}
    for seed in range(SEEDS):
        world = shop.clean(seed, tokens=True, rung="fair", write="fenced", unknowns=0, quantities=False,
                           items={"phone": 30}, requests=14)
        section = changed[seed] = world.random.choice(world.sales())
        for line in (section["read"], section["write"]):
            line["stock_before"] += 1
        worlds[seed] = world
    with judge(worlds) as verdicts:
        for seed, (verdict, _) in verdicts.items():
            assert verdict["result"] == "overlap", (seed, verdict["reasons"])
            reason = next(text for text in verdict["reasons"] if "came after their read: 1" in text)
            assert f"request {changed[seed]['request']['id']} " in reason


def test_the_picture_tells_why(tmp_path):
    with judge({1: overtaken("fenced", 1, "ahead", False)}) as verdicts:
        with open(f"{verdicts[1][1]}/timeline.svg", encoding="utf-8") as file:
            told = " ".join(re.findall(r">([^<>]+)</t", file.read()))
    assert re.search(r"The stock refused what \w+…? wanted to write: its token or epoch was old\.", told)
    assert re.search(r"\w+… answers 503: its token or epoch was refused", told) and "nothing kept" not in told
