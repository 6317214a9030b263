"""How a comparison is shown: a row per entrant and a column per instance, as text and in Markdown; and a picture with a
panel per instance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.ticker import LogLocator, NullFormatter

from fedbandit.comparison.contest import Standing
from fedbandit.comparison.instances import NEEDS
from fedbandit.look.colours import colours
from fedbandit.simulator.plot import save

__all__ = ["as_markdown", "draw_contest", "markdown_row", "regret_columns", "regret_row", "syncs_row"]

ABSENT = "-"
WHOSE = ("trusts", "DP", "audit")
MARKS = {  # by verdict: the mark, and what it means
    "holds": ("o", "circle: the audit holds"),
    "broken": ("x", "cross: it is broken"),
    "nothing claimed": ("s", "square: nothing is claimed"),
    "-": ("D", "diamond: nothing is sent"),
}


def regret_columns(instances: Sequence[str]) -> list[str]:
    """The head of the table of regrets."""
    return ["protocol", *WHOSE, *instances]


def regret_row(one: Standing, instances: Sequence[str], errors: bool = True) -> list[str]:
    """Who is trusted, whether it is as private as was asked for, what the audit says, and regret by instance."""
    private = "yes" if one.private else "no"
    return [one.name, one.trusts, private, one.verdict, *(_regret(one, at, errors) for at in instances)]


def syncs_row(one: Standing, instances: Sequence[str]) -> list[str]:
    """Syncs and regret by instance."""
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


def draw_contest(outcomes: Sequence[Standing], instances: Sequence[str], path: Path, title: str) -> None:
    """Draw regret in units of chance on a log axis, with two standard errors; a cross marks a broken protocol."""
    height = 1.4 + 0.24 * len(outcomes)
    figure, panels = plt.subplots(
        1,
        len(instances),
        figsize=(2.4 + 2.1 * len(instances), height),
        sharey=True,
        layout="constrained",
        squeeze=False,
    )
    painted = colours([outcome.name for outcome in outcomes])
    rows = {outcome.name: len(outcomes) - number for number, outcome in enumerate(outcomes)}
    for axes, instance in zip(panels[0], instances, strict=True):
        for outcome in outcomes:
            if instance not in outcome.regret:
                continue
            mean, stderr = outcome.regret[instance]
            axes.errorbar(
                mean,
                rows[outcome.name],
                xerr=2 * stderr if stderr == stderr else None,
                fmt=MARKS[outcome.verdict][0],
                color=painted[outcome.name],
                markersize=5,
                linewidth=1.2,
            )
        axes.axvline(1.0, color="#444444", linestyle=":", linewidth=1.0)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())  # minor labels would overlap
        axes.set_title(instance, fontsize=9)
        axes.grid(alpha=0.25)
    panels[0][0].set_yticks(list(rows.values()), list(rows), fontsize=8)
    there = {outcome.verdict for outcome in outcomes}
    key = "; ".join(meaning for verdict, (_, meaning) in MARKS.items() if verdict in there)
    figure.supxlabel(f"regret per user (1: an action at random)\n{key}", fontsize=9)
    figure.suptitle(title, fontsize=10)
    save(figure, path)


def _markdown(rows: list[list[str]]) -> str:
    head, *others = rows
    return "\n".join([markdown_row(head), f"|{'---|' * len(head)}", *map(markdown_row, others)])


def _regret(one: Standing, instance: str, errors: bool) -> str:
    if instance not in one.regret:
        return ABSENT
    mean, stderr = one.regret[instance]
    return f"{mean:.3f} ± {stderr:.3f}" if errors and stderr == stderr else f"{mean:.3f}"
