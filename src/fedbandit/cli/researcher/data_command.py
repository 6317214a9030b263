"""`fedbandit data`: what a data set holds, before it is used."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedbandit.cli import options, output

__all__ = ["data"]

data = typer.Typer(help="Look at data before using them.", add_completion=False, rich_markup_mode=None)


@data.callback()
def keep_name() -> None:
    """Keep `check` a subcommand: typer would merge a single command into its group."""


@data.command()
def check(
    path: Annotated[Path, typer.Argument(help="A LETOR file or folder of folds, or the warfarin CSV.")],
    json: options.Json = False,
    wide: options.Wide = False,
) -> None:
    """Read a data set and say what it holds; a bad line is reported by its number."""
    from fedbandit.simulator.data import describe

    found = describe(path)
    if json:
        output.print_json(found)
    else:
        output.print_table(str(path), ["what", "found"], [[key, _text(value)] for key, value in found.items()])


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_text(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
