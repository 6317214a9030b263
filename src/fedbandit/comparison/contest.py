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
from fedbandit.comparison.own_file import FIELD, brought
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.protocol.trust import Faith
from fedbandit.simulator.engine import Progress
from fedbandit.simulator.result import Estimate, estimate
from fedbandit.simulator.runner import simulate

__all__ = ["Standing", "contest"]

NOTHING_SENT = "-"
NO_PROMISE = "none"
BROKEN = "broken"


@dataclass(frozen=True)
class Standing:
    """The results of one entrant."""

    name: str
    trusts: str  # whom its users have to trust
    promise: str  # NO_PROMISE where, in some instance, it is less than was asked for
    verdict: str  # of the audit
    epsilon_lower: float | None
    regret: dict[str, Estimate]  # by instance, per user and in units of chance
    syncs: dict[str, float]  # by instance, mean over runs; counts single uploads where silos upload one at a time
    left_out: dict[str, str]  # by instance, the reason why it did not take part

    @property
    def private(self) -> bool:
        """Whether it promises what was asked for and the audit did not find otherwise."""
        return self.promise != NO_PROMISE and self.verdict != BROKEN

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
    """Play every entrant on every instance, and audit each with this number of trials.

    All plans are made and all audits are run before the first user is met, so that anything wrong with a user's own
    protocol is reported within a minute or so.
    """
    entered = [_entered(entrant, instances, privacy) for entrant in entrants]
    share = 1 / (len(instances) + 1)  # of the work: the first for all audits, then one per instance
    audited = []
    for number, one in enumerate(entered):
        audited.append(_audited(one, trials, seed))
        progress(share * (number + 1) / len(entered))
    played: dict[str, dict[str, _Played]] = {entrant.name: {} for entrant in entrants}
    for number, instance in enumerate(instances, 1):
        plans = {one.entrant.name: one.plans[instance.name] for one in entered if instance.name in one.plans}
        for name, found in _play(instance, plans, runs, seed, _part(progress, number * share, share)).items():
            played[name][instance.name] = found
    return [
        _standing(one, privacy, found, played[one.entrant.name]) for one, found in zip(entered, audited, strict=True)
    ]


class _Entered(NamedTuple):
    """An entrant, what it is asked for by the instances in which it takes part, and its plans for them."""

    entrant: Entrant
    asked: list[Plan]
    plans: dict[str, Plan]  # by instance
    left_out: dict[str, str]


class _Audited(NamedTuple):
    verdict: str
    epsilon_lower: float | None


class _Played(NamedTuple):
    regret: Estimate
    syncs: float


def _entered(entrant: Entrant, instances: Sequence[Instance], privacy: Privacy) -> _Entered:
    one = _Entered(entrant, [], {}, {})
    for instance in instances:
        asked = asked_plan(instance.silos, instance.rounds, instance.task.dim, privacy)
        try:
            one.plans[instance.name] = entrant.plan(asked)
        except ArgumentError as error:
            if error.field == FIELD:
                raise  # the file itself is wrong: that is no property of the instance
            one.left_out[instance.name] = str(error)
        else:
            one.asked.append(asked)
    return one


def _audited(one: _Entered, trials: int, seed: int) -> _Audited:
    """Broken where one of its audits breaks it; of several, where that one breaks it twice, for each of them errs with
    a probability of up to 1 - CONFIDENCE."""
    if one.entrant.cases is None or not one.asked:
        return _Audited(NOTHING_SENT, None)
    cases = one.entrant.cases(one.asked)
    reports = [audit(case, trials, seed) for case in cases]
    if len(cases) > 1:
        again = zip(cases, reports, strict=True)
        reports = [audit(case, trials, seed + 1) if first.verdict == BROKEN else first for case, first in again]
    worst = max(reports, key=lambda report: (report.verdict == BROKEN, report.epsilon_lower))
    return _Audited(worst.verdict, worst.epsilon_lower)


def _play(instance: Instance, plans: dict[str, Plan], runs: int, seed: int, progress: Progress) -> dict[str, _Played]:
    """Simulate all federated plans together, then all plans of a single agent together; in both halves, plans with a
    trust model of the user's own apart, silo by silo, as they are audited."""
    chance, found = instance.chance(seed), {}
    parts = [(silos, own) for silos in (instance.silos, 1) for own in (False, True)]
    for number, (silos, own) in enumerate(parts):
        group = {name: plan for name, plan in plans.items() if (plan.silos, brought(plan)) == (silos, own)}
        if group:
            done = _part(progress, number / len(parts), 1 / len(parts))
            result = simulate(instance.task, group, runs, seed, progress=done, pooled=not own)
            for name in group:
                regret = np.asarray(result.final(name) / silos / chance)
                found[name] = _Played(estimate(regret), result.syncs(name))
    return found


def _standing(one: _Entered, privacy: Privacy, audited: _Audited, played: dict[str, _Played]) -> Standing:
    plans = list(one.plans.values())
    return Standing(
        one.entrant.name,
        _trusted(one.entrant, plans),
        _promised(plans, privacy),
        *audited,
        {instance: found.regret for instance, found in played.items()},
        {instance: found.syncs for instance, found in played.items()},
        one.left_out,
    )


def _promised(plans: list[Plan], privacy: Privacy) -> str:
    """The weakest promise of all instances; none where one of them promises less than was asked for."""
    pairs = [(plan.guarantee.epsilon, plan.guarantee.delta) for plan in plans]
    kept = [
        (epsilon, delta)
        for epsilon, delta in pairs
        if epsilon is not None and delta is not None and epsilon <= privacy.epsilon and delta <= privacy.delta
    ]
    if not plans or len(kept) < len(plans):
        return NO_PROMISE
    return Privacy(*(max(values) for values in zip(*kept, strict=True))).pair


def _trusted(entrant: Entrant, plans: list[Plan]) -> str:
    """Whom users have to trust, in the worst of the instances; their own silo, where nothing is ever sent."""
    if entrant.cases is None:
        return TRUSTED[Faith.OWN_SILO]
    return TRUSTED[max(plan.trusting.faith for plan in plans)] if plans else NOTHING_SENT


def _part(progress: Progress, before: float, share: float) -> Callable[[float], None]:
    return lambda done: progress(before + share * done)
