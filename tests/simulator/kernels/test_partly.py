"""Visits of which only some count, against the plain computation of the same thing."""

from __future__ import annotations

import numpy as np
import pytest

from fedbandit.bandit.statistics import contributions
from fedbandit.simulator import kernels as k
from fedbandit.simulator.randomness import VISIT, uniform, user_key
from tests.simulator.kernels.cases import (
    BITS,
    FRESH,
    SEED,
    TABLES,
    Case,
    actions_of,
    beliefs_of,
    empty_tally,
    local_of,
    reward_of,
)

SHARE = 0.5  # of the visits that count


def nothing_kept(case: Case, tally: k.Tally) -> k.Kept:
    lead = tally.regret.shape
    share = np.full((2, case.users.rounds), SHARE)
    counts = np.zeros(lead, dtype=np.int64)
    return k.Kept(share, np.ones(2, dtype=bool), np.zeros_like(tally.sums), np.zeros(lead), counts, np.zeros(lead))


def expected(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Sums of those who count, decided by one fixed model, and of the others, by one that learns from everybody."""
    tally = empty_tally(case, case.users.silos)
    counted, others = tally.sums, np.zeros_like(tally.sums)
    for q, run, silo in np.ndindex(2, len(case.users.runs), case.users.silos):
        matrix, public = case.precision[q, run].copy(), np.linalg.inv(case.precision[q, run])
        bias = matrix @ case.theta[q, run]
        for i in range(case.users.rounds):
            now = case.users.first_round + i
            key = np.uint64(user_key(np.uint64(SEED), int(case.users.runs[run]), silo, now, VISIT))
            counts = uniform(key) < SHARE
            x, means = actions_of(case, run, silo, now)
            inverse, radius = (
                (public, case.radius[q, run, 0]) if counts else (np.linalg.inv(matrix), case.radius[q, run, i])
            )
            theta = case.theta[q, run] if counts else inverse @ bias
            arm = int(np.argmax(x @ theta + radius * np.sqrt(np.einsum("aj,jk,ak->a", x, inverse, x))))
            reward = reward_of(case, run, silo, now, means[arm])
            (counted if counts else others)[q, run, silo] += contributions(x[arm], reward, BITS, float(case.centre[q]))
            matrix += np.outer(x[arm], x[arm])
            bias += x[arm] * (reward - case.centre[q])
    return counted, others


@pytest.mark.parametrize("case", [FRESH["clipped"], TABLES["sets that come again"]], ids=["fresh", "table"])
def test_those_who_count_are_served_by_one_model_and_the_others_by_another(case: Case) -> None:
    tally = empty_tally(case, case.users.silos)
    kept = nothing_kept(case, tally)
    k.play_partly(case.users, case.source, case.rewards, beliefs_of(case), local_of(case), kept, tally)
    counted, others = expected(case)
    np.testing.assert_array_equal(tally.sums, counted)
    np.testing.assert_array_equal(kept.sums, others)
    assert kept.visits.sum() == pytest.approx((1 - SHARE) * kept.visits.size * case.users.rounds, rel=0.1)
