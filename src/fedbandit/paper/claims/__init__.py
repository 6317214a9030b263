"""The paper's claims, measured: scalings, sensitivities, ranges and constants. `fedbandit paper claims` prints them."""

from __future__ import annotations

from fedbandit.paper.claims import gap, radii, ranges, scaling, sensitivity
from fedbandit.paper.claims.claim import Claim, Progress

CLAIMS = (
    scaling.noise_claim,
    scaling.synchronisations_claim,
    scaling.p_sums_claim,
    sensitivity.eager_claim,
    sensitivity.adjacency_claim,
    sensitivity.reward_claim,
    radii.radius_claim,
    ranges.amplification_claim,
    ranges.lemma_constant_claim,
    ranges.vector_sum_range_claim,
    ranges.vector_sum_noise_claim,
    ranges.range_claim,
)


def all_claims(quick: bool = False, progress: Progress = lambda share: None) -> list[Claim]:
    """Every claim, the simulated one last."""
    return [*(claim() for claim in CLAIMS), gap.gap_claim(quick, progress)]


__all__ = ["CLAIMS", "Claim", "all_claims"]
