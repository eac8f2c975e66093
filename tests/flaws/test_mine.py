# SPDX-License-Identifier: Apache-2.0
"""A learner's own rung, in a clone of its own: begun, built, tried, and told where it fails first."""
import contextlib
import filecmp
import json
import os
import subprocess

import pytest

from rung import LIMIT_S

from clone import ROOT, copy_of_clone


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    return copy_of_clone(tmp_path_factory.mktemp("clone") / "clone")


def rung(clone, *words):
    environment = {name: value for name, value in os.environ.items() if name not in ("LADDER_BUILD", "LADDER_ROOT")}
    return subprocess.run([str(clone / "scripts" / "rung"), *words, "--runs", str(clone / "runs")], capture_output=True,
                          text=True, timeout=LIMIT_S, env=environment, check=False)


NEW = {"lock/rungs/mine.c", "lock/ladder.def", "docs/reference/rungs.json"}


def touched(clone):
    """The files that are not as in the tree that it was copied from."""
    files = {str(file.relative_to(clone)) for file in clone.rglob("*") if file.is_file()}
    made = ("build/", ".cache/", "runs/")
    return {name for name in files if not name.startswith(made) and "__pycache__" not in name
            and not ((ROOT / name).exists() and filecmp.cmp(clone / name, ROOT / name, shallow=False))}


@contextlib.contextmanager
def mistake(clone, right, wrong):
    """The learner's rung with something wrong in it."""
    file = clone / "lock" / "rungs" / "mine.c"
    code = file.read_text()
    assert right in code
    file.write_text(code.replace(right, wrong))
    try:
        yield
    finally:
        file.write_text(code)


def test_slips(clone):
    for name, says in (("Mine", "cannot be a rung's name"), ("2nd", "cannot be a rung's name"),
                       ("watchdog", "there is a rung"), ("oracle", "a scenario's name"), ("one_process", "a scenario's name"),
                       ("x" * 31, "at most 30")):
        done = rung(clone, "new", name)
        assert done.returncode == 2 and says in done.stderr, done.stderr
    done = rung(clone, "new", "fine", "--from", "nothing")
    assert done.returncode == 2 and '"nothing" is no rung' in done.stderr
    done = rung(clone, "check", "fine")
    assert done.returncode == 2 and '"fine" is no rung' in done.stderr


def test_a_copy_of_setnx_fails_where_setnx_does(clone):
    done = rung(clone, "new", "mine")
    assert done.returncode == 0, done.stderr
    assert "lock/rungs/mine.c" in done.stdout and "scripts/rung check mine" in done.stdout
    assert touched(clone) == NEW, "whatever else lists the rungs reads it from these"
    assert rung(clone, "new", "mine").returncode == 2
    done = rung(clone, "diff", "setnx", "mine")
    assert "\n0 lines change." in done.stdout
    done = rung(clone, "check", "mine")
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.startswith("OK        oracle\n")
    assert "mine first fails under killed_holding: " in done.stdout
    assert done.stdout.endswith("See it: scripts/rung run killed_holding mine\n")


def test_only_what_is_asked_for(clone):
    done = rung(clone, "check", "mine", "--scenarios", "killed_holding,two_instances")
    assert done.returncode == 1
    assert done.stdout.splitlines()[:3] == ["DEADLOCK  killed_holding", "OK        two_instances", ""]
    done = rung(clone, "check", "mine", "--scenarios", "two_instances,oracle")
    assert (done.returncode, done.stdout) == (
        0, "OK        oracle\nOK        two_instances\n\nmine survives what was asked for.\n"), done.stderr
    done = rung(clone, "check", "mine", "--scenarios", "two_instance")
    assert done.returncode == 2 and '"two_instance" is no scenario' in done.stderr


def test_a_rung_that_lets_everybody_in_fails_the_oracle(clone):
    with mistake(clone, "if (set.integer == 0)", "if (set.integer == 2)"):
        done = rung(clone, "check", "mine")
    assert done.returncode == 1
    assert "OVERLAP   oracle\n" in done.stdout and "mine first fails under oracle: " in done.stdout
    assert "OVERSOLD  two_instances" in done.stdout


def test_a_rung_that_does_not_compile_says_where(clone):
    with mistake(clone, "return DLOCK_BUSY;", "return DLOCK_BUSI;"):
        done = rung(clone, "check", "mine")
    assert done.returncode == 2
    assert "mine.c" in done.stderr and "DLOCK_BUSI" in done.stderr


def test_a_warning_is_printed_and_stops_nothing(clone):
    with mistake(clone, "    (void)busy;\n", ""):
        done = rung(clone, "check", "mine", "--scenarios", "two_instances")
    assert done.returncode == 0, done.stderr
    assert "lock/rungs/mine.c:" in done.stderr and "warning: unused parameter" in done.stderr


def test_a_run_of_ones_own_rung_says_nothing_of_the_table(clone):
    done = rung(clone, "run", "two_instances", "mine")
    assert done.returncode == 0 and "\nThe judge: " in done.stdout and "no cell" not in done.stdout, done.stdout + done.stderr


