"""Counts the lists and tables in MessagePack, by a walk over its values that creates none of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedbandit._jit import njit

__all__ = ["containers_among"]

# For a value in MessagePack with a first byte from 0xc0 to 0xdf: the size of its payload (`_FIXED`), or the size of its
# length field (`_LENGTH`). For all other values, the first byte itself tells the length.
_FIXED = np.zeros(32, np.int64)
_FIXED[[0x0A, 0x0B]] = 4, 8  # floats
_FIXED[[0x0C, 0x0D, 0x0E, 0x0F]] = _FIXED[[0x10, 0x11, 0x12, 0x13]] = 1, 2, 4, 8  # integers
_FIXED[[0x14, 0x15, 0x16, 0x17, 0x18]] = 2, 3, 5, 9, 17  # extensions of a fixed length, with their kind
_FIXED[[0x1C, 0x1D, 0x1E, 0x1F]] = 2, 4, 2, 4  # how many values a list or a table has: they follow as values
_LENGTH = np.zeros(32, np.int64)
_LENGTH[[0x04, 0x05, 0x06]] = _LENGTH[[0x07, 0x08, 0x09]] = 1, 2, 4  # bytes, extensions
_LENGTH[[0x19, 0x1A, 0x1B]] = 1, 2, 4  # texts


@njit()
def _walk(body: Any) -> int:
    """Walk over the values one after another, into lists and tables, but not into texts and bytes."""
    place, found = np.int64(0), 0
    while place < len(body):
        first = np.int64(body[place])
        place += 1
        if 0x80 <= first < 0xA0 or 0xDC <= first < 0xE0:
            found += 1
        if 0xA0 <= first < 0xC0:
            place += first - 0xA0
        elif 0xC0 <= first < 0xE0:
            length = np.int64(0)
            for _ in range(_LENGTH[first - 0xC0]):
                length = length * 256 + (np.int64(body[place]) if place < len(body) else 0)
                place += 1
            if 0xC7 <= first <= 0xC9:
                length += 1  # the kind of the extension
            place += length + _FIXED[first - 0xC0]
    return found


def containers_among(body: bytes | bytearray) -> int:
    """The number of lists and tables in a body."""
    return int(_walk(np.frombuffer(body, np.uint8)))
