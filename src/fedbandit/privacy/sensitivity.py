"""How far one user can move the statistics: the largest l2 shift of the pair (bias, covariance).

Distances are in units of the covariance noise, and the covariance is measured in Frobenius norm. `ratio` is
(covariance noise / bias noise)^2, so a move of the bias counts sqrt(ratio) times. Let ||x|| <= 1, let a reward enter as
r in [-h, h] or [0, h] (h = `reward_bound`), and put s = ratio h^2. Then the largest joint shift is:

* add/remove: the user's own contribution, sqrt(s + 1);
* replace-one: two unit vectors at cosine -c move the bias by h sqrt(2 + 2c) and the covariance by sqrt(2 - 2c^2). For
  s <= 2 the largest joint shift is sqrt(2 + 2s + s^2/2), at c = s/2; for larger s it is sqrt(4s), at c = 1.

With h = 1 and ratio = 1 these are sqrt 2 and sqrt 4.5. The tests search the whole domain for anything larger.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from fedbandit import _validate
from fedbandit._arrays import Floats

__all__ = [
    "ADJACENCIES",
    "Adjacency",
    "Shift",
    "bias_shift",
    "covariance_shift",
    "joint_shift",
    "late_factor",
    "rounding_shift",
]

Adjacency = Literal["replace-one", "add-remove"]
ADJACENCIES: tuple[Adjacency, ...] = get_args(Adjacency)


@dataclass(frozen=True)
class Shift:
    """How far one user can move one batch sum, at most, in units of the covariance noise."""

    exact: float  # of the real-valued statistics
    rounding: float  # added by keeping each contribution on a grid
    participations: int  # rounds of one silo that one user may take part in (group privacy)

    @property
    def total(self) -> float:
        """The shift that noise must hide. In the worst case, all of a user's rounds fall into one batch."""
        return self.participations * (self.exact + self.rounding)


def joint_shift(adjacency: Adjacency, reward_bound: float = 1.0, ratio: float = 1.0) -> float:
    """The largest shift of (bias, covariance) together; see the module's docstring."""
    _validate.one_of("adjacency", adjacency, ADJACENCIES)
    s = ratio * reward_bound**2
    if adjacency == "add-remove":
        return math.sqrt(s + 1)
    return math.sqrt(2 + 2 * s + s**2 / 2) if s <= 2 else math.sqrt(4 * s)


def late_factor(adjacency: Adjacency, reward_bound: float, ratio: float, coefficients: Floats) -> float:
    """The factor by which one round can move all releases further if its reward may come in another batch. At least 1.

    Replacing a user may move the reward from batch j to batch j'. The releases then move by C_j u - C_j' u', whose
    squared length is |u|^2 |C_j|^2 + |u'|^2 |C_j'|^2 - 2 <C_j, C_j'> <u, u'>. The product <u, u'> lies between -m and
    |u|^2, where m is such that 2 |u|^2 + 2 m is the largest |u - u'|^2, which is `joint_shift` squared. While <C_j,
    C_j'> >= 0, the move is no larger than inside one batch; where columns point apart, it can be. The factor is the
    largest over the first 1, 2, ... rows of C, so that it also holds for what a ledger has spent so far, as long as
    every row counts equally often (`spending` sees to that).
    """
    if adjacency == "add-remove":  # one contribution in one batch: there is no second batch
        return 1.0
    alone = joint_shift("add-remove", reward_bound, ratio) ** 2
    inside = joint_shift("replace-one", reward_bound, ratio) ** 2
    least, products, factor = inside / 2 - alone, np.zeros((coefficients.shape[1],) * 2), 1.0
    for row in coefficients:
        products += np.outer(row, row)
        norms = np.diag(products)
        crossed = alone * (norms[:, None] + norms) + 2 * np.maximum(products * least, -products * alone)
        factor = max(factor, float(crossed.max() / (inside * norms.max())))
    return math.sqrt(factor)


def bias_shift(adjacency: Adjacency) -> float:
    """The largest shift of the bias alone, rewards in [0, 1]: 1, or 2 when a user is replaced by the opposite one."""
    return 1.0 if adjacency == "add-remove" else 2.0


def covariance_shift(adjacency: Adjacency) -> float:
    """The largest Frobenius shift of the covariance alone: 1, or sqrt 2 when an orthogonal user replaces the user."""
    return 1.0 if adjacency == "add-remove" else math.sqrt(2.0)


def rounding_shift(adjacency: Adjacency, dim: int, bits: int, ratio: float = 1.0) -> float:
    """What rounding to the grid 2^-bits can add to the shift.

    Each of the dim bias numbers and dim^2 matrix entries of a contribution moves by at most 2^-(bits+1); both users
    of a replaced pair are rounded.
    """
    one_user = math.sqrt(ratio * dim + dim**2) * 2.0 ** -(bits + 1)
    return one_user if adjacency == "add-remove" else 2 * one_user
