"""What each field of a schema costs: the predicted regret that leaving it out would save.

A field that matters earns more than it costs, but no formula can tell beforehand. A field that does not matter only
costs, and the columns of a product cost most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedbandit._validate import ArgumentError
from fedbandit.plan import Plan
from fedbandit.planner.prediction import predicted
from fedbandit.problem import Projection, Schema

__all__ = ["FieldCost", "ProjectionCost", "field_costs", "projection_costs"]

TOO_MUCH = 0.5  # share of the rounds: a plan that loses more of them learns too little
SHRUNK = (0.7, 0.5, 0.35, 0.25, 0.15, 0.1, 0.05)


@dataclass(frozen=True)
class FieldCost:
    """A field's columns, its share of a row, and the rounds of random play that leaving it out would save."""

    name: str
    columns: int
    share: float  # of a row's squared length
    rounds: float


@dataclass(frozen=True)
class ProjectionCost:
    """A projection, and the rounds of random play that the plan would then lose."""

    projection: Projection
    rounds: float


def field_costs(plan: Plan) -> tuple[FieldCost, ...]:
    """The cost of every field, the most expensive first."""
    schema, whole = _schema(plan), _lost(plan)
    costs = [_cost(plan, schema, name, whole) for name in (*schema.context, *schema.features)]
    return tuple(sorted(costs, key=lambda one: -one.rounds))


def projection_costs(plan: Plan) -> Sequence[ProjectionCost]:
    """Projections to fewer columns that save at least half of the loss, if the plan loses too much to its dimension.

    This is a sketch, to be tried in a simulation: it does not count what a projection blurs, nor that its rows are
    shorter.
    """
    schema, whole = _schema(plan), _lost(plan)
    if whole < TOO_MUCH * plan.in_visits().rounds:
        return ()
    sizes = sorted({round(share * schema.dim) for share in SHRUNK} - {0, 1, schema.dim}, reverse=True)
    found = [ProjectionCost(Projection(size), _lost(_projected(plan, schema, size))) for size in sizes]
    return [one for one in found if one.rounds < TOO_MUCH * whole]


def _cost(plan: Plan, schema: Schema, name: str, whole: float) -> FieldCost:
    share = sum(schema.shares[block.name] for block in schema.blocks if name in block)
    try:
        without = _lost(plan.changed(schema=schema.without(name)))
    except ArgumentError:  # without the field nothing is left, or no more columns than the projection has
        without = 0.0 if schema.projection is None else whole
    return FieldCost(name, schema.columns_of(name), share, whole - without)


def _lost(plan: Plan) -> float:
    if plan.dim < 2:  # with one column, the better action is known as soon as the sign of theta is
        return 0.0
    return predicted(plan.in_visits()).lost_rounds


def _projected(plan: Plan, schema: Schema, size: int) -> Plan:
    data = {**schema.as_dict(), "projection": {"columns": size, "seed": 0}}
    return plan.changed(schema=Schema.from_dict(data))


def _schema(plan: Plan) -> Schema:
    if plan.schema is None:
        raise ArgumentError("schema", "must be part of the plan: without one there are no fields")
    return plan.schema
