"""Brings the tables of an earlier version to this one, in the transaction that opens the store.

A step is taken only if everything in the store stays true, above all what was spent. If it would not, the store is
refused with the reason, and nothing in it is changed. docs/upgrading.md has the policy.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from fedbandit._validate import ArgumentError
from fedbandit.federation.states import ReleaseState
from fedbandit.federation.store.schema import ADDED, EARLIER, FORMAT, TABLES
from fedbandit.federation.wire import messages, parcels
from fedbandit.plan import Plan

if TYPE_CHECKING:
    from fedbandit.federation.store.database import Sql

__all__ = ["format_of", "migrate"]

UNSENT = (ReleaseState.CLOSED, ReleaseState.DRAWN, ReleaseState.SEALED)
END_FIRST = "Let its term end with that version, keep the file, which says what was spent, and begin with a new store"


def format_of(sql: Sql) -> str | None:
    """The format of the tables; None if the store has none yet."""
    rows = sql.all("SELECT value FROM meta WHERE key = 'format'")
    return bytes(rows[0][0]).decode(errors="replace") if rows else None


def migrate(sql: Sql, statements: Sequence[str], found: Collection[str]) -> bool:
    """Bring the tables of an earlier format to this one; True if that was done, False if there was nothing to do.
    ArgumentError for a format that this version does not read, or cannot bring forward truthfully."""
    held = format_of(sql)
    if held is None or held == FORMAT:
        return False
    if held not in EARLIER:
        raise ArgumentError(
            "store",
            f"was written by a later version of fedbandit (format {held}); this version reads format {FORMAT}."
            " Install the version that wrote it",
        )
    if held in _REASONS:
        raise _refused(held, f"{_REASONS[held]}. {END_FIRST}")
    way = [str(number) for number in range(int(held), int(FORMAT))]
    added = {table for one in way for table in ADDED.get(one, ())}
    missing = sorted(set(TABLES) - added - set(found))
    if missing:
        raise ArgumentError("store", f"has lost {', '.join(missing)}: bring the store back, it is not begun anew")
    for statement in statements:  # they create only the tables that are missing
        sql.all(statement)
    for one in way:
        if one in _STEPS:
            _STEPS[one](sql)
    sql.all("UPDATE meta SET value = ? WHERE key = 'format'", (FORMAT.encode(),))
    return True


def _refused(held: str, why: str) -> ArgumentError:
    return ArgumentError(
        "store", f"was written by fedbandit {EARLIER[held]} (format {held}); this version has format {FORMAT}: {why}"
    )


def _from_3(sql: Sql) -> None:
    """From format 3 to format 4, which adds who has opted out and the silo's own sums (empty at first), and keeps
    cohorts as bits.

    This is possible only between terms: parties of that version use another format of messages, so in a running term
    nobody would read what this version sends, and nobody could read the sealed messages in the store.
    """
    if sql.all("SELECT 1 FROM meta WHERE key = 'plan'"):
        raise _refused(
            "3",
            "a mixer's or an analyzer's store is for one term, and the totals in this one are sealed for that version."
            " Let the term end with it; a new plan begins a new store",
        )
    terms = sql.all("SELECT term, plan, open_sync FROM terms ORDER BY term")
    if terms:
        number, plan, open_sync = terms[-1]
        marks = ", ".join("?" * len(UNSENT))
        states = [state.value for state in UNSENT]
        unsent = sql.all(f"SELECT 1 FROM releases WHERE term = ? AND state IN ({marks})", (number, *states))
        if unsent or open_sync < len(Plan.from_dict(json.loads(plan)).times):
            raise _refused(
                "3",
                "its term is running, and parties of that version do not read what this one sends. Let the term end"
                " with that version; the store can then be opened with this one, and the ledger goes on",
            )
    for term, sync, value in sql.all("SELECT term, sync, value FROM models"):
        prefix, cohort = messages.decode(bytes(value))
        encoded = parcels.Outcome(prefix, cohort).encode()
        sql.all("UPDATE models SET value = ? WHERE term = ? AND sync = ?", (encoded, term, sync))


def _from_5(sql: Sql) -> None:
    """From format 5 to format 6, which has the bytes of releases in a separate table. The old columns stay, empty."""
    sql.all(
        "INSERT INTO contents (term, sync, drawn, sent, sealed)"
        " SELECT term, sync, drawn, sent, sealed FROM releases WHERE drawn IS NOT NULL"
    )
    sql.all("UPDATE releases SET drawn = NULL, sent = NULL, sealed = NULL")


_STEPS: dict[str, Callable[[Sql], None]] = {  # by format: what the next format needs in addition to its new tables
    "3": _from_3,
    "5": _from_5,
}
_REASONS = {
    "1": "its ledger has other names under its hashes, so it could be read only by writing it anew",
    "2": "its ledger is not signed, and a signature made today would claim what nobody has seen",
}
