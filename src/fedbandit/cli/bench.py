"""`fedbandit bench`: how fast this machine simulates, as ratios to the reference in the same run."""

from __future__ import annotations

from typing import Annotated

import typer

from fedbandit.cli import options, output
from fedbandit.paper.speed import measured


def bench(
    live: Annotated[bool, typer.Option("--live", help="Measure live silos and rounds instead of the engine.")] = False,
    json: options.Json = False,
) -> None:
    """Engine against reference, or a live federation against an empty endpoint."""
    with output.progress_bar("measuring") as progress:
        if live:
            from fedbandit.federation.bench import measured as measured_live

            figures = measured_live(progress)
        else:
            figures = measured(progress)
    if json:
        output.print_json(figures)
        return
    rows = [[name, _shown(value)] for name, value in figures.items()]
    output.print_table("this machine, this run", ["figure", "value"], rows)


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {output.number(part, 3)}" for name, part in value.items())
    return output.number(value) if isinstance(value, (int, float)) else str(value)
