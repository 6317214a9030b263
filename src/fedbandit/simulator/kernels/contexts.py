"""The actions that a user brings, drawn fresh or picked from a table, and what they are worth in expectation."""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np
from numba import njit

from fedbandit._arrays import Floats, Singles
from fedbandit.simulator.kernels.kinds import for_kind
from fedbandit.simulator.kernels.layout import DEPTH, LANES, Fresh, Table, padded
from fedbandit.simulator.kernels.packs import broadcast, fma, load, over, square_root, store, times
from fedbandit.simulator.kernels.scoring import MEANS, find, project, top_of
from fedbandit.simulator.randomness import CONTEXT, fill_normals, integer_below, user_key

__all__ = [
    "Drawing",
    "Room",
    "best_of",
    "contexts_of",
    "mean_of",
    "meet",
    "open_source",
    "room_for",
    "set_block",
    "set_of",
]

_ZERO: Final = np.float32(0.0)
_HALF: Final = np.float32(0.5)
_ROOT_HALF: Final = np.float32(math.sqrt(0.5))


class Drawing(NamedTuple):
    """Fresh contexts, with room to draw one user's."""

    theta: Floats  # (R, d)
    weights: Singles  # (R, height) the same in float32
    arms: int
    basis: bool
    x: Singles  # (height, padded arms)
    board: Singles  # (1, padded arms)


class Room(NamedTuple):
    """What a task has to make room for."""

    height: int  # coordinates, padded
    arms: int  # of the largest set, padded
    sets: int  # that the task's silos can meet again


# -- a source of contexts, by its kind --------------------------------------------------------------------------------


def open_source(source: Fresh | Table) -> Any:
    """The source as the functions below take it."""
    raise NotImplementedError


def room_for(source: Drawing | Table, first_silo: int, last_silo: int) -> Room:
    """The room that action sets of the silos first_silo .. last_silo - 1 need."""
    raise NotImplementedError


def meet(source: Drawing | Table, key: np.uint64, silo: int) -> tuple[Singles, int, int]:
    """The action set of the user with this key, until the next user is met.

    Its actions x (height, padded arms), coordinate by coordinate; how many there are, the other columns being filler;
    and the number of the set, -1 if nobody can meet it again.
    """
    raise NotImplementedError


def mean_of(source: Drawing | Table, x: Singles, arm: int, index: int, run: int) -> float:
    """The expected reward of one action."""
    raise NotImplementedError


def best_of(source: Drawing | Table, x: Singles, index: int, run: int) -> float:
    """The largest expected reward of the set."""
    raise NotImplementedError


