"""The machine of one party: its clocks, its disk, and processes on it that can be killed between any two operations."""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, NamedTuple

from fedbandit.federation.store.database import Row, Sql
from fedbandit.federation.store.schema import FORMAT, TABLES, tables
from fedbandit.federation.timing import Reading

__all__ = ["START", "Clock", "Crash", "Disk", "Process", "SimulatedEngine", "Statement", "Written"]

START = 1_000_000.0  # the wall time at which a history begins


class Crash(BaseException):
    """The process is gone. It is no Exception, so that nobody can go on after it."""


class Clock:
    """A machine's clocks: what passes, and by how much somebody has set the wall clock wrong."""

    def __init__(self, passed: Callable[[], float]) -> None:
        self.wrong, self._passed = 0.0, passed
        self._booted, self._boots, self._boot = 0.0, 0, "boot 0"

    def read(self) -> Reading:
        passed = self._passed()
        return Reading(START + passed + self.wrong, passed - self._booted, self._boot)

    def steady(self) -> float:
        return self._passed() - self._booted

    def reboot(self) -> None:
        self._booted, self._boots = self._passed(), self._boots + 1
        self._boot = f"boot {self._boots}"


class Process:
    """One life of a party. Whatever it does after its end raises, and so leaves no trace."""

    def __init__(self) -> None:
        self.alive = True
        self._points_left = -1
        self._died: Callable[[], None] = lambda: None

    def die_at(self, points: int, died: Callable[[], None]) -> None:
        """Be killed at the n-th point from now."""
        self._points_left, self._died = points, died

    def point(self) -> None:
        """A moment between two operations, at which the process may be killed."""
        if not self.alive:
            raise Crash
        if self._points_left > 0:
            self._points_left -= 1
            if self._points_left == 0:
                self.alive = False
                self._died()
                raise Crash


class Statement(NamedTuple):
    """One change, as it can be made again."""

    query: str
    values: Sequence[Any]
    many: bool


Written = tuple[Statement, ...]


class Known(dict[tuple[str, tuple[Any, ...]], list[Row]]):
    """What queries have found, each until its table changes: those who wait ask the same again and again."""

    def __init__(self) -> None:
        super().__init__()
        self._of: dict[str, list[tuple[str, tuple[Any, ...]]]] = {}

    def keep(self, key: tuple[str, tuple[Any, ...]], found: list[Row]) -> None:
        for table in _tables(key[0]):
            self._of.setdefault(table, []).append(key)
        self[key] = found

    def forget(self, written: Written) -> None:
        for table in {table for statement in written for table in _tables(statement.query)}:
            for key in self._of.pop(table, ()):
                self.pop(key, None)


@cache
def _tables(query: str) -> frozenset[str]:
    """The tables that a statement is about."""
    return frozenset(re.findall(r"\w+", query)) & frozenset(TABLES)


class Disk:
    """Transactions in the order of their commits; the first `durable` of them survive a power cut."""

    def __init__(self, committed: Callable[[Disk, Written], None]) -> None:
        self.written: list[Written] = []
        self.durable = 0
        self.full = False  # nothing more can be written
        self.failing = False  # what is written cannot be forced to the disk
        self.refused = False  # whether it has ever not taken something
        self._committed = committed
        self._ghost: Written | None = None  # a commit that failed, and may be found after a power cut all the same
        self.connection = _empty()
        self.known = Known()

    def commit(self, statements: Written, durable: bool) -> None:
        """Take a transaction; if this raises it is to be rolled back."""
        self.refused |= self.full or self.failing
        if statements and self.full:
            raise sqlite3.OperationalError("database or disk is full")
        if durable and self.failing and statements:
            self._ghost = statements
            raise sqlite3.OperationalError("disk I/O error")
        if statements:
            self._ghost = None
            self.written.append(statements)
            self.known.forget(statements)
        if durable:
            self.durable = len(self.written)

    def announce(self, statements: Written) -> None:
        if statements:
            self._committed(self, statements)

    def announce_to(self, committed: Callable[[Disk, Written], None]) -> None:
        """Somebody else is told of what is written from now on."""
        self._committed = committed

    def harden(self) -> None:
        if self.failing:
            raise OSError("Input/output error")
        self.durable = len(self.written)

    def cut_power(self, chance: random.Random) -> bool:
        """Lose what was not durable, or a part of it; True if what had failed is there after all."""
        kept = chance.randint(self.durable, len(self.written))
        found = self._ghost is not None and kept == len(self.written) and chance.random() < 0.5
        ghost, self._ghost = self._ghost, None
        if found and ghost is not None:
            self.written.append(ghost)
            self.known.forget(ghost)
            _again(self.connection, [ghost])
        elif kept < len(self.written):
            self.put_back(kept)
        self.durable = len(self.written)
        return found

    def put_back(self, kept: int) -> None:
        """The state after so many transactions, and nothing of what came later."""
        self.written, self.durable, self._ghost = self.written[:kept], kept, None
        self.known = Known()
        _begin(self.connection)
        _again(self.connection, self.written)

    def scrap(self) -> None:
        """The end of its history; the connection goes to the next one, with all the statements that it knows."""
        _SPARE.append(self.connection)


