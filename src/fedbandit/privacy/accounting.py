"""From noise to epsilon and back: exact Gaussian accounting, and the looser steps of the paper's proofs.

A stream of releases is a sequence of Gaussian mechanisms, composed adaptively. Together they are one Gaussian mechanism
with mu = shift / sigma ("mu-GDP"), whose (epsilon, delta) curve is known exactly (Balle & Wang 2018, Theorem 8):

    delta = Phi(-a) - e^epsilon Phi(-b),  a = epsilon / mu - mu / 2,  b = epsilon / mu + mu / 2.

For a small mu this is a difference of nearly equal numbers, so it is computed in another form. Let M(x) = Phi(-x) /
phi(x) be Mills' ratio. Because e^epsilon phi(b) = phi(a), delta is phi(a) (M(a) - M(b)), which is phi(a) times the
integral of -M'(x) = 1 - x M(x) from a to b = a + mu. That is a sum of positive terms, taken in logarithms: it loses no
digits, however small epsilon and delta are. The rounding that remains is counted against us: a delta or an epsilon
comes out a little too large, never too small.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import erfcx, gammaln, log_ndtr

from fedbandit import _validate
from fedbandit._arrays import Floats
from fedbandit._roots import positive_root
from fedbandit._validate import ArgumentError

__all__ = [
    "LARGEST_EXPONENT",
    "advanced_composition_share",
    "classic_gaussian_sigma",
    "compose_gdp",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_sigma",
    "optimal_composition",
    "published_ldp_sigma",
    "published_levels",
    "shariff_sheffet_sigma",
    "theorem_ldp_sigma",
    "tree_levels",
    "zcdp_epsilon",
    "zheng_sigma",
]

EPSILONS = (1e-100, 1e9)  # the smallest and the largest epsilon that noise is computed for
LEAST_DELTA = 1e-300
ROUNDING = 1e-11  # relative, of a delta: at least as large as the error of the special functions
LOG_ROUNDING = 1e-14  # error in the logarithms of a factorial and of a power, per unit of their size
LARGEST_MU = 1e9
LARGEST_EXPONENT = 700.0  # e to this power is still a float
NEVER = 1e9  # standard deviations: the chance of anything that far out is too small for floating point
FAR = 50.0  # from here on, the asymptotic series of Mills' ratio is exact in floating point
LOG_ROOT_TWO_PI = math.log(2 * math.pi) / 2
_NODES, _WEIGHTS = (np.polynomial.legendre.leggauss(24) + np.array([[1.0], [0.0]])) / 2  # Gauss-Legendre on [0, 1]


@lru_cache(maxsize=256)
def gaussian_sigma(epsilon: float, delta: float) -> float:
    """The smallest sigma at which the unit-sensitivity Gaussian mechanism is (epsilon, delta)-DP (analytic Gaussian).

    The tests compare it with dp_accounting's, and with a computation to many digits.
    """
    _check_reach(epsilon, delta)
    epsilon, delta = float(epsilon), float(delta)  # a float32 equals a float in the cache, but has fewer digits

    def excess(sigma: float) -> float:
        return _excess(1 / sigma, epsilon, delta) + ROUNDING

    return positive_root(excess)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """The delta of a mu-GDP mechanism at this epsilon: exact, but with its last digits rounded up."""
    mu, epsilon = float(mu), float(epsilon)
    if mu <= 0:
        return 0.0
    return math.exp(min(0.0, _log_delta(mu, epsilon) + _rounding(mu, epsilon)))


@lru_cache(maxsize=1024)
def gaussian_epsilon(mu: float, delta: float) -> float:
    """The epsilon of a mu-GDP mechanism at this delta: exact, but for a delta whose last digits are rounded down, so
    never too small. Infinity where mu is so large that nothing is hidden."""
    mu, delta = float(mu), float(delta)
    if mu > LARGEST_MU:
        return math.inf
    if mu <= 0 or _excess(mu, 0.0, delta) <= 0:
        return 0.0

    def excess(epsilon: float) -> float:
        return _excess(mu, epsilon, delta)

    return positive_root(excess)


def _check_reach(epsilon: float, delta: float) -> None:
    """Refuse what floating point cannot compute safely: the noise could come out too small."""
    _validate.positive("epsilon", epsilon)
    _validate.within("delta", delta, 0, 1)
    least, largest = EPSILONS
    if not least <= epsilon <= largest:
        raise ArgumentError(
            "epsilon",
            f"must lie between {least:g} and {largest:g} for its noise to be computed safely, got {epsilon!r}",
        )
    if delta < LEAST_DELTA:
        raise ArgumentError(
            "delta", f"must be at least {LEAST_DELTA:g} for its noise to be computed safely, got {delta!r}"
        )


def _excess(mu: float, epsilon: float, delta: float) -> float:
    """Positive unless the mechanism is certain to be (epsilon, delta)-DP. It falls as epsilon rises, and as mu falls.

    It compares logarithms: those of delta or, where 1 - delta is the smaller number, those of 1 - delta.
    """
    rounding = _rounding(mu, epsilon)
    if delta <= 0.5:
        return _log_delta(mu, epsilon) + rounding - math.log(delta)
    return math.log(1 - delta) - _log_complement(mu, epsilon) + rounding


def _log_delta(mu: float, epsilon: float) -> float:
    """The logarithm of the exact delta of a mu-GDP mechanism."""
    start, end = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    if start > NEVER:
        return -math.inf
    ratio = float(_mills(np.float64(end)) / _mills(np.float64(start)))  # 0 where the lower one overflows
    if ratio < 0.5:
        return float(log_ndtr(-start)) + math.log1p(-ratio)
    slopes = _mills_slope(start + mu * _NODES)
    return -start * start / 2 - LOG_ROOT_TWO_PI + math.log(mu * float(_WEIGHTS @ slopes))


def _log_complement(mu: float, epsilon: float) -> float:
    """The logarithm of 1 - delta."""
    start, end = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    tail = -start * start / 2 - LOG_ROOT_TWO_PI + math.log(float(_mills(np.float64(end))))  # e^epsilon Phi(-end)
    return float(np.logaddexp(log_ndtr(start), tail))


def _rounding(mu: float, epsilon: float) -> float:
    """A bound on the error of both logarithms: the last few digits of the integral's ends are uncertain."""
    start, end = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    return ROUNDING + 1e-15 * (min(abs(start), NEVER) + 1) * (min(end, NEVER) + 1)


