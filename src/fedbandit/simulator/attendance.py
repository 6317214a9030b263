"""Who comes, and which visits are counted: how often a person comes back, and how many agree to share their data.

In the simulator a round is one visit to every silo. A visit counts if the person agrees, has not been counted as often
as the plan's cap yet, and comes long enough after the last visit that was counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, islice

import numpy as np

from fedbandit import _validate
from fedbandit._arrays import Floats
from fedbandit._roots import falling_root
from fedbandit._validate import ArgumentError
from fedbandit.plan import Plan

__all__ = ["EVERYBODY", "Attendance"]


@dataclass(frozen=True)
class Attendance:
    """How often people come, as a public model.

    `people[n - 1]` is the share of people who come n times in all. Up to round `first_visits` every visit is a first
    one. From then on people come back, and the share of n-th visits is proportional to the share of people who come n
    times or more. `consenting` is the share of people whose visits may be shared at all. `between` is the number of
    rounds from one visit of a person to the next; 0 means that people come back at once. It matters if a plan counts
    only visits that lie apart.

    >>> Attendance().counted(1, 1, 3).tolist()  # everybody comes once
    [1.0, 1.0, 1.0]
    >>> Attendance.up_to(5).share(1, 1)  # everybody comes five times
    0.2
    >>> clinic = Attendance.up_to(5, mean=2.0, first_visits=600)
    >>> [round(clinic.share(cap, 601), 2) for cap in (1, 2, 5)], clinic.share(1, 600)
    ([0.5, 0.76, 1.0], 1.0)
    >>> Attendance.up_to(4).share(2, 1, every=2)  # of four visits the first and the third
    0.5
    """

    people: tuple[float, ...] = (1.0,)
    first_visits: int = 0
    consenting: float = 1.0
    between: int = 0

    def __post_init__(self) -> None:
        if not self.people or min(self.people) < 0 or abs(sum(self.people) - 1) > 1e-9:
            raise ArgumentError("people", f"must be shares that add up to 1, got {self.people}")
        _validate.count("first_visits", self.first_visits, least=0)
        _validate.count("between", self.between, least=0)
        if not 0 <= self.consenting <= 1:
            raise ArgumentError("consenting", f"must lie between 0 and 1, got {self.consenting!r}")

    @classmethod
    def up_to(cls, most: int, mean: float | None = None, first_visits: int = 0, consenting: float = 1.0) -> Attendance:
        """People who come `most` times, or, given a `mean`, up to `most` times and that often on average.

        In the latter case they come back with the same chance after each visit.
        """
        _validate.count("visits", most)
        if mean is None:
            return cls((*[0.0] * (most - 1), 1.0), first_visits, consenting)
        if not 1 <= mean <= most:
            raise ArgumentError("mean", f"must lie between 1 and the {most} visits, got {mean!r}")
        again = 0.0 if mean == 1 else falling_root(lambda chance: mean - _mean_visits(chance, most), 0.0, 1.0)
        coming = again ** np.arange(most + 1)
        coming[most] = 0.0
        return cls(tuple((coming[:-1] - coming[1:]).tolist()), first_visits, consenting)

    def share(self, cap: int | None, round_: int, every: int = 1) -> float:
        """The share of a round's visits that count, if a person counts at most `cap` times (None: always).

        Only every `every`-th visit of a person can count.
        """
        if cap is None or round_ <= self.first_visits:
            return self.consenting
        return self.consenting * min(1.0, sum(islice(self._numbers, 0, cap * every, every)))

    def every(self, plan: Plan) -> int:
        """The n for which only every n-th visit of a person can count: far enough apart for the plan everywhere."""
        apart = 0 if plan.privacy is None else plan.privacy.apart
        if not apart:
            return 1
        if not self.between:
            return len(self.people)  # only the first visit counts
        times = np.append(0, plan.times)
        return math.ceil(int((times[apart:] - times[:-apart]).max()) / self.between)

    def counted(self, cap: int | None, first_round: int, rounds: int, every: int = 1) -> Floats:
        """`share` for each of `rounds` rounds, from `first_round` on."""
        earlier, later = self.share(cap, 0), self.share(cap, self.first_visits + 1, every)
        return np.where(np.arange(first_round, first_round + rounds) <= self.first_visits, earlier, later)

    def all_counted(self, plan: Plan) -> bool:
        """Whether every visit counts under a plan."""
        return bool(self.counted(plan.cap, 1, plan.rounds, self.every(plan)).min() >= 1.0)

    @cached_property
    def _numbers(self) -> tuple[float, ...]:
        """The shares of visits that are somebody's first, second, ... once people come back."""
        at_least = [1.0, *(1 - done for done in accumulate(self.people[:-1]))]
        visits = sum(at_least)
        return tuple(share / visits for share in at_least)


def _mean_visits(again: float, most: int) -> float:
    """How often people come on average if they come back with this chance."""
    if again in (0.0, 1.0):
        return 1.0 if again == 0 else float(most)
    away = 1 - again
    return -math.expm1(most * math.log1p(-away)) / away  # (1 - again^most) / (1 - again), also exact for chances near 1


EVERYBODY = Attendance()
