"""A small bandit instance, and decisions recomputed from raw data, to test the reference itself with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedbandit.paper.reference import NonPrivate, Run, StreamProtocol

DIM = 3
LAMBDA = 4.0


def radius(t: int) -> float:
    return 0.4 + 0.01 * t


class Users:
    """A small instance, every number drawn beforehand; the number of arms differs between decisions."""

    def __init__(self, silos: int, rounds: int, seed: int = 7) -> None:
        generator = np.random.default_rng(seed)
        self.silos, self.rounds = silos, rounds
        self.theta = self.unit(generator, 1)[0]
        self.arms = {(t, i): self.unit(generator, 4 + (t + i) % 3) for t in range(1, rounds + 1) for i in range(silos)}
        self.uniform = generator.random((rounds + 1, silos))

    @staticmethod
    def unit(generator: np.random.Generator, rows: int) -> np.ndarray:
        direction = generator.normal(size=(rows, DIM - 1))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        return np.hstack([direction, np.ones((rows, 1))]) / math.sqrt(2)

    def contexts(self, t: int, i: int) -> np.ndarray:
        return self.arms[t, i]

    def mean(self, t: int, i: int, a: int) -> float:
        return float(self.arms[t, i][a] @ self.theta)

    def reward(self, t: int, i: int, a: int) -> float:
        return float(self.uniform[t, i] < self.mean(t, i, a))

    def arguments(self, protocols: Sequence[StreamProtocol] | None = None) -> dict[str, Any]:
        bias, covariance = protocols or (NonPrivate(), NonPrivate())
        return {
            "silos": self.silos,
            "rounds": self.rounds,
            "dim": DIM,
            "regulariser": LAMBDA,
            "radius": radius,
            "contexts": self.contexts,
            "reward": self.reward,
            "mean": self.mean,
            "bias_protocol": bias,
            "covariance_protocol": covariance,
        }


class Recounting(NonPrivate):
    """No privacy, and a check that what a silo hands over is the sum of the data points beside it."""

    def randomize(self, i: int, gamma: np.ndarray, points: Sequence[np.ndarray]) -> np.ndarray:
        np.testing.assert_allclose(gamma, np.sum(points, axis=0), rtol=0, atol=1e-12)
        return super().randomize(i, gamma, points)


def gaussian_noise(steps: int, silos: int, sigma: float, seed: int = 3):
    """Bias noise (k, i) -> (d,) and symmetric covariance noise (k, i) -> (d, d), k from 1."""
    generator = np.random.default_rng(seed)
    vectors = generator.normal(scale=sigma, size=(steps + 1, silos, DIM))
    triangles = np.triu(generator.normal(scale=sigma, size=(steps + 1, silos, DIM, DIM)))
    matrices = triangles + np.triu(triangles, 1).swapaxes(-1, -2)
    return (lambda k, i: vectors[k, i]), (lambda k, i: matrices[k, i])


def tree_nodes(k: int) -> list[int]:
    """The releases whose sum is prefix k, by clearing the lowest bit: 6 = 110 needs releases 6 and 4."""
    nodes = []
    while k:
        nodes.append(k)
        k &= k - 1
    return nodes


def replay(run: Run, users: Users, noise_of_prefix, acts_on_own_batch: bool) -> list[tuple[int, int]]:
    """Decisions that do not maximise the score recomputed from the run's own history by stacking raw data."""
    rows = np.array(
        [[users.arms[t, i][run.actions[t - 1, i]] for i in range(users.silos)] for t in range(1, users.rounds + 1)]
    )  # (rounds, silos, dim)
    ys = np.array(
        [[users.reward(t, i, run.actions[t - 1, i]) for i in range(users.silos)] for t in range(1, users.rounds + 1)]
    )
    wrong = []
    for t in range(1, users.rounds + 1):
        k = sum(s < t for s in run.sync_times)
        last = run.sync_times[k - 1] if k else 0
        bias_noise, covariance_noise = noise_of_prefix(k)
        for i in range(users.silos):
            own = slice(last, t - 1) if acts_on_own_batch else slice(0, 0)
            X = np.vstack([rows[:last].reshape(-1, DIM), rows[own, i]])
            y = np.concatenate([ys[:last].ravel(), ys[own, i]])
            V = LAMBDA * np.eye(DIM) + X.T @ X + covariance_noise
            features = users.arms[t, i]
            widths = np.linalg.norm(np.linalg.solve(np.linalg.cholesky(V), features.T), axis=0)
            scores = features @ np.linalg.solve(V, X.T @ y + bias_noise) + radius(t) * widths
            if np.argmax(scores) != run.actions[t - 1, i]:
                wrong.append((t, i))
    return wrong


def no_noise(k: int):
    return np.zeros(DIM), np.zeros((DIM, DIM))
