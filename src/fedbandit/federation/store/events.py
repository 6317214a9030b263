"""Events: decisions under ids that the application chose itself, from the decision to its reward.

The row of an event is kept for as long as its reward may come. Its decision id is deleted once the reward is counted.
"""

from __future__ import annotations

from hashlib import sha256
from typing import NamedTuple

from fedbandit.federation.store.database import Engine, Sql

__all__ = ["EVENTS", "Event", "EventStore"]

EVENTS = """
CREATE TABLE IF NOT EXISTS events (term BIGINT NOT NULL, event TEXT NOT NULL, decision TEXT NOT NULL,
    active BIGINT NOT NULL, reward DOUBLE PRECISION, made DOUBLE PRECISION NOT NULL, PRIMARY KEY (term, event))
"""
TIDY = 1000  # new events between two deletions of old ones


class Event(NamedTuple):
    """A decision that waits for its reward, or already has it (then `decision` is ""). Until the event is `active`,
    nobody has seen the decision, and a reward that comes early is held back."""

    decision: str
    active: bool
    reward: float | None


class EventStore:
    """The events of one term, in the store of a silo; they are deleted `window` seconds after they were made."""

    def __init__(self, engine: Engine, term: int, window: float) -> None:
        self._engine, self._term, self._window, self._made = engine, term, window, 0
        with engine.transaction() as sql:
            sql.lock("terms")  # two workers that create a table at a time can fail
            sql.all(EVENTS)
            sql.all("DELETE FROM events WHERE term < ?", (term,))

    def put(self, event: str, decision: str, active: bool, now: float) -> None:
        """Keep a decision under an id, in place of an earlier one under the same id. It is not forced to the disk: if a
        crash of the machine loses the event, its reward will be unknown, as if nobody had decided."""
        values = (self._term, _key(event), decision, int(active), now)
        with self._engine.transaction(durable=False) as sql:
            sql.all(
                "INSERT INTO events (term, event, decision, active, made) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT (term, event) DO UPDATE SET decision = excluded.decision, active = excluded.active,"
                " made = excluded.made, reward = NULL",
                values,
            )
            if self._made % TIDY == 0:
                sql.all("DELETE FROM events WHERE made < ?", (now - self._window,))
            self._made += 1

    def hold(self, event: str, reward: float) -> Event | None:
        """Note the reward of an event that is not active yet; the first one stays. Returns the event after that."""
        where = (self._term, _key(event))
        with self._engine.transaction() as sql:
            sql.all(
                "UPDATE events SET reward = coalesce(reward, ?) WHERE active = 0 AND term = ? AND event = ?",
                (reward, *where),
            )
            return _found(sql, *where)

    def activate(self, event: str) -> Event | None:
        """Note that the decision was seen: its reward counts from now on, and one that is held should be counted."""
        where = (self._term, _key(event))
        with self._engine.transaction() as sql:
            sql.all("UPDATE events SET active = 1 WHERE term = ? AND event = ?", where)
            return _found(sql, *where)

    def done(self, event: str, decision: str) -> None:
        """Note that the reward of this decision is counted, durably and elsewhere. If another decision was made under
        the id of the event meanwhile, that one still waits for its reward."""
        counted = "UPDATE events SET decision = '', reward = NULL WHERE term = ? AND event = ? AND decision = ?"
        with self._engine.transaction(durable=False) as sql:
            sql.all(counted, (self._term, _key(event), decision))


def _found(sql: Sql, term: int, event: str) -> Event | None:
    rows = sql.all("SELECT decision, active, reward FROM events WHERE term = ? AND event = ?", (term, event))
    return Event(rows[0][0], bool(rows[0][1]), rows[0][2]) if rows else None


def _key(event: str) -> str:
    """The hash of an event's id. The application's ids may tell something about a person, so only this is kept."""
    return sha256(event.encode(errors="surrogatepass")).hexdigest()
