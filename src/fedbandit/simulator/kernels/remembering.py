"""Eager acting (Algorithm 1) on tables: a silo remembers how it scored a set, and catches up on the users since.

Let g_a = x_a^T V^-1 x_a and s_a = x_a^T theta for every action a of a set. When a user is added who chose x with reward
y, let v = V^-1 x and g = x^T v. By Sherman-Morrison, V^-1 becomes V^-1 - v v^T / (1 + g), and theta becomes
theta + v (y - x^T theta) / (1 + g). Multiplying by x_a, with w_a = x_a^T v, gives:

    g_a  becomes  g_a - w_a^2 / (1 + g)              s_a  becomes  s_a + w_a (y - x^T theta) / (1 + g)

So a set that comes again after n users of its silo takes n products with a vector, O(n arms d), instead of quadratic
forms, O(arms d^2). If n is so large that this would take longer, the quadratic forms are computed from scratch, and
also after every REFRESH users, because rounding errors add up.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from fedbandit._arrays import Floats, Integers, Singles
from fedbandit._jit import njit
from fedbandit.simulator.kernels.deciding import survey
from fedbandit.simulator.kernels.layout import Local, Scores
from fedbandit.simulator.kernels.outcomes import CHUNK
from fedbandit.simulator.kernels.packs import broadcast, fma, lanes_of, load, store, times
from fedbandit.simulator.kernels.scoring import MEANS, ROWS, SCORES, WIDTHS, project

__all__ = ["REFRESH", "Memory", "enter_memory", "follow", "open_memory", "recall", "remember"]

REFRESH: Final = 4 * CHUNK  # users after which a set is scored from scratch
MOST_SETS: Final = 32  # most sets that are remembered at a time
_NONE: Final = -1


class Memory(NamedTuple):
    """The boards that a silo's models have scored in this call, and the last users that they have learnt from.

    Set i has the place i modulo the number of places, so of two sets with the same place one is forgotten.
    """

    boards: Scores  # (models, places, ROWS, room)
    held: Integers  # (models, places) the set on a board, or _NONE
    known: Integers  # (models, places) the silo's users that a board includes
    afresh: Integers  # (models, places) how many there were when the board was computed from scratch
    learnt: Integers  # (models,) users so far; user k is in row k modulo the number of rows
    directions: Scores  # (models, rows, height) v
    steps: Scores  # (models, rows) theta's step along v
    pulls: Scores  # (models, rows) -1 / (1 + g)


@njit(cache=True)
def open_memory(local: Local, models: int, sets: int, height: int, room: int) -> Memory:
    """Memory for `sets` sets, and for as many users as are worth catching up on.

    n products take 2 n d operations per action; quadratic forms take d^2, but more of them at a time.
    """
    precision, places, rows = local.radius.dtype, min(sets, MOST_SETS), max(1, local.bias.shape[3] // 3)
    return Memory(
        np.empty((models, places, ROWS, room), precision),
        np.empty((models, places), dtype=np.int64),
        np.empty((models, places), dtype=np.int64),
        np.empty((models, places), dtype=np.int64),
        np.empty(models, dtype=np.int64),
        np.zeros((models, rows, height), precision),
        np.empty((models, rows), precision),
        np.empty((models, rows), precision),
    )


@njit(cache=True)
def enter_memory(memory: Memory) -> None:
    """Forget everything, because another silo is played now."""
    memory.held[:] = _NONE
    memory.learnt[:] = 0


@njit(cache=True)
def recall(
    x: Singles,
    index: np.int64,
    model: int,
    inverse: Floats,
    theta: Floats,
    weights: Scores,
    folded: Scores,
    memory: Memory,
) -> Scores:
    """The board of set `index`, whose actions are x, as `survey` would write it now, up to rounding."""
    place = index % memory.held.shape[1]
    board: Scores = memory.boards[model, place]
    now = memory.learnt[model]
    first, since = memory.known[model, place], now - memory.afresh[model, place]
    if memory.held[model, place] != index or now - first > memory.steps.shape[1] or since >= REFRESH:
        survey(x, inverse, theta, weights, folded, board)
        memory.held[model, place], memory.afresh[model, place] = index, now
    else:
        while now - first >= 4:
            _follow_four(x, model, first, memory, board)
            first += 4
        for user in range(first, now):
            row = user % memory.steps.shape[1]
            follow(x, memory.directions[model], row, memory.steps[model, row], memory.pulls[model, row], board)
    memory.known[model, place] = now
    return board


@njit(cache=True)
def remember(direction: Floats, gain: float, step: float, model: int, memory: Memory) -> None:
    """Note that a model has learnt from a user: ``direction`` is v, ``gain`` is g, ``step`` is theta's along v."""
    row = memory.learnt[model] % memory.steps.shape[1]
    for j in range(direction.size):
        memory.directions[model, row, j] = direction[j]
    memory.steps[model, row], memory.pulls[model, row] = step, -1.0 / (1.0 + gain)
    memory.learnt[model] += 1


