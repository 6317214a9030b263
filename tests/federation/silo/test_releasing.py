"""What a silo takes from its store into a release: as many points as planned, and none beyond its bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedbandit import Plan, Privacy, every
from fedbandit.federation.exact.exact_noise import ExactNoise
from fedbandit.federation.silo import releasing
from fedbandit.federation.store.rewards import CountedRow

GAUSSIAN = Plan(2, 12, 2, Privacy(1.0, 1e-5), "silo", "tree", every(5))
COUNTED = Plan(2, 12, 2, Privacy(1.0, 1e-5), "vector-sum", "tree", every(5), calibration="paper")
ROW = np.array([0.6, 0.8]).tobytes()


def draw(plan: Plan, rows: list[tuple[bytes, float]]) -> np.ndarray:
    _, (released,) = releasing.draw(plan, plan.protocol.init(), [CountedRow(*row) for row in rows], ExactNoise())
    return released


@pytest.mark.parametrize("plan", [GAUSSIAN, COUNTED], ids=lambda plan: plan.trust)
@pytest.mark.parametrize("reward", [1.0 + 1e-12, -1e-12, 1.5, -0.5, 2.0, math.nan, math.inf])
def test_a_stored_reward_beyond_its_bounds_stops_the_release(plan: Plan, reward: float) -> None:
    """Alone or among others: the sensitivity counts on every one of them."""
    for rows in ([(ROW, reward)], [(ROW, 0.5), (ROW, reward)], [(ROW, reward), (ROW, 0.5), (ROW, 1.0)]):
        with pytest.raises(ValueError, match="beyond their bounds: nothing is released"):
            draw(plan, rows)


@pytest.mark.parametrize("plan", [GAUSSIAN, COUNTED], ids=lambda plan: plan.trust)
def test_rewards_at_their_bounds_are_released(plan: Plan) -> None:
    assert draw(plan, [(ROW, 0.0), (ROW, 1.0)]).shape == (plan.protocol.width,)


@pytest.mark.parametrize("plan", [GAUSSIAN, COUNTED], ids=lambda plan: plan.trust)
def test_stored_features_that_are_too_long_stop_the_release(plan: Plan) -> None:
    with pytest.raises(ValueError, match="beyond their bounds: nothing is released"):
        draw(plan, [(ROW, 0.5), (np.array([1.1, 0.0]).tobytes(), 0.5)])


@pytest.mark.parametrize(("sync", "planned"), [(0, 5), (1, 5), (2, 2)])
@pytest.mark.parametrize("came", [0, 1, 2])
def test_where_points_are_counted_there_are_as_many_as_planned(sync: int, planned: int, came: int) -> None:
    """P_vec shifts every point: one more or fewer of them would show who came."""
    points = releasing._points(COUNTED, sync, [CountedRow(ROW, 1.0)] * came)
    assert points.shape == (planned, COUNTED.protocol.width)
    assert (points != 0).any(axis=1).tolist() == [True] * came + [False] * (planned - came)


def test_elsewhere_a_batch_is_its_sum() -> None:
    one, two = (releasing._points(GAUSSIAN, 0, [CountedRow(ROW, 1.0)] * came) for came in (1, 2))
    assert np.array_equal(two, 2 * one)
    assert one.shape == (1, GAUSSIAN.protocol.width)
    assert not releasing._points(GAUSSIAN, 0, []).any()
