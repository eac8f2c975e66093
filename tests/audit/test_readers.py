# SPDX-License-Identifier: Apache-2.0
"""Guarded reads: readers that share a lock may be inside together, a reader and a writer may not; who only reads
sells nothing and is counted nowhere; a sale that looks first may wait for itself. And how the picture shows it."""
import re

import pytest
import shop
from judge import SEEDS, judge
from shop import MS
from test_picture import bars, read as picture, texts


def check(make, result, reason=None):
    with judge({seed: make(seed) for seed in range(SEEDS)}) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            reasons = "\n".join(verdict["reasons"])
            assert verdict["result"] == result, (seed, folder, reasons)
            assert reason is None or re.search(reason, reasons), (seed, folder, reasons)


def begin(seed, stock=9, **more):
    """Two have bought, one after the other; the time after them, and requests that are still to come."""
    world = shop.World(seed)
    shop.start(world, **{"rung": "watchdog", "fault": "read", "instances": ["a", "b"], "items": {"phone": stock},
                         "expect": ["ok"], **more})
    requests = [world.request("phone", "ab"[i % 2], world.t0) for i in range(4)]
    now = world.t0 + MS
    for token, request in enumerate(requests[:2]):
        now = shop.turn(world, request, now, token + 1)
    return world, now, requests[2:]


def the_rest_buy(world, now, requests, token=90):
    for request in requests:
        token += 1
        now = shop.turn(world, request, now, token)
    return shop.finish(world)


def with_readers(seed):
    return shop.clean(seed, readers=0.7)


def test_clean_runs_with_readers_are_never_accused():
    check(with_readers, "ok")


def test_readers_are_no_requests_and_no_sales():
    worlds = {seed: with_readers(seed) for seed in range(SEEDS)}
    together = 0
    with judge(worlds) as verdicts:
        for seed, (verdict, _) in verdicts.items():
            world = worlds[seed]
            assert verdict["requests"] == len(world.requests)
            assert sum(one["served"] for one in verdict["by_instance"].values()) == len(world.requests)
            assert verdict["overlaps"] == verdict["rejected_early"] == 0
            together += verdict["max_parallel"] > 1
            assert verdict["max_parallel"] == 1 or "only readers of one lock at the same time" in verdict["reasons"][0]
    assert together


def beside_a_writer(seed, mode="shared", ns=1, tokens=(11, 12)):
    """The reader enters so many ns before the writer leaves; 0: it only touches it."""
    world, now, (request, *rest) = begin(seed)
    section = world.section(request, (now, now + 1), tokens[0])
    world.sell(section, now + 2, now + 10, world.stock["phone"])
    world.stock["phone"] -= 1
    world.leave(section, now + 20, now + 21)
    at = now + 20 - ns
    world.reader("phone", "b", (at, at, at + 30, at + 40, at + 41), world.stock["phone"], tokens[1], mode)
    return the_rest_buy(world, at + 42, rest)


@pytest.mark.parametrize("mode", ["shared", "exclusive"])
def test_a_reader_beside_a_writer(mode):
    check(lambda seed: beside_a_writer(seed, mode), "overlap", "sections that began while another")
    check(lambda seed: beside_a_writer(seed, mode, 0), "ok")


def beside_a_reader(seed, modes, entered=0):
    """Two readers, the second inside the first; the tokens in the order of their grants, or not."""
    world, now, rest = begin(seed)
    stock = world.stock["phone"]
    world.reader("phone", "a", (now, now + entered, now + 60, now + 80, now + 90), stock, 12, modes[0])
    world.reader("phone", "b", (now + 5, now + 6, now + 7, now + 8, now + 9), stock, 13, modes[1])
    return the_rest_buy(world, now + 100, rest)


def test_readers_beside_each_other():
    check(lambda seed: beside_a_reader(seed, ("shared", "shared")), "ok")
    for modes in ("shared", "exclusive"), ("exclusive", "shared"), ("exclusive", "exclusive"):
        check(lambda seed, modes=modes: beside_a_reader(seed, modes), "overlap")


