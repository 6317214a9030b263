"""The best schedule, mechanism, split of the budget and weight of the past: everything that costs no privacy.

How much to forget in a world that changes: let theta move by D per sync (l2, in the mean square, in any direction), n
visits of all silos come between two syncs, each worth v of a direction, and let one sync leave the weight w to the
past. Of the estimate, the share (1 - w) w^i is i syncs old, so it is off by

    D^2 (w^2 + w^4 + ...)           = D^2 w^2 / (1 - w^2)             by what has changed since,
    axes R^2 (1 - w) / (1 + w) / nv                                   by chance in rewards, of variance R^2,
    axes N(w)^2 (1 - w)^2 / (nv)^2                                    by the noise N(w) of the decoded sums

in squared length: the first falls as less is remembered, the others grow. For w near 1, m = 1 / (1 - w) syncs are
remembered, the first is D^2 m / 2, the second axes R^2 / (2 m n v), and the best m is sqrt(axes R^2 / nv) / D, longer
where there is noise. `best_weight` follows these sums sync by sync (`prediction`), from the first sync on. What a
prediction leaves out, exploration and covariances that drown in noise, only speaks for remembering more: of all weights
that are predicted to be about as good as the best it takes the largest.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedbandit.bandit.directions import PAPERS_SHARE
from fedbandit.plan import Plan
from fedbandit.planner.drafts import Draft
from fedbandit.planner.prediction import ARMS, predicted
from fedbandit.protocol.mechanisms.optimal import LONGEST
from fedbandit.schedule import growing

__all__ = [
    "CENTRE",
    "CONSTANT_SHARE",
    "TUNED",
    "WEIGHTS",
    "best_weight",
    "mechanisms_for",
    "split",
    "tuned",
    "with_best_mechanism",
]

TUNED = ("silo", "secure-sum", "central")  # presets with a free choice of schedule, mechanism and split
RATIOS = (1.1, 1.2, 1.3, 1.4, 1.5, 1.75, 2.0)
FIRSTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
LATEST = 100  # the first sync comes within this part of the horizon: real users may be easier than the predicted ones
CENTRE = 0.5
CONSTANT_SHARE = 0.1  # of a row's squared length, for its constant where rewards are centred: enough to learn it
LONG = 128  # syncs: beyond, a second factorisation takes longer to compute than it is worth
WEIGHTS = (1.0, 0.998, 0.995, 0.99, 0.98, 0.97, 0.96, 0.94, 0.92, 0.9, 0.87, 0.84, 0.8, 0.75, 0.7, 0.6, 0.5)
AS_GOOD = 1.05


def split(centre: float) -> float:
    """(Covariance noise / bias noise)^2 that wastes least: 1 / h^2, for rewards entering as y - centre in [-h, h].

    With s = ratio h^2 the squared shift of a replaced user is 2 + 2 s + s^2 / 2, in units of the covariance noise, and
    the error of the estimate is proportional to that times (d + 1) / 2 + d / s (`prediction.noise_variance`). The
    best s lies between 0.95 and 1.05 for any d above 4 and the optimum is flat, so s = 1.
    """
    return 1 / max(centre, 1 - centre) ** 2


def mechanisms_for(syncs: int) -> tuple[str, ...]:
    """The mechanisms worth a comparison: the best factorisations while they can be computed, a few buffers beyond."""
    return ("early", "optimal") if syncs <= LONG else ("early",) if syncs <= LONGEST else ("blt",)


def with_best_mechanism(plan: Plan, arms: int = ARMS, constant_share: float = PAPERS_SHARE) -> Plan:
    """The same plan with the mechanism that is predicted to lose least on its schedule."""
    plans = [plan.changed(mechanism=mechanism) for mechanism in mechanisms_for(len(plan.times))]
    return min(plans, key=lambda one: predicted(one, arms, constant_share=constant_share).mean())


def tuned(plan: Plan, centred: bool = False, arms: int = ARMS, constant_share: float = PAPERS_SHARE) -> Plan:
    """`plan` on the growing schedule with which it is predicted to lose least, with its best mechanism and split.

    `centred`: rewards enter as y - 1/2, which halves how far one of them can move a sum. It changes no decision where
    some fixed combination of the features is the same for every action (a constant entry, for example); only the
    caller can know that. It pays where rewards lie around 1/2; far from there the shrunken estimate starts off wrong.
    `constant_share` is how much of a row's squared length that constant has.
    """
    centre = CENTRE if centred else 0.0
    shared = plan.changed(centre=centre, ratio=split(centre), mechanism="batches")
    firsts = [first for first in FIRSTS if first <= max(1, plan.rounds // LATEST)]
    schedules = [growing(ratio, first) for first in firsts for ratio in RATIOS]
    plans = [with_best_mechanism(shared.changed(schedule=schedule), arms, constant_share) for schedule in schedules]
    return min(plans, key=lambda one: predicted(one, arms, constant_share=constant_share).mean())


def best_weight(draft: Draft, times: Sequence[int]) -> float:
    """The weight for syncs after these rounds.

    >>> from fedbandit import Privacy, every
    >>> plan = Plan(20, 2000, 5, Privacy(2.0, 1e-5), schedule=every(20), confidence="practical")
    >>> [best_weight(Draft(plan, drift=drift), plan.times) for drift in (0.005, 0.02)]
    [0.995, 0.9]
    """
    costs = {weight: draft.cost(times, forget=weight) for weight in WEIGHTS}
    return max(weight for weight in WEIGHTS if costs[weight] <= AS_GOOD * min(costs.values()))
