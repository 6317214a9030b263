"""Users that are drawn beforehand, so that the live federation and every comparison meet the same ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


class Users(NamedTuple):
    """One user for every silo and round: the actions they can be offered, and the luck behind their reward."""

    theta: Floats  # (dim,)
    contexts: Floats  # (silos, rounds, arms, dim)
    luck: Floats  # (silos, rounds), uniform

    def means(self) -> Floats:
        """Expected reward of every action, (silos, rounds, arms)."""
        return np.asarray(self.contexts @ self.theta)

    def rewards(self, actions: Indices) -> Floats:
        """Bernoulli rewards of the actions taken, (silos, rounds): bounded, and exactly linear."""
        chosen = np.take_along_axis(self.means(), actions[..., None], axis=-1)[..., 0]
        return (self.luck < chosen).astype(float)

    def regret(self, actions: Indices) -> Floats:
        """Cumulative regret of the whole group after every round, (rounds,)."""
        means = self.means()
        chosen = np.take_along_axis(means, actions[..., None], axis=-1)[..., 0]
        return np.asarray(np.cumsum((means.max(axis=-1) - chosen).sum(axis=0)))


def draw_users(silos: int, rounds: int, dim: int, arms: int, seed: int) -> Users:
    """The paper's synthetic instance: random directions of norm 1/sqrt 2 with 1/sqrt 2 appended."""
    generator = np.random.default_rng(seed)
    return Users(
        _directions(generator, (), dim),
        _directions(generator, (silos, rounds, arms), dim),
        generator.random((silos, rounds)),
    )


def _directions(generator: np.random.Generator, shape: tuple[int, ...], dim: int) -> Floats:
    free = generator.standard_normal((*shape, dim - 1))
    free /= np.linalg.norm(free, axis=-1, keepdims=True)
    return np.asarray(np.concatenate([free, np.ones((*shape, 1))], axis=-1) / np.sqrt(2))
