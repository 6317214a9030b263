"""The count of decisions: nothing is lost by a kill, nothing counts twice, a failed transaction gives it back."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedbandit.federation.silo.decisions.counter import DecisionCounter, Pending


@pytest.mark.parametrize("kept", [False, True])
def test_what_was_added_is_taken_once(kept: bool, tmp_path: Path) -> None:
    counter = DecisionCounter(tmp_path / "count" if kept else None, 1, decisions=10, unkeyed=4)
    assert counter.waiting == Pending(0, 0)
    counter.add(3, keyed=True)
    counter.add(2, keyed=False)
    assert counter.waiting == Pending(5, 2)
    with counter.take() as pending:
        assert pending == Pending(5, 2)
    assert counter.waiting == Pending(0, 0)
    counter.add(1, keyed=False)
    with counter.take() as pending:
        assert pending == Pending(1, 1)
    counter.close()


def test_a_transaction_that_fails_gives_it_back(tmp_path: Path) -> None:
    counter = DecisionCounter(tmp_path / "count", 1, 7, 3)
    counter.add(5, keyed=False)

    def fail() -> None:
        with counter.take():
            counter.add(2, keyed=True)  # meanwhile
            raise OSError

    with pytest.raises(OSError):
        fail()
    assert counter.waiting == Pending(7, 5)
    counter.close()


def test_what_the_database_did_not_hear_of_before_a_kill_is_still_known(tmp_path: Path) -> None:
    killed = DecisionCounter(tmp_path / "count", 1, 10, 4)
    killed.add(3, keyed=True)
    killed.add(2, keyed=False)
    assert (tmp_path / "count").stat().st_size == 24  # three numbers of eight bytes
    again = DecisionCounter(tmp_path / "count", 1, 10, 4)
    assert again.waiting == Pending(5, 2)
    assert (tmp_path / "count").stat().st_size == 24
    newer = DecisionCounter(tmp_path / "count", 1, 20, 9)  # the database knows of more than the file
    assert newer.waiting == Pending(0, 0)
    other_term = DecisionCounter(tmp_path / "count", 2, 0, 0)
    assert other_term.waiting == Pending(0, 0)
    for counter in (killed, again, newer, other_term):
        counter.close()


def test_without_a_file_nothing_outlives_the_process() -> None:
    counter = DecisionCounter(None, 1, 0, 0)
    counter.add(1, keyed=True)
    assert DecisionCounter(None, 1, 0, 0).waiting == Pending(0, 0)
    counter.close()
