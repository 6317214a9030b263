"""`fedbandit silo serve`: how long until it answers, and how much several workers on PostgreSQL gain."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from json import dumps
from pathlib import Path

import numpy as np

from fedbandit.bench.load import Posts, contexts, plan, saturated
from fedbandit.federation.setup import founding
from fedbandit.federation.setup.home import SETTINGS, Home
from fedbandit.federation.timing import Timing
from fedbandit.federation.wire.broker import free_port, listens

__all__ = ["worker_figures"]

WORKERS, CLIENTS, SECONDS, REPEATS = (1, 2, 4), 64, 3.0, 3
WARM = 3.0  # seconds of load until all workers are up and have loaded what makes decisions faster
PLACES = ("/usr/lib/postgresql/*/bin", "/usr/local/bin", "/usr/bin")
WAIT = 60.0  # seconds until a process must answer


def worker_figures() -> dict[str, float | None]:
    """How long a silo takes to start, and how its rate grows with workers.

    `start_s`: seconds until a silo on SQLite answers. `workers_2_ratio` and so on: pairs of a decision and its durable
    reward per second, with that many workers on one PostgreSQL database over one worker; None if PostgreSQL is not
    installed.
    """
    with tempfile.TemporaryDirectory() as folder, _served(_home(Path(folder), ""), 1) as started:
        start = started
    rates = _rates()
    return {
        "start_s": start,
        **{f"workers_{count}_pairs_per_s": rates.get(count) for count in WORKERS},
        **{f"workers_{count}_ratio": rates[count] / rates[1] if rates else None for count in WORKERS[1:]},
    }


def _rates() -> dict[int, float]:
    """Pairs per second by the number of workers, measured in turns."""
    found: dict[int, list[float]] = {count: [] for count in WORKERS}
    body = dumps({"actions": contexts(1)[0].tolist()}).encode()
    with tempfile.TemporaryDirectory() as folder, _database() as store:
        if store is None:
            return {}
        home = _home(Path(folder), store)
        posts = Posts(home.token(), body, pairs=True)
        for _ in range(REPEATS):
            for count in WORKERS:
                with _served(home, count):
                    saturated(home.settings.port, Path(folder), CLIENTS, WARM, posts)
                    found[count].append(saturated(home.settings.port, Path(folder), CLIENTS, SECONDS, posts) / 2)
    return {count: float(np.median(rates)) for count, rates in found.items()}


def _home(path: Path, store: str) -> Home:
    """A silo of a federation whose broker does not run: it still decides and takes rewards."""
    agreed = plan()
    names = [f"silo-{number}" for number in range(agreed.silos)]
    homes = founding.local(path, agreed, names, Timing(start=time.time()))
    home = next(home for home in homes if home.settings.role == "silo")
    home = replace(home, settings=replace(home.settings, store=store))
    settings = {name: getattr(home.settings, name) for name in home.settings.__dataclass_fields__}
    (home.path / SETTINGS).write_text(dumps(settings))
    return home


@contextmanager
def _served(home: Home, workers: int) -> Iterator[float]:
    """Serve the silo until the block is left; yield the seconds until it answered."""
    began = time.monotonic()
    command = ["silo", "serve", str(home.path), "--workers", str(workers)]
    process = subprocess.Popen(
        [sys.executable, "-c", "from fedbandit.cli.main import main; main()", *command], stderr=subprocess.DEVNULL
    )
    try:
        _answers(home.settings.port)
        yield time.monotonic() - began
    finally:
        process.terminate()
        process.wait(20)


def _answers(port: int) -> None:
    """Wait until a server on this port has answered."""
    end = time.monotonic() + WAIT
    while time.monotonic() < end:
        try:
            with socket.create_connection(("127.0.0.1", port), WAIT) as connection:
                connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                if connection.recv(12) == b"HTTP/1.1 200":
                    return
        except OSError:
            time.sleep(0.01)
    raise TimeoutError(f"no answer on port {port} after {WAIT:g} s")


@contextmanager
def _database() -> Iterator[str | None]:
    """The URL of a PostgreSQL server that only this benchmark uses; None if PostgreSQL is not installed."""
    initdb, server = _binary("initdb"), _binary("postgres")
    if initdb is None or server is None:
        yield None
        return
    folder, port = Path(tempfile.mkdtemp(prefix="fedbandit-bench-")), free_port()
    try:
        data = folder / "data"
        command = [initdb, "-D", str(data), "-U", "fedbandit", "--auth=trust"]
        subprocess.run(_unprivileged(command, folder), check=True, capture_output=True, cwd="/")
        options = ["-D", str(data), "-c", f"port={port}", "-c", f"unix_socket_directories={folder}"]
        process = subprocess.Popen(_unprivileged([server, *options], folder), stderr=subprocess.DEVNULL, cwd="/")
        try:
            end = time.monotonic() + WAIT
            while not listens("127.0.0.1", port) and time.monotonic() < end:
                time.sleep(0.1)
            yield f"postgresql://fedbandit@127.0.0.1:{port}/postgres"
        finally:
            process.send_signal(signal.SIGINT)  # do not wait for clients that are still connected
            process.wait(20)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _binary(name: str) -> str | None:
    found = [path / name for place in PLACES for path in sorted(Path("/").glob(place[1:])) if (path / name).exists()]
    return str(found[0]) if found else shutil.which(name)


def _unprivileged(command: list[str], folder: Path) -> list[str]:
    """The command, run as the user postgres if we are root, because PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return command
    shutil.chown(folder, "postgres")
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", *command]
