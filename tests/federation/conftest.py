"""Stores for the contract."""

import shutil
import signal
import socket
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from fedbandit.federation.store import open_engine

POSTGRES = ("/usr/lib/postgresql/*/bin", "/usr/local/bin", "/usr/bin")


def _binary(name):
    for pattern in POSTGRES:
        for folder in sorted(Path("/").glob(pattern[1:])):
            if (folder / name).exists():
                return str(folder / name)
    return shutil.which(name)


def _as_postgres(command, folder):
    """PostgreSQL refuses to run as root: then as its own user."""
    import os

    if os.getuid() == 0:
        shutil.chown(folder, "postgres")
        return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", *command]
    return command


class PostgresServer:
    """A server of the tests' own, which can be stopped and started again."""

    def __init__(self, folder, initdb, server):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        data = folder / "data"
        initialise = [initdb, "-D", str(data), "-U", "fedbandit", "--auth=trust", "--no-sync"]
        subprocess.run(_as_postgres(initialise, folder), check=True, capture_output=True, cwd="/")
        settings = ["-c", f"port={port}", "-c", f"unix_socket_directories={folder}", "-c", "fsync=off"]
        self._command = _as_postgres([server, "-D", str(data), *settings], folder)
        self.url = f"postgresql://fedbandit@127.0.0.1:{port}/postgres"

    def start(self):
        self._process = subprocess.Popen(self._command, stderr=subprocess.DEVNULL, cwd="/")
        self.wait()

    def wait(self):
        """Until it answers: it may be recovering from a crash that a test caused."""
        _wait_for_postgres(self.url)

    def stop(self, how=signal.SIGINT):
        """Without waiting for those who are connected; with SIGQUIT, without writing anything more."""
        self._process.send_signal(how)
        self._process.wait(20)


@contextmanager
def postgres_server():
    """A running PostgreSQL server; the test is skipped where there is none to start."""
    initdb, server = _binary("initdb"), _binary("postgres")
    if initdb is None or server is None:
        pytest.skip("PostgreSQL is not installed")
    folder = Path(tempfile.mkdtemp(prefix="fedbandit-pg-"))
    running = PostgresServer(folder, initdb, server)
    running.start()
    try:
        yield running
    finally:
        running.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_url():
    """A PostgreSQL server that all tests share."""
    with postgres_server() as running:
        yield running.url


def _wait_for_postgres(url):
    import time

    import psycopg

    for _ in range(200):
        try:
            psycopg.connect(url, connect_timeout=2).close()
            return
        except psycopg.OperationalError:
            time.sleep(0.1)
    raise RuntimeError("PostgreSQL did not start")


@pytest.fixture
def empty_postgres(postgres_url):
    """An empty PostgreSQL database."""
    import psycopg

    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return postgres_url


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request, tmp_path):
    """An empty store of either kind."""
    if request.param == "sqlite":
        return str(tmp_path / "store.db")
    return request.getfixturevalue("empty_postgres")


@pytest.fixture
def engine(store_url):
    opened = open_engine(store_url)
    yield opened
    opened.close()
