"""Reading tables from files: each column as numbers, texts or times, as its owner means it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl

from fedbandit._arrays import Floats
from fedbandit._validate import ArgumentError
from fedbandit.problem.fields import Category, Number
from fedbandit.problem.public_schema import Schema

__all__ = ["PADDED", "moments", "numbers", "read_table"]

NULLS = ["", "NA", "N/A", "null", "None"]
WORD = "None"  # in a column of texts it is a word: no treatment, no complaint
PADDED = r"^[+-]?0\d"  # a code such as 007, not a number


def read_table(path: str | Path, schema: Schema | None = None) -> pl.DataFrame:
    """A CSV (plain or .gz) or Parquet file. Empty fields and "NA" are missing values.

    A CSV has no types. A column whose values are all numbers is read as numbers, unless some are padded with zeros, as
    codes are. A `schema` says more: a field that it calls a number is read as numbers wherever possible, whatever else
    the column holds, and its levels and actions are never taken for missing values.
    """
    try:
        if str(path).endswith(".parquet"):
            return pl.read_parquet(path)
        _check_header([str(name) for name in pl.read_csv(path, has_header=False, n_rows=1, infer_schema=False).row(0)])
        typed = pl.read_csv(path, infer_schema_length=None, null_values=NULLS)
        texts = pl.read_csv(path, infer_schema=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = str(error).splitlines()[0]
        raise ArgumentError("table", f"must be a CSV or Parquet file, got {str(path)!r} ({reason})") from None
    return pl.DataFrame([_told(typed[name], texts[name], schema) for name in typed.columns])


def numbers(column: pl.Series) -> pl.Series:
    """Texts as numbers; null where a text is not a number."""
    return column.str.strip_chars().cast(pl.Float64, strict=False)


def moments(column: pl.Series) -> tuple[Floats, bool]:
    """A column as times (rows,), infinite where a value is missing, and whether they are calendar times in seconds.

    The column holds numbers, dates or times, or texts that are dates or times in ISO 8601. Other texts are refused:
    they would be sorted as texts, and 10/1/2024 would come before 2/1/2024.
    """
    if column.dtype in (pl.Date, pl.Datetime):
        seconds = column.dt.epoch("us").cast(pl.Float64) / 1e6
        return seconds.fill_null(np.inf).to_numpy(), True
    if column.dtype == pl.String:
        return np.array([np.inf if text is None else _seconds(text, column.name) for text in column.to_list()]), True
    if column.dtype.is_numeric() or column.dtype == pl.Null:
        return column.cast(pl.Float64).fill_nan(None).fill_null(np.inf).to_numpy(), False
    raise ArgumentError(column.name, f"must hold numbers, dates or times, got a column of {column.dtype}")


def _seconds(text: str, name: str) -> float:
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        expected = "numbers, or dates and times such as 2024-03-31 or 2024-03-31T14:05"
        raise ArgumentError(name, f"must be {expected}, got {text[:50]!r}") from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _check_header(names: list[str]) -> None:
    """Refuse a file that could be read, but as another table than is meant."""
    if any("\0" in name for name in names):
        raise ArgumentError("table", "must be a text in UTF-8: its header holds bytes of another encoding")
    for mark, called in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
        if len(names) == 1 and mark in names[0]:
            raise ArgumentError("table", f"must have commas between its columns, but has {called}")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ArgumentError("table", f"must name each column once, but has {twice!r} twice")


def _told(typed: pl.Series, texts: pl.Series, schema: Schema | None) -> pl.Series:
    """A column as polars guesses its type, unless the schema or its texts say otherwise."""
    field = None if schema is None else schema.context.get(typed.name)
    if isinstance(field, Number) and not typed.dtype.is_numeric():
        return _as_numbers(typed, texts)
    if isinstance(field, Number) or not (typed.dtype == pl.String or _padded(typed, texts)):
        return typed
    words = {WORD, *(field.levels if isinstance(field, Category) else () if schema is None else schema.actions)}
    missing = [word for word in NULLS if word not in words]
    return texts.to_frame().select(pl.when(~pl.col(texts.name).is_in(missing)).then(pl.col(texts.name))).to_series()


def _as_numbers(typed: pl.Series, texts: pl.Series) -> pl.Series:
    if typed.dtype == pl.Boolean:
        return typed
    found = numbers(texts)
    if typed.len() > typed.null_count() and found.null_count() == found.len():
        example = str(typed.drop_nulls()[0])[:50]
        raise ArgumentError(
            "table", f"must have numbers in the column {typed.name!r}, as the schema says, but holds {example!r}"
        )
    return found


def _padded(typed: pl.Series, texts: pl.Series) -> bool:
    return typed.dtype.is_numeric() and bool(texts.str.contains(PADDED).any())
