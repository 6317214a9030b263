"""Checks of what enters the library, in one place: each error names the argument, what it got and what it should be."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

NORM_SLACK = 1e-6  # features scaled to norm 1 in float32 land this close to it


def positive(name: str, value: float) -> float:
    """A finite number above zero."""
    if not (_is_number(value) and math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a finite number > 0, got {value!r}")
    return float(value)


def within(name: str, value: float, low: float, high: float) -> float:
    """A number strictly between `low` and `high`."""
    if not (_is_number(value) and low < value < high):
        raise ValueError(f"{name} must lie strictly between {low:g} and {high:g}, got {value!r}")
    return float(value)


def count(name: str, value: int, least: int = 1) -> int:
    """A whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{name} must be a whole number >= {least}, got {value!r}")
    return int(value)


def one_of(name: str, value: str, allowed: Iterable[str]) -> str:
    """One of the names in `allowed`."""
    names = list(allowed)
    if value not in names:
        raise ValueError(f"{name} must be one of {', '.join(names)}; got {value!r}")
    return value


def features(name: str, value: ArrayLike, dim: int) -> NDArray[np.float64]:
    """An action set: (arms, dim), finite, at least one row, every row of norm at most 1.

    Rows longer than that by rounding alone come back at norm 1: sensitivities count on it.
    """
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of numbers: {error}") from None
    if array.ndim != 2 or array.shape[1] != dim:
        raise ValueError(f"{name} must have shape (arms, {dim}), got {array.shape}")
    if array.shape[0] == 0:
        raise ValueError(f"{name} must hold at least one action, got an empty set")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got NaN or infinity")
    norms = np.linalg.norm(array, axis=1)
    if norms.max() > 1 + NORM_SLACK:
        raise ValueError(f"{name} must have rows of norm at most 1, got {norms.max():.6g}")
    return np.asarray(array / np.maximum(norms, 1.0)[:, None])


def reward(name: str, value: float) -> float:
    """A reward in [0, 1]."""
    if not (_is_number(value) and 0 <= value <= 1):
        raise ValueError(f"{name} must lie in [0, 1], got {value!r}")
    return float(value)


def known_keys(where: str, given: Iterable[str], allowed: Iterable[str], required: Iterable[str] = ()) -> None:
    """Refuse a name that nothing would read, and the lack of one that must be there."""
    given = set(given)
    names = sorted(allowed)
    unknown = sorted(given - set(names))
    if unknown:
        raise ValueError(f"{where} does not know {', '.join(map(repr, unknown))}; it takes {', '.join(names)}")
    missing = [name for name in required if name not in given]
    if missing:
        raise ValueError(f"{where} must give {', '.join(map(repr, missing))}")


def _is_number(value: Any) -> bool:
    return type(value) is float or (
        isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    )
