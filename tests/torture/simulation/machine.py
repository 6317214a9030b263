"""The machine of one party: its clocks, its disk, and processes on it that can be killed between any two operations."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

from fedbandit.federation.store.database import Row, Sql, create
from fedbandit.federation.store.schema import FORMAT, tables
from fedbandit.federation.timing import Reading

__all__ = ["START", "Clock", "Crash", "Disk", "Process", "SimulatedEngine", "Statement", "Written"]

START = 1_000_000.0  # the wall time at which a history begins


class Crash(BaseException):
    """The process is gone. It is no Exception, so that nobody can go on after it."""


class Clock:
    """A machine's clocks: what passes, and by how much somebody has set the wall clock wrong."""

    def __init__(self, passed: Callable[[], float]) -> None:
        self.wrong, self._passed = 0.0, passed
        self._booted, self._boots = 0.0, 0

    def read(self) -> Reading:
        passed = self._passed()
        return Reading(START + passed + self.wrong, passed - self._booted, f"boot {self._boots}")

    def steady(self) -> float:
        return self.read().steady

    def reboot(self) -> None:
        self._booted, self._boots = self._passed(), self._boots + 1


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
        if durable:
            self.durable = len(self.written)

    def announce(self, statements: Written) -> None:
        if statements:
            self._committed(self, statements)

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
            _again(self.connection, [ghost])
        elif kept < len(self.written):
            self.put_back(kept)
        self.durable = len(self.written)
        return found

    def put_back(self, kept: int) -> None:
        """The state after so many transactions, and nothing of what came later."""
        self.written, self.durable, self._ghost = self.written[:kept], kept, None
        self.connection.close()
        self.connection = _empty()
        _again(self.connection, self.written)


class SimulatedEngine:
    """A store's engine over a simulated disk, for one process. It keeps what `Engine` promises, and no more."""

    shared = False

    def __init__(self, disk: Disk, process: Process) -> None:
        self._disk, self._process = disk, process

    @contextmanager
    def transaction(self, durable: bool = True) -> Iterator[Sql]:
        point, disk = self._process.point, self._disk
        point()
        disk.connection.execute("BEGIN")
        sql = _RecordingSql(disk.connection)
        try:
            yield sql
            point()
            statements = tuple(sql.changes)
            disk.commit(statements, durable)
        except BaseException:
            disk.connection.execute("ROLLBACK")
            raise
        disk.connection.execute("COMMIT")
        disk.announce(statements)
        point()

    @contextmanager
    def read(self) -> Iterator[Sql]:
        if not self._process.alive:
            raise Crash
        yield _RecordingSql(self._disk.connection)

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
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.changes: list[Statement] = []

    def all(self, query: str, values: Sequence[Any] = ()) -> list[Row]:
        if query[:6] != "SELECT":
            self.changes.append(Statement(query, tuple(values), many=False))
        return self._connection.execute(query.removesuffix(" FOR UPDATE"), values).fetchall()

    def many(self, query: str, rows: Sequence[Row]) -> None:
        if rows:
            self.changes.append(Statement(query, tuple(rows), many=True))
            self._connection.executemany(query, rows)

    def lock(self, table: str) -> None:
        """Nothing to do: one process."""


def _again(connection: sqlite3.Connection, written: Sequence[Written]) -> None:
    for statements in written:
        for query, values, many in statements:
            (connection.executemany if many else connection.execute)(query, values)


def _empty() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.deserialize(_new_store())
    return connection


@cache
def _new_store() -> bytes:
    """A store as `open_engine` begins it."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    sql = _RecordingSql(connection)
    create(sql, tables("BLOB", "REAL", "INTEGER", "WITHOUT ROWID"), ())
    sql.all("INSERT INTO meta (key, value) VALUES ('format', ?)", (FORMAT.encode(),))
    return connection.serialize()
