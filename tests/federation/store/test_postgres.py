"""What only a server of its own can do to a store: go away between two calls."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from fedbandit.federation.store import Reward, SiloStore, open_engine
from fedbandit.federation.store.events import EVENTS, EventStore
from tests.federation.conftest import postgres_server


@pytest.fixture
def server():
    with postgres_server() as running:
        yield running


def write(engine, key, durable):
    with engine.transaction(durable) as sql:
        sql.all("INSERT INTO meta (key, value) VALUES (?, ?)", (key, b"x"))


def read(engine):
    with engine.read() as sql:
        sql.all("SELECT value FROM meta")


def test_what_a_server_may_have_lost_is_not_called_durable(server):
    """The rewards of a group are committed first and made durable next; in between the server may be replaced by one
    that knows nothing of them."""
    engine = open_engine(server.url)
    write(engine, "a", durable=False)
    server.stop()
    server.start()
    with pytest.raises(psycopg.OperationalError):
        read(engine)  # notices that the connection is gone
    read(engine)  # somebody else has made a new one meanwhile
    with pytest.raises(psycopg.OperationalError, match="went away"):
        engine.harden()
    write(engine, "b", durable=False)
    engine.harden()  # what was written since is there
    engine.close()


def test_what_was_durable_before_the_server_went_away_stays_so(server):
    engine = open_engine(server.url)
    write(engine, "a", durable=False)
    engine.harden()
    server.stop()
    server.start()
    with pytest.raises(psycopg.OperationalError):
        read(engine)
    read(engine)
    engine.harden()
    engine.close()


@pytest.mark.parametrize(("more", "idle", "limit"), [("", "10", "20000"), ("keepalives_idle=77", "77", "20000")])
def test_a_server_that_vanishes_is_not_waited_for_as_long_as_the_system_would(server, more, idle, limit):
    """That is a quarter of an hour, in which a mixer or an analyzer does nothing else."""
    engine: Any = open_engine(f"{server.url}{'&' if '?' in server.url else '?'}{more}" if more else server.url)
    known = engine._connection.info.get_parameters()
    assert (known["keepalives_idle"], known["tcp_user_timeout"]) == (idle, limit)
    engine.close()


def is_on_disk(engine, place):
    """Whether the server's log is on disk as far as this place."""
    with engine.read() as sql:
        ((there,),) = sql.all("SELECT pg_current_wal_flush_lsn() > ?::text::pg_lsn", (place,))
    return there


def written(sql, key):
    """Write something; how far the server's log goes then."""
    sql.all("INSERT INTO meta (key, value) VALUES (?, ?)", (key, b"x"))
    ((place,),) = sql.all("SELECT pg_current_wal_insert_lsn()::text")
    return place


@pytest.mark.parametrize("letting_go", [False, True])
def test_what_is_called_durable_is_on_disk(server, letting_go):
    """Asked of the server itself. It also writes its log by itself now and then: hence so many times."""
    engine, other = open_engine(server.url), open_engine(server.url)
    for number in range(20):
        with engine.transaction(durable=letting_go, letting_go=letting_go) as sql:
            place = written(sql, f"key {number}")
            assert sql.all("SELECT current_setting('synchronous_commit')") == [("off",)]  # nobody waits for a lock
        if not letting_go:
            engine.harden()
        assert is_on_disk(other, place)
    with engine.transaction() as sql:
        place = written(sql, "at once")
        assert sql.all("SELECT current_setting('synchronous_commit')") == [("on",)]
    assert is_on_disk(other, place)
    engine.close()
    other.close()


def write_twice(engine, letting_go):
    with engine.transaction(letting_go=letting_go) as sql:
        written(sql, "twice")
        written(sql, "twice")


