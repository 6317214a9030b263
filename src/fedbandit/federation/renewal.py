"""A new term begins with what the last one has learnt: the newest model, which every silo has, becomes its prior."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from fedbandit._validate import ArgumentError
from fedbandit.bandit.prior import Prior
from fedbandit.federation.setup.agreement import Agreement
from fedbandit.federation.setup.home import MEMBERS, Home
from fedbandit.federation.setup.roll import Roll, kept_editions, read_editions
from fedbandit.federation.silo.terms import check_begins, check_continues, end_term
from fedbandit.federation.states import SyncState
from fedbandit.federation.status import looking
from fedbandit.federation.store import SiloStore, SyncStore, open_engine, read_engine
from fedbandit.federation.store.database import recall
from fedbandit.federation.store.opening import begun
from fedbandit.federation.wire.keys import PublicKeys
from fedbandit.federation.wire.parcels import Outcome
from fedbandit.knowledge import prior_of
from fedbandit.plan import Plan

__all__ = ["begun_again", "begun_from", "check_accepts", "check_follows", "newest"]


def newest(home: Home) -> tuple[int, Outcome] | None:
    """The newest model of the term, from a sync that was not skipped, in the store of this analyzer or silo; None if it
    has none. For an analyzer it is one that it has sent: silos do not know any other, and the next term's analyzer will
    not send it. Nothing is written."""
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
    """Refuse a new term that could not begin on this party's store now, before its file replaces the last term's: a
    silo that still has to make a release or to receive a model needs the old file when it starts again. With `end` the
    running term is ended first; then the silo must not be running."""
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


def check_follows(home: Home, offered: Agreement) -> None:
    """Refuse a file that an old copy of the founder's directory has made. One from before the last term does not know
    whose ledgers have begun since. One made in the last term may give a member keys that were replaced, and whoever has
    stolen those could speak for that member again."""
    last = home.agreement()
    if last.id != offered.id:  # another federation
        return
    again = offered.plan.hash == last.plan.hash
    before = offered.term < last.term or (offered.term == last.term > 1 and not again)
    if before or any(offered.ledger(silo).since < ledger.since for silo, ledger in last.ledgers.items()):
        raise ArgumentError(
            "federation",
            f"must follow term {last.term}, which is here, and be of a later one, got term {offered.term}: it was made"
            " from an old copy of the founder's directory, so tell its sender. If that directory is lost, the next term"
            " begins from a member's newest file (`fedbandit federation renew --new-operator-key`)",
        )
    if again:
        return
    given, place = read_editions(home.path / MEMBERS), home.store(last.plan.hash)
    if begun(place):
        engine = read_engine(place)
        try:
            given = max(given, kept_editions(partial(recall, engine), last.plan.hash), key=len)
        finally:
            engine.close()
    roll = Roll(last, given)
    for party in offered.parties:
        if party in roll.keys_of(party.name)[1:]:
            raise ArgumentError(
                "federation",
                f"must not have the keys of {party.name!r} that edition {_replaced(roll, party)} has replaced: it was"
                " made from an old copy of the founder's directory, so tell its sender",
            )


def _replaced(roll: Roll, party: PublicKeys) -> int:
    """The number of the edition that has replaced these keys of a party."""
    found = [one.number for one in roll.editions if (one.change, one.name) == ("rotate", party.name)]
    return found[len(found) - roll.keys_of(party.name).index(party)]


def begun_from(last: Plan, offered: Plan, sync: int, outcome: Outcome, weight: float = 1.0) -> Plan:
    """The plan of a new term that begins with a model of the last one."""
    known = last.known(outcome.prefix, last.ticks[sync])
    return begun_again(last, offered, prior_of(last, sync, known, weight), weight)


def begun_again(last: Plan, offered: Plan, prior: Prior, weight: float = 1.0) -> Plan:
    """The plan of a new term that begins with the same prior as the last one: a term without any model, because of a
    mistake in its plan, say, must not lose what earlier terms have learnt."""
    if offered.prior is not None:
        raise ArgumentError("prior", "must be left out of the new plan: it comes from the last term")
    check_continues(last, offered)
    return offered.changed(prior=replace(prior, weight=weight))
