"""How much a piece of code makes, which is the same on a busy machine; how long it takes is not."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["at_most"]


@contextmanager
def at_most(made: int) -> Iterator[None]:
    """Fails if at some moment there are more than `made` bytes that were not there before."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= made, f"{peak:,} bytes were made, {made:,} are allowed"
