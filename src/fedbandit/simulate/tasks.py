"""Who the users are: where action sets come from, and how users respond.

A task is a description; users are drawn from it, the seed, the run, the silo and the round, so every protocol meets
the same ones and any one of them can be asked for again.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedbandit import _validate
from fedbandit.simulate.data import ActionTable, letor_table, load_letor, load_patients, warfarin_table
from fedbandit.simulate.kernels import contexts_of
from fedbandit.simulate.kernels.layout import BERNOULLI, CLIPPED, GAUSSIAN, Fresh, Rewards, Table, make_table

RewardKind = Literal["bernoulli", "gaussian", "clipped", "exact"]
REWARDS: tuple[RewardKind, ...] = ("bernoulli", "gaussian", "clipped", "exact")
CONTEXTS = ("fresh", "fixed")


@dataclass(frozen=True)
class Responses:
    """How a user's reward comes from its mean <x, theta*>.

    bernoulli: 1 with that probability, else 0: bounded and exactly linear. gaussian: plus N(0, std^2), the paper's
    simulation, which breaks the paper's own bound on rewards (no guarantee covers it). clipped: that, cut to [0, 1],
    which bends the linear model. exact: the mean itself.
    """

    kind: RewardKind = "bernoulli"
    std: float = 0.5

    def __post_init__(self) -> None:
        _validate.one_of("rewards", self.kind, REWARDS)
        _validate.positive("reward_std", self.std)

    @property
    def bounded(self) -> bool:
        """Whether rewards stay in [0, 1] where means do."""
        return self.kind != "gaussian"

    def for_kernel(self) -> Rewards:
        if self.kind == "exact":
            return Rewards(GAUSSIAN, 0.0)
        return Rewards({"bernoulli": BERNOULLI, "gaussian": GAUSSIAN, "clipped": CLIPPED}[self.kind], self.std)


@dataclass(frozen=True)
class Synthetic:
    """The paper's instance: theta* and features are random directions of norm 1/sqrt 2 with 1/sqrt 2 appended.

    `contexts`: "fresh" for every silo and round, or "fixed", one set a silo for the whole run (and one theta* for all
    runs). `basis` and `same_in_all_runs` are the published simulation's: the first arms a fixed basis, contexts
    shared by all runs.
    """

    dim: int
    arms: int
    responses: Responses = Responses()
    contexts: str = "fresh"
    basis: bool = False
    same_in_all_runs: bool = False

    def __post_init__(self) -> None:
        _validate.count("dim", self.dim, least=2)
        _validate.count("arms", self.arms)
        _validate.one_of("contexts", self.contexts, CONTEXTS)

    def theta(self, seed: int, run: int) -> NDArray[np.float64]:
        """theta* of one run."""
        direction = np.random.default_rng([seed, 0 if self.contexts == "fixed" else run]).standard_normal(self.dim - 1)
        return np.asarray(np.append(direction / np.linalg.norm(direction), 1.0) / np.sqrt(2))

    def fresh(self, seed: int, runs: tuple[int, ...]) -> Fresh:
        return Fresh(np.stack([self.theta(seed, run) for run in runs]), self.arms, self.basis)

    def fixed(self, seed: int, silos: int) -> Table:
        """One action set a silo: the contexts that its users of round 0 would have met."""
        sets = [contexts_of(seed, 0, silo, 0, self.arms, self.dim, self.basis) for silo in range(silos)]
        features = np.concatenate(sets)
        bounds = np.arange(silos + 1)
        means = features.astype(float) @ self.theta(seed, 0)
        return make_table(features, bounds * self.arms, means, np.stack([bounds[:-1], bounds[1:]], axis=1))


@dataclass(frozen=True)
class Tabled:
    """Action sets from data, divided over the silos; every user meets one of their silo's, at random."""

    table: ActionTable
    responses: Responses = Responses()
    outcomes: bool = False  # rewards and regret by the data's own outcomes instead of the linear model's means

    def __post_init__(self) -> None:
        if self.responses.kind == "bernoulli" and not self.table.bounded:
            raise ValueError("rewards must be 'exact' or 'gaussian' for a table whose means leave [0, 1]")
        if self.outcomes and self.table.outcomes is None:
            raise ValueError("outcomes must be in the table to be used; this one has none")
        if self.outcomes and self.responses.kind != "exact":
            raise ValueError(f"rewards must be 'exact' where the data decide them, got {self.responses.kind!r}")

    @property
    def dim(self) -> int:
        return self.table.dim

    def prepared(self, silos: int) -> Table:
        bounds = self.table.divided(silos)
        ranges = np.stack([bounds[:-1], bounds[1:]], axis=1)
        means = self.table.outcomes if self.outcomes else self.table.means
        assert means is not None
        return make_table(self.table.features, self.table.offsets, means, ranges)


Task = Synthetic | Tabled


def synthetic(
    dim: int,
    arms: int,
    rewards: RewardKind = "bernoulli",
    reward_std: float = 0.5,
    contexts: str = "fresh",
    basis: bool = False,
    same_in_all_runs: bool = False,
) -> Synthetic:
    """The paper's synthetic instance, with rewards that respect its assumptions by default."""
    return Synthetic(dim, arms, Responses(rewards, reward_std), contexts, basis, same_in_all_runs)


def letor(path: str | Path, group: str = "title", scaling: str = "row", rewards: RewardKind = "bernoulli") -> Tabled:
    """Queries of a LETOR file or folder as action sets, with a lasso model as theta*."""
    return Tabled(letor_table(load_letor(path), group, scaling), Responses(rewards))


def warfarin(path: str | Path, rewards: RewardKind = "bernoulli", outcomes: bool = False) -> Tabled:
    """Patients of the warfarin data, three doses each; with `outcomes`, right or wrong as the data say."""
    return Tabled(warfarin_table(load_patients(path)), Responses("exact" if outcomes else rewards), outcomes)
