"""When to synchronise. A calendar is public and fixed before the first user; data never moves it.

`Adaptive` is the exception, kept to show the leak of Dubey & Pentland's rule and the open problem of its noisy
variant: its times are not known beforehand, and no calendar can be asked of it.
"""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass, fields
from typing import Any

from fedbandit import _validate


@dataclass(frozen=True)
class Every:
    """Synchronise after every `batch` rounds, and at the end: Algorithm 1. The last batch may be shorter."""

    batch: int = 25

    def __post_init__(self) -> None:
        _validate.count("batch", self.batch)

    def times(self, rounds: int) -> tuple[int, ...]:
        if self.batch > rounds:
            raise ValueError(f"batch must be at most the horizon of {rounds} rounds, got {self.batch}")
        last = () if rounds % self.batch == 0 else (rounds,)
        return (*range(self.batch, rounds + 1, self.batch), *last)

    def __str__(self) -> str:
        return f"every({self.batch})"


@dataclass(frozen=True)
class Growing:
    """Synchronise whenever the horizon has grown by `ratio`: O(log T) synchronisations.

    Statistics that have grown by a tenth decide almost as those did that are fresh, so little is lost by waiting;
    and fewer releases mean less noise in each.
    """

    ratio: float = 1.1

    def __post_init__(self) -> None:
        _validate.within("ratio", self.ratio, 1, math.inf)

    def times(self, rounds: int) -> tuple[int, ...]:
        times = [1]
        while times[-1] < rounds:
            times.append(min(rounds, max(times[-1] + 1, math.ceil(times[-1] * self.ratio))))
        return tuple(times)

    def __str__(self) -> str:
        return f"growing({self.ratio:g})"


@dataclass(frozen=True)
class Clock:
    """Synchronise at every tick of a public clock, `period` seconds apart; for live silos, where a round is a tick."""

    period: float

    def __post_init__(self) -> None:
        _validate.positive("period", self.period)

    def times(self, rounds: int) -> tuple[int, ...]:
        return tuple(range(1, rounds + 1))

    def __str__(self) -> str:
        return f"clock({self.period:g})"


@dataclass(frozen=True)
class Adaptive:
    """Dubey & Pentland's rule: synchronise when some silo's log-determinant has grown by `threshold` / rounds waited.

    With `private`, the rule looks at a noisy local covariance (eq. det-new) and the schedule leaks no more than the
    noise allows; without, whether a synchronisation happens tells of a single user's norm (Example "Privacy leakage").
    """

    threshold: float
    private: bool = False

    def __post_init__(self) -> None:
        _validate.positive("threshold", self.threshold)

    def times(self, rounds: int) -> tuple[int, ...]:
        raise ValueError("schedule must be public to have a calendar; an adaptive one is decided by the data")

    def __str__(self) -> str:
        return f"adaptive({self.threshold:g}{', private' if self.private else ''})"


Schedule = Every | Growing | Clock | Adaptive
_KINDS: dict[str, type[Every] | type[Growing] | type[Clock] | type[Adaptive]] = {
    "every": Every,
    "growing": Growing,
    "clock": Clock,
    "adaptive": Adaptive,
}


def every(batch: int) -> Every:
    """Synchronise after every `batch` rounds."""
    return Every(batch)


def growing(ratio: float = 1.1) -> Growing:
    """Synchronise whenever the horizon has grown by `ratio`."""
    return Growing(ratio)


def clock(period: float) -> Clock:
    """Synchronise every `period` seconds."""
    return Clock(period)


def adaptive(threshold: float, private: bool = False) -> Adaptive:
    """Synchronise by the determinant rule; see `Adaptive`."""
    return Adaptive(threshold, private)


def as_dict(schedule: Schedule) -> dict[str, Any]:
    """A schedule as plain data, e.g. {"kind": "every", "batch": 25}."""
    kind = next(name for name, known in _KINDS.items() if isinstance(schedule, known))
    return {"kind": kind, **vars(schedule)}


def from_dict(data: dict[str, Any]) -> Schedule:
    """The schedule that `as_dict` wrote."""
    values = dict(data)
    kind = _KINDS[_validate.one_of("schedule kind", values.pop("kind", ""), _KINDS)]
    required = [field.name for field in fields(kind) if field.default is MISSING]
    _validate.known_keys("schedule", values, kind.__dataclass_fields__, required)
    return kind(**values)
