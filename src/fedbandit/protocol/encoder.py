"""A mechanism is a matrix: what a silo releases at sync k is row k of C applied to its batch sums, plus noise.

`Encoder` holds everything that is read off the lower-triangular, invertible C (K x K): its sensitivity, the noise of
every sum that the analyzer decodes with B = A C^-1, and how many releases one datum enters. It also offers the same
matrix as a stream, one batch at a time, for the silo (`step`) and for the analyzer (`decode_step`).

A is the target: prefix sums or, where a plan forgets, weighted sums A[k, j] = w^(k-j) (`target_row`). Let A_1 be the
prefix sums and D = diag(w^k). Then A = D A_1 D^-1. So if C is a square root of A_1, D C D^-1 is a square root of A. For
C[k, j] = c_{k-j} that has the entries c_k w^k, and its column norm stays bounded however many syncs there are.

C is a multiple of 2^-fraction_bits, so integer batch sums give integer releases in units of 2^-fraction_bits.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import ClassVar, NamedTuple

import numpy as np

from fedbandit._arrays import Floats, Integers, Numbers
from fedbandit._validate import ArgumentError
from fedbandit.privacy import spacing

__all__ = ["Encoder", "Stream", "ToeplitzEncoder"]


LONGEST_SPACED = 1024  # the most releases for which visits that lie apart are worked out if C has no structure


class Stream(NamedTuple):
    """The state of a stream: rows done, and the arrays it has to remember. A plain value that can be stored."""

    done: int
    memory: tuple[Numbers, ...]


@dataclass(frozen=True)
class Encoder(ABC):
    """A lower-triangular C of `size` rows, one per release.

    Guarantee: with Gaussian noise of standard deviation sigma on every release, one user whose batch sum shifts by at
    most `shift` (l2) is (column_norm * shift / sigma)-GDP over the whole horizon. Batch sums may be chosen adaptively:
    given what was released before, release k is a Gaussian mechanism of sensitivity C[k, j] * shift, and these compose
    in squares along column j. A user whose visits count in the batches of an admissible set J, each visit moving its
    batch sum by at most `shift`, is (visits_norm * shift / sigma)-GDP (`privacy.spacing` has the proof).
    """

    size: int
    forget: float = field(default=1.0, kw_only=True)  # w: the weight that one sync leaves to the past in decoded sums

    fraction_bits: ClassVar[int] = 0  # C * 2^fraction_bits is a matrix of integers

    @property
    def name(self) -> str:
        """The name that a plan calls this mechanism by."""
        return type(self).__name__.lower()

    @property
    def endless(self) -> bool:
        """Whether there is no last row: `size` is then how many rows are looked at (`protocol.endless`)."""
        return False

    # -- the matrix -------------------------------------------------------------------------------------------------

    @abstractmethod
    def row(self, k: int) -> Floats:
        """C[k, 0..k], k from 0."""

    @abstractmethod
    def decoder_row(self, k: int) -> Floats:
        """B[k, 0..k], k from 0."""

    def target_row(self, k: int) -> Floats:
        """A[k, 0..k]: the weight of each batch in the sum that is decoded after sync k."""
        return np.asarray(self.forget ** np.arange(k, -1.0, -1.0))

    @property
    def coefficients(self) -> Floats:
        """C, (size, size)."""
        return self._stacked(self.row)

    @property
    def decoder(self) -> Floats:
        """B = A C^-1, (size, size)."""
        return self._stacked(self.decoder_row)

    @cached_property
    def column_norm(self) -> float:
        """The largest column norm of C: sensitivity of all releases together to a unit shift of one batch sum."""
        return float(np.linalg.norm(self.coefficients, axis=0).max())

    def visits_norm(self, visits: int, apart: int) -> float:
        """The largest norm of a sum of up to `visits` columns of C, any two `apart` or more apart; or a bound on it."""
        return _visits_norm(self, visits, apart)

    def moved(self, weights: Floats, visits: int, apart: int) -> float:
        """How far up to `visits` visits, any two `apart` or more apart, can move rows that count with these `weights`
        (size,) in the squared norm; or a bound on it."""
        self._check_spacing(apart)
        weighted = np.sqrt(weights)[:, None] * self.coefficients
        return math.sqrt(spacing.dynamic(weighted.T @ weighted, visits, apart).bound)

    def reached(self, rows: int, visits: int, apart: int) -> float:
        """The sensitivity of the first `rows` rows: the norm of the worst column in them or, where `apart`, of the
        worst visits."""
        if apart:
            return self.moved((np.arange(self.size) < rows).astype(np.float64), visits, apart)
        return float(np.linalg.norm(self.coefficients[:rows], axis=0).max())

    def worst_visits(self, visits: int, apart: int) -> tuple[int, ...]:
        """The batches of an admissible set of visits that moves the releases about as far as any other."""
        self._check_spacing(apart)
        matrix = self.coefficients
        sets = spacing.dynamic(matrix.T @ matrix, visits, apart).columns, spacing.evenly(self.size, visits, apart)
        return max(sets, key=lambda batches: float(np.linalg.norm(matrix[:, list(batches)].sum(axis=1))))

    def _check_spacing(self, apart: int) -> None:
        """Refuse what `privacy.spacing` has no proof for, and what would take too long."""
        if self.has_negative:
            raise ArgumentError("apart", f"must be 0 for mechanism {self.name!r}, got {apart}: C has negative entries")
        if self.size > LONGEST_SPACED:
            raise ArgumentError(
                "apart",
                f"must be 0 for mechanism {self.name!r} over more than {LONGEST_SPACED:,} syncs, got {apart}: "
                "'toeplitz' and 'blt' have no limit",
            )

    @property
    def overlapping(self) -> Floats:
        """C, or as much of it as shows how far any two of its columns point apart."""
        return self.coefficients

    @cached_property
    def has_negative(self) -> bool:
        """Whether an entry of C is negative: columns may then point apart (`privacy.sensitivity.late_factor`)."""
        return bool(self.coefficients.min() < 0)

    @cached_property
    def prefix_norms(self) -> Floats:
        """Row norms of B: the noise of each decoded sum, per unit of release noise. Shape (size,)."""
        return np.asarray(np.linalg.norm(self.decoder, axis=1))

    @cached_property
    def touches(self) -> int:
        """The number of releases that one batch can enter (non-zeros in a column of C)."""
        return int(np.count_nonzero(self.coefficients, axis=0).max())

    @property
    def worst_prefix(self) -> float:
        """Column norm times the largest row norm of B: the noise of the worst decoded sum at unit shift and unit mu."""
        return self.column_norm * float(self.prefix_norms.max())

    @property
    def rounding_units(self) -> float:
        """How far a release itself is rounded, in units of 2^-fraction_bits per number: not at all where C is made of
        integers."""
        return 0.0

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the last rows of C and B: two parties with the same fingerprint decode alike."""
        rows = np.concatenate([self.row(self.size - 1), np.round(self.decoder_row(self.size - 1), 9)])
        return hashlib.sha256(rows.tobytes()).hexdigest()[:16]

    def _stacked(self, row: Callable[[int], Floats]) -> Floats:
        matrix = np.zeros((self.size, self.size))
        for k in range(self.size):
            matrix[k, : k + 1] = row(k)
        return matrix

    # -- the same, as a stream --------------------------------------------------------------------------------------

    def init(self, shape: tuple[int, ...]) -> Stream:
        """The state before the first batch; `shape` is that of one batch sum."""
        return Stream(0, ())

    def step(self, state: Stream, sums: Integers) -> tuple[Stream, Integers]:
        """Encode the next batch: integer sums in, integers in units of 2^-fraction_bits out."""
        self._check_horizon(state)
        past = (*state.memory, sums)
        weights = np.rint(self.row(state.done) * 2**self.fraction_bits).astype(np.int64)
        return Stream(state.done + 1, past), np.tensordot(weights, np.stack(past), axes=1)

    def init_decoder(self, shape: tuple[int, ...]) -> Stream:
        """The state before the first release arrives."""
        return Stream(0, ())

    def decode_step(self, state: Stream, released: Integers | Floats) -> tuple[Stream, Floats]:
        """Take the next release and decode the (weighted) sum of all batches so far, in the units of the batch sums."""
        self._check_horizon(state)
        past = (*state.memory, released.astype(np.float64))
        prefix = np.tensordot(self.decoder_row(state.done), np.stack(past), axes=1)
        return Stream(state.done + 1, past), np.asarray(prefix * 2.0**-self.fraction_bits)

    def _check_horizon(self, state: Stream) -> None:
        if state.done >= self.size:
            raise ValueError(f"the horizon of {self.size} releases is used up; a new term needs a new plan")


