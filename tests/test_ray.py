"""The same numbers on a Ray cluster as here."""

from __future__ import annotations

import pytest

import fedbandit as fb
from fedbandit.planner.catalogue import plan_for
from fedbandit.simulate.on_ray import ray_executor


@pytest.mark.torture  # starting a cluster takes half a minute
def test_a_cluster_plays_the_same_numbers() -> None:
    pytest.importorskip("ray", reason="needs the extra 'ray'")
    base = fb.Plan(4, 100, 4, fb.Privacy(1.0, 0.1))
    plans = {name: plan_for(name, base) for name in ("ldp", "secure-sum")}
    users = fb.tasks.synthetic(4, 10)
    here = fb.simulate(users, plans, runs=6, seed=3)
    shares: list[float] = []
    there = fb.simulate(users, plans, runs=6, seed=3, executor=ray_executor("ray"), progress=shares.append)
    assert here.frame.equals(there.frame)
    assert shares[-1] == pytest.approx(1.0)


def test_another_place_is_refused() -> None:
    with pytest.raises(ValueError, match="on must be 'ray' or 'ray://host:port', got 'spark'"):
        ray_executor("spark")
