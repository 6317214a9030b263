"""The factorisation with the least worst-prefix noise there is, where the horizon is short enough to compute it.

Least column norm of C times row norm of B over all A = B C is the norm gamma_2(A), and by duality it is the largest
nuclear norm of diag(p)^1/2 A diag(q)^1/2 over probability vectors p and q. A is its own transpose read backwards, so
q may be taken as p reversed. At the best p, with M = diag(p)^1/2 A diag(q)^1/2,

    C^T C = diag(q)^-1/2 (M^T M)^1/2 diag(q)^-1/2,

every row of B has the same norm and so has every column of C: no prefix is worse than another. The fixed point
p_k <- (M M^T)^1/2_kk raises the nuclear norm at every step; squaring its factor is faster and still converges. Short
horizons start longer ones, so a dozen steps do. C is then made lower triangular by a Cholesky factorisation (that
turns B and C by the same rotation and changes no norm) and rounded to a grid; B belongs to the rounded C.

About a tenth less noise than `toeplitz`. A silo and the server remember every batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import scipy.linalg

from fedbandit import _validate
from fedbandit.protocol.encoder import Encoder, Floats

FRACTION_BITS = 12  # coarse enough that every machine rounds to the same C, fine enough to cost 0.03 % of noise
LONGEST = 512  # releases: a second or two of work
SHORT = 16  # horizons up to this one are solved from scratch
STEPS, SHORT_STEPS = 16, 60


@dataclass(frozen=True)
class Optimal(Encoder):
    """C from the fixed point, rounded; no entry of C or of B is negative."""

    matrix: Floats = field(compare=False, repr=False)  # follows from `steps`

    fraction_bits = FRACTION_BITS

    def row(self, k: int) -> Floats:
        return self.matrix[k, : k + 1]

    def decoder_row(self, k: int) -> Floats:
        return self._decoder[k, : k + 1]

    @cached_property
    def _decoder(self) -> Floats:
        """B = A C^-1, column by column from C^T B^T = A^T."""
        return np.asarray(
            scipy.linalg.solve_triangular(self.matrix, prefix_sums(self.steps).T, trans="T", lower=True).T
        )


def encoder(steps: int) -> Encoder:
    """The optimal C over `steps` releases, rounded to 2^-12."""
    _validate.count("steps", steps)
    if steps > LONGEST:
        raise ValueError(f"steps must be at most {LONGEST} for mechanism 'optimal', got {steps}; 'blt' has no limit")
    rounded = np.rint(factor(weights(steps)) * 2**FRACTION_BITS) / 2**FRACTION_BITS
    return Optimal(steps, rounded)


def prefix_sums(steps: int) -> Floats:
    """A: ones on and below the diagonal."""
    return np.tril(np.ones((steps, steps)))


def lower_bound(p: Floats) -> float:
    """No factorisation of A has a smaller column norm times row norm, whatever the probabilities p."""
    return float(np.sqrt(_spectrum(p)[0]).sum())


def weights(steps: int) -> Floats:
    """The best p, up to a relative gap of about 1e-4 between the noise and its lower bound."""
    p = np.full(steps, 1 / steps) if steps <= SHORT else _stretched(weights((steps + 1) // 2), steps)
    for _ in range(SHORT_STEPS if steps <= SHORT else STEPS):
        squares, vectors = _spectrum(p)
        diagonal = vectors**2 @ np.sqrt(squares)
        p = p * (diagonal / p) ** 2
        p = p / p.sum()
    return p


def factor(p: Floats) -> Floats:
    """Lower-triangular C with unit columns and C^T C as above."""
    squares, vectors = _spectrum(p)
    root = ((vectors * np.sqrt(squares)) @ vectors.T)[::-1, ::-1]  # (M^T M)^1/2 is (M M^T)^1/2 read backwards
    gram = root / np.sqrt(np.outer(root.diagonal(), root.diagonal()))
    # J L L^T J = gram with L lower triangular: C = J L^T J is lower triangular too, and C^T C = gram.
    return np.asarray(np.linalg.cholesky(gram[::-1, ::-1]).T[::-1, ::-1])


def _spectrum(p: Floats) -> tuple[Floats, Floats]:
    """Eigenvalues (not below 0) and eigenvectors of M M^T."""
    scales = np.sqrt(p)
    matrix = scales[:, None] * prefix_sums(len(p)) * scales[::-1]
    values, vectors = np.linalg.eigh(matrix @ matrix.T)
    return np.maximum(values, 0.0), vectors


def _stretched(p: Floats, steps: int) -> Floats:
    """The same weights over a longer horizon: log p is close to linear in the log-odds of a step's place in it."""
    here, there = _log_odds(len(p)), _log_odds(steps)
    stretched = np.interp(there, here, np.log(p))
    slopes = np.diff(np.log(p)) / np.diff(here)
    stretched += slopes[0] * np.minimum(there - here[0], 0) + slopes[-1] * np.maximum(there - here[-1], 0)
    longer = np.exp(stretched)
    return np.asarray(longer / longer.sum())


def _log_odds(steps: int) -> Floats:
    place = (np.arange(steps) + 0.5) / steps
    return np.log(place / (1 - place))
