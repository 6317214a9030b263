"""How far a mixer or an analyzer has come, in numbers that it keeps up to date: nobody reads all syncs to be shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fedbandit.federation.states import SyncState
from fedbandit.federation.store.sync_store import StoredSync

__all__ = ["Progress"]


@dataclass
class Progress:
    """Syncs that are over, and who was in them."""

    closed: int = 0  # syncs that are over, those that came to nothing included
    skipped: int = 0
    given_up: int = 0
    last: int = -1  # the last one
    last_at: float | None = (
        None  # when that was published, by a clock that is never set; None before this process began
    )
    present: int = 0  # silos in the last one
    missed: dict[str, int] = field(default_factory=dict)  # by silo: syncs without it since it was last in one

    @classmethod
    def of(cls, syncs: Sequence[StoredSync], members: Callable[[int], Sequence[str]]) -> Progress:
        """As a store has it, with the silos that were members of each sync. What was skipped or given up is counted
        among the syncs that it keeps."""
        begins = syncs[0].sync if syncs else 0  # a store without an end keeps no older ones: those are over
        progress = cls(closed=begins, missed=dict.fromkeys(members(begins), 0))
        for sync in syncs:
            if sync.state.final:
                progress.note(sync, silos=members(sync.sync))
        return progress

    def note(self, sync: StoredSync, at: float | None = None, silos: Sequence[str] | None = None) -> None:
        """A sync is over, whose members are these, if they have changed. That it is published again changes nothing."""
        if sync.sync <= self.last:
            return
        self.closed, self.last, self.last_at, self.present = self.closed + 1, sync.sync, at, len(sync.cohort)
        if sync.state is SyncState.GIVEN_UP:
            self.given_up += 1
            return  # nobody here knows who was in it
        self.skipped += not sync.cohort
        if silos is not None:
            self.missed = {name: self.missed.get(name, 0) for name in silos}
        for silo in self.missed:
            self.missed[silo] = 0 if silo in sync.cohort else self.missed[silo] + 1
