"""A database server that dies, refuses or was tampered with: nothing acknowledged is lost, nothing is drawn twice.

Where PostgreSQL is not installed, these tests are skipped.
"""

import os
import signal
from collections.abc import Iterator

import psycopg
import pytest

from fedbandit.federation.silo import book
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.store.postgres import PostgresEngine
from tests.federation.conftest import PostgresServer, postgres_server
from tests.torture.conftest import Tally
from tests.torture.test_storage import ACTIONS, START, Clock, opened, serve

pytestmark = pytest.mark.fire

LOST = psycopg.OperationalError


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as running:
        yield running


@pytest.fixture
def database(server: PostgresServer) -> PostgresServer:
    """The server, with nothing in it."""
    server.wait()
    admin(server, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
    return server


def admin(server: PostgresServer, *statements: str) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def restart(server: PostgresServer) -> None:
    """The server ends as if the machine had, and comes back: it recovers from its log."""
    server.stop(signal.SIGQUIT)
    server.start()


def again(silo: Silo, decision: str, reward: float) -> bool:
    """A client that was not answered sends its reward until it is; whether it had come before."""
    while True:
        try:
            return silo.reward(decision, reward).repeated
        except LOST:
            continue


def rewards_of(silo: Silo, sync: int) -> list[float]:
    return sorted(reward for _, reward in silo.store.batch(1, sync))


def test_a_server_that_dies_loses_nothing_that_was_acknowledged(database: PostgresServer, tally: Tally) -> None:
    with opened(database.url, Clock()) as silo:
        served = serve(silo, 0.1, 0.2, 0.3)
        restart(database)
        assert silo.decide(ACTIONS).action in (0, 1)
        assert all(again(silo, *one) for one in served)
        assert rewards_of(silo, 0) == [0.1, 0.2, 0.3]
    tally("storage faults", 1)


def test_a_server_that_dies_before_a_reward_is_on_disk_acknowledges_nothing(
    database: PostgresServer, tally: Tally
) -> None:
    """What was written together and not yet forced to the disk may be gone, whatever the server says afterwards."""
    with opened(database.url, Clock()) as silo:
        decision = silo.decide(ACTIONS).id
        silo.reward_many([silo.read(decision, 0.5)], durable=False)
        restart(database)
        with pytest.raises(LOST):
            silo.store.engine.harden()
        with pytest.raises(LOST, match="before all that was written was on disk"):  # it knows now that it was away
            silo.store.engine.harden()
        again(silo, decision, 0.5)
        assert rewards_of(silo, 0) == [0.5]
    tally("storage faults", 1)


def test_a_server_that_is_away_at_the_tick_draws_nothing_and_then_once(database: PostgresServer, tally: Tally) -> None:
    clock_ = Clock()
    with opened(database.url, clock_) as silo:
        serve(silo, 0.1)
        clock_.now = START + 60
        database.stop(signal.SIGQUIT)
        with pytest.raises(LOST):
            silo.tick()
        assert silo.decide(ACTIONS).action in (0, 1)
        database.start()
        drawn: list[int] = []
        while not drawn:
            try:
                drawn = silo.tick()
            except LOST:
                continue
        assert drawn == [0]
        assert len(book.entries(silo.store.ledger())) == 1
    tally("storage faults", 1)


def test_a_process_of_the_server_that_is_killed_takes_nothing_along(database: PostgresServer, tally: Tally) -> None:
    """kill -9 of the one that serves the silo: the server ends all others too, and recovers from its log."""
    with opened(database.url, Clock()) as silo:
        served = serve(silo, 0.1)
        decision = silo.decide(ACTIONS).id
        engine = silo.store.engine
        assert isinstance(engine, PostgresEngine)
        os.kill(engine._connection.info.backend_pid, signal.SIGKILL)
        with pytest.raises(LOST):
            silo.reward(decision, 0.2)
        assert silo.decide(ACTIONS).action in (0, 1)
        again(silo, decision, 0.2)
        assert all(again(silo, *one) for one in served)
        assert rewards_of(silo, 0) == [0.1, 0.2]
    tally("storage faults", 1)


def test_a_server_that_takes_nothing_stops_no_decision(database: PostgresServer, tally: Tally) -> None:
    """Read-only, as after a failover to the wrong side."""
    only_read = "ALTER DATABASE postgres {} default_transaction_read_only"
    others = "FROM pg_stat_activity WHERE datname = 'postgres' AND pid <> pg_backend_pid()"
    ended = f"SELECT pg_terminate_backend(pid) {others}"
    with opened(database.url, Clock()) as silo:
        decision = silo.decide(ACTIONS).id
        admin(database, only_read.format("SET") + " = on", ended)
        for _ in range(3):
            with pytest.raises(psycopg.Error):
                silo.reward(decision, 0.4)
        assert silo.decide(ACTIONS).action in (0, 1)
        writes = "BEGIN READ WRITE; " + only_read.format("RESET") + "; COMMIT"
        admin(database, writes, ended)
        assert not again(silo, decision, 0.4)
        assert rewards_of(silo, 0) == [0.4]
    tally("storage faults", 1)


REFUSED = {
    "a dropped ledger": ("DROP TABLE ledger", "has lost ledger"),
    "a dropped table of who has opted out": ("DROP TABLE opted_out", "has lost opted_out"),
    "a store of an earlier format": ("UPDATE meta SET value = '3' WHERE key = 'format'", "was written by fedbandit"),
    "a store of a later format": ("UPDATE meta SET value = '99' WHERE key = 'format'", "later version"),
    "an edited entry of the ledger": ("UPDATE ledger SET event = replace(event, 'silo-0', 'silo-9')", "ledger"),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_a_database_that_was_tampered_with_is_refused(database: PostgresServer, fault: str, tally: Tally) -> None:
    damage, words = REFUSED[fault]
    clock_ = Clock()
    with opened(database.url, clock_) as silo:
        serve(silo, 0.1)
        clock_.now = START + 60
        assert silo.tick() == [0]
    admin(database, damage)
    with pytest.raises(ValueError, match=words):
        opened(database.url, clock_).close()
    tally("storage faults", 1)
