"""Snapshots: a store at one moment as one file, taken while a process works with it, and how to restore it.

A snapshot is always a SQLite file with the store's tables: a copy of the pages of a SQLite store, or the rows of a
PostgreSQL store as one transaction saw them. So a snapshot of either kind can be restored as either kind.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from fedbandit._validate import ArgumentError, is_postgres
from fedbandit.federation.store.events import EVENTS
from fedbandit.federation.store.migrations import format_of
from fedbandit.federation.store.opening import read_engine
from fedbandit.federation.store.schema import FORMAT, TABLES, tables

__all__ = ["check_saved", "put_in_place", "take_snapshot", "without_raw_rows"]

AT_ONCE = 1000  # rows that are copied together


def take_snapshot(url: str | Path, path: Path) -> None:
    """Write a snapshot of the store to a new file, which only its owner can read."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with closing(sqlite3.connect(path, isolation_level=None)) as target:
        target.execute("PRAGMA synchronous = OFF")  # the caller forces the file to disk if need be
        if is_postgres(url):
            _rows_of_postgres(str(url), target)
        else:
            _pages_of(Path(url), target)
        target.execute("PRAGMA journal_mode = DELETE")  # one file, without a separate log


def without_raw_rows(snapshot: Path) -> None:
    """Delete the users' rows from a snapshot; no trace of them stays in the file."""
    with closing(sqlite3.connect(snapshot, isolation_level=None)) as target:
        target.execute("PRAGMA secure_delete = ON")
        target.execute("DELETE FROM raw_rows")
        target.execute("VACUUM")


def check_saved(held: str | None) -> None:
    """Refuse to save a store of another format: this version cannot tell what is in it."""
    if held != FORMAT:
        raise ArgumentError(
            "store", f"has format {held}: back it up with the version that wrote it, or start this one first"
        )


def put_in_place(snapshot: Path, url: str | Path) -> None:
    """Restore a snapshot as a new store."""
    held = _format_in(snapshot)
    if is_postgres(url):
        if held != FORMAT:
            raise ArgumentError(
                "store",
                f"must be a file for a backup of format {held}, got a database: restore it to a file, start the party"
                " once, which converts it to this version's format, and back that up",
            )
        _rows_to_postgres(snapshot, str(url))
    else:
        _file_to(snapshot, Path(url))


def _format_in(url: str | Path) -> str | None:
    """The format of a store; one of this format that has lost tables is refused."""
    with closing(read_engine(url)) as engine, engine.read() as sql:
        return format_of(sql)


def _pages_of(path: Path, target: sqlite3.Connection) -> None:
    """Copy all pages in one go: SQLite makes sure that they are from one moment, even if somebody writes meanwhile."""
    if not path.exists():
        raise ArgumentError("store", f"{str(path)!r} is not there: a party that was never started has nothing to save")
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as source:
        source.backup(target)


def _file_to(snapshot: Path, path: Path) -> None:
    if not path.parent.is_dir():
        raise ArgumentError("store", f"cannot be written to {path}: there is no such folder; name another with --store")
    left = [str(one) for one in (path, *(Path(f"{path}{end}") for end in ("-wal", "-shm", ".count"))) if one.exists()]
    if left:
        raise ArgumentError("store", f"must be new, but there is {', '.join(left)}: move it away first")
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with open(descriptor, "wb") as target, snapshot.open("rb") as source:
        shutil.copyfileobj(source, target)
        target.flush()
        os.fsync(target.fileno())


def _rows_of_postgres(url: str, target: sqlite3.Connection) -> None:
    import psycopg

    with psycopg.connect(url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        found = {str(name) for (name,) in connection.execute(_FOUND)}
        if not found & set(TABLES):
            raise ArgumentError("store", "is not there: a party that was never started has nothing to save")
        check_saved(_format_in(url))
        target.execute("BEGIN")
        for statement in (*tables("BLOB", "REAL", "INTEGER", "WITHOUT ROWID"), EVENTS):
            target.execute(statement)
        for table in (*TABLES, *({"events"} & found)):
            columns = _columns(target, table)
            with connection.cursor(name="snapshot") as cursor:  # the server keeps the rows, and sends them in chunks
                cursor.itersize = AT_ONCE
                cursor.execute(f"SELECT {', '.join(columns)} FROM {table}".encode())
                marks = ", ".join("?" * len(columns))
                target.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", cursor)
        target.execute("COMMIT")


def _rows_to_postgres(snapshot: Path, url: str) -> None:
    import psycopg

    with psycopg.connect(url) as connection, closing(sqlite3.connect(snapshot)) as source:
        if {str(name) for (name,) in connection.execute(_FOUND)} & set(TABLES):
            raise ArgumentError(
                "store",
                "must be an empty database, but this one has a store: if it is intact and newer, restore without the"
                " store of the backup; if not, name another database or schema",
            )
        for statement in (*tables("BYTEA", "DOUBLE PRECISION", "BIGINT", ""), EVENTS):
            connection.execute(statement.encode())
        for table in (*TABLES, "events"):
            columns = _columns(source, table)
            if not columns:  # this silo has no table of events
                continue
            # A file that was brought from an earlier format still has the columns that are empty since.
            made = connection.execute(f"SELECT * FROM {table} LIMIT 0".encode()).description or ()
            columns = [column.name for column in made if column.name in columns]
            into = f"COPY {table} ({', '.join(columns)}) FROM STDIN".encode()
            with connection.cursor().copy(into) as copy:
                for row in _chunks(source, f"SELECT {', '.join(columns)} FROM {table}"):
                    copy.write_row(row)


_FOUND = b"SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")]


def _chunks(connection: sqlite3.Connection, query: str) -> Iterator[Sequence[Any]]:
    cursor = connection.execute(query)
    while rows := cursor.fetchmany(AT_ONCE):
        yield from rows
