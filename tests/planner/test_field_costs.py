"""What fields of a schema are predicted to cost."""

from __future__ import annotations

import pytest

from fedbandit._validate import ArgumentError
from fedbandit.plan import Plan
from fedbandit.planner.field_costs import field_costs, projection_costs
from fedbandit.privacy.budget import Privacy
from fedbandit.problem import Category, Hashed, Number, Projection, Schema

SCHEMA = Schema({"age": Number(0, 120), "code": Hashed(16), "sex": Category(["f", "m"])}, actions=("A", "B", "C"))
PLAN = Plan(silos=12, rounds=5_000, schema=SCHEMA, privacy=Privacy(1.0, 1e-5), confidence="practical")


def test_columns_cost_most() -> None:
    costs = field_costs(PLAN)
    assert [one.name for one in costs] == ["code", "sex", "age"]
    assert [one.columns for one in costs] == [48, 9, 3]
    assert costs[0].rounds > 3 * costs[1].rounds > 0
    assert sum(one.share for one in costs) == pytest.approx(3 / 4)


def test_a_projection_is_offered_where_the_dimension_is_too_large_for_the_budget() -> None:
    assert projection_costs(PLAN.changed(rounds=1_000_000)) == ()
    offered = projection_costs(PLAN.changed(rounds=1_000))
    assert [one.projection.columns for one in offered] == sorted(
        (one.projection.columns for one in offered), reverse=True
    )
    assert all(one.rounds < 500 for one in offered)


def test_of_a_schema_with_one_field_all_is_its_cost() -> None:
    alone = PLAN.changed(schema=Schema(features={"age": Number(0, 1, knots=3)}, intercept=False))
    (cost,) = field_costs(alone)
    assert cost.rounds > 0


def test_through_a_projection_a_field_costs_no_columns() -> None:
    projected = Schema.from_dict({**SCHEMA.as_dict(), "projection": Projection(20).as_dict()})
    assert {one.rounds for one in field_costs(PLAN.changed(schema=projected))} == {0.0}


def test_without_a_schema_there_are_no_fields() -> None:
    with pytest.raises(ArgumentError, match=r"^schema must be part of the plan"):
        field_costs(PLAN.changed(schema=None))
