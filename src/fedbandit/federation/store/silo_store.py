"""A silo's memory: rewards in batches, releases with the budget they spend, models."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

from fedbandit._validate import ArgumentError
from fedbandit.federation.states import RELEASE, ReleaseEvent, ReleaseState, advance
from fedbandit.federation.store import own_sums, pruning
from fedbandit.federation.store.database import Engine, Row, Sql, put_state, recall, remember, state_of
from fedbandit.federation.store.own_sums import NO_SUMS, Adding, PartSums
from fedbandit.federation.store.rewards import (
    FOR_GOOD,
    CountedRow,
    Judge,
    Reward,
    RewardColumns,
    Verdict,
    apart,
    insert,
    known_among,
    last_counted,
    opt_out,
    room,
    rows_of,
    times_counted,
    times_seated,
    users_in,
)
from fedbandit.federation.wire.heads import NEWEST

__all__ = ["OWN_RELEASE", "LedgerRow", "SiloStore", "StoredRelease", "Term", "Wire", "last_spent"]


class Term(NamedTuple):
    """Where a term stands."""

    number: int
    plan_hash: str
    plan: str
    started: float
    open_sync: int
    decisions: int
    unkeyed: int
    seated: int


class Wire(NamedTuple):
    """A release as it is sent: the message, and its sealed bytes. They are fixed once; no others are ever sent."""

    sent: bytes
    sealed: bytes


class StoredRelease(NamedTuple):
    """A release in the store: what the protocol has `drawn`, the message that is `sent`, and its `sealed` bytes."""

    sync: int
    state: ReleaseState
    users: int
    drawn: bytes | None
    sent: bytes | None
    sealed: bytes | None


class LedgerRow(NamedTuple):
    number: int
    hash: str
    previous: str
    event: str
    signature: str  # in hex


class SiloStore:
    """Every method is one transaction, on disk when it returns."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._expired: dict[int, int] = {}  # by term: the last batch whose rewarded decisions were forgotten

    # -- terms ------------------------------------------------------------------------------------------------------

    def terms(self) -> list[Term]:
        with self.engine.read() as sql:
            return [Term(*row) for row in sql.all(f"SELECT {_TERM} FROM terms ORDER BY term")]

    def begin_term(self, plan_hash: str, plan: str, started: float) -> Term:
        """Start the next term. Of earlier terms, only the ledger stays, and which users must no longer count."""
        with self.engine.transaction() as sql:
            sql.lock("terms")
            rows = [Term(*row) for row in sql.all(f"SELECT {_TERM} FROM terms ORDER BY term")]
            if rows and rows[-1].plan_hash == plan_hash:  # another worker was faster
                return rows[-1]
            values = (len(rows) + 1, plan_hash, plan, started)
            sql.all(
                "INSERT INTO terms (term, plan_hash, plan, started, open_sync, decisions, unkeyed, seated)"
                " VALUES (?, ?, ?, ?, 0, 0, 0, 0)",
                values,
            )
            for table in (*_OF_PEOPLE, "rewarded"):  # ids of an earlier term are unknown now
                sql.all(f"DELETE FROM {table} WHERE term > ? AND term <= ?", (FOR_GOOD, len(rows)))
            return Term(*values, 0, 0, 0, 0)

    def term(self, number: int) -> Term:
        with self.engine.read() as sql:
            return _held(sql, number)()

    # -- rewards ----------------------------------------------------------------------------------------------------

    def seat(self, term: int, people: Sequence[bytes | None], cap: int, durable: bool) -> list[int | None]:
        """Number the next decisions of the term, from 1; None for a person who already has `cap` numbers."""
        with self.engine.transaction(durable) as sql:
            taken, times = _held(sql, term)().seated, times_seated(sql, term, people)
            numbers: list[int | None] = []
            for person in people:
                if person is not None and times.get(person, 0) >= cap:
                    numbers.append(None)
                    continue
                taken += 1
                numbers.append(taken)
                if person is not None:
                    times[person] = times.get(person, 0) + 1
            sql.all("UPDATE terms SET seated = ? WHERE term = ?", (taken, term))
            sql.many(
                "INSERT INTO seats (term, person, times) VALUES (?, ?, ?)"
                " ON CONFLICT (term, person) DO UPDATE SET times = excluded.times",
                [(term, person, times[person]) for person in {*people} if person is not None],
            )
            return numbers

    def count(
        self,
        term: int,
        rewards: Sequence[Reward],
        decisions: int = 0,
        unkeyed: int = 0,
        *,
        cap: int,
        syncs: int,
        apart: int = 0,
        sizes: Sequence[int] | None = None,
        durable: bool = True,
        adding: Adding = lambda rows: NO_SUMS._replace(visits=len(rows)),
        by_sync: bool = False,
    ) -> list[Verdict]:
        """Count the decisions made since the last call, and put rewards into their batches, each once.

        `cap` is how often one person may count, and `apart` how many syncs after the last time, at the soonest; `sizes`
        are those of the batches, where they are planned. A reward over the cap, too soon, or for a batch that is closed
        or full is `LEFT_OUT`. The reward of a decision that is not shared is `KEPT`. Both are added to the silo's own
        sums by `adding`, `by_sync` if the plan forgets. After the last of the `syncs` no batch is open: a first reward
        is then `EXPIRED`. Unless `durable`, nothing may be acknowledged before the engine's `harden`.
        """
        columns = RewardColumns.of(rewards)
        # Letting go is safe: a worker that sees these rewards answers only after a durable transaction of its own.
        with self.engine.transaction(durable, letting_go=True) as sql:
            held, known = _held(sql, term), known_among(sql, columns)
            judge = Judge(
                open_sync=held().open_sync,
                syncs=syncs,
                cap=cap,
                known=known,
                times=times_counted(sql, term, columns.people),
                apart=apart,
                last=last_counted(sql, term, columns.people) if apart else {},
                room={} if sizes is None else room(sql, term, columns.places, sizes),
            )
            verdicts = judge.judge_all(columns)
            insert(sql, term, judge)
            own_sums.keep(sql, term, judge.fresh, adding, by_sync)
            _count_decisions(sql, term, decisions, unkeyed)
            return verdicts

    def opt_out(
        self, term: int, people: Sequence[bytes], for_good: bool = False, without_place: Sequence[bytes] = ()
    ) -> None:
        """From now on, release no more data of these people in this term, nor in later ones if `for_good`. Those in
        `without_place` have said so in this term, whether or not they were out before."""
        with self.engine.transaction() as sql:
            _held(sql, term)()  # so that none of their rewards is being counted meanwhile
            opt_out(sql, FOR_GOOD if for_good else term, people)
            opt_out(sql, term, without_place)

    def opted_out(self, term: int) -> set[bytes]:
        """The people who have opted out of this term, and not only, some time, of all terms."""
        with self.engine.read() as sql:
            return {bytes(person) for (person,) in sql.all("SELECT person FROM opted_out WHERE term = ?", (term,))}

    def apart(self, term: int, cap: int) -> tuple[set[bytes], set[bytes]]:
        """The people whose data are no longer released in this term; and those of them who never count again."""
        with self.engine.read() as sql:
            return apart(sql, term, cap)

    def own(self, term: int, after: int = -1) -> tuple[dict[int, PartSums], list[CountedRow]]:
        """All that the silo keeps of its people: the sums by part, and the rows that are not in any sums yet. The sums
        of batches up to `after` are left out."""
        with self.engine.read() as sql:
            return own_sums.parts(sql, term, after), own_sums.waiting_rows(sql, term)

    def kept(self, term: int) -> dict[int, int]:
        """How many rewards are never released, by kind: NOWHERE for those left out (over the cap, too soon, too late),
        UNSHARED for those of people who opted out."""
        with self.engine.read() as sql:
            kept: dict[int, int] = {}
            for part, visits in sql.all("SELECT part, visits FROM own_sums WHERE term = ? AND part < 0", (term,)):
                kind = own_sums.kind_of(int(part))
                kept[kind] = kept.get(kind, 0) + int(visits)
            for kind, visits in own_sums.pruned(sql, term).items():
                kept[kind] = kept.get(kind, 0) + visits
            return kept

    def batch(self, term: int, sync: int) -> list[CountedRow]:
        """The raw rows of a batch: features and reward."""
        with self.engine.read() as sql:
            return list(rows_of(sql, term, sync))

    def people_before(self, term: int, sync: int, since: int = 0) -> int:
        """How many people count in the closed batches from `since` to just before this one."""
        with self.engine.read() as sql:
            query = "SELECT coalesce(sum(users), 0) FROM releases WHERE term = ? AND sync >= ? AND sync < ?"
            ((people,),) = sql.all(query, (term, since, sync))
            return int(people)

    # -- releases ---------------------------------------------------------------------------------------------------

    def tick(
        self, term: int, decisions: int, unkeyed: int, due: Callable[[int], int], *, at: float, clock: tuple[str, bytes]
    ) -> int:
        """Count decisions and close the batches that are due by the calendar (`due` maps places taken to ticks).

        Nothing enters a closed batch. `at` is the current time, kept with the batches that are closed; `clock` is the
        name and the value of a state to keep. Returns the sync that is open now.

        This does not wait for the disk. Drawing from a closed batch, or counting after it, does wait, and makes this
        durable too. If a crash loses this with nothing after it, the batch is open again, with the same rewards.
        """
        with self.engine.transaction(durable=False) as sql:
            _count_decisions(sql, term, decisions, unkeyed)
            put_state(sql, term, *clock)
            now = _held(sql, term)()
            return _close(sql, now, due(now.seated), at)

    def draw(
        self,
        term: int,
        sync: int,
        drawn: bytes,
        encoder: bytes,
        entry: LedgerRow | None,
        *,
        wire: Wire | None = None,
        keep_raw: bool = False,
        own: PartSums = NO_SUMS,
        own_release: bytes | None = None,
    ) -> None:
        """Store a release, its ledger entry and the encoder's state, together or not at all. A release that exists is
        never drawn again.

        With `wire`, the message and its sealed bytes are fixed in the same transaction. `own` are the sums of the
        batch, which the silo keeps when the raw rows are deleted; `own_release` is the state of its releases to itself.
        """
        with self.engine.transaction() as sql:
            _enter(sql, term, sync, ReleaseEvent.DRAW, drawn, encoder, entry)
            own_sums.put(sql, term, sync, own)
            _set_known(sql, term, OWN_RELEASE, own_release)
            if not keep_raw:
                sql.all("DELETE FROM raw_rows WHERE term = ? AND sync = ?", (term, sync))
            if sql.all("SELECT 1 FROM models WHERE term = ? AND sync = ?", (term, sync)):
                _advance(sql, term, sync, ReleaseEvent.OUTCOME_WITHOUT)  # the sync was over before the tick
            elif wire is not None:
                _seal(sql, term, sync, wire)

    def give_up(
        self,
        term: int,
        syncs: Sequence[int],
        nothing: bytes,
        encoder: bytes,
        entries: Sequence[LedgerRow],
        *,
        places: int,
        at: float,
        lost: bool,
        doubtful: bool = False,
        own_release: bytes | None = None,
    ) -> None:
        """Give up the releases that a lost store has drawn: enter an empty one for each, which is never sent, and what
        it spent.

        All are given up or none: a store that has given up only some would draw the others again. `encoder` is the
        state after the last of the `syncs`. `entries` has one ledger row per sync, or none at all. `places` is how many
        places of the term are taken, by whomever. `at` is the current time (a clock that is behind the last batch is
        not believed). If anything was `lost`, earlier decisions may have counted in those batches: `issuers` tells
        which are later. Are the rewards `doubtful` that this store has in later batches, they may have counted there,
        too, and are not released either."""
        with self.engine.transaction() as sql:
            now = _held(sql, term)()
            if lost:
                put_state(sql, term, FORWARDED, b"")  # and nobody has made a decision since
            _set_known(sql, term, OWN_RELEASE, own_release)
            sql.all("UPDATE terms SET seated = ? WHERE term = ? AND seated < ?", (places, term, places))
            ((latest,),) = sql.all("SELECT coalesce(max(closed), 0) FROM releases WHERE term = ?", (term,))
            _close(sql, now, max(syncs) + 1, max(at, float(latest)))
            rows: Sequence[LedgerRow | None] = entries or [None] * len(syncs)
            for sync, entry in zip(syncs, rows, strict=True):
                _enter(sql, term, sync, ReleaseEvent.SEEN_ELSEWHERE, nothing, encoder, entry)
                sql.all("DELETE FROM raw_rows WHERE term = ? AND sync = ?", (term, sync))
            if doubtful:
                sql.all("DELETE FROM raw_rows WHERE term = ? AND sync > ?", (term, max(syncs)))
                sql.all("UPDATE releases SET users = 0 WHERE term = ? AND sync > ?", (term, max(syncs)))

    def waiting(self, term: int, syncs: range) -> int:
        """The number of rewards that are in the batches of these syncs and not released."""
        query = "SELECT coalesce(sum(users), 0) FROM raw_rows WHERE term = ? AND sync >= ? AND sync < ?"
        with self.engine.read() as sql:
            ((rewards,),) = sql.all(query, (term, syncs.start, syncs.stop))
            return int(rewards)

    def issuers(self, term: int, new: bytes) -> frozenset[bytes] | None:
        """Who has made decisions since this store was last brought forward, with a `new` one; None if it never was."""
        if (found := self.state(term, FORWARDED)) is None:
            return None
        known = _issuers(found, len(new))
        if new not in known:
            with self.engine.transaction() as sql:
                _held(sql, term)()  # another worker may begin at the same time
                known = _issuers(state_of(sql, term, FORWARDED) or b"", len(new)) | {new}
                put_state(sql, term, FORWARDED, b"".join(sorted(known)))
        return known

    def expire(self, term: int, before: float) -> int:
        """Forget which decisions were rewarded in batches closed before a time: their ids are no longer accepted.
        Returns the last of those batches, or -1.

        A batch whose closing time is unknown (0) cannot be that last one.
        """
        with self.engine.transaction(durable=False) as sql:
            last = pruning.forget_rewarded(sql, term, before, self._expired.get(term, -1))
        self._expired[term] = max(last, self._expired.get(term, -1))
        return self._expired[term]

    def expired_before(self, term: int) -> float:
        """The time before which nobody knows which decisions were rewarded: rewards of earlier decisions are not
        accepted, whatever the clock says now."""
        with self.engine.read() as sql:
            return pruning.forgotten_before(sql, term)

    def prune(self, term: int, before: int) -> None:
        """In a term without an end, delete all that belongs to syncs before this one, except who has counted how often
        and who has opted out. Those syncs have no weight left in any release or model."""
        if before > 0:
            with self.engine.transaction(durable=False) as sql:
                pruning.prune_term(sql, term, before)

    def drawn(self, term: int) -> int:
        """How many releases of a term were drawn or given up, in order from the first."""
        with self.engine.read() as sql:
            return pruning.drawn(sql, term)

    def set_state(self, term: int, name: str, value: bytes) -> None:
        """Keep a value of the term under a name, in place of the last one."""
        with self.engine.transaction(durable=False) as sql:
            put_state(sql, term, name, value)

    def state(self, term: int, name: str) -> bytes | None:
        with self.engine.read() as sql:
            return state_of(sql, term, name)

    def seal(self, term: int, sync: int, wire: Wire) -> None:
        """Fix the bytes that are sent. A release that has become MISSED meanwhile, in another thread, stays so."""
        with self.engine.transaction() as sql:
            _seal(sql, term, sync, wire)

    def acknowledged(self, term: int, sync: int) -> None:
        """Note that the broker has the sealed bytes. If a crash loses the note, they are sent again, harmlessly."""
        with self.engine.transaction(durable=False) as sql:
            _advance(sql, term, sync, ReleaseEvent.ACKNOWLEDGED)

    def releases(self, term: int) -> list[StoredRelease]:
        with self.engine.read() as sql:
            query = f"{_RELEASE} WHERE releases.term = ? ORDER BY releases.sync"
            return [_release(row) for row in sql.all(query, (term,))]

    def in_state(self, term: int, state: ReleaseState) -> list[int]:
        """The syncs of the releases in a state, in order."""
        with self.engine.read() as sql:
            query = "SELECT sync FROM releases WHERE term = ? AND state = ? ORDER BY sync"
            return [int(sync) for (sync,) in sql.all(query, (term, state.value))]

    def release(self, term: int, sync: int) -> StoredRelease | None:
        with self.engine.read() as sql:
            rows = sql.all(f"{_RELEASE} WHERE releases.term = ? AND releases.sync = ?", (term, sync))
            return _release(rows[0]) if rows else None

    def closed(self, term: int, sync: int) -> bool:
        """Whether the batch of a sync is closed, even if its row was deleted since (`prune`)."""
        with self.engine.read() as sql:
            return bool(sql.all("SELECT 1 FROM terms WHERE term = ? AND open_sync > ?", (term, sync)))

    def encoder(self, term: int) -> bytes | None:
        return self.state(term, ENCODER)

    def last_spent(self) -> tuple[int, int] | None:
        """Term and sync of the last release that the ledger must have an entry of; None if there is none yet."""
        with self.engine.read() as sql:
            return last_spent(sql.all)

    def ledger(self) -> list[LedgerRow]:
        with self.engine.read() as sql:
            return [LedgerRow(*row) for row in sql.all(f"SELECT {_LEDGER} FROM ledger ORDER BY number")]

    def entry(self, term: int, sync: int) -> LedgerRow | None:
        """The ledger entry of a release of the last term. The ledger has one for each release that was drawn or given
        up, in order. None if the plan spends nothing."""
        drawn = "SELECT max(sync) + 1 FROM releases WHERE term = ? AND state <> ?"
        number = f"(SELECT max(number) FROM ledger) + 1 - ({drawn}) + ?"
        with self.engine.read() as sql:  # one statement: another worker may be drawing
            query = f"SELECT {_LEDGER} FROM ledger WHERE number = {number}"
            rows = sql.all(query, (term, ReleaseState.CLOSED.value, sync))
            return LedgerRow(*rows[0]) if rows else None

    def last_entry(self) -> LedgerRow | None:
        with self.engine.read() as sql:
            rows = sql.all(f"SELECT {_LEDGER} FROM ledger ORDER BY number DESC LIMIT 1")
            return LedgerRow(*rows[0]) if rows else None

    # -- models -----------------------------------------------------------------------------------------------------

    def outcome(
        self, term: int, sync: int, included: bool, model: bytes, also: Callable[[Sql], object] = lambda sql: None
    ) -> bool:
        """Store the outcome of a sync; False if a different outcome of the same sync is already stored. `also` is
        called in the same transaction."""
        with self.engine.transaction() as sql:
            also(sql)
            _held(sql, term)()  # two workers may take in the same outcome at the same time
            found = sql.all("SELECT value FROM models WHERE term = ? AND sync = ?", (term, sync))
            if found:
                return bytes(found[0][0]) == model
            sql.all("INSERT INTO models (term, sync, value) VALUES (?, ?, ?)", (term, sync, model))
            if _has_row(sql, term, sync):
                event = ReleaseEvent.OUTCOME_WITH if included else ReleaseEvent.OUTCOME_WITHOUT
                _advance(sql, term, sync, event)
            return True

    def no_outcome(self, term: int, sync: int) -> bool:
        """Note that the outcome of a sync is lost and never comes; returns whether a release is given up with it."""
        with self.engine.transaction() as sql:
            if not _has_row(sql, term, sync):
                return False
            return _advance(sql, term, sync, ReleaseEvent.NO_OUTCOME) is ReleaseState.GIVEN_UP

    def lacks(self, term: int) -> int | None:
        """The first sync, of the newest that were given up here, of which there is no model; None if there is none."""
        given_up = "FROM releases WHERE term = ? AND state = ?"
        query = (
            f"SELECT min(sync) {given_up} AND sync > (SELECT max(sync) {given_up}) - ?"
            " AND sync NOT IN (SELECT sync FROM models WHERE term = ?)"
        )
        of = (term, ReleaseState.GIVEN_UP.value)
        with self.engine.read() as sql:
            ((sync,),) = sql.all(query, (*of, *of, NEWEST, term))
            return None if sync is None else int(sync)

    def models(self, term: int, after: int = -1) -> list[tuple[int, bytes]]:
        """The outcomes of the syncs later than `after`, oldest first."""
        with self.engine.read() as sql:
            query = "SELECT sync, value FROM models WHERE term = ? AND sync > ? ORDER BY sync"
            return [(sync, bytes(value)) for sync, value in sql.all(query, (term, after))]

    # -- registered action sets and other values --------------------------------------------------------------------

    def register(self, name: str, value: bytes) -> None:
        """Keep an action set under a name; the set of a name never changes."""
        with self.engine.transaction() as sql:
            sql.all("INSERT INTO action_sets (name, value) VALUES (?, ?) ON CONFLICT DO NOTHING", (name, value))
            ((found,),) = sql.all("SELECT value FROM action_sets WHERE name = ?", (name,))
        if bytes(found) != value:
            raise ArgumentError(
                "name", f"{name!r} already has an action set with other features; register this one under a new name"
            )

    def action_sets(self) -> dict[str, bytes]:
        with self.engine.read() as sql:
            return {name: bytes(value) for name, value in sql.all("SELECT name, value FROM action_sets")}

    def remember(self, key: str, value: bytes) -> bytes:
        """Keep a value under a key for good. Returns the value that was kept first."""
        return remember(self.engine, key, value)

    def recall(self, key: str) -> bytes | None:
        return recall(self.engine, key)


