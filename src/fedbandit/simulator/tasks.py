"""Who the users are: where action sets come from, and how users respond.

A task is a description. The seed, the run, the silo and the round decide each user that is drawn from it, so every
protocol meets the same users, and any user can be drawn again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Literal, get_args

import numpy as np

from fedbandit import _validate
from fedbandit._arrays import Floats
from fedbandit._validate import ArgumentError
from fedbandit.bandit.directions import PAPERS_SHARE, best_of
from fedbandit.simulator.data import (
    ActionTable,
    Group,
    Scaling,
    letor_table,
    load_letor,
    load_patients,
    warfarin_table,
)
from fedbandit.simulator.kernels import (
    BERNOULLI,
    CLIPPED,
    GAUSSIAN,
    Fresh,
    Rewards,
    Table,
    contexts_of,
    make_table,
)

__all__ = [
    "Contexts",
    "Responses",
    "RewardKind",
    "SilosAsRuns",
    "Synthetic",
    "Tabled",
    "Task",
    "chance",
    "letor",
    "synthetic",
    "warfarin",
]

RewardKind = Literal["bernoulli", "gaussian", "clipped", "exact"]  #: how a reward is drawn around its mean
Contexts = Literal["fresh", "fixed"]  #: whether every user brings new actions
MOVE = 10  # rounds between two moves of a theta that drifts
AT_ONCE = 256  # moves that are drawn together
DRIFT, JUMP, OWN = 1, 2, 3  # streams of random numbers besides the one for the first theta


@dataclass(frozen=True)
class Responses:
    """How a user's reward comes from its mean <x, theta*>.

    bernoulli: 1 with that probability, else 0, which is bounded and exactly linear. gaussian: the mean plus
    N(0, std^2), as in the paper's simulation; it breaks the paper's own bound on rewards, and no guarantee covers it.
    clipped: the same, cut to [0, 1], which bends the linear model. exact: the mean itself.
    """

    kind: RewardKind = "bernoulli"
    std: float = 0.5
    realised: bool = False  # regret counts the reward itself instead of its mean, as in the published simulation

    def __post_init__(self) -> None:
        _validate.one_of("rewards", self.kind, get_args(RewardKind))
        _validate.positive("reward_std", self.std)

    @property
    def bounded(self) -> bool:
        """Whether rewards stay in [0, 1] if means do."""
        return self.kind != "gaussian"

    def for_kernel(self) -> Rewards:
        """The same law in the form that kernels take."""
        if self.kind == "exact":
            return Rewards(GAUSSIAN, 0.0, self.realised)
        kind = {"bernoulli": BERNOULLI, "gaussian": GAUSSIAN, "clipped": CLIPPED}[self.kind]
        return Rewards(kind, self.std, self.realised)


@dataclass(frozen=True)
class Synthetic:
    """The paper's instance: theta* and features are random directions of norm 1/sqrt 2 with 1/sqrt 2 appended.

    `contexts` is "fresh" for every silo and round, or "fixed": one set per silo for the whole run (and one theta* for
    all runs). With `same_in_all_runs`, all runs share their fresh contexts.

    `basis` is for fixed contexts, as in the published simulation. Features are made of rows (v, 1). The first d rows of
    a silo are e_j + e_d for j < d, then e_d. Means are the rows times theta* / sqrt 2. Features are the rows divided by
    their norms, which are sqrt 2, but 1 for e_d, so its mean is not linear in its features.

    `constant_share` is the share of a row's squared length that its last entry, the constant, has; in the paper it is
    one half. With another share, the same users bring the same actions with the same expected rewards: only the way a
    row is written differs, and with it theta*. Noise is scaled to a whole row, so what the constant takes is lost to
    the other entries.

    Silos may differ: the first `own` weights of theta* are then each silo's own (`silo_theta`), while rows and the
    other weights are the same. Regret is measured against the best action in the silo.

    theta* may change. After round `jump_at` it is a new one. With `drift`, its direction moves at random, by `drift`
    per round (l2, root mean square), once every MOVE rounds. Regret is measured against the best action at that time.
    """

    dim: int
    arms: int
    responses: Responses = Responses()
    contexts: Contexts = "fresh"
    basis: bool = False
    same_in_all_runs: bool = False
    constant_share: float = PAPERS_SHARE
    drift: float = 0.0
    jump_at: int | None = None
    own: int = 0  # how many of the first weights are each silo's own
    differing: float = 0.0  # the length of that part of theta*'s direction, whose length is 1

    def __post_init__(self) -> None:
        _validate.count("dim", self.dim, least=2)
        _validate.within("constant_share", self.constant_share, 0, 1)
        _validate.count("arms", self.arms)
        _validate.one_of("contexts", self.contexts, get_args(Contexts))
        if self.basis and (self.contexts != "fixed" or self.arms < self.dim):
            raise ArgumentError("basis", f"must be False unless contexts are 'fixed' and there are {self.dim} arms")
        if self.basis and self.constant_share != PAPERS_SHARE:
            raise ArgumentError("constant_share", f"must be {PAPERS_SHARE} with a basis, got {self.constant_share!r}")
        if self.jump_at is not None:
            _validate.count("jump_at", self.jump_at)
        if self.drift != 0:
            _validate.positive("drift", self.drift)
            if self.dim < 3:
                raise ArgumentError("drift", f"must be 0 for dim {self.dim}: there is no direction to move in")
        if self.contexts == "fixed" and (self.drift or self.jump_at is not None):
            raise ArgumentError("contexts", "must be 'fresh' where theta* changes, got 'fixed'")
        self._check_own()

    def _check_own(self) -> None:
        if bool(_validate.count("own", self.own, least=0)) != bool(self.differing):
            raise ArgumentError("differing", "must be given together with own: how many weights, how far they differ")
        if not self.own:
            return
        _validate.within("differing", self.differing, 0, 1)
        if self.own > self.dim - 2:
            raise ArgumentError("own", f"must be at most {self.dim - 2} of {self.dim} weights, got {self.own}")
        if self.contexts == "fixed" or self.drift or self.jump_at is not None or self.same_in_all_runs:
            raise ArgumentError("own", "must be 0 where contexts are fixed or shared by runs, or theta* changes")

    def silo_theta(self, seed: int, run: int, silo: int) -> Floats:
        """theta* of one silo: the run's theta*, except that its first `own` weights are the silo's own.

        That part of its direction (of length 1) has the length `differing` and lies anywhere on that sphere.
        """
        theta = self.theta(seed, run)
        if not self.own:
            return theta
        scale = float(np.linalg.norm(theta[:-1]))
        shared = _unit(theta[self.own : -1]) * np.sqrt(1 - self.differing**2)
        mine = _unit(np.random.default_rng((seed, run, OWN, silo)).standard_normal(self.own)) * self.differing
        return np.concatenate([scale * mine, scale * shared, theta[-1:]])

    @property
    def one_set_per_silo(self) -> bool:
        """Whether all users of a silo bring the same actions."""
        return self.contexts == "fixed"

    def theta(self, seed: int, run: int, round_: int = 1) -> Floats:
        """theta* of one run in a round."""
        lengths = np.sqrt(np.append(np.full(self.dim - 1, 1 - self.constant_share), self.constant_share))
        jumped = self.jump_at is not None and round_ > self.jump_at
        stream = (seed, 0 if self.one_set_per_silo else run, *((JUMP,) if jumped else ()))
        if self.drift:
            move = (round_ - 1) // MOVE
            step = np.sqrt(MOVE) * self.drift * 2 * lengths[0]  # of the unit direction; its part of theta* is shorter
            direction = _walk(stream, self.dim - 1, step, move // AT_ONCE)[move % AT_ONCE]
        else:
            direction = _unit(np.random.default_rng(stream).standard_normal(self.dim - 1))
        return np.asarray(np.append(direction, 1.0) / (2 * lengths))

    def changes(self, rounds: int) -> set[int]:
        """The rounds after which theta* changes."""
        moves = range(MOVE, rounds, MOVE) if self.drift else ()
        return {*moves, *(() if self.jump_at is None or self.jump_at >= rounds else (self.jump_at,))}

    def source(self, seed: int, runs: tuple[int, ...], silos: int, round_: int = 1) -> Fresh | Table:
        """The source from which kernels take the action sets of these runs in a round."""
        if self.one_set_per_silo:
            return self._fixed(seed, silos)
        return Fresh(np.stack([self.theta(seed, run, round_) for run in runs]), self.arms, self.constant_share)

    def _fixed(self, seed: int, silos: int) -> Table:
        """One action set per silo: the contexts that its user of round 0 would bring."""
        features = np.stack(
            [contexts_of(seed, 0, silo, 0, self.arms, self.dim, self.constant_share) for silo in range(silos)]
        )
        if self.basis:
            features[:, : self.dim] = _basis(self.dim)
        means = features.astype(float) @ self.theta(seed, 0)
        if self.basis:
            means[:, self.dim - 1] = 0.5
        bounds = np.arange(silos + 1)
        ranges = np.stack([bounds[:-1], bounds[1:]], axis=1)
        return make_table(features.reshape(-1, self.dim), bounds * self.arms, means.ravel(), ranges)


@lru_cache(maxsize=256)
def _walk(stream: tuple[int, ...], size: int, step: float, part: int) -> Floats:
    """Unit vectors of a random walk on the sphere, (AT_ONCE, size), from move part * AT_ONCE on."""
    rng = np.random.default_rng((*stream, DRIFT, part))
    last = _unit(np.random.default_rng(stream).standard_normal(size))
    if part:
        last = _moved(_walk(stream, size, step, part - 1)[-1], step, rng)
    directions = [last]
    while len(directions) < AT_ONCE:
        directions.append(_moved(directions[-1], step, rng))
    return np.stack(directions)


def _moved(direction: Floats, step: float, rng: np.random.Generator) -> Floats:
    """A unit vector, moved along the sphere by `step` (root mean square)."""
    aside = rng.standard_normal(len(direction)) / np.sqrt(len(direction) - 1)
    return _unit(direction + step * (aside - (aside @ direction) * direction))


def _unit(vector: Floats) -> Floats:
    return np.asarray(vector / np.linalg.norm(vector))


def _basis(dim: int) -> Floats:
    """The first features of the published simulation: (e_j + e_d) / sqrt 2, and e_d itself."""
    rows = (np.eye(dim) + np.eye(dim)[-1]) / np.sqrt(2)
    rows[-1] = np.eye(dim)[-1]
    return np.asarray(rows)


@dataclass(frozen=True)
class Tabled:
    """Action sets from data, divided among the silos; every user brings a random one of their silo's sets."""

    table: ActionTable
    responses: Responses = Responses()
    outcomes: bool = False  # whether rewards and regret use the data's own outcomes, not the linear model's means

    same_in_all_runs: ClassVar[bool] = False
    one_set_per_silo: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.responses.kind == "bernoulli" and not self.table.bounded:
            raise ArgumentError("rewards", "must be 'exact' or 'gaussian' for a table whose means leave [0, 1]")
        if self.outcomes and self.table.outcomes is None:
            raise ArgumentError("outcomes", "must be in the table to be used; this one has none")
        if self.outcomes and self.responses.kind != "exact":
            raise ArgumentError("rewards", f"must be 'exact' where the data decide them, got {self.responses.kind!r}")

    @property
    def dim(self) -> int:
        """Dimension of the features."""
        return self.table.dim

    def changes(self, rounds: int) -> set[int]:
        """None: the data do not change over time."""
        return set()

    def source(self, seed: int, runs: tuple[int, ...], silos: int, round_: int = 1) -> Table:
        """The source from which kernels take action sets, which is the same in all runs."""
        bounds = self.table.divided(silos)
        ranges = np.stack([bounds[:-1], bounds[1:]], axis=1)
        means = self.table.outcomes if self.outcomes else self.table.means
        assert means is not None
        return make_table(self.table.features, self.table.offsets, means, ranges)


