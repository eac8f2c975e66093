# SPDX-License-Identifier: Apache-2.0
"""One scenario: a recorded interleaving, with the rungs whose flaw it shows."""
from ladder import SERVICES


class Scenario:
    def __init__(self, run, title, shows, keeps, limits, on, of="ladder", breaks_as=None, cured_as="ok", **settings):
        """on: the rungs of its demonstration, where none breaks. of: what it can happen to, the ladder's rungs, or some
        of "ensembles", "policies" or a service beside the shop alone. breaks_as, cured_as: the verdicts, where no table
        says them."""
        self.run, self.name, self.title = run, run.__name__, title
        self.of, self.breaks_as, self.cured_as = of, breaks_as, cured_as
        self.shows, self.keeps, self.limits, self.on = shows, keeps, limits, on
        self.settings = settings  # of the stage: write, stock; of another service's, fault and its settings

    @property
    def service(self):
        """The service beside the shop that it can happen to, or None."""
        return self.of if self.of in SERVICES else None

    def fits(self, rung):
        """Whether it can happen to that rung. An ensemble is written to fenced where it cures."""
        if self.of != "ladder":
            return rung.name in {*self.on, *self.cures, *self.cures.values()}
        return not rung.ensemble and not rung.is_policy

    def expected(self, rung):
        """The verdicts on that rung, where no table says them; None: it does."""
        known = self.of == "policies" or self.service
        return [self.breaks_as if rung.name in self.shows else self.cured_as] if known else None

    @property
    def cures(self):
        """By the rung that has the flaw or the limit: the one that has it no more, or None."""
        return {**self.shows, **self.limits}

    @property
    def breaks(self):
        """The first rung whose flaw or limit it is, or None."""
        return next(iter(self.cures), None)

    @property
    def cured(self):
        """The rung that survives what breaks the first one; None: none does yet."""
        return self.cures.get(self.breaks)


def scenario(title, shows, keeps, limits=None, on="watchdog", **settings):
    """Makes a function the scenario of its name. shows: the rungs whose flaw it is, each with the one that survives
    it, or None; limits: the same for what does no harm. keeps: what holds on the cure; where no rung breaks, on this
    one."""
    return lambda run: Scenario(run, title, shows, keeps, limits or {}, (on,), **settings)


def of_ensembles(title, keeps, fenced=False, limits=None, **settings):
    """The same for what can happen to the servers of an ensemble alone. fenced: what it breaks, a write that compares
    tokens survives."""
    rungs = "zookeeper", "etcd"
    shows = {rung: f"{rung}_fenced" for rung in rungs} if fenced else {}
    return lambda run: Scenario(run, title, shows, keeps, limits or {}, rungs, of="ensembles", **settings)


def of_policies(title, keeps, shows=None, limits=None, **settings):
    """The same for a policy of the shop. shows, limits: the naive policies, each with the one that survives."""
    return lambda run: Scenario(run, title, shows or {}, keeps, limits or {}, (), of="policies", **settings)


def of_service(service, title, keeps, shows, breaks_as, **settings):
    """The same for a service beside the shop. shows: the rungs, or its ways to use them, each with the one that survives."""
    return lambda run: Scenario(run, title, shows, keeps, {}, (), of=service, breaks_as=breaks_as, **settings)
