# SPDX-License-Identifier: Apache-2.0
"""scripts/test and .ci/run, on a project of one file: do they count rightly, and end rightly?"""
import os
import shutil
import signal
import subprocess

import pytest

from place import ROOT, SCRIPTS, wait_until

TESTS = """
cmake_minimum_required(VERSION 3.25)
project(small NONE)
enable_testing()
add_test(NAME good COMMAND true)
add_test(NAME bad COMMAND false)
add_test(NAME skipped COMMAND sh -c "echo 'SKIPPED: needs <all> & more'; exit 77")
set_tests_properties(skipped PROPERTIES SKIP_RETURN_CODE 77)
add_test(NAME silent COMMAND sh -c "exit 77")
set_tests_properties(silent PROPERTIES SKIP_RETURN_CODE 77)
add_test(NAME partly COMMAND sh -c "echo 'SKIPPED: one: needs a'; echo '2 passed'; echo 'SKIPPED: other: needs b'")
add_test(NAME missing COMMAND no-such-program)
add_test(NAME whole COMMAND true)
set_tests_properties(whole PROPERTIES LABELS e2e)
add_test(NAME long COMMAND sleep 600)
"""
PRESETS = """
{"version": 4, "configurePresets": [
  {"name": "base", "hidden": true, "binaryDir": "${sourceDir}/build/${presetName}"},
  {"name": "dev", "inherits": "base"}, {"name": "asan", "inherits": "base"},
  {"name": "tsan", "inherits": "base"}],
 "buildPresets": [{"name": "dev", "configurePreset": "dev"},
  {"name": "asan", "configurePreset": "asan"}, {"name": "tsan", "configurePreset": "tsan"}]}
"""


@pytest.fixture
def small(place):
    """The project of one file, with the real scripts."""
    root = place.folder / "small"
    shutil.copytree(SCRIPTS, root / "scripts")
    shutil.copytree(ROOT / "jmeter", root / "jmeter")
    (root / "CMakeLists.txt").write_text(TESTS)
    (root / "CMakePresets.json").write_text(PRESETS)
    place.environment.setdefault("LADDER_CACHE", str(ROOT / ".cache"))
    return root


def test_it_sums_over_the_presets(place, small):
    run = place.run(small / "scripts" / "test", "--only", "good|bad|skipped|missing|whole")
    assert run.code == 1, run
    *told, last = run.out.splitlines()
    assert last == "4 passed, 6 failed, 3 skipped"  # whole is for dev alone
    told_of = {"failed": ["bad", "missing"], "skipped": ["skipped: needs <all> & more"]}
    assert sorted(told) == sorted(f"{word}: {preset}: {name}" for preset in ("dev", "asan", "tsan")
                                  for word, names in told_of.items() for name in names)


@pytest.mark.parametrize("options, code", [([], 0), (["--skips-fail"], 1)])
def test_what_was_skipped_is_told_with_its_reason_and_fails_where_asked_for(place, small, options, code):
    run = place.run(small / "scripts" / "test", "--only", "good|silent|partly|skipped", "--preset", "dev", *options)
    assert run.code == code, run
    assert run.out.splitlines() == [
        "skipped: dev: skipped: needs <all> & more", "skipped: dev: silent: it does not say why",
        "skipped: dev: partly: one: needs a", "skipped: dev: partly: other: needs b",
        "2 passed, 0 failed, 4 skipped"]


def test_python_tells_what_it_skips(tmp_path):
    """As tests/conftest.py has it; a file of which nothing is left has not passed."""
    for name, more in (("some", "def test_good():\n    pass\n"), ("none", "")):
        file = tmp_path / f"test_{name}.py"
        file.write_text(f"import pytest\ndef test_bad():\n    pytest.skip('needs more')\n{more}")
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    for name, code in (("some", 0), ("none", 77)):
        done = subprocess.run(["/usr/bin/python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", f"test_{name}.py"],
                              cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout
        assert "\nSKIPPED: test_bad: needs more\n" in done.stdout


def test_all_passed_is_0(place, small):
    run = place.run(small / "scripts" / "test", "--only", "good|whole", "--preset", "dev",
                    "--preset=tsan")
    assert run.code == 0, run
    assert run.out == "3 passed, 0 failed, 0 skipped\n"


def test_a_build_that_fails_is_counted_and_told(place, small):
    with open(small / "CMakeLists.txt", "a", encoding="utf-8") as file:
        file.write('if(CMAKE_BINARY_DIR MATCHES "asan")\n'
                   '  message(FATAL_ERROR "no asan today")\nendif()\n')
    run = place.run(small / "scripts" / "test", "--only", "good")
    assert run.code == 1, run
    assert run.out.splitlines()[-1] == "2 passed, 1 failed, 0 skipped"
    assert "no asan today" in run.err


def test_a_sanitizer_that_cannot_start_here_is_a_skip(place, small):
    stubs = place.folder / "stubs"
    stubs.mkdir()
    for name, code in (("setarch", "exit 1"), ("cc", 'printf "#!/bin/sh\\nexit 66\\n" >"$3"; chmod +x "$3"')):
        (stubs / name).write_text(f"#!/bin/sh\n{code}\n")
        (stubs / name).chmod(0o755)
    run = place.run(small / "scripts" / "test", "--only", "good", PATH=f"{stubs}:{os.environ['PATH']}")
    assert run.code == 0, run
    *told, last = run.out.splitlines()
    assert last == "1 passed, 0 failed, 2 skipped"
    assert [line.split(": needs setarch")[0] for line in told] == ["skipped: asan: all of it", "skipped: tsan: all of it"]


@pytest.mark.parametrize("words, told", [
    (["--only", "no-such-test"], "no name matches"),
    (["--preset", "release"], "it must be one of: dev asan tsan"),
    (["dev"], "--preset"),
])
def test_what_cannot_be_run_is_told(place, small, words, told):
    run = place.run(small / "scripts" / "test", *words)
    assert run.code == 2, run
    assert told in run.err


def test_a_signal_ends_the_tests_too(place, small):
    run = place.start(small / "scripts" / "test", "--only", "long", "--preset", "dev")
    wait_until(lambda: any(words.endswith("sleep 600 ") for words in place.processes().values()),
               "the test runs")
    os.kill(run.process.pid, signal.SIGTERM)
    assert run.finish().code == 143, run
    assert not place.processes()


@pytest.mark.parametrize("failing, code", [
    (None, 0), ("scripts/setup", 1), ("scripts/lint", 1), ("scripts/test", 2), ("tests/compose/run", 1)])
def test_ci_runs_all_parts_and_fails_with_any(place, failing, code):
    root = place.folder / "ci"
    for path in ("scripts/setup", "scripts/lint", "scripts/test", "tests/compose/run"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(
            f'#!/bin/sh\necho "$PWD/{path}" "$@" >>ran\nexit {code if path == failing else 0}\n')
        (root / path).chmod(0o755)
    shutil.copytree(ROOT / ".ci", root / ".ci")
    run = subprocess.run([root / ".ci" / "run"], capture_output=True, text=True)
    assert run.returncode == min(code, 1), run
    assert (root / "ran").read_text().splitlines() == [
        f"{root}/scripts/setup --for test", f"{root}/scripts/lint --skips-fail",
        f"{root}/scripts/test --skips-fail", f"{root}/tests/compose/run"]
    assert ("passed after" in run.stdout) == (failing is None)
