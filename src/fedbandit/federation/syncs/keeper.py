"""What mixer and analyzer have in common: they collect messages for a sync, close it once, and publish its result."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from fedbandit.federation.exact.exact_noise import ExactNoise
from fedbandit.federation.setup.agreement import Agreement
from fedbandit.federation.setup.editions import Edition
from fedbandit.federation.setup.party import TIMELESS, Outdated, Party
from fedbandit.federation.setup.registrar import ASK_AGAIN, Registrar
from fedbandit.federation.states import SyncEvent, SyncState
from fedbandit.federation.store.seen import SeenStore
from fedbandit.federation.store.sync_store import StoredSync, SyncStore
from fedbandit.federation.syncs.deadlines import Deadlines
from fedbandit.federation.syncs.progress import Progress
from fedbandit.federation.syncs.taken import Sighting, Taken
from fedbandit.federation.telemetry import traces
from fedbandit.federation.telemetry.troubles import Troubles
from fedbandit.federation.timing import ClockJumped, SteadyClock
from fedbandit.federation.wire import heads
from fedbandit.federation.wire.envelopes import FORMAT, Context, EnvelopeError
from fedbandit.federation.wire.heads import NO_QUESTION, NONE, Greeting, Head
from fedbandit.federation.wire.keys import PublicKeys
from fedbandit.federation.wire.link import Carrier, MessageTooLarge
from fedbandit.federation.wire.messages import MessageError
from fedbandit.federation.wire.refused import Refused
from fedbandit.federation.wire.repeats import Repeats

__all__ = ["SyncKeeper", "Witnesses"]

log = logging.getLogger(__name__)
LOOK = 0.1  # seconds between checks of the deadline
RETRY = 0.5  # seconds until the store is tried again


class Witnesses(NamedTuple):
    """Who is asked how far they have seen a party come."""

    parties: tuple[PublicKeys, ...]
    answers: int  # so many of them must answer


class SyncKeeper(ABC):
    """Closes syncs in order, each once. Only what is on disk decides, so it may be killed at any moment.

    Before it closes any sync, it asks others how far they have seen it come. If they have seen more than its own store
    has, the store was put back to an older state, and it closes nothing: a second total or model of a sync would reveal
    what the first one hides. Once brought forward (`give_up`), it leaves those syncs out and goes on.

    No message ends the process. One that cannot be used is refused and counted, and is not delivered again.
    """

    def __init__(
        self,
        party: Party,
        store: SyncStore,
        link: Carrier,
        *,
        clock: Callable[[], float] | None = None,
        steady: Callable[[], float] = time.monotonic,
        refused: Refused | None = None,
    ) -> None:
        """`clock` is the public time, `steady` a clock that nobody sets; `refused` counts what is refused."""
        self.party, self.store, self.link = party, store, link
        self.plan = party.agreement.plan
        party.roll.tie(store.remember, store.recall)
        self.noise = ExactNoise()
        self.ahead: Head | None = None  # its own head, if others have seen one that its store does not have
        self._clock, self._steady = clock or SteadyClock().now, steady
        self.refused = refused or Refused()
        self.registrar = Registrar(party, self.refused)
        self.problem = self.registrar.problem  # why it refuses to go on, if it does
        self._question = secrets.token_bytes(len(NO_QUESTION))
        self._answered, self._heard = set[str](), False
        self.deadlines = Deadlines(party, store, self._clock, steady)
        self._advancing = asyncio.Lock()
        self._outdated: list[str] = []  # parties that do not know the newest edition of the members
        self._complained = ""  # the reason that was last written to the store
        self._failing: dict[str, tuple[str, str]] = {}  # by what was tried: kind and text of the trouble
        self.elsewhere: set[str] = set()  # parties whose last greeting was under another plan
        self._unanswered: set[tuple[int, str]] = set()  # a sync, and a party that has just sent something for it
        self._repeats: Repeats[tuple[int, str]] = Repeats(self.agreement.timing.deadline, steady)
        store.bind(self.plan.hash)
        store.complain(self.problem or "")
        self.progress = Progress.of(store.all(), lambda sync: self.party.at(sync).silos)
        self.seen = SeenStore(store.engine, "", self.plan.reach if self.plan.endless else None)

    # -- what a mixer and an analyzer do differently ---------------------------------------------------------------

    @abstractmethod
    def accept(self, context: Context, payload: bytes) -> Taken:
        """The content of a verified message of this plan; raises if anything is wrong with it. It stores nothing."""

    @abstractmethod
    def close(self, sync: int, late: bool) -> SyncEvent | None:
        """Close the sync and store its result if it is time. Returns the event that closed it, or None."""

    @abstractmethod
    async def publish(self, closed: StoredSync, only: str | None = None) -> None:
        """Send a sync's stored result to all its receivers, or again to `only` one of them."""

    @abstractmethod
    async def lost(self, given_up: StoredSync, only: str) -> None:
        """Answer a party that waits for the result of a sync which was given up here."""

    @abstractmethod
    async def supply(self, sender: PublicKeys, sync: int, question: bytes) -> None:
        """Help a party that says, with a question, that it lacks the result of a sync."""

    @property
    @abstractmethod
    def asks(self) -> Witnesses:
        """Who is asked how far this party has come."""

    async def prepare(self, sync: int, late: bool) -> None:  # noqa: B027 (a mixer has nothing to say)
        """Tell others what they must know before the sync can be closed."""

    # -- work -------------------------------------------------------------------------------------------------------

    @property
    def agreement(self) -> Agreement:
        """The federation with its newest members."""
        return self.party.agreement

    async def adopt(self, editions: Iterable[Edition]) -> None:
        """Take in new editions of the members, and make sure that others hear of them."""
        before = self.party.roll.number
        await self._patiently(lambda: self._adopt(editions))
        if self.party.roll.number > before or self.registrar.lacks():
            await self.spread(before)

    def _adopt(self, editions: Iterable[Edition]) -> None:
        self.registrar.adopt(editions)
        if self.registrar.problem is not None:
            self._refuse(self.registrar.problem)

    async def spread(self, before: int) -> None:
        """Let others hear of the editions after this one, by a greeting that says which edition is here."""
        for receiver in self.asks.parties:
            await self.registrar.introduce(self.link, receiver, before)
            await self._greet(receiver)

    @property
    def troubles(self) -> Troubles:
        """All reasons why it does not close syncs, by kind."""
        found = dict(self._failing.values())
        if self.problem is not None:
            found["behind"] = self.problem
        elif not self.answered:
            found["others"] = self._unheard
        try:
            self._clock()
        except ClockJumped as error:
            found["clock"] = str(error)
        return found

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """The silos that have sent nothing for the next sync although it is due; none if silos do not send here."""
        direct = self.party.public.role in self.agreement.subjects.receivers
        return self.deadlines.waiting_for if direct else ()

    @property
    def answered(self) -> bool:
        """Whether enough others have said how far they have seen this party come. Once true, it stays true."""
        self._heard = self._heard or len(self._answered) >= self.asks.answers
        return self._heard

    @property
    def ready(self) -> bool:
        """Whether enough others have said how far they have seen this party come, and it has no problem."""
        return self.problem is None and self.answered

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.link.read(self.party.consumer, self.handle))
            tasks.create_task(self._watch())
            tasks.create_task(self._ask())

    async def handle(self, envelopes: list[bytes]) -> None:
        """Take in a bundle of messages, then close the syncs that can be closed. Returns when both are done."""
        await self.take(envelopes)
        await self._undeterred(self.advance)

    async def take(self, envelopes: list[bytes]) -> None:
        """Take in a bundle of messages and close nothing. Messages after an edition of the members are judged by it."""
        taken: list[Taken] = []
        for message in filter(None, map(self._opened, envelopes)):
            if message.edition is None:
                taken.append(message)
                continue
            await self._take_in(taken)
            taken = []
            await self.adopt([message.edition])
        await self._take_in(taken)
        outdated, self._outdated = self._outdated, []
        for name in outdated:
            await self._tell(name, 0)

    async def _take_in(self, taken: Sequence[Taken]) -> None:
        await self._patiently(lambda: self._keep(taken))
        self._unanswered |= {(m.arrived.sync, m.arrived.sender) for m in taken if m.arrived is not None}
        for message in taken:
            if message.greeting is not None:
                await self._greeted(message.context, message.greeting)

    async def advance(self) -> None:
        """Close syncs in order, as long as the next one can be closed."""
        async with self._advancing:
            self._explain()
            if not self.ready:
                return
            for closed in self.store.unpublished():
                await self._publish(closed)
            await self._answer_again()
            while (sync := self.store.next_sync()) < len(self.plan.ticks):
                late = self.deadlines.passed(sync)
                await self.prepare(sync, late)
                if not await self._finish(sync, late):
                    return

    async def _finish(self, sync: int, late: bool) -> bool:
        """Close a sync if it is time, and publish its result."""
        if self.close(sync, late) is None:
            return False
        with traces.span("publish sync", sync=sync, role=self.party.public.role):
            await self._publish(self.store.at(sync))
        return True

    def give_up(self) -> list[int]:
        """Give up the syncs whose results others have seen and this store does not have: they count as over, and the
        next one follows the result that was seen. Returns the syncs that were given up."""
        if self.ahead is None:
            return []
        given_up = self.store.give_up(self.ahead, self.state_after(self.ahead.length))
        self.ahead = self.problem = None
        self.store.complain("")
        self.progress = Progress.of(self.store.all(), lambda sync: self.party.at(sync).silos)
        return given_up

    def state_after(self, syncs: int) -> bytes | None:
        """The decoder's state after this many syncs, without those that have no result here; None if no decoder."""
        return None

    async def _answer_again(self) -> None:
        """Send the result of a sync again to parties that still send something for it: they have not got it. If it was
        given up here, say so."""
        unanswered, self._unanswered = sorted(self._unanswered), set()
        for sync, sender in unanswered:
            closed = self.store.at(sync)
            asked = (sync, sender)
            if closed.state is SyncState.PUBLISHED and self._repeats.due(asked):
                await self.publish(closed, only=sender)
                self._repeats.done(asked)
            elif closed.state is SyncState.GIVEN_UP and (not self._repeats.said(asked) or self._repeats.due(asked)):
                await self.lost(closed, only=sender)
                self._repeats.done(asked)

    def own(self) -> Head:
        """This party's own head, after the syncs that it has closed."""
        return self.store.head(self.store.next_sync() - 1)

    def next_head(self, sync: int, content: bytes) -> Head:
        """The head after a sync with this result."""
        return self.party.signed(sync + 1, heads.link(self.previous(sync), content))

    def previous(self, sync: int) -> bytes:
        """The hash that the result of a sync follows; the first one follows the federation and its plan."""
        if sync:
            return self.store.head(sync - 1).hash
        return heads.link(bytes(32), f"{self.agreement.id} {self.plan.hash}".encode())

    def _opened(self, envelope: bytes) -> Taken | None:
        """The content of a message; None if it is refused. Any error that its bytes cause in reading them ends here."""
        try:
            context, payload = self.party.open(envelope)
            if context.kind == "greeting":
                return self._read_greeting(context, Greeting.decode(payload))
            if context.kind == "members":
                return Taken(context, edition=Edition.decode(payload))
            if context.sync >= len(self.plan.ticks):
                raise MessageError(f"the plan has no sync {context.sync}")
            return self._timely(self.accept(context, payload))
        except Outdated as error:
            self._outdated.append(error.context.sender)
            self.refused.note(error)
            return self._heads(error.context, error.payload)
        except Exception as error:  # deliberately broad, RecursionError and MemoryError included
            self.refused.note(error)
            return None

    def _heads(self, context: Context, payload: bytes) -> Taken | None:
        """The heads in a message under replaced keys. Its signer, which has not heard of its new keys, has come as far
        as they say, and must not do any of it again if its store is put back."""
        with contextlib.suppress(Exception):
            if context.kind not in TIMELESS and context.sync < len(self.plan.ticks):
                return Taken(context, sightings=self.accept(context, payload).sightings)
        return None

    def _timely(self, taken: Taken) -> Taken:
        """The message, or only its heads if it comes before its time. No matter whose clock is wrong, the signer of the
        heads has come as far as they say, and must be told so if its store is put back."""
        try:
            self.deadlines.check(taken.context.sync)
        except EnvelopeError as error:
            self.refused.note(error)
            return Taken(taken.context, sightings=taken.sightings)
        return taken

    def _read_greeting(self, context: Context, greeting: Greeting) -> Taken:
        """A greeting, with the head of the models that its sender has, if it is under this plan."""
        if greeting.models == NONE or self.party.differs(context) is not None:
            return Taken(context, greeting=greeting)
        analyzer = self.agreement.holder("analyzer").name
        models = self._checked(analyzer, greeting.models)
        return Taken(context, sightings=(Sighting(analyzer, models.length, models),), greeting=greeting)

    def _keep(self, taken: Sequence[Taken]) -> None:
        """Write messages to disk. Heads come first: a party that was put back, and asks when only some of this is on
        disk, must hear how far it was seen."""
        sightings = [sighting for message in taken for sighting in message.sightings]
        others = [sighting for sighting in sightings if sighting.party != self.party.name]
        keepers = [party.name for party in self.agreement.parties if party.role != "silo"]
        for party in self.seen.note(others, every=keepers):
            self._contradicted(party)
        for sighting in sightings:
            if sighting.party == self.party.name:
                self._compare(sighting.head)
        self.store.receive([message.arrived for message in taken if message.arrived is not None])

    def _checked(self, name: str, head: Head) -> Head:
        """The head of a mixer's or an analyzer's chain, if that party signed it and the plan has that many syncs."""
        if head.length > len(self.plan.ticks):
            raise MessageError(f"the head of {name} counts {head.length} syncs; the plan has {len(self.plan.ticks)}")
        return self.party.checked(name, head)

    def _contradicted(self, party: str) -> None:
        """Report a party that has signed two different heads of the same place."""
        if all(known.role == "silo" for known in self.party.roll.keys_of(party)):
            log.error("%s has drawn a release twice: it has signed two ledgers of the same length", party)
            return
        self._refuse(f"{party} has told different parties different things: it has signed two heads of the same length")

    # -- greetings --------------------------------------------------------------------------------------------------

    async def greet(self) -> None:
        """Greet everybody who has not answered yet, so that parties under another plan or format notice, and ask how
        far they have seen this party come."""
        for receiver in self._greets():
            if receiver.name not in self._answered:
                await self.registrar.introduce(self.link, receiver)
                await self._greet(receiver, question=self._question)

    async def _ask(self) -> None:
        """Ask again and again, until enough have answered."""
        while True:
            if not self.ready:
                await self._undeterred(self.greet)
            await asyncio.sleep(ASK_AGAIN)

    def _greets(self) -> tuple[PublicKeys, ...]:
        """The parties that are greeted at the start."""
        return self.asks.parties

    async def _greet(self, receiver: PublicKeys, *, question: bytes = NO_QUESTION, answer: bytes = NO_QUESTION) -> None:
        await self.registrar.greet(self.link, receiver, self._greeting(receiver, question, answer))

    async def say_lacks(self, receiver: PublicKeys, sync: int, times: str) -> None:
        """Tell a party that this one has no result of a sync; `times` is different each time."""
        greeting = self._greeting(receiver, NO_QUESTION, NO_QUESTION)._replace(lacks=sync)
        await self.registrar.greet(self.link, receiver, greeting, again=times)

    def _greeting(self, receiver: PublicKeys, question: bytes, answer: bytes) -> Greeting:
        seen = self.seen.of(receiver.name)
        return Greeting(FORMAT, FORMAT, question, answer, seen.syncs, seen.head, self.own())

    async def _greeted(self, context: Context, greeting: Greeting) -> None:
        """Answer a question; note an answer to this party's own question."""
        mismatch, sender = self.party.differs(context), self.party.roll.keys_of(context.sender)[0]
        (self.elsewhere.discard if mismatch is None else self.elsewhere.add)(sender.name)
        if greeting.answer == self._question:
            # An analyzer that still works under the plan of a term that is over here is late, or was put back: it is
            # asked again until it comes.
            if mismatch is not None and sender.role == "analyzer" and not self.store.has_ended(context.plan):
                raise mismatch
            if mismatch is None and greeting.reads(FORMAT):
                await self._patiently(lambda: self._take_answer(sender, greeting))
        if mismatch is None:
            await self._compare_members(sender, greeting)
            if greeting.lacks is not None and greeting.lacks < len(self.plan.ticks) and self._is_member(sender):
                await self.supply(sender, greeting.lacks, greeting.question)
        if greeting.question != NO_QUESTION and self._can_tell(sender):
            await self.answer(sender, greeting)

    async def _compare_members(self, sender: PublicKeys, greeting: Greeting) -> None:
        """Send newer editions of the members to a sender who has older ones. Greet a sender who has newer ones: it then
        sees which are missing here."""
        if not self._can_tell(sender):
            return
        if (after := self.registrar.behind(greeting)) is not None:
            await self._tell(sender.name, after)
        elif self.registrar.ahead(greeting):
            await self._greet(sender)

    async def _tell(self, name: str, after: int) -> None:
        """Pass on the editions after number `after` to a member or former member, if this party may send to it."""
        receiver = self.party.roll.keys_of(name)[0]
        if self._can_tell(receiver):
            await self.registrar.tell(self.link, receiver, after)

    async def answer(self, sender: PublicKeys, greeting: Greeting) -> None:
        """Answer a question: say how far the sender was seen to have come."""
        await self._greet(sender, answer=greeting.question)

    def _take_answer(self, sender: PublicKeys, greeting: Greeting) -> None:
        """Compare what the sender has seen with this store. While the sender has newer editions of the members, its
        answer is not counted: there may be others who must be asked."""
        try:
            self._compare(self.party.checked(self.party.name, greeting.seen))
            if sender in self.asks.parties and not self.registrar.ahead(greeting):
                self._answered.add(sender.name)
        except MessageError as error:
            self.refused.note(error)

    def _is_member(self, party: PublicKeys) -> bool:
        return self.agreement.member(party.name) is not None

    def _can_tell(self, receiver: PublicKeys) -> bool:
        """Whether this party may send to the receiver."""
        return receiver.role != self.party.public.role

    def _compare(self, seen: Head) -> None:
        """Compare what others have seen of this party with its own store."""
        closed, role = self.store.next_sync(), self.party.public.role
        if seen.length > closed:
            self._refuse(
                f"this store is behind: it has closed {closed} syncs, and others have seen {seen.length}. It is an old"
                " copy, or empty. Nothing is closed from it, as a second result of a sync would reveal what the first"
                " one hides. Put the newest copy in its place, or bring this one forward, which gives those syncs up:"
                f" stop it and run `fedbandit {role} forward`"
            )
            self.ahead = seen if self.ahead is None or seen.length > self.ahead.length else self.ahead
        elif seen.length and self.store.head(seen.length - 1).hash not in (heads.NONE.hash, seen.hash):
            self._refuse(
                f"others have seen another result of sync {seen.length - 1} than the one in this store, and two results"
                " of one sync cannot be reconciled. Put the store that they know in its place, or end the term: the"
                " founder begins a new one with `fedbandit federation renew`"
            )

    def _refuse(self, problem: str) -> None:
        if self.problem is None:
            log.error("refusing to go on: %s", problem)
            self.store.complain(problem)
        self.problem = problem

    # -- the rest ---------------------------------------------------------------------------------------------------

    async def _publish(self, closed: StoredSync) -> None:
        await self.publish(closed)
        self.store.published(closed.sync)
        if self.plan.endless:
            self.store.prune(closed.sync - self.plan.reach)
        for party in self.agreement.parties:
            self._repeats.done((closed.sync, party.name))
        self.progress.note(closed, self._steady(), self.party.at(closed.sync).silos)
        line = {"sync": closed.sync, "silos": len(closed.cohort), "skipped": closed.state is SyncState.SKIPPED}
        if closed.state is SyncState.SKIPPED:
            log.warning("sync %d skipped: too few silos in time", closed.sync, extra=line)
        else:
            log.info("sync %d done: %d silos", closed.sync, len(closed.cohort), extra=line)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            await self._undeterred(self.advance)

    def _explain(self) -> None:
        """Write to the store why nothing is closed; the status of this party shows it."""
        waiting = "" if self.answered else self._unheard
        if (reason := self.problem or waiting) != self._complained:
            self.store.complain(reason)
            self._complained = reason

    @property
    def _unheard(self) -> str:
        names = ", ".join(sorted(party.name for party in self.asks.parties if party.name not in self._answered))
        return f"nothing is closed until others have said how far they have seen this party come: {names}"

    async def _undeterred(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do work that may fail because of the store or the broker, and that is done again at the next look. Neither a
        full disk nor a message that is too large ends the process."""
        try:
            await work()
            self._failing.pop("closing", None)
        except Exception as error:
            self._failing["closing"] = _failure(error)
            log.error("%s: %s; trying again", type(error).__name__, error)
            await asyncio.sleep(RETRY)

    async def _patiently(self, work: Callable[[], None]) -> None:
        """Do work that only the store can make fail, and try again until it works: a full disk loses no message."""
        while True:
            try:
                work()
                self._failing.pop("taking", None)
                return
            except Exception as error:
                self._failing["taking"] = _failure(error)
                log.error("storing messages: %s: %s; trying again", type(error).__name__, error)
                await asyncio.sleep(RETRY)


def _failure(error: Exception) -> tuple[str, str]:
    """The kind and the text of an error from the store, or from a broker that refuses a message as too large."""
    return "size" if isinstance(error, MessageTooLarge) else "store", f"{type(error).__name__}: {error}"
