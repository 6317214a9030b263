"""Privacy amplification by shuffling silos (Lemma amp): its conditions, and what it certifies.

N silos with n data points each run the same (epsilon_0, delta_0)-DP Gaussian mechanism; a mixer permutes the
outputs.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import NamedTuple

import numpy as np

from fedbandit._roots import falling_root
from fedbandit._validate import ArgumentError
from fedbandit.privacy.accounting import advanced_composition_share, classic_gaussian_sigma

__all__ = [
    "Amplified",
    "largest_epsilon",
    "local_budget",
    "published_sdp_sigma",
    "shuffled_epsilon",
    "theorem_sdp",
    "theorem_sdp_constants_one",
]


class Amplified(NamedTuple):
    """One shuffled release: its budget, and the local mechanism behind it."""

    epsilon: float
    delta: float
    local_epsilon: float
    local_delta: float

    @property
    def sigma(self) -> float:
        """The noise of one silo at unit sensitivity, by the classic Gaussian mechanism, as in the proof of Theorem SDP.

        Only the classic formula allows the lemma's step "n times the shift is n times epsilon at the same delta".
        """
        return classic_gaussian_sigma(self.local_epsilon, self.local_delta)


def shuffled_epsilon(local_epsilon: float, silos: int, points: int, slack: float) -> float:
    """epsilon^r of Lemma amp, for a slack delta in (0, 1]; raises outside the lemma's condition."""
    if local_epsilon > _reach(silos, points, slack):
        raise ArgumentError(
            "silos",
            f"must satisfy local epsilon <= ln(silos / (16 ln(2/slack))) / points: {silos} silos, "
            f"local epsilon {local_epsilon:.3g}, slack {slack:.3g}, {points} points",
        )
    clones = math.exp(points * local_epsilon)
    spread = 8 * math.sqrt(clones * math.log(4 / slack) / silos) + 8 * clones / silos
    return math.log1p(math.tanh(local_epsilon / 2) * spread)


def _reach(silos: int, points: int, slack: float) -> float:
    """The largest local epsilon that the lemma covers; 0 or less where it covers none."""
    return math.log(silos / (16 * math.log(2 / slack))) / points


def local_budget(epsilon: float, delta: float, silos: int, points: int) -> Amplified:
    """The local budget with the least noise at which one shuffled release is (epsilon, delta), over the lemma's slacks.

    At each slack it is the largest local epsilon. Of delta, the slack takes tanh(epsilon_0 / 2) * slack and the local
    delta_0 takes the rest.
    """
    candidates = [_for_slack(epsilon, delta, silos, points, slack) for slack in np.geomspace(1e-12, 1.0, 400)]
    possible = [budget for budget in candidates if budget is not None]
    if not possible:
        raise ArgumentError(
            "epsilon",
            f"must be smaller for amplification by shuffling: with {silos} silos and {points} points each no "
            f"local mechanism with epsilon_0 <= 1/{points} certifies ({epsilon:.3g}, {delta:.3g}) for one release",
        )
    return min(possible, key=lambda budget: budget.sigma)


def _for_slack(epsilon: float, delta: float, silos: int, points: int, slack: float) -> Amplified | None:
    """The largest local budget at one slack; None where the lemma does not reach."""
    top = min(1 / points, _reach(silos, points, slack))

    def gap(local: float) -> float:
        return shuffled_epsilon(local, silos, points, slack) - epsilon

    if top <= 0 or gap(top) < 0:  # to use epsilon up would take more local epsilon than the lemma allows
        return None
    least = min(top * 1e-12, epsilon / 1000)  # a shuffled epsilon is always below a thousand times the local one
    local = falling_root(lambda local: -gap(local), least, top) * (1 - 1e-13)  # in doubt, not above epsilon
    rest = delta - math.tanh(local / 2) * slack
    local_delta = rest / (silos * (math.exp(epsilon) + 1) * (1 + math.exp(-local) / 2))
    return Amplified(epsilon, delta, local, local_delta) if local_delta > 0 else None


def theorem_sdp(epsilon: float, delta: float, silos: int, points: int, levels: int) -> Amplified:
    """The local budget behind Theorem SDP: half of the budget per stream, shared by advanced composition."""
    return local_budget(*advanced_composition_share(epsilon / 2, delta / 2, levels), silos, points)


def largest_epsilon(delta: float, silos: int, points: int, levels: int) -> float:
    """The largest epsilon that Theorem SDP's proof can certify here; 0 where it certifies none."""

    def certified(epsilon: float) -> bool:
        try:
            theorem_sdp(epsilon, delta, silos, points, levels)
        except ArgumentError:
            return False
        return True

    grid = np.geomspace(1e-9, 1.0, 181)
    beyond = bisect_left(grid, True, key=lambda epsilon: not certified(float(epsilon)))
    return float(grid[beyond - 1]) if beyond else 0.0


def theorem_sdp_constants_one(epsilon: float, delta: float, silos: int, rounds: int, levels: float) -> float:
    """sigma_0 of Theorem SDP with its O() read as 1. No proof stands behind it."""
    log = math.log(1 / delta) * abs(math.log(levels / (delta * rounds))) * math.log(silos * levels / delta)
    return math.sqrt(2 * levels * log / silos) / epsilon


def published_sdp_sigma(epsilon: float, delta: float, silos: int, rounds: int, levels: int) -> float:
    """sigma_0 of the published simulation of Theorem SDP: another logarithm, no 2. No proof stands behind it."""
    log = math.log(1 / delta) * math.log1p(levels / (delta * rounds)) * math.log(silos * levels / delta)
    return math.sqrt(levels * log / silos) / epsilon
