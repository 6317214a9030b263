"""The neighbours the auditor plays are the worst there are."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from fedbandit import Plan, Privacy, clock, every, presets
from fedbandit.audit.calendar_game import calendar_game, decided
from fedbandit.audit.worlds import neighbours, people, placement, telling_pair, visits, worst_pair
from fedbandit.bandit.statistics import contributions, is_diagonal, width
from fedbandit.privacy.sensitivity import Adjacency, joint_shift
from fedbandit.protocol import mechanisms
from fedbandit.schedule import Schedule

PAPER = Plan(silos=100, rounds=10_000, dim=10, privacy=Privacy(1.0, 1e-5))


def _shift(dim: int, adjacency: Adjacency, centre: float, ratio: float, turned: bool) -> np.ndarray:
    one, other = worst_pair(dim, adjacency, centre, ratio, turned=turned)
    points = [contributions(user.x, user.y, 40, centre) for user in (one, other)]
    return (points[0] - points[1]) * 2.0**-40


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize(("centre", "ratio"), [(0.0, 1.0), (0.5, 1.0), (0.0, 0.3), (0.0, 4.0), (1.0, 1.0)])
@pytest.mark.parametrize("dim", [2, 3, 5])
@pytest.mark.parametrize("turned", [True, False])
def test_worst_pair_reaches_the_joint_shift(
    adjacency: Adjacency, centre: float, ratio: float, dim: int, turned: bool
) -> None:
    """In general position too: the Frobenius-exact layout does not care how a pair is turned."""
    move = _shift(dim, adjacency, centre, ratio, turned)
    frobenius = np.where(is_diagonal(dim), 1.0, 2.0)
    frobenius[:dim] = ratio
    reached = np.sqrt(np.sum(frobenius * move**2))
    assert reached == pytest.approx(joint_shift(adjacency, max(centre, 1 - centre), ratio), abs=1e-9)


def test_worst_pair_moves_the_diagonal_only() -> None:
    """There, noise that is the same on every number hides no more than Frobenius-exact noise."""
    move = _shift(3, "replace-one", 0.0, 1.0, turned=False)
    assert np.abs(move[3:][~is_diagonal(3)[3:]]).max() < 1e-10


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("dim", [2, 3, 4])
def test_in_general_position_every_number_of_the_covariance_moves(adjacency: Adjacency, dim: int) -> None:
    move = np.abs(_shift(dim, adjacency, 0.0, 1.0, turned=True))
    assert move[dim:].min() > 0.03
    assert move[:dim].max() > 0.3


def test_exact_plans_are_audited_in_general_position_and_flat_noise_where_it_hides_least() -> None:
    exact, flat = PAPER.changed(trust="silo", dim=3), presets.ldp(PAPER.changed(dim=3))
    for plan, turned in ((exact, True), (flat, False)):
        pair = worst_pair(3, "replace-one", plan.centre, plan.ratio, turned=turned)
        for chosen, wanted in zip(telling_pair(plan), pair, strict=True):
            assert np.array_equal(chosen.x, wanted.x)


@pytest.mark.parametrize("name", ["tree", "toeplitz", "batches", "blt"])
def test_the_user_is_where_the_column_is_largest(name: str) -> None:
    encoder = mechanisms.encoder(name, 12)
    norms = np.linalg.norm(encoder.coefficients, axis=0)
    (home,) = np.flatnonzero(placement(encoder.coefficients, [1] * 12, 1, [1.0] * 12))
    assert norms[home] == pytest.approx(norms.max())


def test_a_returning_user_goes_where_the_visits_fit() -> None:
    encoder = mechanisms.encoder("batches", 4)
    assert placement(encoder.coefficients, [1, 3, 9, 9], 5, [1.0] * 4) == (0, 0, 5, 0)


@pytest.mark.parametrize(("eager", "moved"), [(True, 25), (False, 1)])
def test_one_user_flips_the_other_24_if_the_silo_acts_on_raw_sums(eager: bool, moved: int) -> None:
    """B = 25, d = 10, T = 10,000, the paper's lambda and radii."""
    plan = presets.ldp_eager(PAPER) if eager else presets.ldp(PAPER)
    game = calendar_game(plan, 1, neighbours(plan, 1))
    prefix = np.zeros((1, width(plan.dim)))
    sums = [decided(plan, world[0], prefix, game.eager)[0, 0] for world in game.worlds]
    different = (sums[0] != sums[1]).any(axis=-1)
    assert different.sum() == moved
    shift = (sums[0].sum(axis=0) - sums[1].sum(axis=0)) * 2.0**-plan.bits
    assert np.linalg.norm(shift) == pytest.approx(moved * joint_shift("replace-one"), abs=1e-3)


