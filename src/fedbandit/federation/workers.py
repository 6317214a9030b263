"""Several processes that serve one silo: they share the port, the database and the secret; one of them leads."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import socket
from multiprocessing.connection import wait
from pathlib import Path

from fedbandit import _validate
from fedbandit._validate import ArgumentError
from fedbandit.federation.process import run
from fedbandit.federation.setup.home import Home

__all__ = ["serve"]

BACKLOG = 2048


def serve(path: Path, workers: int = 1, new_term: bool = False) -> int:
    """Serve the silo of this directory; returns the exit code of the first worker that ends."""
    _validate.count("workers", workers)
    home = Home.load(path)
    if home.settings.role != "silo":
        raise ArgumentError("home", f"must be the directory of a silo, got that of a {home.settings.role}")
    if workers == 1:
        return run(path, new_term=new_term)
    if not home.settings.store.startswith("postgres"):
        raise ArgumentError("workers", "must be 1 with SQLite; several workers need a postgresql:// store")
    listener = socket.create_server((home.settings.host, home.settings.port), backlog=BACKLOG)
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_worker, args=(path, new_term, listener)) for _ in range(workers)]
    for process in processes:
        process.start()
    signal.signal(signal.SIGTERM, lambda *_: _stop(processes))
    with contextlib.suppress(KeyboardInterrupt):
        wait([process.sentinel for process in processes])
    _stop(processes)
    for process in processes:
        process.join()
    return next((process.exitcode for process in processes if process.exitcode and process.exitcode > 0), 0)


def _worker(path: Path, new_term: bool, listener: socket.socket) -> None:
    raise SystemExit(run(path, new_term=new_term, listen=listener))


def _stop(processes: list[multiprocessing.context.SpawnProcess]) -> None:
    for process in processes:
        if process.is_alive():
            process.terminate()
