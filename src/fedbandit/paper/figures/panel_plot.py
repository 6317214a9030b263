"""Draws a panel: its versions side by side, and the results of the runs under each."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from fedbandit.look.colours import PROTOCOLS
from fedbandit.paper.figures.panel import Panel
from fedbandit.paper.figures.running import Drawn
from fedbandit.paper.figures.summary import SAYS
from fedbandit.simulator.plot import STYLES, save

__all__ = ["draw"]

WRAP = 92  # characters of small print that fit under one version
FAR = 3.0  # a line this many times as high as everything else is not drawn
HEIGHT, LINE = 4.1, 0.135  # inches: height of a picture without small print, and of each line of small print


def draw(panel: Panel, drawn: list[Drawn], summary: dict[str, Any], path: Path) -> None:
    """Draw time-averaged group regret by round, with bands of two standard errors."""
    prints = [_small_print(summary["versions"][one.setting.name]) for one in drawn]
    height = HEIGHT + LINE * max(text.count("\n") for text in prints)
    figure, axes = plt.subplots(1, len(drawn), figsize=(5.4 * len(drawn), height), layout="constrained", squeeze=False)
    for axis, one, text in zip(axes[0], drawn, prints, strict=True):
        for index, curve in enumerate(panel.curves):
            if curve.label in one.result.plans:
                _draw_curve(axis, one, curve.label, curve.protocol, index)
        silos = next(iter(one.result.plans.values())).silos
        _draw_limits(axis, one.chance, silos if one.setting.constants == "as_proven" else None)
        axis.set_title(textwrap.fill(one.setting.heading, 62), fontsize=9)
        axis.set_xlabel(f"round t\n\n{text}", fontsize=7, ma="left")
        axis.set_ylabel("time-averaged group regret", fontsize=8)
        axis.grid(alpha=0.25)
        axis.set_ylim(bottom=0)
        axis.tick_params(labelsize=8)
    found = {label: handle for axis in axes[0] for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    legend: dict[str, Any] = {"ncols": 2, "frameon": False, "fontsize": 8, "title_fontsize": 11}
    figure.legend(list(found.values()), list(found), loc="outside upper center", title=panel.title, **legend)
    save(figure, path)


def _draw_curve(axis: Axes, one: Drawn, label: str, protocol: str, index: int) -> None:
    curve = one.result.curve(label)
    rounds, mean = curve["round"].to_numpy(), curve["mean"].to_numpy()
    band = 2 * curve["stderr"].fill_null(0.0).to_numpy()
    colour, style = PROTOCOLS[protocol], STYLES[index % len(STYLES)]
    axis.plot(rounds, mean, label=label, color=colour, linestyle=style, linewidth=1.6)
    axis.fill_between(rounds, mean - band, mean + band, color=colour, alpha=0.18, linewidth=0)

    _draw_bound(axis, one, label, colour)


def _draw_bound(axis: Axes, one: Drawn, label: str, colour: str) -> None:
    """Draw the part of the curve's regret bound that lies below MT."""
    below = {round_: found for round_, found in one.bounds(label).items() if found.per_round < found.silos}
    if below:
        heights = [found.per_round for found in below.values()]
        axis.plot(list(below), heights, label=f"bound of {label}", color=colour, linestyle=":", linewidth=2.2)


def _draw_limits(axis: Axes, chance: float, most: float | None) -> None:
    """Draw lines for the regret of random actions and for the most that can be lost, one per silo and round. The
    latter is left out where it would press everything else together at the foot of the picture."""
    axis.axhline(chance, label="chance", color="0.45", linestyle=(0, (4, 2)), linewidth=1.0)
    if most is not None and most <= FAR * axis.dataLim.ymax:
        axis.axhline(most, label="MT, the most that can be lost", color="0.2", linestyle="-", linewidth=1.0)


def _bounds(curves: dict[str, dict[str, Any]], chance: float) -> list[str]:
    """A line that names the curves whose regret bound is vacuous, if there are any."""
    bounded = {label: curve["bound"]["per_round"] for label, curve in curves.items() if curve["bound"] is not None}
    vacuous = [label for label, per_round in bounded.items() if per_round >= chance]
    if not vacuous:
        return []
    return ["Regret bound vacuous here: " + ("all curves." if len(vacuous) == len(bounded) else "; ".join(vacuous))]


def _small_print(version: dict[str, Any]) -> str:
    size = f"{version['runs']} runs, {version['rounds']:,} rounds"
    lines = [f"{size}: {SAYS[version['holds']]}."]
    lines += [finding["text"] for finding in version["findings"]]
    lines += _bounds(version["curves"], version["chance"])
    lines += [f"Left out: {label}: {why}" for label, why in version["left_out"].items()]
    return "\n".join(textwrap.fill(line, WRAP, subsequent_indent="    ") for line in lines)
