"""The analyzer A: decodes each round once, in order, and sends model k, sealed and signed, to every silo."""

from __future__ import annotations

import asyncio

from fedbandit.federation import mixing, releasing
from fedbandit.federation.keeper import RoundKeeper
from fedbandit.federation.learning import Outcome
from fedbandit.federation.messages import MessageError
from fedbandit.federation.mixing import Mixed
from fedbandit.federation.sealing import Context, EnvelopeError
from fedbandit.federation.states import RoundEvent
from fedbandit.federation.store.rounds import StoredRound
from fedbandit.protocol.base import Message
from fedbandit.protocol.encoder import Stream


class Analyzer(RoundKeeper):
    """Keeps what silos and the mixer send it until the round closes; outcome and decoder state are one transaction."""

    async def greet(self) -> None:
        """Show the plan to everybody: those who have another one stop."""
        federation = self.party.federation
        receivers = [federation.party(name) for name in federation.silos]
        if federation.has_mixer:
            receivers.append(federation.holder("mixer"))
        for receiver in receivers:
            hello = self.party.seal("hello", receiver, 0, b"")
            await self.link.publish(self.party.subject_to(receiver), hello, f"hello.{receiver.name}.{self.plan.hash}")

    def accept(self, context: Context, payload: bytes) -> tuple[int, str, bytes] | None:
        federation = self.party.federation
        from_mixer = federation.has_mixer and context.sender == federation.holder("mixer").name
        if context.kind == "mixed" and from_mixer:
            Mixed.decode(payload, self.plan)
        elif context.kind == "release" and context.sender in federation.silos and self._hears_silos:
            mixing.check_release(self.plan, payload)
        else:
            raise MessageError(f"{context.sender} has no {context.kind!r} to send here")
        return context.round, context.sender, payload

    def close(self, step: int, late: bool) -> RoundEvent | None:
        federation, senders = self.party.federation, self.store.senders(step)
        if federation.has_mixer:
            there = federation.holder("mixer").name in senders
            return self._close_mixed(step, self.store.inbox(step), late) if there else None
        event = mixing.closing(senders, federation.silos, federation.cohort, late)
        if event in (RoundEvent.COMPLETE, RoundEvent.DEADLINE_ENOUGH):
            inbox = self.store.inbox(step)
            mixed = self.plan.protocol.mix(mixing.stacked(self.plan, inbox.values()), self.noise)
            self._decode(step, event, list(inbox), mixed)
        elif event is RoundEvent.DEADLINE_SHORT:
            self._skip(step)
        return event

    async def publish(self, closed: StoredRound) -> None:
        """Model k to every silo; the bytes inside are the stored ones."""
        assert closed.value is not None
        federation = self.party.federation
        receivers = [federation.party(name) for name in federation.silos]
        await asyncio.gather(
            *(
                self.link.publish(
                    self.party.subject_to(receiver),
                    self.party.seal("model", receiver, closed.step, closed.value),
                    f"model.{closed.step}.{receiver.name}",
                )
                for receiver in receivers
            )
        )

    def _close_mixed(self, step: int, inbox: dict[str, bytes], late: bool) -> RoundEvent | None:
        """The mixer has fixed the cohort; A needs its own shares of exactly those silos (secure-sum)."""
        mixed = Mixed.decode(inbox.pop(self.party.federation.holder("mixer").name), self.plan)
        silos = self.party.federation.silos
        cohort = [name for name, there in zip(silos, mixed.cohort, strict=True) if there]
        if len(cohort) < self.party.federation.cohort:  # skipped by the mixer, or a mixer that breaks the rules
            return self._skip(step)
        if self._hears_silos and not set(cohort) <= set(inbox):
            return self._skip(step) if late else None
        try:
            self._decode(step, RoundEvent.COMPLETE, cohort, self._opened_mix(step, mixed, cohort, inbox))
        except (EnvelopeError, MessageError):
            return self._skip(step)  # a sender or the mixer is faulty; the round cannot be decoded, ever
        return RoundEvent.COMPLETE

    def _opened_mix(self, step: int, mixed: Mixed, cohort: list[str], inbox: dict[str, bytes]) -> Message:
        if self.plan.trust == "shuffle":
            payloads = [self.party.open_anonymous("release", step, sealed) for sealed in mixed.ciphertexts]
            for payload in payloads:
                mixing.check_release(self.plan, payload)
            return mixing.stacked(self.plan, payloads)
        if self.plan.trust == "secure-sum":
            return (*mixed.total, *mixing.stacked(self.plan, [inbox[name] for name in cohort]))
        return mixed.total

    def _decode(self, step: int, event: RoundEvent, cohort: list[str], mixed: Message) -> None:
        membership = mixing.membership(cohort, self.party.federation.silos)
        state, outcome = mixing.decode(self.plan, self._state(), mixed, membership)
        self.store.close(step, event, cohort, outcome.encode(), releasing.dump_state(state))

    def _skip(self, step: int) -> RoundEvent:
        last = self.store.round(step - 1).value if step else None
        before = None if last is None else Outcome.decode(last, self.plan)
        state, outcome = mixing.skip(self.plan, self._state(), before)
        event = RoundEvent.DEADLINE_SHORT
        self.store.close(step, event, [], outcome.encode(), releasing.dump_state(state))
        return event

    def _state(self) -> Stream:
        data = self.store.decoder()
        return self.plan.protocol.init_analyzer() if data is None else releasing.parse_state(data)

    @property
    def _hears_silos(self) -> bool:
        """Whether silos send to the analyzer themselves under this trust model."""
        return not self.party.federation.has_mixer or self.plan.trust == "secure-sum"
