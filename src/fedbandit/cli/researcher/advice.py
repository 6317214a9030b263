"""`fedbandit plan --best`: the recommendation in words, as a table, as JSON and as a plan file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fedbandit.cli import checks, output
from fedbandit.cli.researcher.schema_report import schema_as_dict, show_schema
from fedbandit.planner.best import ALONE, Option, Recommendation, at_other_budgets, recommended
from fedbandit.planner.consortium import Consortium
from fedbandit.planner.in_words import SPANS, as_dict, assumptions, cap_of, sentences, title
from fedbandit.planner.prediction import Prediction
from fedbandit.privacy.budget import exactly
from fedbandit.problem import Schema

__all__ = ["give"]


def give(consortium: Consortium, schema: Schema | None, out: Path | None, as_json: bool) -> None:
    """Print what this consortium should do, for records that `schema` describes; with `out`, write the plan there."""
    advice = recommended(consortium)
    if schema is not None:
        advice = replace(advice, options=tuple(_for_records(one, schema) for one in advice.options))
    best = advice.best
    others = at_other_budgets(advice, best.name) if best is not None else {}
    planned = None if best is None else best.plan
    reported = {} if planned is None else schema_as_dict(planned)
    output.print_json(as_dict(advice, others) | reported) if as_json else _show(advice, others)
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
    with checks.writing("out", out, "file"):
        advice.best.plan.save(out, advice.consortium.as_dict())
    output.remark(f"written: {out}")


# -- in words ---------------------------------------------------------------------------------------------------------


def _show(advice: Recommendation, others: dict[float, Option]) -> None:
    for line in sentences(advice):
        output.say(line)
    consortium = advice.consortium
    spans = {name: days for name, days in SPANS.items() if days < consortium.days} | {"all": consortium.days}
    rows = [_row(ALONE, "-", advice.alone, advice, spans)]
    for one in advice.options:
        assert one.plan is not None
        assert one.prediction is not None
        rows.append(_row(one.name, cap_of(one.plan), one.prediction, advice, spans))
    for epsilon, one in others.items():
        if one.plan is not None and one.prediction is not None:
            rows.append(_row(f"{one.name}, {exactly(epsilon)}", cap_of(one.plan), one.prediction, advice, spans))
    columns = ["use", "cap", "regret / T", "of alone", *spans]
    output.print_table(title(consortium), columns, rows)
    for one in advice.impossible:
        output.say(f"not here: {one.reason}")
    output.remark("cap: visits of one person that count. regret / T: per round (a visit to every silo), predicted.")
    output.remark(f"{', '.join(spans)}: outcomes missed by then, against knowing everybody's best action.")
    for line in assumptions(consortium):
        output.remark(line)


def _row(name: str, cap: str, prediction: Prediction, advice: Recommendation, spans: dict[str, int]) -> list[str]:
    regret, alone = advice.regret(prediction), advice.regret(advice.alone)
    lost = [f"{advice.lost(prediction, days):,.0f}" for days in spans.values()]
    return [name, cap, output.number(regret, 3), f"{regret / alone:.2f}" if alone else "-", *lost]
