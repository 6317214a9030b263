"""Scores of one user's actions, x^T theta + radius sqrt(x^T V^-1 x), for all actions at once.

Actions lie coordinate by coordinate (height, padded arms), so every inner loop runs over contiguous actions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from fedbandit.simulate.kernels.layout import Beliefs, Floats, Scores, Singles


@njit(cache=True, fastmath={"contract"})
def project(x: Singles, weights: Scores, out: Scores) -> None:
    """out[a] = sum_j weights[j] x[j, a]."""
    out[:] = 0
    for j in range(weights.size):
        for a in range(out.size):
            out[a] += weights[j] * x[j, a]


@njit(cache=True)
def fold_root(root: Floats, out: Scores) -> None:
    """Rows k of the lower triangle so that (root^T x)_k = sum_{j <= k} out[k, j] x_j, for an upper triangular root."""
    for k in range(root.shape[0]):
        for j in range(k + 1):
            out[k, j] = root[j, k]


@njit(cache=True)
def fold_beliefs(beliefs: Beliefs, first_run: int, last_run: int, height: int) -> tuple[Scores, Scores]:
    """The models of some runs in the precision and layout of scores: theta (Q, runs, height), triangle (.., d, height)."""
    protocols, _, dim = beliefs.theta.shape
    runs = last_run - first_run
    theta = np.zeros((protocols, runs, height), beliefs.radius.dtype)
    triangle = np.zeros((protocols, runs, dim, height), beliefs.radius.dtype)
    for q in range(protocols):
        for r in range(runs):
            theta[q, r, :dim] = beliefs.theta[q, first_run + r]
            fold_root(beliefs.root[q, first_run + r], triangle[q, r])
    return theta, triangle


@njit(cache=True)
def fold_inverse(inverse: Floats, out: Scores) -> None:
    """The lower triangle so that x^T inverse x = sum_k x_k sum_{j <= k} out[k, j] x_j, for a symmetric inverse."""
    for k in range(inverse.shape[0]):
        for j in range(k):
            out[k, j] = 2 * inverse[k, j]
        out[k, k] = inverse[k, k]


@njit(cache=True, fastmath={"contract"})
def square_widths(x: Singles, triangle: Scores, squares: bool, out: Scores) -> None:
    """out[a] = sum_k t_k t_k if ``squares`` else sum_k t_k x_k, where t_k = sum_{j <= k} triangle[k, j] x[j, a]."""
    out[:] = 0
    row = np.empty_like(out)
    for k in range(triangle.shape[0]):
        row[:] = 0
        for j in range(k + 1):
            for a in range(out.size):
                row[a] += triangle[k, j] * x[j, a]
        for a in range(out.size):
            out[a] += row[a] * (row[a] if squares else x[k, a])


@njit(cache=True, fastmath={"contract", "nnan", "nsz"})
def best_arm(means: Scores, widths: Scores, radius: Any, arms: int, scores: Scores) -> int:
    """The action with the largest score means + radius sqrt(widths), the first of equals; ``scores`` may be ``widths``."""
    zero = scores.dtype.type(0)
    top = means[0] + radius * np.sqrt(max(widths[0], zero))
    for a in range(arms):
        scores[a] = means[a] + radius * np.sqrt(max(widths[a], zero))
        top = max(top, scores[a])
    for a in range(arms):
        if scores[a] == top:
            return a
    return 0
