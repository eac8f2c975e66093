# SPDX-License-Identifier: Apache-2.0
"""timeline.svg: well formed, bounded, and its close up holds an overlap wherever there is one."""
import os
import xml.etree.ElementTree as xml

import pytest
import shop
from judge import SEEDS, audit, judge, verdict_of
from simulate import simulate
from test_bruteforce import dirty

SVG = "{http://www.w3.org/2000/svg}"


def read(folder):
    path = os.path.join(folder, "timeline.svg")
    root = xml.parse(path).getroot()
    assert root.tag == SVG + "svg" and root.get("width") == "1280"
    return root


def texts(root):
    return [element.text or "" for element in root.iter(SVG + "text")]


def bars(root):
    zoom = root.find(".//%sg[@id='zoom']" % SVG)
    window = int(zoom.get("data-from-ns")), int(zoom.get("data-to-ns"))
    return window, [(int(g.get("data-enter-ns")), int(g.get("data-end-ns")), g)
                    for g in zoom.iter(SVG + "g") if g.get("class") == "bar"]


def overlap_in(root):
    """Two bars, one number 1 and 2, that are inside together within the window."""
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
        assert "1 and 2 inside together" in said
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
