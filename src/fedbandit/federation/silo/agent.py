"""A silo's side of the federation: ticks, sends what was drawn, takes in what came of the syncs."""

from __future__ import annotations

import asyncio
import logging
import math
import time

from fedbandit.federation.setup.party import Party
from fedbandit.federation.silo.outgoing import Sealer
from fedbandit.federation.silo.serving import OutcomeConflict, Silo
from fedbandit.federation.states import ReleaseState
from fedbandit.federation.timing import TicksHeld
from fedbandit.federation.wire import messages
from fedbandit.federation.wire.envelopes import Context, EnvelopeError
from fedbandit.federation.wire.link import Link
from fedbandit.federation.wire.messages import MessageError
from fedbandit.federation.wire.parcels import Outcome

__all__ = ["Agent"]

log = logging.getLogger(__name__)
LOOK = 0.05  # seconds between looks at the calendar
LEAD = 1.0  # seconds between looks at which worker leads
TIDY = 5.0  # seconds after a release until raw rows leave the files and the next noise is drawn
TIDY_AFTER_SYNC = 0.5  # the same once the sync is over: the model comes first
GREETED = "greeted"


class Agent:
    """Runs beside the service of a silo. Nothing is sent before the analyzer has shown the same plan."""

    def __init__(self, silo: Silo, party: Party, sealer: Sealer) -> None:
        self.silo, self.party = silo, party
        self.plan = silo.plan
        self.problem: str | None = None  # why it is not ticking, if it is not
        self.link: Link | None = None  # none before the broker has answered
        self._sealer = sealer
        self._greeted = self._leads = False
        self._tidy_at = 0.0  # a process that was killed may have left raw rows in the files
        self._news = asyncio.Event()
        self._news.set()

    @property
    def connected(self) -> bool:
        """Whether the broker can be reached now."""
        return self.link is not None and bool(self.link.client.is_connected)

    async def run(self, link: Link) -> None:
        """Work over this connection until cancelled."""
        self.link = link
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._ticks())
            tasks.create_task(self._sends(link))
            tasks.create_task(link.read(self.party.consumer, self.handle))

    async def handle(self, envelopes: list[bytes]) -> None:
        """Take in outcomes of syncs; a mismatch of plans with the analyzer is fatal."""
        for envelope in envelopes:
            try:
                await self._take(*self.party.open(envelope))
            except (EnvelopeError, MessageError) as error:
                log.warning("refused a message: %s", error)
            except OutcomeConflict as error:
                log.error("refused a model: %s", error)
        self._news.set()

    async def tick(self) -> None:
        """Do what the calendar says is due; while the clock cannot be believed, nothing is."""
        try:
            released = await asyncio.to_thread(self.silo.ticker.release) if self.silo.ticker.due() else []
            self.problem = None
        except TicksHeld as error:
            self.problem = str(error)
            return
        if released:
            self._news.set()
            self._tidy_at = time.monotonic() + TIDY
        elif time.monotonic() > self._tidy_at:
            done = await asyncio.to_thread(self.silo.ticker.tidy)
            self._tidy_at = math.inf if done else time.monotonic() + TIDY

    async def send(self, link: Link) -> None:
        """Seal what can be sealed now, publish what is sealed, in order."""
        store, term = self.silo.store, self.silo.term.number
        if await asyncio.to_thread(store.in_state, term, ReleaseState.DRAWN):
            await asyncio.to_thread(self._seal_drawn)
        for sync in await asyncio.to_thread(store.in_state, term, ReleaseState.SEALED):
            await asyncio.sleep(self.silo.ticker.wait_to_send(sync))
            await self._publish(link, sync)

    async def _take(self, context: Context, payload: bytes) -> None:
        if context.sender != self.party.agreement.holder("analyzer").name:
            raise MessageError(f"models come from the analyzer, not from {context.sender}")
        if context.kind == "hello":
            self.silo.store.remember(self._greeting, b"1")
        elif context.kind == "model" and 0 <= context.sync < self.silo.syncs:
            outcome = Outcome.decode(payload, self.plan)
            included = bool(outcome.cohort[self.party.agreement.silos.index(self.party.name)])
            await asyncio.to_thread(self.silo.learn, context.sync, outcome, included)
            self._tidy_at = min(self._tidy_at, time.monotonic() + TIDY_AFTER_SYNC)
        else:
            raise MessageError(f"a silo takes models of its syncs, not {context.kind!r} of {context.sync}")

    def _seal_drawn(self) -> None:
        """Seal the releases whose message had to wait for the outcome of earlier syncs."""
        store, term = self.silo.store, self.silo.term.number
        for sync, wire in self._sealer.settled(store.releases(term)):
            store.seal(term, sync, wire)

    async def _publish(self, link: Link, sync: int) -> None:
        release = await asyncio.to_thread(self.silo.store.release, self.silo.term.number, sync)
        assert release is not None
        assert release.sealed is not None
        for receiver, envelope in zip(self._sealer.receivers, messages.unpack(release.sealed), strict=True):
            message_id = f"release.{sync}.{self.party.name}.{receiver.role}"
            await link.publish(self.party.subject_to(receiver), envelope, message_id)
        await asyncio.to_thread(self.silo.store.acknowledged, self.silo.term.number, sync)

    async def _ticks(self) -> None:
        await asyncio.to_thread(self.silo.ticker.prepare)
        looked = -math.inf
        while True:
            if time.monotonic() - looked > LEAD:
                looked = time.monotonic()
                await self._look_around()
            if self._leads:
                await self.tick()
            await asyncio.sleep(LOOK)

    async def _look_around(self) -> None:
        """Where several workers serve one silo: who leads, what the others have taken in."""
        self._leads = await asyncio.to_thread(self.silo.store.engine.lead)
        await asyncio.to_thread(self.silo.flush)
        if self.silo.store.engine.shared:
            await asyncio.to_thread(self.silo.refresh)
            self._news.set()

    async def _sends(self, link: Link) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            if self._leads and await self._is_greeted():
                await self.send(link)

    async def _is_greeted(self) -> bool:
        """Whether the analyzer has shown the same plan, to this worker or another one."""
        if not self._greeted:
            self._greeted = await asyncio.to_thread(self.silo.store.recall, self._greeting) is not None
        return self._greeted

    @property
    def _greeting(self) -> str:
        return f"{GREETED} {self.plan.hash}"
