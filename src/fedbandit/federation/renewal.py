"""A new term begins with what the last one has learnt: its newest model, which every silo has, becomes a prior."""

from __future__ import annotations

from dataclasses import replace

from fedbandit._validate import ArgumentError
from fedbandit.bandit.prior import Prior
from fedbandit.federation.setup.home import Home
from fedbandit.federation.silo.terms import check_begins, check_continues, end_term
from fedbandit.federation.states import SyncState
from fedbandit.federation.status import looking
from fedbandit.federation.store import SiloStore, SyncStore, open_engine, read_engine
from fedbandit.federation.store.opening import begun
from fedbandit.federation.wire.parcels import Outcome
from fedbandit.knowledge import prior_of
from fedbandit.plan import Plan

__all__ = ["begun_again", "begun_from", "check_accepts", "newest"]


def newest(home: Home) -> tuple[int, Outcome] | None:
    """The newest model, of a sync with anybody in it, that this analyzer or silo has of its term; None if it has none.
    Of an analyzer it is one that it has sent: silos begin with no other, and the next term's analyzer sends none of
    this term. Nothing is written."""
    agreement = home.agreement()
    plan = agreement.plan
    with looking(home, agreement) as engine:
        if home.settings.role == "mixer" or engine is None:
            return None
        if home.settings.role == "analyzer":
            sent = (one for one in SyncStore(engine).all() if one.state is SyncState.PUBLISHED)
            found = [(one.sync, one.value) for one in sent if one.value is not None]
        else:
            store = SiloStore(engine)
            terms = [term.number for term in store.terms() if term.plan_hash == plan.hash]
            found = list(store.models(terms[-1])) if terms else []
    outcomes = ((sync, Outcome.decode(value, plan)) for sync, value in reversed(found))
    return next(((sync, outcome) for sync, outcome in outcomes if not outcome.skipped), None)


def check_accepts(home: Home, plan: Plan, *, end: bool = False) -> None:
    """Refuse a new term that could not begin on this party's store now, before its file takes the place of the last
    term's: a silo that is still to make a release, or to take in a model, needs that one when it starts again. With
    `end` the running term is ended first; then the silo must not run."""
    place = home.store(plan.hash)
    if home.settings.role != "silo" or not begun(place):
        return
    engine = open_engine(place) if end else read_engine(place)
    try:
        if end:
            end_term(SiloStore(engine))
        check_begins(SiloStore(engine), plan, home.settings.name)
    finally:
        engine.close()


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
