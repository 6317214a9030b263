"""Which model serves whom: the public model alone for people who count, all that the silo knows for the others."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import NamedTuple

from fedbandit.federation.own_knowledge import LocalModel, OwnKnowledge
from fedbandit.federation.states import DecisionState
from fedbandit.federation.store import SiloStore, Verdict
from fedbandit.federation.store.rewards import NOWHERE, UNSHARED, RewardColumns, runs
from fedbandit.knowledge import PublicModel
from fedbandit.plan import Plan
from fedbandit.schedule import Clock

__all__ = ["Apart", "Way"]

log = logging.getLogger(__name__)


class Way(NamedTuple):
    """How a person is served: `place` is one outside all batches, or None for a person who takes a place as everybody
    does; `local` is the model that decides, or None for the public model."""

    place: int | None
    local: LocalModel | None


class Apart:
    """The people whose data are no longer released in a term, and the silo's own knowledge that serves them. Safe to
    use from several threads.

    Under a calendar that counts decisions, places must follow from what is public: who asks, when, and whether they
    share. Whether somebody was set apart in an earlier term is not public: it depends on when their rewards came. So
    they take a place like everybody else, until they opt out in this term. Their rewards count nowhere all the same.
    """

    def __init__(self, store: SiloStore, plan: Plan, term: int, cap: int, public: PublicModel) -> None:
        self._store, self._term, self._cap = store, term, cap
        self._counted = not isinstance(plan.schedule, Clock)
        self._serves_local = plan.serves_uncounted == "local"
        self._own = OwnKnowledge(store, plan, term, public)
        self._people, self._for_good = store.apart(term, cap)
        self._out = store.opted_out(term)
        self._unwritten: set[bytes] = set()  # people who opted out while the store did not work
        self._soon: list[bytes] = []  # people who have counted for the last time, which may not be on disk yet
        self._lock = threading.Lock()
        if self._serves_local:
            self._own.refresh(public)

    def way(self, person: bytes | None, shared: bool) -> Way:
        """How a person is served. What a person does later may depend on how they were served. So local knowledge
        serves only people without a user key, whom nobody will recognise, and people of whom the disk already says that
        nothing more is released, in this term or a later one."""
        if self._counts(person, shared):
            return Way(None, None)
        known = person is None or self._written([(person, shared)])
        return Way(self._place(person, shared), self._own.model() if known and self._serves_local else None)

    def ways(self, people: Sequence[bytes | None], shared: Sequence[bool]) -> list[Way]:
        """How each of many people is served; all that must be on disk is written in one go."""
        both = list(zip(people, shared, strict=True))
        keyed = [(person, shares) for person, shares in both if person is not None]
        self._written([(person, shares) for person, shares in keyed if not self._counts(person, shares)])
        return [self.way(person, shares) for person, shares in both]

    def writes(self, person: bytes) -> bool:
        """Whether something must be written to disk before this person, who shares, is served."""
        if person in self._unwritten:
            return True
        return self._serves_local and person in self._people and person not in self._for_good

    def holds_any(self, people: Sequence[bytes | None]) -> bool:
        """Whether one of these people is known to be apart."""
        return not (self._people.isdisjoint(people) and self._unwritten.isdisjoint(people))

    @property
    def unwritten(self) -> bool:
        """Whether somebody has opted out while the store did not work."""
        return bool(self._unwritten)

    def settle(self) -> None:
        """Write down who opted out while the store did not work; raises if it still does not. Until this is on disk, no
        reward of theirs may be counted."""
        if people := list(self._unwritten):
            self._write(people, people if self._counted else [])

    def note(self, rewards: RewardColumns, verdicts: Sequence[Verdict], durable: bool) -> None:
        """Add new rewards to what the silo knows. A person who has counted for the last time is set apart once that is
        on disk: at the latest with the next call, which comes when this call's rewards are on disk."""
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
        """Take in a new public model."""
        if not self._serves_local:
            return
        self._own.refresh(public)
        if self._store.engine.shared:  # other workers set people apart too
            people, for_good = self._store.apart(self._term, self._cap)
            self._people |= people
            self._for_good |= for_good
            self._out |= self._store.opted_out(self._term)

    def _place(self, person: bytes | None, shared: bool) -> int | None:
        """The place of a person who does not count."""
        if not shared:
            return UNSHARED
        return None if self._counted and person not in self._out and person not in self._unwritten else NOWHERE

    def _counts(self, person: bytes | None, shared: bool) -> bool:
        return shared and (person is None or (person not in self._people and person not in self._unwritten))

    def _written(self, people: Sequence[tuple[bytes, bool]]) -> bool:
        """Write to disk that these people do not count in this term, or, where raw data may decide for them, in any
        term; and of those who do not share, that they take no more places in this term. Returns whether that is on disk
        now. If the store does not work, decisions go on by the public model, and whoever opts out is written down as
        soon as it works again."""
        people = [(person, shared and person not in self._unwritten) for person, shared in people]
        held = self._for_good if self._serves_local else self._people
        new = [person for person, _ in people if person not in held]
        out = [person for person, shared in people if self._counted and not shared and person not in self._out]
        if not new and not out:
            return True
        try:
            self._write(new, out)
        except Exception as error:
            self._unwritten.update(person for person, shared in people if not shared)
            log.error("whoever does not count is served by the public model: the store does not work: %s", error)
            return False
        return True

    def _write(self, new: Sequence[bytes], out: Sequence[bytes]) -> None:
        self._store.opt_out(self._term, new, for_good=self._serves_local, without_place=out)
        self._people.update(new)
        self._out.update(out)
        if self._serves_local:
            self._for_good.update(new)
        self._unwritten.difference_update(new)


def _is_new(verdict: Verdict) -> bool:
    """Whether the reward came for the first time, and is in a batch or stays in the silo."""
    counted = verdict.state is DecisionState.COUNTED and not verdict.repeated and not verdict.conflict
    return counted or verdict.stays
