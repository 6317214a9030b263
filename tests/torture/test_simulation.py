"""Whole federations in one process, under a simulated network, clock, disk and broker: one seed, one history."""

import os
import struct
import subprocess
import sys
from types import SimpleNamespace
from typing import cast

import pytest

from tests.torture.simulation.history import play
from tests.torture.simulation.machine import Disk, Statement
from tests.torture.simulation.oracle import Oracle, Said
from tests.torture.simulation.settings import SETTINGS

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


class Watched:
    """The oracle of a federation in which silo-0 has sent a release of sync 0 to the analyzer, and perhaps to the mixer
    too, which both have noted how far they have seen it."""

    def __init__(self, *receivers):
        disk = cast(Disk, SimpleNamespace(durable=1, written=[()]))
        silos = ("silo-0", "silo-1", "silo-2")
        self.oracle = Oracle(SETTINGS["secure sum"], silos, lambda name: disk, 1, lambda line: None, lambda: 0.0)
        for receiver in receivers:
            self.send(receiver, b"first")
            note = Statement("INSERT INTO states (term, name, value)", ("seen  silo-0", struct.pack("<I", 1)), False)
            self.oracle.wrote(receiver, disk, (note,))

    def put_back(self, *names, kept=0):
        for name in names:
            self.oracle.lost(name, kept, on_purpose=True)

    def send(self, receiver, plain):
        envelope = bytes(2000) + plain
        self.oracle.memory("silo-0").sealed[0] = (envelope, 0)
        self.oracle.said(envelope, Said("silo-0", "release", receiver, 0, plain))
        self.oracle.crossed(envelope)


def test_a_release_drawn_anew_is_excused_where_nobody_can_know_of_the_first():
    """The silo was killed before it sent to the mixer, and was put back together with the analyzer. (Seed 7878, as
    histories went once.)"""
    watched = Watched("analyzer")
    watched.put_back("silo-0", "analyzer")
    for receiver in ("analyzer", "mixer", "analyzer"):
        watched.send(receiver, b"second")
    assert not watched.oracle.violations
    watched.send("analyzer", b"third")
    assert watched.oracle.violations


@pytest.mark.parametrize(
    ("receivers", "put_back", "kept"),
    [
        (("analyzer",), ("silo-0",), 0),  # the analyzer knows
        (("analyzer", "mixer"), ("silo-0", "analyzer"), 0),  # the mixer does
        (("analyzer",), ("silo-0", "analyzer"), 1),  # its copy does
        (("analyzer",), ("analyzer",), 0),  # the silo itself does
        (("analyzer",), ("silo-0", "mixer"), 0),
    ],
)
def test_it_is_not_where_somebody_can(receivers, put_back, kept):
    watched = Watched(*receivers)
    watched.put_back(*put_back, kept=kept)
    watched.send("analyzer", b"second")
    assert watched.oracle.violations == ["silo-0 has sent two different messages 'release' of sync 0"]
