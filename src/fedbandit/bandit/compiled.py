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
_CHOICES = types.Tuple((types.Array(types.intp, 1, "C"), types.Array(types.float64, 2, "C")))  # type: ignore[no-untyped-call]
# Rows in a block. A processor's wide registers hold the same column of several rows, so each row is summed in the same
# order wherever it stands: equal rows get equal scores, and every machine decides the same.
BLOCK, STEP = 128, 8  # the most rows in a block; their number is a multiple of STEP
# Four columns are multiplied together, for two sums at a time: each column is read, and each sum written, less often.
# Weights are filled up with zeros to these multiples.
COLUMNS, SUMS = 4, 2
LINE = 8  # numbers in a line of the processor's cache


def weights_of(model: Model) -> Floats:
    """The weights by which rows are multiplied: the columns of the root, then theta, filled up with zeros."""
    dim = len(model.theta)
    weights = np.zeros((dim + -dim % SUMS + 1, dim + -dim % COLUMNS))
    weights[:dim, :dim], weights[-1, :dim] = model.root.T, model.theta
    return weights


@njit(nogil=True, inline="always")
def _means_and_squares(columns: Floats, theta: Floats, means: Floats, squares: Floats) -> None:
    """Write <x, theta> and |x|^2 of every row."""
    means[:], squares[:] = 0.0, 0.0
    for i in range(0, len(columns), COLUMNS):
        a, b, c, d = theta[i], theta[i + 1], theta[i + 2], theta[i + 3]
        first, second, third, fourth = columns[i], columns[i + 1], columns[i + 2], columns[i + 3]
        for row in range(len(means)):
            p, q, r, s = first[row], second[row], third[row], fourth[row]
            means[row] += a * p + b * q + c * r + d * s
            squares[row] += p * p + q * q + r * r + s * s


@njit(nogil=True, inline="always")
def _widths(columns: Floats, weights: Floats, one: Floats, other: Floats, widths: Floats) -> None:
    """Write |root^T x|^2 of every row; `one` and `other` are buffers for two of its sums."""
    widths[:] = 0.0
    for j in range(0, len(weights) - 1, SUMS):
        one[:], other[:] = 0.0, 0.0
        for i in range(0, j + SUMS, COLUMNS):  # the root is upper triangular
            a, b, c, d = weights[j, i], weights[j, i + 1], weights[j, i + 2], weights[j, i + 3]
            e, f, g, h = weights[j + 1, i], weights[j + 1, i + 1], weights[j + 1, i + 2], weights[j + 1, i + 3]
            first, second, third, fourth = columns[i], columns[i + 1], columns[i + 2], columns[i + 3]
            for row in range(len(widths)):
                p, q, r, s = first[row], second[row], third[row], fourth[row]
                one[row] += a * p + b * q + c * r + d * s
                other[row] += e * p + f * q + g * r + h * s
        for row in range(len(widths)):
            widths[row] += one[row] * one[row] + other[row] * other[row]


@njit(nogil=True, inline="always")
def _in_lines(sides: int, wide: int) -> Floats:
    """Zeros, (sides, wide), of which each row begins with a line of the cache: a wide register that is filled from two
    lines takes longer. `wide` is a multiple of `LINE`."""
    space = np.zeros(sides * wide + LINE)
    first = -(space.ctypes.data // space.itemsize) % LINE
    return space[first : first + sides * wide].reshape((sides, wide))


@njit(_CHOICES(_SETS, *_MODEL), cache=True, nogil=True)
def best_of_many(features: Floats, weights: Floats, radius: float, most: float) -> tuple[Indices, Floats]:
    """For each of many sets (people, arms, dim): the first row with the largest <x, theta> + radius |root^T x|.

    Returns which row it is, (people,), and a copy of it, (people, dim). The row's number is -1 if the squared norm of
    some row of the set is not at most `most`. A block may hold rows of several people.
    """
    people, arms, dim = features.shape
    rows, total = features.reshape((people * arms, dim)), people * arms
    blocks = max(1, -(-total // BLOCK))
    wide = max(1, -(-total // (blocks * STEP))) * STEP  # all blocks have one size
    # From one array, and row by row: otherwise the compiler cannot tell that they do not overlap, and uses no registers
    # that hold several numbers.
    buffer = _in_lines(5 + weights.shape[1], wide)
    bounds, squares, widths, one, other, columns = buffer[0], buffer[1], buffer[2], buffer[3], buffer[4], buffer[5:]
    found, chosen = np.empty(people, dtype=np.intp), np.empty((people, dim))
    person, arm, best, highest, fine = 0, 0, 0, -math.inf, True
    for start in range(0, total, wide):
        some = rows[start : start + wide]
        for i in range(dim):
            column = columns[i]
            for row in range(len(some)):  # the last block may be smaller: what is left of the one before is never read
                column[row] = some[row, i]
        _means_and_squares(columns, weights[-1], bounds, squares)
        _widths(columns, weights, one, other, widths)
        for row in range(wide):
            bounds[row] += radius * math.sqrt(widths[row])
        for row in range(len(some)):
            fine = fine and squares[row] <= most  # NaN fails the comparison
            if arm == 0 or bounds[row] > highest:
                best, highest = arm, bounds[row]
            arm += 1
            if arm == arms:
                found[person] = best if fine else -1
                for i in range(dim):  # now, while the row is still in the cache
                    chosen[person, i] = rows[person * arms + best, i]
                person, arm, fine = person + 1, 0, True
    return found, chosen


@njit(types.intp(_ROWS, *_MODEL), cache=True, nogil=True)
def best_of(features: Floats, weights: Floats, radius: float, most: float) -> int:
    """`best_of_many` for one set (arms, dim)."""
    found: int = best_of_many(features.reshape((1, *features.shape)), weights, radius, most)[0][0]
    return found
