"""Which protocol, schedule and mechanism to use, and what the next best would cost."""

from __future__ import annotations

from dataclasses import dataclass

from fedbandit import _validate
from fedbandit.plan import Plan
from fedbandit.planner.catalogue import plan_for
from fedbandit.planner.prediction import lost_rounds
from fedbandit.planner.tuning import mechanism_for, tuned
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import Every, Growing

# Whom a user of the plan is ready to trust, and the protocols that need no more trust than that.
ACCEPTABLE: dict[str, tuple[str, ...]] = {"local": ("local",)}
ACCEPTABLE["silo"] = (*ACCEPTABLE["local"], "ldp", "silo")
ACCEPTABLE["secure-sum"] = (*ACCEPTABLE["silo"], "sdp-amplified", "sdp-vector-sum", "secure-sum")
ACCEPTABLE["central"] = (*ACCEPTABLE["secure-sum"], "super-agent", "central")
OURS = ("silo", "secure-sum", "central")


@dataclass(frozen=True)
class Option:
    """A protocol that could be used, and the rounds of random play that it is predicted to cost; or why it cannot."""

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
        assert self.best.plan is not None
        return self.best.plan


def best_plan(
    silos: int,
    rounds: int,
    dim: int,
    privacy: Privacy,
    trust: str = "secure-sum",
    centred: bool = False,
    confidence: str = "practical",
) -> Choice:
    """The plan with the least predicted regret among those that need no more trust than `trust`.

    Ranked by `prediction.lost_rounds`, a model of the noise and the schedule; nothing is simulated.
    """
    _validate.one_of("trust", trust, ACCEPTABLE)
    base = Plan(silos, rounds, dim, privacy, confidence=confidence)
    found = [option(name, base, centred) for name in ACCEPTABLE[trust]]
    possible = sorted((one for one in found if one.plan is not None), key=lambda one: one.lost)
    if not possible:
        raise ValueError(f"trust must allow a protocol here, but: {'; '.join(one.reason for one in found)}")
    best = possible[0]
    impossible = tuple(one for one in found if one.plan is None)
    return Choice(best, tuple(possible[1:]), variants(best), impossible)


def option(name: str, base: Plan, centred: bool = False) -> Option:
    """One protocol at its best; ours are tuned, the paper's are what the paper says."""
    try:
        plan = plan_for(name, base)
        if name in OURS:
            plan = tuned(plan, centred)
        if not plan.guarantee.promised:
            return Option(name, None, float("inf"), f"{name}: {plan.guarantee.statement}")
    except ValueError as error:
        return Option(name, None, float("inf"), f"{name}: {error}")
    return Option(name, plan, lost_rounds(plan))


def variants(best: Option) -> tuple[Option, ...]:
    """The same protocol with each other mechanism, and on each other kind of schedule, from best to worst."""
    plan = best.plan
    if plan is None or best.name not in OURS:
        return ()
    others = {mechanism: plan.changed(mechanism=mechanism) for mechanism in ("toeplitz", "blt", "tree", "batches")}
    for schedule in (Growing(), Every(min(25, plan.rounds))):
        steps = len(schedule.times(plan.rounds))
        others[str(schedule)] = plan.changed(schedule=schedule, mechanism=mechanism_for(steps))
    named = (
        Option(f"{best.name}, {what}", other, lost_rounds(other)) for what, other in others.items() if other != plan
    )
    return tuple(sorted(named, key=lambda one: one.lost))
