"""Every way to play against the plain computation of the same thing."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from fedbandit.bandit.policies import UCB, Policy
from fedbandit.simulator import kernels as k
from fedbandit.simulator.kernels import checked
from tests.simulator.kernels.cases import (
    FIXED,
    FRESH,
    TABLES,
    Case,
    Way,
    beliefs_of,
    empty_tally,
    expected,
    fresh_case,
    play,
    table_case,
    table_of,
)


def assert_same(got: tuple[k.Tally, k.Local], wanted: tuple[k.Tally, k.Local], eager: bool) -> None:
    np.testing.assert_array_equal(got[0].points, wanted[0].points)
    np.testing.assert_array_equal(got[0].sums, wanted[0].sums)
    np.testing.assert_allclose(got[0].regret, wanted[0].regret, rtol=1e-12, atol=1e-12)
    if eager:
        for name in ("inverse", "bias"):
            np.testing.assert_allclose(getattr(got[1], name), getattr(wanted[1], name), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", FRESH)
@pytest.mark.parametrize("way", ["lazy", "eager"])
def test_on_fresh_contexts_silos_do_what_the_definition_says(way: Way, name: str) -> None:
    assert_same(play(way, FRESH[name], 2), expected(FRESH[name], 2, way == "eager"), way == "eager")


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("way", ["lazy", "eager"])
def test_on_tables_silos_do_what_the_definition_says(way: Way, name: str) -> None:
    assert_same(play(way, TABLES[name], 1), expected(TABLES[name], 1, way == "eager"), way == "eager")


POLICIES = (Policy("thompson", scale=0.5, floor=0.1), Policy("inverse-gap", scale=3.0), Policy(floor=0.4))


@pytest.mark.parametrize("case", [FRESH["bernoulli"], TABLES["ragged"]], ids=["fresh", "table"])
@pytest.mark.parametrize("policies", [POLICIES[:2], POLICIES[1:], (UCB, POLICIES[0])], ids=str)
def test_policies_choose_as_a_live_silo_would(policies: tuple[Policy, Policy], case: Case) -> None:
    """The compiled policies draw the very actions of `bandit.policies`, by the same chance; another scale does not."""
    explored = case._replace(policies=policies)
    got, wanted = play("lazy", explored, 1), expected(explored, 1, eager=False)
    assert_same(got, wanted, eager=False)
    other = case._replace(policies=(policies[0], Policy("inverse-gap", scale=2.0)))
    assert (play("lazy", other, 1)[0].points != got[0].points).any()


def test_fixed_arms_by_rank_one_identities_equal_plain_eager_acting() -> None:
    got = play("fixed", FIXED, 3)
    assert_same(got, play("eager", FIXED, 3), eager=True)
    assert_same(got, expected(FIXED, 3, eager=True), eager=True)


def test_silos_may_share_sets() -> None:
    case = TABLES["ragged"]
    shared = case._replace(source=table_of(case)._replace(ranges=np.array([[1, 6], [1, 6], [2, 7]])))
    assert_same(play("lazy", shared, 2), expected(shared, 2, eager=False), eager=False)


@pytest.mark.parametrize(
    ("way", "case"),
    [("lazy", FRESH["bernoulli"]), ("eager", FRESH["bernoulli"]), ("lazy", TABLES["ragged"]), ("fixed", FIXED)],
)
def test_results_do_not_depend_on_the_number_of_threads(way: Way, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked, "LITTLE", 0)  # a case as small as these is otherwise one thread's
    threads = numba.get_num_threads()
    try:
        numba.set_num_threads(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
        many = play(way, case, 3)
        numba.set_num_threads(1)
        one = play(way, case, 3)
    finally:
        numba.set_num_threads(threads)
    for got, wanted in zip([*one[0], *one[1]], [*many[0], *many[1]], strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_results_are_added_to_what_was_there_and_a_block_may_be_played_in_parts() -> None:
    case = FRESH["bernoulli"]
    whole, _ = play("lazy", case, 2)
    parts = empty_tally(case, 2)
    for first, rounds in [(30, 33), (63, 7)]:
        users = case.users._replace(first_round=first, rounds=rounds)
        some = parts._replace(points=np.ascontiguousarray(parts.points[:, :, :, :rounds]))
        k.play(users, case.source, case.rewards, beliefs_of(case), some)
    np.testing.assert_array_equal(parts.sums, whole.sums)
    np.testing.assert_allclose(parts.regret, whole.regret, rtol=1e-12)


def test_single_precision_scores_choose_as_double_ones_but_for_near_ties() -> None:
    """Scores differ by about 1e-6 and gaps between the best two of 100 are about 1e-2: a rare difference, no more."""
    case = fresh_case(arms=100, rounds=200)
    for way in ("lazy", "eager"):
        double, single = play(way, case, 5)[0], play(way, case, 5, np.float32)[0]
        same = (double.points == single.points).all(axis=-1).mean()
        assert same > 0.99
        np.testing.assert_allclose(single.regret, double.regret, rtol=0.05)
    other = case._replace(radius=case.radius * 1.3)
    assert (play("lazy", other, 5)[0].points == double.points).all(axis=-1).mean() < 0.99


def test_equal_scores_go_to_the_lowest_index() -> None:
    case = table_case(sizes=(16, 9, 5), bounds=(0, 1, 2, 3), rounds=3)
    dim = case.theta.shape[-1]
    means = np.arange(30.0)
    table = k.make_table(np.full((30, dim), 0.3), [0, 16, 25, 30], means, table_of(case).ranges)
    tied = case._replace(source=table, rewards=k.Rewards(k.GAUSSIAN, 0.0))
    first_means = np.array([0, 16, 25], dtype=np.float32)
    for way in ("lazy", "eager", "fixed"):
        rewards = play(way, tied, 1)[0].points[0, ..., -1]  # (runs, silos, rounds)
        np.testing.assert_array_equal(rewards, np.broadcast_to(first_means[:, None], rewards.shape))
