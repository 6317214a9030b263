"""The actions that a silo chooses from: features sent with the request, or a set that was registered before."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from fedbandit import _validate
from fedbandit._arrays import Floats, Indices
from fedbandit._validate import ArgumentError
from fedbandit.bandit import linucb
from fedbandit.bandit.linucb import Model
from fedbandit.bandit.policies import Pick, Policy, drawn

__all__ = [
    "MAX_ARMS",
    "ActionSet",
    "Appraisal",
    "Chooser",
    "QuickAppraisal",
    "checked",
    "checked_many",
    "choose_many",
    "from_bytes",
    "inside",
    "into_ball",
    "numbered",
    "subset_of",
]

MAX_ARMS = 100_000
SINGLE = np.dtype("<f4")
BLOCK = 2**15  # how many numbers are scored at a time
MOST = (1 + _validate.NORM_SLACK) ** 2  # the largest square of a norm that is accepted


class ActionSet:
    """A registered set. Scores and the policy's probabilities are computed once per model; after that, a choice is one
    look-up."""

    def __init__(self, features: Floats) -> None:
        self.features = features
        self._scored: tuple[Model, Policy, Appraisal] | None = None

    def score(self, model: Model, policy: Policy) -> Appraisal:
        """The whole set, scored by this model under this policy."""
        known = self._scored
        if known is None or known[0] is not model or known[1] != policy:
            known = self._scored = (model, policy, Appraisal.of(self.features, model, policy))
        return known[2]


class Appraisal:
    """Actions with their scores under a model, and the policy that chooses among them."""

    def __init__(self, features: Floats, means: Floats, spreads: Floats, policy: Policy) -> None:
        self._features, self._means, self._spreads, self._policy = features, means, spreads, policy
        self._best: int | None = None

    @classmethod
    def of(cls, features: Floats, model: Model, policy: Policy) -> Self:
        return cls(features, *linucb.scores(features, model), policy)

    def choose(self, allowed: Sequence[int] | None, chance: Callable[[], float]) -> Pick:
        """The policy's choice among the allowed actions; `chance` gives uniform numbers in [0, 1)."""
        if allowed is not None:
            subset = subset_of(allowed, len(self._means))
            choice = self._among(subset, chance())
            return Pick(int(subset[choice.action]), choice.propensity)
        if not self._policy.certain:
            return drawn(self._probabilities, chance())
        if self._best is None:
            self._best = int(np.argmax(self._means + self._spreads))
        return Pick(self._best, 1.0)

    def row(self, action: int) -> Floats:
        """The features of an action, inside the unit ball."""
        return _shortened(self._features[action])

    def likely(self, allowed: Sequence[int] | None) -> Floats:
        """The probability of every action, 0 for those that are not allowed."""
        if allowed is None:
            return self._probabilities
        subset, likely = subset_of(allowed, len(self._means)), np.zeros(len(self._means))
        likely[subset] = self._policy.probabilities(self._means[subset], self._spreads[subset])
        return likely

    @cached_property
    def _probabilities(self) -> Floats:
        return self._policy.probabilities(self._means, self._spreads)

    def _among(self, subset: Indices, chance: float) -> Pick:
        return self._policy.choose(self._means[subset], self._spreads[subset], chance)


def choose_many(means: Floats, spreads: Floats, policy: Policy, chance: Callable[[], float]) -> tuple[Indices, Floats]:
    """The policy's choices for many people (people, arms) at once, and their probabilities."""
    people = len(means)
    if policy.certain:
        return np.argmax(means + spreads, axis=-1), np.ones(people)
    choices = [drawn(row, chance()) for row in policy.probabilities(means, spreads)]
    return np.array([one.action for one in choices], dtype=np.intp), np.array([one.propensity for one in choices])


