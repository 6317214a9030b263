"""The analyzer A: decodes each sync once, in order, and sends model k, sealed and signed, to every silo."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import numpy as np

from fedbandit._arrays import Numbers
from fedbandit.federation.states import SyncEvent, SyncState
from fedbandit.federation.store.pruning import holds_key
from fedbandit.federation.store.sync_store import StoredSync
from fedbandit.federation.syncs.deadlines import closing
from fedbandit.federation.syncs.keeper import SyncKeeper, Witnesses
from fedbandit.federation.syncs.taken import Arrived, Sighting, Taken
from fedbandit.federation.wire import messages, parcels
from fedbandit.federation.wire.envelopes import Context
from fedbandit.federation.wire.heads import NEWEST, Greeting
from fedbandit.federation.wire.keys import PublicKeys
from fedbandit.federation.wire.messages import MessageError
from fedbandit.federation.wire.parcels import Holds, Mixed, Outcome, Parcel, SignedOutcome
from fedbandit.federation.wire.repeats import Repeats
from fedbandit.protocol.base import Message
from fedbandit.protocol.encoder import Stream

__all__ = ["Analyzer"]

log = logging.getLogger(__name__)
AT_ONCE = 64  # models that are sealed or sent at the same time: the first leave while others are sealed


class Analyzer(SyncKeeper):
    """Keeps what silos and the mixer send until the sync closes. The outcome and the decoder's state are stored in one
    transaction."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._tells: Repeats[int] = Repeats(self.agreement.timing.deadline, self._steady)  # `Holds` sent to the mixer
        self._lacking = self.store.lacking()  # by party that asks: the first sync whose result it lacks
        self._supplied: Repeats[str] = Repeats(self.agreement.timing.deadline, self._steady)

    def accept(self, context: Context, payload: bytes) -> Taken:
        sender, sync = context.sender, context.sync
        if context.kind == "mixed" and sender == self._mixer:
            totals = self._checked(sender, Mixed.decode(payload, self.plan).totals)
            sightings: tuple[Sighting, ...] = (Sighting(sender, totals.length, totals),)
        elif context.kind == "release" and sender in self.party.at(sync).silos and self._hears_silos:
            parcel = Parcel.decode(payload, self.plan.protocol, "analyzer")
            ledger, models = self.party.checked(sender, parcel.ledger), self._checked(self.party.name, parcel.models)
            sightings = (Sighting(sender, sync + 1, ledger), Sighting(self.party.name, models.length, models))
        else:
            raise MessageError(f"{sender} has no {context.kind!r} to send here")
        return Taken(context, Arrived(sync, sender, payload), sightings)

    @property
    def asks(self) -> Witnesses:
        """Who is asked how far this analyzer has come, and how many must answer.

        The silos are asked, because they have the models. As many as a cohort must answer; if the analyzer itself draws
        the noise, all members of the next sync must, because a second draw for one sync would reveal what the first one
        hides. If silos do not send to the analyzer, the mixer is asked, which hears of each model with the releases
        after it. (All that is in a model then comes from the mixer, which sends the same bytes again, so the last model
        is made again exactly as it was.)
        """
        if not self._hears_silos:
            return Witnesses((self.agreement.holder("mixer"),), 1)
        draws = self.plan.protocol.mixer_draws and self._mixer is None
        silos = self.party.at(self.store.next_sync()).silos if draws else self.agreement.silos
        enough = len(silos) if draws else self.plan.smallest_cohort
        return Witnesses(tuple(self.party.roll.keys_of(name)[0] for name in silos), enough)

    async def answer(self, sender: PublicKeys, greeting: Greeting) -> None:
        """Answer a question. A mixer that asks may have lost what it was told, so it is told again."""
        await super().answer(sender, greeting)
        if sender.name == self._mixer:
            self._tells.forget()

    async def supply(self, sender: PublicKeys, sync: int, question: bytes) -> None:
        """Note what a silo lacks that is new or was brought forward, and waits for no outcome of its own; or what the
        mixer says that silos lack. It is sent once per deadline, however often it is asked for."""
        await self._patiently(lambda: self.store.lack(sender.name, sync))
        self._lacking[sender.name] = sync

    async def lost(self, given_up: StoredSync, only: str) -> None:
        everybody = only == self._mixer and not self._hears_silos
        for name in self.party.at(given_up.sync).silos:
            if everybody or name == only:
                receiver, times = self.party.roll.keys_of(name)[0], self._repeats.suffix((given_up.sync, only))
                await self.say_lacks(receiver, given_up.sync, times)

    async def spread(self, before: int) -> None:
        """Tell everybody of the editions after this one, including parties that have just left."""
        if before == self.party.roll.number:
            await super().spread(before)
        for name in self._ever(before):
            await self._tell(name, before)

    def state_after(self, syncs: int) -> bytes | None:
        state = self._state()
        for _ in range(self.store.next_sync(), syncs):
            state = self.plan.protocol.skip(state)
        return messages.encode_stream(state)

    async def prepare(self, sync: int, late: bool) -> None:
        """Tell the mixer whose parcels are here, once and for good: when all are here, or at the deadline. A mixer that
        has already sent its total is not told, even if this store has lost what it said before."""
        if self._mixer is None or not self._hears_silos or (self._tells.said(sync) and not self._tells.due(sync)):
            return
        key, senders = holds_key(sync), self.store.senders(sync)
        if self._mixer in senders:
            return
        members = self.party.at(sync)
        if self.store.recall(key) is None and not late and not senders.issuperset(members.silos):
            return
        holds = Holds(members.cohort(senders), self.own())
        value = self.store.remember(key, holds.encode())
        mixer = self.agreement.holder("mixer")
        sealed = self.party.seal("holds", mixer, sync, value)
        await self.link.publish(self.party.subject_to(mixer), sealed, f"holds.{sync}{self._tells.suffix(sync)}")
        self._tells.done(sync)

    def close(self, sync: int, late: bool) -> SyncEvent | None:
        senders = self.store.senders(sync)
        if self._mixer is not None:
            return self._close_mixed(sync, self.store.inbox(sync)) if self._mixer in senders else None
        members = self.party.at(sync)
        senders &= set(members.silos)
        event = closing(senders, members.silos, self.plan.smallest_cohort, late)
        if event is SyncEvent.DEADLINE_SHORT:
            return self._skip(sync)
        if event is None:
            return None
        inbox = {name: value for name, value in self.store.inbox(sync).items() if name in senders}
        return self._decode(sync, event, list(inbox), lambda: self._mixed_here(inbox))

    async def publish(self, closed: StoredSync, only: str | None = None) -> None:
        """Send model k, the stored bytes, to every silo. If the mixer sends a total again, it does so for silos that
        have not heard of the outcome and can tell nobody else: then every silo is sent the model again."""
        assert closed.value is not None
        outcome, sync = Outcome.decode(closed.value, self.plan), closed.sync
        model = SignedOutcome(outcome, self.previous(sync), self.store.head(sync)).encode()

        turns = asyncio.Semaphore(AT_ONCE)

        async def send(name: str) -> None:
            async with turns:
                receiver = self.party.roll.keys_of(name)[0]
                sealed = self.party.seal("model", receiver, sync, model)
                message_id = f"model.{sync}.{name}{self._repeats.suffix((sync, name))}"
                await self.link.publish(self.party.subject_to(receiver), sealed, message_id)
                self._repeats.done((sync, name))

        everybody = only is None or (only == self._mixer and not self._hears_silos)
        silos = dict.fromkeys((*self.party.at(sync).silos, *self.agreement.silos))  # also silos that will join
        await asyncio.gather(*(send(name) for name in silos if everybody or only == name))

    async def _answer_again(self) -> None:
        await super()._answer_again()
        for name, sync in list(self._lacking.items()):
            if self._supplied.said(name) and not self._supplied.due(name):
                continue
            if name == self._mixer and sync == self.store.next_sync() and self._never_comes(sync):
                log.error("sync %d: the mixer has lost its total, which never arrived here", sync)
                self._skip(sync)
            else:
                await self._send_again(name, sync)
            self._supplied.done(name)
            if self._lacking[name] == sync:  # it may have asked for more meanwhile
                self.store.lack(name, None)
                del self._lacking[name]

    def _never_comes(self, sync: int) -> bool:
        """Whether the mixer was seen to have made its total of a sync, and the total itself is not here: it came when
        this party could not take it."""
        mixer = self.agreement.holder("mixer").name
        return self.seen.of(mixer).syncs > sync and mixer not in self.store.senders(sync)

    async def _send_again(self, name: str, sync: int) -> None:
        """Send what a party lacks: the result of this sync and the newest ones. To what the mixer asks for every silo
        listens, so that is no more than needed."""
        for closed in self._newest(sync, 1 if name == self._mixer else NEWEST):
            await self.publish(closed, only=name)
        if (given_up := self.store.at(sync)).state is SyncState.GIVEN_UP:
            await self.lost(given_up, only=name)
            self._repeats.done((sync, name))

    def _newest(self, sync: int, most: int) -> list[StoredSync]:
        """The result of this sync, the newest ones after it, and the newest one of a sync that was not skipped: with
        one of these the next term begins."""
        last = self.store.next_sync() - 1
        back = map(self.store.at, range(last, max(-1, last - self.plan.reach), -1))
        learnt = next((one.sync for one in back if one.state is SyncState.PUBLISHED and one.cohort), last)
        wanted = sorted({sync, learnt, *range(max(sync, last - most + 1), last + 1), last})
        return [one for one in map(self.store.at, wanted) if one.state is SyncState.PUBLISHED]

    def _greets(self) -> tuple[PublicKeys, ...]:
        """Everybody is greeted: parties with another plan or format must see that, and parties that were dismissed must
        hear of it, even if this party was killed before it could tell them."""
        return tuple(self.party.roll.keys_of(name)[0] for name in self._ever())

    def _ever(self, before: int = 0) -> list[str]:
        """All other parties that are members, were so at the beginning, or are named in an edition after this one."""
        names = {party.name: None for members in (self.agreement, self.party.at(0)) for party in members.parties}
        names |= {edition.name: None for edition in self.party.roll.editions[before:] if edition.name}
        return [name for name in names if name != self.party.name]

    def _close_mixed(self, sync: int, inbox: dict[str, bytes]) -> SyncEvent:
        """Close a sync with the mixer's total. The mixer has fixed the cohort, from the silos that A said it holds."""
        assert self._mixer is not None
        mixed = Mixed.decode(inbox.pop(self._mixer), self.plan)
        cohort = self.party.at(sync).counted(mixed.cohort)
        if len(cohort) < int(mixed.cohort.sum()):
            log.error("sync %d: the mixer has counted silos that are not members of it", sync)
            return self._skip(sync)
        if len(cohort) < self.plan.smallest_cohort:  # the mixer has skipped the sync, or breaks the rules
            return self._skip(sync)
        if self._hears_silos and not set(cohort) <= set(inbox):
            log.error("sync %d: the mixer has counted silos whose parcels this analyzer does not hold", sync)
            return self._skip(sync)
        return self._decode(sync, SyncEvent.COMPLETE, cohort, lambda: self._held(sync, mixed, inbox, cohort))

    def _mixed_here(self, inbox: dict[str, bytes]) -> Message:
        """The mixed parcels under a plan without a mixer: A itself does the work of S."""
        held = parcels.held_by_analyzer(self.plan.protocol, (), (), self._parcels(inbox, list(inbox)))
        return self.plan.protocol.mix(held, self.noise)

    def _held(self, sync: int, mixed: Mixed, inbox: dict[str, bytes], cohort: list[str]) -> Message:
        opened = [self._unsealed(sync, sealed) for sealed in mixed.carried]
        own = self._parcels(inbox, cohort) if self._hears_silos else []
        return parcels.held_by_analyzer(self.plan.protocol, mixed.arrays, opened, own)

    def _parcels(self, inbox: dict[str, bytes], cohort: list[str]) -> list[Parcel]:
        return [Parcel.decode(inbox[name], self.plan.protocol, "analyzer") for name in cohort]

    def _unsealed(self, sync: int, sealed: bytes) -> Numbers:
        """An array that came through the mixer without its sender's name."""
        protocol = self.plan.protocol
        (array,) = messages.decode(self.party.open_anonymous("release", sync, sealed), [(protocol.width,)])
        if all(array.dtype != part.dtype for part in protocol.parts if part.blind):
            raise MessageError(f"message holds {array.dtype}, which is not the plan's form")
        return array

    def _decode(self, sync: int, event: SyncEvent, cohort: list[str], collect: Callable[[], Message]) -> SyncEvent:
        """Decode the prefix sum of a sync, and close it. A sync that can never be decoded, because a sender or the
        mixer is faulty, is skipped: the contents of a message must not stop the federation."""
        try:
            state, decoded = self.plan.protocol.decode(self._state(), collect())
            prefix = np.asarray(decoded, dtype=np.float64)
            self.plan.fit(prefix, self.plan.ticks[sync])
            outcome = Outcome(prefix, self.party.at(sync).cohort(cohort))
            Outcome.decode(outcome.encode(), self.plan)
        except Exception:
            log.exception("sync %d cannot be decoded", sync)
            return self._skip(sync)
        self._close(sync, event, cohort, state, outcome)
        return event

    def _skip(self, sync: int) -> SyncEvent:
        """Close a sync without silos: the decoder moves on, and the last prefix sum stays, and so does the model."""
        last = self.store.last_value()
        prefix = np.zeros(self.plan.protocol.width) if last is None else Outcome.decode(last, self.plan).prefix
        event, nobody = SyncEvent.DEADLINE_SHORT, np.zeros(self.plan.silos, dtype=np.int64)
        self._close(sync, event, [], self.plan.protocol.skip(self._state()), Outcome(prefix, nobody))
        return event

    def _close(self, sync: int, event: SyncEvent, cohort: list[str], state: Stream, outcome: Outcome) -> None:
        value = outcome.encode()
        self.store.close(sync, event, cohort, value, self.next_head(sync, value), messages.encode_stream(state))

    def _state(self) -> Stream:
        data = self.store.decoder()
        return self.plan.protocol.init_analyzer() if data is None else messages.decode_stream(data)

    @property
    def _mixer(self) -> str | None:
        """The mixer's name; None under a plan without a mixer."""
        return self.agreement.holder("mixer").name if self.plan.protocol.has_mixer else None

    @property
    def _hears_silos(self) -> bool:
        """Whether silos send to the analyzer directly under this plan."""
        return "analyzer" in self.agreement.subjects.receivers
