# SPDX-License-Identifier: Apache-2.0
"""A learner's own rung, in a clone of its own: begun, built, tried, and told where it fails first."""
import contextlib
import filecmp
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
                       ("watchdog", "there is a rung"), ("x" * 31, "at most 30")):
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
    done = rung(clone, "check", "mine", "--flaws", "killed_holding,two_instances")
    assert done.returncode == 1
    assert done.stdout.splitlines()[:3] == ["DEADLOCK  killed_holding", "OK        two_instances", ""]
    done = rung(clone, "check", "mine", "--flaws", "two_instances,oracle")
    assert (done.returncode, done.stdout) == (
        0, "OK        oracle\nOK        two_instances\n\nmine survives what was asked for.\n"), done.stderr
    done = rung(clone, "check", "mine", "--flaws", "two_instance")
    assert done.returncode == 2 and '"two_instance" is nothing to break' in done.stderr


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


def test_it_goes_as_it_came(clone):
    files = [clone / "lock" / "ladder.def", clone / "docs" / "reference" / "rungs.json"]
    before = [file.read_text() for file in files]
    assert rung(clone, "new", "other", "--from", "owner_lua").returncode == 0
    done = rung(clone, "new", "other")
    assert done.returncode == 2 and "scripts/rung drop other" in done.stderr
    done = rung(clone, "drop", "other")
    assert (done.returncode, done.stdout) == (0, "taken away: lock/rungs/other.c; a copy is in runs/other.c\n"), done.stderr
    assert [file.read_text() for file in files] == before and not (clone / "lock" / "rungs" / "other.c").exists()
    assert rung(clone, "drop", "mine").returncode == 0
    done = rung(clone, "check", "setnx", "--flaws", "two_instances")
    assert done.returncode == 0, done.stderr  # it builds without them
    done = rung(clone, "drop", "setnx")
    assert done.returncode == 2 and "none of your own" in done.stderr
