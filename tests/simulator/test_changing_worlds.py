"""Users whose theta drifts or jumps, and plans that forget: they follow it, at a small price where nothing changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit._validate import ArgumentError
from fedbandit.bandit.statistics import unpack
from fedbandit.knowledge import local_knowledge
from fedbandit.planner.drafts import Draft
from fedbandit.planner.tuning import WEIGHTS, best_weight
from fedbandit.simulator import acting
from fedbandit.simulator.attendance import Attendance
from fedbandit.simulator.result import estimate
from fedbandit.simulator.tasks import MOVE, synthetic

SEED, RUNS = 0, 6
PLAN = fb.Plan(20, 1500, 5, fb.Privacy(2.0, 1e-5), schedule=fb.every(15), confidence="practical", centre=0.5, ratio=4.0)
FORGETS = 0.96


# -- tasks -------------------------------------------------------------------------------------------------------------


def test_theta_is_another_one_after_the_jump() -> None:
    task = synthetic(6, 5, jump_at=100)
    still = synthetic(6, 5).theta(3, 1)
    for round_ in (1, 100):
        np.testing.assert_array_equal(task.theta(3, 1, round_), still)
    after = task.theta(3, 1, 101)
    np.testing.assert_array_equal(after, task.theta(3, 1, 500))
    assert np.linalg.norm(after) == pytest.approx(1.0)
    assert np.linalg.norm(after - still) > 0.3
    assert task.changes(100) == set()
    assert task.changes(101) == {100}


def test_theta_moves_as_far_as_it_is_said_to() -> None:
    """Squared distances over many moves, to 4 standard errors; 1.2 times the drift is another drift."""
    drift, task = 0.01, synthetic(6, 5, drift=0.01)
    places = np.array([[task.theta(SEED, run, 1 + MOVE * move) for move in range(301)] for run in range(4)])
    squares = (np.diff(places, axis=1) ** 2).sum(axis=-1).ravel() / MOVE
    error = 4 * squares.std() / np.sqrt(len(squares))
    assert abs(squares.mean() - drift**2) < error
    assert abs(squares.mean() - (1.2 * drift) ** 2) > error
    assert all(np.linalg.norm(task.theta(SEED, 0, round_)) == pytest.approx(1.0) for round_ in (1, 999, 9_999))
    np.testing.assert_array_equal(task.theta(SEED, 0, 1), task.theta(SEED, 0, MOVE))
    assert task.changes(3 * MOVE + 1) == {MOVE, 2 * MOVE, 3 * MOVE}


def test_runs_drift_apart_and_the_same_run_is_the_same() -> None:
    task = synthetic(4, 5, drift=0.02)
    assert not np.allclose(task.theta(1, 0, 500), task.theta(1, 1, 500))
    np.testing.assert_array_equal(task.theta(1, 0, 500), synthetic(4, 5, drift=0.02).theta(1, 0, 500))


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("drift", {"drift": -0.1}),
        ("drift", {"dim": 2, "drift": 0.1}),
        ("jump_at", {"jump_at": 0}),
        ("contexts", {"contexts": "fixed", "jump_at": 5}),
    ],
)
def test_a_change_that_cannot_be_is_refused(field: str, fields: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError) as error:
        synthetic(**{"dim": 4, "arms": 5, **fields})
    assert error.value.field == field


def test_regret_is_against_the_best_action_of_the_moment() -> None:
    """Blocks end where theta changes: regret recorded at other rounds is the same."""
    task = synthetic(4, 5, jump_at=37)
    small = fb.Plan(2, 60, 4, trust="none", schedule=fb.every(20))
    often = small.changed(schedule=fb.every(1))
    together = fb.simulate(task, {"x": small, "y": often}, runs=2, seed=1)
    alone = fb.simulate(task, {"x": small}, runs=2, seed=1)
    np.testing.assert_allclose(together.final("x"), alone.final("x"), rtol=1e-12)


# -- what forgetting is worth ------------------------------------------------------------------------------------------


def test_after_a_jump_a_plan_that_forgets_loses_a_third_at_most_and_without_one_little_more() -> None:
    """Both to 2 standard errors, run by run."""
    plan = PLAN.changed(rounds=3000)
    plans = {"keeps": plan, "forgets": plan.changed(forget=FORGETS)}
    jumps = fb.simulate(synthetic(5, 20, jump_at=plan.rounds // 2), plans, runs=RUNS, seed=SEED)
    late = estimate(jumps._late("forgets") - jumps._late("keeps") / 3)
    assert late.mean + 2 * late.stderr < 0, (jumps._late("forgets"), jumps._late("keeps"))
    still = fb.simulate(synthetic(5, 20), plans, runs=RUNS, seed=SEED)
    excess = estimate(still.final("forgets") - 1.3 * still.final("keeps"))
    assert excess.mean + 2 * excess.stderr < 0, (still.regret("forgets"), still.regret("keeps"))


def test_the_proposed_weight_is_about_the_best_there_is() -> None:
    """Of a grid around it no weight loses 15 % less in simulation, to 2 standard errors; remembering all loses more."""
    drift = 0.01
    proposed = best_weight(Draft(PLAN, 20, drift=drift), PLAN.times)
    assert 0.5 < proposed < 1
    tried = {1.0, proposed, *(weight for weight in WEIGHTS[4::2])}
    plans = {str(weight): PLAN.changed(forget=weight) for weight in tried}
    result = fb.simulate(synthetic(5, 20, drift=drift), plans, runs=RUNS, seed=SEED)
    ours = result.final(str(proposed))
    for weight in tried:
        gain = estimate(0.85 * ours - result.final(str(weight)))
        assert gain.mean - 2 * gain.stderr < 0, weight
    loss = estimate(result.final("1.0") - ours)
    assert loss.mean - 2 * loss.stderr > 0


def test_less_is_remembered_where_more_changes() -> None:
    weights = [best_weight(Draft(PLAN, 20, drift=drift), PLAN.times) for drift in (0.0, 0.001, 0.01, 0.02, 0.1)]
    assert weights[0] == 1.0
    assert weights == sorted(weights, reverse=True)
    assert weights[-1] < weights[2] < 1


# -- those who do not count --------------------------------------------------------------------------------------------


def test_what_silos_know_for_others_is_forgotten_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Features have norm 1, so the trace of a silo's own sums is the weight of its visits."""
    seen, known = [], local_knowledge

    def watched(plan: Any, own: Any, public: Any) -> Any:
        seen.append((own._replace(released=own.released.copy(), squares=own.squares.copy()), public))
        return known(plan, own, public)

    monkeypatch.setattr(acting, "local_knowledge", watched)
    plan = PLAN.changed(rounds=150, forget=0.8)
    fb.simulate(synthetic(5, 5), {"x": plan}, runs=1, attendance=Attendance(consenting=0.5))
    assert len(seen) == 11
    for own, public in seen[1:]:
        weight = plan.remembered(plan.times[public.sync])
        np.testing.assert_allclose(own.visits, weight)
        for sums, share in ((own.sums, 1.0), (own.released, 0.5)):
            traces = np.trace(unpack(sums * 2.0**-plan.bits, plan.dim)[1], axis1=-2, axis2=-1)
            assert traces.mean() == pytest.approx(share * weight, rel=1e-4 if share == 1 else 0.25)
        assert np.all(own.squares <= weight * 0.25 + 1e-9)
