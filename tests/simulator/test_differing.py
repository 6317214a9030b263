"""Silos that differ: their tasks, and what knowing of it is worth and costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedbandit import Plan, Privacy, every, simulate
from fedbandit._validate import ArgumentError
from fedbandit.simulator.attendance import Attendance
from fedbandit.simulator.population import Delays
from fedbandit.simulator.tasks import SilosAsRuns, Synthetic, synthetic


def plan_of(**fields: Any) -> Plan:
    given = {"silos": 5, "rounds": 1_000, "dim": 5, "privacy": Privacy(8.0, 1e-5), "schedule": every(50)}
    return Plan(**{**given, "confidence": "practical", **fields})


def test_silos_share_all_weights_but_their_own() -> None:
    task = synthetic(dim=6, arms=4, own=2, differing=0.6)
    thetas = np.stack([task.silo_theta(3, 1, silo) for silo in range(8)])
    np.testing.assert_allclose(np.linalg.norm(thetas, axis=1), 1.0)
    assert np.ptp(thetas[:, 2:], axis=0).max() == 0
    assert np.ptp(thetas[:, :2], axis=0).min() > 0.1
    np.testing.assert_allclose(np.linalg.norm(thetas[:, :2], axis=1), 0.6 * np.linalg.norm(thetas[0, :-1]))
    np.testing.assert_array_equal(SilosAsRuns(task, 8).source(3, (9, 10), 1).theta, thetas[1:3])
    assert (synthetic(dim=6, arms=4).silo_theta(3, 1, 5) == synthetic(dim=6, arms=4).theta(3, 1)).all()


def test_a_part_of_their_own_pays_where_silos_differ() -> None:
    """At most half the regret, far beyond chance: twice the standard error of the difference lies between."""
    plan = plan_of()
    result = simulate(
        synthetic(5, 10, own=1, differing=0.7), {"shared": plan, "own": plan.changed(personal=(0,))}, runs=4
    )
    shared, own = result.regret("shared"), result.regret("own")
    assert own.mean + 2 * own.stderr < (shared.mean - 2 * shared.stderr) / 1.5
    assert own.mean < shared.mean / 2
    again = simulate(synthetic(5, 10, own=1, differing=0.7), {"own": plan.changed(personal=(0,))}, runs=4)
    assert again.regret("own").mean == own.mean  # the same users, whoever else is compared


def test_silos_that_are_alike_are_played_alike() -> None:
    """On a task whose silos (almost) do not differ, this way of playing gives the regret of the usual one, within three
    standard errors: other users, the same law."""
    plan = plan_of(rounds=600)
    usual = simulate(synthetic(5, 10), {"plan": plan}, runs=6).regret("plan")
    here = simulate(synthetic(5, 10, own=1, differing=1e-6), {"plan": plan}, runs=6).regret("plan")
    # theta differs: its own part is 0 where that of the usual task is anything
    assert abs(here.mean - usual.mean) < 3 * np.hypot(here.stderr, usual.stderr) + 0.1 * usual.mean


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"own": 1}, "differing"),
        ({"differing": 0.5}, "differing"),
        ({"own": 4, "differing": 0.5}, "own"),
        ({"own": 1, "differing": 1.5}, "differing"),
        ({"own": 1, "differing": 0.5, "drift": 0.01}, "own"),
        ({"own": 1, "differing": 0.5, "contexts": "fixed"}, "own"),
    ],
    ids=str,
)
def test_tasks_that_cannot_be_say_so(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(ArgumentError) as error:
        synthetic(dim=5, arms=6, **fields)
    assert error.value.field == field


def test_what_is_not_simulated_with_silos_that_differ_says_so() -> None:
    task, plan = synthetic(5, 10, own=1, differing=0.5), plan_of()
    with pytest.raises(ArgumentError, match="act lazily"):
        simulate(task, {"eager": plan.changed(acting="eager", trust="silo")}, runs=1)
    with pytest.raises(ArgumentError, match="act lazily"):
        simulate(task, {"some": plan}, runs=1, attendance=Attendance.up_to(3))
    with pytest.raises(ArgumentError, match="delays"):
        simulate(task, {"late": plan}, runs=1, delays=Delays(mean=3.0))
    with pytest.raises(ArgumentError, match="fresh contexts"):
        simulate(Synthetic(5, 10, contexts="fixed"), {"own": plan.changed(personal=(0,))}, runs=1)
