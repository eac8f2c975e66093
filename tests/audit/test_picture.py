# SPDX-License-Identifier: Apache-2.0
"""timeline.svg: well formed, bounded, and its close up holds an overlap wherever there is one."""
import itertools
import os
import re
import xml.etree.ElementTree as xml

import pytest
import shop
import small
from judge import SEEDS, audit, judge, verdict_of
from simulate import simulate
from test_bruteforce import dirty

SVG = "{http://www.w3.org/2000/svg}"


def read(folder):
    path = os.path.join(folder, "timeline.svg")
    root = xml.parse(path).getroot()
    assert root.tag == SVG + "svg" and root.get("width") == "960"
    return root


def texts(root):
    return [element.text or "" for element in root.iter(SVG + "text")]


def bars(root):
    zoom = root.find(".//%sg[@id='zoom']" % SVG)
    window = int(zoom.get("data-from-ns")), int(zoom.get("data-to-ns"))
    return window, [(int(g.get("data-enter-ns")), int(g.get("data-end-ns")), g)
                    for g in zoom.iter(SVG + "g") if g.get("class") == "bar"]


def overlap_in(root):
    """Two bars, those of the story, that are inside together within the window."""
    (start, end), found = bars(root)
    stars = [b for b in found if b[2].find("%srect[@class='star']" % SVG) is not None]
    if len(stars) != 2:
        return False
    (a_from, a_to, _), (b_from, b_to, _) = stars
    together = max(a_from, b_from), min(a_to, b_to)
    return (a_from < b_to and b_from < a_to and start <= together[0] and together[0] <= end
            and all(b[2].find("%srect[@class='clash']" % SVG) is not None for b in stars))


def check(verdict, folder):
    root = read(folder)
    said = " ".join(texts(root))
    if verdict["overlaps"] > 0:
        assert overlap_in(root), folder
        assert re.search(r"\S+ and \S+ inside together: ", said)
        assert "were inside the section at the same time" in said or verdict["result"] != "oversold"
    else:
        assert "inside together" not in said
        assert root.find(".//%sg[@id='zoom']//%srect[@class='clash']" % (SVG, SVG)) is None
    assert verdict["result"].upper() in said
    assert verdict["rung"] in said and verdict["write"] in said


def test_close_up_holds_an_overlap():
    worlds = {seed: dirty(seed) for seed in range(2 * SEEDS)}
    with judge(worlds) as verdicts:
        assert sum(v["overlaps"] > 0 for v, _ in verdicts.values()) > SEEDS / 2
        for verdict, folder in verdicts.values():
            check(verdict, folder)


def test_clean_runs():
    with judge({seed: shop.clean(seed) for seed in range(SEEDS)}) as verdicts:
        for verdict, folder in verdicts.values():
            check(verdict, folder)


def oversold(tmp_path, **asked):
    world = simulate(1, 1500, rung="local", items={"phone": 1000}, instances=["a", "b"], **asked)
    folder = world.write(str(tmp_path / "run"))
    assert audit(folder).returncode == 0
    return world, folder


@pytest.mark.parametrize("write", ["set", "decr"])
def test_says_who_collided(tmp_path, write):
    world, folder = oversold(tmp_path, write=write)
    verdict, root = verdict_of(folder), read(folder)
    check(verdict, folder)
    story = " ".join(texts(root))
    (start, _), found = bars(root)
    assert start > world.t0 - 1e9
    for _, _, group in [b for b in found if b[2].find("%srect[@class='star']" % SVG) is not None]:
        request = group.find(SVG + "title").text.split(":")[0]
        assert request in story
    assert " on instance a" in story and " on instance b" in story
    assert "sells unit" in story and "while 1 is inside" in story
    if write == "set":
        assert "Both sold unit" in story and "that unit was sold already" in story


def test_size_does_not_grow_with_the_run(tmp_path):
    _, folder = oversold(tmp_path, write="set")
    assert os.path.getsize(os.path.join(folder, "timeline.svg")) < 200_000
    world = simulate(1, 1500, rung="none", write="set", workers=64, instances=list("abcdefgh"),
                     items={"phone": 1000})
    folder = world.write(str(tmp_path / "many"))
    audit(folder)
    root = read(folder)
    assert os.path.getsize(os.path.join(folder, "timeline.svg")) < 400_000
    assert float(root.get("height")) < 4000
    assert "more sections are not drawn" in " ".join(texts(root))


