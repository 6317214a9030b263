"""Heads: a party's signed statement of how far it has come, the last link of its chain.

A silo's chain is its ledger, the mixer's chain is the totals that it made, and the analyzer's chain is the models. Each
party keeps the newest head that it has seen of each other party, and tells that party when they greet. So a party that
was put back to an older state (a restored backup, an empty store) learns how far it had come. And two heads of one
party that contradict each other prove, by its own signature, that it told different parties different things.
"""

from __future__ import annotations

import hashlib
import struct
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedbandit.federation.wire.messages import MessageError

__all__ = ["HEAD_BYTES", "NEWEST", "NONE", "NO_QUESTION", "Greeting", "Head", "link", "signed"]

_HEAD = struct.Struct("<Q32s64s")
_GREETING = struct.Struct("<4sBB16s16sI")
_MEMBERS = struct.Struct("<I32s")
_LACKS = struct.Struct("<I")
_NOTHING = 2**32 - 1  # in the place of a sync: the sender lacks none
HEAD_BYTES = _HEAD.size
MAGIC = b"FBG1"  # every version reads greetings: through them versions learn of each other
NO_QUESTION = bytes(16)
NEWEST = 16  # results that a silo which lacks them is sent again, at most


class Head(NamedTuple):
    """A signed statement that a chain of `length` links ends with this hash."""

    length: int
    hash: bytes  # 32
    signature: bytes  # 64

    def encode(self) -> bytes:
        return _HEAD.pack(*self)

    @classmethod
    def decode(cls, data: bytes) -> Head:
        if len(data) != HEAD_BYTES:
            raise MessageError(f"a head must be {HEAD_BYTES} bytes, got {len(data)}")
        return cls(*_HEAD.unpack(data))

    def is_of(self, name: str, verifier: Ed25519PublicKey) -> bool:
        """Whether the party signed it. The head of an empty chain needs no signature."""
        if self == NONE:
            return True
        try:
            verifier.verify(self.signature, _statement(name, self.length, self.hash))
        except InvalidSignature:
            return False
        return self.length > 0


NONE = Head(0, bytes(32), bytes(64))


def signed(name: str, count: int, hash_: bytes, signer: Ed25519PrivateKey) -> Head:
    """A head, signed by its party."""
    return Head(count, hash_, signer.sign(_statement(name, count, hash_)))


def link(previous: bytes, content: bytes) -> bytes:
    """The hash of the next link of a chain."""
    return hashlib.sha256(previous + hashlib.sha256(content).digest()).digest()


def _statement(name: str, count: int, hash_: bytes) -> bytes:
    return b"fedbandit head\0" + struct.pack("<B", len(name)) + name.encode() + struct.pack("<Q", count) + hash_


class Greeting(NamedTuple):
    """A greeting: which formats the sender reads, what it asks or answers, what it has seen of the receiver, its own
    head (if it is a mixer or an analyzer; silos send theirs with their releases), and which models and members it
    has."""

    oldest: int
    newest: int
    question: bytes = NO_QUESTION  # to be sent back in the answer
    answer: bytes = NO_QUESTION  # the question that this answers
    syncs: int = 0  # syncs of the receiver under this plan, as far as the sender has seen
    seen: Head = NONE  # the newest head of the receiver that the sender has seen
    own: Head = NONE
    models: Head = NONE  # the head of the analyzer's models that the sender has
    edition: int = 0  # the newest edition of the members that the sender has
    members: bytes = bytes(32)  # the hash of that edition
    lacks: int | None = None  # a sync whose result the sender has not: a silo asks for it, others have lost it

    def encode(self) -> bytes:
        start = _GREETING.pack(MAGIC, self.oldest, self.newest, self.question, self.answer, self.syncs)
        end = _MEMBERS.pack(self.edition, self.members) + _LACKS.pack(_NOTHING if self.lacks is None else self.lacks)
        return start + self.seen.encode() + self.own.encode() + self.models.encode() + end

    @classmethod
    def decode(cls, data: bytes) -> Greeting:
        """Read a greeting. A later version may append fields: the earliest has no models, some later ones have models
        but no members, and some have members but do not say what the sender lacks."""
        if len(data) < _GREETING.size + 2 * HEAD_BYTES or data[:4] != MAGIC:
            raise MessageError("not a greeting")
        _, *fields = _GREETING.unpack(data[: _GREETING.size])
        heads = (data[_GREETING.size + n * HEAD_BYTES :][:HEAD_BYTES] for n in range(3))
        greeting = cls(*fields, *(Head.decode(head) for head in heads if head))
        members = data[_GREETING.size + 3 * HEAD_BYTES :][: _MEMBERS.size]
        if not members:
            return greeting
        if len(members) < _MEMBERS.size:
            raise MessageError("not a greeting: it ends too early")
        edition, hash_ = _MEMBERS.unpack(members)
        greeting = greeting._replace(edition=edition, members=hash_)
        lacks = data[_GREETING.size + 3 * HEAD_BYTES + _MEMBERS.size :][: _LACKS.size]
        if not lacks:
            return greeting
        if len(lacks) < _LACKS.size:
            raise MessageError("not a greeting: it ends too early")
        (sync,) = _LACKS.unpack(lacks)
        return greeting._replace(lacks=None if sync == _NOTHING else sync)

    def reads(self, format_: int) -> bool:
        return self.oldest <= format_ <= self.newest
