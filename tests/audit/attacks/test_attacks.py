"""Each attack works without its defence and is stopped by it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedbandit.audit import attacks
from fedbandit.audit.attacks import RIGHT_GUESSES, lying_silo
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import Every

EXPOSED = {
    "action-leak": 0.95,
    "batch-flip": 0.98,
    "cohort-difference": 0.85,
    "low-bits": 0.99,
    "lying-silo": 0.99,
    "redraw": 0.93,
    "returning-user": 0.99,
    "schedule-leak": 0.999,
    "sync-timing": 0.999,
}


def test_all_nine_are_there() -> None:
    assert attacks.names() == tuple(sorted(EXPOSED))
    with pytest.raises(ValueError, match="attack must be one of"):
        attacks.attack("nonsense")


@pytest.mark.parametrize("name", EXPOSED)
def test_an_attack_works_and_its_defence_stops_it(name: str) -> None:
    attack = attacks.attack(name)
    measured = attack.run(attack.trials, np.random.default_rng(12))
    assert measured.exposed > EXPOSED[name]
    error = 4 * 0.5 / math.sqrt(measured.trials) if measured.measure == RIGHT_GUESSES else 0.02
    assert measured.defended < measured.limit + error
    assert measured.limit < 0.6
    assert measured.trials == attack.trials


def test_a_server_that_looks_refuses_the_wild_lie_and_accepts_honest_silos() -> None:
    plan = Plan(silos=10, rounds=2000, dim=2, privacy=Privacy(1.0, 1e-5), trust="silo", schedule=Every(250))
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((plan.encoder.size, plan.protocol.width)) * plan.protocol.scales.bias
    honest = 0.3 * np.array(plan.times)[:, None] * np.ones(plan.protocol.width) + noise
    assert _accepted(plan, honest)
    wild = honest.copy()
    wild[:, 1] += lying_silo.LIE
    assert not _accepted(plan, wild)


def _accepted(plan: Plan, prefixes: np.ndarray) -> bool:
    """Whether a silo's own decoded prefix sums (syncs, width) could come from users within bounds, and noise."""
    return bool((np.abs(prefixes[:, : plan.dim]).max(axis=1) <= lying_silo.largest_bias(plan)).all())
