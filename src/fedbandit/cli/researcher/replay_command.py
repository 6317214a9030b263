"""`fedbandit replay`: what a federation, each silo alone and current practice would have earned on past records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedbandit import _validate
from fedbandit._validate import ArgumentError
from fedbandit._words import counted
from fedbandit.cli import checks, options, output
from fedbandit.cli.plan_file import read_fields
from fedbandit.plan import Plan
from fedbandit.presets import plan_for
from fedbandit.privacy.budget import Privacy
from fedbandit.problem.public_schema import Schema

if TYPE_CHECKING:
    from fedbandit.evaluation.replayed import Replay
    from fedbandit.evaluation.replaying import Tape

__all__ = ["replay"]

FEDERATION = "federation"
SIZES = {"silos": 2, "rounds": 2}  # placeholders until the table is read


def replay(
    context: typer.Context,
    table: Annotated[Path, typer.Argument(help="A CSV (plain or .gz) or Parquet file, one row per person.")],
    schema: Annotated[Path | None, typer.Option(help="TOML or JSON; by default the plan's own.")] = None,
    plan: Annotated[
        Path | None, typer.Option(help="TOML or JSON; its silos and rounds are replaced by the table's.")
    ] = None,
    silo_column: Annotated[str, typer.Option(help="Column of the silo that somebody came to.")] = "",
    parts: Annotated[int, typer.Option(help="Without such a column: split the table into this many silos.")] = 0,
    right: Annotated[str, typer.Option(help="Column of the action that was right: reward 1, all others 0.")] = "",
    bands: Annotated[str, typer.Option(help="If that column holds numbers: their bands, such as '<21,<=49'.")] = "",
    outcomes: Annotated[str, typer.Option(help="Prefix of the columns that hold every action's reward.")] = "",
    action: Annotated[str, typer.Option(help="Column of what was done.")] = "",
    reward: Annotated[str, typer.Option(help="Column of its reward, in [0, 1].")] = "",
    propensity: Annotated[str, typer.Option(help="The probability with which it was done: a column or a number.")] = "",
    time: Annotated[str, typer.Option(help="Column of the visit's time; by default the table is in order.")] = "",
    reward_time: Annotated[str, typer.Option(help="Column of the time the reward came; empty for never.")] = "",
    delay: Annotated[float, typer.Option(help="Or: how many rounds later rewards come, on average.")] = 0.0,
    missing: Annotated[float, typer.Option(help="Share of rewards that never come.")] = 0.0,
    epsilon: Annotated[float | None, typer.Option(help="Privacy budget epsilon; by default the plan's.")] = None,
    delta: Annotated[float | None, typer.Option(help="Privacy budget delta; by default the plan's, or 1e-05.")] = None,
    compare: Annotated[str, typer.Option(help="Protocols to play as well, by name, separated by commas.")] = "",
    always: Annotated[str, typer.Option(help="Actions to play for everybody, separated by commas.")] = "",
    shuffle: Annotated[bool, typer.Option(help="Each run meets the people in a new random order.")] = False,
    runs: Annotated[int, typer.Option(help="How often the federation's noise is drawn.")] = 20,
    seed: options.Seed = 0,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    plot: Annotated[Path | None, typer.Option(help="Draw earnings over time: .svg, .png or .pdf.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a report: one printable HTML file with charts.")] = None,
    json: options.Json = False,
    wide: options.Wide = False,
) -> None:
    """Try before you join: what the federation, each silo alone and current practice would have earned."""
    from fedbandit.evaluation.past import Columns, past_of
    from fedbandit.evaluation.reading import read_table
    from fedbandit.evaluation.replayed import replay as play
    from fedbandit.evaluation.replaying import Tape
    from fedbandit.simulator.population import Delays
    from fedbandit.web.html_report import replay_report

    if reward_time:
        checks.no_effect(context, ("delay", "missing"), "with --reward-time")
    if not right:
        checks.no_effect(context, ("bands",), "without --right")
    checks.readable("table", table)
    given = {} if plan is None else read_fields("plan", plan)
    shape = _schema(schema, given)
    chosen = _plan(given, shape, epsilon, delta)
    columns = Columns(
        *(silo_column, parts, right, tuple(_split(bands)), outcomes, action, reward, propensity, time, reward_time)
    )
    if plot is not None:
        checks.picture("plot", plot)
    past = past_of(read_table(table, shape), shape, columns)
    tape = Tape(past, _validate.count("runs", runs), _validate.count("seed", seed, 0), shuffle, Delays(delay, missing))
    plans = {FEDERATION: chosen, **{name: _fitting(name, chosen, tape) for name in _split(compare)}}
    with output.progress_bar("replaying") as progress:
        found = play(tape, plans, _split(always), level=level, progress=progress)
    if plot is not None:
        found.plot(plot)
    if html is not None:
        with checks.writing("html", html, "file"):
            html.write_text(replay_report(found), encoding="utf-8")
    if json:
        output.print_json(found.as_dict())
    else:
        _print(found)


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _schema(path: Path | None, plan: dict[str, object]) -> Schema:
    data = plan.get("schema") if path is None else read_fields("schema", path)
    if not isinstance(data, dict):
        raise ArgumentError("schema", "must be given, by --schema or in the plan")
    with _validate.reading("schema"):
        return Schema.from_dict(data)


def _plan(given: dict[str, object], schema: Schema, epsilon: float | None, delta: float | None) -> Plan:
    """The plan, with the schema's dimension; silos and rounds are set when the table is known."""
    values = {name: value for name, value in given.items() if name not in ("dim", "schema")}
    budget = _budget(values, epsilon, delta)
    fields = {**SIZES, **values, "schema": schema.as_dict(), "privacy": budget}
    with _validate.reading("plan"):
        try:
            return Plan.from_dict(fields)
        except ArgumentError as error:
            if budget is None and error.field == "privacy":  # the trust model needs a budget
                raise ArgumentError("epsilon", "must be given, by --epsilon or in the plan (--plan)") from None
            raise


