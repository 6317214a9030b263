"""What becomes of rewards that come in one transaction: counted once, recognised again, or left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fedbandit.federation.states import DECISION, DecisionEvent, DecisionState, advance
from fedbandit.federation.store.engine import Sql

UNLIMITED = 2**62
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
    step: int
    repeated: bool
    conflict: bool


def known_among(sql: Sql, rewards: Sequence[Reward]) -> dict[bytes, Known]:
    """Decisions among these that have a reward already."""
    if not rewards:
        return {}
    marks = ", ".join("?" * len(rewards))
    query = f"SELECT nonce, state, step, digest FROM rewarded WHERE nonce IN ({marks})"
    rows = sql.all(query, [r.nonce for r in rewards])
    return {bytes(nonce): (DecisionState(state), step, bytes(digest)) for nonce, state, step, digest in rows}


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

    step: int | None  # the open batch; None after the last
    cap: int
    room: int
    known: dict[bytes, Known]
    times: dict[bytes, int]
    fresh: list[tuple[Reward, Verdict]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._admitted, self._left_out = map(self._first, (DecisionEvent.REWARD, DecisionEvent.REWARD_OVER_CAP))

    def judge(self, reward: Reward) -> Verdict:
        if reward.nonce in self.known:
            state, step, digest = self.known[reward.nonce]
            if digest != reward.digest:
                return Verdict(state, step, repeated=False, conflict=True)
            return Verdict(advance(DECISION, state, DecisionEvent.SAME_REWARD), step, repeated=True, conflict=False)
        if self.step is None:
            return self._first(DecisionEvent.EXPIRE)
        verdict = self._admitted if self._admit(reward.person) else self._left_out
        self.known[reward.nonce] = (verdict.state, verdict.step, reward.digest)
        self.fresh.append((reward, verdict))
        return verdict

    def _first(self, event: DecisionEvent) -> Verdict:
        """The verdict on the first reward of a decision."""
        return Verdict(advance(DECISION, DecisionState.ISSUED, event), self.step or 0, repeated=False, conflict=False)

    def _admit(self, person: bytes | None) -> bool:
        """Whether the batch has room and the person may count once more; if so, both are used up by one."""
        if self.room <= 0 or (person is not None and self.times.get(person, 0) >= self.cap):
            return False
        self.room -= 1
        if person is not None:
            self.times[person] = self.times.get(person, 0) + 1
        return True


def room_in(sql: Sql, term: int, step: int, capacities: Sequence[int]) -> int:
    """How many more users the open batch can hold."""
    if step >= len(capacities):
        return 0
    if capacities[step] >= UNLIMITED:
        return UNLIMITED
    ((used,),) = sql.all("SELECT count(*) FROM raw_rows WHERE term = ? AND step = ?", (term, step))
    return capacities[step] - int(used)


def insert(sql: Sql, term: int, judge: Judge) -> None:
    sql.many(
        "INSERT INTO rewarded (nonce, term, step, state, digest) VALUES (?, ?, ?, ?, ?)",
        [(r.nonce, term, v.step, v.state.value, r.digest) for r, v in judge.fresh],
    )
    counted = [(r, v) for r, v in judge.fresh if v.state is DecisionState.COUNTED]
    sql.many(
        "INSERT INTO raw_rows (term, step, features, reward) VALUES (?, ?, ?, ?)",
        [(term, v.step, r.features, r.reward) for r, v in counted],
    )
    people = {r.person for r, _ in counted if r.person is not None}
    sql.many(
        "INSERT INTO participants (term, person, times) VALUES (?, ?, ?)"
        " ON CONFLICT (term, person) DO UPDATE SET times = excluded.times",
        [(term, person, judge.times[person]) for person in people],
    )
