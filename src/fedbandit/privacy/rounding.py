"""Random rounding of many numbers at once, compiled: what P_1D does to every coordinate of every user."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True)
def rounded_totals(values: NDArray[np.float64], seed: np.uint64) -> NDArray[np.int64]:
    """Sums over users of values (groups, users, width), each rounded up with probability its fraction.

    The uniform behind each number is a hash (SplitMix64) of the seed and the number's place.
    """
    groups, users, width = values.shape
    totals = np.zeros((groups, width), dtype=np.int64)
    state = seed
    for group in range(groups):
        for user in range(users):
            for column in range(width):
                state += np.uint64(0x9E3779B97F4A7C15)
                word = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                word = word ^ (word >> np.uint64(31))
                value = values[group, user, column]
                whole = np.floor(value)
                uniform = (word >> np.uint64(11)) * 2.0**-53
                totals[group, column] += np.int64(whole) + np.int64(uniform < value - whole)
    return totals