def _mills(x: Any) -> Any:
    """Phi(-x) / phi(x)."""
    return math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2))


def _mills_slope(x: Floats) -> Floats:
    """-M'(x) = 1 - x M(x), by its asymptotic series where that difference would lose digits."""
    far = np.maximum(x, FAR)
    square = far**-2.0
    series = square * (1 - square * (3 - square * (15 - square * (105 - square * (945 - square * 10395)))))
    return np.where(x > FAR, series, 1 - x * _mills(x))


def zcdp_epsilon(rho: float, delta: float) -> float:
    """rho-zCDP implies (rho + 2 sqrt(rho log(1/delta)), delta)-DP (Bun & Steinke 2016, Proposition 1.3)."""
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))


def tree_levels(releases: int) -> float:
    """kappa = 1 + log2 K of the paper: the number of p-sums that a datum enters in a tree over K releases."""
    return 1 + math.log2(releases)


def published_levels(releases: int) -> int:
    """kappa of the published simulation, a whole number: 1 + floor(log2 K), which is the exact count."""
    return releases.bit_length()


def theorem_ldp_sigma(epsilon: float, delta: float, levels: float) -> float:
    """sigma_0 of Theorem LDP for each stream, where each datum enters `levels` (kappa) p-sums."""
    return math.sqrt(8 * levels * (math.log(2 / delta) + epsilon)) / epsilon


def published_ldp_sigma(epsilon: float, delta: float, levels: float) -> float:
    """sigma_0 of the published simulation of Theorem LDP: smaller than the theorem's. No proof stands behind it."""
    return math.sqrt(levels * (math.log(1 / delta) + epsilon)) / epsilon


