"""Lemma general with the constants of its proof: the regret stays below the bound, and the bound is not vacuous."""

from __future__ import annotations

import math

import pytest

from fedbandit import presets
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.simulator import tasks
from fedbandit.simulator.runner import simulate

SILOS, ROUNDS, DIM, BATCH = 20, 2_000, 3, 25


def bound(plan: Plan) -> float:
    """Steps 4 and 5 of the proof: good epochs by the elliptical potential, bad ones by their number."""
    users = SILOS * plan.rounds
    growth = math.log1p(users / (DIM * plan.learner.floor))
    good = 2 * math.sqrt(2) * plan.radius(plan.rounds) * math.sqrt(2 * DIM * users * growth)
    return good + SILOS * BATCH * DIM * growth / math.log(2)


@pytest.mark.parametrize("preset", [presets.fed_lin_ucb, presets.ldp])
def test_regret_stays_below_the_bound_of_the_proof(preset):
    plan = preset(Plan(SILOS, ROUNDS, DIM, privacy=Privacy(20.0, 0.1), confidence="proof"))
    assert plan.confidence == "proof"
    result = simulate(tasks.synthetic(DIM, 10), {"it": plan}, runs=3, seed=0)
    assert (result.final("it") * ROUNDS < bound(plan)).all()
    assert (result.final("it") * ROUNDS > 0).all()


def test_the_bound_says_something_once_there_are_enough_rounds():
    plan = presets.fed_lin_ucb(Plan(SILOS, 20 * ROUNDS, DIM, trust="none", confidence="proof"))
    assert bound(plan) < 0.5 * SILOS * plan.rounds  # an agent that is always wrong by 1 has twice that
