"""Binomial noise compared with Gaussian noise: how much a count that was rounded at random hides, for any size.

A count is floor(v) + Bernoulli(v - floor(v)) + X with X ~ Bin(N, 1/4). Here v is a real number that belongs to one
user, or that one user has moved. (What others add to the count does not depend on the user: given the count, it is
post-processing.)

Formal guarantee. For whole numbers A and B with 2 <= A < N/4 < B < N/2 - 1, there is a distribution X' on the whole
numbers such that

1. X' differs from X in total variation by at most `moved`;
2. with X' in the place of X, anybody who tells v from v' by the count could do so as well by a Gaussian of standard
   deviation 1 / `slope` around v or v': the count is post-processing of that Gaussian, for this pair and whatever was
   released before.

So if an adaptive sequence of counts is (epsilon, delta)-DP with that Gaussian noise, it is
(epsilon, delta + (1 + e^epsilon) moved)-DP with binomial noise, where `moved` is summed over all counts. Rounding at
random costs nothing.

Proof. P and F are the probabilities and the distribution function of X, and P' and F' those of X'; phi and Phi are the
density and the distribution function of a standard Gaussian. I(u) = phi(Phi^-1(u)) is concave and symmetric around 1/2,
and I(0) = 0.

* X' itself. From A to B, P'(m) is proportional to P(m). Beyond A and B, geometric tails continue it: P(A) a^(A - m)
  with a = P(A - 1) / P(A), and P(B) b^(m - B) with b = P(B + 1) / P(B). P is log-concave, so the tails lie above P, and
  P' is log-concave too. What is added to P is at most the tails, `moved` = P(A) a / (1 - a) + P(B) b / (1 - b), and it
  bounds the total variation.
* What claim 2 asks for. Let L(t) interpolate F' linearly: the count is at most m with probability L(m - v). Numbers
  rounded at random have a monotone likelihood ratio in v, and adding log-concave noise keeps it, so the best tests are
  thresholds. Claim 2 then is (Blackwell) that Phi^-1(L(m - v)) - Phi^-1(L(m - v')) <= slope (v' - v) for v < v'.
  Between two thresholds, where a coin decides, it follows because the Gaussian's trade-off is convex. The derivative of
  Phi^-1(L) between m - 1 and m is P'(m) / I(L), which is at most P'(m) / min(I(F'(m - 1)), I(F'(m))).
* From A to B, that ratio is at most P(m) / min(I(F(m - 1)), I(F(m))). Let Z be the total before scaling: P' = P / Z,
  and F' lies between F / Z and 1 - (1 - F) / Z. There I is at least I(F) / Z, since I(F / Z) >= I(F) / Z, and likewise
  for 1 - F.
* Beyond B, P'(m) / I(F'(m)) is (1 - b) / b times Mills' ratio (1 - F'(m)) / I(F'(m)), and P'(m) / I(F'(m - 1)) is only
  1 - b times Mills' ratio at m - 1. Mills' ratio falls with m, so neither is more than P'(B) / I(F'(B)). Beyond A it is
  likewise.
* Zubkov & Serov 2013: Phi(G(m)) <= F(m) <= Phi(G(m + 1)), where G(m) = sign(m - N/4) sqrt(2 D(m)) and D(m) =
  N KL(m/N, 1/4). Stirling: P(m) <= sqrt(N / (2 pi m (N - m))) e^-D(m). D is convex, and its derivative D' has e^D'(m) =
  3m / (N - m). So the ratio is at most sqrt(N / (m (N - m))) max(e^-D'(m - 1), e^D'(m + 1)). The first of these two
  products falls with m up to N/2 and the second rises: `slope` is the larger of the first at A and the second at B.

With A = N/4 - z sd, `slope` is about (1 + 1.25 z / sd) / sd: binomial noise that is hundreds of steps wide is worth as
much as Gaussian noise.

(If several numbers of one user enter a count, move them one after the other: the moves add up, as shifts of a Gaussian
do.)
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

__all__ = ["HAIR", "ONES", "Cut", "deviations_of_chance", "fewest_trials", "gaussian_std"]

ONES = 0.25  # the chance that a noise bit is a one
HAIR = 1e-9  # relative allowance for floating point: in a slope, and in numbers that are scaled before they are rounded
UPPER = 1.5  # the upper cut lies this many times as far out as the lower one: the slope grows more slowly there
WIDER = 1.005  # factor by which a cut is moved out until `moved` is small enough


class Cut(NamedTuple):
    """The two places where the tails of Bin(trials, 1/4) are replaced."""

    trials: int
    low: int
    high: int

    @property
    def sound(self) -> bool:
        """Whether the proof covers this cut."""
        return self.low >= 2 and 4 * self.low < self.trials < 4 * self.high and 2 * self.high < self.trials - 2

    @property
    def slope(self) -> float:
        """1 over the standard deviation of a Gaussian that hides no more than the count does."""
        n, a, b = self.trials, self.low, self.high
        below = math.sqrt(n / a / (n - a)) * (n - a + 1) / (3 * (a - 1))
        above = math.sqrt(n / b / (n - b)) * 3 * (b + 1) / (n - b - 1)
        return max(below, above) * (1 + HAIR)

    @property
    def log_moved(self) -> float:
        """An upper bound on the logarithm of `moved`: P by Stirling, and D from below.

        At m = N/4 - t, D(m) = N/4 f(-t/(N/4)) + 3N/4 f(t/(3N/4)) with f(u) = (1 + u) log(1 + u) - u. That f is at least
        u^2/2 for u < 0, and at least u^2 / (2 + 2u/3) otherwise.
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
    """Roughly how many standard deviations out a tail has this chance."""
    return math.sqrt(2 * max(1.0, -log_chance))


@lru_cache(maxsize=4096)
def gaussian_std(trials: int, log_moved: float) -> float:
    """The standard deviation of the Gaussian that Bin(trials, 1/4) is worth if at most e^log_moved may be moved; 0 if
    it is worth none."""
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
    """Roughly the fewest noise bits that are worth a Gaussian of this standard deviation, and surely enough."""
    away = deviations_of_chance(log_moved)
    trials = math.ceil((std**2 + 2 * away**2) / (ONES * (1 - ONES))) + 16
    while (worth := gaussian_std(trials, log_moved)) < std:
        trials = math.ceil(trials * max(1.0001, (std / worth) ** 2 if worth else 1.5)) + 1
    return trials
