"""Where a party stands, read from its store: syncs, silos, budget. Public numbers only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedbandit.federation.setup.agreement import Agreement
from fedbandit.federation.setup.home import Home
from fedbandit.federation.silo.silo_status import silo_status
from fedbandit.federation.states import SyncState
from fedbandit.federation.store import Engine, SiloStore, SyncStore, read_engine
from fedbandit.federation.store.seen import SeenStore
from fedbandit.plan import Plan

__all__ = ["status"]


def status(path: Path) -> dict[str, Any]:
    """The status of the party of this directory, whether it runs or not."""
    home = Home.load(path)
    agreement = home.agreement()
    plan = agreement.plan
    shared = {
        "party": home.settings.name,
        "role": home.settings.role,
        "federation": agreement.id,
        "fingerprint": agreement.fingerprint,
        "guarantee": plan.guarantee.statement,
        "assumes": list(plan.guarantee.assumes),
    }
    store = home.store(plan.hash)
    if "://" not in store and not Path(store).exists():
        return {**shared, "started": False}
    engine = read_engine(store)
    try:
        if home.settings.role == "silo":
            silo = SiloStore(engine)
            terms = silo.terms()
            known = (
                {"models_fingerprint": _models(engine, agreement), **silo_status(silo, plan, terms[-1])}
                if terms
                else {}
            )
            return {**shared, "started": bool(terms), **known}
        return {**shared, "started": True, **_sync_status(SyncStore(engine), plan, agreement.silos)}
    finally:
        engine.close()


def _models(engine: Engine, agreement: Agreement) -> str | None:
    """What silos with the same newest model have in common, and others do not: for people to compare."""
    head = SeenStore(engine, agreement.plan.hash[:16]).of(agreement.holder("analyzer").name).head
    return f"{head.length} {head.hash.hex()[:32]}" if head.length else None


def _sync_status(store: SyncStore, plan: Plan, silos: tuple[str, ...]) -> dict[str, Any]:
    """Syncs of a mixer or an analyzer."""
    begun = store.all()
    done = [sync for sync in begun if sync.state.final]
    return {
        "problem": store.problem(),
        "plan": plan.hash,
        "syncs": len(plan.times),
        "closed": len(done),
        "skipped": [sync.sync for sync in done if not sync.cohort and sync.state is not SyncState.GIVEN_UP],
        "given_up": [sync.sync for sync in done if sync.state is SyncState.GIVEN_UP],
        "waiting_for": sorted(_absent(store, begun[-1].sync, silos)) if _collecting(store) else [],
        "syncs_of_silo": {name: sum(name in sync.cohort for sync in done) for name in silos},
    }


def _collecting(store: SyncStore) -> bool:
    return store.at(store.next_sync()).state is SyncState.COLLECTING


def _absent(store: SyncStore, sync: int, silos: tuple[str, ...]) -> set[str]:
    return set(silos) - set(store.inbox(sync))
