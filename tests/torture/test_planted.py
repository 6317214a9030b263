"""What the simulation is worth: bugs planted into the real code, each found within a stated number of histories."""

import pytest

from tests.torture.simulation.history import play
from tests.torture.simulation.planted import PLANTED

pytestmark = pytest.mark.fire

WITHIN = 1000  # histories, which the code as it is passes (test_simulation.py)
RARE = (  # those that take more than a few, and are looked for in full only
    "an old copy of a silo draws",
    "a silo draws before it has asked",
    "a question is asked before it is on disk",
    "messages for later syncs are taken",
    "the deadline runs from a message for a later sync",
    "an old copy of a mixer or an analyzer goes on",
    "nothing is ever said again",
    "the analyzer says what it holds anew each time",
    "nobody compares what the analyzer has told others",
)


@pytest.mark.parametrize("bug", PLANTED)
def test_the_simulation_finds(bug, monkeypatch, size, tally):
    if bug in RARE and not size(0, 1):
        pytest.skip("takes too long in part")
    PLANTED[bug](monkeypatch)
    assert any(play(seed).violations for seed in range(WITHIN)), f"{WITHIN} histories have not shown that {bug}"
    tally("planted bugs caught", 1)
