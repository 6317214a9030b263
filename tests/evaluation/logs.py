"""Synthetic logs of which the truth is known."""

from __future__ import annotations

import numpy as np

from fedbandit._arrays import Floats
from fedbandit.evaluation.decisions import Decisions

ARMS, DIM = 4, 3


def shares(scores: Floats) -> Floats:
    """Softmax over the last axis."""
    grown = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(grown / grown.sum(axis=-1, keepdims=True))


class World:
    """People bring four actions; mean rewards are not linear in the rows, so no model of them is quite right."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.theta, self.habit, self.taste = rng.normal(size=(3, DIM))

    def people(self, count: int, rng: np.random.Generator) -> Floats:
        rows = rng.normal(size=(count, ARMS, DIM))
        return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True))

    def means(self, rows: Floats) -> Floats:
        return np.asarray(1 / (1 + np.exp(-2 * rows @ self.theta)))

    def logging(self, rows: Floats) -> Floats:
        return 0.7 * shares(1.5 * rows @ self.habit) + 0.3 / ARMS

    def target(self, rows: Floats) -> Floats:
        return shares(2 * rows @ self.taste)

    def truth(self) -> float:
        rows = self.people(400_000, np.random.default_rng(99))
        return float((self.target(rows) * self.means(rows)).sum(axis=-1).mean())

    def log(self, count: int, rng: np.random.Generator) -> tuple[Decisions, Floats]:
        """Decisions, and the target's probabilities of all actions."""
        rows = self.people(count, rng)
        logging = self.logging(rows)
        action = (rng.random((count, 1)) > np.cumsum(logging, axis=1)[:, :-1]).sum(axis=1)
        at = np.arange(count), action
        reward = (rng.random(count) < self.means(rows)[at]).astype(float)
        offsets = np.arange(count + 1) * ARMS
        decisions = Decisions(rows.reshape(-1, DIM), offsets, action, logging[at], reward, logged=logging.ravel())
        return decisions, self.target(rows).ravel()
