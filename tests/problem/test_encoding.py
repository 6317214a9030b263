"""No record, however odd, gives a row longer than 1 or of another dimension; and all ways in give the same bits."""

from __future__ import annotations

import enum
import itertools
import json
from collections import Counter
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedbandit._validate import ArgumentError
from fedbandit.bandit.statistics import contributions
from fedbandit.federation.silo.decisions.actions import inside
from fedbandit.problem import Category, Hashed, Number, Projection, Schema
from fedbandit.problem.encoding import FEW, ActionRecord, Offered, RecordEncoder
from fedbandit.problem.fields import Field
from tests.problem.odd import FEATURES, NAMES, json_values, odd_values, records, schemas

SLOW = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
CLINIC = Schema(
    {"age": Number(0, 120, missing=True), "sex": Category(["f", "m"]), "code": Hashed(4)},
    {"dose": Number(0, 10, knots=3)},
    actions=("A", "B"),
    interactions=[("age", "action"), ("sex", "dose"), ("code", "action")],
    baseline=["age"],
    intercept=True,
)


def actions_of(ids: list[str], features: list[dict[str, Any]]) -> list[ActionRecord]:
    return [ActionRecord(one, record) for one, record in zip(ids, features, strict=False)]


@SLOW
@given(schemas(), st.data())
def test_no_record_gives_a_row_longer_than_one_or_of_another_dimension(schema: Schema, data: st.DataObject) -> None:
    encoder = RecordEncoder(schema)
    offered = data.draw(st.lists(records(FEATURES), min_size=1, max_size=FEW + 3))
    ids = data.draw(st.lists(st.sampled_from(["A", "B", "C", "other"]), min_size=len(offered), max_size=len(offered)))
    rows = encoder.rows(data.draw(records(NAMES)), actions_of(ids, offered)).rows
    assert rows.shape == (len(offered), schema.dim)
    assert rows.dtype == np.float64
    assert inside(rows).tobytes() == rows.tobytes()  # as computed, not only up to rounding


@SLOW
@given(schemas(), st.data())
def test_one_at_a_time_and_many_at_once_are_the_same_bits(schema: Schema, data: st.DataObject) -> None:
    encoder = RecordEncoder(schema)
    contexts = data.draw(st.lists(records(NAMES), min_size=1, max_size=4))
    offered = actions_of(["A", "B", "C", "other"] * 3, data.draw(st.lists(records(FEATURES), min_size=1, max_size=9)))
    by_field = {name: [one.get(name) for one in contexts] for name in schema.context}
    many = encoder.rows_of_many(by_field, len(contexts), offered)
    alone = [encoder.rows(one, offered) for one in contexts]
    assert many.rows.tobytes() == np.stack([one.rows for one in alone]).tobytes()
    in_contexts = sum((one.odd for one in alone), Counter())
    for name in schema.context:
        assert {k: v for k, v in many.odd.items() if k[0] == name} == {
            k: v for k, v in in_contexts.items() if k[0] == name
        }


@SLOW
@given(schemas(), st.data())
def test_the_compiled_way_makes_the_same_bits(schema: Schema, data: st.DataObject) -> None:
    """And counts the same oddities; records that are not odd take it, so half of them are not."""
    plain, quick, context = RecordEncoder(schema), RecordEncoder(schema), data.draw(records(NAMES))
    quick.quicken()
    drawn = st.one_of(records(FEATURES), usual_features(schema))
    offered = actions_of(["A", "B", "C", "other"] * 3, data.draw(st.lists(drawn, min_size=1, max_size=12)))
    here, there = plain.rows(context, offered), quick.rows(context, offered)
    assert here.rows.tobytes() == there.rows.tobytes()
    assert here.odd == there.odd


