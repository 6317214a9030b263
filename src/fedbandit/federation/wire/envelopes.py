"""Sealed and signed envelopes: only one party can read a message, and it comes from the party that it names.

An envelope is ``header | signature | ciphertext``. The header has one fixed length: format, kind, sync, plan,
federation, sender and receiver, so nothing has to be parsed before the signature is checked. It is the `info` of the
HPKE encryption and is covered by the Ed25519 signature, so an envelope that is moved to another context cannot be
opened. The key encapsulation is the hybrid of ML-KEM-768 and X25519: a message that is recorded today stays sealed if
either of the two holds.

A message whose sender the mixer must hide is sealed without a name or a signature (`seal_anonymously`), inside an
envelope for the mixer.
"""

from __future__ import annotations

import struct
from typing import Literal, NamedTuple, get_args

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

from fedbandit._validate import ArgumentError
from fedbandit.federation.wire.keys import NAME_BYTES, party_name

__all__ = [
    "FORMAT",
    "NOBODY",
    "OVERHEAD",
    "SIGNATURE_BYTES",
    "Context",
    "EnvelopeError",
    "Kind",
    "claimed",
    "resigned",
    "seal",
    "seal_anonymously",
    "unseal",
    "unseal_anonymously",
]

FORMAT = 3  # of envelopes and their contents; in greetings, parties tell each other which formats they read
MAGIC = b"FBE" + str(FORMAT).encode()
GREETING = b"FBE3"  # of greetings, in every format, for good: through them versions learn of each other
SIGNATURE_BYTES = 64
Kind = Literal["greeting", "release", "mixed", "model", "holds", "members"]
KINDS: tuple[Kind, ...] = get_args(Kind)
NOBODY = "*"  # the sender of an anonymous message
_HEADER = struct.Struct(f"<4sBI32s{NAME_BYTES}s{NAME_BYTES}s{NAME_BYTES}s")
_SUITE = Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
_ENCAPSULATED = 1120 + 16  # bytes that HPKE adds: the encapsulated key and the tag
OVERHEAD = _HEADER.size + SIGNATURE_BYTES + _ENCAPSULATED


class EnvelopeError(Exception):
    """An envelope that was not made for this context by this sender; it is dropped, never retried."""


class Context(NamedTuple):
    """What an envelope is bound to."""

    federation: str
    plan: str  # hash, in hex
    kind: Kind
    sender: str
    receiver: str
    sync: int

    def header(self) -> bytes:
        names = (self.federation.encode(), self.sender.encode(), self.receiver.encode())
        return _HEADER.pack(_magic(self.kind), KINDS.index(self.kind), self.sync, bytes.fromhex(self.plan), *names)


def seal(plain: bytes, context: Context, receiver: MLKEM768X25519PublicKey, sender: Ed25519PrivateKey) -> bytes:
    """Encrypt for the receiver and sign. Each seal of a message differs: keep the bytes to send them again."""
    header = context.header()
    ciphertext = _SUITE.encrypt(plain, receiver, info=header)
    return header + sender.sign(header + ciphertext) + ciphertext


def resigned(envelope: bytes, sender: Ed25519PrivateKey) -> bytes:
    """The same sealed message, signed with this key of its sender; the same bytes if it already was."""
    header, ciphertext = envelope[: _HEADER.size], envelope[_HEADER.size + SIGNATURE_BYTES :]
    return header + sender.sign(header + ciphertext) + ciphertext


def unseal(envelope: bytes, expected: Context, sender: Ed25519PublicKey, receiver: MLKEM768X25519PrivateKey) -> bytes:
    """The message, if the envelope is for `expected` and from `sender`; EnvelopeError otherwise."""
    _compare(claimed(envelope), expected)
    header, rest = envelope[: _HEADER.size], envelope[_HEADER.size :]
    signature, ciphertext = rest[:SIGNATURE_BYTES], rest[SIGNATURE_BYTES:]
    try:
        sender.verify(signature, header + ciphertext)
        return bytes(_SUITE.decrypt(ciphertext, receiver, info=header))
    except InvalidSignature:
        raise EnvelopeError(f"signature is not {expected.sender}'s") from None
    except (InvalidTag, ValueError):
        raise EnvelopeError(f"ciphertext does not open as one for {expected.receiver}") from None


def seal_anonymously(plain: bytes, context: Context, receiver: MLKEM768X25519PublicKey) -> bytes:
    """Encrypt without a sender's name: the sender in the context must be `NOBODY`."""
    if context.sender != NOBODY:
        raise ArgumentError("sender", f"must be {NOBODY!r} in an anonymous message, got {context.sender!r}")
    return bytes(_SUITE.encrypt(plain, receiver, info=context.header()))


def unseal_anonymously(ciphertext: bytes, expected: Context, receiver: MLKEM768X25519PrivateKey) -> bytes:
    """The message of an anonymous ciphertext. All that is known of its origin is that it came through the mixer."""
    try:
        return bytes(_SUITE.decrypt(ciphertext, receiver, info=expected.header()))
    except (InvalidTag, ValueError):
        raise EnvelopeError("anonymous ciphertext does not open in this context") from None


def claimed(envelope: bytes) -> Context:
    """What the header claims, unverified: enough to look up the key that must verify it."""
    if envelope[: len(MAGIC)] not in (MAGIC, GREETING):
        raise EnvelopeError(f"not an envelope of format {FORMAT}")
    if len(envelope) < OVERHEAD:
        raise EnvelopeError("envelope is truncated")
    magic, kind, sync, plan, *names = _HEADER.unpack(envelope[: _HEADER.size])
    if kind >= len(KINDS):
        raise EnvelopeError(f"header has an unknown kind, {kind}")
    if magic != _magic(KINDS[kind]):
        raise EnvelopeError(f"not an envelope of format {FORMAT}")
    federation, sender, receiver = (_name(field) for field in names)
    return Context(federation, plan.hex(), KINDS[kind], sender, receiver, sync)


def _magic(kind: Kind) -> bytes:
    return GREETING if kind == "greeting" else MAGIC


def _name(field: bytes) -> str:
    """The name in a field that is padded with zeros; anything else in it is refused."""
    try:
        return party_name(field.rstrip(b"\0").decode("ascii"))
    except ValueError:
        raise EnvelopeError("header has a field that is not a name") from None


def _compare(claim: Context, expected: Context) -> None:
    for name, theirs, ours in zip(Context._fields, claim, expected, strict=True):
        if theirs != ours:
            raise EnvelopeError(f"{name} differs: the envelope says {theirs!r}, expected {ours!r}")
