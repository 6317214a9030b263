"""Policies judged by a log: what each would have earned by several estimators, or why the log cannot tell."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from fedbandit._arrays import Flags, Floats
from fedbandit._validate import ArgumentError
from fedbandit.evaluation.apprenticeship import SUSPICIOUS, follows_others
from fedbandit.evaluation.decisions import Decisions
from fedbandit.evaluation.estimators import (
    ESTIMATORS,
    Estimator,
    Worth,
    doubly_robust,
    effective_size,
    ips,
    snips,
    worth,
)
from fedbandit.evaluation.reward_model import cross_fitted
from fedbandit.evaluation.targets import Target

__all__ = ["LEAST_EFFECTIVE", "RAW", "Evaluation", "Judged", "evaluate"]

LEAST_EFFECTIVE = 50.0  # equally weighted decisions: with fewer, doubly robust intervals miss the truth too often
FEWEST_UNCOMMON = 10  # rewards unlike the most common one: with fewer, an interval misses the truth too often
FAR = 4.0  # standard errors by which a mean weight may miss 1
UNTOUCHED = 1e-9  # probability mass that counts as none
ASSUMPTIONS = (
    "the probabilities in the log are those with which its actions were played",
    "a decision's reward depends on the person and on the action played, not on other decisions",
    "people come as they came in the log: intervals are about people like these, and approximate",
    "decisions without a reward are like those with one",
    "no policy was chosen by what it earns on this log: a model that has learnt from it looks better than it is",
)
RAW = "computed from raw data: these numbers are for the silo that holds the log, and no guarantee covers them"


class Judged(NamedTuple):
    """One policy: how often it agrees with what was played, and its worth by each estimator or why there is none."""

    policy: str
    agreement: float  # the mean probability that it would have played the same action
    worth: Mapping[Estimator, Worth]
    refused: str | None = None
    telling: float = 0.0  # effective number of decisions whose reward differs from the most common one


@dataclass(frozen=True)
class Evaluation:
    """What a log says about several policies."""

    logged: Worth  # of the actions that were played
    judged: Sequence[Judged]
    level: float
    unrewarded: int
    uncommon: int  # rewards that differ from the most common one
    own: int = 0  # decisions in which the application chose
    follows: float | None = None  # p-value of the test whether these choices follow other people's outcomes
    assumes: tuple[str, ...] = ASSUMPTIONS

    @property
    def frame(self) -> pl.DataFrame:
        """One row per policy and estimator, without numbers if the log cannot tell."""
        rows = [
            {"policy": "as logged", "estimator": "mean", "agreement": 1.0, **self.logged._asdict(), "refused": None}
        ]
        for one in self.judged:
            shared = {"policy": one.policy, "agreement": one.agreement, "refused": one.refused}
            rows += [{**shared, "estimator": name, **found._asdict()} for name, found in one.worth.items()]
            rows += [{**shared, "estimator": None}] if not one.worth else []
        columns = (
            "policy",
            "estimator",
            "value",
            "low",
            "high",
            "stderr",
            "decisions",
            "effective",
            "agreement",
            "refused",
        )
        return pl.DataFrame([{name: row.get(name) for name in columns} for row in rows], infer_schema_length=None)

    def __getitem__(self, policy: str) -> Judged:
        for one in self.judged:
            if one.policy == policy:
                return one
        raise KeyError(policy)

    def as_dict(self) -> dict[str, Any]:
        """The evaluation as plain data."""
        policies = [
            {**one._asdict(), "worth": {name: found._asdict() for name, found in one.worth.items()}}
            for one in self.judged
        ]
        return {
            "logged": self.logged._asdict(),
            "policies": policies,
            "level": self.level,
            "unrewarded": self.unrewarded,
            "own": self.own,
            "follows": self.follows,
            "remarks": self.remarks,
            "assumes": list(self.assumes),
            "about": RAW,
        }

    @property
    def remarks(self) -> list[str]:
        """What to know besides the numbers."""
        said = [f"{self.unrewarded:,} decisions without a reward are left out"] if self.unrewarded else []
        if self.uncommon < FEWEST_UNCOMMON:
            said.append(
                f"all but {self.uncommon} of {self.logged.decisions:,} rewards are the same: intervals are too narrow"
            )
        few = [one for one in self.judged if one.worth and one.telling < min(FEWEST_UNCOMMON, self.uncommon)]
        said += [
            f"the worth of {one.policy} rests on {one.telling:.1f} rewards that differ from the others: its intervals "
            "are too narrow"
            for one in few
        ]
        if self.follows is not None:
            said.append(f"the application chose in {self.own:,} decisions; {_dependence(self.follows)}")
        return said

    def plot(self, path: str | Path, title: str = "") -> None:
        """Draw every policy's worth with its interval, by estimator, next to what was played; SVG, PNG or PDF."""
        from fedbandit.evaluation.evaluation_plot import worth_plot

        worth_plot(self, Path(path), title)

    def _repr_html_(self) -> str:
        cells = ("policy", "estimator", "value", "interval", "effective", "agreement")
        rows = []
        for row in self.frame.iter_rows(named=True):
            if row["refused"] is not None:
                rows.append(f'<td>{escape(row["policy"])}</td><td colspan="5">refused: {escape(row["refused"])}</td>')
                continue
            numbers = (
                f"{row['value']:.4g}</td><td>{row['low']:.4g} to {row['high']:.4g}</td><td>{row['effective']:,.0f}"
            )
            names = f"<td>{escape(row['policy'])}</td><td>{row['estimator']}</td>"
            rows.append(f"{names}<td>{numbers}</td><td>{row['agreement']:.1%}</td>")
        head = "".join(f"<th>{cell}</th>" for cell in cells)
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        remarks = "".join(f"<p>{escape(one)}.</p>" for one in self.remarks)
        assumed = "".join(f"<li>{escape(one)}</li>" for one in self.assumes)
        return (
            f"<table><caption>{self.level:.0%} intervals; {escape(RAW)}</caption><thead><tr>{head}</tr></thead>"
            f"<tbody>{body}</tbody></table>{remarks}<p>Assuming:</p><ul>{assumed}</ul>"
        )


