"""The bytes of a message: a tuple of arrays, in one canonical form.

``magic | number of arrays | for each: type, number of dimensions, dimensions | data``, little-endian, row-major. The
same arrays give the same bytes; and as the plan fixes every array's shape, the length reveals nothing about the data.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedbandit._arrays import Numbers
from fedbandit.protocol.encoder import Stream

__all__ = ["MessageError", "decode", "decode_stream", "encode", "encode_stream", "pack", "unpack"]

MAGIC = b"FBM1"
MAX_DIMENSIONS = 8
MAX_EMPTY = 2**20  # the largest product of an empty array's other sides: it costs no bytes, so they are bounded here
_TYPES: tuple[np.dtype[Any], ...] = (np.dtype("<i8"), np.dtype("<u8"), np.dtype("<f8"))


class MessageError(ValueError):
    """Bytes that are not a message of this version, or not one that the plan allows."""


def encode(arrays: Sequence[Numbers]) -> bytes:
    """The bytes of int64, uint64 and float64 arrays."""
    parts = [MAGIC, struct.pack("<I", len(arrays))]
    for array in arrays:
        code = _code(array)
        parts.append(struct.pack(f"<BB{array.ndim}I", code, array.ndim, *array.shape))
    parts += [np.ascontiguousarray(array, dtype=_TYPES[_code(array)]).tobytes() for array in arrays]
    return b"".join(parts)


def decode(
    data: bytes, shapes: Sequence[tuple[int, ...]] | None = None, *, most: int | None = None
) -> tuple[Numbers, ...]:
    """The arrays again, bit for bit. With `shapes`, arrays of any other shape are refused; with `most`, more arrays.

    A message from another party is read with one of the two, so that it holds nothing that the plan has no place for.
    """
    reader = _Reader(data)
    if reader.take(4) != MAGIC:
        raise MessageError(f"not a message of version {MAGIC.decode()}")
    heads = [_head(reader) for _ in range(_count(reader, most if shapes is None else len(shapes)))]
    if shapes is not None and [shape for _, shape in heads] != [tuple(s) for s in shapes]:
        raise MessageError(f"message must have shapes {list(shapes)}, got {[shape for _, shape in heads]}")
    arrays = tuple(_array(reader, dtype, shape) for dtype, shape in heads)
    if reader.rest:
        raise MessageError(f"message is {reader.rest} bytes too long")
    return arrays


def pack(parts: Sequence[bytes]) -> bytes:
    """Several byte strings as one."""
    lengths = struct.pack(f"<I{len(parts)}Q", len(parts), *(len(part) for part in parts))
    return b"".join([MAGIC, lengths, *parts])


def unpack(data: bytes, most: int | None = None) -> list[bytes]:
    """The byte strings that `pack` was given; with `most`, more than that are refused."""
    reader = _Reader(data)
    if reader.take(4) != MAGIC:
        raise MessageError(f"not a message of version {MAGIC.decode()}")
    count = _count(reader, most)
    lengths = [reader.number("<Q") for _ in range(count)]
    parts = [reader.take(length) for length in lengths]
    if reader.rest:
        raise MessageError(f"message is {reader.rest} bytes too long")
    return parts


def encode_stream(state: Stream) -> bytes:
    """The state of an encoder or a decoder, to be read back bit for bit."""
    return encode([np.array([state.done]), *state.memory])


def decode_stream(data: bytes) -> Stream:
    """The state that `encode_stream` wrote."""
    arrays = decode(data)
    if not arrays or arrays[0].shape != (1,) or arrays[0].dtype != np.int64 or arrays[0][0] < 0:
        raise MessageError("a state must begin with the number of steps that were done")
    return Stream(int(arrays[0][0]), arrays[1:])


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, size: int) -> bytes:
        if size > self.rest:
            raise MessageError("message is truncated")
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self, layout: str) -> int:
        return int(struct.unpack(layout, self.take(struct.calcsize(layout)))[0])

    @property
    def rest(self) -> int:
        return len(self._data) - self._at


def _code(array: Numbers) -> int:
    for code, dtype in enumerate(_TYPES):
        if array.dtype.newbyteorder("<") == dtype:
            return code
    raise MessageError(f"a message holds int64, uint64 and float64 arrays, got {array.dtype}")


def _count(reader: _Reader, most: int | None) -> int:
    count = reader.number("<I")
    if most is not None and count > most:
        raise MessageError(f"message must hold at most {most} parts, got {count}")
    if 2 * count > reader.rest:  # every array has a head of two bytes or more
        raise MessageError("message is truncated")
    return count


def _head(reader: _Reader) -> tuple[np.dtype[Any], tuple[int, ...]]:
    code, dimensions = reader.number("<B"), reader.number("<B")
    if code >= len(_TYPES) or dimensions > MAX_DIMENSIONS:
        raise MessageError("message holds an array of an unknown type")
    return _TYPES[code], tuple(reader.number("<I") for _ in range(dimensions))


def _array(reader: _Reader, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Numbers:
    size = math.prod(shape) * dtype.itemsize  # Python integers do not overflow; `take` bounds it by the bytes there
    if not size and math.prod(max(side, 1) for side in shape) > MAX_EMPTY:
        raise MessageError(f"message holds an empty array of shape {shape}")
    return np.frombuffer(reader.take(size), dtype=dtype).reshape(shape).astype(dtype.newbyteorder("="))