def test_a_token_may_be_late_among_readers_alone():
    """Granted first, inside last: the reply was slow. A writer that the lock lets in has the newer one."""
    check(lambda seed: beside_a_reader(seed, ("shared", "shared"), entered=20), "ok")
    check(lambda seed: beside_a_writer(seed, "shared", 0, (12, 11)), "overlap", "tokens that did not grow")


def behind_a_reader(seed, write, mode="shared"):
    """A writer was frozen; a reader came, read what the writer's late write changes, and went."""
    world, now, (request, *rest) = begin(seed, write=write)
    section = world.section(request, (now, now + 1), 11)
    world.reader("phone", "b", (now + 5, now + 6, now + 7, now + 8, now + 9), world.stock["phone"], 12, mode)
    world.sell(section, now + 2, now + 10, world.stock["phone"])
    world.stock["phone"] -= 1
    world.leave(section, now + 20, now + 21)
    return the_rest_buy(world, now + 30, rest)


@pytest.mark.parametrize("mode", ["shared", "exclusive"])
def test_a_late_write_behind_a_reading(mode):
    """Without a fence two were inside that must not be; behind one only writes can harm each other."""
    check(lambda seed: behind_a_reader(seed, "decr", mode), "overlap", "sections that began")
    check(lambda seed: behind_a_reader(seed, "fenced", mode), "ok")


def looked_at_before(seed, write, at=-500):
    """Somebody reads the stock, and it is set behind that; then, or before it, the first one comes to buy."""
    world, now, rest = begin(seed, write=write)
    before = world.t0 - 2000
    world.reader("phone", "a", (before, before + 1, before + 2, before + 3, before + 4), 3)
    world.add("b", world.t0 + at, "restock", item="phone", stock_before=3, stock_after=9)
    return the_rest_buy(world, now, rest)


@pytest.mark.parametrize("write", ["decr", "set"])
def test_who_reads_before_the_stock_is_set_does_not_begin_the_run(write):
    check(lambda seed: looked_at_before(seed, write), "ok")
    check(lambda seed: looked_at_before(seed, write, 1), "inconclusive", "was set at .* ms, during the run")


def refused_reader(seed):
    """There is enough to sell, and nothing was to be sold."""
    world, now, rest = begin(seed)
    request = world.request("phone", "a", now, 0)
    world.requests.remove(request)
    world.about(request, now + 5, "refused", code=503, reason="lock-timeout")
    return the_rest_buy(world, now + 6, rest)


def test_a_reader_that_is_refused_was_not_sent_away():
    check(refused_reader, "ok")


def killed_reader(seed):
    """It is inside for as long as its process is known to have lived, and its end is nobody's loss."""
    world, now, rest = begin(seed)
    now += 10 * MS  # b's sale has released its lock
    request = world.request("phone", "b", now, 0)
    world.requests.remove(request)
    section = world.section(request, (now, now + 1), 5, mode="shared")
    for other in rest:
        other["instance"] = "a"
    world.unended.add("b")
    for line in [e for e in world.events["b"] if e.get("request") in [r["id"] for r in rest]]:
        world.events["b"].remove(line)
        world.events["a"].append(line)
        line["instance"] = "a"
    assert section["exit"] is None
    world.reader("phone", "a", (now, now + 1, now + 2, now + 3, now + 4), world.stock["phone"], 6)
    return the_rest_buy(world, now + 5, rest)


def test_a_killed_reader():
    check(killed_reader, "ok")


def dead_reader(seed, again=True):
    """It leaves its count behind: readers come and go, writers wait for ever."""
    world, now, (request, other) = begin(seed, rung="rw_counter", fault="killed_reading", expect=["deadlock"])
    world.requests.remove(other)
    world.remove(other["invoke"])
    now += 10 * MS
    dead = world.request("phone", "b", now, 0)
    world.requests.remove(dead)
    world.section(dead, (now, now + 1), mode="shared")
    world.unended.add("b")
    if again:
        world.reader("phone", "a", (now + 5, now + 6, now + 7, now + 8, now + 9), world.stock["phone"])
    world.refuse(request, now + 500 * MS, 503, "lock-timeout")
    world = shop.finish(world)
    world.redis["after"]["locks"]["phone"] = {"type": "string", "pttl_ms": -1}
    return world


