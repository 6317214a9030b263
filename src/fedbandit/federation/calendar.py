"""When the ticks of a live silo are: public, never from data.

A counted schedule ticks when the silo has answered so many requests for a decision; a clock ticks by the time that the
federation agreed on. Neither sees a feature or a reward.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from fedbandit.plan import Plan
from fedbandit.schedule import Adaptive
from fedbandit.schedule import Clock as ClockSchedule

Clock = Callable[[], float]
JUMP = 5.0  # seconds by which the wall clock may drift from the steady one before it is not believed


class Calendar(Protocol):
    """How many ticks are due, by the decisions answered or by a clock."""

    def due(self, decisions: int, now: Clock) -> int: ...


@dataclass(frozen=True)
class Counted:
    """Tick k when `times[k]` decisions were answered."""

    times: tuple[int, ...]

    def due(self, decisions: int, now: Clock) -> int:
        return bisect_right(self.times, decisions)


@dataclass(frozen=True)
class Timed:
    """Tick k at start + (k + 1) period."""

    start: float
    period: float
    steps: int

    def due(self, decisions: int, now: Clock) -> int:
        return max(0, min(self.steps, int((now() - self.start) // self.period)))


def calendar(plan: Plan, start: float) -> Calendar:
    """The calendar of a plan; one decided by data has none and cannot run live."""
    schedule = plan.schedule
    if isinstance(schedule, Adaptive):
        raise ValueError(f"schedule must be public in a live federation, got {schedule}")
    times = schedule.times(plan.rounds)
    return Timed(start, schedule.period, len(times)) if isinstance(schedule, ClockSchedule) else Counted(times)


class SteadyClock:
    """Wall time that notices jumps: between two readings it must advance as the monotonic clock does."""

    def __init__(self) -> None:
        self._wall, self._steady = time.time(), time.monotonic()

    def now(self) -> float:
        """Wall time, or ClockJumped while it is off by more than JUMP seconds from what it should be."""
        wall, expected = time.time(), self._wall + time.monotonic() - self._steady
        if abs(wall - expected) > JUMP:
            raise ClockJumped(f"the clock jumped by {wall - expected:+.0f} s; set it right, or restart the silo")
        return wall


class ClockJumped(RuntimeError):
    """The wall clock cannot be believed; nothing ticks until it can."""
