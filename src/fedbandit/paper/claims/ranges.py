"""The ranges in which the shuffle theorems hold, and the noise that they need there."""

from __future__ import annotations

import math

import numpy as np

from fedbandit import presets
from fedbandit.paper.claims.claim import CONFIRMED, NARROWER_RANGE, OTHER_CONSTANT, REFUTED, PaperClaim
from fedbandit.plan import Plan
from fedbandit.presets import secure_sum
from fedbandit.privacy.accounting import advanced_composition_share, theorem_ldp_sigma, tree_levels
from fedbandit.privacy.amplification import (
    largest_epsilon,
    shuffled_epsilon,
    theorem_sdp,
    theorem_sdp_constants_one,
)
from fedbandit.privacy.binomial_noise import ONES
from fedbandit.privacy.budget import Privacy
from fedbandit.protocol.trusts.vector_sum import VectorSumProtocol
from fedbandit.protocol.vector_coding import PublishedCoding, TheoremCoding
from fedbandit.schedule import Every

__all__ = [
    "amplification_claim",
    "amplification_gain",
    "largest_composed",
    "lemma_constant",
    "lemma_constant_claim",
    "noise_ratio",
    "overflow_exponent",
    "p_sum_noise",
    "plan",
    "range_claim",
    "vector_sum_noise_claim",
    "vector_sum_range_claim",
]

SILOS, ROUNDS, DIM, SYNCS = 100, 10_000, 10, 400
PAYING = ((1e-5, 10_000), (1e-4, 10_000), (1e-4, 100_000))  # (epsilon, silos) where amplification is tried
LARGEST_SHARE = 15.0  # the largest epsilon_0 of P_vec (Theorem SDP-vec's proof)


def plan(epsilon: float, delta: float) -> Plan:
    """The paper's synthetic setting at this budget."""
    return Plan(SILOS, ROUNDS, DIM, privacy=Privacy(epsilon, delta))


def amplification_claim() -> PaperClaim:
    """Theorem SDP with its own constants."""
    budget = (1e-3, 1e-4)
    levels = presets.ldp(plan(*budget)).encoder.touches
    limit = largest_epsilon(budget[1], SILOS, ROUNDS, levels)
    local, amplified = presets.ldp(plan(*budget)), presets.sdp_amplified(plan(*budget))
    published = presets.sdp_amplified(plan(*budget), "as_simulated").protocol.scales.bias
    ones = theorem_sdp_constants_one(*budget, SILOS, ROUNDS, tree_levels(local.encoder.size))
    gains = ", ".join(f"{amplification_gain(epsilon, budget[1]):.2f} at ε = {epsilon:g}" for epsilon in (1e-3, 1e-4))
    ours = secure_sum(plan(*budget)).protocol.scales.bias
    stds = {name: one.protocol.scales.bias for name, one in {"LDP": local, "SDP": amplified}.items()}
    pays = [(epsilon, silos, noise_ratio(epsilon, silos)) for epsilon, silos in PAYING]
    return PaperClaim(
        "amplification",
        "shuffling the silos' releases lets each of them add about 1/sqrt(M) of the noise of silo-level LDP",
        (NARROWER_RANGE if pays[-1][-1] < 1 else REFUTED) if stds["SDP"] >= stds["LDP"] else OTHER_CONSTANT,
        (
            f"M = {SILOS}, T = {ROUNDS:,}, δ = {budget[1]:g}: the largest ε that the lemma certifies is about "
            f"{limit:.2g}",
            f"at ε = {budget[0]:g} a silo adds noise of standard deviation {stds['SDP']:,.0f} (Lemma amp), "
            f"{stds['LDP']:,.0f} (Theorem LDP, no shuffler), {ones:,.0f} (Theorem SDP, hidden constants read as 1), "
            f"{published:,.0f} (the published simulation), {ours:,.0f} (secure-sum, ours)",
            f"the shuffler lets a silo spend {gains} times the ε of a shuffled release; sqrt(M) = {math.sqrt(SILOS):g}",
            "with more silos it does pay: noise over that of Theorem LDP is "
            + ", ".join(f"{ratio:.2f} at ε = {epsilon:g}, M = {silos:,}" for epsilon, silos, ratio in pays),
        ),
    )


def noise_ratio(epsilon: float, silos: int, delta: float = 1e-4) -> float:
    """A silo's noise by amplification over its noise by Theorem LDP."""
    levels = 1 + math.floor(math.log2(SYNCS))
    amplified = theorem_sdp(epsilon, delta, silos, ROUNDS, levels).sigma
    return amplified / theorem_ldp_sigma(epsilon, delta, tree_levels(SYNCS))


