"""The paper's algorithms as plans. Each takes a plan (its silos, rounds, dimension and budget) and gives the paper's.

`as_proven` uses the constants of the theorems; `as_simulated` those of the published simulation, which differ a lot,
act eagerly throughout and come with no guarantee.
"""

from __future__ import annotations

import math
from typing import Literal

from fedbandit.plan import Plan
from fedbandit.schedule import Adaptive, Every, Schedule

Constants = Literal["as_proven", "as_simulated"]
BATCH = 25


def fed_lin_ucb(plan: Plan, constants: Constants = "as_proven", schedule: Schedule | None = None) -> Plan:
    """Non-private FedLinUCB with a fixed batch."""
    return _paper(plan, constants, schedule).changed(trust="none", privacy=None)


def ldp(plan: Plan, constants: Constants = "as_proven", schedule: Schedule | None = None) -> Plan:
    """LDP-FedLinUCB: Theorem LDP's protocol. As proven it acts lazily, which is what makes its guarantee true."""
    return _paper(plan, constants, schedule).changed(trust="silo")


lazy = ldp  # Priv-FedLinUCB-Lazy is this algorithm: Algorithm 1 with lazy acting


def ldp_eager(plan: Plan, constants: Constants = "as_proven", schedule: Schedule | None = None) -> Plan:
    """Algorithm 1 as printed: acts on the raw sums of the current batch, and so has no guarantee."""
    return ldp(plan, constants, schedule).changed(acting="eager")


def ldp_alt(plan: Plan, constants: Constants = "as_proven", schedule: Schedule | None = None) -> Plan:
    """P_alt: the same noise, decoded at the silo."""
    return ldp(plan, constants, schedule).changed(decode_at="silo")


def sdp_amplified(plan: Plan, constants: Constants = "as_proven", schedule: Schedule | None = None) -> Plan:
    """SDP-FedLinUCB by amplification: Theorem SDP, by the lemma itself (or with its hidden constants read as 1)."""
    return _paper(plan, constants, schedule).changed(trust="shuffle")


def sdp_vector_sum(plan: Plan, constants: Constants = "as_proven", schedule: Schedule | None = None) -> Plan:
    """SDP-FedLinUCB by vector sum: Theorem SDP-vec (or b's constant 1, no composition)."""
    return _paper(plan, constants, schedule).changed(trust="vector-sum")


def dubey(plan: Plan, constants: Constants = "as_proven", schedule: Schedule | None = None) -> Plan:
    """Dubey & Pentland's algorithm as the paper restates it: adaptive schedule, prefix sums from a tree. It leaks."""
    return ldp_eager(plan, constants, schedule or Adaptive(_threshold(plan))).changed(decode_at="silo")


def private_adaptive(plan: Plan, constants: Constants = "as_proven", schedule: Schedule | None = None) -> Plan:
    """The determinant rule on noisy local covariances (eq. det-new); exact calibration, half of mu^2 for the rule."""
    planned = ldp(plan, constants, schedule or Adaptive(_threshold(plan), private=True))
    return planned.changed(calibration="exact", acting="lazy")


def super_agent(plan: Plan, constants: Constants = "as_proven", schedule: Schedule | None = None) -> Plan:
    """One agent that sees every user: a trusted server, statistics released after every round."""
    return _paper(plan, constants, schedule or Every(1)).changed(trust="central")


def _paper(plan: Plan, constants: Constants, schedule: Schedule | None) -> Plan:
    """What all of the paper's algorithms share."""
    shared = Plan(plan.silos, plan.rounds, plan.dim, trust="none", mechanism="tree", alpha=plan.alpha, bits=plan.bits)
    simulated = constants == "as_simulated"
    shared = shared.changed(
        schedule=schedule or Every(min(BATCH, plan.rounds)),
        confidence="published" if simulated else plan.confidence,
        exploration=plan.exploration,
        reward_noise=plan.reward_noise,
        acting="eager" if simulated else "lazy",
        calibration="published" if simulated else "paper",
    )
    return shared if plan.privacy is None else shared.changed(privacy=plan.privacy)


def _threshold(plan: Plan) -> float:
    """D of the rule: T log(MT) / (dM), the order that balances its two regret terms (Dubey & Pentland, Theorem 4)."""
    return plan.rounds * math.log(plan.silos * plan.rounds + 1) / (plan.dim * plan.silos)
