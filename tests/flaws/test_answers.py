# SPDX-License-Identifier: Apache-2.0
"""The answers to the book's exercises, as a learner would give them: each is applied to the rung that
`scripts/rung new` begins, all of them as rungs of one clone with one build, and `scripts/rung check` must say
what the answer says, and say something else of the rung that it began from."""
import collections
import concurrent.futures
import os
import re
import subprocess

import pytest

from rung import LIMIT_S, ROOT

import ladder
from clone import copy_of_clone

PAGE = ROOT / "docs" / "answers.md"
EXERCISES = [f"{chapter}.{number}" for chapter, _ in enumerate(ladder.chapters(), 1) for number in (1, 2)]
MARK = re.compile(r"^<!-- answer (\S+) from (\w+) judge ([\w,]+)(?: write (\w+))? expect ((?:oracle (?=\w))?)([\w ]+) -->$", re.MULTILINE)
TRIES = 5
Answer = collections.namedtuple("Answer", "name source judges write words diff told alone")


def answer_of(number, section):
    marks, diffs = MARK.findall(section), re.findall(r"^```diff\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert len(marks) == len(diffs) == 1, f"answer {number} needs one ```diff block and one line such as\n" \
        f"<!-- answer {number} from setnx judge killed_holding,forgotten expect OK OK -->"
    named, source, judges, write, oracle, words = marks[0]
    assert named == number
    return Answer(f"answer_{number.replace('.', '_')}", source, f"oracle,{judges}" if oracle else judges, write, words.split(),
                  diffs[0], section, " --jobs 1\n" in section)


def answers():
    _, *parts = re.split(r"^## (\d+\.\d+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {number: answer_of(number, section) for number, section in zip(parts[::2], parts[1::2])}


def answer_to(number):
    if number not in answers():
        pytest.fail(f"docs/answers.md has no section ## {number}", pytrace=False)
    return answers()[number]


def applied(code, diff, name):
    """The code with the hunks of a unified diff in it."""
    hunks = re.split(r"^@@ .*\n", diff, flags=re.MULTILINE)
    assert len(hunks) > 1 and "lock/rungs/mine.c" in hunks[0], f"{name} is no unified diff of lock/rungs/mine.c"
    for hunk in hunks[1:]:
        lines = [line if line.strip() else " \n" for line in hunk.splitlines(keepends=True)]
        old, new = ("".join(line[1:] for line in lines if line[0] in " " + sign) for sign in "-+")
        assert code.count(old) == 1, f"{name} does not fit what scripts/rung new begins:\n{old}"
        code = code.replace(old, new)
    return code


def sh(clone, *words, **environment):
    given = {name: value for name, value in os.environ.items() if name not in ("LADDER_BUILD", "LADDER_ROOT")}
    return subprocess.run(list(map(str, words)), cwd=clone, capture_output=True, text=True, timeout=LIMIT_S,
                          env={**given, **environment}, check=False)


def begin(clone, answer):
    """What a learner does, and then a name of its own for it: all answers stand side by side."""
    done = sh(clone, "scripts/rung", "new", "mine", "--from", answer.source)
    assert done.returncode == 0, done.stderr
    rung = clone / "lock" / "rungs" / "mine.c"
    code = applied(rung.read_text(encoding="utf-8"), answer.diff, answer.name)
    code = code.replace("rung_mine", f"rung_{answer.name}").replace('"mine"', f'"{answer.name}"')
    rung.with_stem(answer.name).write_text(code, encoding="utf-8")
    rung.unlink()
    for file, opening in ((clone / "lock" / "ladder.def", "("), (clone / "docs" / "reference" / "rungs.json", '"')):
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace(f"{opening}mine", opening + answer.name), encoding="utf-8")


def judged(clone, rung, judges, write, alone):
    """The words that scripts/rung check says of that rung, in the order of what was asked for."""
    done = sh(clone, "scripts/rung", "check", rung, "--flaws", judges, "--runs", clone / "runs", "--jobs", 1 if alone else 2,
              *(["--write", write] if write else []), LADDER_BUILD=str(clone / "build" / "dev"))
    said = {judge: word for word, judge in re.findall(r"^(\S+) +(\w+)(?: \(.*\))?$", done.stdout, re.MULTILINE)}
    return [said.get(judge) for judge in judges.split(",")], done.stdout + done.stderr


def question(rung, answer):
    """What judged() is asked of that rung."""
    return rung, answer.judges, answer.write, answer.alone


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    """Of every answer, and of the rung that it began from: by question()."""
    given = answers()
    clone = copy_of_clone(tmp_path_factory.mktemp("answers") / "clone")
    for source in {answer.source for answer in given.values()}:
        done = sh(clone, "scripts/rung", "new", f"from_{source}", "--from", source)
        assert done.returncode == 0, done.stderr
    for answer in given.values():
        begin(clone, answer)
    for step in (["cmake", "--preset", "dev"],
                 ["cmake", "--build", "--preset", "dev", "--parallel", "--target", "inventoryd", "ladder-audit", "oracle"]):
        done = sh(clone, *step)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    asked = {question(rung, answer) for answer in given.values() for rung in (answer.name, f"from_{answer.source}")}
    alone, together = [one for one in asked if one[3]], [one for one in asked if not one[3]]
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        found = dict(zip(together, pool.map(lambda one: judged(clone, *one), together)))
    found |= {one: judged(clone, *one) for one in alone}
    # The oracle stops nobody, so two of a race may miss each other, the more so on a busy machine. And on one that
    # is too busy a demonstration may run into its limits: alone it has another try.
    for answer in given.values():
        one = question(answer.name, answer)
        for _ in range(TRIES - 1):
            if found[one][0] != answer.words:
                found[one] = judged(clone, *one[:3], True)
    return found


def test_every_exercise_has_its_answer():
    assert list(answers()) == EXERCISES


@pytest.mark.parametrize("number", EXERCISES)
def test_an_answer_says_what_to_type(number):
    answer = answer_to(number)
    assert f"scripts/rung new mine --from {answer.source}\n" in answer.told
    options = (f" --write {answer.write}" if answer.write else "") + (" --jobs 1" if answer.alone else "")
    assert f"scripts/rung check mine --flaws {answer.judges}{options}\n" in answer.told
    assert len(answer.words) == len(answer.judges.split(","))


@pytest.mark.parametrize("number", EXERCISES)
def test_check_says_of_an_answer_what_the_book_says(verdicts, number):
    answer = answer_to(number)
    words, said = verdicts[question(answer.name, answer)]
    assert words == answer.words, said
    unchanged, said = verdicts[question(f"from_{answer.source}", answer)]
    assert "needs a rung that gives tokens" in said or None not in unchanged and unchanged != answer.words, said
