"""What the simulation is worth: bugs planted into the real code, each found within a stated number of histories."""

import pytest

from tests.torture.simulation.history import play
from tests.torture.simulation.planted import PLANTED

pytestmark = pytest.mark.fire

WITHIN = 300  # histories


@pytest.mark.parametrize("bug", PLANTED)
def test_the_simulation_finds(bug, monkeypatch, tally):
    PLANTED[bug](monkeypatch)
    assert any(play(seed).violations for seed in range(WITHIN)), f"{WITHIN} histories have not shown that {bug}"
    tally("planted bugs caught", 1)
