"""The square root of the prefix-sum matrix: c_0 = 1, c_k = c_{k-1} (1 - 1/(2k)); C C = A, so B = C.

About three times less noise than the tree at the same guarantee. Coefficients are rounded to 2^-10, so that integer
sums give integer releases; B is computed for the rounded C, and the noise of the worst prefix grows by less than 0.1 %.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedbandit._arrays import Floats
from fedbandit.protocol.encoder import Encoder, ToeplitzEncoder

__all__ = ["FRACTION_BITS", "Toeplitz", "encoder", "forgetting", "square_root"]

FRACTION_BITS = 10


@dataclass(frozen=True)
class Toeplitz(ToeplitzEncoder):
    """C[k, j] = c_{k - j}, the rounded square root of A."""

    fraction_bits = FRACTION_BITS


def square_root(size: int) -> Floats:
    """First column of A^(1/2)."""
    ratios = 1 - 1 / (2 * np.arange(1, size))
    return np.concatenate(([1.0], np.cumprod(ratios)))


def encoder(size: int) -> Encoder:
    """The square root of A, rounded to 2^-10."""
    return forgetting(size, 1.0)


def forgetting(size: int, forget: float) -> Encoder:
    """The square root of weighted sums, c_k w^k, rounded to 2^-10."""
    column = square_root(size) * forget ** np.arange(size)
    rounded = np.rint(column * 2**FRACTION_BITS) / 2**FRACTION_BITS
    return Toeplitz(size, tuple(rounded.tolist()), forget=forget)
