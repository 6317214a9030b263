"""The best schedule, mechanism, split of the budget and weight of the past: everything that costs no privacy.

How much to forget in a world that changes: let theta move by D per sync (l2, root mean square, in any direction), let
all silos together have n visits between two syncs, each with information v about a direction, and let each sync
multiply the weight of the past by w. The share (1 - w) w^i of the estimate is i syncs old, so its squared error is

    D^2 (w^2 + w^4 + ...)           = D^2 w^2 / (1 - w^2)             from what has changed since, plus
    axes R^2 (1 - w) / (1 + w) / nv                                   from chance in rewards, of variance R^2, plus
    axes N(w)^2 (1 - w)^2 / (nv)^2                                    from the noise N(w) of the decoded sums.

As less is remembered, the first term falls and the others grow. For w near 1, m = 1 / (1 - w) syncs are remembered,
the first term is D^2 m / 2, the second is axes R^2 / (2 m n v), and the best m is sqrt(axes R^2 / nv) / D, or more if
there is noise. `best_weight` follows these sums sync by sync (`prediction`), from the first sync on. A prediction
leaves out exploration and covariances that drown in noise, and both only speak for remembering more. So of all weights
that are predicted to be about as good as the best, it takes the largest.
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
LATEST = 100  # the first sync comes within rounds / LATEST rounds: real users may be easier than predicted ones
CENTRE = 0.5
CONSTANT_SHARE = 0.1  # the constant's share of a row's squared length if rewards are centred: enough to learn it
LONG = 128  # syncs: with more, a second factorisation takes longer to compute than it is worth
WEIGHTS = (1.0, 0.998, 0.995, 0.99, 0.98, 0.97, 0.96, 0.94, 0.92, 0.9, 0.87, 0.84, 0.8, 0.75, 0.7, 0.6, 0.5)
AS_GOOD = 1.05  # times the least cost: such a weight counts as just as good


def split(centre: float) -> float:
    """The best ratio (covariance noise / bias noise)^2: 1 / h^2, for rewards that enter as y - centre in [-h, h].

    With s = ratio h^2, the squared shift of a replaced user is 2 + 2 s + s^2 / 2, in units of the covariance noise, and
    the error of the estimate is proportional to that times (d + 1) / 2 + d / s (`prediction.noise_variance`). The
    best s lies between 0.95 and 1.05 for any d above 4, and the optimum is flat, so s = 1.
    """
    return 1 / max(centre, 1 - centre) ** 2


def mechanisms_for(syncs: int) -> tuple[str, ...]:
    """The mechanisms worth comparing: the best factorisations if they can be computed, else a few buffers (`blt`)."""
    return ("early", "optimal") if syncs <= LONG else ("early",) if syncs <= LONGEST else ("blt",)


def with_best_mechanism(plan: Plan, arms: int = ARMS, constant_share: float = PAPERS_SHARE) -> Plan:
    """The same plan with the mechanism that is predicted to lose least on its schedule."""
    plans = [plan.changed(mechanism=mechanism) for mechanism in mechanisms_for(len(plan.times))]
    return min(plans, key=lambda one: predicted(one, arms, constant_share=constant_share).mean())


def tuned(plan: Plan, centred: bool = False, arms: int = ARMS, constant_share: float = PAPERS_SHARE) -> Plan:
    """`plan` on the growing schedule with which it is predicted to lose least, with its best mechanism and split.

    With `centred`, rewards enter as y - 1/2, which halves how far one of them can move a sum. It changes no decision if
    some fixed combination of the features is the same for every action (a constant entry, for example); only the
    caller can know that. It pays if rewards lie around 1/2; if they lie far from it, the shrunken estimate starts off
    wrong. `constant_share` is the constant's share of a row's squared length.
    """
    centre = CENTRE if centred else 0.0
    shared = plan.changed(centre=centre, ratio=split(centre), mechanism="batches")
    firsts = [first for first in FIRSTS if first <= max(1, plan.rounds // LATEST)]
    schedules = [growing(ratio, first) for first in firsts for ratio in RATIOS]
    plans = [with_best_mechanism(shared.changed(schedule=schedule), arms, constant_share) for schedule in schedules]
    return min(plans, key=lambda one: predicted(one, arms, constant_share=constant_share).mean())


def best_weight(draft: Draft, times: Sequence[int]) -> float:
    """The weight that each sync should leave to the past, for syncs after these rounds.

    >>> from fedbandit import Privacy, every
    >>> plan = Plan(20, 2000, 5, Privacy(2.0, 1e-5), schedule=every(20), confidence="practical")
    >>> [best_weight(Draft(plan, drift=drift), plan.times) for drift in (0.005, 0.02)]
    [0.995, 0.9]
    """
    costs = {weight: draft.cost(times, forget=weight) for weight in WEIGHTS}
    return max(weight for weight in WEIGHTS if costs[weight] <= AS_GOOD * min(costs.values()))
