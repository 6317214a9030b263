"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedbandit._validate import ArgumentError
from fedbandit.cli import output

__all__ = [
    "AdjacencyOption",
    "Apart",
    "Batch",
    "BrokerCa",
    "Delta",
    "Dim",
    "Epsilon",
    "Home",
    "Json",
    "Participations",
    "Rounds",
    "Seed",
    "Silos",
    "SilosPerUser",
    "Trials",
    "Wide",
    "Workers",
    "absolute",
]


def _wide(context: typer.Context, wide: bool) -> bool:
    output.set_wide(wide)
    return _one_of_both(context, wide, "json")


def _json(context: typer.Context, json: bool) -> bool:
    return _one_of_both(context, json, "wide")


def _one_of_both(context: typer.Context, value: bool, other: str) -> bool:
    if value and context.params.get(other):
        raise ArgumentError("--wide", "has no effect with --json")
    return value


Silos = Annotated[int, typer.Option(help="Number of silos, M.")]
Rounds = Annotated[int, typer.Option(help="Rounds of every silo, T.")]
Dim = Annotated[int, typer.Option(help="Dimension of the features, d.")]
Epsilon = Annotated[float, typer.Option(help="Privacy budget epsilon, over the whole horizon.")]
Delta = Annotated[float, typer.Option(help="Privacy budget delta.")]
AdjacencyOption = Annotated[str, typer.Option(help="Which data sets are neighbours: replace-one or add-remove.")]
Participations = Annotated[int, typer.Option(help="Rounds of one silo that the same user may take part in.")]
Apart = Annotated[int, typer.Option(help="Least number of syncs between two counted visits of one user.")]
SilosPerUser = Annotated[int, typer.Option(help="Silos that the same user may visit.")]
Batch = Annotated[int | None, typer.Option(help="Synchronise every BATCH rounds, in all protocols.")]
Json = Annotated[bool, typer.Option("--json", callback=_json, help="Print JSON instead of text.")]
Wide = Annotated[bool, typer.Option("--wide", callback=_wide, help="Tables as wide as they need to be.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same result.")]
Trials = Annotated[int | None, typer.Option(help="Runs in each of the two worlds; the default suits the protocol.")]
Workers = Annotated[int | None, typer.Option(help="Processes; by default one per core. They do not change the result.")]
Home = Annotated[Path, typer.Argument(help="The party's own directory.")]
BrokerCa = Annotated[str, typer.Option(help="PEM file of the broker's certificate authority.")]


def absolute(path: str) -> str:
    """The absolute path, because a party may be started from any folder; empty if none is given."""
    return str(Path(path).resolve()) if path else ""
