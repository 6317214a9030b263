"""What a silo knows beyond the public model, to serve people whose data are never released.

`OwnKnowledge` holds raw sums and provides only a `LocalModel`. People who count are served by the `PublicModel` alone,
and their batches are read from the store, never from here.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedbandit._arrays import Floats, Integers
from fedbandit.bandit import statistics
from fedbandit.bandit.linucb import Model
from fedbandit.federation.states import ReleaseState
from fedbandit.federation.store.own_sums import NO_SUMS, PartSums, sync_of
from fedbandit.federation.store.silo_store import SiloStore
from fedbandit.knowledge import NONE_YET, OwnData, PublicModel, local_knowledge
from fedbandit.plan import Plan

__all__ = ["LocalModel", "OwnKnowledge", "summed"]

NUMBERS = 2**18  # numbers of contributions that may wait until they are added up, which takes under a millisecond


@dataclass(frozen=True)
class LocalModel:
    """The model for people whose data stay in the silo. It is not a `PublicModel` and cannot be used as one."""

    model: Model


class _Fresh(NamedTuple):
    """Visits that are not yet in the sums."""

    features: list[bytes]
    rewards: list[float]


class _Packed(NamedTuple):
    """Sums of several parts. A term may have thousands, so they are added up together and not one by one."""

    parts: list[int]
    counts: Floats  # visits and their squared rewards (parts, 2)
    table: Integers  # packed contributions (parts, width)

    def joined(self, more: _Packed) -> _Packed:
        counts, table = np.concatenate([self.counts, more.counts]), np.concatenate([self.table, more.table])
        return _Packed([*self.parts, *more.parts], counts, table)


class OwnKnowledge:
    """Everything that a silo has seen in a term, as far as this process knows: what was in the store at the last
    refresh, and what has come through this process since. Safe to use from several threads."""

    def __init__(self, store: SiloStore, plan: Plan, term: int, public: PublicModel) -> None:
        self._store, self._plan, self._term = store, plan, term
        self._lock = threading.Lock()
        self._public = public
        self._more = _Fresh([], [])
        self._most = max(1, NUMBERS // plan.protocol.width)  # contributions
        self._seen, self._released = NO_SUMS, np.zeros(plan.protocol.width)
        self._batches = _packed({}, plan.protocol.width)  # those that were released: their sums do not change any more
        self._model: LocalModel | None = None

    def refresh(self, public: PublicModel) -> None:
        """Use a new public model: read what the silo has seen so far, and which part of it is in the model."""
        nothing = _packed({}, self._plan.protocol.width)
        batches = nothing if self._plan.endless else self._batches  # without an end, old sums are deleted
        read, waiting = self._store.own(self._term, after=max(batches.parts, default=-1))
        more = _packed({part: sums for part, sums in read.items() if part >= 0}, self._plan.protocol.width)
        never = _packed({part: sums for part, sums in read.items() if part < 0}, self._plan.protocol.width)
        batches = batches.joined(more)
        seen = summed(self._plan, waiting).plus(self._all(batches.joined(never), public.sync))
        released = self._held_by(public, batches)
        with self._lock:
            self._seen, self._released, self._public, self._batches = seen, released, public, batches
            self._more, self._model = _Fresh([], []), None

    def add(self, features: Sequence[bytes], rewards: Sequence[float]) -> None:
        """Add features and rewards that were just stored."""
        with self._lock:
            self._more.features.extend(features)
            self._more.rewards.extend(rewards)
            self._model = None
            if len(self._more.features) >= self._most:
                self._fold()

    def model(self) -> LocalModel:
        """The model for people whose data stay in the silo."""
        with self._lock:
            if self._model is None:
                self._fold()
                self._model = LocalModel(self._known())
            return self._model

    def _fold(self) -> None:
        self._seen, self._more = self._seen.plus(_summed(self._plan, *self._more)), _Fresh([], [])

    def _known(self) -> Model:
        seen, width = self._seen, self._plan.protocol.width
        sums = np.asarray(seen.sums) if seen.value else np.zeros(width, dtype=np.int64)
        own = OwnData(sums, np.asarray(seen.squares), np.asarray(seen.visits), self._released)
        return local_knowledge(self._plan, own, self._public).model(self._plan)

    def _all(self, known: _Packed, sync: int) -> PartSums:
        """The sums of all parts, weighted as data of their time are in the public sums of this sync; data that came
        later count in full."""
        if self._plan.forget == 1:
            value, weights = known.table.sum(axis=0), np.ones(len(known.parts))
        else:
            weights = np.array([self._plan.forget ** max(0, sync - sync_of(part)) for part in known.parts])
            value = np.rint(weights[:, None] * known.table).astype(np.int64).sum(axis=0)
        visits, squares = (weights @ known.counts).tolist()
        return PartSums(visits, squares, value.astype("<i8").tobytes())

    def _held_by(self, public: PublicModel, batches: _Packed) -> Floats:
        """The silo's own part of the public prefix sum: its batches, weighted as they were decoded."""
        if public.sync == NONE_YET:
            return np.zeros(self._plan.protocol.width)
        states = (ReleaseState.MISSED, ReleaseState.GIVEN_UP)
        lost = sorted(sync for state in states for sync in self._store.in_state(self._term, state))
        first = max(0, public.sync - self._plan.reach)  # earlier batches have no weight left
        since = [sync - first for sync in lost if sync >= first]
        kept = self._plan.protocol.kept_weights(since, public.sync - first)
        weights = np.array([kept[part - first] if first <= part <= public.sync else 0.0 for part in batches.parts])
        held: Floats = np.einsum("p,pw->w", weights, batches.table)
        return held


def _packed(parts: Mapping[int, PartSums], width: int) -> _Packed:
    """Sums of parts in one table; 0 where none are kept."""
    joined = b"".join(sums.value or bytes(8 * width) for sums in parts.values())
    table = np.frombuffer(joined, dtype="<i8").astype(np.int64).reshape(len(parts), width)
    counts = np.array([(sums.visits, sums.squares) for sums in parts.values()]).reshape(len(parts), 2)
    return _Packed(list(parts), counts, table)


def summed(plan: Plan, rows: Sequence[tuple[bytes, float]]) -> PartSums:
    """Sums of visits (features and reward each) on the plan's grid; only their number if the plan needs no sums."""
    return _summed(plan, [features for features, _ in rows], [reward for _, reward in rows])


def _summed(plan: Plan, features: Sequence[bytes], rewards: Sequence[float]) -> PartSums:
    if plan.serves_uncounted == "public":
        return NO_SUMS._replace(visits=len(rewards))
    if not rewards:
        return NO_SUMS
    x, y = np.frombuffer(b"".join(features)).reshape(len(rewards), plan.dim), np.array(rewards)
    packed = statistics.summed(x, y, plan.bits, plan.centre)
    return PartSums(len(rewards), float(np.square(y - plan.centre).sum()), packed.astype("<i8").tobytes())
