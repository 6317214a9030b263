"""Whether to federate at all, with which plan, and what it would be worth: everything predicted, nothing simulated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fedbandit._validate import ArgumentError
from fedbandit.plan import Plan
from fedbandit.planner.consortium import Consortium
from fedbandit.planner.drift import weighed
from fedbandit.planner.prediction import Prediction, predicted, predicted_alone
from fedbandit.planner.tuning import CENTRE, TUNED, mechanisms_for, split
from fedbandit.presets import TRUST_OF, plan_for
from fedbandit.protocol.trust import trust as trust_model
from fedbandit.schedule import Clock

__all__ = ["ALONE", "CANDIDATES", "SURE", "Option", "Recommendation", "acceptable", "at_other_budgets", "recommended"]

# Presets to choose from: on a public schedule and with a guarantee, wherever their theorems reach.
CANDIDATES = ("local", "ldp", "silo", "sdp-amplified", "sdp-vector-sum", "secure-sum", "super-agent", "central")
ALONE = "alone"
SURE = 0.9  # a federation is recommended if its predicted regret is at most this part of staying alone
RATIOS = (1.0, 1.1, 1.2, 1.35, 1.5, 2.0)
FIRSTS = (1, 2, 3, 5, 8, 13, 21, 34)  # periods before the first sync
CAPS = (1, 2, 3, 4, 5, 8, 12, 20, 50)  # visits of one person that are counted


@dataclass(frozen=True)
class Option:
    """A plan on the public clock that could be used, and what it is predicted to cost; or why it cannot be used."""

    name: str
    plan: Plan | None = None
    prediction: Prediction | None = None
    reason: str = ""

    @property
    def cost(self) -> float:
        """Predicted regret per visit."""
        return np.inf if self.prediction is None else self.prediction.mean()


@dataclass(frozen=True)
class Recommendation:
    """What to do, what else could be done, and what it all costs."""

    consortium: Consortium
    alone: Prediction
    options: tuple[Option, ...]  # that can be used, from best to worst
    impossible: tuple[Option, ...]

    @property
    def best(self) -> Option | None:
        """The federation that is recommended; None: stay alone."""
        best = self.options[0] if self.options else None
        return best if best is not None and best.cost <= SURE * self.alone.mean() else None

    @property
    def name(self) -> str:
        return ALONE if self.best is None else self.best.name

    def regret(self, prediction: Prediction, first_day: float = 0.0, last_day: float | None = None) -> float:
        """Group regret per round (one visit to every silo), as simulations measure it, over some days."""
        last = self.consortium.days if last_day is None else last_day
        return self.consortium.silos * prediction.mean(self.consortium.round_of(first_day), self._round_of(last))

    def lost(self, prediction: Prediction, day: float) -> float:
        """Outcomes that are missed until the end of a day, in all silos, against knowing everybody's best action."""
        return self.consortium.silos * prediction.total(self._round_of(day))

    @cached_property
    def break_even_day(self) -> int | None:
        """The first day from which on the recommended federation serves people better than alone; None: never."""
        return None if self.best is None or self.best.prediction is None else self._overtaken(self.best.prediction)

    @cached_property
    def paid_back_day(self) -> int | None:
        """The first day by which the federation has made up for its slower start; None: not within the horizon."""
        if self.best is None or self.best.prediction is None:
            return None
        days = range(1, self.consortium.days + 1)
        ours = [self.lost(self.best.prediction, day) for day in days]
        theirs = [self.lost(self.alone, day) for day in days]
        return _last_change(np.array(ours) <= np.array(theirs))

    def _overtaken(self, prediction: Prediction) -> int | None:
        days = range(1, self.consortium.days + 1)
        better = [self.regret(prediction, day - 1, day) <= self.regret(self.alone, day - 1, day) for day in days]
        return _last_change(np.array(better))

    def _round_of(self, day: float) -> float:
        return min(self.consortium.round_of(day), float(self.consortium.visits_per_silo))


def _last_change(better: Any) -> int | None:
    """The first day, counted from 1, from which on all days are better."""
    worse = np.flatnonzero(~better)
    day = 1 if len(worse) == 0 else int(worse[-1]) + 2
    return day if day <= len(better) else None


