"""The M^(1/4) gap between silo-level LDP and a super agent: exactly in the bound, by simulation in the regret."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fedbandit.paper.claims.claim import CONFIRMED, OTHER_EXPONENT, REFUTED, PaperClaim
from fedbandit.paper.claims.scaling import exponent
from fedbandit.plan import Plan
from fedbandit.presets import plan_for
from fedbandit.privacy.budget import Privacy
from fedbandit.simulator import tasks
from fedbandit.simulator.engine import Progress
from fedbandit.simulator.runner import simulate

__all__ = ["Gap", "gap_claim", "measured"]

DIM, ARMS, ROUNDS = 10, 100, 400
SILOS = (1, 4, 16, 64, 250, 1000)
QUICK_SILOS = (1, 16, 100)
BUDGET = Privacy(1.0, 0.1)


class Gap(NamedTuple):
    """Silo-level LDP over the super agent, at one number of silos."""

    silos: int
    noise: float  # ratio of noise levels
    bound: float  # ratio of the privacy terms of Lemma subG, sqrt of the former
    log_regret: float  # mean over runs of the logarithm of the ratio of regrets
    stderr: float


def measured(silos: int, runs: int, progress: Progress = lambda share: None) -> Gap:
    """Both protocols with the same mechanism, schedule and budget on the same users; only the trust differs."""
    asked = Plan(silos, ROUNDS, DIM, privacy=BUDGET, trust="silo")
    plans = {name: plan_for(name, asked) for name in ("silo", "central")}
    result = simulate(tasks.synthetic(DIM, ARMS), plans, runs, seed=0, progress=progress)
    logs = np.log(result.final("silo") / result.final("central"))
    noise = plans["silo"].noise_std / plans["central"].noise_std
    return Gap(silos, noise, math.sqrt(noise), float(logs.mean()), float(logs.std(ddof=1) / math.sqrt(runs)))


def gap_claim(quick: bool, progress: Progress) -> PaperClaim:
    """Corollary LDP against a super agent."""
    silos, runs = (QUICK_SILOS, 2) if quick else (SILOS, 4)
    gaps = [measured(count, runs, _part_of(progress, silos, count)) for count in silos]
    bound = exponent(silos, [gap.bound for gap in gaps])
    slopes = [
        (after.log_regret - before.log_regret) / math.log(after.silos / before.silos)
        for before, after in pairwise(gaps)
    ]
    ratios = ", ".join(f"{math.exp(g.log_regret):.2f} (± {math.exp(g.log_regret) * g.stderr:.2f})" for g in gaps)
    exact = abs(bound - 0.25) < 1e-6
    return PaperClaim(
        "gap",
        "under silo-level LDP the privacy cost is M^(1/4) times that of a super agent",
        REFUTED if not exact else CONFIRMED if max(abs(slope - 0.25) for slope in slopes) < 0.1 else OTHER_EXPONENT,
        (
            f"the privacy terms of the two bounds (Lemma subG) differ by M^{bound:.4f}, the noise by M^{2 * bound:.4f}",
            f"regret (synthetic instance, T = {ROUNDS}, (1, 0.1), same mechanism and schedule, {runs} runs) differs by "
            f"{ratios} at M = {', '.join(map(str, silos))}",
            "no power of M fits: from each M to the next the exponent is "
            + ", ".join(f"{slope:.2f}" for slope in slopes)
            + "; M^(1/4) compares two worst-case bounds",
        ),
    )


def _part_of(progress: Progress, silos: tuple[int, ...], count: int) -> Progress:
    """Progress of one number of silos, which takes a share of the time in proportion to its users."""
    before, total = sum(other for other in silos if other < count), sum(silos)
    return lambda share: progress((before + share * count) / total)
