"""Tables of other libraries, column by column."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pytest

from fedbandit._validate import ArgumentError
from fedbandit.problem import Category, Hashed, Number, Schema
from fedbandit.problem.encoding import RecordEncoder
from fedbandit.problem.frames import columns_of, is_table, length_of

RECORDS: list[dict[str, Any]] = [
    {"age": 30, "sex": "f", "smokes": True, "seen": datetime.date(2026, 1, 2)},
    {"age": None, "sex": None, "smokes": None, "seen": None},
    {"age": 40, "sex": "m", "smokes": False, "seen": datetime.date(2026, 1, 3)},
]
SCHEMA = Schema(
    {
        "age": Number(0, 100, missing=True),
        "sex": Category(["f", "m"], missing=True),
        "smokes": Category(["true", "false"]),
        "seen": Hashed(50),
    },
    actions=("A", "B"),
)


def pandas_frame() -> Any:
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(RECORDS)


def nullable_pandas_frame() -> Any:
    return pandas_frame().convert_dtypes()


def categorical_pandas_frame() -> Any:
    return pandas_frame().astype({"sex": "category"})


def arrow_table() -> Any:
    return pytest.importorskip("pyarrow").Table.from_pylist(RECORDS)


TABLES: dict[str, Callable[[], Any]] = {
    "records": lambda: RECORDS,
    "columns": lambda: {name: [one[name] for one in RECORDS] for name in RECORDS[0]},
    "series": lambda: pl.DataFrame(RECORDS).to_dict(),
    "polars": lambda: pl.DataFrame(RECORDS),
    "pandas": pandas_frame,
    "nullable pandas": nullable_pandas_frame,
    "categorical pandas": categorical_pandas_frame,
    "arrow table": arrow_table,
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_kind_of_table_gives_the_same_bits_as_its_records(table: Any) -> None:
    encoder, columns = RecordEncoder(SCHEMA), columns_of(table())
    assert is_table(table())
    assert length_of(columns) == 3
    found = encoder.rows_of_many(columns, 3)
    alone = [encoder.rows(record) for record in RECORDS]
    assert found.rows.tobytes() == np.stack([one.rows for one in alone]).tobytes()
    assert found.odd == alone[1].odd


def test_pandas_needs_no_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pandas_frame()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert columns_of(frame)["sex"] == ["f", None, "m"]


def test_decimals_are_numbers() -> None:
    frame = pl.DataFrame({"age": [Decimal("12.5")]})
    encoder = RecordEncoder(Schema({"age": Number(0, 100)}, actions=("A",)))
    assert encoder.rows_of_many(columns_of(frame), 1).rows.tobytes() == encoder.rows({"age": 12.5}).rows.tobytes()
    assert encoder.rows({"age": Decimal("sNaN")}).odd == {("age", "unknown"): 1}


@pytest.mark.parametrize("value", [np.zeros((2, 3, 4)), [[[1.0]]], [], "text", 3, None])
def test_rows_of_numbers_are_no_table(value: Any) -> None:
    assert not is_table(value)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (3, "table must be a frame, an Arrow table or a list of records, got int"),
        ({"a": [1], "b": [1, 2]}, "table must have columns of the same length"),
        ({"a": 3}, "table must have columns of values, got 3"),
        ({"a": "xyz"}, "table must have columns of values, got 'xyz'"),
    ],
)
def test_what_is_no_table_is_refused(table: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=f"^{message}$"):
        columns_of(table)


def test_an_empty_table_has_no_records() -> None:
    assert length_of(columns_of({})) == 0
    assert length_of(columns_of(pl.DataFrame())) == 0


def test_a_value_that_is_not_known_is_missing_whoever_says_so() -> None:
    """The NA of pandas was another level than all others, and not a number of decimals was unknown."""
    import pandas as pd

    level, number = Category(["a"], missing=True), Number(0, 1, missing=True)
    encoder = RecordEncoder(Schema({"level": level, "number": number}, actions=("x", "y")))
    expected = encoder.rows({})
    for nothing in (None, pd.NA, pd.NaT, float("nan"), Decimal("NaN"), np.datetime64("NaT"), np.timedelta64("NaT")):
        found = encoder.rows({"level": nothing, "number": nothing})
        np.testing.assert_array_equal(found.rows, expected.rows)
        assert found.odd == expected.odd


def test_times_of_numpy_are_texts_as_others_are() -> None:
    encoder = RecordEncoder(Schema({"when": Hashed(64)}, actions=("x", "y")))
    for text in ("2024-01-02", "2024-01-02T03:04:05"):
        expected = encoder.rows({"when": text})
        found = encoder.rows({"when": np.datetime64(text)})
        np.testing.assert_array_equal(found.rows, expected.rows)
        assert not found.odd
    assert encoder.rows({"when": np.datetime64("30000-01-01")}).odd == {("when", "unknown"): 1}
