"""What happens after an action is chosen: the reward, and the packed contribution."""

from __future__ import annotations

from typing import Final

import numpy as np

from fedbandit._arrays import Floats, Integers, Singles
from fedbandit._jit import njit
from fedbandit.simulator.kernels.layout import BERNOULLI, CLIPPED, Rewards, Tally
from fedbandit.simulator.randomness import normal, uniform

__all__ = [
    "CHUNK",
    "add_chunk",
    "add_columns",
    "add_contributions",
    "add_regret",
    "noise_of",
    "open_book",
    "respond",
]

CHUNK: Final = 32  # users whose contributions are added together


@njit(cache=True)
def open_book(models: int, dim: int) -> tuple[Floats, Floats]:
    """Arrays for what a task has seen but not yet added to the tally, for its models q * runs + r.

    They are the features and centred rewards of up to CHUNK users, one per column (models, d + 1, CHUNK), and the
    regret (models,).
    """
    return np.empty((models, dim + 1, CHUNK)), np.zeros(models)


@njit(cache=True)
def noise_of(kind: int, key: np.uint64) -> float:
    """The one random number behind a user's reward: uniform for Bernoulli rewards, else standard normal."""
    return uniform(key) if kind == BERNOULLI else normal(key)


@njit(cache=True)
def respond(
    x: Singles,
    arm: int,
    mean: float,
    noise: float,
    rewards: Rewards,
    who: tuple[int, int, int, int],
    column: int,
    chosen: Floats,
    counted: bool,
    tally: Tally,
) -> float:
    """The user's reward for the chosen action, less the protocol's centre.

    ``who`` is (protocol, run, silo, round of the call). The features and this reward go to ``column`` of ``chosen``,
    (d + 1, CHUNK), and, if the protocol needs its users one by one, to the points of the tally. There, a user who is
    not counted is all zeros.
    """
    protocol, run, silo, index = who
    reward = _reward_of(rewards.kind, rewards.std, noise, mean)
    centred: float = reward - tally.centre[protocol]
    _keep(x, arm, centred, column, chosen)
    if tally.slot[protocol] >= 0:
        if counted:
            _record(x, arm, reward, (tally.slot[protocol], run, silo, index), tally.points)
        else:
            tally.points[tally.slot[protocol], run, silo, index] = 0.0
    return centred


@njit(cache=True)
def add_chunk(chosen: Floats, count: int, first_run: int, shard: int, tally: Tally) -> None:
    """Add the contributions in the first ``count`` columns of ``chosen`` (models, d + 1, CHUNK) to the tally."""
    protocols = tally.regret.shape[0]
    runs = chosen.shape[0] // protocols
    for q in range(protocols):
        for r in range(runs):
            add_contributions(chosen[q * runs + r], count, tally.bits, tally.sums[q, first_run + r, shard])


@njit(cache=True)
def add_columns(chosen: Floats, columns: Integers, first_run: int, row: int, bits: int, sums: Integers) -> None:
    """Add the contributions in the first ``columns[model]`` columns of ``chosen`` to this row of the sums.

    ``chosen`` is (models, d + 1, CHUNK), and ``sums`` (Q, R, rows, p). Then ``columns`` is set to 0.
    """
    protocols = sums.shape[0]
    runs = chosen.shape[0] // protocols
    for q in range(protocols):
        for r in range(runs):
            model = q * runs + r
            add_contributions(chosen[model], columns[model], bits, sums[q, first_run + r, row])
            columns[model] = 0


@njit(cache=True)
def add_regret(regret: Floats, first_run: int, shard: int, tally: Tally) -> None:
    """Add the regret (models,) of a task to the tally."""
    protocols = tally.regret.shape[0]
    runs = regret.size // protocols
    for q in range(protocols):
        for r in range(runs):
            tally.regret[q, first_run + r, shard] += regret[q * runs + r]


@njit(cache=True, fastmath={"reassoc", "nsz"})
def add_contributions(chosen: Floats, count: int, bits: int, sums: Integers) -> None:
    """Add the packed contributions of ``count`` users to ``sums`` (p,).

    Column u of ``chosen`` (d + 1, CHUNK) holds a user's features and centred reward. Every number is rounded to the
    grid 2^-bits before it is added, as `fedbandit.bandit.statistics.contributions` does. A chunk is summed in float64,
    which is exact in any order as long as the sum stays below 2^53. The only products are those of float32 features
    with each other and one rounded product with the reward, so no compiler flag can change a rounding.
    """
    dim = chosen.shape[0] - 1
    scale = 2.0**bits
    reward = chosen[dim]
    index = dim
    for i in range(dim):
        first = chosen[i]
        total = 0.0
        for u in range(count):
            total += np.rint(first[u] * reward[u] * scale)
        sums[i] += np.int64(total)
        for j in range(i, dim):
            second = chosen[j]
            total = 0.0
            for u in range(count):
                total += np.rint(first[u] * second[u] * scale)
            sums[index] += np.int64(total)
            index += 1


@njit(cache=True)
def _reward_of(kind: int, std: float, noise: float, mean: float) -> float:
    """The reward of an action with this mean: a float32 number, so that a recorded reward is the one that counted."""
    if kind == BERNOULLI:
        return 1.0 if noise < mean else 0.0
    value = mean + std * noise
    if kind == CLIPPED:
        value = min(max(value, 0.0), 1.0)
    return np.float64(np.float32(value))


@njit(cache=True)
def _keep(x: Singles, arm: int, reward: float, column: int, chosen: Floats) -> None:
    """Put a user's features and centred reward in a column of ``chosen`` (d + 1, CHUNK)."""
    dim = chosen.shape[0] - 1
    for j in range(dim):
        chosen[j, column] = x[j, arm]
    chosen[dim, column] = reward


@njit(cache=True)
def _record(x: Singles, arm: int, reward: float, place: tuple[int, int, int, int], points: Singles) -> None:
    """Write a user's features and reward to points[place]."""
    slot, run, silo, index = place
    dim = points.shape[4] - 1
    for j in range(dim):
        points[slot, run, silo, index, j] = x[j, arm]
    points[slot, run, silo, index, dim] = reward
