"""Brings an old copy of a silo's store forward: releases that others have seen are given up, and not drawn again.

The releases that were drawn after the copy was made exist. This store has lost their data, and what they spent is
spent. Each becomes a release that was given up, with a ledger entry that says so and names the heads that others hold.
The rewards of those batches are not counted again: a decision that an earlier process made and that has no reward here
may have had its reward counted there, so it no longer counts. For the same reason, whatever waits in later batches of
this store is not released: it may have come again while the silo served from the copy, before anybody noticed. (Where
every decision has its place in a batch, it cannot have counted in another one.)

Two things cannot be brought back. One is who was counted in the meantime: with a new decision, a person of those
batches may count once more, or sooner, than the plan says. The other is who was set apart and served by raw data since.
Where that matters, let the term end and begin a new one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedbandit._validate import ArgumentError
from fedbandit.federation.silo import book
from fedbandit.federation.silo.releasing import own_after
from fedbandit.federation.store.silo_store import OWN_RELEASE, LedgerRow, SiloStore, Term
from fedbandit.federation.wire import messages
from fedbandit.federation.wire.heads import Greeting, Head
from fedbandit.plan import Plan
from fedbandit.privacy.ledger import LOST
from fedbandit.schedule import Clock

__all__ = ["Loss", "OldCopy", "begin_at", "bring_forward", "further", "is_known", "loss"]

WAY_OUT = (
    "Put the newest copy in its place, or let the term end: the founder can begin one in which this silo has a new"
    " ledger (`fedbandit federation renew --new-ledger NAME`)"
)


def is_known(ledger: Sequence[LedgerRow], seen: Head) -> bool:
    """Whether a head that others have seen belongs to this ledger, or to a lost ledger whose releases this one has
    given up. In that case the entry of the same number says so, and nothing up to there is drawn again."""
    if _contains(ledger, seen):
        return True
    row = _row(ledger, seen.length)
    return row is not None and LOST in row.event


def _contains(ledger: Sequence[LedgerRow], head: Head) -> bool:
    """Whether the ledger once had this head, as far as the rows can tell. In a term without an end old rows are
    deleted; a head of such a row is behind this ledger, and is believed."""
    if not head.length:
        return True
    row = _row(ledger, head.length)
    return head.length <= book.length(ledger) if row is None else row.hash == head.hash.hex()


def _row(ledger: Sequence[LedgerRow], length: int) -> LedgerRow | None:
    """The last row of the ledger when it had this length; None if it never had, or if the row is no longer kept."""
    found = bisect_left(ledger, length - 1, key=lambda row: row.number)
    return ledger[found] if found < len(ledger) and ledger[found].number == length - 1 else None


def further(store: SiloStore, term: int, plan: Plan, greetings: Mapping[str, Greeting]) -> str | None:
    """Why this store cannot be the one that others have seen; None if it can. The greetings are by party, and the heads
    in them carry the silo's own signature, perhaps made with keys that it has lost."""
    ledger, drawn = store.ledger(), store.drawn(term)
    for name, greeting in greetings.items():
        seen, syncs = greeting.seen, greeting.syncs
        # If there is a ledger, its signed head says how far; anybody could claim a bare number.
        behind = syncs > drawn
        if plan.privacy is not None:
            # A head whose row is no longer kept may be another ledger's: then the number of releases decides.
            unsure = seen.length > 0 and _row(ledger, seen.length) is None
            behind = not is_known(ledger, seen) or (unsure and behind)
        if behind:
            return (
                f"this store is an old copy, or empty: {name} has seen {syncs} releases of this term and a ledger of"
                f" {seen.length} entries; this store holds {drawn} and {book.length(ledger)}. Nothing is drawn from it,"
                " because a release drawn twice reveals what each draw hides. Put the newest copy in its place, or"
                " bring this one forward: stop the silo and run `fedbandit silo forward`; those syncs then count as"
                " missed and as spent"
            )
    return None


class OldCopy(NamedTuple):
    """A silo's store that may be behind, and what others have seen of the silo."""

    store: SiloStore
    plan: Plan
    silo: str
    signer: Ed25519PrivateKey
    answers: Sequence[Greeting]
    former: Sequence[Ed25519PublicKey] = ()  # other keys that the silo has signed with


class Loss(NamedTuple):
    """What is given up when a silo's store is brought forward."""

    syncs: tuple[int, ...]
    rewards: int  # rewards that this store has counted and that are never released
    entries: tuple[LedgerRow, ...]  # ledger entries, one per sync, if the plan spends anything


