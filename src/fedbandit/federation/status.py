"""The status of a party, read from its store: syncs, silos, budget. A silo's status says how many people came, and is
for the silo only."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from fedbandit._validate import ArgumentError
from fedbandit.federation.board.keeper_board import KeeperBoard
from fedbandit.federation.board.silo_board import Running, SiloBoard
from fedbandit.federation.http.families import Dates, Machine
from fedbandit.federation.setup.agreement import Agreement
from fedbandit.federation.setup.home import MEMBERS, Home
from fedbandit.federation.setup.roll import Roll, read_editions
from fedbandit.federation.silo.silo_status import silo_status
from fedbandit.federation.states import SyncState
from fedbandit.federation.store import Engine, SiloStore, SyncStore, read_engine
from fedbandit.federation.store.database import recall
from fedbandit.federation.store.opening import begun, check_current, check_owner
from fedbandit.federation.store.seen import SeenStore
from fedbandit.plan import Plan

__all__ = ["HomeBoard", "check_tied", "looking", "status"]


@contextmanager
def looking(home: Home, agreement: Agreement) -> Iterator[Engine | None]:
    """The store of a party, for reading only; None if the party was never started. Things that do not belong together
    are refused: another federation's file, another party's keys or store, another version's tables."""
    place = home.store(agreement.plan.hash)
    if not begun(place):
        if agreement.member(home.settings.name) is not None:  # a party that was not admitted yet is not in the file
            home.party()
        yield None
        return
    home.party()
    engine = read_engine(place)
    try:
        check_current(engine)
        check_tied(engine, agreement, home.owner)
        yield engine
    finally:
        engine.close()


def check_tied(engine: Engine, agreement: Agreement, owner: str) -> None:
    """Refuse a store of another party, or one whose term began with another file of the federation."""
    check_owner(engine, owner)
    bound = recall(engine, f"agreement {agreement.plan.hash}")
    if bound is not None and bound != agreement.bond.encode():
        says = "keys, members or times in it have changed since the term began"
        raise ArgumentError("federation", f"must be the file that the store began with: {says}; put it back")


def status(path: Path) -> dict[str, Any]:
    """The status of the party of this directory, whether it is running or not."""
    home = Home.load(path)
    agreement = home.agreement()
    roll, plan = Roll(agreement, read_editions(path / MEMBERS)), agreement.plan
    shared: dict[str, Any] = {
        "party": home.settings.name,
        "role": home.settings.role,
        "federation": agreement.id,
        "fingerprint": agreement.fingerprint,
        "guarantee": plan.guarantee.statement,
        "assumes": list(plan.guarantee.assumes),
        "next_tick": _shown(Dates(plan, agreement.timing).next(time.time())),
    }
    with looking(home, agreement) as engine:
        if engine is None:
            return {**shared, "started": False}
        roll.tie(lambda key, value: value, partial(recall, engine))
        shared |= {"edition": roll.number, "members": list(roll.newest.silos)}
        if home.settings.role == "silo":
            silo = SiloStore(engine)
            # A term under another plan is over or belongs to another federation: it says nothing about this plan.
            terms = [term for term in silo.terms() if term.plan_hash == plan.hash]
            if not terms:
                return {**shared, "started": False, "problem": _of_another_plan(silo)}
            known = {"models_fingerprint": _models(engine, agreement), **silo_status(silo, plan, terms[-1])}
            return {**shared, "started": True, **known}
        return {**shared, "started": True, **_sync_status(SyncStore(engine), plan, roll.newest.silos)}


class HomeBoard:
    """The data of a party's page, read from its directory, whether the party is running or not, or has not begun yet.
    Any thread may ask; the store is read in one separate thread, because SQLite ties a connection to its thread."""

    def __init__(self, path: Path) -> None:
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="board")
        self._home = Home.load(path)
        self._agreement = self._home.agreement()
        self._roll = Roll(self._agreement, read_editions(path / MEMBERS))
        with looking(self._home, self._agreement):  # mismatched files are refused before a page is served
            pass
        self._dates = Dates(self._agreement.plan, self._agreement.timing)
        self._engine: Engine | None = None
        self._board = self._make(None)

    def read(self) -> dict[str, Any]:
        """The page's data now."""
        return self._reader.submit(self._read).result()

    def _read(self) -> dict[str, Any]:
        store = self._home.store(self._agreement.plan.hash)
        if self._engine is None and begun(store):
            self._engine = read_engine(store)
            self._board = self._make(self._engine)
        if self._engine is not None:
            self._roll.tie(lambda key, value: value, partial(recall, self._engine))
        machine = Machine.of(self._home).values()
        if isinstance(self._board, SiloBoard):
            return self._board.read(Running(machine=machine))
        return self._board.read(troubles={}, refusals={}, machine=machine)

    def close(self) -> None:
        """Close the store."""
        if self._engine is not None:
            self._reader.submit(self._engine.close).result()
        self._reader.shutdown()

    def _make(self, engine: Engine | None) -> SiloBoard | KeeperBoard:
        name, role, dates = self._home.settings.name, self._home.settings.role, self._dates
        if role == "silo":
            store = None if engine is None else SiloStore(engine)
            return SiloBoard(store, self._agreement.plan, name, dates.of, dates.deadline)
        kept = None if engine is None else SyncStore(engine)
        return KeeperBoard(kept, self._roll, name, role, dates.of, dates.deadline)


def _shown(moment: float | None) -> str | None:
    return None if moment is None else datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")


def _models(engine: Engine, agreement: Agreement) -> str | None:
    """A text that is the same for all silos with the same newest model, for people to compare."""
    head = SeenStore(engine, agreement.plan.hash[:16]).of(agreement.holder("analyzer").name).head
    return f"{head.length} {head.hash.hex()[:32]}" if head.length else None


def _of_another_plan(store: SiloStore) -> str | None:
    """What to do if the store has terms, but none of them under the plan of the federation's file."""
    terms = store.terms()
    if not terms:
        return None
    return (
        f"the store's last term has plan {terms[-1].plan_hash[:16]}: once it is over, `silo serve --new-term` begins"
        " the term of the federation's file; if no new term was agreed on, put the file of that plan back"
    )


def _sync_status(store: SyncStore, plan: Plan, silos: tuple[str, ...]) -> dict[str, Any]:
    """The syncs of a mixer or an analyzer."""
    known = store.all()
    done = [sync for sync in known if sync.state.final]
    return {
        "problem": store.problem(),
        "plan": plan.hash,
        "syncs": None if plan.endless else len(plan.times),
        "closed": done[-1].sync + 1 if done else 0,
        "skipped": [sync.sync for sync in done if not sync.cohort and sync.state is not SyncState.GIVEN_UP],
        "given_up": [sync.sync for sync in done if sync.state is SyncState.GIVEN_UP],
        "waiting_for": sorted(_absent(store, known[-1].sync, silos)) if _collecting(store) else [],
        "syncs_of_silo": {name: sum(name in sync.cohort for sync in done) for name in silos},
    }


def _collecting(store: SyncStore) -> bool:
    return store.at(store.next_sync()).state is SyncState.COLLECTING


def _absent(store: SyncStore, sync: int, silos: tuple[str, ...]) -> set[str]:
    return set(silos) - set(store.inbox(sync))
