"""A small interface to two databases: a transaction is on disk when it returns. SQLite is implemented here."""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any, Protocol

from fedbandit._validate import ArgumentError
from fedbandit.federation.store.migrations import migrate
from fedbandit.federation.store.schema import FORMAT, TABLES, tables

__all__ = [
    "Engine",
    "Row",
    "Sql",
    "SqliteEngine",
    "SqliteReader",
    "create",
    "damaged",
    "not_ours",
    "put_state",
    "recall",
    "remember",
    "state_of",
]

Row = tuple[Any, ...]
WAIT = 10.0  # seconds to wait for a file that somebody else is using
COPY_AFTER = 200  # transactions of a few pages each: about when SQLite itself would copy its log
log = logging.getLogger(__name__)
# Tables that are checked for damage when a store is opened: what was spent, sent and said. They have a few rows per
# sync. The other tables have a row per person, and damage in them shows when they are read.
CHECKED = {"meta", "terms", "releases", "contents", "ledger", "states", "models", "syncs"}


class Sql(Protocol):
    """Statements inside one transaction; `?` stands for a value."""

    def all(self, query: str, values: Sequence[Any] = ()) -> list[Row]: ...

    def later(self, query: str, values: Sequence[Any] = ()) -> Callable[[], list[Row]]:
        """A function that returns what `all` would. The query may go to the database together with the next one."""
        ...

    def many(self, query: str, rows: Sequence[Row]) -> None: ...

    def lock(self, table: str) -> None:
        """Keep other workers from writing the table until the transaction ends."""
        ...


class Engine(Protocol):
    """A database. A `transaction` commits when its block ends; after an error it leaves no trace."""

    shared: bool  # whether other processes may write to it too

    def transaction(self, durable: bool = True, letting_go: bool = False) -> AbstractContextManager[Sql]:
        """Unless `durable`, a crash of the machine may undo it (never only a part of it, never an earlier one instead).
        If `letting_go`, other processes need not wait until it is on disk: they see earlier what it has written, and
        must not tell anybody before a transaction of their own is durable."""
        ...

    def read(self) -> AbstractContextManager[Sql]:
        """Statements that only read."""
        ...

    def harden(self) -> None:
        """Make all transactions so far durable."""
        ...

    def lead(self) -> bool:
        """Whether this process is the one that does what only one may do (ticks, releases, the network)."""
        ...

    def forget(self) -> bool:
        """Clear deleted rows from the files, as far as the database can; False if a reader is in the way."""
        ...

    def close(self) -> None: ...


def remember(engine: Engine, key: str, value: bytes) -> bytes:
    """Keep a value under a key for good. Returns the value that was kept first."""
    with engine.transaction() as sql:
        sql.all("INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT DO NOTHING", (key, value))
        ((found,),) = sql.all("SELECT value FROM meta WHERE key = ?", (key,))
        return bytes(found)


def recall(engine: Engine, key: str) -> bytes | None:
    """The value kept under a key, or None."""
    with engine.read() as sql:
        rows = sql.all("SELECT value FROM meta WHERE key = ?", (key,))
        return bytes(rows[0][0]) if rows else None


def put_state(sql: Sql, term: int, name: str, value: bytes) -> None:
    """Keep a value of a term (0: of none) under a name, in place of the last one."""
    sql.all(
        "INSERT INTO states (term, name, value) VALUES (?, ?, ?)"
        " ON CONFLICT (term, name) DO UPDATE SET value = excluded.value",
        (term, name, value),
    )


def state_of(sql: Sql, term: int, name: str) -> bytes | None:
    """The value that `put_state` has kept, or None."""
    rows = sql.all("SELECT value FROM states WHERE term = ? AND name = ?", (term, name))
    return bytes(rows[0][0]) if rows else None


