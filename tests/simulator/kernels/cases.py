"""Small worlds, and a plain numpy computation of what kernels do in them, user by user, in float64."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from fedbandit.bandit.policies import UCB, Policy
from fedbandit.bandit.statistics import contributions, width
from fedbandit.simulator import kernels as k
from fedbandit.simulator.kernels.contexts import pick_set
from fedbandit.simulator.randomness import CHOICE, CONTEXT, REWARD, normal, uniform, user_key

Way = Literal["lazy", "eager", "fixed"]

SEED = 11

BITS = 20


class Case(NamedTuple):
    """A small world: users, a context source, and models that differ between protocols and runs."""

    users: k.Users
    source: k.Fresh | k.Table
    rewards: k.Rewards
    theta: np.ndarray  # (Q, R, d)
    precision: np.ndarray  # (Q, R, d, d) the matrix V
    radius: np.ndarray  # (Q, R, n)
    centre: np.ndarray  # (Q,)
    policies: tuple[Policy, Policy] = (UCB, UCB)  # of the protocols, where they act lazily


def fresh_case(
    dim: int = 6,
    arms: int = 13,
    silos: int = 5,
    rounds: int = 40,
    kind: int = k.BERNOULLI,
    same_contexts: bool = False,
    realised: bool = False,
) -> Case:
    rng = np.random.default_rng(dim)
    theta = rng.normal(size=(3, dim))
    theta[:, :-1] *= 0.5 / np.linalg.norm(theta[:, :-1], axis=1, keepdims=True)
    theta[:, -1] = 0.7
    users = k.make_users(SEED, [4, 7, 8], silos, 30, rounds, same_contexts)
    return Case(users, k.Fresh(theta, arms), k.Rewards(kind, 0.3, realised), *models(rng, theta, rounds))


def table_case(
    dim: int = 5,
    sizes: tuple[int, ...] = (3, 17, 1, 8, 9, 30, 2),
    bounds: tuple[int, ...] = (0, 2, 3, 7),
    rounds: int = 40,
    kind: int = k.GAUSSIAN,
    realised: bool = False,
) -> Case:
    rng = np.random.default_rng(dim)
    rows = sum(sizes)
    features = rng.normal(size=(rows, dim))
    features /= np.linalg.norm(features, axis=1, keepdims=True) * rng.uniform(1, 2, size=(rows, 1))
    ranges = np.stack([bounds[:-1], bounds[1:]], axis=1)
    table = k.make_table(features, np.concatenate([[0], np.cumsum(sizes)]), rng.random(rows), ranges)
    users = k.make_users(SEED, [4, 7, 8], len(ranges), 30, rounds)
    theta = np.broadcast_to(rng.normal(size=dim), (3, dim))
    return Case(users, table, k.Rewards(kind, 0.3, realised), *models(rng, theta, rounds))


def models(
    rng: np.random.Generator, theta: np.ndarray, rounds: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Two protocols' models around the truth: estimates, matrices V, radii per round, centres."""
    runs, dim = theta.shape
    factor = rng.normal(size=(2, runs, dim, dim))
    precision = factor @ factor.swapaxes(-1, -2) + 2 * np.eye(dim)
    estimates = theta + 0.3 * rng.normal(size=(2, runs, dim))
    radius = np.linspace(0.5, 1.5, rounds) * rng.uniform(0.2, 1, size=(2, runs, 1))
    return estimates, precision, radius, np.array([0.0, 0.5])


def root_of(precision: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.linalg.inv(np.linalg.cholesky(precision)).swapaxes(-1, -2))


def empty_tally(case: Case, shards: int) -> k.Tally:
    """A tally that records the second protocol."""
    protocols, runs, dim = case.theta.shape
    points = np.full((1, runs, case.users.silos, case.users.rounds, dim + 1), np.nan, dtype=np.float32)
    return k.Tally(
        np.zeros((protocols, runs, shards, width(dim)), dtype=np.int64),
        np.zeros((protocols, runs, shards)),
        case.centre,
        BITS,
        np.array([-1, 0]),
        points,
    )


def beliefs_of(case: Case, dtype: Any = np.float64) -> k.Beliefs:
    policies = np.array([k.policy_row(policy) for policy in case.policies])
    return k.Beliefs(case.theta, root_of(case.precision), case.radius[..., 0].astype(dtype), policies)


def local_of(case: Case, dtype: Any = np.float64) -> k.Local:
    silos = case.users.silos
    inverse = np.repeat(np.linalg.inv(case.precision)[:, :, None], silos, axis=2)
    bias = np.repeat((case.precision @ case.theta[..., None])[:, :, None, :, 0], silos, axis=2)
    return k.Local(inverse, bias, case.radius.astype(dtype))


def set_of(seed: int, run: int, silo: int, round_: int, table: k.Table) -> int:
    """The action set that kernels give to one user of a table; run 0 if all runs share their contexts."""
    key, (first, last) = user_key(np.uint64(seed), run, silo, round_, CONTEXT), table.ranges[silo]
    return int(pick_set(np.uint64(key), int(first), int(last)))


