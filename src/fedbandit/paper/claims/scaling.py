"""How the noise, the number of syncs and the number of p-sums grow, computed exactly."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from fedbandit import presets
from fedbandit.paper.claims.claim import CONFIRMED, OTHER_CONSTANT, REFUTED, PaperClaim
from fedbandit.plan import Plan
from fedbandit.presets import secure_sum
from fedbandit.privacy.budget import Privacy
from fedbandit.protocol.mechanisms.tree import lowest_set_bit
from fedbandit.schedule import every

__all__ = ["exponent", "largest_memberships", "noise_claim", "noise_variances", "p_sums_claim", "syncs", "syncs_claim"]

SILOS = (1, 4, 16, 64, 250, 1000)
LARGE_FEDERATIONS = (100, 250, 1000)  # the amplification lemma asks for many silos
TINY = Privacy(1e-4, 1e-4)
ROUNDS, DIM = 10_000, 10


def exponent(silos: Sequence[int], values: Sequence[float]) -> float:
    """Slope of log value against log silos (least squares)."""
    return float(np.polyfit(np.log(silos), np.log(values), 1)[0])


def noise_variances(
    preset: Callable[[Plan], Plan], silos: Sequence[int] = SILOS, privacy: Privacy | None = None
) -> list[float]:
    """Variance, over all silos, of the worst released prefix sum, as the analyzer sees it: no silo colludes with it."""
    asked = privacy or Privacy(1.0, 0.1)
    return [preset(Plan(count, ROUNDS, DIM, privacy=asked, colluding=0)).noise_std ** 2 for count in silos]


def noise_claim() -> PaperClaim:
    """Noise ~ M for silo-level LDP, ~ 1 under SDP."""
    slopes = {
        "silo-level LDP (Theorem LDP)": exponent(SILOS, noise_variances(presets.ldp)),
        "SDP by vector sum (Theorem SDP-vec)": exponent(SILOS, noise_variances(presets.sdp_vector_sum)),
        "secure-sum (ours), nobody colluding": exponent(SILOS, noise_variances(secure_sum)),
    }
    amplified = noise_variances(presets.sdp_amplified, LARGE_FEDERATIONS, TINY)
    local = noise_variances(presets.ldp, LARGE_FEDERATIONS, TINY)
    shrinking = exponent(LARGE_FEDERATIONS, amplified)
    gains = ", ".join(f"{a / b:.3g}" for a, b in zip(amplified, local, strict=True))
    good = abs(slopes["silo-level LDP (Theorem LDP)"] - 1) < 0.01 and all(
        abs(slope) < 0.05 for name, slope in slopes.items() if "LDP" not in name
    )
    return PaperClaim(
        "noise",
        "total noise variance grows as M under silo-level LDP and not at all under SDP",
        CONFIRMED if good and abs(shrinking) < 0.5 else OTHER_CONSTANT if good else REFUTED,
        (
            *(f"{name}: variance ~ M^{slope:.3f} over M = 1..1000" for name, slope in slopes.items()),
            f"SDP by amplification (Lemma amp, ε = δ = 1e-4): variance ~ M^{shrinking:.3f} over M = 100..1000, and "
            f"{gains} times that of silo-level LDP at M = {', '.join(map(str, LARGE_FEDERATIONS))}",
        ),
    )


def syncs(silos: int, rounds: int) -> int:
    """How many synchronisations there are at B = sqrt(T/M)."""
    batch = math.isqrt(rounds // silos)
    plan = presets.fed_lin_ucb(Plan(silos, rounds, DIM, trust="none"), schedule=every(batch))
    return plan.syncs or 0


def syncs_claim() -> PaperClaim:
    """Corollaries LDP and SDP."""
    grid = [(silos, silos * batch**2) for silos in (1, 4, 25, 100) for batch in (1, 5, 10)]
    wrong = [(m, t) for m, t in grid if syncs(m, t) != math.isqrt(m * t)]
    return PaperClaim(
        "syncs",
        "sqrt(MT) synchronisations at B = sqrt(T/M)",
        CONFIRMED if not wrong else REFUTED,
        (f"exactly sqrt(MT) in {len(grid) - len(wrong)} of {len(grid)} pairs (M, T) with a whole B",),
    )


def largest_memberships(most: int) -> list[int]:
    """For K = 1..most, the most p-sums of Algorithm 2 that one datum enters, counted one p-sum at a time."""
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
