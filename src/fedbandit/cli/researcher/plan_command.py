"""`fedbandit plan`: what every protocol would promise and cost, before anything is run; with --best, which to use."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from fedbandit._words import counted
from fedbandit.cli import checks, options, output
from fedbandit.cli.plan_file import read_schema
from fedbandit.cli.researcher.schema_report import schema_as_dict, show_schema
from fedbandit.plan import Plan
from fedbandit.planner.best import Choice, Option, best_plan
from fedbandit.presets import ALONE, NAMES, plan_for
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.sensitivity import Adjacency
from fedbandit.problem import Schema
from fedbandit.protocol.guarantee import nothing
from fedbandit.schedule import Every, Schedule

__all__ = ["plan"]

UNKNOWN = ("trust", "mechanism", "schedule", "acting", "calibration", "noise", "lambda", "syncs", "bytes")

STAYS_ALONE = "each silo stays alone and sends nothing; what its own decisions show of its users is not hidden"


def plan(
    context: typer.Context,
    silos: options.Silos = 100,
    rounds: options.Rounds = 10_000,
    dim: options.Dim = 10,
    epsilon: options.Epsilon = 1.0,
    delta: options.Delta = 0.1,
    adjacency: options.AdjacencyOption = "replace-one",
    participations: options.Participations = 1,
    silos_per_user: options.SilosPerUser = 1,
    batch: options.Batch = None,
    explain: Annotated[str | None, typer.Option(help="Print the whole guarantee of this protocol instead.")] = None,
    best: Annotated[bool, typer.Option("--best", help="Name the plan to use, and what the next best costs.")] = False,
    trust: Annotated[str, typer.Option(help="With --best: local, silo, secure-sum or central at most.")] = "secure-sum",
    schema: Annotated[
        Path | None, typer.Option(help="File of a schema: it says the dimension, and what each field costs is shown.")
    ] = None,
    json: options.Json = False,
) -> None:
    """What every protocol would promise and cost here, one row per protocol.

    Guarantee, noise, regulariser, syncs and bytes; or the reason why a protocol cannot be used here.
    """
    privacy = Privacy(epsilon, delta, cast(Adjacency, adjacency), participations, silos_per_user)
    described_by = None if schema is None else read_schema(schema)
    if described_by is not None:
        checks.no_effect(context, ("dim", "explain"), "with --schema, which says the dimension and what fields cost")
        dim = described_by.dim
    if best:
        checks.no_effect(context, ("explain", "batch"), "with --best, which compares every schedule")
        choice = _with_schema(best_plan(silos, rounds, dim, privacy, trust), described_by)
        output.print_json(_choice_as_dict(choice) | schema_as_dict(choice.plan)) if json else _show_choice(choice)
        if not json:
            show_schema(choice.plan)
        return
    checks.no_effect(context, ("trust",), "without --best")
    base = Plan(silos, rounds, dim, privacy, trust="none", schema=described_by)
    schedule = None if batch is None else Every(batch)
    if schedule is not None:
        schedule.times(rounds)  # a batch beyond the horizon is wrong for all of them: say so once
    if explain is not None:
        described = _described(explain, plan_for(explain, base, schedule))
        output.print_json(described) if json else typer.echo(described["guarantee"] or described["reason"])
        return
    rows = [_row_of(name, base, privacy, schedule) for name in NAMES]
    if json:
        output.print_json({"plans": rows} | schema_as_dict(_usual(base, schedule)))
    else:
        _show(rows, base, privacy)
        show_schema(_usual(base, schedule))


def _usual(base: Plan, schedule: Schedule | None) -> Plan:
    """The plan that the costs of fields are shown for, where none is chosen."""
    return plan_for("secure-sum", base, schedule) if base.schema is not None else base


def _with_schema(choice: Choice, schema: Schema | None) -> Choice:
    """The choice, its plan for records."""
    if schema is None:
        return choice
    return replace(choice, best=replace(choice.best, plan=choice.plan.changed(schema=schema)))


def _row_of(name: str, base: Plan, privacy: Privacy, schedule: Schedule | None) -> dict[str, Any]:
    """One protocol's row; where its theorem does not reach, the reason instead of numbers."""
    try:
        return _described(name, plan_for(name, base, schedule))
    except ValueError as error:
        budget = {"adjacency": privacy.adjacency, "epsilon": privacy.epsilon, "delta": privacy.delta}
        refused = {"guarantee": None, "applicable": False, "reason": str(error)}
        return {"name": name, **dict.fromkeys(UNKNOWN), **budget, **refused}


