"""The policies of `fedbandit.bandit.policies`, compiled: the probability of every action, and the draw.

Probabilities may differ from theirs in the last bits, and so may a choice if a user's random number falls in between.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from fedbandit._arrays import Floats
from fedbandit._jit import njit
from fedbandit.bandit.policies import FLATTEST, REACH, RESOLUTION, Policy, PolicyName
from fedbandit.simulator.kernels.layout import Scores
from fedbandit.simulator.kernels.scoring import MEANS, WIDTHS

__all__ = ["WORK_ROWS", "explore", "is_certain", "policy_row"]

_UCB: Final = 0
_THOMPSON: Final = 1
_INVERSE_GAP: Final = 2
_CODES: Final[dict[PolicyName, int]] = {"ucb": _UCB, "thompson": _THOMPSON, "inverse-gap": _INVERSE_GAP}
_LEVEL: Final = 0  # row of the work array: means
_SPREAD: Final = 1  # row of the work array: spreads, or deviations
_SHARE: Final = 2  # row of the work array: probabilities
_BELOW: Final = 3  # row of the work array: distribution functions at one point
WORK_ROWS: Final = 4


def policy_row(policy: Policy) -> tuple[float, float, float]:
    """A policy in the form that kernels take: its code, scale and floor."""
    return float(_CODES[policy.name]), policy.scale, policy.floor


@njit(cache=True)
def is_certain(policies: Floats, index: int) -> bool:
    """Whether the policy of protocol `index` is ucb without a floor, so that its choice is not random."""
    certain: bool = policies[index, 0] == _UCB and policies[index, 2] == 0.0
    return certain


@njit(cache=True)
def explore(board: Scores, radius: Any, arms: int, policy: Floats, chance: float, work: Floats) -> int:
    """The action that a policy (3,) draws with the uniform number `chance`; means and squared widths are on a board."""
    for a in range(arms):
        work[_LEVEL, a] = board[MEANS, a]
        work[_SPREAD, a] = radius * np.sqrt(max(board[WIDTHS, a], board.dtype.type(0)))
    means, spreads, shares = work[_LEVEL, :arms], work[_SPREAD, :arms], work[_SHARE, :arms]
    if policy[0] == _UCB:
        _point_mass(means + spreads, shares)
    elif policy[0] == _THOMPSON:
        spreads *= policy[1]
        _largest_of(means, spreads, work[_BELOW, :arms], shares)
    else:
        _inverse_gap(means, spreads, policy[1], shares)
    return _drawn(shares, policy[2], chance)


@njit(cache=True)
def _drawn(shares: Floats, floor: float, chance: float) -> int:
    total = 0.0
    for a in range(shares.size):
        shares[a] = (1 - floor) * shares[a] + floor / shares.size
        total += shares[a]
    bound, below, last = chance * total, 0.0, 0
    for a in range(shares.size):
        below += shares[a]
        if shares[a] > 0.0:
            last = a
        if below > bound:
            return a
    return last


@njit(cache=True)
def _point_mass(scores: Floats, shares: Floats) -> None:
    shares[:] = 0.0
    shares[np.argmax(scores)] = 1.0


@njit(cache=True)
def _inverse_gap(means: Floats, spreads: Floats, scale: float, shares: Floats) -> None:
    arms, best = means.size, np.argmax(means)
    error = math.sqrt(np.mean(spreads**2))
    rest = 1.0
    for a in range(arms):
        if a != best:
            gap = means[best] - means[a]
            shares[a] = error / (error * arms + scale * math.sqrt(arms) * gap) if error > 0.0 else 0.0
            rest -= shares[a]
    shares[best] = rest


@njit(cache=True)
def _largest_of(means: Floats, deviations: Floats, below: Floats, shares: Floats) -> None:
    """Fill `shares` by the trapezoid rule, point by point. `below` is -1 for actions that cannot be the largest."""
    widest = deviations.max()
    if widest == 0.0:
        _point_mass(means, shares)
        return
    low, high = -np.inf, -np.inf
    for a in range(means.size):
        deviations[a] = max(deviations[a], widest / FLATTEST)
        low, high = max(low, means[a] - REACH * deviations[a]), max(high, means[a] + REACH * deviations[a])
    finest = np.inf
    for a in range(means.size):
        shares[a], below[a] = 0.0, -1.0
        if means[a] + REACH * deviations[a] > low:
            below[a], finest = 0.0, min(finest, deviations[a])
    points = math.ceil((high - low) * RESOLUTION / finest) + 1
    for i in range(points):
        _add_point(low + i * (high - low) / (points - 1), means, deviations, below, shares)
    shares /= shares.sum()


@njit(cache=True)
def _add_point(at: float, means: Floats, deviations: Floats, below: Floats, shares: Floats) -> None:
    product = 1.0
    for a in range(means.size):
        if below[a] >= 0.0:
            below[a] = 0.5 * math.erfc((means[a] - at) / (deviations[a] * math.sqrt(2.0)))
            product *= below[a]
    if product == 0.0:
        return
    for a in range(means.size):
        if below[a] >= 0.0:
            z = (at - means[a]) / deviations[a]
            shares[a] += math.exp(-0.5 * z * z) / (deviations[a] * below[a]) * product
