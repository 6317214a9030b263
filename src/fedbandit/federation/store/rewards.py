"""What becomes of the rewards of one transaction: each is counted once, recognised as a repeat, left out or kept.

Only a reward whose verdict is COUNTED becomes a `CountedRow`, and only those are ever released. The others are added to
sums that stay in the silo.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple, overload

from fedbandit.federation.states import DECISION, DecisionEvent, DecisionState, advance
from fedbandit.federation.store.database import Row, Sql

__all__ = [
    "FOR_GOOD",
    "NOWHERE",
    "OPEN_BATCH",
    "UNLIMITED",
    "UNSHARED",
    "CountedRow",
    "Judge",
    "Reward",
    "RewardColumns",
    "Verdict",
    "apart",
    "insert",
    "known_among",
    "last_counted",
    "opt_out",
    "opted_out",
    "room",
    "rows_of",
    "runs",
    "times_counted",
    "times_seated",
    "users_in",
    "users_waiting",
]

UNLIMITED = 2**62
OPEN_BATCH, NOWHERE, UNSHARED = -1, -2, -3  # places of a decision that are not a planned batch
FOR_GOOD = 0  # stands for all terms, which are numbered from 1: people out of "term 0" are out of every term
_REWARD = struct.Struct("<d")
STRETCH = 512  # decisions in one row of `rewarded`, at most: whoever looks for one of them reads the whole row
VALUES = 30_000  # in one query, at most: PostgreSQL takes 65,535, and SQLite as few as 32,766
_REWARDED = "SELECT nonce, state, sync, digest FROM rewarded"
_BEFORE, _NEAREST = "SELECT nonce FROM rewarded WHERE nonce <=", " ORDER BY nonce DESC LIMIT 1"
Known = tuple[DecisionState, int, bytes]


class Reward(NamedTuple):
    """A reward as it is stored. `digest` tells a repeated reward from a different one after the raw row is deleted;
    `place` is the batch that its decision belongs to."""

    nonce: bytes
    person: bytes | None
    features: bytes
    reward: float
    digest: bytes
    place: int = OPEN_BATCH


@dataclass(frozen=True)
class RewardColumns(Sequence[Reward]):
    """Rewards as columns, one per field. With many rewards, a step over whole columns takes a fraction of the time of a
    step per reward."""

    nonces: Sequence[bytes]
    people: Sequence[bytes | None]
    features: Sequence[bytes]
    values: Sequence[float]
    digests: Sequence[bytes]
    places: Sequence[int]

    @classmethod
    def of(cls, rewards: Sequence[Reward]) -> RewardColumns:
        """These rewards, as columns."""
        if isinstance(rewards, RewardColumns):
            return rewards
        return cls(*zip(*rewards, strict=True)) if rewards else cls((), (), (), (), (), ())

    def __len__(self) -> int:
        return len(self.nonces)

    @overload
    def __getitem__(self, at: int) -> Reward: ...

    @overload
    def __getitem__(self, at: slice) -> RewardColumns: ...

    def __getitem__(self, at: int | slice) -> Reward | RewardColumns:
        if isinstance(at, slice):
            return RewardColumns(*(column[at] for column in self._columns))
        return Reward(*(column[at] for column in self._columns))

    def __iter__(self) -> Iterator[Reward]:
        return map(Reward._make, zip(*self._columns, strict=True))

    @property
    def _columns(self) -> tuple[Sequence[Any], ...]:
        return self.nonces, self.people, self.features, self.values, self.digests, self.places


class CountedRow(NamedTuple):
    """What a batch holds of a person who counts. Such rows are read from the store's batches, and from nowhere else."""

    features: bytes
    reward: float


class Verdict(NamedTuple):
    """What became of a reward: the state of its decision, the batch it counts in, whether the same or a different
    reward had come before, and whether the person has now counted as often as allowed."""

    state: DecisionState
    sync: int
    repeated: bool
    conflict: bool
    last: bool = False

    @property
    def stays(self) -> bool:
        """Whether the reward came for the first time, and is never released."""
        return not self.repeated and not self.conflict and self.state in (DecisionState.LEFT_OUT, DecisionState.KEPT)


def runs(verdicts: Sequence[Verdict]) -> Iterator[tuple[Verdict, slice]]:
    """The runs of equal verdicts: each verdict, and the slice of consecutive rewards that have it."""
    if verdicts and verdicts.count(verdicts[0]) == len(verdicts):  # usually all are equal
        yield verdicts[0], slice(0, len(verdicts))
        return
    at = 0
    for verdict, group in groupby(verdicts):
        end = at + len(list(group))
        yield verdict, slice(at, end)
        at = end


