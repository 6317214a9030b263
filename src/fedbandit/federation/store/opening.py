"""From a path or a URL to the database behind it, checked for its format."""

from __future__ import annotations

from pathlib import Path

from fedbandit._validate import ArgumentError
from fedbandit.federation.store.database import Engine, SqliteEngine, SqliteReader, remember
from fedbandit.federation.store.schema import FORMAT

__all__ = ["open_engine", "read_engine"]


def open_engine(url: str | Path) -> Engine:
    """`postgresql://...` for several workers, a path for SQLite; creates the tables, refuses another format."""
    engine: Engine
    if str(url).startswith(("postgresql://", "postgres://")):
        from fedbandit.federation.store.postgres import PostgresEngine  # imported late: psycopg is an extra

        engine = PostgresEngine(str(url))
    elif "://" in str(url):
        raise ArgumentError("store", f"must be a path or a postgresql:// URL, got {url!r}")
    else:
        engine = SqliteEngine(Path(url))
    _check_format(engine)
    return engine


def read_engine(url: str | Path) -> Engine:
    """The same, to look at only: beside the process that works with it."""
    return open_engine(url) if "://" in str(url) else SqliteReader(Path(url))


def _check_format(engine: Engine) -> None:
    found = remember(engine, "format", FORMAT.encode()).decode()
    if found != FORMAT:
        engine.close()
        raise ArgumentError("store", f"must be of format {FORMAT}, got one of format {found}")
