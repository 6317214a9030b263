"""Checks of values that enter the library. Each error names the argument, what it must be and what was given."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from fedbandit._arrays import Floats

__all__ = [
    "NORM_SLACK",
    "ArgumentError",
    "count",
    "features",
    "is_postgres",
    "known_keys",
    "one_of",
    "plain_numbers",
    "positive",
    "reading",
    "reward",
    "table",
    "within",
]

Name = TypeVar("Name", bound=str)
LARGEST_COUNT = 2**63 - 1
MISSPELT, LONGEST, ALIKE = 3, 40, 0.75  # names that are compared with known ones, their letters, and how alike
POSTGRES = ("postgresql://", "postgres://")
NORM_SLACK = 1e-6  # features scaled to norm 1 in float32 land this close to it


class ArgumentError(ValueError):
    """A value that cannot be used: `field` is its name, `message` says what it must be and what was given."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field} {message}")
        self.field, self.message = field, message

    def __reduce__(self) -> tuple[type[ArgumentError], tuple[str, str]]:
        return type(self), (self.field, self.message)


def positive(name: str, value: float) -> float:
    """A finite number above zero."""
    if not (_is_number(value) and math.isfinite(value) and value > 0):
        raise ArgumentError(name, f"must be a finite number > 0, got {value!r}")
    return float(value)


def within(name: str, value: float, low: float, high: float) -> float:
    """A number strictly between `low` and `high`."""
    if not (_is_number(value) and low < value < high):
        raise ArgumentError(name, f"must lie strictly between {low:g} and {high:g}, got {value!r}")
    return float(value)


def count(name: str, value: int, least: int = 1) -> int:
    """A whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ArgumentError(name, f"must be a whole number >= {least}, got {value!r}")
    if value > LARGEST_COUNT:
        raise ArgumentError(name, f"must be at most {LARGEST_COUNT:,}, got more")
    return int(value)


def plain_numbers(value: Any) -> None:
    """Replace numpy numbers in a dataclass's fields by Python's: numpy's small types overflow and round silently."""
    for field in fields(value):
        found = getattr(value, field.name)
        if isinstance(found, np.generic):
            object.__setattr__(value, field.name, found.item())


def one_of(name: str, value: str, allowed: Iterable[Name]) -> Name:
    """One of the names in `allowed`."""
    names = list(allowed)
    for known in names:
        if known == value:
            return known
    raise ArgumentError(name, f"must be one of {', '.join(names)}; got {value!r}")


def features(name: str, value: ArrayLike, dim: int) -> Floats:
    """An action set: (arms, dim), finite, at least one row, every row of norm at most 1.

    Rows that are longer only because of rounding are scaled back to norm 1: sensitivities rely on it.
    """
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ArgumentError(name, f"must be an array of numbers: {error}") from None
    if array.ndim != 2 or array.shape[1] != dim:
        raise ArgumentError(name, f"must have shape (arms, {dim}), got {array.shape}")
    if array.shape[0] == 0:
        raise ArgumentError(name, "must hold at least one action, got an empty set")
    if not np.isfinite(array).all():
        raise ArgumentError(name, "must be finite, got NaN or infinity")
    with np.errstate(over="ignore"):  # a norm that overflows is infinite, and refused below
        norms = np.linalg.norm(array, axis=1)
    if norms.max() > 1 + NORM_SLACK:
        raise ArgumentError(name, f"must have rows of norm at most 1, got {norms.max():.6g}")
    return np.asarray(array / np.maximum(norms, 1.0)[:, None])


def reward(name: str, value: float) -> float:
    """A reward in [0, 1]."""
    if type(value) is float and 0 <= value <= 1:  # the fast path, for nearly all rewards
        return value
    if not (_is_number(value) and 0 <= value <= 1):
        raise ArgumentError(name, f"must lie in [0, 1], got {value!r}")
    return float(value)


def known_keys(where: str, given: Iterable[str], allowed: Iterable[str], required: Iterable[str] = ()) -> None:
    """Refuse a table with unknown names, or without a name that is required."""
    given = set(given)
    names = sorted(allowed)
    unknown = sorted(given - set(names))
    if unknown:
        typed = [name for name in unknown[:MISSPELT] if len(name) <= LONGEST]
        meant = [near for name in typed for near in get_close_matches(name, names, n=1, cutoff=ALIKE)]
        hint = f" (did you mean {', '.join(map(repr, meant))}?)" if meant else ""
        raise ArgumentError(where, f"does not know {', '.join(map(repr, unknown))}{hint}; it takes {', '.join(names)}")
    missing = [name for name in required if name not in given]
    if missing:
        raise ArgumentError(where, f"must give {', '.join(map(repr, missing))}")


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn every error that malformed input can cause in the code inside into an ArgumentError about `what`."""
    try:
        yield
    except ArgumentError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ArgumentError(what, f"cannot be read: {str(error)[:300] or type(error).__name__}") from None


def table(what: str, text: str | bytes) -> dict[str, Any]:
    """The fields of one JSON object."""
    with reading(what):
        data = json.loads(text)
    if not isinstance(data, dict):
        raise ArgumentError(what, f"must be one table of fields, got {type(data).__name__}")
    return data


def is_postgres(place: str | Path) -> bool:
    """Whether the place of a store is a URL of PostgreSQL, and not a file."""
    return str(place).startswith(POSTGRES)


def _is_number(value: Any) -> bool:
    """Whether this is a number that a float can hold; NaN and infinity count as floats."""
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) <= sys.float_info.max
    return isinstance(value, (float, np.floating, np.integer))
