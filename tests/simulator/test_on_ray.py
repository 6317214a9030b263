"""The same numbers on a Ray cluster as here."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.presets import plan_for
from fedbandit.simulator.engine import Played, Progress
from fedbandit.simulator.on_ray import ray_executor
from fedbandit.simulator.runner import Job


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


@dataclass(frozen=True)
class Fragile(Job):
    """A job whose worker dies the first time it is played."""

    marker: Path

    def play(self, progress: Progress = lambda share: None) -> dict[str, Played]:
        if not self.marker.exists():
            self.marker.touch()
            os._exit(1)
        return super().play(progress)


@pytest.mark.torture
def test_the_runs_of_a_lost_worker_are_done_again(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs the extra 'ray'")
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not have the tests
    base = fb.Plan(4, 100, 4, fb.Privacy(1.0, 0.1))
    jobs = [
        Fragile(fb.tasks.synthetic(4, 10), {"silo": plan_for("silo", base)}, (run,), 3, "lazy", (100,), "float32", file)
        for run, file in enumerate((tmp_path / "first", tmp_path / "second"))
    ]
    there = {job.runs: played for job, played in ray_executor("ray")(list[Job](jobs), lambda share: None)}
    assert all(job.marker.exists() for job in jobs)
    for job in jobs:
        assert np.array_equal(there[job.runs]["silo"].regret, job.play()["silo"].regret)
