"""What the eager kernels share: deciding from a silo's own V^-1 and theta, and learning from the outcome."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from fedbandit.simulate.kernels.layout import Floats, Local, Scores, Singles
from fedbandit.simulate.kernels.scoring import MEANS, ROWS, fold_inverse, project, square_widths
from fedbandit.simulate.kernels.updates import learn, times


class Bench(NamedTuple):
    """Room to work for one task; its runs are numbered from the first of the task."""

    theta: Floats  # (Q, runs, d) the present silo's estimates
    weights: Scores  # (height,) one of them in the precision of scores
    triangle: Scores  # (d or d + 1, height) the folded V^-1
    board: Scores  # (ROWS, padded arms)
    feature: Floats  # (d,) the chosen action
    direction: Floats  # (d,) V^-1 times it


@njit(cache=True)
def open_bench(local: Local, runs: int, height: int, room: int) -> Bench:
    """A work bench for action sets of at most ``room`` padded arms."""
    protocols, dim, precision = local.bias.shape[0], local.bias.shape[3], local.radius.dtype
    return Bench(
        np.empty((protocols, runs, dim)),
        np.zeros(height, precision),
        np.zeros((dim + dim % 2, height), precision),
        np.empty((ROWS, room), precision),
        np.empty(dim),
        np.empty(dim),
    )


@njit(cache=True)
def enter_silo(local: Local, silo: int, first_run: int, theta: Floats) -> None:
    """theta = V^-1 bias of one silo, for all protocols and the runs of a task."""
    protocols, runs, _ = theta.shape
    for q in range(protocols):
        for r in range(runs):
            times(local.inverse[q, first_run + r, silo], local.bias[q, first_run + r, silo], theta[q, r])


@njit(cache=True)
def survey(x: Singles, inverse: Floats, theta: Floats, bench: Bench) -> None:
    """Write x^T theta and x^T V^-1 x of all actions on the board."""
    bench.weights[: theta.size] = theta
    fold_inverse(inverse, bench.triangle)
    project(x, bench.weights, MEANS, bench.board)
    square_widths(x, bench.triangle, False, bench.board)


@njit(cache=True)
def learn_from(
    x: Singles, arm: int, reward: float, inverse: Floats, bias: Floats, theta: Floats, bench: Bench
) -> tuple[float, float]:
    """Update a silo's model with one user. Returns x^T V^-1 x before it, and theta's step along V^-1 x."""
    for j in range(theta.size):
        bench.feature[j] = x[j, arm]
    return learn(inverse, bias, theta, bench.feature, reward, bench.direction)
