"""From a path or a URL to the database behind it, and whether that takes what is written."""

from __future__ import annotations

import secrets
from pathlib import Path

from fedbandit._validate import ArgumentError
from fedbandit.federation.store.database import Engine, SqliteEngine, SqliteReader, recall
from fedbandit.federation.store.schema import FORMAT, TABLES

__all__ = ["is_postgres", "open_engine", "probe", "read_engine"]

POSTGRES = ("postgresql://", "postgres://")


def is_postgres(url: str | Path) -> bool:
    """Whether the store is a database server's."""
    return str(url).startswith(POSTGRES)


def open_engine(url: str | Path) -> Engine:
    """`postgresql://...` for several workers, a path for SQLite; creates the tables, refuses another format."""
    engine: Engine
    if is_postgres(url):
        from fedbandit.federation.store.postgres import PostgresEngine  # imported late: psycopg is an extra

        engine = PostgresEngine(str(url))
    elif "://" in str(url):
        raise ArgumentError("store", f"must be a path or a postgresql:// URL, got {url!r}")
    else:
        engine = SqliteEngine(Path(url))
    return engine


def read_engine(url: str | Path) -> Engine:
    """The same, to look at only: beside the process that works with it."""
    if "://" in str(url):
        return open_engine(url)
    engine = SqliteReader(Path(url))
    try:
        _check_there(engine, Path(url))
    except BaseException:
        engine.close()
        raise
    return engine


def _check_there(engine: Engine, path: Path) -> None:
    """Refuse a file that is no store, or one that has lost tables: what is missing must not be taken for nothing."""
    with engine.read() as sql:
        there = {str(name) for (name,) in sql.all("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if there and "meta" not in there:  # none at all: its party is about to make them
        raise ArgumentError("store", f"must be one of fedbandit's, and {path} has no such tables")
    missing = sorted(set(TABLES) - there)
    if missing and recall(engine, "format") == FORMAT.encode():
        raise ArgumentError("store", f"has lost {', '.join(missing)}: bring the store back, it is not begun anew")


def probe(engine: Engine) -> None:
    """Write something that says nothing, another thing each time, since SQLite does not write what is there already; a
    store that is full, or away, raises."""
    with engine.transaction(durable=False) as sql:
        sql.all(
            "INSERT INTO states (term, name, value) VALUES (0, 'probe', ?)"
            " ON CONFLICT (term, name) DO UPDATE SET value = excluded.value",
            (secrets.token_bytes(8),),
        )
