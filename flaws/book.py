# SPDX-License-Identifier: Apache-2.0
"""The book's blocks that nobody writes by hand. A marker is an HTML comment on a line of its own. It says
what the block after it holds: code of a file, the change from one rung to the next, what a demonstration printed, or
its picture. A demonstration's block is rewritten only if its interleaving has changed. Times and counts differ from run
to run, and are ignored."""
import collections
import difflib
import os
import pathlib
import re
import subprocess
import tempfile
import textwrap

import ladder
import matrix
import named
import transcript
from scenarios import ALL
from waiting import dying_with, end_in_order, run_unless_stopped

ROOT = ladder.ROOT
PICTURES = ROOT / "docs" / "pictures"
MARKER = re.compile(r"<!-- (\w+)(?: (.*?))? -->")
ELSEWHERE = ("demo", "answer", "Made")  # markers that other scripts read
LANGUAGES = {".c": "c", ".h": "c", ".def": "c", ".lua": "lua", ".py": "python"}
WORDS_A_MINUTE = 200  # of a text that has to be understood
STALL = "stood still for"  # in the label of a stalled process
DEMONSTRATION = r"((break|cure) \w+|run \w+ \w+)( --check-hold)?"

Demonstration = collections.namedtuple("Demonstration", "flaw rung options")  # names, words of the command line
Shown = collections.namedtuple("Shown", "printed picture complaint")
Job = collections.namedtuple("Job", "page shown check")  # shown: the output by demonstration; check: nothing is written


class Mistake(Exception):
    """A marker or its block is wrong. The message says what would be right."""


def pages():
    """Those that may have markers."""
    return sorted((ROOT / "docs").glob("*.md")) + sorted(ROOT.glob("README*.md"))


# ---- What a page says --------------------------------------------------------------------------------


def end_of_fence(lines, at):
    """Behind the block of code that begins there."""
    fence = re.match(r"`+", lines[at])[0]
    return next((end + 1 for end in range(at + 1, len(lines)) if lines[end].rstrip() == fence), len(lines))


def end_of_block(lines, at):
    """The line after the block or picture that begins at `at`; or `at`, if none begins there."""
    if at < len(lines) and lines[at].startswith("```"):
        return end_of_fence(lines, at)
    return at + 1 if at < len(lines) and lines[at].startswith("![") else at


def parts(text):
    """(number, marker, lines): each marker with the lines of the block behind it; all other lines alone."""
    lines, at = text.split("\n"), 0
    while at < len(lines):
        marker = MARKER.fullmatch(lines[at].rstrip())
        if marker:
            end = end_of_block(lines, at + 1)
            yield at + 1, marker, lines[at:end]
        else:
            end = end_of_fence(lines, at) if lines[at].startswith("```") else at + 1
            yield at + 1, None, lines[at:end]
        at = end


# ---- What stands behind a marker ---------------------------------------------------------------------


def fenced(language, lines):
    return ["```" + language, *lines, "```"]


def definition(text, name):
    """A function, struct, variable or macro as the file has it, with the comment right above; None: no such."""
    found = re.search(rf"""^(?:/\*(?:(?!\*/).)*\*/\n|--\ [^\n]*\n)?
        (?: local\ function\ {name}\( .*? ^end$
        | [a-z][\w\ *]*\b{name}\([^;{{]*\n\{{ .*? ^\}}
        | (?:typedef\ )?(?:struct|enum|union)\ {name}\ \{{ .*? ^\}}[^\n]*
        | [a-z][\w\ *]*\b{name}(?:\[\w*\])*\ =(?:[^;{{]*|[^;{{]*\{{.*?\}});$
        | \#define\ {name}\b(?:[^\n]*\\\n)*[^\n]* )""", text, re.MULTILINE | re.DOTALL | re.VERBOSE)
    return found and found[0]


def file_of(path):
    file = ROOT / path
    if not file.is_file():
        raise Mistake(f'there is no file "{path}"; it is named from the top of the clone')
    return file


def code(words, _old, _job):
    path, name = (words.split() + [None])[:2]
    file = file_of(path)
    text = file.read_text(encoding="utf-8").rstrip("\n")
    found = definition(text, name) if name else text
    if found is None:
        raise Mistake(f'"{name}" is no function, struct, variable or macro of {path}')
    return fenced(LANGUAGES.get(file.suffix, ""), found.split("\n"))


