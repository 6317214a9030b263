"""Every kernel against a plain numpy computation of the same thing, user by user, in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest

from fedbandit.bandit.statistics import contributions, width
from fedbandit.simulator import kernels as k
from fedbandit.simulator.randomness import REWARD, normal, uniform, user_key

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


def fresh_case(
    dim: int = 6,
    arms: int = 13,
    silos: int = 5,
    rounds: int = 40,
    kind: int = k.BERNOULLI,
    basis: bool = False,
    same_contexts: bool = False,
) -> Case:
    rng = np.random.default_rng(dim)
    theta = rng.normal(size=(3, dim))
    theta[:, :-1] *= 0.5 / np.linalg.norm(theta[:, :-1], axis=1, keepdims=True)
    theta[:, -1] = 0.7
    users = k.make_users(SEED, [4, 7, 8], silos, 30, rounds, same_contexts)
    return Case(users, k.Fresh(theta, arms, basis), k.Rewards(kind, 0.3), *models(rng, theta, rounds))


def table_case(
    dim: int = 5,
    sizes: tuple[int, ...] = (3, 17, 1, 8, 9, 30, 2),
    bounds: tuple[int, ...] = (0, 2, 3, 7),
    rounds: int = 40,
    kind: int = k.GAUSSIAN,
) -> Case:
    rng = np.random.default_rng(dim)
    rows = sum(sizes)
    features = rng.normal(size=(rows, dim))
    features /= np.linalg.norm(features, axis=1, keepdims=True) * rng.uniform(1, 2, size=(rows, 1))
    ranges = np.stack([bounds[:-1], bounds[1:]], axis=1)
    table = k.make_table(features, np.concatenate([[0], np.cumsum(sizes)]), rng.random(rows), ranges)
    users = k.make_users(SEED, [4, 7, 8], len(ranges), 30, rounds)
    theta = np.broadcast_to(rng.normal(size=dim), (3, dim))
    return Case(users, table, k.Rewards(kind, 0.3), *models(rng, theta, rounds))


def models(rng: np.random.Generator, theta: np.ndarray, rounds: int) -> tuple[np.ndarray, ...]:
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
    return k.Beliefs(case.theta, root_of(case.precision), case.radius[..., 0].astype(dtype))


def local_of(case: Case, dtype: Any = np.float64) -> k.Local:
    protocols, runs, _ = case.theta.shape
    silos = case.users.silos
    inverse = np.repeat(np.linalg.inv(case.precision)[:, :, None], silos, axis=2)
    bias = np.repeat((case.precision @ case.theta[..., None])[:, :, None, :, 0], silos, axis=2)
    gains = np.zeros((protocols, runs, silos))
    return k.Local(inverse, bias, gains, case.radius.astype(dtype))


def actions_of(case: Case, run: int, silo: int, now: int) -> tuple[np.ndarray, np.ndarray]:
    """A user's actions and their expected rewards, float64."""
    number = int(case.users.context_runs[run])
    if isinstance(case.source, k.Fresh):
        source = case.source
        x = k.contexts_of(SEED, number, silo, now, source.arms, case.theta.shape[-1], source.basis).astype(float)
        return x, x @ source.theta[run]
    table = case.source
    index = k.set_of(SEED, number, silo, now, table)
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
            arm = int(np.argmax(x @ inverse @ bias + radius * np.sqrt(np.einsum("aj,jk,ak->a", x, inverse, x))))
            reward = reward_of(case, run, silo, users.first_round + i, means[arm])
            tally.sums[q, run, shard] += contributions(x[arm], reward, BITS, case.centre[q])
            tally.regret[q, run, shard] += means.max() - means[arm]
            if q == 1:
                tally.points[0, run, silo, i] = [*x[arm], reward]
            if eager:
                matrix += np.outer(x[arm], x[arm])
                bias += x[arm] * (reward - case.centre[q])
        local.inverse[q, run, silo] = np.linalg.inv(matrix)
        local.log_det_gain[q, run, silo] = np.linalg.slogdet(matrix)[1] - np.linalg.slogdet(case.precision[q, run])[1]
    return tally, local


def play(kernel: Callable[..., None], case: Case, shards: int, dtype: Any = np.float64) -> tuple[k.Tally, k.Local]:
    tally, local = empty_tally(case, shards), local_of(case, dtype)
    model = beliefs_of(case, dtype) if "lazy" in kernel.__name__ else local
    kernel(case.users, case.source, case.rewards, model, tally)
    return tally, local


def assert_same(got: tuple[k.Tally, k.Local], wanted: tuple[k.Tally, k.Local], eager: bool) -> None:
    np.testing.assert_array_equal(got[0].points, wanted[0].points)
    np.testing.assert_array_equal(got[0].sums, wanted[0].sums)
    np.testing.assert_allclose(got[0].regret, wanted[0].regret, rtol=1e-12, atol=1e-12)
    if eager:
        for name in ("inverse", "bias", "log_det_gain"):
            np.testing.assert_allclose(getattr(got[1], name), getattr(wanted[1], name), rtol=1e-9, atol=1e-9)


