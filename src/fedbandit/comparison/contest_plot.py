"""The picture of a comparison: a panel per instance, a line per entrant."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.ticker import LogLocator, NullFormatter

from fedbandit.comparison.contest import Standing
from fedbandit.look.colours import colours
from fedbandit.simulator.plot import save

__all__ = ["draw_contest"]

MARKS = {  # by verdict: the mark, and what it means
    "holds": ("o", "circle: the audit holds"),
    "broken": ("x", "cross: it is broken"),
    "nothing claimed": ("s", "square: nothing is claimed"),
    "-": ("D", "diamond: nothing is sent"),
}


def draw_contest(outcomes: Sequence[Standing], instances: Sequence[str], path: Path, title: str) -> None:
    """Draw regret in units of chance on a log axis, with two standard errors; a cross marks a broken protocol."""
    height = 1.4 + 0.24 * len(outcomes)
    figure, panels = plt.subplots(
        1,
        len(instances),
        figsize=(2.4 + 2.1 * len(instances), height),
        sharey=True,
        layout="constrained",
        squeeze=False,
    )
    painted = colours([outcome.name for outcome in outcomes])
    rows = {outcome.name: len(outcomes) - number for number, outcome in enumerate(outcomes)}
    for axes, instance in zip(panels[0], instances, strict=True):
        for outcome in outcomes:
            if instance not in outcome.regret:
                continue
            mean, stderr = outcome.regret[instance]
            axes.errorbar(
                mean,
                rows[outcome.name],
                xerr=2 * stderr if stderr == stderr else None,
                fmt=MARKS[outcome.verdict][0],
                color=painted[outcome.name],
                markersize=5,
                linewidth=1.2,
            )
        axes.axvline(1.0, color="#444444", linestyle=":", linewidth=1.0)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())  # minor labels would overlap
        axes.set_title(instance, fontsize=9)
        axes.grid(alpha=0.25)
    panels[0][0].set_yticks(list(rows.values()), list(rows), fontsize=8)
    there = {outcome.verdict for outcome in outcomes}
    key = "; ".join(meaning for verdict, (_, meaning) in MARKS.items() if verdict in there)
    figure.supxlabel(f"regret per user (1: an action at random)\n{key}", fontsize=9)
    figure.suptitle(title, fontsize=10)
    save(figure, path)
