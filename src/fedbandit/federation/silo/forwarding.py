"""An old copy of a silo's store, brought forward: what others have seen of it since is given up, and not drawn again.

The releases that were drawn after the copy was made exist; their data are lost to this store, and what they spent is
spent. Each becomes a missed release and an entry of the ledger that says so and names the head that others hold. What
cannot be brought back is who was counted in the meantime: a person of those batches may count once more than the cap
says. Where that matters, let the term end and begin a new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedbandit.federation.silo import book
from fedbandit.federation.states import RELEASE, ReleaseEvent, ReleaseState, advance
from fedbandit.federation.store.silo_store import LedgerRow, SiloStore, Term
from fedbandit.federation.wire import messages
from fedbandit.federation.wire.heads import Greeting, Head
from fedbandit.plan import Plan
from fedbandit.privacy.ledger import LOST
from fedbandit.schedule import Clock

__all__ = ["bring_forward", "is_known"]


def is_known(ledger: Sequence[LedgerRow], seen: Head) -> bool:
    """Whether a head that others have seen is one of this ledger, or one that it says was lost."""
    if not seen.length:
        return True
    if seen.length <= len(ledger) and ledger[seen.length - 1].hash == seen.hash.hex():
        return True
    return any(LOST + seen.hash.hex() in row.event for row in ledger)


def bring_forward(
    store: SiloStore, plan: Plan, silo: str, signer: Ed25519PrivateKey, answers: Sequence[Greeting]
) -> list[int]:
    """Give up the syncs that others have seen releases for (`answers`) and this store has not; returns them.

    The silo must not be running, and the term must be the one that the answers are about.
    """
    term = store.terms()[-1]
    drawn = sum(release.state is not ReleaseState.CLOSED for release in store.releases(term.number))
    furthest = max((answer.syncs for answer in answers), default=0)
    head = max((answer.seen for answer in answers), default=None)
    lost = list(range(drawn, furthest))
    for sync in lost:
        assert head is not None
        _give_up(store, plan, term, silo, signer, sync, head)
    return lost


def _give_up(
    store: SiloStore, plan: Plan, term: Term, silo: str, signer: Ed25519PrivateKey, sync: int, head: Head
) -> None:
    """One sync: its batch is closed and goes by empty, its release counts as spent and as missed."""
    protocol = plan.protocol
    store.tick(term.number, 0, 0, lambda seated: sync + 1)
    stored = store.encoder(term.number)
    state = protocol.init() if stored is None else messages.decode_stream(stored)
    state, _ = protocol.encoder.step(state, np.zeros(protocol.width, dtype=np.int64))
    event = plan.release(silo, term.number, sync)
    if event is not None:
        event = replace(event, released=LOST + head.hash.hex())
    entry = None if event is None else book.entry(store.last_entry(), event, signer)
    nothing = messages.encode([np.zeros(protocol.width, dtype=part.dtype) for part in protocol.parts])
    store.draw(term.number, sync, nothing, messages.encode_stream(state), entry)
    missed = advance(RELEASE, ReleaseState.DRAWN, ReleaseEvent.OUTCOME_WITHOUT)
    with store.engine.transaction() as sql:
        if not isinstance(plan.schedule, Clock):  # the places of that batch were taken
            places = "UPDATE terms SET seated = ? WHERE term = ? AND seated < ?"
            sql.all(places, (plan.times[sync], term.number, plan.times[sync]))
        query = "UPDATE releases SET state = ? WHERE term = ? AND sync = ? AND state = ?"
        sql.all(query, (missed.value, term.number, sync, ReleaseState.DRAWN.value))
