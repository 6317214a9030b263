"""Where a silo's term stands, read from its store. The numbers of people are for the silo only; the rest is public."""

from __future__ import annotations

import json
import math
from typing import Any

from fedbandit.federation.silo import book
from fedbandit.federation.states import ReleaseState
from fedbandit.federation.store.rewards import NOWHERE, UNSHARED
from fedbandit.federation.store.silo_store import SiloStore, Term
from fedbandit.plan import Plan

__all__ = ["HALTED", "PROBLEM", "TROUBLES", "silo_status"]

PROBLEM = "problem"  # the name under which the serving process stores why nothing ticks or is drawn
TROUBLES = "troubles"  # the same for all reasons, by kind, as JSON
HALTED = "halted"  # why a worker that does not lead has halted, until the one that leads has read it


def silo_status(store: SiloStore, plan: Plan, term: Term) -> dict[str, Any]:
    """The status of a silo's term: decisions, releases, missed syncs and the weight that they cost, budget."""
    releases = store.releases(term.number)
    missed, given_up = (
        [release.sync for release in releases if release.state is state]
        for state in (ReleaseState.MISSED, ReleaseState.GIVEN_UP)
    )
    kept = store.kept(term.number)
    models, problem = store.models(term.number), store.state(term.number, PROBLEM)
    return {
        "problem": (problem or b"").decode() or None,
        "term": term.number,
        "plan": term.plan_hash,
        "schedule": str(plan.schedule),
        "visits": plan.visits,
        "decisions": term.decisions,
        "without_user_key": term.unkeyed,
        "opted_out": kept.get(UNSHARED, 0),
        "over_cap": kept.get(NOWHERE, 0),
        "syncs": None if plan.endless else len(plan.times),
        "released": store.drawn(term.number),
        "missed": missed,
        "given_up": given_up,
        "weight": _weight(plan, sorted([*missed, *given_up]), models[-1][0] if models else -1),
        "model": models[-1][0] + 1 if models else 0,
        "ended": term.open_sync >= len(plan.ticks),
        **_budget(store, plan, term.number),
    }


def _weight(plan: Plan, missed: list[int], last: int) -> float:
    """The share of this silo's batches that the last model holds: below 1 if missed syncs are not made up for."""
    if last < 0:
        return 1.0
    first = max(0, last - plan.reach)  # earlier syncs are forgotten completely
    since = [sync - first for sync in missed if sync >= first]
    return float(plan.protocol.kept_weights(since, last - first).sum() / plan.encoder.target_row(last - first).sum())


def _budget(store: SiloStore, plan: Plan, term: int) -> dict[str, Any]:
    """The budget according to the ledger, of this term and of all terms; None where no number would be true."""
    spent, privacy, clear = book.spending(book.kept(store)), plan.privacy, _in_the_clear(store)
    this = next((one for one in spent.terms if one.term == term), None)
    nothing_yet = None if term in clear else 0.0
    return {
        "epsilon": privacy.epsilon if privacy else None,
        "delta": privacy.delta if privacy else None,
        "adjacency": privacy.adjacency if privacy else None,
        "epsilon_spent": _finite(this.epsilon) if this else nothing_yet,
        "epsilon_left": this.left if this else privacy.epsilon if privacy else None,
        "spent_against": "; ".join(this.against) if this else None,
        "epsilon_all_terms": None if clear else _finite(spent.epsilon),
        "delta_all_terms": spent.delta,
        "adjacency_all_terms": spent.adjacency if spent.terms else None,
    }


def _in_the_clear(store: SiloStore) -> list[int]:
    """The terms that released sums under a plan without a budget: they have no ledger entries, and no bound holds."""
    plans = {term.number: json.loads(term.plan) for term in store.terms()}
    return [number for number, plan in plans.items() if plan["privacy"] is None and store.drawn(number)]


def _finite(epsilon: float) -> float | None:
    return epsilon if math.isfinite(epsilon) else None