def create(sql: Sql, statements: Sequence[str], found: Iterable[str]) -> None:
    """Create the tables of a new store, or bring those of an earlier format to this one. A format that cannot be
    brought forward is refused. In a store of this format a missing table is an error: it is not created again."""
    there = set(found)
    if "meta" in there and migrate(sql, statements, there):
        return
    missing = sorted(set(TABLES) - there)
    if missing and len(missing) < len(TABLES):
        raise ArgumentError("store", f"has lost {', '.join(missing)}: bring the store back, it is not begun anew")
    for statement in statements if missing else ():
        sql.all(statement)
    sql.all("INSERT INTO meta (key, value) VALUES ('format', ?) ON CONFLICT DO NOTHING", (FORMAT.encode(),))


class SqliteEngine:
    """One file, one process: write-ahead log, synchronous FULL, deleted pages overwritten.

    `sync` forces a file to the disk. Once it has failed, the contents of the log may be lost even if a later call
    succeeds, because the kernel reports an error only once. From then on nothing counts as durable until all of the log
    has been written again, into the database itself.

    A separate connection copies the log into the database, in parallel with writers. SQLite would do that within a
    commit, and the caller, which may be an event loop, would wait for the disk several times over.
    """

    shared = False

    def __init__(self, path: Path, sync: Callable[[int], None] = os.fdatasync) -> None:
        self._lock, self._path = threading.RLock(), path
        _check_place(path)
        self._file = _claim(path)
        self._sync, self._suspect = sync, False
        self._waits: bool | None = None  # whether a commit waits for the disk; None: SQLite was not told yet
        self._copying, self._since = threading.Lock(), 0  # transactions since the log was copied
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=WAIT)
        try:
            self._begin()
        except BaseException as error:
            self._connection.close()
            self._file.close()
            if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
                raise damaged(path, error) from error
            raise
        path.chmod(0o600)
        self._copier = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0)
        self._log = os.open(f"{path}-wal", os.O_RDONLY)

    def _begin(self) -> None:
        for pragma in ("journal_mode = WAL", "wal_autocheckpoint = 0", "secure_delete = ON", "foreign_keys = ON"):
            self._connection.execute(f"PRAGMA {pragma}")
        with self.transaction() as sql:
            found = [name for (name,) in sql.all("SELECT name FROM sqlite_master WHERE type = 'table'")]
            if found and not set(found) & set(TABLES):
                raise not_ours(self._path)
            for table in CHECKED & set(found):
                (word, *_) = sql.all(f"PRAGMA quick_check('{table}')")
                if word != ("ok",):
                    raise sqlite3.DatabaseError(f"{table}: {word[0]}")
            create(sql, tables("BLOB", "REAL", "INTEGER", "WITHOUT ROWID"), found)

    @contextmanager
    def transaction(self, durable: bool = True, letting_go: bool = False) -> Iterator[Sql]:
        with self._lock:
            self._wait_for_disk(durable)
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield _SqliteSql(self._connection)
            except BaseException:
                self._roll_back()
                raise
            try:
                self._connection.execute("COMMIT")
            except BaseException:
                self._suspect = True
                self._roll_back()
                raise
            self._since += 1
            if durable and self._suspect:
                self._write_anew()
        if durable:
            self._copy()

    @contextmanager
    def read(self) -> Iterator[Sql]:
        with self._lock:
            yield _SqliteSql(self._connection)

    def harden(self) -> None:
        """Force the write-ahead log to the disk, as a FULL commit does at its end. (If the log was copied into the
        database meanwhile, the copy has forced both to the disk.)"""
        if self._suspect:
            with self._lock:
                self._write_anew()
            return
        try:
            self._sync(self._log)
        except BaseException:
            self._suspect = True
            raise
        self._copy()

    def lead(self) -> bool:
        return True

    def forget(self) -> bool:
        with self._lock:
            return self._checkpoint()

    def close(self) -> None:
        with self._lock, self._copying:
            self._copier.close()
            self._connection.close()
            os.close(self._log)
            self._file.close()

    def _copy(self) -> None:
        """Copy the log into the database from time to time, as far as readers and writers allow. Durability does not
        depend on it: if it fails, it is tried again later."""
        if self._since < COPY_AFTER or self._suspect or not self._copying.acquire(blocking=False):
            return
        try:
            self._since = 0
            self._copier.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except sqlite3.Error as error:
            log.warning("the log of the store could not be copied into it: %s", error)
        finally:
            self._copying.release()

    def _wait_for_disk(self, durable: bool) -> None:
        """Say whether commits wait for the disk from now on. SQLite is told only when that changes."""
        if durable is not self._waits:
            self._connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._waits = durable

    def _roll_back(self) -> None:
        if self._connection.in_transaction:  # after some errors SQLite has rolled back itself
            self._connection.execute("ROLLBACK")

    def _write_anew(self) -> None:
        """Copy the whole log into the database, force the database to the disk, and begin a new log."""
        self._wait_for_disk(True)
        if not self._checkpoint():
            raise OSError("the log could not be written anew after a failed sync: somebody is reading the store")
        self._suspect = False

    def _checkpoint(self) -> bool:
        """Copy the whole log and cut it to nothing; False if a reader is in the way. It does not wait for readers,
        because rewards would wait with it."""
        with self._copying:
            self._connection.execute("PRAGMA busy_timeout = 0")
            ((busy, _, _),) = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._connection.execute(f"PRAGMA busy_timeout = {round(1000 * WAIT)}")
        return not busy


