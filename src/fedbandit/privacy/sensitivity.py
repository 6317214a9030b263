"""How far one user can move the statistics: the largest l2 shift of the pair (bias, covariance).

The bias is measured in units of its noise and the covariance, in Frobenius norm, in units of its own; `ratio` is
(covariance noise / bias noise)^2, and distances are in units of the covariance noise. With ||x|| <= 1 and a reward
that enters as r in [-h, h] or [0, h] (h = `reward_bound`), put s = ratio h^2:

* add/remove: the user's own contribution, sqrt(s + 1);
* replace-one: unit vectors at cosine -c move the bias by h sqrt(2 + 2c) and the covariance by sqrt(2 - 2c^2); the
  largest joint shift is at c = s/2 when s <= 2, sqrt(2 + 2s + s^2/2), and at c = 1 beyond, sqrt(4s).

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
    """The largest move of one batch sum by one user, in units of the covariance noise."""

    exact: float  # of the real-valued statistics
    rounding: float  # added by keeping each contribution on a grid
    participations: int  # rounds of one silo that one user may take part in (group privacy)

    @property
    def total(self) -> float:
        """The shift that noise must hide: all of a user's rounds may fall into one batch, the worst case."""
        return self.participations * (self.exact + self.rounding)


def joint_shift(adjacency: Adjacency, reward_bound: float = 1.0, ratio: float = 1.0) -> float:
    """Largest shift of (bias, covariance) together; see the module's text."""
    _validate.one_of("adjacency", adjacency, ADJACENCIES)
    s = ratio * reward_bound**2
    if adjacency == "add-remove":
        return math.sqrt(s + 1)
    return math.sqrt(2 + 2 * s + s**2 / 2) if s <= 2 else math.sqrt(4 * s)


def late_factor(adjacency: Adjacency, reward_bound: float, ratio: float, coefficients: Floats) -> float:
    """How much further than inside one batch one round can move all releases if its reward may come in another one.

    Replacing a user may move the reward into batch j' instead of j. The releases then move by C_j u - C_j' u', of
    squared length |u|^2 |C_j|^2 + |u'|^2 |C_j'|^2 - 2 <C_j, C_j'> <u, u'>. The product <u, u'> lies between -m and
    |u|^2, where 2 |u|^2 + 2 m is the largest |u - u'|^2, `joint_shift` squared. While <C_j, C_j'> >= 0 that is no more
    than inside one batch; where columns point apart, it can be. The factor is the largest over the first 1, 2, ... rows
    of C, so that it also holds for what a ledger has spent so far. At least 1.
    """
    if adjacency == "add-remove":  # one user in one batch: nothing to cross
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
    """Largest shift of the bias alone, rewards in [0, 1]: 1, or 2 when a user is replaced by the opposite one."""
    return 1.0 if adjacency == "add-remove" else 2.0


def covariance_shift(adjacency: Adjacency) -> float:
    """Largest Frobenius shift of the covariance alone: 1, or sqrt 2 when replaced by an orthogonal one."""
    return 1.0 if adjacency == "add-remove" else math.sqrt(2.0)


def rounding_shift(adjacency: Adjacency, dim: int, bits: int, ratio: float = 1.0) -> float:
    """What rounding to the grid 2^-bits can add to the shift.

    Each of the dim bias numbers and dim^2 matrix entries of a contribution moves by at most 2^-(bits+1); both users
    of a replaced pair are rounded.
    """
    one_user = math.sqrt(ratio * dim + dim**2) * 2.0 ** -(bits + 1)
    return one_user if adjacency == "add-remove" else 2 * one_user
