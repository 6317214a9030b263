"""What a party has seen of the others, and its question to them: how much they have seen of it."""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from typing import NamedTuple

from fedbandit.federation.store.database import Engine, Sql, put_state, state_of
from fedbandit.federation.wire.heads import NONE, Head

__all__ = ["EARLIER", "Seen", "SeenStore"]

_SYNCS = struct.Struct("<I")
EARLIER = "earlier"  # the scope of heads that were seen in earlier terms
_QUESTION, _ANSWER, _SEEN = "question", "answer ", "seen "


class Seen(NamedTuple):
    """How far a party has come, as far as was seen: the number of syncs under this plan, and its newest head."""

    syncs: int = 0
    head: Head = NONE


class SeenStore:
    """Stores the newest head of each party, and answers to this party's question. Every method is one transaction, on
    disk when it returns. Each plan has its own `scope`. Where the head of every place is kept, only those of the last
    `places` stay, or all of them if that is None. (The place of a head is its length.)"""

    def __init__(self, engine: Engine, scope: str, places: int | None = None) -> None:
        self._engine, self._scope, self._places = engine, scope, places

    def of(self, party: str) -> Seen:
        """The furthest that the party was seen to have come in this term, or else in an earlier one."""
        with self._engine.read() as sql:
            known = self._of(sql, party)
            if known.head != NONE or (found := state_of(sql, 0, f"{_SEEN}{EARLIER} {party}")) is None:
                return known
            return known._replace(head=Head.decode(found[_SYNCS.size :]))

    def heads(self) -> dict[str, Head]:
        """The newest head of each party of which one was seen, in this term or an earlier one."""
        with self._engine.read() as sql:
            rows = sql.all("SELECT name FROM states WHERE term = 0 AND name LIKE ?", (f"{_SEEN}%",))
        words = [str(name).removeprefix(_SEEN).split(" ") for (name,) in rows]
        parties = {rest[0] for scope, *rest in words if scope in (self._scope, EARLIER) and len(rest) == 1}
        found = {party: self.of(party).head for party in sorted(parties)}
        return {party: head for party, head in found.items() if head != NONE}

    def at(self, party: str, count: int) -> Head | None:
        """The party's head at this place; None if it was not kept."""
        with self._engine.read() as sql:
            found = state_of(sql, 0, self._place(party, count))
            return None if found is None else Head.decode(found)

    def note(self, sightings: Sequence[tuple[str, int, Head]], *, every: Collection[str] = ()) -> list[str]:
        """Keep the newest head of each party (party, syncs, head), and the head of every place for parties in `every`.

        Returns the parties that have told two stories: a head with the same place and another hash was known.
        """
        if not sightings:
            return []
        with self._engine.transaction() as sql:
            return self.note_within(sql, sightings, every=every)

    def note_within(
        self, sql: Sql, sightings: Sequence[tuple[str, int, Head]], *, every: Collection[str] = ()
    ) -> list[str]:
        """Do what `note` does, within a transaction that also writes other things."""
        return [party for party, syncs, head in sightings if self._told_two(sql, party, syncs, head, party in every)]

    def _told_two(self, sql: Sql, party: str, syncs: int, head: Head, every: bool) -> bool:
        known = self._of(sql, party)
        other = known.head if known.head.length == head.length else None
        if every and head.length:
            found = state_of(sql, 0, self._place(party, head.length))
            other = None if found is None else Head.decode(found)
            if found is None:
                put_state(sql, 0, self._place(party, head.length), head.encode())
                self._drop(sql, party, head.length)
        if other is not None and other.hash != head.hash:
            return True
        newer = head if head.length > known.head.length else known.head
        if syncs > known.syncs or newer is head:
            put_state(sql, 0, f"{_SEEN}{self._scope} {party}", _SYNCS.pack(max(syncs, known.syncs)) + newer.encode())
        return False

    def ask(self, question: bytes) -> None:
        """Begin to wait for answers to a new question; answers to earlier questions are deleted."""
        with self._engine.transaction() as sql:
            put_state(sql, 0, _QUESTION, question)
            sql.all("DELETE FROM states WHERE term = 0 AND name LIKE ?", (f"{_ANSWER}%",))

    def asked(self, question: bytes) -> bool:
        """Whether this is the question that was asked last."""
        with self._engine.read() as sql:
            return state_of(sql, 0, _QUESTION) == question

    def answered(self, question: bytes, party: str, answer: bytes) -> bool:
        """Keep an answer; False if it does not answer the question that was asked last."""
        with self._engine.transaction() as sql:
            if state_of(sql, 0, _QUESTION) != question:
                return False
            put_state(sql, 0, _ANSWER + party, answer)
            return True

    def answers(self, question: bytes | None = None) -> dict[str, bytes]:
        """The answers, by party, to the last question; none if `question` is given and is not the last one."""
        with self._engine.read() as sql:
            if question is not None and state_of(sql, 0, _QUESTION) != question:
                return {}
            rows = sql.all("SELECT name, value FROM states WHERE term = 0 AND name LIKE ?", (f"{_ANSWER}%",))
            return {name.removeprefix(_ANSWER): bytes(value) for name, value in rows}

    def _of(self, sql: Sql, party: str) -> Seen:
        found = state_of(sql, 0, f"{_SEEN}{self._scope} {party}")
        if found is None:
            return Seen()
        return Seen(_SYNCS.unpack(found[: _SYNCS.size])[0], Head.decode(found[_SYNCS.size :]))

    def _drop(self, sql: Sql, party: str, newest: int) -> None:
        """Delete the heads of places that are too old."""
        if self._places is None:
            return
        start = self._place(party, 0)[:-1]
        query = "SELECT name FROM states WHERE term = 0 AND substr(name, 1, ?) = ?"
        for (name,) in sql.all(query, (len(start), start)):
            if int(name.removeprefix(start)) <= newest - self._places:
                sql.all("DELETE FROM states WHERE term = 0 AND name = ?", (name,))

    def _place(self, party: str, count: int) -> str:
        return f"{_SEEN}{self._scope} {party} {count}"
