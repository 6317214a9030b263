"""`fedbandit bench`: how fast fedbandit is on this machine, as ratios and times of one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from fedbandit.cli import options, output
from fedbandit.demo.ending import heeded

__all__ = ["bench"]


def bench(
    live: Annotated[bool, typer.Option("--live", help="Measure live silos and syncs instead of the engine.")] = False,
    json: options.Json = False,
    wide: options.Wide = False,
) -> None:
    """Time the engine against the reference, or a live federation against an empty endpoint."""
    # Told to end, it stops what it has started: a silo, a broker, a database server.
    with heeded() as ending, ending.at_once(), output.progress_bar("measuring") as progress:
        figures = _figures(live)(progress)
    if json:
        output.print_json(figures)
        return
    rows = [[name, _shown(value)] for name, value in figures.items()]
    output.print_table("this machine, this run", ["figure", "value"], rows)


def _figures(live: bool) -> Callable[[Callable[[float], None]], Mapping[str, Any]]:
    """The function that measures. Only the live figures need the extra `live`, so modules are imported here."""
    if live:
        return _live_figures
    from fedbandit.bench.engine_speed import engine_figures

    return engine_figures


def _live_figures(progress: Callable[[float], None]) -> dict[str, float | None]:
    """The cost of a live silo, a sync of many silos and an open page; `progress` is told the share that is done."""
    from fedbandit.bench import http_speed, in_process, page_speed, sync_speed, worker_speed

    figures: dict[str, float | None] = {}
    parts = (
        http_speed.http_figures,
        worker_speed.worker_figures,
        in_process.in_process_figures,
        sync_speed.sync_figures,
        page_speed.page_figures,
    )
    for done, part in enumerate(parts, 1):
        figures.update(part())
        progress(done / len(parts))
    return figures


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {output.number(part, 3)}" for name, part in value.items())
    return output.number(value) if isinstance(value, (int, float)) else str(value)
