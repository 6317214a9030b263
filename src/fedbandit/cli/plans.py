"""`fedbandit plan`: what every protocol would promise and cost, before anything is run."""

from __future__ import annotations

from typing import Annotated, Any, cast

import typer

from fedbandit.cli import options, output, planner
from fedbandit.plan import Plan
from fedbandit.planner.best import best_plan
from fedbandit.planner.catalogue import NAMES, plan_for
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.sensitivity import Adjacency
from fedbandit.schedule import Every, Schedule


def plan(
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
    json: options.Json = False,
) -> None:
    """One row a protocol: guarantee, noise, regulariser, synchronisations, bytes; and why one cannot be used here."""
    privacy = Privacy(epsilon, delta, cast(Adjacency, adjacency), participations, silos_per_user)
    if best:
        choice = best_plan(silos, rounds, dim, privacy, trust)
        output.print_json(planner.best_as_dict(choice)) if json else planner.show_best(choice)
        return
    base = Plan(silos, rounds, dim, privacy)
    schedule = None if batch is None else Every(batch)
    if schedule is not None:
        schedule.times(rounds)  # a batch beyond the horizon is wrong for all of them: say so once
    if explain is not None:
        typer.echo(str(plan_for(explain, base, schedule).guarantee))
        return
    rows = [described(name, base, schedule) for name in NAMES]
    if json:
        output.print_json({"plans": rows})
    else:
        _show(rows, base)


def described(name: str, base: Plan, schedule: Schedule | None) -> dict[str, Any]:
    """One protocol's row; where its theorem does not reach, the reason instead of numbers."""
    assert base.privacy is not None
    row: dict[str, Any] = {"name": name}
    try:
        planned = plan_for(name, base, schedule)
    except ValueError as error:
        unknown = "trust mechanism schedule acting calibration noise lambda syncs bytes"
        empty: dict[str, Any] = dict.fromkeys(unknown.split())
        budget = {"adjacency": base.privacy.adjacency, "epsilon": base.privacy.epsilon, "delta": base.privacy.delta}
        return row | empty | budget | {"guarantee": None, "applicable": False, "reason": str(error)}
    promised = planned.guarantee.promised
    return row | {
        "trust": planned.trust,
        "mechanism": planned.mechanism,
        "schedule": str(planned.schedule),
        "acting": planned.acting,
        "calibration": planned.calibration,
        "adjacency": planned.guarantee.adjacency,
        "epsilon": planned.guarantee.epsilon,
        "delta": planned.guarantee.delta,
        "noise": planned.noise_std,
        "lambda": planned.regulariser,
        "syncs": planned.synchronisations,
        "bytes": planned.bytes_per_silo,
        "guarantee": str(planned.guarantee) if promised else None,
        "applicable": True,
        "reason": None if promised else planned.guarantee.statement,
    }


def _show(rows: list[dict[str, Any]], base: Plan) -> None:
    columns = ["protocol", "promise", "noise", "lambda", "syncs", "bytes", "trust", "mechanism, schedule, acting"]
    privacy = base.privacy
    assert privacy is not None
    budget = f"({privacy.epsilon:g}, {privacy.delta:g}), {privacy.adjacency}"
    title = f"{base.silos} silos, {base.rounds:,} rounds, d = {base.dim}, {budget}"
    output.print_table(title, columns, [_row(row) for row in rows if row["applicable"]])
    for row in rows:
        if not row["applicable"]:
            output.stdout.print(f"{row['name']}: not here. {row['reason']}", highlight=False, soft_wrap=True)
    output.remark("noise: standard deviation of the worst released prefix sum over all silos, in one bias entry.")
    output.remark("bytes: what one silo sends. `--explain NAME` prints a guarantee with its proof.")


def _row(row: dict[str, Any]) -> list[str]:
    promise = f"({row['epsilon']:g}, {row['delta']:g})" if row["guarantee"] else "none"
    syncs = "by data" if row["syncs"] is None else str(row["syncs"])
    sent = "by data" if row["bytes"] is None else f"{row['bytes']:,}"
    how = f"{row['mechanism']}, {row['schedule']}, {row['acting']}"
    noise, regulariser = output.number(row["noise"]), output.number(row["lambda"])
    return [row["name"], promise, noise, regulariser, syncs, sent, row["trust"], how]
