"""The page of a mixer or an analyzer: its syncs, who was in them, and how the model moved. Each sync is read once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedbandit.federation.board.alarms import Facts, alarms, overdue
from fedbandit.federation.board.model_moves import SHOWN, Moves, moments
from fedbandit.federation.board.spending_curve import budget_of
from fedbandit.federation.setup.roll import Roll
from fedbandit.federation.states import SyncState
from fedbandit.federation.store import SyncStore
from fedbandit.federation.store.sync_store import StoredSync
from fedbandit.federation.telemetry.troubles import Troubles
from fedbandit.federation.wire.keys import Role
from fedbandit.federation.wire.parcels import Outcome

__all__ = ["KeeperBoard"]


class KeeperBoard:
    """What the page shows of one store; without a store the party has not begun.

    Everything here is released anyway: every silo is told who was in a sync.
    """

    def __init__(
        self,
        store: SyncStore | None,
        roll: Roll,
        name: str,
        role: Role,
        moment: Callable[[int], float | None],
        deadline: float,
    ) -> None:
        self._store, self._roll, self._plan = store, roll, roll.newest.plan
        self._name, self._role = name, role
        self._moment, self._deadline, self._lock = moment, deadline, threading.Lock()
        self._first = 0  # the first sync on the page
        self._states = list[str]()  # one letter per sync that is over: published, skipped, given up
        self._present: dict[str, list[str]] = {silo: [] for silo in roll.at(0).silos}  # by sync: in it, away, no member
        self._moves = Moves(roll.newest.plan)

    def read(
        self,
        *,
        troubles: Troubles,
        connected: bool | None = None,
        waiting_for: Sequence[str] | None = None,
        elsewhere: int = 0,
        refusals: Mapping[str, int],
        machine: Mapping[str, float],
    ) -> dict[str, Any]:
        """The page's data. The arguments are what only a running party knows; `connected` is None if it was not asked.
        A failing store is not read: then the page shows the last known data, and the alarm."""
        works = "store" not in troubles
        with self._lock:
            if works:
                self._catch_up()
        plan, states = self._plan, "".join(self._states)
        missed = {silo: _in_a_row(present) for silo, present in self._present.items()}
        done = self._first + len(states)
        late = overdue(self._moment(done))
        found = alarms(Facts(troubles, late, self._deadline, states, missed, elsewhere, refusals, machine=machine))
        return {
            "party": self._name,
            "role": self._role,
            "federation": self._roll.newest.id,
            "fingerprint": self._roll.at(0).fingerprint,
            "plan": plan.hash[:16],
            "guarantee": plan.guarantee.statement,
            "trust": plan.trust,
            "connected": connected,
            "alarms": [alarm._asdict() for alarm in found],
            "syncs": None if plan.endless else len(plan.times),
            "first": self._first,
            "moments": moments(plan, self._moment, self._first, done),
            "states": states,
            "cohort": plan.smallest_cohort,
            "silos": [
                {"name": silo, "present": "".join(present), "missed": missed[silo]}
                for silo, present in self._present.items()
            ],
            "waiting_for": list(waiting_for if waiting_for is not None else self._absent() if works else ()),
            "budget": budget_of(plan, done, None),
            "model": self._moves.as_dict(),
            "refusals": dict(refusals),
        }

    def _catch_up(self) -> None:
        """Read the syncs that have ended since the last time."""
        store = self._store
        if store is None:
            return
        end = store.next_sync()
        self._forget(end)
        for sync in range(self._first + len(self._states), end):
            closed = store.at(sync)
            self._states.append(_letter(closed))
            known = self._states[-1] in "ps"
            members = self._roll.at(sync).silos
            for silo in members:
                self._present.setdefault(silo, ["."] * (len(self._states) - 1))
            for silo, present in self._present.items():
                away = "0" if silo in members else "."
                present.append("?" if not known else "1" if silo in closed.cohort else away)
            if self._role == "analyzer" and closed.cohort and closed.value is not None:
                self._moves.take(sync, Outcome.decode(closed.value, self._plan).prefix)

    def _forget(self, end: int) -> None:
        """Drop old syncs: of an endless run, only the last ones are shown."""
        old = max(0, end - SHOWN) - self._first if self._plan.endless else 0
        if old > 0:
            self._first += old
            for known in (self._states, *self._present.values()):
                del known[:old]

    def _absent(self) -> list[str]:
        """The silos that have sent nothing for the open sync, according to the store."""
        store = self._store
        if store is None or store.at(sync := store.next_sync()).state is not SyncState.COLLECTING:
            return []
        senders = store.senders(sync)
        return [silo for silo in self._roll.at(sync).silos if silo not in senders]


def _letter(sync: StoredSync) -> str:
    if not sync.state.final:
        return "?"  # an endless run has forgotten it
    return "g" if sync.state is SyncState.GIVEN_UP else "p" if sync.cohort else "s"


def _in_a_row(present: Sequence[str]) -> int:
    """The number of syncs since the silo was last in one."""
    count = 0
    for one in reversed(present):
        if one == "1":
            break
        count += one == "0"
    return count
