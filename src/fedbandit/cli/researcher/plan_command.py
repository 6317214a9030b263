"""`fedbandit plan`: what every protocol would promise and cost, before anything is run; with --best, which to use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast, get_args

import typer

from fedbandit import _validate
from fedbandit._words import counted
from fedbandit.cli import checks, options, output
from fedbandit.cli.plan_file import read_schema
from fedbandit.cli.researcher import advice
from fedbandit.cli.researcher.schema_report import schema_as_dict, show_schema
from fedbandit.plan import Plan
from fedbandit.planner.consortium import Consortium, Sync
from fedbandit.planner.tuning import CONSTANT_SHARE
from fedbandit.presets import ALONE, NAMES, plan_for
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.sensitivity import Adjacency
from fedbandit.protocol.guarantee import nothing
from fedbandit.schedule import Every, Schedule

__all__ = ["plan"]

UNKNOWN = ("trust", "mechanism", "schedule", "acting", "calibration", "noise", "lambda", "syncs", "bytes")

ONLY_BEST = (
    *("people_per_day", "days", "sync", "visits", "mean_visits", "back_after", "consenting", "arms", "constant"),
    *("constant_share", "trust", "drift", "out"),
)
ONLY_WIDE = ("lambda", "mechanism, schedule, acting")
STAYS_ALONE = "each silo stays alone and sends nothing; what its decisions reveal about its users is not hidden"


def plan(
    context: typer.Context,
    silos: options.Silos = 100,
    rounds: options.Rounds = 10_000,
    dim: options.Dim = 10,
    epsilon: options.Epsilon = 1.0,
    delta: options.Delta = 1e-5,
    adjacency: options.AdjacencyOption = "replace-one",
    participations: options.Participations = 1,
    silos_per_user: options.SilosPerUser = 1,
    apart: options.Apart = 0,
    batch: options.Batch = None,
    forget: Annotated[float, typer.Option(help="Weight that past data keep at each sync; 1 forgets nothing.")] = 1.0,
    endless: Annotated[
        bool, typer.Option("--endless", help="The run has no end; the figures are for its first T rounds.")
    ] = False,
    explain: Annotated[str | None, typer.Option(help="Print the whole guarantee of this protocol instead.")] = None,
    best: Annotated[bool, typer.Option("--best", help="Say which plan to use, or to stay alone.")] = False,
    people_per_day: Annotated[int, typer.Option(help="With --best: visits to one silo per day.")] = 20,
    days: Annotated[int, typer.Option(help="With --best: how long the federation runs.")] = 365,
    sync: Annotated[str, typer.Option(help="With --best: sync daily, weekly or monthly at most.")] = "daily",
    visits: Annotated[int, typer.Option(help="With --best: how often one person comes at most.")] = 1,
    mean_visits: Annotated[float | None, typer.Option(help="With --best: how often one comes on average.")] = None,
    back_after: Annotated[int, typer.Option(help="With --best: days until people begin to come back.")] = 0,
    consenting: Annotated[float, typer.Option(help="With --best: share of people who may be counted.")] = 1.0,
    arms: Annotated[int, typer.Option(help="With --best: actions to choose from.")] = 4,
    drift: Annotated[float, typer.Option(help="With --best: how far theta, of norm 1, moves per day.")] = 0.0,
    constant: Annotated[bool, typer.Option(help="With --best: whether rows hold a constant entry.")] = True,
    constant_share: Annotated[
        float, typer.Option(help="With --best: the constant's share of a row's squared length.")
    ] = CONSTANT_SHARE,
    trust: Annotated[
        str, typer.Option(help="With --best: the most trust to ask people for: local, silo, secure-sum or central.")
    ] = "secure-sum",
    out: Annotated[Path | None, typer.Option(help="With --best: write the plan there, as TOML.")] = None,
    schema: Annotated[
        Path | None, typer.Option(help="A schema's file: it gives the dimension, and the cost of each field is shown.")
    ] = None,
    json: options.Json = False,
    wide: options.Wide = False,
) -> None:
    """What every protocol would promise and cost here, one row per protocol; with --best, what to do.

    A row shows guarantee, noise, regulariser, syncs and bytes, or the reason why a protocol cannot be used here.
    """
    if best:
        counted_in_rounds = ("rounds", "participations", "apart", "batch", "forget", "endless", "explain")
        checks.no_effect(context, counted_in_rounds, "with --best, which counts people and days")
    privacy = Privacy(epsilon, delta, cast(Adjacency, adjacency), participations, silos_per_user, apart)
    described_by = None if schema is None else read_schema(schema)
    if described_by is not None:
        checks.no_effect(context, ("dim", "explain"), "with --schema, which gives the dimension and the cost of fields")
        checks.no_effect(context, ("constant", "constant_share"), "with --schema, which gives the constant")
        if described_by.actions:
            checks.no_effect(context, ("arms",), "with --schema, which names the actions")
        dim = described_by.dim
    if best:
        said: dict[str, Any] = {"dim": dim, "arms": arms, "constant": constant, "constant_share": constant_share}
        consortium = Consortium(
            silos=silos,
            people_per_day=people_per_day,
            days=days,
            privacy=privacy,
            sync=_validate.one_of("sync", sync, get_args(Sync)),
            visits=visits,
            mean_visits=mean_visits,
            back_after=back_after,
            consenting=consenting,
            trust=trust,
            drift=drift,
            **said | ({} if described_by is None else Consortium.rows_of(described_by)),
        )
        advice.give(consortium, described_by, out, json)
        return
    checks.no_effect(context, ONLY_BEST, "without --best")
    base = Plan(silos, rounds, dim, privacy, trust="none", schema=described_by)
    schedule = None if batch is None else Every(batch)
    if schedule is not None:
        schedule.times(rounds)  # a batch beyond the horizon is wrong for all protocols: fail once, here
    asked = _Asked(base, schedule, forget, endless)
    if explain is not None:
        described = _described(explain, asked.plan(explain))
        output.print_json(described) if json else output.say(described["guarantee"] or described["reason"])
        return
    rows = [_row_of(name, asked, privacy) for name in NAMES]
    if json:
        output.print_json({"plans": rows} | schema_as_dict(asked.usual()))
    else:
        _show(rows, base, privacy, endless)
        show_schema(asked.usual())


class _Asked(NamedTuple):
    """What is asked of every protocol."""

    base: Plan
    schedule: Schedule | None
    forget: float
    endless: bool

    def plan(self, name: str) -> Plan:
        """The protocol's plan, with forgetting if any was asked for."""
        made = plan_for(name, self.base, self.schedule)
        if self.forget == 1 and not self.endless:
            return made
        return made.changed(forget=self.forget, endless=self.endless)

    def usual(self) -> Plan:
        """The plan for which the costs of a schema's fields are shown."""
        return self.plan("secure-sum") if self.base.schema is not None else self.base