@lru_cache(maxsize=32)
def _visits_norm(encoder: Encoder, visits: int, apart: int) -> float:
    return encoder.moved(np.ones(encoder.size), visits, apart)


@dataclass(frozen=True)
class ToeplitzEncoder(Encoder):
    """C[k, j] = c[k - j]: everything follows from the first column.

    Each column is a shifted copy of the first that loses its tail, so the first has the largest norm. B = A C^-1 is
    Toeplitz too, and each row has one entry more than the row before, so the last has the largest norm.
    """

    first_column: tuple[float, ...]

    def row(self, k: int) -> Floats:
        return self._column[k::-1]

    def decoder_row(self, k: int) -> Floats:
        return self._decoder_column[k::-1]

    @cached_property
    def _column(self) -> Floats:
        return np.array(self.first_column)

    @cached_property
    def _decoder_column(self) -> Floats:
        """First column of B: the power series (1 + w z + w^2 z^2 + ...) / C(z)."""
        out, target = np.zeros(self.size), self.forget ** np.arange(self.size)
        for k in range(self.size):
            out[k] = (target[k] - self._column[1 : k + 1] @ out[:k][::-1]) / self._column[0]
        return out

    @cached_property
    def column_norm(self) -> float:
        return float(np.linalg.norm(self._column))

    def moved(self, weights: Floats, visits: int, apart: int) -> float:
        """`Encoder.moved`: exact where all weights up to the last non-zero one are equal, and a bound elsewhere.

        The least weight counts for all of these rows. What a row's weight has beyond that is counted row by row: row k
        of any admissible sum of columns is at most c_0 + c_n + c_2n + ...
        """
        if not self._falls:
            return super().moved(weights, visits, apart)
        rows = int(np.flatnonzero(weights)[-1]) + 1 if np.any(weights) else 0
        least = float(weights[:rows][weights[:rows] > 0].min()) if rows else 0.0
        worst = np.zeros(self.size)
        for start in spacing.evenly(self.size, visits, apart):
            worst[start:] += self._column[: self.size - start]
        squares = least * float(np.sum(worst[:rows] ** 2))
        extra = np.maximum(weights - least, 0.0)
        if np.any(extra):
            own = np.where(np.arange(self.size) % apart == 0, self._column, 0.0)
            own[visits * apart :] = 0.0
            squares += float(np.sum(extra * np.cumsum(own) ** 2))
        return math.sqrt(squares)

    def worst_visits(self, visits: int, apart: int) -> tuple[int, ...]:
        return spacing.evenly(self.size, visits, apart) if self._falls else super().worst_visits(visits, apart)

    @cached_property
    def _falls(self) -> bool:
        """Whether the column is non-negative and never rises: the worst visits are then known (`privacy.spacing`)."""
        return not self.has_negative and bool(np.all(np.diff(self._column) <= 0))

    @cached_property
    def has_negative(self) -> bool:
        return bool(self._column.min() < 0)

    @cached_property
    def prefix_norms(self) -> Floats:
        return np.sqrt(np.cumsum(self._decoder_column**2))

    @cached_property
    def touches(self) -> int:
        return int(np.count_nonzero(self._column))