def test_a_prediction_is_judged(clone):
    done = rung(clone, "check", "mine", "--scenarios", "killed_holding,two_instances", "--predict", "deadlock,oversold")
    assert "\npredicted DEADLOCK, OVERSOLD: 1 of 2 right\n" in done.stdout, done.stdout + done.stderr
    done = rung(clone, "break", "setnx", "--predict", "OVERSOLD")
    assert "\npredicted OVERSOLD: wrong, it is DEADLOCK\n" in done.stdout, done.stdout + done.stderr
    for predicted, says in (("DEADLOK", '"DEADLOK" is no verdict; there are OK, '),
                            ("OK", "takes 2 verdicts, in this order: killed_holding, two_instances; it has 1")):
        done = rung(clone, "check", "mine", "--scenarios", "killed_holding,two_instances", "--predict", predicted)
        assert (done.returncode, done.stdout) == (2, "") and says in done.stderr


def test_an_answer_is_graded(clone):
    for words, says in ((["9.9"], 'there is no exercise "9.9"; they are 1.1, '),
                        (["3.1"], "asks for a prediction first: --predict WORD, for killed_holding"),
                        (["3.1", "yours"], "there is no rung yours yet: scripts/rung new yours --from setnx"),
                        (["3.1", "setnx"], "none of your own")):
        done = rung(clone, "grade", *words)
        assert (done.returncode, done.stdout) == (2, "") and says in done.stderr, done.stderr
    done = rung(clone, "grade", "3.1", "--predict", "UNDERSOLD")
    assert done.returncode == 2 and "mine is still what scripts/rung new made of setnx: change " in done.stderr
    with mistake(clone, "    point(env, \"acquired\");\n", "    point(env, \"acquired\"); /* mine */\n"):
        grade_it(clone)


def grade_it(clone):
    done = rung(clone, "grade", "3.1", "--predict", "UNDERSOLD")
    assert done.returncode == 1, done.stderr
    said = done.stdout.splitlines()
    assert said[0] == "DEADLOCK  killed_holding"
    assert said[2] == ("killed_holding: UNDERSOLD was expected, so DEADLOCK gets no point. "
                       "See it: scripts/rung run killed_holding mine")
    assert said[3] == "predicted UNDERSOLD: 1 of 1 are what a right answer gets" and said[4].startswith("exercise 3.1: 1 of 2 points; kept: ")
    assert len(said) == 5, "where its answer is, only a right one is told"
    done = rung(clone, "grade", "3.1", "--predict", "OK")
    assert done.returncode == 1 and "exercise 3.1: 0 of 2 points" in done.stdout
    answers, code = clone / "runs" / "answers", (clone / "lock" / "rungs" / "mine.c").read_text()
    result = json.loads((answers / "3.1.json").read_text())
    assert (result["points"], result["of"], result["tries"], result["predicted"], result["code"]) == (0, 2, 2, ["OK"], code)
    assert result["best"] == 1
    assert result["verdicts"] == [{"scenario": "killed_holding", "expected": "UNDERSOLD", "got": "DEADLOCK"}]
    assert (answers / "3.1.c").read_text() == code


def test_a_rung_that_crashes_is_not_ok(clone):
    with mistake(clone, "    point(env, \"before_release\");\n", "    *(volatile int *)hold->key[0] = 1;\n"):
        done = rung(clone, "check", "mine", "--scenarios", "two_instances")
    assert done.returncode == 1
    assert done.stdout.startswith("INCONCLUSIVE two_instances\n") and "OK " not in done.stdout
    assert "ended by itself, with SIGSEGV" in done.stderr


def test_a_right_answer_gets_all_points(clone):
    assert rung(clone, "new", "right", "--from", "none").returncode == 0
    file = clone / "lock" / "rungs" / "right.c"
    file.write_text(file.read_text().replace("(void)env, (void)hold, (void)busy;", "(void)env, (void)busy;\n"
                                             "    if (atomic_flag_test_and_set((atomic_flag *)hold->lock_state))\n"
                                             "        return DLOCK_BUSY;").replace(
        "(void)env, (void)hold;", "(void)env;\n    atomic_flag_clear((atomic_flag *)hold->lock_state);").replace(
        ".try_acquire", ".state_size = sizeof(atomic_flag),\n    .try_acquire"))
    done = rung(clone, "grade", "1.1", "right", "--predict", "OK,OVERSOLD")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "exercise 1.1: 3 of 3 points" in done.stdout
    assert done.stdout.endswith("\nCompare it with the book's answer: docs/answers/1.1.md\n")
    assert rung(clone, "drop", "right").returncode == 0


def test_it_goes_as_it_came(clone):
    files = [clone / "lock" / "ladder.def", clone / "docs" / "reference" / "rungs.json"]
    before = [file.read_text() for file in files]
    assert rung(clone, "new", "other", "--from", "owner_lua").returncode == 0
    done = rung(clone, "new", "other")
    assert done.returncode == 2 and "scripts/rung drop other" in done.stderr
    done = rung(clone, "drop", "other")
    assert (done.returncode, done.stdout) == (0, "taken away: lock/rungs/other.c; a copy is in runs/other.c\n"), done.stderr
    assert rung(clone, "new", "other").returncode == 0
    assert "a copy is in runs/other-2.c\n" in rung(clone, "drop", "other").stdout, "the first copy stays"
    assert [file.read_text() for file in files] == before and not (clone / "lock" / "rungs" / "other.c").exists()
    assert rung(clone, "drop", "mine").returncode == 0
    done = rung(clone, "check", "setnx", "--scenarios", "two_instances")
    assert done.returncode == 0, done.stderr  # it builds without them
    done = rung(clone, "drop", "setnx")
    assert done.returncode == 2 and "none of your own" in done.stderr
