"""The factorisation with the least noise where it hurts most: in the early prefix sums, which few people stand behind.

The fewer people the model of sync k has seen, the more the noise of prefix k matters. So `early` does not minimise the
worst noise but a weighted sum of the prefix variances, sum_k p_k ||B_k||^2 with p_k = 1 / (k + 1), over all A = B C
with unit columns of C. Where the sums forget, p_k = 1 / (w^0 + ... + w^k), because that many batches stand behind the
k-th sum. With X = C^T C, this is to minimise tr(A^T diag(p) A X^-1) under diag X = 1. Where its gradient is diagonal,

    X = diag(q)^-1/2 (M^T M)^1/2 diag(q)^-1/2,    M = diag(p)^1/2 A diag(q)^1/2,

and diag X = 1 is the fixed point q = diag (M^T M)^1/2. That is the form of `optimal`, which chooses p as well.

Over a year of daily syncs, the first prefix has a quarter less noise than with `toeplitz`, the last a tenth more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedbandit._arrays import Floats
from fedbandit.protocol.encoder import Encoder
from fedbandit.protocol.mechanisms import optimal

__all__ = ["Early", "encoder", "forgetting", "weights"]

STEPS, POWER = 10, 2.5  # of the fixed point: after these steps q moves by less than a hundred-thousandth


@dataclass(frozen=True)
class Early(optimal.DenseEncoder):
    """C from the fixed point, rounded; neither C nor B has a negative entry."""

    fraction_bits = optimal.FRACTION_BITS


def encoder(size: int) -> Encoder:
    """The C of `size` releases for prefix sums, rounded to 2^-12."""
    return forgetting(size, 1.0)


def forgetting(size: int, forget: float) -> Encoder:
    """The C of `size` releases for weighted sums, rounded to 2^-12."""
    p = weights(optimal.checked("early", size), forget)
    q = np.full(size, 1 / size)
    for _ in range(STEPS):
        q = optimal.raised(q, optimal.root(p, q, forget).diagonal(), POWER)
    return Early(size, optimal.rounded(optimal.factor(p, q, forget)), forget=forget)


def weights(size: int, forget: float = 1.0) -> Floats:
    """p: how much the variance of each sum counts (size,)."""
    return np.asarray(1 / np.cumsum(forget ** np.arange(size)))
