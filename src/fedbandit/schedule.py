"""When to synchronise. A calendar is public and fixed before the first user comes; data never move it.

`Adaptive` is the exception. It is kept to show the leak of Dubey & Pentland's rule and the open problem of its noisy
variant: its times are not known beforehand, and it has no calendar.
"""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass, fields
from itertools import pairwise
from typing import Any, Literal

from fedbandit import _validate
from fedbandit._validate import ArgumentError

__all__ = [
    "Adaptive",
    "At",
    "Clock",
    "Every",
    "Growing",
    "Kind",
    "Schedule",
    "adaptive",
    "as_dict",
    "at",
    "clock",
    "every",
    "from_dict",
    "growing",
]

SHORTEST, LONGEST = 0.001, 100 * 366 * 86400.0  # seconds between two ticks of a clock


@dataclass(frozen=True)
class Every:
    """Synchronise after every `batch` rounds, and at the end (Algorithm 1). The last batch may be shorter."""

    batch: int = 25

    def __post_init__(self) -> None:
        _validate.plain_numbers(self)
        _validate.count("batch", self.batch)

    def times(self, rounds: int) -> tuple[int, ...]:
        """The rounds after which silos synchronise; the last of them is the horizon."""
        if self.batch > rounds:
            raise ArgumentError("batch", f"must be at most the horizon of {rounds} rounds, got {self.batch}")
        last = () if rounds % self.batch == 0 else (rounds,)
        return (*range(self.batch, rounds + 1, self.batch), *last)

    def __str__(self) -> str:
        return f"every({self.batch})"


@dataclass(frozen=True)
class Growing:
    """Synchronise after round `first`, and then whenever the rounds so far have grown by `ratio`: O(log T) syncs.

    Statistics that lack up to a tenth of the rounds decide almost as well as fresh ones, so little is lost by waiting,
    and fewer releases mean less noise in each. A sync is wasted if its noise drowns what the few people so far have
    said: a later `first` leaves such syncs out.
    """

    ratio: float = 1.1
    first: int = 1

    def __post_init__(self) -> None:
        _validate.plain_numbers(self)
        _validate.within("ratio", self.ratio, 1, math.inf)
        _validate.count("first", self.first)

    def times(self, rounds: int) -> tuple[int, ...]:
        """The rounds after which silos synchronise; the last of them is the horizon."""
        if self.first > rounds:
            raise ArgumentError("first", f"must be at most the horizon of {rounds} rounds, got {self.first}")
        times = [self.first]
        while times[-1] < rounds:
            times.append(min(rounds, max(times[-1] + 1, math.ceil(times[-1] * self.ratio))))
        return tuple(times)

    def __str__(self) -> str:
        return f"growing({self.ratio:g}{'' if self.first == 1 else f', first={self.first}'})"


@dataclass(frozen=True)
class At:
    """Synchronise after exactly these rounds; the last of them is the horizon."""

    rounds: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "rounds", tuple(int(_validate.count("rounds", one)) for one in self.rounds))
        if not self.rounds or any(later <= sooner for sooner, later in pairwise(self.rounds)):
            raise ArgumentError("rounds", f"must rise from sync to sync, got {self.rounds}")

    def times(self, rounds: int) -> tuple[int, ...]:
        """The rounds after which silos synchronise; the last of them is the horizon."""
        if self.rounds[-1] != rounds:
            raise ArgumentError("rounds", f"must end with the horizon of {rounds} rounds, got {self.rounds[-1]}")
        return self.rounds

    def __str__(self) -> str:
        return f"at({self.rounds[0]}, ..., {self.rounds[-1]})" if len(self.rounds) > 3 else f"at{self.rounds}"


@dataclass(frozen=True)
class Clock:
    """Synchronise at ticks of a public clock: after every `period` seconds, or ever more rarely. For live silos.

    A plan's `rounds` are then periods, and a batch is everybody who came since the last tick, however many they are.
    With a `ratio` above 1, the clock ticks whenever the periods so far have grown by it, as `Growing` counts rounds.
    The first tick comes after `first` periods.
    """

    period: float
    ratio: float = 1.0
    first: int = 1

    def __post_init__(self) -> None:
        _validate.plain_numbers(self)
        _validate.positive("period", self.period)
        if not SHORTEST <= self.period <= LONGEST:
            raise ArgumentError(
                "period", f"must lie between {SHORTEST:g} and {LONGEST:g} seconds (100 years), got {self.period!r}"
            )
        if self.ratio != 1:
            _validate.within("ratio", self.ratio, 1, math.inf)
        _validate.count("first", self.first)

    def times(self, rounds: int) -> tuple[int, ...]:
        """The periods after which silos synchronise; the last of them is the horizon."""
        if self.ratio != 1:
            return Growing(self.ratio, self.first).times(rounds)
        if self.first > rounds:
            raise ArgumentError("first", f"must be at most the horizon of {rounds} periods, got {self.first}")
        return tuple(range(self.first, rounds + 1))

    def __str__(self) -> str:
        ratio = "" if self.ratio == 1 else f", {self.ratio:g}"
        return f"clock({self.period:g}{ratio}{'' if self.first == 1 else f', first={self.first}'})"