def usual_features(schema: Schema) -> st.SearchStrategy[dict[str, Any]]:
    """Values of which nothing is odd, so that the compiled way takes them."""
    kinds: dict[type, Any] = {
        Number: lambda field: st.floats(field.low, field.high),
        Category: lambda field: st.sampled_from(field.levels) if field.levels else st.none(),
        Hashed: lambda field: st.text(max_size=4),
    }
    return st.fixed_dictionaries({name: kinds[type(field)](field) for name, field in schema.features.items()})


def test_the_compiled_way_is_taken_where_nothing_is_odd() -> None:
    """It would be right, and slow, without."""
    fields: dict[str, Field] = {"dose": Number(-1, 3), "kind": Category(["x", "y"]), "maker": Hashed(5)}
    encoder = RecordEncoder(Schema({"age": Number(0, 9)}, features=fields, interactions=[("age", "kind")]))
    encoder.quicken()
    offered = Offered(["A", "B"], [{"dose": 2, "kind": "y", "maker": "m"}, {"dose": -1.0, "kind": "x", "maker": "n"}])
    scaled = np.linspace(-1, 1, encoder.schema.width)
    assert encoder._quickly(offered, scaled) is not None
    doses = [{"dose": value} for value in (4, "2", float("nan"), 10**400, None)]
    others: list[dict[str, Any]] = [{"kind": "z"}, {"kind": []}, {"maker": None}]
    for odd in (*doses, *others):
        changed = [{**offered.features[0], **odd}, offered.features[1]]
        assert encoder._quickly(Offered(["A", "B"], changed), scaled) is None


@SLOW
@given(schemas(), st.data())
def test_few_and_many_actions_are_the_same_bits(schema: Schema, data: st.DataObject) -> None:
    """Through a projection too, as far as one matrix product of another size allows: to the last digits."""
    encoder, context = RecordEncoder(schema), data.draw(records(NAMES))
    offered = actions_of(["A", "B", "C", "other"] * 3, data.draw(st.lists(records(FEATURES), min_size=9, max_size=9)))
    together = encoder.rows(context, offered)
    alone = [encoder.rows(context, [one]) for one in offered]
    found = np.concatenate([one.rows for one in alone])
    if schema.projection is None:
        assert found.tobytes() == together.rows.tobytes()
    else:
        np.testing.assert_allclose(found, together.rows, rtol=0, atol=1e-12)


@SLOW
@given(records(tuple(CLINIC.context), json_values), records(tuple(CLINIC.features), json_values))
def test_a_record_is_the_same_after_a_journey_as_json(context: dict[str, Any], features: dict[str, Any]) -> None:
    encoder = RecordEncoder(CLINIC)
    here = encoder.rows(context, [ActionRecord("A", features)])
    there = encoder.rows(json.loads(json.dumps(context)), [ActionRecord("A", json.loads(json.dumps(features)))])
    assert here.rows.tobytes() == there.rows.tobytes()
    assert here.odd == there.odd


@pytest.mark.parametrize("bits", [4, 20])
@pytest.mark.parametrize("projection", [None, Projection(7, seed=5)])
def test_the_longest_rows_stay_within_the_sensitivity_as_integers(bits: int, projection: Projection | None) -> None:
    """Every corner of the ranges at once, rewards at both ends: what `releasing` promises of a contribution."""
    schema = Schema.from_dict(CLINIC.as_dict() | ({} if projection is None else {"projection": projection.as_dict()}))
    encoder = RecordEncoder(schema)
    corners = itertools.product((0, 120, None), ("f", "m", "?"), map(str, range(12)), (0, 10, 5, None), ("A", "B"))
    rows = np.concatenate(
        [
            encoder.rows({"age": age, "sex": sex, "code": code}, [ActionRecord(name, {"dose": dose})]).rows
            for age, sex, code, dose, name in corners
        ]
    )
    assert inside(rows).tobytes() == rows.tobytes()
    longest = np.linalg.norm(rows, axis=1).max()
    assert longest > (0.999 if projection is None else 0.6)
    for reward in (0.0, 1.0):
        numbers = contributions(rows, np.full(len(rows), reward), bits).astype(object)
        bias, matrix = numbers[:, : schema.dim], numbers[:, schema.dim :]
        diagonal = np.array([i == j for i in range(schema.dim) for j in range(i, schema.dim)])
        frobenius = (matrix**2 * np.where(diagonal, 1, 2)).sum(axis=1)
        dim = schema.dim
        bound = (2.0**bits * np.sqrt(2.0) + np.sqrt(dim + dim**2) / 2) ** 2
        assert max((bias**2).sum(axis=1) + frobenius) <= bound


