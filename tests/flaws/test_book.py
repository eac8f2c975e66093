# SPDX-License-Identifier: Apache-2.0
"""The book: what it shows is what the commands print today, every rung has its chapter, and no chapter
is too long."""
import re
import subprocess

import pytest

from rung import LIMIT_S, ROOT

import book
import ladder

DOCS = ROOT / "docs"
CONTENTS = "00-start.md"
NAMES = [CONTENTS] + [f"{number:02}-{name}.md" for number, name in enumerate(ladder.chapters(), 1)]
HEADINGS = ["See it break", "Why", "The cure", "Run the cure", "What it still cannot do", "Exercises"]
TRIES = 3
WORDS_MAX, BLOCK_LINES_MAX = 1500, 200


def text_of(name):
    if not (DOCS / name).exists():
        pytest.fail(f"there is no docs/{name}: every rung has its chapter, in the ladder's order", pytrace=False)
    return (DOCS / name).read_text(encoding="utf-8")


def split(text):
    """The prose, and the lines of the blocks."""
    prose, blocks = [], []
    for line, *block in (lines for _, _, lines in book.parts(text)):
        if line.startswith("```"):
            blocks += block[:-1]
        elif block and block[0].startswith("```"):
            blocks += block[1:-1]
        elif not line.startswith("<!--"):
            prose.append(line)
        else:
            prose += block
    return "\n".join(prose), blocks


def anchors(text):
    """What a link may point to: the headings, as GitHub names them."""
    titles = re.findall(r"^#+ (.*)$", split(text)[0], re.MULTILINE)
    named = re.findall(r'<a id="([^"]+)"></a>', text)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles} | set(named)


def test_what_it_shows_is_what_the_commands_print():
    """A page of which something had another interleaving is looked at again, by itself: beside busy neighbours a run
    may be too slow for its interleaving, but not each time."""
    pages = []
    for _ in range(TRIES):
        done = subprocess.run([str(ROOT / "scripts" / "docs"), "--check", "--runs", *pages], capture_output=True, text=True,
                              cwd=ROOT, timeout=LIMIT_S, check=False)
        complaints = [line for line in done.stdout.splitlines() if not line.startswith(" ")]
        of_pages = [re.match(r"(docs/\S+\.md):\d+: ", line) for line in complaints]
        if done.returncode == 0 or None in of_pages:
            break
        pages = sorted({found[1] for found in of_pages})
    assert done.returncode == 0, done.stdout + done.stderr


def told_by_transcript(lines):
    """What a picture could tell as well, in the transcript's order: who read, who sold, who asked the database, who picked a task,
    who read and wrote an account, who was killed, what expired."""
    for line in lines:
        who, what = re.findall(r"^ *\d+  (--|\S+)(?: by \w+)? +(?:(?:old|new|lock|stock|cache|database|list|bank) +)?(.*)$|$", line)[0]
        if who == "--":
            yield from re.findall(r"^the lock expires|^\w+ is killed", what)
        elif re.match(r"(GET|HMGET|read_segments\.lua) inventory:\{phone\}", what):
            yield f"{who} reads"
        elif re.match(r"(SET|DECR\w*|write_segment\.lua|fenced\w*\.lua) .*inventory:\{phone\}|(SET|DECR\w*) inventory", what):
            yield f"{who} sells"
        elif what.startswith("read lunch "):
            yield f"{who} asks the database"
        elif re.match(r"(SET|fill\.lua) menu:\{lunch\} .* (OK|\(integer\) 1)$", what):
            yield f"{who} has filled in"
        elif found := re.match(r"HMGET account:\{bank\}:(\w+)", what):
            yield f"{who} reads {found[1]}"
        elif re.match(r"(write\.lua|HSET) account:", what):
            yield from [f"{who} has written"] * what.count("account:{bank}:")
        elif found := re.match(r"look\.lua tasks:.* task [1-9]|take\.lua tasks:", what):
            yield f"{who} {'finds' if found[0].startswith('look') else 'has picked'} task"


def told_by_picture(svg):
    told = r"^the lock expires$|^\w+ is killed$|^\w+ (?:reads(?=:)|reads \w+(?=: )|sells(?= unit)|asks the database|has filled in|has written(?= \d)|finds task|has picked task)"
    for step in re.findall(r">([^<>]*)</text>", svg.partition("Step by step")[2]):
        yield from re.findall(told, step)


def test_a_picture_tells_what_its_transcript_tells():
    """In the same order, by the same names."""
    compared = 0
    for page in book.pages():
        shown = {"run": {}, "picture": {}}
        for _, marker, (_, *lines) in book.parts(page.read_text(encoding="utf-8")):
            if marker and marker[1] in shown:
                shown[marker[1]][book.demonstration(marker[2])] = lines
        for what in shown["picture"].keys() & shown["run"].keys():
            file = re.search(r"\]\((.*)\)", shown["picture"][what][0])[1]
            told = list(told_by_picture((page.parent / file).read_text(encoding="utf-8")))
            transcript = list(told_by_transcript(shown["run"][what]))
            rest = iter(transcript)
            assert told and all(step in rest for step in told), f"{page.name}, {file}: {told}; {transcript}"
            compared += 1
    assert compared >= len(NAMES) - 1


