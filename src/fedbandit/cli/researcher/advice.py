"""`fedbandit plan --best`: the recommendation in words, as a table, as JSON and as a plan's file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from fedbandit._words import counted
from fedbandit.cli import checks, output
from fedbandit.cli.researcher.schema_report import schema_as_dict, show_schema
from fedbandit.plan import Plan
from fedbandit.planner.best import ALONE, Option, Recommendation, at_other_budgets, recommended
from fedbandit.planner.consortium import DAY, Consortium
from fedbandit.planner.prediction import Prediction
from fedbandit.privacy.budget import exactly
from fedbandit.problem import Schema
from fedbandit.schedule import Clock

__all__ = ["give"]

SPANS = {"month": 30, "quarter": 91, "year": 365}  # days


def give(consortium: Consortium, schema: Schema | None, out: Path | None, as_json: bool) -> None:
    """Say what this consortium should do, for records that `schema` describes; with `out`, write the plan there."""
    advice = recommended(consortium)
    if schema is not None:
        advice = replace(advice, options=tuple(_for_records(one, schema) for one in advice.options))
    best = advice.best
    others = at_other_budgets(advice, best.name) if best is not None else {}
    planned = None if best is None else best.plan
    reported = {} if planned is None else schema_as_dict(planned)
    output.print_json(_as_dict(advice, others) | reported) if as_json else _show(advice, others)
    if planned is not None and not as_json:
        show_schema(planned)
    if out is not None:
        _write(advice, out)


def _for_records(one: Option, schema: Schema) -> Option:
    return one if one.plan is None else replace(one, plan=one.plan.changed(schema=schema))


def _write(advice: Recommendation, out: Path) -> None:
    if advice.best is None or advice.best.plan is None:
        output.remark(f"{out} is not written: staying alone needs no plan.")
        return
    with checks.writing("out", out):
        advice.best.plan.save(out, advice.consortium.as_dict())
    output.remark(f"written: {out}")


# -- in words ---------------------------------------------------------------------------------------------------------


def _show(advice: Recommendation, others: dict[float, Option]) -> None:
    for line in _sentences(advice):
        output.say(line)
    consortium = advice.consortium
    spans = {name: days for name, days in SPANS.items() if days < consortium.days} | {"all": consortium.days}
    rows = [_row(ALONE, "-", advice.alone, advice, spans)]
    for one in advice.options:
        assert one.plan is not None
        assert one.prediction is not None
        rows.append(_row(one.name, _cap(one.plan), one.prediction, advice, spans))
    for epsilon, one in others.items():
        if one.plan is not None and one.prediction is not None:
            rows.append(_row(f"{one.name}, {exactly(epsilon)}", _cap(one.plan), one.prediction, advice, spans))
    columns = ["use", "cap", "regret / T", "of alone", *spans]
    output.print_table(_title(consortium), columns, rows)
    for one in advice.impossible:
        output.say(f"not here: {one.reason}")
    output.remark("cap: visits of one person that count. regret / T: per round (a visit to every silo), predicted.")
    output.remark("month, quarter, all: outcomes missed by then, against knowing everybody's best action.")
    for line in _assumptions(consortium):
        output.remark(line)


def _sentences(advice: Recommendation) -> list[str]:
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
        f"{_counted_visits(best.plan)}; {_timetable(best.plan)}.",
        f"It is predicted to miss {advice.lost(best.prediction, consortium.days):,.0f} outcomes; alone, all silos "
        f"together would miss {alone}.",
    ]
    if best.plan.forget < 1:
        lines.insert(2, f"{_memory(best.plan.forget)}.")
    if advice.break_even_day is not None:
        made_up = "not within the horizon" if advice.paid_back_day is None else f"by day {advice.paid_back_day}"
        lines.append(
            f"From day {advice.break_even_day} on people are served better than alone; the slower start is made up "
            f"{made_up}."
        )
    return lines


def _memory(forget: float) -> str:
    return f"One sync leaves {forget:g} to what was learnt before: about {1 / (1 - forget):.0f} syncs are remembered"


def _promise(plan: Plan) -> str:
    assert plan.privacy is not None
    return f"{plan.privacy.pair}-DP, {plan.privacy.adjacency}"


def _counted_visits(plan: Plan) -> str:
    cap = _cap(plan)
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


def _cap(plan: Plan) -> str:
    return "-" if plan.privacy is None else str(plan.privacy.participations)


def _row(name: str, cap: str, prediction: Prediction, advice: Recommendation, spans: dict[str, int]) -> list[str]:
    regret, alone = advice.regret(prediction), advice.regret(advice.alone)
    lost = [f"{advice.lost(prediction, days):,.0f}" for days in spans.values()]
    return [name, cap, output.number(regret, 3), f"{regret / alone:.2f}", *lost]


def _title(consortium: Consortium) -> str:
    visits = "" if consortium.visits == 1 else f", up to {consortium.visits} visits per person"
    return (
        f"{counted(consortium.silos, 'silo')}, {consortium.people_per_day} people per day, "
        f"{counted(consortium.days, 'day')}, {counted(consortium.arms, 'action')}, d = {consortium.dim}{visits}"
    )


def _assumptions(consortium: Consortium) -> list[str]:
    lines = [
        "Predicted for actions in random directions and silos that are alike; "
        "`simulate --plan` plays it, `replay` plays your own data."
    ]
    if consortium.constant:
        lines.append("Rewards enter as y - 1/2: rows must hold a constant entry (else: --no-constant).")
    if consortium.visits > 1:
        share = consortium.attendance.share(1, consortium.visits_per_silo) / max(consortium.consenting, 1e-9)
        lines.append(f"Once people come back, {share:.0%} of visits are taken to be first ones (--mean-visits).")
    return lines


# -- as JSON ----------------------------------------------------------------------------------------------------------


def _as_dict(advice: Recommendation, others: dict[float, Option]) -> dict[str, Any]:
    best = advice.best
    return {
        "recommendation": _alone(advice) if best is None else _described(best, advice),
        "alone": {**_costs(advice.alone, advice)},
        "break_even_day": advice.break_even_day,
        "paid_back_day": advice.paid_back_day,
        "plans": [_described(one, advice) for one in advice.options],
        "other_epsilons": {exactly(epsilon): _described(one, advice) for epsilon, one in others.items()},
        "impossible": {one.name: one.reason for one in advice.impossible},
        "plan": None if best is None or best.plan is None else best.plan.as_dict(),
    }


def _alone(advice: Recommendation) -> dict[str, Any]:
    return {"name": ALONE, "trust": None, "cap": None, **_costs(advice.alone, advice)}


def _described(one: Option, advice: Recommendation) -> dict[str, Any]:
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
