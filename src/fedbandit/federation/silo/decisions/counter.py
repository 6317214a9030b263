"""A count of answered decisions that needs no transaction per decision and survives when the process is killed.

The count is in a memory-mapped file: what is written there outlives the process (even kill -9), and goes into the
database with the next transaction. A power failure loses at most what was counted since the last one. The count is only
shown; nothing depends on it.
"""

from __future__ import annotations

import mmap
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

__all__ = ["DecisionCounter", "Pending"]

_LAYOUT = struct.Struct("<3Q")  # the term, its decisions, and how many of them had no user key


class Pending(NamedTuple):
    """Decisions that are not in the database yet, and how many of them have no user key."""

    decisions: int
    unkeyed: int


class DecisionCounter:
    """Counts the decisions of one term. Without a path (several workers on one database) it counts in memory only."""

    def __init__(self, path: Path | None, term: int, decisions: int, unkeyed: int) -> None:
        self._lock = threading.Lock()
        self._term = term
        self._map = None if path is None else _mapped(path)
        self._answered, self._unkeyed = decisions, unkeyed  # as far as this process knows
        self._taken = Pending(decisions, unkeyed)
        if self._map is not None:
            known, total, without = _LAYOUT.unpack_from(self._map)
            if known == term:
                self._answered, self._unkeyed = max(decisions, total), max(unkeyed, without)

    def add(self, decisions: int, keyed: bool) -> None:
        """Count more decisions, before they are answered."""
        with self._lock:
            self._answered += decisions
            self._unkeyed += 0 if keyed else decisions
            if self._map is not None:
                _LAYOUT.pack_into(self._map, 0, self._term, self._answered, self._unkeyed)

    @property
    def waiting(self) -> Pending:
        """What `take` would give."""
        with self._lock:
            return Pending(self._answered - self._taken.decisions, self._unkeyed - self._taken.unkeyed)

    @contextmanager
    def take(self) -> Iterator[Pending]:
        """The decisions that the database does not know yet, for one transaction; put back if it fails."""
        with self._lock:
            before = self._taken
            self._taken = Pending(self._answered, self._unkeyed)
            pending = Pending(self._taken.decisions - before.decisions, self._taken.unkeyed - before.unkeyed)
        try:
            yield pending
        except BaseException:
            with self._lock:
                self._taken = Pending(self._taken.decisions - pending.decisions, self._taken.unkeyed - pending.unkeyed)
            raise

    def close(self) -> None:
        if self._map is not None:
            self._map.close()


def _mapped(path: Path) -> mmap.mmap:
    with path.open("a+b") as file:
        if path.stat().st_size < _LAYOUT.size:
            file.write(bytes(_LAYOUT.size))  # no hole: on a full disk, filling one would kill the process
            file.flush()
        return mmap.mmap(file.fileno(), _LAYOUT.size)
