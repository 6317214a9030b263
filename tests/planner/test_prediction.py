"""The prediction agrees with simulations, in units of regret and in the order of plans, and its parts are what they
are said to be."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import fedbandit as fb
from fedbandit._validate import ArgumentError
from fedbandit.bandit.confidence import NoiseLaw, self_normalised
from fedbandit.bandit.directions import best_of
from fedbandit.plan import Plan
from fedbandit.planner.best import recommended
from fedbandit.planner.consortium import Consortium
from fedbandit.planner.prediction import _Silos, noise_variance, predicted, predicted_alone
from fedbandit.planner.tuning import tuned
from fedbandit.presets import isolated, plan_for
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import Every, Growing
from fedbandit.simulator.attendance import Attendance
from fedbandit.simulator.runner import simulate
from fedbandit.simulator.tasks import synthetic

BASE = Plan(20, 1000, 5, fb.Privacy(1.0, 0.1), confidence="practical")
MODEL = 0.35  # the model is good to about a third, in either direction: docs/planning.md


def cost(plan: Plan, arms: int = 50) -> float:
    return plan.silos * predicted(plan, arms).mean()


def test_noise_is_that_of_one_coordinate() -> None:
    """Against draws of h - N theta across theta, for centred rewards and others."""
    law = NoiseLaw(np.array([2.0]), np.array([3.0]), np.array([1.5]))
    rng, draws = np.random.default_rng(0), 200_000
    for centre, share in ((0.5, 0.5), (0.0, 0.5), (0.5, 0.1), (0.2, 0.1)):
        constant = (0.5 - centre) / np.sqrt(share)
        theta = np.array([0.5 / np.sqrt(1 - share), 0.0, 0.0, constant])  # along, across, across, constant
        row = rng.standard_normal((draws, 4)) * np.array([1.5, 3.0, 1.5, 1.5])  # the row of N of the second coordinate
        noise = 2.0 * rng.standard_normal(draws) - row @ theta
        error = 5 * np.sqrt(2 / draws) * noise.var()
        assert abs(noise.var() - noise_variance(law, centre, share)[0]) < error
        assert abs(noise.var() - 1.1 * noise_variance(law, centre, share)[0]) > error


@pytest.mark.parametrize(
    "plan",
    [
        BASE.changed(centre=0.5, ratio=4.0, mechanism="optimal", schedule=Growing(1.3)),
        BASE.changed(centre=0.5, ratio=4.0, mechanism="early", schedule=Growing(1.5, first=4)),
        BASE.changed(trust="silo", centre=0.5, ratio=4.0, mechanism="early", schedule=Growing(1.5, first=20)),
        BASE.changed(mechanism="optimal", schedule=Every(10)),
        BASE.changed(trust="none", privacy=None, schedule=Growing(1.2)),
    ],
    ids=["secure-sum", "early", "silo", "every", "none"],
)
def test_predictions_are_regrets(plan: Plan) -> None:
    result = fb.simulate(fb.tasks.synthetic(5, 50), {"plan": plan}, runs=12, seed=5)
    measured, slack = result.regret("plan"), 4 * result.regret("plan").stderr
    assert (1 - MODEL) * measured.mean - slack < cost(plan) < (1 + MODEL) * measured.mean + slack
    if plan.privacy is not None:  # and that of a thirtieth of the budget is another
        noisier = plan.changed(privacy=fb.Privacy(plan.privacy.epsilon / 30, plan.privacy.delta))
        assert cost(noisier) > (1 + MODEL) * measured.mean + slack
    late = result.regret("plan", second_half=True)
    predicted_late = plan.silos * predicted(plan, 50).mean(plan.rounds / 2)
    assert (1 - MODEL) * late.mean - 4 * late.stderr < predicted_late < (1 + MODEL) * late.mean + 4 * late.stderr


def test_what_a_light_constant_is_worth() -> None:
    """The same users with rows whose constant weighs little: less is lost, and as much less as is predicted."""
    plan = BASE.changed(trust="silo", centre=0.5, ratio=4.0, mechanism="early", schedule=Growing(1.5, first=20))
    gains, gap = [], []
    for share in (0.5, 0.1):
        result = fb.simulate(fb.tasks.synthetic(5, 50, constant_share=share), {"plan": plan}, runs=12, seed=5)
        gains.append(plan.silos * predicted(plan, 50, constant_share=share).mean())
        gap.append(result.final("plan"))
    gained = gap[0] - gap[1]
    stderr = gained.std(ddof=1) / np.sqrt(len(gained))
    assert gained.mean() > 3 * stderr
    foretold = gains[0] - gains[1]
    assert (1 - MODEL) * gained.mean() - 3 * stderr < foretold < (1 + MODEL) * gained.mean() + 3 * stderr


def test_staying_alone_is_predicted_too() -> None:
    """Few actions; with many in few dimensions, a silo alone does worse than predicted."""
    base = Plan(20, 1000, 8, confidence="practical", trust="none")
    result = fb.simulate(fb.tasks.synthetic(8, 4), {"alone": isolated(base)}, runs=6, seed=5)
    measured = result.regret("alone").mean
    assert (1 - MODEL) * measured < base.silos * predicted_alone(1000, 8, 4).mean() < (1 + MODEL) * measured


def test_visits_that_are_not_counted() -> None:
    """Served by all that the silo knows, they cost less than from the public model; both as simulated."""
    attendance = Attendance(consenting=0.3)
    local = BASE.changed(centre=0.5, ratio=4.0, schedule=Growing(1.3), mechanism="optimal")
    plans = {"local": local, "public": local.changed(uncounted="public")}
    result = fb.simulate(fb.tasks.synthetic(5, 50), plans, runs=6, seed=5, attendance=attendance)
    costs = {name: plan.silos * predicted(plan, 50, attendance).mean() for name, plan in plans.items()}
    for name in plans:
        measured, slack = result.regret(name).mean, 4 * result.regret(name).stderr
        assert (1 - MODEL) * measured - slack < costs[name] < (1 + MODEL) * measured + slack
    assert costs["local"] < costs["public"]
    assert costs["public"] > cost(local)


def test_protocols_rank_as_simulated() -> None:
    plans = {name: plan_for(name, BASE) for name in ("fed-lin-ucb", "silo", "secure-sum", "ldp")}
    plans |= {f"{name} tuned": tuned(plans[name], centred=True, arms=50) for name in ("silo", "secure-sum")}
    result = fb.simulate(fb.tasks.synthetic(5, 50), plans, runs=6, seed=3)
    ranked = sorted((name for name in plans if name != "fed-lin-ucb"), key=lambda name: cost(plans[name]))
    assert ranked == ["secure-sum tuned", "secure-sum", "silo tuned", "silo", "ldp"]
    for better, worse in pairwise(ranked):
        gap = result.excess(worse, over=better)
        assert gap.mean > -2 * gap.stderr, (better, worse, gap)
    for worst in ("silo", "ldp"):
        gap = result.excess(worst, over="secure-sum tuned")
        assert gap.mean > 3 * gap.stderr, (worst, gap)


@pytest.mark.parametrize("trust", ["silo", "secure-sum"])
def test_less_budget_costs_more(trust: str) -> None:
    costs = [cost(BASE.changed(trust=trust, privacy=fb.Privacy(eps, 0.1))) for eps in (5.0, 1.0, 0.2, 0.02)]
    assert costs == sorted(costs)
    assert all(0 < one <= cost(BASE.changed(privacy=fb.Privacy(1e-4, 1e-6))) for one in costs)


def test_privacy_is_the_difference_to_no_noise() -> None:
    free = BASE.changed(trust="none", privacy=None)
    assert cost(BASE) > cost(free)
    assert cost(free) == pytest.approx(cost(free.changed(mechanism="batches")))  # no noise, no mechanism


def test_one_dimension_has_no_direction() -> None:
    for ask in (lambda: predicted(BASE.changed(dim=1), 50), lambda: predicted_alone(100, 1, 4)):
        with pytest.raises(ArgumentError, match="dim must be at least 2"):
            ask()


def test_parts_of_the_horizon_add_up() -> None:
    prediction = predicted(BASE, 50)
    halves = [prediction.mean(0, 300), prediction.mean(300)]
    assert 0.3 * halves[0] + 0.7 * halves[1] == pytest.approx(prediction.mean())
    assert prediction.total(300) == pytest.approx(300 * halves[0])
    assert halves[0] > halves[1]


def test_a_schedule_that_data_decide_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^schedule must be public to be predicted, got adaptive"):
        cost(BASE.changed(schedule=fb.adaptive(10.0), trust="none", privacy=None))


@pytest.mark.parametrize(("along", "across", "users"), [(40.0, 0.5, 100.0), (300.0, 4.0, 800.0), (9.0, 8.0, 50.0)])
def test_radii_bend_what_is_taken_to_where_its_score_is_largest(along: float, across: float, users: float) -> None:
    silos = _Silos(best_of(10**6, 2), 2, 0.1, along=along, across=across, users=users)
    radius = 0.1 * (self_normalised(users, 3, 1.0, Plan.alpha) + 1)
    cosines = np.linspace(0, 1, 100_001)
    scores = 0.5 * cosines + radius * np.sqrt(cosines**2 / (along + 1) + (1 - cosines**2) / (across + 1))
    expected = cosines[scores.argmax()] / best_of(10**6, 2).cosine
    assert silos._bend(0.25, 1.0) == pytest.approx(min(1.0, expected), abs=1e-3)
    few = _Silos(best_of(2, 19), 19, 0.1, along=along, across=across, users=users)
    assert few._bend(0.25, 1.0) == 1.0, "none of few actions is so well aligned"


def test_a_silo_alone_explores_where_actions_are_many_and_dimensions_few() -> None:
    """It was predicted to lose a fifth of what it does."""
    alone = isolated(Plan(5, 600, 3, confidence="practical", trust="none"))
    measured = simulate(synthetic(3, 50, constant_share=0.1), {"alone": alone}, runs=8, seed=3).regret("alone").mean
    assert 0.4 < 5 * predicted_alone(600, 3, 50, constant_share=0.1).mean() / measured < 1.6


def test_a_regulariser_leaves_what_ridge_regression_leaves() -> None:
    """Held against ridge regression on rows of a constant and one direction; taken apart, nearly all would be left."""
    rng, share, regulariser = np.random.default_rng(3), 0.9, 1.0
    cosines = rng.normal(0.7, 0.1, 280)
    rows = np.column_stack([np.full(280, np.sqrt(share)), np.sqrt(1 - share) * cosines])
    fitted = np.linalg.solve(rows.T @ rows + regulariser * np.eye(2), rows.T @ (cosines / 2))
    along, aligned = (1 - share) * float(cosines @ cosines), float(cosines.sum())
    silos = _Silos(best_of(50, 7), 7, share, centre=0.5, counted=280.0, aligned=aligned, along=along)
    assert silos._left(regulariser) == pytest.approx(tuple(fitted), rel=1e-9)
    whole = 0.5 / np.sqrt(1 - share)
    assert fitted[1] < 0.4 * whole < 0.9 * whole < whole * along / (along + regulariser)


def test_rows_that_are_mostly_a_constant_are_hard_to_learn_from() -> None:
    """They were told to stay alone at a predicted 0.72 where alone costs 1.70, and a federation 0.72."""
    shop = Consortium(20, 20, 14, 8, Privacy(6.0, 1e-5), arms=50, constant_share=0.9)
    advice = recommended(shop)
    assert advice.name == "secure-sum"
    assert advice.best is not None
    assert advice.best.plan is not None
    assert advice.best.prediction is not None
    plan = advice.best.plan.in_visits()
    users = synthetic(shop.dim, shop.arms, constant_share=shop.rows)
    found = simulate(users, {"ours": plan, "alone": isolated(plan)}, 1, 7700)
    assert advice.regret(advice.best.prediction) == pytest.approx(found.regret("ours").mean, rel=0.25)
    assert advice.regret(advice.alone) == pytest.approx(found.regret("alone").mean, rel=0.25)


@pytest.mark.parametrize("epsilon", [1e-20, 1e-90])
def test_a_budget_of_next_to_nothing_has_an_answer(epsilon: float) -> None:
    """It was a division by zero."""
    assert recommended(Consortium(12, 20, 60, 8, Privacy(epsilon, 1e-6))).name == "alone"
