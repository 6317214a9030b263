"""The silo's ledger on disk: one typed event per release, chained by hashes, so that nobody can edit it unnoticed."""

from __future__ import annotations

from collections.abc import Sequence

from fedbandit.federation.store.silo_store import LedgerRow
from fedbandit.privacy import ledger
from fedbandit.privacy.ledger import Entry, Release
from fedbandit.privacy.spending import Spent, spent
from fedbandit.protocol import mechanisms

__all__ = ["entries", "entry", "spending"]


def entry(last: LedgerRow | None, event: Release) -> LedgerRow:
    """The ledger row of an event, after the last one."""
    chained = ledger.append(ledger.GENESIS if last is None else last.hash, event)
    number = 0 if last is None else last.number + 1
    return LedgerRow(number, chained.hash, chained.previous, ledger.event_to_json(event))


def entries(rows: Sequence[LedgerRow]) -> list[Entry]:
    """The chain as it is on disk, verified."""
    chain = [Entry(row.previous, ledger.event_from_json(row.event), row.hash) for row in rows]
    ledger.verify(chain)
    return chain


def spending(rows: Sequence[LedgerRow]) -> Spent:
    """What the ledger says was spent, composed over its terms."""
    return spent(entries(rows), mechanisms.encoder)
