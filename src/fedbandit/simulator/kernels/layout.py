"""The values that kernels take: named tuples of arrays, so that a call says what each array is.

Letters in the shapes: Q protocols compared on the same users, R runs, M silos, n rounds of this call, d the dimension,
p = d + d (d + 1) / 2 the width of a packed contribution, S shards. Shard s holds the silos s M // S up to but not
including (s + 1) M // S, and has its own rows in every output, so results depend on S and not on the threads.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedbandit._arrays import Flags, Floats, Integers, Singles
from fedbandit._validate import ArgumentError
from fedbandit.bandit.directions import PAPERS_SHARE

__all__ = [
    "BERNOULLI",
    "CLIPPED",
    "DEPTH",
    "GAUSSIAN",
    "LANES",
    "Beliefs",
    "Fresh",
    "Kept",
    "Local",
    "Rewards",
    "Scores",
    "Table",
    "Tally",
    "Users",
    "make_table",
    "make_users",
    "padded",
]

Scores = Singles | Floats  # in the precision in which actions are scored

BERNOULLI: Final = 0  # y = 1 with probability <x, theta*>, else 0
GAUSSIAN: Final = 1  # y = <x, theta*> + std z
CLIPPED: Final = 2  # the same, clipped to [0, 1]

LANES: Final = 8  # actions are padded to a multiple of this, the most that one instruction scores
DEPTH: Final = 4  # coordinates are padded with zero rows to a multiple of this, the unrolling of scores


class Users(NamedTuple):
    """Who plays in one call: every (run, silo, round) of a block of consecutive rounds, counted from 1."""

    seed: np.uint64
    runs: Integers  # (R,) numbers of the runs: the key of a user's reward
    context_runs: Integers  # (R,) the runs whose contexts are used: `runs`, or zeros if all runs share their contexts
    silos: int
    first_round: int
    rounds: int


class Fresh(NamedTuple):
    """New contexts for every user: rows of norm 1, a random direction in d - 1 dimensions, then a constant."""

    theta: Floats  # (R, d) the true parameter of each run
    arms: int
    constant_share: float = PAPERS_SHARE  # the constant's share of a row's squared length


class Table(NamedTuple):
    """Action sets given as data, stored coordinate by coordinate; made by :func:`make_table`."""

    blocks: Singles  # the sets one after the other, each (height, padded arms)
    starts: Integers  # (sets,) where a set's block begins in `blocks`
    offsets: Integers  # (sets + 1,) the rows of a set
    means: Floats  # (rows,) expected rewards
    best: Floats  # (sets,) the largest expected reward of a set
    ranges: Integers  # (M, 2) the sets from which a silo's users draw: the first, and one past the last
    height: int  # the dimension, padded
    room: int  # the number of actions of the largest set, padded


class Rewards(NamedTuple):
    """The law of a reward given its mean. Each user has one random number: every protocol meets the same noise."""

    kind: int  # BERNOULLI, GAUSSIAN or CLIPPED
    std: float
    realised: bool = False  # regret counts rewards, not their means


class Beliefs(NamedTuple):
    """Lazy acting: one model for all silos, fixed during a call. The dtype of `radius` is the precision of scores."""

    theta: Floats  # (Q, R, d)
    root: Floats  # (Q, R, d, d) upper triangular, V^-1 = root root^T: the inverse transpose of V's Cholesky factor
    radius: Scores  # (Q, R)
    policies: Floats  # (Q, 3) how actions are chosen, see `exploring.policy_row`


class Local(NamedTuple):
    """Eager acting: every silo's own V^-1 and bias, updated in place. `radius` has the dtype of scores."""

    inverse: Floats  # (Q, R, M, d, d)
    bias: Floats  # (Q, R, M, d)
    radius: Scores  # (Q, R, n)


