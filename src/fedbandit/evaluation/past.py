"""A table of past records as a bandit: people one by one, the rows of their actions, and what is known of the outcomes.

Three kinds of tables tell what another policy would have earned:
known       the outcome of every action is known (the right dose was found in the end) and is simply looked up;
randomised  actions were played with known probabilities: people whose action agrees are kept, the others skipped;
observed    somebody chose by judgement: the outcomes of other actions are predicted, doubly robust, under assumptions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import polars as pl
import polars.selectors as cs
from scipy.optimize import minimize

from fedbandit import _validate
from fedbandit._arrays import Floats, Integers
from fedbandit._validate import ArgumentError
from fedbandit.evaluation.decisions import Decisions
from fedbandit.evaluation.reading import moments
from fedbandit.evaluation.reward_model import cross_fitted
from fedbandit.problem.encoding import Oddities, RecordEncoder
from fedbandit.problem.public_schema import Schema
from fedbandit.simulator.population import NEVER

__all__ = ["LEAST_PROPENSITY", "Columns", "Kind", "Past", "past_of"]

Kind = Literal["known", "randomised", "observed"]
LEAST_PROPENSITY = 0.01  # smaller estimated probabilities are raised to this
RIDGE = 1e-2  # of the model of who chose what


@dataclass(frozen=True)
class Columns:
    """The names of a table's columns; "" for none."""

    silo: str = ""
    parts: int = 0  # without a silo column: the number of silos, which are equal consecutive parts of the table
    right: str = ""  # the action that was right: reward 1, and 0 for all others
    bands: Sequence[str] = ()  # turn numbers in that column into actions: "<21", "<=49"; above all: the last action
    outcomes: str = ""  # rewards of all actions, in columns of this name followed by the action's
    action: str = ""  # what was done
    reward: str = ""  # the reward of what was done
    propensity: str = ""  # the probability with which it was done: a column, or a number
    time: str = ""  # of the visit; by default the table is in the order of time
    reward_time: str = ""  # when the reward came


@dataclass(frozen=True)
class Past:
    """The people of a table, in the order of time."""

    rows: Floats  # (people, arms, dim)
    actions: tuple[str, ...]
    silo: Integers  # (people,)
    silos: tuple[str, ...]
    outcomes: Floats | None = None  # (people, arms)
    action: Integers | None = None  # (people,) what was done
    reward: Floats | None = None  # (people,) NaN where none has come
    propensity: Floats | None = None  # (people,)
    waits: Integers | None = None  # (people,) rounds until the reward came, NEVER if none came
    left_out: int = 0  # people for whom the table lacks something that is needed
    odd: Oddities = dataclass_field(default_factory=Counter)  # counts of missing, clamped or unknown values, by field

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def kind(self) -> Kind:
        if self.outcomes is not None:
            return "known"
        return "observed" if self.propensity is None else "randomised"

    @property
    def practice(self) -> Floats | None:
        """The rewards of what was done, (people,)."""
        if self.action is not None and self.outcomes is not None:
            return np.asarray(self.outcomes[np.arange(len(self)), self.action])
        return self.reward

    @property
    def done(self) -> tuple[Integers, Floats]:
        """What was done and its reward, (people,) each; an error if the table does not say."""
        if self.action is None or self.reward is None:
            raise ArgumentError("table", "must say what was done and what the reward was")
        return self.action, self.reward

    @property
    def rate(self) -> float:
        """The share of people who are kept in a replay, whichever policy plays."""
        return float(self.propensity.min()) if self.kind == "randomised" and self.propensity is not None else 1.0

    @cached_property
    def decisions(self) -> Decisions:
        """The table as a log of decisions; probabilities that it does not give are estimated."""
        people, arms, dim = self.rows.shape
        action, reward = self.done
        likely = self.likely if self.propensity is None else self.propensity
        return Decisions(
            self.rows.reshape(-1, dim), np.arange(people + 1) * arms, action, likely, np.nan_to_num(reward)
        )

    @cached_property
    def predicted(self) -> Floats:
        """Predicted rewards of all actions, (people, arms), by models that have not seen the person."""
        return cross_fitted(self.decisions, ~np.isnan(self.done[1])).reshape(self.rows.shape[:2])

    @cached_property
    def likely(self) -> Floats:
        """The estimated probability of what was done, (people,), by a conditional logit in the rows."""
        action = self.done[0]
        shares = _softmax(self.rows @ _logit(self.rows, action))[np.arange(len(self)), action]
        return np.maximum(shares, LEAST_PROPENSITY)


