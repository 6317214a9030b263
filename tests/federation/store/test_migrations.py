"""Stores of every earlier format are opened: brought to this one, or refused with the reason and left as they were."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedbandit._validate import ArgumentError
from fedbandit.federation.backup.snapshots import put_in_place, take_snapshot
from fedbandit.federation.doctor import in_store
from fedbandit.federation.silo import book
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.states import ReleaseState
from fedbandit.federation.status import status
from fedbandit.federation.store import SiloStore, SyncStore, open_engine, schema
from fedbandit.federation.store.opening import read_engine
from fedbandit.federation.store.schema import ADDED, EARLIER, FORMAT, TABLES
from fedbandit.federation.wire import messages, parcels
from fedbandit.federation.wire.parcels import Outcome
from tests.federation.small import small_plan
from tests.federation.test_process import founded

FORMATS = Path(__file__).parent / "formats"
PLAN = small_plan(silos=1, rounds=10, trust="silo")
SECRET = bytes(32)
SQLITE = {"blob": "BLOB", "float": "REAL", "int": "INTEGER", "clustered": "WITHOUT ROWID"}
POSTGRES = {"blob": "BYTEA", "float": "DOUBLE PRECISION", "int": "BIGINT", "clustered": ""}


class Raw:
    """A database as it is, without anybody who looks at its format."""

    def __init__(self, url):
        self.connection: Any
        if "://" in url:
            import psycopg

            self.connection, self.types, self.mark = psycopg.connect(url), POSTGRES, "%s"
        else:
            self.connection, self.types, self.mark = sqlite3.connect(url), SQLITE, "?"

    def run(self, query, values=()):
        cursor = self.connection.execute(query.replace("?", self.mark), values)
        return cursor.fetchall() if cursor.description else []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.commit()
        self.connection.close()


def make(url, held, rows=()):
    """A store of an earlier format: its tables, and rows (table, columns, values) in them."""
    with Raw(url) as raw:
        for statement in (FORMATS / f"{held}.sql").read_text().split("\n", 1)[1].split(";"):
            raw.run(statement.strip().format(**raw.types))
        raw.run("INSERT INTO meta (key, value) VALUES ('format', ?)", (held.encode(),))
        for table, columns, values in rows:
            marks = ", ".join("?" * len(columns))
            raw.run(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", values)


def served(path, syncs):
    """A silo on its own that has made so many releases and learnt from one of them; all rows of its store."""
    with Silo.open(path, PLAN, secret=SECRET) as silo:
        for sync in range(syncs):
            for _ in range(5):
                silo.reward(silo.decide(np.eye(2)).id, 0.5)
            assert silo.tick() == [sync]
        silo.learn(0, Outcome(np.arange(PLAN.protocol.width, dtype=float), np.ones(1, dtype=np.int64)), included=False)
        with silo.store.engine.transaction() as sql:  # as if the analyzer had answered
            sql.all("UPDATE releases SET state = ?", (ReleaseState.MISSED.value,))
    with closing(sqlite3.connect(path)) as connection:
        for table in TABLES:
            cursor = connection.execute(f"SELECT * FROM {table}")
            columns = [column[0] for column in cursor.description]
            yield from ((table, columns, row) for row in cursor)


def of_format(held, rows):
    """The same rows as an earlier format had them."""
    added = {table for one, tables in ADDED.items() if int(one) >= int(held) for table in tables}
    rows = list(rows)
    inside = {values[:2]: values[2:] for table, _, values in rows if table == "contents"}
    for table, columns, values in rows:
        if table == "releases" and "contents" in added:  # the bytes of a release were in the row of its state
            columns, values = [*columns, "drawn", "sent", "sealed"], (*values, *inside[values[:2]])
        if table in added or (table, values[0]) == ("meta", "format"):
            continue
        if table == "models" and held == "3":  # cohorts were a number per silo
            outcome = Outcome.decode(values[2], PLAN)
            values = (*values[:2], messages.encode([outcome.prefix, outcome.cohort]))
        yield table, columns, values


def contents(url):
    with Raw(url) as raw:
        return {table: raw.run(f"SELECT * FROM {table}") for table in ("meta", "terms", "ledger", "models", "releases")}


def test_every_format_has_its_tables_here_and_tables_do_not_change_without_a_new_one():
    assert sorted(path.stem for path in FORMATS.glob("*.sql")) == sorted([*EARLIER, FORMAT])
    assert int(FORMAT) == max(map(int, EARLIER)) + 1
    assert (FORMATS / f"{FORMAT}.sql").read_text().split("\n", 1)[1].strip() == schema._TABLES.strip()


@pytest.mark.parametrize("held", ADDED)
def test_a_silo_between_terms_is_brought_from_an_earlier_format(store_url, tmp_path, held):
    rows = list(served(tmp_path / "template.db", len(PLAN.times)))
    make(store_url, held, of_format(held, rows))
    before = contents(store_url)
    engine = open_engine(store_url)
    store = SiloStore(engine)
    (term,), ledger = store.terms(), store.ledger()
    assert [tuple(row) for row in ledger] == before["ledger"]
    assert book.spending(ledger).terms[0].released == len(PLAN.times)
    ((_, model),) = store.models(term.number)
    assert Outcome.decode(model, PLAN).prefix.tolist() == list(range(PLAN.protocol.width))
    assert store.kept(term.number) == {}
    engine.close()
    with Silo.open(store_url, PLAN, secret=SECRET) as silo:  # it serves on by its last model
        assert silo.version == 1
        assert silo.ended
    following = PLAN.changed(rounds=15)
    with Silo.open(store_url, following, secret=SECRET, new_term=True) as silo:
        for _ in range(5):
            silo.reward(silo.decide(np.eye(2)).id, 0.5)
        silo.tick()
        assert silo.status()["epsilon_all_terms"] > silo.status()["epsilon_spent"]
        assert len(silo.store.ledger()) == len(ledger) + 1
    with Raw(store_url) as raw:
        assert raw.run("SELECT value FROM meta WHERE key = 'format'") == [(FORMAT.encode(),)]


@pytest.mark.parametrize("held", ["4", "5", "6"])
def test_in_a_running_term_later_formats_are_brought_forward(store_url, tmp_path, held):
    rows = list(served(tmp_path / "template.db", 1))
    ((drawn, sent, sealed),) = [values[2:] for table, _, values in rows if table == "contents"]
    make(store_url, held, of_format(held, rows))
    before = contents(store_url)
    with Silo.open(store_url, PLAN, secret=SECRET) as silo:
        assert [tuple(row) for row in silo.store.ledger()] == before["ledger"]
        (release,) = silo.store.releases(1)
        assert (release.drawn, release.sent, release.sealed) == (drawn, sent, sealed)
        assert len(drawn) > 8 * PLAN.protocol.width
        for _ in range(5):
            silo.reward(silo.decide(np.eye(2)).id, 0.5)
        assert silo.tick() == [1]


def test_a_file_that_was_brought_forward_can_be_saved_and_put_into_a_database(tmp_path, empty_postgres):
    """What `put_in_place` tells whoever has a backup of an earlier format and a database."""
    old, saved = str(tmp_path / "old.db"), tmp_path / "saved"
    make(old, "5", of_format("5", served(tmp_path / "template.db", 1)))
    with Silo.open(old, PLAN, secret=SECRET) as silo:
        releases = silo.store.releases(1)
    assert releases[0].drawn
    take_snapshot(old, saved)
    put_in_place(saved, empty_postgres)
    with Silo.open(empty_postgres, PLAN, secret=SECRET) as silo:
        assert silo.store.releases(1) == releases


@pytest.mark.parametrize("held", ["4", "5", "6"])
def test_a_database_of_an_earlier_format_is_not_said_to_be_empty_by_a_backup(tmp_path, empty_postgres, held):
    make(empty_postgres, held)
    with pytest.raises(ArgumentError, match=f"has format {held}: back it up with the version that wrote it"):
        take_snapshot(empty_postgres, tmp_path / "saved")


@pytest.mark.parametrize("held", ["4", "5", "6"])
def test_a_mixers_or_an_analyzers_store_of_a_later_format_is_opened(store_url, tmp_path, held):
    make(store_url, held, [("meta", ("key", "value"), ("plan", PLAN.hash.encode()))])
    engine = open_engine(store_url)
    SyncStore(engine).bind(PLAN.hash)
    engine.close()


def refused(url, words):
    before = contents(url)
    with pytest.raises(ArgumentError, match=words):
        open_engine(url)
    assert contents(url) == before


def test_in_a_running_term_format_3_is_refused(store_url, tmp_path):
    make(store_url, "3", of_format("3", served(tmp_path / "template.db", 1)))
    refused(store_url, "its term is running.*Let the term end with that version")


def test_releases_that_nobody_was_sent_keep_format_3_from_being_opened(store_url, tmp_path):
    make(store_url, "3", of_format("3", served(tmp_path / "template.db", len(PLAN.times))))
    with Raw(store_url) as raw:
        raw.run("UPDATE releases SET state = ? WHERE sync = 1", (ReleaseState.SEALED.value,))
    refused(store_url, "its term is running")


def test_a_mixers_or_an_analyzers_store_of_format_3_is_refused(store_url, tmp_path):
    path = tmp_path / "template.db"
    engine = open_engine(path)
    SyncStore(engine).bind(PLAN.hash)
    engine.close()
    make(store_url, "3", [("meta", ("key", "value"), ("plan", PLAN.hash.encode()))])
    refused(store_url, "for one term")


@pytest.mark.parametrize("held, why", [("1", "other names under its hashes"), ("2", "its ledger is not signed")])
def test_formats_that_cannot_be_kept_true_are_refused_with_the_reason(tmp_path, held, why):
    path = str(tmp_path / "silo.db")
    make(path, held)
    before = sqlite3.connect(path).execute("SELECT sql FROM sqlite_master").fetchall()
    with pytest.raises(ArgumentError, match=f"{why}.*begin with a new store"):
        open_engine(path)
    assert sqlite3.connect(path).execute("SELECT sql FROM sqlite_master").fetchall() == before


def test_a_later_format_is_refused(store_url):
    open_engine(store_url).close()
    with Raw(store_url) as raw:
        raw.run("UPDATE meta SET value = ? WHERE key = 'format'", (str(int(FORMAT) + 1).encode(),))
    refused(store_url, "later version")


def test_a_table_that_an_earlier_store_has_lost_is_not_made_again(tmp_path):
    path = str(tmp_path / "silo.db")
    make(path, "3")
    with Raw(path) as raw:
        raw.run("DROP TABLE ledger")
    with pytest.raises(ArgumentError, match="has lost ledger"):
        open_engine(path)


def test_a_migration_that_is_killed_leaves_the_store_as_it_was(tmp_path, monkeypatch):
    path = str(tmp_path / "silo.db")
    make(path, "3", of_format("3", served(tmp_path / "template.db", len(PLAN.times))))
    before = contents(path)

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(parcels, "Outcome", killed)
    with pytest.raises(KeyboardInterrupt):
        open_engine(path)
    monkeypatch.undo()
    assert contents(path) == before
    open_engine(path).close()


def test_a_store_that_has_lost_tables_is_not_read_as_if_it_were_whole(tmp_path):
    path = tmp_path / "silo.db"
    open_engine(path).close()
    read_engine(path).close()
    with sqlite3.connect(path) as sql:
        sql.execute("DROP TABLE ledger")
    with pytest.raises(ArgumentError, match="store has lost ledger"):
        read_engine(path)
    with sqlite3.connect(tmp_path / "other.db") as sql:
        sql.execute("CREATE TABLE something (x)")
    with pytest.raises(ArgumentError, match="store must be one of fedbandit's"):
        read_engine(tmp_path / "other.db")


@pytest.mark.parametrize("held", ["", "4"])
def test_looking_changes_nothing_in_a_database_either(held, empty_postgres, tmp_path):
    """`status` and `doctor` made tables in an empty one, and brought those of an earlier version to this format."""
    if held:
        make(empty_postgres, held)
    home = founded(tmp_path, empty_postgres)
    with Raw(empty_postgres) as raw:
        query = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        before = sorted(raw.run(query))
        if not held:
            assert status(home.path)["started"] is False
        else:
            with pytest.raises(ArgumentError, match="start its party, which brings it to format"):
                status(home.path)
        found = {one.check: one for one in in_store.store(home)}
        assert found["store format" if held else "store"].level == "warning"
        assert sorted(raw.run(query)) == before
