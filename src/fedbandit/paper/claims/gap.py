"""The M^(1/4) gap between silo-level LDP and a super single agent: computed from the bounds, simulated for the regret.

The paper's super agent meets all MT users one after another under the central model. Here it runs the paper's own
mechanism with the paper's constants, one silo and MT rounds, and releases its statistics after every user.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedbandit import presets
from fedbandit._arrays import Floats
from fedbandit.paper.claims.claim import CONFIRMED, OTHER_EXPONENT, REFUTED, Outcome, PaperClaim
from fedbandit.paper.claims.growth import Exponent, exponent_over_runs
from fedbandit.paper.claims.scaling import EXACT, exponent
from fedbandit.paper.regret_bounds import order_ldp
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.simulator import tasks
from fedbandit.simulator.engine import Progress
from fedbandit.simulator.runner import simulate

__all__ = ["Gap", "gap_claim", "measured", "outcome"]

DIM, ARMS, ROUNDS = 5, 20, 500
SILOS, RUNS = (1, 4, 16, 64), 6
QUICK_SILOS, QUICK_RUNS = (1, 16), 2
BUDGET = Privacy(5.0, 0.1)
CLAIMED = 0.25


class Gap(NamedTuple):
    """The cost of privacy at one number of silos: for the federation, and for the agent that meets users one by one."""

    silos: int
    federated: Floats  # regret minus FedLinUCB's, run by run (runs,)
    sequential: Floats  # regret minus LinUCB's, run by run (runs,)
    bound: float  # privacy term of Corollary LDP over that of the super agent

    @property
    def ratio(self) -> Floats:
        return self.federated / self.sequential


def measured(silos: int, runs: int) -> Gap:
    """Play both agents, each with its own non-private baseline, on the same instance with equally many users."""
    federated = Plan(silos, ROUNDS, DIM, privacy=BUDGET, trust="silo")
    sequential = federated.changed(silos=1, rounds=silos * ROUNDS)
    return Gap(
        silos,
        federated=_cost(presets.ldp(federated), presets.fed_lin_ucb(federated), runs),
        sequential=_cost(presets.super_agent(sequential), presets.isolated(sequential), runs),
        bound=_privacy_term(federated) / _privacy_term(sequential),
    )


def _cost(private: Plan, free: Plan, runs: int) -> Floats:
    """Regret of the private plan minus that of the free plan on the same users, (runs,)."""
    result = simulate(tasks.synthetic(DIM, ARMS), {"private": private, "free": free}, runs, 0, progress=_silent)
    return np.asarray(private.rounds * (result.final("private") - result.final("free")))


def _silent(share: float) -> None:
    """Ignore the progress of a single simulation."""


def _privacy_term(plan: Plan) -> float:
    """sqrt(T) (Md)^(3/4) log^(1/4)(1/delta) / sqrt(epsilon), without the factor log^(1/4)(K/alpha) of the bound."""
    return order_ldp(plan).privacy / math.sqrt(math.sqrt(math.log(plan.encoder.size / plan.alpha)))


def outcome(bound: float, slope: Exponent) -> Outcome:
    """The outcome, from the exponent of the bounds and the measured one."""
    if abs(bound - CLAIMED) > EXACT:
        return REFUTED
    return CONFIRMED if slope.covers(CLAIMED) else OTHER_EXPONENT


def gap_claim(quick: bool = False, progress: Progress = lambda share: None) -> PaperClaim:
    """Corollary LDP, compared with a super agent."""
    silos, runs = (QUICK_SILOS, QUICK_RUNS) if quick else (SILOS, RUNS)
    gaps = []
    for count in silos:
        gaps.append(measured(count, runs))
        progress(sum(silos[: len(gaps)]) / sum(silos))
    bound = exponent(silos, [gap.bound for gap in gaps])
    slope = exponent_over_runs(silos, [gap.ratio for gap in gaps])
    costs = "; ".join(
        f"{gap.federated.mean():,.0f} and {gap.sequential.mean():,.0f}, {gap.ratio.mean():.2f} times as much"
        for gap in gaps
    )
    return PaperClaim(
        "gap",
        "under silo-level LDP the privacy cost is M^(1/4) times that of a super agent that meets all MT users",
        outcome(bound, slope),
        (
            f"the privacy terms of the two bounds differ by M^{bound:.4f}",
            f"privacy costs the federation and the sequential agent of MT rounds (T = {ROUNDS}, d = {DIM}, "
            f"({BUDGET.epsilon:g}, {BUDGET.delta:g}), {runs} runs), at M = {', '.join(map(str, silos))}: {costs}",
            f"the ratio grows as M^{slope}, from each M to the next with the exponent "
            + ", ".join(f"{piece:.2f}" for piece in slope.pieces),
        ),
    )
