"""Regulariser and confidence radii: Lemma subG with its constants computed, and the published simulation's formulas.

The noise of prefix sum k is a symmetric Gaussian matrix N_k and a Gaussian vector h_k. The lemma needs bounds on
max_k ||N_k|| and max_k ||h_k|| that hold with high probability. `matrix_norm_bound` and `vector_norm_bound` compute
them from the law of the noise instead of guessing absolute constants.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from scipy.special import gammaincc, ndtr, ndtri

from fedbandit._arrays import Floats
from fedbandit._roots import falling_root

__all__ = [
    "NOISELESS",
    "PRACTICAL_SCALE",
    "Confidence",
    "NoiseLaw",
    "Radii",
    "Rule",
    "matrix_norm_bound",
    "matrix_norm_bounds",
    "practical",
    "proof",
    "published",
    "published_regulariser",
    "self_normalised",
    "theory",
    "vector_norm_bound",
]

Radii = Literal["theory", "proof", "practical", "published", "shariff-sheffet", "zheng", "he", "azize-basu"]
PRACTICAL_SCALE = 0.1
NOISELESS = 1.0  # lambda without noise


@dataclass(frozen=True)
class NoiseLaw:
    """The standard deviations of the noise in the decoded prefix sums over all silos, one per sync (syncs,)."""

    bias: Floats
    diagonal: Floats
    off_diagonal: Floats
    silos: int = field(default=1, kw_only=True)


@dataclass(frozen=True)
class Confidence:
    """lambda of every sync (syncs,), and beta as a function of lambda and of the users so far, t times the silos."""

    regularisers: Floats
    radius: Callable[[float, float], float]


# From the law of the noise, the dimension and alpha to regularisers and radii.
Rule = Callable[[NoiseLaw, int, float], Confidence]


def theory(law: NoiseLaw, dim: int, alpha: float) -> Confidence:
    """Lemma subG as stated.

    lambda = 2 Sigma_N, beta_t = sqrt(2 log(2/alpha) + d log(1 + Mt/(d lambda))) + sqrt(lambda). Sigma_N is computed
    from the law of the noise; without noise lambda = 1. The lemma's statement drops constants: the inequalities of its
    proof give a wider radius, which is `proof`.
    """
    matrix = matrix_norm_bound(law, dim, alpha / 4)

    def radius(users: float, regulariser: float) -> float:
        return self_normalised(users, dim, regulariser, alpha) + math.sqrt(regulariser)

    return Confidence(_everywhere(law, max(NOISELESS, 2 * matrix)), radius)


def proof(law: NoiseLaw, dim: int, alpha: float) -> Confidence:
    """The radius that is certain to hold, with every constant of the proofs of Lemmas general and subG.

    lambda = 2 Sigma_N, lambda_min = Sigma_N, lambda_max = 3 Sigma_N, nu = Sigma_n / sqrt(lambda_min), and beta_t =
    sqrt(2 log(2/alpha) + d log(1 + Mt/(d lambda_min))) + sqrt(lambda_max) + nu. Half of alpha goes to the
    self-normalised bound, a quarter each to the matrix and the vector.
    """
    matrix, vector = matrix_norm_bound(law, dim, alpha / 4), vector_norm_bound(law.bias, dim, alpha / 4)

    def radius(users: float, regulariser: float) -> float:
        smallest = regulariser - matrix
        slack = math.sqrt(regulariser + matrix) + vector / math.sqrt(smallest)
        return self_normalised(users, dim, smallest, alpha) + slack

    return Confidence(_everywhere(law, max(NOISELESS, 2 * matrix)), radius)


def practical(law: NoiseLaw, dim: int, alpha: float) -> Confidence:
    """One rule for all settings, outside the theorem: lambda_k = Sigma_N of sync k alone, radii scaled down.

    The radii are PRACTICAL_SCALE times those of the lemma's statement. Half the theory's lambda shrinks less, and a
    lambda of its own for each sync shrinks early models, whose prefix sums have less noise, only as much as they need.
    If noise then makes V too small in some direction, that eigenvalue is raised to lambda / 2, a positive-definite
    correction of the noisy covariance. Narrow radii explore less. Privacy does not depend on any of this.
    """

    def radius(users: float, regulariser: float) -> float:
        return PRACTICAL_SCALE * (self_normalised(users, dim, regulariser, alpha) + math.sqrt(regulariser))

    return Confidence(np.maximum(NOISELESS, matrix_norm_bounds(law, dim, alpha / 4)), radius)


def published(syncs: int, regulariser: float, dim: int, alpha: float, scale: float, reward_noise: float) -> Confidence:
    """beta of the published simulation: crs (sqrt(lambda d) + R sqrt(d ln(1 + Mt/(d lambda)) + ln(1/alpha)))."""

    def radius(users: float, regulariser: float) -> float:
        growth = dim * math.log1p(users / (dim * regulariser)) + math.log(1 / alpha)
        return scale * (math.sqrt(regulariser * dim) + reward_noise * math.sqrt(growth))

    return Confidence(np.full(syncs, regulariser), radius)


def _everywhere(law: NoiseLaw, regulariser: float) -> Floats:
    """The same lambda at every sync."""
    return np.full(len(law.bias), regulariser)


def published_regulariser(std: float, silos: int, levels: int, dim: int, alpha: float) -> float:
    """lambda of the published simulation; sqrt(M) without privacy. `std` is the noise of one p-sum over all silos."""
    if std == 0:
        return math.sqrt(silos)
    return math.sqrt(levels) * std * (math.sqrt(levels + math.log(1 / alpha)) + math.sqrt(dim))


def self_normalised(users: float, dim: int, regulariser: float, alpha: float) -> float:
    """A bound on the noise of 1-sub-Gaussian rewards in the V^-1 norm (Abbasi-Yadkori et al. 2011, Theorem 1)."""
    return math.sqrt(2 * math.log(2 / alpha) + dim * math.log1p(users / (dim * regulariser)))


def matrix_norm_bound(law: NoiseLaw, dim: int, alpha: float) -> float:
    """A bound that max_k ||N_k|| exceeds with probability at most alpha.

    Let o be the off-diagonal standard deviation, and let the diagonal one be at most sqrt(2) o. Then the mean of the
    largest eigenvalue is at most 2 o sqrt(d) (N_k is a scaled GOE matrix; Slepian), and the eigenvalue is a convex
    function of the Gaussian entries with Lipschitz constant sqrt(2) o. Its median is below its mean, so by Gaussian
    isoperimetry it exceeds 2 o sqrt(d) + sqrt(2) o t with probability at most 1 - Phi(t). A union bound covers both
    signs and all syncs.
    """
    mean, spread = _spectral(law, dim)
    if not spread.any():
        return 0.0

    def excess(bound: float) -> float:
        return float(np.sum(2 * ndtr((mean - bound) / spread)) - alpha)

    return _root(excess, float(mean.max()), float((mean + 40 * spread).max()))


def matrix_norm_bounds(law: NoiseLaw, dim: int, alpha: float) -> Floats:
    """Bounds (syncs,): the ||N_k|| of each sync exceeds its own bound with probability at most alpha."""
    mean, spread = _spectral(law, dim)
    return np.asarray(mean - spread * ndtri(alpha / 2))


def _spectral(law: NoiseLaw, dim: int) -> tuple[Floats, Floats]:
    """Bounds on the mean of the largest eigenvalue and on its Lipschitz constant, one of each per sync."""
    spread = np.maximum(law.diagonal, math.sqrt(2) * law.off_diagonal)
    return np.asarray(math.sqrt(2 * dim) * spread), np.asarray(spread)


def vector_norm_bound(std: Floats, dim: int, alpha: float) -> float:
    """A bound that max_k ||h_k|| exceeds with probability at most alpha: chi quantiles and a union bound."""
    if not std.any():
        return 0.0

    def excess(bound: float) -> float:
        return float(np.sum(gammaincc(dim / 2, (bound / std) ** 2 / 2)) - alpha)

    return _root(excess, 0.0, float(std.max()) * (math.sqrt(dim) + 40))


def _root(excess: Callable[[float], float], low: float, high: float) -> float:
    """Where a falling function crosses zero; `low` if it is not above zero there."""
    return low if excess(low) <= 0 else falling_root(excess, low, high)