FRESH = {
    "bernoulli": fresh_case(),
    "gaussian, wide": fresh_case(dim=57, arms=23, silos=2, rounds=5, kind=k.GAUSSIAN),
    "clipped, basis": fresh_case(dim=5, arms=9, silos=3, kind=k.CLIPPED, basis=True),
    "basis cut short": fresh_case(dim=7, arms=3, silos=2, basis=True),
    "contexts shared by runs": fresh_case(same_contexts=True),
}
TABLES = {
    "ragged": table_case(),
    "one silo": table_case(bounds=(0, 7)),
    "bernoulli, wide": table_case(dim=57, sizes=(40, 9, 11), bounds=(0, 1, 3), rounds=6, kind=k.BERNOULLI),
}
FIXED = table_case(sizes=(30, 4, 21), bounds=(0, 1, 2, 3), rounds=300)


@pytest.mark.parametrize("name", FRESH)
@pytest.mark.parametrize("kernel", [k.play_lazy_fresh, k.play_eager_fresh])
def test_fresh_kernels_do_what_the_definition_says(kernel: Any, name: str) -> None:
    eager = kernel is k.play_eager_fresh
    assert_same(play(kernel, FRESH[name], 2), expected(FRESH[name], 2, eager), eager)


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("kernel", [k.play_lazy_table, k.play_eager_table])
def test_table_kernels_do_what_the_definition_says(kernel: Any, name: str) -> None:
    eager = kernel is k.play_eager_table
    assert_same(play(kernel, TABLES[name], 1), expected(TABLES[name], 1, eager), eager)


def test_fixed_arms_by_rank_one_identities_equal_the_plain_eager_kernel() -> None:
    got = play(k.play_eager_fixed, FIXED, 3)
    assert_same(got, play(k.play_eager_table, FIXED, 3), eager=True)
    assert_same(got, expected(FIXED, 3, eager=True), eager=True)


def test_silos_may_share_sets() -> None:
    case = TABLES["ragged"]
    shared = case._replace(source=case.source._replace(ranges=np.array([[1, 6], [1, 6], [2, 7]])))
    assert_same(play(k.play_lazy_table, shared, 2), expected(shared, 2, eager=False), eager=False)


@pytest.mark.parametrize(
    ("kernel", "case"),
    [(k.play_lazy_fresh, FRESH["bernoulli"]), (k.play_lazy_table, TABLES["ragged"]), (k.play_eager_fixed, FIXED)],
)
def test_results_do_not_depend_on_the_number_of_threads(kernel: Any, case: Case) -> None:
    threads = numba.get_num_threads()
    many = play(kernel, case, 3)
    numba.set_num_threads(1)
    try:
        one = play(kernel, case, 3)
    finally:
        numba.set_num_threads(threads)
    for got, wanted in zip([*one[0], *one[1]], [*many[0], *many[1]], strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_results_are_added_to_what_was_there_and_a_block_may_be_played_in_parts() -> None:
    case = FRESH["bernoulli"]
    whole, _ = play(k.play_lazy_fresh, case, 2)
    parts = empty_tally(case, 2)
    for first, rounds in [(30, 33), (63, 7)]:
        users = case.users._replace(first_round=first, rounds=rounds)
        some = parts._replace(points=np.ascontiguousarray(parts.points[:, :, :, :rounds]))
        k.play_lazy_fresh(users, case.source, case.rewards, beliefs_of(case), some)
    np.testing.assert_array_equal(parts.sums, whole.sums)
    np.testing.assert_allclose(parts.regret, whole.regret, rtol=1e-12)


def test_single_precision_scores_choose_as_double_ones_but_for_near_ties() -> None:
    """Scores differ by about 1e-6 and gaps between the best two of 100 are about 1e-2: a rare difference, no more."""
    case = fresh_case(arms=100, rounds=200)
    for kernel in (k.play_lazy_fresh, k.play_eager_fresh):
        double, single = play(kernel, case, 5)[0], play(kernel, case, 5, np.float32)[0]
        same = (double.points == single.points).all(axis=-1).mean()
        assert same > 0.99
        np.testing.assert_allclose(single.regret, double.regret, rtol=0.05)
    other = case._replace(radius=case.radius * 1.3)
    assert (play(k.play_lazy_fresh, other, 5)[0].points == double.points).all(axis=-1).mean() < 0.99


def test_equal_scores_go_to_the_lowest_index() -> None:
    case = table_case(sizes=(16, 9, 5), bounds=(0, 1, 2, 3), rounds=3)
    dim = case.theta.shape[-1]
    means = np.arange(30.0)
    table = k.make_table(np.full((30, dim), 0.3), [0, 16, 25, 30], means, case.source.ranges)
    tied = case._replace(source=table, rewards=k.Rewards(k.GAUSSIAN, 0.0))
    first_means = np.float32([0, 16, 25])
    for kernel in (k.play_lazy_table, k.play_eager_table, k.play_eager_fixed):
        rewards = play(kernel, tied, 1)[0].points[0, ..., -1]  # (runs, silos, rounds)
        np.testing.assert_array_equal(rewards, np.broadcast_to(first_means[:, None], rewards.shape))


def test_contexts_are_unit_vectors_with_a_uniform_direction() -> None:
    x = np.concatenate([k.contexts_of(SEED, 0, 0, t, 100, 10) for t in range(300)]).astype(float)
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1, rtol=1e-6)
    np.testing.assert_array_equal(x[:, -1], np.float32(np.sqrt(0.5)))
    free = x[:, :-1] * np.sqrt(2)  # uniform on the sphere in 9 dimensions: mean 0, covariance I / 9
    assert distance_from_uniform(free) < 4
    assert distance_from_uniform(free * np.where(np.arange(9) == 3, 1.3, 1.0)) > 4
    assert distance_from_uniform(free + 0.02) > 4


