"""`fedbandit evaluate`: what policies would have earned, from a log of decisions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedbandit._validate import ArgumentError
from fedbandit.cli import checks, options, output
from fedbandit.cli.plan_file import read_plan

if TYPE_CHECKING:
    import polars as pl

    from fedbandit.evaluation.decisions import Decisions
    from fedbandit.evaluation.evaluating import Evaluation
    from fedbandit.evaluation.targets import Target

__all__ = ["evaluate"]

POLICIES = (
    "A policy to judge; may be given several times. uniform; always:ACTION (its index or name); model (what the model "
    "of each moment would have done); model:VERSION; plan:FILE (the newest model by that plan's policy)."
)


def evaluate(
    log: Annotated[Path, typer.Argument(help="A Parquet file of decisions, or the folder of `fedbandit silo log`.")],
    policy: Annotated[list[str] | None, typer.Option(help=POLICIES)] = None,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    plot: Annotated[Path | None, typer.Option(help="Draw the intervals: .svg, .png or .pdf.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a report: one HTML file with charts, to be printed.")] = None,
    json: options.Json = False,
    wide: options.Wide = False,
) -> None:
    """Judge policies by a log of decisions: inverse propensity scores, self-normalised ones, doubly robust."""
    from fedbandit.evaluation.decisions import read_decisions
    from fedbandit.evaluation.evaluating import evaluate as judge
    from fedbandit.web.html_report import evaluation_report

    decisions, models = read_decisions(log)
    names = policy or _all_known(decisions, models)
    targets = {name: _target(name, models) for name in names}
    if plot is not None:
        checks.picture("plot", plot)
    found = judge(decisions, targets, level)
    if plot is not None:
        found.plot(plot)
    if html is not None:
        with checks.writing("html", html, "file"):
            html.write_text(evaluation_report(found), encoding="utf-8")
    if json:
        output.print_json(found.as_dict())
    else:
        _print(found)


def _all_known(decisions: Decisions, models: pl.DataFrame | None) -> list[str]:
    names = ["uniform"] + ([] if decisions.suggested is None else ["model"])
    return names + ([] if models is None else [f"model:{models['version'].to_list()[-1]}"])


def _target(name: str, models: pl.DataFrame | None) -> Target:
    from fedbandit.evaluation.targets import always, logged_model, suggested, uniform

    kind, _, rest = name.partition(":")
    if name == "uniform":
        return uniform
    if name == "model":
        return suggested
    if kind == "always" and rest:
        return always(rest)
    if kind in ("model", "plan") and rest:
        if models is None:
            raise ArgumentError("policy", f"{name!r} needs models.parquet beside the decisions")
        if kind == "plan":
            return logged_model(models, policy=read_plan(Path(rest)).policy)
        if rest.isdecimal():
            return logged_model(models, int(rest))
    raise ArgumentError("policy", f"must be uniform, always:ACTION, model, model:VERSION or plan:FILE, got {name!r}")


def _print(found: Evaluation) -> None:
    from fedbandit.evaluation.evaluating import RAW

    rows = []
    for row in found.frame.iter_rows(named=True):
        if row["refused"] is not None:
            rows.append([row["policy"], "refused", "-", "-", "-", output.number(row["agreement"], 3)])
            continue
        interval = f"{output.number(row['low'])} to {output.number(row['high'])}"
        worth = [output.number(row["value"]), interval, output.number(row["effective"])]
        rows.append([row["policy"], row["estimator"], *worth, output.number(row["agreement"], 3)])
    title = f"{found.logged.decisions:,} decisions, {found.level:.0%} intervals"
    output.print_table(
        title, ["policy", "estimator", "mean reward", "interval", "effective", "agreement"], rows, wide=("agreement",)
    )
    for one in found.judged:
        if one.refused is not None:
            output.say(f"{one.policy}: refused, {one.refused}.")
    for remark in found.remarks:
        output.say(f"{remark[0].upper()}{remark[1:]}.")
    output.say("Assuming:")
    for assumption in found.assumes:
        output.say(f"  - {assumption}")
    output.remark(f"{RAW[0].upper()}{RAW[1:]}.")
