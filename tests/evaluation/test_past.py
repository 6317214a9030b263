"""From a table to people: rows, silos, outcomes, times, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from fedbandit.evaluation.past import Columns, past_of
from fedbandit.problem.encoding import RecordEncoder
from fedbandit.problem.fields import Number
from fedbandit.problem.public_schema import Schema
from fedbandit.simulator.population import NEVER
from tests.evaluation.tables import CLINICS, JUDGED, KNOWN, SCHEMA, TOSSED, past, table


def test_people_are_encoded_as_a_silo_would() -> None:
    frame, found = table(20), past(count=20)
    for number, record in enumerate(frame.select("age", "sex").to_dicts()):
        np.testing.assert_array_equal(found.rows[number], RecordEncoder(SCHEMA).rows(record).rows)
    assert [CLINICS[one] for one in found.silo] == frame["clinic"].to_list()


def test_three_kinds_of_tables() -> None:
    assert (past(KNOWN).kind, past(TOSSED).kind, past(JUDGED).kind) == ("known", "randomised", "observed")
    assert past(TOSSED).rate == pytest.approx(0.3)
    assert past(KNOWN).practice is None
    both = past(replace(KNOWN, action="judged"))
    np.testing.assert_array_equal(both.practice, table()["paid"].to_numpy())


def test_the_right_action_pays_one_and_the_others_nothing() -> None:
    found = past(Columns(silo="clinic", right="right"))
    assert found.outcomes is not None
    assert found.outcomes.sum(axis=1).tolist() == [1] * 900


def test_bands_of_numbers_are_actions() -> None:
    doses = pl.DataFrame(
        {"age": [0.0] * 5, "sex": ["f"] * 5, "dose": [20.9, 21.0, 49.0, 49.1, None], "clinic": ["a"] * 5}
    )
    schema = replace(SCHEMA, actions=("low", "medium", "high"), interactions=None)
    found = past_of(doses, schema, Columns(silo="clinic", right="dose", bands=("<21", "<=49")))
    assert found.outcomes is not None
    assert found.outcomes.argmax(axis=1).tolist() == [0, 1, 1, 2]
    assert found.left_out == 1


def test_parts_are_contiguous_and_equal() -> None:
    found = past(replace(KNOWN, silo="", parts=4), count=10)
    assert found.silo.tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 3, 3]
    assert found.silos == ("part 1", "part 2", "part 3", "part 4")


def test_waits_count_the_people_of_the_same_silo_in_between() -> None:
    frame = pl.DataFrame(
        {
            "age": [0.0] * 6,
            "sex": ["f"] * 6,
            "clinic": list("aababa"),
            "done": ["drug", "rest"] * 3,
            "paid": [1, 0, 1, None, 0, 1],
            "at": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
            "known": [4.5, 2.0, 9.0, None, 5.0, 6.5],
        }
    )
    found = past_of(frame, SCHEMA, Columns(silo="clinic", action="done", reward="paid", time="at", reward_time="known"))
    assert found.waits is not None
    # a: times 1 2 4 6, rewards known at 4.5 (after the third), 2, never, 6.5; b: times 3 5, rewards at 9 and 5
    assert found.waits.tolist() == [2, 0, 1, NEVER, 0, 0]
    mixed = past_of(
        frame.sample(6, shuffle=True, seed=1),
        SCHEMA,
        Columns(silo="clinic", action="done", reward="paid", time="at", reward_time="known"),
    )
    np.testing.assert_array_equal(mixed.waits, found.waits)


def test_estimated_probabilities_are_near_the_true_ones() -> None:
    """The doctor's own law is a logit in age; one that ignored age would be off by far more."""
    found = past(JUDGED, count=6000)
    age = table(6000)["age"].to_numpy()
    drug = 1 / (1 + np.exp(-2 * age))
    true = np.where(found.done[0] == 0, drug, 1 - drug)
    assert np.abs(found.likely - true).mean() < 0.02
    assert np.abs(np.where(found.done[0] == 0, 0.5, 0.5) - true).mean() > 0.1


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (Columns(outcomes="out_"), "silo_column must be given, or else a number of parts, but not both"),
        (replace(KNOWN, parts=3), "silo_column must be given, or else a number of parts, but not both"),
        (Columns(parts=3), "right must say which action was right; or give outcomes, or both action and reward"),
        (Columns(parts=3, right="right", outcomes="out_"), "right must say which action was right"),
        (Columns(parts=3, action="judged"), "right must say which action was right"),
        (Columns(parts=3, right="left"), "right must be a column of the table, got 'left'"),
        (Columns(parts=3, right="sex"), "sex must name actions of the schema (drug, rest), got 'f'"),
        (Columns(parts=3, right="age", bands=("<1", "<2")), "bands must be one fewer than the 2 actions, got 2"),
        (Columns(parts=3, right="age", bands=(">1",)), "bands must be like '<21' or '<=49', got '>1'"),
        (Columns(parts=3, right="age", bands=("<x",)), "bands must be like '<21' or '<=49', got '<x'"),
        (Columns(parts=3, right="sex", bands=("<1",)), "bands must be bands of numbers, but 'sex' is not"),
        (Columns(parts=3, outcomes="x_"), "outcomes must be columns of the table, but it has no x_drug, x_rest"),
        (Columns(parts=3, action="judged", reward="day"), "day must lie in [0, 1]"),
        (Columns(parts=3, action="judged", reward="sex"), "sex must be a column of numbers in [0, 1]"),
        (replace(TOSSED, propensity="often"), "propensity must be a column of the table or a number, got 'often'"),
        (replace(TOSSED, propensity="0"), "propensity must lie above 0"),
        (replace(JUDGED, reward_time="known"), "reward_time must be given together with time"),
        (replace(KNOWN, silo="", parts=901), "parts must be at most the 900 people, got 901"),
    ],
)  # fmt: skip
def test_what_a_table_does_not_say_is_refused(columns: Columns, message: str) -> None:
    with pytest.raises(ValueError) as error:
        past(columns)
    assert str(error.value).startswith(message)


