"""Who is served by what: those who count by the public model alone, the others by all that the silo knows."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fedbandit.federation.own_knowledge import LocalModel, OwnKnowledge
from fedbandit.federation.states import DecisionState
from fedbandit.federation.store import SiloStore, Verdict
from fedbandit.federation.store.rewards import NOWHERE, UNSHARED, RewardColumns, runs
from fedbandit.knowledge import PublicModel
from fedbandit.plan import Plan

__all__ = ["Apart", "Way"]

log = logging.getLogger(__name__)


class Way(NamedTuple):
    """How somebody is served: a place outside all batches (None: whoever counts takes one), and what decides unless it
    is the public model."""

    place: int | None
    local: LocalModel | None


class Apart:
    """Those of whom nothing more is released in a term, and what the silo knows for them. Safe to use from several
    threads."""

    def __init__(self, store: SiloStore, plan: Plan, term: int, cap: int, public: PublicModel) -> None:
        self._store, self._term, self._cap = store, term, cap
        self._serves_local = plan.serves_uncounted == "local"
        self._own = OwnKnowledge(store, plan, term, public)
        self._people, self._for_good = store.apart(term, cap)
        self._soon: list[bytes] = []  # they have counted for the last time, and it may not be on disk yet
        self._lock = threading.Lock()
        if self._serves_local:
            self._own.refresh(public)

    def way(self, person: bytes | None, shared: bool) -> Way:
        """How a person is served. Local knowledge only serves people of whom it is on disk that nothing more of them is
        released, in this term or a later one, or whom nobody will recognise: what they do later may depend on it."""
        if self._counts(person, shared):
            return Way(None, None)
        place = NOWHERE if shared else UNSHARED
        known = person is None or self._written([person])
        return Way(place, self._own.model() if known and self._serves_local else None)

    def ways(self, people: Sequence[bytes | None], shared: Sequence[bool]) -> list[Way]:
        """The same for many; all that is to be on disk is written at once."""
        both = list(zip(people, shared, strict=True))
        self._written([person for person, shares in both if person is not None and not self._counts(person, shares)])
        return [self.way(person, shares) for person, shares in both]

    def writes(self, person: bytes) -> bool:
        """Whether something must be on disk before this person is served who has not opted out."""
        return self._serves_local and person in self._people and person not in self._for_good

    def holds_any(self, people: Iterable[bytes | None]) -> bool:
        """Whether one of these people is known to be apart."""
        return not self._people.isdisjoint(people)

    def note(self, rewards: RewardColumns, verdicts: Sequence[Verdict], durable: bool) -> None:
        """What the silo knows grows. Who has counted for the last time is set apart once that is on disk: with the next
        call at the latest, which comes when the disk has caught up with this one."""
        last = list[bytes]()
        for verdict, part in runs(verdicts):
            if self._serves_local and _is_new(verdict):
                self._own.add(rewards.features[part], rewards.values[part])
            if verdict.last:
                last += [person for person in rewards.people[part] if person is not None]
        with self._lock:
            self._people.update(self._soon)
            self._soon = last
            if durable:
                self._people.update(self._soon)

    def refresh(self, public: PublicModel) -> None:
        """There is a new public model."""
        if not self._serves_local:
            return
        self._own.refresh(public)
        if self._store.engine.shared:  # other workers set people apart, too
            people, for_good = self._store.apart(self._term, self._cap)
            self._people |= people
            self._for_good |= for_good

    def _counts(self, person: bytes | None, shared: bool) -> bool:
        return shared and (person is None or person not in self._people)

    def _written(self, people: Sequence[bytes]) -> bool:
        """Whether it is on disk now that these people do not count: in this term, or, where raw data may decide for
        them, in any. Without a store decisions go on, by the public model."""
        held = self._for_good if self._serves_local else self._people
        new = [person for person in people if person not in held]
        if not new:
            return True
        try:
            self._store.opt_out(self._term, new, for_good=self._serves_local)
        except Exception as error:
            log.error("whoever does not count is served by the public model: the store does not work: %s", error)
            return False
        self._people.update(new)
        if self._serves_local:
            self._for_good.update(new)
        return True


def _is_new(verdict: Verdict) -> bool:
    """Whether the reward has come first now, and is in a batch or stays in the silo."""
    counted = verdict.state is DecisionState.COUNTED and not verdict.repeated and not verdict.conflict
    return counted or verdict.stays