@pytest.mark.parametrize("again", [False, True])
def test_a_dead_reader_that_nobody_counts_off(again):
    check(lambda seed: dead_reader(seed, again), "deadlock", "is held for ever: nobody acquired it after request .*0000003,")
    with judge({0: dead_reader(0, again)}) as verdicts:
        said = " ".join(texts(picture(verdicts[0][1])))
        assert "killed; nobody releases the lock" in said and "the release frees nothing" not in said
        assert "never released its lock" in said


def upgrade(seed, status, answered, beside=False):
    """A sale looks, and asks for the write lock while it reads; beside: another reads all the while."""
    world, now, (request, *rest) = begin(seed, fault="upgrade")
    if beside:
        world.reader("phone", "b", (now, now, now + 1, now + answered + 2, now + answered + 3), world.stock["phone"], 3)
    look = world.section(request, (now, now + 1), 4, mode="shared")
    look["read"] = world.about(request, now + 2, "read", hold=look["hold"], stock_before=world.stock["phone"])
    now += answered
    world.about(request, now, "reacquire", hold=look["hold"], status=status)
    world.leave(look, now + 1, now + 2)
    if status == "UPGRADE":
        now = shop.turn(world, request, now + 3, 5)
    else:
        world.refuse(request, now + 3, 503, "lock-timeout")
    return the_rest_buy(world, now + 4, rest)


def test_an_upgrade_that_is_refused_at_once():
    check(lambda seed: upgrade(seed, "UPGRADE", 10), "ok")


@pytest.mark.parametrize("beside", [False, True])
def test_an_upgrade_that_waits_for_itself(beside):
    check(lambda seed: upgrade(seed, "TIMED_OUT", 500 * MS, beside), "deadlock",
          "asked for the write lock while it kept")
    with judge({0: upgrade(0, "TIMED_OUT", 500 * MS, beside)}) as verdicts:
        said = " ".join(texts(picture(verdicts[0][1])))
        assert "asked for the lock again, inside, and was refused" in said and "reads, asks to write" in said


@pytest.mark.parametrize("change,reason", [
    (lambda s: s["granted"].update(mode="both"), '"mode" is "both"; it must be exclusive or shared'),
    (lambda s: s["granted"].update(mode="shared"), "a sale under a read lock"),
    (lambda s: s["request"]["invoke"].update(quantity=0), "by a request that only reads"),
    (lambda s: s["request"]["invoke"].update(quantity=-1), "quantity")])
def test_what_a_sale_cannot_be(change, reason):
    def make(seed):
        world, now, rest = begin(seed)
        world = the_rest_buy(world, now, rest)
        change(world.sales()[0])
        return world
    check(make, "inconclusive", reason)


def test_a_reader_without_an_end():
    def make(seed):
        world, now, rest = begin(seed)
        section = world.reader("phone", "a", (now, now, now + 1, now + 2, now + 3), world.stock["phone"], 5)
        world.remove(section["read"])
        return the_rest_buy(world, now + 4, rest)
    check(make, "inconclusive", "requests without an end: 1")


def boxes(root, colour):
    return [box for box in root.iter("{http://www.w3.org/2000/svg}rect") if box.get("class") == colour]


def test_the_picture_shows_a_read_as_what_it_is():
    with judge({0: beside_a_reader(0, ("shared", "shared")), 1: beside_a_writer(1), 2: shop.clean(2)}) as verdicts:
        readers, clash, none = (picture(folder) for _, folder in verdicts.values())
        assert len(boxes(readers, "read")) >= 2 and "inside, to read" in texts(readers)
        assert not [box for box in boxes(readers, "clash") if box.get("width") != "26.00"]  # the legend's
        assert "Only readers of one lock" in " ".join(texts(readers)) or "No two" not in " ".join(texts(readers))
        assert len(boxes(clash, "clash")) > 1 and bars(clash)
        assert not boxes(none, "read") and "inside, to read" not in texts(none)
