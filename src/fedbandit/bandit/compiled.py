"""The choice of an action, compiled: norms and upper confidence bounds in one pass over the rows, eight at a time.

Importing this module loads a compiler, and compiles if no cache is there: a silo does so beside its work.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types

from fedbandit._arrays import Floats, Indices
from fedbandit._jit import njit

__all__ = ["best_of", "best_of_many"]

# One signature for all callers, so that nothing is compiled while somebody waits. Arrays may be read-only.
_ROW, _ROWS, _SETS = (types.Array(types.float64, sides, "C", readonly=True) for sides in (1, 2, 3))
_MODEL = (_ROW, _ROWS, types.float64, types.float64)
LANES = 8


@njit(types.intp(_ROWS, *_MODEL), cache=True, nogil=True)
def best_of(features: Floats, theta: Floats, root: Floats, radius: float, most: float) -> int:
    """The first row with the largest <x, theta> + radius |root^T x|, root upper triangular; -1 if the square of a row's
    norm is not at most `most`."""
    rows, dim = features.shape
    block = np.empty((dim, LANES))  # some rows, the same feature of all of them side by side
    seen, widths, means, squares = np.empty(LANES), np.empty(LANES), np.empty(LANES), np.empty(LANES)
    best, highest = -1, -math.inf
    for start in range(0, rows, LANES):
        lanes = min(LANES, rows - start)
        for lane in range(LANES):
            row = start + min(lane, lanes - 1)
            for i in range(dim):
                block[i, lane] = features[row, i]
        widths[:] = 0.0
        means[:] = 0.0
        squares[:] = 0.0
        for j in range(dim):
            for lane in range(LANES):
                seen[lane] = 0.0
                squares[lane] += block[j, lane] * block[j, lane]
                means[lane] += block[j, lane] * theta[j]
            for i in range(j + 1):
                for lane in range(LANES):
                    seen[lane] += block[i, lane] * root[i, j]
            for lane in range(LANES):
                widths[lane] += seen[lane] * seen[lane]
        for lane in range(lanes):
            if not squares[lane] <= most:  # NaN fails the comparison
                return -1
            bound = means[lane] + radius * math.sqrt(widths[lane])
            if best < 0 or bound > highest:
                best, highest = start + lane, bound
    return best


@njit(types.Array(types.intp, 1, "C")(_SETS, *_MODEL), cache=True, nogil=True)
def best_of_many(features: Floats, theta: Floats, root: Floats, radius: float, most: float) -> Indices:
    """The same for each of many sets, (people, arms, dim)."""
    found = np.empty(features.shape[0], dtype=np.intp)
    for person in range(features.shape[0]):
        found[person] = best_of(features[person], theta, root, radius, most)
    return found
