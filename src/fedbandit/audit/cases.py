"""What is audited: a plan small enough to be run many times, who attacks it, and what is claimed for it.

`case` makes a case for a protocol by name, `reduced` for any plan. A reduced plan is smaller only where the guarantee
does not depend on size. From dimension 2 on, the dimension does not change the largest shift of a user (3 shows more
of the noise). Other silos do not matter if each is protected on its own. Noise is calibrated for the shorter horizon by
the same rule. If silos share the noise, the smallest sync is played: as many silos as the plan's cohort, of which as
many collude as the plan says, or fewer of both if there are many. The number of visits, schedule, mechanism,
calibration and acting are the plan's own; so is the number of syncs between visits, if they fit. In addition to the
runs, the mu of the whole plan's noise, with all its silos, is computed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from fedbandit import _validate
from fedbandit._validate import ArgumentError
from fedbandit._words import counted
from fedbandit.audit.adaptive_game import adaptive_games
from fedbandit.audit.auditor import Game
from fedbandit.audit.calendar_game import CalendarGame, adversaries_of, calendar_game
from fedbandit.audit.worlds import neighbours, worst_pairs
from fedbandit.baselines import BASELINES, baseline
from fedbandit.plan import Plan
from fedbandit.presets import NAMES, plan_for
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import Adaptive, Every

__all__ = [
    "AUDITED",
    "Case",
    "Claim",
    "case",
    "case_of",
    "claim_of",
    "fewer_silos",
    "in_few_dimensions",
    "of_plan",
    "reduced",
    "returning_within",
]

AUTHORS_CLAIM = {
    "ldp-eager": "Theorem LDP claims it for Algorithm 1, which acts on raw sums",
    "dubey": "Dubey & Pentland claim it for their Algorithm 1, whose schedule reads raw sums",
}
DIM = 3  # largest dimension of a reduced plan: enough for pairs in general position
SYNCS = 400
COHORT = 6  # if silos share their noise, cohorts up to this size are played in full
COLLUDING = 2  # colluding silos in a larger cohort, at most: two, since one may be a special case
WORK = 2e8  # limit for computing with the whole plan: syncs squared, times silos, times numbers per release


class Claim(NamedTuple):
    """The claim to refute; the statement says whose it is."""

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
    own: Plan | None = None  # the plan that was asked about, if the audited plan is a reduction of it
    whole: tuple[CalendarGame, ...] = ()  # games of the unreduced plan with nobody but the user, for arithmetic only

    @property
    def described(self) -> str:
        """The audited plan in words."""
        plan = self.plan
        syncs = "times depend on data" if plan.syncs is None else counted(plan.syncs, "sync")
        return (
            f"{counted(plan.silos, 'silo')}{self._played}, {counted(plan.rounds, 'round')}"
            f"{' of a run without an end' if plan.endless else ''}, d = {plan.dim}, trust "
            f"{plan.trust}, {plan.mechanism}, {plan.schedule} ({syncs}), {plan.acting}, {plan.calibration} calibration"
            f"{', on the live path' if self.live else ''}"
        )

    @property
    def _played(self) -> str:
        """Which silos are played, in words; empty if all are."""
        played = self.games[0].silos
        if played == self.plan.silos:
            return ""
        others = "the others are the adversary's" if self.plan.trusting.separate else "the smallest sync"
        return f" ({played} run, {others})"

    @property
    def cut(self) -> str:
        """How the audited plan is smaller than the plan that was asked about; empty if it is the same plan."""
        if self.own is None:
            return ""
        pairs = zip(_sizes(self.own), _sizes(self.plan), strict=True)
        return ", ".join(f"{name} {had} to {has}" for (name, had), (_, has) in pairs if had != has)

    @property
    def smaller_claim(self) -> Claim | None:
        """The claim of the audited plan, if it is not word for word the claim of the plan that was asked about."""
        claimed = claim_of(self.name, self.plan, self.budget)
        return None if claimed == self.claim else claimed


def _sizes(plan: Plan) -> tuple[tuple[str, str], ...]:
    """Everything in which a reduced plan may be smaller."""
    return (
        ("silos", f"{plan.silos:,}"),
        ("silos in the smallest sync", f"{plan.smallest_cohort:,}"),
        ("colluding silos", f"{plan.colluders:,}"),
        ("rounds", f"{plan.rounds:,}"),
        ("schedule", str(plan.schedule)),
        ("d", str(plan.dim)),
        ("syncs between visits", "0" if plan.privacy is None else str(plan.privacy.apart)),
    )


def case_of(name: str, plan: Plan, budget: tuple[float, float], trials: int, beside: int = 0) -> Case:
    """The case of exactly this plan; it is held to `budget` if it promises nothing itself.

    Where one silo would be enough because each is protected on its own, `beside` more are played: their noise must have
    nothing to do with the first one's.
    """
    return Case(name, plan, _games(plan, budget, beside), claim_of(name, plan, budget), budget, trials)


def claim_of(name: str, plan: Plan, budget: tuple[float, float]) -> Claim | None:
    """What is claimed for a plan, by its own guarantee or by the authors of the protocol of this name."""
    promise = plan.guarantee
    if promise.epsilon is not None and promise.delta is not None:
        return Claim(promise.epsilon, promise.delta, promise.statement)
    if name in AUTHORS_CLAIM:
        return Claim(*budget, f"{Privacy(*budget).pair}-DP: {AUTHORS_CLAIM[name]}. {promise.statement}")
    return None


def _games(plan: Plan, budget: tuple[float, float], beside: int) -> tuple[Game, ...]:
    """The plan's games: two worlds, and every adversary that its trust model names."""
    held = plan if plan.privacy is not None else plan.changed(privacy=Privacy(*budget))
    if isinstance(plan.schedule, Adaptive):
        return adaptive_games(held)
    played = _played(held, beside)
    return (calendar_game(plan, played, neighbours(held, played)),)