@for_kind(open_source, Fresh)
def _open_fresh(source: Fresh) -> Drawing:
    theta = source.theta
    x = np.zeros((-(-theta.shape[1] // DEPTH) * DEPTH, -(-source.arms // LANES) * LANES), dtype=np.float32)
    weights = np.zeros((theta.shape[0], x.shape[0]), dtype=np.float32)
    for run in range(theta.shape[0]):
        for j in range(theta.shape[1]):
            weights[run, j] = theta[run, j]
    return Drawing(theta, weights, source.arms, source.basis, x, np.empty((1, x.shape[1]), dtype=np.float32))


@for_kind(room_for, Drawing)
def _room_for_drawing(source: Drawing, first_silo: int, last_silo: int) -> Room:
    return Room(source.x.shape[0], source.x.shape[1], 0)


@for_kind(meet, Drawing)
def _meet_drawn(source: Drawing, key: np.uint64, silo: int) -> tuple[Singles, int, int]:
    x = source.x
    _draw(key, source.arms, source.theta.shape[1], source.basis, x)
    return x, source.arms, -1


@for_kind(mean_of, Drawing)
def _mean_of_drawn(source: Drawing, x: Singles, arm: int, index: int, run: int) -> float:
    return _product(x, arm, source.theta, run)


@for_kind(best_of, Drawing)
def _best_of_drawn(source: Drawing, x: Singles, index: int, run: int) -> float:
    return _largest_product(x, source.arms, source.theta, source.weights, run, source.board)


@for_kind(open_source, Table)
def _open_table(source: Table) -> Table:
    return source


@for_kind(room_for, Table)
def _room_for_table(source: Table, first_silo: int, last_silo: int) -> Room:
    first_set, last_set = source.ranges[first_silo, 0], source.ranges[first_silo, 1]
    for silo in range(first_silo, last_silo):
        first_set, last_set = min(first_set, source.ranges[silo, 0]), max(last_set, source.ranges[silo, 1])
    return Room(source.height, source.room, last_set)


@for_kind(meet, Table)
def _meet_in_table(source: Table, key: np.uint64, silo: int) -> tuple[Singles, int, int]:
    index = _pick(key, source.ranges[silo, 0], source.ranges[silo, 1])
    return set_block(source, index), source.offsets[index + 1] - source.offsets[index], index


@for_kind(mean_of, Table)
def _mean_in_table(source: Table, x: Singles, arm: int, index: int, run: int) -> float:
    return source.means[source.offsets[index] + arm]


@for_kind(best_of, Table)
def _best_in_table(source: Table, x: Singles, index: int, run: int) -> float:
    return source.best[index]


# -- what they are made of --------------------------------------------------------------------------------------------


@njit(cache=True, error_model="numpy")
def _draw(key: np.uint64, arms: int, dim: int, basis: bool, out: Singles) -> None:
    """Write one user's fresh actions to ``out`` (height, padded arms); columns from ``arms`` on are filler.

    Coordinates 0 .. dim - 2 are a uniformly random direction of norm 1/sqrt 2 (normals, scaled), the last is
    1/sqrt 2, so the norm is 1. With ``basis`` the first min(dim, arms) actions are the standard basis vectors.
    """
    free = dim - 1
    fill_normals(key, out[:free].reshape(-1))
    for a in range(0, out.shape[1], LANES):
        square = broadcast(_ZERO)
        for j in range(free):
            square = fma(load(out, j, a, _ZERO), load(out, j, a, _ZERO), square)
        scale = square_root(over(broadcast(_HALF), square))
        for j in range(free):
            store(out, j, a, times(load(out, j, a, _ZERO), scale))
        store(out, free, a, broadcast(_ROOT_HALF))
    if basis:
        for j in range(dim):
            for a in range(min(dim, arms)):
                out[j, a] = np.float32(a == j)


@njit(cache=True)
def _product(x: Singles, arm: int, theta: Floats, run: int) -> float:
    """<x, theta[run]> of one action, in float64."""
    total = 0.0
    for j in range(theta.shape[1]):
        total += np.float64(x[j, arm]) * theta[run, j]
    return total


@njit(cache=True)
def _largest_product(x: Singles, arms: int, theta: Floats, weights: Singles, run: int, board: Singles) -> float:
    """The largest <x, theta[run]> of fresh actions, exact in float64; ``weights`` (R, height) is theta in float32.

    Means in float32 are within (d + 2) 2^-24 |theta| |x| of the exact ones, and |x| = 1. So only actions within twice
    that (with a margin) of the float32 maximum can be the best, and the mean is taken in float64 for these alone.
    """
    norm2 = 0.0
    for j in range(theta.shape[1]):
        norm2 += theta[run, j] * theta[run, j]
    error = (theta.shape[1] + 3) * 2.0**-24 * math.sqrt(norm2)
    project(x, weights, run, MEANS, board)
    bound = np.float32(top_of(board, MEANS, arms) - 2.0 * error)
    first, count = find(board, MEANS, arms, bound)
    best = _product(x, first, theta, run)
    if count > 1:
        for arm in range(first + 1, arms):
            if board[MEANS, arm] >= bound:
                best = max(best, _product(x, arm, theta, run))
    return best


@njit(cache=True)
def _pick(key: np.uint64, first: int, last: int) -> np.int64:
    """The action set of one user, uniform in first .. last - 1."""
    return first + integer_below(key, last - first)


@njit(cache=True)
def set_block(table: Table, index: np.int64) -> Singles:
    """One action set of a table: (height, padded arms)."""
    arms = table.offsets[index + 1] - table.offsets[index]
    size = table.height * (-(-arms // LANES) * LANES)
    start = table.starts[index]
    return table.blocks[start : start + size].reshape(table.height, -1)


# -- the same users, outside of kernels -------------------------------------------------------------------------------


def contexts_of(seed: int, run: int, silo: int, round_: int, arms: int, dim: int, basis: bool = False) -> Singles:
    """The fresh actions (arms, dim) that kernels give to one user; run 0 if all runs share their contexts."""
    out = np.zeros((padded(dim, DEPTH), padded(arms, LANES)), dtype=np.float32)
    _draw(_context_key(seed, run, silo, round_), arms, dim, basis, out)
    return np.ascontiguousarray(out[:dim, :arms].T)


def set_of(seed: int, run: int, silo: int, round_: int, table: Table) -> int:
    """The action set that kernels give to one user of a table; run 0 if all runs share their contexts."""
    first, last = table.ranges[silo]
    return int(_pick(_context_key(seed, run, silo, round_), int(first), int(last)))


def _context_key(seed: int, run: int, silo: int, round_: int) -> np.uint64:
    return np.uint64(user_key(np.uint64(seed % 2**64), run, silo, round_, CONTEXT))
