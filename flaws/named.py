# SPDX-License-Identifier: Apache-2.0
"""What is asked for by name, on the command line and in the book: a rung, a schedule, a demonstration."""
import ladder
from schedules import ALL, shown


class Unknown(Exception):
    """Nothing is called so. Says what there is."""


def rung(name):
    found = ladder.find(name)
    if found is None:
        raise Unknown(f'"{name}" is no rung; the rungs are {", ".join(rung.name for rung in ladder.rungs())}')
    return found


def flaw(name):
    """The demonstration of that name, or the first that shows what breaks the rung of that name."""
    if name in ALL:
        return ALL[name]
    flaws = [flaw for flaw in ALL.values() if name in flaw.shows]
    if not flaws:
        known = sorted({name for _, name, _ in shown()}, key=[r.name for r in ladder.rungs()].index)
        raise Unknown(f'"{name}" is nothing to break; there are the rungs {", ".join(known)} '
                      f'and the demonstrations {", ".join(ALL)}')
    return flaws[0]


def demonstration(verb, name, on=None):
    """The schedule and the rung of `break NAME`, `cure NAME` or `run NAME RUNG`."""
    found = flaw(name)
    if verb == "run":
        return found, rung(on)
    breaks = name if name in found.shows else found.breaks
    where = breaks if verb == "break" else found.shows.get(breaks)
    if where is None:
        raise Unknown(f"{found.name} has no rung that {'it breaks' if verb == 'break' else 'survives it'} yet")
    return found, rung(where)