def known_among(sql: Sql, rewards: RewardColumns) -> dict[bytes, Known]:
    """The decisions among these that already have a reward."""
    if not rewards:
        return {}
    # Ids that were issued together are neighbours: usually the only row found is the one before the first of them.
    first, last = min(rewards.nonces), max(rewards.nonces)
    between = f"{_REWARDED} WHERE nonce >= coalesce(({_BEFORE} ?{_NEAREST}), ?) AND nonce <= ? ORDER BY nonce LIMIT ?"
    rows = sql.all(between, (first, first, last, len(rewards) + 1))
    if len(rows) > len(rewards):  # the limit was reached, so there may be more
        rows = _rows_before(sql, rewards.nonces)
    return _found(rows, rewards) if rows else {}


def _rows_before(sql: Sql, nonces: Sequence[bytes]) -> list[Row]:
    """The last row of `rewarded` up to each of these nonces, each once and in order."""
    found = set[Row]()
    for part in _parts(nonces):
        marks = ", ".join(["(?)"] * len(part))
        before = f"SELECT ({_BEFORE} asked.column1{_NEAREST}) FROM (VALUES {marks}) AS asked"
        found.update(map(tuple, sql.all(f"{_REWARDED} WHERE nonce IN ({before})", part)))
    return sorted(found)


def _found(rows: Sequence[Row], rewards: RewardColumns) -> dict[bytes, Known]:
    """The decisions among these that are in rows of `rewarded`, which are in order and do not overlap."""
    size, starts = len(rewards.digests[0]), [_number(nonce) for nonce, *_ in rows]
    if starts[-1] + len(rows[-1][-1]) // size <= _number(min(rewards.nonces)):
        return {}
    found: dict[bytes, Known] = {}
    for nonce in {*rewards.nonces}:
        row = bisect_right(starts, _number(nonce)) - 1
        if row >= 0:
            _, state, sync, digests = rows[row]
            at = size * (_number(nonce) - starts[row])
            if digest := bytes(digests[at : at + size]):
                found[nonce] = (DecisionState(state), sync, digest)
    return found


def times_counted(sql: Sql, term: int, people: Sequence[bytes | None]) -> dict[bytes, int]:
    """How often each of these users has counted; UNLIMITED for those who opted out, so that they do not count again."""
    counted = _by_person(sql, "participants", "times", term, people)
    return {**counted, **dict.fromkeys(opted_out(sql, term, people), UNLIMITED)}


def last_counted(sql: Sql, term: int, people: Sequence[bytes | None]) -> dict[bytes, int]:
    """The batch that each of these users last counted in, under a plan whose visits must lie apart."""
    return _by_person(sql, "last_counted", "sync", term, people)


def opted_out(sql: Sql, term: int, people: Sequence[bytes | None]) -> set[bytes]:
    """Those of these people who have opted out of this term, or of all terms."""
    found = set[bytes]()
    for part in _parts(_keyed(people)):
        marks = ", ".join("?" * len(part))
        query = f"SELECT person FROM opted_out WHERE term IN (?, ?) AND person IN ({marks})"
        found.update(bytes(person) for (person,) in sql.all(query, [term, FOR_GOOD, *part]))
    return found


def opt_out(sql: Sql, term: int, people: Sequence[bytes]) -> None:
    """Store that these people have opted out of a term, or of all terms (`FOR_GOOD`)."""
    for person in people:
        sql.all("INSERT INTO opted_out (term, person) VALUES (?, ?) ON CONFLICT DO NOTHING", (term, person))


def apart(sql: Sql, term: int, cap: int) -> tuple[set[bytes], set[bytes]]:
    """The people whose data are no longer released, because they have opted out or have counted as often as allowed;
    and those of them whose data are not released in later terms either."""
    for_good = sql.all("SELECT person FROM opted_out WHERE term = ?", (FOR_GOOD,))
    rows = sql.all("SELECT person FROM participants WHERE term = ? AND times >= ?", (term, cap))
    rows += sql.all("SELECT person FROM opted_out WHERE term = ?", (term,)) + for_good
    return {bytes(person) for (person,) in rows}, {bytes(person) for (person,) in for_good}


def times_seated(sql: Sql, term: int, people: Sequence[bytes | None]) -> dict[bytes, int]:
    """How many places each of these people has taken."""
    return _by_person(sql, "seats", "times", term, people)


def _by_person(sql: Sql, table: str, column: str, term: int, people: Sequence[bytes | None]) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    for part in _parts(_keyed(people)):
        marks = ", ".join("?" * len(part))
        query = f"SELECT person, {column} FROM {table} WHERE term = ? AND person IN ({marks})"
        found.update((bytes(person), number) for person, number in sql.all(query, [term, *part]))
    return found


