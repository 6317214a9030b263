"""How the budget is spent, release by release. The plan determines it before anything is released."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from fedbandit.plan import Plan
from fedbandit.privacy.budget import at_most, exactly
from fedbandit.privacy.ledger import Entry
from fedbandit.privacy.spending import spent
from fedbandit.protocol import mechanisms

__all__ = ["budget_of", "spending_curve"]

POINTS = 24


@lru_cache(maxsize=8)
def spending_curve(plan: Plan) -> tuple[tuple[int, float], ...]:
    """Pairs of a number of releases and the epsilon that they spend; empty without a budget or a finite epsilon.

    >>> from fedbandit.privacy.budget import Privacy
    >>> curve = spending_curve(Plan(silos=3, rounds=100, dim=3, privacy=Privacy(1.0, 1e-6)))
    >>> curve[0][0], round(curve[-1][1], 6) <= 1.0, curve[0][1] > 1 / len(curve)
    (1, True, True)
    """
    syncs = len(plan.times)
    if plan.privacy is None:
        return ()
    counts = np.unique(np.geomspace(1, syncs, POINTS).round().astype(int)).tolist()
    found = [(count, _spent_after(plan, count)) for count in counts]
    return tuple(found) if all(math.isfinite(epsilon) for _, epsilon in found) else ()


@lru_cache(maxsize=256)
def _spent_after(plan: Plan, releases: int) -> float:
    """The epsilon spent after this number of releases, according to the plan, if every release is drawn once."""
    events = [plan.release("silo", 1, sync) for sync in range(releases)]
    entries = [Entry("", event, "") for event in events if event is not None]
    return spent(entries, mechanisms.encoder).epsilon if entries else 0.0


def budget_of(plan: Plan, released: int, epsilon_spent: float | None) -> dict[str, Any]:
    """The budget, how much is spent, and what that means. `epsilon_spent` is the ledger's; None: the plan's is used."""
    privacy, curve = plan.privacy, spending_curve(plan)
    if privacy is None or not curve:
        return {"curve": [], "says": "This plan has no budget: nothing is promised."}
    known = min(released, curve[-1][0])
    spent_now = _spent_after(plan, known) if epsilon_spent is None else epsilon_spent
    half = next((count for count, epsilon in curve if epsilon >= privacy.epsilon / 2), curve[-1][0])
    syncs, budget = len(plan.times), exactly(privacy.epsilon)
    of = "" if plan.endless else f" of {syncs:,}"
    so_far = f"{at_most(spent_now)} of {budget} is spent after {released:,}{of} releases."
    meaning = f"It approaches {budget} at release {syncs:,}, but not linearly: half is spent by release {half:,}."
    if plan.endless:
        meaning = f"It stays below {budget} however long it runs; half of it is spent by release {half:,}."
    return {
        "epsilon": privacy.epsilon,
        "delta": privacy.delta,
        "adjacency": privacy.adjacency,
        "spent": spent_now,
        "left": max(0.0, privacy.epsilon - spent_now),
        "released": released,
        "syncs": syncs,
        "curve": [[count, round(epsilon, 6)] for count, epsilon in curve],
        "says": f"{so_far} {meaning}",
    }
