"""Choices that follow other people's outcomes are noticed, and others are not accused."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from fedbandit.evaluation.apprenticeship import SUSPICIOUS, follows_others
from fedbandit.evaluation.decisions import from_frame
from fedbandit.evaluation.evaluating import evaluate
from fedbandit.evaluation.targets import suggested
from tests.evaluation.logs import World
from tests.evaluation.test_evaluating import frame_of


def choices(follow: float, seed: int, count: int = 1500) -> tuple[np.ndarray, np.ndarray]:
    """Some choices stay with what has just paid; all others depend on the person alone. Actions differ in what they
    pay, and in how often they are chosen."""
    rng = np.random.default_rng(seed)
    action = rng.choice(3, size=count, p=[0.6, 0.3, 0.1])
    reward = np.zeros(count)
    for i in range(count):
        if i and reward[i - 1] and rng.random() < follow:
            action[i] = action[i - 1]
        reward[i] = float(rng.random() < (0.8, 0.5, 0.1)[action[i]])
    return action, reward


def test_a_choice_by_the_own_record_is_not_accused() -> None:
    """p-values of 200 innocent applications: as uniform as a permutation test makes them."""
    found = np.array([follows_others(*choices(0.0, seed, 300)) for seed in range(200)])
    assert (found < 0.05).mean() < 0.05 + 4 * np.sqrt(0.05 * 0.95 / 200)
    assert (found < SUSPICIOUS).sum() <= 2  # 0.2 are expected; more than 2 have probability 0.1 %


@pytest.mark.parametrize("follow", [1.0, 0.3])
def test_one_that_follows_the_person_before_is(follow: float) -> None:
    assert follows_others(*choices(follow, 7)) < SUSPICIOUS


def test_the_report_of_an_apprenticeship() -> None:
    """What was played, what the model would have done, how often they agree and what it is estimated to be worth."""
    world = World(4)
    log, target = world.log(3000, np.random.default_rng(3))
    taught = frame_of(log).with_columns(own=pl.lit(True), probabilities=pl.Series(target.reshape(-1, 4).tolist()))
    found = evaluate(from_frame(taught), {"model": suggested})
    model = found["model"]
    assert model.worth["dr"].low < world.truth() < model.worth["dr"].high
    assert model.agreement == pytest.approx(target[log.played].mean())
    assert found.own == 3000
    (remark,) = found.remarks
    assert remark.startswith("the application chose in 3,000 decisions; no sign that its choices depend")
    assert remark in found._repr_html_()