def _parts(values: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """All values, as many at a time as one query takes."""
    return (values[at : at + VALUES] for at in range(0, len(values), VALUES))


def _keyed(people: Sequence[bytes | None]) -> list[bytes]:
    """The people among these who have a key, each once."""
    if people.count(None) == len(people):
        return []
    return sorted(person for person in {*people} if person is not None)


@dataclass
class Judge:
    """Decides what becomes of each reward of one transaction, and keeps its decisions for `insert`."""

    open_sync: int  # the open batch
    syncs: int  # batches of the term; after the last, none is open
    cap: int
    known: dict[bytes, Known]
    times: dict[bytes, int]
    fresh: list[tuple[Reward, Verdict]] = field(default_factory=list)
    alike: tuple[RewardColumns, Verdict] | None = None  # in place of `fresh`, for many rewards with one verdict
    apart: int = 0  # syncs from one batch that a person counts in to the next, at least; 0: they may be one batch
    last: dict[bytes, int] = field(default_factory=dict)  # the batch a person last counted in, if visits must lie apart
    room: dict[int, int] = field(default_factory=dict)  # by batch of a planned size: how many more it holds

    def judge_all(self, rewards: RewardColumns) -> list[Verdict]:
        """The verdict on each reward. They are judged together if none has come before, none has a person and none has
        a place: then all have the same verdict."""
        alike = rewards.people.count(None) == rewards.places.count(OPEN_BATCH) == len(rewards) == len({*rewards.nonces})
        if not rewards or not alike or self.known or self.open_sync >= self.syncs:
            return [self.judge(reward) for reward in rewards]
        verdict = _first(DecisionEvent.REWARD, self.open_sync)
        self.alike = rewards, verdict
        return [verdict] * len(rewards)

    def judged(self) -> dict[tuple[int, DecisionState], RewardColumns]:
        """The rewards that came for the first time, by their batch and their state."""
        if self.alike is not None:
            rewards, verdict = self.alike
            return {(verdict.sync, verdict.state): rewards}
        found: dict[tuple[int, DecisionState], list[Reward]] = {}
        for reward, verdict in self.fresh:
            found.setdefault((verdict.sync, verdict.state), []).append(reward)
        return {key: RewardColumns.of(some) for key, some in found.items()}

    def judge(self, reward: Reward) -> Verdict:
        """The verdict on one more reward of the transaction."""
        if reward.nonce in self.known:
            return self._known(*self.known[reward.nonce], reward.digest)
        if self.open_sync >= self.syncs:
            return _first(DecisionEvent.EXPIRE, 0)
        sync = self.open_sync if reward.place == OPEN_BATCH else reward.place
        if reward.place == UNSHARED:
            verdict = _first(DecisionEvent.REWARD_UNSHARED, self.open_sync)
        elif self.open_sync <= sync < self.syncs and self._admit(reward.person, sync):
            verdict = _first(DecisionEvent.REWARD, sync)
            if self._spent(reward.person):
                verdict = verdict._replace(last=True)
        else:
            verdict = _first(DecisionEvent.REWARD_OVER_CAP, self.open_sync)
        self.known[reward.nonce] = (verdict.state, verdict.sync, reward.digest)
        self.fresh.append((reward, verdict))
        return verdict

    def _known(self, state: DecisionState, sync: int, stored: bytes, digest: bytes) -> Verdict:
        if state is DecisionState.COUNTED and sync < self.open_sync:  # a release does not rewrite these rows
            state = advance(DECISION, state, DecisionEvent.RELEASE)
        if stored != digest:
            return Verdict(state, sync, repeated=False, conflict=True)
        return Verdict(advance(DECISION, state, DecisionEvent.SAME_REWARD), sync, repeated=True, conflict=False)

    def _spent(self, person: bytes | None) -> bool:
        return person is not None and self.times[person] >= self.cap

    def _admit(self, person: bytes | None, sync: int) -> bool:
        """Whether the person may count once more, in this batch; if so, it is noted that they have."""
        if sync in self.room and not self.room[sync]:
            return False
        if not self._admit_person(person, sync):
            return False
        if sync in self.room:
            self.room[sync] -= 1
        return True

    def _admit_person(self, person: bytes | None, sync: int) -> bool:
        if person is None:
            return True
        if self.times.get(person, 0) >= self.cap:
            return False
        if self.apart:
            if person in self.last and sync - self.last[person] < self.apart:
                return False
            self.last[person] = sync
        self.times[person] = self.times.get(person, 0) + 1
        return True


@lru_cache(maxsize=1024)
def _first(event: DecisionEvent, sync: int) -> Verdict:
    """The verdict on the first reward of a decision."""
    return Verdict(advance(DECISION, DecisionState.ISSUED, event), sync, repeated=False, conflict=False)


def users_in(sql: Sql, term: int, sync: int) -> int:
    """How many users count in a batch."""
    ((users,),) = sql.all("SELECT coalesce(sum(users), 0) FROM raw_rows WHERE term = ? AND sync = ?", (term, sync))
    return int(users)


def users_waiting(sql: Sql) -> int:
    """How many users count in batches that were not released."""
    query = (
        "SELECT coalesce(sum(users), 0) FROM raw_rows WHERE NOT EXISTS"
        " (SELECT 1 FROM own_sums WHERE own_sums.term = raw_rows.term AND own_sums.part = raw_rows.sync)"
    )
    ((users,),) = sql.all(query)
    return int(users)


def room(sql: Sql, term: int, places: Sequence[int], sizes: Sequence[int]) -> dict[int, int]:
    """How many more people each of these batches holds. As many decisions have a place in a batch as it holds, unless
    the store was put back to an old copy: then places are given away twice."""
    batches = {place for place in places if 0 <= place < len(sizes)}
    return {sync: max(0, sizes[sync] - users_in(sql, term, sync)) for sync in sorted(batches)}


def rows_of(sql: Sql, term: int, sync: int) -> Iterator[CountedRow]:
    """The features and reward of every user in a batch."""
    query = "SELECT users, features, rewards FROM raw_rows WHERE term = ? AND sync = ?"
    for users, features, rewards in sql.all(query, (term, sync)):
        size = len(features) // users
        for user, (reward,) in enumerate(_REWARD.iter_unpack(rewards)):
            yield CountedRow(bytes(features[size * user : size * (user + 1)]), reward)


def insert(sql: Sql, term: int, judge: Judge) -> None:
    """Store what the judge decided."""
    people = set[bytes]()
    for (sync, state), rewards in judge.judged().items():
        _remember(sql, term, sync, state, rewards)
        if state is DecisionState.COUNTED:
            people.update(_keyed(rewards.people))
            values = struct.pack(f"<{len(rewards)}d", *rewards.values)
            sql.all(
                "INSERT INTO raw_rows (term, sync, users, features, rewards) VALUES (?, ?, ?, ?, ?)",
                (term, sync, len(rewards), b"".join(rewards.features), values),
            )
    sql.many(
        "INSERT INTO participants (term, person, times) VALUES (?, ?, ?)"
        " ON CONFLICT (term, person) DO UPDATE SET times = excluded.times",
        [(term, person, judge.times[person]) for person in people],
    )
    if judge.apart:
        sql.many(
            "INSERT INTO last_counted (term, person, sync) VALUES (?, ?, ?)"
            " ON CONFLICT (term, person) DO UPDATE SET sync = excluded.sync",
            [(term, person, judge.last[person]) for person in people],
        )


def _remember(sql: Sql, term: int, sync: int, state: DecisionState, rewards: RewardColumns) -> None:
    """Store that these decisions have their reward."""
    nonces, digests = rewards.nonces, rewards.digests
    if sorted(nonces) != list(nonces):  # in the order of the table's key
        nonces, digests = zip(*sorted(zip(nonces, digests, strict=True)), strict=True)
    for at in range(0, len(nonces), STRETCH):
        part = slice(at, at + STRETCH)
        _remember_some(sql, nonces[part], digests[part], (term, sync, state.value))


def _remember_some(sql: Sql, nonces: Sequence[bytes], digests: Sequence[bytes], where: tuple[int, int, str]) -> None:
    """Store some of them, in order: as one row if they are neighbours, and otherwise as one row each. One statement
    cuts all rows out of two byte strings, in a third of the time of one statement per row."""
    nonce, digest = len(nonces[0]), len(digests[0])  # all have the same length
    if _number(nonces[-1]) - _number(nonces[0]) == len(nonces) - 1:
        into = "INSERT INTO rewarded (nonce, term, sync, state, digest) VALUES (?, ?, ?, ?, ?)"
        sql.all(into, (nonces[0], *where, b"".join(digests)))
        return
    sql.all(
        "INSERT INTO rewarded (nonce, term, sync, state, digest)"
        " WITH RECURSIVE row_ (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM row_ WHERE n < ?)"
        " SELECT substr(?, n * ? + 1, ?), ?, ?, ?, substr(?, n * ? + 1, ?) FROM row_",
        (len(nonces) - 1, b"".join(nonces), nonce, nonce, *where, b"".join(digests), digest, digest),
    )


def _number(nonce: bytes) -> int:
    return int.from_bytes(nonce, "big")