ENCODER, FORWARDED, OWN_RELEASE = "encoder", "brought forward", "own releases"
_TERM = "term, plan_hash, plan, started, open_sync, decisions, unkeyed, seated"
_OF_PEOPLE = ("raw_rows", "participants", "last_counted", "seats", "opted_out", "own_sums")
_LEDGER = "number, hash, previous, event, signature"
_RELEASE = (
    "SELECT releases.sync, state, users, contents.drawn, contents.sent, contents.sealed FROM releases"
    " LEFT JOIN contents ON contents.term = releases.term AND contents.sync = releases.sync"
)


def last_spent(ask: Callable[[str], Sequence[Row]]) -> tuple[int, int] | None:
    """Term and sync of the last release that was drawn and has spent something, by a function that answers queries."""
    drawn = f"state NOT IN ('{ReleaseState.CLOSED.value}', '{ReleaseState.GIVEN_UP.value}')"
    for term, plan in ask("SELECT term, plan FROM terms ORDER BY term DESC"):
        ((sync,),) = ask(f"SELECT max(sync) FROM releases WHERE term = {int(term)} AND {drawn}")
        if sync is not None and json.loads(plan)["privacy"] is not None:
            return int(term), int(sync)
    return None


def _held(sql: Sql, number: int) -> Callable[[], Term]:
    """The term's row, locked: only the holder of the lock decides what enters the open batch."""
    rows = sql.later(f"SELECT {_TERM} FROM terms WHERE term = ? FOR UPDATE", (number,))

    def term() -> Term:
        for row in rows():
            return Term(*row)
        raise ArgumentError("term", f"must be one that was begun, got {number}")

    return term


