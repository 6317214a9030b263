"""The earliest time of a message for a sync, and how long a sync waits for missing messages."""

from __future__ import annotations

from collections.abc import Callable, Collection

from fedbandit.federation.setup.party import Party
from fedbandit.federation.states import SyncEvent
from fedbandit.federation.store.sync_store import SyncStore
from fedbandit.federation.timing import JUMP, ClockJumped, pace
from fedbandit.federation.wire.envelopes import EnvelopeError
from fedbandit.schedule import Clock as ClockSchedule

__all__ = ["Deadlines", "closing"]


class Deadlines:
    """The public time of every sync, if the plan has one, and the running deadlines.

    Public time says when a sync can have begun; how long it waits is measured by a clock that nobody sets.
    """

    def __init__(
        self, party: Party, store: SyncStore, public: Callable[[], float], steady: Callable[[], float]
    ) -> None:
        self._timing, self._plan, self._party = party.agreement.timing, party.agreement.plan, party
        self._store, self._public, self._steady = store, public, steady
        self._begun: dict[int, float] = {}  # by sync: the time from which its deadline runs

    def check(self, sync: int) -> None:
        """Refuse a message for a sync whose public time is yet to come: its sender has a wrong clock, or lies."""
        schedule = self._plan.schedule
        if isinstance(schedule, ClockSchedule) and (early := self._until(sync)) > min(JUMP, schedule.period):
            raise EnvelopeError(f"sync {sync} is {early:.0f} s early")

    def due(self, sync: int) -> bool:
        """Whether every honest release of a sync must have left; without a public time, whether one has come."""
        if not isinstance(self._plan.schedule, ClockSchedule):
            return bool(self._store.senders(sync))
        return self._until(sync) + self._takes <= 0

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """The silos that have sent nothing for the next sync although it is due."""
        sync = self._store.next_sync()
        if sync >= len(self._plan.ticks) or not self.due(sync):
            return ()
        senders = self._store.senders(sync)
        return tuple(name for name in self._party.at(sync).silos if name not in senders)

    def passed(self, sync: int) -> bool:
        """Whether the deadline of a sync has passed. It runs from the first message for this very sync. If there is
        none, it runs from the time when enough silos for a cohort, or the mixer or the analyzer, have sent something
        for a later sync; fewer silos are not enough. It never runs before an honest release of this sync can have
        left."""
        if sync not in self._begun:
            further = self._store.senders_after(sync)
            keepers = {party.name for party in self._party.agreement.parties if party.role != "silo"}
            enough = len(further - keepers) >= self._plan.smallest_cohort or further & keepers
            if not enough and not self._store.senders(sync):
                return False
            self._begun = {other: since for other, since in self._begun.items() if other > sync}  # the rest is over
            self._begun[sync] = self._steady() + max(0.0, self._until(sync) + self._takes)
        return self._steady() - self._begun[sync] > self._timing.deadline

    def _until(self, sync: int) -> float:
        """Seconds until the public time of a sync; 0 if it has none. It is also 0 if this party's own clock cannot be
        trusted: then no other clock is compared with it."""
        schedule, start = self._plan.schedule, self._timing.start
        if not isinstance(schedule, ClockSchedule) or start is None:
            return 0.0
        try:
            return start + self._plan.ticks[sync] * schedule.period - self._public()
        except ClockJumped:
            return 0.0

    @property
    def _takes(self) -> float:
        """Seconds from the public time of a sync until an honest release leaves; 0 if there is no public time."""
        if not isinstance(self._plan.schedule, ClockSchedule) or self._timing.start is None:
            return 0.0
        return max(self._timing.settle, self._timing.settle_last) + pace(self._plan, self._timing)


def closing(present: Collection[str], silos: Collection[str], cohort: int, late: bool) -> SyncEvent | None:
    """How a sync closes now: with all silos, or at the deadline, with enough silos or with too few; None if it does not
    close yet. There is no total of fewer silos than the cohort, however many are members."""
    if len(present) == len(silos) and len(present) >= cohort:
        return SyncEvent.COMPLETE
    if not late:
        return None
    return SyncEvent.DEADLINE_ENOUGH if len(present) >= cohort else SyncEvent.DEADLINE_SHORT
