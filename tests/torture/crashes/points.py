"""The durable operations of a process, counted, so that it can stop itself at the n-th with SIGKILL.

An operation is whatever outlives the process: a commit, a log forced to the disk, a checkpoint, a message handed to the
broker, an answer to an application. What a kill after one of them leaves is what a kill before the next one leaves,
so each is a point once, in up to three ways:
- `before`: the process is killed, the operation has not happened;
- `torn`: it is killed within the commit, whose last part is missing in the write-ahead log;
- `power`: as `before`, and the machine goes down with it: what was not forced to the disk is gone.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, ModuleType
from typing import Literal, NamedTuple

from fedbandit.federation.store.database import Sql, SqliteEngine
from tests.torture.stand_ins import check_stand_in

__all__ = ["WAYS", "Points", "Stop", "Way", "after_the_stop", "kill_me", "replace"]

Way = Literal["before", "torn", "power"]
WAYS: tuple[Way, ...] = ("before", "torn", "power")
FILES = ("", "-wal")


class Stop(NamedTuple):
    """Where a process stops itself: at its n-th durable operation, from 1, and how. 0: nowhere."""

    at: int = 0
    how: Way = "before"


def replace(owner: type | ModuleType, name: str, value: object) -> None:
    """Put another method in a class, or function in a module, for the rest of this process."""
    check_stand_in(getattr(owner, name), value)
    setattr(owner, name, value)


def kill_me() -> None:
    """Not an exception and not an exit: nothing of this process runs after it."""
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()  # the signal may need a moment


class Points:
    """Counts the operations of this process, by name, and stops it at one of them."""

    def __init__(self) -> None:
        self.begin(Stop(), Path())

    def begin(self, stop: Stop, store: Path) -> None:
        """Count from 0 again, for another store."""
        self.names: list[str] = []
        self._stop, self._store = stop, store

    def reached(self, name: str) -> bool:
        """One more operation is about to happen; returns whether the process dies within it."""
        self.names.append(name)
        if len(self.names) == self._stop.at and self._stop.how != "torn":
            kill_me()
        return len(self.names) == self._stop.at

    def passed(self, name: str) -> None:
        """One more operation is about to happen that is done as a whole or not at all."""
        if self.reached(name):
            kill_me()

    def on_disk(self) -> None:
        """Everything written so far would survive a power failure."""
        if self._stop.how == "power":
            for suffix in FILES:
                _copy(Path(f"{self._store}{suffix}"), Path(f"{self._store}{suffix}.on-disk"))

    def watch_engines(self) -> None:
        """From now on commits, syncs and checkpoints of every store of this process are counted."""
        points, transaction, forget, init = self, SqliteEngine.transaction, SqliteEngine.forget, SqliteEngine.__init__
        sync = os.fdatasync

        @contextmanager
        def counted(engine: SqliteEngine, durable: bool = True, letting_go: bool = False) -> Iterator[Sql]:
            size, inside, name = points._log_size(), False, _caller()
            with transaction(engine, durable, letting_go) as sql:
                yield sql
                inside = points.reached(name)
            if inside:
                points._tear(size)
            if durable:
                points.on_disk()

        def counted_sync(file: int) -> None:
            points.passed("sync")
            sync(file)
            points.on_disk()

        def counted_forget(engine: SqliteEngine) -> bool:
            points.passed("forget")
            done = forget(engine)
            points.on_disk()
            return done

        def opened(engine: SqliteEngine, path: Path, sync: object = None) -> None:
            init(engine, path, counted_sync)

        replace(SqliteEngine, "transaction", counted)
        replace(SqliteEngine, "forget", counted_forget)
        replace(SqliteEngine, "__init__", opened)

    def _log_size(self) -> int:
        log = Path(f"{self._store}-wal")
        return log.stat().st_size if log.exists() else 0

    def _tear(self, before: int) -> None:
        """Die as within the commit: half of what it added to the log is missing."""
        log, after = Path(f"{self._store}-wal"), self._log_size()
        if after > before:
            os.truncate(log, before + (after - before) // 2)
            _mark(self._store).touch()
        kill_me()


def after_the_stop(store: Path, how: Way) -> bool:
    """What the machine is found with after a power failure. Returns whether the way of the stop made a difference: a
    commit was torn, or something had not reached the disk."""
    if how != "power":
        return how == "before" or _mark(store).exists()
    lost = False
    for suffix in FILES:
        file, kept = Path(f"{store}{suffix}"), Path(f"{store}{suffix}.on-disk")
        lost = lost or _bytes(file) != _bytes(kept)
        file.unlink(missing_ok=True)
        _copy(kept, file)
    Path(f"{store}-shm").unlink(missing_ok=True)
    return lost


def _caller() -> str:
    """The method that a transaction belongs to."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_globals["__name__"] in ("contextlib", __name__):
        frame = frame.f_back
    return "" if frame is None else frame.f_code.co_name


def _mark(store: Path) -> Path:
    return Path(f"{store}.torn")


def _bytes(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _copy(source: Path, target: Path) -> None:
    if source.exists():
        shutil.copyfile(source, target)
    else:
        target.unlink(missing_ok=True)
