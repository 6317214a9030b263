"""Fields of a record, and how a value becomes numbers by public constants alone, whatever the value is.

Every field has a fixed number of columns. A value fills them with numbers whose absolute values add up to at most 1, so
that their Euclidean length is at most 1 as well. A value that does not fit the field's description is clamped, counted
as "other" or left empty (`filling.py`); none is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass
from dataclasses import fields as dataclass_fields
from datetime import date, time
from decimal import Decimal
from typing import Any

import numpy as np

from fedbandit import _validate
from fedbandit._validate import ArgumentError

__all__ = [
    "LONGEST_NAME",
    "MOST_COLUMNS",
    "Category",
    "Field",
    "Hashed",
    "Number",
    "as_number",
    "field_as_dict",
    "field_from_dict",
    "is_missing",
    "text_of",
]

MOST_COLUMNS = 1 << 14  # of one field, and of all together
LONGEST_NAME = 100  # characters of a level or of a field's name
PANDAS_NA = "NAType"  # the type of pandas.NA, which cannot be compared with anything; pandas may not be installed


# -- fields -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Number:
    """A number in a public range; values outside are clamped to it.

    It fills one column with -1 at `low`, 1 at `high` and 0 half-way. With `knots` it has one column for each of that
    many equally spaced points, and fills the columns of the two nearest with their weights: its effect is then
    piecewise linear, and no number leaves all columns empty. With `missing`, a missing value has its own column;
    without, it leaves all columns empty.

    >>> Number(0, 120, knots=3, missing=True).labels
    ('@0', '@60', '@120', ' is missing')
    """

    low: float
    high: float
    knots: int = 0
    missing: bool = False

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            value = as_number(getattr(self, name))
            if value is None or not math.isfinite(value):
                stated = str(getattr(self, name))[:50]
                raise ArgumentError(name, f"must be a finite number, stated by people who know it, got {stated!r}")
            object.__setattr__(self, name, value + 0.0)  # turns -0.0 into 0.0
        if not (self.low < self.high and math.isfinite(self.high - self.low)):
            raise ArgumentError("high", f"must be a finite distance above low, {self.low!r}, got {self.high!r}")
        if self.knots != 0:
            _validate.count("knots", self.knots, least=2)
        _check_size("knots", self.knots)
        _check_flag("missing", self.missing)

    @property
    def labels(self) -> tuple[str, ...]:
        """What each column stands for; "" is the value itself."""
        values = [f"@{point:.6g}" for point in np.linspace(self.low, self.high, self.knots)] if self.knots else [""]
        return (*values, *_missing_column(self.missing))

    @property
    def mean_square(self) -> float:
        """The mean squared length of its columns, if values are spread evenly over the range."""
        return 2 / 3 if self.knots else 1 / 3


@dataclass(frozen=True)
class Category:
    """One of some levels, with one column each. Any other value fills the column `other`, if there is one.

    >>> Category(["yes", "no"]).labels
    ('=yes', '=no', ' is another')
    """

    levels: Sequence[str]
    other: bool = True
    missing: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.levels, str) or not isinstance(self.levels, Sequence):
            raise ArgumentError("levels", f"must be a list of values, got {self.levels!r}")
        levels = tuple(_level(level) for level in self.levels)
        if len(set(levels)) != len(levels):
            raise ArgumentError("levels", "must differ; numbers and truth values count as their texts")
        object.__setattr__(self, "levels", levels)
        _check_flag("other", self.other)
        _check_flag("missing", self.missing)
        if not levels and not self.other and not self.missing:
            raise ArgumentError("levels", "must hold at least one level")
        _check_size("levels", len(levels))

    @property
    def labels(self) -> tuple[str, ...]:
        """What each column stands for."""
        levels = (f"={level}" for level in self.levels)
        return (*levels, *((" is another",) if self.other else ()), *_missing_column(self.missing))

    @property
    def mean_square(self) -> float:
        """The mean squared length of its columns: a known level fills one column with 1."""
        return 1.0


@dataclass(frozen=True)
class Hashed:
    """A value from an open vocabulary: a public hash of its text decides which of the columns it fills.

    >>> Hashed(columns=2, missing=True).labels
    ('#0', '#1', ' is missing')
    """

    columns: int
    missing: bool = False

    def __post_init__(self) -> None:
        _validate.count("columns", self.columns)
        _check_size("columns", self.columns)
        _check_flag("missing", self.missing)

    @property
    def labels(self) -> tuple[str, ...]:
        """What each column stands for."""
        return (*(f"#{number}" for number in range(self.columns)), *_missing_column(self.missing))

    @property
    def mean_square(self) -> float:
        """The mean squared length of its columns: a value fills one column with 1."""
        return 1.0


Field = Number | Category | Hashed
_KINDS: dict[str, type[Field]] = {"number": Number, "category": Category, "hashed": Hashed}


def field_as_dict(field: Field) -> dict[str, Any]:
    """The field as plain data."""
    (kind,) = (name for name, made in _KINDS.items() if type(field) is made)
    values = {name: getattr(field, name) for name in field.__dataclass_fields__}
    return {
        "type": kind,
        **{name: list(value) if isinstance(value, tuple) else value for name, value in values.items()},
    }


def field_from_dict(data: Any) -> Field:
    """The field that `field_as_dict` wrote."""
    if not isinstance(data, Mapping):
        raise ArgumentError("field", f"must be a table with a type, got {data!r}")
    made = _KINDS[_validate.one_of("type", str(data.get("type")), _KINDS)]
    values = {key: value for key, value in data.items() if key != "type"}
    required = [one.name for one in dataclass_fields(made) if one.default is MISSING]
    _validate.known_keys(f"field of type {data['type']!r}", values, made.__dataclass_fields__, required)
    return made(**values)


def _level(value: Any) -> str:
    text = text_of(value)
    if text is None or len(text) > LONGEST_NAME:
        raise ArgumentError("levels", f"must be texts of at most {LONGEST_NAME} characters, got {str(value)[:200]!r}")
    return text


def _missing_column(there: bool) -> tuple[str, ...]:
    return (" is missing",) if there else ()


def _check_flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise ArgumentError(name, f"must be true or false, got {value!r}")


def _check_size(name: str, size: int) -> None:
    if size > MOST_COLUMNS:
        raise ArgumentError(name, f"must give at most {MOST_COLUMNS} columns, got {size}")


# -- values -----------------------------------------------------------------------------------------------------------


def text_of(value: Any) -> str | None:
    """The text by which a value is compared or hashed; None for a value without one.

    Whole numbers have the same text whether they come as 3 or as 3.0: a table with gaps turns one into the other. The
    text of dates and times is ISO 8601, as it would be in JSON.
    """
    if isinstance(value, str):
        return str.__str__(value)  # str() of an Enum would give its name
    value = _plain(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if -(2**63) <= value < 2**64 else None
    if isinstance(value, float) and math.isfinite(value):
        return str(int(value)) if value == int(value) and -(2**63) <= value < 2**64 else repr(value)
    return value.isoformat() if isinstance(value, (date, time)) and not is_missing(value) else None


def is_missing(value: Any) -> bool:
    """Whether a value is missing: None, NaN, NaT or the NA of pandas."""
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return bool(np.isnat(value))
    if isinstance(value, Decimal):
        return value.is_qnan()
    if value is None or type(value).__name__ == PANDAS_NA:
        return True
    return isinstance(value, (float, np.floating, date)) and value != value


def as_number(value: Any) -> float | None:
    """A value as a number; None if it is not one. Numbers in quotes are texts."""
    value = _plain(value)
    if not isinstance(value, (float, int)):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _plain(value: Any) -> Any:
    """Numbers and dates of other libraries as Python's own; other values do not change."""
    if isinstance(value, (np.floating, np.integer, np.bool_)):
        return value.item()
    if isinstance(value, Decimal):
        return None if value.is_snan() else float(value)
    if isinstance(value, np.datetime64):
        moment = value.item() if value.dtype == "datetime64[D]" else value.astype("datetime64[us]").item()
        return moment if isinstance(moment, date) else None  # outside Python's calendar, numpy returns an integer
    return value
