"""The entry to the kernels: compiled code does not check its arrays, so their shapes are checked here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numba
import numpy as np

from fedbandit._validate import ArgumentError
from fedbandit.bandit.statistics import width
from fedbandit.simulator.kernels.driver import drive
from fedbandit.simulator.kernels.eager_fixed import drive_fixed
from fedbandit.simulator.kernels.layout import (
    BERNOULLI,
    CLIPPED,
    DEPTH,
    GAUSSIAN,
    Beliefs,
    Fresh,
    Kept,
    Local,
    Rewards,
    Table,
    Tally,
    Users,
    padded,
)

__all__ = ["play", "play_fixed", "play_partly"]

LITTLE = 10_000_000  # products of a call: a few milliseconds of one core, the time that an idle thread looks for work


def play(users: Users, source: Fresh | Table, rewards: Rewards, model: Beliefs | Local, tally: Tally) -> None:
    """Add a block of rounds to ``tally``: silos act lazily from ``Beliefs``, or eagerly from a ``Local`` model.

    Eager silos (Algorithm 1) also learn from each of these users at once, in place.
    """
    _check_model(users, model, tally)
    known = _checked_source(users, source, tally.points.shape[-1] - 1)
    fresh, table = (known, None) if isinstance(known, Fresh) else (None, known)
    beliefs, local = (model, None) if isinstance(model, Beliefs) else (None, model)
    with _threads(users, known, tally):
        drive(users, fresh, table, _checked_rewards(rewards), beliefs, local, None, tally)


def play_partly(
    users: Users, source: Fresh | Table, rewards: Rewards, beliefs: Beliefs, local: Local, kept: Kept, tally: Tally
) -> None:
    """`play` if only some visits count.

    Visits that count are decided from ``Beliefs`` alone, the others from ``Local`` models that learn from everybody.
    ``kept`` says which visits count, and takes those that do not.
    """
    _check_model(users, beliefs, tally)
    _check_local(users, local)
    _check_kept(users, kept, tally)
    known = _checked_source(users, source, tally.points.shape[-1] - 1)
    fresh, table = (known, None) if isinstance(known, Fresh) else (None, known)
    with _threads(users, known, tally):
        drive(users, fresh, table, _checked_rewards(rewards), beliefs, local, kept, tally)


def play_fixed(users: Users, table: Table, rewards: Rewards, local: Local, tally: Tally) -> None:
    """`play` for eager silos that have one action set each, in O(arms d) per user."""
    _check_model(users, local, tally)
    _checked_source(users, table, tally.points.shape[-1] - 1)
    sets = np.diff(table.ranges, axis=1)
    if not (sets == 1).all():
        raise ArgumentError("ranges", f"must give every silo exactly one set, got up to {sets.max()}")
    with _threads(users, table, tally):
        drive_fixed(users, table, _checked_rewards(rewards), local, tally)


@contextmanager
def _threads(users: Users, source: Fresh | Table, tally: Tally) -> Iterator[None]:
    """All threads for much work, one for little: threads that are woken for a single user, or wait for the next one,
    spend ten times as long on that as all of them on the user."""
    protocols, runs, dim = len(tally.regret), len(users.runs), tally.points.shape[-1] - 1
    arms = source.arms if isinstance(source, Fresh) else source.offsets[-1] / (len(source.offsets) - 1)  # in the mean
    products = users.rounds * users.silos * runs * protocols * arms * dim * (dim + 1) / 2
    before = numba.get_num_threads()
    numba.set_num_threads(1 if products < LITTLE else before)
    try:
        yield
    finally:
        numba.set_num_threads(before)


def _check_model(users: Users, model: Beliefs | Local, tally: Tally) -> None:
    if isinstance(model, Beliefs):
        _check_beliefs(users, model)
        _check_tally(users, tally, len(model.theta), model.theta.shape[-1])
    else:
        _check_local(users, model)
        _check_tally(users, tally, len(model.bias), model.bias.shape[-1])


def _check_beliefs(users: Users, beliefs: Beliefs) -> None:
    protocols, dim = len(beliefs.theta), beliefs.theta.shape[-1]
    runs = len(users.runs)
    _check("theta", beliefs.theta, np.float64, (protocols, runs, dim))
    _check("root", beliefs.root, np.float64, (protocols, runs, dim, dim))
    below = np.abs(np.tril(beliefs.root, -1)).max()
    if below > 1e-9 * np.abs(beliefs.root).max():
        raise ArgumentError("root", f"must be upper triangular, got {below:.3g} below its diagonal")
    _check("radius", beliefs.radius, _precision(beliefs.radius), (protocols, runs))
    _check("policies", beliefs.policies, np.float64, (protocols, 3))


def _check_local(users: Users, local: Local) -> None:
    protocols, dim = len(local.bias), local.bias.shape[-1]
    lead = (protocols, len(users.runs), users.silos)
    _check("bias", local.bias, np.float64, (*lead, dim))
    _check("inverse", local.inverse, np.float64, (*lead, dim, dim))
    _check("radius", local.radius, _precision(local.radius), (*lead[:2], users.rounds))


def _check_kept(users: Users, kept: Kept, tally: Tally) -> None:
    protocols, runs, shards = tally.regret.shape
    if shards != users.silos:
        raise ArgumentError("regret", f"must have one shard per silo, {users.silos}, got {shards}")
    _check("share", kept.share, np.float64, (protocols, users.rounds))
    _check("locally", kept.locally, np.bool_, (protocols,))
    _check("kept sums", kept.sums, np.int64, (protocols, runs, users.silos, tally.sums.shape[-1]))
    _check("squares", kept.squares, np.float64, (protocols, runs, users.silos))
    _check("kept visits", kept.visits, np.int64, (protocols, runs, users.silos))
    _check("kept regret", kept.regret, np.float64, (protocols, runs, users.silos))


def _check_tally(users: Users, tally: Tally, protocols: int, dim: int) -> None:
    runs, shards = len(users.runs), tally.regret.shape[-1]
    if not 1 <= shards <= users.silos:
        raise ArgumentError("regret", f"must have between 1 and {users.silos} shards, got {shards}")
    _check("regret", tally.regret, np.float64, (protocols, runs, shards))
    _check("sums", tally.sums, np.int64, (protocols, runs, shards, width(dim)))
    _check("centre", tally.centre, np.float64, (protocols,))
    _check("slot", tally.slot, np.int64, (protocols,))
    _check("points", tally.points, np.float32, (len(tally.points), runs, users.silos, users.rounds, dim + 1))
    if tally.slot.max() >= len(tally.points):
        rows = len(tally.points)
        raise ArgumentError("slot", f"must be below the {rows} rows of points, got {tally.slot.tolist()}")


def _checked_source(users: Users, source: Fresh | Table, dim: int) -> Fresh | Table:
    if isinstance(source, Table):
        if len(source.ranges) != users.silos or source.height != padded(dim, DEPTH):
            raise ArgumentError("table", f"must be made for {users.silos} silos and dimension {dim}")
        return source
    _check("theta of fresh contexts", source.theta, np.float64, (len(users.runs), dim))
    if source.arms < 1 or dim < 2:
        raise ArgumentError(
            "fresh contexts", f"must have arms >= 1 and dimension >= 2, got {source.arms} arms and dimension {dim}"
        )
    if not 0 < source.constant_share < 1:
        raise ArgumentError(
            "fresh contexts", f"must have a constant share between 0 and 1, got {source.constant_share!r}"
        )
    return Fresh(source.theta, int(source.arms), float(source.constant_share))


def _checked_rewards(rewards: Rewards) -> Rewards:
    if rewards.kind not in (BERNOULLI, GAUSSIAN, CLIPPED):
        raise ArgumentError("kind", f"must be BERNOULLI, GAUSSIAN or CLIPPED, got {rewards.kind!r}")
    return Rewards(int(rewards.kind), float(rewards.std), bool(rewards.realised))


def _precision(array: Any) -> Any:
    return np.float32 if array.dtype == np.float32 else np.float64


def _check(name: str, array: Any, dtype: Any, shape: tuple[int, ...]) -> None:
    if array.shape != shape or array.dtype != dtype or not array.flags.c_contiguous:
        expected = f"a C-contiguous {np.dtype(dtype).name} array of shape {shape}"
        raise ArgumentError(name, f"must be {expected}, got {array.dtype.name} {array.shape}")
