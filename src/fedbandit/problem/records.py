"""Records as an application sends them, checked and encoded. Only this module counts what was odd about them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from fedbandit._arrays import Floats
from fedbandit._validate import ArgumentError, known_keys
from fedbandit.problem.encoding import ActionRecord, Oddities, Offered, RecordEncoder
from fedbandit.problem.frames import Columns
from fedbandit.problem.public_schema import Schema

__all__ = ["Actions", "Offer", "Records", "as_json", "offered_actions"]

Actions = Sequence[ActionRecord | Mapping[str, Any] | str]
MOST_ACTIONS = 100_000
AT_ONCE = 1 << 22  # most numbers in the rows that are held at a time


class Offer(NamedTuple):
    """What there is to choose from: the rows and the names of the actions."""

    rows: Floats  # (arms, dim) or (people, arms, dim)
    names: tuple[str, ...]


class Records:
    """Turns records into rows by a schema, and counts what was odd: values that were missing, clamped or unknown.

    With `strict`, an odd record is an error instead. The counts are for the people who run the silo, and never leave
    it. `lock` guards them if several threads encode.
    """

    def __init__(
        self, schema: Schema, *, strict: bool = False, lock: AbstractContextManager[Any] | None = None
    ) -> None:
        self.encoder, self._strict = RecordEncoder(schema), strict
        self._lock = nullcontext() if lock is None else lock
        self._odd: Oddities = Counter()
        self._named = schema.actions

    def one(self, context: Mapping[str, Any], actions: Actions | Offered | None = None) -> Offer:
        """The rows of one record's actions; without `actions`, of the actions that the schema names."""
        if not isinstance(context, Mapping):
            raise ArgumentError("context", f"must be a table of fields, got {type(context).__name__}")
        offered = None if actions is None else offered_actions(actions)
        encoded = self.encoder.rows(context, offered)
        self._note(encoded.odd, context, offered)
        return Offer(encoded.rows, self._names(offered))

    def many(self, columns: Columns, people: int, actions: Actions | None = None) -> Iterator[Offer]:
        """The rows of `people` records, given by column, some people at a time. All are offered the same actions."""
        offered = None if actions is None else offered_actions(actions)
        names = self._names(offered)
        step = max(1, AT_ONCE // max(1, len(names) * self.encoder.schema.width))
        for start in range(0, people, step):
            part = {name: column[start : start + step] for name, column in columns.items()}
            encoded = self.encoder.rows_of_many(part, min(step, people - start), offered)
            self._note(encoded.odd, columns, offered)
            yield Offer(encoded.rows, names)

    @property
    def odd(self) -> dict[str, dict[str, int]]:
        """How often a value was missing, clamped or unknown, by field."""
        with self._lock:
            counted = dict(self._odd)
        found: dict[str, dict[str, int]] = {}
        for (name, oddity), count in sorted(counted.items()):
            found.setdefault(name, {})[oddity] = count
        return found

    def quicken(self) -> None:
        """Load the compiled encoder."""
        self.encoder.quicken()

    def _names(self, offered: Offered | None) -> tuple[str, ...]:
        return tuple(self._named if offered is None else offered.ids)

    def _note(self, odd: Oddities, context: Mapping[str, Any], offered: Offered | None) -> None:
        if self._strict:
            features = () if offered is None else offered.features
            self.encoder.refuse(odd, context, (name for one in features for name in one))
        if odd:
            with self._lock:
                self._odd.update(odd)


def offered_actions(actions: Actions | Offered) -> Offered:
    """Actions as an application sends them: names, or tables with an `id` and `features`."""
    offered = actions if isinstance(actions, Offered) else None
    if offered is None and (isinstance(actions, str | Mapping) or not isinstance(actions, Sequence)):
        raise ArgumentError("actions", f"must be a list of actions, got {type(actions).__name__}")
    count = len(actions if offered is None else offered.ids)
    if not 0 < count <= MOST_ACTIONS:
        raise ArgumentError("actions", f"must be between 1 and {MOST_ACTIONS}, got {count}")
    if offered is None:
        offered = Offered.of(
            [one if type(one) is ActionRecord else _action(number, one) for number, one in enumerate(actions)]
        )
    if len(set(offered.ids)) != count:
        raise ArgumentError("actions", "must have different ids")
    return offered


def as_json(context: Mapping[str, Any], names: Sequence[str], actions: Actions | Offered | None) -> str:
    """A record as it was sent, for a log: the context and the actions with their features."""
    features = [{}] * len(names) if actions is None else [dict(one) for one in offered_actions(actions).features]
    offered = [{"id": name, "features": one} for name, one in zip(names, features, strict=True)]
    return json.dumps({"context": dict(context), "actions": offered}, default=str)


def _action(number: int, one: Any) -> ActionRecord:
    if isinstance(one, str):
        return ActionRecord(one)
    where = f"actions.{number}"
    if not isinstance(one, Mapping):
        raise ArgumentError(where, f"must be a name, or a table with an id, got {type(one).__name__}")
    known_keys(where, map(str, one), ("id", "features"), required=("id",))
    features = one.get("features", {})
    if not isinstance(one["id"], str) or not isinstance(features, Mapping):
        raise ArgumentError(where, "must have a text for its id and a table of features")
    return ActionRecord(one["id"], features)
