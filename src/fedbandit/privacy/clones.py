"""Amplification by shuffling silos, computed: the proof of Lemma amp with every step done exactly instead of bounded.

At one sync every silo releases a Gaussian, in units of its own standard deviation: the user's silo one of two whose
centres are `shift` apart, every other silo one whose centre is at most `spread` from both. A mixer permutes them.

Formal guarantee of `shuffled_delta`. Let P and Q be the release of the user's silo in the two worlds, R that of another
silo, and d(mu, e) the exact delta of a mu-GDP mechanism at epsilon e.

1. Q moves by total variation d0 = d(shift, e0) to a Q' with e^-e0 P <= Q' <= e^e0 P: cut Q where it is too large, which
   takes d0, fill it where it is too small, which takes e^-e0 d0, and put the rest anywhere below the upper limit.
2. Then P = (e^e0 U0 + U1) / (e^e0 + 1) and Q' = (U0 + e^e0 U1) / (e^e0 + 1) for two distributions U0 and U1.
3. R moves by total variation e^-c d(spread, c) to an R'' >= e^-c (P + Q)/2: what is missing there is e^-c times the
   hockey-stick divergence of (P + Q)/2 from R, which is convex. With Q' for Q that costs e^-c d0 / 2 more. So, that far
   from the truth, another silo sends U0 or U1, e^-c / 2 of the time each: a clone.
4. With C ~ Bin(M - 1, e^-c) clones, of which A ~ Bin(C, 1/2) are of U0, all that tells the worlds apart is how many U0
   and U1 there are (the rest is post-processing): A + 1 with probability e^e0 / (e^e0 + 1) in one world, 1 / (e^e0 + 1)
   in the other, and else A. `clones_delta` is the hockey-stick divergence of these two, summed.
5. Changing P and Q by total variations p and q changes it by at most p + e^epsilon q.

So delta = clones_delta + (1 + e^epsilon) (d0 + (M - 1) e^-c (d(spread, c) + d0 / 2)), for any e0 and c.
(Steps 1, 2 and 4 are those of Feldman, McMillan & Talwar 2021, "Hiding among the clones"; Lemma amp bounds step 4 in
closed form, has e0 and c = n e0 at the same delta_0, by the classic Gaussian mechanism, and no e^-c in step 3.)
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

BUCKETS = 48  # of numbers of clones: each is counted as its smallest, which is the worst
TAIL = 12.0  # standard deviations of the number of clones below which the tail is given up
PRECISION = 1e-3  # relative, to which an epsilon and a noise are found, rounded up
LARGEST = 50.0  # a local epsilon above which nothing is worth certifying
MOST_OTHERS = 10**8  # silos that are counted on, at most: tails of larger binomials lose digits
ROUNDING = 1e-6  # relative, of the larger of two terms whose difference is taken: no less than what it is off by
SHARES = (0.0, 0.5, 0.9)  # of delta that goes to the composition itself


def clones_delta(epsilon: float, local_epsilon: float, chance: float, others: int) -> float:
    """Hockey-stick divergence of step 4; each of `others` silos is a clone with this `chance`. Never too small.

    More clones hide more (whoever counts could add a clone of a fair coin's choosing), so clones are counted in
    buckets, each as its smallest number.
    """
    edges, weights = _buckets(chance, others)
    return float(weights @ _given_clones(epsilon, local_epsilon, edges))


def _buckets(chance: float, others: int) -> tuple[Floats, Floats]:
    """Numbers of clones, (buckets,), and the probability that there are so many or up to the next."""
    mean, std = others * chance, math.sqrt(others * chance * (1 - chance))
    low = max(0.0, math.floor(mean - TAIL * std))
    edges = np.unique(np.floor(np.linspace(low, min(float(others), mean + TAIL * std), BUCKETS)))
    edges = np.unique(np.concatenate(([0.0], edges)))
    at_least = np.where(edges > 0, betainc(np.maximum(edges, 1.0), others - edges + 1, chance), 1.0)
    return edges, np.asarray(at_least - np.append(at_least[1:], 0.0))


def _given_clones(epsilon: float, local_epsilon: float, clones: Floats) -> Floats:
    """The same given so many clones: the likelihood ratio rises with the count of U0, so a threshold decides.

    With c clones and k of U0 in all it is (q k + (1 - q)(c + 1 - k)) / ((1 - q) k + q (c + 1 - k)), q = 1 / (1 +
    e^-local_epsilon). It passes e^epsilon at k = (c + 1) (q e^epsilon - (1 - q)) / ((2q - 1)(1 + e^epsilon)).
    """
    if epsilon >= local_epsilon:
        return np.zeros_like(clones)
    q, tilt = 1 / (1 + math.exp(-local_epsilon)), math.tanh(local_epsilon / 2)
    share = 0.5 + math.tanh(epsilon / 2) / (2 * tilt)  # the same threshold over c + 1, without cancellation
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
    """The epsilon of one shuffled release at this delta; that of the release without a mixer where it is no larger.

    Of delta, a quarter goes to each of the moves of steps 1 and 3, the rest to the clones. Silos beyond MOST_OTHERS are
    not counted on: clones that are not used need not exist.
    """
    unshuffled, others = gaussian_epsilon(shift, delta), min(silos - 1, MOST_OTHERS)
    if others == 0:
        return unshuffled
    part = delta / 4 / (1 + math.e)  # epsilon is at most 1 wherever this pays; beyond, the check below fails
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
    """The epsilon of all releases that hold one user, each shuffled anew, at this delta.

    Releases may depend on what was released before: the bound of each holds whatever that was, and optimal composition
    (Kairouz, Oh & Viswanath 2015) is for adaptive ones. Its own share of delta is one of SHARES; 0 is basic.
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
    """The least noise, at most `most`, at which the releases are (epsilon, delta); `most` where no less will do."""

    def enough(sigma: float) -> bool:
        return amplified_epsilon(shift / sigma, spread / sigma, silos, releases, delta) <= epsilon

    low, high = most / (10 * math.sqrt(silos)), most
    if not enough(high):
        return most
    while high > low * (1 + PRECISION):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