def test_marks(tmp_path):
    """What the timekeeper and the machine had to say is drawn where it happened."""
    world = simulate(1, 40, rung="watchdog", write="decr", instances=["a", "b"],
                     items={"phone": 20})
    for section in world.sections:
        t_ns = section["enter"]["t_ns"] + 1
        for event in ("renew", "lost"):
            world.add(section["request"]["instance"], t_ns, event, hold=section["hold"],
                      reason="made")
        world.add(section["request"]["instance"], t_ns, "stall", late_ns=1)
    folder = world.write(str(tmp_path / "run"))
    audit(folder)
    zoom = read(folder).find(".//%sg[@id='zoom']" % SVG)
    for mark in ("renew", "lost", "stall"):
        assert zoom.find("%sline[@class='%s']" % (SVG, mark)) is not None


def test_without_sections(tmp_path):
    """Nothing was recorded: the picture says so."""
    world = shop.clean(1)
    world.events = {i: [] for i in world.events}
    folder = world.write(str(tmp_path / "run"))
    audit(folder)
    assert "No critical section was recorded." in " ".join(texts(read(folder)))


# ---- Demonstrations ------------------------------------------------------------------------------
STRIPS = ".//%sg[@id='strips']" % SVG
BAR_TOP, WAIT_TOP, LANE_HEIGHT = 4, 28, 58  # as the lanes are laid out


class Strips:
    """What stands in the lanes of a small run: shapes by class and lane, and all words."""

    def __init__(self, make, tmp_path):
        self.folder = make().write(str(tmp_path / "run"))
        audit(self.folder)
        self.root = read(self.folder)
        self.group = self.root.find(STRIPS)
        self.said = [text.text for text in self.group.iter(SVG + "text")]
        lanes = [float(rect.get("y")) for rect in self.root.iter(SVG + "rect")
                 if rect.get("class") == "lane" and float(rect.get("height")) == LANE_HEIGHT]
        self.tops = dict(zip("ab", lanes))

    def shapes(self, tag, name, lane):
        """(x from, x to, y in the lane) of each."""
        ends = ("x", "y", "width") if tag == "rect" else ("x1", "y1", "x2")
        found = []
        for shape in self.group.iter(SVG + tag):
            x, y, other = (float(shape.get(end)) for end in ends)
            below = y - self.tops[lane]
            if shape.get("class") == name and 0 <= below < LANE_HEIGHT:
                found.append((x, x + other if tag == "rect" else other, below))
        return found

    def rects(self, name, lane):
        return self.shapes("rect", name, lane)

    def lines(self, name, lane):
        return self.shapes("line", name, lane)

    def says(self, text):
        return any(text in said for said in self.said)

    @property
    def steps(self):
        return " ".join(texts(self.root))

    @property
    def has_close_up(self):
        return self.root.find(".//%sg[@id='zoom']" % SVG) is not None


def is_wide(spans):
    """One span over nearly all of the run."""
    return len(spans) == 1 and spans[0][1] - spans[0][0] > 780


@pytest.mark.parametrize("make", [small.killed_inside, small.killed_asking])
def test_a_killed_process_and_its_lock(make, tmp_path):
    strips = Strips(make, tmp_path)
    assert len(strips.lines("cross", "a")) == 2 and not strips.lines("cross", "b")
    assert is_wide(strips.lines("stuck", "a")) and not strips.lines("stuck", "b")
    assert is_wide(strips.rects("vain", "b"))
    assert strips.says("killed; nobody releases the lock")
    assert strips.says("times out: 503 lock-timeout")
    red = [text.text for text in strips.root.iter(SVG + "text") if text.get("class") == "worst"]
    assert red[0] == "a is killed" and red[1].endswith("has waited 1500 ms, and gets a 503")
    assert not strips.has_close_up


def test_a_killed_process_whose_lock_expires(tmp_path):
    strips = Strips(small.killed_and_expired, tmp_path)
    assert verdict_of(strips.folder)["result"] == "ok"
    assert len(strips.lines("cross", "a")) == 2 and "killed" in strips.said
    assert not strips.lines("stuck", "a") and not strips.rects("vain", "b")
    assert is_wide(strips.rects("wait", "b"))
    assert "was killed inside the section at" in strips.steps
    assert strips.root.find(".//%sline[@class='open']" % SVG) is None