def _played(plan: Plan, beside: int = 0) -> int:
    """The number of silos to play: those that the user visits, or the smallest sync with room for all who collude."""
    assert plan.privacy is not None
    visited = plan.privacy.silos_per_user
    if plan.trusting.separate:
        return min(plan.silos, visited + beside)
    return min(plan.silos, max(plan.smallest_cohort, visited + plan.colluders))


# -- a protocol by name ------------------------------------------------------------------------------------------------


class _Size(NamedTuple):
    silos: int
    rounds: int
    dim: int
    batch: int | None  # None: the protocol's own schedule
    trials: int
    colluding: int = 0


# Why these sizes: `silo` and the paper's LDP keep the paper's size (one of their silos is played); `ldp-eager` also
# keeps its dimension. A few silos are enough for a secure sum. At epsilon = 1, amplification is defined only for many
# silos with few users. The determinant rule of `dubey` fires within the horizon, that of `private-adaptive` on noise.
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
# Sizes for the literature. Users whom a mixer shuffles are audited as silos of one user each. An agent whose phases
# begin when a determinant has doubled has time for a few phases.
_BASELINE_SIZES = {
    "shariff-sheffet": _Size(1, 64, 3, None, 30_000),
    "zheng": _Size(1, 16, 3, None, 60_000),
    "chowdhury-zhou": _Size(300, 2, 3, 1, 5_000),
    "azize-basu": _Size(1, 200, 3, None, 2_000),
    "he": _Size(2, 100, 3, None, 2_000),
}
# Variants of our protocols whose plans promise more than usual: by name, the usual protocol, the size, and what the
# plan adds. The horizon is longer than the band of the matrix, so that a whole column of the matrix is played.
_VARIANTS: dict[str, tuple[str, _Size, dict[str, Any]]] = {
    "apart": (
        "secure-sum",
        _Size(3, 64, 3, 1, 60_000, colluding=1),
        {"participations": 5, "apart": 12},
    ),
    "forget": (
        "secure-sum",
        _Size(3, 64, 3, 1, 60_000, colluding=1),
        {"forget": 0.9},
    ),
    "endless": (
        "secure-sum",
        _Size(3, 64, 3, 1, 60_000, colluding=1),
        {"forget": 0.9, "endless": True, "participations": 3, "apart": 4},
    ),
    "personal": (
        "secure-sum",
        _Size(3, 64, 3, 4, 120_000, colluding=1),
        {"personal": (0,), "personal_share": 0.4},
    ),
    "vector-sum": ("sdp-vector-sum", _Size(2, 4, 3, 2, 60_000), {"calibration": "exact"}),
}
AUDITED = (*_SIZES, *_VARIANTS)


def case(name: str, epsilon: float, delta: float) -> Case:
    """The case of the protocol `name` (ours, the paper's or another paper's) at this budget."""
    _validate.one_of("name", name, (*NAMES, *_VARIANTS, *BASELINES))
    if name in BASELINES:
        return _baseline_case(name, epsilon, delta)
    if name in _VARIANTS:
        return _variant_case(name, epsilon, delta)
    if name not in _SIZES:
        raise ArgumentError("name", f"must be a protocol that sends messages; {name!r} sends none, so nothing can leak")
    size = _SIZES[name]
    base = Plan(size.silos, size.rounds, size.dim, Privacy(epsilon, delta), colluding=size.colluding)
    plan = plan_for(name, base, None if size.batch is None else Every(size.batch))
    return case_of(name, plan, (epsilon, delta), size.trials)


