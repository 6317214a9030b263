"""Lemma subG: whether its radius covers the privacy noise, by drawing that noise."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedbandit import presets
from fedbandit._arrays import Floats
from fedbandit.bandit.confidence import NoiseLaw, matrix_norm_bound, proof, theory, vector_norm_bound
from fedbandit.bandit.statistics import Scales, unpack
from fedbandit.paper.claims.claim import CONFIRMED, OTHER_CONSTANTS, REFUTED, PaperClaim
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy

__all__ = ["Coverage", "coverage", "radius_claim"]

DRAWS = 2000


class Coverage(NamedTuple):
    """Shares of noise draws that a radius does not cover, and how wide the radii are."""

    stated: float  # sqrt(lambda), Lemma subG
    proven: float  # sqrt(lambda_max) + nu, its proof
    ratio: float  # the whole radius of the proof over the stated one, at T


def _noise_needed(law: NoiseLaw, dim: int, regulariser: float, draws: int) -> Floats:
    """||theta*||_H + ||h||_{H^-1} for draws of the worst prefix's noise: what the privacy part of beta must cover."""
    generator = np.random.default_rng(0)
    scales = Scales(law.bias.max(), law.diagonal.max(), law.off_diagonal.max()).packed(dim)
    theta = np.eye(dim)[0]
    needed = np.empty(draws)
    for index in range(draws):
        bias, matrix = unpack(generator.standard_normal(scales.size) * scales, dim)
        shifted = regulariser * np.eye(dim) + matrix
        needed[index] = math.sqrt(theta @ shifted @ theta) + math.sqrt(bias @ np.linalg.solve(shifted, bias))
    return needed


def coverage(plan: Plan, draws: int = DRAWS) -> Coverage:
    """How often the radii of one plan fail to cover draws of its noise."""
    law, dim, alpha = plan.noise_law, plan.dim, plan.alpha
    stated, proven = theory(law, dim, alpha), proof(law, dim, alpha)
    needed = _noise_needed(law, dim, stated.regulariser, draws)
    matrix = matrix_norm_bound(law, dim, alpha / 4)
    vector = vector_norm_bound(law.bias, dim, alpha / 4)
    slack = math.sqrt(stated.regulariser + matrix) + vector / math.sqrt(proven.floor)
    users = plan.silos * plan.rounds
    return Coverage(
        float(np.mean(needed > math.sqrt(stated.regulariser))),
        float(np.mean(needed > slack)),
        proven.radius(users) / stated.radius(users),
    )


def radius_claim() -> PaperClaim:
    """Lemma subG states beta_t = ... + sqrt(lambda); its proof needs sqrt(lambda_max) + nu."""
    found = coverage(presets.ldp(Plan(100, 10_000, 10, privacy=Privacy(1.0, 0.1))))
    covered = found.proven <= 0.01
    return PaperClaim(
        "radius",
        "β_t = sqrt(2 log(2/α) + d log(1 + Mt/(dλ))) + sqrt(λ) covers the noise with probability 1 - α",
        (CONFIRMED if found.stated <= 0.01 else OTHER_CONSTANTS) if covered else REFUTED,
        (
            f"sqrt(λ) is less than ||θ*||_H + ||h||_(H^-1) in {found.stated:.1%} of {DRAWS:,} draws of LDP noise at "
            f"(1, 0.1); the proof's sqrt(λ_max) + ν in {found.proven:.1%}",
            f"with the constants of its own proof (confidence 'proof') the radius at T is {found.ratio:.2f} times the "
            "stated one (confidence 'theory', the default)",
        ),
    )
