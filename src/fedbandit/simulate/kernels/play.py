"""The kernels' front door: compiled code does not check what it reads and writes, so shapes are checked here."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedbandit.bandit.statistics import width
from fedbandit.simulate.kernels import eager_fixed, eager_fresh, eager_table, lazy_fresh, lazy_table
from fedbandit.simulate.kernels.layout import (
    BERNOULLI,
    CLIPPED,
    DEPTH,
    GAUSSIAN,
    Beliefs,
    Fresh,
    Local,
    Rewards,
    Table,
    Tally,
    Users,
    padded,
)


def play_lazy_fresh(users: Users, fresh: Fresh, rewards: Rewards, beliefs: Beliefs, tally: Tally) -> None:
    """Lazy acting on fresh contexts: add a block of rounds to ``tally``."""
    _check_beliefs(users, beliefs, tally)
    lazy_fresh.play(users, _fresh(users, fresh, beliefs.theta.shape[2]), _rewards(rewards), beliefs, tally)


def play_lazy_table(users: Users, table: Table, rewards: Rewards, beliefs: Beliefs, tally: Tally) -> None:
    """Lazy acting on action sets of a table: add a block of rounds to ``tally``."""
    _check_beliefs(users, beliefs, tally)
    _check_table(users, table, beliefs.theta.shape[2])
    lazy_table.play(users, table, _rewards(rewards), beliefs, tally)


def play_eager_fresh(users: Users, fresh: Fresh, rewards: Rewards, local: Local, tally: Tally) -> None:
    """Eager acting (Algorithm 1) on fresh contexts: add a block of rounds to ``tally`` and to ``local``."""
    _check_local(users, local, tally)
    eager_fresh.play(users, _fresh(users, fresh, local.bias.shape[3]), _rewards(rewards), local, tally)


def play_eager_table(users: Users, table: Table, rewards: Rewards, local: Local, tally: Tally) -> None:
    """Eager acting (Algorithm 1) on action sets of a table: add a block of rounds to ``tally`` and to ``local``."""
    _check_local(users, local, tally)
    _check_table(users, table, local.bias.shape[3])
    eager_table.play(users, table, _rewards(rewards), local, tally)


def play_eager_fixed(users: Users, table: Table, rewards: Rewards, local: Local, tally: Tally) -> None:
    """The same for silos that have one action set each, in O(arms d) a user."""
    _check_local(users, local, tally)
    _check_table(users, table, local.bias.shape[3])
    sets = np.diff(table.ranges, axis=1)
    if not (sets == 1).all():
        raise ValueError(f"ranges must give every silo exactly one set, got up to {sets.max()}")
    eager_fixed.play(users, table, _rewards(rewards), local, tally)


def _check_beliefs(users: Users, beliefs: Beliefs, tally: Tally) -> None:
    protocols, dim = len(beliefs.theta), beliefs.theta.shape[-1]
    runs = len(users.runs)
    _check("theta", beliefs.theta, np.float64, (protocols, runs, dim))
    _check("root", beliefs.root, np.float64, (protocols, runs, dim, dim))
    below = np.abs(np.tril(beliefs.root, -1)).max()
    if below > 1e-9 * np.abs(beliefs.root).max():
        raise ValueError(f"root must be upper triangular, got {below:.3g} below its diagonal")
    _check("radius", beliefs.radius, _precision(beliefs.radius), (protocols, runs))
    _check_tally(users, tally, protocols, dim)


def _check_local(users: Users, local: Local, tally: Tally) -> None:
    protocols, dim = len(local.bias), local.bias.shape[-1]
    lead = (protocols, len(users.runs), users.silos)
    _check("bias", local.bias, np.float64, (*lead, dim))
    _check("inverse", local.inverse, np.float64, (*lead, dim, dim))
    _check("log_det_gain", local.log_det_gain, np.float64, lead)
    _check("radius", local.radius, _precision(local.radius), (*lead[:2], users.rounds))
    _check_tally(users, tally, protocols, dim)


def _check_tally(users: Users, tally: Tally, protocols: int, dim: int) -> None:
    runs, shards = len(users.runs), tally.regret.shape[-1]
    if not 1 <= shards <= users.silos:
        raise ValueError(f"regret must have between 1 and {users.silos} shards, got {shards}")
    _check("regret", tally.regret, np.float64, (protocols, runs, shards))
    _check("sums", tally.sums, np.int64, (protocols, runs, shards, width(dim)))
    _check("centre", tally.centre, np.float64, (protocols,))
    _check("slot", tally.slot, np.int64, (protocols,))
    _check("points", tally.points, np.float32, (len(tally.points), runs, users.silos, users.rounds, dim + 1))
    if tally.slot.max() >= len(tally.points):
        raise ValueError(f"slot must be below the {len(tally.points)} rows of points, got {tally.slot.tolist()}")


def _check_table(users: Users, table: Table, dim: int) -> None:
    if len(table.ranges) != users.silos or table.height != padded(dim, DEPTH):
        raise ValueError(f"table must be made for {users.silos} silos and dimension {dim}")


def _fresh(users: Users, fresh: Fresh, dim: int) -> Fresh:
    _check("theta of fresh contexts", fresh.theta, np.float64, (len(users.runs), dim))
    if fresh.arms < 1 or dim < 2:
        raise ValueError(f"fresh contexts need arms >= 1 and dimension >= 2, got {fresh.arms} and {dim}")
    return Fresh(fresh.theta, int(fresh.arms), bool(fresh.basis))


def _rewards(rewards: Rewards) -> Rewards:
    if rewards.kind not in (BERNOULLI, GAUSSIAN, CLIPPED):
        raise ValueError(f"kind must be BERNOULLI, GAUSSIAN or CLIPPED, got {rewards.kind!r}")
    return Rewards(int(rewards.kind), float(rewards.std))


def _precision(array: Any) -> Any:
    return np.float32 if array.dtype == np.float32 else np.float64


def _check(name: str, array: Any, dtype: Any, shape: tuple[int, ...]) -> None:
    if array.shape != shape or array.dtype != dtype or not array.flags.c_contiguous:
        expected = f"a C-contiguous {np.dtype(dtype).name} array of shape {shape}"
        raise ValueError(f"{name} must be {expected}, got {array.dtype.name} {array.shape}")
