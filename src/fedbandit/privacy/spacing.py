"""People who come back after a while: how far visits that lie a minimum number of syncs apart can move all releases.

One visit moves one batch sum by at most s, and batch j enters the releases by column C_j. Where C has no negative
entry, a person whose visits count in the batches J moves the releases by at most s ||sum over J of C_j||: for shifts
v_j of length at most s, ||sum v_j C_j||^2 = sum <v_i, v_j> <C_i, C_j> <= s^2 sum <C_i, C_j>. So what is needed is the
largest such norm over the admissible J: those of at most m batches, any two at least n syncs apart.

**Rewards that come late.** A visit counts in the batch in which its reward comes. So in the neighbouring world the
same person's visits may lie in another admissible set J', and there may be more or fewer of them. Let u_j and u'_j be
the contributions in the two worlds. Each has length at most a, and their inner products <u, u'> are at least -b, with
b >= 0, so that the largest shift s of one visit has s^2 = 2 a^2 + 2 b (`privacy.sensitivity`). The releases move from
X = sum over J of u_j C_j to Y = sum over J' of u'_j C_j. Let A = ||sum over J of C_j||, let A' be the same for J', and
let S be the largest such norm of all. While C >= 0,

    ||X - Y||^2 = ||X||^2 + ||Y||^2 - 2 <X, Y> <= a^2 A^2 + a^2 A'^2 + 2 b A A' <= (2 a^2 + 2 b) S^2 = s^2 S^2,

which is no more than if only the data changed and not the batches. (For the last term of the first bound, -2 <X, Y> is
-2 sum <u_i, u'_j> <C_i, C_j> <= 2 b <sum_J C_i, sum_J' C_j>, then Cauchy and Schwarz.) Somebody who stays away moves
the releases by ||X|| <= a S. Where C has negative entries none of this holds, and spacing is refused.

**Any C** (`dynamic`). Let G = C^T C, and let r_i be the largest sum over J of G_ij among the admissible J that hold i.
For every admissible J, the sum of G_ij over i and j in J is at most the sum over J of r_i. The largest value of that
sum is found exactly, and so are the r_i, by going through the columns once: the best choice of c columns up to l either
leaves l out, or takes it and c - 1 columns up to l - n.

**Columns that are shifted copies** (`evenly`). If C[k, j] = c_{k-j} and c is non-negative and never rises, the worst J
is 0, n, 2n, ... To see this, take the first R rows and d = j - i >= 0: <C_i, C_j> is the sum of c_{t+d} c_t over
t < R - j, and it falls in d and in j. The a-th batch of any admissible J (a from 0) does not come before a n, and any
two of its batches lie at least as far apart as their counterparts in 0, n, 2n, ... So every product is at most the one
in its place there. Adding another column adds no negative product.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedbandit._arrays import Floats

__all__ = ["Spaced", "dynamic", "evenly"]


class Spaced(NamedTuple):
    """A bound on the largest sum of `gram` over admissible sets of columns, and a set that comes near it."""

    bound: float
    columns: tuple[int, ...]


def evenly(size: int, visits: int, apart: int) -> tuple[int, ...]:
    """The batches 0, n, 2n, ... with n = `apart`: as many of `visits` as fit.

    >>> evenly(365, 12, 30)[-2:], evenly(10, 12, 4)
    ((300, 330), (0, 4, 8))
    """
    return tuple(range(0, size, apart))[:visits]


def dynamic(gram: Floats, visits: int, apart: int) -> Spaced:
    """A `bound` that is at least the sum of gram over J x J, for every set J of at most `visits` columns, any two of
    them `apart` or more apart.

    `gram` (size, size) is symmetric and has no negative entry.
    """
    size = len(gram)
    visits = min(visits, math.ceil(size / apart))
    near = np.abs(np.subtract.outer(np.arange(size), np.arange(size))) < apart
    beside = np.where(near, 0.0, gram)  # (l, i): what column l adds to r_i
    reach = np.diag(gram) + _best(beside, visits - 1, apart)[-1, visits - 1]
    table = _best(reach[:, None], visits, apart)
    return Spaced(float(table[-1, visits, 0]), _taken(table[..., 0], visits, apart))


def _best(values: Floats, most: int, apart: int) -> Floats:
    """The largest sum of up to c of the first l rows of `values` (rows, cases), any two `apart` or more apart.

    Shape (kept, most + 1, cases), with l along the first axis and c along the second. The last entry is for all rows;
    of several cases only that entry is kept.
    """
    rows, cases = values.shape
    table = [np.zeros((most + 1, cases))]
    for row in range(rows):
        here = table[-1].copy()
        if most:
            here[1:] = np.maximum(here[1:], table[max(0, row + 1 - apart) - row - 1][:-1] + values[row])
        table.append(here)
        if cases > 1 and len(table) > apart + 1:
            table.pop(0)
    return np.stack(table if cases == 1 else table[-1:])


def _taken(table: Floats, visits: int, apart: int) -> tuple[int, ...]:
    """The rows behind the last entry of a `_best` table (rows + 1, visits + 1), traced back from the last row."""
    taken: list[int] = []
    row = len(table) - 1
    while row and visits:
        if table[row, visits] == table[row - 1, visits]:
            row -= 1
            continue
        taken.append(row - 1)
        row, visits = max(0, row - apart), visits - 1
    return tuple(reversed(taken))
