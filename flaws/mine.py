# SPDX-License-Identifier: Apache-2.0
"""A rung of the learner's own: begun as a copy of another, entered into the ladder, and tried."""
import itertools
import re

import ladder
from scenarios import ALL

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


def problem_with(name):
    """Why a new rung cannot be called so, or ""."""
    if not NAME.fullmatch(name):
        return f'"{name}" cannot be a rung\'s name: a lower-case letter first, then a-z, 0-9 and _, at most 30 in all'
    if name == "oracle" or name in ALL:
        return f'"{name}" is a scenario\'s name: take another'
    if ladder.find(name) or name in [rung.name for rung in ladder.others()]:
        return f'there is a rung "{name}" already: take another name' + (
            f", or take it away first: scripts/rung drop {name}" if is_own(name) else "")
    if (ladder.ROOT / "lock" / "rungs" / f"{name}.c").exists():
        return f"lock/rungs/{name}.c is there already, though lock/ladder.def does not name it"
    return ""


def is_own(name):
    """Whether it was begun here, and is none of the ladder's."""
    return any(one["name"] == name and one["adds"].startswith(OWN) for one in ladder.said()["rungs"])


def begin(name, source):
    """Writes the new rung's file and enters it where the ladder is listed. The files."""
    code = source.text.partition("*/\n")[2]
    code = code.replace(f"rung_{source.name}", f"rung_{name}").replace(f'.name = "{source.name}"', f'.name = "{name}"')
    rung = ladder.ROOT / "lock" / "rungs" / f"{name}.c"
    rung.write_text(CARD.format(name=name, source=source.name) + code, encoding="utf-8")
    adds, flaw = OWN + source.name, "to be found out"
    with LADDER.open("a", encoding="utf-8") as file:
        file.write(f'X({name}, FLAWED, "{adds}", "{flaw}")\n')
    said = ladder.said()
    said["rungs"].append({"name": name, "flawed": True, "adds": adds, "flaw": flaw, **source.traits, "engine": source.engine})
    ladder.LADDER.write_text(ladder.as_lines(said), encoding="utf-8")
    return [rung, LADDER, ladder.LADDER]


def drop(name):
    """Takes a rung of the learner's own away again. What was taken away, and where a copy of its code is."""
    lines = LADDER.read_text(encoding="utf-8").splitlines(keepends=True)
    LADDER.write_text("".join(line for line in lines if not line.startswith(f"X({name},")), encoding="utf-8")
    said = ladder.said()
    said["rungs"] = [one for one in said["rungs"] if one["name"] != name]
    ladder.LADDER.write_text(ladder.as_lines(said), encoding="utf-8")
    rung, runs = ladder.ROOT / "lock" / "rungs" / f"{name}.c", ladder.ROOT / "runs"
    runs.mkdir(exist_ok=True)
    copies = (runs / f"{name}{f'-{number}' if number > 1 else ''}.c" for number in itertools.count(1))
    kept = next(copy for copy in copies if not copy.exists())
    rung.replace(kept)
    return rung, kept
