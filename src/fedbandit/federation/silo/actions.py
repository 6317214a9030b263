"""What a silo chooses among: features sent with the request, or a set that was registered before."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import ArrayLike

from fedbandit import _validate
from fedbandit._arrays import Floats, Indices
from fedbandit._validate import ArgumentError
from fedbandit.bandit import linucb
from fedbandit.bandit.linucb import Model

__all__ = ["MAX_ARMS", "ActionSet", "checked", "checked_many", "choose", "into_ball", "subset_of"]

MAX_ARMS = 100_000


class ActionSet:
    """A registered set: its upper confidence bounds are computed once per model, then a choice is one argmax."""

    def __init__(self, features: Floats) -> None:
        self.features = features
        self._scored: tuple[Model, Floats] | None = None

    def choose(self, model: Model, allowed: Sequence[int] | None) -> int:
        scores = self._scores(model)
        if allowed is None:
            return int(np.argmax(scores))
        subset = subset_of(allowed, len(scores))
        return int(subset[np.argmax(scores[subset])])

    def _scores(self, model: Model) -> Floats:
        scored = self._scored
        if scored is None or scored[0] is not model:
            scored = self._scored = (model, linucb.upper_bounds(self.features, model))
        return scored[1]


def choose(features: Floats, model: Model, allowed: Sequence[int] | None) -> int:
    """The best action of a set that was sent with the request."""
    if allowed is None:
        return linucb.decide(features, model)
    subset = subset_of(allowed, len(features))
    return int(subset[linucb.decide(features[subset], model)])


def checked(actions: ArrayLike, dim: int) -> Floats:
    """Features from outside: shape, number of arms, finiteness and norms are checked; rows come back inside the unit
    ball."""
    features = _as_array(actions, dim)
    inside = None if features is None or features.ndim != 2 or features.shape[1] != dim else into_ball(features)
    if inside is None:
        inside = _validate.features("actions", actions, dim)  # says what is wrong
    if not 0 < len(inside) <= MAX_ARMS:
        raise ArgumentError("actions", f"must be between 1 and {MAX_ARMS}, got {len(inside)}")
    return inside


def checked_many(contexts: ArrayLike, dim: int) -> Floats:
    """Features (people, arms, dim) from outside, checked alike."""
    array = np.asarray(contexts, dtype=np.float64)
    if array.ndim != 3 or array.shape[-1] != dim or not 0 < array.shape[1] <= MAX_ARMS:
        raise ArgumentError("contexts", f"must have shape (people, arms, {dim}), got {array.shape}")
    inside = into_ball(array)
    return np.stack([_validate.features("contexts", one, dim) for one in array]) if inside is None else inside


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
            return np.fromiter(chain.from_iterable(actions), np.float64, len(actions) * dim).reshape(-1, dim)
        return np.asarray(actions, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return None


def into_ball(features: Floats) -> Floats | None:
    """The rows, those longer than 1 by rounding alone shortened to norm 1; None if any is longer than that, or not
    finite.

    What a silo stores of a person is computed from such a row: see `releasing` for the bound that follows.
    """
    squares = np.einsum("...d,...d->...", features, features)
    largest = squares.max(initial=0.0)
    if not largest <= (1 + _validate.NORM_SLACK) ** 2:  # NaN and infinity fail the comparison
        return None
    return features if largest <= 1 else np.asarray(features / np.sqrt(np.maximum(squares, 1.0))[..., None])
