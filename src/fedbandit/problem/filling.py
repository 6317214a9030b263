"""From the values of fields to the columns of a record: one value at a time or many, with the same bits."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import chain
from typing import Any, Literal, cast

import numpy as np

from fedbandit._arrays import Floats
from fedbandit.problem.fields import Category, Field, Hashed, Number, as_number, is_missing, text_of

__all__ = ["NOTHING", "Filler", "Oddity", "PickFiller", "StraightNumbers", "filler"]

Oddity = Literal["missing", "clamped", "unknown"]
REMEMBERED = 1 << 14  # most texts of a hashed field whose columns are remembered
LONGEST_REMEMBERED = 100  # characters of such a text
NOTHING: Mapping[Oddity, int] = {}
_TEXT, _NUMBERS = {str}, {float, int, bool}
_NUMERIC = {float, int, bool, type(None)}  # types that numpy and `as_number` read in the same way, None as NaN


class Filler(ABC):
    """Fills the columns of one field, which begin at `start` and are zero before."""

    def __init__(self, field: Field, start: int) -> None:
        self.start = start
        self._missing = start + len(field.labels) - 1 if field.missing else None

    @abstractmethod
    def one(self, row: list[float] | Floats, value: Any) -> Oddity | None:
        """Fill the columns of one record; return what was odd about the value."""

    @abstractmethod
    def many(self, rows: Floats, values: Sequence[Any]) -> Mapping[Oddity, int]:
        """Fill the columns of many records, (records, columns); return how often each oddity occurred."""

    def _empty(self, row: list[float] | Floats, value: Any) -> Oddity:
        """Fill the columns if there is no value that can be used."""
        if self._missing is not None:
            row[self._missing] = 1.0
        return "missing" if is_missing(value) else "unknown"

    def _one_by_one(self, rows: Floats, values: Sequence[Any]) -> Mapping[Oddity, int]:
        odd = (self.one(row, value) for row, value in zip(rows, values, strict=True))
        return Counter(one for one in odd if one is not None)


class _NumberFiller(Filler):
    def __init__(self, field: Number, start: int) -> None:
        super().__init__(field, start)
        self._low, self._high, self._span, self._knots = field.low, field.high, field.high - field.low, field.knots

    def one(self, row: list[float] | Floats, value: Any) -> Oddity | None:
        number = value if type(value) is float else as_number(value)
        if number is None or number != number:
            return self._empty(row, value)
        inside = min(max(number, self._low), self._high) + 0.0  # turns -0.0 into 0.0
        if self._knots:
            place = (inside - self._low) / self._span * (self._knots - 1)
            knot = min(int(place), self._knots - 2)
            row[self.start + knot] = 1 - (place - knot)
            row[self.start + knot + 1] = place - knot
        else:
            # At most 1 in absolute value, even after rounding: neither difference can exceed the rounded span.
            row[self.start] = ((inside - self._low) - (self._high - inside)) / self._span
        return None if inside == number else "clamped"

    def many(self, rows: Floats, values: Sequence[Any]) -> Mapping[Oddity, int]:
        if not _NUMERIC.issuperset(map(type, values)):
            return self._one_by_one(rows, values)
        try:
            numbers = np.array(values, dtype=np.float64)
        except OverflowError:  # a whole number too large for a float
            return self._one_by_one(rows, values)
        inside = np.minimum(np.maximum(numbers, self._low), self._high) + 0.0  # NaN stays NaN
        clamped = int(np.count_nonzero(inside != numbers))
        if clamped and np.isnan(inside).any():
            return self._one_by_one(rows, values)
        if self._knots:
            place = (inside - self._low) / self._span * (self._knots - 1)
            knot = np.minimum(place.astype(np.intp), self._knots - 2)
            records = np.arange(len(rows))
            rows[records, self.start + knot] = 1 - (place - knot)
            rows[records, self.start + knot + 1] = place - knot
        else:
            rows[:, self.start] = ((inside - self._low) - (self._high - inside)) / self._span
        return {"clamped": clamped} if clamped else NOTHING


class PickFiller(Filler):
    """A filler for a field whose values fill one column with a 1."""

    @abstractmethod
    def columns(self, values: Sequence[Any]) -> list[int] | None:
        """The columns of many values, if none of them is odd."""

    def many(self, rows: Floats, values: Sequence[Any]) -> Mapping[Oddity, int]:
        found = self.columns(values)
        if found is None:
            return self._one_by_one(rows, values)
        rows[np.arange(len(rows)), found] = 1.0
        return NOTHING


class _CategoryFiller(PickFiller):
    def __init__(self, field: Category, start: int) -> None:
        super().__init__(field, start)
        self._column = {level: start + number for number, level in enumerate(field.levels)}
        self._other = start + len(field.levels) if field.other else None

    def one(self, row: list[float] | Floats, value: Any) -> Oddity | None:
        text = value if type(value) is str else text_of(value)
        if text is None and is_missing(value):
            return self._empty(row, value)
        column = None if text is None else self._column.get(text)
        if column is not None:
            row[column] = 1.0
            return None
        if self._other is not None:
            row[self._other] = 1.0
        return "unknown"

    def columns(self, values: Sequence[Any]) -> list[int] | None:
        return _found(self._column, values)


class _HashedFiller(PickFiller):
    def __init__(self, field: Hashed, start: int) -> None:
        super().__init__(field, start)
        self._columns = field.columns
        self._remembered: dict[str, int] = {}

    def one(self, row: list[float] | Floats, value: Any) -> Oddity | None:
        text = value if type(value) is str else text_of(value)
        if text is None:
            return self._empty(row, value)
        row[self._hashed(text)] = 1.0
        return None

    def columns(self, values: Sequence[Any]) -> list[int] | None:
        found = _found(self._remembered, values)
        if found is None and _TEXT.issuperset(map(type, values)):
            found = list(map(self._hashed, values))
        return found

    def _hashed(self, text: str) -> int:
        """The column of a text, the same on every machine."""
        known = self._remembered.get(text)
        if known is not None:
            return known
        digest = blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()
        column = self.start + int.from_bytes(digest, "little") % self._columns
        if len(text) <= LONGEST_REMEMBERED:
            if len(self._remembered) >= REMEMBERED:
                self._remembered = {}  # texts that still occur are soon remembered again
            self._remembered[text] = column
        return column


def _found(columns: Mapping[str, int], values: Sequence[Any]) -> list[int] | None:
    """The column of each value if all are among these texts, else None; a value that is not a text equals none."""
    try:
        found = list(map(columns.get, values))
    except TypeError:  # a value that cannot be hashed
        return None
    return None if None in found else cast(list[int], found)


class StraightNumbers:
    """Fills all straight numbers (those without knots) of records at once."""

    def __init__(self, fields: Mapping[str, tuple[Number, int]]) -> None:
        """`fields` are the fields by name, each with its column."""
        self.names = tuple(fields)
        ranges = [(field.low, field.high, field.high - field.low) for field, _ in fields.values()]
        self.ranges = np.array(ranges, dtype=np.float64).reshape(-1, 3)  # low, high and span of each
        self.columns = np.array([column for _, column in fields.values()], dtype=np.int64)

    def read(self, values: Sequence[Sequence[Any]]) -> Floats | None:
        """The values of many records, given by field, as an array (fields, records); None if some are not numbers."""
        flat = list(chain.from_iterable(values))
        if not _NUMBERS.issuperset(map(type, flat)):
            return None
        try:
            packed = struct.pack(f"{len(flat)}d", *flat)
        except (OverflowError, struct.error):  # a whole number too large for a float
            return None
        return np.frombuffer(packed).reshape(len(values), len(values[0]) if values else 0)

    def fill(self, rows: Floats, values: Sequence[Sequence[Any]]) -> bool:
        """Fill the columns of many records, whose values are given by field; False, and nothing, if a value is odd."""
        numbers = self.read(values)
        low, high, span = self.ranges.T[:, :, None]
        if numbers is None or not ((numbers >= low) & (numbers <= high)).all():  # refuses NaN too
            return False
        numbers = numbers + 0.0
        rows[:, self.columns] = (((numbers - low) - (high - numbers)) / span).T
        return True


def filler(field: Field, start: int) -> Filler:
    """The filler for the columns of a field, which begin at `start`."""
    if isinstance(field, Number):
        return _NumberFiller(field, start)
    return _CategoryFiller(field, start) if isinstance(field, Category) else _HashedFiller(field, start)
