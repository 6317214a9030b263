"""Opens the database at a path or a URL, and checks whose it is and whether it can be written."""

from __future__ import annotations

import secrets
import sqlite3
from pathlib import Path

from fedbandit._validate import ArgumentError, is_postgres
from fedbandit.federation.store.database import (
    Engine,
    SqliteEngine,
    SqliteReader,
    damaged,
    not_ours,
    put_state,
    recall,
    remember,
)
from fedbandit.federation.store.migrations import format_of
from fedbandit.federation.store.schema import EARLIER, FORMAT, TABLES

__all__ = ["begun", "check_current", "check_owner", "claim", "open_engine", "probe", "read_engine"]

OWNER = "party"  # the key under which a store keeps the name of its party


def open_engine(url: str | Path) -> Engine:
    """Open a store: `postgresql://...` for several workers, a path for SQLite. It creates the tables, brings those of
    earlier formats to this one, and refuses a format that it cannot bring forward."""
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
    """Open a store for reading only, while another process may work with it. Nothing is created or changed."""
    if is_postgres(url):
        from fedbandit.federation.store.postgres import PostgresEngine

        database = PostgresEngine(str(url), reading=True)
        try:
            _check_tables(database, database.tables() & set(TABLES), "the database")
        except BaseException:
            database.close()
            raise
        return database
    path = Path(url)
    if not path.is_file():
        raise ArgumentError("store", f"must be a file, which {path} is not: bring the store back, or start its party")
    engine = SqliteReader(path)
    try:
        _check_there(engine, path)
    except BaseException as error:
        engine.close()
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
            raise damaged(path, error) from error
        raise
    return engine


def begun(url: str | Path) -> bool:
    """Whether a party was ever started on this store: its file exists, or the database has tables of a party."""
    if not is_postgres(url):
        return Path(url).exists()
    from fedbandit.federation.store.postgres import PostgresEngine

    database = PostgresEngine(str(url), reading=True)
    try:
        return bool(database.tables() & set(TABLES))
    finally:
        database.close()


def check_current(engine: Engine) -> None:
    """Refuse tables that do not have this version's format: a reader does not change them."""
    with engine.read() as sql:
        held = format_of(sql)
    if held == FORMAT:
        return
    if held in EARLIER:
        says = f"was written by fedbandit {EARLIER[held]} (format {held})"
        do = f"start its party, which brings it to format {FORMAT} or says why not; or look with that version"
    else:
        says, do = f"was written by another version of fedbandit (format {held})", "look with the version that wrote it"
    raise ArgumentError("store", f"{says}: {do}")


def claim(engine: Engine, owner: str) -> None:
    """Note which party a store belongs to; refuse a store of another party, because two parties cannot share one."""
    remember(engine, OWNER, owner.encode())
    check_owner(engine, owner)


def check_owner(engine: Engine, owner: str) -> None:
    """Refuse a store of another party. A store of an earlier version does not say which party it belongs to."""
    found = recall(engine, OWNER)
    if found is not None and found != owner.encode():
        says = f"must belong to the {owner}, and belongs to the {found.decode(errors='replace')}"
        raise ArgumentError("store", f"{says}: put each party's own store back, and look at `store` in party.json")


def _check_there(engine: Engine, path: Path) -> None:
    """Refuse a file that is not a store."""
    with engine.read() as sql:
        there = {str(name) for (name,) in sql.all("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if there and "meta" not in there:
        raise not_ours(path)
    _check_tables(engine, there, str(path))


def _check_tables(engine: Engine, there: set[str], where: str) -> None:
    """Refuse a store that has lost tables: a missing table must not be taken for an empty one."""
    if not there:
        do = "if its party is just being started, look again; if not, it was lost: bring the store back"
        raise ArgumentError("store", f"{where} is empty: {do}")
    missing = sorted(set(TABLES) - there)
    if missing and ("meta" in missing or recall(engine, "format") == FORMAT.encode()):
        raise ArgumentError("store", f"has lost {', '.join(missing)}: bring the store back, it is not begun anew")


def probe(engine: Engine) -> None:
    """Test that the store can be written; raises if it is full or unreachable. It writes random bytes, because SQLite
    does not write a value that is there already."""
    with engine.transaction(durable=False) as sql:
        put_state(sql, 0, "probe", secrets.token_bytes(8))
