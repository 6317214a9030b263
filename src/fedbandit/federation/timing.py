"""When things happen in a live federation: public, never from data.

A counted schedule ticks when the silo has answered so many requests for a decision; a clock ticks by the time that the
federation agreed on. Neither sees a feature or a reward.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from fedbandit import _validate
from fedbandit._validate import ArgumentError
from fedbandit.plan import Plan
from fedbandit.schedule import Adaptive
from fedbandit.schedule import Clock as ClockSchedule

__all__ = ["Calendar", "ClockJumped", "SteadyClock", "Timing", "calendar"]

Clock = Callable[[], float]
JUMP = 5.0  # seconds by which the wall clock may drift from the steady one before it is not believed


@dataclass(frozen=True)
class Timing:
    """What the parties agreed on about time, in seconds; one value, passed around whole."""

    deadline: float = 3600.0  # how long a sync stays open after its first release
    settle: float = 0.0  # how long a batch stays open after its tick is due, for rewards under way
    settle_last: float = 0.0  # the same for the last batch of the term: a reward that comes after it is lost
    start: float | None = None  # unix time from which a clock schedule counts; None: the moment a term begins

    def __post_init__(self) -> None:
        _validate.positive("deadline", self.deadline)
        for name in ("settle", "settle_last"):
            if not 0 <= getattr(self, name) < self.deadline:
                raise ArgumentError(name, f"must lie between 0 and the deadline of {self.deadline:g} s")

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Timing:
        _validate.known_keys("timing", data, cls.__dataclass_fields__)
        return cls(**data)


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
    syncs: int

    def due(self, decisions: int, now: Clock) -> int:
        return max(0, min(self.syncs, int((now() - self.start) // self.period)))


def calendar(plan: Plan, start: float) -> Calendar:
    """The calendar of a plan; one decided by data has none and cannot run live."""
    schedule = plan.schedule
    if isinstance(schedule, Adaptive):
        raise ArgumentError("schedule", f"must be public in a live federation, got {schedule}")
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
