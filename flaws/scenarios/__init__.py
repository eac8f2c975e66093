# SPDX-License-Identifier: Apache-2.0
"""The scenarios: what is done to a shop, or to another service, step by step. Each one is a column of the matrix and runs on every
rung; `shows` names the rungs whose flaw it is, each with the one that survives it; `limits` those that do no harm
under it and yet do worse than another. A scenario waits for causes alone, so its interleaving is the same every time.

a and b are instances of inventoryd with a buyer or two each, or of the other service with its clients. The test driver pauses them at named points of the code,
kills or freezes them, and lets them continue. a's lock lives for a short time, so
that it can expire on purpose; b's lives long, so that nothing else expires by chance."""
from ladder import SERVICES
from scenarios import (account, crashes, ensembles, expiry, fairness, menu, mutual_exclusion, policies, quorum, readers,
                       redis_faults, reentrancy, tasks, wake_ups)
from scenarios.scenario import Scenario

# In the order of the matrix and of docs/flaws.md.
GROUPS = (mutual_exclusion, crashes, expiry, fairness, reentrancy, readers, redis_faults, quorum, wake_ups, ensembles, policies,
          menu, account, tasks)
ALL = {name: found for group in GROUPS for name, found in vars(group).items() if isinstance(found, Scenario)}
ON_LADDER, OF_ENSEMBLES, OF_POLICIES = (
    {name: flaw for name, flaw in ALL.items() if flaw.of == of} for of in ("ladder", "ensembles", "policies"))
OF_SERVICES = {service: {name: flaw for name, flaw in ALL.items() if flaw.of == service} for service in SERVICES}


def demonstrations():
    """Each scenario with each rung that it is there for, once."""
    pairs = [(flaw, rung) for flaw in ALL.values() for rungs in flaw.cures.items() for rung in rungs if rung]
    return list(dict.fromkeys(pairs)) + [(flaw, on) for flaw in ALL.values() if not flaw.breaks for on in flaw.on]


def shown():
    """Every flaw and limit of the ladder's rungs wherever it shows: the scenario, the rung that has it, and the one that
    survives it, or None."""
    return [(flaw, breaks, cured) for flaw in ON_LADDER.values() for breaks, cured in flaw.cures.items()]
