"""What mixer and analyzer have in common: collect a sync, close it once, publish what came of it."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import NamedTuple

from fedbandit.federation.exact.exact_noise import ExactNoise
from fedbandit.federation.setup.party import Party, PlanMismatch
from fedbandit.federation.states import SyncEvent, SyncState
from fedbandit.federation.store.sync_store import StoredSync, SyncStore
from fedbandit.federation.wire.envelopes import Context, EnvelopeError
from fedbandit.federation.wire.link import Link
from fedbandit.federation.wire.messages import MessageError

__all__ = ["Arrived", "SyncKeeper", "closing"]

log = logging.getLogger(__name__)
LOOK = 0.1  # seconds between looks at the deadline


class Arrived(NamedTuple):
    """A verified message that is kept until its sync closes."""

    sync: int
    sender: str
    value: bytes


class SyncKeeper(ABC):
    """Syncs are closed in order, each once: what is on disk decides, whatever is killed in between."""

    def __init__(self, party: Party, store: SyncStore, link: Link) -> None:
        self.party, self.store, self.link = party, store, link
        self.agreement, self.plan = party.agreement, party.agreement.plan
        self.noise = ExactNoise()
        self.refused = 0
        self._begun: dict[int, float] = {}
        self._advancing = asyncio.Lock()
        store.bind(self.plan.hash)

    @abstractmethod
    def accept(self, context: Context, payload: bytes) -> Arrived | None:
        """What to keep of a verified message, if anything."""

    @abstractmethod
    def close(self, sync: int, late: bool) -> SyncEvent | None:
        """Close the sync and store its result if it is time; the event that closed it, or None."""

    @abstractmethod
    async def publish(self, closed: StoredSync) -> None:
        """Send a sync's stored result to those it is for."""

    async def greet(self) -> None:  # noqa: B027 (a mixer has nothing to say)
        """Say what must be said before the first sync."""

    async def run(self) -> None:
        """Work until cancelled."""
        await self.greet()
        for closed in self.store.unpublished():
            await self._publish(closed)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.link.read(self.party.consumer, self.handle))
            tasks.create_task(self._watch())

    async def handle(self, envelopes: list[bytes]) -> None:
        """Take in a bundle of messages, then close what can be closed."""
        kept = [message for envelope in envelopes if (message := self._opened(envelope)) is not None]
        self.store.receive(kept)
        await self.advance()

    async def advance(self) -> None:
        """Close syncs in order for as long as the next one can be closed."""
        async with self._advancing:
            while (sync := self.store.next_sync()) < len(self.plan.times):
                if self.close(sync, self._late(sync)) is None:
                    return
                await self._publish(self.store.at(sync))

    def _opened(self, envelope: bytes) -> Arrived | None:
        try:
            context, payload = self.party.open(envelope)
            if context.kind != "hello" and not 0 <= context.sync < len(self.plan.times):
                raise MessageError(f"the plan has no sync {context.sync}")
            return self.accept(context, payload)
        except PlanMismatch as error:
            self.mismatch(error)
        except (EnvelopeError, MessageError) as error:
            log.warning("refused a message: %s", error)
        self.refused += 1
        return None

    def mismatch(self, error: PlanMismatch) -> None:
        """Somebody works under another plan: their messages are refused."""
        log.error("%s", error)

    def _late(self, sync: int) -> bool:
        """Whether the deadline of a sync has passed; it runs from the first message for this sync or a later one."""
        if self.store.last_begun() < sync:
            return False
        began = self._begun.setdefault(sync, time.monotonic())
        return time.monotonic() - began > self.agreement.timing.deadline

    async def _publish(self, closed: StoredSync) -> None:
        await self.publish(closed)
        self.store.published(closed.sync)
        if closed.state is SyncState.SKIPPED:
            log.warning("sync %d skipped: too few silos in time", closed.sync)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            await self.advance()


def closing(present: Collection[str], silos: Collection[str], cohort: int, late: bool) -> SyncEvent | None:
    """Whether a sync closes now, and how: with everybody, or at the deadline with enough silos, or not at all."""
    if len(present) == len(silos):
        return SyncEvent.COMPLETE
    if not late:
        return None
    return SyncEvent.DEADLINE_ENOUGH if len(present) >= cohort else SyncEvent.DEADLINE_SHORT
