"""What becomes of rewards that come in one transaction: counted once, recognised again, or left out."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fedbandit.federation.states import DECISION, DecisionEvent, DecisionState, advance
from fedbandit.federation.store.database import Sql

__all__ = [
    "UNLIMITED",
    "Judge",
    "Reward",
    "Verdict",
    "insert",
    "known_among",
    "room_in",
    "rows_of",
    "times_counted",
    "users_in",
]

UNLIMITED = 2**62
_REWARD = struct.Struct("<d")
Known = tuple[DecisionState, int, bytes]


class Reward(NamedTuple):
    """A reward as it is stored. `digest` tells a repeated reward from another one after the raw row is gone."""

    nonce: bytes
    person: bytes | None
    features: bytes
    reward: float
    digest: bytes


class Verdict(NamedTuple):
    """What became of a reward: the state of its decision, the batch it counts in, whether it had come before."""

    state: DecisionState
    sync: int
    repeated: bool
    conflict: bool


def known_among(sql: Sql, rewards: Sequence[Reward]) -> dict[bytes, Known]:
    """Decisions among these that have a reward already."""
    if not rewards:
        return {}
    marks = ", ".join("?" * len(rewards))
    query = f"SELECT nonce, state, sync, digest FROM rewarded WHERE nonce IN ({marks})"
    rows = sql.all(query, [r.nonce for r in rewards])
    return {bytes(nonce): (DecisionState(state), sync, bytes(digest)) for nonce, state, sync, digest in rows}


def times_counted(sql: Sql, term: int, rewards: Sequence[Reward]) -> dict[bytes, int]:
    """How often the users behind these rewards have been counted."""
    people = sorted({r.person for r in rewards if r.person is not None})
    if not people:
        return {}
    marks = ", ".join("?" * len(people))
    query = f"SELECT person, times FROM participants WHERE term = ? AND person IN ({marks})"
    return {bytes(person): times for person, times in sql.all(query, [term, *people])}


@dataclass
class Judge:
    """Decides what becomes of each reward of one transaction, and remembers what it decided."""

    sync: int | None  # the open batch; None after the last
    cap: int
    room: int
    known: dict[bytes, Known]
    times: dict[bytes, int]
    fresh: list[tuple[Reward, Verdict]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._admitted, self._left_out = map(self._first, (DecisionEvent.REWARD, DecisionEvent.REWARD_OVER_CAP))

    def judge(self, reward: Reward) -> Verdict:
        if reward.nonce in self.known:
            state, sync, digest = self.known[reward.nonce]
            if digest != reward.digest:
                return Verdict(state, sync, repeated=False, conflict=True)
            return Verdict(advance(DECISION, state, DecisionEvent.SAME_REWARD), sync, repeated=True, conflict=False)
        if self.sync is None:
            return self._first(DecisionEvent.EXPIRE)
        verdict = self._admitted if self._admit(reward.person) else self._left_out
        self.known[reward.nonce] = (verdict.state, verdict.sync, reward.digest)
        self.fresh.append((reward, verdict))
        return verdict

    def _first(self, event: DecisionEvent) -> Verdict:
        """The verdict on the first reward of a decision."""
        return Verdict(advance(DECISION, DecisionState.ISSUED, event), self.sync or 0, repeated=False, conflict=False)

    def _admit(self, person: bytes | None) -> bool:
        """Whether the batch has room and the person may count once more; if so, both are used up by one."""
        if self.room <= 0 or (person is not None and self.times.get(person, 0) >= self.cap):
            return False
        self.room -= 1
        if person is not None:
            self.times[person] = self.times.get(person, 0) + 1
        return True


def room_in(sql: Sql, term: int, sync: int, capacities: Sequence[int]) -> int:
    """How many more users the open batch can hold."""
    if sync >= len(capacities):
        return 0
    return UNLIMITED if capacities[sync] >= UNLIMITED else capacities[sync] - users_in(sql, term, sync)


def users_in(sql: Sql, term: int, sync: int) -> int:
    """Users who count in a batch."""
    ((users,),) = sql.all("SELECT coalesce(sum(users), 0) FROM raw_rows WHERE term = ? AND sync = ?", (term, sync))
    return int(users)


def rows_of(sql: Sql, term: int, sync: int) -> Iterator[tuple[bytes, float]]:
    """Features and reward of every user of a batch."""
    query = "SELECT users, features, rewards FROM raw_rows WHERE term = ? AND sync = ?"
    for users, features, rewards in sql.all(query, (term, sync)):
        size = len(features) // users
        for user, (reward,) in enumerate(_REWARD.iter_unpack(rewards)):
            yield bytes(features[size * user : size * (user + 1)]), reward


def insert(sql: Sql, term: int, judge: Judge) -> None:
    """Write down what the judge decided."""
    sql.many(
        "INSERT INTO rewarded (nonce, term, sync, state, digest) VALUES (?, ?, ?, ?, ?)",
        sorted((r.nonce, term, v.sync, v.state.value, r.digest) for r, v in judge.fresh),  # in the order of the key
    )
    counted = [r for r, v in judge.fresh if v.state is DecisionState.COUNTED]
    if counted:
        features = b"".join([r.features for r in counted])
        rewards = b"".join([_REWARD.pack(r.reward) for r in counted])
        sql.all(
            "INSERT INTO raw_rows (term, sync, users, features, rewards) VALUES (?, ?, ?, ?, ?)",
            (term, judge.sync, len(counted), features, rewards),
        )
    people = {r.person for r in counted if r.person is not None}
    sql.many(
        "INSERT INTO participants (term, person, times) VALUES (?, ?, ?)"
        " ON CONFLICT (term, person) DO UPDATE SET times = excluded.times",
        [(term, person, judge.times[person]) for person in people],
    )
