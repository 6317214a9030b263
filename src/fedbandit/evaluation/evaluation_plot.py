"""Intervals of several policies side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedbandit.simulator.plot import COLOURS, save

if TYPE_CHECKING:
    from fedbandit.evaluation.evaluating import Evaluation

__all__ = ["worth_plot"]

MARKERS = "osD^v"


def worth_plot(evaluation: Evaluation, path: Path, title: str) -> None:
    """One line of points per policy; what was played is a vertical band."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.0, 1.4 + 0.5 * len(evaluation.judged)), layout="constrained")
    logged = evaluation.logged
    axes.axvspan(logged.low, logged.high, color="#444444", alpha=0.15, linewidth=0)
    axes.axvline(logged.value, color="#444444", linewidth=1, label="as logged")
    names = list(dict.fromkeys(name for one in evaluation.judged for name in one.worth))
    for row, one in enumerate(evaluation.judged):
        for index, name in enumerate(names):
            if name in one.worth:
                found, at = one.worth[name], row + 0.18 * (index - (len(names) - 1) / 2)
                axes.plot([found.low, found.high], [at, at], color=COLOURS[index], linewidth=1.6)
                axes.plot(found.value, at, MARKERS[index], color=COLOURS[index], markersize=5, label=name)
        if not one.worth:
            axes.text(logged.value, row, " refused: no support", va="center", fontsize=8)
    axes.set_yticks(range(len(evaluation.judged)), [one.policy for one in evaluation.judged])
    axes.set_ylim(len(evaluation.judged) - 0.5, -0.5)
    axes.set_xlabel(f"mean reward, {evaluation.level:.0%} intervals")
    axes.set_title(title)
    axes.grid(alpha=0.25, axis="x")
    handles, labels = axes.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    axes.legend(unique.values(), unique.keys(), frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    save(figure, path)
