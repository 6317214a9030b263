"""What is audited: a plan small enough to be run many times, who attacks it, and what is claimed for it.

`case` has one for each protocol by name, `reduced` one for anybody's plan. A reduced plan is smaller only in what the
guarantee does not depend on: the dimension does not matter to the largest shift of a user from 2 on (3 shows more of
the noise), other silos do not matter where each is protected on its own, and noise is calibrated anew for a shorter
horizon by the same rule. Where silos share the noise, the smallest sync is played: as many silos as the plan's cohort,
of which as many collude as the plan says, or, if those are many, fewer of both. How often a user comes, schedule,
mechanism, calibration and acting are the plan's own; how many syncs lie between visits, unless they would not fit. What
the plan's noise amounts to as it is, with all its silos, is computed beside the runs.
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
    "ldp-eager": "Theorem LDP states it of Algorithm 1, which acts on raw sums",
    "dubey": "Dubey & Pentland state it of their Algorithm 1, whose schedule reads raw sums",
}
DIM = 3  # of a reduced plan, at most: enough for pairs in general position
SYNCS = 400
COHORT = 6  # silos of a sync that share their noise, up to which all of them are played
COLLUDING = 2  # of a larger one: two, since one may be a special case
WORK = 2e8  # what computing a plan's noise as it is may cost: syncs squared, times silos, times numbers of a release


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
    own: Plan | None = None  # what was asked about, if the audited plan was cut from it
    whole: tuple[CalendarGame, ...] = ()  # that plan as it is, nobody in it but the user: for arithmetic alone

    @property
    def described(self) -> str:
        """The audited plan in words."""
        plan = self.plan
        syncs = "times by data" if plan.syncs is None else counted(plan.syncs, "sync")
        return (
            f"{counted(plan.silos, 'silo')}{self._played}, {counted(plan.rounds, 'round')}"
            f"{' of a run without an end' if plan.endless else ''}, d = {plan.dim}, trust "
            f"{plan.trust}, {plan.mechanism}, {plan.schedule} ({syncs}), {plan.acting}, {plan.calibration} calibration"
            f"{', on the live path' if self.live else ''}"
        )

    @property
    def _played(self) -> str:
        """Which silos are played, if not all of them."""
        played = self.games[0].silos
        if played == self.plan.silos:
            return ""
        others = "the others are the adversary's" if self.plan.trusting.separate else "the smallest sync"
        return f" ({played} run, {others})"

    @property
    def cut(self) -> str:
        """What the audited plan has less of than the plan that was asked about; empty where nothing was cut."""
        if self.own is None:
            return ""
        pairs = zip(_sizes(self.own), _sizes(self.plan), strict=True)
        return ", ".join(f"{name} {had} to {has}" for (name, had), (_, has) in pairs if had != has)

    @property
    def smaller_claim(self) -> Claim | None:
        """What is claimed for the audited plan, if that is not word by word what is claimed for the plan itself."""
        claimed = claim_of(self.name, self.plan, self.budget)
        return None if claimed == self.claim else claimed


def _sizes(plan: Plan) -> tuple[tuple[str, str], ...]:
    """All that a reduced plan may have less of."""
    return (
        ("silos", f"{plan.silos:,}"),
        ("silos in the smallest sync", f"{plan.smallest_cohort:,}"),
        ("colluding silos", f"{plan.colluders:,}"),
        ("rounds", f"{plan.rounds:,}"),
        ("schedule", str(plan.schedule)),
        ("d", str(plan.dim)),
        ("syncs between visits", "0" if plan.privacy is None else str(plan.privacy.apart)),
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
        return Claim(*budget, f"{Privacy(*budget).pair}-DP: {AUTHORS_CLAIM[name]}. {promise.statement}")
    return None


def _games(plan: Plan, budget: tuple[float, float]) -> tuple[Game, ...]:
    """Two worlds for the plan, and everybody that its trust model names as an adversary."""
    held = plan if plan.privacy is not None else plan.changed(privacy=Privacy(*budget))
    if isinstance(plan.schedule, Adaptive):
        return adaptive_games(held)
    played = _played(held)
    return (calendar_game(plan, played, neighbours(held, played)),)


def _played(plan: Plan) -> int:
    """Silos to play: those that the user visits, or the smallest sync that can hold them and all who collude."""
    assert plan.privacy is not None
    visited = plan.privacy.silos_per_user
    if plan.trusting.separate:
        return visited
    return min(plan.silos, max(plan.smallest_cohort, visited + plan.colluders))


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
# Of the literature. The users of a batch that a mixer shuffles are audited one per silo. An agent whose phases begin
# when a determinant has doubled is given time for a few of them.
_BASELINE_SIZES = {
    "shariff-sheffet": _Size(1, 64, 3, None, 30_000),
    "zheng": _Size(1, 16, 3, None, 60_000),
    "chowdhury-zhou": _Size(300, 2, 3, 1, 5_000),
    "azize-basu": _Size(1, 200, 3, None, 2_000),
    "he": _Size(2, 100, 3, None, 2_000),
}
# Ours again, under plans that promise more than the usual one: a name, whose they are, and what they add. The horizon
# that is played is longer than the band of the matrix, so that a whole column of it is.
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
    """The protocol `name` at this budget, ours, the paper's or another paper's, at a size that can be audited."""
    _validate.one_of("name", name, (*NAMES, *_VARIANTS, *BASELINES))
    if name in BASELINES:
        return _baseline_case(name, epsilon, delta)
    if name in _VARIANTS:
        return _variant_case(name, epsilon, delta)
    if name not in _SIZES:
        raise ArgumentError("name", f"must be a protocol that sends something; {name!r} does not, so nothing can leak")
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


def reduced(plan: Plan) -> Case:
    """A plan at a size that can be audited; without a budget there is nothing to hold it to."""
    budget = plan.privacy
    if budget is None:
        raise ArgumentError("plan", "must have a privacy budget to be audited, got none")
    smaller = fewer_silos(_shorter(in_few_dimensions(plan)))
    asked = (budget.epsilon, budget.delta)
    audited = case_of("plan", smaller, asked, plan.trusting.audit.trials)
    return of_plan(audited, plan)


def in_few_dimensions(plan: Plan) -> Plan:
    """The same plan for rows of few numbers, whatever records they may stand for: a schema's rows are some of those
    no longer than 1, and the guarantee is for all of these."""
    own = plan.personal if all(column < DIM for column in plan.personal) else tuple(range(len(plan.personal)))
    return plan if plan.dim <= DIM else plan.changed(dim=DIM, schema=None, personal=own[: DIM - 1])


def of_plan(audited: Case, plan: Plan) -> Case:
    """The case as that of a plan which it was cut from: what is claimed is what that plan claims."""
    return replace(audited, own=plan, claim=claim_of("plan", plan, audited.budget), whole=_whole(plan))


def _whole(plan: Plan) -> tuple[CalendarGame, ...]:
    """The plan as it is (in fewer dimensions if there is too much of it), against the worst pairs: nothing if even
    that is too much, or if there is no arithmetic for it."""
    if isinstance(plan.schedule, Adaptive) or not plan.guarantee.promised:
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
    """As many rounds as the trust model is audited with, or at least no more syncs than SYNCS."""
    size = plan.trusting.audit
    if size.rounds is not None and plan.rounds > size.rounds:
        return plan.changed(rounds=size.rounds, schedule=Every(size.batch))
    syncs = plan.rounds if plan.syncs is None else plan.syncs
    if syncs <= SYNCS:
        return plan
    return _shorter(plan.changed(rounds=plan.rounds // 2, privacy=returning_within(plan, syncs // 2)))


def returning_within(plan: Plan, syncs: int) -> Privacy:
    """The plan's budget with visits so near to each other that two of them lie within so many syncs."""
    assert plan.privacy is not None
    return replace(plan.privacy, apart=min(plan.privacy.apart, syncs // 2))


def fewer_silos(plan: Plan) -> Plan:
    """As many honest silos as the trust model is audited with, those that one user visits among them.

    Where silos share their noise it depends on how many are in a sync and how many of them collude: these numbers are
    kept where they are small. Where they are not, there still are silos that a sync can do without, and some collude.
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
