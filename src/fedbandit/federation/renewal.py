"""A new term begins with what the last one has learnt: its newest model, which every silo has, becomes a prior."""

from __future__ import annotations

from dataclasses import replace

from fedbandit._validate import ArgumentError
from fedbandit.bandit.prior import Prior
from fedbandit.federation.setup.home import Home
from fedbandit.federation.silo.terms import check_continues
from fedbandit.federation.status import looking
from fedbandit.federation.store import SiloStore, SyncStore
from fedbandit.federation.wire.parcels import Outcome
from fedbandit.knowledge import prior_of
from fedbandit.plan import Plan

__all__ = ["begun_again", "begun_from", "newest"]


def newest(home: Home) -> tuple[int, Outcome] | None:
    """The newest model, of a sync with anybody in it, that this analyzer or silo has of its term; None if it has none.
    Nothing is written."""
    agreement = home.agreement()
    plan = agreement.plan
    with looking(home, agreement) as engine:
        if home.settings.role == "mixer" or engine is None:
            return None
        if home.settings.role == "analyzer":
            found = [(one.sync, one.value) for one in SyncStore(engine).all() if one.value is not None]
        else:
            store = SiloStore(engine)
            terms = [term.number for term in store.terms() if term.plan_hash == plan.hash]
            found = list(store.models(terms[-1])) if terms else []
    outcomes = ((sync, Outcome.decode(value, plan)) for sync, value in reversed(found))
    return next(((sync, outcome) for sync, outcome in outcomes if not outcome.skipped), None)


def begun_from(last: Plan, offered: Plan, sync: int, outcome: Outcome, weight: float = 1.0) -> Plan:
    """The plan of a new term that begins with a model of the last one."""
    known = last.known(outcome.prefix, last.ticks[sync])
    return begun_again(last, offered, prior_of(last, sync, known, weight), weight)


def begun_again(last: Plan, offered: Plan, prior: Prior, weight: float = 1.0) -> Plan:
    """The plan of a new term that begins with what the last one began with: a term of which nothing has come yet, as
    when there was a mistake in its plan, must not cost what those before it have learnt."""
    if offered.prior is not None:
        raise ArgumentError("prior", "must be left out of the new plan: it is what the last term has learnt")
    check_continues(last, offered)
    return offered.changed(prior=replace(prior, weight=weight))
