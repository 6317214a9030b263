"""Whether to federate at all, with which plan, and what it would be worth. Everything is predicted, nothing simulated.

`recommended(consortium)` is the whole answer. It has two steps, so that a page can follow a slider. `proposed` compares
plans as drafts, with a mechanism that costs no time (a tenth of a second for a clinic's year). `refined` then gives
each option the best mechanism (hundredths of a second up to some hundred syncs, and up to a second beyond, once per
number of syncs). `at_other_budgets` refines its options if the advice it is given is refined.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fedbandit._validate import ArgumentError
from fedbandit.plan import Plan
from fedbandit.planner.consortium import Consortium
from fedbandit.planner.drafts import QUICK, Draft
from fedbandit.planner.prediction import Prediction, predicted, predicted_alone
from fedbandit.planner.tuning import CENTRE, TUNED, best_weight, mechanisms_for, split
from fedbandit.presets import TRUST_OF, plan_for
from fedbandit.protocol.trust import trust as trust_model
from fedbandit.schedule import Clock

__all__ = [
    "ALONE",
    "CANDIDATES",
    "SURE",
    "Option",
    "Recommendation",
    "acceptable",
    "at_other_budgets",
    "proposed",
    "recommended",
    "refined",
]

# The presets to choose from: those with a public schedule and, wherever their theorems apply, a guarantee.
CANDIDATES = ("local", "ldp", "silo", "sdp-amplified", "sdp-vector-sum", "secure-sum", "super-agent", "central")
ALONE = "alone"
SURE = 0.9  # a federation is recommended if its predicted regret is below this share of staying alone
RATIOS = (1.1, 1.2, 1.35, 1.5, 2.0)
FIRSTS = (1, 2, 3, 5, 8, 13, 21, 34)  # periods before the first sync
CAPS = (1, 2, 3, 4, 5, 8, 12, 20, 50)  # visits of one person that are counted


@dataclass(frozen=True)
class Option:
    """A protocol's plan on the public clock and its predicted cost, or the reason why it cannot be used."""

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
    options: tuple[Option, ...]  # those that can be used, from best to worst
    impossible: tuple[Option, ...]
    is_refined: bool = False  # whether mechanisms have been chosen too

    @property
    def best(self) -> Option | None:
        """The federation that is recommended; None means to stay alone."""
        best = self.options[0] if self.options else None
        return best if best is not None and best.cost < SURE * self.alone.mean() else None

    @property
    def name(self) -> str:
        return ALONE if self.best is None else self.best.name

    def regret(self, prediction: Prediction, first_day: float = 0.0, last_day: float | None = None) -> float:
        """Group regret per round (one visit to every silo) over some days, as simulations measure it."""
        last = self.consortium.days if last_day is None else last_day
        return self.consortium.silos * prediction.mean(self.consortium.round_of(first_day), self._round_of(last))

    def lost(self, prediction: Prediction, day: float) -> float:
        """The outcomes missed in all silos by the end of a day, compared with knowing everybody's best action."""
        return self.consortium.silos * prediction.total(self._round_of(day))

    @cached_property
    def break_even_day(self) -> int | None:
        """The first day from which the recommended federation always serves people better than alone; None if never."""
        return None if self.best is None or self.best.prediction is None else self._overtaken(self.best.prediction)

    @cached_property
    def paid_back_day(self) -> int | None:
        """The day by which the federation has made up for its slower start; None if not within the horizon."""
        if self.best is None or self.best.prediction is None:
            return None
        days = range(1, self.consortium.days + 1)
        ours = [self.lost(self.best.prediction, day) for day in days]
        theirs = [self.lost(self.alone, day) for day in days]
        return _last_change(np.array(ours) <= np.array(theirs))

    def _overtaken(self, prediction: Prediction) -> int | None:
        """The first day from which `prediction` is never worse than alone.

        Days after the last whole period are left out: they have no visits to compare.
        """
        days = range(1, self.consortium.visits_per_silo // self.consortium.people_per_day + 1)
        better = [self.regret(prediction, day - 1, day) <= self.regret(self.alone, day - 1, day) for day in days]
        return _last_change(np.array(better))

    def _round_of(self, day: float) -> float:
        return min(self.consortium.round_of(day), float(self.consortium.visits_per_silo))


def _last_change(better: Any) -> int | None:
    """The first day, counted from 1, from which all days are better; None if the last one is not."""
    worse = np.flatnonzero(~better)
    day = 1 if len(worse) == 0 else int(worse[-1]) + 2
    return day if day <= len(better) else None


def recommended(consortium: Consortium) -> Recommendation:
    """The plan with the least predicted regret among those that ask people for no more trust than `consortium.trust`.

    >>> from fedbandit.privacy.budget import Privacy
    >>> clinic = Consortium(silos=12, people_per_day=20, days=120, dim=8, privacy=Privacy(4.0, 1e-6), arms=4)
    >>> advice = recommended(clinic)
    >>> advice.name, advice.best.plan.privacy.participations
    ('secure-sum', 1)
    >>> recommended(replace(clinic, privacy=Privacy(0.01, 1e-6))).name
    'alone'
    """
    return refined(proposed(consortium))


def proposed(consortium: Consortium) -> Recommendation:
    """The first step of `recommended`: it chooses everything but the mechanism, fast enough to follow a slider."""
    found = [_option(name, consortium) for name in acceptable(consortium.trust)]
    alone = predicted_alone(
        consortium.visits_per_silo,
        consortium.dim,
        consortium.arms,
        constant_share=consortium.rows,
        centre=CENTRE if consortium.constant else 0.0,
        drift=consortium.drift_per_visit,
    )
    possible, impossible = (tuple(one for one in found if (one.plan is not None) is usable) for usable in (True, False))
    return Recommendation(consortium, alone, _ranked(possible), impossible)


def refined(advice: Recommendation) -> Recommendation:
    """The second step of `recommended`: every plan gets the mechanism that is predicted to lose least."""
    better = tuple(_with_best_mechanism(one, advice.consortium) for one in advice.options)
    return replace(advice, options=_ranked(better), is_refined=True)


def at_other_budgets(advice: Recommendation, name: str) -> dict[float, Option]:
    """What the protocol `name` would cost with half and with double the epsilon, refined if `advice` is."""
    asked, found = advice.consortium.privacy, {}
    for factor in (0.5, 2.0):
        other = replace(advice.consortium, privacy=replace(asked, epsilon=factor * asked.epsilon))
        option = _option(name, other)
        found[other.privacy.epsilon] = _with_best_mechanism(option, other) if advice.is_refined else option
    return found


def acceptable(trust: str) -> tuple[str, ...]:
    """The candidates that ask people to trust no more than the trust model `trust` does."""
    limit = trust_model(trust).faith
    return tuple(name for name in CANDIDATES if trust_model(TRUST_OF[name]).faith <= limit)


def _ranked(options: tuple[Option, ...]) -> tuple[Option, ...]:
    return tuple(sorted(options, key=lambda one: one.cost))


# -- one protocol at its best -----------------------------------------------------------------------------------------


def _option(name: str, consortium: Consortium) -> Option:
    """One protocol with its best cap on visits per person: ours are tuned, the paper's are as in the paper."""
    found: list[Option] = []
    for cap in (cap for cap in CAPS if cap == 1 or cap <= consortium.visits):
        try:
            plan = _planned(name, consortium, cap)
        except ArgumentError as error:
            if not found:
                return Option(name, reason=f"{name}: {error}")
            break
        if not plan.guarantee.promised:
            return Option(name, reason=f"{name}: {plan.guarantee.statement}")
        found.append(Option(name, plan, _predicted(plan, consortium)))
        if len(found) > 1 and found[-1].cost > found[-2].cost:
            break  # from here on, more visits per person only bring more noise
    return min(found, key=lambda one: one.cost)


def _planned(name: str, consortium: Consortium, cap: int) -> Plan:
    """The protocol that counts up to `cap` visits per person, on its best schedule."""
    base = consortium.plan(trust="none", privacy=replace(consortium.privacy, participations=cap))
    if name not in TUNED:
        return plan_for(name, base, Clock(consortium.period))
    centre = CENTRE if consortium.constant else 0.0
    plan = plan_for(name, base.changed(centre=centre, ratio=split(centre)))
    draft = Draft(plan, consortium.arms, consortium.attendance, consortium.rows, consortium.drift_per_visit)
    if not consortium.drift:
        return plan.changed(schedule=_best_schedule(draft, consortium), mechanism=QUICK)
    # In a world that changes, what was learnt long ago is worth little: the clock is steady, and the past is forgotten.
    return plan.changed(forget=best_weight(draft, plan.times), mechanism=QUICK)


def _best_schedule(draft: Draft, consortium: Consortium) -> Clock:
    """The clock that is predicted to lose least: choose its ratio, then its first sync, then the ratio again."""

    def cost(clock: Clock) -> float:
        return draft.cost(clock.times(consortium.periods))

    def ratios(first: int) -> list[Clock]:
        return [Clock(consortium.period, ratio, first) for ratio in RATIOS]

    firsts = [first for first in FIRSTS if first == 1 or first <= consortium.periods // 4]
    best = min(ratios(firsts[len(firsts) // 2]), key=cost)
    best = min((replace(best, first=first) for first in firsts), key=cost)
    return min(*ratios(best.first), Clock(consortium.period), key=cost)


def _with_best_mechanism(one: Option, consortium: Consortium) -> Option:
    """The option with its best mechanism, if its protocol has a choice; schedule, cap and split stay the same."""
    if one.plan is None or one.name not in TUNED:
        return one
    plans = [one.plan.changed(mechanism=mechanism) for mechanism in mechanisms_for(len(one.plan.times))]
    found = [Option(one.name, plan, _predicted(plan, consortium)) for plan in plans]
    return min(found, key=lambda option: option.cost)


def _predicted(plan: Plan, consortium: Consortium) -> Prediction:
    """The prediction of a plan for the consortium's people and rows."""
    drift = consortium.drift_per_visit
    return predicted(plan, consortium.arms, consortium.attendance, constant_share=consortium.rows, drift=drift)
