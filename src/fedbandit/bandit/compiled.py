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


@njit(types.Array(types.intp, 1, "C")(_SETS, *_MODEL), cache=True, nogil=True, fastmath=_ANY_ORDER)
def best_of_many(features: Floats, weights: Floats, radius: float, most: float) -> Indices:
    """Of each of many sets, (people, arms, dim), the first row with the largest <x, theta> + radius |root^T x|; -1 if
    the square of a row's norm is not at most `most`. A block may hold rows of several people."""
    people, arms, dim = features.shape
    rows, total = features.reshape((people * arms, dim)), people * arms
    if total < EVEN:
        filled = np.zeros((EVEN, dim))
        filled[:total] = rows
        rows = filled
    size = max(EVEN, PRODUCT // (dim * (dim + 1)) // EVEN * EVEN)
    found = np.full(people, -1)
    person, arm, best, highest, fine = 0, 0, 0, -math.inf, True
    done = 0
    while done < total:
        left = total - done
        count = min(size, max(EVEN, left // EVEN * EVEN))
        start = min(done, rows.shape[0] - count)  # the last block begins with rows that were looked at before
        some = rows[start : start + count]
        seen = np.dot(some, weights)
        for row in range(done - start, min(count, total - start)):
            square, width = 0.0, 0.0
            for i in range(dim):
                square += some[row, i] * some[row, i]
                width += seen[row, i] * seen[row, i]
            fine = fine and square <= most  # NaN fails the comparison
            bound = seen[row, dim] + radius * math.sqrt(width)
            if arm == 0 or bound > highest:
                best, highest = arm, bound
            arm += 1
            if arm == arms:
                if fine:
                    found[person] = best
                person, arm, fine = person + 1, 0, True
        done = start + count
    return found


@njit(types.intp(_ROWS, *_MODEL), cache=True, nogil=True)
def best_of(features: Floats, weights: Floats, radius: float, most: float) -> int:
    """The same of one set, (arms, dim)."""
    found: int = best_of_many(features.reshape((1, *features.shape)), weights, radius, most)[0]
    return found
