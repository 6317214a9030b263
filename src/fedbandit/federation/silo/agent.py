"""A silo's side of the federation: it ticks, sends the releases that were drawn, and takes in the models."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from fedbandit.federation.setup.editions import Edition
from fedbandit.federation.setup.party import Outdated, Party
from fedbandit.federation.setup.registrar import Registrar
from fedbandit.federation.silo import book
from fedbandit.federation.silo.greetings import Greetings
from fedbandit.federation.silo.outgoing import Sealer
from fedbandit.federation.silo.serving import OutcomeConflict, Silo
from fedbandit.federation.silo.silo_status import HALTED, PROBLEM, TROUBLES
from fedbandit.federation.silo.ticker import SumsFull
from fedbandit.federation.states import IllegalEvent, ReleaseState
from fedbandit.federation.store.seen import SeenStore
from fedbandit.federation.telemetry import traces
from fedbandit.federation.telemetry.troubles import Troubles, first
from fedbandit.federation.timing import TicksHeld
from fedbandit.federation.wire import heads, messages
from fedbandit.federation.wire.envelopes import Context
from fedbandit.federation.wire.heads import Greeting, Head
from fedbandit.federation.wire.keys import PublicKeys
from fedbandit.federation.wire.link import Link, MessageTooLarge
from fedbandit.federation.wire.messages import MessageError
from fedbandit.federation.wire.parcels import Outcome, SignedOutcome
from fedbandit.federation.wire.refused import Refused
from fedbandit.federation.wire.repeats import Repeats

__all__ = ["Agent"]

log = logging.getLogger(__name__)
LOOK = 0.05  # seconds between looks at the calendar, if the calendar does not say when the next tick is due
LEAD = 1.0  # seconds between checks of which worker leads
RETRY = 0.5  # seconds until the store is tried again
TIDY = 30.0  # seconds after a release until raw rows are cleared from the files and the next noise is drawn, at most
TIDY_AFTER_SYNC = 2.0  # the same after the end of a sync: models come first, also at other silos on this machine


class _Taken(NamedTuple):
    """A verified message: its context and its content."""

    context: Context
    content: Greeting | SignedOutcome | Edition | Head


class _Known(NamedTuple):
    """What a new model is checked against: the head of the analyzer's models so far, and the open sync."""

    head: Head
    open_sync: int


