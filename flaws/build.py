# SPDX-License-Identifier: Apache-2.0
"""Builds programs of this clone, one build at a time."""
import contextlib
import fcntl
import os
import pathlib
import re
import shutil
import subprocess
import sys

from waiting import end_in_order, run_unless_stopped, wait_until

ROOT = pathlib.Path(__file__).resolve().parent.parent
ERROR_LINES = 40


class Failed(Exception):
    """The programs cannot be had; the text says why. "": somebody else has told it."""


def make(preset, *targets, purpose="rung"):
    """Builds them, unless LADDER_BUILD says where they are; the build's folder. purpose: what scripts/setup installs
    first; None: nothing."""
    given = os.environ.get("LADDER_BUILD")
    build = pathlib.Path(given or ROOT / "build" / preset)
    if given or not (ROOT / "CMakeLists.txt").exists():
        return build
    if purpose:
        install(purpose)
    if not build.exists():
        print(f"building {', '.join(targets)}, once", file=sys.stderr, flush=True)
    build.parent.mkdir(exist_ok=True)
    with open(build.parent / ".rung.lock", "w", encoding="ascii") as one_at_a_time:
        wait_until(lambda: is_ours(one_at_a_time), "another build ends", float("inf"))
        for step in (["cmake", "--preset", preset], ["cmake", "--build", "--preset", preset, "--parallel", str(os.cpu_count() or 1), "--target", *targets]):
            done = run_unless_stopped(step, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            said = (done.stdout + done.stderr).replace(f"{ROOT}/", "").splitlines()
            if done.returncode != 0:
                raise Failed("the build failed; mend what it names, or take a rung of your own away (scripts/rung drop NAME):\n"
                             + "\n".join(errors_of(said)))
            for line in said:
                if re.search(r"rungs/\w+\.c:.* warning: ", line):  # a rung of one's own: the ladder's have none
                    print(line, file=sys.stderr)
    return build


def install(purpose):
    """What is missing; it may ask at the terminal."""
    setup = [str(ROOT / "scripts" / "setup"), "--for", purpose]
    if run_unless_stopped(setup, end_in_order, stdout=sys.stderr).returncode != 0:
        raise Failed("")


def find(build, *files):
    """Where the programs are: in the build's folder, or on PATH."""
    found = [build / file if (build / file).exists() else shutil.which(pathlib.Path(file).name) for file in files]
    if None in found:
        names = " and ".join(pathlib.Path(file).name for file in files)
        raise Failed(f"{names} are neither in {build} nor on PATH: build them first")
    return found


def is_ours(file):
    """Whether it is locked for us now."""
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def errors_of(said):
    """What a compiler said of its first errors, without what make says; else the end of it all."""
    lines = [line for line in said if not re.match(r"(g?make|ninja)\b|\[ *\d+%\]", line)]
    first = next((number for number, line in enumerate(lines) if "error:" in line), None)
    return lines[-ERROR_LINES:] if first is None else lines[first:first + ERROR_LINES]
