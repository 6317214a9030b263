"""Sums of all that a silo has seen of its people: they serve people whose data are not released, and stay in the silo.

Each part of the sums is one row: a batch that was released, or visits that are never released. The latter are separated
by the reason and, if the plan forgets, by the batch that was open when they came. A batch that is not released yet is
in the raw rows. A reward is added in the transaction that settles what becomes of it, so each is in the sums once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from fedbandit._arrays import Integers
from fedbandit.federation.states import DecisionState
from fedbandit.federation.store.database import Sql, put_state, state_of
from fedbandit.federation.store.rewards import NOWHERE, UNSHARED, CountedRow, Reward, Verdict, rows_of

__all__ = [
    "NO_SUMS",
    "Adding",
    "PartSums",
    "add",
    "keep",
    "kind_of",
    "parts",
    "prune",
    "pruned",
    "put",
    "sync_of",
    "waiting_rows",
]

Rows = Sequence[tuple[bytes, float]]  # features and reward
PRUNED = "visits of pruned sums"
_PART = {DecisionState.LEFT_OUT: NOWHERE, DecisionState.KEPT: UNSHARED}


class PartSums(NamedTuple):
    """Sums of some visits: how many, their squared rewards, and their packed contributions as int64 bytes."""

    visits: float  # a whole number, unless the sums are weighted by forgetting
    squares: float
    value: bytes

    @property
    def sums(self) -> Integers | int:
        """The packed contributions (width,), on the plan's grid; 0 if none are kept."""
        return np.frombuffer(self.value, dtype="<i8").astype(np.int64) if self.value else 0

    def plus(self, more: PartSums) -> PartSums:
        """The sums of both together."""
        value = np.asarray(self.sums + more.sums, dtype="<i8").tobytes() if self.value or more.value else b""
        return PartSums(self.visits + more.visits, self.squares + more.squares, value)


NO_SUMS = PartSums(0, 0.0, b"")
Adding = Callable[[Rows], PartSums]  # computes the sums of rows by the plan's rules


def keep(sql: Sql, term: int, judged: Sequence[tuple[Reward, Verdict]], adding: Adding, by_sync: bool = False) -> None:
    """Add rewards that are never released to their sums: to one sum per reason, or with `by_sync` to one per reason and
    open batch."""
    for state, kind in _PART.items():
        rows = [(reward.features, reward.reward) for reward, verdict in judged if verdict.state is state]
        if rows:
            sync = next(verdict.sync for _, verdict in judged if verdict.state is state) if by_sync else 0
            add(sql, term, _kept_part(kind, sync), adding(rows))


def _kept_part(kind: int, sync: int) -> int:
    """The part of visits that are never released: `kind` itself for the first batch, smaller numbers for later ones."""
    return kind - len(_PART) * sync


def kind_of(part: int) -> int:
    """The kind, NOWHERE or UNSHARED, of a part that is never released."""
    return NOWHERE - (NOWHERE - part) % len(_PART)


def sync_of(part: int) -> int:
    """The batch that was open when the visits of a part came."""
    return part if part >= 0 else (NOWHERE - part) // len(_PART)


def add(sql: Sql, term: int, part: int, more: PartSums) -> None:
    """Add to the sums of a part; the caller holds the lock of the term."""
    found = sql.all("SELECT visits, squares, value FROM own_sums WHERE term = ? AND part = ?", (term, part))
    put(sql, term, part, _sums(*found[0]).plus(more) if found else more)


def put(sql: Sql, term: int, part: int, sums: PartSums) -> None:
    """Write the sums of a part."""
    sql.all(
        "INSERT INTO own_sums (term, part, visits, squares, value) VALUES (?, ?, ?, ?, ?) ON CONFLICT (term, part)"
        " DO UPDATE SET visits = excluded.visits, squares = excluded.squares, value = excluded.value",
        (term, part, *sums),
    )


def parts(sql: Sql, term: int, after: int) -> dict[int, PartSums]:
    """The sums of a term, by part: one per released batch after this one, and those that are never released."""
    query = "SELECT part, visits, squares, value FROM own_sums WHERE term = ? AND (part < 0 OR part > ?) ORDER BY part"
    rows = sql.all(query, (term, after))
    return {int(part): _sums(*values) for part, *values in rows}


def prune(sql: Sql, term: int, before: int) -> None:
    """Delete the sums of visits from before a batch, but keep how many of these visits were never released."""
    gone = pruned(sql, term)
    for part, visits in sql.all("SELECT part, visits FROM own_sums WHERE term = ?", (term,)):
        if sync_of(int(part)) >= before:
            continue
        if part < 0:
            gone[kind_of(int(part))] = gone.get(kind_of(int(part)), 0) + int(visits)
        sql.all("DELETE FROM own_sums WHERE term = ? AND part = ?", (term, part))
    put_state(sql, term, PRUNED, json.dumps(gone).encode())


def pruned(sql: Sql, term: int) -> dict[int, int]:
    """The number of visits whose sums were deleted, by kind, NOWHERE or UNSHARED."""
    kept = state_of(sql, term, PRUNED)
    return {} if kept is None else {int(kind): visits for kind, visits in json.loads(kept).items()}


def waiting_rows(sql: Sql, term: int) -> list[CountedRow]:
    """The rows that count and are not in any sums yet, because their batches were not released."""
    query = (
        "SELECT DISTINCT sync FROM raw_rows WHERE term = ? AND sync NOT IN (SELECT part FROM own_sums WHERE term = ?)"
    )
    return [row for (sync,) in sql.all(query, (term, term)) for row in rows_of(sql, term, sync)]


def _sums(visits: int, squares: float, value: bytes) -> PartSums:
    return PartSums(int(visits), float(squares), bytes(value))