def _close(sql: Sql, term: Term, open_sync: int, at: float) -> int:
    """Close the batches before `open_sync`; returns the sync that is open after that."""
    for sync in range(term.open_sync, open_sync):
        state = advance(RELEASE, ReleaseState.OPEN, ReleaseEvent.TICK)
        users = users_in(sql, term.number, sync)
        sql.all(
            "INSERT INTO releases (term, sync, state, users, closed) VALUES (?, ?, ?, ?, ?)",
            (term.number, sync, state.value, users, at),
        )
    if open_sync > term.open_sync:
        sql.all("UPDATE terms SET open_sync = ? WHERE term = ?", (open_sync, term.number))
    return max(term.open_sync, open_sync)


def _issuers(joined: bytes, size: int) -> frozenset[bytes]:
    """Issuers, each of so many bytes. (An earlier version kept a time there, of 8 bytes: that is nobody.)"""
    return frozenset(joined[at : at + size] for at in range(0, len(joined), size) if not len(joined) % size)


def _has_row(sql: Sql, term: int, sync: int) -> bool:
    """Whether the release of a sync has a row: its batch is closed, and the row was not deleted since (`prune`)."""
    return bool(sql.all("SELECT 1 FROM releases WHERE term = ? AND sync = ?", (term, sync)))


