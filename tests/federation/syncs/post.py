"""A mixer and an analyzer without a broker: messages are handed over by the test, which also moves the clock."""

import numpy as np

from fedbandit.federation.post_office import PostOffice
from fedbandit.federation.setup import founding
from fedbandit.federation.store import SyncStore, open_engine
from fedbandit.federation.syncs.analyzer import Analyzer
from fedbandit.federation.syncs.mixer import Mixer
from fedbandit.federation.timing import Timing
from fedbandit.federation.wire import heads
from fedbandit.federation.wire.envelopes import FORMAT
from fedbandit.federation.wire.heads import NO_QUESTION, Greeting
from fedbandit.federation.wire.parcels import Outcome, Parcel, SignedOutcome


class Post:
    """Queues of sealed messages, one per receiver; `deliver` hands them over until there are none for the keepers."""

    def __init__(self, path, plan, deadline=10.0, start=0.0):
        self.plan, self.now = plan, 0.0
        homes = founding.local(path, plan, [f"silo-{n:02}" for n in range(plan.silos)], Timing(deadline, start=start))
        self.homes = {home.settings.name: home for home in homes}
        self.parties = {name: home.party() for name, home in self.homes.items()}
        self.silos = [name for name, home in self.homes.items() if home.settings.role == "silo"]
        self.office = _Office(homes[0].agreement())
        self.queues, self.to_mixer = self.office.queues, self.office.to_mixer
        self.read_by = dict.fromkeys(self.silos, 0)  # how much of its queue a silo has read; it stays there
        self.models = dict.fromkeys(self.silos, heads.NONE)  # the newest that each silo has
        self.keepers: dict[str, Mixer | Analyzer] = {}
        for name in ("mixer", "analyzer"):
            if name in self.homes:
                self.begin(name)

    def begin(self, name):
        """Start a mixer or an analyzer on what is in its directory."""
        if name in self.keepers:
            self.keepers[name].store.engine.close()
        store = SyncStore(open_engine(self.homes[name].store(self.plan.hash)))
        kind = Mixer if name == "mixer" else Analyzer
        self.keepers[name] = kind(
            self.parties[name], store, self.office, clock=lambda: self.now, steady=lambda: self.now
        )

    async def greet(self):
        """The keepers ask each other and the silos."""
        for keeper in self.keepers.values():
            await keeper.greet()
        await self.deliver()

    async def deliver(self):
        for silo in self.silos:
            self._read(silo)
        while waiting := [name for name in self.keepers if self.queues[name]]:
            for name in waiting:
                await self.keepers[name].handle(self.office.take(name))
            for silo in self.silos:
                self._read(silo)

    def _read(self, silo):
        """A silo notes the models that have come, and says so when the analyzer asks."""
        party, analyzer = self.parties[silo], self.parties["analyzer"].public
        unread, self.read_by[silo] = self.queues[silo][self.read_by[silo] :], len(self.queues[silo])
        for context, payload in map(party.open, unread):
            if context.kind == "model":
                self.models[silo] = max(self.models[silo], SignedOutcome.decode(payload, self.plan).head)
            elif (context.kind, context.sender) != ("greeting", "analyzer"):
                continue
            elif (question := Greeting.decode(payload).question) != NO_QUESTION:
                answer = Greeting(FORMAT, FORMAT, answer=question, seen=self.models[silo]).encode()
                self.queues["analyzer"].append(party.seal("greeting", analyzer, 0, answer))

    async def pass_time(self, seconds):
        self.now += seconds
        for keeper in self.keepers.values():
            await keeper.advance()
        await self.deliver()

    def release(self, silo, sync, receivers=("analyzer", "mixer"), **words):
        """A silo's parcels for a sync, empty sums, put into the queues."""
        for name in receivers:
            if name in self.keepers:
                protocol = self.plan.protocol
                read = [part for part in protocol.parts if part.reader == name and not part.blind]
                zeros = tuple(np.zeros(protocol.width, dtype=part.dtype) for part in read)
                parcel = Parcel(zeros, **words).encode()
                sealed = self.parties[silo].seal("release", self.parties[name].public, sync, parcel)
                self.queues[name].append(sealed)

    def outcomes(self):
        return [
            Outcome.decode(stored.value or b"", self.plan).cohort.tolist()
            for stored in self.keepers["analyzer"].store.all()
            if stored.state.final
        ]

    def model_head(self, sync, outcome, previous=None):
        """A model that the analyzer has signed, whatever is in it."""
        analyzer = self.parties["analyzer"]
        first = heads.link(bytes(32), f"{analyzer.agreement.id} {self.plan.hash}".encode())
        previous = previous or first
        return SignedOutcome(outcome, previous, analyzer.signed(sync + 1, heads.link(previous, outcome.encode())))


class _Office(PostOffice):
    """It remembers all that was ever published to the mixer."""

    def __init__(self, agreement):
        super().__init__(agreement)
        self.to_mixer: list[bytes] = []

    async def publish(self, subject, data, message_id):
        await super().publish(subject, data, message_id)
        if subject.split(".")[-2] == "mixer":
            self.to_mixer.append(data)
