"""The memory of a mixer or an analyzer: messages for the open syncs, and one final result per sync."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import NamedTuple

from fedbandit._validate import ArgumentError
from fedbandit.federation.states import SYNC, SyncEvent, SyncState, advance
from fedbandit.federation.store import pruning
from fedbandit.federation.store.database import Engine, Row, Sql, put_state, recall, remember, state_of
from fedbandit.federation.wire.heads import NONE, Head

__all__ = ["StoredSync", "SyncStore"]

LACKS = "lacks "  # followed by a party's name
_SYNC = struct.Struct("<I")
_FINAL = [state.value for state in SyncState if state.final]


class StoredSync(NamedTuple):
    """A sync: its cohort and its result, once it is closed."""

    sync: int
    state: SyncState
    cohort: tuple[str, ...]
    value: bytes | None


class SyncStore:
    """Every method is one transaction, on disk when it returns."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def bind(self, plan_hash: str) -> None:
        """Tie this store to one plan for good; ArgumentError if it is tied to another."""
        bound = self.remember("plan", plan_hash.encode()).decode()
        if bound != plan_hash:
            raise ArgumentError("plan", f"must hash to {bound[:16]}, with which this store began, got {plan_hash[:16]}")

    def end(self, plan_hash: str) -> None:
        """Note that a term with this plan is over for this party."""
        self.remember(f"over {plan_hash}", b"over")

    def has_ended(self, plan_hash: str) -> bool:
        """Whether a term with this plan is over for this party."""
        return self.recall(f"over {plan_hash}") is not None

    def receive(self, arrived: Sequence[tuple[int, str, bytes]]) -> None:
        """Keep each sender's first message for a sync (sync, sender, value); keep nothing for a closed sync."""
        with self.engine.transaction() as sql:
            for sync, sender, value in arrived:
                state = advance(SYNC, _state(sql, sync), SyncEvent.RELEASE)
                if state is SyncState.COLLECTING:
                    sql.all(
                        "INSERT INTO inbox (sync, sender, value) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                        (sync, sender, value),
                    )
                    _set(sql, sync, state)

    def head(self, sync: int) -> Head:
        """This party's own head after a closed sync; `NONE` if there is no such sync."""
        with self.engine.read() as sql:
            kept = state_of(sql, 0, pruning.head_key(sync))
            return NONE if kept is None else Head.decode(kept)

    def senders_after(self, sync: int) -> set[str]:
        """The parties that have sent something for a later sync."""
        with self.engine.read() as sql:
            return {sender for (sender,) in sql.all("SELECT DISTINCT sender FROM inbox WHERE sync > ?", (sync,))}

    def senders(self, sync: int) -> set[str]:
        """The parties that have sent something for a sync."""
        with self.engine.read() as sql:
            return {sender for (sender,) in sql.all("SELECT sender FROM inbox WHERE sync = ?", (sync,))}

    def inbox(self, sync: int) -> dict[str, bytes]:
        with self.engine.read() as sql:
            rows = sql.all("SELECT sender, value FROM inbox WHERE sync = ? ORDER BY sender", (sync,))
            return {sender: bytes(value) for sender, value in rows}

    def close(
        self, sync: int, event: SyncEvent, cohort: Sequence[str], value: bytes, head: Head, state: bytes | None = None
    ) -> None:
        """Fix the result of a sync, with the head of the chain and the decoder's state after it; the messages for it
        are deleted."""
        with self.engine.transaction() as sql:
            _set(sql, sync, advance(SYNC, _state(sql, sync), event), json.dumps(list(cohort)), value)
            sql.all("DELETE FROM inbox WHERE sync <= ?", (sync,))
            put_state(sql, 0, pruning.head_key(sync), head.encode())
            if state is not None:
                put_state(sql, 0, "decoder", state)

    def give_up(self, head: Head, state: bytes | None = None) -> list[int]:
        """Continue after the sync with this head, which others have seen. Every sync up to it without a result here
        will never have one. `state` is the decoder's state after them. Returns the syncs that were given up."""
        given_up = list(range(self.next_sync(), head.length))
        with self.engine.transaction() as sql:
            for sync in given_up:
                _set(sql, sync, advance(SYNC, _state(sql, sync), SyncEvent.SEEN_ELSEWHERE))
            sql.all("DELETE FROM inbox WHERE sync < ?", (head.length,))
            put_state(sql, 0, pruning.head_key(head.length - 1), head.encode())
            if state is not None:
                put_state(sql, 0, "decoder", state)
        return given_up

    def published(self, sync: int) -> None:
        with self.engine.transaction(durable=False) as sql:
            _set(sql, sync, advance(SYNC, _state(sql, sync), SyncEvent.ACKNOWLEDGED))

    def prune(self, before: int) -> None:
        """In a run without an end, delete the syncs before this one, with their results and heads."""
        if before > 0:
            with self.engine.transaction(durable=False) as sql:
                pruning.prune_syncs(sql, before)

    def next_sync(self) -> int:
        """The first sync without a result."""
        with self.engine.read() as sql:
            return _last(sql, _FINAL) + 1

    def all(self) -> list[StoredSync]:
        """Every sync that has begun, in order."""
        with self.engine.read() as sql:
            return [_stored(row) for row in sql.all("SELECT sync, state, cohort, value FROM syncs ORDER BY sync")]

    def at(self, sync: int) -> StoredSync:
        """One sync, begun or not."""
        with self.engine.read() as sql:
            rows = sql.all("SELECT sync, state, cohort, value FROM syncs WHERE sync = ?", (sync,))
            return _stored(rows[0]) if rows else StoredSync(sync, SyncState.WAITING, (), None)

    def unpublished(self) -> list[StoredSync]:
        """The syncs whose result the broker has not acknowledged, oldest first. (Results are published in order.)"""
        with self.engine.read() as sql:
            query = "SELECT sync, state, cohort, value FROM syncs WHERE sync > ? ORDER BY sync"
            later = [_stored(row) for row in sql.all(query, (_last(sql, [SyncState.PUBLISHED.value]),))]
            return [sync for sync in later if sync.state in (SyncState.CLOSED, SyncState.SKIPPED)]

    def last_value(self) -> bytes | None:
        """The newest result in this store."""
        with self.engine.read() as sql:
            rows = sql.all("SELECT value FROM syncs WHERE value IS NOT NULL ORDER BY sync DESC LIMIT 1")
            return bytes(rows[0][0]) if rows else None

    def lack(self, party: str, sync: int | None) -> None:
        """Note the first sync whose result a party lacks; None once it was sent it."""
        with self.engine.transaction() as sql:
            if sync is None:
                sql.all("DELETE FROM states WHERE term = 0 AND name = ?", (LACKS + party,))
            else:
                put_state(sql, 0, LACKS + party, _SYNC.pack(sync))

    def lacking(self) -> dict[str, int]:
        """Who lacks a result, and the first sync of which it lacks it."""
        with self.engine.read() as sql:
            rows = sql.all("SELECT name, value FROM states WHERE term = 0 AND name LIKE ?", (f"{LACKS}%",))
            return {name.removeprefix(LACKS): int(_SYNC.unpack(bytes(value))[0]) for name, value in rows}

    def remember(self, key: str, value: bytes) -> bytes:
        """Keep a value under a key for good. Returns the value that was kept first."""
        return remember(self.engine, key, value)

    def complain(self, problem: str) -> None:
        """Keep why this party refuses to go on, for its status; an empty text says that it goes on."""
        with self.engine.transaction() as sql:
            put_state(sql, 0, "problem", problem.encode())

    def problem(self) -> str | None:
        """Why this party refuses to go on; None if it goes on."""
        with self.engine.read() as sql:
            kept = state_of(sql, 0, "problem")
            return None if kept is None else kept.decode() or None

    def recall(self, key: str) -> bytes | None:
        return recall(self.engine, key)

    def decoder(self) -> bytes | None:
        with self.engine.read() as sql:
            return state_of(sql, 0, "decoder")