def test_every_rung_has_its_chapter_and_no_other():
    assert [file.name for file in sorted(DOCS.glob("[0-9]*.md"))] == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_chapter_stays_short(name):
    prose, blocks = split(text_of(name))
    assert len(prose.split()) <= WORDS_MAX
    assert len(blocks) <= BLOCK_LINES_MAX


@pytest.mark.parametrize("number, name", enumerate(NAMES[1:], 1))
def test_every_chapter_is_built_alike(number, name):
    prose = split(text_of(name))[0]
    rung = ladder.chapters()[number - 1]
    assert re.match(rf"# {number}\. `?{rung}`?: \S", prose)
    headings = re.findall(r"^## (.*)$", prose, re.MULTILINE)
    assert headings[headings.index(HEADINGS[0]):] == HEADINGS  # what the rung adds may come first
    exercises = prose.partition("\n## Exercises\n")[2]
    assert sorted(set(re.findall(rf"\b{number}\.\d\b", exercises))) == [f"{number}.1", f"{number}.2"]
    assert "scripts/rung check" in text_of(name).partition("\n## Exercises\n")[2]


@pytest.mark.parametrize("number, name", enumerate(NAMES[1:], 1))
def test_a_chapter_leads_to_its_neighbours(number, name):
    last = text_of(name).rstrip().splitlines()[-1]
    around = [NAMES[number - 1], CONTENTS] + NAMES[number + 1:number + 2]
    links = re.findall(r"\]\(([^)]+)\)", last)
    assert links == around or number == 1 and set(links) == set(around)


def test_the_contents_name_every_chapter():
    links = re.findall(r"\]\(([^)]+)\)", text_of(CONTENTS))
    assert [name for name in NAMES[1:] if name not in links] == []