def loss(copy: OldCopy) -> Loss:
    """What is given up if this store is brought forward: the syncs whose releases others have seen and this store does
    not have. ArgumentError if it cannot be brought forward."""
    store, plan, silo, signer, answers, former = copy
    term, ledger = store.terms()[-1], store.ledger()
    drawn = store.drawn(term.number)
    own = (signer.public_key(), *former)
    seen = [answer for answer in answers if any(answer.seen.is_of(silo, key) for key in own)]
    earlier = book.length(ledger) - drawn  # entries of the terms before this one, less the syncs before a silo joined
    # A party that has seen nothing of this term may show a head of an earlier one, or none.
    of_term = [answer for answer in seen if answer.syncs or not is_known(ledger, answer.seen)]
    furthest = min(max((_syncs(plan, answer, earlier) for answer in of_term), default=0), len(plan.ticks))
    others = sorted({answer.seen for answer in seen if not _contains(ledger, answer.seen)})
    unknown = [head.length for head in others if not is_known(ledger, head)]
    if unknown and (furthest <= drawn or min(unknown) <= book.length(ledger)):
        raise ArgumentError(
            "store",
            "cannot be brought forward: others hold another ledger of this silo, of the same length or shorter, so"
            f" there are two. {WAY_OUT}",
        )
    syncs = tuple(range(drawn, furthest))
    last = max(furthest, term.open_sync + 1) if syncs and _doubtful(plan) else furthest
    rewards = store.waiting(term.number, range(drawn, last))
    return Loss(syncs, rewards, _entries(plan, term, silo, signer, syncs, others, store.last_entry()))


def _doubtful(plan: Plan) -> bool:
    """Whether a reward of a batch that was given up, sent again, is in another batch of the store."""
    return not plan.protocol.needs_points


def _syncs(plan: Plan, answer: Greeting, earlier: int) -> int:
    """How many releases of this term somebody has seen. If releases are entered in the ledger, the length that the silo
    has signed is an upper bound; a claim beyond it is not the silo's own."""
    if plan.release("silo", 1, 0) is None:
        return answer.syncs
    if answer.seen.length - answer.syncs > earlier:
        raise ArgumentError(
            "store",
            "cannot be brought forward: it has lost the ledger of earlier terms, and what they spent would be"
            f" forgotten. {WAY_OUT}",
        )
    return min(answer.syncs, answer.seen.length - earlier)


def _entries(
    plan: Plan,
    term: Term,
    silo: str,
    signer: Ed25519PrivateKey,
    syncs: Sequence[int],
    others: Sequence[Head],
    last: LedgerRow | None,
) -> tuple[LedgerRow, ...]:
    """One ledger entry per sync; each names all heads that others hold and this ledger does not have."""
    text = "; ".join(LOST + head.hash.hex() for head in others)
    rows: list[LedgerRow] = []
    for sync in syncs:
        event = plan.release(silo, term.number, sync)
        if event is not None:
            lost = replace(event, released=text)
            rows.append(book.entry(rows[-1] if rows else last, lost, signer))
    return tuple(rows)


def bring_forward(copy: OldCopy, *, at: float) -> list[int]:
    """Give up the syncs whose releases others have seen and this store does not have; returns these syncs.

    Either all of them are given up or none. The silo must not be running, the answers must be about the current term,
    and `at` is the current time.
    """
    lost = loss(copy)
    if not lost.syncs:
        return []
    _give_up(copy.store, copy.plan, copy.store.terms()[-1], lost.syncs, lost.entries, at, lost=True)
    return list(lost.syncs)


def begin_at(store: SiloStore, plan: Plan, term: Term, since: int, at: float) -> Term:
    """Begin the term of a silo that becomes a member at sync `since`. Its earlier batches are empty, are never sent and
    cost nothing."""
    _give_up(store, plan, term, range(since), (), at, lost=False)
    return store.term(term.number)


def _give_up(
    store: SiloStore, plan: Plan, term: Term, syncs: Sequence[int], entries: Sequence[LedgerRow], at: float, lost: bool
) -> None:
    """Mark the syncs as over for this silo, with empty batches."""
    protocol, stored = plan.protocol, store.encoder(term.number)
    state = protocol.init() if stored is None else messages.decode_stream(stored)
    own = store.state(term.number, OWN_RELEASE)
    for _ in syncs:
        state = protocol.without(state)
        own = own_after(plan, own, None)
    nothing = messages.encode([np.zeros(protocol.width, dtype=part.dtype) for part in protocol.parts])
    places = 0 if isinstance(plan.schedule, Clock) else plan.times[syncs[-1]]  # their batches' places are taken
    encoder = messages.encode_stream(state)
    store.give_up(
        term.number,
        syncs,
        nothing,
        encoder,
        entries,
        places=places,
        at=at,
        lost=lost,
        doubtful=lost and _doubtful(plan),
        own_release=own,
    )
