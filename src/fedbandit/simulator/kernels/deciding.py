"""How silos score a set and learn during a call: lazily from one fixed model, or eagerly from their own models.

Eager updates are rank-one identities. With v = V^-1 x and g = x^T v, Sherman-Morrison gives (V + x x^T)^-1 =
V^-1 - v v^T / (1 + g). Multiplied by the new bias U + x y, this is theta + v (y - x^T theta) / (1 + g).
"""

from __future__ import annotations

import numpy as np

from fedbandit._arrays import Floats, Singles
from fedbandit._jit import njit
from fedbandit.simulator.kernels.layout import Beliefs, Local, Scores
from fedbandit.simulator.kernels.scoring import MEANS, ROWS, project, square_widths

__all__ = ["copy", "enter_silo", "learn", "open_eager", "open_lazy", "survey", "times"]


# -- lazily -----------------------------------------------------------------------------------------------------------


@njit(cache=True)
def open_lazy(beliefs: Beliefs, first_run: int, last_run: int, height: int, room: int) -> tuple[Scores, Scores, Scores]:
    """The models of some runs in the precision of scores, numbered q * runs + r, and a board to score on.

    These are thetas (models, height) and folded roots: lower triangles (models, d rounded up to even, height) with
    which (root^T x)_k = sum_{j <= k} triangle[k, j] x_j.
    """
    protocols, _, dim = beliefs.theta.shape
    runs, precision = last_run - first_run, beliefs.radius.dtype
    thetas = np.zeros((protocols * runs, height), precision)
    triangles = np.zeros((protocols * runs, dim + dim % 2, height), precision)
    for q in range(protocols):
        for r in range(runs):
            for k in range(dim):
                thetas[q * runs + r, k] = beliefs.theta[q, first_run + r, k]
                for j in range(k + 1):
                    triangles[q * runs + r, k, j] = beliefs.root[q, first_run + r, j, k]
    return thetas, triangles, np.empty((ROWS, room), precision)


# -- eagerly ----------------------------------------------------------------------------------------------------------


@njit(cache=True)
def open_eager(
    local: Local, models: int, height: int, room: int
) -> tuple[Floats, Scores, Scores, Scores, Floats, Floats]:
    """Arrays to work in: one silo's thetas (models, d), and what one model needs at a time.

    The latter are, in the precision of scores, theta (1, height), the folded V^-1 (1, d rounded up to even, height) and
    a board; then the chosen features (d,), and V^-1 times them (d,).
    """
    dim, precision = local.bias.shape[3], local.radius.dtype
    return (
        np.empty((models, dim)),
        np.zeros((1, height), precision),
        np.zeros((1, dim + dim % 2, height), precision),
        np.empty((ROWS, room), precision),
        np.empty(dim),
        np.empty(dim),
    )


@njit(cache=True)
def enter_silo(local: Local, silo: int, first_run: int, last_run: int, thetas: Floats) -> None:
    """Compute theta = V^-1 bias of one silo, for all protocols and the runs of a task."""
    model = 0
    for q in range(local.bias.shape[0]):
        for run in range(first_run, last_run):
            times(local.inverse[q, run, silo], local.bias[q, run, silo], thetas[model])
            model += 1


@njit(cache=True)
def survey(x: Singles, inverse: Floats, theta: Floats, weights: Scores, folded: Scores, board: Scores) -> None:
    """Write x^T theta and x^T V^-1 x of all actions on the board."""
    copy(theta, weights)
    _fold_inverse(inverse, folded)
    project(x, weights, 0, MEANS, board)
    square_widths(x, folded, 0, False, board)


@njit(cache=True)
def learn(
    x: Singles, arm: int, reward: float, inverse: Floats, bias: Floats, theta: Floats, feature: Floats, v: Floats
) -> tuple[float, float]:
    """Update a silo's model with one user. Return x^T V^-1 x before the update, and theta's step along V^-1 x."""
    for j in range(theta.size):
        feature[j] = x[j, arm]
    return _update(inverse, bias, theta, feature, reward, v)


@njit(cache=True)
def copy(vector: Floats, weights: Scores) -> None:
    """weights[0, : d] = vector, in the precision of scores."""
    for j in range(vector.size):
        weights[0, j] = vector[j]


@njit(cache=True, fastmath={"contract", "reassoc", "nsz"})
def times(matrix: Floats, vector: Floats, out: Floats) -> None:
    """out = matrix vector."""
    for i in range(vector.size):
        total = 0.0
        for j in range(vector.size):
            total += matrix[i, j] * vector[j]
        out[i] = total


@njit(cache=True)
def _fold_inverse(inverse: Floats, folded: Scores) -> None:
    """The lower triangle folded[0] with x^T inverse x = sum_k x_k sum_{j <= k} folded[0, k, j] x_j."""
    for k in range(inverse.shape[0]):
        for j in range(k):
            folded[0, k, j] = 2 * inverse[k, j]
        folded[0, k, k] = inverse[k, k]


@njit(cache=True, fastmath={"contract", "reassoc", "nsz"})
def _dot(left: Floats, right: Floats) -> float:
    total = 0.0
    for j in range(left.size):
        total += left[j] * right[j]
    return total


@njit(cache=True, fastmath={"contract"})
def _update(inverse: Floats, bias: Floats, theta: Floats, x: Floats, reward: float, v: Floats) -> tuple[float, float]:
    """Add one user to a silo's V^-1, bias and theta = V^-1 bias; ``v`` becomes the old V^-1 x.

    Return g = x^T V^-1 x before the update, and the step (y - x^T theta) / (1 + g) that theta took along v.
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
