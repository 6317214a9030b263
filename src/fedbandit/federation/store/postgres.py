"""PostgreSQL: several workers serve one silo; one of them leads."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import psycopg

from fedbandit.federation.store.database import Row, Sql
from fedbandit.federation.store.schema import tables

__all__ = ["PostgresEngine"]

LEADER = 0x66656462616E6469  # the advisory lock of the leading worker
SCHEMA_LOCK = LEADER + 1


class PostgresEngine:
    """One connection for statements, one that holds the leader's lock; both come back after the server went away."""

    shared = True

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.RLock()
        self._connection = self._connect()
        self._leading: psycopg.Connection[Row] | None = None
        with self.transaction() as sql:
            sql.all("SELECT pg_advisory_xact_lock(?)", (SCHEMA_LOCK,))  # CREATE IF NOT EXISTS races with itself
            for statement in tables("BYTEA", "DOUBLE PRECISION", "BIGINT", ""):
                sql.all(statement)

    @contextmanager
    def transaction(self, durable: bool = True) -> Iterator[Sql]:
        with self._lock:
            if self._connection.closed or self._connection.broken:
                self._connection = self._connect()
            with self._connection.transaction(), self._connection.cursor() as cursor:
                if not durable:
                    cursor.execute(b"SET LOCAL synchronous_commit = off")
                yield _PostgresSql(cursor)

    def read(self) -> AbstractContextManager[Sql]:
        return self.transaction(durable=False)

    def harden(self) -> None:
        """The log is written in order: a durable commit takes all earlier ones with it."""
        with self.transaction() as sql:
            sql.all("SELECT pg_current_wal_flush_lsn(), txid_current()")

    def lead(self) -> bool:
        with self._lock:
            if self._leading is not None:
                try:
                    self._leading.execute("SELECT 1")
                    return True
                except psycopg.OperationalError:
                    self._leading = None
            connection = self._connect()
            row = connection.execute("SELECT pg_try_advisory_lock(%s)", (LEADER,)).fetchone()
            if row is not None and row[0]:
                self._leading = connection
                return True
            connection.close()
            return False

    def forget(self) -> None:
        with self._lock:
            self._connection.execute("VACUUM raw_rows")

    def close(self) -> None:
        with self._lock:
            self._connection.close()
            if self._leading is not None:
                self._leading.close()

    def _connect(self) -> psycopg.Connection[Row]:
        connection = psycopg.connect(self._url, autocommit=True, connect_timeout=10)
        connection.execute("SET synchronous_commit = on")
        return connection


class _PostgresSql:
    def __init__(self, cursor: psycopg.Cursor[Any]) -> None:
        self._cursor = cursor

    def all(self, query: str, values: Sequence[Any] = ()) -> list[Row]:
        self._cursor.execute(query.replace("?", "%s").encode(), values)
        return self._cursor.fetchall() if self._cursor.description else []

    def many(self, query: str, rows: Sequence[Row]) -> None:
        if rows:
            self._cursor.executemany(query.replace("?", "%s").encode(), rows)

    def lock(self, table: str) -> None:
        self._cursor.execute(f"LOCK TABLE {table} IN EXCLUSIVE MODE".encode())