class Chooser:
    """Checks the actions that came with a request, and chooses the best. It works from the start; after `quicken` has
    loaded compiled code, which makes the same decisions, it is several times as fast."""

    def __init__(self, dim: int) -> None:
        self._dim = dim
        self._weights_of: Callable[[Model], Floats]
        self._best: Callable[..., int] | None = None
        self._best_of_many: Callable[..., tuple[Indices, Floats]] | None = None
        self._weighed: tuple[Model, tuple[Floats, float]] | None = None

    def quicken(self) -> None:
        """Load the compiled code. The first time on a machine it must be compiled, which takes some seconds."""
        from fedbandit.bandit.compiled import best_of, best_of_many, weights_of

        self._weights_of = weights_of
        self._best, self._best_of_many = best_of, best_of_many

    def _numbers(self, model: Model) -> tuple[Floats, float]:
        """A model in the form that the compiled code takes."""
        known = self._weighed
        if known is None or known[0] is not model:
            known = self._weighed = (model, (self._weights_of(model), float(model.radius)))
        return known[1]

    def one(self, actions: ArrayLike, model: Model, allowed: Sequence[int] | None) -> tuple[int, Floats]:
        """The best of the `actions` (only of the `allowed` ones, if given), and its features, inside the unit ball."""
        if self._best is not None and allowed is None:
            features = _as_array(actions, self._dim)
            if features is not None and _fits(features, 2, self._dim):
                action = self._best(features, *self._numbers(model), MOST)
                if action >= 0:
                    return action, _shortened(features[action])
        features = checked(actions, self._dim)
        subset = None if allowed is None else subset_of(allowed, len(features))
        action = linucb.decide(features if subset is None else features[subset], model)
        action = action if subset is None else int(subset[action])
        return action, _shortened(features[action])

    def many(self, contexts: ArrayLike, model: Model) -> tuple[Indices, Floats]:
        """The best of each person's actions, (people, arms, dim) to (people,), and its features."""
        features = np.asarray(contexts, dtype=np.float64)
        if self._best_of_many is not None and _fits(features, 3, self._dim):
            chosen, rows = self._best_of_many(features, *self._numbers(model), MOST)
            if not (chosen < 0).any():
                return chosen, inside(rows)
        features = checked_many(features, self._dim)
        chosen = _best_of_many(features, model)
        return chosen, inside(features[np.arange(len(features)), chosen])


class QuickAppraisal:
    """Actions that came with a request, under a policy that takes the highest upper bound: they are scored only when
    one is chosen."""

    def __init__(self, chooser: Chooser, actions: ArrayLike, model: Model) -> None:
        self._chooser, self._actions, self._model = chooser, actions, model
        self._row: Floats = np.empty(0)

    def choose(self, allowed: Sequence[int] | None, chance: Callable[[], float]) -> Pick:
        """The best of the allowed actions; chance plays no part."""
        action, self._row = self._chooser.one(self._actions, self._model, allowed)
        return Pick(action, 1.0)

    def row(self, action: int) -> Floats:
        """The features of the action that was chosen, inside the unit ball."""
        return self._row


def _fits(features: Floats, sides: int, dim: int) -> bool:
    """Whether the compiled code can take these features."""
    fits = features.ndim == sides and features.shape[-1] == dim and 0 < features.shape[-2] <= MAX_ARMS
    return fits and features.flags.c_contiguous


