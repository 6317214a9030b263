"""Where a party stands, read from its store: rounds, silos, budget. Public numbers only."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from fedbandit.federation import book
from fedbandit.federation.home import Home
from fedbandit.federation.states import ReleaseState, RoundState
from fedbandit.federation.store import RoundStore, SiloStore, read_engine
from fedbandit.federation.store.silo import Term
from fedbandit.plan import Plan
from fedbandit.protocol.secure_sum import batch_weights


def status(path: Path) -> dict[str, Any]:
    """The status of the party of this directory, whether it runs or not."""
    home = Home.load(path)
    federation = home.federation()
    plan = federation.plan
    shared = {
        "party": home.settings.name,
        "role": home.settings.role,
        "federation": federation.id,
        "fingerprint": federation.fingerprint,
        "guarantee": plan.guarantee.statement,
    }
    store = home.store(plan.hash)
    if "://" not in store and not Path(store).exists():
        return {**shared, "started": False}
    engine = read_engine(store)
    try:
        if home.settings.role == "silo":
            silo = SiloStore(engine)
            terms = silo.terms()
            return {**shared, "started": bool(terms), **(silo_status(silo, plan, terms[-1]) if terms else {})}
        return {**shared, "started": True, **round_status(RoundStore(engine), plan, federation.silos)}
    finally:
        engine.close()


def silo_status(store: SiloStore, plan: Plan, term: Term) -> dict[str, Any]:
    """A silo's term: decisions, releases, what was missed and what it cost, budget."""
    releases = store.releases(term.number)
    missed = [release.step for release in releases if release.state is ReleaseState.MISSED]
    models = store.models(term.number)
    return {
        "term": term.number,
        "plan": term.plan_hash,
        "decisions": term.decisions,
        "without_user_key": term.unkeyed,
        "steps": len(plan.times),
        "released": sum(release.state is not ReleaseState.CLOSED for release in releases),
        "missed": missed,
        "weight": _weight(plan, missed, models[-1][0] if models else -1),
        "model": models[-1][0] + 1 if models else 0,
        "ended": term.open_step >= len(plan.times),
        **_budget(store, plan, term.number),
    }


def round_status(store: RoundStore, plan: Plan, silos: tuple[str, ...]) -> dict[str, Any]:
    """Rounds of a mixer or an analyzer."""
    rounds = store.rounds()
    done = [r for r in rounds if r.value is not None]
    return {
        "plan": plan.hash,
        "steps": len(plan.times),
        "rounds": len(done),
        "skipped": [r.step for r in done if not r.cohort],
        "waiting_for": sorted(_absent(store, rounds[-1].step, silos)) if _collecting(store) else [],
        "rounds_of_silo": {name: sum(name in r.cohort for r in done) for name in silos},
    }


def _collecting(store: RoundStore) -> bool:
    return store.round(store.next_step()).state is RoundState.COLLECTING


def _absent(store: RoundStore, step: int, silos: tuple[str, ...]) -> set[str]:
    return set(silos) - set(store.inbox(step))


def _weight(plan: Plan, missed: list[int], last: int) -> float:
    """Share of this silo's batches that the last model holds: less than 1 after missed rounds, except for trust
    `silo`, which makes up for them."""
    if last < 0 or not missed or plan.trust == "silo":
        return 1.0
    return float(np.mean(batch_weights(plan.encoder, missed, last)))


def _budget(store: SiloStore, plan: Plan, term: int) -> dict[str, Any]:
    """What the ledger says, this term and all of them together; None where no number would be true."""
    spent = book.spending(store.ledger())
    this = [one for one in spent.terms if one.term == term]
    return {
        "epsilon": plan.privacy.epsilon if plan.privacy else None,
        "delta": plan.privacy.delta if plan.privacy else None,
        "epsilon_spent": _finite(this[0].epsilon) if this else 0.0,
        "epsilon_left": this[0].left if this else plan.privacy.epsilon if plan.privacy else None,
        "epsilon_all_terms": _finite(spent.epsilon) if spent.terms else 0.0,
    }


def _finite(epsilon: float) -> float | None:
    return epsilon if math.isfinite(epsilon) else None
