"""Regularisers and radii of other papers, as their theorems state them, for the baselines of the same names.

They assume that statistics are released after every user: a noise law with n entries is for n users. As everywhere
here, rewards are 1-sub-Gaussian, and features and theta* have norm at most 1. Without noise lambda is 1.
"""

from __future__ import annotations

import math

import numpy as np

from fedbandit.bandit.confidence import NOISELESS, Confidence, NoiseLaw, Radii, Rule, self_normalised

__all__ = ["DOUBLED", "RADII", "azize_basu", "he", "phases", "shariff_sheffet", "zheng"]

DOUBLED = math.log(2.0)  # growth of the log-determinant at which Azize & Basu begin a new phase (C = 1)


def shariff_sheffet(law: NoiseLaw, dim: int, alpha: float) -> Confidence:
    """Shariff & Sheffet 2018, Algorithm 1 with Gaussian noise shifted by 2 Upsilon.

    Upsilon = sigma sqrt(2m) (4 sqrt d + 2 ln(2n/alpha)), m = 1 + ceil(log2 n); rho_min = Upsilon, rho_max = 3 Upsilon,
    gamma = sigma sqrt(m / Upsilon) (sqrt d + sqrt(2 ln(2n/alpha))), and
    beta_t = sqrt(2 ln(2/alpha) + d ln(rho_max/rho_min + t/(d rho_min))) + sqrt(rho_max) + gamma.
    """
    rounds, sigma = len(law.bias), float(law.off_diagonal[0])  # the first prefix is one node of the tree
    levels, tail = 1 + math.ceil(math.log2(rounds)), math.log(2 * rounds / alpha)
    upsilon = max(NOISELESS / 2, sigma * math.sqrt(2 * levels) * (4 * math.sqrt(dim) + 2 * tail))
    gamma = float(law.bias[0]) * math.sqrt(levels / upsilon) * (math.sqrt(dim) + math.sqrt(2 * tail))

    def radius(users: float, regulariser: float) -> float:
        growth = dim * math.log(3 + users / (dim * upsilon))
        return math.sqrt(2 * math.log(2 / alpha) + growth) + math.sqrt(3 * upsilon) + gamma

    return Confidence(np.full(rounds, 2 * upsilon), radius)


def zheng(law: NoiseLaw, dim: int, alpha: float) -> Confidence:
    """Zheng et al. 2020: lambda grows with the noise of all users so far.

    gamma_t = sigma sqrt(t) (4 sqrt d + 2 ln(2T/alpha)), lambda_t = 2 gamma_t, and
    beta_t = 2 sigma sqrt(d ln T) + (sqrt(3 gamma_t) + sigma sqrt(d t / gamma_t)) d ln T.
    """
    rounds, sigma = len(law.bias), float(law.bias[0])
    gammas = law.off_diagonal * (4 * math.sqrt(dim) + 2 * math.log(2 * rounds / alpha))
    log_rounds = math.log(max(rounds, 2))

    def radius(users: float, regulariser: float) -> float:
        gamma = regulariser / 2
        noise = math.sqrt(3 * gamma) + sigma * math.sqrt(dim * users / gamma)
        return 2 * sigma * math.sqrt(dim * log_rounds) + noise * dim * log_rounds

    return Confidence(np.maximum(NOISELESS, 2 * gammas), radius)


def he(law: NoiseLaw, dim: int, alpha: float) -> Confidence:
    """He et al. 2022, FedLinUCB: a silo synchronises when its determinant has grown by the factor 1 + 1/M^2.

    beta = sqrt(lambda) + (sqrt(1 + 1/M) + sqrt 2) (sqrt(d ln((1 + N M^2 / lambda) / alpha)) + sqrt(lambda)), where N
    is the number of users of all silos together; lambda = 1.
    """
    users, silos = len(law.bias), law.silos
    width = math.sqrt(dim * math.log((1 + users * silos**2 / NOISELESS) / alpha)) + math.sqrt(NOISELESS)
    beta = math.sqrt(NOISELESS) + (math.sqrt(1 + 1 / silos) + math.sqrt(2)) * width
    return Confidence(np.full(users, NOISELESS), lambda seen, regulariser: beta)


def azize_basu(law: NoiseLaw, dim: int, alpha: float) -> Confidence:
    """Azize & Basu 2024, AdaC-OFUL: LinUCB's radius plus what the noise of the phases so far adds to it.

    After t users there were at most l = 1 + d log2(1 + t/(d lambda)) phases. Each adds its own noise to the bias, and
    together this noise has norm at most sigma sqrt(l) (sqrt d + sqrt(2 ln(2/alpha))).
    """
    sigma = float(law.bias[0])
    spread = sigma * (math.sqrt(dim) + math.sqrt(2 * math.log(2 / alpha)))

    def radius(users: float, regulariser: float) -> float:
        noise = spread * math.sqrt(phases(users, dim, regulariser) / regulariser)
        return self_normalised(users, dim, regulariser, alpha) + math.sqrt(regulariser) + noise

    return Confidence(np.full(len(law.bias), NOISELESS), radius)


def phases(users: float, dim: int, regulariser: float) -> float:
    """The most phases after these users: the doublings of the determinant of V, plus the phase that is open."""
    return 1 + dim * math.log1p(users / (dim * regulariser)) / DOUBLED


RADII: dict[Radii, Rule] = {
    "shariff-sheffet": shariff_sheffet,
    "zheng": zheng,
    "he": he,
    "azize-basu": azize_basu,
}