@njit(cache=True)
def follow(x: Singles, directions: Scores, row: int, step: Any, pull: Any, board: Scores) -> None:
    """Apply the identities above to all actions for one user, whose v is directions[row]; ``pull`` is -1 / (1 + g)."""
    zero = board.dtype.type(0)
    project(x, directions, row, SCORES, board)
    for a in range(0, x.shape[1], lanes_of(zero)):
        w = load(board, SCORES, a, zero)
        store(board, MEANS, a, fma(w, broadcast(step), load(board, MEANS, a, zero)))
        store(board, WIDTHS, a, fma(times(w, w), broadcast(pull), load(board, WIDTHS, a, zero)))


@njit(cache=True)
def _follow_four(x: Singles, model: int, first: int, memory: Memory, board: Scores) -> None:
    """`follow` for four users, in order; their products stay in registers, for two packs of actions at a time."""
    zero = board.dtype.type(0)
    lanes, rows = lanes_of(zero), memory.steps.shape[1]
    v, steps, pulls = memory.directions[model], memory.steps[model], memory.pulls[model]
    r0, r1, r2, r3 = first % rows, (first + 1) % rows, (first + 2) % rows, (first + 3) % rows
    tiled = x.shape[1] - x.shape[1] % (2 * lanes)
    for a in range(0, x.shape[1], 2 * lanes):
        b = a + lanes if a < tiled else a  # if the number of packs is odd, the last one is done twice
        s0 = s1 = s2 = s3 = t0 = t1 = t2 = t3 = broadcast(zero)
        for j in range(x.shape[0]):
            p, q = load(x, j, a, zero), load(x, j, b, zero)
            v0, v1, v2, v3 = broadcast(v[r0, j]), broadcast(v[r1, j]), broadcast(v[r2, j]), broadcast(v[r3, j])
            s0, s1, s2, s3 = fma(v0, p, s0), fma(v1, p, s1), fma(v2, p, s2), fma(v3, p, s3)
            t0, t1, t2, t3 = fma(v0, q, t0), fma(v1, q, t1), fma(v2, q, t2), fma(v3, q, t3)
        means, others = load(board, MEANS, a, zero), load(board, MEANS, b, zero)
        widths, depths = load(board, WIDTHS, a, zero), load(board, WIDTHS, b, zero)
        y0, y1, y2, y3 = broadcast(steps[r0]), broadcast(steps[r1]), broadcast(steps[r2]), broadcast(steps[r3])
        z0, z1, z2, z3 = broadcast(pulls[r0]), broadcast(pulls[r1]), broadcast(pulls[r2]), broadcast(pulls[r3])
        store(board, MEANS, a, fma(s3, y3, fma(s2, y2, fma(s1, y1, fma(s0, y0, means)))))
        store(board, MEANS, b, fma(t3, y3, fma(t2, y2, fma(t1, y1, fma(t0, y0, others)))))
        widths = fma(times(s1, s1), z1, fma(times(s0, s0), z0, widths))
        depths = fma(times(t1, t1), z1, fma(times(t0, t0), z0, depths))
        store(board, WIDTHS, a, fma(times(s3, s3), z3, fma(times(s2, s2), z2, widths)))
        store(board, WIDTHS, b, fma(times(t3, t3), z3, fma(times(t2, t2), z2, depths)))