def _set_known(sql: Sql, term: int, name: str, value: bytes | None) -> None:
    if value is not None:
        put_state(sql, term, name, value)


def _count_decisions(sql: Sql, term: int, decisions: int, unkeyed: int) -> None:
    if decisions:
        sql.all(
            "UPDATE terms SET decisions = decisions + ?, unkeyed = unkeyed + ? WHERE term = ?",
            (decisions, unkeyed, term),
        )


def _release(row: Row) -> StoredRelease:
    sync, state, users, *blobs = row
    drawn, sent, sealed = (None if blob is None else bytes(blob) for blob in blobs)
    return StoredRelease(sync, ReleaseState(state), users, drawn, sent, sealed)


def _advance(sql: Sql, term: int, sync: int, event: ReleaseEvent) -> ReleaseState:
    rows = sql.all("SELECT state FROM releases WHERE term = ? AND sync = ? FOR UPDATE", (term, sync))
    state = advance(RELEASE, ReleaseState(rows[0][0]) if rows else ReleaseState.OPEN, event)
    sql.all("UPDATE releases SET state = ? WHERE term = ? AND sync = ?", (state.value, term, sync))
    return state


def _enter(
    sql: Sql, term: int, sync: int, event: ReleaseEvent, drawn: bytes, encoder: bytes, entry: LedgerRow | None
) -> None:
    """Store a release, the encoder's state after it, and its entry in the ledger."""
    _advance(sql, term, sync, event)
    sql.all("INSERT INTO contents (term, sync, drawn) VALUES (?, ?, ?)", (term, sync, drawn))
    put_state(sql, term, ENCODER, encoder)
    if entry is not None:
        sql.all(f"INSERT INTO ledger ({_LEDGER}) VALUES (?, ?, ?, ?, ?)", entry)


def _seal(sql: Sql, term: int, sync: int, wire: Wire) -> None:
    if _advance(sql, term, sync, ReleaseEvent.SEAL) is ReleaseState.SEALED:
        sql.all("UPDATE contents SET sent = ?, sealed = ? WHERE term = ? AND sync = ?", (*wire, term, sync))
