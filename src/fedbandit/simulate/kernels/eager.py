"""What the eager kernels share: deciding from a silo's own V^-1 and theta, and learning from the outcome."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from fedbandit.simulate.kernels.layout import Floats, Local, Scores, Singles
from fedbandit.simulate.kernels.scoring import MEANS, ROWS, fold_inverse, project, square_widths
from fedbandit.simulate.kernels.updates import learn, times


class Bench(NamedTuple):
    """Room to work for one task."""

    theta: Floats  # (models, d) the present silo's estimates, for the models q * runs + r
    weights: Scores  # (1, height) one of them in the precision of scores
    triangles: Scores  # (1, d rounded up to even, height) the folded V^-1
    board: Scores  # (ROWS, padded arms)
    feature: Floats  # (d,) the chosen action
    direction: Floats  # (d,) V^-1 times it


@njit(cache=True)
def open_bench(local: Local, models: int, height: int, room: int) -> Bench:
    """A work bench for action sets of at most ``room`` padded arms."""
    dim, precision = local.bias.shape[3], local.radius.dtype
    return Bench(
        np.empty((models, dim)),
        np.zeros((1, height), precision),
        np.zeros((1, dim + dim % 2, height), precision),
        np.empty((ROWS, room), precision),
        np.empty(dim),
        np.empty(dim),
    )


@njit(cache=True)
def enter_silo(local: Local, silo: int, first_run: int, last_run: int, theta: Floats) -> None:
    """theta = V^-1 bias of one silo, for all protocols and the runs of a task."""
    model = 0
    for q in range(local.bias.shape[0]):
        for run in range(first_run, last_run):
            times(local.inverse[q, run, silo], local.bias[q, run, silo], theta[model])
            model += 1


@njit(cache=True)
def copy(vector: Floats, weights: Scores) -> None:
    """weights[0, : d] = vector, in the precision of scores."""
    for j in range(vector.size):
        weights[0, j] = vector[j]


@njit(cache=True)
def survey(x: Singles, inverse: Floats, theta: Floats, bench: Bench) -> None:
    """Write x^T theta and x^T V^-1 x of all actions on the board."""
    copy(theta, bench.weights)
    fold_inverse(inverse, bench.triangles)
    project(x, bench.weights, 0, MEANS, bench.board)
    square_widths(x, bench.triangles, 0, False, bench.board)


@njit(cache=True)
def learn_from(
    x: Singles, arm: int, reward: float, inverse: Floats, bias: Floats, theta: Floats, bench: Bench
) -> tuple[float, float]:
    """Update a silo's model with one user. Returns x^T V^-1 x before it, and theta's step along V^-1 x."""
    for j in range(theta.size):
        bench.feature[j] = x[j, arm]
    return learn(inverse, bias, theta, bench.feature, reward, bench.direction)
