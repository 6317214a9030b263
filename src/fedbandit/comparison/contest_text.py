"""The tables of a comparison: a row per entrant and a column per instance, on a terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fedbandit.comparison.contest import Standing
from fedbandit.comparison.instances import NEEDS

__all__ = ["as_markdown", "markdown_row", "regret_columns", "regret_row", "syncs_row"]

ABSENT = "-"
WHOSE = ("trusts", "DP", "audit")


def regret_columns(instances: Sequence[str]) -> list[str]:
    """The head of the table of regrets."""
    return ["protocol", *WHOSE, *instances]


def regret_row(one: Standing, instances: Sequence[str], errors: bool = True) -> list[str]:
    """Who is trusted, whether it is as private as was asked for, what the audit says, and regret by instance."""
    private = "yes" if one.private else "no"
    return [one.name, one.trusts, private, one.verdict, *(_regret(one, at, errors) for at in instances)]


def syncs_row(one: Standing, instances: Sequence[str]) -> list[str]:
    """Synchronisations and regret by instance."""
    cells = (f"{one.syncs[at]:.0f}, {one.regret[at].mean:.3f}" if at in one.regret else ABSENT for at in instances)
    return [one.name, *cells]


def as_markdown(outcomes: Sequence[Standing], instances: Sequence[str], title: str) -> str:
    """Both tables, and who was left out of what and why."""
    named = [f"{name} (by path)" if name in NEEDS else name for name in instances]
    regret = [regret_row(one, instances) for one in outcomes]
    syncs = [syncs_row(one, instances) for one in outcomes]
    left_out = [f"- {one.name} is left out of {at}: {why}" for one in outcomes for at, why in one.left_out.items()]
    parts = [
        title,
        _markdown([regret_columns(named), *regret]),
        _markdown([["protocol", *(f"{name}: syncs, regret" for name in named)], *syncs]),
        *(["\n".join(left_out)] if left_out else []),
    ]
    return "\n\n".join(parts) + "\n"


def markdown_row(cells: Iterable[str]) -> str:
    """A row of a table in Markdown."""
    return f"| {' | '.join(cells)} |"


def _markdown(rows: list[list[str]]) -> str:
    head, *others = rows
    return "\n".join([markdown_row(head), f"|{'---|' * len(head)}", *map(markdown_row, others)])


def _regret(one: Standing, instance: str, errors: bool) -> str:
    if instance not in one.regret:
        return ABSENT
    mean, stderr = one.regret[instance]
    return f"{mean:.3f} ± {stderr:.3f}" if errors and stderr == stderr else f"{mean:.3f}"
