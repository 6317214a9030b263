"""How many decisions were answered, counted without a transaction each and yet not lost when the process is killed.

The count lives in a memory-mapped file: what is written there outlives the process (kill -9 included), and goes into
the database with the next transaction. A power failure loses at most what came since then. Nothing depends on the
count: it is there to be shown.
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

_LAYOUT = struct.Struct("<3Q")  # term, decisions, of these without a user key


class Pending(NamedTuple):
    """Decisions, and those among them without a user key, that are on their way into the database."""

    decisions: int
    unkeyed: int


class DecisionCounter:
    """Decisions of one term. Without a path (several workers on one database) the count is in memory only."""

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
        """So many more decisions, before they are answered."""
        with self._lock:
            self._answered += decisions
            self._unkeyed += 0 if keyed else decisions
            if self._map is not None:
                _LAYOUT.pack_into(self._map, 0, self._term, self._answered, self._unkeyed)

    @property
    def waiting(self) -> Pending:
        """What `take` would take."""
        with self._lock:
            return Pending(self._answered - self._taken.decisions, self._unkeyed - self._taken.unkeyed)

    @contextmanager
    def take(self) -> Iterator[Pending]:
        """What the database does not know of yet, for one transaction; given back if that fails."""
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
            file.write(bytes(_LAYOUT.size))  # not a hole: filling one would end the process when the disk is full
            file.flush()
        return mmap.mmap(file.fileno(), _LAYOUT.size)
