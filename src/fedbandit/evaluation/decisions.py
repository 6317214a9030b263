"""Past decisions as arrays: what was offered, what was played, with which probability, and the reward.

Sets of actions may differ in size, so they are stacked: the actions of decision i are the rows
offsets[i] .. offsets[i + 1] - 1 of every array that has one entry per action.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fedbandit._arrays import Flags, Floats, Indices, Integers
from fedbandit._validate import ArgumentError

__all__ = ["Decisions", "from_frame", "read_decisions"]


@dataclass(frozen=True)
class Decisions:
    """A log of decisions that all have a reward."""

    rows: Floats  # (actions of all decisions, dim)
    offsets: Integers  # (decisions + 1,)
    action: Integers  # (decisions,) index of the action that was played, within its set
    propensity: Floats  # (decisions,) probability of the action that was played; NaN where it is unknown
    reward: Floats  # (decisions,)
    names: Sequence[str] | None = None  # (actions of all decisions,)
    allowed: Flags | None = None  # (actions of all decisions,) None if all are allowed
    logged: Floats | None = None  # (actions of all decisions,) probabilities of the policy that played, if known
    model: Integers | None = None  # (decisions,) version of the model that decided
    suggested: Floats | None = None  # (actions of all decisions,) probabilities of the model's own policy
    own: Flags | None = None  # (decisions,) where the application chose and not the model; None if nowhere
    unrewarded: int = 0  # decisions that were left out because they have no reward

    def __post_init__(self) -> None:
        if not len(self.reward):
            raise ArgumentError("log", "must hold at least one decision with a reward, got none")
        sizes = np.diff(self.offsets)
        if not ((self.action >= 0) & (self.action < sizes)).all():
            raise ArgumentError("action", "must be an index into the actions of its decision")
        if not (np.isfinite(self.reward) & (self.reward >= 0) & (self.reward <= 1)).all():
            raise ArgumentError("reward", "must lie in [0, 1] in every decision of the log")
        known = self.propensity[~np.isnan(self.propensity)]
        if not ((known > 0) & (known <= 1)).all():
            raise ArgumentError("propensity", "must lie above 0 and up to 1 in every decision of the log")

    def __len__(self) -> int:
        return len(self.reward)

    @cached_property
    def sizes(self) -> Integers:
        """The number of actions of each decision, (decisions,)."""
        return np.diff(self.offsets)

    @cached_property
    def decision(self) -> Integers:
        """The decision that each action belongs to, (actions,)."""
        return np.repeat(np.arange(len(self)), self.sizes)

    @cached_property
    def played(self) -> Indices:
        """The places of the played actions among all actions, (decisions,)."""
        return np.asarray(self.offsets[:-1] + self.action, dtype=np.intp)

    @cached_property
    def open(self) -> Flags:
        """Which actions could be played, (actions,)."""
        return np.ones(len(self.rows), dtype=bool) if self.allowed is None else self.allowed

    def totals(self, values: Floats) -> Floats:
        """Sums over the actions of each decision: (actions,) to (decisions,)."""
        return np.asarray(np.add.reduceat(values, self.offsets[:-1]))


def read_decisions(path: str | Path) -> tuple[Decisions, pl.DataFrame | None]:
    """The decisions in a Parquet file, or in the folder of an exported silo's log, with its models if they are there.

    The file has the columns of `DecisionLog.frame`, at least `rows`, `action` and `reward`.
    """
    place = Path(path)
    folder = place if place.is_dir() else place.parent
    file = place / "decisions.parquet" if place.is_dir() else place
    models = folder / "models.parquet"
    return from_frame(_parquet(file, place)), _parquet(models, models) if models.exists() else None


def _parquet(file: Path, asked: Path) -> pl.DataFrame:
    """The frame in a file; errors name the path that the user `asked` for."""
    try:
        return pl.read_parquet(file)
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = str(error).splitlines()[0]
        raise ArgumentError(
            "log", f"must be a Parquet file or a folder with one, got {str(asked)!r} ({reason})"
        ) from None


def from_frame(frame: pl.DataFrame) -> Decisions:
    """Decisions from a table with the columns of a silo's log. Decisions without a reward are left out and counted."""
    missing = [name for name in NEEDED if name not in frame.columns]
    if missing:
        raise ArgumentError("log", f"must have the columns {', '.join(missing)}")
    for name in frame.columns:
        _check_kind(name, frame[name].dtype)
    rewarded = frame.with_columns(pl.col("reward").cast(pl.Float64).fill_nan(None)).filter(
        pl.col("reward").is_not_null()
    )
    for name in ("rows", "action"):
        if rewarded[name].null_count():
            raise ArgumentError(name, "must be known in every decision of the log, but is missing in some")
    sizes = rewarded["rows"].list.len().to_numpy().astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    own = _column(rewarded, "own", np.bool_, False)
    suggested = _flat(rewarded, "probabilities", offsets)
    return Decisions(
        rows=_rows(rewarded["rows"]),
        offsets=offsets,
        action=_column(rewarded, "action", np.int64, 0),
        propensity=_column(rewarded, "propensity", np.float64, np.nan),
        reward=_column(rewarded, "reward", np.float64, np.nan),
        names=_names(rewarded, sizes),
        allowed=_allowed(rewarded, offsets),
        logged=None if own.any() else suggested,
        model=_column(rewarded, "model", np.int64, 0) if "model" in rewarded.columns else None,
        suggested=suggested,
        own=own if own.any() else None,
        unrewarded=len(frame) - len(rewarded),
    )


