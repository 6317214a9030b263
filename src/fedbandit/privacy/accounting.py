"""From noise to epsilon and back: exact Gaussian accounting, and the looser steps the paper's proofs take.

A release stream is a sequence of Gaussian mechanisms, adaptively composed; together they are one Gaussian mechanism
with mu = shift / sigma ("mu-GDP"), whose (epsilon, delta) curve is known exactly.
"""

from __future__ import annotations

import math
from functools import lru_cache

from scipy.special import log_ndtr, ndtr

from fedbandit import _validate
from fedbandit._roots import falling_root
from fedbandit._validate import ArgumentError

__all__ = [
    "advanced_composition_share",
    "classic_gaussian_sigma",
    "compose_gdp",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_sigma",
    "published_ldp_sigma",
    "published_levels",
    "theorem_ldp_sigma",
    "tree_levels",
    "zcdp_epsilon",
]


@lru_cache(maxsize=256)
def gaussian_sigma(epsilon: float, delta: float) -> float:
    """Smallest sigma at which the unit-sensitivity Gaussian mechanism is (epsilon, delta)-DP (analytic Gaussian).

    The tests hold it against dp_accounting's.
    """
    _validate.positive("epsilon", epsilon)
    _validate.within("delta", delta, 0, 1)

    def excess(sigma: float) -> float:
        return gaussian_delta(1 / sigma, epsilon) - delta

    low = high = 1.0
    while excess(high) > 0:
        high *= 2
    while excess(low) < 0:
        low /= 2
    return falling_root(excess, low, high)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """The exact delta of a mu-GDP mechanism at this epsilon (Balle & Wang 2018, Theorem 8)."""
    if mu <= 0:
        return 0.0
    return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu)))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The exact epsilon of a mu-GDP mechanism at this delta."""
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    high = 1.0
    while gaussian_delta(mu, high) > delta:
        high *= 2
    return falling_root(lambda epsilon: gaussian_delta(mu, epsilon) - delta, 0.0, high)


def zcdp_epsilon(rho: float, delta: float) -> float:
    """rho-zCDP implies (rho + 2 sqrt(rho log(1/delta)), delta)-DP (Bun & Steinke 2016, Proposition 1.3)."""
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))


def tree_levels(releases: int) -> float:
    """kappa = 1 + log2 K of the paper: the p-sums that a datum enters in a tree over K releases."""
    return 1 + math.log2(releases)


def published_levels(releases: int) -> int:
    """kappa of the published simulation, a whole number: 1 + floor(log2 K), which is the exact count."""
    return releases.bit_length()


def theorem_ldp_sigma(epsilon: float, delta: float, levels: float) -> float:
    """sigma_0 of Theorem LDP for each stream, where each datum enters `levels` (kappa) p-sums."""
    return math.sqrt(8 * levels * (math.log(2 / delta) + epsilon)) / epsilon


def published_ldp_sigma(epsilon: float, delta: float, levels: float) -> float:
    """sigma_0 of the published simulation of it, which is smaller. No proof stands behind it."""
    return math.sqrt(levels * (math.log(1 / delta) + epsilon)) / epsilon


def advanced_composition_share(epsilon: float, delta: float, times: float) -> tuple[float, float]:
    """Budget of one of `times` mechanisms so that together they are (epsilon, delta), as in the proof of Theorem SDP.

    Advanced composition (Dwork & Roth, Theorem 3.20 and Corollary 3.21) asks for epsilon <= 1 in the closed form; the
    share is checked against the theorem itself and refused where the closed form is too generous.
    """
    share = epsilon / (2 * math.sqrt(2 * times * math.log(2 / delta)))
    composed = share * math.sqrt(2 * times * math.log(2 / delta)) + times * share * math.expm1(share)
    if composed > epsilon * (1 + 1e-9):
        raise ArgumentError(
            "epsilon",
            f"must be small enough for advanced composition over {times:g} releases: the share {share:.3g} "
            f"composes to {composed:.3g}, above {epsilon:g}",
        )
    return share, delta / (2 * times)


def classic_gaussian_sigma(epsilon: float, delta: float) -> float:
    """sqrt(2 log(1.25/delta)) / epsilon, valid for epsilon <= 1 (the Gaussian mechanism as in Theorem SDP's proof)."""
    if epsilon > 1:
        raise ArgumentError("epsilon", f"must be <= 1 for the classic Gaussian mechanism, got {epsilon:g}")
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def compose_gdp(*mus: float) -> float:
    """Adaptive composition of Gaussian mechanisms: mu's add in squares."""
    return math.hypot(*mus)
