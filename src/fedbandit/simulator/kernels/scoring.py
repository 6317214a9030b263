"""Scores of one user's actions, x^T theta + radius sqrt(x^T V^-1 x), for all actions at once.

Actions are stored coordinate by coordinate (height, padded arms), so one instruction serves a pack of neighbouring
actions. Each action has a column of a board (ROWS, padded arms or more), whose dtype is the precision of scores.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from fedbandit._arrays import Singles
from fedbandit._jit import njit
from fedbandit.simulator.kernels.layout import DEPTH, Scores
from fedbandit.simulator.kernels.packs import (
    broadcast,
    count_at_least,
    first_at_least,
    fma,
    lanes_of,
    larger,
    largest,
    load,
    square_root,
    store,
)

__all__ = ["MEANS", "ROWS", "SCORES", "WIDTHS", "best_arm", "find", "project", "square_widths", "top_of"]

MEANS: Final = 0  # row of a board: x^T theta
WIDTHS: Final = 1  # row of a board: x^T V^-1 x
SCORES: Final = 2  # row of a board: the mean plus the radius times the root of the width; also used as scratch space
ROWS: Final = 3


@njit(cache=True)
def project(x: Singles, weights: Scores, model: int, row: int, board: Scores) -> None:
    """board[row, a] = sum_j weights[model, j] x[j, a], DEPTH coordinates at a time, so that x is read in order."""
    zero = board.dtype.type(0)
    lanes = lanes_of(zero)
    for j in range(0, x.shape[0], DEPTH):
        w0, w1 = broadcast(weights[model, j]), broadcast(weights[model, j + 1])
        w2, w3 = broadcast(weights[model, j + 2]), broadcast(weights[model, j + 3])
        for a in range(0, x.shape[1], lanes):
            total = load(board, row, a, zero) if j > 0 else broadcast(zero)
            total = fma(w1, load(x, j + 1, a, zero), fma(w0, load(x, j, a, zero), total))
            store(board, row, a, fma(w3, load(x, j + 3, a, zero), fma(w2, load(x, j + 2, a, zero), total)))


@njit(cache=True)
def square_widths(x: Singles, triangles: Scores, model: int, squares: bool, board: Scores) -> None:
    """board[WIDTHS, a] = sum_k t_k t_k if ``squares``, else sum_k t_k x[k, a].

    Here t_k = sum_{j <= k} triangles[model, k, j] x[j, a]. Two rows k and four packs of actions are done at a time:
    eight sums that stay in registers keep the multipliers busy. Actions left over are done one pack at a time.
    """
    zero = board.dtype.type(0)
    lanes = lanes_of(zero)
    tiled = x.shape[1] - x.shape[1] % (4 * lanes)
    for a in range(0, tiled, 4 * lanes):
        w0 = w1 = w2 = w3 = broadcast(zero)
        for k in range(0, triangles.shape[1], 2):
            s0 = s1 = s2 = s3 = t0 = t1 = t2 = t3 = broadcast(zero)
            for j in range(k + 2):
                upper, lower = broadcast(triangles[model, k, j]), broadcast(triangles[model, k + 1, j])
                x0, x1 = load(x, j, a, zero), load(x, j, a + lanes, zero)
                x2, x3 = load(x, j, a + 2 * lanes, zero), load(x, j, a + 3 * lanes, zero)
                s0, s1, s2, s3 = fma(upper, x0, s0), fma(upper, x1, s1), fma(upper, x2, s2), fma(upper, x3, s3)
                t0, t1, t2, t3 = fma(lower, x0, t0), fma(lower, x1, t1), fma(lower, x2, t2), fma(lower, x3, t3)
            if squares:
                w0, w1 = fma(s0, s0, fma(t0, t0, w0)), fma(s1, s1, fma(t1, t1, w1))
                w2, w3 = fma(s2, s2, fma(t2, t2, w2)), fma(s3, s3, fma(t3, t3, w3))
            else:
                w0 = fma(s0, load(x, k, a, zero), fma(t0, load(x, k + 1, a, zero), w0))
                w1 = fma(s1, load(x, k, a + lanes, zero), fma(t1, load(x, k + 1, a + lanes, zero), w1))
                w2 = fma(s2, load(x, k, a + 2 * lanes, zero), fma(t2, load(x, k + 1, a + 2 * lanes, zero), w2))
                w3 = fma(s3, load(x, k, a + 3 * lanes, zero), fma(t3, load(x, k + 1, a + 3 * lanes, zero), w3))
        store(board, WIDTHS, a, w0)
        store(board, WIDTHS, a + lanes, w1)
        store(board, WIDTHS, a + 2 * lanes, w2)
        store(board, WIDTHS, a + 3 * lanes, w3)
    for a in range(tiled, x.shape[1], lanes):
        w0 = broadcast(zero)
        for k in range(0, triangles.shape[1], 2):
            s0 = t0 = broadcast(zero)
            for j in range(k + 2):
                x0 = load(x, j, a, zero)
                s0, t0 = (
                    fma(broadcast(triangles[model, k, j]), x0, s0),
                    fma(broadcast(triangles[model, k + 1, j]), x0, t0),
                )
            if squares:
                w0 = fma(s0, s0, fma(t0, t0, w0))
            else:
                w0 = fma(s0, load(x, k, a, zero), fma(t0, load(x, k + 1, a, zero), w0))
        store(board, WIDTHS, a, w0)


@njit(cache=True)
def best_arm(board: Scores, radius: Any, arms: int) -> int:
    """The action with the largest MEANS + radius sqrt(WIDTHS), the first of equals."""
    zero = board.dtype.type(0)
    lanes = lanes_of(zero)
    for a in range(0, arms, lanes):
        width = square_root(larger(load(board, WIDTHS, a, zero), broadcast(zero)))
        store(board, SCORES, a, fma(broadcast(radius), width, load(board, MEANS, a, zero)))
    return find(board, SCORES, arms, top_of(board, SCORES, arms))[0]


@njit(cache=True)
def top_of(board: Scores, row: int, arms: int) -> Any:
    """The largest of board[row, :arms]. The rest of its last pack becomes -infinity."""
    zero = board.dtype.type(0)
    lanes = lanes_of(zero)
    for a in range(arms, -(-arms // lanes) * lanes):
        board[row, a] = -np.inf
    tops = load(board, row, 0, zero)
    for a in range(lanes, arms, lanes):
        tops = larger(load(board, row, a, zero), tops)
    return largest(tops)


@njit(cache=True)
def find(board: Scores, row: int, arms: int, bound: Any) -> tuple[int, int]:
    """The first of board[row, :arms] that is at least ``bound`` (the last if none is), and how many are.

    Every pack is checked without branches: nobody can predict where the winner is, and a processor that guesses wrong
    has to start over. The rest of the last pack must be -infinity, as :func:`top_of` leaves it.
    """
    lanes = lanes_of(bound)
    first, count = arms - 1, 0
    for a in range(0, arms, lanes):
        pack = load(board, row, a, bound)
        lane = first_at_least(pack, bound)
        first = min(first, a + lane if lane < lanes else arms)
        count += count_at_least(pack, bound)
    return first, count
