"""What the parties tell each other about one sync, as values and as bytes, and S and A on them.

A silo hands a `Parcel` to each party that gets something; the mixer passes `Mixed` on; the analyzer answers with the
`Outcome`. How many arrays there are, who reads which, and what is only carried, is declared by the plan's protocol
(`Protocol.parts`). Nothing here touches a network or a disk.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import numpy as np

from fedbandit._arrays import Floats, Integers, Numbers
from fedbandit.federation.wire import messages
from fedbandit.federation.wire.keys import Role
from fedbandit.federation.wire.messages import MessageError
from fedbandit.plan import Plan
from fedbandit.privacy.noise import NoiseSource
from fedbandit.protocol.base import Message, Part, Protocol

__all__ = ["Mixed", "Outcome", "Parcel", "held_by_analyzer", "membership", "mixed"]


class Parcel(NamedTuple):
    """What one silo hands to one party for a sync: arrays that it reads, and ciphertexts that it only carries."""

    arrays: Message  # (width,) each
    carried: tuple[bytes, ...] = ()

    def encode(self) -> bytes:
        return messages.pack([messages.encode(self.arrays), *self.carried])

    @classmethod
    def decode(cls, data: bytes, protocol: Protocol, reader: Role) -> Parcel:
        """The parcel, if it has the form that the protocol gives to parcels for this reader."""
        arrays, carried = _unpacked(data)
        wanted = [part for part in protocol.parts if part.reader == reader and not part.blind]
        _check_arrays(arrays, wanted, lambda shape: shape == (protocol.width,))
        blind = sum(part.blind for part in protocol.parts) if reader == "mixer" else 0
        if len(carried) != blind:
            raise MessageError(f"a parcel for the {reader} must carry {blind} ciphertexts, got {len(carried)}")
        return cls(arrays, carried)


class Mixed(NamedTuple):
    """What the mixer passes on for a sync: who is in it, the arrays it mixed, the ciphertexts in their new order."""

    cohort: Integers  # (silos,), 0 or 1, in the order of the silos' names
    arrays: Message = ()  # (rows, width) each; none for a sync that was skipped
    carried: tuple[bytes, ...] = ()  # by blind part, then by silo

    def encode(self) -> bytes:
        return messages.pack([messages.encode([self.cohort]), messages.encode(self.arrays), *self.carried])

    @classmethod
    def decode(cls, data: bytes, plan: Plan) -> Mixed:
        """What a mixer sent, if it has the form that the plan gives it."""
        parts = messages.unpack(data)
        if len(parts) < 2:
            raise MessageError(f"a sync must have a cohort and arrays, got {len(parts)} parts")
        cohort = _checked_cohort(messages.decode(parts[0], [(plan.silos,)])[0])
        arrays, carried, present = messages.decode(parts[1]), tuple(parts[2:]), int(cohort.sum())
        protocol = plan.protocol
        read = [part for part in protocol.parts if part.reader == "mixer"] if present else []
        _check_arrays(arrays, read, lambda shape: shape in ((1, protocol.width), (present, protocol.width)))
        blind = present * sum(part.blind for part in protocol.parts)
        if len(carried) != blind:
            raise MessageError(f"a sync of {present} silos must carry {blind} ciphertexts, got {len(carried)}")
        return cls(cohort, arrays, carried)


class Outcome(NamedTuple):
    """The result of a sync: the prefix sum over all silos, and which silos are in this sync's total.

    An empty cohort is a sync that was skipped; the prefix sum is then the one before it, and the model stays.
    """

    prefix: Floats  # (width,), natural units
    cohort: Integers  # (silos,), 1 for each silo that was counted, in the order of their names

    def encode(self) -> bytes:
        return messages.encode(self)

    @classmethod
    def decode(cls, data: bytes, plan: Plan) -> Outcome:
        prefix, cohort = messages.decode(data, [(plan.protocol.width,), (plan.silos,)])
        if prefix.dtype != np.float64 or not np.isfinite(prefix).all():
            raise MessageError("prefix must be finite numbers")
        return cls(prefix, _checked_cohort(cohort))

    @property
    def skipped(self) -> bool:
        return not self.cohort.any()


def membership(present: Collection[str], silos: Sequence[str]) -> Integers:
    """A cohort as 0s and 1s in the order of the silos' names."""
    return np.array([int(name in present) for name in silos], dtype=np.int64)


def mixed(protocol: Protocol, cohort: Integers, parcels: Sequence[Parcel], noise: NoiseSource) -> Mixed:
    """S on one sync's parcels: what it reads goes through `mix` itself, what it carries goes through as its place."""
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
    """All parts of a sync in the protocol's order: those that S mixed, those it carried, opened, and A's own."""
    mixer, direct = iter(from_mixer), iter(_stacked([parcel.arrays for parcel in own]))
    rows = len(opened) // max(1, sum(part.blind for part in protocol.parts))
    blind = iter(np.stack(opened[start : start + rows]) for start in range(0, len(opened), rows or 1))
    return tuple(
        next(blind) if part.blind else next(mixer if part.reader == "mixer" else direct) for part in protocol.parts
    )


def _stacked(rows: Sequence[Message]) -> Message:
    """Messages of several silos, (silos, width) each."""
    return tuple(np.stack(arrays) for arrays in zip(*rows, strict=True))


def _unpacked(data: bytes) -> tuple[Message, tuple[bytes, ...]]:
    first, *rest = messages.unpack(data) or [b""]
    return messages.decode(first), tuple(rest)


def _check_arrays(arrays: Message, parts: Sequence[Part], fits: Callable[[tuple[int, ...]], bool]) -> None:
    """Refuse arrays of another number, shape or type than the plan's, before they are counted in."""
    if len(arrays) != len(parts):
        raise MessageError(f"message must hold {len(parts)} arrays, got {len(arrays)}")
    for array, part in zip(arrays, parts, strict=True):
        if array.dtype != part.dtype or not fits(array.shape):
            raise MessageError(f"message holds {array.dtype} of shape {array.shape}, which is not the plan's form")


def _checked_cohort(cohort: Numbers) -> Integers:
    """A cohort is 0s and 1s."""
    if cohort.dtype != np.int64 or not np.isin(cohort, (0, 1)).all():
        raise MessageError("cohort must hold 0s and 1s")
    return cohort
