"""What everybody can see of messages without opening them: when they are sent, how many there are, and their sizes.

The plan determines all of it. If runs follow the plan to the byte, there is nothing to learn. If they do not (because
of random padding, say), independent runs are compared: each is one observation of its world, and no size may have a
different law in the two worlds. A failure proves that times or sizes depend on the user, which no noise covers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtr

from fedbandit._arrays import Floats

__all__ = ["FALSE_ALARMS", "Envelope", "dependence"]

FALSE_ALARMS = 0.001
Envelope = tuple[tuple[str, int], ...]  # for every message, its slot in the calendar and its size in bytes


def dependence(low: Sequence[Envelope], high: Sequence[Envelope]) -> tuple[int, tuple[str, ...]]:
    """Compare runs of world 0 and of world 1, one envelope each; return the number of tests, and failures in words."""
    runs = [*low, *high]
    world = np.repeat([False, True], [len(low), len(high)])
    slots = sorted({slot for run in runs for slot, _ in run})
    sizes = np.zeros((len(runs), len(slots)))
    for row, run in zip(sizes, runs, strict=True):
        for slot, size in run:
            row[slots.index(slot)] += size
    columns = {slot: sizes[:, at] for at, slot in enumerate(slots)}
    columns |= {"all messages": sizes.sum(axis=1), "number of messages": np.array([float(len(run)) for run in runs])}
    varying = {slot: column for slot, column in columns.items() if np.ptp(column) > 0}
    tests = [(slot, _level(column, world)) for slot, column in varying.items()]
    tests += [(slot, _level(np.abs(column - np.median(column)), world)) for slot, column in varying.items()]
    failed = dict.fromkeys(slot for slot, p in tests if p < FALSE_ALARMS / len(tests))
    return len(tests), tuple(f"the size of {slot} depends on the user" for slot in failed)


def _level(values: Floats, world: np.ndarray) -> float:
    """Two-sided p-value of Wilcoxon's rank-sum test, with ties: whether one world's values tend to be larger."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    total, ones = len(values), int(world.sum())
    zeros = total - ones
    ties = float(np.sum(counts.astype(float) ** 3 - counts)) / (total * (total - 1))
    variance = ones * zeros / 12 * (total + 1 - ties)
    if variance <= 0:
        return 1.0
    off = abs(float(ranks[world].sum()) - ones * (total + 1) / 2) - 0.5
    return float(2 * ndtr(-max(0.0, off) / np.sqrt(variance)))
