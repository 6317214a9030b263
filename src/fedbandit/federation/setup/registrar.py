"""How a party hears of new members and new keys: every greeting says which edition its sender has, and whoever has more
passes it on. What is passed on is the operator's word, so it does not matter who does."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from fedbandit.federation.setup.editions import Edition
from fedbandit.federation.setup.party import Party
from fedbandit.federation.setup.roll import EditionError, TwoLists
from fedbandit.federation.wire.heads import Greeting
from fedbandit.federation.wire.keys import PublicKeys
from fedbandit.federation.wire.link import Carrier
from fedbandit.federation.wire.refused import Refused

__all__ = ["Registrar"]

log = logging.getLogger(__name__)


class Registrar:
    """Keeps the members up to date, and says so if the operator has signed two lists of one number."""

    def __init__(self, party: Party, refused: Refused) -> None:
        self._party, self._refused = party, refused
        self._gap = (0, 0)  # the last edition that came without those before it, and which one was here then
        self._asked = self._gap

    @property
    def problem(self) -> str | None:
        """That the operator has signed two lists of one number, if it has; it stays so."""
        number = self._party.roll.contradicted
        return None if number is None else str(TwoLists(number))

    def adopt(self, editions: Iterable[Edition]) -> int:
        """Take the editions that come next; returns how many these were. One that is not the next, not the operator's
        or makes no federation is refused."""
        before = self._party.roll.number
        for edition in editions:
            try:
                if self._party.roll.take(edition):
                    log.info("edition %d of the members: %s %s", edition.number, edition.change, edition.name)
            except TwoLists as error:
                log.error("%s", error)
                self._refused.note(error)
            except EditionError as error:
                self._refused.note(error)
                if edition.number > self._party.roll.number + 1:
                    self._gap = (edition.number, self._party.roll.number)
        return self._party.roll.number - before

    def behind(self, greeting: Greeting) -> int | None:
        """From which edition on the sender of a greeting must be told; None if it has all of them. One that has another
        edition of the same number is told all of them: it then holds both, signed."""
        roll = self._party.roll
        if greeting.edition > roll.number:
            return None
        if greeting.members == bytes.fromhex(roll.hash_of(greeting.edition)):
            return None if greeting.edition == roll.number else greeting.edition
        return 0 if greeting.members != bytes(32) else None

    def ahead(self, greeting: Greeting) -> bool:
        """Whether the sender has editions that this party has not."""
        return greeting.edition > self._party.roll.number

    def lacks(self) -> bool:
        """Whether an edition has come without those before it, so that the others are to be asked for them; said once.
        (What they tell may be refused again.)"""
        asked, self._asked = self._asked, self._gap
        return asked != self._gap

    async def introduce(self, link: Carrier | None, receiver: PublicKeys, before: int = 0) -> None:
        """Pass on all editions if one after `before` is about this party: under keys that the receiver has not heard of
        it could not even greet."""
        if link is not None and any(one.name == self._party.name for one in self._party.roll.editions[before:]):
            await self.tell(link, receiver)

    async def tell(self, link: Carrier, receiver: PublicKeys, after: int = 0) -> None:
        """Pass on the editions after this one."""
        for edition in self._party.roll.editions[after:]:
            sealed = self._party.seal("members", receiver, edition.number, edition.encode())
            await link.publish(self._party.subject_to(receiver), sealed, f"members.{edition.number}.{receiver.name}")
