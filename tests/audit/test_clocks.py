# SPDX-License-Identifier: Apache-2.0
"""Times prove something only where they are of one clock: what the files say of their clocks, and what the clients saw."""
import re

import pytest
import shop
from judge import SEEDS, judge
from shop import MS
from simulate import simulate
from test_clean import killed_in_the_section
from test_picture import read as picture, texts

DAY_MS = 86_400_000


def overlapping(seed):
    """Two instances, each with a lock of its own: sections overlap, and DECR keeps the stock right."""
    return simulate(seed, 60, rung="local", write="decr", instances=["a", "b"], items={"phone": 70})


def one_after_the_other(seed):
    return shop.clean(seed, unknowns=0, instances=["a", "b"])


def check(make, result, reason=None, seeds=SEEDS // 4, never=None):
    with judge({seed: make(seed) for seed in range(seeds)}) as verdicts:
        for seed, (verdict, folder) in verdicts.items():
            reasons = "\n".join(verdict["reasons"])
            assert verdict["result"] == result, (seed, folder, reasons)
            assert reason is None or reason in reasons, (seed, folder, reasons)
            assert never is None or never not in reasons, (seed, folder, reasons)


def moved(make, by_ns, all_clocks=False):
    """b's history, moved in time after it was written; all_clocks: its CLOCK_REALTIME with it."""
    def made(seed):
        world = make(seed)
        world.cover()
        world.covers = False

        def move(lines):
            for line in lines:
                line["t_ns"] += by_ns
            lines[0]["clock_ns_realtime"] += by_ns if all_clocks else 0
        world.seq_edits["b"] = move
        return world
    return made


def test_the_worlds_are_what_they_are_taken_for():
    check(overlapping, "overlap", "sections that began while another")
    check(one_after_the_other, "ok")


@pytest.mark.parametrize("all_clocks", [False, True], ids=["stamps", "stamps and clocks"])
def test_a_history_moved_away_hides_nothing(all_clocks):
    reason = "history-b.jsonl has a record 59" if all_clocks else "history-b.jsonl: its times are 60000.000 ms off those of history-a"
    check(moved(overlapping, 60_000 * MS, all_clocks), "inconclusive", reason)


@pytest.mark.parametrize("by_ns", [MS, -MS, 150_000])
def test_a_history_a_little_off_accuses_nobody(by_ns):
    check(moved(one_after_the_other, by_ns), "inconclusive", "ms off those of history-a.jsonl", never="sections that began")


def test_the_picture_says_that_not_all_sections_were_compared():
    """Overlaps of a and b cannot be seen; those of a alone were looked for."""
    with judge({0: moved(overlapping, 3 * MS)(0), 1: one_after_the_other(1)}) as verdicts:
        said = {key: " ".join(texts(picture(folder))) for key, (_, folder) in verdicts.items()}
        assert verdicts[0][0]["overlaps"] == 0
        assert "No two" not in said[0] and "of the others, no two of one lock overlapped" in said[0]
        assert re.search(r"The times of \d+ of \d+ sections prove nothing", said[0]) and "with sound times" in said[0]
        assert "No two sections of one lock ever overlapped." in said[1] and "sound times" not in said[1]


def test_a_502_does_not_vouch_for_times():
    """b's clock jumps while two of its requests are in the section or have just left it. A client saw the end of the one; the
    other's met only the 502 of nginx when b was killed."""
    def jumps(seed):
        world = killed_in_the_section(seed)
        lines = world.lines("b")
        reads = [i for i, line in enumerate(lines) if line["event"] == "read"]
        if lines[-1]["event"] != "release" or not reads or lines[reads[-1]]["request"] == lines[-1]["request"]:
            return None
        world.cover()
        world.covers = False

        def move(lines):
            for line in lines[reads[-1]:]:
                line["t_ns"] += 60_000 * MS
        world.seq_edits["b"] = move
        return world
    worlds = {seed: world for seed in range(60) if (world := jumps(seed))}
    assert worlds
    with judge(worlds) as verdicts:
        for seed, (verdict, _) in verdicts.items():
            assert (verdict["result"], verdict["overlaps"]) == ("inconclusive", 0), (seed, verdict["reasons"])


@pytest.mark.parametrize("by_ns", [MS, 60_000 * MS])
def test_tokens_of_different_clocks_have_no_order(by_ns):
    check(moved(lambda seed: shop.clean(seed, unknowns=0, instances=["a", "b"], tokens=True), by_ns), "inconclusive",
          "ms off those of history-a.jsonl", never="tokens that did not grow")


def test_an_overlap_of_one_process_needs_no_other_clock():
    def make(seed):
        return moved(lambda seed: simulate(seed, 60, rung="none", write="decr", instances=["a", "b"], items={"phone": 70}), 60_000 * MS)(seed)
    check(make, "overlap", "sections that began while another")


@pytest.mark.parametrize("whose", [("a", "b"), ("b",)], ids=str)
def test_a_clock_that_stands_still(whose):
    def make(seed):
        world = overlapping(seed)
        world.cover()
        world.covers = False
        middle = sorted(s["enter"]["t_ns"] for s in world.sections)[len(world.sections) // 2]

        def stop(lines):
            for line in lines:
                line["t_ns"] = middle
            lines[0]["clock_ns_realtime"] = shop.EPOCH_MS * MS + middle - world.t0
        for instance in whose:
            world.seq_edits[instance] = stop
        return world
    check(make, "inconclusive", "its clock stands still: sections that took no time: ")


def test_a_clock_that_stands_still_now_and_then():
    """What took no time proves nothing; the other sections prove what they prove."""
    def stop(world):
        for section in world.sections[::3]:
            for name in section.keys() & {"enter", "read", "write", "exit", "release"}:
                section[name]["t_ns"] = section["granted"]["t_ns"]
        return world
    check(lambda seed: stop(overlapping(seed)), "overlap", "its clock stands still: sections that took no time: 20, first")
    check(lambda seed: stop(shop.clean(seed, unknowns=0, instances=["a"], items={"phone": 40}, rung="local")), "inconclusive",
          "its clock stands still", never="sections that began")


@pytest.mark.parametrize("by_ms", [DAY_MS, -DAY_MS, 500, -500])
def test_clients_with_another_time(by_ms):
    def make(seed):
        world = one_after_the_other(seed)
        world.cover()
        world.covers = False
        for sample in world.samples[1:]:
            sample["timeStamp"] += by_ms
        return world
    check(make, "inconclusive", "requests with records outside of the time that their clients saw: ")


def test_the_clients_slack_is_theirs_to_state():
    def make(slack_ms):
        def made(seed):
            world = one_after_the_other(seed)
            world.cover()
            world.covers = False
            world.run["clients"] = {**shop.CLIENTS, "slack_ms": slack_ms}
            for sample in world.samples[1:]:
                sample["timeStamp"] += 7
            return world
        return made
    check(make(7), "ok")
    check(make(4), "inconclusive", "outside of the time")


def test_one_bad_time_of_a_client_hides_no_overlap():
    def make(seed):
        world = overlapping(seed)
        world.cover()
        world.covers = False
        world.samples[7]["timeStamp"] += DAY_MS
        return world
    check(make, "overlap", "requests with records outside of the time that their clients saw: 1; first: request")


def test_who_got_no_answer_says_nothing_of_the_end():
    """The client gave up; its instance went on."""
    def make(seed):
        world = shop.clean(seed, unknowns=0, fault="killed_holding", expect=["ok"])
        world.cover()
        world.covers = False
        request = max(world.requests, key=lambda r: r["outcome"]["t_ns"])
        world.sample_of(request).update(responseCode="Non HTTP response code: java.net.SocketTimeoutException",
                                        success="false", elapsed=0, unit="", left="", instance="")
        world.passed_of(request)["status"] = 499
        return world
    check(make, "ok")


# ---- What the files say of their clocks ----------------------------------------------------------
def told(change, clients=False):
    def make(seed):
        world = overlapping(seed)
        if clients:
            world.run["clients"] = {**shop.CLIENTS}
            change(world.run["clients"])
            return world
        world.seq_edits["b"] = lambda lines: change(lines[0])
        return world
    return make


@pytest.mark.parametrize("field, value, reason", [
    ("boot_id", "another", "history-b.jsonl: it was written on another machine, or after another boot, than history-a.jsonl"),
    ("time_namespace", "time:[1]", "history-b.jsonl: its writer has another time namespace than history-a.jsonl"),
    ("clock", "CLOCK_BOOTTIME", 'history-b.jsonl line 1: "clock" is CLOCK_BOOTTIME; it must be CLOCK_MONOTONIC'),
    ("boot_id", None, 'history-b.jsonl line 1: no "boot_id"; it must be a text'),
    ("clock", None, 'history-b.jsonl line 1: no "clock"; it must be a text'),
    ("time_namespace", None, 'history-b.jsonl line 1: no "time_namespace"; it must be a text'),
    ("clock_ns_realtime", None, 'history-b.jsonl line 1: no "clock_ns_realtime"')])
def test_histories_of_different_clocks_prove_nothing_together(field, value, reason):
    check(told(lambda begin: begin.update({field: value})), "inconclusive", reason, never="sections that began")


@pytest.mark.parametrize("field, value, reason", [
    ("boot_id", "another", "sale.jtl was written on another machine, or after another boot, than history-a.jsonl")])
def test_clients_of_another_machine(field, value, reason):
    """That the instances' sections overlapped is theirs to tell; that none did needs the clients."""
    check(told(lambda clients: clients.update({field: value}), True), "overlap", reason)

    def make(seed):
        world = one_after_the_other(seed)
        world.run["clients"] = {**shop.CLIENTS, field: value}
        return world
    check(make, "inconclusive", reason)


def test_old_evidence_is_no_proof():
    def make(seed):
        world = one_after_the_other(seed)
        del world.run["clients"]
        for instance in "ab":
            world.seq_edits[instance] = lambda lines: [lines[0].pop(name) for name in (*shop.CLOCK, "clock_ns_realtime")]
        return world
    check(make, "inconclusive", 'history-a.jsonl line 1: no "boot_id"')

    def without_clients(seed):
        world = one_after_the_other(seed)
        del world.run["clients"]
        return world
    check(without_clients, "inconclusive", 'run.json: no "clients"; it must name')
