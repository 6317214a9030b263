"""What a live silo and a round of many silos cost on this machine, as ratios and times of one run."""

from __future__ import annotations

from collections.abc import Callable

from fedbandit.federation.bench.http import http_figures
from fedbandit.federation.bench.in_process import in_process_figures
from fedbandit.federation.bench.rounds import round_figures

__all__ = ["measured"]


def measured(progress: Callable[[float], None] = lambda share: None) -> dict[str, float | None]:
    """All figures; `progress` is called with the share that is done."""
    figures: dict[str, float | None] = {}
    for number, part in enumerate((http_figures, in_process_figures, round_figures)):
        figures.update(part())
        progress((number + 1) / 3)
    return figures
