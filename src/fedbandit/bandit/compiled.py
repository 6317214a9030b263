"""The choice of an action, compiled: one matrix product per block of rows, then norms and upper confidence bounds in
one pass over it.

Importing this module loads a compiler, and compiles if no cache is there: a silo does so beside its work.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types

from fedbandit._arrays import Floats, Indices
from fedbandit._jit import njit
from fedbandit.bandit.linucb import Model

__all__ = ["best_of", "best_of_many", "weights_of"]

# One signature for all callers, so that nothing is compiled while somebody waits. Arrays may be read-only.
_ROWS, _SETS = (types.Array(types.float64, sides, "C", readonly=True) for sides in (2, 3))
_MODEL = (_ROWS, types.float64, types.float64)
# Products of this size stay in the cache, and below what a matrix library divides among threads: those would wait for
# each other on a machine that serves other requests meanwhile.
PRODUCT = 1 << 17
# Rows of a block are a multiple of this: a matrix library may round those left over in another way, and equal rows must
# stay equal.
EVEN = 16
_ANY_ORDER = {"reassoc", "contract"}  # sums may be taken in any order; what is not finite stays so


def weights_of(model: Model) -> Floats:
    """What rows are multiplied by, (dim, dim + 1): the root, then theta."""
    return np.concatenate([model.root, model.theta[:, None]], axis=1)


@njit(types.intp(_ROWS, *_MODEL), cache=True, nogil=True, fastmath=_ANY_ORDER)
def best_of(features: Floats, weights: Floats, radius: float, most: float) -> int:
    """The first row with the largest <x, theta> + radius |root^T x|; -1 if the square of a row's norm is not at most
    `most`."""
    rows, dim = features.shape
    if rows < EVEN:
        filled = np.zeros((EVEN, dim))
        filled[:rows] = features
        features = filled
    size = max(EVEN, PRODUCT // (dim * (dim + 1)) // EVEN * EVEN)
    best, highest, done = -1, -math.inf, 0
    while done < rows:
        left = rows - done
        count = min(size, max(EVEN, left // EVEN * EVEN))
        start = min(done, features.shape[0] - count)  # the last block begins with rows that were looked at before
        some = features[start : start + count]
        seen = np.dot(some, weights)
        for row in range(done - start, min(count, rows - start)):
            square, width = 0.0, 0.0
            for i in range(dim):
                square += some[row, i] * some[row, i]
                width += seen[row, i] * seen[row, i]
            if not square <= most:  # NaN fails the comparison
                return -1
            bound = seen[row, dim] + radius * math.sqrt(width)
            if best < 0 or bound > highest:
                best, highest = start + row, bound
        done = start + count
    return best


@njit(types.Array(types.intp, 1, "C")(_SETS, *_MODEL), cache=True, nogil=True)
def best_of_many(features: Floats, weights: Floats, radius: float, most: float) -> Indices:
    """The same for each of many sets, (people, arms, dim)."""
    found = np.empty(features.shape[0], dtype=np.intp)
    for person in range(features.shape[0]):
        found[person] = best_of(features[person], weights, radius, most)
    return found
