"""How silos decide and learn during a call: lazily from one fixed model, or eagerly from a model of their own.

Eager updates are rank-one identities. With v = V^-1 x and g = x^T v, Sherman-Morrison gives (V + x x^T)^-1 =
V^-1 - v v^T / (1 + g). Multiplied with the new bias U + x y it gives theta + v (y - x^T theta) / (1 + g); and
det(V + x x^T) = det(V) (1 + g).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from fedbandit._arrays import Floats, Integers, Singles
from fedbandit.simulator.kernels.contexts import Room
from fedbandit.simulator.kernels.kinds import for_kind
from fedbandit.simulator.kernels.layout import Beliefs, Local, Scores
from fedbandit.simulator.kernels.scoring import MEANS, ROWS, best_arm, project, square_widths

__all__ = [
    "EagerDesk",
    "LazyDesk",
    "choose",
    "copy",
    "eager_desk",
    "enter_silo",
    "learn",
    "open_desk",
    "pick",
    "survey",
    "times",
    "update",
]

Who = tuple[int, int, int, int]  # protocol, run, silo, round of the call


class LazyDesk(NamedTuple):
    """Room to work for one task, for its models q * runs + r.

    A model is fixed during a call, so the best action of a set that is met again is the same at every visit: it is
    found at the first visit and remembered.
    """

    radius: Scores  # (Q, R)
    thetas: Scores  # (models, height) in the precision of scores
    triangles: Scores  # (models, d rounded up to even, height) lower: (root^T x)_k = sum_{j <= k} triangle[k, j] x_j
    board: Scores  # (ROWS, padded arms)
    memo: Integers  # (models, sets) 1 + the best action of a set, 0 if not yet known


class EagerDesk(NamedTuple):
    """Room to work for one task: every silo's models, and the present silo's estimates."""

    inverse: Floats  # (Q, R, M, d, d)
    bias: Floats  # (Q, R, M, d)
    log_det_gain: Floats  # (Q, R, M)
    radius: Scores  # (Q, R, n)
    thetas: Floats  # (models, d) the present silo's, for the models q * runs + r
    weights: Scores  # (1, height) one of them in the precision of scores
    triangles: Scores  # (1, d rounded up to even, height) the folded V^-1
    board: Scores  # (ROWS, padded arms)
    feature: Floats  # (d,) the chosen action
    direction: Floats  # (d,) V^-1 times it


# -- a desk, by its kind ----------------------------------------------------------------------------------------------


def open_desk(model: Beliefs | Local, room: Room, first_run: int, last_run: int) -> Any:
    """A desk for the runs first_run .. last_run - 1."""
    raise NotImplementedError


def enter_silo(desk: LazyDesk | EagerDesk, silo: int, first_run: int, last_run: int) -> None:
    """Get ready for the users of one silo."""
    raise NotImplementedError


def choose(desk: LazyDesk | EagerDesk, x: Singles, arms: int, place: int, who: Who, model: int) -> int:
    """The action of a set with the largest upper confidence bound, the first of equals."""
    raise NotImplementedError


def learn(desk: LazyDesk | EagerDesk, x: Singles, arm: int, reward: float, who: Who, model: int) -> None:
    """What the silo learns at once from one user's reward."""
    raise NotImplementedError


@for_kind(open_desk, Beliefs)
def _open_lazy(model: Beliefs, room: Room, first_run: int, last_run: int) -> LazyDesk:
    return _lazy_desk(model, room, first_run, last_run)


@for_kind(enter_silo, LazyDesk)
def _enter_lazily(desk: LazyDesk, silo: int, first_run: int, last_run: int) -> None:
    pass


@for_kind(choose, LazyDesk)
def _choose_lazily(desk: LazyDesk, x: Singles, arms: int, place: int, who: Who, model: int) -> int:
    arm = -1 if place < 0 else desk.memo[model, place] - 1
    if arm < 0:
        board = desk.board
        project(x, desk.thetas, model, MEANS, board)
        square_widths(x, desk.triangles, model, True, board)
        arm = best_arm(board, desk.radius[who[0], who[1]], arms)
        if place >= 0:
            desk.memo[model, place] = arm + 1
    return arm


@for_kind(learn, LazyDesk)
def _learn_lazily(desk: LazyDesk, x: Singles, arm: int, reward: float, who: Who, model: int) -> None:
    pass


@for_kind(open_desk, Local)
def _open_eager(model: Local, room: Room, first_run: int, last_run: int) -> EagerDesk:
    return eager_desk(model, model.bias.shape[0] * (last_run - first_run), room.height, room.arms)


@for_kind(enter_silo, EagerDesk)
def _enter_eagerly(desk: EagerDesk, silo: int, first_run: int, last_run: int) -> None:
    model = 0
    for q in range(desk.bias.shape[0]):
        for run in range(first_run, last_run):
            times(desk.inverse[q, run, silo], desk.bias[q, run, silo], desk.thetas[model])
            model += 1


