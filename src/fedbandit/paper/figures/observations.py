"""The paper's observations about its figures, as statistical checks of simulated runs on the same users."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol

import polars as pl
from scipy.special import stdtrit

from fedbandit.simulator.result import Estimate, Result, estimate

__all__ = ["Below", "Falling", "Observation", "Observed", "ordered"]

SURE = 0.95  # nothing is claimed unless the interval of this level (Student's t over runs) excludes zero
EARLY = 0.1  # a curve falls if it ends below its value after this share of the rounds


class Observed(NamedTuple):
    """The result of one check; `holds` is None if the runs cannot tell."""

    statement: str
    holds: bool | None
    difference: Estimate  # positive if the observation is right

    @property
    def verdict(self) -> str:
        return {True: "yes", False: "no", None: "cannot be told"}[self.holds]

    def __str__(self) -> str:
        return f"{self.statement}: {self.verdict} ({self.difference.mean:+.4g} ± {self.difference.stderr:.2g})"


class Observation(Protocol):
    """A statement that can be checked in a result."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The curves that it is about."""

    def check(self, result: Result) -> Observed:
        """Check it in this result."""


@dataclass(frozen=True)
class Below:
    """One curve ends below another, in time-averaged group regret at T, run by run on the same users."""

    lower: str
    upper: str

    @property
    def labels(self) -> tuple[str, ...]:
        return self.lower, self.upper

    def check(self, result: Result) -> Observed:
        difference = result.excess(self.upper, over=self.lower)
        return Observed(
            f"“{self.lower}” ends below “{self.upper}”", _told(difference, len(result.final(self.lower))), difference
        )


@dataclass(frozen=True)
class Falling:
    """A curve ends below its value after a tenth of the rounds."""

    label: str

    @property
    def labels(self) -> tuple[str, ...]:
        return (self.label,)

    def check(self, result: Result) -> Observed:
        averaged = result.frame.filter(pl.col("name") == self.label).with_columns(pl.col("regret") / pl.col("round"))
        last = int(averaged["round"].to_numpy().max())
        early = min(averaged["round"].unique(), key=lambda round_: abs(round_ - EARLY * last))
        at = {k: averaged.filter(pl.col("round") == k).sort("run")["regret"].to_numpy() for k in (early, last)}
        difference = estimate(at[early] - at[last])
        return Observed(f"“{self.label}” falls", _told(difference, len(at[last])), difference)


def ordered(*labels: str) -> tuple[Below, ...]:
    """The observations that each curve ends below the next."""
    return tuple(Below(lower, upper) for lower, upper in pairwise(labels))


def _told(difference: Estimate, runs: int) -> bool | None:
    """Whether the difference is positive; None if its interval at level SURE contains zero, or with a single run."""
    if runs < 2 or abs(difference.mean) <= stdtrit(runs - 1, (1 + SURE) / 2) * difference.stderr:
        return None
    return difference.mean > 0
