"""A matrix without a last row: a federation whose sums forget never has to stop.

C[k, j] = c_{k-j} for k - j < b, and 0 beyond, for k = 0, 1, 2, ...: a batch enters b releases and none after them. (The
square root of weighted sums, c_k w^k, is rounded to a grid in any case, and then has no other entries.) So a silo
remembers the last b - 1 batches, all of them whole numbers, and nothing is rounded. (Buffers that decay, like those of
`blt`, are rounded at every sync. Two worlds that differ in one person may then differ by a unit for ever, in an
unlimited number of releases.) The analyzer decodes the batch x_k = y_k - sum over 0 < t < b of c_t x_{k-t} from the
last b - 1 batches that it has decoded, and adds it to w times the last sum. So it needs fixed memory, too.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from fedbandit._arrays import Floats, Integers
from fedbandit._validate import ArgumentError
from fedbandit.privacy import spacing
from fedbandit.protocol.encoder import Stream, ToeplitzEncoder

__all__ = ["LONGEST_BAND", "LONGEST_WEIGHT", "EndlessEncoder"]

LONGEST_WEIGHT = 0.9995  # decoders are followed until nothing is left of a batch: here about 80,000 syncs
LONGEST_BAND = 4096  # batches that a silo remembers, at most: as many as a weight of about 0.9993 needs
SETTLED = 2.0**-60  # the weight of a batch that can no longer be seen in a float


@dataclass(frozen=True)
class EndlessEncoder(ToeplitzEncoder):
    """`first_column` has the b numbers of the band; `size` is how many rows simulations and audits look at.

    Guarantee: with Gaussian noise of standard deviation sigma on every release, consider one user whose visits count at
    most m times, ever, each moving its batch sum by at most `shift` (l2). Over all releases there ever are, this user
    is (m column_norm shift / sigma)-GDP or, where any two of the visits count at least n syncs apart,
    (visits_norm(m, n) shift / sigma)-GDP.

    Proof. Given what was released before, release k is a Gaussian mechanism whose sensitivity is read off row k. For
    the first K releases these compose adaptively, in squares along the columns (`Encoder`; `privacy.spacing` for visits
    apart). All columns of C are the same column, moved. So for every K the sum of squares is at most that of the whole
    band, column_norm^2. Over any number of rows, the worst visits are those at 0, n, 2n, ... (`privacy.spacing`,
    columns that are shifted copies and never rise), and for them it is at most

        visits_norm(m, n)^2 = sum over a, b < m of r(|a - b| n),    r(d) = sum over t of c_t c_{t+d},

    which is a finite sum, as r is 0 from the band on. So the first K releases are mu-GDP with the same mu for every K.
    An event about all releases can be approximated to any accuracy, in both worlds, by an event about finitely many of
    them (they generate the same sets). So P(event) <= e^epsilon P'(event) + delta holds for it, too, for every epsilon
    and delta of that mu. Nothing in this proof asks when the visits come, or that they ever stop coming for others.
    """

    @property
    def endless(self) -> bool:
        return True

    # -- the matrix -------------------------------------------------------------------------------------------------

    def row(self, k: int) -> Floats:
        return _backwards(self._column, k)

    def decoder_row(self, k: int) -> Floats:
        return _backwards(self._decoder_column, k)

    @cached_property
    def _decoder_column(self) -> Floats:
        """The first column of B, as far as it can be told from 0."""
        rows = max(self.size, math.ceil(math.log(SETTLED) / math.log(self.forget)))
        return _decoder(self.first_column, self.forget, rows)

    @cached_property
    def prefix_norms(self) -> Floats:
        """The norms of the first `size` rows; the last one is the limit, and stands for all rows that follow."""
        squares = np.cumsum(self._decoder_column**2)
        norms = np.sqrt(squares[: self.size])
        norms[-1] = math.sqrt(squares[-1])
        return np.asarray(norms)

    def visits_norm(self, visits: int, apart: int) -> float:
        """`Encoder.visits_norm`, exact and in closed form: see the proof in the class docstring."""
        self._check_falls(apart)
        near = range(1, min(visits, math.ceil(len(self._column) / apart)))
        pairs = sum((visits - a) * self._correlation(a * apart) for a in near)
        return math.sqrt(visits * self._correlation(0) + 2 * pairs)

    def reached(self, rows: int, visits: int, apart: int) -> float:
        """The sensitivity of the first `rows` rows of C: of one column or, where `apart`, of the worst visits."""
        if not apart:
            return float(np.linalg.norm(self._column[:rows]))
        self._check_falls(apart)
        rows = min(rows, (visits - 1) * apart + len(self._column))  # after these rows nothing of the visits is left
        worst = np.zeros(rows)
        for start in spacing.evenly(rows, visits, apart):
            some = self._column[: rows - start]
            worst[start : start + len(some)] += some
        return float(np.linalg.norm(worst))

    def worst_visits(self, visits: int, apart: int) -> tuple[int, ...]:
        self._check_falls(apart)
        return spacing.evenly(self.size, visits, apart)

    @cached_property
    def touches(self) -> int:
        """The length of the band: how many releases hold something of a batch, or would if no entry of it were 0."""
        return len(self._column)

    @property
    def overlapping(self) -> Floats:
        """All columns that overlap with one column, whatever `size` is, with all the rows of those that do."""
        rows = 2 * len(self._column) - 1
        return np.stack([np.append(self.row(k), np.zeros(rows - 1 - k)) for k in range(rows)])

    @cached_property
    def fingerprint(self) -> str:
        column = np.concatenate([self._column, np.round(self._decoder_column[: len(self._column)], 9), [self.forget]])
        return hashlib.sha256(column.tobytes()).hexdigest()[:16]

    def _correlation(self, distance: int) -> float:
        return float(self._column[distance:] @ self._column[: len(self._column) - distance])

    def _check_falls(self, apart: int) -> None:
        if not self._falls:
            raise ArgumentError(
                "apart", f"must be 0 for mechanism {self.name!r}, got {apart}: the entries of its band do not fall"
            )

    # -- the same, as a stream --------------------------------------------------------------------------------------

    def init(self, shape: tuple[int, ...]) -> Stream:
        return Stream(0, (np.zeros((len(self._column) - 1, *shape), dtype=np.int64),))

    def step(self, state: Stream, sums: Integers) -> tuple[Stream, Integers]:
        weights = np.rint(self._column * 2**self.fraction_bits).astype(np.int64)
        last = np.concatenate([np.asarray(sums, dtype=np.int64)[None], state.memory[0].astype(np.int64)])
        return Stream(state.done + 1, (last[:-1],)), np.tensordot(weights, last, axes=1)

    def init_decoder(self, shape: tuple[int, ...]) -> Stream:
        return Stream(0, (np.zeros((len(self._column) - 1, *shape)), np.zeros(shape)))

    def decode_step(self, state: Stream, released: Integers | Floats) -> tuple[Stream, Floats]:
        last, prefix = (np.asarray(array, dtype=np.float64) for array in state.memory)
        encoded = released.astype(np.float64) * 2.0**-self.fraction_bits
        batch = (encoded - np.tensordot(self._column[1:], last, axes=1)) / self._column[0]
        prefix = self.forget * prefix + batch
        return Stream(state.done + 1, (np.concatenate([batch[None], last])[: len(last)], prefix)), prefix


def _backwards(column: Floats, k: int) -> Floats:
    """Row k, entries 0..k, of the matrix whose columns are shifted copies of this one."""
    row, held = np.zeros(k + 1), min(k + 1, len(column))
    row[k + 1 - held :] = column[:held][::-1]
    return row


@lru_cache(maxsize=8)
def _decoder(band: tuple[float, ...], forget: float, rows: int) -> Floats:
    """The power series (1 + w z + w^2 z^2 + ...) / C(z)."""
    column, out = np.array(band), np.zeros(rows)
    for k in range(rows):
        held = min(k, len(column) - 1)
        out[k] = (forget**k - column[1 : held + 1] @ out[k - held : k][::-1]) / column[0]
    return out
