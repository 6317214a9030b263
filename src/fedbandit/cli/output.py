"""What commands print: tables, or else only JSON, on standard output; progress and remarks on standard error."""

from __future__ import annotations

import json
import logging
import math
import re
import textwrap
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fedbandit._progress import bar_on
from fedbandit._validate import ArgumentError

__all__ = [
    "as_json",
    "called",
    "number",
    "print_json",
    "print_table",
    "progress_bar",
    "quiet",
    "remark",
    "say",
    "set_wide",
    "stdout",
    "wrapped",
    "writable_folder",
]

# Markup is off: brackets in a field's name, as in "weight [kg]", are just brackets.
stdout = Console(highlight=False, markup=False)  # as wide as the terminal, or 80 columns without one
stderr = Console(stderr=True, markup=False)
WIDE = 1000  # characters: more than any table needs
NAME = 30  # characters: names in the first column are not broken up to this length
GLUE = "\N{WORD JOINER}"  # in place of a space at which a line must not be broken


def set_wide(wide: bool) -> None:
    """Set whether tables may be as wide as they need from now on."""
    stdout.width = WIDE if wide else Console().width


def print_json(data: Any) -> None:
    """Print data as JSON; numbers that are not finite become null."""
    print(as_json(data))


def as_json(data: Any) -> str:
    """Data as indented JSON; numbers that are not finite become null."""
    return json.dumps(_finite(data), indent=2)


def print_table(
    title: str, columns: list[str], rows: list[list[str]], narrow: bool = False, wide: Collection[str] = ()
) -> None:
    """Print a table: the first column and texts are flush left, numbers flush right.

    A `narrow` table has no lines. The columns named in `wide` are left out if the table would not fit otherwise.
    """
    if wide and sum(_natural_widths(columns, rows)) > _room(columns, narrow):
        kept = [index for index, column in enumerate(columns) if column not in wide]
        fewer = [[row[index] for index in kept] for row in rows]
        _print_table(title, [columns[index] for index in kept], fewer, narrow)
        remark(f"--wide also shows: {', '.join(wide)}.")
    else:
        _print_table(title, columns, rows, narrow)


def _print_table(title: str, columns: list[str], rows: list[list[str]], narrow: bool) -> None:
    if title:
        stdout.print(title, style="table.title")  # not the table's own title, which breaks at the width of the table
    stdout.print(_table(columns, rows, narrow))


def _table(columns: list[str], rows: list[list[str]], narrow: bool) -> Table:
    table = Table(header_style="bold", show_header=any(columns))
    if narrow:
        table.box, table.pad_edge, table.collapse_padding = None, False, True
    widths = _widths(columns, rows, _room(columns, narrow))
    for index, column in enumerate(columns):
        numeric = index > 0 and all(_looks_numeric(row[index]) for row in rows)
        table.add_column(
            column, justify="right" if numeric else "left", overflow="fold", width=widths[index] if widths else None
        )
    for row in rows:
        table.add_row(*row)
    return table


def _widths(columns: list[str], rows: list[list[str]], room: int) -> list[int] | None:
    """The width of each column: what it needs, or less if there is no room.

    The widest columns shrink first, and no word or name is broken. None if that is impossible.
    """
    widths = _natural_widths(columns, rows)
    least = [max(len(word) for text in texts for word in text.split() or [""]) for texts in _texts(columns, rows)]
    names = max((len(row[0]) for row in rows), default=0)
    least[0] = max(least[0], names) if names <= NAME else least[0]
    if sum(least) > room:
        return None
    while sum(widths) > room:
        widest = max((width, index) for index, width in enumerate(widths) if width > least[index])[1]
        widths[widest] -= 1
    return widths


def _natural_widths(columns: list[str], rows: list[list[str]]) -> list[int]:
    return [max(len(line) for text in texts for line in text.splitlines() or [""]) for texts in _texts(columns, rows)]


def _texts(columns: list[str], rows: list[list[str]]) -> list[list[str]]:
    """The texts of each column, its heading first."""
    return [[column, *(row[index] for row in rows)] for index, column in enumerate(columns)]


def _room(columns: list[str], narrow: bool) -> int:
    """The characters in a line of the terminal that are left for text, after lines and gaps."""
    return stdout.width - (len(columns) - 1 if narrow else 3 * len(columns) + 1)


def say(text: str) -> None:
    """Print lines of the result: unchanged, or on a terminal wrapped to its width."""
    _print(stdout, text)


def called(role: str, name: str) -> str:
    """What to call a party: by its role and its name, or by one word if they are the same."""
    return role if role == name else f"{role} {name}"


def remark(text: str) -> None:
    """Print a remark on standard error."""
    _print(stderr, text)


def _print(console: Console, text: str) -> None:
    lines = [part for line in text.splitlines() for part in wrapped(line, console.width)]
    console.print("\n".join(lines) if console.is_terminal else text, highlight=False, soft_wrap=True)


def wrapped(line: str, width: int) -> list[str]:
    """The parts of a line that fit the width. Words and commands in backticks stay whole; list items are indented.

    >>> wrapped("  1. to end it, type `kill 17` here", 24)
    ['  1. to end it, type', '     `kill 17` here']
    """
    mark = re.match(r" *(?:(?:-|\d+\.) )?", line)
    assert mark is not None
    whole = re.sub(r"`[^`]*`", lambda command: command[0].replace(" ", GLUE), line)
    parts = textwrap.wrap(
        whole, width, subsequent_indent=" " * mark.end(), break_long_words=False, break_on_hyphens=False
    )
    return [part.replace(GLUE, " ") for part in parts] or [""]


def quiet() -> None:
    """Keep log lines off the terminal: a command that talks to other parties reports the outcome itself."""
    logging.getLogger().addHandler(logging.NullHandler())


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[float], None]]:
    """Show a bar with the time left on standard error; yield a function to call with the share that is done."""
    with bar_on(stderr) as bar:
        task = bar.add_task(what, total=1.0)
        yield lambda share: bar.update(task, completed=share)


def number(value: float | None, digits: int = 4) -> str:
    """A number as text for a table."""
    return "-" if value is None or math.isnan(value) else f"{value:,.{digits}g}" if abs(value) < 1e6 else f"{value:.2e}"


def writable_folder(path: Path) -> Path:
    """The folder, which is made if need be; an error if it cannot be written to."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / ".fedbandit-probe"
        probe.touch()
        probe.unlink()
    except OSError as error:
        reason = f"must be a folder that can be written, got {str(path)!r} ({error.strerror})"
        raise ArgumentError("out", reason) from None
    return path


def _looks_numeric(text: str) -> bool:
    return text in ("", "-") or text.replace(",", "").replace(".", "").lstrip("-").split("e")[0].isdigit()


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
