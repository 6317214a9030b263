"""The paper's claims, measured: scalings, sensitivities, ranges and constants. `fedbandit paper claims` prints them."""

from __future__ import annotations

from fedbandit.paper.claims import gap, growth, radii, ranges, scaling, theorems, user_shift
from fedbandit.paper.claims.claim import PaperClaim
from fedbandit.simulator.engine import Progress

__all__ = ["CLAIMS", "PaperClaim", "all_claims"]

GROWTH_SHARE = 0.4  # of the time that simulations take
CLAIMS = (
    scaling.noise_claim,
    scaling.amplified_noise_claim,
    scaling.syncs_claim,
    scaling.p_sums_claim,
    user_shift.eager_claim,
    user_shift.adjacency_claim,
    user_shift.reward_claim,
    radii.radius_claim,
    ranges.amplification_claim,
    ranges.lemma_constant_claim,
    ranges.vector_sum_range_claim,
    ranges.vector_sum_noise_claim,
    ranges.range_claim,
    theorems.linear_claim,
    theorems.shuffling_condition_claim,
    theorems.union_claim,
    theorems.batches_claim,
    theorems.line_15_claim,
    theorems.title_claim,
)


def all_claims(quick: bool = False, progress: Progress = lambda share: None) -> list[PaperClaim]:
    """Measure every claim; the simulated ones come last."""
    return [
        *(claim() for claim in CLAIMS),
        *growth.growth_claims(quick, lambda share: progress(GROWTH_SHARE * share)),
        gap.gap_claim(quick, lambda share: progress(GROWTH_SHARE + (1 - GROWTH_SHARE) * share)),
    ]
