"""The choice of an action, compiled. Norms and upper confidence bounds are computed block by block of rows, and a block
stays in the processor's cache from the first operation to the last.

Importing this module loads a compiler, and compiles if there is no cache. So a silo imports it in the background.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types

from fedbandit._arrays import Floats, Indices
from fedbandit._jit import njit
from fedbandit.bandit.linucb import Model

__all__ = ["best_of", "best_of_many", "weights_of"]

# One signature serves all callers, so that nothing is compiled while somebody waits. Arrays may be read-only.
_ROWS, _SETS = (types.Array(types.float64, sides, "C", readonly=True) for sides in (2, 3))
_MODEL = (_ROWS, types.float64, types.float64)
# Rows in a block. A processor's wide registers hold the same column of several rows, so each row is summed in the same
# order wherever it stands: equal rows get equal scores, and every machine decides the same.
BLOCK = 80


def weights_of(model: Model) -> Floats:
    """The weights by which rows are multiplied, (dim + 1, dim): the columns of the root, then theta."""
    return np.ascontiguousarray(np.concatenate([model.root.T, model.theta[None]]))


@njit(nogil=True, inline="always")
def _product(columns: Floats, weights: Floats, seen: Floats) -> None:
    """Write weighted sums of the first columns to `seen`, four columns at a time, so that it is written less often."""
    count, wide = len(weights), len(seen)
    seen[:] = 0.0
    for i in range(0, count - 3, 4):
        a, b, c, d = weights[i], weights[i + 1], weights[i + 2], weights[i + 3]
        first, second, third, fourth = columns[i], columns[i + 1], columns[i + 2], columns[i + 3]
        for row in range(wide):
            seen[row] += a * first[row] + b * second[row] + c * third[row] + d * fourth[row]
    for i in range(count // 4 * 4, count):
        a, first = weights[i], columns[i]
        for row in range(wide):
            seen[row] += a * first[row]


@njit(types.Array(types.intp, 1, "C")(_SETS, *_MODEL), cache=True, nogil=True)
def best_of_many(features: Floats, weights: Floats, radius: float, most: float) -> Indices:
    """For each of many sets (people, arms, dim): the first row with the largest <x, theta> + radius |root^T x|.

    It is -1 if the squared norm of some row of the set is not at most `most`. A block may hold rows of several people.
    """
    people, arms, dim = features.shape
    rows, total = features.reshape((people * arms, dim)), people * arms
    wide = min(BLOCK, total)
    columns = np.zeros((dim, wide))
    square, width, seen = np.empty(wide), np.empty(wide), np.empty(wide)
    found = np.empty(people, dtype=np.intp)
    person, arm, best, highest, fine = 0, 0, 0, -math.inf, True
    for start in range(0, total, wide):
        some = rows[start : start + wide]
        for row in range(len(some)):  # the last block may be smaller: what is left of the one before is never read
            for i in range(dim):
                columns[i, row] = some[row, i]
        square[:] = 0.0
        width[:] = 0.0
        for i in range(dim):
            column = columns[i]
            for row in range(wide):
                square[row] += column[row] * column[row]
        for j in range(dim):
            _product(columns, weights[j, : j + 1], seen)  # the root is upper triangular
            for row in range(wide):
                width[row] += seen[row] * seen[row]
        _product(columns, weights[dim], seen)
        for row in range(wide):
            seen[row] += radius * math.sqrt(width[row])
        for row in range(len(some)):
            fine = fine and square[row] <= most  # NaN fails the comparison
            if arm == 0 or seen[row] > highest:
                best, highest = arm, seen[row]
            arm += 1
            if arm == arms:
                found[person] = best if fine else -1
                person, arm, fine = person + 1, 0, True
    return found


@njit(types.intp(_ROWS, *_MODEL), cache=True, nogil=True)
def best_of(features: Floats, weights: Floats, radius: float, most: float) -> int:
    """`best_of_many` for one set (arms, dim)."""
    found: int = best_of_many(features.reshape((1, *features.shape)), weights, radius, most)[0]
    return found
