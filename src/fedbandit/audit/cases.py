"""What is audited: a plan small enough to be run many times, who attacks it, and what is claimed for it.

`case` has one for each protocol by name, `reduced` one for anybody's plan. Both are smaller only in what the guarantee
does not depend on: the dimension does not matter to the largest shift of a user from 2 on (3 shows more of the noise),
other silos do not matter where each is protected on its own, shared noise needs few honest silos, and noise is
calibrated anew for a shorter horizon by the same rule. Schedule, mechanism, calibration and acting are the plan's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fedbandit import _validate
from fedbandit._validate import ArgumentError
from fedbandit.audit.adaptive_game import adaptive_games
from fedbandit.audit.auditor import Game
from fedbandit.audit.calendar_game import calendar_game
from fedbandit.audit.worlds import neighbours
from fedbandit.plan import Plan
from fedbandit.presets import NAMES, plan_for
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import Adaptive, Every

__all__ = ["AUDITED", "Case", "Claim", "case", "case_of", "claim_of", "reduced"]

AUTHORS_CLAIM = {
    "ldp-eager": "Theorem LDP states it of Algorithm 1, which acts on raw sums",
    "dubey": "Dubey & Pentland state it of their Algorithm 1, whose schedule reads raw sums",
}
DIM = 3  # of a reduced plan, at most: enough for pairs in general position
SYNCS = 400
COLLUDING = 1


class Claim(NamedTuple):
    """What there is to refute, and who says so."""

    epsilon: float
    delta: float
    statement: str


@dataclass(frozen=True)
class Case:
    """A plan under audit."""

    name: str
    plan: Plan
    games: tuple[Game, ...]
    claim: Claim | None  # None: nobody claims anything
    budget: tuple[float, float]  # what was asked for
    trials: int  # enough for this case
    live: bool = False  # on the live path, with noise that has no seed

    @property
    def described(self) -> str:
        """The audited plan in words."""
        plan = self.plan
        syncs = "times by data" if plan.syncs is None else f"{plan.syncs} synchronisations"
        played = self.games[0].silos
        others = "" if played == plan.silos else f" ({played} run, the others are the adversary's)"
        return (
            f"{plan.silos:,} silos{others}, {plan.rounds:,} rounds, d = {plan.dim}, trust {plan.trust}, "
            f"{plan.mechanism}, {plan.schedule} ({syncs}), {plan.acting}, {plan.calibration} calibration"
            f"{', on the live path' if self.live else ''}"
        )


def case_of(name: str, plan: Plan, budget: tuple[float, float], trials: int) -> Case:
    """This very plan; `budget` is what it is held to where it promises nothing itself."""
    return Case(name, plan, _games(plan, budget), claim_of(name, plan, budget), budget, trials)


def claim_of(name: str, plan: Plan, budget: tuple[float, float]) -> Claim | None:
    """What is claimed for a plan, by itself or by the authors of the protocol of this name."""
    promise = plan.guarantee
    if promise.epsilon is not None and promise.delta is not None:
        return Claim(promise.epsilon, promise.delta, promise.statement)
    if name in AUTHORS_CLAIM:
        return Claim(*budget, f"({budget[0]:g}, {budget[1]:g})-DP: {AUTHORS_CLAIM[name]}. {promise.statement}")
    return None


def _games(plan: Plan, budget: tuple[float, float]) -> tuple[Game, ...]:
    """Two worlds for the plan, and everybody that its trust model names as an adversary."""
    if isinstance(plan.schedule, Adaptive):
        return adaptive_games(plan)
    held = plan if plan.privacy is not None else plan.changed(privacy=Privacy(*budget))
    assert held.privacy is not None
    played = held.privacy.silos_per_user if plan.trusting.separate else plan.silos
    return (calendar_game(plan, played, neighbours(held, played)),)


# -- a protocol by name ------------------------------------------------------------------------------------------------


class _Size(NamedTuple):
    silos: int
    rounds: int
    dim: int
    batch: int | None  # None: the protocol's own schedule
    trials: int
    colluding: int = 0


# Why these: `silo` and the paper's LDP keep the paper's size (one silo of them is played); `ldp-eager` also its
# dimension. A secure sum needs few silos to be one. Amplification is defined at epsilon = 1 for many silos with few
# users. The determinant rule of `dubey` fires within the horizon, that of `private-adaptive` fires on noise.
_SIZES = {
    "fed-lin-ucb": _Size(2, 100, 2, 25, 10_000),
    "ldp": _Size(100, 10_000, 3, 25, 30_000),
    "ldp-alt": _Size(100, 1_600, 3, 25, 30_000),
    "ldp-eager": _Size(100, 10_000, 10, 25, 2_000),
    "sdp-amplified": _Size(200, 4, 3, 2, 5_000),
    "sdp-vector-sum": _Size(2, 4, 3, 2, 20_000),
    "dubey": _Size(100, 1_000, 10, None, 1_000),
    "private-adaptive": _Size(10_000, 64, 3, None, 20_000),
    "super-agent": _Size(2, 64, 3, 1, 30_000),
    "silo": _Size(100, 10_000, 3, None, 60_000),
    "secure-sum": _Size(3, 1_000, 3, None, 80_000, colluding=1),
    "central": _Size(2, 1_000, 3, None, 60_000),
    "local": _Size(100, 16, 3, 1, 60_000),
}
AUDITED = tuple(_SIZES)


def case(name: str, epsilon: float, delta: float) -> Case:
    """The protocol `name` at this budget, at a size that can be audited."""
    _validate.one_of("name", name, NAMES)
    if name not in _SIZES:
        raise ArgumentError("name", f"must be a protocol that sends something; {name!r} does not, so nothing can leak")
    size = _SIZES[name]
    base = Plan(size.silos, size.rounds, size.dim, Privacy(epsilon, delta), colluding=size.colluding)
    plan = plan_for(name, base, None if size.batch is None else Every(size.batch))
    return case_of(name, plan, (epsilon, delta), size.trials)


# -- anybody's plan ----------------------------------------------------------------------------------------------------


def reduced(plan: Plan) -> Case:
    """A plan at a size that can be audited; without a budget there is nothing to hold it to."""
    budget = plan.privacy
    if budget is None:
        raise ArgumentError("plan", "must have a privacy budget to be audited, got none")
    smaller = _fewer_silos(_shorter(plan.changed(dim=min(plan.dim, DIM))), budget)
    return case_of("plan", smaller, (budget.epsilon, budget.delta), plan.trusting.audit.trials)


def _shorter(plan: Plan) -> Plan:
    """As many rounds as the trust model is audited with, or at least no more syncs than SYNCS."""
    size = plan.trusting.audit
    if size.rounds is not None and plan.rounds > size.rounds:
        return plan.changed(rounds=size.rounds, schedule=Every(size.batch))
    syncs = plan.rounds if plan.syncs is None else plan.syncs
    return plan if syncs <= SYNCS else _shorter(plan.changed(rounds=plan.rounds // 2))


def _fewer_silos(plan: Plan, budget: Privacy) -> Plan:
    """As many honest silos as the trust model is audited with, those that one user visits among them."""
    honest = plan.trusting.audit.honest
    if honest is None:
        return plan
    colluding = min(plan.colluders, COLLUDING) if plan.trusting.shares_noise else 0
    silos = min(plan.silos, max(honest, budget.silos_per_user) + colluding)
    return plan.changed(silos=silos, colluding=colluding, cohort=None)