@dataclass(frozen=True)
class SilosAsRuns:
    """A task whose silos differ: each silo of a run is played as a run with one silo, numbered run * silos + silo.

    Kernels have one theta* per run, so this gives them one per silo. It is for the simulator's internal use.
    """

    task: Synthetic
    silos: int

    same_in_all_runs: ClassVar[bool] = False
    one_set_per_silo: ClassVar[bool] = False

    @property
    def responses(self) -> Responses:
        return self.task.responses

    def changes(self, rounds: int) -> set[int]:
        """None: differences between silos do not change."""
        return set()

    def source(self, seed: int, runs: tuple[int, ...], silos: int, round_: int = 1) -> Fresh:
        """The source from which kernels take the action sets of these silos."""
        thetas = [self.task.silo_theta(seed, *divmod(number, self.silos)) for number in runs]
        return Fresh(np.stack(thetas), self.task.arms, self.task.constant_share)


Task = Synthetic | Tabled  #: who comes to the silos


def chance(task: Task, silos: int, seed: int) -> float:
    """The expected regret of one round in which every silo takes an action at random."""
    source = task.source(seed, (0,), silos)
    if isinstance(source, Fresh):
        return silos * best_of(source.arms, source.theta.shape[1] - 1).cosine / 2
    lost = source.best - np.add.reduceat(source.means, source.offsets[:-1]) / np.diff(source.offsets)
    return float(sum(lost[first:last].mean() for first, last in source.ranges))


