"""From which M on each way of shuffling pays, by epsilon and T: a map, as data, as a table and as a picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedbandit.planner.studies.shuffling import MAP_BATCH, MAP_DELTA, MAP_DIM, MOST_ON_MAP, WAYS, Threshold, thresholds

__all__ = ["EPSILONS", "NAME", "ROUNDS", "SECURE_SUM_PAYS", "TABLED", "as_table", "draw", "measured", "write"]

NAME = "shuffling"
EPSILONS = tuple(float(f"{epsilon:.3g}") for epsilon in np.geomspace(1e-5, 10, 19))
ROUNDS = (100, 1_000, 10_000)
TABLED = (1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0)
SECURE_SUM_PAYS = 3  # silos from which on secure sums add less noise than silo-level LDP, at every epsilon and T


def measured() -> list[Threshold]:
    """The whole map; it takes about half a minute."""
    return list(thresholds(EPSILONS, ROUNDS))


def write(folder: Path, found: Sequence[Threshold], picture: str) -> None:
    """Write shuffling.json and the picture."""
    text = json.dumps([one._asdict() for one in found], indent=1)
    (folder / f"{NAME}.json").write_text(text + "\n", encoding="utf-8")
    draw(found, folder / f"{NAME}.{picture}")


def as_table(found: Sequence[Threshold]) -> list[list[str]]:
    """One row per way and T, one column per epsilon of TABLED; a dash where the way never pays."""
    silos = {(one.way, one.rounds, one.epsilon): one.silos for one in found}
    return [
        [way, f"{rounds:,}", *(_words(silos[way, rounds, epsilon]) for epsilon in TABLED)]
        for way in WAYS
        for rounds in ROUNDS
    ]


def _words(silos: float | None) -> str:
    return "-" if silos is None else f"{float(f'{silos:.2g}'):,.0f}"


def draw(found: Sequence[Threshold], path: Path) -> None:
    """Draw one panel per T: the fewest silos against epsilon, one line per way. Above its line, a way pays."""
    import matplotlib.pyplot as plt

    from fedbandit.simulator.plot import COLOURS, STYLES, save

    figure, axes = plt.subplots(1, len(ROUNDS), figsize=(11, 4.2), layout="constrained", sharey=True)
    for axis, rounds in zip(axes, ROUNDS, strict=True):
        for index, way in enumerate(WAYS):
            here = [one for one in found if (one.way, one.rounds) == (way, rounds) and one.silos is not None]
            x, y = [one.epsilon for one in here], [one.silos for one in here]
            axis.loglog(x, y, label=way, color=COLOURS[index], linestyle=STYLES[index], linewidth=1.8)
        axis.set_title(f"T = {rounds:,}", fontsize=10)
        axis.set_xlabel("ε", fontsize=9)
        axis.set_xlim(EPSILONS[0], EPSILONS[-1])
        axis.set_ylim(1, MOST_ON_MAP)
        axis.grid(alpha=0.25)
        axis.tick_params(labelsize=8)
    axes[0].set_ylabel("silos from which it adds less noise", fontsize=9)
    handles, labels = axes[-1].get_legend_handles_labels()
    setting = f"δ = {MAP_DELTA:g}, B = {MAP_BATCH}, d = {MAP_DIM}"
    title = f"Where shuffling pays ({setting}); secure-sum pays from {SECURE_SUM_PAYS} silos on"
    figure.legend(handles, labels, loc="outside upper center", ncols=2, frameon=False, fontsize=8, title=title)
    save(figure, path)
