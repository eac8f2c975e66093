# SPDX-License-Identifier: Apache-2.0
"""Every rung under every scenario, each cell run for real: a cell that differs from what was written down by
hand fails. And the page, in a real browser."""
import json
import re
import shutil
import subprocess

import pytest

from rung import left_behind, rung

import book
import ladder
import matrix
import transcript
from scenarios import ALL, ON_LADDER, demonstrations, shown

EVERY = ladder.all_on_stage()
COUNT = sum(flaw.fits(one) for flaw in ALL.values() for one in EVERY)
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
SCRIPT = """<script>
location.hash = 'c0';
const shown = [...document.querySelectorAll('section')].filter(s => getComputedStyle(s).display != 'none');
document.body.innerHTML = '<pre id=found>' + JSON.stringify({
  cells: document.querySelectorAll('td.cell').length, wrong: document.querySelectorAll('td.wrong').length,
  sections: document.querySelectorAll('section').length, pictures: document.querySelectorAll('section svg').length,
  shown: shown.length, wide: document.documentElement.scrollWidth,
  outside: [...document.querySelectorAll('[src],link')].length}) + '</pre>';
</script>"""


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("matrix")
    done = rung("matrix", "--runs", folder, "--jobs", 6)  # a cell waits most of its time
    done.folder = next(folder.iterdir())
    assert not left_behind(folder)
    return done


def test_every_cell_is_as_it_was_written_down(done):
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"^{COUNT} of {COUNT} cells are as expected, in \d+ s$", done.stdout, re.M)


def in_the_book():
    """(scenario, rung) of which a page has the transcript: test_book.py compares it with what is printed today."""
    markers = [marker for page in book.pages() for _, marker, _ in book.parts(page.read_text(encoding="utf-8")) if marker]
    told = [book.demonstration(marker[2]) for marker in markers if marker[1] == "run"]
    return {(one.flaw, one.rung) for one in told if not one.options}


def interleavings(folder):
    """By scenario and rung: what happened in each of these runs."""
    found = {}
    for flaw, name in [(flaw.name, name) for flaw, name in demonstrations()]:
        runs = folder.glob(f"*-{name}-{flaw}-????????")
        found[flaw, name] = [transcript.interleaving_of((run / "transcript.txt").read_text(encoding="utf-8")) for run in runs
                             if (run / "transcript.txt").exists()]
    return found


def test_every_interleaving_is_the_same_twice(done, tmp_path):
    """Of each demonstration. The cell is one time. The book has most of the others; what it does not show is run again.
    What differed is looked at again, one at a time: beside busy neighbours a run may be too slow for its interleaving, but
    not each time."""
    pairs = {(flaw.name, name) for flaw, name in demonstrations()} - in_the_book()
    assert 20 <= len(pairs) <= 50
    asked = sorted({flaw for flaw, _ in pairs})
    again = rung("repeat", "--times", 1, "--scenarios", ",".join(asked), "--runs", tmp_path)
    assert again.returncode in (0, 1), again.stdout + again.stderr
    first, second = interleavings(done.folder), interleavings(tmp_path)
    differ = {flaw for flaw, name in pairs if not set(first[flaw, name]) & set(second[flaw, name])}
    if again.returncode == 1:
        differ |= set(re.findall(r"^\S+ +(\S+) +1 of 1 alike, 0 as expected", again.stdout, re.MULTILINE))
    if differ:
        alone = rung("repeat", "--times", 2, "--scenarios", ",".join(sorted(differ)), "--jobs", 1, "--runs", tmp_path / "alone")
        assert alone.returncode == 0, alone.stdout + alone.stderr
    assert not left_behind(tmp_path)


def test_the_cells_that_a_look_at_the_hold_may_change(tmp_path):
    flaws = "long_section,frozen,frozen_writing,expired_reentry"
    looked = rung("matrix", "--check-hold", "--scenarios", flaws, "--runs", tmp_path)
    assert looked.returncode == 0, looked.stdout + looked.stderr


class Played:
    def __init__(self, word, agrees):
        self.rung, self.flaw, self.word, self.agrees = "fair", "frozen", word, agrees
        self.reasons, self.unstable = [f"it was {word}"], ""


@pytest.mark.parametrize("alone, counts", [([True, True], True), ([True, False], False), ([False, True], False)])
def test_a_cell_that_is_wrong_beside_others_counts_if_it_is_right_twice_alone(alone, counts):
    wrong, again = Played("OVERSOLD", False), [Played("OK", agrees) for agrees in alone]
    cells, asked = [Played("OK", True), wrong], list(again)
    matrix.play_again(cells, [("a rung", "a flaw"), ("fair", "frozen")],
                      lambda flaw, rung: asked.pop(0) if (flaw, rung) == ("frozen", "fair") else None)
    assert not asked and cells[1] is (again[1] if counts else wrong)
    assert cells[1].unstable == ("OVERSOLD beside other cells: it was OVERSOLD" if counts else "")


def test_many_wrong_cells_are_the_ladders_fault():
    cells = [Played("OVERSOLD", False) for _ in range(matrix.AGAIN_MAX + 1)]
    matrix.play_again(cells, [("fair", "frozen")] * len(cells), lambda flaw, rung: Played("OK", True))
    assert not any(cell.agrees for cell in cells)


def test_the_table_shows_the_ladder(done):
    rows = {}
    for name, *cells in filter(None, map(str.split, done.stdout.splitlines())):
        if name in ALL:  # in each part of a table that is wider than the terminal
            rows[name] = rows.get(name, []) + cells
    names = [one.name for one in ladder.rungs()]
    assert list(rows) == list(ALL)
    assert all(len(row) == sum(ALL[name].fits(one) for one in EVERY) for name, row in rows.items())
    assert all(len(rows[name]) == len(names) for name in ON_LADDER)
    for flaw, breaks, cured in shown():  # where a rung breaks, and the next survives, the two cells differ
        if cured and breaks in flaw.shows:
            assert rows[flaw.name][names.index(breaks)] != rows[flaw.name][names.index(cured)], (flaw.name, breaks)


def test_the_json_says_why(done):
    cells = json.loads((done.folder / "matrix.json").read_text())["cells"]
    assert len(cells) == COUNT
    for cell in cells:
        assert cell["agrees"] and cell["result"] in cell["expected"] and len(cell["why"]) > 15 and cell["reasons"]
        assert (done.folder / cell["run"] / "timeline.svg").exists()


def test_the_page_in_a_browser(done, tmp_path):
    text = (done.folder / "matrix.html").read_text()
    page = tmp_path / "page.html"
    page.write_text(text.replace("</html>", SCRIPT + "</html>"))
    seen = subprocess.run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage",
                           "--user-data-dir=" + str(tmp_path / "profile"), "--window-size=1400,1000", "--dump-dom",
                           page.as_uri()], capture_output=True, timeout=120, check=True, encoding="utf-8").stdout
    found = json.loads(re.search(r'<pre id="found">(.*?)</pre>', seen, re.S)[1])
    assert found["cells"] == found["sections"] == found["pictures"] == COUNT
    assert found["wrong"] == 0 and found["shown"] == 1 and found["outside"] == 0
    assert found["wide"] <= 1400