class Kept(NamedTuple):
    """If only some visits count: which ones, and what a silo keeps of its visits for itself.

    Visits that count are served by `Beliefs` and go to the tally, which then has one shard per silo. The others are
    served by `Local` models, which learn from everybody at once, or by the same `Beliefs`; they go to `sums` here.
    """

    share: Floats  # (Q, n) the share of visits that a protocol counts, by round of the call
    locally: Flags  # (Q,) whether `Local` models serve the others
    sums: Integers  # (Q, R, M, p) packed contributions of visits that are not counted, in units of 2^-bits
    squares: Floats  # (Q, R, M) squared rewards, less the centre, of all visits
    visits: Integers  # (Q, R, M) visits that are not counted
    regret: Floats  # (Q, R, M) their part of the tally's regret


class Tally(NamedTuple):
    """The arrays to which results are added."""

    sums: Integers  # (Q, R, S, p) packed contributions in units of 2^-bits
    regret: Floats  # (Q, R, S) best mean minus the chosen action's mean or reward
    centre: Floats  # (Q,) rewards enter the sums (and eager models) as y - centre
    bits: int
    slot: Integers  # (Q,) the row of `points` in which a protocol's users are recorded, or -1
    points: Singles  # (P, R, M, n, d + 1) the chosen features, then the reward


def make_users(
    seed: int, runs: ArrayLike, silos: int, first_round: int, rounds: int, same_contexts: bool = False
) -> Users:
    """Users of the given runs; with ``same_contexts``, all runs have the contexts of run 0."""
    numbers = np.array(runs, dtype=np.int64, ndmin=1)
    context_runs = np.zeros_like(numbers) if same_contexts else numbers
    return Users(np.uint64(seed % 2**64), numbers, context_runs, int(silos), int(first_round), int(rounds))


def make_table(features: ArrayLike, offsets: ArrayLike, means: ArrayLike, ranges: ArrayLike) -> Table:
    """Action sets in the layout that kernels read: set s is the rows offsets[s] .. offsets[s + 1] - 1 of ``features``.

    ``means`` (rows,) are expected rewards; the users of silo i draw a set from ranges[i, 0] .. ranges[i, 1] - 1.
    """
    rows = np.asarray(features, dtype=np.float32)
    bounds = np.array(offsets, dtype=np.int64)
    expected = np.array(means, dtype=np.float64)
    silo_sets = np.array(ranges, dtype=np.int64)
    _check_table(rows, bounds, expected, silo_sets)
    height = padded(rows.shape[1], DEPTH)
    widths = [padded(int(arms), LANES) for arms in np.diff(bounds)]
    starts = np.concatenate([[0], np.cumsum(widths) * height]).astype(np.int64)
    blocks = np.zeros(starts[-1], dtype=np.float32)
    for index, (first, last) in enumerate(pairwise(bounds)):
        block = blocks[starts[index] : starts[index + 1]].reshape(height, -1)
        block[: rows.shape[1], : last - first] = rows[first:last].T
    best = np.maximum.reduceat(expected, bounds[:-1])
    return Table(blocks, starts[:-1].copy(), bounds, expected, best, silo_sets, height, max(widths))


def padded(count: int, unit: int) -> int:
    """The smallest multiple of ``unit`` that is at least ``count``."""
    return -(-count // unit) * unit


def _check_table(rows: Singles, bounds: Integers, expected: Floats, silo_sets: Integers) -> None:
    if rows.ndim != 2 or not np.isfinite(rows).all():
        raise ArgumentError("features", f"must be a finite array (rows, dim), got shape {rows.shape}")
    ends = bounds.ndim == 1 and bounds.size > 1 and bounds[0] == 0 and bounds[-1] == len(rows)
    if not ends or not (np.diff(bounds) > 0).all():
        raise ArgumentError("offsets", f"must increase from 0 to the number of rows {len(rows)}, got {bounds}")
    if expected.shape != (len(rows),):
        raise ArgumentError("means", f"must have shape ({len(rows)},), got {expected.shape}")
    if silo_sets.ndim != 2 or silo_sets.shape[1] != 2:
        raise ArgumentError("ranges", f"must have shape (silos, 2), got {silo_sets.shape}")
    first, last = silo_sets.T
    if not (first.min() >= 0 and (first < last).all() and last.max() < bounds.size):
        raise ArgumentError("ranges", f"must be non-empty and lie in 0 .. {bounds.size - 1}, got {silo_sets.tolist()}")
