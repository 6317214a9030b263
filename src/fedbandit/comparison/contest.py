"""Plays every entrant on every instance, audits it, and returns the table of results.

All federated plans meet the same users. An agent that meets its users one by one meets equally many users with the
same law and the same theta*, but not the same people. Regret is per user and in units of chance: 1 is the regret of
random actions, 0 that of the best ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fedbandit._validate import ArgumentError
from fedbandit.audit.report import audit
from fedbandit.comparison.entrants import TRUSTED, Entrant, asked_plan
from fedbandit.comparison.instances import Instance
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.protocol.trust import Faith
from fedbandit.simulator.engine import Progress
from fedbandit.simulator.result import Estimate, estimate
from fedbandit.simulator.runner import simulate

__all__ = ["NO_PROMISE", "Standing", "contest"]

NOTHING_SENT = "-"
NO_PROMISE = "none"


@dataclass(frozen=True)
class Standing:
    """The results of one entrant."""

    name: str
    trusts: str  # whom its users have to trust
    promise: str
    verdict: str  # of the audit
    epsilon_lower: float | None
    regret: dict[str, Estimate]  # by instance, per user and in units of chance
    syncs: dict[str, float]  # by instance, mean over runs; counts single uploads where silos upload one at a time
    left_out: dict[str, str]  # by instance, the reason why it did not take part

    def as_dict(self) -> dict[str, Any]:
        """The results as plain data."""
        return {
            "name": self.name,
            "trusts": self.trusts,
            "promise": self.promise,
            "audit": {"verdict": self.verdict, "epsilon_lower": self.epsilon_lower},
            "regret": {name: one._asdict() for name, one in self.regret.items()},
            "syncs": self.syncs,
            "left_out": self.left_out,
        }


def contest(
    entrants: Sequence[Entrant],
    instances: Sequence[Instance],
    privacy: Privacy,
    runs: int,
    seed: int,
    trials: int,
    progress: Progress = lambda share: None,
) -> list[Standing]:
    """Play every entrant on every instance, and audit each with this number of trials."""
    played: dict[str, dict[str, _Played]] = {entrant.name: {} for entrant in entrants}
    left_out: dict[str, dict[str, str]] = {entrant.name: {} for entrant in entrants}
    share = 1 / (len(instances) + 1)  # of the work: one per instance, and the last for all audits
    for number, instance in enumerate(instances):
        plans: dict[str, Plan] = {}
        for entrant in entrants:
            try:
                plans[entrant.name] = entrant.plan(_asked(instance, privacy))
            except ArgumentError as error:
                left_out[entrant.name][instance.name] = str(error)
        for name, found in _play(instance, plans, runs, seed, _part(progress, number * share, share)).items():
            played[name][instance.name] = found
    outcomes = []
    for number, entrant in enumerate(entrants):
        name, asked = entrant.name, _asked(instances[0], privacy)
        outcomes.append(_outcome(entrant, asked, trials, seed, played[name], left_out[name]))
        progress(1 - share + share * (number + 1) / len(entrants))
    return outcomes


class _Played(NamedTuple):
    regret: Estimate
    syncs: float


def _asked(instance: Instance, privacy: Privacy) -> Plan:
    return asked_plan(instance.silos, instance.rounds, instance.task.dim, privacy)


def _play(instance: Instance, plans: dict[str, Plan], runs: int, seed: int, progress: Progress) -> dict[str, _Played]:
    """Simulate all federated plans together, then all plans of a single agent together."""
    chance, found = instance.chance(seed), {}
    for half, silos in enumerate((instance.silos, 1)):
        group = {name: plan for name, plan in plans.items() if plan.silos == silos}
        if group:
            result = simulate(instance.task, group, runs, seed, progress=_part(progress, half / 2, 1 / 2))
            for name in group:
                regret = np.asarray(result.final(name) / silos / chance)
                found[name] = _Played(estimate(regret), result.syncs(name))
    return found


def _outcome(
    entrant: Entrant, asked: Plan, trials: int, seed: int, played: dict[str, _Played], left_out: dict[str, str]
) -> Standing:
    verdict, lower = NOTHING_SENT, None
    if entrant.case is not None:
        report = audit(entrant.case(asked), trials, seed, progress=lambda share: None)
        verdict, lower = report.verdict, report.epsilon_lower
    plan = entrant.plan(asked)
    return Standing(
        entrant.name,
        TRUSTED[Faith.OWN_SILO if entrant.case is None else plan.trusting.faith],
        plan.guarantee.pair if plan.guarantee.promised else NO_PROMISE,
        verdict,
        lower,
        {instance: found.regret for instance, found in played.items()},
        {instance: found.syncs for instance, found in played.items()},
        left_out,
    )


def _part(progress: Progress, before: float, share: float) -> Callable[[float], None]:
    return lambda done: progress(before + share * done)
