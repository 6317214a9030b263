"""What a schema says of itself, and what it refuses."""

from __future__ import annotations

import copy
import pickle
import tomllib
from typing import Any

import pytest
from hypothesis import given, settings

from fedbandit import problem
from fedbandit._validate import ArgumentError
from fedbandit.problem import Projection, Schema
from fedbandit.problem.fields import field_from_dict
from tests.problem.odd import schemas

# What is wrong is wrong for the type checker too.
Number: Any = problem.Number
Category: Any = problem.Category
Hashed: Any = problem.Hashed
Loose: Any = Schema

TOML = """
actions = ["low", "high"]
interactions = [["age", "action"], ["drug", "action"]]

[context.age]
type = "number"
low = 0
high = 120

[context.drug]
type = "hashed"
columns = 3

[features.price]
type = "category"
levels = ["cheap", "dear"]
other = false

[weights]
"age x action" = 2.0

[projection]
columns = 5
seed = 7
"""


@settings(max_examples=50, deadline=None)
@given(schemas())
def test_a_schema_is_the_same_after_any_journey(schema: Schema) -> None:
    assert Schema.from_dict(schema.as_dict()) == schema
    assert hash(Schema.from_dict(schema.as_dict())) == hash(schema)
    assert pickle.loads(pickle.dumps(schema)) == schema
    assert copy.deepcopy(schema) == schema
    assert len(schema.columns) == schema.dim
    assert len(set(schema.columns)) == schema.dim
    assert sum(schema.shares.values()) == pytest.approx(1)
    assert 0 <= schema.filled <= 1 + 1e-12


def test_from_toml() -> None:
    schema = Schema.from_dict(tomllib.loads(TOML))
    assert schema.actions == ("low", "high")
    assert schema.projection == Projection(5, 7)
    assert schema.width == 2 + 2 + 2 + 6
    assert schema.dim == 5
    assert schema.shares["age x action"] == pytest.approx(2 / 5)


def test_the_order_of_names_does_not_matter() -> None:
    one = Schema({"a": Number(0, 1), "b": Hashed(2)}, actions=("x",))
    other = Schema({"b": Hashed(2), "a": Number(0, 1)}, actions=("x",))
    assert one == other
    assert one.columns == other.columns


def test_every_column_has_a_name() -> None:
    schema = Schema(
        {"age": Number(0, 120, missing=True), "sex": Category(["f"])},
        {"dose": Number(1, 3, knots=2), "code": Hashed(2)},
        interactions=[("age", "dose")],
        baseline=["sex"],
    )
    assert schema.columns == (
        "intercept",
        "sex=f",
        "sex is another",
        "code#0",
        "code#1",
        "dose@1",
        "dose@3",
        "age x dose@1",
        "age x dose@3",
        "age is missing x dose@1",
        "age is missing x dose@3",
    )
    assert schema.columns_of("dose") == 6
    assert schema.columns_of("age") == 4
    assert schema.without("dose").columns == ("intercept", "sex=f", "sex is another", "code#0", "code#1")


def test_the_least_there_is() -> None:
    assert Schema().columns == ("intercept",)
    with pytest.raises(ArgumentError, match=r"^schema must have a block: named actions, features of ac"):
        Schema(intercept=False)


def test_named_actions_make_up_for_a_constant() -> None:
    assert Schema(actions=("a", "b")).intercept is False
    assert Schema(features={"x": Number(0, 1)}).intercept is True


def test_rows_that_waste_most_of_their_length_are_warned_of() -> None:
    numbers = {name: Number(0, 1) for name in "abcde"}
    (warning,) = Schema(numbers, actions=("x", "y")).warnings
    assert warning.startswith("rows waste most of their length: values spread evenly over their ranges fill 44%")
    knotted = {name: Number(0, 1, knots=2) for name in "abcde"}
    assert Schema(knotted, actions=("x", "y")).warnings == ()


