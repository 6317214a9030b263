"""When things happen in a live federation: at public times that never depend on data.

A clock ticks at times that the federation agreed on, whoever comes. A counted schedule ticks after a number of
decisions; requests then move the batches, and the plan must say that requests are public.
"""

from __future__ import annotations

import json
import math
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from fedbandit import _validate
from fedbandit._validate import ArgumentError
from fedbandit.plan import Plan
from fedbandit.schedule import Adaptive
from fedbandit.schedule import Clock as ClockSchedule

__all__ = [
    "DAY",
    "JUMP",
    "Calendar",
    "ClockJumped",
    "Clocks",
    "MachineClocks",
    "Reading",
    "SteadyClock",
    "TicksHeld",
    "TicksOverdue",
    "Timing",
    "calendar",
    "is_time",
    "pace",
]

JUMP = 5.0  # seconds by which the wall clock may differ from the steady one before it is not trusted
DAY = 86_400.0
COUNTED_PACE, SHORTEST_PACE, LONGEST_PACE = 0.5, 0.2, 10.0  # seconds, see `pace`
LAST = 1e11  # seconds: a time beyond the year 5000 is a mistake
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Timing:
    """What the parties agreed on about time, in seconds."""

    deadline: float = 3600.0  # how long a sync stays open after its first release
    settle: float = 0.0  # how long a batch stays open after its tick is due, for rewards on their way
    settle_last: float = 0.0  # the same for the last batch of the term, because later rewards are lost
    start: float | None = None  # unix time from which a clock schedule counts; None: the moment a term begins
    reward_window: float = 90 * DAY  # how long a decision waits for its reward; after that, its id is unknown

    def __post_init__(self) -> None:
        for name in ("deadline", "reward_window"):
            _validate.within(name, getattr(self, name), 0, LAST)
        if self.start is not None and not is_time(self.start):
            raise ArgumentError("start", f"must be a unix time, got {self.start!r}")
        for name in ("settle", "settle_last"):
            if not is_time(getattr(self, name)) or not 0 <= getattr(self, name) < self.deadline:
                raise ArgumentError(name, f"must lie between 0 and the deadline of {self.deadline:g} s")

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Timing:
        _validate.known_keys("timing", data, cls.__dataclass_fields__)
        return cls(**data)


