"""What the transcriptions share: the shape of a protocol, the decision rule, schedules, and what a run returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Array",
    "Contexts",
    "Mean",
    "Noise",
    "Radius",
    "Reward",
    "Run",
    "StreamProtocol",
    "add",
    "at_silo",
    "inverse",
    "play",
    "shortfall",
    "sync_times",
]

Array = NDArray[np.float64]

Radius = Callable[[int], float]  # t -> beta_t; rounds t are counted from 1
Contexts = Callable[[int, int], Array]  # (t, i) -> (arms, dim); called once for each (t, i), in that order, i from 0
Reward = Callable[[int, int, int], float]  # (t, i, a) -> y; called once, for the action played
Mean = Callable[[int, int, int], float]  # (t, i, a) -> <phi(c, a), theta*>; called for every action
Noise = Callable[[int, int], Array]  # (k, i) -> what silo i adds to its k-th release, in the shape of the data


class StreamProtocol(Protocol):
    """P = (R, S, A) for one stream (bias vectors or covariance matrices), with its state."""

    def randomize(self, i: int, gamma: Array, points: Sequence[Array]) -> Any:
        """R at silo i for its next batch; `gamma` is the sum of the batch, `points` are its data points."""

    def shuffle(self, messages: Sequence[Any]) -> Any:
        """S, applied to the messages of all silos, which come in the order of the silos."""

    def analyze(self, messages: Any) -> Array:
        """A: the private sum over all silos and all batches so far."""


@dataclass(frozen=True)
class Run:
    """What happened in T rounds of M silos with K syncs."""

    actions: NDArray[np.int64]  # (T, M)
    regret: Array | None  # (T,), cumulative group regret; None if no `mean` was given
    sync_times: list[int]  # (K,), rounds counted from 1
    covariances: Array  # (K, dim, dim), W_syn after each sync
    biases: Array  # (K, dim), U_syn after each sync


def play(features: Array, theta: Array, V_inv: Array, beta: float) -> int:
    """argmax_a <phi(c, a), theta> + beta ||phi(c, a)||_{V^-1}; ties go to the lowest index.

    The paper assumes that V is positive definite (Assumption Regularity). A negative squared norm shows that it is
    not. The rule then has no meaning, so such a V is refused, not repaired.
    """
    squared_norms = np.sum((features @ V_inv) * features, axis=1)  # (arms,)
    if (squared_norms < 0).any():
        raise np.linalg.LinAlgError("V must be positive definite, got a negative squared norm x^T V^-1 x")
    return int(np.argmax(features @ theta + beta * np.sqrt(squared_norms)))


def sync_times(rounds: int, batch: int | Sequence[int]) -> list[int]:
    """The rounds after which to synchronise: every `batch` rounds and the last one, or the given increasing rounds."""
    if isinstance(batch, int):
        return [t for t in range(1, rounds + 1) if t % batch == 0 or t == rounds]
    times = list(batch)
    if times != sorted(set(times)) or (times and not (times[0] >= 1 and times[-1] <= rounds)):
        raise ValueError(f"batch must be increasing rounds between 1 and {rounds}, got {times}")
    return times


def shortfall(mean: Mean, t: int, i: int, action: int, arms: int) -> float:
    """max_a <phi(c, a), theta*> - <x, theta*>, the regret of one decision."""
    return max(mean(t, i, a) for a in range(arms)) - mean(t, i, action)


def add(first: Array, *others: Array) -> Array:
    """The sum of the arrays, from left to right."""
    return sum(others, start=first)


def inverse(matrix: Array) -> Array:
    """The inverse, in double precision like everything here."""
    return np.asarray(np.linalg.inv(matrix), dtype=np.float64)


def at_silo(noise: Noise, i: int) -> Callable[[int], Array]:
    """The noise of silo i alone: k -> what it adds to its k-th release."""
    return lambda k: noise(k, i)