def distance_from_uniform(points: np.ndarray) -> float:
    """The largest deviation of first and second moments from those of a uniform direction, in standard errors."""
    count, dim = points.shape
    mean = np.abs(points.mean(axis=0)) / np.sqrt(1 / dim / count)
    squares = np.abs((points**2).mean(axis=0) - 1 / dim) / np.sqrt((3 / (dim * (dim + 2)) - 1 / dim**2) / count)
    products = np.abs((points.T @ points / count)[np.triu_indices(dim, 1)]) / np.sqrt(1 / (dim * (dim + 2)) / count)
    return float(np.concatenate([mean, squares, products]).max())


def test_the_first_actions_are_a_basis_if_asked() -> None:
    x = k.contexts_of(SEED, 0, 3, 9, 12, 5, basis=True)
    np.testing.assert_array_equal(x[:5], np.eye(5))
    np.testing.assert_array_equal(x[5:], k.contexts_of(SEED, 0, 3, 9, 12, 5)[5:])


def test_users_differ_by_run_silo_round_and_seed() -> None:
    base = k.contexts_of(SEED, 0, 0, 1, 4, 6)
    for other in [(SEED, 1, 0, 1), (SEED, 0, 1, 1), (SEED, 0, 0, 2), (SEED + 1, 0, 0, 1)]:
        assert not np.isclose(k.contexts_of(*other, 4, 6)[:, :-1], base[:, :-1]).any()


def test_sets_are_picked_uniformly() -> None:
    table = TABLES["one silo"].source
    picks = np.array([k.set_of(SEED, 0, 0, t, table) for t in range(7000)])
    counts = np.bincount(picks, minlength=7)
    assert ((counts - 1000) ** 2 / 1000).sum() < 22.5  # chi-square with 6 degrees of freedom exceeds it once in 1000


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("regret", np.zeros((2, 3, 6)), "between 1 and 5 shards"),
        ("sums", np.zeros((2, 3, 2, 26), dtype=np.int64), "sums must be a C-contiguous int64 array of shape"),
        ("slot", np.array([0, 1]), "slot must be below the 1 rows of points"),
        ("points", np.zeros((1, 3, 5, 40, 7)), "points must be a C-contiguous float32 array"),
    ],
)
def test_a_wrong_tally_is_refused(field: str, value: np.ndarray, message: str) -> None:
    case = FRESH["bernoulli"]
    tally = empty_tally(case, 2)._replace(**{field: value})
    with pytest.raises(ValueError, match=message):
        k.play_lazy_fresh(case.users, case.source, case.rewards, beliefs_of(case), tally)


def test_a_wrong_model_or_table_is_refused() -> None:
    case, table = FRESH["bernoulli"], TABLES["ragged"]
    beliefs = beliefs_of(case)
    lower = beliefs._replace(root=np.ascontiguousarray(beliefs.root.swapaxes(-1, -2)))
    with pytest.raises(ValueError, match="root must be upper triangular"):
        k.play_lazy_fresh(case.users, case.source, case.rewards, lower, empty_tally(case, 2))
    with pytest.raises(ValueError, match="table must be made for 5 silos and dimension 6"):
        k.play_lazy_table(case.users, table.source, case.rewards, beliefs, empty_tally(case, 2))
    with pytest.raises(ValueError, match="exactly one set, got up to 4"):
        k.play_eager_fixed(table.users, table.source, table.rewards, local_of(table), empty_tally(table, 2))
    with pytest.raises(ValueError, match="ranges must be non-empty"):
        k.make_table(np.eye(3), [0, 1, 3], np.zeros(3), [[0, 3]])
    with pytest.raises(ValueError, match="offsets must increase from 0"):
        k.make_table(np.eye(3), [0, 3, 3], np.zeros(3), [[0, 1]])
