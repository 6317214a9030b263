"""A simulated federation: noise of its own for every run, and models that noise cannot break."""

from __future__ import annotations

import numpy as np

from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import every
from fedbandit.simulator.simulated import RunsNoise, SimulatedFederation, runs_noise


def test_noise_is_drawn_anew_for_every_run_name_and_seed() -> None:
    def drawn(seed: int, runs: tuple[int, ...], name: str) -> list[list[int]]:
        noise = runs_noise(seed, runs, name)
        rows: list[list[int]] = noise.gaussian(np.full(4, 1e9), (len(runs), 1))[:, 0].tolist()
        return rows

    rows = [drawn(0, (0, 1, 2), "a"), drawn(0, (0, 1, 2), "b"), drawn(1, (0, 1, 2), "a")]
    numbers = [number for three in rows for row in three for number in row]
    assert len(set(numbers)) == len(numbers)
    assert drawn(0, (2,), "a") == rows[0][2:]  # whichever runs it is played with


class Hostile(RunsNoise):
    """Noise that makes every covariance negative in the second of two runs."""

    def gaussian(self, scales: np.ndarray, lead: tuple[int, ...] = ()) -> np.ndarray:
        drawn = np.zeros((*lead, len(scales)), dtype=np.int64)
        drawn[1, ..., 3:] = -(2**45)
        return drawn


def test_covariances_that_noise_has_broken_are_repaired_and_counted() -> None:
    plan = Plan(4, 30, 3, Privacy(1.0, 0.1), "silo", "tree", every(10))
    federation = SimulatedFederation(plan, Hostile(runs_noise(0, (0, 1), "x").sources))
    for round_ in (10, 20, 30):
        federation.synchronise(np.zeros((2, 4, 9), dtype=np.int64), round_)
        assert all(np.isfinite(field).all() for field in federation.public.model)
    assert federation.repaired == 3
    np.testing.assert_allclose(federation.public.model.root[0], np.eye(3) / np.sqrt(plan.regulariser))
