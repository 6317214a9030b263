"""Tables from files: what a column holds, and when something was."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedbandit.evaluation.past import past_of
from fedbandit.evaluation.reading import moments, read_table
from fedbandit.problem.fields import Category, Number
from fedbandit.problem.public_schema import Schema
from tests.evaluation.tables import SCHEMA, TOSSED, table


def test_files(tmp_path: Path) -> None:
    frame = table(30)
    frame.write_csv(tmp_path / "t.csv", null_value="NA")
    frame.write_parquet(tmp_path / "t.parquet")
    for name in ("t.csv", "t.parquet"):
        assert read_table(tmp_path / name).shape == frame.shape
    assert read_table(tmp_path / "t.csv")["known"].null_count() == frame["known"].null_count() > 0
    with pytest.raises(ValueError, match=r"^table must be a CSV or Parquet file"):
        read_table(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("age;sex\n3;f\n", "commas between its columns, but has semicolons"),
        ("age\tsex\n3\tf\n", "commas between its columns, but has tabs"),
        ("age,sex,age\n3,f,4\n", "name each column once, but has 'age' twice"),
        ("age,s\0ex\n3,f\n", "a text in UTF-8"),
    ],
)
def test_a_table_that_would_be_read_as_another_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ValueError, match=f"^table must .*{message}"):
        read_table(tmp_path / "t.csv")


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "t.csv"
    file.write_text(text, encoding="utf-8")
    return file


def test_one_word_does_not_make_texts_of_numbers(tmp_path: Path) -> None:
    """All ages were texts then, which the schema cannot read, and a replay went on without the field."""
    file = written(tmp_path, "age,sex\n71,f\nunknown,m\n 34,f\n,m\n")
    assert read_table(file)["age"].to_list() == ["71", "unknown", " 34", None]
    assert read_table(file, SCHEMA)["age"].to_list() == [71.0, None, 34.0, None]


def test_a_column_without_any_number_is_refused_where_the_schema_says_numbers(tmp_path: Path) -> None:
    file = written(tmp_path, 'age,sex\n"71,5",f\n"34,2",m\n')
    with pytest.raises(ValueError, match=r"^table must have numbers in the column 'age', .* but holds '71,5'$"):
        read_table(file, SCHEMA)


def test_codes_keep_their_zeros(tmp_path: Path) -> None:
    """A level 01 of the schema is the text 01, as applications send it, and not the number 1."""
    file = written(tmp_path, "code,age\n01,07\n02,70\n")
    found = read_table(file, Schema({"code": Category(["01", "02"]), "age": Number(0, 99)}, actions=("a", "b")))
    assert found["code"].to_list() == ["01", "02"]
    assert found["age"].to_list() == [7, 70]


def test_none_is_a_word_among_words_and_missing_among_numbers(tmp_path: Path) -> None:
    """People who were given no treatment were left out."""
    file = written(tmp_path, "dose,age,sex\nNone,71,NA\nlow,None,f\nNA,34,m\n")
    found = read_table(file)
    assert found["dose"].to_list() == ["None", "low", None]
    assert found["age"].to_list() == [71, None, 34]
    assert found["sex"].to_list() == [None, "f", "m"]
    named = Schema({"sex": Category(["NA", "f"])}, actions=("NA", "low"))
    assert read_table(file, named)["dose"].to_list() == ["None", "low", "NA"]
    assert read_table(file, named)["sex"].to_list() == ["NA", "f", "m"]


def test_dates_of_a_csv_are_times(tmp_path: Path) -> None:
    """The same waits as from the days as numbers; they were an error about floats."""
    timed = replace(TOSSED, time="day", reward_time="known")
    frame = table(60).with_columns(pl.col("known").floor())
    day = (pl.datetime(2024, 1, 28) + pl.duration(days=pl.col("day"))).dt.date()
    known = pl.datetime(2024, 1, 28) + pl.duration(days=pl.col("known").cast(pl.Int64))
    dated = frame.with_columns(day=day, known=known)
    dated.write_csv(tmp_path / "t.csv")
    expected = past_of(frame, SCHEMA, timed).waits
    np.testing.assert_array_equal(past_of(dated, SCHEMA, timed).waits, expected)
    np.testing.assert_array_equal(past_of(read_table(tmp_path / "t.csv", SCHEMA), SCHEMA, timed).waits, expected)


def test_moments_are_on_one_scale() -> None:
    """Days and microseconds were compared with each other."""
    first, then = datetime(2024, 3, 31), datetime(2024, 3, 31, 12)
    for column in (
        pl.Series("t", [date(2024, 3, 31), None]),
        pl.Series("t", [first, None], dtype=pl.Datetime("ms")),
        pl.Series("t", ["2024-03-31", None]),
        pl.Series("t", ["2024-03-31T01:00+01:00", None]),
    ):
        at, dated = moments(column)
        assert dated
        assert at.tolist() == [moments(pl.Series("t", [then]))[0][0] - 43_200, np.inf]
    assert moments(pl.Series("t", [3, None]))[0].tolist() == [3.0, np.inf]


def test_times_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^t must be numbers, or dates and times such as .* got '10/1/2024'$"):
        moments(pl.Series("t", ["10/1/2024"]))
    with pytest.raises(ValueError, match=r"^t must hold numbers, dates or times, got a column of Boolean"):
        moments(pl.Series("t", [True]))
    frame = table(60).with_columns(known=pl.datetime(2024, 1, 1))
    with pytest.raises(ValueError, match=r"^reward_time must be of the same kind as time"):
        past_of(frame, SCHEMA, replace(TOSSED, time="day", reward_time="known"))
