# SPDX-License-Identifier: Apache-2.0
"""Restocks of which only the intent is told: they may or may not have been carried out."""
import re

import pytest
import shop
from judge import judge
from shop import MS


class Story:
    """A sale of 5 phones by a and b: the buyers, the restock that an operator asked for, and what
    became of it."""

    def __init__(self, write="decr", **asked):
        self.world = shop.World(1)
        shop.start(self.world, rung="owner_lua", write=write, instances=["a", "b"], items={"phone": 5},
                   restocked=True, expect=["ok"], **asked)
        self.now, self.count = self.world.t0 + MS, 0

    def buyers(self, count):
        requests = [self.world.request("phone", "ba"[i % 2], self.now - 10) for i in range(count)]
        for request in requests:
            self.now = shop.turn(self.world, request, self.now) + 10
        self.now += 20
        return self

    def restock(self, outcome=None, came=True, instance="a", **wanted):
        """wanted: add or set; came: whether Redis has carried it out."""
        self.count += 1
        self.now += 10
        self.add(instance, "restock_intent", **wanted)
        if came:
            self.world.stock["phone"] = wanted.get("set", self.world.stock["phone"] + wanted.get("add", 0))
        if outcome:
            self.add(instance, outcome)
        return self

    def add(self, instance, event, **more):
        self.now += 1
        self.world.add(instance, self.now, event, thread=1, request=f"op-{self.count}", item="phone", **more)

    def end(self):
        return shop.finish(self.world)


def check(world, result, sentence, **counts):
    with judge({0: world}) as verdicts:
        verdict, _ = verdicts[0]
        told = "\n".join(verdict["reasons"])
        assert verdict["result"] == result and re.search(sentence, told), (verdict["result"], told)
        assert {name: verdict[name] for name in counts} == counts, told


def killed(story):
    story.world.unended.add("a")
    return story.end()


@pytest.mark.parametrize("wanted, told", [
    ({"add": 10}, {"stock_before": 2, "stock_after": 22}), ({"add": 10}, {"stock_before": 2, "stock_after": 2}),
    ({"set": 50}, {"stock_before": 2, "stock_after": 40}), ({"add": 10}, {"item": "pad", "stock_after": 12})])
def test_a_restock_does_what_was_wanted(wanted, told):
    story = Story().buyers(3).restock(**wanted)
    story.now += 1
    story.world.add("a", story.now, "restock", **{"thread": 1, "request": "op-1", "item": "phone", **told})
    story.world.stock["phone"] = told["stock_after"]
    check(story.end(), "inconclusive", "does something else than its restock_intent says")


def test_a_life_without_a_history_may_have_restocked():
    """Its client holds a 200 of which no history tells; what else is missing there, nobody knows."""
    story = Story().buyers(5).restock("restock_failed", came=False, add=10)
    story.world.stock["phone"] = 9
    request = story.world.request("phone", "b", story.now)
    story.world.remove(request["invoke"])
    story.world.answer(request, story.now + MS, 200, 10, 9)
    check(story.end(), "inconclusive", "no instance's history has it")


def test_carried_out_though_its_reply_was_lost():
    """The sums fit only so: each sale takes its units off by a command."""
    check(Story().buyers(4).restock("restock_unknown", add=3).buyers(6).end(), "ok",
          "a restock .add 3. that a began at .* ms was carried out: .*its reply was lost", initial=8, sold=8, duplicate_units=0)


def test_a_unit_that_is_sold_again_after_a_restock_is_not_called_sold_once():
    check(Story().buyers(4).restock("restock_unknown", add=3).buyers(6).end(), "ok", "no unit more often than it was in stock",
          sold=8, distinct=5)
    check(Story().buyers(4).end(), "ok", "no unit twice", sold=4)


def test_carried_out_though_its_instance_was_killed():
    check(killed(Story(fault="killed").buyers(4).restock(add=3).buyers(6)), "ok", "carried out: .*no outcome is recorded",
          initial=8, sold=8)


@pytest.mark.parametrize("outcome", [None, "restock_unknown"])
def test_never_carried_out(outcome):
    """Those who were sent away were so because nothing was left."""
    check(Story().buyers(4).restock(outcome, came=False, add=3).buyers(6).end(), "ok", "5 of 5 sold", initial=5)


@pytest.mark.parametrize("came", [True, False])
@pytest.mark.parametrize("write,wanted", [("set", {"add": 3}), ("set", {"set": 3}), ("decr", {"set": 3})], ids=str)
def test_nothing_tells(write, wanted, came):
    """Writing back what is left hides what came between; what a PUT put an end to is not told."""
    world = Story(write).buyers(3).restock("restock_unknown", came, **wanted).buyers(6).end()
    if came or write == "set":
        check(world, "inconclusive", "may or may not have been carried out; its reply was lost", oversold=0, duplicate_units=0)
    else:
        check(world, "ok", "5 of 5 sold")


def test_one_of_two():
    world = Story().buyers(4).restock("restock_unknown", add=3).restock("restock_unknown", came=False, add=4).buyers(6).end()
    check(world, "inconclusive", "and 1 more of the item, may or may not", oversold=0, surplus=0, duplicate_units=0)


@pytest.mark.parametrize("write", ["decr", "fenced"])
def test_what_is_left_is_not_known(write):
    """There are no sums to ask."""
    world = Story(write).buyers(4).restock("restock_unknown", add=3).buyers(6).end()
    world.redis["after"]["stock"] = {}
    check(world, "inconclusive", "may or may not have been carried out")


