# SPDX-License-Identifier: Apache-2.0
"""The public header is complete: each function and status is explained in it and used by a test.
And each source file names its licence."""
import pathlib
import re

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
HEADER = (ROOT / "lock/dlock.h").read_text()
FUNCTIONS = re.findall(r"^DLOCK_API\s[^;(]*?(\w+)\(", HEADER, re.M)
STATUSES = re.findall(r"^    X\((\w+), (?:true|false), \"", HEADER, re.M)
TESTS = "\n".join(path.read_text() for part in ("lock", "rung", "oracle")
                  for path in sorted((ROOT / "tests" / part).glob("test_*.c")))


def test_the_header_was_understood():
    assert len(FUNCTIONS) == HEADER.count("\nDLOCK_API ") > 25
    assert len(STATUSES) == 16 and STATUSES[0] == "OK"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_a_comment_above(name):
    """Above it, or above the group without a blank line that it stands in."""
    before = HEADER[:re.search(rf"^DLOCK_API\s[^;(]*?\b{name}\(", HEADER, re.M).start()]
    group = before.rpartition("\n\n")[2]
    assert "*/" in group, f"{name} has no comment above it"


@pytest.mark.parametrize("name", STATUSES)
def test_a_status_has_a_sentence_and_somebody_who_answers_it(name):
    assert len(re.search(rf'X\({name}, \w+, "(.*)"\)', HEADER).group(1)) >= 4
    comments = " ".join(re.findall(r"/\*.*?\*/", HEADER, re.S))
    assert re.search(rf"\b{name}\b", comments), f"no function says when it answers {name}"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_used_by_a_test(name):
    assert re.search(rf"\b{name}\(", TESTS), f"no test calls {name}"


@pytest.mark.parametrize("name", STATUSES)
def test_a_status_is_expected_by_a_test(name):
    assert re.search(rf"\bassert_status\([^;]*,\s*{name}\)|== DLOCK_{name}\b|"
                     rf"assert_int_equal\([^;]*DLOCK_{name}\b", TESTS), f"no test expects {name}"


def test_the_private_headers_are_not_needed():
    assert not re.search(r'#include "', HEADER)


def test_one_version():
    version = re.search(r'^#define DLOCK_VERSION "(.*?)"', HEADER, re.M).group(1)
    for lists in ("CMakeLists.txt", "lock/CMakeLists.txt"):
        assert re.search(r"^project\(\w+ VERSION ([\d.]+)", (ROOT / lists).read_text(), re.M).group(1) == version, lists


def test_every_source_names_its_licence():
    kinds = {".c", ".h", ".py", ".sh", ".cmake"}
    missing = []
    for part in ("lock", "base", "service", "audit", "tests", "bench", "scripts", "deploy", "jmeter", "examples"):
        for path in (ROOT / part).rglob("*"):
            if not path.is_file() or "__pycache__" in path.parts:
                continue
            text = path.read_bytes()[:200]
            if path.suffix in kinds or path.name == "CMakeLists.txt" or text.startswith(b"#!/"):
                if b"SPDX-License-Identifier: Apache-2.0" not in text:
                    missing.append(str(path.relative_to(ROOT)))
    assert missing == []
    assert (ROOT / "LICENSE").read_text().lstrip().startswith("Apache License")
