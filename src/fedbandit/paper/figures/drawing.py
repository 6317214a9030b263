"""A panel's picture: its versions side by side, and under each what its runs say."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from fedbandit.paper.figures.panel import Panel
from fedbandit.paper.figures.running import Drawn
from fedbandit.paper.figures.summary import HOLDS
from fedbandit.simulate.plot import COLOURS, STYLES, plt, save

WRAP = 74  # characters of small print that fit under one version


def draw(panel: Panel, drawn: list[Drawn], summary: dict[str, Any], path: Path) -> None:
    """Time-averaged group regret by round, with bands of two standard errors."""
    figure, axes = plt.subplots(1, len(drawn), figsize=(5.2 * len(drawn), 4.9), layout="constrained", squeeze=False)
    for axis, one in zip(axes[0], drawn, strict=True):
        version = summary["versions"][one.setting.name]
        for index, curve in enumerate(panel.curves):
            if curve.label in one.result.plans:
                _curve(axis, one, curve.label, index)
        axis.set_title(textwrap.fill(one.setting.heading, 56), fontsize=9)
        axis.set_xlabel(f"round t\n\n{_small_print(version)}", fontsize=8, linespacing=1.35)
        axis.set_ylabel("time-averaged group regret", fontsize=9)
        axis.grid(alpha=0.25)
        axis.set_ylim(bottom=0)
        axis.tick_params(labelsize=8)
    figure.suptitle(panel.title, fontsize=11)
    found = {label: handle for axis in axes[0] for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(found.values(), found.keys(), loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    save(figure, path)


def _curve(axis: Any, one: Drawn, label: str, index: int) -> None:
    curve = one.result.curve(label)
    rounds, mean = curve["round"].to_numpy(), curve["mean"].to_numpy()
    band = 2 * curve["stderr"].fill_null(0.0).to_numpy()
    colour, style = COLOURS[index % len(COLOURS)], STYLES[index % len(STYLES)]
    axis.plot(rounds, mean, label=label, color=colour, linestyle=style, linewidth=1.6)
    axis.fill_between(rounds, mean - band, mean + band, color=colour, alpha=0.18, linewidth=0)


def _small_print(version: dict[str, Any]) -> str:
    lines = [f"{version['runs']} runs of {version['rounds']:,} rounds. The paper's observation {HOLDS[version['holds']]}."]
    lines += [finding["text"] for finding in version["findings"]]
    lines += [f"Left out: {label}: {why}" for label, why in version["left_out"].items()]
    return "\n".join(textwrap.fill(line, WRAP) for line in lines)
