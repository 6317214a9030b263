"""A recommendation in words and as plain data: what the command line prints and the planner's page shows."""

from __future__ import annotations

from typing import Any

from fedbandit._words import counted
from fedbandit.plan import Plan
from fedbandit.planner.best import ALONE, Option, Recommendation
from fedbandit.planner.consortium import DAY, Consortium
from fedbandit.planner.prediction import Prediction
from fedbandit.privacy.budget import exactly
from fedbandit.schedule import Clock

__all__ = ["SPANS", "as_dict", "assumptions", "cap_of", "described", "sentences", "set_up", "title"]

SPANS = {"month": 30, "quarter": 91, "year": 365}  # days


def sentences(advice: Recommendation) -> list[str]:
    """What to do and what it costs, compared with staying alone."""
    consortium, best = advice.consortium, advice.best
    people = consortium.silos * consortium.visits_per_silo
    alone = f"{advice.lost(advice.alone, consortium.days):,.0f} of {people:,} outcomes"
    if best is None or best.plan is None or best.prediction is None:
        told = f"Stay alone: each silo by itself is predicted to miss {alone}, all silos together"
        if not advice.options:
            return [f"{told}; no federation is possible here."]
        other = advice.options[0]
        assert other.prediction is not None
        missed = f"{advice.lost(other.prediction, consortium.days):,.0f}"
        return [f"{told}; the best federation, {other.name}, {missed}."]
    lines = [
        f"Federate, with {best.name}: {_promise(best.plan)}.",
        *set_up(best.plan),
        f"It is predicted to miss {advice.lost(best.prediction, consortium.days):,.0f} outcomes; alone, all silos "
        f"together would miss {alone}.",
    ]
    if advice.break_even_day is not None:
        made_up = "not within the horizon" if advice.paid_back_day is None else f"by day {advice.paid_back_day}"
        lines.append(
            f"From day {advice.break_even_day} on people are served better than alone; the slower start is made up "
            f"{made_up}."
        )
    return lines


def _promise(plan: Plan) -> str:
    assert plan.privacy is not None
    return f"{plan.privacy.pair}-DP, {plan.privacy.adjacency}"


def set_up(plan: Plan) -> list[str]:
    """Which visits count, when silos synchronise, and how long they remember."""
    said = [f"{_counted_visits(plan)}; {_timetable(plan)}."]
    if plan.forget < 1:
        lasts = f"about {1 / (1 - plan.forget):.0f} syncs are remembered"
        said.append(f"Each sync multiplies the weight of what was learnt before by {plan.forget:g}: {lasts}.")
    return said


def _counted_visits(plan: Plan) -> str:
    cap = cap_of(plan)
    return "Each person's first visit is counted" if cap == "1" else f"Each person's first {cap} visits are counted"


def _timetable(plan: Plan) -> str:
    schedule = plan.schedule
    assert isinstance(schedule, Clock)
    assert plan.syncs is not None
    days = schedule.period / DAY
    first = f"silos synchronise after day {schedule.first * days:g}"
    if schedule.ratio == 1:
        return f"{first} and then every {counted(round(days), 'day') if days > 1 else 'day'}, {plan.syncs} times in all"
    return (
        f"{first} and then whenever the days so far have grown by {schedule.ratio - 1:.0%}, {plan.syncs} times in all"
    )


def cap_of(plan: Plan) -> str:
    """How many visits of one person count."""
    return "-" if plan.privacy is None else str(plan.privacy.participations)


def title(consortium: Consortium) -> str:
    """Who takes part, in one line."""
    visits = "" if consortium.visits == 1 else f", up to {consortium.visits} visits per person"
    return (
        f"{counted(consortium.silos, 'silo')}, {consortium.people_per_day:,} people per day, "
        f"{counted(consortium.days, 'day')}, {counted(consortium.arms, 'action')}, d = {consortium.dim}{visits}"
    )


def assumptions(consortium: Consortium) -> list[str]:
    """What the figures assume."""
    lines = [
        "Predicted for actions in random directions and silos that are alike; "
        "`simulate --plan` plays it, `replay` plays your own data."
    ]
    if consortium.constant:
        lines.append(
            "Rewards enter as y - 1/2: rows must hold a constant entry (else: --no-constant), here with "
            f"{consortium.constant_share:.0%} of their squared length (--constant-share, or a schema's weights)."
        )
    if consortium.visits > 1:
        share = consortium.attendance.share(1, consortium.visits_per_silo) / max(consortium.consenting, 1e-9)
        lines.append(f"Once people come back, {share:.0%} of visits are taken to be first ones (--mean-visits).")
    return lines


# -- as JSON ----------------------------------------------------------------------------------------------------------


def as_dict(advice: Recommendation, others: dict[float, Option]) -> dict[str, Any]:
    """The whole recommendation as plain data; `others` is the recommended protocol with other epsilons."""
    best = advice.best
    return {
        "recommendation": _alone(advice) if best is None else described(best, advice),
        "alone": {**_costs(advice.alone, advice)},
        "break_even_day": advice.break_even_day,
        "paid_back_day": advice.paid_back_day,
        "plans": [described(one, advice) for one in advice.options],
        "other_epsilons": {exactly(epsilon): described(one, advice) for epsilon, one in others.items()},
        "impossible": {one.name: one.reason for one in advice.impossible},
        "plan": None if best is None or best.plan is None else best.plan.as_dict(),
    }


def _alone(advice: Recommendation) -> dict[str, Any]:
    return {"name": ALONE, "trust": None, "cap": None, **_costs(advice.alone, advice)}


def described(one: Option, advice: Recommendation) -> dict[str, Any]:
    """One option and what it costs, or why it cannot be used."""
    if one.plan is None or one.prediction is None:
        return {"name": one.name, "reason": one.reason}
    plan = one.plan
    return {
        "name": one.name,
        "trust": plan.trust,
        "cap": None if plan.privacy is None else plan.privacy.participations,
        "schedule": str(plan.schedule),
        "syncs": plan.syncs,
        "mechanism": plan.mechanism,
        "centre": plan.centre,
        "forget": plan.forget,
        **_costs(one.prediction, advice),
    }


def _costs(prediction: Prediction, advice: Recommendation) -> dict[str, Any]:
    days = advice.consortium.days
    return {
        "regret": advice.regret(prediction),
        "regret_second_half": advice.regret(prediction, days / 2),
        "lost_outcomes": {
            name: advice.lost(prediction, span) for name, span in {**SPANS, "all": days}.items() if span <= days
        },
    }
