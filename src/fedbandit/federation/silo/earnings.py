"""Is it learning? The mean reward of people who count, now and in the first weeks of the term.

Only sums are kept, of the first two weeks, of the last two and of stretches of syncs: enough for means and intervals.
They stay in the silo, on its own page, and are forgotten with the term. A mean is shown once it is over a few dozen
rewards, and a stretch goes on until it has that many, because the mean of one person would reveal that person's reward.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import mul
from typing import NamedTuple

from fedbandit import _validate
from fedbandit.federation.states import DecisionState
from fedbandit.federation.store import Verdict
from fedbandit.federation.store.database import Sql, put_state
from fedbandit.federation.store.rewards import RewardColumns, runs
from fedbandit.federation.store.silo_store import SiloStore

__all__ = ["FEWEST", "QUANTILE", "WEEK", "Earned", "Learning", "RewardTrend", "Stretch"]

WEEK = 7 * 86_400.0
FIRST = 2  # how many weeks count as the first
FEWEST = 30  # rewards that a period must have before its mean is shown
QUANTILE = 1.959963984540054  # the 97.5 % quantile of the normal distribution
NAME, COURSE = "earnings", "earnings by sync"
STRETCHES = 200  # stretches that are kept; if there are more, pairs are joined


class Earned(NamedTuple):
    """Sums over rewards: how many, their total, the total of their squares."""

    visits: int = 0
    total: float = 0.0
    squares: float = 0.0

    def plus(self, more: Earned) -> Earned:
        return Earned(self.visits + more.visits, self.total + more.total, self.squares + more.squares)

    @property
    def mean(self) -> float:
        return self.total / self.visits

    @property
    def error(self) -> float:
        """The variance of the mean."""
        spread = max(0.0, self.squares - self.total**2 / self.visits) / max(1, self.visits - 1)
        return spread / self.visits


class Learning(NamedTuple):
    """Two means, and how far the second is above the first: low end of the 95 % interval, difference, high end."""

    first: float
    recent: float
    gain: tuple[float, float, float]


class _Weeks(NamedTuple):
    """The sums that are kept: of the first weeks, of week number `week`, and of the week before it."""

    first: Earned = Earned()
    week: int = 0
    before: Earned = Earned()
    current: Earned = Earned()

    def plus(self, week: int, more: Earned) -> _Weeks:
        first = self.first.plus(more) if week < FIRST else self.first
        if week <= self.week:  # a worker that writes late adds to the current week
            return self._replace(first=first, current=self.current.plus(more))
        before = self.current if week == self.week + 1 else Earned()
        return _Weeks(first, week, before, more)

    def encode(self) -> bytes:
        return json.dumps(self).encode()

    @classmethod
    def decode(cls, data: bytes) -> _Weeks:
        with _validate.reading("earnings"):
            first, week, before, current = json.loads(data)
            return cls(Earned(*first), int(week), Earned(*before), Earned(*current))


class Stretch(NamedTuple):
    """The rewards that counted in consecutive syncs, from `first` to `last`."""

    first: int
    last: int
    earned: Earned

    def joined(self, other: Stretch) -> Stretch:
        return Stretch(min(self.first, other.first), max(self.last, other.last), self.earned.plus(other.earned))


def _extended(course: list[Stretch], more: Stretch) -> list[Stretch]:
    """The course with the rewards of one more sync; a new stretch begins only once the last one has enough rewards."""
    last = course[-1] if course else None
    if last is not None and (more.first <= last.last or last.earned.visits < FEWEST):
        course = [*course[:-1], last.joined(more)]
    else:
        course = [*course, more]
    if len(course) <= STRETCHES:
        return course
    pairs = [one.joined(other) for one, other in zip(course[::2], course[1::2], strict=False)]
    return pairs + ([course[-1]] if len(course) % 2 else [])


def _course(data: bytes) -> list[Stretch]:
    with _validate.reading("earnings"):
        return [Stretch(int(first), int(last), Earned(*earned)) for first, last, earned in json.loads(data)]


class RewardTrend:
    """The sums of one term. Rewards are added in memory and written to the store now and then; if the process is
    killed, what it has not written is lost."""

    def __init__(self, store: SiloStore, term: int, began: float) -> None:
        self._store, self._term, self._began = store, term, began
        self._lock, self._new = threading.Lock(), dict[int, Earned]()  # by sync

    def note(self, rewards: RewardColumns, verdicts: Sequence[Verdict]) -> None:
        """Add the rewards that count, according to their verdicts."""
        fresh = dict[int, list[float]]()
        for verdict, part in runs(verdicts):
            if verdict.state is DecisionState.COUNTED and not verdict.repeated and not verdict.conflict:
                fresh.setdefault(verdict.sync, []).extend(rewards.values[part])
        if fresh:
            sums = {sync: Earned(len(of), sum(of), sum(map(mul, of, of))) for sync, of in fresh.items()}
            with self._lock:
                self._keep(sums)

    def flush(self, now: float) -> None:
        """Add what is new to what is in the store, which other workers add to as well."""
        with self._lock:
            new, self._new = self._new, {}
        if not new:
            return
        try:
            self._add(max(0, math.floor((now - self._began) / WEEK)), new)
        except BaseException:
            with self._lock:
                self._keep(new)
            raise

    def learning(self) -> Learning | None:
        """Whether the silo is learning; None in the first weeks, and while there are too few rewards to say."""
        stored = self._store.state(self._term, NAME)
        if stored is None:
            return None
        weeks = _Weeks.decode(stored)
        first, recent = weeks.first, weeks.current
        if weeks.week > FIRST:  # the week before is not one of the first
            recent = recent.plus(weeks.before)
        if weeks.week < FIRST or min(first.visits, recent.visits) < FEWEST:
            return None
        gain = recent.mean - first.mean
        wide = QUANTILE * math.sqrt(first.error + recent.error)
        return Learning(first.mean, recent.mean, (gain - wide, gain, gain + wide))

    def course(self) -> tuple[list[Stretch], Earned | None]:
        """The stretches over time, and the rewards of the first weeks, each only with enough rewards to be shown."""
        stored, weeks = (self._store.state(self._term, name) for name in (COURSE, NAME))
        first = Earned() if weeks is None else _Weeks.decode(weeks).first
        stretches = [] if stored is None else [one for one in _course(stored) if one.earned.visits >= FEWEST]
        return stretches, first if first.visits >= FEWEST else None

    def _keep(self, more: Mapping[int, Earned]) -> None:
        for sync, earned in more.items():
            self._new[sync] = self._new.get(sync, Earned()).plus(earned)

    def _add(self, week: int, new: Mapping[int, Earned]) -> None:
        total = reduce(Earned.plus, new.values(), Earned())
        with self._store.engine.transaction(durable=False) as sql:
            known = self._known(sql, NAME)
            self._put(sql, NAME, (_Weeks.decode(known) if known else _Weeks()).plus(week, total).encode())
            known = self._known(sql, COURSE)
            course = _course(known) if known else []
            for sync in sorted(new):
                course = _extended(course, Stretch(sync, sync, new[sync]))
            self._put(sql, COURSE, json.dumps(course).encode())

    def _known(self, sql: Sql, name: str) -> bytes | None:
        found = sql.all("SELECT value FROM states WHERE term = ? AND name = ? FOR UPDATE", (self._term, name))
        return bytes(found[0][0]) if found else None

    def _put(self, sql: Sql, name: str, value: bytes) -> None:
        put_state(sql, self._term, name, value)