@pytest.mark.parametrize("seen_after_ms, at", [(300, 295 / 495), (None, 0)])
def test_a_death_stands_where_it_was_seen(seen_after_ms, at, tmp_path):
    """Else at the last record of its history. The verdict is the same."""
    strips = Strips(lambda: small.killed_and_expired(seen_after_ms), tmp_path)
    (_, died, _), = strips.rects("looked", "a")
    (begun, ended, _), = strips.rects("wait", "b")  # from 5 to 500 ms
    assert max((died - begun) / (ended - begun), 0) == pytest.approx(at, abs=0.01)
    assert verdict_of(strips.folder)["result"] == "ok"
    assert not strips.lines("seen", "a")


def test_a_forgotten_release(tmp_path):
    strips = Strips(small.forgotten, tmp_path)
    assert is_wide(strips.lines("stuck", "a")) and not strips.lines("cross", "a")
    assert len(strips.lines("renew", "a")) == 8
    assert strips.says("the release is forgotten; nobody releases the lock")


def test_a_lost_reply(tmp_path):
    strips = Strips(small.reply_lost, tmp_path)
    assert is_wide(strips.lines("stuck", "a")) and is_wide(strips.rects("vain", "b"))
    assert strips.says("503 lock-error") and strips.says("the key is set; nobody releases")


def test_a_request_that_waits_for_itself(tmp_path):
    strips = Strips(small.waits_for_itself, tmp_path)
    assert is_wide(strips.rects("vain", "a")) and is_wide(strips.rects("looked", "a"))
    assert strips.says("asks for its own lock again, and waits for itself")
    assert re.search(r"\w+…? asked for the lock again, inside, and was refused", strips.steps)


def test_a_freeze(tmp_path):
    strips = Strips(small.frozen, tmp_path)
    assert is_wide(strips.rects("still", "a")) and not strips.rects("still", "b")
    assert strips.says("stood still for 1990 ms") and strips.says("the lock is lost")
    assert len(strips.lines("lost", "a")) == 1
    assert "a wakes: it stood still for 1990 ms" in strips.steps
    assert overlap_in(strips.root)


def test_the_lock_has_a_lane(tmp_path):
    """A slope for each time to live, beginning anew with a renewal; a whole rectangle where there is none."""
    strips = Strips(small.frozen, tmp_path)
    slopes = [path.get("d") for path in strips.root.iter(SVG + "path") if path.get("class") == "ttl"]
    held = [float(rect.get("width")) for rect in strips.root.iter(SVG + "rect") if rect.get("class") == "held"]
    endless = [rect for rect in strips.root.iter(SVG + "rect") if rect.get("class") == "endless"]
    assert len(slopes) == len(held) == 2 and held[1] == pytest.approx(held[0] * 1001 / 600, abs=3)
    tops = [tuple(map(float, re.match(r"M[\d.]+,([\d.]+) V([\d.]+) L[\d.]+,([\d.]+)", slope).groups())) for slope in slopes]
    assert tops[0][1] == tops[1][1], "a renewal gives it its whole time again"
    assert tops[0][2] - tops[0][1] == pytest.approx(0.6 * (tops[0][0] - tops[0][1]), abs=1) and tops[1][2] == tops[1][0]
    assert len(endless) == 2, "b1's key, and its entry in the legend"
    names = [text.text for text in strips.root.iter(SVG + "text") if text.get("class") == "small owner"]
    assert names == ["a1", "b1"] and "lock" in texts(strips.root)


def in_sessions():
    world = small.frozen()
    world.run["lock_changes"] = [{"t_ns": change["t_ns"], "holder": change["holder"], "session": True}
                                 for change in world.run["lock_changes"]]
    return world


def test_the_lane_of_a_lock_that_lives_as_long_as_a_session(tmp_path):
    strips = Strips(in_sessions, tmp_path)
    shapes = [shape.get("class") for shape in strips.root.iter() if shape.get("class") in ("ttl", "held", "endless", "granted")]
    assert shapes == ["granted"] * 4, "a1's twice, b1's, and the entry in the legend"
    assert "the first in the ensemble's queue" in texts(strips.root)


