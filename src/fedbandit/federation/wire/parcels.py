"""What the parties tell each other about one sync, as values and as bytes, and how S and A work on them.

A silo sends a `Parcel` to each receiver; the analyzer says whose parcels it `Holds`; the mixer sends `Mixed` to the
analyzer; the analyzer answers with a `SignedOutcome`. The plan's protocol declares how many arrays there are, who reads
which, and what is only carried (`Protocol.parts`). Nothing here touches a network.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedbandit._arrays import Floats, Integers, Numbers, Words
from fedbandit.federation.wire import heads, messages
from fedbandit.federation.wire.envelopes import OVERHEAD
from fedbandit.federation.wire.heads import HEAD_BYTES, Head
from fedbandit.federation.wire.keys import Role
from fedbandit.federation.wire.messages import MessageError
from fedbandit.plan import Plan
from fedbandit.privacy.noise import NoiseSource
from fedbandit.protocol.base import Message, Part, Protocol

__all__ = ["Holds", "Mixed", "Outcome", "Parcel", "SignedOutcome", "held_by_analyzer", "largest", "mixed"]


class Parcel(NamedTuple):
    """What one silo sends to one party for a sync: arrays that the party reads, and ciphertexts that it only carries.

    With them travel the head of the silo's ledger after this release, and the head of the models that the silo has.
    """

    arrays: Message  # (width,) each
    carried: tuple[bytes, ...] = ()
    ledger: Head = heads.NONE
    models: Head = heads.NONE

    def encode(self) -> bytes:
        return messages.pack([self.ledger.encode() + self.models.encode(), messages.encode(self.arrays), *self.carried])

    @classmethod
    def decode(cls, data: bytes, protocol: Protocol, reader: Role) -> Parcel:
        """Read a parcel; MessageError unless it has the form that the protocol prescribes for this reader."""
        wanted = [part for part in protocol.parts if part.reader == reader and not part.blind]
        blind = sum(part.blind for part in protocol.parts) if reader == "mixer" else 0
        parts = messages.unpack(data, most=2 + blind)
        if len(parts) != 2 + blind:
            raise MessageError(f"a parcel for the {reader} must carry {blind} ciphertexts, got {len(parts) - 2}")
        arrays = messages.decode(parts[1], [(protocol.width,)] * len(wanted))
        _check_arrays(arrays, wanted)
        return cls(arrays, tuple(parts[2:]), *_two_heads(parts[0]))


class Holds(NamedTuple):
    """Whose parcels of a sync the analyzer holds. It says so once and for good, and the mixer leaves the others out."""

    cohort: Integers  # (silos,), 0 or 1, by seat
    models: Head = heads.NONE  # the analyzer's own head

    def encode(self) -> bytes:
        return messages.pack([self.models.encode(), messages.encode([_bits(self.cohort)])])

    @classmethod
    def decode(cls, data: bytes, plan: Plan) -> Holds:
        parts = messages.unpack(data, most=2)
        if len(parts) != 2:
            raise MessageError("a message about what is held must have a head and a cohort")
        (bits,) = messages.decode(parts[1], [_words(plan)])
        return cls(_cohort(bits, plan), Head.decode(parts[0]))


class Mixed(NamedTuple):
    """What the mixer sends for a sync: its cohort, the arrays that it mixed, and the ciphertexts in their new order."""

    cohort: Integers  # (silos,), 0 or 1, by seat
    arrays: Message = ()  # (rows, width) each; empty for a sync that was skipped
    carried: tuple[bytes, ...] = ()  # by blind part, then by silo
    totals: Head = heads.NONE  # the mixer's own head after this sync

    def encode(self) -> bytes:
        parts = [messages.encode([_bits(self.cohort)]), messages.encode(self.arrays), *self.carried]
        return messages.pack([self.totals.encode(), *parts])

    @classmethod
    def decode(cls, data: bytes, plan: Plan) -> Mixed:
        """Read what a mixer sent; MessageError unless it has the form that the plan prescribes."""
        protocol = plan.protocol
        blind = sum(part.blind for part in protocol.parts)
        parts = messages.unpack(data, most=3 + plan.silos * blind)
        if len(parts) < 3:
            raise MessageError(f"a sync must have a head, a cohort and arrays, got {len(parts)} parts")
        cohort = _cohort(messages.decode(parts[1], [_words(plan)])[0], plan)
        present = int(cohort.sum())
        read = [part for part in protocol.parts if part.reader == "mixer"] if present else []
        arrays = messages.decode(parts[2], most=len(read))
        _check_arrays(arrays, read)
        if any(array.shape not in ((1, protocol.width), (present, protocol.width)) for array in arrays):
            raise MessageError("message holds an array of a shape that the plan does not have")
        if len(parts) - 3 != present * blind:
            raise MessageError(f"a sync of {present} silos must carry {present * blind} ciphertexts")
        return cls(cohort, arrays, tuple(parts[3:]), Head.decode(parts[0]))


class Outcome(NamedTuple):
    """The result of a sync: the prefix sum over all silos, and which silos are in this sync's total.

    If the cohort is empty, the sync was skipped; the prefix sum is then that of the sync before, and the model stays.
    """

    prefix: Floats  # (width,), natural units
    cohort: Integers  # (silos,), 1 for each silo that was counted, by seat

    def encode(self) -> bytes:
        return messages.encode([self.prefix, _bits(self.cohort)])

    @classmethod
    def decode(cls, data: bytes, plan: Plan) -> Outcome:
        prefix, bits = messages.decode(data, [(plan.protocol.width,), _words(plan)])
        if prefix.dtype != np.float64 or not np.isfinite(prefix).all():
            raise MessageError("prefix must be finite numbers")
        return cls(prefix, _cohort(bits, plan))

    @property
    def skipped(self) -> bool:
        return not self.cohort.any()


class SignedOutcome(NamedTuple):
    """An outcome as it is sent to the silos: with the hash that it follows, and the analyzer's head after it."""

    outcome: Outcome
    previous: bytes
    head: Head

    def encode(self) -> bytes:
        return messages.pack([self.previous, self.head.encode(), self.outcome.encode()])

    @classmethod
    def decode(cls, data: bytes, plan: Plan) -> SignedOutcome:
        """Read a model; MessageError unless its head is of a chain that ends with it. No signature is checked."""
        parts = messages.unpack(data, most=3)
        if len(parts) != 3:
            raise MessageError("a model must have the hash of the one before it, a head and an outcome")
        previous, head, outcome = parts[0], Head.decode(parts[1]), Outcome.decode(parts[2], plan)
        if len(previous) != len(head.hash) or heads.link(previous, outcome.encode()) != head.hash:
            raise MessageError("the analyzer's head does not belong to this model")
        return cls(outcome, previous, head)


