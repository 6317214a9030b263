"""A broker in memory, for parties in one process: it keeps their messages in order, and each message once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable

from fedbandit.federation.setup.agreement import Agreement
from fedbandit.federation.wire.subjects import Consumer

__all__ = ["PostOffice", "receiver_of"]


def receiver_of(subject: str, holders: dict[str, str]) -> str:
    """The party that reads a subject; `holders` has the names of mixer and analyzer by role."""
    *_, role, name = subject.split(".")
    return holders.get(role, name)


class PostOffice:
    """A queue of sealed messages per party. Like the broker, it drops repeated messages and is trusted with nothing.

    A mixer, an analyzer or an agent publishes to it. It delivers nothing by itself: the caller that runs the parties
    takes messages from the queues and delivers them.
    """

    def __init__(self, agreement: Agreement) -> None:
        self.queues: dict[str, list[bytes]] = defaultdict(list)
        self.queues.update({party.name: [] for party in agreement.parties})
        self._holders = {str(party.role): party.name for party in agreement.parties if party.role != "silo"}
        self._known: set[tuple[str, str, bytes]] = set()

    async def publish(self, subject: str, data: bytes, message_id: str) -> None:
        if (subject, message_id, data) not in self._known:
            self._known.add((subject, message_id, data))
            self.queues[receiver_of(subject, self._holders)].append(data)

    async def read(self, consumer: Consumer, handle: Callable[[list[bytes]], Awaitable[None]]) -> None:
        """Do nothing: the caller delivers messages."""

    def take(self, name: str) -> list[bytes]:
        """Take all messages that wait for a party."""
        taken, self.queues[name] = self.queues[name], []
        return taken