def test_fields_that_change_no_choice_are_warned_of() -> None:
    schema = Schema({"age": Category(["old"])}, {"dose": Category(["1"])}, baseline=["age"])
    assert schema.warnings == ("'age' changes no choice: it takes part in no interaction with a field of an action",)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: Number(1, 1), "high must be a finite distance above low, 1.0, got 1.0"),
        (lambda: Number(-1e308, 1e308), "high must be a finite distance above low"),
        (lambda: Number(0, float("nan")), "high must be a finite number, stated by people who know it"),
        (lambda: Number("?", 1), "low must be a finite number, stated by people who know it, got '?'"),
        (lambda: Number(0, 10**400), "high must be a finite number"),
        (lambda: Number(0, 1, knots=1), "knots must be a whole number >= 2, got 1"),
        (lambda: Number(0, 1, missing=1), "missing must be true or false, got 1"),
        (lambda: Number(0, 1, knots=10**6), "knots must give at most 16384 columns, got 1000000"),
        (lambda: Category("ab"), "levels must be a list of values, got 'ab'"),
        (lambda: Category(["a", "a"]), "levels must differ"),
        (lambda: Category([3, "3"]), "levels must differ; numbers and truth values count as their texts"),
        (lambda: Category([[]]), "levels must be texts of at most 100 characters"),
        (lambda: Category([], other=False), "levels must hold at least one level"),
        (lambda: Hashed(0), "columns must be a whole number >= 1, got 0"),
        (lambda: Loose({"age": 3}), "context.age must be a Number, a Category or Hashed, got 3"),
        (lambda: Loose({"action": Hashed(2)}), "context must have other names than 'action' and 'intercept'"),
        (lambda: Loose({"a x b": Hashed(2)}), "context must have other names"),
        (lambda: Loose({"a": Hashed(2)}, {"a": Hashed(2)}), "features must have other names than the fields of the"),
        (lambda: Loose(actions=("a", "a")), "actions must differ from one another"),
        (lambda: Loose(actions="ab"), "actions must be a list of names, got 'ab'"),
        (lambda: Loose(actions=("",)), "actions must be names of 1 to 100 characters, got ''"),
        (
            lambda: Loose({"a": Hashed(2)}, interactions=[("a", "action")]),
            "interactions must name fields of the schema",
        ),
        (lambda: Loose({"a": Hashed(2)}, actions=("x",), interactions=["a"]), "interactions must be pairs"),
        (lambda: Loose({"a": Hashed(2)}, baseline=["b"]), r"baseline must name fields of the schema \(a\), got 'b'"),
        (lambda: Loose(actions=("x",), intercept=1), "intercept must be true or false, got 1"),
        (lambda: Loose(actions=("x",), intercept=False, weights={"y": 1}), "weights does not know 'y'"),
        (lambda: Loose(actions=("x",), weights={"action": 0}), "weights.action must be a finite number > 0, got 0"),
        (lambda: Loose(actions=("x",), weights=[]), "weights must be a table of numbers by block"),
        (
            lambda: Loose(actions=("x",), intercept=True, weights={"action": 5e-324, "intercept": 1e308}),
            "weights must be of comparable size",
        ),
        (lambda: Loose(actions=("x", "y"), projection=Projection(2)), "projection must have fewer columns than the 2"),
        (lambda: Loose(actions=("x", "y"), projection={"columns": 1}), "projection must be a Projection or None"),
        (
            lambda: Loose({"a": Hashed(9999)}, {"b": Hashed(9999)}, interactions=[("a", "b")]),
            "schema must have at most",
        ),
        (lambda: Schema.from_dict({"colour": 1}), "schema does not know 'colour'"),
        (lambda: Schema.from_dict({"context": {"age": {"type": "number", "low": 0}}}), "context.age field of type"),
        (lambda: Schema.from_dict({"context": {"age": {"type": "date"}}}), "context.age type must be one of number"),
        (lambda: Schema.from_dict({"context": [1]}), r"context must be a table of fields by name, got \[1\]"),
        (lambda: Schema.from_dict({"projection": {"rows": 3}}), "projection does not know 'rows'"),
        (lambda: field_from_dict(3), "field must be a table with a type, got 3"),
        (lambda: Loose(actions=("x",)).without("age"), "field must be one of the schema's, got 'age'"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(made: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=f"^{message}"):
        made()
