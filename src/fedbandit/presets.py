"""Every protocol by name: the paper's, with the paper's constants, and ours. The command line and the audit use them.

Each function takes a plan (its silos, rounds, dimension and budget) and returns the plan of its protocol. The paper's
protocols come in two versions. `as_proven` uses the constants of the theorems. `as_simulated` uses those of the
published simulation: they differ a lot, always act eagerly, and come with no guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from fedbandit import _validate
from fedbandit.bandit.policies import UCB
from fedbandit.plan import Plan
from fedbandit.plan_data import PERSONAL_SHARE
from fedbandit.schedule import Adaptive, Clock, Every, Schedule

__all__ = [
    "ALONE",
    "BATCH",
    "NAMES",
    "OURS",
    "PAPER",
    "TRUST_OF",
    "Constants",
    "central",
    "dubey",
    "fed_lin_ucb",
    "isolated",
    "lazy",
    "ldp",
    "ldp_alt",
    "ldp_eager",
    "local",
    "plan_for",
    "private_adaptive",
    "sdp_amplified",
    "sdp_vector_sum",
    "secure_sum",
    "silo",
    "super_agent",
]

Constants = Literal["as_proven", "as_simulated"]
BATCH = 25

# -- the paper's ------------------------------------------------------------------------------------------------------


def fed_lin_ucb(plan: Plan, constants: Constants = "as_proven", schedule: Schedule | None = None) -> Plan:
    """Non-private FedLinUCB with a fixed batch."""
    return _paper(plan, constants, schedule).changed(trust="none", privacy=None)


def ldp(plan: Plan, constants: Constants = "as_proven", schedule: Schedule | None = None) -> Plan:
    """LDP-FedLinUCB: the protocol of Theorem LDP. As proven it acts lazily; its guarantee needs that."""
    return _paper(plan, constants, schedule).changed(trust="silo")


lazy = ldp  # Priv-FedLinUCB-Lazy is this algorithm: Algorithm 1 with lazy acting


def ldp_eager(plan: Plan, constants: Constants = "as_proven", schedule: Schedule | None = None) -> Plan:
    """Algorithm 1 as printed: acts on the raw sums of the current batch, and so has no guarantee."""
    return ldp(plan, constants, schedule).changed(acting="eager")


def ldp_alt(plan: Plan, constants: Constants = "as_proven", schedule: Schedule | None = None) -> Plan:
    """P_alt: the same noise, decoded at the silo."""
    return ldp(plan, constants, schedule).changed(decode_at="silo")


def sdp_amplified(plan: Plan, constants: Constants = "as_proven", schedule: Schedule | None = None) -> Plan:
    """SDP-FedLinUCB by amplification: Theorem SDP, by the lemma itself (as simulated: its hidden constants are 1)."""
    return _paper(plan, constants, schedule).changed(trust="shuffle")


def sdp_vector_sum(plan: Plan, constants: Constants = "as_proven", schedule: Schedule | None = None) -> Plan:
    """SDP-FedLinUCB by vector sum: Theorem SDP-vec (as simulated: b's constant is 1, without composition)."""
    return _paper(plan, constants, schedule).changed(trust="vector-sum")


def dubey(plan: Plan, constants: Constants = "as_proven", schedule: Schedule | None = None) -> Plan:
    """Dubey & Pentland's algorithm as the paper restates it: adaptive schedule, prefix sums from a tree. It leaks."""
    decided = schedule if isinstance(schedule, Adaptive) else Adaptive(_threshold(plan))
    return ldp_eager(plan, constants, decided).changed(decode_at="silo")


def private_adaptive(plan: Plan, constants: Constants = "as_proven", schedule: Schedule | None = None) -> Plan:
    """The determinant rule on noisy local covariances (eq. det-new): calibrated exactly, half of mu^2 for the rule."""
    decided = schedule if isinstance(schedule, Adaptive) else Adaptive(_threshold(plan), private=True)
    return ldp(plan, constants, decided).changed(calibration="exact", acting="lazy")


def super_agent(plan: Plan, constants: Constants = "as_proven", schedule: Schedule | None = None) -> Plan:
    """One agent that sees every user: a trusted analyzer that releases statistics after every round."""
    return _paper(plan, constants, schedule or Every(1)).changed(trust="central")


def _paper(plan: Plan, constants: Constants, schedule: Schedule | None) -> Plan:
    """A plan with all that the paper's algorithms share."""
    same = {name: getattr(plan, name) for name in ("silos", "rounds", "dim", "alpha", "bits", "schema")}
    shared = Plan(**same, trust="none", mechanism="tree")
    simulated = constants == "as_simulated"
    shared = shared.changed(
        schedule=schedule or Every(min(BATCH, plan.rounds)),
        people=plan.people if isinstance(schedule, Clock) else 1,
        confidence="published" if simulated else plan.confidence,
        exploration=plan.exploration if simulated else 1.0,
        reward_noise=plan.reward_noise if simulated else 1.0,
        acting="eager" if simulated else "lazy",
        calibration="published" if simulated else "paper",
    )
    return shared if plan.privacy is None else shared.changed(privacy=plan.privacy)


def _threshold(plan: Plan) -> float:
    """D of the rule: T log(MT + 1) / (dM), which balances its two regret terms (Dubey & Pentland, Theorem 4)."""
    return plan.rounds * math.log(plan.silos * plan.rounds + 1) / (plan.dim * plan.silos)


# -- ours -------------------------------------------------------------------------------------------------------------


def silo(plan: Plan, schedule: Schedule | None = None) -> Plan:
    """Silo-level LDP with exact calibration and the square-root mechanism."""
    return _ours(plan, schedule).changed(trust="silo", colluding=None)


def secure_sum(plan: Plan, schedule: Schedule | None = None) -> Plan:
    """The noise of a trusted analyzer without one."""
    return _ours(plan, schedule).changed(trust="secure-sum")


def central(plan: Plan, schedule: Schedule | None = None) -> Plan:
    """A trusted analyzer, the yardstick for secure-sum."""
    return _ours(plan, schedule).changed(trust="central", colluding=None)


def local(plan: Plan, schedule: Schedule | None = None) -> Plan:
    """Each user adds their own noise and trusts nobody."""
    return _ours(plan, schedule).changed(trust="local", mechanism="batches", colluding=None, cohort=None)


def isolated(plan: Plan, schedule: Schedule | None = None) -> Plan:
    """Each silo alone, without privacy: what a silo has if it stays out. It never syncs; `schedule` is not used."""
    free = plan.changed(
        trust="none",
        privacy=None,
        colluding=None,
        cohort=None,
        uncounted=None,
        policy=UCB,
        apprentice=False,
        forget=1.0,
        endless=False,
        personal=(),
        personal_share=PERSONAL_SHARE,
    )
    return _ours(free, Every(plan.rounds)).changed(acting="eager")


def _ours(plan: Plan, schedule: Schedule | None) -> Plan:
    return plan if schedule is None else plan.changed(schedule=schedule)


# -- by name ----------------------------------------------------------------------------------------------------------

PAPER: dict[str, Callable[[Plan, Constants, Schedule | None], Plan]] = {
    "fed-lin-ucb": fed_lin_ucb,
    "ldp": ldp,
    "ldp-eager": ldp_eager,
    "ldp-alt": ldp_alt,
    "sdp-amplified": sdp_amplified,
    "sdp-vector-sum": sdp_vector_sum,
    "dubey": dubey,
    "private-adaptive": private_adaptive,
    "super-agent": super_agent,
}
OURS: dict[str, Callable[[Plan, Schedule | None], Plan]] = {
    "silo": silo,
    "secure-sum": secure_sum,
    "central": central,
    "local": local,
    "isolated": isolated,
}
NAMES = (*PAPER, *OURS)
ALONE = ("isolated",)  # protocols whose silos send nothing: the only sync of such a plan is at the horizon
TRUST_OF = {  # without building a plan, which fails where a protocol's theorem does not apply
    "fed-lin-ucb": "none",
    "ldp": "silo",
    "ldp-eager": "silo",
    "ldp-alt": "silo",
    "sdp-amplified": "shuffle",
    "sdp-vector-sum": "vector-sum",
    "dubey": "silo",
    "private-adaptive": "silo",
    "super-agent": "central",
    "silo": "silo",
    "secure-sum": "secure-sum",
    "central": "central",
    "local": "local",
    "isolated": "none",
}


def plan_for(name: str, plan: Plan, schedule: Schedule | None = None) -> Plan:
    """The protocol `name` for the silos, rounds, dimension and budget of `plan`, on `schedule` if one is given.

    `dubey` and `private-adaptive` ignore a public schedule because the data decide when they synchronise. `isolated`
    ignores it because it never synchronises.

    >>> from fedbandit.privacy.budget import Privacy
    >>> asked = Plan(silos=100, rounds=10_000, dim=10, privacy=Privacy(epsilon=1.0, delta=0.1))
    >>> paper, ours = plan_for("ldp", asked), plan_for("secure-sum", asked)
    >>> paper.mechanism, paper.syncs, ours.mechanism, ours.syncs
    ('tree', 400, 'toeplitz', 79)
    >>> f"{paper.noise_std / ours.noise_std:.0f} times the noise"
    '87 times the noise'
    """
    _validate.one_of("protocol", name, NAMES)
    return PAPER[name](plan, "as_proven", schedule) if name in PAPER else OURS[name](plan, schedule)