def actions_of(case: Case, run: int, silo: int, now: int) -> tuple[np.ndarray, np.ndarray]:
    """A user's actions and their expected rewards, float64."""
    number = int(case.users.context_runs[run])
    if isinstance(case.source, k.Fresh):
        source = case.source
        x = k.contexts_of(SEED, number, silo, now, source.arms, case.theta.shape[-1]).astype(float)
        return x, x @ source.theta[run]
    table = case.source
    index = set_of(SEED, number, silo, now, table)
    first, last = table.offsets[index : index + 2]
    block = table.blocks[table.starts[index] :][: table.height * (-(-(last - first) // 8) * 8)]
    x = block.reshape(table.height, -1)[: case.theta.shape[-1], : last - first].T
    return x.astype(float), table.means[first:last]


def reward_of(case: Case, run: int, silo: int, now: int, mean: float) -> float:
    key = np.uint64(user_key(np.uint64(SEED), int(case.users.runs[run]), silo, now, REWARD))
    if case.rewards.kind == k.BERNOULLI:
        return float(uniform(key) < mean)
    value = mean + case.rewards.std * normal(key)
    return float(np.float32(np.clip(value, 0, 1) if case.rewards.kind == k.CLIPPED else value))


def expected(case: Case, shards: int, eager: bool) -> tuple[k.Tally, k.Local]:
    """What a kernel should leave behind, by the definition: matrices are inverted anew for every user."""
    tally, local = empty_tally(case, shards), local_of(case)
    users, silos = case.users, case.users.silos
    for q, run, silo in np.ndindex(2, len(users.runs), silos):
        shard = next(s for s in range(shards) if s * silos // shards <= silo < (s + 1) * silos // shards)
        matrix, bias = case.precision[q, run].copy(), local.bias[q, run, silo]
        for i in range(users.rounds):
            x, means = actions_of(case, run, silo, users.first_round + i)
            inverse = np.linalg.inv(matrix)
            radius = case.radius[q, run, i if eager else 0]
            spreads = radius * np.sqrt(np.einsum("aj,jk,ak->a", x, inverse, x))
            key = user_key(np.uint64(SEED), int(users.runs[run]), silo, users.first_round + i, CHOICE)
            arm = case.policies[q].choose(x @ inverse @ bias, spreads, uniform(np.uint64(key))).action
            reward = reward_of(case, run, silo, users.first_round + i, means[arm])
            tally.sums[q, run, shard] += contributions(x[arm], reward, BITS, float(case.centre[q]))
            tally.regret[q, run, shard] += means.max() - (reward if case.rewards.realised else means[arm])
            if q == 1:
                tally.points[0, run, silo, i] = [*x[arm], reward]
            if eager:
                matrix += np.outer(x[arm], x[arm])
                bias += x[arm] * (reward - case.centre[q])
        local.inverse[q, run, silo] = np.linalg.inv(matrix)
    return tally, local


def play(way: Way, case: Case, shards: int, dtype: Any = np.float64) -> tuple[k.Tally, k.Local]:
    """What a kernel does leave behind."""
    tally, local = empty_tally(case, shards), local_of(case, dtype)
    if way == "fixed":
        k.play_fixed(case.users, table_of(case), case.rewards, local, tally)
    else:
        model = beliefs_of(case, dtype) if way == "lazy" else local
        k.play(case.users, case.source, case.rewards, model, tally)
    return tally, local


def table_of(case: Case) -> k.Table:
    assert isinstance(case.source, k.Table)
    return case.source


FRESH = {
    "bernoulli": fresh_case(),
    "gaussian, wide": fresh_case(dim=57, arms=23, silos=2, rounds=5, kind=k.GAUSSIAN),
    "clipped": fresh_case(dim=5, arms=9, silos=3, kind=k.CLIPPED),
    "fewer arms than dimensions": fresh_case(dim=7, arms=3, silos=2),
    "regret by rewards": fresh_case(dim=5, arms=9, silos=3, kind=k.GAUSSIAN, realised=True),
    "contexts shared by runs": fresh_case(same_contexts=True),
}

TABLES = {
    "ragged": table_case(),
    "one silo": table_case(bounds=(0, 7), realised=True),
    "bernoulli, wide": table_case(dim=57, sizes=(40, 9, 11), bounds=(0, 1, 3), rounds=6, kind=k.BERNOULLI),
    "sets that come again": table_case(dim=24, sizes=(9, 17, 40, 8, 3), bounds=(0, 2, 5), rounds=200),
    "more sets than are remembered": table_case(dim=9, sizes=(3,) * 40, bounds=(0, 40), rounds=60),
}

FIXED = table_case(sizes=(30, 4, 21), bounds=(0, 1, 2, 3), rounds=300, realised=True)
