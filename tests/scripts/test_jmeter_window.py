# SPDX-License-Identifier: Apache-2.0
"""The plan in JMeter's own window, on a screen of its own (Xvfb): it opens, every element of it can
be shown, and JMeter's log has no complaint. The pictures are kept: LADDER_BUILD/jmeter-window-*.png."""
import hashlib
import os
import pathlib
import subprocess
import xml.etree.ElementTree

import pytest

from bench import PATIENCE_S, ROOT, call, complaints, wait_until

PLAN = ROOT / "jmeter" / "sale.jmx"
PICTURES = pathlib.Path(os.environ.get("LADDER_BUILD", "/tmp"))
# From the window's upper left corner: the tree's first line, and the button that opens all of it.
TREE_TOP = (60, 66)
EXPAND_ALL = (223, 37)
TREE_BELOW = "240x400+10+300"  # where there is nothing as long as it is folded


def elements():
    """The plan's elements: the hashTree of each stands behind it."""
    root = xml.etree.ElementTree.parse(PLAN).getroot()
    return [element for tree in root.iter("hashTree") for element in tree if
            element.tag != "hashTree"]


class Window:
    def __init__(self, folder):
        self.log = folder / "jmeter.log"
        read, write = os.pipe()
        self.screen = subprocess.Popen(
            ["Xvfb", "-displayfd", str(write), "-screen", "0", "1400x1100x24", "-nolisten", "tcp",
             "-noreset"],  # else it starts anew when a client that was alone leaves
            pass_fds=[write], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(write)
        with open(read) as told:  # to its end: the screen dies of a pipe that is closed too early
            self.env = {**os.environ, "DISPLAY": f":{told.readline().strip()}"}
        words = call("jmeter_command").stdout.splitlines()
        with open(folder / "output", "wb") as output:
            self.jmeter = subprocess.Popen(
                [*words, "-t", str(PLAN), "-q", str(ROOT / "jmeter/user.properties"), "-i",
                 str(ROOT / "jmeter/log4j2.xml"), "-j", str(self.log)],
                stdout=output, stderr=subprocess.STDOUT, cwd=folder, env=self.env)
        self.id = None
        wait_until(self.find, "JMeter's window")

    def find(self):
        assert self.jmeter.poll() is None, "JMeter ended by itself"
        found = self.tool("search", "--onlyvisible", "--name", r"sale\.jmx .* Apache JMeter",
                          check=False).split()
        self.id = found[0] if found else None
        return self.id

    def tool(self, *words, check=True):
        return subprocess.run(["xdotool", *map(str, words)], env=self.env, check=check,
                              capture_output=True, text=True, timeout=PATIENCE_S).stdout

    def pixels(self, *crop):
        return subprocess.run(["import", "-silent", "-window", self.id, *crop, "-depth", "8",
                               "rgb:-"], env=self.env, check=True, capture_output=True,
                              timeout=PATIENCE_S).stdout

    def picture(self, unlike=None):
        """A picture that no longer changes, other than the one before, as a number that names it."""
        seen = [None]

        def settled():
            picture = hashlib.sha256(self.pixels()).hexdigest()
            same = picture == seen[0] and picture != unlike
            seen[0] = picture
            return same
        wait_until(settled, "a picture that is new and rests")
        return seen[0]

    def open_tree(self):
        """Clicks until the tree is open down to where it was empty: the window is there before the
        plan is, and a click that comes too early is lost."""
        def is_open():
            self.click(EXPAND_ALL)
            return len(set(self.pixels("-crop", TREE_BELOW))) > 5
        wait_until(is_open, "the open tree")

    def select_first(self):
        """Clicks until the tree's first line is selected and takes keys."""
        before = self.picture()

        def takes_keys():
            self.tool("windowfocus", self.id)
            self.click(TREE_TOP)
            first = self.picture()
            self.press("Down")
            second = self.picture()
            self.press("Up")
            return first != second and before != second
        wait_until(takes_keys, "a tree that takes keys")
        return self.picture()

    def press(self, key):
        self.tool("key", "--clearmodifiers", key)

    def keep(self, name):
        subprocess.run(["import", "-silent", "-window", "root",
                        str(PICTURES / f"jmeter-window-{name}.png")], env=self.env, check=True,
                       timeout=PATIENCE_S)

    def click(self, place):
        self.tool("mousemove", "--window", self.id, *place, "click", 1)

    def close(self):
        for process in (self.jmeter, self.screen):
            process.terminate()
        for process in (self.jmeter, self.screen):
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture
def window(tmp_path):
    window = Window(tmp_path)
    yield window
    window.close()


def test_every_element_shows_in_the_window(window):
    count = len(elements())
    assert count > 30
    window.open_tree()
    last = window.select_first()
    window.keep("plan")
    shown = {last}
    for number in range(1, count):
        window.press("Down")
        last = window.picture(unlike=last)
        shown.add(last)
        if number == 1:
            window.keep("properties")
    assert len(shown) == count
    assert "Loading file" in window.log.read_text()
    assert not complaints(window.log)