def evaluate(
    decisions: Decisions,
    targets: Mapping[str, Target],
    level: float = 0.95,
    estimators: Sequence[Estimator] = ESTIMATORS,
    predicted: Floats | None = None,
) -> Evaluation:
    """Judge what was played and each of the `targets` by each estimator.

    `predicted` (actions,) are predicted rewards of all actions for the doubly robust estimator; by default a linear
    model predicts each decision without having seen it. A target is refused if the log has no support for it.

    >>> rows, rng = np.tile(np.eye(2), (2000, 1)), np.random.default_rng(0)
    >>> action = rng.integers(2, size=2000)
    >>> reward = (rng.random(2000) < 0.2 + 0.5 * action).astype(float)
    >>> log = Decisions(rows, np.arange(2001) * 2, action, np.full(2000, 0.5), reward)
    >>> from fedbandit.evaluation.targets import always
    >>> found = evaluate(log, {"second": always(1)})["second"].worth["dr"]
    >>> found.low < 0.7 < found.high
    True
    """
    if predicted is None and "dr" in estimators:
        predicted = cross_fitted(decisions)
    judged = [_judged(name, target, decisions, level, estimators, predicted) for name, target in targets.items()]
    logged = worth(decisions.reward, np.ones(len(decisions)), level)
    uncommon = int(_uncommon(decisions.reward).sum())
    if decisions.own is None:
        return Evaluation(logged, judged, level, decisions.unrewarded, uncommon)
    follows = follows_others(decisions.action[decisions.own], decisions.reward[decisions.own])
    return Evaluation(logged, judged, level, decisions.unrewarded, uncommon, int(decisions.own.sum()), follows)


def _dependence(p_value: float) -> str:
    if p_value < SUSPICIOUS:
        return (
            f"its choices depend on the outcome of the person before (p = {p_value:.2g}): if that person's data were "
            "not released yet, the guarantee does not hold"
        )
    return f"no sign that its choices depend on the outcome of the person before (p = {p_value:.2g})"


def _judged(
    name: str,
    target: Target,
    decisions: Decisions,
    level: float,
    estimators: Sequence[Estimator],
    predicted: Floats | None,
) -> Judged:
    likely = _checked(target(decisions), decisions)
    agreement = float(likely[decisions.played].mean())
    if np.isnan(decisions.propensity).any():
        unknown = int(np.isnan(decisions.propensity).sum())
        return Judged(name, agreement, {}, f"{unknown:,} decisions have no probability in the log")
    weights = likely[decisions.played] / decisions.propensity
    refused = _unsupported(likely, weights, decisions)
    if refused is not None:
        return Judged(name, agreement, {}, refused)
    found: dict[Estimator, Worth] = {}
    for estimator in estimators:
        if estimator == "dr":
            assert predicted is not None
            averaged = decisions.totals(likely * predicted)
            found[estimator] = doubly_robust(weights, decisions.reward, predicted[decisions.played], averaged, level)
        else:
            found[estimator] = (ips if estimator == "ips" else snips)(weights, decisions.reward, level)
    return Judged(name, agreement, found, telling=effective_size(weights[_uncommon(decisions.reward)]))


def _uncommon(rewards: Floats) -> Flags:
    """Which rewards differ from the most common one."""
    values, counts = np.unique(rewards, return_counts=True)
    return np.asarray(rewards != values[counts.argmax()])


def _checked(likely: Floats, decisions: Decisions) -> Floats:
    if not (likely >= 0).all() or not np.allclose(decisions.totals(likely), 1, rtol=0, atol=1e-6):
        raise ArgumentError("policy", "must have probabilities that add up to 1 in every decision")
    return likely


def _unsupported(likely: Floats, weights: Floats, decisions: Decisions) -> str | None:
    """Why the log cannot tell what the policy would have earned; None if it can."""
    if decisions.logged is not None:
        outside = float(likely[decisions.logged <= 0].sum() / len(decisions))
        if outside > UNTOUCHED:
            return f"{outside:.1%} of what it does has probability 0 in the log"
    scale = max(1.0, float(weights.max()))  # the squares of unscaled weights may overflow
    spread = scale * float((weights / scale).std())
    if not math.isclose(weights.mean(), 1, abs_tol=FAR * spread / math.sqrt(len(weights)) + 1e-9):
        return (
            f"its weights have mean {weights.mean():.3g} where 1 is expected: it does what the log never does, or the "
            "logged probabilities are not true"
        )
    effective = effective_size(weights)
    if effective < LEAST_EFFECTIVE:
        return f"the log is worth {effective:.1f} decisions for it, and {LEAST_EFFECTIVE:g} are needed"
    return None
