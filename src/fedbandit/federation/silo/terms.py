"""A silo's terms: one plan each, all on one ledger."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

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
ENDED = "ended "  # followed by a plan's hash: the name under which a store notes that its term was ended early


def open_term(store: SiloStore, plan: Plan, start: float, new_term: bool, silo: str = "") -> Term:
    """The running term, which must have this plan; or a new term, if `new_term` asks for one and the last is over. For
    a `silo` that was dismissed, the last term is over. It was not sent the last models of that term, so it has nothing
    to compare a prior with."""
    terms = store.terms()
    if terms and terms[-1].plan_hash == plan.hash:
        return terms[-1]
    if terms and not new_term:
        raise ArgumentError(
            "plan",
            f"must hash to {terms[-1].plan_hash[:16]}, under which this store began, got {plan.hash[:16]}; "
            "a plan does not change within a term, and a new plan begins a new term (`silo serve --new-term`)",
        )
    _check_begins(store, terms, plan, silo)
    return store.begin_term(plan.hash, json.dumps(plan.as_dict(), sort_keys=True), start)


def check_begins(store: SiloStore, plan: Plan, silo: str) -> None:
    """Refuse a plan that cannot begin a new term on this store now. Nothing is written."""
    _check_begins(store, store.terms(), plan, silo)


def _check_begins(store: SiloStore, terms: Sequence[Term], plan: Plan, silo: str) -> None:
    """Compare a plan with the terms that were there when the caller looked: another worker may have begun it since."""
    left = bool(terms) and _has(store, terms[-1], "dismiss", silo)
    if terms and _runs(store, terms[-1]) and not left:
        raise ArgumentError(
            "new_term",
            "must wait until the running term has made its last release; to end it here, stop the silo and accept the"
            " new one with `--end-term`",
        )
    if any(term.plan_hash == plan.hash for term in terms):
        raise ArgumentError("plan", "was the plan of an earlier term; a term is not run twice")
    if terms and plan.prior is not None and not left:
        _check_prior(store, terms[-1], plan, plan.prior, _has(store, terms[-1], "admit", silo))


def end_term(store: SiloStore) -> None:
    """End the running term here, on somebody's word. Its remaining releases are never made and cost nothing: a person's
    guarantee is about all releases of a term, so it holds for those that were made."""
    if terms := store.terms():
        store.remember(ENDED + terms[-1].plan_hash, b"early")


def _runs(store: SiloStore, term: Term) -> bool:
    """Whether a term still has releases to make. A term without an end is over when a new one begins. So is a term in
    which nothing was drawn, e.g. because its plan had a mistake: nothing has left the silo, and nothing was spent."""
    plan = Plan.from_dict(json.loads(term.plan))
    if plan.endless or not store.drawn(term.number) or store.recall(ENDED + term.plan_hash) is not None:
        return False
    return term.open_sync < len(plan.times)


def _has(store: SiloStore, term: Term, change: str, silo: str) -> bool:
    """Whether the silo was dismissed or admitted in a term, by the editions of the members that it has received."""
    editions = kept_editions(store.recall, term.plan_hash)
    return any((edition.change, edition.name) == (change, silo) for edition in editions)


def check_continues(last: Plan, plan: Plan) -> None:
    """Refuse to begin with the last plan's sums if they mean something else than the new plan's."""
    for name in ("dim", "schema", "centre"):
        if getattr(last, name) != getattr(plan, name):
            raise ArgumentError(
                "plan", f"must have the {name} of the last term to begin with its model, or begin with --from-nothing"
            )


def _check_prior(store: SiloStore, term: Term, plan: Plan, prior: Prior, joined: bool) -> None:
    """Refuse a prior that is not one of the models that this silo was sent in the last term: otherwise the author of
    the plan would decide what silos believe. A silo that joined in that term was not sent the models before its first
    one, so it has nothing to compare a prior of then with."""
    last = Plan.from_dict(json.loads(term.plan))
    check_continues(last, plan)
    models = store.models(term.number)
    if not models and last.prior is not None and replace(last.prior, weight=prior.weight) == prior:
        return  # the last term has sent no model
    for sync, value in reversed(models):
        known = last.known(Outcome.decode(value, last).prefix, last.ticks[sync])
        if prior_of(last, sync, known, prior.weight) == prior:
            return
    if joined and (not models or any(_is_of(prior, last, sync) for sync in range(models[0][0]))):
        return
    raise ArgumentError(
        "prior",
        f"must be a model of the last term; it is not among the {len(models)} that this silo has. If it was away when"
        " the term ended, serve it under the last plan until the analyzer has sent it the newest model; otherwise the"
        " plan of the new term is wrong: tell its sender",
    )


def _is_of(prior: Prior, plan: Plan, sync: int) -> bool:
    """Whether a prior has the noise and the visits of the model of this sync, whatever its sums are."""
    return prior_of(plan, sync, np.array(prior.sums), prior.weight) == prior


def check_secret(store: SiloStore, secret: bytes) -> None:
    """Refuse a secret that this store did not begin with: under another secret its users would be counted anew."""
    mark = hashlib.sha256(b"fedbandit secret of a silo" + secret).digest()[:8]
    if store.remember("secret", mark) != mark:
        raise ArgumentError("secret", "must be the one this store began with, and is not")


def own_secret(store: str | Path) -> bytes:
    """The secret of a silo that is opened by path alone: in a file next to the store, created on first use. A truncated
    one is refused: with an empty secret, anybody could read and make decision ids."""
    if "://" in str(store):
        raise ArgumentError("secret", "must be given for a store at a URL: all workers of a silo share it")
    path = Path(store).with_name(Path(store).name + ".key")
    if not path.exists():
        write_secret(path, secrets.token_bytes(SECRET_BYTES))
    secret = read_secret(path)
    if len(secret) != SECRET_BYTES:
        raise ArgumentError(
            "secret",
            f"must be {SECRET_BYTES} bytes, and {path} has {len(secret)}: it is damaged. Put its backup in its place;"
            " only if the store was never used, delete the file",
        )
    return secret
