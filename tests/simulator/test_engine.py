"""Every plan plays: what all of them have in common, in both precisions, and with schedules that the data decide."""

from __future__ import annotations

import numpy as np
import polars as pl

import fedbandit as fb
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import adaptive, every
from fedbandit.simulator.tasks import synthetic
from tests.simulator.small import PLANS, TASK
from tests.statistical import difference_score


def test_all_protocols_have_the_same_first_round() -> None:
    """Before anything is learnt theta is zero and V a multiple of I: everybody takes the longest feature."""
    played = fb.simulate(TASK, PLANS, 2, seed=3, precision="float64").frame.filter(pl.col("round") == 1)
    for _, rows in played.group_by("run"):
        assert np.ptp(rows["regret"].to_numpy()) < 1e-9


def test_nothing_is_repaired_without_noise() -> None:
    """Covariances that are not of full rank yet, rounded to the grid, are not broken ones."""
    plans = {"every": Plan(1, 40, 6, trust="none", schedule=every(1)), "growing": Plan(1, 40, 6, trust="none")}
    assert fb.simulate(synthetic(6, 8), plans, 3).repaired == {"every": 0, "growing": 0}


def test_float32_and_float64_have_the_same_regret_in_the_mean() -> None:
    """Features all have norm 1, so the first decisions are ties that rounding breaks: runs are not the same."""
    plans = {name: PLANS[name] for name in ("silo", "ldp-eager")}
    single = fb.simulate(TASK, plans, 60, seed=1, precision="float32")
    double = fb.simulate(TASK, plans, 60, seed=1, precision="float64")
    for name in plans:
        assert abs(difference_score(single.final(name), double.final(name))) < 4.5


def test_an_adaptive_plan_of_every_acting_and_trust_runs() -> None:
    plans = {
        "raw": Plan(3, 20, 3, trust="none", schedule=adaptive(2.0)),
        "private": Plan(3, 20, 3, Privacy(5.0, 0.1), "central", "tree", adaptive(2.0, private=True)),
    }
    result = fb.simulate(TASK, plans, 2)
    assert result.syncs("raw") > 2
