"""The prediction ranks plans as simulations do, and its parts are what they are said to be."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.bandit.confidence import NoiseLaw
from fedbandit.plan import Plan
from fedbandit.planner.prediction import lost_rounds, noise_energy
from fedbandit.planner.tuning import tuned
from fedbandit.presets import plan_for

BASE = Plan(20, 1000, 5, fb.Privacy(1.0, 0.1), confidence="practical")


def test_noise_energy_is_the_expected_squared_error() -> None:
    """Against draws of N theta and h, for two directions of theta."""
    law = NoiseLaw(np.array([2.0]), np.array([3.0]), np.array([1.5]))
    rng, dim = np.random.default_rng(0), 4
    matrices = np.triu(rng.standard_normal((200_000, dim, dim)) * 1.5, 1)
    matrices = (
        matrices
        + np.swapaxes(matrices, 1, 2)
        + np.einsum("ni,ij->nij", rng.standard_normal((200_000, dim)) * 3, np.eye(dim))
    )
    vectors = rng.standard_normal((200_000, dim)) * 2
    for theta in (np.eye(dim)[0], np.full(dim, 0.5)):
        squares = ((matrices @ (0.7 * theta)) ** 2).sum(axis=1) + (vectors**2).sum(axis=1)
        error = 5 * squares.std() / np.sqrt(len(squares))
        expected = noise_energy(law, dim, 0.7)[0]
        assert abs(squares.mean() - expected) < error
        assert abs(squares.mean() - 1.3 * expected) > error


def test_protocols_rank_as_simulated() -> None:
    plans = {name: plan_for(name, BASE) for name in ("fed-lin-ucb", "silo", "secure-sum", "ldp")}
    plans |= {f"{name} tuned": tuned(plans[name], centred=True) for name in ("silo", "secure-sum")}
    result = fb.simulate(fb.tasks.synthetic(5, 50), plans, runs=6, seed=3)
    predicted = sorted((name for name in plans if name != "fed-lin-ucb"), key=lambda name: lost_rounds(plans[name]))
    assert predicted == ["secure-sum tuned", "secure-sum", "silo tuned", "silo", "ldp"]
    for better, worse in pairwise(predicted):
        gap = result.excess(worse, over=better)
        assert gap.mean > -2 * gap.stderr, (better, worse, gap)
    for worst in ("silo", "ldp"):
        gap = result.excess(worst, over="secure-sum tuned")
        assert gap.mean > 3 * gap.stderr, (worst, gap)


@pytest.mark.parametrize("trust", ["silo", "secure-sum"])
def test_less_budget_costs_more(trust: str) -> None:
    costs = [lost_rounds(BASE.changed(trust=trust, privacy=fb.Privacy(eps, 0.1))) for eps in (5.0, 1.0, 0.2, 0.02)]
    assert costs == sorted(costs)
    assert all(0 < cost <= BASE.rounds for cost in costs)


def test_privacy_is_the_difference_to_no_noise() -> None:
    free = BASE.changed(trust="none", privacy=None)
    assert lost_rounds(BASE) > lost_rounds(free)
    assert lost_rounds(free) == pytest.approx(lost_rounds(free.changed(mechanism="batches")))  # no noise, no mechanism
    assert lost_rounds(BASE.changed(privacy=fb.Privacy(1e-4, 1e-6))) == BASE.rounds  # nothing can be learnt


def test_a_schedule_that_data_decide_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^schedule must be public to be predicted, got adaptive"):
        lost_rounds(BASE.changed(schedule=fb.adaptive(10.0), trust="none", privacy=None))
