"""What a silo sends for a release: the message of its protocol, sealed for the parties that may read it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedbandit.federation.setup.party import Party
from fedbandit.federation.states import ReleaseState
from fedbandit.federation.store.silo_store import StoredRelease, Wire
from fedbandit.federation.wire import heads, messages
from fedbandit.federation.wire.heads import Head
from fedbandit.federation.wire.keys import PublicKeys
from fedbandit.federation.wire.parcels import Parcel
from fedbandit.protocol.base import Message

__all__ = ["UNASKED", "Sealer"]

log = logging.getLogger(__name__)

UNASKED = "the others have not yet said how far they have seen this silo come"


class Sealer:
    """Turns drawn releases into the bytes on the wire, as the plan's protocol routes its messages.

    It also keeps the silo from drawing (`held`) until the others have said how far they have seen it come. A store that
    was put back to an older state would draw releases a second time, and two draws together reveal what each one hides.
    """

    def __init__(self, party: Party) -> None:
        self._party = party
        self._protocol = party.agreement.plan.protocol
        self._models: Callable[[], Head] = lambda: heads.NONE
        self.held: str | None = UNASKED  # why nothing may be drawn now
        self.kind = "others"  # the kind of that reason, one of `troubles.KINDS`
        self.halted: str | None = None  # why nothing is drawn until somebody has looked into it

    def signer(self, sync: int) -> Ed25519PrivateKey:
        """The key with which the silo signs the ledger entry of a sync."""
        return self._party.keys_at(sync).signer

    def takes_part(self, sync: int) -> bool:
        """Whether the silo is a member of the federation at a sync and has the keys of that member. If not, a release
        would spend budget for nothing."""
        return self._party.takes_part(sync)

    def hold(self, reason: str, kind: str = "others") -> None:
        """Keep the silo from drawing, for this reason."""
        self.held, self.kind = reason, kind

    def halt(self, problem: str) -> None:
        """Keep the silo from drawing until somebody has looked into it: only a restart, which asks the others anew,
        ends this."""
        if self.halted is None:
            log.error("refusing to draw: %s", problem)
        self.halted = problem
        self.hold(problem, "behind")

    def clear(self) -> None:
        """Let the silo draw: the others have seen no more of it than it knows itself."""
        self.held = None

    def watch(self, models: Callable[[], Head]) -> None:
        """Set the function that looks up the head of the models received so far; the head travels with each release."""
        self._models = models

    @property
    def receivers(self) -> list[PublicKeys]:
        """The parties that a release is sent to, in this order."""
        agreement = self._party.agreement
        return [agreement.holder(role) for role in agreement.subjects.receivers]

    def at_once(self, sync: int, drawn: Message, ledger: Head) -> Wire | None:
        """The wire form of a release that was just drawn; None if it depends on the fate of earlier releases."""
        return None if self._protocol.waits else self._wire(sync, drawn, ledger)

    def settled(self, releases: Sequence[StoredRelease], ledger: Callable[[int], Head]) -> Iterator[tuple[int, Wire]]:
        """The wire form of every release that is drawn, not sealed, and no longer waits for earlier ones. `ledger`
        gives the head after the entry of a sync. (A later head would reveal releases that were not sent.)"""
        for release in releases:
            earlier = [other for other in releases if other.sync < release.sync]
            if release.state is ReleaseState.DRAWN and all(other.state.settled for other in earlier):
                drawn = [_arrays(other.drawn) for other in (*earlier, release)]
                arrived = {other.sync: _arrays(other.sent) for other in earlier if other.state is ReleaseState.INCLUDED}
                yield (
                    release.sync,
                    self._wire(release.sync, self._protocol.outgoing(drawn, arrived), ledger(release.sync)),
                )

    def _wire(self, sync: int, message: Message, ledger: Head) -> Wire:
        models = self._models()
        parcels = [
            (receiver, self._parcel(receiver, sync, message)._replace(ledger=ledger, models=models))
            for receiver in self.receivers
        ]
        sealed = [self._party.seal("release", receiver, sync, parcel.encode()) for receiver, parcel in parcels]
        return Wire(messages.encode(message), messages.pack(sealed))

    def _parcel(self, receiver: PublicKeys, sync: int, message: Message) -> Parcel:
        """The parcel for one receiver: arrays that it reads and, for the mixer, sealed ones that it carries onward."""
        parts = list(zip(self._protocol.parts, message, strict=True))
        read = tuple(array for part, array in parts if part.reader == receiver.role and not part.blind)
        if receiver.role != "mixer":
            return Parcel(read)
        analyzer = self._party.agreement.holder("analyzer")
        carried = (
            self._party.seal_anonymously("release", analyzer, sync, messages.encode([array]))
            for part, array in parts
            if part.blind
        )
        return Parcel(read, tuple(carried))


def _arrays(data: bytes | None) -> Message:
    assert data is not None, "a settled release was drawn, and sent if it arrived"
    return messages.decode(data)
