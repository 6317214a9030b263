"""A schema: public constants that say how records become rows. It is part of the plan and of its hash.

A row is a list of blocks: a constant, fields of an action, and chosen products of a field of the context and a field of
the action. The columns of a block are filled with numbers whose absolute values add up to at most 1, times the block's
weight, and the squares of all weights add up to less than 1. So no row is longer than 1, whatever the record is.
Nothing is fitted to data: people who know the fields state ranges and levels. If data decided them, they would reveal
something about the data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from functools import cached_property
from typing import Any, NamedTuple, Self, TypeVar

from fedbandit import _validate, _words
from fedbandit._validate import ArgumentError
from fedbandit.problem.fields import LONGEST_NAME, MOST_COLUMNS, Category, Field, field_as_dict, field_from_dict
from fedbandit.problem.projection import Projection

__all__ = ["ACTION", "INTERCEPT", "Block", "Frozen", "Schema"]

T = TypeVar("T")
ACTION = "action"  # the field whose levels are the named actions
INTERCEPT = "intercept"
SEPARATOR = " x "  # between the fields of a product
MARGIN = 2.0**-30  # rows are shorter than 1 by this, far more than rounding adds to rows of MOST_COLUMNS columns
WASTEFUL = 0.5  # rows that fill a smaller share of their squared length are warned about


class Frozen(Mapping[str, T]):
    """An immutable table, sorted by name: two tables with the same entries are equal and have the same hash."""

    def __init__(self, entries: Mapping[str, T]) -> None:
        self._entries = dict(sorted(entries.items()))

    def __getitem__(self, name: str) -> T:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __hash__(self) -> int:
        return hash(tuple(self._entries.items()))

    def __repr__(self) -> str:
        return repr(self._entries)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


class Block(NamedTuple):
    """A part of a row: the columns of a context field times those of an action field; "" stands for a constant."""

    context: str
    action: str

    @property
    def name(self) -> str:
        return SEPARATOR.join(part for part in self if part) or INTERCEPT


@dataclass(frozen=True)
class Schema:
    """How a record becomes rows, one per action.

    context: fields of the person or the moment. features: fields of an action, sent with it.
    actions: names of actions that are always the same. Each has its own effect, and its own effect for each field of
    the context that it interacts with: blocks of columns that no other action fills.
    interactions: pairs of a field of the context and a field of the action ("action" for the named actions). By default
    all fields of the context with the named actions, if there are any; otherwise none.
    baseline: fields of the context that enter in the same way for all actions. They change no choice, but explain
    rewards.
    intercept: a constant column. There is one by default unless there are named actions, which replace it.
    weights: relative shares of a row's squared length, by the name of a block; 1 where none is given.
    projection: a random projection to fewer columns.

    Formal guarantee: whatever record is encoded, its rows have `dim` numbers and a Euclidean norm of at most 1, as
    computed in floating point, and after the projection too. This follows from the constants here alone.

    >>> from fedbandit.problem.fields import Number
    >>> schema = Schema({"age": Number(0, 120), "smokes": Category(["yes", "no"], other=False)}, actions=("A", "B"))
    >>> schema.dim, schema.columns[:4]
    (8, ('action=A', 'action=B', 'age x action=A', 'age x action=B'))
    >>> Schema.from_dict(schema.as_dict()) == schema
    True
    """

    context: Mapping[str, Field] = dataclass_field(default_factory=dict)
    features: Mapping[str, Field] = dataclass_field(default_factory=dict)
    actions: Sequence[str] = ()
    interactions: Sequence[tuple[str, str]] | None = None
    baseline: Sequence[str] = ()
    intercept: bool | None = None
    weights: Mapping[str, float] = dataclass_field(default_factory=dict)
    projection: Projection | None = None

    def __post_init__(self) -> None:
        self._set("context", _fields("context", self.context))
        self._set("features", _fields("features", self.features))
        self._set("actions", _names("actions", self.actions))
        self._set("baseline", _names("baseline", self.baseline))
        self._set("interactions", self._pairs())
        self._set("intercept", not self.actions if self.intercept is None else self.intercept)
        if not isinstance(self.intercept, bool):
            raise ArgumentError("intercept", f"must be true or false, got {self.intercept!r}")
        if not isinstance(self.projection, Projection | None):
            raise ArgumentError("projection", f"must be a Projection or None, got {self.projection!r}")
        self._check_names()
        self._set("weights", self._weights())
        self._check_size()

    @property
    def has_constant(self) -> bool:
        """Whether some fixed combination of the columns is the same in every row, so that rewards may be centred."""
        return self.projection is None and bool(self.intercept or self.actions)

    # -- rows and columns -------------------------------------------------------------------------------------------

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The parts of a row, in order."""
        alone = [Block(name, "") for name in self.baseline]
        own = [Block("", name) for name in (*self.features, *((ACTION,) if self.actions else ()))]
        return (*([Block("", "")] if self.intercept else []), *alone, *own, *(Block(*pair) for pair in self._products))

    @cached_property
    def shares(self) -> dict[str, float]:
        """The share of a row's squared length that each block may fill."""
        weights = {block.name: self.weights.get(block.name, 1.0) for block in self.blocks}
        total = math.fsum(weights.values())
        return {name: weight / total for name, weight in weights.items()}

    def weight(self, block: Block) -> float:
        """The factor by which the columns of a block are multiplied."""
        return math.sqrt(self.shares[block.name]) * (1 - MARGIN)

    @cached_property
    def dim(self) -> int:
        """The number of columns of a row."""
        return self.width if self.projection is None else self.projection.columns

    @cached_property
    def width(self) -> int:
        """The number of columns before the projection."""
        return sum(map(self._size, self.blocks))

    def labels(self, block: Block) -> tuple[str, ...]:
        """What each column of a block stands for."""
        of_context, of_action = _labels(self.context, block.context), _labels(self.action_fields, block.action)
        both = (SEPARATOR.join(part for part in (one, other) if part) for one in of_context for other in of_action)
        return tuple(label or INTERCEPT for label in both)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """What each column of a row stands for."""
        if self.projection is not None:
            return tuple(f"projected {number}" for number in range(self.dim))
        return tuple(label for block in self.blocks for label in self.labels(block))

    @cached_property
    def action_fields(self) -> Frozen[Field]:
        """The fields of an action; its name is one of them if actions are named."""
        named = {ACTION: Category(self.actions, other=False)} if self.actions else {}
        return Frozen({**self.features, **named})

    # -- how well rows are used -------------------------------------------------------------------------------------

    def columns_of(self, name: str) -> int:
        """The number of columns before the projection in which a field takes part."""
        return sum(self._size(block) for block in self.blocks if name in block)

    def mean_square(self, block: Block) -> float:
        """The mean share of a block's squared length that is filled, for values spread evenly over their ranges."""
        of_context = self.context[block.context].mean_square if block.context else 1.0
        return of_context * (self.action_fields[block.action].mean_square if block.action else 1.0)

    @cached_property
    def filled(self) -> float:
        """The mean squared length of a row, for values spread evenly over their ranges."""
        return math.fsum(self.shares[block.name] * self.mean_square(block) for block in self.blocks)

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What is probably a mistake: rows that waste most of their length, fields that change no choice."""
        return (*self._wasteful(), *self._idle())

    def without(self, name: str) -> Schema:
        """The schema without one field and everything that the field takes part in."""
        if name not in self.context and name not in self.features:
            raise ArgumentError("field", f"must be one of the schema's, got {name!r}")
        gone = {block.name for block in self.blocks if name in block}
        return replace(
            self,
            context={key: field for key, field in self.context.items() if key != name},
            features={key: field for key, field in self.features.items() if key != name},
            interactions=tuple(pair for pair in self._products if name not in pair),
            baseline=tuple(one for one in self.baseline if one != name),
            weights={key: weight for key, weight in self.weights.items() if key not in gone},
        )

    def _repr_html_(self) -> str:
        rows = [(name, self._size(block), f"{self.shares[name]:.0%}") for block in self.blocks for name in [block.name]]
        title = f"Schema: d = {self.dim}, {self.filled:.0%} of a row's squared length filled by values spread evenly"
        return _words.tabled(("block", "columns", "share of a row"), rows, title) + _words.listed(self.warnings)

    # -- as data ----------------------------------------------------------------------------------------------------

    def as_dict(self) -> dict[str, Any]:
        """The schema as plain data; `from_dict` reads it back. Without a projection, its entry is left out."""
        data: dict[str, Any] = {
            "context": {name: field_as_dict(field) for name, field in self.context.items()},
            "features": {name: field_as_dict(field) for name, field in self.features.items()},
            "actions": list(self.actions),
            "interactions": [list(pair) for pair in self._products],
            "baseline": list(self.baseline),
            "intercept": self.intercept,
            "weights": dict(self.weights),
        }
        return data if self.projection is None else {**data, "projection": self.projection.as_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Schema:
        """The schema that `as_dict` or a person wrote; unknown names are refused."""
        _validate.known_keys("schema", data, cls.__dataclass_fields__)
        values = dict(data)
        for part in ("context", "features"):
            values[part] = _fields_from_dict(part, values.get(part, {}))
        if isinstance(values.get("projection"), Mapping):
            _validate.known_keys("projection", values["projection"], ("columns", "seed"), required=("columns",))
            values["projection"] = Projection(**values["projection"])
        return cls(**values)

    # -- internals --------------------------------------------------------------------------------------------------

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @property
    def _products(self) -> Sequence[tuple[str, str]]:
        assert self.interactions is not None  # None becomes the default when a schema is made
        return self.interactions

    def _size(self, block: Block) -> int:
        """The number of columns of a block."""
        of_context = len(self.context[block.context].labels) if block.context else 1
        return of_context * (len(self.action_fields[block.action].labels) if block.action else 1)

    def _wasteful(self) -> tuple[str, ...]:
        if self.filled >= WASTEFUL:
            return ()
        empty = {block.name: self.shares[block.name] * (1 - self.mean_square(block)) for block in self.blocks}
        worst = max(empty, key=lambda name: empty[name])
        return (
            "rows waste most of their length: values spread evenly over their ranges fill "
            f"{self.filled:.0%} of a row's squared length, and {worst!r} leaves most of it empty. Its noise is as "
            "large as if it were filled: state narrower ranges, give numbers knots, or give other blocks more weight",
        )

    def _idle(self) -> tuple[str, ...]:
        used = {block.context for block in self.blocks if block.action}
        return tuple(
            f"{name!r} changes no choice: it takes part in no interaction with a field of an action"
            for name in self.context
            if name not in used
        )

    def _pairs(self) -> tuple[tuple[str, str], ...]:
        if self.interactions is None:
            return tuple((name, ACTION) for name in self.context) if self.actions else ()
        pairs = []
        for pair in self.interactions:
            if not (isinstance(pair, list | tuple) and len(pair) == 2 and all(isinstance(one, str) for one in pair)):
                raise ArgumentError("interactions", f"must be pairs of a context field and an action's, got {pair!r}")
            pairs.append((pair[0], pair[1]))
        if len(set(pairs)) != len(pairs):
            raise ArgumentError("interactions", "must differ from one another")
        return tuple(pairs)

    def _check_names(self) -> None:
        both = sorted(set(self.context) & set(self.features))
        if both:
            raise ArgumentError("features", f"must have other names than the fields of the context, got {both[0]!r}")
        for where, known, used in (
            ("baseline", self.context, self.baseline),
            ("interactions", self.context, [pair[0] for pair in self._products]),
            ("interactions", self.action_fields, [pair[1] for pair in self._products]),
        ):
            unknown = [name for name in used if name not in known]
            if unknown:
                expected = ", ".join(known) or "there are none"
                raise ArgumentError(where, f"must name fields of the schema ({expected}), got {unknown[0]!r}")

    def _weights(self) -> Frozen[float]:
        if not isinstance(self.weights, Mapping):
            raise ArgumentError("weights", f"must be a table of numbers by block, got {self.weights!r}")
        _validate.known_keys("weights", map(str, self.weights), [block.name for block in self.blocks])
        return Frozen({name: _validate.positive(f"weights.{name}", one) for name, one in self.weights.items()})

    def _check_size(self) -> None:
        if not self.blocks:
            raise ArgumentError("schema", "must have a block: named actions, features of actions, or an intercept")
        if self.width > MOST_COLUMNS:
            raise ArgumentError("schema", f"must have at most {MOST_COLUMNS:,} columns, got {self.width:,}")
        if self.projection is not None and self.projection.columns >= self.width:
            raise ArgumentError(
                "projection",
                f"must have fewer columns than the {self.width} it projects, got {self.projection.columns}",
            )
        if not all(math.isfinite(share) and share > 0 for share in self.shares.values()):
            raise ArgumentError("weights", "must be of comparable size: their shares overflow or vanish")


def _labels(fields: Mapping[str, Field], name: str) -> list[str]:
    """What the columns of a field stand for; a single "" if there is no field."""
    return [f"{name}{label}" for label in fields[name].labels] if name else [""]


def _fields(where: str, fields: Any) -> Frozen[Field]:
    if not isinstance(fields, Mapping):
        raise ArgumentError(where, f"must be a table of fields by name, got {fields!r}")
    _names(where, list(fields))
    for name, field in fields.items():
        if not isinstance(field, Field):
            raise ArgumentError(f"{where}.{name}", f"must be a Number, a Category or Hashed, got {field!r}")
        if name in (ACTION, INTERCEPT) or SEPARATOR in name:
            taken = f"{ACTION!r} and {INTERCEPT!r}, and not hold {SEPARATOR!r}"
            raise ArgumentError(where, f"must have other names than {taken}, got {name!r}")
    return Frozen(fields)


def _names(where: str, names: Any) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise ArgumentError(where, f"must be a list of names, got {names!r}")
    for name in names:
        if not (isinstance(name, str) and 0 < len(name) <= LONGEST_NAME):
            raise ArgumentError(where, f"must be names of 1 to {LONGEST_NAME} characters, got {str(name)[:200]!r}")
    if len(set(names)) != len(names):
        raise ArgumentError(where, "must differ from one another")
    return tuple(names)


def _fields_from_dict(where: str, data: Any) -> dict[str, Field]:
    if not isinstance(data, Mapping):
        raise ArgumentError(where, f"must be a table of fields by name, got {data!r}")
    fields = {}
    for name, one in data.items():
        try:
            fields[name] = field_from_dict(one)
        except ArgumentError as error:
            raise ArgumentError(f"{where}.{name}", str(error)) from None
    return fields
