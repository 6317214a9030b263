"""Parties that are saved while they run, lost, and restored: nothing is drawn, added up or decoded a second time."""

import asyncio
import json
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace

import psycopg
import pytest
from typer.testing import CliRunner

from fedbandit._validate import ArgumentError
from fedbandit.cli.main import app
from fedbandit.federation.backup.saving import save
from fedbandit.federation.recovery import recover
from fedbandit.federation.setup.home import FEDERATION, Home
from fedbandit.federation.silo import book
from fedbandit.federation.states import ReleaseState, SyncState
from tests.federation.backup.test_saving import facts
from tests.federation.harness import federation
from tests.federation.test_recovery import PLANS, models, run


def stored(home, plan):
    """What the store of a directory says."""
    with closing(sqlite3.connect(home.store(plan.hash))) as connection:
        return {
            table: connection.execute(f"SELECT * FROM {table}").fetchall() for table in ("contents", "ledger", "syncs")
        }


async def lose(running, name, file):
    """The disk is gone, but for the backup."""
    await running.stop(name)
    running.lost = stored(running.homes[name], running.plan)
    shutil.rmtree(running.homes[name].path)


async def restored(running, name, file, *options):
    """The command, as somebody runs it: its exit code and what it says."""
    path = running.homes[name].path
    result = await asyncio.to_thread(CliRunner().invoke, app, ["restore", str(file), str(path), *options])
    if (path / "party.json").exists():
        running.homes[name] = Home.load(path)
    return result.exit_code, result.output if result.exception is None else f"{result.output}{result.exception}"


@pytest.mark.parametrize("trust", ["secure-sum", "silo"])
def test_a_silo_is_restored(tmp_path, trust):
    plan, file = PLANS[trust], tmp_path / "silo.backup"

    async def scenario(running):
        await running.sync(0)
        silo = running.running["silo-00"].silo
        known = silo.decide([[1.0, 0.0]]).id  # sync 1 is counted by decisions: this one belongs to it
        silo.reward(known, 0.5)
        save(running.homes["silo-00"].path, file)
        for name in ("silo-01", "silo-02"):
            other = running.running[name].silo
            other.reward(other.decide([[1.0, 0.0]]).id, 0.5)
        await running.wait(2)
        late = silo.decide([[1.0, 0.0]]).id
        silo.reward(late, 0.25)  # acknowledged after the backup, and released
        for name in ("silo-01", "silo-02"):
            other = running.running[name].silo
            other.reward(other.decide([[1.0, 0.0]]).id, 0.5)
        await running.wait(3)
        await lose(running, "silo-00", file)
        code, said = await restored(running, "silo-00", file, "--json")
        found = json.loads(said)
        assert code == 0
        assert (found["lost"]["syncs"], found["lost"]["done"], found["lost"]["rewards"]) == ([1, 2], True, 1)
        assert found["lost"]["epsilon"] < found["lost"]["epsilon_after"]
        assert (found["store"]["ledger"], found["store"]["waiting"]) == (1, 1)
        await running.start("silo-00")
        silo = running.running["silo-00"].silo
        assert silo.reward(known, 0.5).repeated
        again = silo.reward(late, 0.25)  # it may have counted in a release that others have: it did
        assert (again.counted, again.repeated) == (False, False)
        assert silo.store.batch(1, 3) == []
        for sync in (3, 4):
            await running.sync(sync)
            assert running.outcome(sync).cohort.tolist() == [1, 1, 1]
        store = silo.store
        releases = store.releases(1)
        assert [release.state for release in releases][1:3] == [ReleaseState.GIVEN_UP] * 2
        drawn = {row[1]: row[2] for row in running.lost["contents"]}
        assert releases[0].drawn == drawn[0]
        book.entries(store.ledger())
        spent = book.spending(store.ledger()).terms[0]
        assert (spent.released, spent.redrawn) == (5, ())

    run(tmp_path / "federation", plan, scenario, deadline=5.0)


