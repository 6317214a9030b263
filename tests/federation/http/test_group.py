"""Group commit: one transaction for all rewards that wait, and an answer to everybody who waits."""

import asyncio
import sqlite3

import numpy as np

from fedbandit.federation.http.group import GroupCommit, StoreUnavailable
from tests.federation.http.client import ACTIONS


def test_group_commit_puts_what_waits_into_one_transaction(silo, monkeypatch):
    sizes, count = [], silo.store.count

    def counting(term, rewards, *arguments, **more):
        sizes.append(len(rewards))
        return count(term, rewards, *arguments, **more)

    monkeypatch.setattr(silo.store, "count", counting)

    async def main():
        group = GroupCommit(silo)
        rewards = [silo.read(silo.decide(np.array(ACTIONS)).id, 0.5) for _ in range(50)]
        verdicts = await asyncio.gather(*(group.put([one]) for one in rewards))
        group.close()
        return verdicts

    verdicts = asyncio.run(main())
    assert all(not verdict.repeated for (verdict,) in verdicts)
    assert sum(sizes) == 50
    assert len(sizes) <= 3
    assert len(silo.store.batch(1, 0)) == 50


def test_every_waiting_caller_is_told_of_a_failure(silo, monkeypatch):
    monkeypatch.setattr(silo.store, "count", lambda *a, **k: 1 / 0)

    async def main():
        group = GroupCommit(silo)
        one = silo.read(silo.decide(np.array(ACTIONS)).id, 0.5)
        found = await asyncio.gather(group.put([one]), group.put([one]), return_exceptions=True)
        group.close()
        return found

    assert all(isinstance(error, StoreUnavailable) for error in asyncio.run(main()))


def test_what_a_disk_does_is_one_line_and_a_mistake_of_ours_is_there_in_full(caplog):
    """A full disk wrote a traceback for every request into a log, which is on a disk too."""
    full = StoreUnavailable.because(sqlite3.OperationalError("database or disk is full"))
    assert str(full).startswith("the store does not work (database or disk is full)")
    assert "can be sent again" in str(full)
    mistake = StoreUnavailable.because(ZeroDivisionError("division by zero"))
    assert "ZeroDivisionError: division by zero" in str(mistake)
    assert [record.exc_info is not None for record in caplog.records] == [False, True]