def some_lines(words, _old, _job):
    """COUNT lines, from the only line that contains WORD."""
    path, word, count = words.split()
    file = file_of(path)
    lines = file.read_text(encoding="utf-8").split("\n")
    found = [number for number, line in enumerate(lines) if word in line]
    if len(found) != 1:
        raise Mistake(f'"{word}" is in {len(found)} lines of {path}; it must be in one')
    shown = lines[found[0]:found[0] + int(count)]
    return fenced(LANGUAGES.get(file.suffix, ""), textwrap.dedent("\n".join(shown)).split("\n"))


def diff(words, _old, _job):
    return fenced("diff", ladder.diff(*map(named.rung, words.split())))


def demonstration(words):
    options = tuple(word for word in words.split() if word.startswith("--"))
    flaw, rung = named.demonstration(*(word for word in words.split() if word not in options))
    return Demonstration(flaw.name, rung.name, options)


def looked_at(words, job):
    """What that demonstration showed; None when none was run."""
    found = job.shown.get(demonstration(words))
    if found and found.complaint:
        raise Mistake(found.complaint)
    return found


def run(words, old, job):
    found, command = looked_at(words, job), f"$ scripts/rung {words}"
    if not found:
        if len(old) < 4 or old[1] != command:
            raise Mistake("not filled yet: scripts/docs --runs")
        return old
    new = fenced("", [command, *found.printed])
    if interleaving_of("\n".join(old)) == interleaving_of("\n".join(new)):
        return old
    if job.check:
        both = ([" ".join(interleaving_of(line)) for line in lines] for lines in (old, new))
        raise Mistake(f"another interleaving, scripts/docs --runs takes it over{difference(*both)}")
    return new


def picture(words, old, job):
    """The writer chooses the words in brackets. The run draws the file."""
    what, found = demonstration(words), looked_at(words, job)
    file = PICTURES / f"{what.flaw}-{what.rung}{'-checked' if what.options else ''}.svg"
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    if found:
        another = story_of(found.picture) != story_of(before)
        if another and job.check:
            raise Mistake(f"{file.relative_to(ROOT)} tells another story, scripts/docs --runs draws it anew"
                          + difference(story_of(before), story_of(found.picture)))
        if not job.check and (another or STALL in before and STALL not in found.picture):
            PICTURES.mkdir(exist_ok=True)
            file.write_text(found.picture, encoding="utf-8")
    if not file.exists():
        raise Mistake(f"{file.relative_to(ROOT)} is not there yet: scripts/docs --runs")
    told = re.match(r"!\[(.+)\]\(", old[0] if old else "")
    words = told[1] if told else f"{what.rung}: {ALL[what.flaw].title}"
    return [f"![{words}]({os.path.relpath(file, job.page.parent)})"]


# Of each marker: its function, the pattern of its arguments, and their description.
MARKERS = {
    "code": (code, r"\S+( \w+)?", "FILE [NAME]"),
    "lines": (some_lines, r"\S+ \S+ [1-9]\d?", "FILE WORD COUNT"),
    "diff": (diff, r"\w+ \w+", "RUNG RUNG"),
    "run": (run, DEMONSTRATION, "break NAME, cure NAME or run NAME RUNG, and --check-hold or nothing"),
    "picture": (picture, DEMONSTRATION, "break NAME, cure NAME or run NAME RUNG, and --check-hold or nothing"),
}


def interleaving_of(text):
    """What was printed, without what differs from run to run."""
    told = transcript.TOKEN.sub("T", re.sub(r"[\d.]+\s+ms\b", "N ms", transcript.interleaving_of(text)))
    return told.split()


def story_of(svg):
    """What a picture tells: its result and its steps, without their order, which may be luck. Stalls, and the moment at
    which a holder learns that its lock is lost, are ignored."""
    labels = re.findall(r">([^<>]*)</text>", svg)
    steps = "\n".join(labels).partition("Step by step")[2].split("\n")
    told = {re.sub(r"-?[\d.]+ ms\b", "", label) for label in (*labels[:1], *steps)}
    return sorted(step for step in told if step and STALL not in step and "its lock is lost" not in step)


