"""A public random projection: fewer columns, for a schema with more columns than its budget can carry.

Every column of a row gets a random point: `columns` random signs, divided by the square root of their number. A
projected row is the sum of its columns times their points, times a constant. The signs come from a hash of the public
seed.

Why no projected row is longer than 1: within a block, absolute values add up to at most the block's weight w (see
`fields.py`). The length of a projected row is convex in the row, so it is largest where each block fills one column
with its weight. There its square is a sum, over pairs of blocks, of w_s w_t times the product of two points, and each
product is at most the largest product of any two points of these blocks. The square is also at most the square of the
largest singular value. The constant is one over the root of the smaller of the two bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from hashlib import shake_256
from typing import Any

import numpy as np

from fedbandit import _validate
from fedbandit._arrays import Flags, Floats, Indices

__all__ = ["Projection"]

MOST_PAIRED = 4096  # most columns for which the products of all pairs are computed
GRID = 2.0**-20  # the constant is rounded down to a multiple of this, to be free of the rounding of linear algebra


@dataclass(frozen=True)
class Projection:
    """A projection to `columns` columns by a public seed.

    >>> from fedbandit.problem import Hashed, Schema
    >>> schema = Schema({"drug": Hashed(500)}, actions=("A", "B"), projection=Projection(columns=20))
    >>> schema.width, schema.dim
    (1002, 20)
    """

    columns: int
    seed: int = 0

    def __post_init__(self) -> None:
        _validate.count("columns", self.columns)
        _validate.count("seed", self.seed, least=0)

    def signs(self, width: int) -> Floats:
        """The random signs of each column's point, (width, columns)."""
        size = width * self.columns
        stream = shake_256(f"fedbandit projection {self.seed} {width} {self.columns}".encode()).digest(-(-size // 8))
        bits = np.unpackbits(np.frombuffer(stream, dtype=np.uint8), count=size)
        return np.where(bits, 1.0, -1.0).reshape(width, self.columns)

    def matrix(self, weights: Floats, block_of: Indices, group_of: Indices) -> Floats:
        """The matrix (width, columns) by which rows are multiplied.

        `weights` (blocks,) are the weights of the blocks, and `block_of` (width,) says to which block a column belongs.
        `group_of` (width,) says which columns can be filled together: those of one group, and those of group -1 with
        any.
        """
        points = self.signs(len(block_of)) / math.sqrt(self.columns)
        longest = float(np.linalg.norm(points, 2)) ** 2
        if len(points) <= MOST_PAIRED:
            longest = min(longest, _by_pairs(points, weights, block_of, group_of))
        return points * (math.floor(1 / math.sqrt(max(longest, GRID)) / GRID) * GRID)

    def as_dict(self) -> dict[str, Any]:
        """The projection as plain data."""
        return {"columns": self.columns, "seed": self.seed}


def _by_pairs(points: Floats, weights: Floats, block_of: Indices, group_of: Indices) -> float:
    """The largest, over all groups, of the sum over pairs of blocks."""
    groups = [group for group in np.unique(group_of) if group >= 0] or [-1]
    return max(_of_group(points, weights, block_of, (group_of == group) | (group_of == -1)) for group in groups)


def _of_group(points: Floats, weights: Floats, block_of: Indices, together: Flags) -> float:
    blocks = block_of[together]
    starts = np.flatnonzero(np.diff(blocks, prepend=-1))
    products = np.abs(points[together] @ points[together].T)
    largest = np.maximum.reduceat(np.maximum.reduceat(products, starts, axis=0), starts, axis=1)
    involved = weights[blocks[starts]]
    return float(involved @ largest @ involved)
