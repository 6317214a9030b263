"""Stores that fail for a while: ticks and syncs go on afterwards, and raw rows leave the files when they can."""

import asyncio
import shutil
import sqlite3
import time

import pytest

from fedbandit.federation.silo import agent as agents
from fedbandit.federation.silo.ticker import Ticker
from fedbandit.federation.store import SyncStore, database
from fedbandit.schedule import every
from tests.federation.harness import federation
from tests.federation.small import small_plan

PLAN = small_plan(rounds=8, schedule=every(1), cohort=2)


def run(path, scenario, absent=()):
    async def main():
        async with federation(path, PLAN, absent=absent) as running:
            await scenario(running)

    asyncio.run(main())


def failing(method, times):
    """The method as it is after it has failed so often."""
    left = [times]

    def work(*arguments, **more):
        if left[0] > 0:
            left[0] -= 1
            raise sqlite3.OperationalError("database or disk is full")
        return method(*arguments, **more)

    return work


def test_ticking_goes_on_after_the_store_has_failed(tmp_path, monkeypatch):
    """The next tick ended the process."""

    async def scenario(running):
        await running.sync(0)
        silo = running.running["silo-00"]
        monkeypatch.setattr(Ticker, "release", failing(Ticker.release, 5))
        await running.batch(1)
        await running.until(lambda: "disk is full" in (silo.problem or ""))
        silo.silo.decide([[1.0, 0.0]])
        await running.wait(2)
        await running.until(lambda: silo.problem is None)
        await running.sync(2)
        assert running.outcome(2).cohort.tolist() == [1, 1, 1]

    run(tmp_path, scenario)


@pytest.mark.parametrize("method", ["close", "receive", "published", "unpublished"])
def test_a_mixer_and_an_analyzer_go_on_after_the_store_has_failed(tmp_path, monkeypatch, method):
    async def scenario(running):
        await running.sync(0)
        monkeypatch.setattr(SyncStore, method, failing(getattr(SyncStore, method), 3))
        await running.sync(1)
        await running.sync(2)
        assert running.outcome(1).cohort.tolist() == running.outcome(2).cohort.tolist() == [1, 1, 1]

    run(tmp_path, scenario)


def log_of(folder):
    path = folder / "silo.db-wal"
    return path.read_bytes() if path.exists() else b""


def test_a_killed_silo_clears_the_log_at_its_next_start_as_soon_as_no_reader_is_in_the_way(tmp_path, monkeypatch):
    """What a kill had left of released rows in the write-ahead log stayed there."""
    monkeypatch.setattr(agents, "TIDY_AFTER_SYNC", 0.3)
    reward = 0.123456789

    async def scenario(running):
        folder, silo = running.homes["silo-00"].path, running.running["silo-00"]
        decision = silo.silo.decide([[1.0, 0.0]])
        silo.silo.reward(decision.id, reward)
        await running.cut_off("silo-00")
        killed = tmp_path / "killed"
        killed.mkdir()
        for file in folder.glob("silo.db*"):
            shutil.copy(file, killed / file.name)  # as kill -9 leaves them
        running.running.pop("silo-00").silo.close()
        for file in killed.iterdir():
            shutil.copy(file, folder / file.name)
        assert len(log_of(folder)) > 0
        reader = sqlite3.connect(folder / "silo.db", isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM raw_rows").fetchone()
        await running.start("silo-00")
        await asyncio.sleep(1.0)
        assert len(log_of(folder)) > 0
        reader.close()
        await running.until(lambda: len(log_of(folder)) == 0, limit=10)

    run(tmp_path, scenario)


def test_a_reader_in_the_way_holds_nobody_up(tmp_path):
    """Clearing the log waited ten seconds for it, and rewards with it."""
    engine = database.SqliteEngine(tmp_path / "s.db")
    with engine.transaction() as sql:
        sql.all("INSERT INTO meta (key, value) VALUES ('a', 'b')")
    reader = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM meta").fetchone()
    with engine.transaction() as sql:
        sql.all("INSERT INTO meta (key, value) VALUES ('c', 'd')")
    began = time.monotonic()
    assert not engine.forget()
    assert time.monotonic() - began < 5.0
    reader.close()
    assert engine.forget()
    engine.close()
