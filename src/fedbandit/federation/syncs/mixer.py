"""The mixer S: adds what it can read, permutes what it cannot. It makes only one result per sync."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from fedbandit.federation.states import SyncEvent, SyncState
from fedbandit.federation.store.sync_store import StoredSync
from fedbandit.federation.syncs.deadlines import closing
from fedbandit.federation.syncs.keeper import SyncKeeper, Witnesses
from fedbandit.federation.syncs.taken import Arrived, Sighting, Taken
from fedbandit.federation.wire import parcels
from fedbandit.federation.wire.envelopes import Context
from fedbandit.federation.wire.heads import Greeting
from fedbandit.federation.wire.keys import PublicKeys
from fedbandit.federation.wire.messages import MessageError
from fedbandit.federation.wire.parcels import Holds, Mixed, Parcel

__all__ = ["Mixer"]

log = logging.getLogger(__name__)


class Mixer(SyncKeeper):
    """Keeps what silos send until the sync closes, stores the sealed result, and publishes it.

    If silos send to the analyzer too, a total is over the silos whose parcels both hold: the analyzer says once which
    ones it has. The mixer also hears from every silo which model it has last. If the analyzer has signed two different
    models of one sync, the mixer sends it nothing more.
    """

    def accept(self, context: Context, payload: bytes) -> Taken:
        sender, sync = context.sender, context.sync
        if context.kind == "holds" and sender == self._analyzer.name and self._waits_for_holds:
            models = self._checked(sender, Holds.decode(payload, self.plan).models)
            return Taken(context, Arrived(sync, sender, payload), (Sighting(sender, models.length, models),))
        if context.kind != "release" or sender not in self.party.at(sync).silos:
            raise MessageError(f"a mixer takes releases from silos, not {context.kind!r} from {sender}")
        parcel = Parcel.decode(payload, self.plan.protocol, "mixer")
        ledger = self.party.checked(sender, parcel.ledger)
        models = self._checked(self._analyzer.name, parcel.models)
        sightings = (Sighting(sender, sync + 1, ledger), Sighting(self._analyzer.name, models.length, models))
        return Taken(context, Arrived(sync, sender, payload), sightings)

    def close(self, sync: int, late: bool) -> SyncEvent | None:
        members, senders = self.party.at(sync), self.store.senders(sync)
        silos = members.silos
        wanted: tuple[str, ...] = silos
        if self._waits_for_holds:
            if self._analyzer.name not in senders:
                return None  # before the analyzer says what it holds, no total could be used
            holds = Holds.decode(self.store.inbox(sync)[self._analyzer.name], self.plan)
            wanted = tuple(members.counted(holds.cohort))
        present = senders.intersection(wanted)
        event = closing(present, silos, self.plan.smallest_cohort, late or present == set(wanted))
        if event is None:
            return None
        cohort = [] if event is SyncEvent.DEADLINE_SHORT else sorted(present)
        result = self._mixed(sync, cohort)
        event = event if result.cohort.any() else SyncEvent.DEADLINE_SHORT
        result = result._replace(totals=self.next_head(sync, result.encode()))
        sealed = self.party.seal("mixed", self._analyzer, sync, result.encode())
        self.store.close(sync, event, cohort if result.cohort.any() else [], sealed, result.totals)
        return event

    async def publish(self, closed: StoredSync, only: str | None = None) -> None:
        """Send the result to the analyzer; also again, if a silo without the outcome can tell nobody else."""
        receiver = self._analyzer.name
        if only in (None, receiver) or not self._waits_for_holds:
            await self._send(closed, f"mixed.{closed.sync}{self._repeats.suffix((closed.sync, only or receiver))}")

    async def lost(self, given_up: StoredSync, only: str) -> None:
        """Tell the analyzer, if it waits for this total itself, or if silos that wait for it cannot tell it."""
        if only == self._analyzer.name or not self._waits_for_holds:
            await self.say_lacks(self._analyzer, given_up.sync, self._repeats.suffix((given_up.sync, only)))

    def _keep(self, taken: Sequence[Taken]) -> None:
        """Refuse to go on if the analyzer has made models from more totals than this store has: both were put back, so
        that the analyzer may not know it either."""
        super()._keep(taken)
        analyzer = self._analyzer.name
        models = max((one.syncs for message in taken for one in message.sightings if one.party == analyzer), default=0)
        if models > (closed := self.store.next_sync()) and self.problem is None:
            self._refuse(
                f"this store is behind: it has closed {closed} syncs, and the analyzer has made models of {models}. Put"
                " the newest copy in its place, or bring this one forward: stop it and run `fedbandit mixer forward`."
                " If the analyzer's store was put back too, and does not know those totals any more, end the term: the"
                " founder begins a new one with `fedbandit federation renew`"
            )

    async def supply(self, sender: PublicKeys, sync: int, question: bytes) -> None:
        """Pass on what a silo lacks, if silos cannot tell the analyzer themselves and its total was sent."""
        published = self.store.at(sync).state is SyncState.PUBLISHED
        if published and not self._waits_for_holds and sender.role == "silo":
            await self.say_lacks(self._analyzer, sync, f".{question.hex()}")

    async def answer(self, sender: PublicKeys, greeting: Greeting) -> None:
        """Answer a question. An analyzer that asks may have lost what it was sent, so the same bytes are sent again."""
        await super().answer(sender, greeting)
        if sender == self._analyzer and self.problem is None:
            for closed in self.store.all():
                if closed.sync >= greeting.own.length and closed.state is SyncState.PUBLISHED:
                    await self._send(closed, f"mixed.{closed.sync}.{greeting.question.hex()}")

    async def _send(self, closed: StoredSync, message_id: str) -> None:
        assert closed.value is not None
        sealed = self.party.resigned(closed.sync, closed.value)
        await self.link.publish(self.party.subject_to(self._analyzer), sealed, message_id)

    @property
    def asks(self) -> Witnesses:
        return Witnesses((self._analyzer,), 1)

    def _mixed(self, sync: int, cohort: list[str]) -> Mixed:
        """The result of S on the cohort's parcels; a result without silos if they can never be mixed."""
        members = self.party.at(sync)
        nobody = Mixed(members.cohort(()))
        if not cohort:
            return nobody
        inbox, protocol = self.store.inbox(sync), self.plan.protocol
        try:
            received = [Parcel.decode(inbox[name], protocol, "mixer") for name in cohort]
            return parcels.mixed(protocol, members.cohort(cohort), received, self.noise)
        except Exception:  # an error that a parcel causes must not stop the federation
            log.exception("sync %d cannot be mixed", sync)
            return nobody

    @property
    def _waits_for_holds(self) -> bool:
        """Whether silos send to the analyzer too."""
        return "analyzer" in self.agreement.subjects.receivers

    @property
    def _analyzer(self) -> PublicKeys:
        return self.agreement.holder("analyzer")