def test_a_silo_that_had_drawn_more_than_it_had_sent_is_restored(tmp_path, caplog):
    """Its release told the analyzer of a ledger with entries of releases that were never sent: the restored silo could
    not be brought forward, or was said to have drawn twice."""
    plan, file = PLANS["silo"], tmp_path / "silo.backup"

    async def scenario(running):
        await running.sync(0)
        await running.cut_off("silo-00")
        await running.batch(1, absent=["silo-00"])
        save(running.homes["silo-00"].path, file)  # release 1 is drawn and not sent
        await running.batch(2, absent=["silo-00"])
        await running.start("silo-00")
        await running.wait(3)
        assert running.running["analyzer"].seen.of("silo-00").head.length <= 3
        await running.sync(3)
        await lose(running, "silo-00", file)
        code, said = await restored(running, "silo-00", file)
        assert (code, "Given up: syncs 2, 3." in said) == (0, True), said
        await running.start("silo-00")
        await running.sync(4)
        await running.sync(5)
        store = running.running["silo-00"].silo.store
        assert store.release(1, 1).drawn == running.lost["contents"][1][2]
        assert book.spending(store.ledger()).terms[0].redrawn == ()
        assert "has drawn a release twice" not in caplog.text

    run(tmp_path / "federation", plan, scenario, deadline=2.0)


@pytest.mark.parametrize("name", ["mixer", "analyzer"])
def test_a_keeper_is_restored(tmp_path, name):
    plan, file = PLANS["secure-sum"], tmp_path / "keeper.backup"

    async def scenario(running):
        await running.sync(0)
        assert facts(save(running.homes[name].path, file)).syncs == 1
        for sync in (1, 2):
            await running.sync(sync)
        before = models(running)
        await lose(running, name, file)
        code, said = await restored(running, name, file)
        assert code == 0, said
        assert "Given up: syncs 1, 2." in said
        assert "none is made a second time" in said
        await running.start(name)
        for sync in (3, 4):
            await running.sync(sync)
        store = running.running[name].store
        assert [store.at(sync).state for sync in (1, 2)] == [SyncState.GIVEN_UP] * 2
        for silo, known in models(running).items():
            assert {sync: known[sync] for sync in before[silo]} == before[silo]
            assert running.running[silo].problem is None

    run(tmp_path / "federation", plan, scenario, deadline=5.0)


def test_a_silo_restored_while_nobody_answers_draws_nothing_until_they_do(tmp_path):
    plan, file = PLANS["secure-sum"], tmp_path / "silo.backup"

    async def scenario(running):
        await running.sync(0)
        save(running.homes["silo-00"].path, file)
        await running.sync(1)
        await running.stop("analyzer")
        await running.stop("mixer")
        await lose(running, "silo-00", file)
        code, said = await restored(running, "silo-00", file, "--patience", "1")
        assert (code, "Not brought forward: no answer within 1 s" in said) == (1, True), said
        await running.start("silo-00")  # somebody starts it all the same
        await running.batch(2)
        await asyncio.sleep(1.0)
        store = running.running["silo-00"].silo.store
        assert [release.sync for release in store.releases(1) if release.state is not ReleaseState.CLOSED] == [0]
        await running.start("mixer")
        await running.start("analyzer")
        await running.until(lambda: "fedbandit silo forward" in (running.running["silo-00"].problem or ""))
        assert len(store.ledger()) == 1

    run(tmp_path / "federation", plan, scenario, deadline=5.0)


def test_a_backup_that_is_not_behind_loses_nothing_that_is_in_it(tmp_path):
    plan, file = PLANS["secure-sum"], tmp_path / "silo.backup"

    async def scenario(running):
        await running.sync(0)
        save(running.homes["silo-00"].path, file)
        await lose(running, "silo-00", file)
        code, said = await restored(running, "silo-00", file)
        assert code == 0
        assert "nothing that its store does not hold" in said
        assert "may send them again" in said
        await running.start("silo-00")
        await running.sync(1)
        assert running.outcome(1).cohort.tolist() == [1, 1, 1]

    run(tmp_path / "federation", plan, scenario, deadline=5.0)