def test_worlds_differ_in_the_user_alone() -> None:
    plan = Plan(silos=3, rounds=40, dim=3, privacy=Privacy(1.0, 1e-5, participations=2), schedule=every(8))
    low, high = neighbours(plan, 3)
    assert [batch.fixed.shape[1] + batch.choosers for batch in low] == np.diff((0, *plan.times)).tolist()
    for sync, (one, other) in enumerate(zip(low, high, strict=True)):
        assert np.array_equal(one.actions, other.actions)
        assert np.array_equal(one.rewards, other.rewards)
        different = (one.fixed != other.fixed).any(axis=-1)
        assert different.sum() == (2 if sync == 0 else 0)
        assert not different[1:].any()


@pytest.mark.parametrize(
    ("schedule", "visits_of", "people_of"),
    [
        (every(8), (5, 0, 0, 0, 0), (8, 8, 8, 8, 8)),
        (every(4), (4, 1, *[0] * 8), (4,) * 10),
        (every(1), (*[1] * 5, *[0] * 35), (1,) * 40),
        (clock(60), (5, *[0] * 39), (5, *[1] * 39)),
    ],
    ids=str,
)
def test_the_user_comes_as_often_as_the_promise_allows(
    schedule: Schedule, visits_of: tuple[int, ...], people_of: tuple[int, ...]
) -> None:
    plan = Plan(3, 40, 3, Privacy(1.0, 1e-5, participations=5, silos_per_user=2), trust="silo", schedule=schedule)
    assert (visits(plan), people(plan, visits(plan))) == (visits_of, people_of)
    low, high = neighbours(plan, 2)
    assert [batch.fixed.shape[1] + batch.choosers for batch in low] == list(people_of)
    for one, other, count in zip(low, high, visits_of, strict=True):
        assert (one.fixed != other.fixed).any(axis=-1).sum(axis=-1).tolist() == [count, count]


def test_acting_eagerly_every_visit_flips_another_batch() -> None:
    plan = Plan(3, 40, 3, Privacy(1.0, 1e-5, participations=3), trust="silo", schedule=every(8), acting="eager")
    assert sorted(visits(plan)) == [0, 0, 1, 1, 1]


@pytest.mark.parametrize("mechanism", ["tree", "toeplitz", "batches", "blt"])
@pytest.mark.parametrize("room", [(2, 1, 1, 2), (1, 1, 1, 1), (1, 3, 1, 1), (4, 4, 4, 4)])
def test_no_other_placement_of_the_visits_moves_the_releases_further(mechanism: str, room: tuple[int, ...]) -> None:
    """Of all placements there are, to a few percent."""
    encoder, total = mechanisms.encoder(mechanism, 4), 3
    chosen = placement(encoder.coefficients, room, total, [1.0] * 4)
    every_one = (n for n in product(*(range(places + 1) for places in room)) if sum(n) == total)
    furthest = max(np.linalg.norm(encoder.coefficients @ np.array(n)) for n in every_one)
    assert sum(chosen) == total
    assert np.linalg.norm(encoder.coefficients @ np.array(chosen)) >= 0.97 * furthest


def test_alone_the_user_moves_the_releases_as_far() -> None:
    plan = Plan(3, 40, 3, Privacy(1.0, 1e-5, participations=3, silos_per_user=2), schedule=every(2))
    full, alone = (calendar_game(plan, 3, neighbours(plan, 3, alone=alone)).exact_mu() for alone in (False, True))
    assert alone == pytest.approx(full)
    assert len(alone) == 2
