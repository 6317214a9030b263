"""The silo's ledger on disk: one typed event per release, chained by hashes and signed, so that nobody can edit it
unnoticed. Others keep its head, and compare the silo's later ledger with it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedbandit._validate import ArgumentError
from fedbandit.federation.store.silo_store import LedgerRow, SiloStore
from fedbandit.federation.wire import heads
from fedbandit.federation.wire.heads import Head
from fedbandit.privacy import ledger
from fedbandit.privacy.ledger import Entry, LedgerError, Release
from fedbandit.privacy.spending import Spent, spent
from fedbandit.protocol import mechanisms

__all__ = ["check", "entries", "entry", "head", "kept", "length", "own_signer", "spending"]


def entry(last: LedgerRow | None, event: Release, signer: Ed25519PrivateKey) -> LedgerRow:
    """The ledger row of an event, chained to the last row and signed by the silo."""
    number = 0 if last is None else last.number + 1

    def sign(count: int, hash_: bytes) -> bytes:
        return heads.signed(event.silo, count, hash_, signer).signature

    chained = ledger.append(ledger.GENESIS if last is None else last.hash, event, number + 1, sign)
    return LedgerRow(number, chained.hash, chained.previous, ledger.event_to_json(event), chained.signature)


def head(row: LedgerRow | None) -> Head:
    """The head of the ledger that ends with this row: the number of entries, the last hash, the silo's signature."""
    if row is None:
        return heads.NONE
    return Head(row.number + 1, bytes.fromhex(row.hash), bytes.fromhex(row.signature))


def length(rows: Sequence[LedgerRow]) -> int:
    """How many entries the ledger has, including those that are no longer stored."""
    return rows[-1].number + 1 if rows else 0


def entries(rows: Sequence[LedgerRow]) -> list[Entry]:
    """The entries on disk, as a verified chain."""
    chain = ledger.from_columns((row.number, row.previous, row.event, row.hash, row.signature) for row in rows)
    ledger.verify(chain)
    return chain


def kept(store: SiloStore) -> list[LedgerRow]:
    """The ledger of a store, checked; ArgumentError if it was changed or has lost its end."""
    last = store.last_spent()  # first: another process may be drawing
    rows = store.ledger()
    try:
        ledger.check_end(check(rows), last)
    except LedgerError as error:
        raise _unbelievable(error) from error
    return rows


def spending(rows: Sequence[LedgerRow]) -> Spent:
    """What was spent according to the ledger, composed over its terms."""
    return spent(check(rows), mechanisms.encoder)


def own_signer(secret: bytes) -> Ed25519PrivateKey:
    """The key with which a silo outside any federation signs its ledger: derived from its secret."""
    return Ed25519PrivateKey.from_private_bytes(
        hashlib.sha256(b"fedbandit ledger of a silo on its own" + secret).digest()
    )


def check(rows: Sequence[LedgerRow]) -> list[Entry]:
    """The entries, as a verified chain; ArgumentError if the ledger was changed, so that nobody extends it."""
    try:
        return entries(rows)
    except LedgerError as error:
        raise _unbelievable(error) from error


def _unbelievable(error: LedgerError) -> ArgumentError:
    return ArgumentError(
        "store", f"holds a ledger that cannot be believed ({error}): put the newest whole copy in its place"
    )