def _logit(rows: Floats, action: Integers) -> Floats:
    """The weights (dim,) that make the actions done most likely, with a small ridge."""
    done, people = rows[np.arange(len(rows)), action].sum(axis=0), len(rows)

    def cost(weights: Floats) -> tuple[float, Floats]:
        scores = rows @ weights
        top = scores.max(axis=1, keepdims=True)
        total = float((np.log(np.exp(scores - top).sum(axis=1)) + top[:, 0]).sum() - done @ weights)
        slope = np.einsum("na,nad->d", _softmax(scores), rows) - done
        loss = (total + RIDGE * float(weights @ weights) / 2) / people
        return loss, np.asarray((slope + RIDGE * weights) / people)

    return np.asarray(minimize(cost, np.zeros(rows.shape[2]), jac=True, method="L-BFGS-B").x)


def _softmax(scores: Floats) -> Floats:
    grown = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(grown / grown.sum(axis=1, keepdims=True))


# -- from a table -----------------------------------------------------------------------------------------------------


def past_of(table: pl.DataFrame, schema: Schema, columns: Columns) -> Past:
    """The people of a table, encoded by a schema with named actions.

    People for whom the table lacks something that is needed are left out and counted.
    """
    _check(table, schema, columns)
    total, table = len(table), _complete(_in_order(table, columns), columns)
    if not len(table):
        raise ArgumentError("table", "must hold the outcome of at least one person; nobody is left")
    values = {name: table[name].to_list() for name in schema.context}
    encoded = RecordEncoder(schema).rows_of_many(values, len(table))
    silo, silos = _silos(table, columns)
    return Past(
        rows=encoded.rows,
        actions=tuple(schema.actions),
        silo=silo,
        silos=silos,
        outcomes=_outcomes(table, schema, columns),
        action=_done(table[columns.action], schema, columns) if columns.action else None,
        reward=_rewards(table[columns.reward]) if columns.reward else None,
        propensity=_propensities(table, columns),
        waits=_waits(table, columns, silo),
        left_out=total - len(table),
        odd=encoded.odd,
    )


def _check(table: pl.DataFrame, schema: Schema, columns: Columns) -> None:
    if not schema.actions or schema.features:
        raise ArgumentError("schema", "must name its actions, without features for them: a table has none")
    absent = [name for name in schema.context if name not in table.columns]
    if absent:
        raise ArgumentError("table", f"must have the fields of the schema, and lacks {', '.join(absent)}")
    for name in ("silo", "right", "action", "reward", "time", "reward_time"):
        column = getattr(columns, name)
        if column and column not in table.columns:
            raise ArgumentError(name, f"must be a column of the table, got {column!r}")
    known, done = bool(columns.right) + bool(columns.outcomes), columns.action and columns.reward
    if known > 1 or not (known or done):
        raise ArgumentError("right", "must say which action was right; or give outcomes, or both action and reward")
    if bool(columns.silo) == bool(columns.parts):
        raise ArgumentError("silo_column", "must be given, or else a number of parts, but not both")
    if columns.reward_time and not columns.time:
        raise ArgumentError("reward_time", "must be given together with time")


def _in_order(table: pl.DataFrame, columns: Columns) -> pl.DataFrame:
    """The people whose time is known, in the order of time."""
    if not columns.time:
        return table
    at = moments(table[columns.time])[0]
    return table[np.argsort(at, kind="stable")[: int(np.isfinite(at).sum())]]


def _complete(table: pl.DataFrame, columns: Columns) -> pl.DataFrame:
    """The people for whom everything that is needed is known.

    If reward times are given, people whose reward never came stay in.
    """
    table = table.with_columns(cs.float().fill_nan(None))  # "NaN" in a CSV is an empty field
    needed = [columns.right, columns.action, columns.silo, "" if columns.reward_time else columns.reward]
    for name in needed:
        if name:
            table = table.filter(pl.col(name).is_not_null())
    return table


def _silos(table: pl.DataFrame, columns: Columns) -> tuple[Integers, tuple[str, ...]]:
    if columns.parts:
        parts = _validate.count("parts", columns.parts)
        if parts > len(table):
            raise ArgumentError("parts", f"must be at most the {len(table)} people, got {parts}")
        return np.arange(len(table)) * parts // len(table), tuple(f"part {number + 1}" for number in range(parts))
    names = [str(name) for name in table[columns.silo].to_list()]
    silos = tuple(sorted(set(names)))
    places = {name: number for number, name in enumerate(silos)}
    return np.array([places[name] for name in names], dtype=np.int64), silos