def shariff_sheffet_sigma(epsilon: float, delta: float, rounds: int) -> float:
    """sigma_noise of Shariff & Sheffet 2018 for a tree over n = `rounds` rounds: 4 sqrt(m) L^2 ln(4/delta) / epsilon.

    The tree has m = 1 + ceil(log2 n) levels, and L^2 = 2 bounds ||x||^2 + y^2. A node is the matrix of (x, y) times
    itself. This is its noise off the diagonal; on the diagonal there is sqrt 2 times as much.
    """
    levels = 1 + math.ceil(math.log2(rounds))
    return 4 * math.sqrt(levels) * 2 * math.log(4 / delta) / epsilon


def zheng_sigma(epsilon: float, delta: float) -> float:
    """The noise of one user under Zheng et al. 2020, as a comment in their published implementation states it.

    Its code leaves out the 2 under the root. The promise is computed from this noise, not taken from either.
    """
    return 4 * math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def advanced_composition_share(epsilon: float, delta: float, times: float) -> tuple[float, float]:
    """The budget of each of `times` mechanisms that makes them (epsilon, delta) together, as in Theorem SDP's proof.

    The closed form of advanced composition (Dwork & Roth, Theorem 3.20 and Corollary 3.21) asks for epsilon <= 1. So
    the share is checked against the theorem itself, and refused where the closed form is too generous.
    """
    share = epsilon / (2 * math.sqrt(2 * times * math.log(2 / delta)))
    composed = share * math.sqrt(2 * times * math.log(2 / delta)) + times * share * _grown(share)
    if composed > epsilon:
        raise ArgumentError(
            "epsilon",
            f"must be small enough for advanced composition over {times:g} releases: the share {share:.3g} "
            f"composes to {composed:.3g}, above {epsilon:g}",
        )
    return share, delta / (2 * times)


def _grown(share: float) -> float:
    """e^share - 1; infinity where floating point cannot hold it."""
    return math.expm1(share) if share < LARGEST_EXPONENT else math.inf


def optimal_composition(epsilon: float, delta: float, times: int, total_delta: float) -> float:
    """The epsilon of `times` (epsilon, delta)-DP mechanisms together at `total_delta`; infinity where there is none.

    Kairouz, Oh & Viswanath 2015, Theorem 3.3: no bound that holds for all such mechanisms can be better. For i = 0, 1,
    ... they are ((times - 2i) epsilon, 1 - (1 - delta)^times (1 - d_i))-DP, where d_i is a sum of i terms. i = 0 is
    basic composition.
    """
    spent = -math.expm1(times * math.log1p(-delta))
    whole = times * (epsilon + math.log1p(math.exp(-epsilon)))  # log (1 + e^epsilon)^times
    rounded_up = 1 + LOG_ROUNDING * (1 + math.lgamma(times + 1) + whole)

    def exceeds(i: int) -> bool:
        j = np.arange(i)
        choices = gammaln(times + 1) - gammaln(j + 1) - gammaln(times - j + 1)
        own = np.exp(choices + (times - j) * epsilon - whole) @ -np.expm1(2 * (j - i) * epsilon)
        return bool(spent + (1 - spent) * own * rounded_up > total_delta)

    found = bisect_left(range(times // 2 + 1), True, key=exceeds)  # the smaller epsilon is, the larger is its delta
    return (times - 2 * (found - 1)) * epsilon if found else math.inf


def classic_gaussian_sigma(epsilon: float, delta: float) -> float:
    """sqrt(2 log(1.25/delta)) / epsilon, valid for epsilon <= 1 (the Gaussian mechanism as in Theorem SDP's proof)."""
    if epsilon > 1:
        raise ArgumentError("epsilon", f"must be <= 1 for the classic Gaussian mechanism, got {epsilon:g}")
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def compose_gdp(*mus: float) -> float:
    """Adaptive composition of Gaussian mechanisms: the squares of their mu add up."""
    return math.hypot(*mus)
