"""Playing everybody on every instance, auditing them, and the table that comes of it.

Federated plans meet the same users. An agent that meets all users one by one meets as many of the same kind: the same
law and the same theta*, but not the very same people. Regret is per user and in units of chance: 1 is an action taken
at random, 0 the best one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedbandit._arrays import Floats
from fedbandit._validate import ArgumentError
from fedbandit.audit.report import audit
from fedbandit.comparison.entrants import TRUSTED, Entrant, asked_plan
from fedbandit.comparison.instances import Instance
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.simulator.engine import Progress
from fedbandit.simulator.result import Estimate, estimate
from fedbandit.simulator.runner import simulate

__all__ = ["Outcome", "contest"]

NOTHING_SENT = "-"


@dataclass(frozen=True)
class Outcome:
    """What came of one entrant."""

    name: str
    trusts: str  # whom its users have to trust
    promise: str
    verdict: str  # of the audit
    epsilon_lower: float | None
    regret: dict[str, Estimate]  # by instance, per user and in units of chance
    left_out: dict[str, str]  # by instance, why it did not take part

    def as_dict(self) -> dict[str, Any]:
        """The outcome as plain data."""
        return {
            "name": self.name,
            "trusts": self.trusts,
            "promise": self.promise,
            "audit": {"verdict": self.verdict, "epsilon_lower": self.epsilon_lower},
            "regret": {name: one._asdict() for name, one in self.regret.items()},
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
) -> list[Outcome]:
    """Everybody on every instance, and an audit of each with so many trials."""
    regrets: dict[str, dict[str, Estimate]] = {entrant.name: {} for entrant in entrants}
    left_out: dict[str, dict[str, str]] = {entrant.name: {} for entrant in entrants}
    work, done = len(instances) + 1, 0
    for instance in instances:
        asked = asked_plan(instance.silos, instance.rounds, instance.task.dim, privacy)
        plans: dict[str, Plan] = {}
        for entrant in entrants:
            try:
                plans[entrant.name] = entrant.plan(asked)
            except ArgumentError as error:
                left_out[entrant.name][instance.name] = str(error)
        for name, values in _played(instance, plans, runs, seed, _part(progress, done / work, 1 / work)).items():
            regrets[name][instance.name] = estimate(values)
        done += 1
    first = instances[0]
    asked = asked_plan(first.silos, first.rounds, first.task.dim, privacy)
    outcomes = []
    for number, entrant in enumerate(entrants, 1):
        outcomes.append(_outcome(entrant, asked, trials, seed, regrets[entrant.name], left_out[entrant.name]))
        progress((done + number / len(entrants)) / work)
    return outcomes


def _played(instance: Instance, plans: dict[str, Plan], runs: int, seed: int, progress: Progress) -> dict[str, Floats]:
    """Regret per user in units of chance, run by run: federated plans together, and those of agents alone together."""
    chance, found = instance.chance(seed), {}
    groups = {
        silos: {name: plan for name, plan in plans.items() if plan.silos == silos} for silos in (instance.silos, 1)
    }
    for number, (silos, group) in enumerate(groups.items()):
        if group:
            share = _part(progress, number / len(groups), 1 / len(groups))
            result = simulate(instance.task, group, runs, seed, progress=share)
            found |= {name: np.asarray(result.final(name) / silos / chance) for name in group}
    return found


def _outcome(
    entrant: Entrant, asked: Plan, trials: int, seed: int, regret: dict[str, Estimate], left_out: dict[str, str]
) -> Outcome:
    plan = entrant.plan(asked)
    verdict, lower = NOTHING_SENT, None
    if entrant.case is not None:
        report = audit(entrant.case(asked), trials, seed, progress=lambda share: None)
        verdict, lower = report.verdict, report.epsilon_lower
    promise = plan.guarantee.pair if plan.guarantee.promised else "none"
    return Outcome(entrant.name, TRUSTED[plan.trusting.faith], promise, verdict, lower, regret, left_out)


def _part(progress: Progress, before: float, share: float) -> Callable[[float], None]:
    return lambda done: progress(before + share * done)
