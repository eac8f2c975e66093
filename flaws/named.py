# SPDX-License-Identifier: Apache-2.0
"""What is asked for by name, on the command line and in the book: a rung, a scenario."""
import difflib

import ladder
from scenarios import ALL, shown


class Unknown(Exception):
    """Nothing is called so. Says what there is."""


def meant(name, known):
    """The question whether the likeliest of the known names was meant, or ""."""
    return "".join(f" Did you mean {close}?" for close in difflib.get_close_matches(name, known, 1))


def on_stage(name):
    """A rung that scenarios run on: of an ensemble or with a policy, too."""
    return next((found for found in [*ladder.ensembles(), *ladder.policies()] if found.name == name), None) or rung(name)


def rung(name):
    found = ladder.find(name)
    if name in [one.name for one in ladder.ensembles()]:
        raise Unknown(f'"{name}" is no file of lock/rungs: its engine is. scripts/rung run SCENARIO {name} shows it with servers of '
                      f'its own, under {", ".join(flaw.name for flaw in ALL.values() if flaw.of == "ensembles")}')
    policy = next((one for one in ladder.policies() if one.name == name), None)
    if policy:
        kind = f"a way to use {policy.lock.name} for the service {policy.service}" if policy.service else "a policy of the shop"
        raise Unknown(f'"{name}" is no rung, but {kind}. scripts/rung run SCENARIO {name} shows it, under '
                      f'{", ".join(flaw.name for flaw in ALL.values() if name in {*flaw.cures, *flaw.cures.values()})}')
    if found is None:
        known = [rung.name for rung in ladder.rungs()]
        raise Unknown(f'"{name}" is no rung.{meant(name, known)} The rungs are {", ".join(known)}')
    return found


def alone(name):
    """A rung that is a file of its own, to begin another from or to diff."""
    found = rung(name)
    if found.write:
        raise Unknown(f'"{name}" is {found.lock.name} with --write {name}, not a rung of its own: take {found.lock.name}')
    return found


def why_not(rung, write):
    """Why that rung cannot be written so, or ""."""
    if rung.write and write not in (None, rung.write):
        return f'"{rung.name}" is {rung.lock.name} with --write {rung.write}: leave --write {write} out, or take {rung.lock.name}'
    if write in ladder.fences() and not rung.tokens:
        giving = ", ".join(one.name for one in ladder.rungs() if one.tokens and not one.write)
        return f"--write {write} needs a rung that gives tokens; {rung.name} gives none, these do: {giving}"
    return ""


def write_of(rung, asked):
    """The way to write: the rung's own, or what was asked for; None: nobody says."""
    if why_not(rung, asked):
        raise Unknown(why_not(rung, asked))
    return rung.write or asked


def flaw(name):
    """The scenario of that name, or the first that shows what breaks the rung of that name."""
    if name in ALL:
        return ALL[name]
    flaws = [flaw for flaw in ALL.values() if name in flaw.cures]
    if not flaws:
        known = sorted({name for _, name, _ in shown()}, key=[r.name for r in ladder.rungs()].index)
        raise Unknown(f'"{name}" is no scenario, and no rung that a scenario breaks.{meant(name, [*ALL, *known])} '
                      f'The scenarios are {", ".join(ALL)}; the rungs are {", ".join(known)}')
    return flaws[0]


def demonstration(verb, name, on=None):
    """The scenario and the rung of `break NAME`, `cure NAME` or `run NAME RUNG`."""
    found = flaw(name)
    if verb == "run":
        if not found.fits(on_stage(on)):
            fit = [one.name for one in ladder.all_on_stage() if found.fits(one)]
            raise Unknown(f"{found.name} cannot happen to {on}, but to {', '.join(fit)}")
        return found, on_stage(on)
    breaks = name if name in found.cures else found.breaks
    where = breaks if verb == "break" else found.cures.get(breaks)
    if where is None:
        shows = f"cures {found.name}" if found.breaks else f"is known to break under {found.name}"
        raise Unknown(f"no rung of the ladder {shows}; scripts/rung run {found.name} RUNG tries one")
    return found, on_stage(where)
