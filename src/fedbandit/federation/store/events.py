"""Events: decisions under ids that an application chose itself, from their making to their reward.

An event's row is kept for as long as rewards are waited for. Its decision id is forgotten once its reward is counted.
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
TIDY = 1000  # events between two looks for old ones


class Event(NamedTuple):
    """A decision that waits for its reward, or, where `decision` is "", has it. Unless it is `active`, nobody has seen
    the decision yet, and a reward that came early is held."""

    decision: str
    active: bool
    reward: float | None


class EventStore:
    """Events of one term, in the store of a silo; they are forgotten `window` seconds after they were made."""

    def __init__(self, engine: Engine, term: int, window: float) -> None:
        self._engine, self._term, self._window, self._made = engine, term, window, 0
        with engine.transaction() as sql:
            sql.all(EVENTS)
            sql.all("DELETE FROM events WHERE term < ?", (term,))

    def put(self, event: str, decision: str, active: bool, now: float) -> None:
        """Keep a decision under an id; one that was kept under it before is replaced. Not forced to the disk: what a
        crash of the machine takes away is an event whose reward will be unknown, as if nobody had decided."""
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
        """Note the reward of an event that is not active yet, the first one for good; the event as it is then."""
        where = (self._term, _key(event))
        with self._engine.transaction() as sql:
            sql.all(
                "UPDATE events SET reward = coalesce(reward, ?) WHERE active = 0 AND term = ? AND event = ?",
                (reward, *where),
            )
            return _found(sql, *where)

    def activate(self, event: str) -> Event | None:
        """The decision was seen: its reward counts from now on, and one that is held should be counted."""
        where = (self._term, _key(event))
        with self._engine.transaction() as sql:
            sql.all("UPDATE events SET active = 1 WHERE term = ? AND event = ?", where)
            return _found(sql, *where)

    def done(self, event: str) -> None:
        """The reward is counted, for good and elsewhere."""
        with self._engine.transaction(durable=False) as sql:
            sql.all(
                "UPDATE events SET decision = '', reward = NULL WHERE term = ? AND event = ?", (self._term, _key(event))
            )


def _found(sql: Sql, term: int, event: str) -> Event | None:
    rows = sql.all("SELECT decision, active, reward FROM events WHERE term = ? AND event = ?", (term, event))
    return Event(rows[0][0], bool(rows[0][1]), rows[0][2]) if rows else None


def _key(event: str) -> str:
    """Ids are the application's and may say something about a person: only their hash is kept."""
    return sha256(event.encode(errors="surrogatepass")).hexdigest()