class SimulatedEngine:
    """A store's engine over a simulated disk, for one process. It keeps what `Engine` promises, and no more."""

    shared = False

    def __init__(self, disk: Disk, process: Process) -> None:
        self._disk, self._process = disk, process

    def transaction(self, durable: bool = True, letting_go: bool = False) -> AbstractContextManager[Sql]:
        return _Transaction(self._disk, self._process, durable)

    def read(self) -> AbstractContextManager[Sql]:
        if not self._process.alive:
            raise Crash
        return _RecordingSql(self._disk)

    def harden(self) -> None:
        self._process.point()
        self._disk.harden()
        self._process.point()

    def lead(self) -> bool:
        return True

    def forget(self) -> bool:
        if not self._process.alive:
            raise Crash
        return True

    def close(self) -> None:
        """The disk stays."""


class _RecordingSql:
    """Statements on a disk. A transaction begins with its first change: nobody else comes in between."""

    __slots__ = ("_connection", "_known", "changes")

    def __init__(self, disk: Disk) -> None:
        self._connection, self._known = disk.connection, disk.known
        self.changes: list[Statement] = []

    def __enter__(self) -> Sql:
        return self

    def __exit__(self, *raised: object) -> None:
        """It was only a look."""

    def all(self, query: str, values: Sequence[Any] = ()) -> list[Row]:
        key = (query, tuple(values))
        if query[:6] != "SELECT":
            self._change(Statement(query, key[1], many=False))
        elif not self.changes:
            if key not in self._known:
                self._known.keep(key, self._look(query, values))
            return self._known[key].copy()
        return self._look(query, values)

    def later(self, query: str, values: Sequence[Any] = ()) -> Callable[[], list[Row]]:
        rows = self.all(query, values)
        return lambda: rows

    def many(self, query: str, rows: Sequence[Row]) -> None:
        if rows:
            self._change(Statement(query, tuple(rows), many=True))
            self._connection.executemany(query, rows)

    def lock(self, table: str) -> None:
        """Nothing to do: one process."""

    def _look(self, query: str, values: Sequence[Any]) -> list[Row]:
        return self._connection.execute(query.removesuffix(" FOR UPDATE"), values).fetchall()

    def _change(self, statement: Statement) -> None:
        if not self.changes:
            self._connection.execute("BEGIN")
        self.changes.append(statement)


class _Transaction:
    __slots__ = ("_disk", "_durable", "_process", "_sql")

    def __init__(self, disk: Disk, process: Process, durable: bool) -> None:
        self._disk, self._process, self._durable = disk, process, durable

    def __enter__(self) -> Sql:
        self._process.point()
        self._sql = _RecordingSql(self._disk)
        return self._sql

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        statements = tuple(self._sql.changes)
        if kind is not None:
            self._end("ROLLBACK", statements)
            return
        try:
            self._process.point()
            self._disk.commit(statements, self._durable)
        except BaseException:
            self._end("ROLLBACK", statements)
            raise
        self._end("COMMIT", statements)
        self._disk.announce(statements)
        self._process.point()

    def _end(self, how: str, statements: Written) -> None:
        if statements:
            self._disk.connection.execute(how)


def _again(connection: sqlite3.Connection, written: Sequence[Written]) -> None:
    for statements in written:
        for query, values, many in statements:
            (connection.executemany if many else connection.execute)(query, values)


_SPARE: list[sqlite3.Connection] = []


def _empty() -> sqlite3.Connection:
    """A store as `open_engine` begins it."""
    if _SPARE:
        connection = _SPARE.pop()
    else:
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, cached_statements=500)
        for statement in tables("BLOB", "REAL", "INTEGER", "WITHOUT ROWID"):
            connection.execute(statement)
    _begin(connection)
    return connection


def _begin(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")
    for table in TABLES:
        connection.execute(f"DELETE FROM {table}")
    connection.execute("INSERT INTO meta (key, value) VALUES ('format', ?)", (FORMAT.encode(),))
