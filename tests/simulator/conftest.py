"""The small comparison, simulated once."""

from __future__ import annotations

import pytest

import fedbandit as fb
from fedbandit.simulator.result import Result
from tests.simulator.small import PLANS, RUNS, TASK


@pytest.fixture(scope="session")
def result() -> Result:
    return fb.simulate(TASK, PLANS, RUNS, seed=3)
