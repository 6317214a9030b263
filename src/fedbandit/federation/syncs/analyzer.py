"""The analyzer A: decodes each sync once, in order, and sends model k, sealed and signed, to every silo."""

from __future__ import annotations

import asyncio

import numpy as np

from fedbandit._arrays import Numbers
from fedbandit.federation.states import SyncEvent
from fedbandit.federation.store.sync_store import StoredSync
from fedbandit.federation.syncs.keeper import Arrived, SyncKeeper, closing
from fedbandit.federation.wire import messages, parcels
from fedbandit.federation.wire.envelopes import Context, EnvelopeError
from fedbandit.federation.wire.messages import MessageError
from fedbandit.federation.wire.parcels import Mixed, Outcome, Parcel
from fedbandit.protocol.base import Message
from fedbandit.protocol.encoder import Stream

__all__ = ["Analyzer"]


class Analyzer(SyncKeeper):
    """Keeps what silos and the mixer send it until the sync closes; outcome and decoder state are one transaction."""

    async def greet(self) -> None:
        """Show the plan to everybody: those who have another one stop."""
        receivers = [self.agreement.party(name) for name in self.agreement.silos]
        if self.plan.protocol.has_mixer:
            receivers.append(self.agreement.holder("mixer"))
        for receiver in receivers:
            hello = self.party.seal("hello", receiver, 0, b"")
            await self.link.publish(self.party.subject_to(receiver), hello, f"hello.{receiver.name}.{self.plan.hash}")

    def accept(self, context: Context, payload: bytes) -> Arrived | None:
        if context.kind == "mixed" and context.sender == self._mixer:
            Mixed.decode(payload, self.plan)
        elif context.kind == "release" and context.sender in self.agreement.silos and self._hears_silos:
            Parcel.decode(payload, self.plan.protocol, "analyzer")
        else:
            raise MessageError(f"{context.sender} has no {context.kind!r} to send here")
        return Arrived(context.sync, context.sender, payload)

    def close(self, sync: int, late: bool) -> SyncEvent | None:
        senders = self.store.senders(sync)
        if self._mixer is not None:
            return self._close_mixed(sync, self.store.inbox(sync), late) if self._mixer in senders else None
        event = closing(senders, self.agreement.silos, self.plan.smallest_cohort, late)
        if event is SyncEvent.DEADLINE_SHORT:
            self._skip(sync)
        elif event is not None:
            inbox = self.store.inbox(sync)
            held = parcels.held_by_analyzer(self.plan.protocol, (), (), self._parcels(inbox, list(inbox)))
            self._decode(sync, event, list(inbox), self.plan.protocol.mix(held, self.noise))
        return event

    async def publish(self, closed: StoredSync) -> None:
        """Model k to every silo; the bytes inside are the stored ones."""
        assert closed.value is not None
        value = closed.value

        async def send(name: str) -> None:
            receiver = self.agreement.party(name)
            sealed = self.party.seal("model", receiver, closed.sync, value)
            await self.link.publish(self.party.subject_to(receiver), sealed, f"model.{closed.sync}.{name}")

        await asyncio.gather(*(send(name) for name in self.agreement.silos))

    def _close_mixed(self, sync: int, inbox: dict[str, bytes], late: bool) -> SyncEvent | None:
        """The mixer has fixed the cohort; A needs its own parcels of exactly those silos."""
        assert self._mixer is not None
        mixed = Mixed.decode(inbox.pop(self._mixer), self.plan)
        cohort = [name for name, there in zip(self.agreement.silos, mixed.cohort, strict=True) if there]
        if len(cohort) < self.plan.smallest_cohort:  # skipped by the mixer, or a mixer that breaks the rules
            return self._skip(sync)
        if self._hears_silos and not set(cohort) <= set(inbox):
            return self._skip(sync) if late else None
        try:
            opened = [self._unsealed(sync, sealed) for sealed in mixed.carried]
        except (EnvelopeError, MessageError):
            return self._skip(sync)  # a sender or the mixer is faulty; the sync cannot be decoded, ever
        own = self._parcels(inbox, cohort) if self._hears_silos else []
        held = parcels.held_by_analyzer(self.plan.protocol, mixed.arrays, opened, own)
        self._decode(sync, SyncEvent.COMPLETE, cohort, held)
        return SyncEvent.COMPLETE

    def _parcels(self, inbox: dict[str, bytes], cohort: list[str]) -> list[Parcel]:
        return [Parcel.decode(inbox[name], self.plan.protocol, "analyzer") for name in cohort]

    def _unsealed(self, sync: int, sealed: bytes) -> Numbers:
        """An array that came through the mixer without its sender's name."""
        protocol = self.plan.protocol
        (array,) = messages.decode(self.party.open_anonymous("release", sync, sealed), [(protocol.width,)])
        if all(array.dtype != part.dtype for part in protocol.parts if part.blind):
            raise MessageError(f"message holds {array.dtype}, which is not the plan's form")
        return array

    def _decode(self, sync: int, event: SyncEvent, cohort: list[str], held: Message) -> None:
        state, prefix = self.plan.protocol.decode(self._state(), held)
        membership = parcels.membership(cohort, self.agreement.silos)
        self._close(sync, event, cohort, state, Outcome(np.asarray(prefix, dtype=np.float64), membership))

    def _skip(self, sync: int) -> SyncEvent:
        """Nobody is in this sync: the decoder moves on, the last prefix sum stays, and with it the model."""
        last = self.store.at(sync - 1).value if sync else None
        prefix = np.zeros(self.plan.protocol.width) if last is None else Outcome.decode(last, self.plan).prefix
        event, nobody = SyncEvent.DEADLINE_SHORT, np.zeros(self.plan.silos, dtype=np.int64)
        self._close(sync, event, [], self.plan.protocol.skip(self._state()), Outcome(prefix, nobody))
        return event

    def _close(self, sync: int, event: SyncEvent, cohort: list[str], state: Stream, outcome: Outcome) -> None:
        self.store.close(sync, event, cohort, outcome.encode(), messages.encode_stream(state))

    def _state(self) -> Stream:
        data = self.store.decoder()
        return self.plan.protocol.init_analyzer() if data is None else messages.decode_stream(data)

    @property
    def _mixer(self) -> str | None:
        """The mixer's name, where there is one."""
        return self.agreement.holder("mixer").name if self.plan.protocol.has_mixer else None

    @property
    def _hears_silos(self) -> bool:
        """Whether silos send to the analyzer themselves under this plan."""
        return "analyzer" in self.agreement.subjects.receivers
