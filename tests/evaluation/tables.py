"""Tables of the past of which the truth is known: clinics, two treatments, a number that says which of them works."""

from __future__ import annotations

import numpy as np
import polars as pl

from fedbandit.evaluation.past import Columns, Past, past_of
from fedbandit.problem.fields import Category, Number
from fedbandit.problem.public_schema import Schema

SCHEMA = Schema({"age": Number(-1, 1, knots=2), "sex": Category(["f", "m"], other=False)}, actions=("drug", "rest"))
CLINICS = ("east", "north", "west")


def table(count: int = 900, seed: int = 0) -> pl.DataFrame:
    """Both outcomes of everybody; what was done at random (one treatment in 70 %), and by a doctor who looks at age."""
    rng = np.random.default_rng(seed)
    age = rng.uniform(-1, 1, count)
    worth = np.column_stack([0.5 + 0.4 * age, 0.5 - 0.3 * age])
    outcome = (rng.random((count, 2)) < worth).astype(int)
    chance, habit = 0.7, 1 / (1 + np.exp(-2 * age))
    tossed, judged = (rng.random(count) > chance).astype(int), (rng.random(count) > habit).astype(int)
    names, everybody = np.array(SCHEMA.actions), np.arange(count)
    return pl.DataFrame(
        {
            "clinic": rng.choice(CLINICS, size=count),
            "age": age,
            "sex": rng.choice(["f", "m"], size=count),
            "right": names[outcome.argmax(axis=1)],
            "out_drug": outcome[:, 0],
            "out_rest": outcome[:, 1],
            "tossed": names[tossed],
            "toss_paid": outcome[everybody, tossed],
            "toss_chance": np.where(tossed == 0, chance, 1 - chance),
            "judged": names[judged],
            "paid": outcome[everybody, judged],
            "day": np.arange(count) * 1.0,
            "known": np.where(rng.random(count) < 0.2, np.nan, np.arange(count) + rng.exponential(12.0, count)),
        }
    ).with_columns(pl.col("known").fill_nan(None))


KNOWN = Columns(silo="clinic", outcomes="out_")
TOSSED = Columns(silo="clinic", action="tossed", reward="toss_paid", propensity="toss_chance")
JUDGED = Columns(silo="clinic", action="judged", reward="paid")


def past(columns: Columns = KNOWN, count: int = 900, seed: int = 0) -> Past:
    return past_of(table(count, seed), SCHEMA, columns)
