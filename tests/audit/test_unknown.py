# SPDX-License-Identifier: Apache-2.0
"""Sales of unknown outcome: each took its whole quantity or nothing, so only some sums can be missing in the end."""
import re

import pytest
import shop
from judge import judge
from shop import MS

MILLION = 1_000_000


def story(unknown, missing, write="decr", **asked):
    """Two buyers of 1, and sales whose replies were lost; so many units are missing in the end."""
    world = shop.World(1)
    stock = 2 + sum(unknown)
    shop.start(world, rung="watchdog", write=write, instances=["a", "b"], items={"phone": stock}, **asked)
    now = world.t0 + MS
    requests = [world.request("phone", "ab"[i % 2], world.t0, quantity)
                for i, quantity in enumerate([1, 1, *unknown])]
    for request in requests:
        request["unknown"] = request not in requests[:2]
        now = shop.turn(world, request, now, lengths=lambda: 2) + 10
        world.stock["phone"] = stock  # each of them finds enough, whatever the others took
    for section in world.sales()[1:]:
        shop_sold(world, section, stock - 1)
    return shop.finish(world, {"phone": stock - 2 - missing})


def shop_sold(world, section, unit):
    """Tells all views that it was this unit."""
    section["write"].update(unit=unit, stock_after=unit - 1)
    world.sample_of(section["request"]).update(unit=unit, left=unit - 1)


def check(world, result, sentence, **counts):
    with judge({0: world}) as verdicts:
        verdict, folder = verdicts[0]
        told = "\n".join(verdict["reasons"])
        assert verdict["result"] == result and re.search(sentence, told), (folder, verdict["result"], told)
        assert {name: verdict[name] for name in counts} == counts, told


@pytest.mark.parametrize("unknown, missing", [
    ([5, 5], 0), ([5, 5], 5), ([5, 5], 10), ([5], 5), ([5, 3], 3), ([5, 3], 8), ([7, 11, 13], 20), ([1] * 12, 7),
    ([64], 64), ([64, 1], 65), ([63, 2, 64], 127), ([128, 127, 1], 128), ([2, 2, 2, 2, 2, 9], 15), ([200] * 5 + [3], 603),
    ([MILLION, 999_999], 999_999), ([6, 10, 15], 31)])
def test_the_sum_of_some_may_be_missing(unknown, missing):
    taken = f"left, {missing} taken by sales of unknown outcome, no unit twice" if missing else "left, no unit twice"
    check(story(unknown, missing), "ok", taken, shortfall=0, unknown=sum(unknown))


@pytest.mark.parametrize("unknown, missing, shortfall, sentence", [
    ([5, 5], 3, 3, "3 units are missing; the unknown sales of 5 and 5 units cannot explain it"),
    ([5, 5], 1, 1, "1 unit is missing; the unknown sales of 5 and 5 units cannot explain it"),
    ([5, 5], 9, 4, "9 units are missing; the unknown sales of 5 and 5 units cannot explain it"),
    ([5], 4, 4, "4 units are missing; the unknown sale of 5 units cannot explain it"),
    ([13, 7, 11], 14, 1, "14 units are missing; the unknown sales of 7, 11 and 13 units cannot explain it"),
    ([64, 64], 63, 63, "63 units are missing"), ([64, 64], 65, 1, "65 units are missing"),
    ([128, 63], 127, 64, "127 units are missing"), ([2] * 40, 41, 1, "sales of 2, 2, 2, 2, 2, 2 units and of 34 more cannot"),
    ([200] * 5 + [3], 604, 1, "604 units are missing"), ([MILLION, 999_999], 999_998, 999_998, "cannot explain it")])
def test_no_sum_of_some_is_missing(unknown, missing, shortfall, sentence):
    check(story(unknown, missing), "undersold", f"^phone: .*{sentence}", shortfall=shortfall)


def test_more_than_all_is_missing():
    world = story([5, 5], 10)
    world.redis["after"]["stock"]["phone"] = -1
    check(world, "oversold", "below zero", shortfall=1)


def test_a_late_write_of_a_computed_number_undoes_others():
    """Of 12 one sale of 5 may have written back 7, after two sales of 1."""
    check(story([5, 5], 3, "set"), "inconclusive",
          "3 units are missing; the unknown sales of 5 and 5 units cannot explain it. With --write set", shortfall=0, unsold=0)
    check(story([5, 5], 5, "set"), "ok", "5 taken by sales of unknown outcome")


def test_a_buyer_who_was_sent_away_could_have_had_what_vanished():
    """Nothing is left of 12, 2 are sold, 5 may be: the other 3 are still to be sold."""
    world = story([5, 7], 8)
    world.redis["after"]["stock"]["phone"] = 6
    refused = world.request("phone", "a", world.t0, 7)
    world.refuse(refused, world.t0 + MS // 2, 409, "insufficient-stock")
    world.run["requests"] += 1
    check(world, "undersold", "units not sold, though there were requests for them: 7", shortfall=1)


def test_a_sale_that_proves_nothing_may_explain_it_too():
    """Its client holds another unit: nobody knows whether it took one."""
    world = story([5, 5], 4)
    world.sample_of(world.sales()[0]["request"])["unit"] = 1
    check(world, "inconclusive", "client", shortfall=0)


def test_many_of_one_unit_are_quick():
    check(story([1] * 300 + [2], 151), "ok", "151 taken by")


@pytest.mark.parametrize("unknown, missing", [
    ([MILLION, 999_999] * 40, 70 * MILLION + 1),                           # more units than it looks at
    ([MILLION - i for i in range(300)], 60 * MILLION - 1)])                # more quantities than it has time for
def test_beyond_its_limit_it_says_so(unknown, missing):
    check(story(unknown, missing), "inconclusive",
          f"{missing} units are missing; whether the unknown sales of .* and of .* more explain just so many takes too long")
    check(story(unknown, sum(unknown)), "ok", "taken by")  # all of them: nothing to compute


@pytest.mark.parametrize("came", [True, False])
def test_the_sums_tell_of_a_restock(came):
    """3 units came or not, and 5 were taken or not: 0, 3, -5 or -2. All four differ, and each has one cause."""
    world = story([5], 0 - 3 * came, restocked=True, expect=["ok"])
    world.add("a", world.t0 + 300 * MS, "restock_intent", thread=1, request="op-1", item="phone", add=3)
    world.add("a", world.t0 + 300 * MS + 1, "restock_unknown", thread=1, request="op-1", item="phone")
    for lines in world.events.values():
        lines.sort(key=lambda line: line["t_ns"])
    check(world, "ok", "was carried out: only then" if came else "no unit twice", initial=7 + 3 * came)
    world.redis["after"]["stock"]["phone"] = 5 - 5 + 3
    check(world, "ok", "was carried out: only then", initial=10)
