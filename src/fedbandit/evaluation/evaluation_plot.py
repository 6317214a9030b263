"""Plots: intervals of several policies side by side, and earnings over time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import polars as pl

from fedbandit.look.colours import colours
from fedbandit.simulator.plot import COLOURS, STYLES, save

if TYPE_CHECKING:
    from fedbandit.evaluation.evaluating import Evaluation
    from fedbandit.evaluation.replayed import Replay

__all__ = ["earnings_plot", "worth_plot"]

MARKERS = "osD^v"


def worth_plot(evaluation: Evaluation, path: Path, title: str) -> None:
    """Draw one line of points per policy; what was played is a vertical band."""
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


def earnings_plot(replay: Replay, path: Path, title: str) -> None:
    """Draw the mean reward per person up to each step, one line and band per name."""
    figure, axes = plt.subplots(figsize=(7.0, 4.2), layout="constrained")
    frame = replay.frame
    painted = colours(replay.names)
    for index, name in enumerate(replay.names):
        curve = frame.filter(pl.col("name") == name)
        step, colour = curve["step"].to_numpy(), painted[name]
        style = STYLES[index % len(STYLES)]
        axes.plot(step, curve["mean"].to_numpy(), label=name, color=colour, linestyle=style, linewidth=1.6)
        axes.fill_between(
            step, curve["low"].to_numpy(), curve["high"].to_numpy(), color=colour, alpha=0.12, linewidth=0
        )
    axes.set_xlabel("people per silo")
    axes.set_ylabel(f"mean reward per person so far, {replay.level:.0%} intervals")
    axes.set_title(title)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    save(figure, path)
