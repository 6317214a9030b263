"""Random rounding of many numbers at once, compiled: what P_1D does to every coordinate of every user."""

from __future__ import annotations

import numpy as np

from fedbandit._arrays import Floats, Integers
from fedbandit._jit import njit
from fedbandit._splitmix import GOLDEN, mixed

__all__ = ["rounded_totals"]


@njit(cache=True)
def rounded_totals(values: Floats, seed: np.uint64) -> Integers:
    """Sums over users of values (groups, users, width), each rounded up with a probability equal to its fractional
    part.

    The uniform random number behind each rounding is a hash of the seed and the number's place.
    """
    groups, users, width = values.shape
    totals = np.zeros((groups, width), dtype=np.int64)
    state = seed
    for group in range(groups):
        for user in range(users):
            for column in range(width):
                state += GOLDEN
                value = values[group, user, column]
                whole = np.floor(value)
                uniform = (mixed(state) >> np.uint64(11)) * 2.0**-53
                totals[group, column] += np.int64(whole) + np.int64(uniform < value - whole)
    return totals
