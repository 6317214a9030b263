"""How the noise, the number of syncs and the number of p-sums grow, computed exactly."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import numpy as np

from fedbandit import presets
from fedbandit.paper.claims.claim import (
    CONFIRMED,
    OTHER_CONSTANT,
    OTHER_EXPONENT,
    REFUTED,
    Outcome,
    PaperClaim,
)
from fedbandit.plan import Plan
from fedbandit.presets import secure_sum
from fedbandit.privacy.accounting import theorem_ldp_sigma, tree_levels
from fedbandit.privacy.amplification import Amplified, theorem_sdp
from fedbandit.privacy.budget import Privacy
from fedbandit.protocol.mechanisms.tree import lowest_set_bit
from fedbandit.schedule import every

__all__ = [
    "EXACT",
    "amplified_noise_claim",
    "amplified_outcome",
    "exponent",
    "largest_memberships",
    "logarithms",
    "noise_claim",
    "noise_outcome",
    "noise_variances",
    "p_sums_claim",
    "syncs",
    "syncs_claim",
]

SILOS = (1, 4, 16, 64, 250, 1000)
TINY = Privacy(1e-5, 1e-4)  # the amplification lemma holds for tiny budgets only
ROUNDS, DIM, SYNCS, LEVELS = 10_000, 10, 400, 9
EXACT = 1e-3  # tolerance of an exponent: noise bits are whole numbers


def exponent(silos: Sequence[int], values: Sequence[float]) -> float:
    """Slope of log value against log silos (least squares)."""
    return float(np.polyfit(np.log(silos), np.log(values), 1)[0])


def noise_variances(
    preset: Callable[[Plan], Plan], silos: Sequence[int] = SILOS, privacy: Privacy | None = None
) -> list[float]:
    """Noise variance of the worst prefix sum over all silos, one per number of silos; no silo colludes."""
    asked = privacy or Privacy(1.0, 0.1)
    return [preset(Plan(count, ROUNDS, DIM, privacy=asked, colluding=0)).noise_std ** 2 for count in silos]


def noise_claim() -> PaperClaim:
    """Noise ~ M for silo-level LDP, ~ 1 for sums under SDP."""
    slopes = {
        "silo-level LDP (Theorem LDP)": exponent(SILOS, noise_variances(presets.ldp)),
        "SDP by vector sum (Theorem SDP-vec)": exponent(SILOS, noise_variances(presets.sdp_vector_sum)),
        "secure-sum (ours), nobody colluding": exponent(SILOS, noise_variances(secure_sum)),
    }
    return PaperClaim(
        "noise",
        "total noise variance grows as M under silo-level LDP and not at all under SDP by vector sum",
        noise_outcome(zip(slopes.values(), (1.0, 0.0, 0.0), strict=True)),
        tuple(f"{name}: variance ~ M^{slope:.4f} over M = 1..1000" for name, slope in slopes.items()),
    )


def noise_outcome(exponents: Iterable[tuple[float, float]]) -> Outcome:
    """Confirmed if each pair (computed, claimed) agrees: the exponents are exact up to rounding."""
    return CONFIRMED if all(abs(slope - claimed) <= EXACT for slope, claimed in exponents) else OTHER_EXPONENT


def amplified_noise_claim() -> PaperClaim:
    """Theorem SDP: sigma_0^2 falls as 1/M, so the total does not grow with M, up to logarithms."""
    silos = tuple(10**power for power in range(2, 8))
    budgets = [theorem_sdp(TINY.epsilon, TINY.delta, count, ROUNDS, LEVELS) for count in silos]
    found = [count * budget.sigma**2 for count, budget in zip(silos, budgets, strict=True)]
    grown = [math.exp(ROUNDS * budget.local_epsilon) for budget in budgets]
    logs = [logarithms(budget, count) for count, budget in zip(silos, budgets, strict=True)]
    left = [a / (b * c) for a, b, c in zip(found, grown, logs, strict=True)]
    pieces, rest = (
        [exponent(pair, values) for pair, values in zip(pairwise(silos), pairwise(all_values), strict=True)]
        for all_values in (found, left)
    )
    local = [count * theorem_ldp_sigma(TINY.epsilon, TINY.delta, tree_levels(SYNCS)) ** 2 for count in silos]
    shares = ", ".join(f"{a / b:.3g}" for a, b in zip(found, local, strict=True))
    return PaperClaim(
        "noise by amplification",
        "total noise variance does not grow with M under SDP by amplification, up to logarithms",
        amplified_outcome(pieces, rest),
        (
            f"Lemma amp at (ε, δ) = ({TINY.epsilon:g}, {TINY.delta:g}), T = {ROUNDS:,}: from each M to the next, M = "
            f"10^2 to 10^7, the exponent is {', '.join(f'{piece:.2f}' for piece in pieces)}",
            f"variance over that of silo-level LDP: {shares}",
            "at a fixed ε more silos let each spend more, until Tε_0 reaches 1, where the lemma ends; on the way there "
            f"its e^(Tε_0) grows, up to e: here {', '.join(f'{value:.2f}' for value in grown)}",
            f"all other growth is that of logarithms: log(1.25/δ_0) log(4/slack) grows {logs[-1] / logs[0]:.2g}-fold, "
            f"and what is left falls, by {1 - left[-1] / left[0]:.0%}",
        ),
    )


def logarithms(budget: Amplified, silos: int) -> float:
    """log(1.25/delta_0) log(4/slack): the logarithms in sigma_0^2 of the lemma, whose slack is what delta leaves it."""
    local = budget.local_delta * silos * (math.exp(budget.epsilon) + 1) * (1 + math.exp(-budget.local_epsilon) / 2)
    slack = (budget.delta - local) / math.tanh(budget.local_epsilon / 2)
    return math.log(1.25 / budget.local_delta) * math.log(4 / slack)


def amplified_outcome(exponents: Sequence[float], rest: Sequence[float]) -> Outcome:
    """The outcome from the exponents of the noise, and from those of what its logarithms and e^(T epsilon_0), which is
    at most e, leave of it: a power of M that is left would be another exponent."""
    if max(rest) > EXACT:
        return OTHER_EXPONENT
    return OTHER_CONSTANT if max(exponents) > EXACT else CONFIRMED


def syncs(silos: int, rounds: int) -> int:
    """The number of syncs at B = sqrt(T/M)."""
    batch = math.isqrt(rounds // silos)
    plan = presets.fed_lin_ucb(Plan(silos, rounds, DIM, trust="none"), schedule=every(batch))
    return plan.syncs or 0


def syncs_claim() -> PaperClaim:
    """Corollaries LDP and SDP: sqrt(MT) syncs."""
    grid = [(silos, silos * batch**2) for silos in (1, 4, 25, 100) for batch in (1, 5, 10)]
    wrong = [(m, t) for m, t in grid if syncs(m, t) != math.isqrt(m * t)]
    return PaperClaim(
        "syncs",
        "sqrt(MT) synchronisations at B = sqrt(T/M)",
        CONFIRMED if not wrong else REFUTED,
        (f"exactly sqrt(MT) in {len(grid) - len(wrong)} of {len(grid)} pairs (M, T) with a whole B",),
    )


def largest_memberships(most: int) -> list[int]:
    """For K = 1..most, how many p-sums of Algorithm 2 one datum enters at most, counted one p-sum at a time."""
    counts, largest = np.zeros(most + 1, dtype=int), []
    for k in range(1, most + 1):
        counts[k - (1 << lowest_set_bit(k)) + 1 : k + 1] += 1
        largest.append(int(counts.max()))
    return largest


def p_sums_claim(most: int = 4096) -> PaperClaim:
    """Each datum enters at most 1 + log K p-sums."""
    counted = largest_memberships(most)
    exact = [1 + int(math.log2(k)) for k in range(1, most + 1)]
    natural = sum(count > 1 + math.log(k) for k, count in enumerate(counted, 1))
    return PaperClaim(
        "p-sums",
        "each datum enters at most 1 + log K p-sums",
        CONFIRMED if counted == exact else REFUTED,
        (
            f"the most is exactly 1 + floor(log2 K) for every K up to {most:,}" if counted == exact else "it is not",
            f"so the logarithm in kappa is base 2: 1 + ln K is too small for {natural:,} of these K "
            f"(K = 400: {counted[399]} p-sums, 1 + ln K = {1 + math.log(400):.2f})",
        ),
    )
