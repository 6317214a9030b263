"""What a silo keeps of its users: the bias vector U and the covariance W of LinUCB, packed, as integers.

One user with features x and reward y adds the vector ``[x y, upper triangle of x x^T]``, every number rounded to the
grid 2^-bits and kept as int64. With integers, a sum does not depend on its order, a state is identical after a restart,
and the discrete Gaussian can be used. The sensitivity includes the rounding.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedbandit._arrays import Flags, Floats, Indices, Integers

__all__ = ["Scales", "contributions", "is_diagonal", "summed", "symmetric", "unpack", "upper_triangle", "width"]


NUMBERS, FEWEST = 2**14, 32  # most numbers in the contributions that are summed at a time, and fewest users


class Scales(NamedTuple):
    """One number for each kind of packed number: bias entries, diagonal and off-diagonal entries of the matrix."""

    bias: float
    diagonal: float
    off_diagonal: float

    @classmethod
    def flat(cls, value: float) -> Scales:
        """The same value for all three."""
        return cls(value, value, value)

    def times(self, factor: float) -> Scales:
        """All three multiplied."""
        return Scales(*(float(value * factor) for value in self))

    def packed(self, dim: int) -> Floats:
        """The scale of each number of a packed contribution, (width,)."""
        scales = np.where(is_diagonal(dim), self.diagonal, self.off_diagonal)
        scales[:dim] = self.bias
        return scales


def width(dim: int) -> int:
    """The length of a packed contribution: dim numbers of the bias, dim (dim + 1) / 2 of the symmetric matrix."""
    return dim + dim * (dim + 1) // 2


def contributions(x: ArrayLike, y: ArrayLike, bits: int, centre: float = 0.0) -> Integers:
    """Users' contributions on the grid 2^-bits: x (..., dim), y (...) to (..., width); rewards enter as y - centre."""
    x = np.asarray(x, dtype=np.float64)
    y = np.asarray(y, dtype=np.float64)
    (rows, columns), dim = upper_triangle(x.shape[-1]), x.shape[-1]
    packed = np.empty((*x.shape[:-1], width(dim)))
    on_grid = x * 2.0**bits  # a power of two: what is multiplied by it rounds as if it were multiplied last
    np.multiply(on_grid, y[..., None] - centre, out=packed[..., :dim])
    np.multiply(on_grid.take(rows, axis=-1), x.take(columns, axis=-1), out=packed[..., dim:])
    return np.rint(packed, out=packed).astype(np.int64)


def summed(x: Floats, y: Floats, bits: int, centre: float = 0.0) -> Integers:
    """The sum of users' contributions: x (users, dim), y (users,) to (width,).

    A few users are summed at a time, because numbers that leave the processor's cache take several times as long. The
    result does not depend on how many, because the contributions are integers.
    """
    total = np.zeros(width(x.shape[-1]), dtype=np.int64)
    some = max(FEWEST, NUMBERS // len(total))
    for at in range(0, len(x), some):
        total += contributions(x[at : at + some], y[at : at + some], bits, centre).sum(axis=0)
    return total


def unpack(vector: Floats, dim: int) -> tuple[Floats, Floats]:
    """Bias (..., dim) and symmetric covariance (..., dim, dim) of a packed vector (..., width)."""
    return vector[..., :dim].copy(), symmetric(vector[..., dim:], dim)


def symmetric(entries: Floats, dim: int) -> Floats:
    """The symmetric matrix (..., dim, dim) with this packed upper triangle."""
    rows, columns = upper_triangle(dim)
    matrix = np.empty((*entries.shape[:-1], dim, dim))
    matrix[..., rows, columns] = entries
    matrix[..., columns, rows] = entries
    return matrix


@lru_cache(maxsize=16)
def upper_triangle(dim: int) -> tuple[Indices, Indices]:
    """The row and the column of each packed matrix entry, row by row."""
    rows, columns = np.triu_indices(dim)
    return rows, columns


@lru_cache(maxsize=16)
def is_diagonal(dim: int) -> Flags:
    """For each packed number, whether it is a diagonal entry of the matrix (False for the bias)."""
    rows, columns = upper_triangle(dim)
    return np.concatenate([np.zeros(dim, dtype=bool), rows == columns])
