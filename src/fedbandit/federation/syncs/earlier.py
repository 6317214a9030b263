"""What a mixer or an analyzer has seen of the silos in earlier terms: it begins a new store for a new plan, and must
not forget how long their ledgers are."""

from __future__ import annotations

from fedbandit.federation.setup.agreement import Agreement
from fedbandit.federation.setup.roll import Roll, kept_editions
from fedbandit.federation.store.seen import EARLIER, SeenStore
from fedbandit.federation.store.sync_store import SyncStore
from fedbandit.federation.wire.heads import NONE

__all__ = ["take_over"]


def take_over(store: SyncStore, agreed: Agreement, earlier: SyncStore, last: Agreement) -> None:
    """Take the heads of the silos' ledgers out of the store of an earlier term into that of the new one.

    A ledger goes on from term to term. Without this a silo that is put back to an old copy, or to nothing, between two
    terms would begin the new one as if it had never spent anything, and count those who are to count no more. A silo
    that has lost its keys, and is a member under new ones, begins a new ledger: nothing is held against that. Whoever
    is no member yet may join: a head is the word of whoever has signed it, and is held against nobody else.
    """
    roll, seen = Roll(last, kept_editions(earlier.recall, last.plan.hash)), SeenStore(earlier.engine, "")
    sightings = []
    for silo in roll.newest.seats or roll.newest.silos:
        head, known, now = seen.of(silo).head, roll.keys_of(silo), agreed.member(silo)
        if head != NONE and (now is None or now in known):
            sightings.append((silo, 0, head))
    SeenStore(store.engine, EARLIER).note(sightings)
