"""Users of every kind can be simulated, and those that there cannot be are refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.simulator.kernels import Fresh, Table, contexts_of
from fedbandit.simulator.kernels.contexts import set_block
from fedbandit.simulator.tasks import synthetic
from tests.simulator.small import PLANS


@pytest.mark.parametrize("rewards", ["bernoulli", "gaussian", "clipped", "exact"])
@pytest.mark.parametrize("contexts", ["fresh", "fixed"])
def test_every_kind_of_user(rewards: Any, contexts: Any) -> None:
    task = synthetic(3, 7, rewards=rewards, contexts=contexts, basis=contexts == "fixed", same_in_all_runs=True)
    result = fb.simulate(task, {name: PLANS[name] for name in ("fed-lin-ucb", "ldp-eager")}, 2)
    assert np.isfinite(result.frame["regret"].to_numpy()).all()
    assert task.responses.bounded == (rewards != "gaussian")


def test_the_first_actions_are_the_published_ones_and_the_last_of_them_is_not_linear() -> None:
    task = synthetic(10, 100, contexts="fixed", basis=True)
    table, theta = task.source(seed=3, runs=(0,), silos=2), task.theta(3, 0)
    assert isinstance(table, Table)
    for silo in range(2):
        x = set_block(table, np.int64(silo))[:10, :100].T.astype(float)
        means = table.means[table.offsets[silo] : table.offsets[silo + 1]]
        raw = np.concatenate([x[:, :-1] * math.sqrt(2), np.ones((100, 1))], axis=1)  # rows (v, 1)
        raw[9] = np.eye(10)[9]
        np.testing.assert_allclose(raw[:9], np.eye(10)[:9] + np.eye(10)[9], atol=1e-6)
        np.testing.assert_allclose(x, raw / np.linalg.norm(raw, axis=1, keepdims=True), atol=1e-6)
        np.testing.assert_allclose(means, raw @ (theta / math.sqrt(2)), atol=1e-6)
        assert 0 <= means.min() < means.max() <= 1
        np.testing.assert_allclose(np.delete(x @ theta - means, 9), 0, atol=1e-6)
        assert (means[9], x[9] @ theta) == (0.5, pytest.approx(0.7071, abs=1e-4))
    np.testing.assert_array_equal(task.theta(3, 0), task.theta(3, 24))  # the same in all runs


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_expected_rewards_do_not_depend_on_how_rows_are_written(share: float) -> None:
    usual, other = synthetic(5, 7), synthetic(5, 7, constant_share=share)
    for run in range(3):
        means = [
            contexts_of(9, run, 1, 4, 7, 5, task.constant_share).astype(float) @ task.theta(9, run)
            for task in (usual, other)
        ]
        np.testing.assert_allclose(means[0], means[1], atol=1e-6)
    source = other.source(9, (0,), 2)
    assert isinstance(source, Fresh)
    assert source.constant_share == share
    fixed = [synthetic(5, 7, contexts="fixed", constant_share=one).source(9, (0,), 2) for one in (0.5, share)]
    half, light = (one.means for one in fixed if isinstance(one, Table))
    np.testing.assert_allclose(half, light, atol=1e-6)


def test_regret_by_rewards_has_the_mean_of_regret_by_means_and_more_noise() -> None:
    plans = {"ldp-eager": PLANS["ldp-eager"]}
    tasks = [synthetic(3, 7, "gaussian", contexts="fixed", realised=realised) for realised in (False, True)]
    exact, noisy = (fb.simulate(task, plans, 400).final("ldp-eager") for task in tasks)
    plan, difference = plans["ldp-eager"], noisy - exact
    spread = 0.5 * math.sqrt(plan.silos / plan.rounds)  # of the mean of silos * rounds rewards, times the silos
    assert abs(difference.mean()) < 5 * spread / math.sqrt(400)
    assert difference.std() == pytest.approx(spread, rel=0.2)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"basis": True}, "basis must be False unless contexts are 'fixed' and there are 3 arms"),
        ({"constant_share": 1.0}, "constant_share must lie strictly between 0 and 1, got 1.0"),
        (
            {"basis": True, "contexts": "fixed", "constant_share": 0.1},
            "constant_share must be 0.5 with a basis, got 0.1",
        ),
        ({"dim": 1}, "dim must be a whole number >= 2, got 1"),
        ({"arms": 0}, "arms must be a whole number >= 1, got 0"),
        ({"contexts": "stale"}, "contexts must be one of fresh, fixed; got 'stale'"),
        ({"rewards": "poisson"}, "rewards must be one of bernoulli, gaussian, clipped, exact; got 'poisson'"),
        ({"reward_std": 0.0}, "reward_std must be a finite number > 0, got 0.0"),
        ({"reward_std": float("nan")}, "reward_std must be a finite number > 0, got nan"),
    ],
)
def test_users_that_there_cannot_be(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:
        synthetic(**{"dim": 3, "arms": 5, **fields})
    assert str(error.value) == message
