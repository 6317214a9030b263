"""Users of every kind can be simulated, and those that there cannot be are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.simulator.tasks import synthetic
from tests.simulator.small import PLANS


@pytest.mark.parametrize("rewards", ["bernoulli", "gaussian", "clipped", "exact"])
@pytest.mark.parametrize("contexts", ["fresh", "fixed"])
def test_every_kind_of_user(rewards: Any, contexts: Any) -> None:
    task = synthetic(3, 7, rewards=rewards, contexts=contexts, basis=True, same_in_all_runs=True)
    result = fb.simulate(task, {name: PLANS[name] for name in ("fed-lin-ucb", "ldp-eager")}, 2)
    assert np.isfinite(result.frame["regret"].to_numpy()).all()
    assert task.responses.bounded == (rewards != "gaussian")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
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
