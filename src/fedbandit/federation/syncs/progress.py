"""How far a mixer or an analyzer has come, as running counts, so that a status need not read all syncs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fedbandit.federation.states import SyncState
from fedbandit.federation.store.sync_store import StoredSync

__all__ = ["Progress"]


@dataclass
class Progress:
    """Counts of the syncs that are over, and which silos were missing."""

    closed: int = 0  # syncs that are over, including those skipped or given up
    skipped: int = 0
    given_up: int = 0
    last: int = -1  # the last sync that is over
    last_at: float | None = None  # when, by a clock that nobody sets; None if before this process began
    present: int = 0  # silos in the last sync
    missed: dict[str, int] = field(default_factory=dict)  # by silo: syncs since the last one that it was in

    @classmethod
    def of(cls, syncs: Sequence[StoredSync], members: Callable[[int], Sequence[str]]) -> Progress:
        """The progress according to a store, with the silos that were members of each sync. Only syncs that the store
        still has are counted as skipped or given up."""
        begins = syncs[0].sync if syncs else 0  # under a plan without an end older syncs are deleted: they are over
        progress = cls(closed=begins, missed=dict.fromkeys(members(begins), 0))
        for sync in syncs:
            if sync.state.final:
                progress.note(sync, silos=members(sync.sync))
        return progress

    def note(self, sync: StoredSync, at: float | None = None, silos: Sequence[str] | None = None) -> None:
        """Note that a sync is over. `silos` are its members, or None if they are unchanged. A sync that is published
        again changes nothing."""
        if sync.sync <= self.last:
            return
        self.closed, self.last, self.last_at, self.present = self.closed + 1, sync.sync, at, len(sync.cohort)
        if sync.state is SyncState.GIVEN_UP:
            self.given_up += 1
            return  # this party does not know who was in it
        self.skipped += not sync.cohort
        if silos is not None:
            self.missed = {name: self.missed.get(name, 0) for name in silos}
        for silo in self.missed:
            self.missed[silo] = 0 if silo in sync.cohort else self.missed[silo] + 1
