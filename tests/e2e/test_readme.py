# SPDX-License-Identifier: Apache-2.0
"""Both READMEs show the same run, and what the pages at the top name is there. That the run is what its command prints, see
test_demo.py."""
import re

from place import ROOT
from readme import shown


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