def amplification_gain(epsilon: float, delta: float) -> float:
    """By Lemma amp, the epsilon that a silo may spend on a release, over the epsilon of the shuffled release."""
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
        OTHER_CONSTANT,
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
    advanced, basic = p_sum_noise(0.2, delta, levels)
    return PaperClaim(
        "vector-sum range",
        "Theorem SDP-vec holds for ε <= 60 sqrt(2κ log(2/δ))",
        CONFIRMED,  # by another proof: whatever is (ε, δ)-private is so for every larger ε
        (
            f"κ = {levels}, δ = {delta:g}: the statement says ε <= {stated:.0f} (30 sqrt(...) per stream in the proof, "
            "twice that for two)",
            "the proof's ε_0 = ε / (2 sqrt(2κ log(2/δ))) composes to ε only while ε_0 is small; with ε/2 and δ/2 per "
            f"stream that is ε <= {reached:.3g}",
            f"basic composition, ε_0 = ε / 2κ, proves it up to ε = {2 * levels * LARGEST_SHARE:.0f}, where ε_0 reaches "
            f"the {LARGEST_SHARE:g} that P_vec allows; the noise for that ε serves every larger one",
            f"it also adds less noise: {basic:,.0f} against {advanced:,.0f} in a p-sum at ε = 0.2",
        ),
    )


def p_sum_noise(epsilon: float, delta: float, levels: int) -> tuple[float, float]:
    """The noise of a p-sum of one of two streams: with its budget by advanced, and by basic composition."""
    shares = advanced_composition_share(epsilon / 2, delta / 2, levels), (epsilon / 2 / levels, delta / 2 / levels)
    advanced, basic = (TheoremCoding(*share).node(0, SILOS * 25, DIM).std for share in shares)
    return advanced, basic


def vector_sum_noise_claim() -> PaperClaim:
    """The noise of P_vec at the parameters printed in the appendix."""
    lines, crossings = [], []
    for epsilon in (0.2, 1.0, 5.0):
        proven = presets.sdp_vector_sum(plan(epsilon, 0.1)).protocol
        simulated = presets.sdp_vector_sum(plan(epsilon, 0.1), "as_simulated").protocol
        assert isinstance(proven, VectorSumProtocol)
        assert isinstance(simulated, VectorSumProtocol)
        node, ldp = proven.node(1), math.sqrt(SILOS) * presets.ldp(plan(epsilon, 0.1)).protocol.scales.bias
        crossings.append(SILOS * (node.std / ldp) ** 2)
        lines.append(
            f"ε = {epsilon:g}, δ = 0.1: a p-sum has noise of standard deviation {node.std:,.0f} in each coordinate "
            f"(b = {node.noise_bits:,} bits per coordinate and user), silo-level LDP {ldp:,.0f}; the "
            f"published simulation {simulated.node(1).std:,.3g}"
        )
    largest = SILOS * 25
    return PaperClaim(
        "vector-sum noise",
        "P_vec sums with nearly the noise of the central model, so with less than silo-level LDP",
        NARROWER_RANGE if min(crossings) > SILOS else OTHER_CONSTANT,
        (
            *lines,
            f"a batch of all silos sums to at most {largest:,} in a coordinate",
            "the noise does not grow with M and that of silo-level LDP grows as sqrt(M): it is less from M = "
            + ", ".join(f"{crossing:.1e}" for crossing in crossings)
            + " on",
            _exact_line(),
        ),
    )


def _exact_line() -> str:
    """The same P_vec with the fewest bits that exact accounting allows."""
    codes, noises, trusted = [], [], []
    for epsilon in (0.2, 1.0, 5.0):
        exact = plan(epsilon, 0.1).changed(trust="vector-sum", mechanism="tree", schedule=Every(25))
        assert isinstance(exact.protocol, VectorSumProtocol)
        node = exact.protocol.node(1)
        codes.append(f"b = {node.noise_bits:,} at g = {node.grid:,}")
        noises.append(f"{node.std:.3g}")
        trusted.append(f"{exact.changed(trust='central').protocol.scales.bias:.3g}")
    return (
        f"accounted exactly (ours), {', '.join(codes)} are enough for the same ε, against any one silo, too: the noise "
        f"is {', '.join(noises)}; that of a trusted analyzer is {', '.join(trusted)}"
    )


def range_claim() -> PaperClaim:
    """P_1D's pseudo-code shifts a value into [0, 2L] and encodes it as if it were in [0, L]."""
    node = PublishedCoding(0.2, 0.1).node(0, SILOS * 25, DIM)  # far fewer noise bits than the theorem asks for
    moved = round(2 / node.unit / node.grid)  # when x = -L is replaced by x = L, in units of g
    overflow = overflow_exponent(node.noise_bits, node.grid)
    return PaperClaim(
        "P_1D",
        "x + L is encoded in g + b bits as floor((x + L) g / L) plus noise, (ε, δ)-private with b's noise",
        OTHER_CONSTANT if moved == 2 else REFUTED,
        (
            f"one user moves a count by up to {moved} g, and b is made for g: the sensitivity is doubled, so the noise "
            "must be; with the range 2L it is",
            "nothing is cut off: x + L takes up to 2g ones, but noise leaves that much room except with probability "
            f"below 10^{overflow:.0f} even at the published b = {node.noise_bits:,}, so sums decode without bias",
        ),
    )


def overflow_exponent(noise_bits: int, grid: float) -> float:
    """log10 of Hoeffding's bound on P(Bin(b, 1/4) > b - g), where 2g ones and the noise do not fit into g + b bits."""
    room = (1 - ONES) * noise_bits - grid
    return -2 * room**2 / noise_bits / math.log(10)
