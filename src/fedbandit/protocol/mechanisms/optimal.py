"""The factorisation with the least worst-prefix noise there is, where the horizon is short enough to compute it.

The least column norm of C times row norm of B, over all A = B C, is the norm gamma_2(A). By duality it is the largest
nuclear norm of diag(p)^1/2 A diag(q)^1/2 over probability vectors p and q. A (prefix or weighted sums) is its own
transpose read backwards, so q may be taken to be p reversed. At the best p, with M = diag(p)^1/2 A diag(q)^1/2,

    C^T C = diag(q)^-1/2 (M^T M)^1/2 diag(q)^-1/2,

all rows of B have the same norm and so have all columns of C: no prefix is worse than another. The fixed point
p_k <- (M M^T)^1/2_kk raises the nuclear norm at every step; squaring the factor of a step is faster and still
converges. The solution of a short horizon starts a longer one, so a dozen steps or so are enough. A Cholesky
factorisation then makes C lower triangular (it turns B and C by the same rotation and changes no norm), and C is
rounded to a grid; B belongs to the rounded C.

The noise is about a tenth less than with `toeplitz`. A silo and the analyzer remember every batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import scipy.linalg

from fedbandit._arrays import Floats
from fedbandit._validate import ArgumentError
from fedbandit.protocol.encoder import Encoder

__all__ = [
    "FRACTION_BITS",
    "LONGEST",
    "DenseEncoder",
    "Optimal",
    "checked",
    "encoder",
    "factor",
    "forgetting",
    "raised",
    "root",
    "rounded",
    "weighted_sums",
    "weights",
]

FRACTION_BITS = 12  # coarse enough for every machine to round to the same C; fine enough to cost only 0.03 % of noise
LONGEST = 512  # releases: that takes a second or two
SHORT = 16  # horizons up to this one are solved from scratch
STEPS, SHORT_STEPS = 16, 60  # steps of the fixed point


@dataclass(frozen=True)
class DenseEncoder(Encoder):
    """A C without structure, stored entry by entry. A silo and the analyzer remember every batch."""

    matrix: Floats = field(compare=False, repr=False)  # follows from `size`

    def row(self, k: int) -> Floats:
        return self.matrix[k, : k + 1]

    def decoder_row(self, k: int) -> Floats:
        return self._decoder[k, : k + 1]

    @cached_property
    def _decoder(self) -> Floats:
        """B = A C^-1, column by column from C^T B^T = A^T."""
        return np.asarray(
            scipy.linalg.solve_triangular(self.matrix, weighted_sums(self.size, self.forget).T, trans="T", lower=True).T
        )


@dataclass(frozen=True)
class Optimal(DenseEncoder):
    """C from the fixed point, rounded; neither C nor B has a negative entry."""

    fraction_bits = FRACTION_BITS


def encoder(size: int) -> Encoder:
    """The optimal C of `size` releases for prefix sums, rounded to 2^-12."""
    return forgetting(size, 1.0)


def forgetting(size: int, forget: float) -> Encoder:
    """The optimal C of `size` releases for weighted sums, rounded to 2^-12."""
    p = weights(checked("optimal", size), forget)
    return Optimal(size, rounded(factor(p, p[::-1], forget)), forget=forget)


def checked(name: str, size: int) -> int:
    """`size`, if the factorisation of mechanism `name` can be computed for that many releases."""
    if size > LONGEST:
        raise ArgumentError(
            "syncs", f"must be at most {LONGEST} for mechanism {name!r}, got {size}; 'blt' has no limit"
        )
    return size


def rounded(matrix: Floats) -> Floats:
    """The nearest matrix on the grid 2^-FRACTION_BITS."""
    return np.asarray(np.rint(matrix * 2**FRACTION_BITS) / 2**FRACTION_BITS)


def weights(size: int, forget: float = 1.0) -> Floats:
    """The best p, up to a relative gap of about 1e-4 between the noise and its lower bound."""
    p = np.full(size, 1 / size) if size <= SHORT else _stretched(weights((size + 1) // 2, forget), size)
    for _ in range(SHORT_STEPS if size <= SHORT else STEPS):
        q = p[::-1]
        p = raised(q, root(p, q, forget).diagonal(), power=2)[::-1]
    return p


def raised(q: Floats, diagonal: Floats, power: float) -> Floats:
    """One step towards the fixed point q = diag (M^T M)^1/2, up to scale; a `power` above 1 gets there sooner."""
    stepped = q * (diagonal / q) ** power
    return np.asarray(stepped / stepped.sum())


def factor(p: Floats, q: Floats, forget: float) -> Floats:
    """Lower-triangular C with C^T C = diag(q)^-1/2 (M^T M)^1/2 diag(q)^-1/2, scaled to unit columns."""
    wanted = root(p, q, forget)
    gram = wanted / np.sqrt(np.outer(wanted.diagonal(), wanted.diagonal()))
    # J L L^T J = gram with L lower triangular: C = J L^T J is lower triangular too, and C^T C = gram.
    return np.asarray(np.linalg.cholesky(gram[::-1, ::-1]).T[::-1, ::-1])


def weighted_sums(size: int, forget: float) -> Floats:
    """A: w^(k-j) on and below the diagonal, prefix sums for w = 1."""
    return np.asarray(scipy.linalg.toeplitz(forget ** np.arange(size), np.zeros(size)))


def root(p: Floats, q: Floats, forget: float = 1.0) -> Floats:
    """(M^T M)^1/2 for M = diag(p)^1/2 A diag(q)^1/2."""
    matrix = np.sqrt(p)[:, None] * weighted_sums(len(p), forget) * np.sqrt(q)
    squares, vectors = np.linalg.eigh(matrix.T @ matrix)
    return np.asarray((vectors * np.sqrt(np.maximum(squares, 0.0))) @ vectors.T)


def _stretched(p: Floats, size: int) -> Floats:
    """The same weights over a longer horizon: log p is close to linear in the log-odds of a release's place in the
    horizon."""
    here, there = _log_odds(len(p)), _log_odds(size)
    stretched = np.interp(there, here, np.log(p))
    slopes = np.diff(np.log(p)) / np.diff(here)
    stretched += slopes[0] * np.minimum(there - here[0], 0) + slopes[-1] * np.maximum(there - here[-1], 0)
    longer = np.exp(stretched)
    return np.asarray(longer / longer.sum())


def _log_odds(size: int) -> Floats:
    place = (np.arange(size) + 0.5) / size
    return np.log(place / (1 - place))