def _check_kind(name: str, kind: pl.DataType) -> None:
    """Refuse a column of the log of a wrong type: a cast could silently change its values or make them null."""
    for names, words, holds in KINDS:
        if name in names and not (kind == pl.Null or holds(kind)):
            raise ArgumentError(name, f"must be {words} in every decision of the log, got a column of {kind}")


def _is_number(kind: pl.DataType) -> bool:
    return kind.is_numeric()


def _is_whole(kind: pl.DataType) -> bool:
    return kind.is_integer()


def _lists_of(holds: Callable[[pl.DataType], bool]) -> Callable[[pl.DataType], bool]:
    """A test for a type of lists whose values pass the test `holds`; empty lists pass too."""
    return lambda kind: isinstance(kind, pl.List) and (kind.inner == pl.Null or holds(kind.inner))  # type: ignore[arg-type]


NEEDED = ("rows", "action", "reward")
KINDS: tuple[tuple[tuple[str, ...], str, Callable[[pl.DataType], bool]], ...] = (
    (("rows",), "lists of lists of numbers", _lists_of(_lists_of(_is_number))),
    (("action", "model"), "a whole number", _is_whole),
    (("propensity",), "a number", _is_number),
    (("reward",), "a number", lambda kind: kind.is_numeric() or kind == pl.Boolean),
    (("own",), "true or false", lambda kind: kind == pl.Boolean),
    (("probabilities",), "a list of numbers", _lists_of(_is_number)),
    (("allowed",), "a list of whole numbers", _lists_of(_is_whole)),
    (("names",), "a list of texts", _lists_of(lambda kind: kind == pl.String)),
)


def _rows(column: pl.Series) -> Floats:
    """The stacked rows of all actions, (actions, dim)."""
    rows = column.explode().to_list() if len(column) else []
    if len({len(row) if row is not None else None for row in rows}) > 1:
        raise ArgumentError("rows", "must all have the same length in a log")
    found = np.array(rows, dtype=np.float64).reshape(len(rows), -1) if rows else np.zeros((0, 0))
    if not np.isfinite(found).all():
        raise ArgumentError("rows", "must hold finite numbers in every decision of the log")
    return found


def _names(frame: pl.DataFrame, sizes: Integers) -> list[str] | None:
    """The names of the actions, if all of them have one."""
    if "names" not in frame.columns or frame["names"].null_count():
        return None
    if not np.array_equal(frame["names"].list.len().to_numpy(), sizes):
        raise ArgumentError("names", "must be one per action in every decision of the log")
    return frame["names"].explode().to_list()


def _column(frame: pl.DataFrame, name: str, kind: Any, default: Any) -> Any:
    if name not in frame.columns:
        return np.full(len(frame), default, dtype=kind)
    return frame[name].fill_null(default).to_numpy().astype(kind)


def _flat(frame: pl.DataFrame, name: str, offsets: Integers) -> Floats | None:
    """A column of lists, stacked; None if the column or some of its lists are missing."""
    if name not in frame.columns or frame[name].null_count():
        return None
    flat = frame[name].explode().to_numpy().astype(np.float64)
    if len(flat) != offsets[-1]:
        raise ArgumentError(name, "must have one number per action in every decision of the log")
    return np.asarray(flat)


def _allowed(frame: pl.DataFrame, offsets: Integers) -> Flags | None:
    if "allowed" not in frame.columns or frame["allowed"].null_count() == len(frame):
        return None
    allowed = np.ones(offsets[-1], dtype=bool)
    for number, subset in enumerate(frame["allowed"].to_list()):
        if subset is not None:
            mine = allowed[offsets[number] : offsets[number + 1]]
            if not subset or not all(index is not None and 0 <= index < len(mine) for index in subset):
                raise ArgumentError("allowed", "must be indices into the actions of its decision, and not empty")
            mine[:] = False
            mine[subset] = True
    return allowed
