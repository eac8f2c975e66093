# SPDX-License-Identifier: Apache-2.0
"""What README.md shows is what its command prints, but for the numbers; and both READMEs show it."""
import re

from place import ROOT


def shown(name):
    """The block behind the mark."""
    return re.search(r"<!-- demo -->\n```\n(.*?)```", (ROOT / name).read_text(), re.S)[1]


def without_numbers(text):
    text = re.sub(r"-?\d[\d.]*", "0", text)
    # Which of the two the mutex and DECR end in is luck; the judge accepts both.
    text = re.sub(r"(OVERSOLD\|OVERLAP )(OVERSOLD \(\+0\)|OVERLAP)", r"\1either", text)
    return [" ".join(line.split()) for line in text.splitlines()]


def test_the_demo_prints_what_the_readme_shows(place):
    demo = place.demo()
    assert demo.code == 0, demo
    printed = demo.out.replace(str(place.runs), "runs")
    assert without_numbers(printed) == without_numbers(shown("README.md")), demo


def test_the_chinese_readme_shows_the_same_run():
    assert shown("README.zh-CN.md") == shown("README.md")


def test_every_path_that_is_named_at_the_top_is_there():
    for name in ("README.md", "README.zh-CN.md", "ARCHITECTURE.md", "CONTRIBUTING.md"):
        text = (ROOT / name).read_text()
        paths = re.findall(r"\]\(([^)#:]+)\)", text) + re.findall(r"`(scripts/[a-z]+)", text)
        assert paths
        assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_file_that_the_table_of_places_names_is_there():
    """Beside one that is named with its folder its siblings are named without."""
    rows = re.findall(r"^\|.*\| (.*) \|$", (ROOT / "ARCHITECTURE.md").read_text(), re.M)[2:]
    assert len(rows) > 30
    for row in rows:
        folder = ROOT
        for name in re.findall(r"`([^` ]+)`", row):
            if "/" in name:
                folder = (ROOT / name).parent
            else:
                name = (folder / name).relative_to(ROOT)
            if (ROOT / name).suffix or str(name).endswith("/") or "scripts" in str(name):
                assert list(ROOT.glob(re.sub("<[^>]*>", "*", str(name)).rstrip("/"))), (row, name)


def test_the_reference_is_what_its_sources_say(place):
    docs = place.run(ROOT / "scripts" / "docs", "--check")
    assert docs.code == 0, docs


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120
