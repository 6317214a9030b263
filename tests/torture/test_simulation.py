"""Whole federations in one process, under a simulated network, clock, disk and broker: one seed, one history."""

import os
import subprocess
import sys

import pytest

from tests.torture.simulation.history import play

pytestmark = pytest.mark.fire

PARTS = 10  # of the histories, so that they can be divided
REPLAY = "PYTHONPATH=src python -m tests.torture.simulation --seed"


@pytest.mark.parametrize("part", range(PARTS))
def test_whatever_happens_the_rules_hold(part, size, tally):
    """None lost, none doubled, nothing drawn twice, one total, one model, nobody stopped, and all come to the end."""
    count = size(20, 2100)
    for seed in range(part, count * PARTS, PARTS):
        history = play(seed)
        assert not history.violations, f"{history.violations[0]}\nreplay: {REPLAY} {seed}"
    tally("simulated histories", count)


@pytest.mark.parametrize("seed", [2, 3, 28, 43, 141])
def test_a_seed_is_one_history(seed):
    """In other processes too, whose strings have other hashes."""
    code = f"from tests.torture.simulation.history import play; print('\\n'.join(play({seed}).lines))"
    there = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "5"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert there.stdout.splitlines() == play(seed).lines