def synthetic(
    dim: int,
    arms: int,
    rewards: RewardKind = "bernoulli",
    reward_std: float = 0.5,
    contexts: Contexts = "fresh",
    basis: bool = False,
    same_in_all_runs: bool = False,
    realised: bool = False,
    constant_share: float = PAPERS_SHARE,
    drift: float = 0.0,
    jump_at: int | None = None,
    own: int = 0,
    differing: float = 0.0,
) -> Synthetic:
    """The paper's synthetic instance, with rewards that respect its assumptions by default.

    theta* may move by `drift` per round, and be replaced by a new one after round `jump_at`. Its first `own` weights
    may be each silo's own; `differing` says how far silos differ in them (see `Synthetic`).

    >>> import numpy as np
    >>> users = synthetic(dim=3, arms=5)
    >>> theta = users.theta(seed=0, run=0)
    >>> bool(np.isclose(np.linalg.norm(theta), 1.0)), round(float(theta[-1]), 4)
    (True, 0.7071)
    """
    responses = Responses(rewards, reward_std, realised)
    differs = (drift, jump_at, own, differing)
    return Synthetic(dim, arms, responses, contexts, basis, same_in_all_runs, constant_share, *differs)


def letor(
    path: str | Path, group: Group = "title", scaling: Scaling = "row", rewards: RewardKind = "bernoulli"
) -> Tabled:
    """Queries of a LETOR file or folder as action sets, with a lasso model as theta*.

    Scaling "published" is that of the published simulation: rewards must be "exact", the lasso's own predictions.
    """
    table = letor_table(load_letor(path), group, scaling)
    return Tabled(table, Responses(rewards), outcomes=table.outcomes is not None)


def warfarin(path: str | Path, rewards: RewardKind = "bernoulli", outcomes: bool = False) -> Tabled:
    """Patients of the warfarin data, three doses each; with `outcomes`, a dose is right or wrong as in the data."""
    return Tabled(warfarin_table(load_patients(path)), Responses("exact" if outcomes else rewards), outcomes)