@dataclass(frozen=True)
class Adaptive:
    """Dubey & Pentland's rule: synchronise when some silo's log-determinant has grown by `threshold` / rounds waited.

    With `private`, the rule looks at a noisy local covariance (eq. det-new), and the schedule leaks no more than the
    noise allows. Without it, whether a sync happens tells something about a single user's norm (Example "Privacy
    leakage").

    With `alone`, only the silo that asks synchronises, as in He et al. 2022: it sends its batch and fetches the model,
    and the others go on with theirs. It asks when its log-determinant has grown by `threshold`, however long it has
    waited.
    """

    threshold: float
    private: bool = False
    alone: bool = False

    def __post_init__(self) -> None:
        _validate.plain_numbers(self)
        _validate.positive("threshold", self.threshold)
        for name in ("private", "alone"):
            if not isinstance(getattr(self, name), bool):
                raise ArgumentError(name, f"must be true or false, got {getattr(self, name)!r}")
        if self.private and self.alone:
            raise ArgumentError("alone", "must be false for a private rule: nobody has one for silos that come alone")

    def times(self, rounds: int) -> tuple[int, ...]:
        """Raises an error: there are no times before the data are in."""
        raise ArgumentError("schedule", "must be public to have a calendar; an adaptive one is decided by the data")

    def __str__(self) -> str:
        return f"adaptive({self.threshold:g}{', private' if self.private else ''}{', alone' if self.alone else ''})"


Schedule = Every | Growing | At | Clock | Adaptive
Kind = Literal["every", "growing", "at", "clock", "adaptive"]
_KINDS: dict[Kind, type[Schedule]] = {
    "every": Every,
    "growing": Growing,
    "at": At,
    "clock": Clock,
    "adaptive": Adaptive,
}
# Fields that were added later, and the values that schedules without them have. A field with that value is not written,
# so that older plans keep their hashes.
_LATER = {"first": 1, "alone": False}


def every(batch: int) -> Every:
    """Synchronise after every `batch` rounds.

    >>> every(25).times(rounds=60)
    (25, 50, 60)
    """
    return Every(batch)


def growing(ratio: float = 1.1, first: int = 1) -> Growing:
    """Synchronise after round `first`, and then whenever the rounds so far have grown by `ratio`.

    >>> growing(2).times(rounds=50)
    (1, 2, 4, 8, 16, 32, 50)
    >>> len(growing().times(rounds=10_000))
    79
    >>> growing(1.5, first=4).times(rounds=50)
    (4, 6, 9, 14, 21, 32, 48, 50)
    """
    return Growing(ratio, first)


def at(*rounds: int) -> At:
    """Synchronise after exactly these rounds.

    >>> at(7, 30, 365).times(rounds=365)
    (7, 30, 365)
    """
    return At(rounds)


def clock(period: float, ratio: float = 1.0, first: int = 1) -> Clock:
    """Synchronise every `period` seconds, from the end of period `first` on; with a `ratio`, whenever the periods so
    far have grown by it.

    >>> clock(3600).times(rounds=4)
    (1, 2, 3, 4)
    >>> clock(86400, ratio=1.5).times(rounds=30)
    (1, 2, 3, 5, 8, 12, 18, 27, 30)
    """
    return Clock(period, ratio, first)


def adaptive(threshold: float, private: bool = False, alone: bool = False) -> Adaptive:
    """Synchronise by the determinant rule; see `Adaptive`.

    >>> print(adaptive(3.0, private=True))
    adaptive(3, private)
    """
    return Adaptive(threshold, private, alone)


def as_dict(schedule: Schedule) -> dict[str, Any]:
    """A schedule as plain data.

    >>> as_dict(every(25))
    {'kind': 'every', 'batch': 25}
    """
    kind = next(name for name, known in _KINDS.items() if isinstance(schedule, known))
    written = {name: value for name, value in vars(schedule).items() if _LATER.get(name) != value}
    return {"kind": kind, **written}


def from_dict(data: dict[str, Any]) -> Schedule:
    """The schedule that `as_dict` wrote; unknown names are refused."""
    values = dict(data)
    kind = _KINDS[_validate.one_of("schedule kind", values.pop("kind", ""), _KINDS)]
    required = [field.name for field in fields(kind) if field.default is MISSING]
    _validate.known_keys("schedule", values, kind.__dataclass_fields__, required)
    return kind(**values)