def time_of(page):
    """(minutes, words, commands, their seconds): how long a chapter takes, its words read and its commands run."""
    words, runs = 0, []
    for _, marker, lines in parts(page.read_text(encoding="utf-8")):
        if marker and marker[1] == "run":
            runs.append(max([int(ms) for line in lines if (ms := line[:6].strip()).isdigit()] + [0]) / 1000)
        elif not marker and not lines[0].startswith(("```", "<!--")):
            words += len(lines[0].split())
    return words / WORDS_A_MINUTE + sum(runs) / 60, words, len(runs), sum(runs)


# ---- Demonstrations --------------------------------------------------------------------------------


def wanted(some_pages):
    """The demonstrations that the pages' markers name, each once. A marker with a mistake names none."""
    found = {}
    for page in some_pages:
        for _, marker, _ in parts(page.read_text(encoding="utf-8")):
            if marker and marker[1] in ("run", "picture") and re.fullmatch(DEMONSTRATION, marker[2] or ""):
                try:
                    found[demonstration(marker[2])] = None
                except named.Unknown:
                    pass
    return list(found)


def perform(what, folder, environment):
    """scripts/rung, with what it printed and drew."""
    words = ["run", what.flaw, what.rung, *what.options]
    command = dying_with([str(ROOT / "scripts" / "rung"), *words, "--runs", f"{folder}/runs"], "TERM")
    done = run_unless_stopped(command, end_in_order, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines()[-1:] or ["nothing"]
        return Shown([], "", f"scripts/rung {' '.join(words)} ended with {done.returncode}: {said[0]}")
    run_folder = re.search(r"^The picture: (runs/[^/]+)/", done.stdout, re.MULTILINE)[1]
    svg = (pathlib.Path(folder) / run_folder / "timeline.svg").read_text(encoding="utf-8")
    return Shown(done.stdout.replace(run_folder, "runs/...").rstrip("\n").split("\n"), svg, None)


def perform_all(demonstrations, build):
    """Each once, several side by side. The first goes alone: it builds what is not built yet."""
    if not demonstrations:
        return {}
    first, *rest = demonstrations
    with tempfile.TemporaryDirectory(prefix="book-") as folder:
        shown = {first: perform(first, folder, os.environ)}
        built = {**os.environ, "LADDER_BUILD": str(build)}
        with matrix.side_by_side(lambda what: perform(what, folder, built), rest, matrix.default_jobs()) as all_shown:
            shown.update(zip(rest, all_shown))
    return shown


# ---- Pages -----------------------------------------------------------------------------------------


def difference(old, new):
    lines = list(difflib.unified_diff(old, new, n=0, lineterm=""))[2:]
    return "".join(f"\n    {line}" for line in lines[:12] if not line.startswith("@@"))


def made(marker, old, job):
    """The block as it should be. Raises Mistake or Unknown."""
    word, words = marker[1], marker[2] or ""
    if word in ELSEWHERE:
        return old
    if word not in MARKERS:
        raise Mistake(f'"{word}" is no marker; there are {", ".join(MARKERS)}')
    make, pattern, takes = MARKERS[word]
    if not re.fullmatch(pattern, words):
        raise Mistake(f'{word} takes {takes}, not "{words}"')
    new = make(words, old, job)
    if job.check and new != old:
        raise Mistake(f"out of step, run scripts/docs{difference(old, new)}")
    return new


def go_through(job):
    """Writes the page's blocks anew where they are out of step; with check, says so instead. Returns
    whether it wrote, and the complaints."""
    before, out, complaints = job.page.read_text(encoding="utf-8"), [], []
    for number, marker, (line, *old) in parts(before):
        try:
            new = made(marker, old, job) if marker else old
        except (Mistake, named.Unknown) as why:
            new = old
            complaints.append(f"{job.page.relative_to(ROOT)}:{number}: {why}")
        out += [line, *new]
    after = "\n".join(out)
    if after != before:
        job.page.write_text(after, encoding="utf-8")
    return after != before, complaints


def unused_pictures():
    """Those that no page shows."""
    told = "".join(page.read_text(encoding="utf-8") for page in pages())
    return [file for file in sorted(PICTURES.glob("*")) if f"pictures/{file.name})" not in told]