@pytest.mark.parametrize("letting_go", [False, True])
def test_what_fails_in_a_transaction_leaves_no_trace_and_the_next_one_works(server, letting_go):
    engine = open_engine(server.url)
    with pytest.raises(psycopg.errors.UniqueViolation):
        write_twice(engine, letting_go)
    with engine.read() as sql:
        assert sql.all("SELECT 1 FROM meta WHERE key = 'twice'") == []
    write(engine, "a", durable=True)
    engine.close()


def write_the_same(engine, letting_go):
    with engine.transaction(letting_go=letting_go) as sql:
        for _ in range(2):
            sql.all("INSERT INTO meta (key, value) VALUES (?, ?)", ("same", b"x"))


@pytest.mark.parametrize("letting_go", [False, True])
def test_a_statement_that_nobody_waits_for_fails_before_the_transaction_is_over(server, letting_go):
    engine = open_engine(server.url)
    with pytest.raises(psycopg.errors.UniqueViolation):
        write_the_same(engine, letting_go)
    with engine.read() as sql:
        assert sql.all("SELECT 1 FROM meta WHERE key = 'same'") == []
    write(engine, "a", durable=True)
    engine.close()


def test_answers_come_together_and_are_those_of_their_questions(server):
    """Each statement sees what those before it have written, whenever its answer is called for."""
    engine = open_engine(server.url)
    with engine.transaction() as sql:
        before = sql.later("SELECT value FROM meta WHERE key = ?", ("a",))
        sql.all("INSERT INTO meta (key, value) VALUES (?, ?)", ("a", b"x"))
        after = sql.later("SELECT value FROM meta WHERE key = ?", ("a",))
        assert sql.all("SELECT 1 + 1") == [(2,)]
        assert (after(), before()) == ([(b"x",)], [])
    engine.close()


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_a_reward_that_two_workers_take_at_once_counts_once_whatever_the_server_isolates(empty_postgres, isolation):
    """Whoever has waited for the term's lock must see what the holder wrote. The table's key does not tell them apart:
    the two rows of rewards that come together begin with different decisions."""

    def taken(store, first):
        nonces = [number.to_bytes(12, "big") for number in range(first, first + 4)]
        return store.count(1, [Reward(nonce, None, b"x" * 16, 0.5, nonce) for nonce in nonces], cap=1, syncs=4)

    asked = quote(f"-c default_transaction_isolation={isolation}".replace("repeatable ", "repeatable\\ "))
    with psycopg.connect(empty_postgres, autocommit=True) as other:
        workers = [SiloStore(open_engine(f"{empty_postgres}?options={asked}")) for _ in range(2)]
        workers[0].begin_term("plan-1", "{}", 100.0)
        with ThreadPoolExecutor(2) as threads:
            with other.transaction():
                other.execute("SELECT 1 FROM terms FOR UPDATE")
                futures = [threads.submit(taken, store, first) for store, first in zip(workers, (0, 2), strict=True)]
                await_waiting(other, len(futures))
            verdicts = [verdict for future in futures for verdict in future.result()]
    assert (sum(verdict.repeated for verdict in verdicts), len(workers[0].batch(1, 0))) == (2, 6)
    for store in workers:
        store.engine.close()


def test_two_workers_may_begin_to_keep_events_at_once(empty_postgres):
    """The second of them ended with "duplicate key value", and was replaced."""
    engines = [open_engine(empty_postgres) for _ in range(2)]
    with psycopg.connect(empty_postgres, autocommit=True) as other, ThreadPoolExecutor(2) as threads:
        with other.transaction():
            other.execute("LOCK TABLE terms IN EXCLUSIVE MODE")
            other.execute(EVENTS)
            futures = [threads.submit(EventStore, engine, 1, 100.0) for engine in engines]
            await_waiting(other, len(futures))
        for future in futures:
            assert future.result().hold("unknown", 0.5) is None
    for engine in engines:
        engine.close()


def await_waiting(connection, number):
    """Until so many others wait for a lock."""
    deadline = time.monotonic() + 20
    while connection.execute("SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted").fetchone() != (number,):
        assert time.monotonic() < deadline
        time.sleep(0.01)
