"""The square root of the prefix-sum matrix: c_0 = 1, c_k = c_{k-1} (1 - 1/(2k)); C C = A, so B = C.

It has about three times less noise than the tree at the same guarantee. Coefficients are rounded to 2^-10, so that
integer sums give integer releases. B is computed for the rounded C; the noise of the worst prefix grows by less than
0.1 %.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedbandit._arrays import Floats
from fedbandit._validate import ArgumentError
from fedbandit.protocol.encoder import Encoder, ToeplitzEncoder
from fedbandit.protocol.endless import LONGEST_BAND, EndlessEncoder

__all__ = ["FRACTION_BITS", "EndlessToeplitz", "Toeplitz", "encoder", "endless", "forgetting", "square_root"]

FRACTION_BITS = 10


@dataclass(frozen=True)
class Toeplitz(ToeplitzEncoder):
    """C[k, j] = c_{k - j}, the rounded square root of A."""

    fraction_bits = FRACTION_BITS


@dataclass(frozen=True)
class EndlessToeplitz(EndlessEncoder):
    """The same coefficients without an end: only finitely many of the rounded c_k w^k are not 0."""

    fraction_bits = FRACTION_BITS

    @property
    def name(self) -> str:
        return "toeplitz"


def square_root(size: int) -> Floats:
    """The first column of A^(1/2)."""
    ratios = 1 - 1 / (2 * np.arange(1, size))
    return np.concatenate(([1.0], np.cumprod(ratios)))


def encoder(size: int) -> Encoder:
    """The square root of A, rounded to 2^-10."""
    return forgetting(size, 1.0)


def forgetting(size: int, forget: float) -> Encoder:
    """The square root of weighted sums, c_k w^k, rounded to 2^-10."""
    return Toeplitz(size, tuple(_rounded(size, forget).tolist()), forget=forget)


def endless(size: int, forget: float) -> EndlessEncoder:
    """The square root of weighted sums without a last row: all of its rounded coefficients that are not 0."""
    beyond = math.ceil(-(FRACTION_BITS + 1) / math.log2(forget)) + 1  # from here on, c_k w^k <= w^k is rounded to 0
    column = _rounded(beyond, forget)
    band = column[: int(np.flatnonzero(column)[-1]) + 1]
    if len(band) > LONGEST_BAND:
        raise ArgumentError(
            "forget",
            f"must be smaller where there is no end, got {forget:g}: a silo would have to remember {len(band):,} "
            f"batches, more than {LONGEST_BAND:,}",
        )
    return EndlessToeplitz(size, tuple(band.tolist()), forget=forget)


def _rounded(size: int, forget: float) -> Floats:
    column = square_root(size) * forget ** np.arange(size)
    return np.asarray(np.rint(column * 2**FRACTION_BITS) / 2**FRACTION_BITS)