def _described(name: str, planned: Plan) -> dict[str, Any]:
    """A protocol's promise and costs. What stays alone sends nothing, and its plan's only sync is the horizon."""
    guarantee, alone = planned.guarantee, name in ALONE
    return {
        "name": name,
        "trust": planned.trust,
        "mechanism": planned.mechanism,
        "schedule": str(planned.schedule),
        "acting": planned.acting,
        "calibration": planned.calibration,
        "adjacency": guarantee.adjacency,
        "epsilon": guarantee.epsilon,
        "delta": guarantee.delta,
        "noise": planned.noise_std,
        "lambda": planned.regulariser,
        "syncs": 0 if alone else planned.syncs,
        "bytes": 0 if alone else planned.bytes_per_silo,
        "guarantee": str(guarantee) if guarantee.promised else None,
        "applicable": True,
        "reason": None if guarantee.promised else str(nothing(STAYS_ALONE)) if alone else guarantee.statement,
    }


def _show(rows: list[dict[str, Any]], base: Plan, privacy: Privacy) -> None:
    columns = ["protocol", "promise", "noise", "lambda", "syncs", "bytes", "trust", "mechanism, schedule, acting"]
    title = f"{_size(base)}, ({privacy.epsilon:g}, {privacy.delta:g}), {privacy.adjacency}"
    output.print_table(title, columns, [_row(row) for row in rows if row["applicable"]])
    for row in rows:
        if not row["applicable"]:
            output.say(f"{row['name']}: not here. {row['reason']}")
    output.remark("noise: standard deviation of the worst released prefix sum over all silos, in one bias entry.")
    output.remark("bytes: what one silo sends. `--explain NAME` prints a guarantee with its proof.")


def _row(row: dict[str, Any]) -> list[str]:
    promise = f"({row['epsilon']:g}, {row['delta']:g})" if row["guarantee"] else "none"
    syncs = "by data" if row["syncs"] is None else str(row["syncs"])
    sent = "by data" if row["bytes"] is None else f"{row['bytes']:,}"
    how = f"{row['mechanism']}, {row['schedule']}, {row['acting']}"
    noise, regulariser = output.number(row["noise"]), output.number(row["lambda"])
    return [row["name"], promise, noise, regulariser, syncs, sent, row["trust"], how]


def _size(planned: Plan) -> str:
    return f"{counted(planned.silos, 'silo')}, {planned.rounds:,} rounds, d = {planned.dim}"


# -- plan --best ------------------------------------------------------------------------------------------------------


def _choice_as_dict(choice: Choice) -> dict[str, Any]:
    return {
        "best": _option_as_dict(choice.best),
        "plan": choice.plan.as_dict(),
        "next_best": _option_as_dict(choice.protocols[0]) if choice.protocols else None,
        "protocols": [_option_as_dict(one) for one in choice.protocols],
        "variants": [_option_as_dict(one) for one in choice.variants],
        "impossible": {one.name: one.reason for one in choice.impossible},
    }


def _option_as_dict(one: Option) -> dict[str, Any]:
    assert one.plan is not None
    return {
        "name": one.name,
        "lost_rounds": one.lost,
        "trust": one.plan.trust,
        "schedule": str(one.plan.schedule),
        "mechanism": one.plan.mechanism,
        "syncs": one.plan.syncs,
    }


def _show_choice(choice: Choice) -> None:
    planned, best = choice.plan, choice.best
    assert planned.privacy is not None
    title = f"{_size(planned)}, ({planned.privacy.epsilon:g}, {planned.privacy.delta:g})"
    columns = ["use", "trust", "schedule", "syncs", "mechanism", "lost rounds", "times the best"]
    rows = [_option_row(one, best) for one in (best, *choice.protocols, *choice.variants)]
    output.print_table(title, columns, rows)
    for one in choice.impossible:
        output.say(f"not here: {one.reason}")
    output.remark("lost rounds: so many rounds in which every silo acts at random would cost as much regret;")
    output.remark("predicted from the noise and the schedule, not simulated.")
    output.remark("A name with a comma is the best protocol with one thing changed.")


def _option_row(one: Option, best: Option) -> list[str]:
    described = _option_as_dict(one)
    how = [str(described[key]) for key in ("trust", "schedule", "syncs", "mechanism")]
    return [one.name, *how, output.number(one.lost, 3), output.number(one.lost / best.lost, 3)]
