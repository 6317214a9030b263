"""The result of a simulation: regret by plan, run and round, as a polars frame, a table, a file and a plot."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from fedbandit import _validate, _words
from fedbandit._arrays import Floats, Integers
from fedbandit._validate import ArgumentError
from fedbandit.bandit.prior import Prior
from fedbandit.knowledge import prior_of
from fedbandit.plan import Plan
from fedbandit.simulator.engine import Played

__all__ = ["Estimate", "Result", "collected", "estimate"]


COLUMNS = ("plan", "time-averaged group regret", "standard error", "syncs")


class Estimate(NamedTuple):
    """A mean over runs and its standard error (nan for a single run; both nan without runs)."""

    mean: float
    stderr: float


@dataclass(frozen=True)
class Result:
    """The regret of several plans on the same users."""

    plans: Mapping[str, Plan]
    frame: pl.DataFrame  # name, run, round, regret: cumulative group regret
    totals: pl.DataFrame  # name, run, syncs, uncounted visits and their regret
    repaired: Mapping[str, int]  # by plan: covariances that noise had made indefinite, over all runs
    runs: int  # the runs asked for; after an interruption the frame has fewer
    seed: int
    known: Mapping[str, Mapping[int, Floats]] = field(default_factory=dict)  # by plan, run: sums of the last model
    before: int = 0  # rounds of earlier terms

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.plans)

    def final(self, name: str) -> Floats:
        """The time-averaged group regret Reg_M(T)/T of one plan, run by run."""
        return self._last(name)["regret"].to_numpy() / self._rounds

    def regret(self, name: str, second_half: bool = False) -> Estimate:
        """Reg_M(T)/T of one plan over its runs; with `second_half`, only of the rounds after the middle of the horizon.

        >>> import fedbandit as fb
        >>> plan = fb.Plan(silos=4, rounds=100, dim=3, trust="none")
        >>> plans = {"often": plan.changed(schedule=fb.every(1)), "once": plan.changed(schedule=fb.every(100))}
        >>> result = fb.simulate(fb.tasks.synthetic(dim=3, arms=5), plans, runs=3, seed=0)
        >>> result.regret("often").mean < result.regret("once").mean
        True
        """
        return estimate(self._late(name) if second_half else self.final(name))

    def excess(self, name: str, over: str) -> Estimate:
        """Reg_M(T)/T of one plan minus that of another on the same users, over the runs that both have finished."""
        both = self._last(name).join(self._last(over), on="run")
        return estimate((both["regret"] - both["regret_right"]).to_numpy() / self._rounds)

    def by_count(self, name: str) -> tuple[Estimate, Estimate]:
        """The regret per visit of the visits that one plan counts, and of the others (nan if there are none)."""
        totals = self.totals.filter(pl.col("name") == name).sort("run")
        others, lost = totals["uncounted"].to_numpy(), totals["uncounted_regret"].to_numpy()
        all_lost, visits = self._last(name)["regret"].to_numpy(), self.plans[name].silos * self._rounds
        return _per_visit(all_lost - lost, visits - others), _per_visit(lost, others)

    def prior(self, name: str, weight: float = 1.0) -> Prior:
        """What the next term begins with.

        Under a plan with this prior, `simulate(..., after=result)` begins each run with what the plan of the same name
        knew at the end of that run. (The sums in the prior itself are those of the first run.)

        >>> import fedbandit as fb
        >>> plan = fb.Plan(silos=4, rounds=100, dim=3, privacy=fb.Privacy(epsilon=5.0, delta=0.1))
        >>> users = fb.tasks.synthetic(dim=3, arms=5)
        >>> first = fb.simulate(users, {"ours": plan}, runs=2, seed=0)
        >>> second = fb.simulate(users, {"ours": plan.changed(prior=first.prior("ours"))}, runs=2, seed=0, after=first)
        >>> second.before
        100
        """
        plan, known = self.plans[name], self.known[name]
        return prior_of(plan, (plan.syncs or 0) - 1, known[min(known)], weight)

    def joined(self, other: Result) -> Result:
        """Both results as one. `other` has other plans on the same users, whose rows may be written in another way."""
        if (self.seed, self.runs) != (other.seed, other.runs) or set(self.plans) & set(other.plans):
            raise ArgumentError("other", "must hold other plans, in the same runs of the same seed")
        return replace(
            self,
            plans={**self.plans, **other.plans},
            frame=pl.concat([self.frame, other.frame]),
            totals=pl.concat([self.totals, other.totals]),
            repaired={**self.repaired, **other.repaired},
            known={**self.known, **other.known},
        )

    def syncs(self, name: str) -> float:
        """How often one plan synchronised, on average over its runs."""
        self._known(name)
        return estimate(self.totals.filter(pl.col("name") == name)["syncs"].to_numpy()).mean

    def curve(self, name: str) -> pl.DataFrame:
        """Mean and standard error of the time-averaged regret by round."""
        self._known(name)
        averaged = self.frame.filter(pl.col("name") == name).with_columns(average=pl.col("regret") / pl.col("round"))
        grouped = averaged.group_by("round").agg(
            mean=pl.col("average").mean(), stderr=pl.col("average").std() / pl.len().sqrt()
        )
        return grouped.sort("round")

    def plot(self, path: str | Path, title: str = "") -> None:
        """Draw the time-averaged group regret with bands of two standard errors, as SVG, PNG or PDF by the ending."""
        from fedbandit.simulator.plot import regret_plot

        regret_plot({name: self.curve(name) for name in self.names}, Path(path), title)

    def save(self, folder: str | Path) -> Path:
        """Write regret.parquet, and the plans and versions next to it; return the folder."""
        where = Path(folder)
        where.mkdir(parents=True, exist_ok=True)
        (where / "plans.json").write_text(json.dumps(self.describe(), indent=2) + "\n")
        self.frame.write_parquet(where / "regret.parquet")
        return where

    def describe(self) -> dict[str, Any]:
        """The plans, the seed and the versions behind the numbers."""
        versions = {name: version(name) for name in ("fedbandit", "numpy", "numba", "polars")}
        return {
            "seed": self.seed,
            "runs": self.runs,
            "finished_runs": {name: len(self.final(name)) for name in self.names},
            "plans": {name: plan.as_dict() for name, plan in self.plans.items()},
            "repaired": dict(self.repaired),
            "versions": {"python": platform.python_version(), **versions},
        }

    def _late(self, name: str) -> Floats:
        """The regret per round after the recorded round nearest to the middle, run by run."""
        rounds = self.frame["round"].unique().sort().to_numpy()
        middle = int(rounds[np.abs(rounds - self._rounds / 2).argmin()])
        if middle == self._rounds:
            return self.final(name)
        rows = self.frame.filter((pl.col("name") == name) & (pl.col("round") == middle)).sort("run")
        late = self._last(name)["regret"].to_numpy() - rows["regret"].to_numpy()
        return np.asarray(late / (self._rounds - middle))

    def __repr__(self) -> str:
        """The table that a notebook shows, as text: what a person sees who types the result's name."""
        lines = [COLUMNS, *self._rows()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        shown = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        return "\n".join([self._size(), *shown])

    def _repr_html_(self) -> str:
        return _words.tabled(COLUMNS, self._rows(), self._size())

    def _rows(self) -> list[tuple[str, str, str, str]]:
        return [
            (name, f"{self.regret(name).mean:.4g}", f"{self.regret(name).stderr:.2g}", f"{self.syncs(name):g}")
            for name in self.names
        ]

    def _size(self) -> str:
        return f"{_words.counted(self.runs, 'run')} of {_words.counted(self._rounds, 'round')}, seed {self.seed}"

    def _last(self, name: str) -> pl.DataFrame:
        """The rows of one plan's last round, in the order of runs."""
        self._known(name)
        return self.frame.filter((pl.col("name") == name) & (pl.col("round") == self._rounds)).sort("run")

    def _known(self, name: str) -> None:
        _validate.one_of("name", name, self.names)

    @property
    def _rounds(self) -> int:
        return next(iter(self.plans.values())).rounds


def estimate(values: Floats) -> Estimate:
    """Mean and standard error."""
    spread = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")
    return Estimate(float(np.mean(values)) if len(values) else float("nan"), spread)


def _per_visit(lost: Floats, visits: Integers) -> Estimate:
    """The regret per visit, over the runs that have such visits."""
    return estimate(lost[visits > 0] / visits[visits > 0])


def collected(
    plans: Mapping[str, Plan],
    record: tuple[int, ...],
    runs: int,
    seed: int,
    parts: Iterable[tuple[tuple[int, ...], dict[str, Played]]],
    before: int = 0,
) -> Result:
    """One result from all finished parts. Each part has some runs, and the outcomes of some plans in them."""
    frames, totals = [], []
    known: dict[str, dict[int, Floats]] = {name: {} for name in plans}
    repaired = dict.fromkeys(plans, 0)
    for numbers, played in parts:
        for name, one in played.items():
            repaired[name] += one.repaired
            if one.known is not None:
                known[name].update(zip(numbers, one.known, strict=True))
            for row, run in enumerate(numbers):
                regret = {"name": name, "run": run, "round": list(record), "regret": one.regret[row]}
                frames.append(pl.DataFrame(regret))
                totals.append({"name": name, "run": run, "syncs": int(one.syncs[row]), **_uncounted(one, row)})
    frame = pl.concat(frames).sort("name", "run", "round")
    return Result(plans, frame, pl.DataFrame(totals), repaired, runs, seed, known, before)


def _uncounted(played: Played, row: int) -> dict[str, float]:
    """The visits of one run that are not counted, and their regret."""
    if played.uncounted is None:
        return {"uncounted": 0, "uncounted_regret": 0.0}
    return {"uncounted": int(played.uncounted.visits[row]), "uncounted_regret": float(played.uncounted.regret[row])}
