"""What the simulation is worth: bugs planted into the real code, each found within a stated number of histories."""

import pytest

from tests.torture.simulation.history import play
from tests.torture.simulation.planted_terms import PLANTED

pytestmark = pytest.mark.fire

WITHIN = 1000  # histories, which the code as it is passes (test_simulation.py)
RARE = (  # those that take more than a few, and are looked for in full only
    "an old copy of a silo draws",
    "a question is asked before it is on disk",
    "an old copy of a mixer or an analyzer goes on",
    "nothing is ever said again",
    "nobody compares what the analyzer has told others",
    "the analyzer says what it holds anew each time",
    "what is kept is sent under keys that were replaced",
    "a party greets under keys that nobody has heard of",
    "a silo that is brought forward forgets what it spent",
    "who is brought forward begins a new chain",
    "who was brought forward is not sent the newest model",
    "what an old copy took is released after it was brought forward",
)
BEGIN = {  # the seed from which on it is looked for; else 0
    "nothing is ever said again": 2000,
    "who is brought forward begins a new chain": 600,
    "who was brought forward is not sent the newest model": 3600,
}


@pytest.mark.parametrize("bug", PLANTED)
def test_the_simulation_finds(bug, monkeypatch, size, tally):
    if (bug in RARE and not size(0, 1)) or list(PLANTED).index(bug) % size(3, 1):
        pytest.skip("takes too long in part")
    PLANTED[bug](monkeypatch)
    seeds = range(BEGIN.get(bug, 0), BEGIN.get(bug, 0) + WITHIN)
    assert any(play(seed).violations for seed in seeds), f"{WITHIN} histories have not shown that {bug}"
    tally("planted bugs caught", 1)
