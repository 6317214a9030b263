"""Amplification by shuffling silos, computed: the proof of Lemma amp with every step done exactly instead of bounded.

At one sync every silo releases a Gaussian; distances are in units of its standard deviation. The user's silo releases
one of two Gaussians whose centres are `shift` apart. Every other silo releases one whose centre is at most `spread`
from both. A mixer permutes the releases.

Formal guarantee of `shuffled_epsilon_of`: what the mixer passes on is (epsilon, delta)-DP, with the delta that stands
below the steps. Let P and Q be the release of the user's silo in the two worlds, R that of another silo, and d(mu, e)
the exact delta of a mu-GDP mechanism at epsilon e.

1. Q moves by total variation d0 = d(shift, e0) to a Q' with e^-e0 P <= Q' <= e^e0 P. To get there, cut Q where it is
   too large, which takes d0 away; fill it up where it is too small, which takes e^-e0 d0; and put the rest anywhere
   below the upper limit.
2. Then P = (e^e0 U0 + U1) / (e^e0 + 1) and Q' = (U0 + e^e0 U1) / (e^e0 + 1) for two distributions U0 and U1.
3. R moves by total variation at most e^-c d(spread, c) to an R'' >= e^-c (P + Q)/2: what R lacks for that is e^-c times
   the hockey-stick divergence of (P + Q)/2 from R at c, and this divergence is convex. With Q' in the place of Q that
   costs e^-c d0 / 2 more. P + Q' is U0 + U1. So, that far from the truth, another silo sends U0 with probability
   e^-c / 2 and U1 with the same probability: it is then a clone.
4. There are C ~ Bin(M - 1, e^-c) clones, and A ~ Bin(C, 1/2) of them send U0. All that tells the worlds apart is how
   many U0 and U1 there are; the rest is post-processing. The number of U0 is A + 1 with probability e^e0 / (e^e0 + 1)
   in one world and 1 / (e^e0 + 1) in the other, and A otherwise. `clones_delta` is the hockey-stick divergence of these
   two distributions, computed as a sum.
5. Moving the distributions of the two worlds by total variations p and q changes their divergence by at most
   p + e^epsilon q.

So delta = clones_delta + (1 + e^epsilon) (d0 + (M - 1) e^-c (d(spread, c) + d0 / 2)), for any e0 and c.

(Steps 1, 2 and 4 are those of Feldman, McMillan & Talwar 2021, "Hiding among the clones". Lemma amp bounds step 4 in
closed form, takes e0 and c = n e0 at the same delta_0, by the classic Gaussian mechanism, and has no e^-c in step
3.)
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.special import betainc

from fedbandit._arrays import Floats
from fedbandit._roots import falling_root
from fedbandit.privacy.accounting import gaussian_delta, gaussian_epsilon, optimal_composition

__all__ = ["amplified_epsilon", "amplified_sigma", "clones_delta", "shuffled_epsilon_of"]

BUCKETS = 48  # groups of numbers of clones: each group counts as its smallest number, which is the worst
TAIL = 12.0  # standard deviations around the mean number of clones that the buckets cover; fewer count as none
PRECISION = 1e-3  # relative: how closely an epsilon and a noise are found; both are rounded up
LARGEST = 50.0  # a local epsilon above which nothing is worth certifying
MOST_OTHERS = 10**8  # other silos that the proof makes use of, at most: tails of larger binomials lose digits
ROUNDING = 1e-6  # relative, of the larger of two terms that are subtracted: at least as large as its error
SHARES = (0.0, 0.5, 0.9)  # shares of delta that the composition itself may take; all are tried


def clones_delta(epsilon: float, local_epsilon: float, chance: float, others: int) -> float:
    """The hockey-stick divergence of step 4; each of `others` silos is a clone with this `chance`. Never too small.

    More clones hide more (an observer could always add a clone picked by a fair coin). So the numbers of clones are put
    into buckets, and each bucket counts as its smallest number.
    """
    edges, weights = _buckets(chance, others)
    return float(weights @ _given_clones(epsilon, local_epsilon, edges))


def _buckets(chance: float, others: int) -> tuple[Floats, Floats]:
    """Numbers of clones, (buckets,), and the probability of at least this number but fewer than the next."""
    mean, std = others * chance, math.sqrt(others * chance * (1 - chance))
    low = max(0.0, math.floor(mean - TAIL * std))
    edges = np.unique(np.floor(np.linspace(low, min(float(others), mean + TAIL * std), BUCKETS)))
    edges = np.unique(np.concatenate(([0.0], edges)))
    at_least = np.where(edges > 0, betainc(np.maximum(edges, 1.0), others - edges + 1, chance), 1.0)
    return edges, np.asarray(at_least - np.append(at_least[1:], 0.0))


def _given_clones(epsilon: float, local_epsilon: float, clones: Floats) -> Floats:
    """The divergence of step 4 given the number of clones. The likelihood ratio rises with the count of U0, so the best
    test is a threshold.

    With c clones and k of U0 in all, the ratio is (q k + (1 - q)(c + 1 - k)) / ((1 - q) k + q (c + 1 - k)), where
    q = 1 / (1 + e^-local_epsilon). It passes e^epsilon at k = (c + 1) (q e^epsilon - (1 - q)) / ((2q - 1)(1 +
    e^epsilon)).
    """
    if epsilon >= local_epsilon:
        return np.zeros_like(clones)
    q, tilt = 1 / (1 + math.exp(-local_epsilon)), math.tanh(local_epsilon / 2)
    share = 0.5 + math.tanh(epsilon / 2) / (2 * tilt)  # that threshold over c + 1, without cancellation
    least = np.floor((clones + 1) * share) + 1
    tail, mass = _upper_tail(least, clones), _point(least - 1, clones)
    # P0(count >= least) - e^epsilon P1(count >= least), with P(count >= least) = P(A >= least) + chance P(A = least-1)
    gained = (q - math.exp(epsilon) * (1 - q)) * mass
    return np.asarray(np.maximum(gained * (1 + ROUNDING) - math.expm1(epsilon) * tail, 0.0))


def _upper_tail(least: Floats, clones: Floats) -> Floats:
    """P(Bin(clones, 1/2) >= least)."""
    inside = (least > 0) & (least <= clones)
    safe = np.where(inside, least, 1.0)
    return np.where(inside, betainc(safe, np.maximum(clones - safe, 0.0) + 1, 0.5), np.where(least <= 0, 1.0, 0.0))


def _point(count: Floats, clones: Floats) -> Floats:
    """P(Bin(clones, 1/2) = count)."""
    inside = (count >= 0) & (count <= clones)
    safe = np.clip(count, 0.0, clones)
    return np.where(inside, _upper_tail(safe, clones) - _upper_tail(safe + 1, clones), 0.0)


def shuffled_epsilon_of(shift: float, spread: float, silos: int, delta: float) -> float:
    """The epsilon of one shuffled release at this delta, or that of the release without a mixer where it is no larger.

    Of delta, a quarter goes to each of the moves of steps 1 and 3, and the rest to the clones. Silos beyond MOST_OTHERS
    are ignored: the proof need not use every clone.
    """
    unshuffled, others = gaussian_epsilon(shift, delta), min(silos - 1, MOST_OTHERS)
    if others == 0:
        return unshuffled
    part = delta / 4 / (1 + math.e)  # epsilon is at most 1 wherever this pays; above 1, the check below fails
    local_delta = part / (1 + others / 2)
    local, clone = gaussian_epsilon(shift, local_delta), gaussian_epsilon(spread, part / others)
    chance = math.exp(-clone)
    moved = gaussian_delta(shift, local) * (1 + others * chance / 2)
    moved += others * chance * gaussian_delta(spread, clone)

    def excess(epsilon: float) -> float:
        return clones_delta(epsilon, local, chance, others) + (1 + math.exp(epsilon)) * moved - delta

    if local == 0 or local > LARGEST or excess(local) > 0:
        return unshuffled
    found = 0.0 if excess(0.0) <= 0 else falling_root(excess, 0.0, local, PRECISION)
    return min(unshuffled, found)


def amplified_epsilon(shift: float, spread: float, silos: int, releases: int, delta: float) -> float:
    """The epsilon, at this delta, of all releases that hold one user, each shuffled anew.

    Releases may depend on what was released before: the bound on each holds whatever that was, and optimal composition
    (Kairouz, Oh & Viswanath 2015) is for adaptive mechanisms. Its own share of delta is one of SHARES; a share of 0 is
    basic composition.
    """
    found = []
    for share in SHARES:
        each = -math.expm1(math.log1p(-delta * (1 - share)) / releases) * (1 - ROUNDING)
        epsilon = shuffled_epsilon_of(shift, spread, silos, each)
        found.append(optimal_composition(epsilon, each, releases, delta))
    return min(found)


@lru_cache(maxsize=64)
def amplified_sigma(
    shift: float, spread: float, silos: int, releases: int, epsilon: float, delta: float, most: float
) -> float:
    """The least noise, at most `most`, at which the releases are (epsilon, delta); `most` where no less is enough."""

    def enough(sigma: float) -> bool:
        return amplified_epsilon(shift / sigma, spread / sigma, silos, releases, delta) <= epsilon

    low, high = most / (10 * math.sqrt(silos)), most
    if not enough(high):
        return most
    while high > low * (1 + PRECISION):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
