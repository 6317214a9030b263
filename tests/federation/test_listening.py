"""The port of several workers: nobody else can take it, and only workers that listen get connections."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedbandit._validate import ArgumentError
from fedbandit.federation.process import beside, holding, listening
from fedbandit.federation.setup.home import Home
from tests.federation.test_process import founded

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere workers share one listener")


@pytest.fixture
def silo(tmp_path: Path) -> Home:
    home: Home = founded(tmp_path)
    return home


@pytest.fixture
def held(silo: Home) -> Iterator[socket.socket]:
    with holding(silo) as port:
        yield port


@contextlib.contextmanager
def connected(port: socket.socket, times: int) -> Iterator[None]:
    with contextlib.ExitStack() as opened:
        for _ in range(times):
            opened.enter_context(socket.create_connection(port.getsockname(), 5))
        yield


def accepted(listener: socket.socket) -> int:
    """How many connections wait at a listener; they are closed."""
    listener.setblocking(False)
    count = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            listener.accept()[0].close()
            count += 1
    return count


def test_a_port_that_is_held_refuses_connections_until_a_worker_listens(held: socket.socket) -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(held.getsockname(), 5)
    with beside(held) as worker, connected(held, 3):
        assert accepted(worker) == 3


def test_connections_are_divided_among_workers(held: socket.socket) -> None:
    """One worker got up to all of 64 connections. By chance alone, fewer than 60 of 400 happen once in 10^48 times."""
    with beside(held) as one, beside(held) as other, connected(held, 400):
        counts = accepted(one), accepted(other)
    assert sum(counts) == 400
    assert min(counts) >= 60


def test_a_worker_that_has_ended_gets_no_connections_and_its_successor_does(held: socket.socket) -> None:
    with beside(held) as one:
        beside(held).close()
        with connected(held, 50):
            assert accepted(one) == 50
        with beside(held) as successor, connected(held, 400):
            assert accepted(one) + accepted(successor) == 400


@pytest.mark.parametrize("workers", [0, 1])
def test_nobody_else_gets_the_port_whether_workers_listen_or_not(silo: Home, held: socket.socket, workers: int) -> None:
    """Two silos on one port would each get a part of the requests."""
    with contextlib.ExitStack() as listeners:
        for _ in range(workers):
            listeners.enter_context(beside(held))
        for taking in (holding, listening):
            with pytest.raises(ArgumentError, match="must be free"):
                taking(silo)


def test_the_port_of_workers_that_outlive_their_parent_is_not_taken(silo: Home) -> None:
    held = holding(silo)
    with beside(held):
        held.close()
        with pytest.raises(ArgumentError, match="must be free"):
            holding(silo)


def test_the_port_is_free_again_right_after_the_last_worker(silo: Home) -> None:
    """Connections that the server closed first stay in TIME_WAIT for a minute."""
    for _ in range(2):
        with holding(silo) as held, beside(held) as worker, connected(held, 5):
            assert accepted(worker) == 5
    for listener in listening(silo):
        listener.close()


def test_connections_of_workers_send_small_answers_at_once(held: socket.socket) -> None:
    with beside(held) as worker, connected(held, 1):
        connection, _ = worker.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
