"""Binomial noise held against Gaussian noise: what a count that was rounded at random hides, computed, for any size.

A count is floor(v) + Bernoulli(v - floor(v)) + X, X ~ Bin(N, 1/4), v a real number that is one user's, or was moved by
one user. (What others add to it does not depend on the user: given the count, it is post-processing.)

Formal guarantee. For whole numbers 2 <= A < N/4 < B < N/2 - 1 there is a law X' of whole numbers such that

1. X' differs from X in total variation by at most `moved`;
2. with X' for X, whoever tells v from v' by the count could do so as well by a Gaussian of deviation 1 / `slope` around
   v or v': the count is post-processing of that Gaussian, for this pair and whatever was released before.

So an adaptive sequence of counts is (epsilon, delta + (1 + e^epsilon) moved)-DP, `moved` summed over all counts, where
the same sequence with Gaussian noise is (epsilon, delta)-DP. Rounding at random costs nothing.

Proof. P, F are probabilities and distribution function of X, phi and Phi of a standard Gaussian, I(u) =
phi(Phi^-1(u)), which is concave and symmetric around 1/2, with I(0) = 0.

* X' has P'(m) proportional to P(m) from A to B, and beyond to the geometric tails that continue them: P(A) a^(A - m)
  with a = P(A - 1) / P(A), and P(B) b^(m - B) with b = P(B + 1) / P(B). P is log-concave, so these lie above P, P' is
  log-concave too, and what is added, `moved` = P(A) a / (1 - a) + P(B) b / (1 - b), bounds the total variation.
* Let L(t) interpolate F' linearly. The count is at most m with probability L(m - v). Rounded numbers have a monotone
  likelihood ratio in v, and adding a log-concave law keeps it: the best tests are thresholds. So claim 2 is that
  Phi^-1(L(m - v)) - Phi^-1(L(m - v')) <= slope (v' - v) for v < v' (Blackwell; between thresholds, where a coin
  decides, the Gaussian's trade-off is convex). The derivative of Phi^-1(L) is P'(m) / I(L), which is at most
  P'(m) / min(I(F'(m - 1)), I(F'(m))).
* From A to B that is at most P(m) / min(I(F(m - 1)), I(F(m))): with Z the total before scaling, F' lies between F / Z
  and 1 - (1 - F) / Z, and I(F / Z) >= I(F) / Z. Beyond B it is (1 - b) / b times Mills' ratio (1 - F') / I(F'), which
  falls with m, so it is no more than at B; beyond A likewise.
* Zubkov & Serov 2013: Phi(G(m)) <= F(m) <= Phi(G(m + 1)), G(m) = sign(m - N/4) sqrt(2 D(m)), D(m) = N KL(m/N, 1/4).
  Stirling: P(m) <= sqrt(N / (2 pi m (N - m))) e^-D(m). And D is convex. So the ratio is at most
  sqrt(N / (m (N - m))) max(e^-D'(m - 1), e^D'(m + 1)), with e^D'(m) = 3m / (N - m); the first product falls with m up
  to N/2, the second rises: `slope` is the larger of the first at A and the second at B.

With A = N/4 - z sd, `slope` is about (1 + 1.25 z / sd) / sd: binomial noise that is hundreds of steps wide is worth as
much as Gaussian noise.

(Several numbers of one user in a count: one after the other, the moves add up, as shifts of a Gaussian do.)
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

__all__ = ["ONES", "Cut", "deviations_of_chance", "fewest_trials", "gaussian_std"]

ONES = 0.25  # the chance that a noise bit is a one
HAIR = 1e-9  # relative, for floating point: of a slope, and of numbers that were scaled before they are rounded
UPPER = 1.5  # the upper cut lies so many times as far out as the lower one: there the slope is that much smaller
WIDER = 1.005  # steps in which a cut is moved out until little enough is moved


class Cut(NamedTuple):
    """Where the tails of Bin(trials, 1/4) are replaced."""

    trials: int
    low: int
    high: int

    @property
    def sound(self) -> bool:
        """Whether the proof covers it."""
        return self.low >= 2 and 4 * self.low < self.trials < 4 * self.high and 2 * self.high < self.trials - 2

    @property
    def slope(self) -> float:
        """The inverse of the deviation of a Gaussian that hides no more."""
        n, a, b = self.trials, self.low, self.high
        below = math.sqrt(n / a / (n - a)) * (n - a + 1) / (3 * (a - 1))
        above = math.sqrt(n / b / (n - b)) * 3 * (b + 1) / (n - b - 1)
        return max(below, above) * (1 + HAIR)

    @property
    def log_moved(self) -> float:
        """The logarithm of the total variation.

        D(m) = N/4 f(-t/(N/4)) + 3N/4 f(t/(3N/4)) at m = N/4 - t, with f(u) = (1 + u) log(1 + u) - u, which is at least
        u^2/2 for u < 0 and u^2 / (2 + 2u/3) else.
        """
        n, a, b = self.trials, self.low, self.high
        return _log_sum(
            _log_tail(n, a, 3 * a / (n - a + 1), n / 4 - a, 1.0, 1 + (n - 4 * a) / (9 * n)),
            _log_tail(n, b, (n - b) / (3 * (b + 1)), b - n / 4, 1 + (4 * b - n) / (3 * n), 1.0),
        )


def _log_tail(n: int, cut: int, ratio: float, away: float, ones: float, zeros: float) -> float:
    """log of P(cut) ratio / (1 - ratio); `ones` and `zeros` are the corrections of the two terms of D."""
    log_point = math.log(n / cut / (n - cut) / (2 * math.pi)) / 2
    divergence = away / n * away * 2 * (1 / ones + 1 / (3 * zeros))
    return log_point - divergence + math.log(ratio) - math.log1p(-ratio)


def _log_sum(one: float, other: float) -> float:
    larger, smaller = max(one, other), min(one, other)
    return larger + math.log1p(math.exp(smaller - larger))


def deviations_of_chance(log_chance: float) -> float:
    """About so many standard deviations out, a tail has this chance."""
    return math.sqrt(2 * max(1.0, -log_chance))


@lru_cache(maxsize=4096)
def gaussian_std(trials: int, log_moved: float) -> float:
    """Deviation of the Gaussian that Bin(trials, 1/4) is worth where at most e^log_moved may be moved; 0: of none."""
    std, away = math.sqrt(trials * ONES * (1 - ONES)), deviations_of_chance(log_moved) / 2
    while True:
        low, high = trials // 4 - math.ceil(away * std), trials // 4 + 1 + math.ceil(UPPER * away * std)
        cut = Cut(trials, low, high)
        if not cut.sound:
            return 0.0
        if cut.log_moved <= log_moved:
            return 1 / cut.slope
        away *= WIDER


@lru_cache(maxsize=4096)
def fewest_trials(std: float, log_moved: float) -> int:
    """About the fewest noise bits that are worth a Gaussian of this deviation, and surely enough."""
    away = deviations_of_chance(log_moved)
    trials = math.ceil((std**2 + 2 * away**2) / (ONES * (1 - ONES))) + 16
    while (worth := gaussian_std(trials, log_moved)) < std:
        trials = math.ceil(trials * max(1.0001, (std / worth) ** 2 if worth else 1.5)) + 1
    return trials
