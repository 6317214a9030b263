"""The action sets of a real data set, of different sizes, with a linear model that is taken as the truth.

`bounded_model` turns any linear model into one that the theory covers: norm at most 1, means in [0, 1], still exactly
linear.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedbandit import _validate
from fedbandit._arrays import Floats, Integers, Singles
from fedbandit._validate import ArgumentError

__all__ = ["CONSTANT", "ROUND_DOWN", "ActionTable", "BoundedModel", "bounded_model", "with_constant"]

LINEARITY = 1e-4  # how far a mean may lie from <x, theta>; the features are float32
CONSTANT = 2.0**-0.5  # the constant entry of a row; the rest of the row has norm at most 1/sqrt 2 too
ROUND_DOWN = 1 - 2.0**-23  # keeps a row of norm 1 at norm <= 1 when its entries are rounded to float32


@dataclass(frozen=True)
class ActionTable:
    """Stacked action sets: set s is the rows offsets[s]:offsets[s+1], and its means are <x, theta>.

    Promises, checked on construction: every number is finite, rows have norm at most 1, no set is empty, and
    means = features @ theta. A `bounded` table also has means in [0, 1] and a theta of norm at most 1, so that
    Bernoulli rewards with these means are an exactly linear bandit. A table that is not bounded is only for noiseless
    rewards: the means themselves.

    With `outcomes`, the data themselves decide the reward of each row. Outcomes need not be linear in the features:
    `means` is then the best linear fit, in its own units, so regret is measured only against outcomes or only against
    means.
    """

    features: Singles  # (rows, dim)
    offsets: Integers  # (sets + 1,)
    means: Floats  # (rows,)
    theta: Floats  # (dim,)
    description: str  # what was dropped, how rows were scaled, what the model is
    outcomes: Floats | None = None  # (rows,), the reward of each row if the data give it
    bounded: bool = True

    def __post_init__(self) -> None:
        self._check_shapes()
        self._check_values()
        if self.bounded:
            self._check_bounds()

    @property
    def sets(self) -> int:
        """How many action sets there are."""
        return len(self.offsets) - 1

    @property
    def dim(self) -> int:
        """Dimension of the features."""
        return int(self.features.shape[1])

    def divided(self, silos: int) -> Integers:
        """Bounds (silos + 1,) of equal contiguous ranges of sets: sizes differ by at most one."""
        silos = _validate.count("silos", silos)
        if silos > self.sets:
            raise ArgumentError("silos", f"must be at most the number of action sets, {self.sets}, got {silos}")
        return np.arange(silos + 1, dtype=np.int64) * self.sets // silos

    def _check_shapes(self) -> None:
        if self.features.ndim != 2 or self.features.size == 0:
            raise ArgumentError("features", f"must have shape (rows, dim) with both >= 1, got {self.features.shape}")
        rows, dim = self.features.shape
        if self.theta.shape != (dim,):
            raise ArgumentError("theta", f"must have shape ({dim},), got {self.theta.shape}")
        for name, column in (("means", self.means), ("outcomes", self.outcomes)):
            if column is not None and column.shape != (rows,):
                raise ArgumentError(name, f"must have shape ({rows},), got {column.shape}")
        if self.offsets.ndim != 1 or len(self.offsets) < 2:
            raise ArgumentError(
                "offsets", f"must have shape (sets + 1,) with one set or more, got {self.offsets.shape}"
            )
        if self.offsets[0] != 0 or self.offsets[-1] != rows:
            ends = f"{self.offsets[0]}..{self.offsets[-1]}"
            raise ArgumentError("offsets", f"must run from 0 to the {rows} rows, got {ends}")
        empty = np.flatnonzero(np.diff(self.offsets) <= 0)
        if empty.size:
            raise ArgumentError("offsets", f"must increase: no set may be empty, but set {empty[0]} is")

    def _check_values(self) -> None:
        for name in ("features", "means", "theta", "outcomes"):
            array = getattr(self, name)
            if array is not None and not np.isfinite(array).all():
                raise ArgumentError(name, "must be finite, got NaN or infinity")
        largest = float(np.sqrt(np.einsum("ij,ij->i", self.features, self.features, dtype=np.float64).max()))
        if largest > 1 + _validate.NORM_SLACK:
            raise ArgumentError("features", f"must have rows of norm at most 1, got {largest:.6g}")
        miss = float(np.abs(self.features @ self.theta.astype(np.float32) - self.means).max())
        if miss > LINEARITY * max(1.0, float(np.linalg.norm(self.theta))):
            raise ArgumentError("means", f"must be features @ theta, but one is {miss:.3g} away from it")

    def _check_bounds(self) -> None:
        norm = float(np.linalg.norm(self.theta))
        if norm > 1 + _validate.NORM_SLACK:
            raise ArgumentError("theta", f"must have norm at most 1 in a bounded table, got {norm:.6g}")
        for name, column in (("means", self.means), ("outcomes", self.outcomes)):
            if column is not None and (column.min() < 0 or column.max() > 1):
                ends = f"{column.min():.6g}..{column.max():.6g}"
                raise ArgumentError(name, f"must lie in [0, 1] in a bounded table, got {ends}")


class BoundedModel(NamedTuple):
    """means = scale * (<x, weights> + shift) = <x, theta>: the same best actions, the same ratios of gaps."""

    theta: Floats  # (dim,), norm <= 1
    means: Floats  # (rows,), in [0, 1]
    shift: float
    scale: float

    def __str__(self) -> str:
        spread = f"from {self.means.min():.3g} to {self.means.max():.3g}"
        sign = "-" if self.shift < 0 else "+"
        return f"{self.scale:.4g} x (prediction {sign} {abs(self.shift):.4g}), {spread}"


def with_constant(rest: Floats) -> Singles:
    """Rows (1, rest) / sqrt 2, as in the paper's synthetic instance: their norm is <= 1 if the norm of `rest` is."""
    constant = np.full((rest.shape[0], 1), 1.0)
    return (np.concatenate([constant, rest], axis=1) * (CONSTANT * ROUND_DOWN)).astype(np.float32)


def bounded_model(features: Singles, weights: Floats, ones: Floats) -> BoundedModel:
    """Shift and scale a linear model into [0, 1], as little as its norm allows.

    `ones` (dim,) has <x, ones> = 1 for every row x (the constant column makes that possible), so adding a multiple of
    it shifts all predictions by the same amount. Of all shifts with no prediction below 0, this takes the one that
    makes theta shortest, and so the gaps largest once theta is scaled to norm at most 1.
    """
    predictions = features.astype(np.float64) @ weights
    if not predictions.max() > predictions.min():
        raise ValueError(
            "the fitted model predicts the same for every action: there is nothing to learn from these data"
        )
    shift = float(max(-predictions.min(), -(weights @ ones) / (ones @ ones)))
    shifted = weights + shift * ones
    scale = float(min(1 / np.linalg.norm(shifted), 1 / (predictions.max() + shift)))
    # The clip only removes rounding: scale * (predictions + shift) lies in [0, 1] up to the last bits.
    means = np.clip(scale * (predictions + shift), 0.0, 1.0)
    return BoundedModel(scale * shifted, means, shift, scale)
