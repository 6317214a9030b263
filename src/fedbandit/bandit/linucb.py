"""LinUCB on packed statistics: from noisy sums to a model, and from a model to an action."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedbandit._arrays import Floats
from fedbandit.bandit.statistics import unpack

__all__ = ["Fit", "Model", "decide", "fit", "log_det_gain", "scores", "solved", "upper_bounds"]

CONDITION = 1e-12  # a repaired matrix has no eigenvalue below this share of its largest


class Model(NamedTuple):
    """The model from which decisions are made. Leading axes are allowed on all fields.

    `root` is upper triangular with V^-1 = root root^T, so that ||x||_{V^-1} = ||root^T x||.
    """

    theta: Floats  # (..., dim)
    root: Floats  # (..., dim, dim)
    radius: Floats  # (...)


class Fit(NamedTuple):
    """A model, and the number of its covariances that had to be repaired."""

    model: Model
    repaired: int


def fit(prefix: Floats, dim: int, regulariser: float, floor: float, radius: ArrayLike) -> Fit:
    """V = lambda I + W and theta = V^-1 U from packed prefix sums (..., width).

    Noise can make V indefinite. An eigenvalue of V below `floor` is raised to it (which gives the nearest matrix in
    Frobenius norm that respects the floor), and the repair is counted. This is post-processing: privacy does not
    depend on it, and within the confidence event it never happens.
    """
    bias, covariance = unpack(prefix, dim)
    precision = covariance + regulariser * np.eye(dim)
    precision, repaired = _raised(precision, floor)
    root = np.linalg.inv(np.swapaxes(np.linalg.cholesky(precision), -1, -2))
    theta = solved(root, bias)
    return Fit(Model(theta, root, np.broadcast_to(np.asarray(radius, dtype=float), theta.shape[:-1])), repaired)


def solved(root: Floats, bias: Floats) -> Floats:
    """V^-1 bias (..., dim), where V^-1 = root root^T."""
    return np.asarray(np.einsum("...ij,...j->...i", root, np.einsum("...ji,...j->...i", root, bias)))


def decide(actions: Floats, model: Model) -> int:
    """The action (row of `actions`, (arms, dim)) with the largest upper confidence bound; the first of equals."""
    return int(np.argmax(upper_bounds(actions, model)))


def upper_bounds(actions: Floats, model: Model) -> Floats:
    """<x, theta> + beta ||x||_{V^-1} of every action: (..., arms, dim) to (..., arms)."""
    means, bounds = scores(actions, model)
    bounds += means
    return bounds


def scores(actions: Floats, model: Model) -> tuple[Floats, Floats]:
    """Means <x, theta> and spreads beta ||x||_{V^-1} of every action: (..., arms, dim) to (..., arms) each."""
    seen = actions @ model.root
    spreads: Floats = np.sqrt(np.vecdot(seen, seen))
    spreads *= model.radius[..., None]
    return np.vecdot(actions, model.theta[..., None, :]), spreads


def log_det_gain(covariance: Floats, root: Floats) -> Floats:
    """log det(V + covariance) - log det V for V^-1 = root root^T; -inf if noise makes the first determinant negative.

    Dubey & Pentland's rule is about this number (line 9 of the restated algorithm; eq. det-new if there is noise).
    """
    growth = np.eye(root.shape[-1]) + np.swapaxes(root, -1, -2) @ covariance @ root
    sign, log_det = np.linalg.slogdet(growth)
    return np.where(sign > 0, log_det, -np.inf)


def _raised(precision: Floats, floor: float) -> tuple[Floats, int]:
    """Every matrix with its eigenvalues raised to `floor`, and how many matrices needed it."""
    try:
        np.linalg.cholesky(precision - floor * np.eye(precision.shape[-1]))
        return precision, 0
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(precision)
    below = values.min(axis=-1) < floor
    least = np.maximum(floor, CONDITION * np.abs(values).max(axis=-1, keepdims=True))
    with np.errstate(over="ignore", invalid="ignore"):  # sums near the largest float: the result decides nothing
        raised = (vectors * np.maximum(values, least)[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    return np.where(below[..., None, None], raised, precision), int(below.sum())
