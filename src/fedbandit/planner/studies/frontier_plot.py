"""The picture of the frontier: regret against epsilon, between silos that share everything and lone silos."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from fedbandit.look.colours import colour_of, colours
from fedbandit.planner.studies.frontier import EVERY, FLOOR, PRACTICAL, REFERENCES, Frontier, Point
from fedbandit.privacy.budget import exactly
from fedbandit.simulator.plot import save

__all__ = ["draw"]


def draw(frontier: Frontier, path: Path, title: str) -> None:
    """Draw curves over epsilon at the most common delta, with two standard errors; other deltas are hollow marks."""
    figure, axes = plt.subplots(figsize=(8.2, 5.2), layout="constrained")
    budgeted = [point for point in frontier.points if point.epsilon is not None]
    deltas = [point.delta for point in budgeted]
    usual = max(set(deltas), key=deltas.count, default=None)
    names = list(dict.fromkeys(point.name for point in budgeted))
    painted = colours(names)
    for name in names:
        curve = [point for point in budgeted if point.name == name]
        if name.endswith(FLOOR):
            _draw_floor(axes, painted[name], curve, usual)
        else:
            _draw_curve(axes, painted[name], curve, usual)
    for point in _unbudgeted(frontier):
        label, dashes = f"{point.name}, not private", _style(point.name)
        axes.axhline(point.regret.mean, color=colour_of(point.name), linestyle=dashes, linewidth=1.2, label=label)
    epsilons = sorted({point.epsilon for point in budgeted if point.epsilon is not None})
    if budgeted and usual is not None:
        _draw_lower_bound(axes, budgeted[0], epsilons, usual)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(epsilons, [exactly(epsilon) for epsilon in epsilons])
    axes.set_xticks([], minor=True)
    axes.set_xlabel(f"epsilon (delta = {exactly(usual)}; hollow: another delta)" if usual is not None else "epsilon")
    axes.set_ylabel("time-averaged group regret")
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.25, which="both")
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    save(figure, path)


def _draw_curve(axes: Axes, colour: str, points: list[Point], usual: float | None) -> None:
    name = points[0].name
    marker, style = _marker(name), _style(name)
    solid = sorted((point for point in points if point.delta == usual), key=lambda point: point.epsilon or 0.0)
    spread = [2 * point.regret.stderr for point in solid]
    axes.errorbar(*_line(solid), yerr=spread, label=name, color=colour, linestyle=style, marker=marker, markersize=5)
    hollow = [point for point in points if point.delta != usual]
    axes.plot(*_line(hollow), linestyle="none", marker=marker, markerfacecolor="none", color=colour)


def _draw_floor(axes: Axes, colour: str, points: list[Point], usual: float | None) -> None:
    solid = sorted((point for point in points if point.delta == usual), key=lambda point: point.epsilon or 0.0)
    axes.plot(*_line(solid), label=points[0].name, color=colour, linestyle=":", linewidth=1.0)


def _draw_lower_bound(axes: Axes, point: Point, epsilons: list[float], delta: float) -> None:
    """Draw the order of what privacy must cost, d / (epsilon + delta) over the horizon, with the constant set to 1."""
    bound = point.plan.dim / (np.asarray(epsilons) + delta) / point.plan.rounds
    label = "d / (epsilon + delta) / T: order of a\nlower bound (Azize & Basu 2024), constant 1"
    axes.plot(epsilons, bound, label=label, color="#999999", linestyle="-.", linewidth=1.0)


def _style(name: str) -> str:
    """The kind of line, which shows the radii and the schedule; the colour shows the protocol."""
    return "--" if name.endswith(PRACTICAL) else "-." if name.endswith(EVERY) else "-"


def _marker(name: str) -> str:
    return {"--": "s", "-.": "^", "-": "o"}[_style(name)]


def _unbudgeted(frontier: Frontier) -> list[Point]:
    """The references, and the first FedLinUCB curve with practical radii."""
    free = [point for point in frontier.points if point.epsilon is None]
    references = [point for point in free if point.name in REFERENCES]
    practical = [point for point in free if point.name.endswith(PRACTICAL) and point not in references]
    return references + practical[:1]


def _line(points: list[Point]) -> tuple[list[float], list[float]]:
    return [point.epsilon or 0.0 for point in points], [point.regret.mean for point in points]
