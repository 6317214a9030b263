"""A report on a plan's schema: the rows it makes of records, and what each of its fields costs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fedbandit.cli import output
from fedbandit.plan import Plan
from fedbandit.planner.field_costs import field_costs, projection_costs

__all__ = ["schema_as_dict", "show_schema"]

COLUMNS = ["field", "columns", "share of a row", "rounds it costs"]


def schema_as_dict(plan: Plan) -> dict[str, Any]:
    """The report as plain data, under the name `schema`; empty for a plan without a schema."""
    if plan.schema is None:
        return {}
    report = {
        "dim": plan.schema.dim,
        "width": plan.schema.width,
        "columns": list(plan.schema.columns),
        "filled": plan.schema.filled,
        "warnings": list(plan.schema.warnings),
        "fields": [asdict(one) for one in field_costs(plan)],
        "projections": [asdict(one) for one in projection_costs(plan)],
    }
    return {"schema": report}


def show_schema(plan: Plan) -> None:
    """Print the report: fields, what they cost, warnings, and projections if the dimension is too large."""
    schema = plan.schema
    if schema is None:
        return
    rows = [[one.name, str(one.columns), f"{one.share:.0%}", output.number(one.rounds, 3)] for one in field_costs(plan)]
    projected = "" if schema.projection is None else f", projected from {schema.width}"
    output.print_table(f"schema: d = {schema.dim}{projected}", COLUMNS, rows)
    output.say(f"values spread evenly over their ranges fill {schema.filled:.0%} of a row's squared length")
    for warning in schema.warnings:
        output.say(f"warning: {warning}")
    smaller = projection_costs(plan)
    if smaller:
        sizes = ", ".join(f"{one.projection.columns} ({output.number(one.rounds, 3)} rounds lost)" for one in smaller)
        output.say(f"too many columns for the budget; a public projection to fewer may help: {sizes}")
    output.remark("rounds it costs: rounds of random play that leaving the field out would save, predicted under trust")
    output.remark(f"{plan.trust!r} ({plan.schedule}); only data can tell what the field is worth.")