def test_run_json_knows_of_no_restock():
    story = Story().buyers(4).restock("restock_unknown", add=3).buyers(6)
    story.world.run["restocked"] = False
    check(story.end(), "inconclusive", "may or may not have been carried out")


# ---- What no possible restock explains -----------------------------------------------------------
def test_more_came_from_nowhere_than_it_adds():
    story = Story().buyers(4).restock("restock_unknown", add=3)
    story.world.stock["phone"] += 2
    check(story.buyers(12).end(), "oversold", "phone: 10 sold of a stock of 8: 2 too many", oversold=2, duplicate_units=2)


def test_a_unit_sold_twice_before_it_began():
    story = Story(write="set").buyers(2)
    story.world.stock["phone"] += 1  # a lost update
    check(story.buyers(2).restock("restock_unknown", add=50).buyers(3).end(), "oversold",
          "unit 4 of phone was sold twice", duplicate_units=1)


@pytest.mark.parametrize("wanted", [{"add": 50}, {"set": 50}], ids=str)
def test_a_unit_sold_twice_before_a_restock_that_was_carried_out(wanted):
    story = Story(write="set").buyers(2)
    story.world.stock["phone"] += 1  # a lost update
    story.buyers(2).restock(**wanted)
    before = 2 if "add" in wanted else 0
    story.add("a", "restock", stock_before=before, stock_after=before + 50)
    story.world.stock["phone"] = before + 50
    check(story.buyers(3).end(), "oversold", "unit 4 of phone was sold twice", duplicate_units=1)


@pytest.mark.parametrize("when", ["behind", "while it is carried out", "no intent", "another clock"])
def test_a_unit_that_was_put_back(when):
    """All are sold, and some once more: those units were put there again, as far as anybody knows."""
    story = Story(write="atomic").buyers(5)
    story.restock(add=3, instance="b")
    if when == "while it is carried out":
        story.buyers(3)
    story.add("b", "restock", stock_before=0, stock_after=3)
    if when != "while it is carried out":
        story.buyers(3)
    if when == "no intent":
        story.world.events["b"] = [line for line in story.world.events["b"] if line["event"] != "restock_intent"]
    if when == "another clock":  # b's: as if all of a's sales had been done before
        for line in story.world.events["b"]:
            line["t_ns"] += 1000 * MS
        story.world.seq_edits["b"] = lambda lines: lines[0].update(clock_ns_realtime=lines[0]["clock_ns_realtime"] + 1000 * MS)
    with judge({0: story.end()}) as verdicts:
        verdict, folder = verdicts[0]
        assert verdict["duplicate_units"] == 0 and verdict["result"] in ("ok", "inconclusive"), (folder, verdict["reasons"])
        assert (verdict["result"] == "ok") == (when != "another clock"), (folder, verdict["reasons"])


def test_a_unit_sold_three_times():
    story = Story(write="set").buyers(5).restock("restock_unknown", came=False, add=50)
    for _ in range(2):
        story.world.stock["phone"] = 1
        story.buyers(1)
    check(story.end(), "oversold", "units sold more often than they were in stock: 1", duplicate_units=1)


def test_a_unit_that_never_was():
    story = Story().buyers(5).restock("restock_unknown", came=False, add=50)
    story.buyers(1)
    story.world.stock["phone"] = 1
    story.buyers(1)
    sale = story.world.sales()[-1]["write"]
    sample = story.world.sample_of(story.world.sales()[-1]["request"])
    sale.update(stock_before=0, stock_after=-1, unit=0)
    sample.update(unit=0, left=-1)
    check(story.end(), "oversold", "unit 0 of phone was sold to .* there never was such a unit", duplicate_units=1)


@pytest.mark.parametrize("outcome", ["restock_failed", "restock"])
def test_an_outcome_that_is_told_leaves_nothing_open(outcome):
    story = Story().buyers(4).restock(came=False, add=3)
    story.add("a", outcome, **({"stock_before": 1, "stock_after": 4} if outcome == "restock" else {}))
    story.world.stock["phone"] += 4
    check(story.buyers(12).end(), "oversold", "too many", oversold=4 if outcome == "restock_failed" else 1)


# ---- Records that do not fit ---------------------------------------------------------------------
@pytest.mark.parametrize("wanted,sentence", [
    ({}, "both of \"add\" and \"set\", or none"), ({"add": 1, "set": 1}, "both of \"add\" and \"set\", or none"),
    ({"add": 0}, "must be a whole number from 1"), ({"set": -1}, "must be a whole number from 0")], ids=str)
def test_an_intent_that_says_nothing(wanted, sentence):
    check(Story().buyers(4).restock(came=False, **wanted).buyers(4).end(), "inconclusive", sentence)


def test_an_outcome_without_an_intent():
    story = Story().buyers(4)
    story.add("a", "restock_unknown")
    check(story.buyers(4).end(), "inconclusive", "restock_unknown of a request that has no open restock_intent")


def test_an_item_that_is_not_on_sale():
    story = Story().buyers(4).restock("restock_unknown", came=False, add=50)
    for line in story.world.events["a"][-2:]:
        line["item"] = "lamp"
    check(story.buyers(4).end(), "ok", "5 of 5 sold")
