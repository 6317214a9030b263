"""The timing of an early or late sync: a silo that sends when it has enough rewards reveals when it had enough.

A silo that releases its batch as soon as it has counted 25 rewards sends a little later if one user stayed away.
Somebody who knows when the others came can tell from the time alone whether that user came.
"""

from __future__ import annotations

import numpy as np

from fedbandit._arrays import Floats
from fedbandit.audit.attacks import RIGHT_GUESSES, Attack, Measured, right
from fedbandit.schedule import Clock

__all__ = ["ATTACK"]

BATCH = 25
PERIOD = 3600.0  # seconds
TICKS = 24


def run(trials: int, rng: np.random.Generator) -> Measured:
    """Users come at random times; the adversary knows all but one of them and says whether that one came."""
    arrivals = np.cumsum(rng.exponential(60.0, (trials, 3 * BATCH)), axis=1)
    came = rng.random(trials) < 0.5
    others = np.delete(arrivals, 0, axis=1)
    everybody = np.where(came[:, None], arrivals[:, :-1], others)
    with_one, without = _sent_when_full(arrivals[:, :-1]), _sent_when_full(others)
    late = np.abs(_sent_when_full(everybody) - without) < np.abs(_sent_when_full(everybody) - with_one)
    by_clock = [_sent_at_tick(people) for people in (everybody, arrivals[:, :-1], others)]
    late_by_clock = np.abs(by_clock[0] - by_clock[2]) < np.abs(by_clock[0] - by_clock[1])
    return Measured(RIGHT_GUESSES, right(~late, came), right(~late_by_clock, came), 0.5, trials)


def _sent_when_full(arrivals: Floats) -> Floats:
    """The time at which the batch is full: that of the 25th arrival."""
    return np.sort(arrivals, axis=1)[:, BATCH - 1]


def _sent_at_tick(arrivals: Floats) -> Floats:
    """The time of the first tick of a public clock, whoever has come; an empty batch is released like any other."""
    return np.full(len(arrivals), PERIOD * Clock(PERIOD).times(TICKS)[0])


ATTACK = Attack(
    title="The timing of an early or late sync",
    adversary="anybody who sees when the silo sends, and knows when the others came",
    learns="whether one user came at all",
    defence="a public clock: a batch is closed and released at its tick, full or empty",
    remains="no leak through the timing; noise hides what is sent",
    run=run,
    trials=2000,
)