def _best_of_many(features: Floats, model: Model) -> Indices:
    """The best of each person's actions, (people,), scored in blocks that stay in the cache."""
    people, arms, dim = features.shape
    block = max(1, BLOCK // (arms * dim))
    best = np.empty(people, dtype=np.intp)
    for at in range(0, people, block):
        some = features[at : at + block]
        best[at : at + block] = linucb.upper_bounds(some.reshape(-1, dim), model).reshape(-1, arms).argmax(axis=-1)
    return best


def _shortened(row: Floats) -> Floats:
    """A checked row, (dim,); if it is longer than 1 by rounding, it is scaled to norm 1."""
    square = row @ row
    return row if square <= 1 else row / np.sqrt(square)


def checked(actions: ArrayLike, dim: int) -> Floats:
    """Features from outside, with their shape, number of arms, finiteness and norms checked. Rows may be longer than 1
    by rounding; the chosen one is shortened later."""
    features = _as_array(actions, dim)
    if features is None or features.ndim != 2 or features.shape[1] != dim or _longest(features) is None:
        features = _validate.features("actions", actions, dim)  # says what is wrong
    if not 0 < len(features) <= MAX_ARMS:
        raise ArgumentError("actions", f"must be between 1 and {MAX_ARMS}, got {len(features)}")
    return features


def checked_many(contexts: ArrayLike, dim: int) -> Floats:
    """Features (people, arms, dim) from outside, checked as `checked` does for one person."""
    array = np.asarray(contexts, dtype=np.float64)
    if array.ndim != 3 or array.shape[-1] != dim or not 0 < array.shape[1] <= MAX_ARMS:
        raise ArgumentError("contexts", f"must have shape (people, arms, {dim}), got {array.shape}")
    if _longest(array) is None:
        return np.stack([_validate.features("contexts", one, dim) for one in array])  # says what is wrong
    return array


def numbered(field: str, actions: Sequence[Any], names: Sequence[str]) -> Sequence[int]:
    """The indices of actions that are given by names; indices are returned unchanged."""
    if not any(isinstance(one, str) for one in actions):
        return actions
    known = {name: number for number, name in enumerate(names)}
    unknown = [one for one in actions if not isinstance(one, str) or one not in known]
    if unknown:
        raise ArgumentError(field, f"must be ids of offered actions, got {str(unknown[0])[:100]!r}")
    return [known[one] for one in actions]


def from_bytes(data: bytes, dim: int) -> Floats:
    """Features sent as the bytes of little-endian float32 numbers, row after row."""
    if not data or len(data) % (SINGLE.itemsize * dim):
        raise ArgumentError(
            "actions", f"must be rows of {dim} float32 numbers, {SINGLE.itemsize * dim} bytes each, got {len(data)}"
        )
    return np.frombuffer(data, SINGLE).reshape(-1, dim).astype(np.float64)


def subset_of(allowed: Sequence[int], arms: int, field: str = "allowed") -> Indices:
    """Indices of the allowed actions, in ascending order, so that ties go to the lowest."""
    if any(isinstance(index, bool) or not isinstance(index, (int, np.integer)) for index in allowed):
        raise ArgumentError(field, "must hold whole numbers")
    if len(allowed) == 0:
        raise ArgumentError(field, "must name at least one action")
    if min(allowed) < 0 or max(allowed) >= arms:
        raise ArgumentError(field, f"must lie between 0 and {arms - 1}, got {min(allowed)} to {max(allowed)}")
    return np.unique(np.asarray(allowed, dtype=np.intp))


def _as_array(actions: ArrayLike, dim: int) -> Floats | None:
    try:
        if isinstance(actions, list) and set(map(len, actions)) == {dim}:  # from JSON: packing is the fastest
            packed = struct.pack(f"{len(actions) * dim}d", *chain.from_iterable(actions))
            return np.frombuffer(packed).reshape(-1, dim)
        return np.asarray(actions, dtype=np.float64)
    except (TypeError, ValueError, OverflowError, struct.error):
        return None


def into_ball(features: Floats) -> Floats | None:
    """The rows, with those that are longer than 1 by rounding alone shortened to norm 1; None if a row is longer than
    rounding explains, or not finite.

    A silo computes a person's contribution from such a row: see `releasing` for the bound that follows.
    """
    return None if _longest(features) is None else inside(features)


def inside(features: Floats) -> Floats:
    """Features that were checked, with every row inside the unit ball."""
    # A registered set is recognised by its bytes, so they must not depend on how the squares are added up elsewhere.
    squares = np.einsum("...d,...d->...", features, features)
    return np.asarray(features / np.sqrt(np.maximum(squares, 1.0))[..., None])


def _longest(features: Floats) -> float | None:
    """The largest square of a row's norm; None if it is larger than `MOST`, or not a number."""
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow or NaN is refused below
        squares = np.vecdot(features, features).ravel()
    largest = float(squares[squares.argmax()]) if squares.size else 0.0  # argmax finds a NaN if there is one
    return largest if largest <= MOST else None
