"""The mixer S: adds what it can read, permutes what it cannot. One result per sync, ever."""

from __future__ import annotations

from fedbandit.federation.setup.party import PlanMismatch
from fedbandit.federation.states import SyncEvent
from fedbandit.federation.store.sync_store import StoredSync
from fedbandit.federation.syncs.keeper import Arrived, SyncKeeper, closing
from fedbandit.federation.wire import parcels
from fedbandit.federation.wire.envelopes import Context
from fedbandit.federation.wire.keys import PublicKeys
from fedbandit.federation.wire.messages import MessageError
from fedbandit.federation.wire.parcels import Mixed, Parcel

__all__ = ["Mixer"]

GREETED = "greeted"


class Mixer(SyncKeeper):
    """Keeps what silos send it until the sync closes, stores the sealed result, publishes that."""

    def accept(self, context: Context, payload: bytes) -> Arrived | None:
        if context.kind == "hello" and context.sender == self._analyzer.name:
            self.store.remember(GREETED, b"1")
            return None
        if context.kind != "release" or context.sender not in self.agreement.silos:
            raise MessageError(f"a mixer takes releases of silos, not {context.kind!r}")
        Parcel.decode(payload, self.plan.protocol, "mixer")
        return Arrived(context.sync, context.sender, payload)

    def close(self, sync: int, late: bool) -> SyncEvent | None:
        if self.store.recall(GREETED) is None:  # no total leaves before the analyzer has shown the same plan
            return None
        silos, protocol = self.agreement.silos, self.plan.protocol
        event = closing(self.store.senders(sync), silos, self.plan.smallest_cohort, late)
        if event is None:
            return None
        inbox = {} if event is SyncEvent.DEADLINE_SHORT else self.store.inbox(sync)
        cohort = parcels.membership(inbox, silos)
        if inbox:
            received = [Parcel.decode(payload, protocol, "mixer") for payload in inbox.values()]
            result = parcels.mixed(protocol, cohort, received, self.noise)
        else:
            result = Mixed(cohort)
        sealed = self.party.seal("mixed", self._analyzer, sync, result.encode())
        self.store.close(sync, event, list(inbox), sealed)
        return event

    async def publish(self, closed: StoredSync) -> None:
        assert closed.value is not None
        await self.link.publish(self.party.subject_to(self._analyzer), closed.value, f"mixed.{closed.sync}")

    def mismatch(self, error: PlanMismatch) -> None:
        if error.sender == self._analyzer.name:
            raise error
        super().mismatch(error)

    @property
    def _analyzer(self) -> PublicKeys:
        return self.agreement.holder("analyzer")
