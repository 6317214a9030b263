"""What mixer and analyzer have in common: collect a round, close it once, publish what came of it."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod

from fedbandit.federation.link import Link
from fedbandit.federation.messages import MessageError
from fedbandit.federation.noise import ExactNoise
from fedbandit.federation.party import Party, PlanMismatch
from fedbandit.federation.sealing import Context, EnvelopeError
from fedbandit.federation.states import RoundEvent, RoundState
from fedbandit.federation.store.rounds import RoundStore, StoredRound

log = logging.getLogger(__name__)
LOOK = 0.1  # seconds between looks at the deadline


class RoundKeeper(ABC):
    """Rounds are closed in order, each once: what is on disk decides, whatever is killed in between."""

    def __init__(self, party: Party, store: RoundStore, link: Link) -> None:
        self.party, self.store, self.link = party, store, link
        self.plan = party.federation.plan
        self.noise = ExactNoise()
        self.refused = 0
        self._begun: dict[int, float] = {}
        self._advancing = asyncio.Lock()
        store.bind(self.plan.hash)

    @abstractmethod
    def accept(self, context: Context, payload: bytes) -> tuple[int, str, bytes] | None:
        """A verified message: (step, sender, what to keep), or None if there is nothing to keep."""

    @abstractmethod
    def close(self, step: int, late: bool) -> RoundEvent | None:
        """Close the round and store its result if it is time; the event that closed it, or None."""

    @abstractmethod
    async def publish(self, closed: StoredRound) -> None:
        """Send a round's stored result to those it is for."""

    async def greet(self) -> None:  # noqa: B027 (a mixer has nothing to say)
        """Say what must be said before the first round."""

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
        """Close rounds in order for as long as the next one can be closed."""
        async with self._advancing:
            while (step := self.store.next_step()) < len(self.plan.times):
                if self.close(step, self._late(step)) is None:
                    return
                await self._publish(self.store.round(step))

    def _opened(self, envelope: bytes) -> tuple[int, str, bytes] | None:
        try:
            context, payload = self.party.open(envelope)
            if context.kind != "hello" and not 0 <= context.round < len(self.plan.times):
                raise MessageError(f"the plan has no round {context.round}")
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

    def _late(self, step: int) -> bool:
        """Whether the deadline of a round has passed; it runs from the first message for this round or a later one."""
        if self.store.last_begun() < step:
            return False
        began = self._begun.setdefault(step, time.monotonic())
        return time.monotonic() - began > self.party.federation.deadline

    async def _publish(self, closed: StoredRound) -> None:
        await self.publish(closed)
        self.store.published(closed.step)
        if closed.state is RoundState.SKIPPED:
            log.warning("round %d skipped: too few silos in time", closed.step)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            await self.advance()
