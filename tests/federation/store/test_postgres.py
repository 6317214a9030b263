"""What only a server of its own can do to a store: go away between two calls."""

import psycopg
import pytest

from fedbandit.federation.store import open_engine
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
