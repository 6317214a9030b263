"""Plots that read well in black and white and on a screen."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import polars as pl
from matplotlib.figure import Figure

from fedbandit.look.colours import OTHERS, colours

__all__ = ["COLOURS", "STYLES", "regret_plot", "save"]

STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
COLOURS = OTHERS  # for curves that are not protocols: estimators, ways to shuffle


def regret_plot(curves: Mapping[str, pl.DataFrame], path: Path, title: str = "") -> None:
    """Draw the time-averaged group regret by round on a logarithmic axis, with bands of two standard errors."""
    figure, axes = plt.subplots(figsize=(7.0, 4.2), layout="constrained")
    painted = colours(list(curves))
    for index, (name, curve) in enumerate(curves.items()):
        rounds, mean = curve["round"].to_numpy(), curve["mean"].to_numpy()
        band = 2 * curve["stderr"].fill_null(0.0).to_numpy()
        colour = painted[name]
        axes.plot(rounds, mean, label=name, color=colour, linestyle=STYLES[index % len(STYLES)], linewidth=1.6)
        axes.fill_between(rounds, mean - band, mean + band, color=colour, alpha=0.18, linewidth=0)
    axes.set_yscale("log")
    axes.set_xlabel("round t")
    axes.set_ylabel("time-averaged group regret")
    axes.set_title(title)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    save(figure, path)


def save(figure: Figure, path: Path) -> None:
    """Write the figure so that the same numbers give the same file."""
    with matplotlib.rc_context({"svg.hashsalt": "fedbandit", "svg.fonttype": "path"}):
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=160)
    plt.close(figure)