def _variant_case(name: str, epsilon: float, delta: float) -> Case:
    usual, size, added = _VARIANTS[name]
    budget = {field: added[field] for field in ("participations", "apart") if field in added}
    others = {field: value for field, value in added.items() if field not in budget}
    base = Plan(size.silos, size.rounds, size.dim, Privacy(epsilon, delta, **budget), colluding=size.colluding)
    plan = plan_for(usual, base, None if size.batch is None else Every(size.batch)).changed(**others)
    return case_of(name, plan, (epsilon, delta), size.trials)


def _baseline_case(name: str, epsilon: float, delta: float) -> Case:
    size = _BASELINE_SIZES[name]
    plan = baseline(name, Plan(size.silos, size.rounds, size.dim, Privacy(epsilon, delta), trust="none"))
    if size.batch is not None:
        plan = plan.changed(silos=size.silos, rounds=size.rounds, schedule=Every(size.batch))
    return case_of(name, plan, (epsilon, delta), size.trials)


# -- anybody's plan ----------------------------------------------------------------------------------------------------


def reduced(plan: Plan, beside: int = 0) -> Case:
    """The case of any plan with a budget, at a size that can be audited; `beside` is as in `case_of`."""
    budget = plan.privacy
    if budget is None:
        raise ArgumentError("plan", "must have a privacy budget to be audited, got none")
    smaller = fewer_silos(_shorter(in_few_dimensions(plan)))
    asked = (budget.epsilon, budget.delta)
    audited = case_of("plan", smaller, asked, plan.trusting.audit.trials, beside)
    return of_plan(audited, plan)


def in_few_dimensions(plan: Plan) -> Plan:
    """The same plan in at most DIM dimensions, without its schema: a schema's rows are some of the vectors of norm at
    most 1, and the guarantee covers all of those."""
    own = plan.personal if all(column < DIM for column in plan.personal) else tuple(range(len(plan.personal)))
    return plan if plan.dim <= DIM else plan.changed(dim=DIM, schema=None, personal=own[: DIM - 1])


def of_plan(audited: Case, plan: Plan) -> Case:
    """The case of a reduced plan as a case of the plan it was reduced from, with that plan's claim."""
    return replace(audited, own=plan, claim=claim_of("plan", plan, audited.budget), whole=_whole(plan))


def _whole(plan: Plan) -> tuple[CalendarGame, ...]:
    """Games of the unreduced plan with the worst pairs (in fewer dimensions if it is too large); none if it is still
    too large, or if no exact mu can be computed for it: where people's data are rounded one by one, nobody but the user
    is too few."""
    if isinstance(plan.schedule, Adaptive) or not plan.guarantee.promised or plan.protocol.needs_points:
        return ()
    if all(adversary.bound != "gdp" for adversary in adversaries_of(plan)):
        return ()
    silos = _played(plan)
    for held in (plan, in_few_dimensions(plan)):
        if len(held.times) ** 2 * silos * held.protocol.width <= WORK:
            worlds = (neighbours(held, silos, pair, alone=True) for pair in worst_pairs(held))
            return tuple(calendar_game(held, silos, world) for world in worlds)
    return ()


def _shorter(plan: Plan) -> Plan:
    """The plan with at most as many rounds as its trust model is audited with, and at most SYNCS syncs."""
    size = plan.trusting.audit
    if size.rounds is not None and plan.rounds > size.rounds:
        return plan.changed(rounds=size.rounds, schedule=Every(size.batch))
    syncs = plan.rounds if plan.syncs is None else plan.syncs
    if syncs <= SYNCS:
        return plan
    return _shorter(plan.changed(rounds=plan.rounds // 2, privacy=returning_within(plan, syncs // 2)))


def returning_within(plan: Plan, syncs: int) -> Privacy:
    """The plan's budget, with visits close enough together that two of them fit into this number of syncs."""
    assert plan.privacy is not None
    return replace(plan.privacy, apart=min(plan.privacy.apart, syncs // 2))


def fewer_silos(plan: Plan) -> Plan:
    """The plan with as many honest silos as its trust model is audited with, including those that one user visits.

    If silos share their noise, the noise depends on how many are in a sync and how many of them collude. Small numbers
    are kept. Large ones are reduced such that syncs can still do without some silos, and some still collude.
    """
    assert plan.privacy is not None
    least, visited, cohort = plan.trusting.audit.honest, plan.privacy.silos_per_user, plan.smallest_cohort
    if least is None or (plan.trusting.shares_noise and cohort <= COHORT):
        return plan
    if not plan.trusting.shares_noise:
        return plan.changed(silos=min(plan.silos, max(least, visited)), colluding=None, cohort=None)
    colluding = min(plan.colluders, COLLUDING)
    honest = max(min(cohort - plan.colluders, least), visited)
    silos = min(plan.silos, honest + colluding + (plan.silos > cohort))
    return plan.changed(silos=silos, colluding=colluding, cohort=min(silos, honest + colluding))