@for_kind(choose, EagerDesk)
def _choose_eagerly(desk: EagerDesk, x: Singles, arms: int, place: int, who: Who, model: int) -> int:
    q, run, silo, round_ = who
    board = desk.board
    survey(x, desk.inverse[q, run, silo], desk.thetas[model], desk.weights, desk.triangles, board)
    return best_arm(board, desk.radius[q, run, round_], arms)


@for_kind(learn, EagerDesk)
def _learn_eagerly(desk: EagerDesk, x: Singles, arm: int, reward: float, who: Who, model: int) -> None:
    q, run, silo, _ = who
    feature = desk.feature
    pick(x, arm, feature)
    inverse, bias, theta = desk.inverse[q, run, silo], desk.bias[q, run, silo], desk.thetas[model]
    gain, _ = update(inverse, bias, theta, feature, reward, desk.direction)
    desk.log_det_gain[q, run, silo] += math.log1p(gain)


# -- what they are made of --------------------------------------------------------------------------------------------


@njit(cache=True)
def _lazy_desk(beliefs: Beliefs, room: Room, first_run: int, last_run: int) -> LazyDesk:
    protocols, _, dim = beliefs.theta.shape
    runs = last_run - first_run
    thetas = np.zeros((protocols * runs, room.height), beliefs.radius.dtype)
    triangles = np.zeros((protocols * runs, dim + dim % 2, room.height), beliefs.radius.dtype)
    for q in range(protocols):
        for r in range(runs):
            for k in range(dim):
                thetas[q * runs + r, k] = beliefs.theta[q, first_run + r, k]
                for j in range(k + 1):
                    triangles[q * runs + r, k, j] = beliefs.root[q, first_run + r, j, k]
    board = np.empty((ROWS, room.arms), beliefs.radius.dtype)
    memo = np.zeros((protocols * runs, room.sets), dtype=np.int64)
    return LazyDesk(beliefs.radius, thetas, triangles, board, memo)


@njit(cache=True)
def eager_desk(local: Local, models: int, height: int, room: int) -> EagerDesk:
    """A desk for action sets of at most ``room`` padded arms."""
    dim, precision = local.bias.shape[3], local.radius.dtype
    return EagerDesk(
        local.inverse,
        local.bias,
        local.log_det_gain,
        local.radius,
        np.empty((models, dim)),
        np.zeros((1, height), precision),
        np.zeros((1, dim + dim % 2, height), precision),
        np.empty((ROWS, room), precision),
        np.empty(dim),
        np.empty(dim),
    )


@njit(cache=True)
def survey(x: Singles, inverse: Floats, theta: Floats, weights: Scores, triangles: Scores, board: Scores) -> None:
    """Write x^T theta and x^T V^-1 x of all actions on the board."""
    copy(theta, weights)
    _fold_inverse(inverse, triangles)
    project(x, weights, 0, MEANS, board)
    square_widths(x, triangles, 0, False, board)


@njit(cache=True)
def pick(x: Singles, arm: int, feature: Floats) -> None:
    """feature = the action's, in float64."""
    for j in range(feature.size):
        feature[j] = x[j, arm]


@njit(cache=True)
def copy(vector: Floats, weights: Scores) -> None:
    """weights[0, : d] = vector, in the precision of scores."""
    for j in range(vector.size):
        weights[0, j] = vector[j]


@njit(cache=True)
def _fold_inverse(inverse: Floats, triangles: Scores) -> None:
    """The lower triangle triangles[0] with x^T inverse x = sum_k x_k sum_{j <= k} triangles[0, k, j] x_j."""
    for k in range(inverse.shape[0]):
        for j in range(k):
            triangles[0, k, j] = 2 * inverse[k, j]
        triangles[0, k, k] = inverse[k, k]


@njit(cache=True, fastmath={"contract", "reassoc", "nsz"})
def times(matrix: Floats, vector: Floats, out: Floats) -> None:
    """out = matrix vector."""
    for i in range(vector.size):
        total = 0.0
        for j in range(vector.size):
            total += matrix[i, j] * vector[j]
        out[i] = total


@njit(cache=True, fastmath={"contract", "reassoc", "nsz"})
def _dot(left: Floats, right: Floats) -> float:
    total = 0.0
    for j in range(left.size):
        total += left[j] * right[j]
    return total


@njit(cache=True, fastmath={"contract"})
def update(inverse: Floats, bias: Floats, theta: Floats, x: Floats, reward: float, v: Floats) -> tuple[float, float]:
    """Add one user to a silo's V^-1, bias and theta = V^-1 bias; ``v`` becomes the old V^-1 x.

    Returns g = x^T V^-1 x before the update, and the step (y - x^T theta) / (1 + g) that theta took along v.
    """
    times(inverse, x, v)
    gain = _dot(x, v)
    share = 1.0 / (1.0 + gain)
    step = (reward - _dot(x, theta)) * share
    for i in range(x.size):
        weight = v[i] * share
        for j in range(x.size):
            inverse[i, j] -= weight * v[j]
    for i in range(x.size):
        bias[i] += x[i] * reward
        theta[i] += v[i] * step
    return gain, step