class Agent:
    """Runs next to the service of a silo and takes part in the federation for it.

    Nothing is drawn or sent until every receiver of releases has shown that it has the same plan and reads the same
    format, and has said how far it has seen this silo come: no further than the silo's own store.
    """

    def __init__(
        self, silo: Silo, party: Party, sealer: Sealer, *, steady: Callable[[], float] = time.monotonic
    ) -> None:
        """`steady` is a clock that nobody sets."""
        self.silo, self.party, self.plan, self._steady = silo, party, silo.plan, steady
        self.link: Link | None = None  # None until the broker has answered
        self.seen = SeenStore(silo.store.engine, self.plan.hash[:16])
        self._sealer = sealer
        self._clock_problem: str | None = None
        self._clock_kind = "clock"  # the kind of that problem, one of `troubles.KINDS`
        self._unsent: MessageTooLarge | None = None  # the message that the broker refuses as too large
        self._outdated: set[str] = set()  # parties that do not know the newest edition of the members
        self._leads = False
        self._told: dict[str, str] | None = None  # the problems that were last written to the store
        self._leaders: Troubles | None = None  # those of the worker that leads; None if this one does, or nobody knows
        self._passed_on: str | None = None  # why this worker halted, as it has told the one that leads
        self._tidy_at = 0.0  # a process that was killed may have left raw rows in the files
        self.refused = Refused()
        self.registrar = Registrar(party, self.refused)
        self.greetings = Greetings(silo, party, sealer, self.seen, self.registrar, steady)
        party.roll.tie(silo.store.remember, silo.store.recall)
        self._repeats: Repeats[int] = Repeats(party.agreement.timing.deadline, steady)
        self._news = asyncio.Event()
        sealer.watch(lambda: self.seen.of(self._analyzer.name).head)

    @property
    def _analyzer(self) -> PublicKeys:
        return self.party.agreement.holder("analyzer")

    async def adopt(self, editions: Iterable[Edition]) -> None:
        """Take in new editions of the members, and greet the others, so that they hear of these editions too."""
        before = self.party.roll.number
        await asyncio.to_thread(self.registrar.adopt, list(editions))
        if self.registrar.problem is not None:
            self._sealer.halt(self.registrar.problem)
        if self.party.roll.number > before or self.registrar.lacks():
            for receiver in self._sealer.receivers:
                await self.registrar.introduce(self.link, receiver, before)
                await self.greetings.greet(self.link, receiver)
        self._news.set()

    @property
    def _dismissed(self) -> str | None:
        """Why this silo takes no part in the open sync: it is no longer a member, or lacks the keys that the others
        know. It goes on serving, and draws nothing."""
        sync = self.silo.ticker.open_sync
        if self.silo.ended or self.party.takes_part(sync):
            return None
        if self.party.is_member(sync):
            return f"from sync {sync} on the others know this silo by keys that it does not have: it draws nothing"
        return f"this silo is not a member of the federation from sync {sync} on: it decides by the last model it has"

    @property
    def problem(self) -> str | None:
        """The first reason why the silo does not tick or draw although the term runs; None if it does."""
        return first(self.troubles)

    @property
    def troubles(self) -> Troubles:
        """All reasons why the silo does not tick or draw, by kind: those of the worker that leads, which alone ticks
        and draws, and what this worker itself found out about the store and the models."""
        if self._leaders is None:
            return self._own_troubles
        own = {"store": self._clock_problem, "behind": self._sealer.halted}
        return {**self._leaders, **{kind: says for kind, says in own.items() if says is not None}}

    @property
    def _own_troubles(self) -> dict[str, str]:
        found = {
            self._sealer.kind: None if self.silo.ended else self._sealer.held,
            self._clock_kind: self._clock_problem,
            "size": self._unsendable,
            "behind": self._sealer.halted,
            "members": self._dismissed,
        }
        return {kind: says for kind, says in found.items() if says is not None}

    @property
    def _unsendable(self) -> str | None:
        return None if self._unsent is None else str(self._unsent)

    @property
    def connected(self) -> bool:
        """Whether the broker can be reached now."""
        return self.link is not None and bool(self.link.client.is_connected)

    async def run(self, link: Link) -> None:
        """Work over this connection until cancelled."""
        self.link = link
        self._news.set()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._ticks())
            tasks.create_task(self._asks())
            tasks.create_task(self._sends(link))
            tasks.create_task(link.read(self.party.consumer, self.handle))

    async def introduce(self, link: Link) -> None:
        """Ask over this connection how far the others have seen this silo come; `judge` looks at the answers."""
        self.link = link
        await self.greetings.ask(link)

    async def handle(self, envelopes: list[bytes]) -> None:
        """Take in the outcomes of syncs, greetings and editions; return when all of them are dealt with."""
        for envelope in envelopes:
            taken = self._opened(envelope, await self._known())
            if taken is None:
                continue
            if isinstance(taken.content, Greeting):
                await self.greetings.take_in(self.link, taken.context, taken.content)
            elif isinstance(taken.content, Edition):
                await self.adopt([taken.content])
            elif isinstance(taken.content, Head):
                await asyncio.to_thread(self.seen.note, [(self._analyzer.name, taken.content.length, taken.content)])
            else:
                with traces.span("learn", sync=taken.context.sync):
                    await self._learn(taken.context.sync, taken.content)
        for receiver in self._sealer.receivers:
            if self.link is not None and receiver.name in self._outdated:
                await self.registrar.tell(self.link, receiver)
        self._outdated.clear()
        self._news.set()

    async def tick(self) -> None:
        """Do what the calendar says is due. Do nothing while the clock cannot be trusted, or once the sums are full."""
        try:
            released = await self._release() if self.silo.ticker.due() else []
            self._clock_problem = None
        except (TicksHeld, SumsFull) as error:
            if self._clock_problem is None:  # this runs several times per second, so it is logged once
                log.warning("%s", error)
            self._clock_problem, self._clock_kind = str(error), "clock" if isinstance(error, TicksHeld) else "sums"
            return
        if released:
            self._news.set()
            self._tidy_at = min(self._tidy_at, self._steady() + TIDY)
        elif self._steady() > self._tidy_at:
            done = await asyncio.to_thread(self.silo.ticker.tidy)
            self._tidy_at = math.inf if done else self._steady() + TIDY_AFTER_SYNC

    async def _release(self) -> list[int]:
        with traces.span("tick", sync=self.silo.ticker.open_sync):
            return await asyncio.to_thread(self.silo.ticker.release)

    async def send(self, link: Link) -> None:
        """Seal the releases that can be sealed now; publish the sealed ones in order, and again those that were sent
        some time ago and have no outcome yet."""
        sealed, sent = await asyncio.to_thread(self._sendable)
        for sync in sealed:
            await asyncio.sleep(self.silo.ticker.wait_to_send(sync))
            await self._publish(link, sync)
        for sync in sent:
            if self._repeats.due(sync):
                await self._publish(link, sync)

    def _sendable(self) -> tuple[list[int], list[int]]:
        """Seal the releases that can be sealed now. Returns the syncs whose releases are sealed, and those whose
        releases were sent."""
        store, term = self.silo.store, self.silo.term.number
        if store.in_state(term, ReleaseState.DRAWN):
            self._seal_drawn()
        return store.in_state(term, ReleaseState.SEALED), store.in_state(term, ReleaseState.SENT)

    # -- messages ---------------------------------------------------------------------------------------------------

    async def _known(self) -> _Known:
        """How far the analyzer and this silo have come. It tries again until the store answers, because a message must
        not be refused on account of the store. Decisions go on meanwhile."""
        while True:
            try:
                return await asyncio.to_thread(self._look_up)
            except Exception as error:
                log.error("a message waits for the store: %s: %s; trying again", type(error).__name__, error)
                await asyncio.sleep(RETRY)

    def _look_up(self) -> _Known:
        head = self.seen.of(self._analyzer.name).head
        return _Known(head, self.silo.store.term(self.silo.term.number).open_sync)

    def _opened(self, envelope: bytes, known: _Known) -> _Taken | None:
        """The content of a message; None if it is refused. Any error that its bytes cause in reading them ends here."""
        try:
            context, payload = self.party.open(envelope)
            if context.kind == "greeting":
                return _Taken(context, Greeting.decode(payload))
            if context.kind == "members":
                return _Taken(context, Edition.decode(payload))
            return _Taken(context, self._model(context, payload, known))
        except Exception as error:  # deliberately broad, RecursionError and MemoryError included
            self.refused.note(error)
            return self._outdated_model(error) if isinstance(error, Outdated) else None

    def _outdated_model(self, error: Outdated) -> _Taken | None:
        """The head of a model that came under replaced keys: it shows how far the analyzer has come."""
        self._outdated.add(error.context.sender)
        with contextlib.suppress(Exception):
            if error.context.kind == "model" and error.context.sender == self._analyzer.name:
                model = SignedOutcome.decode(error.payload, self.plan)
                return _Taken(error.context, self.party.checked(self._analyzer.name, model.head))
        return None

    def _model(self, context: Context, payload: bytes, known: _Known) -> SignedOutcome:
        """A model of the analyzer, checked: it follows the models before it, is not early, and can be used."""
        sync, last = context.sync, known.head
        if context.kind != "model" or context.sender != self._analyzer.name or sync >= self.silo.syncs:
            raise MessageError(f"a silo takes models from the analyzer, not {context.kind!r} from {context.sender}")
        model = SignedOutcome.decode(payload, self.plan)
        self.party.checked(self._analyzer.name, model.head)
        if model.head.length != sync + 1:
            raise MessageError(f"the head of model {sync} counts {model.head.length} models")
        if sync > last.length and sync >= known.open_sync:
            raise MessageError(f"model {sync} is early: model {last.length} is next")
        first = heads.link(bytes(32), f"{self.party.agreement.id} {self.plan.hash}".encode())
        if last.length == sync and model.previous != (last.hash if sync else first):
            self._sealer.halt(
                f"the analyzer's model {sync} does not follow the models it has sent: it has told two stories"
            )
            raise MessageError("the model does not follow the ones before it")
        self.silo.fitted(sync, model.outcome.prefix)  # fails if the model cannot be used
        return model

    async def _learn(self, sync: int, model: SignedOutcome) -> None:
        """Store a model and decide by it. Only the store can fail here, and this tries again until it works."""
        included = self.party.name in self.party.at(sync).counted(model.outcome.cohort)
        while True:
            try:
                await asyncio.to_thread(self._keep, sync, model, included)
            except OutcomeConflict as error:
                self.refused.note(error)
                self._sealer.halt(f"the analyzer has sent two models of sync {sync}")
            except IllegalEvent as error:
                self.refused.note(error)
                self._sealer.halt(
                    f"model {sync} counts a release that this store has not sent: it was put back to an old copy"
                )
            except Exception as error:
                log.error("storing model %d: %s: %s; trying again", sync, type(error).__name__, error)
                await asyncio.sleep(RETRY)
                continue
            self._tidy_at = min(self._tidy_at, self._steady() + TIDY_AFTER_SYNC)
            self._say(sync, model.outcome, included)
            if not included or sync == self.silo.syncs - 1:
                await self._tell_models()
            return

    def _say(self, sync: int, outcome: Outcome, included: bool) -> None:
        """Log one line per sync."""
        word = "skipped" if outcome.skipped else "done, with this silo" if included else "done, without this silo"
        counted = int(np.count_nonzero(outcome.cohort))
        line = {"sync": sync, "silos": counted, "included": included, "model": self.silo.version}
        log.info("sync %d %s: model %d", sync, word, self.silo.version, extra=line)

    def _keep(self, sync: int, model: SignedOutcome, included: bool) -> None:
        """Store a model and its head in one transaction: an analyzer that was put back to an old copy must hear of it
        when it asks. Of a model that is refused, only the head is stored."""
        if included and not self.silo.store.closed(self.silo.term.number, sync):
            self._sealer.halt(
                f"model {sync} counts a release that this store never made: it was put back to an old copy"
            )
        sightings = [(self._analyzer.name, sync + 1, model.head)]
        try:
            self.silo.learn(sync, model.outcome, included, lambda sql: self.seen.note_within(sql, sightings))
        except IllegalEvent:
            self.seen.note(sightings)
            raise

    async def _tell_models(self) -> None:
        """Tell the mixer which models this silo has. Releases say so too; this is for when its releases may not get
        there, or when no more will follow."""
        for receiver in self._sealer.receivers:
            if receiver.role == "mixer":
                await self.greetings.greet(self.link, receiver)

    # -- greetings --------------------------------------------------------------------------------------------------

    async def _asks(self) -> None:
        """Ask the receivers of releases how far they have seen this silo come, until all of them have answered."""
        while True:
            self.greetings.answered.clear()
            if self._leads and self._sealer.held not in (None, self._unsendable) and self._sealer.halted is None:
                await self.greetings.ask(self.link)
                await self.judge()
            with contextlib.suppress(TimeoutError):
                # If workers share a store, another worker may have received the answer. (`wait_for` would lose a
                # cancellation that comes together with the answer.)
                async with asyncio.timeout(LEAD if self._leads else LOOK):
                    await self.greetings.answered.wait()

    async def judge(self) -> None:
        """Allow drawing once all have answered and none has seen more of this silo than the silo itself knows."""
        if await self.greetings.judge():
            later = "" if self._clock_problem is None else " once ticks are no longer held back"
            log.info("the others have seen this silo come as far as it has: it draws releases%s", later)
            self._news.set()

    # -- releases ---------------------------------------------------------------------------------------------------

    def _seal_drawn(self) -> None:
        """Seal the releases whose message had to wait for the outcome of earlier syncs."""
        store, term = self.silo.store, self.silo.term.number
        for sync, wire in self._sealer.settled(store.releases(term), lambda sync: book.head(store.entry(term, sync))):
            store.seal(term, sync, wire)

    async def _publish(self, link: Link, sync: int) -> None:
        """Publish a release to all receivers at the same time, so that none waits for the broker to store another's."""
        release = await asyncio.to_thread(self.silo.store.release, self.silo.term.number, sync)
        assert release is not None
        assert release.sealed is not None

        async def send(receiver: PublicKeys, envelope: bytes) -> None:
            message_id = f"release.{sync}.{self.party.name}.{receiver.role}{self._repeats.suffix(sync)}"
            await link.publish(self.party.subject_to(receiver), self.party.resigned(sync, envelope), message_id)

        envelopes = zip(self._sealer.receivers, messages.unpack(release.sealed), strict=True)
        for ended in await asyncio.gather(*(send(*one) for one in envelopes), return_exceptions=True):
            if ended is not None:
                raise ended
        self._repeats.done(sync)
        await asyncio.to_thread(self.silo.store.acknowledged, self.silo.term.number, sync)

    async def _ticks(self) -> None:
        await asyncio.to_thread(self.silo.ticker.prepare)
        looked = -math.inf
        while True:
            try:
                if self._steady() - looked > LEAD:
                    looked = self._steady()
                    await self._look_around()
                if self._leads:
                    await self.tick()
            except Exception as error:  # a full disk, an unreachable database: decisions go on, ticks wait
                if self._clock_problem is None:
                    log.error("nothing ticks: %s: %s", type(error).__name__, error)
                self._clock_problem = f"the store does not work, so nothing ticks: {type(error).__name__}: {error}"
                self._clock_kind = "store"
                await asyncio.sleep(RETRY)
            await asyncio.sleep(min(LEAD, self.silo.ticker.look_in() or LOOK))

    async def _look_around(self) -> None:
        """Find out which worker leads, and what other workers of this silo have taken in."""
        if self.silo.store.engine.shared or self.silo.unwritten or self._own_troubles != self._told:
            await asyncio.to_thread(self._look)
        else:
            self._leads = True
        self._news.set()  # a release that was not sent, or has no outcome yet, may be due again

    def _look(self) -> None:
        """What `_look_around` does with the store, in one thread: changing threads costs more than most of this."""
        self._leads = self.silo.store.engine.lead()
        if self._leads:
            self._leaders = None
            if self.silo.store.engine.shared:
                self._heed()
            self._tell()
        else:
            self._leaders = self._told_by_leader()
            self._clock_problem = None  # the store has just answered, and this worker looks at nothing else
            self._pass_on()
        self.silo.flush()
        if self.silo.store.engine.shared:
            self.party.roll.refresh()
            self.silo.refresh()

    def _tell(self) -> None:
        """Write to the store why nothing ticks or is drawn; the status of this silo and its other workers show it."""
        reasons = self._own_troubles
        if reasons != self._told:
            term = self.silo.term.number
            self.silo.store.set_state(term, PROBLEM, (first(reasons) or "").encode())
            self.silo.store.set_state(term, TROUBLES, json.dumps(reasons).encode())
            self._told = reasons

    def _told_by_leader(self) -> Troubles | None:
        told = self.silo.store.state(self.silo.term.number, TROUBLES)
        return None if told is None else json.loads(told)

    def _pass_on(self) -> None:
        """Leave word of why this worker has halted for the one that leads, which alone draws. Any worker may be the one
        that takes in two models of one sync."""
        if self._sealer.halted is not None and self._sealer.halted != self._passed_on:
            self.silo.store.set_state(self.silo.term.number, HALTED, self._sealer.halted.encode())
            self._passed_on = self._sealer.halted

    def _heed(self) -> None:
        """Halt if another worker of this silo has. Whoever leads after a restart asks the others anew."""
        halted = self.silo.store.state(self.silo.term.number, HALTED)
        if halted:
            self._sealer.halt(halted.decode())
            self.silo.store.set_state(self.silo.term.number, HALTED, b"")

    async def _sends(self, link: Link) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            if self._leads and self._sealer.held in (None, self._unsendable):
                try:
                    await self._retry(link)
                    await self.send(link)
                except MessageTooLarge as error:
                    self._give_up(error)

    async def _retry(self, link: Link) -> None:
        """Send again the message that the broker refused. Nothing is drawn until the broker accepts it: the next
        release would be refused too, and would still be paid for. After that, the answers of the others
        are judged again before anything is drawn."""
        if self._unsent is not None:
            await link.publish(self._unsent.subject, self._unsent.data, self._unsent.message_id)
            self._unsent = None

    def _give_up(self, error: MessageTooLarge) -> None:
        if self._unsent is None:
            log.error("nothing more is drawn: %s", error)
        self._unsent = error
        self._sealer.hold(str(error), "size")
