"""Which protocol, schedule and mechanism to use, and what the next best would cost."""

from __future__ import annotations

from dataclasses import dataclass

from fedbandit._validate import ArgumentError
from fedbandit.bandit.confidence import Radii
from fedbandit.plan import Plan
from fedbandit.planner.prediction import predicted
from fedbandit.planner.tuning import TUNED, tuned, with_best_mechanism
from fedbandit.presets import BATCH, TRUST_OF, plan_for
from fedbandit.privacy.budget import Privacy
from fedbandit.protocol.trust import trust as trust_model
from fedbandit.schedule import Every, Growing

__all__ = ["CANDIDATES", "Choice", "Option", "acceptable", "best_plan"]

# Presets to choose from: on a public schedule and with a guarantee, wherever their theorems reach.
CANDIDATES = ("local", "ldp", "silo", "sdp-amplified", "sdp-vector-sum", "secure-sum", "super-agent", "central")


@dataclass(frozen=True)
class Option:
    """A protocol that could be used, and how many rounds of random play it is predicted to cost; or why it cannot."""

    name: str
    plan: Plan | None
    lost: float
    reason: str = ""


@dataclass(frozen=True)
class Choice:
    """The best option, the others from best to worst, and the best one's own alternatives."""

    best: Option
    protocols: tuple[Option, ...]  # the others that can be used
    variants: tuple[Option, ...]  # the best protocol with another mechanism or schedule
    impossible: tuple[Option, ...]

    @property
    def plan(self) -> Plan:
        """The best plan."""
        assert self.best.plan is not None
        return self.best.plan


def best_plan(
    silos: int,
    rounds: int,
    dim: int,
    privacy: Privacy,
    trust: str = "secure-sum",
    centred: bool = False,
    confidence: Radii = "practical",
) -> Choice:
    """The plan with the least predicted regret among those that ask users to trust no more than `trust` does.

    Ranked by `prediction.lost_rounds`, a model of the noise and the schedule; nothing is simulated.

    >>> choice = best_plan(silos=20, rounds=2000, dim=5, privacy=Privacy(epsilon=1.0, delta=0.1), trust="silo")
    >>> choice.best.name, str(choice.plan.schedule), choice.plan.mechanism
    ('silo', 'growing(1.25)', 'optimal')
    >>> [option.name for option in choice.protocols]
    ['ldp', 'local']
    """
    base = Plan(silos, rounds, dim, privacy, trust="none", confidence=confidence)
    found = [_option(name, base, centred) for name in acceptable(trust)]
    possible = sorted((one for one in found if one.plan is not None), key=lambda one: one.lost)
    if not possible:
        raise ArgumentError("trust", f"must allow a protocol here, but: {'; '.join(one.reason for one in found)}")
    best = possible[0]
    impossible = tuple(one for one in found if one.plan is None)
    return Choice(best, tuple(possible[1:]), _variants(best), impossible)


def acceptable(trust: str) -> tuple[str, ...]:
    """The candidates that ask users to trust no more than the trust model `trust` does."""
    limit = trust_model(trust).faith
    return tuple(name for name in CANDIDATES if trust_model(TRUST_OF[name]).faith <= limit)


def _option(name: str, base: Plan, centred: bool) -> Option:
    """One protocol at its best: ours are tuned, the paper's are as the paper has them."""
    try:
        plan = plan_for(name, base)
        if name in TUNED:
            plan = tuned(plan, centred)
    except ValueError as error:
        return Option(name, None, float("inf"), f"{name}: {error}")
    if not plan.guarantee.promised:
        return Option(name, None, float("inf"), f"{name}: {plan.guarantee.statement}")
    return Option(name, plan, predicted(plan).mean())


def _variants(best: Option) -> tuple[Option, ...]:
    """The same protocol with each other mechanism, and on each other kind of schedule, from best to worst."""
    plan = best.plan
    if plan is None or best.name not in TUNED:
        return ()
    others = {mechanism: plan.changed(mechanism=mechanism) for mechanism in ("toeplitz", "blt", "tree", "batches")}
    for schedule in (Growing(), Every(min(BATCH, plan.rounds))):
        others[str(schedule)] = with_best_mechanism(plan.changed(schedule=schedule, mechanism="batches"))
    named = (
        Option(f"{best.name}, {what}", other, predicted(other).mean())
        for what, other in others.items()
        if other != plan
    )
    return tuple(sorted(named, key=lambda one: one.lost))