def is_time(value: object) -> bool:
    """Whether it is a plausible number of seconds."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < LAST


# -- clocks -----------------------------------------------------------------------------------------------------------


class Reading(NamedTuple):
    """Both clocks at one moment. Readings with the same `boot` can be compared, even across restarts of a process."""

    wall: float
    steady: float
    boot: str

    def encode(self) -> bytes:
        return json.dumps(self).encode()

    @classmethod
    def decode(cls, data: bytes) -> Reading:
        """The reading that `encode` wrote; ArgumentError for anything else."""
        with _validate.reading("clock"):
            wall, steady, boot = json.loads(data)
        numbers = all(isinstance(value, float) and math.isfinite(value) for value in (wall, steady))
        if not numbers or not isinstance(boot, str):
            raise ArgumentError("clock", "must be two times and a name")
        return cls(wall, steady, boot)


class Clocks(Protocol):
    """The clocks of a machine (or of a simulated one): wall time, and a steady clock that nobody sets."""

    def read(self) -> Reading: ...


class MachineClocks:
    """The clocks of this machine. The steady one keeps running while the machine sleeps."""

    def __init__(self) -> None:
        self._boot = BOOT_ID.read_text().strip() if BOOT_ID.exists() else ""

    def read(self) -> Reading:
        boot_time = getattr(time, "CLOCK_BOOTTIME", None)
        steady = time.monotonic() if boot_time is None else time.clock_gettime(boot_time)
        return Reading(time.time(), steady, self._boot)


class SteadyClock:
    """Wall time that notices jumps: between two readings it must advance as much as the steady clock.

    `last` is a reading from before this process began, if there is one; `vouched` tells whether the present time can be
    checked against it. Neither a restart nor a reboot hides a jump: a clock that is behind `last` is wrong.
    """

    def __init__(self, clocks: Clocks | None = None, last: Reading | None = None) -> None:
        self._clocks = clocks or MachineClocks()
        now = self._clocks.read()
        self.vouched = last is not None and last.boot == now.boot != ""
        self._reference = now
        if last is not None and self.vouched:
            self._reference = last
        elif last is not None and now.wall < last.wall:
            self._reference = now._replace(wall=last.wall)

    @property
    def steady(self) -> float:
        """The steady clock, in seconds, for measuring durations."""
        return self._clocks.read().steady

    @property
    def expected(self) -> float:
        """What the wall clock should show."""
        return self._reference.wall + self.steady - self._reference.steady

    def now(self) -> float:
        """Wall time; ClockJumped while it is off by more than JUMP seconds."""
        return self.reading().wall

    def reading(self) -> Reading:
        """Both clocks; ClockJumped if they disagree. Each reading is the reference of the next, so slow drift is no
        jump."""
        reading = self._clocks.read()
        off = reading.wall - self._reference.wall - (reading.steady - self._reference.steady)
        if abs(off) > JUMP:
            raise ClockJumped(off)
        self._reference = reading
        return reading

    def believe(self) -> None:
        """Accept the present wall time: somebody has checked the clock."""
        self._reference, self.vouched = self._clocks.read(), True


class TicksHeld(RuntimeError):
    """Something is wrong with the time: nothing ticks until it is right or somebody says so. Decisions go on."""


class ClockJumped(TicksHeld):
    """The wall clock cannot be trusted."""

    def __init__(self, off: float) -> None:
        super().__init__(
            f"the clock jumped by {off:+.0f} s, so nothing ticks until it is corrected; "
            "if it is right now, serve with --catch-up"
        )


class TicksOverdue(TicksHeld):
    """More ticks are overdue than a short stop explains: the clock may be ahead, or the silo was long away."""

    def __init__(self, ticks: int) -> None:
        super().__init__(
            f"{ticks} ticks are overdue, so nothing is drawn: compare the clock with the other parties' and correct it "
            "if it is ahead; only if it is right, serve with --catch-up, which spends the overdue releases although "
            "their syncs may be over"
        )


# -- calendars --------------------------------------------------------------------------------------------------------


class Calendar(Protocol):
    """Says how many batches must have been closed."""

    def due(self, seated: int, clock: SteadyClock) -> int:
        """The number of ticks that are due, including the time to settle, when `seated` decisions have a place."""
        ...

    def stale(self, sync: int, deadline: float, clock: SteadyClock) -> bool:
        """Whether the sync of an overdue tick must be over."""
        ...

    def moment(self, sync: int) -> float | None:
        """When the batch of a sync closes, if that is known in advance."""
        ...


class Timed:
    """Batch k closes `settle` seconds after start + times[k] periods. `times` may be too long to be kept in memory."""

    def __init__(self, start: float, period: float, times: Sequence[int], timing: Timing) -> None:
        self._start, self._period, self._times, self._timing = start, period, times, timing

    def due(self, seated: int, clock: SteadyClock) -> int:
        return bisect_right(range(len(self._times)), clock.now(), key=self.moment)

    def stale(self, sync: int, deadline: float, clock: SteadyClock) -> bool:
        return self.moment(sync) + deadline < clock.now()

    def moment(self, sync: int) -> float:
        last = sync == len(self._times) - 1
        wait = max(self._timing.settle, self._timing.settle_last) if last else self._timing.settle
        return self._start + self._times[sync] * self._period + wait


class Counted:
    """Batch k closes `settle` seconds after `times[k]` decisions have a place."""

    def __init__(self, times: tuple[int, ...], timing: Timing) -> None:
        self._times, self._settle = times, timing.settle
        self._settle_last = max(timing.settle, timing.settle_last)
        self._full_at: dict[int, float] = {}  # by batch, the time since when it has all its decisions

    def due(self, seated: int, clock: SteadyClock) -> int:
        full = bisect_right(self._times, seated)
        now = clock.steady
        for sync in range(len(self._full_at), full):
            self._full_at[sync] = now
        waits = (self._settle_last if sync == len(self._times) - 1 else self._settle for sync in range(full))
        return sum(now - self._full_at[sync] >= wait for sync, wait in enumerate(waits))

    def stale(self, sync: int, deadline: float, clock: SteadyClock) -> bool:
        return False

    def moment(self, sync: int) -> float | None:
        return None


def calendar(plan: Plan, start: float, timing: Timing) -> Calendar:
    """The calendar of a plan. A schedule that depends on data has none and cannot run live."""
    schedule = plan.schedule
    if isinstance(schedule, Adaptive):
        raise ArgumentError("schedule", f"must be public in a live federation, got {schedule}")
    if isinstance(schedule, ClockSchedule):
        return Timed(start, schedule.period, plan.ticks, timing)
    return Counted(plan.times, timing)


def pace(plan: Plan, timing: Timing) -> float:
    """Releases leave at whole multiples of this many seconds after their tick, however long it took to draw them.

    The number is public and follows from the plan. If ticks are far apart, it is long enough to hide how long a very
    large batch takes; if they are close together, batches cannot be large.
    """
    if not isinstance(plan.schedule, ClockSchedule):
        return COUNTED_PACE
    return max(SHORTEST_PACE, min(LONGEST_PACE, plan.schedule.period / 100, timing.deadline / 4))
