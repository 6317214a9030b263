"""A schema as a fast encoder: from records to rows in a few array operations, the same bits however a record arrives.

Let C be the columns of a context and A those of an action, each with a 1 in front. Column j of a row is
weight_j C[context_j] A[action_j]. Then comes the projection, if there is one.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from fedbandit._arrays import Floats, Indices
from fedbandit._validate import ArgumentError
from fedbandit.problem.fields import Category, Field, Number
from fedbandit.problem.filling import Filler, Oddity, PickFiller, StraightNumbers, filler
from fedbandit.problem.public_schema import ACTION, Schema

__all__ = ["ActionRecord", "Encoded", "Oddities", "Offered", "Record", "RecordEncoder"]

Record = Mapping[str, Any]
Oddities = Counter[tuple[str, Oddity]]  # by field
FEW = 6  # up to this many records, encoding one value at a time is faster


class ActionRecord(NamedTuple):
    """One action to choose from: its name and its features."""

    id: str
    features: Record = MappingProxyType({})


class Offered(NamedTuple):
    """All actions to choose from: the name and the features of each."""

    ids: Sequence[str]
    features: Sequence[Record]

    @classmethod
    def of(cls, actions: Sequence[ActionRecord]) -> Offered:
        return cls([one.id for one in actions], [one.features for one in actions])


class Encoded(NamedTuple):
    """Rows, and how often each field was odd."""

    rows: Floats  # (arms, dim) or (people, arms, dim)
    odd: Oddities


class _Half:
    """The columns of a context or of an action: a 1, then the columns of each field."""

    def __init__(self, fields: Mapping[str, Field]) -> None:
        self.starts: dict[str, int] = {}
        self.width = 1
        self._fillers: dict[str, Filler] = {}
        for name, field in fields.items():
            self.starts[name] = self.width
            self._fillers[name] = filler(field, self.width)
            self.width += len(field.labels)
        self._blank = [1.0, *[0.0] * (self.width - 1)]
        self._picks = {name: one for name, one in self._fillers.items() if isinstance(one, PickFiller)}
        numbers = {name: (field, self.starts[name]) for name, field in fields.items() if isinstance(field, Number)}
        self._straight = StraightNumbers({name: one for name, one in numbers.items() if not one[0].knots})
        self._knotted = [name for name, (field, _) in numbers.items() if field.knots]

    def usual(self, values: Mapping[str, Sequence[Any]], records: int) -> tuple[Floats, Indices] | None:
        """The straight numbers (fields, records) and the picked columns (fields, records) of many records.

        None if there are other fields, or if a value is odd; ranges are not checked here.
        """
        if self._knotted or not records:
            return None
        nothing = [None] * records
        numbers = self._straight.read([values.get(name, nothing) for name in self._straight.names])
        picked = array("q")
        for name, pick in self._picks.items():
            found = pick.columns(values.get(name, nothing))
            if found is None:
                return None
            picked.extend(found)
        if numbers is None:
            return None
        return numbers, np.frombuffer(picked or b"", dtype=np.int64).reshape(len(self._picks), records)

    @property
    def numbers(self) -> StraightNumbers:
        """The fields that are numbers without knots."""
        return self._straight

    def one(self, record: Record, odd: Oddities) -> Floats:
        """The columns of one record, (width,)."""
        row, get = self._blank.copy(), record.get
        for name, fill in self._fillers.items():
            oddity = fill.one(row, get(name))
            if oddity is not None:
                odd[name, oddity] += 1
        return np.array(row)

    def many(self, values: Mapping[str, Sequence[Any]], records: int, odd: Oddities) -> Floats:
        """The columns of many records, (records, width), given field by field."""
        rows = np.zeros((records, self.width))
        rows[:, 0] = 1.0
        if not records:
            return rows
        nothing = [None] * records
        given = {name: values.get(name, nothing) for name in self._fillers}
        odd_ones = self._fill_usual(rows, given)
        for name in odd_ones:
            for oddity, count in self._fillers[name].many(rows, given[name]).items():
                odd[name, oddity] += count
        return rows

    def _fill_usual(self, rows: Floats, given: Mapping[str, Sequence[Any]]) -> list[str]:
        """Fill all fields without odd values, many at a time; return the names of the other fields."""
        left, straight = self._knotted.copy(), self._straight.names
        if straight and not self._straight.fill(rows, [given[name] for name in straight]):
            left += straight
        columns = []
        for name, pick in self._picks.items():
            found = pick.columns(given[name])
            left.append(name) if found is None else columns.append(found)
        if columns:
            rows[np.arange(len(rows)), columns] = 1.0
        return left


class RecordEncoder:
    """Turns records into rows by a schema."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._context, self._action = _Half(schema.context), _Half(schema.action_fields)
        places = [place for number, block in enumerate(schema.blocks) for place in self._places(number)]
        blocks, contexts, actions = np.array(places, dtype=np.intp).T
        weights = np.array([schema.weight(block) for block in schema.blocks])
        self._from_context, self._from_action, self._weights = contexts, np.ascontiguousarray(actions), weights[blocks]
        self._projection = None
        if schema.projection is not None:
            number = actions - self._action.starts.get(ACTION, self._action.width)
            groups = np.where((number >= 0) & (number < len(schema.actions)), number, -1)
            self._projection = schema.projection.matrix(weights, blocks, groups)
        self._compiled: Callable[..., Floats] | None = None
        named = Offered(schema.actions, [{}] * len(schema.actions))
        self._named = None if schema.features or not schema.actions else self._features(named, Counter())

    def quicken(self) -> None:
        """Load the compiled encoder, which makes the same rows.

        The first time on a machine, compiling takes some seconds.
        """
        from fedbandit.problem.assembling import rows_of_actions

        self._compiled = rows_of_actions

    def _places(self, number: int) -> Iterable[tuple[int, int, int]]:
        """For each column of a block: the block, and the columns of context and action that it multiplies."""
        block = self.schema.blocks[number]
        context, action = self._context.starts.get(block.context, 0), self._action.starts.get(block.action, 0)
        of_context = len(self.schema.context[block.context].labels) if block.context else 1
        of_action = len(self.schema.action_fields[block.action].labels) if block.action else 1
        return ((number, context + i, action + j) for i in range(of_context) for j in range(of_action))

    @property
    def dim(self) -> int:
        """The number of columns of a row."""
        return self.schema.dim

    @property
    def named(self) -> tuple[ActionRecord, ...]:
        """The schema's own actions."""
        return tuple(ActionRecord(name) for name in self.schema.actions)

    def rows(self, context: Record, actions: Sequence[ActionRecord] | Offered | None = None) -> Encoded:
        """One row per action, (arms, dim); without `actions`, for the schema's named actions."""
        odd: Oddities = Counter()
        scaled = self._weights * self._context.one(context, odd)[self._from_context]
        offered = _offered(actions)
        rows = self._quickly(offered, scaled) if self._compiled is not None and offered is not None else None
        return Encoded(self._projected(self._offered(offered, odd) * scaled if rows is None else rows), odd)

    def _quickly(self, offered: Offered, scaled: Floats) -> Floats | None:
        """The rows by the compiled encoder, if nothing about the actions is odd."""
        assert self._compiled is not None
        values: dict[str, Sequence[Any]] = {**self._by_field(offered.features), ACTION: offered.ids}
        found = self._action.usual(values, len(offered.ids))
        if found is None:
            return None
        numbers, straight = found[0], self._action.numbers
        made = (straight.ranges, straight.columns, found[1], self._action.width, self._from_action, scaled)
        rows = self._compiled(numbers, *made)
        return rows if len(rows) else None

    def rows_of_many(
        self,
        contexts: Mapping[str, Sequence[Any]],
        people: int,
        actions: Sequence[ActionRecord] | Offered | None = None,
    ) -> Encoded:
        """Rows of many people who are offered the same actions, (people, arms, dim); contexts are given by field."""
        odd: Oddities = Counter()
        scaled = self._weights * self._context.many(contexts, people, odd)[:, self._from_context]
        return Encoded(self._projected(self._offered(_offered(actions), odd) * scaled[:, None, :]), odd)

    def refuse(self, odd: Oddities, *names: Iterable[str]) -> None:
        """Raise an error if any value was odd, or if a name is not in the schema.

        It names the first odd field, or the first unknown name. `names` are those in the context, then those in the
        features.
        """
        for name, oddity in odd:
            where = "context" if name in self.schema.context else "features"
            field = self.schema.context.get(name) or self.schema.action_fields[name]
            raise ArgumentError(f"{where}.{name}", f"must be {_wanted(field)}, but is {_FOUND[oddity]}")
        for where, known, given in zip(("context", "features"), (self._context, self._action), names, strict=True):
            unknown = [name for name in given if name not in known.starts]
            if unknown:
                raise ArgumentError(f"{where}.{str(unknown[0])[:100]}", "must be a field that the schema knows")

    def _offered(self, actions: Offered | None, odd: Oddities) -> Floats:
        """The action's factor of each column of its row, (arms, width of a row)."""
        if actions is not None:
            return self._features(actions, odd)
        if self._named is not None:
            return self._named
        if not self.schema.actions:
            raise ArgumentError("actions", "must be given: the schema names none")
        return self._features(Offered.of(self.named), odd)

    def _features(self, actions: Offered, odd: Oddities) -> Floats:
        ids, features = actions
        if len(ids) <= FEW:
            records = ({**one, ACTION: name} for name, one in zip(ids, features, strict=True))
            filled = np.stack([self._action.one(record, odd) for record in records])
        else:
            filled = self._action.many({**self._by_field(features), ACTION: ids}, len(ids), odd)
        return filled[:, self._from_action]

    def _by_field(self, records: Sequence[Record]) -> dict[str, Sequence[Any]]:
        """The values of each feature in all records; None where a record has no value."""
        names = tuple(self.schema.features)
        if len(names) < 2:  # `itemgetter` would not return a tuple
            return {name: [record.get(name) for record in records] for name in names}
        try:
            values = zip(*map(itemgetter(*names), records), strict=True)
        except KeyError:
            values = zip(*(map(record.get, names) for record in records), strict=True)
        return dict(zip(names, values, strict=True))

    def _projected(self, rows: Floats) -> Floats:
        """The rows after the projection, if there is one.

        A person's rows are multiplied as one matrix, whether alone or among others, and always in the same memory
        order, so that the result has the same bits.
        """
        return rows if self._projection is None else np.ascontiguousarray(rows) @ self._projection


def _offered(actions: Sequence[ActionRecord] | Offered | None) -> Offered | None:
    return actions if actions is None or isinstance(actions, Offered) else Offered.of(actions)


_FOUND = {"missing": "missing", "clamped": "outside of that", "unknown": "something else"}


def _wanted(field: Field) -> str:
    """What a value of the field must be, in words."""
    if isinstance(field, Number):
        return f"a number from {field.low:g} to {field.high:g}"
    if isinstance(field, Category):
        return f"one of {', '.join(field.levels[:10])}{', ...' if len(field.levels) > 10 else ''}"
    return "a text or a number"
