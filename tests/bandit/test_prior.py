"""What a term begins with: how much of it is left, the noise it brings, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedbandit._validate import ArgumentError
from fedbandit.bandit.confidence import NoiseLaw
from fedbandit.bandit.prior import COSTS_NOTHING, IN_THE_CLEAR, Prior
from fedbandit.bandit.statistics import Scales, width
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import adaptive, every

SUMS = (1.0, -2.0, 3.0, 0.5, 4.0)
PRIOR = Prior(SUMS, Scales(3.0, 4.0, 0.25), visits=40.0, weight=0.5)


@pytest.mark.parametrize(("sync", "left"), [(-1, 0.4), (0, 0.4), (1, 0.32), (4, 0.16384)])
def test_every_sync_leaves_less_of_it(sync: int, left: float) -> None:
    """Half of it enters, and a sync leaves 0.8; the first model, before any sync, has as much as the next."""
    np.testing.assert_allclose(PRIOR.left(sync, 0.8), left * np.array(SUMS))
    np.testing.assert_allclose(PRIOR.left(sync, 0.8, np.ones((3, 5))), np.full((3, 5), left))
    np.testing.assert_allclose(PRIOR.left(sync, 1.0), 0.5 * np.array(SUMS))


@pytest.mark.parametrize(
    ("noise", "step"),
    [
        (Scales(3.0, 4.0, 0.25), COSTS_NOTHING),
        (Scales(3.0, 0.0, 0.0), IN_THE_CLEAR),  # contexts in the clear, rewards not
        (Scales(0.0, 0.0, 0.0), IN_THE_CLEAR),
    ],
)
def test_a_budget_was_spent_only_where_every_sum_had_noise(noise: Scales, step: str) -> None:
    assert Prior(SUMS, noise, visits=40.0).step == step


def test_its_noise_adds_up_in_squares_and_fades() -> None:
    law = NoiseLaw(np.array([2.0, 1.0]), np.array([1.5, 0.0]), np.array([0.0, 2.0]), silos=3)
    added = PRIOR.added(law, 0.8)
    np.testing.assert_allclose(added.bias, np.sqrt([4 + 1.2**2, 1 + 0.96**2]))
    np.testing.assert_allclose(added.diagonal, np.sqrt([2.25 + 1.6**2, 1.28**2]))
    np.testing.assert_allclose(added.off_diagonal, np.sqrt([0.01, 4 + 0.08**2]))
    assert added.silos == 3
    assert PRIOR.counts == 20.0


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"sums": (1.0, float("nan"))}, "prior"),
        ({"noise": Scales(1.0, float("inf"), 1.0)}, "prior"),
        ({"noise": Scales(1.0, -1e-9, 1.0)}, "prior"),
        ({"visits": float("inf")}, "prior"),
        ({"visits": -1.0}, "prior"),
        ({"weight": 0.0}, "weight"),
        ({"weight": 1.5}, "weight"),
    ],
    ids=str,
)
def test_what_is_no_prior_is_refused(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(ArgumentError) as error:
        Prior(**{"sums": SUMS, "noise": Scales.flat(1.0), "visits": 1.0, **fields})
    assert error.value.field == field


def test_nothing_learnt_and_no_noise_are_a_prior() -> None:
    bare = Prior(SUMS, Scales.flat(0.0), visits=0.0)
    assert bare.weight == 1.0
    assert bare.counts == 0.0


def test_it_reads_back() -> None:
    data = {"sums": list(SUMS), "noise": [3.0, 4.0, 0.25], "visits": 40.0}
    assert Prior.from_dict({**data, "weight": 0.5}) == PRIOR
    assert Prior.from_dict(data).weight == 1.0
    with pytest.raises(ArgumentError, match="must have 3 standard deviations, got 2"):
        Prior.from_dict({**data, "noise": [3.0, 4.0]})


@pytest.mark.parametrize(
    "fields", [{"acting": "eager"}, {"schedule": adaptive(2.0)}, {"confidence": "published"}, {"dim": 3}], ids=str
)
def test_plans_that_have_no_use_for_it_refuse_it(fields: dict[str, Any]) -> None:
    made = {"trust": "silo", "schedule": every(5), "dim": 2, **fields}
    assert len(SUMS) == width(2)
    with pytest.raises(ArgumentError) as error:
        Plan(3, 20, privacy=Privacy(1.0, 1e-5), prior=PRIOR, **made)
    assert error.value.field == "prior"
