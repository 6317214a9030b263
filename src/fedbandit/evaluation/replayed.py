"""The result of a replay: what each policy earned over time, with intervals, side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fedbandit import _validate
from fedbandit._arrays import Flags, Floats
from fedbandit.evaluation.estimators import Worth, interval
from fedbandit.evaluation.past import LEAST_PROPENSITY, Kind
from fedbandit.evaluation.replaying import Earnings, Tape, alone, best_linear, federated, fitted_plan, fixed, practised
from fedbandit.plan import Plan
from fedbandit.simulator.engine import Progress

__all__ = ["ALONE", "BEST", "PRACTICE", "Replay", "replay"]

ALONE, PRACTICE, BEST = "each silo alone", "practice", "best linear policy"
RECORDED = 40  # steps at which curves are recorded
PEOPLE = (
    "people come as they came in the table: intervals are about people like these, and about the plan's noise",
    "every row is a different person: the plan's cap on visits leaves nobody out",
    "each silo alone explores by the plan's radii or by practical ones, whichever earned more",
    "neither the plan nor the schema was chosen by what it earns on this table: set some people aside for that",
)
ASSUMPTIONS: dict[Kind, tuple[str, ...]] = {
    "known": ("the table knows the outcome of every action for everybody", *PEOPLE),
    "randomised": (
        "actions in the table were played with the probabilities that it gives, and depend on nothing else",
        "people come independently of each other: those whose action agrees are kept, the others skipped",
        *PEOPLE,
    ),
    "observed": (
        "everything that influenced both the choice of an action and its outcome is among the fields of the schema",
        "the outcome of an action that was not done is the prediction of a linear model; learners see that prediction",
        "worth is doubly robust: right if these predictions are, or the estimated probabilities of what was done "
        f"(none below {LEAST_PROPENSITY:g})",
        *PEOPLE,
    ),
}


@dataclass(frozen=True)
class Replay:
    """What each policy earned on the same people."""

    tape: Tape
    plans: Mapping[str, Plan]
    played: Mapping[str, Earnings]
    level: float = 0.95

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.played)

    @property
    def assumes(self) -> tuple[str, ...]:
        return ASSUMPTIONS[self.tape.past.kind]

    @property
    def remarks(self) -> list[str]:
        """What to know about the table besides the numbers."""
        past = self.tape.past
        said = [f"{past.left_out:,} people are left out: the table lacks something that is needed"]
        odd: dict[str, list[str]] = {}
        for (field, oddity), count in sorted(past.odd.items()):
            odd.setdefault(field, []).append(f"{count:,} {'is' if count == 1 else 'are'} {oddity}")
        read = [f"of {len(past):,} values of {field}, {' and '.join(counts)}" for field, counts in odd.items()]
        return (said if past.left_out else []) + read

    def worth(self, name: str, silo: int | None = None, steps: int | None = None, after: int = 0) -> Worth:
        """What a policy earned per person in all silos or one of them, after step `after` and up to step `steps`."""
        earned = np.where(self._counted(silo, steps, after), self.played[name].earned, np.nan)
        return _worth(earned, self.level)

    def late(self, name: str) -> Worth:
        """What a policy earned per person in the last third of the steps, when most has been learnt."""
        return self.worth(name, after=2 * self.tape.steps // 3)

    def excess(self, name: str, over: str) -> Worth:
        """What a policy earned per person beyond another; paired by person unless the table is randomised."""
        first, second = self.played[name].earned, self.played[over].earned
        if self.tape.past.kind != "randomised":
            return _worth(first - second, self.level)
        one, other = _worth(first, self.level), _worth(second, self.level)
        error = math.hypot(one.stderr, other.stderr)
        effective = min(one.effective, other.effective)
        return interval(one.value - other.value, error, min(one.decisions, other.decisions), effective, self.level)

    @property
    def frame(self) -> pl.DataFrame:
        """Name, step, and the mean reward per person up to that step, with its interval."""
        steps = np.unique(np.linspace(1, self.tape.steps, min(RECORDED, self.tape.steps)).astype(int))
        rows = [
            {"name": name, "step": int(step), "mean": found.value, "low": found.low, "high": found.high}
            for name in self.names
            for step in steps
            if (found := self.worth(name, steps=int(step))).decisions
        ]
        return pl.DataFrame(rows)

    @property
    def silos(self) -> pl.DataFrame:
        """Name, silo, people, and the mean reward per person with its interval."""
        rows = [
            {
                "name": name,
                "silo": label,
                "people": found.decisions,
                "mean": found.value,
                "low": found.low,
                "high": found.high,
            }
            for name in self.names
            for number, label in enumerate(self.tape.past.silos)
            if (found := self.worth(name, silo=number)).decisions
        ]
        return pl.DataFrame(rows)

    def as_dict(self) -> dict[str, Any]:
        """The replay as plain data."""
        past, first = self.tape.past, next(iter(self.plans), "")
        return {
            "kind": past.kind,
            "people": len(past),
            "left_out": past.left_out,
            "remarks": self.remarks,
            "silos": len(past.silos),
            "runs": self.tape.runs,
            "level": self.level,
            "worth": {name: self.worth(name)._asdict() for name in self.names},
            "last_third": {name: self.late(name)._asdict() for name in self.names},
            "excess": {name: self.excess(first, name)._asdict() for name in self.names if first and name != first},
            "plans": {name: plan.as_dict() for name, plan in self.plans.items()},
            "promises": {name: plan.guarantee.statement for name, plan in self.plans.items()},
            "assumes": list(self.assumes),
        }

    def plot(self, path: str | Path, title: str = "") -> None:
        """Draw the mean reward per person up to each step, with bands, as SVG, PNG or PDF."""
        from fedbandit.evaluation.evaluation_plot import earnings_plot

        earnings_plot(self, Path(path), title)

    def _repr_html_(self) -> str:
        rows = []
        for name in self.names:
            found = self.worth(name)
            cells = (escape(name), f"{found.value:.4g}", f"{found.low:.4g} to {found.high:.4g}")
            rows.append(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
        remarks = "".join(f"<p>{escape(one)}.</p>" for one in self.remarks)
        assumed = "".join(f"<li>{escape(one)}</li>" for one in self.assumes)
        caption = f"mean reward per person, {self.level:.0%} intervals, {len(self.tape.past):,} people"
        return (
            f"<table><caption>{caption}</caption><thead><tr><th>who</th><th>mean</th><th>interval</th></tr></thead>"
            f"<tbody>{''.join(rows)}</tbody></table>{remarks}<p>Assuming:</p><ul>{assumed}</ul>"
        )

    def _counted(self, silo: int | None, steps: int | None, after: int) -> Flags:
        counted = (self.tape.step > after) & (self.tape.step <= (self.tape.steps if steps is None else steps))
        return counted if silo is None else counted & (self.tape.past.silo == silo)


def replay(
    tape: Tape,
    plans: Mapping[str, Plan],
    always: Sequence[str] = (),
    *,
    level: float = 0.95,
    progress: Progress = lambda share: None,
) -> Replay:
    """Play plans, each silo alone, fixed actions and what was really done on the people of a table.

    Plans take their silos and rounds from the table. `always` names actions that are played for everybody.
    """
    _validate.count("runs", tape.runs)
    past = tape.past
    fitted = {name: fitted_plan(plan, past, tape.steps) for name, plan in plans.items()}
    share = 1 / (len(fitted) + 1)
    played: dict[str, Earnings] = {}
    for number, (name, plan) in enumerate(fitted.items()):
        played[name] = federated(name, plan, tape, lambda done, at=number: progress(share * (at + done)))  # type: ignore[misc]
    own = next(iter(fitted.values()))
    played[ALONE] = alone(own, tape, lambda done: progress(share * (len(fitted) + done)))
    for action in always:
        place = past.actions.index(_validate.one_of("always", action, past.actions))
        played[f"always {action}"] = fixed(place, tape)
    if past.practice is not None:
        played[PRACTICE] = practised(tape)
    if past.outcomes is not None:
        played[BEST] = best_linear(tape)
    return Replay(tape, fitted, played, level)


def _worth(earned: Floats, level: float) -> Worth:
    """The mean of `earned` (runs, people) over people and runs; NaN where nothing is known.

    Two things vary: who comes (the variance of people's own means, divided by their number), and the runs, by noise,
    order and the chance of a policy (the variance of run means, divided by their number). The two variances are added,
    which counts a little of the second twice.
    """
    known = ~np.isnan(earned)
    per_run = known.sum(axis=1)
    if not per_run.all():
        return Worth(math.nan, math.nan, math.nan, math.nan, 0, 0.0)
    filled = np.where(known, earned, 0.0)
    means = filled.sum(axis=1) / per_run
    people = known.any(axis=0)
    own = filled[:, people].sum(axis=0) / known[:, people].sum(axis=0)
    count = float(per_run.mean())
    variance = float(own.var(ddof=1)) / count if len(own) > 1 else math.nan
    variance += float(means.var(ddof=1)) / len(means) if len(means) > 1 else 0.0
    return interval(float(means.mean()), math.sqrt(variance), round(count), count, level)
