"""What a plan will cost, before anything is run: the regret that its noise and its schedule make unavoidable.

After n users in d directions the estimate of theta is off by about

    error^2 = (R d)^2 / n + (d / n)^2 (E||N theta||^2 + E||h||^2):

the rewards' own noise (R = 1/2 for rewards in [0, 1]) and the privacy noise (N, h) of the prefix sum, in units of the
information n / d that a direction has received. A user's expected regret grows with the square of the error and is at
most that of acting at random. Added up over the users of the horizon, each of whom is served by the model of the last
sync, this counts how many of them might as well have been served at random. The noise is that of the worst prefix sum
throughout, because the regulariser has to be large enough for it from the start; theta is taken to be as long as the
rewards are wide. This is a model, not a bound, and radii do not enter it: it ranks plans, and the tests hold the
ranking against simulations.
"""

from __future__ import annotations

import numpy as np

from fedbandit._arrays import Floats
from fedbandit._validate import ArgumentError
from fedbandit.bandit.confidence import NoiseLaw
from fedbandit.plan import Plan

__all__ = ["lost_rounds", "noise_energy"]

REWARD_STD = 0.5  # the largest that a reward in [0, 1] can have


def lost_rounds(plan: Plan) -> float:
    """Rounds of random play, by all silos, that cost as much regret as this plan over its horizon."""
    if plan.syncs is None:
        raise ArgumentError("schedule", f"must be public to be predicted, got {plan.schedule}")
    times = np.array(plan.times, dtype=float)
    seen = plan.silos * np.append(0.0, times[:-1])  # users behind the model that serves each batch
    noise = float(noise_energy(plan.noise_law, plan.dim, max(plan.centre, 1 - plan.centre)).max())
    error = np.ones(len(times))
    after = seen > 0
    error[after] = (REWARD_STD * plan.dim) ** 2 / seen[after] + (plan.dim / seen[after]) ** 2 * noise
    return float(np.sum(np.diff(times, prepend=0.0) * np.minimum(1.0, error)))


def noise_energy(law: NoiseLaw, dim: int, theta_norm: float) -> Floats:
    """E||N theta||^2 + E||h||^2 of every prefix sum.

    Whatever the direction of theta, E||N theta||^2 is (d - 1) off-diagonal variances and a diagonal one.
    """
    matrix = (dim - 1) * law.off_diagonal**2 + law.diagonal**2
    return np.asarray(theta_norm**2 * matrix + dim * law.bias**2)
