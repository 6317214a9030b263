"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
    "Workers",
    "absolute",
]

Silos = Annotated[int, typer.Option(help="Number of silos, M.")]
Rounds = Annotated[int, typer.Option(help="Rounds of every silo, T.")]
Dim = Annotated[int, typer.Option(help="Dimension of the features, d.")]
Epsilon = Annotated[float, typer.Option(help="Privacy budget epsilon, over the whole horizon.")]
Delta = Annotated[float, typer.Option(help="Privacy budget delta.")]
AdjacencyOption = Annotated[str, typer.Option(help="What neighbours are: replace-one or add-remove.")]
Participations = Annotated[int, typer.Option(help="Rounds of one silo that the same user may take part in.")]
Apart = Annotated[int, typer.Option(help="Syncs between two visits of the same user that count; 0: none.")]
SilosPerUser = Annotated[int, typer.Option(help="Silos that the same user may visit.")]
Batch = Annotated[int | None, typer.Option(help="Synchronise every BATCH rounds, all protocols alike.")]
Json = Annotated[bool, typer.Option("--json", help="JSON alone on standard output.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same result.")]
Trials = Annotated[int | None, typer.Option(help="Runs in each of the two worlds; by default what the protocol needs.")]
Workers = Annotated[int | None, typer.Option(help="Processes; by default one per core. They do not change the result.")]
Home = Annotated[Path, typer.Argument(help="The party's own directory.")]
BrokerCa = Annotated[str, typer.Option(help="PEM file of the broker's certificate authority.")]


def absolute(path: str) -> str:
    """A path as a party keeps it: it is read from anywhere. Empty where none is given."""
    return str(Path(path).resolve()) if path else ""
