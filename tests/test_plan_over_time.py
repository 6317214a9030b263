"""At a round of a plan: who is remembered, which lambda serves, what is left of a prior, whom raw data serve."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedbandit.bandit.prior import Prior
from fedbandit.bandit.statistics import Scales, width
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import At, Schedule, clock, every, growing


def made(rounds: int = 12, **fields: Any) -> Plan:
    usual = {"silos": 3, "dim": 2, "privacy": Privacy(1.0, 1e-3), "schedule": clock(60.0)}
    return Plan(**{**usual, **fields}, rounds=rounds)


@pytest.mark.parametrize("schedule", [every(1), every(3), growing(1.6), At((2, 7, 12))], ids=str)
@pytest.mark.parametrize("forget", [1.0, 0.5])
def test_a_round_is_remembered_as_much_as_the_syncs_since_leave_of_it(schedule: Schedule, forget: float) -> None:
    plan = made(schedule=schedule, forget=forget)
    for now in range(13):
        past = [time for time in plan.times if time <= now]
        left = sum(forget ** max(0, len([time for time in past if time >= round_]) - 1) for round_ in range(1, now + 1))
        assert plan.remembered(now) == pytest.approx(left)


@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_without_an_end_rounds_beyond_those_looked_at_are_forgotten_alike(rounds: int) -> None:
    plan = made(rounds, forget=0.5, endless=True)
    for now in range(1, 12):
        assert plan.remembered(now) == pytest.approx(2 - 0.5 ** (now - 1))


def test_lambda_is_that_of_the_last_sync() -> None:
    plan = made(confidence="practical", schedule=every(2))
    found = plan.learner.regularisers
    assert len(set(found.tolist())) > 1
    syncs = [max(0, now // 2 - 1) for now in range(20)]
    assert [plan.regulariser_after(now) for now in range(20)] == [found[min(sync, 5)] for sync in syncs]


@pytest.mark.parametrize(
    ("plan", "last"),
    [
        (made(forget=0.5), 12),
        (made(forget=0.5, endless=True), 20),
        (made(3, forget=0.5, endless=True), 20),
        (made(schedule=At((2, 7, 12)), forget=0.5), 3),
        (made(schedule=At((4, 8, 12)), forget=0.5, endless=True), 3),
    ],
    ids=["an end", "none", "none, three looked at", "at", "at, without an end"],
)
def test_a_prior_is_forgotten_sync_by_sync(plan: Plan, last: int) -> None:
    numbers = width(2)
    plan = plan.changed(prior=Prior((8.0,) * numbers, Scales.flat(1.0), 100.0))
    done = [plan.known(np.ones(numbers), now)[0] for now in range(21)]
    syncs = [sum(time <= now for time in range(1, 21)) for now in range(21)]
    if isinstance(plan.schedule, At):
        syncs = [sum(time <= now for time in plan.times) for now in range(21)]
    assert done == pytest.approx([1 + 8 * 0.5 ** max(1, min(sync, last)) for sync in syncs])


@pytest.mark.parametrize(
    ("fields", "served"),
    [
        ({}, "local"),
        ({"participations": 3}, "local"),
        ({"silos_per_user": 2}, "public"),
        ({"participations": 3, "apart": 2}, "public"),
        ({"participations": 3, "apart": 2, "silos_per_user": 2}, "public"),
    ],
)
def test_raw_data_serve_nobody_who_may_count_elsewhere_or_again(fields: dict[str, int], served: str) -> None:
    assert made(privacy=Privacy(1.0, 1e-3, **fields)).serves_uncounted == served  # type: ignore[arg-type]
