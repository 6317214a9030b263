"""What a party of a federation without an end deletes, so that its files do not grow.

It deletes the rows of syncs whose batches have no weight left in any release or model, and their ledger entries, which
later entries stand for. It keeps for good, by keyed hashes, who has counted how often and who has opted out: that grows
with people, not with syncs.
"""

from __future__ import annotations

import json
import math
import struct

from fedbandit.federation.states import ReleaseState
from fedbandit.federation.store import own_sums
from fedbandit.federation.store.database import Sql, put_state, state_of

__all__ = ["drawn", "forget_rewarded", "forgotten_before", "head_key", "holds_key", "prune_syncs", "prune_term"]

FORGOTTEN = "expired"  # the name of a state in the store
_TIME = struct.Struct("<d")


def prune_term(sql: Sql, term: int, before: int) -> None:
    """Delete all that a silo has of the syncs before this one, if all of them were drawn."""
    if drawn(sql, term) <= before:
        return
    _prune_ledger(sql, term, before)
    own_sums.prune(sql, term, before)
    for table in ("releases", "contents", "models", "raw_rows"):
        sql.all(f"DELETE FROM {table} WHERE term = ? AND sync < ?", (term, before))


def forget_rewarded(sql: Sql, term: int, before: float, known: int) -> int:
    """Forget which decisions were rewarded in batches closed before a time, if the last of these batches is after batch
    `known`. The time is kept, because nobody knows any more whether decisions from before it were rewarded; or that of
    the newest batch, if that is earlier, because the clock may be ahead. Returns the last such batch, or -1."""
    query = "SELECT sync FROM releases WHERE term = ? AND closed > 0 AND closed < ? ORDER BY sync DESC LIMIT 1"
    rows = sql.all(query, (term, before))
    last = int(rows[0][0]) if rows else -1
    if last > known:
        sql.all("DELETE FROM rewarded WHERE term = ? AND sync <= ?", (term, last))
        ((newest,),) = sql.all("SELECT max(closed) FROM releases WHERE term = ?", (term,))
        until = max(min(before, float(newest)), forgotten_before(sql, term))
        put_state(sql, term, FORGOTTEN, _TIME.pack(until))
    return last


def forgotten_before(sql: Sql, term: int) -> float:
    """The time that `forget_rewarded` has kept; minus infinity if there is none."""
    kept = state_of(sql, term, FORGOTTEN)
    return -math.inf if kept is None else float(_TIME.unpack(kept)[0])


def prune_syncs(sql: Sql, before: int) -> None:
    """Delete what a mixer or an analyzer has of the syncs before this one: results, heads, and what the mixer was told
    about them. One head more is kept: the oldest result that is left is sent with the head that it follows."""
    for (sync,) in sql.all("SELECT sync FROM syncs WHERE sync < ?", (before,)):
        sql.all("DELETE FROM states WHERE term = 0 AND name = ?", (head_key(sync - 1),))
        sql.all("DELETE FROM meta WHERE key = ?", (holds_key(sync),))
        sql.all("DELETE FROM syncs WHERE sync = ?", (sync,))


def drawn(sql: Sql, term: int) -> int:
    """How many releases of a term were drawn or given up, in order from the first, whether or not their rows stay."""
    query = "SELECT coalesce(max(sync) + 1, 0) FROM releases WHERE term = ? AND state <> ?"
    ((number,),) = sql.all(query, (term, ReleaseState.CLOSED.value))
    return int(number)


def head_key(sync: int) -> str:
    """The name under which the head after a sync is kept."""
    return f"head {sync}"


def holds_key(sync: int) -> str:
    """The key under which the mixer keeps what the analyzer says that it holds for a sync."""
    return f"holds {sync}"


def _prune_ledger(sql: Sql, term: int, before: int) -> None:
    """Delete the ledger entries of the term's releases before this one, except the first, which links to the term
    before. The entry of `before` itself also stays: it stands for the deleted ones."""
    gone, first = list[int](), True
    for number, text in sql.all("SELECT number, event FROM ledger ORDER BY number"):
        event = json.loads(text)
        if event["term"] != term or event["sync"] >= before:
            continue
        if not first:
            gone.append(int(number))
        first = False
    for number in gone:
        sql.all("DELETE FROM ledger WHERE number = ?", (number,))
