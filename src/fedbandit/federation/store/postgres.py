"""PostgreSQL: several workers serve one silo; one of them leads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from fedbandit.federation.store.database import Row, Sql, create
from fedbandit.federation.store.schema import tables

__all__ = ["PostgresEngine"]

LEADER = 0x66656462616E6469  # the advisory lock of the leading worker
SCHEMA_LOCK = LEADER + 1
# A separate transaction that writes a message to the server's log, which nobody reads, and commits: that makes all
# earlier transactions durable. One that only has a number (`txid_current()`) is not forced to the disk by its commit.
HARDEN = "SELECT pg_logical_emit_message(true, 'fedbandit', '')"
# Whoever has waited for the term's lock must see what the last holder wrote. Under a stricter level, which a server can
# have as its default, all statements see the database as it was before the wait, so a reward could count twice.
BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
# A server that vanishes without a word (its machine or the network is gone) counts as lost after some twenty seconds;
# the system would wait for a quarter of an hour. There is no limit for statements: one that takes long on a busy server
# would be tried again for ever. What the URL says comes first.
PATIENCE = {
    "connect_timeout": 5,  # seconds
    "keepalives_idle": 10,  # seconds
    "keepalives_interval": 5,  # seconds
    "keepalives_count": 2,
    "tcp_user_timeout": 20_000,  # milliseconds
}
FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0  # seconds between attempts to connect


class PostgresEngine:
    """One connection for statements, and one that holds the leader's lock; both are made again after an outage.

    While the server is unreachable, every call fails at once, except for one attempt to connect per back-off time. So
    callers get an error, nobody waits in a queue, and decisions, which need no database, go on.
    """

    shared = True

    def __init__(self, url: str, *, reading: bool = False) -> None:
        """Create the tables, or bring them to this version's format; if `reading`, allow reading only."""
        self._url, self._reading = url, reading
        self._lock = threading.RLock()
        self._away = Backoff()
        self._loose = self._lost = False  # whether something may not be on disk yet; whether it may be lost
        self._connection = self._connect()
        self._leading: psycopg.Connection[Row] | None = None
        if reading:
            return
        with self.transaction() as sql:
            sql.all("SELECT pg_advisory_xact_lock(?)", (SCHEMA_LOCK,))  # two CREATE IF NOT EXISTS at a time can fail
            create(sql, tables("BYTEA", "DOUBLE PRECISION", "BIGINT", ""), _tables(sql))

    def tables(self) -> set[str]:
        """The names of all tables in the schema."""
        with self.read() as sql:
            return _tables(sql)

    @contextmanager
    def transaction(self, durable: bool = True, letting_go: bool = False) -> Iterator[Sql]:
        """A transaction in a pipeline. After every round trip to the server a thread also waits for the interpreter,
        with locks held. So statements that need no answer travel with the next one that does, or the commit."""
        with self._lock:
            connection = self._alive()
            self._loose = self._loose or not durable
            try:
                with connection.pipeline() as pipeline:
                    sql = _PostgresSql(connection, pipeline)
                    sql.send(BEGIN)
                    if letting_go or not durable:
                        sql.send("SET LOCAL synchronous_commit = off")
                    yield sql
                    sql.send("COMMIT")
                    if durable and letting_go:
                        sql.send(HARDEN)
            except BaseException:
                with suppress(psycopg.OperationalError):  # the server may be gone, and the transaction too
                    connection.rollback()
                raise

    @contextmanager
    def read(self) -> Iterator[Sql]:
        with self._lock:
            connection = self._alive()
            with connection.pipeline() as pipeline, connection.transaction():
                yield _PostgresSql(connection, pipeline)

    def harden(self) -> None:
        """Make all earlier transactions durable: the server writes its log in order, so one durable commit covers them.
        If the connection was lost since the first of them, the server may have lost them too, and this raises."""
        with self._lock:
            connection, lost, self._lost = self._alive(), self._lost, False
            if lost:
                raise psycopg.OperationalError("the server went away before all that was written was on disk")
            connection.execute(HARDEN)
            self._loose = False

    def lead(self) -> bool:
        """Whether this worker holds the leader's lock; nobody does while the server is unreachable."""
        with self._lock:
            if self._leading is not None:
                try:
                    self._leading.execute("SELECT 1")
                    return True
                except psycopg.OperationalError:
                    self._leading = None
            try:
                connection = self._connect()
            except psycopg.OperationalError:
                return False
            row = connection.execute("SELECT pg_try_advisory_lock(%s)", (LEADER,)).fetchone()
            if row is not None and row[0]:
                self._leading = connection
                return True
            connection.close()
            return False

    def forget(self) -> bool:
        """Clear deleted rows from the table's file. The server's own log still holds them until the server recycles it,
        which is a matter of the server's configuration."""
        with self._lock:
            self._alive().execute("VACUUM raw_rows")
            return True

    def close(self) -> None:
        with self._lock:
            self._connection.close()
            if self._leading is not None:
                self._leading.close()

    def _alive(self) -> psycopg.Connection[Row]:
        """The connection for statements; a new one if it was lost."""
        if self._connection.closed or self._connection.broken:
            self._lost, self._loose = self._lost or self._loose, False
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> psycopg.Connection[Row]:
        self._away.check()
        try:
            said = conninfo_to_dict(self._url)
            patience = {name: limit for name, limit in PATIENCE.items() if name not in said}
            connection = psycopg.connect(make_conninfo(self._url, **patience), autocommit=True)
            connection.execute("SET synchronous_commit = on")
            if self._reading:
                connection.execute("SET default_transaction_read_only = on")
        except psycopg.OperationalError:
            self._away.failed()
            raise
        self._away.worked()
        return connection


def _tables(sql: Sql) -> set[str]:
    return {str(name) for (name,) in sql.all("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")}


class Backoff:
    """How long to wait before trying again a server that did not answer: twice as long each time, up to a limit."""

    def __init__(self) -> None:
        self._wait, self._again = 0.0, 0.0

    def check(self) -> None:
        """Raise if it is too early to try again."""
        if time.monotonic() < self._again:
            raise psycopg.OperationalError(f"the database did not answer; next try in {self._wait:g} s at most")

    def failed(self) -> None:
        self._wait = min(LONGEST_WAIT, max(FIRST_WAIT, 2 * self._wait))
        self._again = time.monotonic() + self._wait

    def worked(self) -> None:
        self._wait = self._again = 0.0


class _PostgresSql:
    """Statements that go to the server, in order, when an answer is needed or the transaction ends. An error in one of
    them is raised then."""

    def __init__(self, connection: psycopg.Connection[Row], pipeline: psycopg.Pipeline) -> None:
        self._connection, self._pipeline = connection, pipeline

    def send(self, query: str, values: Sequence[Any] = ()) -> psycopg.Cursor[Row]:
        """Queue a statement without waiting for its answer."""
        return self._connection.execute(query.replace("?", "%s").encode(), values)

    def all(self, query: str, values: Sequence[Any] = ()) -> list[Row]:
        if query.startswith("SELECT"):
            return self.later(query, values)()
        self.send(query, values)
        return []

    def later(self, query: str, values: Sequence[Any] = ()) -> Callable[[], list[Row]]:
        sent = self.send(query, values)

        def answer() -> list[Row]:
            if sent.pgresult is None:
                self._pipeline.sync()
            return sent.fetchall()

        return answer

    def many(self, query: str, rows: Sequence[Row]) -> None:
        if rows:
            self._connection.cursor().executemany(query.replace("?", "%s").encode(), rows)

    def lock(self, table: str) -> None:
        self.send(f"LOCK TABLE {table} IN EXCLUSIVE MODE")