class SqliteReader:
    """Reads a store that another process may be writing."""

    shared = True

    def __init__(self, path: Path) -> None:
        uri = f"{path.resolve().as_uri()}?mode=ro"
        self._connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=WAIT)

    def transaction(self, durable: bool = True, letting_go: bool = False) -> AbstractContextManager[Sql]:
        raise ArgumentError("store", "is open for reading only")

    @contextmanager
    def read(self) -> Iterator[Sql]:
        yield _SqliteSql(self._connection)

    def harden(self) -> None:
        raise ArgumentError("store", "is open for reading only")

    def lead(self) -> bool:
        return False

    def forget(self) -> bool:
        raise ArgumentError("store", "is open for reading only")

    def close(self) -> None:
        self._connection.close()


class _SqliteSql:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def all(self, query: str, values: Sequence[Any] = ()) -> list[Row]:
        return self._connection.execute(query.removesuffix(" FOR UPDATE"), values).fetchall()

    def later(self, query: str, values: Sequence[Any] = ()) -> Callable[[], list[Row]]:
        rows = self.all(query, values)
        return lambda: rows

    def many(self, query: str, rows: Sequence[Row]) -> None:
        self._connection.executemany(query, rows)

    def lock(self, table: str) -> None:
        """Do nothing: SQLite has one writer at a time."""


def not_ours(path: Path) -> ArgumentError:
    """The error for a database of another program, to which nothing is added."""
    says = f"must be one of fedbandit's, and {path} has other tables"
    return ArgumentError("store", f"{says}: look at `store` in party.json, or put the party's own store back")


def damaged(path: Path, error: sqlite3.DatabaseError) -> ArgumentError:
    """The error for a file that SQLite cannot read, wholly or in part."""
    return ArgumentError(
        "store", f"{path} is damaged ({error}): nothing is done with it; put the newest whole copy in its place"
    )


def _check_place(path: Path) -> None:
    """Refuse a path that cannot be a store: it must be a file that can be written, in a folder that exists."""
    problem = None
    if path.name == ":memory:":  # SQLite's name for a database that is gone after a restart
        problem = "would forget what was spent"
    elif path.is_dir():
        problem = "is a folder"
    elif not path.parent.is_dir():
        problem = f"cannot be created: there is no folder {str(path.parent)!r}"
    elif path.exists() and not os.access(path, os.R_OK | os.W_OK):
        problem = "cannot be read and written by this user"
    if problem is not None:
        raise ArgumentError("store", f"must be a file that can be written; {str(path)!r} {problem}")


def _claim(path: Path) -> IO[bytes]:
    """Hold the store's lock for as long as the process lives: two processes on one store would be two silos."""
    try:
        file = open(path.with_name(path.name + ".lock"), "wb")  # noqa: SIM115 (held open on purpose)
    except OSError as error:
        reason = f"must be a file that can be written; next to {str(path)!r} no file can be created ({error.strerror})"
        raise ArgumentError("store", reason) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        reason = f"{path} is in use by another process: stop that process first (several workers need PostgreSQL)"
        raise ArgumentError("store", reason) from None
    return file
