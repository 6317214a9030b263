"""What the planner is asked: a description of the consortium in the query of a URL, which is the page's whole state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast, get_args

from fedbandit import _validate
from fedbandit._validate import ArgumentError
from fedbandit.planner.consortium import Consortium, Sync
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.sensitivity import Adjacency
from fedbandit.problem import Schema
from fedbandit.problem.fields import Category, Field, Number

__all__ = ["CHOSEN", "DEFAULTS", "consortium_of", "schema_of"]

# What the page shows at first: the consortium of docs/planning.md. `fields` is empty if the dimension is given.
DEFAULTS: dict[str, Any] = {
    "silos": 12,
    "people_per_day": 20,
    "days": 365,
    "sync": "daily",
    "visits": 1,
    "arms": 4,
    "dim": 20,
    "fields": "",
    "epsilon": 1.0,
    "delta": 1e-6,
    "trust": "secure-sum",
    "mean_visits": None,
    "back_after": 0,
    "consenting": 1.0,
    "drift": 0.0,
    "adjacency": "replace-one",
}
CHOSEN = "use"  # the protocol that is looked at; not part of the consortium
NUMBER = "number"
LARGEST = {"silos": 100_000, "people_per_day": 1_000_000, "days": 36_500, "dim": 500, "arms": 10_000, "visits": 10_000}
MOST_SYNCS = 20_000


def consortium_of(query: Mapping[str, str]) -> Consortium:
    """The consortium that a query describes.

    >>> consortium_of({"silos": "3", "fields": "number,2", "arms": "2"}).dim  # two actions, each with 1 + 1 + 2 columns
    8
    """
    _validate.known_keys("query", dict(query), (*DEFAULTS, CHOSEN))
    given = {name: _read(name, query.get(name, "")) for name in DEFAULTS}
    budget = Privacy(given.pop("epsilon"), given.pop("delta"), cast(Adjacency, given.pop("adjacency")))
    given["sync"] = _validate.one_of("sync", given["sync"], get_args(Sync))
    for name, most in LARGEST.items():
        if given[name] > most:
            raise ArgumentError(name, f"must be at most {most:,} here, got {given[name]:,}")
    schema = schema_of(given.pop("fields"), given["arms"])
    if schema is not None:
        given |= Consortium.rows_of(schema)
    if given["visits"] == 1:
        given |= {"mean_visits": None, "back_after": 0}  # the page shows them, but nobody comes back here
    if given["dim"] > LARGEST["dim"]:
        raise ArgumentError("fields", f"must make at most {LARGEST['dim']} columns here, got {given['dim']}")
    consortium = Consortium(privacy=budget, **given)
    if consortium.periods > MOST_SYNCS:
        raise ArgumentError("days", f"must be at most {MOST_SYNCS:,} syncs here, got {consortium.periods:,}")
    return consortium


def schema_of(fields: str, arms: int) -> Schema | None:
    """The schema of a person's fields, as the page lists them; None if it lists none.

    Each field is `number`, or the number of levels of a category. Ranges do not matter here, only the number of
    columns.
    """
    words = [word.strip() for word in fields.split(",") if word.strip()]
    if not words:
        return None
    context: dict[str, Field] = {f"field {at}": _field(word) for at, word in enumerate(words, 1)}
    return Schema(context, actions=tuple(f"action {at}" for at in range(1, arms + 1)))


def _field(word: str) -> Field:
    if word == NUMBER:
        return Number(0.0, 1.0)
    if word.isdecimal() and 2 <= int(word) <= LARGEST["dim"]:
        return Category([f"level {at}" for at in range(1, int(word) + 1)], other=False)
    raise ArgumentError("fields", f"must be 'number' or how many levels a category has (2 or more), got {word!r}")


def _read(name: str, text: str) -> Any:
    """A value of the query, of the same type as its default; the default if it is empty."""
    default = DEFAULTS[name]
    if not text.strip():
        return default
    if isinstance(default, str):
        return text.strip()
    kind = int if isinstance(default, int) else float
    try:
        return kind(text)
    except ValueError:
        wanted = "a whole number" if kind is int else "a number"
        raise ArgumentError(name, f"must be {wanted}, got {text[:40]!r}") from None
