"""The cost of a live silo, a sync of many silos and an open page on this machine, as ratios and times of one run."""

from __future__ import annotations

from collections.abc import Callable

from fedbandit.bench.http_speed import http_figures
from fedbandit.bench.in_process import in_process_figures
from fedbandit.bench.page_speed import page_figures
from fedbandit.bench.sync_speed import sync_figures
from fedbandit.bench.worker_speed import worker_figures

__all__ = ["live_figures"]


def live_figures(progress: Callable[[float], None] = lambda share: None) -> dict[str, float | None]:
    """All figures of `fedbandit bench --live`; `progress` is called with the share that is done."""
    figures: dict[str, float | None] = {}
    parts = (http_figures, worker_figures, in_process_figures, sync_figures, page_figures)
    for done, part in enumerate(parts, 1):
        figures.update(part())
        progress(done / len(parts))
    return figures
