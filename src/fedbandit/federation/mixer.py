"""The mixer S: strips names and permutes (shuffle), or adds (vector-sum, secure-sum). One result a round, ever."""

from __future__ import annotations

from fedbandit.federation import mixing
from fedbandit.federation.keeper import RoundKeeper
from fedbandit.federation.keys import PublicKeys
from fedbandit.federation.messages import MessageError
from fedbandit.federation.mixing import Mixed
from fedbandit.federation.party import PlanMismatch
from fedbandit.federation.sealing import Context
from fedbandit.federation.states import RoundEvent
from fedbandit.federation.store.rounds import StoredRound

GREETED = "greeted"


class Mixer(RoundKeeper):
    """Keeps what silos send it until the round closes, stores the sealed result, publishes that."""

    def accept(self, context: Context, payload: bytes) -> tuple[int, str, bytes] | None:
        if context.kind == "hello" and context.sender == self._analyzer.name:
            self.store.remember(GREETED, b"1")
            return None
        if context.kind != "release" or context.sender not in self.party.federation.silos:
            raise MessageError(f"a mixer takes releases of silos, not {context.kind!r}")
        if self.plan.trust != "shuffle":  # there it cannot look inside
            mixing.check_release(self.plan, payload)
        return context.round, context.sender, payload

    def close(self, step: int, late: bool) -> RoundEvent | None:
        if self.store.recall(GREETED) is None:  # no total leaves before the analyzer has shown the same plan
            return None
        federation = self.party.federation
        event = mixing.closing(self.store.senders(step), federation.silos, federation.cohort, late)
        if event is None:
            return None
        inbox = {} if event is RoundEvent.DEADLINE_SHORT else self.store.inbox(step)
        if not inbox:
            mixed = Mixed(mixing.membership((), federation.silos), ())
        else:
            mixed = mixing.mix(self.plan, inbox, federation.silos, self.noise)
        sealed = self.party.seal("mixed", self._analyzer, step, mixed.encode())
        self.store.close(step, event, list(inbox), sealed)
        return event

    async def publish(self, closed: StoredRound) -> None:
        assert closed.value is not None
        await self.link.publish(self.party.subject_to(self._analyzer), closed.value, f"mixed.{closed.step}")

    def mismatch(self, error: PlanMismatch) -> None:
        if f"{self._analyzer.name} works" in str(error):
            raise error
        super().mismatch(error)

    @property
    def _analyzer(self) -> PublicKeys:
        return self.party.federation.holder("analyzer")