def test_schemas_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^schema must name its actions"):
        past_of(table(), Schema({"age": Number(-1, 1)}, {"price": Number(0, 1)}), KNOWN)
    with pytest.raises(ValueError, match=r"^table must have the fields of the schema, and lacks sex$"):
        past_of(table().drop("sex"), SCHEMA, KNOWN)
    with pytest.raises(ValueError, match=r"^table must hold the outcome of at least one person; nobody is left"):
        past_of(table().head(0), SCHEMA, KNOWN)


def test_a_reward_that_is_no_number_is_as_missing_as_an_empty_one() -> None:
    """Some write NaN where others write nothing: neither person counts."""
    empty = table(60).with_columns(toss_paid=pl.when(pl.col("day") % 3 > 0).then("toss_paid").cast(pl.Float64))
    written, left = (
        past_of(empty.with_columns(pl.col("toss_paid").fill_null(np.nan)), SCHEMA, TOSSED),
        past_of(empty, SCHEMA, TOSSED),
    )
    assert len(written) == len(left) == 40
    assert written.left_out == left.left_out == 20


def test_a_person_without_a_time_is_counted_as_left_out() -> None:
    frame = table(60).with_columns(pl.when(pl.col("day") > 9).then("day"))
    found = past_of(frame, SCHEMA, replace(TOSSED, time="day"))
    assert (len(found), found.left_out) == (50, 10)


@pytest.mark.parametrize("columns", [TOSSED, JUDGED])
def test_an_action_that_was_never_done_is_refused(columns: Columns) -> None:
    """Nobody who plays it is told what it earns: a silo alone played it for ever, and earned nothing that is known."""
    schema = replace(SCHEMA, actions=("drug", "rest", "surgery"), interactions=None)
    with pytest.raises(ValueError, match=r"must hold every action of the schema, but never holds 'surgery'$"):
        past_of(table(60), schema, columns)


def test_values_that_the_schema_cannot_read_are_counted() -> None:
    frame = table(60).with_columns(sex=pl.when(pl.col("day") > 9).then("sex"), age=pl.col("age") * 1.5)
    odd = past_of(frame, SCHEMA, TOSSED).odd
    assert odd["sex", "missing"] == 10
    assert odd["age", "clamped"] == (frame["age"].abs() > 1).sum() > 0


def test_probabilities_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^toss_chance must be a column of numbers above 0 and up to 1"):
        past_of(table(60).with_columns(toss_chance=pl.lit("half")), SCHEMA, TOSSED)
