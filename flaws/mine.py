# SPDX-License-Identifier: Apache-2.0
"""A rung of the learner's own: begun as a copy of another, entered into the ladder, and tried."""
import re

import ladder

NAME = re.compile(r"[a-z][a-z0-9_]{0,29}")
CARD = """/* SPDX-License-Identifier: Apache-2.0
 *
 * {name} -- a rung of your own, begun as {source}.
 * ADDS   say what it adds to {source}
 * FLAW   say what still breaks it: scripts/rung check {name} finds out
 * SHOW   scripts/rung check {name}
 * CURE   (yours)
 * NEXT   (yours)
 * COST   count its round trips
 */
"""
LADDER = ladder.ROOT / "lock" / "ladder.def"
OWN = "a rung of your own, begun as "
ORACLE = ladder.ROOT / "tests" / "oracle" / "test_oracle.c"


def problem_with(name):
    """Why a new rung cannot be called so, or ""."""
    if not NAME.fullmatch(name):
        return f'"{name}" cannot be a rung\'s name: a letter first, then a-z, 0-9 and _, at most 30 in all'
    if ladder.find(name):
        return f'there is a rung "{name}" already: take another name' + (
            f", or take it away first: scripts/rung drop {name}" if is_own(name) else "")
    if (ladder.ROOT / "lock" / "rungs" / f"{name}.c").exists():
        return f"lock/rungs/{name}.c is there already, though lock/ladder.def does not name it"
    return ""


def is_own(name):
    """Whether it was begun here, and is none of the ladder's."""
    return f'\nX({name}, FLAWED, "{OWN}' in LADDER.read_text(encoding="utf-8")


def append(file, line, behind):
    """The line into the file, behind the last line that begins so."""
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    last = max(number for number, text in enumerate(lines) if text.startswith(behind))
    if not lines[last].endswith("\n"):
        lines[last] += "\n"
    lines.insert(last + 1, line + "\n")
    file.write_text("".join(lines), encoding="utf-8")


def begin(name, source):
    """Writes the new rung's file and enters it where the ladder and the oracle are listed. The files."""
    code = source.text.partition("*/\n")[2]
    code = code.replace(f"rung_{source.name}", f"rung_{name}").replace(f'.name = "{source.name}"', f'.name = "{name}"')
    rung = ladder.ROOT / "lock" / "rungs" / f"{name}.c"
    rung.write_text(CARD.format(name=name, source=source.name) + code, encoding="utf-8")
    append(LADDER, f'X({name}, FLAWED, "{OWN}{source.name}", "to be found out")', "X(")
    append(ORACLE, f"RUNG({name}) PROCESSES(2, HOLDS) END", "RUNG(")
    return [rung, LADDER, ORACLE]


def drop(name):
    """Takes a rung of the learner's own away again. What was taken away, and where a copy of its code is."""
    for file, begins in ((LADDER, f"X({name},"), (ORACLE, f"RUNG({name})")):
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        file.write_text("".join(line for line in lines if not line.startswith(begins)), encoding="utf-8")
    rung, kept = ladder.ROOT / "lock" / "rungs" / f"{name}.c", ladder.ROOT / "runs" / f"{name}.c"
    kept.parent.mkdir(exist_ok=True)
    rung.replace(kept)
    return rung, kept
