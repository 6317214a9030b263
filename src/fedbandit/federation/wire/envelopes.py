"""Sealed and signed: what crosses the broker can be read by one party only and comes from the party it names.

An envelope is ``magic | header length | header | signature | ciphertext``. The header says which federation, plan,
sender, receiver and sync it is for; it is the `info` of the HPKE encryption and stands under the Ed25519 signature,
so an envelope moved to another context opens nowhere. The key encapsulation is the hybrid of ML-KEM-768 and X25519:
what is recorded today stays sealed if either of the two holds.

A message that a shuffler must strip of its sender is sealed without a name or a signature (`seal_anonymously`) inside
an envelope for the shuffler.
"""

from __future__ import annotations

import json
import struct
from typing import Literal, NamedTuple

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hpke import (
    AEAD,
    KDF,
    KEM,
    MLKEM768X25519PrivateKey,
    MLKEM768X25519PublicKey,
    Suite,
)

__all__ = [
    "NOBODY",
    "Context",
    "EnvelopeError",
    "claimed",
    "seal",
    "seal_anonymously",
    "unseal",
    "unseal_anonymously",
]

MAGIC = b"FBE1"
SIGNATURE_BYTES = 64
Kind = Literal["hello", "release", "mixed", "model"]
NOBODY = "*"  # the sender of an anonymous message, the receiver of a public one
_SUITE = Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)


class EnvelopeError(Exception):
    """An envelope that was not made for this context by this sender; it is dropped, never retried."""


class Context(NamedTuple):
    """What an envelope is bound to."""

    federation: str
    plan: str  # hash
    kind: Kind
    sender: str
    receiver: str
    sync: int

    def header(self) -> bytes:
        return json.dumps(self._asdict(), sort_keys=True, separators=(",", ":")).encode()


def seal(plain: bytes, context: Context, receiver: MLKEM768X25519PublicKey, sender: Ed25519PrivateKey) -> bytes:
    """Encrypt for the receiver and sign. Two seals of the same message differ: keep the bytes to send them again."""
    header = context.header()
    ciphertext = _SUITE.encrypt(plain, receiver, info=MAGIC + header)
    signature = sender.sign(_signed(header, ciphertext))
    return MAGIC + struct.pack("<H", len(header)) + header + signature + ciphertext


def unseal(envelope: bytes, expected: Context, sender: Ed25519PublicKey, receiver: MLKEM768X25519PrivateKey) -> bytes:
    """The message, if the envelope is for `expected` and from `sender`; EnvelopeError otherwise."""
    header, signature, ciphertext = _split(envelope)
    _compare(header, expected)
    try:
        sender.verify(signature, _signed(header, ciphertext))
        return bytes(_SUITE.decrypt(ciphertext, receiver, info=MAGIC + header))
    except InvalidSignature:
        raise EnvelopeError(f"signature is not {expected.sender}'s") from None
    except (InvalidTag, ValueError):
        raise EnvelopeError(f"ciphertext does not open as one for {expected.receiver}") from None


def seal_anonymously(plain: bytes, context: Context, receiver: MLKEM768X25519PublicKey) -> bytes:
    """Encrypt without saying who: the context must name nobody as the sender."""
    if context.sender != NOBODY:
        raise ValueError(f"sender must be {NOBODY!r} in an anonymous message, got {context.sender!r}")
    return bytes(_SUITE.encrypt(plain, receiver, info=MAGIC + context.header()))


def unseal_anonymously(ciphertext: bytes, expected: Context, receiver: MLKEM768X25519PrivateKey) -> bytes:
    """The message of an anonymous ciphertext; that it came through the shuffler is all that is known of it."""
    try:
        return bytes(_SUITE.decrypt(ciphertext, receiver, info=MAGIC + expected.header()))
    except (InvalidTag, ValueError):
        raise EnvelopeError("anonymous ciphertext does not open in this context") from None


def claimed(envelope: bytes) -> Context:
    """What the header claims, unverified: enough to look up which key to verify it with."""
    header, _, _ = _split(envelope)
    try:
        fields = json.loads(header)
        context = Context(**fields)
    except (ValueError, TypeError):
        raise EnvelopeError("header is not that of an envelope") from None
    texts = context[:5]
    if type(context.sync) is not int or not all(isinstance(text, str) for text in texts):
        raise EnvelopeError("header has a field of another type")
    if context.header() != header:
        raise EnvelopeError("header is not in its canonical form")
    return context


def _signed(header: bytes, ciphertext: bytes) -> bytes:
    return MAGIC + struct.pack("<H", len(header)) + header + ciphertext


def _split(envelope: bytes) -> tuple[bytes, bytes, bytes]:
    if len(envelope) < 6 or envelope[:4] != MAGIC:
        raise EnvelopeError(f"not an envelope of version {MAGIC.decode()}")
    (length,) = struct.unpack("<H", envelope[4:6])
    start = 6 + length
    if len(envelope) < start + SIGNATURE_BYTES:
        raise EnvelopeError("envelope is truncated")
    return envelope[6:start], envelope[start : start + SIGNATURE_BYTES], envelope[start + SIGNATURE_BYTES :]


def _compare(header: bytes, expected: Context) -> None:
    if header == expected.header():
        return
    try:
        fields = json.loads(header)
    except ValueError:
        raise EnvelopeError("header is not that of an envelope") from None
    for name, value in expected._asdict().items():
        theirs = fields.get(name) if isinstance(fields, dict) else None
        if theirs != value:
            raise EnvelopeError(f"{name} differs: the envelope says {theirs!r}, expected {value!r}")
    raise EnvelopeError("header is not in its canonical form")