def recommended(consortium: Consortium) -> Recommendation:
    """The plan with the least predicted regret among those that ask people to trust no more than theirs does.

    >>> from fedbandit.privacy.budget import Privacy
    >>> clinic = Consortium(silos=12, people_per_day=20, days=120, dim=8, privacy=Privacy(4.0, 1e-6), arms=4)
    >>> advice = recommended(clinic)
    >>> advice.name, advice.best.plan.privacy.participations
    ('secure-sum', 1)
    >>> recommended(replace(clinic, privacy=Privacy(0.01, 1e-6))).name
    'alone'
    """
    found = [_option(name, consortium) for name in acceptable(consortium.trust)]
    possible = sorted((one for one in found if one.plan is not None), key=lambda one: one.cost)
    alone = predicted_alone(
        consortium.visits_per_silo, consortium.dim, consortium.arms, drift=consortium.drift_per_visit
    )
    return Recommendation(consortium, alone, tuple(possible), tuple(one for one in found if one.plan is None))


def at_other_budgets(advice: Recommendation, name: str) -> dict[float, Option]:
    """What the protocol `name` would cost with half and with double the epsilon."""
    asked = advice.consortium.privacy
    budgets = [replace(asked, epsilon=factor * asked.epsilon) for factor in (0.5, 2.0)]
    return {one.epsilon: _option(name, replace(advice.consortium, privacy=one)) for one in budgets}


def acceptable(trust: str) -> tuple[str, ...]:
    """The candidates that ask people to trust no more than the trust model `trust` does."""
    limit = trust_model(trust).faith
    return tuple(name for name in CANDIDATES if trust_model(TRUST_OF[name]).faith <= limit)


def _option(name: str, consortium: Consortium) -> Option:
    """One protocol at its best: ours are tuned, the paper's are as the paper has them."""
    options: list[Option] = []
    for cap in (cap for cap in CAPS if cap == 1 or cap <= consortium.visits):
        try:
            plan = _planned(name, consortium, cap)
        except ArgumentError as error:
            return min([*options, Option(name, reason=f"{name}: {error}")], key=lambda one: one.cost)
        if not plan.guarantee.promised:
            return Option(name, reason=f"{name}: {plan.guarantee.statement}")
        options.append(Option(name, plan, _cost(plan, consortium)))
        if len(options) > 1 and options[-1].cost > options[-2].cost:
            break  # more visits per person only bring more noise from here on
    return min(options, key=lambda one: one.cost)


def _planned(name: str, consortium: Consortium, cap: int) -> Plan:
    base = consortium.plan(trust="none")
    base = base.changed(privacy=replace(consortium.privacy, participations=cap))
    if name not in TUNED:
        return plan_for(name, base, Clock(consortium.period))
    centre = CENTRE if consortium.constant else 0.0
    plan = plan_for(name, base).changed(centre=centre, ratio=split(centre))
    if not consortium.drift:
        return _on_best_schedule(plan, consortium)
    steady = plan.changed(schedule=Clock(consortium.period))  # what was learnt long ago is not worth much
    plan = weighed(steady, consortium.drift_per_visit, consortium.arms, consortium.attendance)
    return plan.changed(mechanism=mechanisms_for(len(plan.times))[0])


def _on_best_schedule(plan: Plan, consortium: Consortium) -> Plan:
    """The plan with the ratio, then the first sync, then the mechanism that is predicted to lose least."""

    def cost(candidate: Plan) -> float:
        return _cost(candidate, consortium).mean()

    def clocked(ratio: float, first: int) -> Plan:
        changed = plan.changed(schedule=Clock(consortium.period, ratio, first))
        return changed.changed(mechanism=mechanisms_for(len(changed.times))[0])

    firsts = [first for first in FIRSTS if first == 1 or first <= consortium.periods // 4]
    start = firsts[len(firsts) // 2]
    best = min((clocked(ratio, 1 if ratio == 1 else start) for ratio in RATIOS), key=cost)
    assert isinstance(best.schedule, Clock)
    if best.schedule.ratio != 1:
        best = min((clocked(best.schedule.ratio, first) for first in firsts), key=cost)
    return min((best.changed(mechanism=one) for one in mechanisms_for(len(best.times))), key=cost)


def _cost(plan: Plan, consortium: Consortium) -> Prediction:
    return predicted(plan.in_visits(), consortium.arms, consortium.attendance, drift=consortium.drift_per_visit)