def test_a_planted_margin_of_nothing_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check above fails where weights are a little too large."""
    monkeypatch.setattr("fedbandit.problem.public_schema.MARGIN", -1e-9)
    schema = Schema({"age": Number(0, 120)}, actions=("A", "B"))
    rows = RecordEncoder(schema).rows({"age": 120}).rows
    assert inside(rows).tobytes() != rows.tobytes()


def test_a_row_by_hand() -> None:
    encoder = RecordEncoder(Schema({"age": Number(0, 100), "sex": Category(["f", "m"])}, actions=("A", "B")))
    rows = encoder.rows({"age": 75, "sex": "m"}).rows
    weight = 1 / np.sqrt(3)
    expected = {"action=A": weight, "age x action=A": 0.5 * weight, "sex=m x action=A": weight}
    assert dict(zip(encoder.schema.columns, rows[0], strict=True)) == pytest.approx(
        {name: expected.get(name, 0.0) for name in encoder.schema.columns}
    )
    assert rows[1][1] == pytest.approx(weight)


@pytest.mark.parametrize(
    ("field", "value", "filled", "odd"),
    [
        (Number(0, 10), 5, [0.0], None),
        (Number(0, 10), 0, [-1.0], None),
        (Number(0, 10), 11, [1.0], "clamped"),
        (Number(0, 10), -(10**400), [-1.0], "clamped"),
        (Number(0, 10), float("inf"), [1.0], "clamped"),
        (Number(0, 10), True, [-0.8], None),
        (Number(0, 10), None, [0.0], "missing"),
        (Number(0, 10), float("nan"), [0.0], "missing"),
        (Number(0, 10), "5", [0.0], "unknown"),
        (Number(0, 10, missing=True), None, [0.0, 1.0], "missing"),
        (Number(0, 10, missing=True), [], [0.0, 1.0], "unknown"),
        (Number(0, 10, knots=3), 2.5, [0.5, 0.5, 0.0], None),
        (Number(0, 10, knots=3), 10, [0.0, 0.0, 1.0], None),
        (Category(["a", "b"]), "b", [0.0, 1.0, 0.0], None),
        (Category(["a", "b"]), "c", [0.0, 0.0, 1.0], "unknown"),
        (Category(["a", "b"], other=False), "c", [0.0, 0.0], "unknown"),
        (Category(["a"], missing=True), None, [0.0, 0.0, 1.0], "missing"),
        (Category(["a"]), None, [0.0, 0.0], "missing"),
        (Category(["3", "true"]), 3.0, [1.0, 0.0, 0.0], None),
        (Category(cast(list[str], [3, True])), np.int64(3), [1.0, 0.0, 0.0], None),
        (Category(["3", "true"]), True, [0.0, 1.0, 0.0], None),
        (Category(["a"]), ["a"], [0.0, 1.0], "unknown"),
        (Hashed(1), "anything", [1.0], None),
        (Hashed(1), 12.5, [1.0], None),
        (Hashed(1, missing=True), None, [0.0, 1.0], "missing"),
        (Hashed(1), {}, [0.0], "unknown"),
    ],
    ids=str,
)
@pytest.mark.parametrize("times", [1, FEW + 1])
def test_what_a_value_fills(field: Field, value: Any, filled: list[float], odd: str | None, times: int) -> None:
    encoder = RecordEncoder(Schema(features={"it": field}, intercept=False))
    found = encoder.rows({}, [ActionRecord("", {"it": value})] * times)
    np.testing.assert_allclose(found.rows, [filled] * times, atol=1e-8)
    assert found.odd == ({("it", odd): times} if odd else {})


def test_hashes_are_the_same_everywhere() -> None:
    """Known answers: another hash would be another encoding under the same plan."""
    encoder = RecordEncoder(Schema(features={"code": Hashed(1000)}, intercept=False))
    found = {text: int(np.argmax(encoder.rows({}, [ActionRecord("", {"code": text})]).rows)) for text in VECTORS}
    assert found == VECTORS


VECTORS = {"J45": 747, "": 756, "Größe": 192, "\ud800": 914, "a" * 500: 674}


@pytest.mark.parametrize(
    ("context", "features", "message"),
    [
        (
            {"age": 130, "sex": "f", "code": "x"},
            {"dose": 1},
            "context.age must be a number from 0 to 120, but is out",
        ),
        ({"sex": "f", "code": "x"}, {"dose": 1}, "context.age must be a number from 0 to 120, but is missing"),
        ({"age": 1, "sex": "q", "code": "x"}, {"dose": 1}, "context.sex must be one of f, m, but is something else"),
        ({"age": 1, "sex": "f", "code": []}, {"dose": 1}, "context.code must be a text or a number"),
        ({"age": 1, "sex": "f", "code": "x"}, {"dose": "1"}, "features.dose must be a number"),
        ({"age": 1, "sex": "f", "code": "x", "z": 1}, {"dose": 1}, "context.z must be a field that the schema knows"),
        ({"age": 1, "sex": "f", "code": "x"}, {"dose": 1, "z": 1}, "features.z must be a field that the schema knows"),
    ],
)
def test_strictly_an_odd_record_is_an_error_that_names_the_field(
    context: dict[str, Any], features: dict[str, Any], message: str
) -> None:
    encoder = RecordEncoder(CLINIC)
    odd = encoder.rows(context, [ActionRecord("A", features)]).odd
    with pytest.raises(ArgumentError, match=f"^{message}"):
        encoder.refuse(odd, context, features)


def test_strictly_a_usual_record_is_none() -> None:
    encoder = RecordEncoder(CLINIC)
    context, features = {"age": 1, "sex": "f", "code": "x"}, {"dose": 1}
    encoder.refuse(encoder.rows(context, [ActionRecord("A", features)]).odd, context, features)


def test_without_named_actions_some_must_be_given() -> None:
    with pytest.raises(ArgumentError, match=r"^actions must be given: the schema names none$"):
        RecordEncoder(Schema(features={"dose": Number(0, 1)})).rows({})


@given(odd_values)
def test_an_odd_value_is_counted_or_used_and_never_an_error(value: Any) -> None:
    fields: tuple[Field, ...] = (Number(0, 1), Number(0, 1, knots=2, missing=True), Category(["yes"]), Hashed(3))
    for field in fields:
        encoder = RecordEncoder(Schema({"it": field}, actions=("A",)))
        found = encoder.rows({"it": value})
        assert np.abs(found.rows).sum() > 0 or found.odd


class Level(str, enum.Enum):  # noqa: UP042 - as applications have them
    NORMAL = "normal"


def test_one_value_has_one_encoding_however_it_comes() -> None:
    fields: dict[str, Field] = {
        "kind": Category(["normal", "odd"]),
        "code": Hashed(64),
        "when": Hashed(64, missing=True),
    }
    encoder, json_like = RecordEncoder(Schema(fields, actions=("a",))), {"kind": "normal", "code": 10**19, "when": None}
    wanted = encoder.rows(json_like).rows.tobytes()
    for changed in ({"kind": Level.NORMAL}, {"code": 1e19}, {"when": pd.NaT}, {"when": np.datetime64("NaT")}):
        assert encoder.rows({**json_like, **changed}).rows.tobytes() == wanted, changed
    assert encoder.rows({**json_like, "code": 10**18}).rows.tobytes() != wanted
