"""Actions in random directions: how well the best of them is aligned with a given direction."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from scipy.special import betainc

__all__ = ["PAPERS_SHARE", "Alignment", "best_of"]

PAPERS_SHARE: Final = 0.5  # the constant entry's share of a row's squared length in the paper's instance
GRID = 20_001  # points of an integral over [0, 1]


class Alignment(NamedTuple):
    """The expected cosine of the best of several random directions, and the expected square of that cosine."""

    cosine: float
    square: float


@lru_cache(maxsize=256)
def best_of(arms: int, axes: int) -> Alignment:
    """The alignment of the best of `arms` random directions in R^axes.

    For each of them, (1 + cosine) / 2 has the law Beta(a, a), a = (axes - 1) / 2.

    >>> best_of(arms=1, axes=9).cosine
    0.0
    >>> round(best_of(arms=100, axes=9).cosine, 3)
    0.743
    """
    if axes == 1:  # on a line, a cosine is -1 or 1
        return Alignment(1 - 2 * 0.5**arms, 1.0)
    half = np.linspace(0, 1, GRID)
    below = betainc((axes - 1) / 2, (axes - 1) / 2, half) ** arms
    mean, square = 1 - np.trapezoid(below, half), 1 - np.trapezoid(2 * half * below, half)
    return Alignment(round(float(2 * mean - 1), 12), round(float(4 * square - 4 * mean + 1), 12))
