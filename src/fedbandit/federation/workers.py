"""Several processes that serve one silo. They share the port, the database and the secret; one of them leads."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import MutableSequence
from dataclasses import replace
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path

from fedbandit import _validate
from fedbandit._validate import ArgumentError
from fedbandit.federation.http.metrics import TALLY, WorkerTally
from fedbandit.federation.leaving import leave
from fedbandit.federation.process import REFUSED, Orders, beside, holding, listening, rehearse, run
from fedbandit.federation.setup.home import Home

__all__ = ["serve"]

log = logging.getLogger(__name__)
FAILED = 1  # exit code of a worker that is to be replaced
PAUSE = 1.0  # seconds until a worker that died is replaced
# Whether each worker listens for itself. With one listener for all, the worker that wakes first accepts all connections
# that wait: of 64 that came at once, one of two workers often had more than 60. Only Linux divides connections among
# listeners.
APART = sys.platform == "linux"


def serve(path: Path, workers: int = 1, orders: Orders = Orders()) -> int:  # noqa: B008 (frozen)
    """Serve the silo of this directory, and return the exit code. Whatever keeps the silo from starting is raised
    before there are workers. A worker that dies is replaced; if one refuses to work, all of them end."""
    _validate.count("workers", workers)
    home = Home.load(path)
    if home.settings.role != "silo":
        raise ArgumentError("home", f"must be the directory of a silo, got that of the {home.settings.role}")
    if workers == 1:
        return run(path, orders)
    if not _validate.is_postgres(home.settings.store):
        raise ArgumentError("workers", "must be 1 with SQLite; several workers need a postgresql:// store")
    with holding(home) if APART else listening(home)[0] as port:
        rehearse(path, orders)
        return _Crew(path, port, workers).serve(replace(orders, new_term=False))


class _Crew:
    """Worker processes. A worker that is started later does not get orders that must be followed only once."""

    def __init__(self, path: Path, port: socket.socket, workers: int) -> None:
        """`port` is a socket that holds the port, or the listener that all workers share."""
        self._path, self._port, self._workers = path, port, workers
        self._context = multiprocessing.get_context("spawn")
        self._tally = self._context.RawArray("d", workers * TALLY)
        self._processes: list[multiprocessing.context.SpawnProcess] = []
        self._stopping = False

    def serve(self, orders: Orders) -> int:
        signal.signal(signal.SIGTERM, lambda *_: self._stop())  # before the first worker, which would be left
        self._processes = [self._start(at, orders) for at in range(self._workers)]
        later, code = replace(orders, catch_up=False), 0
        with contextlib.suppress(KeyboardInterrupt):
            while not self._stopping and code == 0:
                wait([process.sentinel for process in self._processes])
                code = self._replace_dead(later)
        self._stop()
        for process in self._processes:
            process.join()
        return code

    def _replace_dead(self, orders: Orders) -> int:
        """Start a new worker for each one that has died; return REFUSED if one refuses to work, otherwise 0."""
        for at, process in enumerate(self._processes):
            if process.exitcode is None or self._stopping:
                continue
            if process.exitcode == REFUSED:
                return REFUSED
            log.error("worker %s ended with code %s; starting another", process.pid, process.exitcode)
            time.sleep(PAUSE)
            self._processes[at] = self._start(at, orders)
        return 0

    def _start(self, at: int, orders: Orders) -> multiprocessing.context.SpawnProcess:
        shared = (self._port, self._tally, at)
        process = self._context.Process(target=_worker, args=(self._path, orders, *shared))
        process.start()
        return process

    def _stop(self) -> None:
        self._stopping = True
        for process in self._processes:
            if process.is_alive():
                process.terminate()


def _worker(path: Path, orders: Orders, port: socket.socket, numbers: MutableSequence[float], at: int) -> None:
    threading.Thread(target=_follow, name="follow", daemon=True).start()
    import psycopg  # imported late: it is an extra, and one worker alone does not need it

    try:
        code = run(path, orders, partial(beside if APART else _same, port), WorkerTally(numbers, at))
    except (psycopg.Error, OSError, ValueError) as error:  # e.g. it replaces a worker while the database is away
        log.error("this worker ends: %s: %s", type(error).__name__, str(error).partition("\n")[0])
        code = FAILED
    leave(code)


def _same(listener: socket.socket) -> socket.socket:
    """The listener that all workers share."""
    return listener


def _follow() -> None:
    """End with the process that started this one. If that is killed, nobody would stop or replace this worker, and the
    port stays taken for those who serve the silo next."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        log.error("the process that started this worker is gone: it ends too")
        os.kill(os.getpid(), signal.SIGTERM)
