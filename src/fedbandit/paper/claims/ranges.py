"""Where the shuffle theorems reach, and what noise they need there."""

from __future__ import annotations

import math

import numpy as np

from fedbandit import presets
from fedbandit.paper.claims.claim import OTHER_CONSTANTS, REFUTED, PaperClaim
from fedbandit.plan import Plan
from fedbandit.presets import secure_sum
from fedbandit.privacy.accounting import advanced_composition_share
from fedbandit.privacy.amplification import largest_epsilon, shuffled_epsilon, theorem_sdp
from fedbandit.privacy.budget import Privacy
from fedbandit.protocol.trusts.vector_sum import VectorSumProtocol

__all__ = [
    "amplification_claim",
    "amplification_gain",
    "largest_composed",
    "lemma_constant",
    "lemma_constant_claim",
    "plan",
    "range_claim",
    "vector_sum_noise_claim",
    "vector_sum_range_claim",
]

SILOS, ROUNDS, DIM = 100, 10_000, 10


def plan(epsilon: float, delta: float) -> Plan:
    """The paper's synthetic setting at some budget."""
    return Plan(SILOS, ROUNDS, DIM, privacy=Privacy(epsilon, delta))


def amplification_claim() -> PaperClaim:
    """Theorem SDP at its own constants."""
    budget = (1e-3, 1e-4)
    levels = presets.ldp(plan(*budget)).encoder.touches
    limit = largest_epsilon(budget[1], SILOS, ROUNDS, levels)
    local, amplified = presets.ldp(plan(*budget)), presets.sdp_amplified(plan(*budget))
    ones = presets.sdp_amplified(plan(*budget), "as_simulated")
    gains = ", ".join(f"{amplification_gain(epsilon, budget[1]):.2f} at ε = {epsilon:g}" for epsilon in (1e-3, 1e-4))
    ours = secure_sum(plan(*budget)).protocol.scales.bias
    stds = {name: one.protocol.scales.bias for name, one in {"LDP": local, "SDP": amplified, "one": ones}.items()}
    return PaperClaim(
        "amplification",
        "shuffling the silos' releases lets each of them add about 1/sqrt(M) of the noise of silo-level LDP",
        REFUTED if stds["SDP"] >= stds["LDP"] else OTHER_CONSTANTS,
        (
            f"M = {SILOS}, T = {ROUNDS:,}, δ = {budget[1]:g}: the largest ε that the lemma certifies is about "
            f"{limit:.2g}",
            f"at ε = {budget[0]:g} a silo adds noise of standard deviation {stds['SDP']:,.0f} (Lemma amp), "
            f"{stds['LDP']:,.0f} (Theorem LDP, no shuffler), {stds['one']:,.0f} (hidden constants read as 1), "
            f"{ours:,.0f} (secure-sum, ours)",
            f"the shuffler lets a silo spend {gains} times the ε of a shuffled release; sqrt(M) = {math.sqrt(SILOS):g}",
        ),
    )


def amplification_gain(epsilon: float, delta: float) -> float:
    """How much more epsilon a silo may spend on a release than the shuffled release has, by Lemma amp."""
    local = theorem_sdp(epsilon, delta, SILOS, ROUNDS, presets.ldp(plan(epsilon, delta)).encoder.touches)
    return local.local_epsilon / local.epsilon


def lemma_constant(silos: int, points: int, local_delta: float) -> float:
    """epsilon^r at epsilon_0 = 1/n, delta = N n delta_0, over the order that Lemma amp states for it."""
    slack = silos * points * local_delta
    order = math.sqrt(math.log(1 / slack) / silos) / points
    return shuffled_epsilon(1 / points, silos, points, slack) / order


