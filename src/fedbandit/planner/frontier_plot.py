"""The picture of the frontier: regret against epsilon, with silos that share everything or nothing as its two ends."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from fedbandit.planner.frontier import PRACTICAL, REFERENCES, Frontier, Point
from fedbandit.privacy.budget import exactly
from fedbandit.simulator.plot import COLOURS, STYLES, save

__all__ = ["draw"]

MARKERS = "os^DvPX*<>"
DASHES = ("--", ":", "-.")


def draw(frontier: Frontier, path: Path, title: str) -> None:
    """Curves over epsilon at the delta of most points, with two standard errors; other deltas are hollow marks."""
    figure, axes = plt.subplots(figsize=(8.2, 5.2), layout="constrained")
    budgeted = [point for point in frontier.points if point.epsilon is not None]
    deltas = [point.delta for point in budgeted]
    usual = max(set(deltas), key=deltas.count, default=None)
    for index, name in enumerate(dict.fromkeys(point.name for point in budgeted)):
        _draw_curve(axes, index, [point for point in budgeted if point.name == name], usual)
    for point, dashes in zip(_unbudgeted(frontier), DASHES, strict=False):
        label = f"{point.name}, not private"
        axes.axhline(point.regret.mean, color="#444444", linestyle=dashes, linewidth=1.2, label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    epsilons = sorted({point.epsilon for point in budgeted if point.epsilon is not None})
    axes.set_xticks(epsilons, [exactly(epsilon) for epsilon in epsilons])
    axes.set_xticks([], minor=True)
    axes.set_xlabel(f"epsilon (delta = {exactly(usual)}; hollow: another delta)" if usual is not None else "epsilon")
    axes.set_ylabel("time-averaged group regret")
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.25, which="both")
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    save(figure, path)


def _draw_curve(axes: Axes, index: int, points: list[Point], usual: float | None) -> None:
    name = points[0].name
    colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
    style = STYLES[1 if name.endswith(PRACTICAL) else 0]
    solid = sorted((point for point in points if point.delta == usual), key=lambda point: point.epsilon or 0.0)
    spread = [2 * point.regret.stderr for point in solid]
    axes.errorbar(*_line(solid), yerr=spread, label=name, color=colour, linestyle=style, marker=marker, markersize=5)
    hollow = [point for point in points if point.delta != usual]
    axes.plot(*_line(hollow), linestyle="none", marker=marker, markerfacecolor="none", color=colour)


def _unbudgeted(frontier: Frontier) -> list[Point]:
    """The two references, and FedLinUCB with the practical radii."""
    references = [point for point in frontier.points if point.name in REFERENCES]
    practical = [point for point in frontier.points if point.epsilon is None and point.name.endswith(PRACTICAL)]
    return references + practical[:1]


def _line(points: list[Point]) -> tuple[list[float], list[float]]:
    return [point.epsilon or 0.0 for point in points], [point.regret.mean for point in points]
