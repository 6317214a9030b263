"""A silo's terms: one plan each, all on one ledger."""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import replace
from pathlib import Path

from fedbandit._validate import ArgumentError
from fedbandit.bandit.prior import Prior
from fedbandit.federation.setup.roll import kept_editions
from fedbandit.federation.store import SiloStore
from fedbandit.federation.store.silo_store import Term
from fedbandit.federation.wire.keys import read_secret, write_secret
from fedbandit.federation.wire.parcels import Outcome
from fedbandit.knowledge import prior_of
from fedbandit.plan import Plan

__all__ = ["check_begins", "check_continues", "check_secret", "end_term", "open_term", "own_secret"]

SECRET_BYTES = 32
ENDED = "ended "  # under which, and its plan, a store has that a term was ended before its last release


def open_term(store: SiloStore, plan: Plan, start: float, new_term: bool, silo: str = "") -> Term:
    """The running term, which must be of this plan, or a new one if it is asked for and the last is over. For a `silo`
    that was dismissed it is over; it was not sent its last models, so it has nothing to compare a prior with."""
    terms = store.terms()
    if terms and terms[-1].plan_hash == plan.hash:
        return terms[-1]
    if terms and not new_term:
        raise ArgumentError(
            "plan",
            f"must hash to {terms[-1].plan_hash[:16]}, under which this store began, got {plan.hash[:16]}; "
            "a plan does not change in a term, a new plan is a new term (`silo serve --new-term`)",
        )
    check_begins(store, plan, silo)
    return store.begin_term(plan.hash, json.dumps(plan.as_dict(), sort_keys=True), start)


def check_begins(store: SiloStore, plan: Plan, silo: str) -> None:
    """Refuse a plan that cannot be that of a new term on this store now. Nothing is written."""
    terms = store.terms()
    left = bool(terms) and _left(store, terms[-1], silo)
    if terms and _runs(store, terms[-1]) and not left:
        raise ArgumentError(
            "new_term",
            "must wait until the running term has made its last release; to end it here, stop the silo and accept the"
            " new one with `--end-term`",
        )
    if any(term.plan_hash == plan.hash for term in terms):
        raise ArgumentError("plan", "was the plan of an earlier term; a term is not run twice")
    if terms and plan.prior is not None and not left:
        _check_prior(store, terms[-1], plan, plan.prior)


def end_term(store: SiloStore) -> None:
    """Somebody says that the running term ends here. What is still to be released of it never is, and costs nothing: a
    person's guarantee is about all releases of a term, and holds for those that there are."""
    if terms := store.terms():
        store.remember(ENDED + terms[-1].plan_hash, b"early")


def _runs(store: SiloStore, term: Term) -> bool:
    """Whether a term still has releases to make. One without an end is over when a new one begins. So is one of which
    nothing was drawn, as when there was a mistake in its plan: nothing has left the silo, and nothing was spent."""
    plan = Plan.from_dict(json.loads(term.plan))
    if plan.endless or not store.drawn(term.number) or store.recall(ENDED + term.plan_hash) is not None:
        return False
    return term.open_sync < len(plan.times)


def _left(store: SiloStore, term: Term, silo: str) -> bool:
    """Whether the silo was dismissed in a term, by the editions of its members that it has heard of."""
    editions = kept_editions(store.recall, term.plan_hash)
    return any((edition.change, edition.name) == ("dismiss", silo) for edition in editions)


def check_continues(last: Plan, plan: Plan) -> None:
    """Refuse to begin with sums that mean something else than the new plan's."""
    for name in ("dim", "schema", "centre"):
        if getattr(last, name) != getattr(plan, name):
            raise ArgumentError(
                "plan", f"must have the {name} of the last term to begin with its model; otherwise begin from nothing"
            )


def _check_prior(store: SiloStore, term: Term, plan: Plan, prior: Prior) -> None:
    """Refuse a prior that is none of the models which this silo was sent in the last term: whoever wrote the plan would
    otherwise decide what silos believe."""
    last = Plan.from_dict(json.loads(term.plan))
    check_continues(last, plan)
    models = store.models(term.number)
    if not models and last.prior is not None and replace(last.prior, weight=prior.weight) == prior:
        return  # nothing has come of the last term
    for sync, value in reversed(models):
        known = last.known(Outcome.decode(value, last).prefix, last.ticks[sync])
        if prior_of(last, sync, known, prior.weight) == prior:
            return
    raise ArgumentError(
        "prior",
        f"must be a model of the last term; it is not among the {len(models)} that this silo has. If it was away when"
        " the term ended, serve it under the last plan until the analyzer has sent it the newest model; otherwise the"
        " plan of the new term is wrong: tell whoever has sent it",
    )


def check_secret(store: SiloStore, secret: bytes) -> None:
    """Under another secret the users of this store would be counted anew; refuse it."""
    mark = hashlib.sha256(b"fedbandit secret of a silo" + secret).digest()[:8]
    if store.remember("secret", mark) != mark:
        raise ArgumentError("secret", "must be the one this store began with; this is another")


def own_secret(store: str | Path) -> bytes:
    """The secret of a silo that is opened by path alone: in a file beside the store, made on first use."""
    if "://" in str(store):
        raise ArgumentError("secret", "must be given for a store at a URL: all workers of a silo share it")
    path = Path(store).with_name(Path(store).name + ".key")
    if not path.exists():
        write_secret(path, secrets.token_bytes(SECRET_BYTES))
    return read_secret(path)
