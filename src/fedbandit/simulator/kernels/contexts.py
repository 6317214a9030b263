"""The actions that a user brings, drawn fresh or picked from a table, and their expected rewards."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from fedbandit._arrays import Floats, Integers, Singles
from fedbandit._jit import njit
from fedbandit.bandit.directions import PAPERS_SHARE
from fedbandit.simulator.kernels.layout import DEPTH, LANES, Table, padded
from fedbandit.simulator.kernels.packs import broadcast, fma, load, over, square_root, store, times
from fedbandit.simulator.kernels.scoring import MEANS, find, project, top_of
from fedbandit.simulator.randomness import CONTEXT, fill_normals, integer_below, user_key

__all__ = [
    "best_mean",
    "contexts_of",
    "draw",
    "mean_of",
    "open_contexts",
    "pick_set",
    "set_block",
    "sets_of",
]

_ZERO: Final = np.float32(0.0)


@njit(cache=True)
def open_contexts(arms: int, theta: Floats) -> tuple[Singles, Singles, Singles]:
    """For fresh contexts: room for one user's actions (height, padded arms), theta (R, height) in float32, a board.

    Actions are stored coordinate by coordinate, with zero rows added to the dimension and filler columns to the arms.
    """
    x = np.zeros((-(-theta.shape[1] // DEPTH) * DEPTH, -(-arms // LANES) * LANES), dtype=np.float32)
    truth = np.zeros((theta.shape[0], x.shape[0]), dtype=np.float32)
    for run in range(theta.shape[0]):
        for j in range(theta.shape[1]):
            truth[run, j] = theta[run, j]
    return x, truth, np.empty((1, x.shape[1]), dtype=np.float32)


@njit(cache=True, error_model="numpy")
def draw(key: np.uint64, dim: int, share: float, out: Singles) -> None:
    """Write one user's fresh actions to ``out`` from :func:`open_contexts`; columns beyond the arms are filler.

    Coordinates 0 .. dim - 2 are a uniformly random direction of norm sqrt(1 - share) (normals, scaled), the last is
    sqrt(share), so the norm is 1.
    """
    free = dim - 1
    rest, constant = np.float32(1.0 - share), np.float32(math.sqrt(share))
    fill_normals(key, out[:free].reshape(-1))
    for a in range(0, out.shape[1], LANES):
        square = broadcast(_ZERO)
        for j in range(free):
            square = fma(load(out, j, a, _ZERO), load(out, j, a, _ZERO), square)
        scale = square_root(over(broadcast(rest), square))
        for j in range(free):
            store(out, j, a, times(load(out, j, a, _ZERO), scale))
        store(out, free, a, broadcast(constant))


@njit(cache=True)
def mean_of(x: Singles, arm: int, theta: Floats, run: int) -> float:
    """The expected reward <x, theta[run]> of one action, in float64."""
    total = 0.0
    for j in range(theta.shape[1]):
        total += np.float64(x[j, arm]) * theta[run, j]
    return total


@njit(cache=True)
def best_mean(x: Singles, arms: int, theta: Floats, truth: Singles, run: int, board: Singles) -> float:
    """The largest expected reward of fresh actions, exact in float64; ``truth`` (R, height) is theta in float32.

    Means in float32 are within (d + 2) 2^-24 |theta| |x| of the exact ones, and |x| = 1. So only actions within twice
    that (with a margin) of the float32 maximum can be the best, and only their means are computed in float64.
    """
    norm2 = 0.0
    for j in range(theta.shape[1]):
        norm2 += theta[run, j] * theta[run, j]
    error = (theta.shape[1] + 3) * 2.0**-24 * math.sqrt(norm2)
    project(x, truth, run, MEANS, board)
    bound = np.float32(top_of(board, MEANS, arms) - 2.0 * error)
    first, count = find(board, MEANS, arms, bound)
    best = mean_of(x, first, theta, run)
    if count > 1:
        for arm in range(first + 1, arms):
            if board[MEANS, arm] >= bound:
                best = max(best, mean_of(x, arm, theta, run))
    return best


@njit(cache=True)
def pick_set(key: np.uint64, first: int, last: int) -> np.int64:
    """The action set of one user, uniform in first .. last - 1."""
    return first + integer_below(key, last - first)


@njit(cache=True)
def sets_of(ranges: Integers, first_silo: int, last_silo: int) -> tuple[int, int]:
    """The first set of a table from which the users of some silos draw, and the number of sets up to the last."""
    first, last = ranges[first_silo, 0], ranges[first_silo, 1]
    for silo in range(first_silo, last_silo):
        first, last = min(first, ranges[silo, 0]), max(last, ranges[silo, 1])
    return first, last - first


@njit(cache=True)
def set_block(table: Table, index: np.int64) -> Singles:
    """One action set of a table: (height, padded arms)."""
    arms = table.offsets[index + 1] - table.offsets[index]
    size = table.height * (-(-arms // LANES) * LANES)
    start = table.starts[index]
    return table.blocks[start : start + size].reshape(table.height, -1)


def contexts_of(
    seed: int, run: int, silo: int, round_: int, arms: int, dim: int, share: float = PAPERS_SHARE
) -> Singles:
    """The fresh actions (arms, dim) that kernels give to one user; run 0 if all runs share their contexts."""
    out = np.zeros((padded(dim, DEPTH), padded(arms, LANES)), dtype=np.float32)
    draw(np.uint64(user_key(np.uint64(seed % 2**64), run, silo, round_, CONTEXT)), dim, share, out)
    return np.ascontiguousarray(out[:dim, :arms].T)
