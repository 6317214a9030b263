"""How a party learns of new members and new keys: every greeting says which edition its sender has, and a party that
has newer ones passes them on. The operator has signed them, so it does not matter who passes them on."""

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

__all__ = ["ASK_AGAIN", "Registrar"]

log = logging.getLogger(__name__)
ASK_AGAIN = 10.0  # seconds until a party that has not answered a question is asked again


class Registrar:
    """Keeps a party's list of members up to date, and reports if the operator has signed two editions of one number."""

    def __init__(self, party: Party, refused: Refused) -> None:
        self._party, self._refused = party, refused
        self._gap = (0, 0)  # the last edition that came without the ones before it, and the newest one here at the time
        self._asked = self._gap

    @property
    def problem(self) -> str | None:
        """The problem, in words, that the operator has signed two editions of one number; it never goes away."""
        number = self._party.roll.contradicted
        return None if number is None else str(TwoLists(number))

    def adopt(self, editions: Iterable[Edition]) -> int:
        """Take the editions that come next, and return how many. An edition that is not the next one, is not signed by
        the operator or does not make a valid federation is refused."""
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
        """The edition after which the sender of a greeting must be told all others; None if it has all of them. A
        sender with a different edition of the same number is told all: it then holds both, signed."""
        roll = self._party.roll
        if greeting.edition > roll.number:
            return None
        if greeting.members == bytes.fromhex(roll.hash_of(greeting.edition)):
            return None if greeting.edition == roll.number else greeting.edition
        return 0 if greeting.members != bytes(32) else None

    def ahead(self, greeting: Greeting) -> bool:
        """Whether the sender has editions that this party does not have."""
        return greeting.edition > self._party.roll.number

    def lacks(self) -> bool:
        """Whether an edition has come without the ones before it, so that others must be asked for them. This is true
        once per such edition, because what they answer may be refused again."""
        asked, self._asked = self._asked, self._gap
        return asked != self._gap

    async def greet(self, link: Carrier, receiver: PublicKeys, greeting: Greeting, again: str = "") -> None:
        """Send a greeting, with the edition of the members that this party has. One that repeats another differs in
        `again`: the broker drops a message that has the id and the bytes of an earlier one."""
        greeting = self._party.greeting(greeting)
        words = f"{greeting.question.hex()}.{greeting.answer.hex()}.{greeting.models.length}.{greeting.edition}"
        sealed = self._party.seal("greeting", receiver, 0, greeting.encode())
        message_id = f"greeting.{self._party.name}.{receiver.name}.{words}.{greeting.lacks}{again}"
        await link.publish(self._party.subject_to(receiver), sealed, message_id)

    async def introduce(self, link: Carrier | None, receiver: PublicKeys, before: int = 0) -> None:
        """Pass on all editions if one after number `before` is about this party: the receiver would not accept even a
        greeting under keys that it does not know."""
        if link is not None and any(one.name == self._party.name for one in self._party.roll.editions[before:]):
            await self.tell(link, receiver)

    async def tell(self, link: Carrier, receiver: PublicKeys, after: int = 0) -> None:
        """Pass on the editions after number `after`."""
        for edition in self._party.roll.editions[after:]:
            sealed = self._party.seal("members", receiver, edition.number, edition.encode())
            await link.publish(self._party.subject_to(receiver), sealed, f"members.{edition.number}.{receiver.name}")
