"""Turns the bytes of a body into a checked value. The number of objects is limited before any of them is created.

An empty list or table takes one to three bytes in a body but more than sixty in memory, and the garbage collector
visits each of them again and again. Sixteen megabytes of them took a gigabyte, and every decision waited five seconds.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from fedbandit._validate import ArgumentError
from fedbandit.federation.http.refusals import bad_argument

__all__ = ["MOST_CONTAINERS", "PACKED_MEDIA", "Parser", "containers"]

PACKED_MEDIA = "application/msgpack"  # MessagePack: the same fields, and rows of features as bytes
MOST_CONTAINERS = 500_000  # lists and tables in one body: enough for the most actions allowed, each with its features
_PACKED = PACKED_MEDIA.encode()
_OPENING = bytes([*range(0x80, 0xA0), *range(0xDC, 0xE0)])  # bytes that begin a list or a table in MessagePack


class Parser:
    """Reads bodies of one type. A body that does not say that it is MessagePack is JSON."""

    def __init__(self, kind: type[Struct]) -> None:
        self._json: msgspec.json.Decoder[Struct] = msgspec.json.Decoder(kind)
        self._packed: msgspec.msgpack.Decoder[Struct] = msgspec.msgpack.Decoder(kind)

    def read(self, media: bytes, body: bytes | bytearray) -> Struct:
        """The value of a body; raises `ArgumentError` if it is not valid."""
        packed = media.startswith(_PACKED)
        if len(body) > MOST_CONTAINERS and containers(body, packed=packed) > MOST_CONTAINERS:
            raise ArgumentError("body", f"must have at most {MOST_CONTAINERS:,} lists and tables in it")
        try:
            return self._packed.decode(body) if packed else self._json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise bad_argument(error, "MessagePack" if packed else "JSON in UTF-8") from None


def containers(body: bytes | bytearray, *, packed: bool) -> int:
    """An upper bound on the number of lists and tables in a body: brackets within texts count too."""
    if not packed:
        return body.count(b"[") + body.count(b"{")
    at_most = len(body) - len(body.translate(None, _OPENING))
    if at_most <= MOST_CONTAINERS:
        return at_most
    from fedbandit.federation.http.bodies.packed import containers_among  # compiled, so only if the bytes do not decide

    return containers_among(body)
