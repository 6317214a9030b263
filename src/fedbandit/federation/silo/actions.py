"""What a silo chooses among: features sent with the request, or a set that was registered before."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import ArrayLike

from fedbandit import _validate
from fedbandit._arrays import Floats, Indices
from fedbandit._validate import ArgumentError
from fedbandit.bandit import linucb
from fedbandit.bandit.linucb import Model

__all__ = [
    "MAX_ARMS",
    "ActionSet",
    "checked",
    "checked_many",
    "choose",
    "from_bytes",
    "inside",
    "into_ball",
    "shortened",
    "subset_of",
]

MAX_ARMS = 100_000
SINGLE = np.dtype("<f4")
MOST = (1 + _validate.NORM_SLACK) ** 2  # of the square of a norm


class ActionSet:
    """A registered set: its upper confidence bounds, and which is the largest, are computed once per model."""

    def __init__(self, features: Floats) -> None:
        self.features = features
        self._scored: tuple[Model, Floats, int] | None = None

    def choose(self, model: Model, allowed: Sequence[int] | None) -> int:
        scored = self._scored
        if scored is None or scored[0] is not model:
            scores = linucb.upper_bounds(self.features, model)
            scored = self._scored = (model, scores, int(scores.argmax()))
        if allowed is None:
            return scored[2]
        subset = subset_of(allowed, len(self.features))
        return int(subset[scored[1][subset].argmax()])


def choose(features: Floats, model: Model, allowed: Sequence[int] | None) -> int:
    """The best action of a set that was sent with the request."""
    if allowed is None:
        return linucb.decide(features, model)
    subset = subset_of(allowed, len(features))
    return int(subset[linucb.decide(features[subset], model)])


def shortened(row: Floats) -> Floats:
    """A row that was checked, (dim,), at norm 1 if it is longer than that by rounding."""
    square = row @ row
    return row if square <= 1 else row / np.sqrt(square)


def checked(actions: ArrayLike, dim: int) -> Floats:
    """Features from outside: shape, number of arms, finiteness and norms are checked. Rows may be longer than 1 by
    rounding: the one that is chosen must be `shortened`."""
    features = _as_array(actions, dim)
    if features is None or features.ndim != 2 or features.shape[1] != dim or _longest(features) is None:
        features = _validate.features("actions", actions, dim)  # says what is wrong
    if not 0 < len(features) <= MAX_ARMS:
        raise ArgumentError("actions", f"must be between 1 and {MAX_ARMS}, got {len(features)}")
    return features


def checked_many(contexts: ArrayLike, dim: int) -> Floats:
    """Features (people, arms, dim) from outside, checked alike."""
    array = np.asarray(contexts, dtype=np.float64)
    if array.ndim != 3 or array.shape[-1] != dim or not 0 < array.shape[1] <= MAX_ARMS:
        raise ArgumentError("contexts", f"must have shape (people, arms, {dim}), got {array.shape}")
    inside = into_ball(array)
    return np.stack([_validate.features("contexts", one, dim) for one in array]) if inside is None else inside


def from_bytes(data: bytes, dim: int) -> Floats:
    """Features sent as the bytes of little-endian float32 numbers, row after row."""
    if not data or len(data) % (SINGLE.itemsize * dim):
        raise ArgumentError(
            "actions", f"must be rows of {dim} float32 numbers, {SINGLE.itemsize * dim} bytes each, got {len(data)}"
        )
    return np.frombuffer(data, SINGLE).reshape(-1, dim).astype(np.float64)


def subset_of(allowed: Sequence[int], arms: int) -> Indices:
    """Indices of the actions allowed, in ascending order, so that ties go to the lowest."""
    if any(isinstance(index, bool) or not isinstance(index, (int, np.integer)) for index in allowed):
        raise ArgumentError("allowed", "must hold whole numbers")
    if len(allowed) == 0:
        raise ArgumentError("allowed", "must name at least one action")
    if min(allowed) < 0 or max(allowed) >= arms:
        raise ArgumentError("allowed", f"must lie between 0 and {arms - 1}, got {min(allowed)} to {max(allowed)}")
    return np.unique(np.asarray(allowed, dtype=np.intp))


def _as_array(actions: ArrayLike, dim: int) -> Floats | None:
    try:
        if isinstance(actions, list) and set(map(len, actions)) == {dim}:  # from JSON: the quickest way
            packed = struct.pack(f"{len(actions) * dim}d", *chain.from_iterable(actions))
            return np.frombuffer(packed).reshape(-1, dim)
        return np.asarray(actions, dtype=np.float64)
    except (TypeError, ValueError, OverflowError, struct.error):
        return None


def into_ball(features: Floats) -> Floats | None:
    """The rows, those longer than 1 by rounding alone shortened to norm 1; None if any is longer than that, or not
    finite.

    What a silo stores of a person is computed from such a row: see `releasing` for the bound that follows.
    """
    largest = _longest(features)
    if largest is None or largest < 1 - 1e-12:
        return None if largest is None else features
    # A registered set is known by its bytes: they do not depend on how the squares were added up above.
    squares = np.einsum("...d,...d->...", features, features)
    return np.asarray(features / np.sqrt(np.maximum(squares, 1.0))[..., None])


def inside(features: Floats) -> Floats:
    """Features that were checked, with every row inside the unit ball."""
    found = into_ball(features)
    assert found is not None
    return found


def _longest(features: Floats) -> float | None:
    """The largest square of a row's norm; None if it is too large, or not a number."""
    squares = np.vecdot(features, features).ravel()
    largest = float(squares[squares.argmax()]) if squares.size else 0.0  # the argmax of NaN and others is the NaN
    return largest if largest <= MOST else None
