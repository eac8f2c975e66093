# SPDX-License-Identifier: Apache-2.0
"""scripts/lint finds one mistake of each kind, in a copy of the project."""
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEPT = ("audit/text.c", "audit/text.h", "README.md", "docs/glossary.md", "scripts/lib/ask.sh", "flaws/named.py")


def run(place, *command):
    return subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)


@pytest.fixture(name="copy", scope="module")
def copy_fixture(tmp_path_factory):
    """All files are there, and few are the project's: those that are looked at."""
    if not shutil.which("git"):
        pytest.skip("needs git, to know which files are the project's")
    copy = tmp_path_factory.mktemp("lint") / "copy"
    subprocess.run(["git", "clone", "-q", ROOT, copy], check=True)
    for name in run(ROOT, "git", "ls-files", "--modified", "--others", "--exclude-standard").stdout.splitlines():
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    run(copy, "git", "rm", "-q", "-r", "--cached", ".")
    run(copy, "git", "add", *(name for name in KEPT if (copy / name).exists()))
    return copy


def lint(copy, check):
    return run(copy, "scripts/lint", "--only", check)


@pytest.mark.parametrize("check,name,mistake,says", [
    ("format", "audit/text.c", "static  int spaces;\n", "static int spaces;"),
    ("columns", "audit/text.c", "/* " + 100 * "x" + " */\n", "106 columns; 100 is the most"),
    ("columns", "scripts/lib/ask.sh", "# " + 120 * "x" + "\n", "122 columns; 120 is the most"),
    ("tidy", "audit/text.c", "int f(int *p);\nint f(int *p) { return p != 0 ? 1 : *p; }\n", "null pointer"),
    ("python", "flaws/named.py", "import zlib\n", "'zlib' imported but unused"),
    ("shell", "scripts/lib/ask.sh", "echo $1\n", "SC2086"),
    ("links", "README.md", "\n[nowhere](docs/nowhere.md)\n", "there is no docs/nowhere.md"),
    ("words", "README.md", "\n" + 15 * "two words " + "and a sentence that is too long.\n", "37 words; 30 are the most"),
    ("words", "audit/text.h", "/* " + 31 * "x " + "*/\n", "31 words; 30 are the most"),
    ("words", "audit/text.h", "/* OK  it is\n *     " + 29 * "x " + "*/\n", "31 words; 30 are the most"),
    ("links", "README.md", "\n[no heading](#of-no-such-name)\n", "has no heading #of-no-such-name"),
])
def test_finds(copy, check, name, mistake, says):
    before = (copy / name).read_text()
    clean = lint(copy, check)
    assert clean.returncode == 0
    if clean.stdout.endswith("1 skipped\n"):
        pytest.skip(clean.stderr.strip())
    (copy / name).write_text(before + mistake)
    found = lint(copy, check)
    (copy / name).write_text(before)
    assert found.returncode == 1 and says in found.stdout + found.stderr, found
    assert found.stdout.endswith("0 passed, 1 failed, 0 skipped\n")


def test_a_check_that_it_does_not_know(copy):
    wrong = lint(copy, "taste")
    assert wrong.returncode == 2 and "format columns tidy python shell links words" in wrong.stderr


def test_format_writes_what_lint_asks_for(copy):
    if lint(copy, "format").stdout.endswith("1 skipped\n"):
        pytest.skip("needs clang-format 14")
    before = (copy / "audit/text.c").read_text()
    (copy / "audit/text.c").write_text(before + "static  int spaces;\n")
    assert run(copy, "scripts/format", "audit/text.c").returncode == 0
    assert (copy / "audit/text.c").read_text() == before + "static int spaces;\n"
    assert "no C file" in run(copy, "scripts/format", "README.md").stderr
    (copy / "audit/text.c").write_text(before)