def lemma_constant_claim() -> PaperClaim:
    """The closing statement of Lemma amp."""
    found = [lemma_constant(10**n, 10_000, 10.0**-d / (10**n * 10_000)) for n in (3, 4, 5, 6) for d in (1, 3, 6, 9)]
    return PaperClaim(
        "lemma amp",
        "ε^r = O(ε_0 sqrt(log(1/(nNδ_0))) / sqrt(N)) for ε_0 <= 1/n",
        OTHER_CONSTANTS,
        (
            f"the hidden constant at ε_0 = 1/n is {min(found):.2f} to {max(found):.2f} for N = 10^3..10^6, n = 10,000 "
            "and nNδ_0 = 0.1..1e-9",
        ),
    )


def largest_composed(delta: float, levels: int) -> float:
    """The largest epsilon at which the proof's closed form of advanced composition is true."""

    def composes(epsilon: float) -> bool:
        try:
            advanced_composition_share(epsilon / 2, delta / 2, levels)
        except ValueError:
            return False
        return True

    return max(float(epsilon) for epsilon in np.geomspace(1e-3, 1e3, 4001) if composes(float(epsilon)))


def vector_sum_range_claim() -> PaperClaim:
    """Theorem SDP-vec: epsilon up to 60 sqrt(2 kappa log(2/delta))."""
    delta, levels = 0.1, presets.ldp(plan(1.0, 0.1)).encoder.touches
    stated = 60 * math.sqrt(2 * levels * math.log(2 / delta))
    reached = largest_composed(delta, levels)
    return PaperClaim(
        "vector-sum range",
        "Theorem SDP-vec holds for ε <= 60 sqrt(2κ log(2/δ))",
        REFUTED if reached < stated else OTHER_CONSTANTS,
        (
            f"κ = {levels}, δ = {delta:g}: the statement says ε <= {stated:.0f} (30 sqrt(...) per stream in the proof, "
            "twice that for two)",
            "but ε_0 = ε / (2 sqrt(2κ log(2/δ))) composes to ε only while ε_0 is small; with ε/2 and δ/2 per stream "
            f"that is ε <= {reached:.3g}",
        ),
    )


def vector_sum_noise_claim() -> PaperClaim:
    """The noise of P_vec at the parameters printed in the appendix."""
    lines, worse = [], False
    for epsilon in (0.2, 1.0, 5.0):
        proven = presets.sdp_vector_sum(plan(epsilon, 0.1)).protocol
        simulated = presets.sdp_vector_sum(plan(epsilon, 0.1), "as_simulated").protocol
        assert isinstance(proven, VectorSumProtocol)
        assert isinstance(simulated, VectorSumProtocol)
        node, ldp = proven.node(1), math.sqrt(SILOS) * presets.ldp(plan(epsilon, 0.1)).protocol.scales.bias
        worse = worse or node.std > ldp
        lines.append(
            f"ε = {epsilon:g}, δ = 0.1: a p-sum has noise of standard deviation {node.std:,.0f} in each coordinate "
            f"(b = {node.noise_bits:,} bits per coordinate and user; {node.std / 2:,.0f} on the range [0, L] of the "
            f"pseudo-code), silo-level LDP {ldp:,.0f}; the published simulation {simulated.node(1).std:,.3g}"
        )
    largest = SILOS * 25
    return PaperClaim(
        "vector-sum noise",
        "P_vec sums with nearly the noise of the central model, so with less than silo-level LDP",
        REFUTED if worse else OTHER_CONSTANTS,
        (*lines, f"a batch of all silos sums to at most {largest:,} in a coordinate"),
    )


def range_claim() -> PaperClaim:
    """P_1D's pseudo-code: a value is shifted into [0, 2L] and encoded as if in [0, L]."""
    grid = 100
    shifted = np.linspace(-1, 1, 2001) + 1.0  # x + L, L = 1
    too_long = float(np.mean(np.floor(shifted * grid / 1.0) > grid))
    return PaperClaim(
        "P_1D",
        "x + L is encoded in g + b bits as floor((x + L) g / L) plus noise",
        REFUTED if too_long > 0 else OTHER_CONSTANTS,
        (
            f"{too_long:.1%} of the values x in [-L, L] need more than the g bits there are; with the range 2L "
            "none do, and the noise doubles",
        ),
    )
