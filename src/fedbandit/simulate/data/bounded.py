"""From any linear model to one the theory covers: norm at most 1, means in [0, 1], still exactly linear."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CONSTANT = 2.0**-0.5  # the constant entry of a row; the rest of the row has norm at most 1/sqrt 2 too
ROUND_DOWN = 1 - 2.0**-23  # keeps a row of norm 1 at norm <= 1 when its entries are rounded to float32


class BoundedModel(NamedTuple):
    """means = scale * (<x, weights> + shift) = <x, theta>: the same best actions, the same ratios of gaps."""

    theta: NDArray[np.float64]  # (dim,), norm <= 1
    means: NDArray[np.float64]  # (rows,), in [0, 1]
    shift: float
    scale: float

    def __str__(self) -> str:
        spread = f"from {self.means.min():.3g} to {self.means.max():.3g}"
        return f"{self.scale:.4g} (prediction {self.shift:+.4g}), {spread}"


def with_constant(rest: NDArray[np.float64]) -> NDArray[np.float32]:
    """Rows (1, rest) / sqrt 2, as in the paper's synthetic instance: norm <= 1 if that of `rest` is."""
    constant = np.full((rest.shape[0], 1), 1.0)
    return (np.concatenate([constant, rest], axis=1) * (CONSTANT * ROUND_DOWN)).astype(np.float32)


def bounded_model(
    features: NDArray[np.float32], weights: NDArray[np.float64], ones: NDArray[np.float64]
) -> BoundedModel:
    """Shift and scale a linear model into [0, 1], as little as its norm allows.

    `ones` (dim,) has <x, ones> = 1 for every row x (the constant column makes it), so adding a multiple of
    it shifts every prediction alike. Of all shifts with no prediction below 0 this takes the one that leaves
    theta shortest, hence the largest gaps once theta is scaled to norm at most 1.
    """
    predictions = features.astype(np.float64) @ weights
    if not predictions.max() > predictions.min():
        raise ValueError(
            "the fitted model predicts the same for every action: there is nothing to learn from these data"
        )
    shift = float(max(-predictions.min(), -(weights @ ones) / (ones @ ones)))
    shifted = weights + shift * ones
    scale = float(min(1 / np.linalg.norm(shifted), 1 / (predictions.max() + shift)))
    # The clip only takes off rounding: predictions + shift is >= 0 and scale * it <= 1 up to the last bits.
    means = np.clip(scale * (predictions + shift), 0.0, 1.0)
    return BoundedModel(scale * shifted, means, shift, scale)
