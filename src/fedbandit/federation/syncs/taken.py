"""What mixer and analyzer take from a verified message."""

from __future__ import annotations

from typing import NamedTuple

from fedbandit.federation.setup.editions import Edition
from fedbandit.federation.wire.envelopes import Context
from fedbandit.federation.wire.heads import Greeting, Head

__all__ = ["Arrived", "Sighting", "Taken"]


class Arrived(NamedTuple):
    """A verified message that is kept until its sync closes."""

    sync: int
    sender: str
    value: bytes


class Sighting(NamedTuple):
    """A party's head, signed by that party, and how many syncs of this plan it had done then."""

    party: str
    syncs: int
    head: Head


class Taken(NamedTuple):
    """The content of a verified message: something to keep, heads of parties, a greeting, or an edition."""

    context: Context
    arrived: Arrived | None = None
    sightings: tuple[Sighting, ...] = ()
    greeting: Greeting | None = None
    edition: Edition | None = None