def _budget(values: dict[str, object], epsilon: float | None, delta: float | None) -> dict[str, object] | None:
    planned = values.get("privacy")
    fields = dict(planned) if isinstance(planned, dict) else {}
    fields |= {name: value for name, value in (("epsilon", epsilon), ("delta", delta)) if value is not None}
    if not fields:
        return None
    Privacy.from_dict(fields)
    return fields


def _fitting(name: str, plan: Plan, tape: Tape) -> Plan:
    """A protocol by its name, for the silos and rounds of the table."""
    from fedbandit.evaluation.replaying import fitted_plan

    return plan_for(name, fitted_plan(plan, tape.past, tape.steps))


def _print(found: Replay) -> None:
    past, first = found.tape.past, next(iter(found.plans))
    rows = []
    for name in found.names:
        worth = found.worth(name)
        ahead = "-" if name == first else str(found.excess(first, name))
        promise = found.plans[name].guarantee.pair if name in found.plans else ""
        interval, late = f"{output.number(worth.low)} to {output.number(worth.high)}", found.late(name).value
        rows.append([name, output.number(worth.value), interval, output.number(late), ahead, promise])
    people = f"{len(past):,} people of {counted(len(past.silos), 'silo')}, {past.kind} outcomes"
    title = f"Mean reward per person: {people}, {counted(found.tape.runs, 'run')}, {found.level:.0%} intervals"
    output.print_table(
        title, ["who", "mean", "interval", "last third", f"{first} ahead by", "promise"], rows, wide=("promise",)
    )
    for remark in found.remarks:
        output.say(f"{remark[0].upper()}{remark[1:]}.")
    output.say("Assuming:")
    for assumption in found.assumes:
        output.say(f"  - {assumption}")