def test_a_party_of_another_term_is_told_so_at_once(tmp_path):
    """It waited for an answer that could not come, and said that nobody had answered."""

    async def scenario(running):
        home = running.homes["silo-00"]
        await running.stop("silo-00")
        replace(home.agreement(), plan=running.plan.changed(rounds=9)).save(home.path / FEDERATION)
        (home.path / "silo.db").unlink()
        with pytest.raises(ArgumentError, match=r"running term: analyzer works under plan.*accept --new-term"):
            await recover(home, agreed=True, patience=30.0)

    run(tmp_path, PLANS["secure-sum"], scenario, deadline=5.0)


def run_on_postgres(path, url, scenario):
    """A federation whose first silo has its store in a database."""

    async def main():
        async with federation(path, PLANS["secure-sum"], 5.0, absent=["silo-00"]) as running:
            home = running.homes["silo-00"]
            running.homes["silo-00"] = replace(home, settings=replace(home.settings, store=url))
            running.homes["silo-00"].settings.save(home.path / "party.json")
            await running.start("silo-00")
            await scenario(running)

    asyncio.run(main())


def emptied(url):
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")


@pytest.mark.parametrize("target", ["database", "file"])
def test_a_silo_with_a_database_is_restored(tmp_path, empty_postgres, target):
    """The database is lost too; the new store is one again, or a file."""
    file, url = tmp_path / "silo.backup", empty_postgres

    async def scenario(running):
        await running.sync(0)
        silo = running.running["silo-00"].silo
        saved = save(running.homes["silo-00"].path, file)
        assert (facts(saved).kind, facts(saved).ledger) == ("postgresql", 1)
        await running.sync(1)
        drawn = silo.store.release(1, 1).drawn
        await running.stop("silo-00")
        path = running.homes["silo-00"].path
        shutil.rmtree(path)
        if target == "database":
            code, said = await restored(running, "silo-00", file, "--patience", "20")
            assert "must be an empty database" in said
            assert not path.exists()
            emptied(url)
            code, said = await restored(running, "silo-00", file)
        else:
            code, said = await restored(running, "silo-00", file, "--store", str(tmp_path / "silo.db"))
        assert (code, "Given up: syncs 1." in said) == (0, True), said
        assert running.homes["silo-00"].settings.store == (url if target == "database" else str(tmp_path / "silo.db"))
        await running.start("silo-00")
        for sync in (2, 3):
            await running.sync(sync)
            assert running.outcome(sync).cohort.tolist() == [1, 1, 1]
        store = running.running["silo-00"].silo.store
        assert store.release(1, 1).state is ReleaseState.GIVEN_UP
        assert store.release(1, 1).drawn != drawn
        assert book.spending(store.ledger()).terms[0].redrawn == ()

    run_on_postgres(tmp_path / "federation", url, scenario)


def test_a_database_that_has_outlived_the_directory_is_left_alone(tmp_path, empty_postgres):
    file = tmp_path / "silo.backup"

    async def scenario(running):
        await running.sync(0)
        save(running.homes["silo-00"].path, file)
        await running.sync(1)
        await running.stop("silo-00")
        shutil.rmtree(running.homes["silo-00"].path)
        code, said = await restored(running, "silo-00", file, "--without-store")
        assert (code, "nothing that its store does not hold" in said) == (0, True), said
        assert "Lost:" not in said
        await running.start("silo-00")
        await running.sync(2)
        states = [release.state for release in running.running["silo-00"].silo.store.releases(1)]
        assert states == [ReleaseState.INCLUDED] * 3

    run_on_postgres(tmp_path / "federation", empty_postgres, scenario)
