"""A ledger of a term without an end, whose old entries are kept no more: which gaps it may have, and what it says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from fedbandit import Plan, Privacy, clock
from fedbandit._validate import ArgumentError
from fedbandit.privacy import ledger
from fedbandit.privacy.ledger import GENESIS, LOST, Entry, LedgerError, Release

PLAN = Plan(3, 30, 2, Privacy(1.0, 1e-5), "silo", schedule=clock(60.0), forget=0.9, endless=True)


def event(sync: int, **fields: Any) -> Release:
    made = PLAN.release("north", 1, sync)
    assert made is not None
    return replace(made, **fields)


def chain(events: Iterable[Release]) -> list[Entry]:
    entries: list[Entry] = []
    for number, one in enumerate(events, 1):
        entries.append(ledger.append(entries[-1].hash if entries else GENESIS, one, number))
    return entries


WHOLE = chain(event(sync) for sync in range(12))


def test_a_gap_is_as_long_as_the_syncs_between_allow() -> None:
    for second in (1, 2, 3):  # of the two gaps the later one, after a sync that is not the first
        kept = [WHOLE[0], WHOLE[4]._replace(left_out=3), WHOLE[5 + second]._replace(left_out=second)]
        ledger.verify(kept)
        with pytest.raises(LedgerError, match=f"entry {7 + second} does not follow the one before"):
            ledger.verify([*kept[:2], kept[2]._replace(left_out=second + 1)])
    with pytest.raises(LedgerError, match="entry 12 was altered"):
        ledger.verify([WHOLE[0], WHOLE[11]._replace(left_out=10, hash=WHOLE[10].hash)])


def test_a_release_that_was_given_up_after_a_gap_is_written_again() -> None:
    """What others have seen of a lost copy is known from the entry that gives its release up, whatever came before it
    is kept or not."""
    lost = chain([*(event(sync) for sync in range(8)), event(8, released=f"{LOST}{WHOLE[8].hash}"), event(9)])
    for kept in (lost, [lost[0], lost[8]._replace(left_out=7), lost[9]]):
        ledger.verify(kept, witnessed=[(9, WHOLE[8].hash), (10, lost[9].hash)])
        assert ledger.entries_since(kept, WHOLE[8].hash) == 2
        with pytest.raises(LedgerError, match=r"others have seen a ledger of 9 entries .* this one has 10 entries and"):
            ledger.verify(kept, witnessed=[(9, WHOLE[7].hash)])


def test_an_empty_ledger_has_nought_entries_whatever_is_asked_of_it() -> None:
    assert ledger.entries_since([], GENESIS) == 0
    with pytest.raises(LedgerError, match=r"of 1 entries .* this one has 0 entries and does not contain that hash"):
        ledger.verify([], witnessed=[(1, WHOLE[0].hash)])


def test_rows_that_go_back_are_named_by_their_place() -> None:
    rows = [(number, e.previous, ledger.event_to_json(e.event), e.hash, e.signature) for number, e in enumerate(WHOLE)]
    assert ledger.from_columns(rows) == WHOLE
    assert [entry.left_out for entry in ledger.from_columns([rows[0], rows[5]])] == [0, 4]
    with pytest.raises(LedgerError, match=r"^entry 3 is in the wrong place$"):
        ledger.from_columns([*rows[:5], rows[2]])


@pytest.mark.parametrize(("visits", "apart", "fine"), [(1, 0, True), (2, 1, True), (2, 0, False), (1, 1, False)])
def test_visits_lie_apart_where_there_are_two(visits: int, apart: int, fine: bool) -> None:
    if fine:
        assert event(0, visits=visits, apart=apart).visits == visits
        return
    with pytest.raises(ArgumentError, match=r"^visits must be more than 1 where visits must lie apart"):
        event(0, visits=visits, apart=apart)


def test_no_sync_leaves_more_than_all_of_the_past() -> None:
    assert event(0, forget=1.0).forget == 1
    with pytest.raises(ArgumentError, match=r"^forget must be at most 1"):
        event(0, forget=1.5)