def _row_of(name: str, asked: _Asked, privacy: Privacy) -> dict[str, Any]:
    """One protocol's row; if its theorem does not apply here, the reason instead of numbers."""
    try:
        return _described(name, asked.plan(name))
    except ValueError as error:
        budget = {"adjacency": privacy.adjacency, "epsilon": privacy.epsilon, "delta": privacy.delta}
        refused = {"guarantee": None, "applicable": False, "reason": str(error)}
        return {"name": name, **dict.fromkeys(UNKNOWN), **budget, **refused}


def _described(name: str, planned: Plan) -> dict[str, Any]:
    """A protocol's promise and costs. Silos that stay alone send nothing: their plan's only sync is the horizon."""
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


def _show(rows: list[dict[str, Any]], base: Plan, privacy: Privacy, endless: bool) -> None:
    columns = ["protocol", "promise", "noise", "lambda", "syncs", "bytes", "trust", "mechanism, schedule, acting"]
    title = f"{_size(base, endless)}, {privacy.pair}, {privacy.adjacency}"
    output.print_table(title, columns, [_row(row) for row in rows if row["applicable"]], wide=ONLY_WIDE)
    for row in rows:
        if not row["applicable"]:
            output.say(f"{row['name']}: not here. {row['reason']}")
    output.remark("noise: standard deviation of the worst released prefix sum over all silos, in one bias entry.")
    output.remark("bytes: what one silo sends. `--explain NAME` prints a guarantee with its proof.")


def _row(row: dict[str, Any]) -> list[str]:
    promise = Privacy(row["epsilon"], row["delta"]).pair if row["guarantee"] else "none"
    syncs = "by data" if row["syncs"] is None else str(row["syncs"])
    sent = "by data" if row["bytes"] is None else f"{row['bytes']:,}"
    how = f"{row['mechanism']}, {row['schedule']}, {row['acting']}"
    noise, regulariser = output.number(row["noise"]), output.number(row["lambda"])
    return [row["name"], promise, noise, regulariser, syncs, sent, row["trust"], how]


def _size(planned: Plan, endless: bool) -> str:
    rounds = f"{planned.rounds:,} rounds{' of a run without an end' if endless else ''}"
    return f"{counted(planned.silos, 'silo')}, {rounds}, d = {planned.dim}"
