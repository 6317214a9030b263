"""Action sets of a real data set, ragged, with the linear model that is taken as the truth behind them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedbandit import _validate

LINEARITY = 1e-4  # how far a mean may lie from <x, theta>; the features are float32


@dataclass(frozen=True)
class ActionTable:
    """Action sets one under another: set s is the rows offsets[s]:offsets[s+1], its means are <x, theta>.

    Promises, checked on construction: every number is finite, rows have norm at most 1, no set is empty, and
    means = features @ theta. A `bounded` table also has means in [0, 1] and a theta of norm at most 1, so a
    Bernoulli reward with that mean is an exactly linear bandit. A table that is not bounded is for noiseless
    rewards only, the means themselves.

    With `outcomes` the data themselves decide the reward of each row. These need not be linear in the
    features: `means` is then the best linear fit, in units of its own, so regret is measured against outcomes
    alone or against means alone.
    """

    features: NDArray[np.float32]  # (rows, dim)
    offsets: NDArray[np.int64]  # (sets + 1,)
    means: NDArray[np.float64]  # (rows,)
    theta: NDArray[np.float64]  # (dim,)
    description: str  # what was dropped, how rows were scaled, what the model is
    outcomes: NDArray[np.float64] | None = None  # (rows,), the reward of each row where the data hold it
    bounded: bool = True

    def __post_init__(self) -> None:
        self._check_shapes()
        self._check_values()
        if self.bounded:
            self._check_bounds()

    @property
    def sets(self) -> int:
        return len(self.offsets) - 1

    @property
    def dim(self) -> int:
        return int(self.features.shape[1])

    @property
    def largest_set(self) -> int:
        """The most actions a single set offers."""
        return int(np.diff(self.offsets).max())

    def divided(self, silos: int) -> NDArray[np.int64]:
        """Bounds (silos + 1,) of equal contiguous ranges of sets: sizes differ by at most one."""
        silos = _validate.count("silos", silos)
        if silos > self.sets:
            raise ValueError(f"silos must be at most the number of action sets, {self.sets}, got {silos}")
        return np.arange(silos + 1, dtype=np.int64) * self.sets // silos

    def _check_shapes(self) -> None:
        if self.features.ndim != 2 or self.features.size == 0:
            raise ValueError(f"features must have shape (rows, dim) with both >= 1, got {self.features.shape}")
        rows, dim = self.features.shape
        if self.theta.shape != (dim,):
            raise ValueError(f"theta must have shape ({dim},), got {self.theta.shape}")
        for name, column in (("means", self.means), ("outcomes", self.outcomes)):
            if column is not None and column.shape != (rows,):
                raise ValueError(f"{name} must have shape ({rows},), got {column.shape}")
        if self.offsets.ndim != 1 or len(self.offsets) < 2:
            raise ValueError(f"offsets must have shape (sets + 1,) with a set or more, got {self.offsets.shape}")
        if self.offsets[0] != 0 or self.offsets[-1] != rows:
            ends = f"{self.offsets[0]}..{self.offsets[-1]}"
            raise ValueError(f"offsets must run from 0 to the {rows} rows, got {ends}")
        empty = np.flatnonzero(np.diff(self.offsets) <= 0)
        if empty.size:
            raise ValueError(f"offsets must increase, no set may be empty, but set {empty[0]} is")

    def _check_values(self) -> None:
        for name in ("features", "means", "theta", "outcomes"):
            array = getattr(self, name)
            if array is not None and not np.isfinite(array).all():
                raise ValueError(f"{name} must be finite, got NaN or infinity")
        largest = float(np.sqrt(np.einsum("ij,ij->i", self.features, self.features, dtype=np.float64).max()))
        if largest > 1 + _validate.NORM_SLACK:
            raise ValueError(f"features must have rows of norm at most 1, got {largest:.6g}")
        miss = float(np.abs(self.features @ self.theta.astype(np.float32) - self.means).max())
        if miss > LINEARITY * max(1.0, float(np.linalg.norm(self.theta))):
            raise ValueError(f"means must be features @ theta, but one is {miss:.3g} away from it")

    def _check_bounds(self) -> None:
        norm = float(np.linalg.norm(self.theta))
        if norm > 1 + _validate.NORM_SLACK:
            raise ValueError(f"theta must have norm at most 1 in a bounded table, got {norm:.6g}")
        for name, column in (("means", self.means), ("outcomes", self.outcomes)):
            if column is not None and (column.min() < 0 or column.max() > 1):
                ends = f"{column.min():.6g}..{column.max():.6g}"
                raise ValueError(f"{name} must lie in [0, 1] in a bounded table, got {ends}")
