"""Tables of other libraries, column by column: polars, pandas, anything that speaks Arrow, lists of records.

None of these libraries has to be installed: a table is recognised by its methods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedbandit._validate import ArgumentError

__all__ = ["Columns", "columns_of", "is_table", "length_of", "records_in"]

Columns = dict[str, Sequence[Any]]


def is_table(value: Any) -> bool:
    """Whether a value is a table of records, and not an array of numbers."""
    return (
        isinstance(value, Mapping)
        or hasattr(value, "__arrow_c_stream__")
        or _is_pandas(value)
        or (isinstance(value, Sequence) and len(value) > 0 and all(isinstance(one, Mapping) for one in value))
    )


def columns_of(table: Any) -> Columns:
    """The columns of a table by name, as Python's own values; None where a value is missing.

    >>> columns_of([{"age": 30}, {"age": 40, "sex": "f"}])
    {'age': [30, 40], 'sex': [None, 'f']}
    """
    if isinstance(table, Mapping):
        columns: Columns = {str(name): _listed(column) for name, column in table.items()}
    elif isinstance(table, Sequence):
        names = dict.fromkeys(name for record in table for name in record if isinstance(name, str))
        columns = {name: [record.get(name) for record in table] for name in names}
    elif _is_pandas(table):
        if not table.columns.is_unique:
            raise ArgumentError("table", "must have columns of different names")
        columns = {str(name): _from_pandas(table[name]) for name in table.columns}
    elif hasattr(table, "__arrow_c_stream__"):
        import polars as pl

        frame = table if isinstance(table, pl.DataFrame) else pl.DataFrame(table)
        columns = {name: frame[name].to_list() for name in frame.columns}
    else:
        raise ArgumentError(
            "table", f"must be a frame, an Arrow table or a list of records, got {type(table).__name__}"
        )
    if len({len(column) for column in columns.values()}) > 1:
        raise ArgumentError("table", "must have columns of the same length")
    return columns


def length_of(columns: Columns) -> int:
    """How many values each column has."""
    return len(next(iter(columns.values()), ()))


def records_in(table: Any, columns: Columns) -> int:
    """How many records a table with these columns has; in a list, empty records count too."""
    return len(table) if isinstance(table, Sequence) else length_of(columns)


def _is_pandas(value: Any) -> bool:
    return hasattr(value, "isna") and hasattr(value, "columns")


def _from_pandas(column: Any) -> list[Any]:
    return [None if gone else value for value, gone in zip(column.tolist(), column.isna().tolist(), strict=True)]


def _listed(column: Any) -> list[Any]:
    if isinstance(column, str) or not hasattr(column, "__iter__"):
        raise ArgumentError("table", f"must have columns of values, got {column!r}")
    return list(column.to_list() if hasattr(column, "to_list") else column)