EDITION = 6144  # bytes of an edition of the members, at most: two names, and a party's public keys as text


def largest(plan: Plan) -> int:
    """The size in bytes of the largest sealed message that any party sends under a plan."""
    protocol, silos = plan.protocol, plan.silos
    array, ciphertext = 64 + 8 * protocol.width, 64 + 8 * protocol.width + OVERHEAD
    blind = sum(part.blind for part in protocol.parts)
    parcel = len(protocol.parts) * array + blind * ciphertext
    mixed = silos * (len(protocol.parts) * array + blind * ciphertext)
    return OVERHEAD + 1024 + silos + max(parcel, mixed if protocol.has_mixer else 0, EDITION)


def mixed(protocol: Protocol, cohort: Integers, parcels: Sequence[Parcel], noise: NoiseSource) -> Mixed:
    """The result of S on one sync's parcels. Arrays that it reads go through `mix`; of ciphertexts that it carries, the
    positions do, and so give the new order."""
    places = np.arange(len(parcels))[:, None]
    readable = iter(_stacked([parcel.arrays for parcel in parcels]))
    parts = [protocol.parts[i] for i in protocol.mixed_parts]
    results = protocol.mix(tuple(places if part.blind else next(readable) for part in parts), noise)
    carried, blind = [], 0
    for part, result in zip(parts, results, strict=True):
        if part.blind:
            carried += [parcels[place].carried[blind] for place in result[:, 0]]
            blind += 1
    arrays = tuple(result for part, result in zip(parts, results, strict=True) if not part.blind)
    return Mixed(cohort, arrays, tuple(carried))


def held_by_analyzer(
    protocol: Protocol, from_mixer: Message, opened: Sequence[Numbers], own: Sequence[Parcel]
) -> Message:
    """All parts of a sync in the protocol's order: those that S mixed, those that it carried (opened), and those that A
    got from silos."""
    mixer, direct = iter(from_mixer), iter(_stacked([parcel.arrays for parcel in own]))
    rows = len(opened) // max(1, sum(part.blind for part in protocol.parts))
    blind = iter(np.stack(opened[start : start + rows]) for start in range(0, len(opened), rows or 1))
    return tuple(
        next(blind) if part.blind else next(mixer if part.reader == "mixer" else direct)
        for part in protocol.parts
        if part.reader != "silo"
    )


def _stacked(rows: Sequence[Message]) -> Message:
    """The messages of several silos as one, with arrays (silos, width)."""
    return tuple(np.stack(arrays) for arrays in zip(*rows, strict=True))


def _two_heads(data: bytes) -> tuple[Head, Head]:
    return Head.decode(data[:HEAD_BYTES]), Head.decode(data[HEAD_BYTES:])


def _check_arrays(arrays: Message, parts: Sequence[Part]) -> None:
    """Refuse arrays if their number or a type is not the plan's, before they are used."""
    if len(arrays) != len(parts):
        raise MessageError(f"message must hold {len(parts)} arrays, got {len(arrays)}")
    for array, part in zip(arrays, parts, strict=True):
        if array.dtype != part.dtype:
            raise MessageError(f"message holds {array.dtype}, which is not the plan's form")


WORD = 64  # silos per word of a cohort's bits


def _words(plan: Plan) -> tuple[int]:
    """The shape of a cohort on the wire."""
    return (-(-plan.silos // WORD),)


def _bits(cohort: Integers) -> Words:
    """A cohort on the wire: one bit per silo, the first in the lowest bit of the first word."""
    padded = np.zeros(-(-len(cohort) // WORD) * WORD, dtype=np.uint8)
    padded[: len(cohort)] = cohort
    return np.packbits(padded, bitorder="little").view("<u8").astype(np.uint64)


def _cohort(bits: Numbers, plan: Plan) -> Integers:
    """The cohort as 0s and 1s again; MessageError if it has more than the plan's silos."""
    if bits.dtype != np.uint64:
        raise MessageError(f"cohort must be words of bits, not {bits.dtype}")
    members = np.unpackbits(bits.astype("<u8").view(np.uint8), bitorder="little")
    if members[plan.silos :].any():
        raise MessageError(f"cohort must hold at most the plan's {plan.silos} silos")
    return members[: plan.silos].astype(np.int64)
