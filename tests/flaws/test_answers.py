# SPDX-License-Identifier: Apache-2.0
"""The answers to the book's exercises, as a learner would give them: each is applied to the rung that
`scripts/rung new` begins, all of them as rungs of one clone with one build, and `scripts/rung check` must say
what the exercise expects. Of a wrong answer it must say something else."""
import concurrent.futures
import os
import re
import subprocess

import pytest

from rung import LIMIT_S, ROOT

import exercises
import ladder
import wrong_answers
from clone import copy_of_clone

CHAPTERS = [f"{number:02}-{name}.md" for number, name in enumerate(ladder.chapters(), 1)]
EXERCISES = list(exercises.ALL)
TRIES = 5


def page(number):
    return (ROOT / exercises.ALL[number].answer).read_text(encoding="utf-8")


def diff_of(number):
    diffs = re.findall(r"^```diff\n(.*?)^```$", page(number), re.MULTILINE | re.DOTALL)
    assert len(diffs) == 1, f"{exercises.ALL[number].answer} needs one ```diff block"
    return diffs[0]


def name_of(number, what="answer"):
    return f"{what}_{number.replace('.', '_')}"


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


def begin(clone, number):
    """What a learner does, and then a name of its own for each: all answers stand side by side, right and wrong ones."""
    done = sh(clone, "scripts/rung", "new", "mine", "--from", exercises.ALL[number].source)
    assert done.returncode == 0, done.stderr
    rung = clone / "lock" / "rungs" / "mine.c"
    right = applied(rung.read_text(encoding="utf-8"), diff_of(number), name_of(number))
    wrong = right
    for old, new in wrong_answers.ALL[number].changes:
        assert wrong.count(old) == 1, f"the wrong answer {number} does not fit the right one: {wrong.count(old)} times {old}"
        wrong = wrong.replace(old, new)
    assert sh(clone, "scripts/rung", "drop", "mine").returncode == 0
    for code, name in ((right, name_of(number)), (wrong, name_of(number, "wrong"))):
        assert sh(clone, "scripts/rung", "new", name, "--from", exercises.ALL[number].source).returncode == 0
        code = code.replace("rung_mine", f"rung_{name}").replace('"mine"', f'"{name}"')
        rung.with_stem(name).write_text(code, encoding="utf-8")


def judged(clone, number, what, jobs=2):
    """The words that scripts/rung check says of an answer, in the order of what was asked for."""
    exercise = exercises.ALL[number]
    done = sh(clone, "scripts/rung", "check", name_of(number, what), "--scenarios", ",".join(exercise.expected),
              "--runs", clone / "runs", "--jobs", 1 if exercise.alone else jobs,
              *(["--write", exercise.write] if exercise.write else []), LADDER_BUILD=str(clone / "build" / "dev"))
    said = {judge: word for word, judge in re.findall(r"^(\S+) +(\w+)(?: \(.*\))?$", done.stdout, re.MULTILINE)}
    return {judge: said.get(judge) for judge in exercise.expected}, done.stdout + done.stderr


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    """Of every answer, right and wrong: by number and what."""
    clone = copy_of_clone(tmp_path_factory.mktemp("answers") / "clone")
    for number in EXERCISES:
        begin(clone, number)
    for step in (["cmake", "--preset", "dev"],
                 ["cmake", "--build", "--preset", "dev", "--parallel", "2", "--target", "inventoryd", "ladder-audit", "oracle"]):
        done = sh(clone, *step)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    asked = [(number, what) for number in EXERCISES for what in ("answer", "wrong")]
    alone, together = ([one for one in asked if exercises.ALL[one[0]].alone == alone] for alone in (True, False))
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        found = dict(zip(together, pool.map(lambda one: judged(clone, *one), together)))
    found |= {one: judged(clone, *one) for one in alone}
    # The oracle stops nobody, so two of a race may miss each other, the more so on a busy machine. And on one that
    # is too busy a demonstration may run into its limits: alone it has another try.
    for number, what in asked:
        for _ in range(TRIES - 1):
            if (found[number, what][0] == exercises.ALL[number].expected) == (what == "wrong"):
                found[number, what] = judged(clone, number, what, 1)
    return found


def test_every_chapter_has_two_exercises():
    assert EXERCISES == [f"{chapter}.{number}" for chapter, _ in enumerate(CHAPTERS, 1) for number in (1, 2)]
    assert list(wrong_answers.ALL) == EXERCISES


@pytest.mark.parametrize("number", EXERCISES)
def test_a_chapter_states_time_and_points_and_what_to_type(number):
    exercise, chapter = exercises.ALL[number], CHAPTERS[int(number.partition(".")[0]) - 1]
    text = (ROOT / "docs" / chapter).read_text(encoding="utf-8").partition("\n## Exercises\n")[2]
    points = f"{exercise.points} point{'s' if exercise.points > 1 else ''}"
    assert f"**{number}** ({exercise.minutes} minutes, {points}). " in text
    assert f"--from {exercise.source}`" in " ".join(text.split()) or f"--from {exercise.source}\n" in text
    assert ",".join(exercise.expected) in text, f"{chapter}, {number}"


@pytest.mark.parametrize("number", EXERCISES)
def test_an_answer_says_what_to_type(number):
    exercise = exercises.ALL[number]
    prediction = f" --predict {','.join(exercise.expected.values())}" if exercise.predict else ""
    assert f"```\nscripts/rung new mine --from {exercise.source}\n```" in page(number)
    assert f"```\nscripts/rung grade {number}{prediction}\n```" in page(number)


@pytest.mark.parametrize("number", EXERCISES)
def test_the_judge_says_of_an_answer_what_the_exercise_expects(verdicts, number):
    words, said = verdicts[number, "answer"]
    assert words == exercises.ALL[number].expected, said


@pytest.mark.parametrize("number", EXERCISES)
def test_the_judge_finds_a_wrong_answer(verdicts, number):
    words, said = verdicts[number, "wrong"]
    assert None not in words.values(), said
    assert words != exercises.ALL[number].expected, f"{wrong_answers.ALL[number].what}: {said}"
    print(f"{number}: {wrong_answers.ALL[number].what}: {', '.join(map(str, words.values()))}")
