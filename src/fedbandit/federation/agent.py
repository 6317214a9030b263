"""A silo's side of the federation: ticks, sends what was drawn, takes in what came of the rounds."""

from __future__ import annotations

import asyncio
import logging
import math
import time

from fedbandit.federation import messages, outgoing
from fedbandit.federation.calendar import ClockJumped
from fedbandit.federation.learning import Outcome
from fedbandit.federation.link import Link
from fedbandit.federation.messages import MessageError
from fedbandit.federation.party import Party
from fedbandit.federation.sealing import Context, EnvelopeError
from fedbandit.federation.silo import OutcomeConflict, Silo
from fedbandit.federation.states import ReleaseState
from fedbandit.federation.subjects import release_roles
from fedbandit.protocol.base import Message

log = logging.getLogger(__name__)
LOOK = 0.05  # seconds between looks at the calendar
LEAD = 1.0  # seconds between looks at which worker leads
TIDY = 5.0  # seconds after a release until raw rows leave the files and the next noise is drawn
TIDY_AFTER_ROUND = 0.5  # the same once the round is over: the model comes first
GREETED = "greeted"


class Agent:
    """Runs beside the service of a silo. Nothing is sent before the analyzer has shown the same plan."""

    def __init__(self, silo: Silo, party: Party, link: Link) -> None:
        self.silo, self.party, self.link = silo, party, link
        self.plan = silo.plan
        silo.ticker.sealer = self._wire
        self.problem: str | None = None  # why it is not ticking, if it is not
        self._greeted = self._leads = False
        self._tidy_at = math.inf
        self._news = asyncio.Event()
        self._news.set()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._ticks())
            tasks.create_task(self._sends())
            tasks.create_task(self.link.read(self.party.consumer, self.handle))

    async def handle(self, envelopes: list[bytes]) -> None:
        """Take in outcomes of rounds; a mismatch of plans with the analyzer is fatal."""
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
        except ClockJumped as error:
            self.problem = str(error)
            return
        if released:
            self._news.set()
            self._tidy_at = time.monotonic() + TIDY
        elif time.monotonic() > self._tidy_at:
            self._tidy_at = math.inf
            await asyncio.to_thread(self.silo.ticker.tidy)

    async def send(self) -> None:
        """Seal what can be sealed now, publish what is sealed, in order."""
        store, term = self.silo.store, self.silo.term.number
        if await asyncio.to_thread(store.in_state, term, ReleaseState.DRAWN):
            await asyncio.to_thread(self._seal_drawn)
        for step in await asyncio.to_thread(store.in_state, term, ReleaseState.SEALED):
            await self._publish(step)

    async def _take(self, context: Context, payload: bytes) -> None:
        if context.sender != self.party.federation.holder("analyzer").name:
            raise MessageError(f"models come from the analyzer, not from {context.sender}")
        if context.kind == "hello":
            self.silo.store.remember(self._greeting, b"1")
        elif context.kind == "model" and 0 <= context.round < self.silo.steps:
            outcome = Outcome.decode(payload, self.plan)
            included = bool(outcome.cohort[self.party.federation.silos.index(self.party.name)])
            await asyncio.to_thread(self.silo.learn, context.round, outcome, included)
            self._tidy_at = min(self._tidy_at, time.monotonic() + TIDY_AFTER_ROUND)
        else:
            raise MessageError(f"a silo takes models of its rounds, not {context.kind!r} of {context.round}")

    def _seal_drawn(self) -> None:
        """Trust `silo`: releases whose message had to wait for the outcome of earlier rounds."""
        releases = self.silo.store.releases(self.silo.term.number)
        for release in releases:
            if release.state is ReleaseState.DRAWN and outgoing.can_be_sealed(self.plan, release.step, releases):
                sent = outgoing.message(self.plan, release, releases)
                sealed = outgoing.sealed(self.party, release.step, sent)
                self.silo.store.seal(self.silo.term.number, release.step, messages.encode(sent), sealed)

    def _wire(self, step: int, drawn: Message) -> tuple[bytes, bytes] | None:
        """What goes on the wire, where it is what was drawn: it is then fixed with the release itself."""
        if outgoing.waits_for_outcomes(self.plan):
            return None
        return messages.encode(drawn), outgoing.sealed(self.party, step, drawn)

    async def _publish(self, step: int) -> None:
        release = await asyncio.to_thread(self.silo.store.release, self.silo.term.number, step)
        assert release is not None
        assert release.sealed is not None
        roles = release_roles(self.plan.trust)
        for role, envelope in zip(roles, messages.unpack(release.sealed), strict=True):
            receiver = self.party.federation.holder(role)
            message_id = f"release.{step}.{self.party.name}.{role}"
            await self.link.publish(self.party.subject_to(receiver), envelope, message_id)
        await asyncio.to_thread(self.silo.store.acknowledged, self.silo.term.number, step)

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

    async def _sends(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            if self._leads and await self._is_greeted():
                await self.send()

    async def _is_greeted(self) -> bool:
        """Whether the analyzer has shown the same plan, to this worker or another one."""
        if not self._greeted:
            self._greeted = await asyncio.to_thread(self.silo.store.recall, self._greeting) is not None
        return self._greeted

    @property
    def _greeting(self) -> str:
        return f"{GREETED} {self.plan.hash}"