def _last(sql: Sql, states: Sequence[str]) -> int:
    """The last sync in one of these states, or -1. The query searches from the end, so a long term costs no more."""
    marks = ", ".join("?" * len(states))
    rows = sql.all(f"SELECT sync FROM syncs WHERE state IN ({marks}) ORDER BY sync DESC LIMIT 1", states)
    return int(rows[0][0]) if rows else -1


def _stored(row: Row) -> StoredSync:
    sync, state, cohort, value = row
    return StoredSync(sync, SyncState(state), tuple(json.loads(cohort)), None if value is None else bytes(value))


def _state(sql: Sql, sync: int) -> SyncState:
    rows = sql.all("SELECT state FROM syncs WHERE sync = ? FOR UPDATE", (sync,))
    return SyncState(rows[0][0]) if rows else SyncState.WAITING


def _set(sql: Sql, sync: int, state: SyncState, cohort: str = "[]", value: bytes | None = None) -> None:
    if value is None:
        sql.all(
            "INSERT INTO syncs (sync, state, cohort) VALUES (?, ?, ?)"
            " ON CONFLICT (sync) DO UPDATE SET state = excluded.state",
            (sync, state.value, cohort),
        )
    else:
        sql.all(
            "INSERT INTO syncs (sync, state, cohort, value) VALUES (?, ?, ?, ?) ON CONFLICT (sync)"
            " DO UPDATE SET state = excluded.state, cohort = excluded.cohort, value = excluded.value",
            (sync, state.value, cohort, value),
        )