def _outcomes(table: pl.DataFrame, schema: Schema, columns: Columns) -> Floats | None:
    if columns.right:
        right = _actions(table[columns.right], schema, columns, bands=True)
        return np.asarray(np.eye(len(schema.actions))[right])
    if not columns.outcomes:
        return None
    names = [f"{columns.outcomes}{action}" for action in schema.actions]
    absent = [name for name in names if name not in table.columns]
    if absent:
        raise ArgumentError("outcomes", f"must be columns of the table, but it has no {', '.join(absent)}")
    outcomes = np.column_stack([_rewards(table[name]) for name in names])
    if np.isnan(outcomes).any():
        raise ArgumentError("outcomes", "must be known for every action and everybody in the table")
    return outcomes


def _actions(column: pl.Series, schema: Schema, columns: Columns, bands: bool = False) -> Integers:
    if bands and columns.bands:
        return _banded(column, schema, columns.bands)
    places = {name: number for number, name in enumerate(schema.actions)}
    names = [str(value) for value in column.to_list()]
    unknown = sorted({name for name in names if name not in places})
    if unknown:
        raise ArgumentError(column.name, f"must name actions of the schema ({', '.join(places)}), got {unknown[0]!r}")
    return np.array([places[name] for name in names], dtype=np.int64)


def _done(column: pl.Series, schema: Schema, columns: Columns) -> Integers:
    """What was done. Unless all outcomes are known, the table must hold every action.

    A policy that played an action the table never holds would learn nothing from it, and nobody could say what it
    earns.
    """
    done = _actions(column, schema, columns)
    never = sorted(set(range(len(schema.actions))) - set(done.tolist()))
    if never and not (columns.right or columns.outcomes):
        raise ArgumentError(
            column.name, f"must hold every action of the schema, but never holds {schema.actions[never[0]]!r}"
        )
    return done


def _banded(column: pl.Series, schema: Schema, bands: Sequence[str]) -> Integers:
    if len(bands) != len(schema.actions) - 1:
        raise ArgumentError("bands", f"must be one fewer than the {len(schema.actions)} actions, got {len(bands)}")
    if not column.dtype.is_numeric():
        raise ArgumentError("bands", f"must be bands of numbers, but {column.name!r} is not a column of numbers")
    values, above = column.to_numpy(), np.zeros(len(column), dtype=np.int64)
    for band in bands:
        sign, limit = ("<=", band[2:]) if band.startswith("<=") else (band[:1], band[1:])
        try:
            edge = float(limit)
        except ValueError:
            raise ArgumentError("bands", f"must be like '<21' or '<=49', got {band!r}") from None
        if sign not in ("<", "<="):
            raise ArgumentError("bands", f"must be like '<21' or '<=49', got {band!r}")
        above += (values > edge) if sign == "<=" else (values >= edge)
    return above


def _rewards(column: pl.Series) -> Floats:
    if not (column.dtype.is_numeric() or column.dtype == pl.Boolean):
        raise ArgumentError(column.name, "must be a column of numbers in [0, 1]")
    values = column.cast(pl.Float64).fill_null(np.nan).to_numpy()
    if not (np.isnan(values) | ((values >= 0) & (values <= 1))).all():
        raise ArgumentError(column.name, "must lie in [0, 1]: scale rewards by public constants beforehand")
    return np.asarray(values)


def _propensities(table: pl.DataFrame, columns: Columns) -> Floats | None:
    given: Any = columns.propensity
    if not given or columns.right or columns.outcomes:
        return None
    if given in table.columns:
        if not table[given].dtype.is_numeric():
            raise ArgumentError(given, "must be a column of numbers above 0 and up to 1: probabilities")
        values = table[given].cast(pl.Float64).to_numpy()
    else:
        try:
            values = np.full(len(table), float(given))
        except ValueError:
            raise ArgumentError("propensity", f"must be a column of the table or a number, got {given!r}") from None
    if not ((values > 0) & (values <= 1)).all():
        raise ArgumentError("propensity", "must lie above 0 and up to 1 for everybody")
    return np.asarray(values)


def _waits(table: pl.DataFrame, columns: Columns, silo: Integers) -> Integers | None:
    """The rounds between each decision and its reward: the number of decisions of the same silo in between."""
    if not columns.reward_time:
        return None
    (decided, dated), (rewarded, by_calendar) = moments(table[columns.time]), moments(table[columns.reward_time])
    if np.isfinite(rewarded).any() and dated != by_calendar:
        raise ArgumentError("reward_time", "must be of the same kind as time: both numbers, or both dates or times")
    rewarded = np.where(table[columns.reward].is_null().to_numpy() if columns.reward else False, np.inf, rewarded)
    waits = np.full(len(table), NEVER)
    for number in np.unique(silo):
        mine = np.flatnonzero(silo == number)
        later = np.searchsorted(decided[mine], rewarded[mine], side="right") - 1 - np.arange(len(mine))
        waits[mine] = np.where(np.isinf(rewarded[mine]), NEVER, np.maximum(later, 0))
    return waits
