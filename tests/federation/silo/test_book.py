"""A silo's ledger row by row: numbered from 0, chained from the beginning, each signed as the head that it is."""

from __future__ import annotations

from itertools import pairwise

from fedbandit import Plan, Privacy
from fedbandit.federation.silo import book
from fedbandit.federation.store.silo_store import LedgerRow
from fedbandit.federation.wire import heads
from fedbandit.privacy import ledger

PLAN = Plan(3, 6, 2, Privacy(1.0, 1e-5), "silo")
SIGNER = book.own_signer(b"secret" * 6)


def rows(count: int) -> list[LedgerRow]:
    written: list[LedgerRow] = []
    for sync in range(count):
        event = PLAN.release("north", 1, sync)
        assert event is not None
        written.append(book.entry(written[-1] if written else None, event, SIGNER))
    return written


def test_rows_are_numbered_from_nought_and_chained_from_the_beginning() -> None:
    written = rows(4)
    assert [row.number for row in written] == [0, 1, 2, 3]
    assert [row.previous for row in written] == [ledger.GENESIS, *(row.hash for row in written[:-1])]
    assert [book.length(written[:count]) for count in range(5)] == [0, 1, 2, 3, 4]
    assert book.length(written[2:]) == 4  # the first ones are kept no more
    assert [entry.event.sync for entry in book.entries(written)] == [0, 1, 2, 3]


def test_every_row_is_a_head_that_the_silo_signed_and_the_ledger_is_believed_by_it() -> None:
    written, verifier = rows(4), SIGNER.public_key()
    for length, row in enumerate(written, 1):
        head = book.head(row)
        assert (head.length, head.hash.hex()) == (length, row.hash)
        assert head.is_of("north", verifier)
        assert not head._replace(length=length + 1).is_of("north", verifier)

    def checks(count: int, hash_: bytes, signature: bytes) -> bool:
        return heads.Head(count, hash_, signature).is_of("north", verifier)

    ledger.verify(book.entries(written), signed=checks)
    assert book.head(None) == heads.NONE


def test_what_was_spent_grows_from_row_to_row_to_the_budget() -> None:
    written = rows(PLAN.encoder.size)
    spent = [book.spending(written[: k + 1]).epsilon for k in range(len(written))]
    assert all(later > sooner for sooner, later in pairwise(spent))
    assert 0.999 < spent[-1] <= 1.0 + 1e-9