@pytest.mark.parametrize("page", book.pages() + sorted(DOCS.glob("*/*.md")), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    text = page.read_text(encoding="utf-8")
    wrong = []
    for link in re.findall(r"\]\(([^)\s]+)\)", split(text)[0]):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or anchor and anchor not in anchors(target.read_text(encoding="utf-8")):
            wrong.append(link)
    assert wrong == []


def test_a_term_is_linked_where_it_is_first_used():
    """Of the glossary's terms those that the chapters link: no use stands before the link."""
    rows = re.findall(r'^\| <a id="([^"]+)"></a>([^|]+?) \|', text_of("glossary.md"), re.MULTILINE)
    prose = "\n".join(re.sub(r"^(?:#|!\[|\|).*$|`[^`]*`", "", split(text_of(name))[0], flags=re.MULTILINE) for name in NAMES)
    linked = [(anchor, names) for anchor, names in rows if f"(glossary.md#{anchor})" in prose]
    for anchor, names in linked:
        begun = prose.partition(f"](glossary.md#{anchor})")[0]
        before = begun[:begun.rindex("[")]
        for name in names.split(", "):
            assert not re.search(rf"(?<![\w-]){re.escape(name)}s?(?![\w-])", before, re.IGNORECASE), name
    assert len(linked) >= 20


# ---- The machinery ----

MARKED = """\
# Before
<!-- code lock/rungs/local.c mutex -->

<!-- diff none local -->
```diff
an old one
```
<!-- picture break two_instances -->
![What one sees.](elsewhere.svg)
```
<!-- code inside a block is a block's -->
```
after
"""


@pytest.fixture
def page(tmp_path, monkeypatch):
    """A page of a book of its own, with the real ladder."""
    for name in ("lock", "flaws", "service"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "docs" / "pictures").mkdir(parents=True)
    monkeypatch.setattr(book, "ROOT", tmp_path)
    monkeypatch.setattr(book, "PICTURES", tmp_path / "docs" / "pictures")
    return tmp_path / "docs" / "02-local.md"


def go_through(page, text, shown=None, check=False):
    page.write_text(text, encoding="utf-8")
    return book.go_through(book.Job(page, shown or {}, check))[1]


def test_some_lines_of_a_file(page):
    """Those that matter, without the indentation of where they stand."""
    assert go_through(page, "<!-- lines lock/rungs/local.c WAIT_LOCAL 2 -->\n") == []
    assert page.read_text() == "<!-- lines lock/rungs/local.c WAIT_LOCAL 2 -->\n```c\nbusy->kind = WAIT_LOCAL;\nreturn DLOCK_BUSY;\n```\n"
    for words, wrong in (("lock/none.c x 2", "there is no file"), ("lock/rungs/local.c return 2", "it must be in one"),
                         ("lock/rungs/local.c x", "lines takes FILE WORD COUNT")):
        assert wrong in go_through(page, f"<!-- lines {words} -->\n")[0]


def test_how_long_a_chapter_takes(page):
    """Its words are read, its commands are run; code and transcripts are not counted as words."""
    page.write_text("one two\n<!-- run break local -->\n```\n$ scripts/rung break local\n    ms  who\n  1500  a1  GET x\n```\n"
                    "```\nno words here\n```\n" + 198 * "word " + "\n", encoding="utf-8")
    minutes, words, commands, seconds = book.time_of(page)
    assert (words, commands, seconds) == (200, 1, 1.5) and minutes == pytest.approx(1 + 1.5 / 60)


def shown(took_ms, unit=1, more=""):
    """What a run may have printed and drawn."""
    printed = [f"{took_ms:>6}  a1  SET x", f"The judge: at {took_ms}.5 ms", f"sold unit {unit}"]
    drawn = f"<text>OVERSOLD</text><text>Step by step</text><text>{took_ms} ms</text><text>a sells unit {unit}</text>{more}"
    return {book.Demonstration("two_instances", "local", ()): book.Shown(printed, drawn, None)}


def test_blocks_are_filled_and_prose_is_left_alone(page):
    assert go_through(page, MARKED, shown(1)) == []
    text = page.read_text(encoding="utf-8")
    assert ("-->\n```c\n/* Any thread may release a hold. Only the thread that locked a pthread mutex may unlock it. */\n"
            "struct mutex {\n    atomic_flag locked;\n};\n```\n") in text
    assert "```diff\n--- none\n+++ local\n" in text and "an old one" not in text
    assert "![What one sees.](pictures/two_instances-local.svg)\n" in text
    assert text.startswith("# Before\n") and text.endswith("```\n<!-- code inside a block is a block's -->\n```\nafter\n")
    assert go_through(page, text, check=True) == []
    assert page.read_text(encoding="utf-8") == text


def test_a_run_is_written_anew_only_when_its_interleaving_is_another(page):
    text = "<!-- run break two_instances -->\n\n<!-- picture break local -->\n"
    assert len(go_through(page, text)) == 2  # not filled, and no run to fill it from
    assert go_through(page, text, shown(1)) == []
    first, picture = page.read_text(encoding="utf-8"), page.parent / "pictures" / "two_instances-local.svg"
    assert "```\n$ scripts/rung break two_instances\n     1  a1" in first and "<text>1 ms" in picture.read_text()
    assert go_through(page, first, shown(2), check=True) == []
    assert go_through(page, first, shown(2)) == []
    assert page.read_text(encoding="utf-8") == first and "<text>1 ms" in picture.read_text()
    wrong = go_through(page, first, shown(3, unit=2), check=True)
    assert wrong[0].endswith("\n    -sold unit 1\n    +sold unit 2")
    assert ["docs/02-local.md:1: another interleaving" in wrong[0], "another story" in wrong[1], len(wrong)] == [True, True, 2]
    assert go_through(page, first, shown(3, unit=2)) == []
    assert "sold unit 2" in page.read_text(encoding="utf-8") and "<text>3 ms" in picture.read_text()


def test_a_picture_of_a_stalled_machine_gives_way_to_a_better_one(page):
    text, picture = "<!-- picture break local -->", page.parent / "pictures" / "two_instances-local.svg"
    assert go_through(page, text, shown(1, more="<text>b stood still for 9 ms</text>")) == []
    assert "stood still" in picture.read_text()
    assert go_through(page, page.read_text(), shown(2), check=True) == []
    assert go_through(page, page.read_text(), shown(2)) == []
    assert "stood still" not in picture.read_text()
    assert go_through(page, page.read_text(), shown(3, more="<text>b stood still for 9 ms</text>")) == []
    assert "stood still" not in picture.read_text()


def test_a_block_of_another_command_is_not_taken_for_this_one(page):
    assert go_through(page, "<!-- run cure two_instances -->\n```\n$ scripts/rung break two_instances\nx\n```\n")


@pytest.mark.parametrize("marker, says", [
    ("cod x", '"cod" is no marker; there are code, lines, diff, run, picture'),
    ("code lock/local.c", 'there is no file "lock/local.c"'),
    ("code lock/rungs/local.c try", '"try" is no function, struct, variable or macro of lock/rungs/local.c'),
    ("diff none", 'diff takes RUNG RUNG, not "none"'),
    ("diff none loca", '"loca" is no rung. Did you mean local? The rungs are none'),
    ("run break", "run takes break NAME, cure NAME or run NAME RUNG"),
    ("run break nothing", '"nothing" is no scenario'),
    ("run run two_instances wachdog", '"wachdog" is no rung'),
    ("picture cure two_identities", "no rung of the ladder cures two_identities"),
])
def test_a_marker_with_a_slip_is_answered_with_what_would_be_right(page, marker, says):
    wrong = go_through(page, f"first\n\n<!-- {marker} -->\n")
    assert len(wrong) == 1 and wrong[0].startswith("docs/02-local.md:3: ") and says in wrong[0], wrong
    assert page.read_text(encoding="utf-8") == f"first\n\n<!-- {marker} -->\n"
