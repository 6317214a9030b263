"""How many decisions were answered, counted without a transaction each and yet not lost when the process is killed.

The count lives in a memory-mapped file: what is written there outlives the process (kill -9 included), and goes into
the database with the next transaction. A power failure loses at most what came since then; ticks depend on the count
alone, so the next ones come that many decisions later.
"""

from __future__ import annotations

import mmap
import struct
import threading
from pathlib import Path

_LAYOUT = struct.Struct("<3Q")  # term, decisions, of these without a user key


class DecisionCounter:
    """Decisions of one term. Without a path (several workers on one database) the count is in memory only."""

    def __init__(self, path: Path | None, term: int, decisions: int, unkeyed: int) -> None:
        self._lock = threading.Lock()
        self._term = term
        self._map = None if path is None else _mapped(path)
        self._total, self._unkeyed = decisions, unkeyed
        self._flushed = (decisions, unkeyed)
        if self._map is not None:
            known, total, without = _LAYOUT.unpack_from(self._map)
            if known == term:
                self._total, self._unkeyed = max(decisions, total), max(unkeyed, without)

    def add(self, decisions: int, keyed: bool) -> None:
        """So many more decisions, before they are answered."""
        with self._lock:
            self._total += decisions
            self._unkeyed += 0 if keyed else decisions
            if self._map is not None:
                _LAYOUT.pack_into(self._map, 0, self._term, self._total, self._unkeyed)

    @property
    def pending(self) -> tuple[int, int]:
        """Decisions, and those without a user key, that the database does not know of."""
        with self._lock:
            return self._total - self._flushed[0], self._unkeyed - self._flushed[1]

    def flushed(self, decisions: int, unkeyed: int) -> None:
        """The database knows of so many more."""
        with self._lock:
            self._flushed = (self._flushed[0] + decisions, self._flushed[1] + unkeyed)

    def close(self) -> None:
        if self._map is not None:
            self._map.close()


def _mapped(path: Path) -> mmap.mmap:
    with path.open("a+b") as file:
        if path.stat().st_size < _LAYOUT.size:
            file.truncate(_LAYOUT.size)
        return mmap.mmap(file.fileno(), _LAYOUT.size)
