"""What is audited under a name: a plan small enough to be run many times, who attacks it, and what is claimed for it.

Where a guarantee does not depend on the number of silos or on the dimension, the audited plan has few of them; horizon,
schedule, mechanism, calibration and acting are the plan's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fedbandit import _validate
from fedbandit.audit.adaptive import adaptive_games
from fedbandit.audit.adversaries import Adversary, Analyzer, Counter, Everyone, Outsider, Server, ShareHolder
from fedbandit.audit.auditor import Game
from fedbandit.audit.game import calendar_game
from fedbandit.audit.worlds import neighbours
from fedbandit.plan import Plan
from fedbandit.planner.catalogue import NAMES, plan_for
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import Adaptive, Every

AUTHORS_CLAIM = {
    "ldp-eager": "Theorem LDP states it of Algorithm 1, which acts on raw sums",
    "dubey": "Dubey & Pentland state it of their Algorithm 1, whose schedule reads raw sums",
}


class Claim(NamedTuple):
    """What there is to refute, and who says so."""

    epsilon: float
    delta: float
    statement: str


@dataclass(frozen=True)
class Subject:
    """A plan under audit."""

    name: str
    plan: Plan
    games: tuple[Game, ...]
    claim: Claim | None  # None: nobody claims anything
    budget: tuple[float, float]  # what was asked for
    trials: int  # enough for this subject

    @property
    def described(self) -> str:
        """The audited plan in words."""
        plan = self.plan
        syncs = "times by data" if plan.synchronisations is None else f"{plan.synchronisations} synchronisations"
        played = self.games[0].silos
        others = "" if played == plan.silos else f" ({played} run, the others are the adversary's)"
        return (
            f"{plan.silos:,} silos{others}, {plan.rounds:,} rounds, d = {plan.dim}, trust {plan.trust}, "
            f"{plan.mechanism}, {plan.schedule} ({syncs}), {plan.acting}, {plan.calibration} calibration"
        )


class _Size(NamedTuple):
    silos: int
    rounds: int
    dim: int
    batch: int | None  # None: the protocol's own schedule
    trials: int
    chunk: int = 1000


# Why these: `silo` and the paper's LDP keep the paper's size (one silo of them is played); `ldp-eager` also its
# dimension. A secure sum needs few silos to be one. Amplification is defined at epsilon = 1 for many silos with few
# users. The determinant rule of `dubey` fires within the horizon, that of `private-adaptive` fires on noise.
_SIZES = {
    "fed-lin-ucb": _Size(2, 100, 2, 25, 10_000),
    "ldp": _Size(100, 10_000, 2, 25, 100_000),
    "ldp-alt": _Size(100, 1_600, 2, 25, 100_000),
    "ldp-eager": _Size(100, 10_000, 10, 25, 4_000),
    "sdp-amplified": _Size(200, 4, 2, 2, 20_000),
    "sdp-vector-sum": _Size(2, 4, 2, 2, 50_000),
    "dubey": _Size(100, 1_000, 10, None, 1_000, chunk=50),
    "private-adaptive": _Size(10_000, 64, 2, None, 20_000),
    "super-agent": _Size(2, 64, 2, 1, 100_000),
    "silo": _Size(100, 10_000, 2, None, 100_000),
    "secure-sum": _Size(3, 1_000, 2, None, 100_000),
    "central": _Size(2, 1_000, 2, None, 100_000),
    "local": _Size(100, 16, 2, 1, 100_000),
}
_COLLUDING = 1  # of the silos of an audited secure sum


def subject(name: str, epsilon: float, delta: float) -> Subject:
    """The protocol `name` at this budget, at a size that can be audited."""
    _validate.one_of("name", name, NAMES)
    if name == "isolated":
        raise ValueError("name must be a protocol that sends something; 'isolated' silos do not, so nothing can leak")
    size = _SIZES[name]
    base = Plan(size.silos, size.rounds, size.dim, Privacy(epsilon, delta))
    if name == "secure-sum":
        base = base.changed(colluding=_COLLUDING)
    plan = plan_for(name, base, None if size.batch is None else Every(size.batch))
    return subject_of(name, plan, (epsilon, delta), size.trials, size.chunk)


def subject_of(name: str, plan: Plan, budget: tuple[float, float], trials: int, chunk: int = 1000) -> Subject:
    """A plan of anybody's; `budget` is what it is held to where it promises nothing itself."""
    return Subject(name, plan, _games(plan, budget, chunk), _claim(name, plan, budget), budget, trials)


def _claim(name: str, plan: Plan, budget: tuple[float, float]) -> Claim | None:
    promise = plan.guarantee
    if promise.epsilon is not None and promise.delta is not None:
        return Claim(promise.epsilon, promise.delta, promise.statement)
    if name in AUTHORS_CLAIM:
        return Claim(*budget, f"({budget[0]:g}, {budget[1]:g})-DP: {AUTHORS_CLAIM[name]}. {promise.statement}")
    return None


def _games(plan: Plan, budget: tuple[float, float], chunk: int) -> tuple[Game, ...]:
    """Two worlds for the plan, and everybody its trust model knows as an adversary."""
    if isinstance(plan.schedule, Adaptive):
        return adaptive_games(plan, chunk)
    held = plan if plan.privacy is not None else plan.changed(privacy=Privacy(*budget))
    played = held.privacy.silos_per_user if plan.trust in ("silo", "local", "none") and held.privacy else plan.silos
    return (calendar_game(plan, played, neighbours(held, played), adversaries(plan)),)


def adversaries(plan: Plan) -> tuple[Adversary, ...]:
    """Whom the guarantee of this trust model is against."""
    colluders = (Analyzer(plan.colluding),) if plan.colluding else ()
    known: dict[str, tuple[Adversary, ...]] = {
        "none": (Everyone("everybody", bound="dp"),),
        "local": (Everyone("everybody, the silo included"),),
        "silo": (Everyone(),),
        "central": (Outsider(),),
        "shuffle": (Server(), Everyone("the server together with the shuffler")),
        "vector-sum": (Counter(),),
        "secure-sum": (
            Analyzer(),
            *colluders,
            ShareHolder("the mixer", 0),
            ShareHolder("the analyzer, by its shares alone", 1),
        ),
    }
    return known[plan.trust]
