"""The memory of a mixer or an analyzer: what came in for the open rounds, and one result a round, for good."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from fedbandit.federation.states import ROUND, RoundEvent, RoundState, advance
from fedbandit.federation.store.engine import Engine, Row, Sql, recall, remember

FINAL = (RoundState.CLOSED, RoundState.SKIPPED, RoundState.PUBLISHED)


class StoredRound(NamedTuple):
    """A round: its cohort and its result, once it is closed."""

    step: int
    state: RoundState
    cohort: tuple[str, ...]
    value: bytes | None


class RoundStore:
    """Every method is one transaction, on disk when it returns."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def bind(self, plan_hash: str) -> None:
        """Tie this store to one plan for good; refuse it for another."""
        bound = self.remember("plan", plan_hash.encode()).decode()
        if bound != plan_hash:
            raise ValueError(f"plan hash must be {bound[:16]}, with which this store began, got {plan_hash[:16]}")

    def receive(self, arrived: Sequence[tuple[int, str, bytes]]) -> None:
        """Keep each sender's first message for a round (step, sender, value); for a closed round, nothing."""
        with self.engine.transaction() as sql:
            for step, sender, value in arrived:
                state = advance(ROUND, _state(sql, step), RoundEvent.RELEASE)
                if state is RoundState.COLLECTING:
                    sql.all(
                        "INSERT INTO inbox (step, sender, value) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                        (step, sender, value),
                    )
                    _set(sql, step, state)

    def last_begun(self) -> int:
        """The latest round for which something has come, -1 if there is none."""
        with self.engine.read() as sql:
            ((step,),) = sql.all("SELECT coalesce(max(step), -1) FROM rounds")
            return int(step)

    def senders(self, step: int) -> set[str]:
        """Who has sent something for a round."""
        with self.engine.read() as sql:
            return {sender for (sender,) in sql.all("SELECT sender FROM inbox WHERE step = ?", (step,))}

    def inbox(self, step: int) -> dict[str, bytes]:
        with self.engine.read() as sql:
            rows = sql.all("SELECT sender, value FROM inbox WHERE step = ? ORDER BY sender", (step,))
            return {sender: bytes(value) for sender, value in rows}

    def close(
        self, step: int, event: RoundEvent, cohort: Sequence[str], value: bytes, state: bytes | None = None
    ) -> None:
        """Fix the result of a round, with the decoder's state after it; what came in for it is deleted."""
        with self.engine.transaction() as sql:
            _set(sql, step, advance(ROUND, _state(sql, step), event), json.dumps(list(cohort)), value)
            sql.all("DELETE FROM inbox WHERE step <= ?", (step,))
            if state is not None:
                sql.all(
                    "INSERT INTO states (term, name, value) VALUES (0, 'decoder', ?)"
                    " ON CONFLICT (term, name) DO UPDATE SET value = excluded.value",
                    (state,),
                )

    def published(self, step: int) -> None:
        with self.engine.transaction(durable=False) as sql:
            _set(sql, step, advance(ROUND, _state(sql, step), RoundEvent.ACKNOWLEDGED))

    def next_step(self) -> int:
        """The first round without a result."""
        with self.engine.read() as sql:
            marks = ", ".join("?" * len(FINAL))
            query = f"SELECT coalesce(max(step), -1) FROM rounds WHERE state IN ({marks})"
            ((last,),) = sql.all(query, [state.value for state in FINAL])
            return int(last) + 1

    def rounds(self) -> list[StoredRound]:
        with self.engine.read() as sql:
            return [_round(row) for row in sql.all("SELECT step, state, cohort, value FROM rounds ORDER BY step")]

    def round(self, step: int) -> StoredRound:
        with self.engine.read() as sql:
            rows = sql.all("SELECT step, state, cohort, value FROM rounds WHERE step = ?", (step,))
            return _round(rows[0]) if rows else StoredRound(step, RoundState.WAITING, (), None)

    def unpublished(self) -> list[StoredRound]:
        """Rounds with a result that the broker has not acknowledged, oldest first."""
        return [r for r in self.rounds() if r.state in (RoundState.CLOSED, RoundState.SKIPPED)]

    def remember(self, key: str, value: bytes) -> bytes:
        """Keep a value for good; the one kept first is returned."""
        return remember(self.engine, key, value)

    def recall(self, key: str) -> bytes | None:
        return recall(self.engine, key)

    def decoder(self) -> bytes | None:
        with self.engine.read() as sql:
            rows = sql.all("SELECT value FROM states WHERE term = 0 AND name = 'decoder'")
            return bytes(rows[0][0]) if rows else None


def _round(row: Row) -> StoredRound:
    step, state, cohort, value = row
    return StoredRound(step, RoundState(state), tuple(json.loads(cohort)), None if value is None else bytes(value))


def _state(sql: Sql, step: int) -> RoundState:
    rows = sql.all("SELECT state FROM rounds WHERE step = ? FOR UPDATE", (step,))
    return RoundState(rows[0][0]) if rows else RoundState.WAITING


def _set(sql: Sql, step: int, state: RoundState, cohort: str = "[]", value: bytes | None = None) -> None:
    if value is None:
        sql.all(
            "INSERT INTO rounds (step, state, cohort) VALUES (?, ?, ?)"
            " ON CONFLICT (step) DO UPDATE SET state = excluded.state",
            (step, state.value, cohort),
        )
    else:
        sql.all(
            "INSERT INTO rounds (step, state, cohort, value) VALUES (?, ?, ?, ?) ON CONFLICT (step)"
            " DO UPDATE SET state = excluded.state, cohort = excluded.cohort, value = excluded.value",
            (step, state.value, cohort, value),
        )
