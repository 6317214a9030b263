"""`fedbandit new`: a starting schema for a table, with gaps for everything that only people may state."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedbandit._validate import ArgumentError
from fedbandit._words import counted
from fedbandit.cli import checks, output
from fedbandit.problem.fields import text_of

if TYPE_CHECKING:
    import polars as pl

__all__ = ["new", "proposed"]

MOST_LEVELS = 20  # distinct values up to which a column is proposed as a category
COMMON = 10  # rows that must have a level for it to be proposed: rarer ones may reveal a person
COLUMNS = 16  # of a field with an open vocabulary
MOSTLY = 0.5  # a column is numeric if at least this share of its values are numbers
UNSTATED = '"?"'  # not a number, so a schema that still holds one is refused
_NUMBER = f'type = "number"\nlow = {UNSTATED}  # the smallest possible value\nhigh = {UNSTATED}\n'
HEADER = """\
# A starting schema for {table}. It is public and part of the plan:
# everybody in the federation sees it.
# - State every range that is marked "?" from what is known of the field, not
#   from the data: a range read off the data reveals something about the people
#   in them. A schema that still holds a "?" is refused.
# - Levels are those that at least {common} rows of the table have. Keep the ones
#   that are public knowledge, as from a form or a code book. All others share
#   one column, unless you write `other = false`.
# - Leave out what does not matter, because every column costs:
#   `fedbandit plan --schema {file}` shows how much.
"""


def new(
    table: Annotated[Path, typer.Argument(help="A CSV or Parquet file with a header, one row per visit.")],
    action: Annotated[str | None, typer.Option(help="The column that holds the name of the action.")] = None,
    leave_out: Annotated[str, typer.Option(help="Columns to leave out (reward, silo, ids), separated by commas.")] = "",
    out: Annotated[Path, typer.Option(help="The file to write; it must not exist yet.")] = Path("schema.toml"),
) -> None:
    """Write a starting schema for a table: types and levels proposed, ranges left for you to state."""
    frame = _read(table)
    ignored = [name.strip() for name in leave_out.split(",") if name.strip()]
    for name in (*ignored, *([] if action is None else [action])):
        if name not in frame.columns:
            raise ArgumentError("column", f"must be one of the table's ({', '.join(frame.columns)}), got {name!r}")
    text = proposed(frame, action, ignored, table.name, out.name)
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ArgumentError("out", f"must not exist yet, got {str(out)!r}") from None
    except OSError as error:
        raise ArgumentError("out", f"must be a file that can be written, got {checks.reasoned(out, error)}") from None
    unstated = text.count(f"= {UNSTATED}")
    todo = f"; state the {counted(unstated, 'number')} marked {UNSTATED}" if unstated else ""
    output.say(f"written: {out}{todo}")


def proposed(frame: pl.DataFrame, action: str | None, ignored: list[str], table: str, file: str) -> str:
    """The text of the schema. It holds no number of the table, and no value that fewer than COMMON rows have."""
    parts = [HEADER.format(table=table, common=COMMON, file=file)]
    if action is not None:
        parts.append(f"actions = {_listed(_levels(frame[action]))}\n")
    else:
        parts.append('# actions = ["...", "..."]  # names of the actions, or describe them by [features.NAME] tables\n')
    for name in frame.columns:
        if name != action and name not in ignored:
            parts.append(_table(name, frame[name]))
    return "\n".join(parts)


def _table(name: str, column: pl.Series) -> str:
    """The field for a column, or a remark that says why it is left out."""
    import polars as pl

    known = column.drop_nulls()
    distinct = known.n_unique()
    missing = "missing = true  # some values are missing\n" if len(known) < len(column) else ""
    head = f"[context.{_key(name)}]\n"
    if distinct <= 1:
        return f"# {_key(name)} is the same in all rows: left out\n"
    if column.dtype.is_numeric() and distinct > 2:
        return f"{head}{_NUMBER}{missing}"
    if distinct <= MOST_LEVELS:
        return f'{head}type = "category"\nlevels = {_listed(_levels(column))}  # public knowledge?\n{missing}'
    if _numeric(known) >= MOSTLY:
        return f"{head}{_NUMBER}missing = true  # some values are not numbers\n"
    if column.dtype == pl.String and _numeric(known.str.replace(",", ".", literal=True)) >= MOSTLY:
        return f"# {_key(name)} holds numbers with a decimal comma: left out; write them with a point\n"
    if _dated(known):
        return (
            f"# {_key(name)} holds dates: left out; turn them into a number (an age, days since an event) or a season\n"
        )
    if distinct == len(column):
        return f"# {_key(name)} is different in every row, like a name or an id: left out\n"
    return f'{head}type = "hashed"\ncolumns = {COLUMNS}  # with more columns, fewer values share one\n{missing}'


def _levels(column: pl.Series) -> list[str]:
    """The common values as texts, in alphabetical order, which does not show how common each is."""
    import polars as pl

    counts = column.drop_nulls().value_counts()
    common = counts.filter(pl.col("count") >= COMMON)[column.name].to_list()
    return sorted(text for text in map(text_of, common) if text is not None)


def _numeric(known: pl.Series) -> float:
    """The share of texts that are numbers; 0 if any is padded with zeros, because those are codes."""
    import polars as pl

    from fedbandit.evaluation.reading import PADDED, numbers

    if known.dtype != pl.String or known.str.contains(PADDED).any():
        return 0.0
    return int(numbers(known).is_not_null().sum()) / max(1, len(known))


def _dated(known: pl.Series) -> bool:
    """Whether all values are dates or times."""
    import polars as pl

    from fedbandit.evaluation.reading import moments

    if known.dtype == pl.String:
        try:
            moments(known)
        except ArgumentError:
            return False
    return known.dtype.is_temporal() or known.dtype == pl.String


def _listed(levels: list[str]) -> str:
    return f"[{', '.join(_text(level) for level in levels)}]"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)


def _text(value: Any) -> str:
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007F")


def _read(path: Path) -> pl.DataFrame:
    from fedbandit.evaluation.reading import read_table

    frame = read_table(checks.readable("table", path))
    if frame.width == 0 or frame.height == 0:
        raise ArgumentError("table", f"must have a header and rows, {str(path)!r} has none")
    return frame
