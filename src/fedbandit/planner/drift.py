"""How much to forget in a world that changes: the weight with which a plan is predicted to lose least.

Let theta move by D per sync (l2, in the mean square, in any direction), n visits of all silos come between two syncs,
each worth v of a direction, and let one sync leave the weight w to the past. Of the estimate, the share (1 - w) w^i is
i syncs old, so it is off by

    D^2 (w^2 + w^4 + ...)           = D^2 w^2 / (1 - w^2)             by what has changed since,
    axes R^2 (1 - w) / (1 + w) / nv                                   by chance in rewards, of variance R^2,
    axes N(w)^2 (1 - w)^2 / (nv)^2                                    by the noise N(w) of the decoded sums

in squared length: the first falls as less is remembered, the others grow. For w near 1, m = 1 / (1 - w) syncs are
remembered, the first is D^2 m / 2, the second axes R^2 / (2 m n v), and the best m is sqrt(axes R^2 / nv) / D, longer
where there is noise. `weighed` follows these sums sync by sync (`prediction`), from the first sync on. What a
prediction leaves out, exploration and covariances that drown in noise, only speaks for remembering more: of all weights
that are predicted to be about as good as the best it takes the largest.
"""

from __future__ import annotations

from fedbandit.plan import Plan
from fedbandit.planner.prediction import ARMS, predicted
from fedbandit.simulator.attendance import EVERYBODY, Attendance

__all__ = ["WEIGHTS", "weighed"]

WEIGHTS = (1.0, 0.998, 0.995, 0.99, 0.98, 0.97, 0.96, 0.94, 0.92, 0.9, 0.87, 0.84, 0.8, 0.75, 0.7, 0.6, 0.5)
AS_GOOD = 1.05
QUICK = "toeplitz"  # the mechanism that weights are compared with: all have about the same noise, and it takes no time


def weighed(plan: Plan, drift: float, arms: int = ARMS, attendance: Attendance = EVERYBODY) -> Plan:
    """The plan, whose rounds are visits or periods, with the weight that is predicted to be best where theta moves by
    `drift` per visit to a silo.

    >>> from fedbandit import Privacy, every
    >>> plan = Plan(20, 2000, 5, Privacy(2.0, 1e-5), schedule=every(20), confidence="practical")
    >>> [weighed(plan, drift).forget for drift in (0.0, 0.005, 0.02)]
    [1.0, 0.995, 0.9]
    """
    if not drift:
        return plan.changed(forget=1.0)
    quick = plan.changed(mechanism=QUICK)

    def cost(weight: float) -> float:
        return predicted(quick.changed(forget=weight).in_visits(), arms, attendance, drift=drift).mean()

    costs = {weight: cost(weight) for weight in WEIGHTS}
    return plan.changed(forget=max(weight for weight in WEIGHTS if costs[weight] <= AS_GOOD * min(costs.values())))
