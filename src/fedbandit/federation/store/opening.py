"""From a path or a URL to the database behind it."""

from __future__ import annotations

from pathlib import Path

from fedbandit._validate import ArgumentError
from fedbandit.federation.store.database import Engine, SqliteEngine, SqliteReader

__all__ = ["is_postgres", "open_engine", "read_engine"]

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
    return open_engine(url) if "://" in str(url) else SqliteReader(Path(url))
