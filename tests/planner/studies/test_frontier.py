"""The frontier and the ablation, small: what is compared with what."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedbandit import presets
from fedbandit.plan import Plan
from fedbandit.planner.studies import ablation, frontier
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import Every
from fedbandit.simulator import tasks
from fedbandit.simulator.runner import simulate

BASE = Plan(10, 300, 5, Privacy(1.0, 0.1))
SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"


@pytest.fixture(scope="module")
def measured() -> frontier.Frontier:
    curves = ("silo", "secure-sum", "central", "secure-sum practical", "sdp-amplified")
    return frontier.frontier(tasks.synthetic(5, 20), BASE, ((0.5, 0.1), (5.0, 0.1)), curves, runs=4)


def at(measured: frontier.Frontier, name: str, epsilon: float | None) -> frontier.Point:
    (point,) = (p for p in measured.points if p.name == name and p.epsilon == epsilon)
    return point


def test_the_yardstick_is_the_papers_protocol_as_proven(measured: frontier.Frontier) -> None:
    for epsilon in (0.5, 5.0):
        paper = at(measured, "ldp", epsilon)
        assert (paper.plan.calibration, paper.plan.acting, paper.plan.schedule) == ("paper", "lazy", Every(25))
        assert (paper.plan.mechanism, paper.plan.confidence) == ("tree", "theory")
        assert paper.excess_ratio_to_paper == 1.0


def test_excess_is_over_the_same_schedule_and_radii(measured: frontier.Frontier) -> None:
    for point in measured.points:
        if point.epsilon is None:
            continue
        baseline = at(measured, frontier.baseline_name(point.plan), None)
        assert baseline.plan.schedule == point.plan.schedule
        assert baseline.plan.confidence == point.plan.confidence
        assert baseline.plan.privacy is None
        assert point.excess is not None
        assert point.excess.mean == pytest.approx(point.regret.mean - baseline.regret.mean)
        paper = at(measured, "ldp", point.epsilon)
        assert paper.excess is not None
        if point.excess.mean > 0:
            assert point.excess_ratio_to_paper == pytest.approx(paper.excess.mean / point.excess.mean)


def test_every_budget_has_every_curve_or_a_reason(measured: frontier.Frontier) -> None:
    assert set(measured.left_out) == {"sdp-amplified (0.5, 0.1)", "sdp-amplified (5, 0.1)"}
    assert all("no epsilon is in reach" in reason for reason in measured.left_out.values())
    assert {p.name for p in measured.points if p.epsilon is None} >= {"fed-lin-ucb", "isolated"}


def test_ordering_at_a_small_size(measured: frontier.Frontier) -> None:
    for epsilon in (0.5, 5.0):
        regret = [
            at(measured, name, epsilon).regret.mean for name in ("secure-sum practical", "secure-sum", "silo", "ldp")
        ]
        assert regret == sorted(regret)


def test_a_floor_has_the_noise_of_one_release() -> None:
    for curve in ("silo practical", "secure-sum practical"):
        plan = frontier.curve_plan(curve, BASE, centred=True)
        floor = frontier.curve_plan(curve + frontier.FLOOR, BASE, centred=True)
        single = plan.changed(schedule=Every(plan.rounds), mechanism="batches")
        assert single.noise_std < 0.9 * plan.noise_std
        assert floor.noise_std == pytest.approx(single.noise_std, rel=1e-9)
        assert floor.privacy is not None
        assert floor.privacy.epsilon > 1.0  # and says so


def test_centred_plans_play_light_rows_and_nobody_else_does() -> None:
    """What a frontier measures is what simulating the two kinds of rows one by one gives."""
    task = tasks.synthetic(5, 20)
    whole = frontier.curve_plan("secure-sum practical", BASE, centred=True)
    plans = {"light": whole, "as given": whole, "paper": presets.ldp(BASE), "free": frontier.baseline(whole)}
    assert [frontier.is_light(plan) for plan in plans.values()] == [True, True, False, False]
    found = frontier.played(task, plans, runs=2, seed=4, as_given=("as given",))
    for name, plan in plans.items():
        rows = frontier.light(task) if name == "light" else task
        alone = simulate(rows, {name: plan}, runs=2, seed=4)
        np.testing.assert_allclose(found.final(name), alone.final(name), rtol=1e-12)  # added up in other blocks
    assert found.final("light").tolist() != found.final("as given").tolist()


def test_the_ablation_takes_back_the_light_constant() -> None:
    rows = ablation.ablation(tasks.synthetic(5, 20), BASE.changed(rounds=60), runs=2)
    assert [row.trust for row in rows if row.without == ablation.HEAVY] == list(ablation.ABLATED)


def test_a_curve_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"^curves must be one of .*; got 'magic'"):
        frontier.frontier(tasks.synthetic(5, 20), BASE, curves=("magic practical",), runs=1)


def test_each_ablation_changes_one_thing_and_keeps_the_budget() -> None:
    for preset in ablation.ABLATED:
        whole = frontier.curve_plan(f"{preset} practical", BASE, centred=True)
        plans = ablation.switched_off(whole)
        assert plans[""] == whole
        for what, plan in plans.items():
            changed = {k for k, v in plan.as_dict().items() if v != whole.as_dict()[k]}
            assert what == "" or changed
            assert not changed & {"privacy", "trust", "silos", "rounds", "acting"}
            assert plan.guarantee.promised, (what, plan.guarantee)


def test_noise_on_the_whole_matrix_would_cost_more() -> None:
    assert 1.2 < ablation.unsymmetric_noise_factor(BASE) < 2.0


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.exists(), reason="needs the folder ../shared beside the clone")
@pytest.mark.parametrize("name", ["warfarin", "mslr"])
def test_ordering_on_real_data(name: str) -> None:
    """With the practical radii; at this size the theory's are wide enough to hide most of the noise."""
    if name == "warfarin":
        task, base = tasks.warfarin(SHARED / "warfarin" / "warfarin.csv.gz"), Plan(20, 1000, 33, Privacy(1.0, 0.1))
    else:
        task = tasks.letor(SHARED / "mslr" / "mslr_sample.letor.txt.gz")
        base = Plan(10, 500, task.dim, Privacy(1.0, 0.1))
    curves = ("silo practical", "secure-sum practical")
    found = frontier.frontier(task, base.changed(dim=task.dim), ((1.0, 0.1),), curves, runs=2, centred=False)
    regret = [at(found, curve, 1.0).regret.mean for curve in ("secure-sum practical", "silo practical", "ldp")]
    assert regret == sorted(regret)