@pytest.mark.parametrize("make", small.ALL)
def test_the_legend_has_what_the_picture_has(make, tmp_path):
    root = Strips(make, tmp_path).root
    before = itertools.takewhile(lambda element: element.text != "What the colours mean", root.iter())
    drawn = [element.get("class") for element in before if element.tag != SVG + "text"]
    entries = {"sold": "inside, sold", "clash": "inside while another is: an error", "wait": "waits for the lock",
               "vain": "waits for the lock, and times out", "cross": "the process was killed", "ttl": "the key's time to live runs down",
               "giving": "outside; its release is under way", "still": "the process stood still"}
    for name, text in entries.items():
        assert (text in texts(root)) == (name in drawn), name


def test_what_was_seen_goes_through_every_lane(tmp_path):
    strips = Strips(small.emptied, tmp_path)
    ((x, _, _),), ((other, _, _),) = strips.lines("seen", "a"), strips.lines("seen", "b")
    (first,), (second,) = strips.rects("sold", "a"), strips.rects("sold", "b")
    assert x == other and first[0] < x < second[0]
    assert strips.said.count("Redis comes back empty") == 1
    assert "Redis comes back empty" in strips.steps


@pytest.mark.parametrize("seed", range(8))
def test_what_was_seen_on_a_machine_that_runs_for_long(seed, tmp_path):
    """t_ns may pass 2^53: after 104 days."""
    assert max(small.emptied(i).t0 for i in range(8)) > 2**53
    strips = Strips(lambda: small.emptied(seed), tmp_path)
    ((x, _, _),), (first,), (second,) = (strips.lines("seen", "a"), strips.rects("sold", "a"), strips.rects("sold", "b"))
    assert first[0] < x < second[0] and "Redis comes back empty" in strips.steps


@pytest.mark.parametrize("letter", ["é", "語", "😀", "i"])
@pytest.mark.parametrize("before", range(4))
def test_a_long_text_of_what_was_seen_is_cut_between_characters(letter, before, tmp_path):
    strips = Strips(lambda: small.emptied(text="x" * before + letter * 500), tmp_path)  # it is parsed: valid UTF-8
    cut = "x" * before + letter * 20
    assert strips.says(cut) and cut in strips.steps
    assert all(text.strip("x" + letter) == "…" for text in texts(strips.root) if text.startswith(cut))


def test_red_only_where_they_meet(tmp_path):
    """a was inside for 2 s, and with b for 4 ms of them."""
    strips = Strips(small.frozen, tmp_path)
    for lane in "ab":
        (sold,), (clash,) = strips.rects("sold", lane), strips.rects("clash", lane)
        assert clash[1] - clash[0] < 5 and sold[0] <= clash[0]
    assert is_wide(strips.rects("sold", "a"))


def test_a_slow_release(tmp_path):
    strips = Strips(small.slow_release, tmp_path)
    ((_, gave, height),) = strips.rects("giving", "a")
    assert height == WAIT_TOP and not strips.rects("giving", "b")
    first, third = sorted(strips.rects("sold", "a"))
    (second,) = strips.rects("sold", "b")
    assert first[1] < second[0] < gave < third[0]
    assert strips.says("is slow to release its lock")
    assert "has released its lock" in strips.steps


def test_two_in_one_lane_are_both_seen(tmp_path):
    strips = Strips(small.two_in_one, tmp_path)
    heights = [y for _, _, y in strips.rects("sold", "a")]
    assert len(set(heights)) == 2 and min(heights) == BAR_TOP
    assert {y for _, _, y in strips.rects("clash", "a")} == set(heights)


def test_many_in_vain_are_not_told_one_by_one(tmp_path):
    world, now = small.begin("setnx", "killed_holding")
    small.inside(world, "a", now)
    for i in range(100):
        small.waits_in_vain(world, "b", now + i * small.MS)
    small.die(world, "a")
    folder = small.stay(world).write(str(tmp_path / "run"))
    audit(folder)
    assert verdict_of(folder)["result"] == "deadlock"
    root = read(folder)
    assert root.find(STRIPS) is None and root.find(".//%sg[@id='zoom']" % SVG) is not None


def test_many_requests_are_not_told_one_by_one(tmp_path):
    _, folder = oversold(tmp_path, write="set")
    root = read(folder)
    assert root.find(STRIPS) is None and "waits for the lock" not in texts(root)
    assert [pattern.get("id") for pattern in root.iter(SVG + "pattern")] == ["hatch"]
