"""A stream of bytes under a passphrase: scrypt makes the key, ChaCha20-Poly1305 seals one chunk after another.

The nonces number the chunks and mark the last one (the STREAM construction of Hoang, Reyhanitabar, Rogaway and Vizar,
2015), so a file that was cut, reordered or extended does not open. Memory use is one chunk plus the 128 MB of scrypt.
"""

from __future__ import annotations

import json
import secrets
import struct
from typing import Any, BinaryIO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from fedbandit import _validate
from fedbandit._validate import ArgumentError

__all__ = ["MAGIC", "SealedReader", "SealedWriter"]

MAGIC = b"FBBACKUP1\n"
COST, BLOCK, LANES = 2**17, 8, 1  # of scrypt: n, r, p
CHUNK = 2**16
SALT_BYTES, PREFIX_BYTES, TAG_BYTES, LENGTH_BYTES = 16, 7, 16, 2
MOST_HEADER = 4096
_COUNTER = struct.Struct(">IB")  # the number of a chunk, and whether it is the last


class SealedWriter:
    """A sealed file to write to. It can only be read after `close`, which seals the last chunk."""

    def __init__(self, file: BinaryIO, passphrase: bytes) -> None:
        salt, self._prefix = secrets.token_bytes(SALT_BYTES), secrets.token_bytes(PREFIX_BYTES)
        parameters = {"n": COST, "r": BLOCK, "p": LANES, "salt": salt.hex(), "prefix": self._prefix.hex()}
        text = json.dumps(parameters).encode()
        self._header = MAGIC + text
        self._file, self._cipher = file, _cipher(passphrase, salt, COST)
        self._waiting, self._count = bytearray(), 0
        file.write(MAGIC + len(text).to_bytes(LENGTH_BYTES) + text)

    def write(self, data: bytes) -> int:
        self._waiting += data
        while len(self._waiting) > CHUNK:  # a full chunk waits until it is known not to be the last
            self._seal(bytes(self._waiting[:CHUNK]), last=False)
            del self._waiting[:CHUNK]
        return len(data)

    def close(self) -> None:
        self._seal(bytes(self._waiting), last=True)

    def _seal(self, chunk: bytes, *, last: bool) -> None:
        nonce = self._prefix + _COUNTER.pack(self._count, last)
        self._file.write(self._cipher.encrypt(nonce, chunk, self._header))
        self._count += 1


class SealedReader:
    """Reads what `SealedWriter` wrote after the magic bytes; ArgumentError as soon as a chunk was changed."""

    def __init__(self, file: BinaryIO, passphrase: bytes) -> None:
        parameters, text = _parameters(file)
        self._header = MAGIC + text
        self._prefix = bytes.fromhex(parameters["prefix"])
        self._cipher = _cipher(passphrase, bytes.fromhex(parameters["salt"]), parameters["n"])
        self._file, self._count, self._opened = file, 0, bytearray()
        self._next = file.read(CHUNK + TAG_BYTES)
        self._ended = False

    def read(self, size: int) -> bytes:
        while len(self._opened) < size and not self._ended:
            self._open_chunk()
        data = bytes(self._opened[:size])
        del self._opened[:size]
        return data

    def _open_chunk(self) -> None:
        chunk, self._next = self._next, self._file.read(CHUNK + TAG_BYTES)
        self._ended = not self._next
        nonce = self._prefix + _COUNTER.pack(self._count, self._ended)
        try:
            self._opened += self._cipher.decrypt(nonce, chunk, self._header)
        except InvalidTag:
            reason = "is damaged or was cut" if self._count else "cannot be opened: wrong passphrase, or damaged"
            raise ArgumentError("backup", reason) from None
        self._count += 1


def _parameters(file: BinaryIO) -> tuple[dict[str, Any], bytes]:
    """How the key is made; refused unless it is how this version makes keys, so that no file can demand more memory."""
    with _validate.reading("backup"):
        text = file.read(min(int.from_bytes(file.read(LENGTH_BYTES)), MOST_HEADER))
        found = _validate.table("backup", text)
        _validate.known_keys("backup", found, ("n", "r", "p", "salt", "prefix"), required=("n", "salt", "prefix"))
        sizes = (len(bytes.fromhex(found["salt"])), len(bytes.fromhex(found["prefix"])))
        if (found["n"], found["r"], found["p"], *sizes) != (COST, BLOCK, LANES, SALT_BYTES, PREFIX_BYTES):
            raise ArgumentError("backup", "is sealed in a way that this version does not know")
    return found, text


def _cipher(passphrase: bytes, salt: bytes, cost: int) -> ChaCha20Poly1305:
    if not passphrase:
        raise ArgumentError("passphrase", "must not be empty")
    return ChaCha20Poly1305(Scrypt(salt, 32, n=cost, r=BLOCK, p=LANES).derive(passphrase))
