"""A whole federation in one process, every party the real one, and an attacker at its post office.

Messages wait in one queue per receiver and leave it when the receiver has done with them, as at the broker: a message
that ends its receiver, or that the receiver never finishes, stays and fails the case.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike

from fedbandit._arrays import Numbers
from fedbandit.federation.exact.exact_noise import ExactNoise
from fedbandit.federation.setup import founding
from fedbandit.federation.setup.party import Party
from fedbandit.federation.silo.agent import Agent
from fedbandit.federation.silo.outgoing import Sealer
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.store import SyncStore, open_engine
from fedbandit.federation.syncs.analyzer import Analyzer
from fedbandit.federation.syncs.keeper import SyncKeeper
from fedbandit.federation.syncs.mixer import Mixer
from fedbandit.federation.timing import Timing
from fedbandit.federation.wire import envelopes, heads, messages
from fedbandit.federation.wire.envelopes import Context, Kind
from fedbandit.federation.wire.keys import PartyKeys
from fedbandit.federation.wire.link import Link
from fedbandit.federation.wire.parcels import Holds, Mixed, Outcome, Parcel, SignedOutcome
from fedbandit.plan import Plan
from fedbandit.schedule import Clock, clock, every
from tests.federation.clocks import HandClock
from tests.federation.small import small_plan

SILOS = ("silo-00", "silo-01", "silo-02")
PLAN = small_plan(rounds=6, schedule=every(2), cohort=2)  # three syncs
CLOCK_PLAN = small_plan(rounds=3, schedule=clock(3600), cohort=2, visits="private")
EARLIER_PLAN = small_plan(rounds=8, schedule=every(2), cohort=2)
DEADLINE = 10.0
START = 1_000_000.0
PATIENCE = 20.0  # seconds in which a receiver must be done with a message; a case that waits for ever fails
MEMORY = Path("/dev/shm")


class Crossed(NamedTuple):
    """A message as it went through the post."""

    sender: str
    receiver: str
    data: bytes


class Arena:
    """Parties, their queues, a clock that the case moves, and the means to forge."""

    def __init__(self, path: Path, plan: Plan) -> None:
        self.path, self.plan, self.now = path, plan, START
        homes = founding.local(path, plan, list(SILOS[: plan.silos]), Timing(DEADLINE, start=START))
        self.homes = {home.settings.name: home for home in homes}
        self.parties: dict[str, Party] = {name: home.party() for name, home in self.homes.items()}
        self.agreement = self.parties["analyzer"].agreement
        self.queues: dict[str, list[bytes]] = {name: [] for name in self.homes}
        self.crossed: list[Crossed] = []
        self.lost: Callable[[Crossed], bool] = lambda message: False  # what the network does not deliver
        self.clocks = {name: HandClock(START) for name in self.agreement.silos}
        self.agents: dict[str, Agent] = {}
        self.keepers: dict[str, SyncKeeper] = {}
        self.random = np.random.default_rng(11)
        self._closing: dict[str, ExitStack] = {}

    # -- parties ----------------------------------------------------------------------------------------------------

    def begin(self, name: str) -> None:
        """Start a party, or start it again on what is in its directory."""
        self.end(name)
        party, stack = self.parties[name], ExitStack()
        store = self.homes[name].store(self.plan.hash)
        if name in self.agreement.silos:
            sealer = Sealer(party)
            silo = Silo.open(
                store,
                self.plan,
                name=name,
                secret=self.homes[name].keys.seeds["salt"],
                timing=self.agreement.timing,
                clock=self.clocks[name],
                sealer=sealer,
            )
            self.agents[name] = Agent(stack.enter_context(silo), party, sealer)
        else:
            engine = open_engine(store)
            stack.callback(engine.close)
            kind: type[SyncKeeper] = Mixer if name == "mixer" else Analyzer
            self.keepers[name] = kind(
                party, SyncStore(engine), self.link(name), clock=lambda: self.now, steady=lambda: self.now
            )
        self._closing[name] = stack

    def end(self, name: str) -> None:
        if name in self._closing:
            self._closing.pop(name).close()

    def link(self, name: str) -> Link:
        """The post office as this party sees it."""
        return cast(Link, _Carrier(self, name))

    def receiver(self, name: str) -> Agent | SyncKeeper:
        return self.agents[name] if name in self.agents else self.keepers[name]

    async def greet(self) -> None:
        """Everybody asks everybody how far they have come, and silos draw from then on."""
        for keeper in self.keepers.values():
            await keeper.greet()
        for name, agent in self.agents.items():
            await agent.introduce(self.link(name))
        await self.deliver()
        for agent in self.agents.values():
            await agent.judge()

    # -- honest work ------------------------------------------------------------------------------------------------

    def visit(self, name: str) -> None:
        """The users of one batch come to a silo and are rewarded."""
        contexts = self.random.normal(size=(2, 3, self.plan.dim))
        contexts /= np.linalg.norm(contexts, axis=-1, keepdims=True)
        silo = self.agents[name].silo
        decisions = silo.decide_many(contexts)
        silo.reward_all([(decision.id, reward) for decision, reward in zip(decisions, (0.0, 1.0), strict=True)])

    def tick(self, name: str) -> list[int]:
        return self.agents[name].silo.tick()

    async def release(self, name: str) -> None:
        """One silo's batch: users, tick, and its release into the queues."""
        self.visit(name)
        self.tick(name)
        await self.agents[name].send(self.link(name))

    async def sync(self) -> None:
        """One sync of everybody, to its end."""
        if isinstance(self.plan.schedule, Clock):
            for name in self.agents:
                self.visit(name)
            self.pass_clock(self.plan.schedule.period)
            for name in self.agents:
                self.tick(name)
                await self.agents[name].send(self.link(name))
        else:
            for name in self.agents:
                await self.release(name)
        await self.deliver()

    def pass_clock(self, seconds: float) -> None:
        """Time passes for everybody alike."""
        self.now += seconds
        for hand in self.clocks.values():
            hand.pass_time(seconds)

    async def deliver(self) -> None:
        """Hand on what waits, each receiver's messages together, until nothing waits."""
        while waiting := [name for name in self.queues if self.queues[name] and name in self._closing]:
            for name in waiting:
                bundle = list(self.queues[name])
                async with asyncio.timeout(PATIENCE):
                    await self.receiver(name).handle(bundle)
                del self.queues[name][: len(bundle)]  # acknowledged

    async def pass_time(self, seconds: float) -> None:
        """Deadlines pass: the keepers look at the time, as they do by themselves."""
        self.pass_clock(seconds)
        for keeper in self.keepers.values():
            async with asyncio.timeout(PATIENCE):
                await keeper.advance()
        await self.deliver()

    # -- the attacker -----------------------------------------------------------------------------------------------

    def inject(self, receiver: str, *data: bytes) -> None:
        """Put bytes into a receiver's queue."""
        self.queues[receiver] += data

    async def attack(self, receiver: str, *data: bytes, refused: int | None = None) -> None:
        """Deliver bytes; `refused` of them (by default all) must be counted as refused."""
        before = self.receiver(receiver).refused.count
        self.inject(receiver, *data)
        await self.deliver()
        found = self.receiver(receiver).refused.count - before
        wanted = len(data) if refused is None else refused
        assert found == wanted, f"{receiver} refused {found} messages, not {wanted}"

    def last(self, sender: str, receiver: str, kind: Kind, sync: int | None = None) -> bytes:
        """The newest message of this kind that went from one to the other."""
        for message in reversed(self.crossed):
            if (message.sender, message.receiver) == (sender, receiver):
                claim = envelopes.claimed(message.data)
                if claim.kind == kind and sync in (None, claim.sync):
                    return message.data
        raise LookupError(f"no {kind} crossed from {sender} to {receiver}")

    def forge(
        self,
        kind: Kind,
        sender: str,
        receiver: str,
        sync: int,
        plain: bytes,
        signer: PartyKeys | None = None,
        *,
        names: str | None = None,
        **context: Any,
    ) -> bytes:
        """An envelope for the receiver in the sender's name, signed by the sender unless `signer` is another. `names`
        is whom it says that it is for, if not the receiver."""
        keys = signer or self.homes[sender].keys
        bound = Context(self.agreement.id, self.plan.hash, kind, sender, names or receiver, sync)._replace(**context)
        return envelopes.seal(plain, bound, self.parties[receiver].public.sealing, keys.signer)

    def parcel(self, value: int = 0, **changes: Any) -> bytes:
        """A well-formed parcel for the mixer or the analyzer of the secure sum."""
        array = np.full(self.plan.protocol.width, value, dtype=np.uint64)
        return Parcel((array,))._replace(**changes).encode()

    def outcome(self, value: float = 0.0, cohort: tuple[int, ...] = (1, 1, 1)) -> Outcome:
        return Outcome(np.full(self.plan.protocol.width, value), np.array(cohort, dtype=np.int64))

    def model(self, sync: int, outcome: Outcome, previous: bytes | None = None) -> SignedOutcome:
        """A model that the analyzer has signed, whatever is in it."""
        first = heads.link(bytes(32), f"{self.agreement.id} {self.plan.hash}".encode())
        before = previous or (self.keepers["analyzer"].store.head(sync - 1).hash if sync else first)
        head = self.parties["analyzer"].signed(sync + 1, heads.link(before, outcome.encode()))
        return SignedOutcome(outcome, before, head)

    def mixed(self, cohort: ArrayLike = (1, 1, 1), **changes: Any) -> bytes:
        """A total in the mixer's name."""
        total = np.zeros((1, self.plan.protocol.width), dtype=np.uint64)
        return Mixed(np.array(cohort), (total,))._replace(**changes).encode()

    def holds(self, cohort: ArrayLike = (1, 1, 1), **changes: Any) -> bytes:
        return Holds(np.array(cohort))._replace(**changes).encode()

    def mixed_with(self, cohort: Numbers) -> bytes:
        """A total in the mixer's name, with any array in the place of the cohort's bits."""
        total = np.zeros((1, self.plan.protocol.width), dtype=np.uint64)
        return messages.pack([heads.NONE.encode(), messages.encode([cohort]), messages.encode([total])])

    def holds_with(self, cohort: Numbers) -> bytes:
        """A list of what the analyzer holds, alike."""
        return messages.pack([heads.NONE.encode(), messages.encode([cohort])])

    def model_with(self, cohort: Numbers) -> bytes:
        """The first model, alike."""
        before = heads.link(bytes(32), f"{self.agreement.id} {self.plan.hash}".encode())
        plain = messages.encode([np.zeros(self.plan.protocol.width), cohort])
        return messages.pack([before, self.parties["analyzer"].signed(1, heads.link(before, plain)).encode(), plain])

    # -- what must hold ---------------------------------------------------------------------------------------------

    @property
    def done(self) -> int:
        """Syncs that the analyzer has closed."""
        return self.keepers["analyzer"].store.next_sync()

    def cohorts(self) -> list[list[int]]:
        """Who was counted in each closed sync."""
        return [self._stored(sync).cohort.tolist() for sync in range(self.done)]

    def _stored(self, sync: int) -> Outcome:
        value = self.keepers["analyzer"].store.at(sync).value
        assert value
        return Outcome.decode(value, self.plan)

    async def finish(self) -> None:
        """The federation goes on to the end of its term, everybody in every sync, with the right totals."""
        while self.done < len(self.plan.times):
            before = self.done
            await self.sync()
            assert self.done == before + 1, f"sync {before} did not end"
        assert self.cohorts() == [[1] * self.plan.silos] * len(self.plan.times)
        self.check()

    def check(self) -> None:
        """No problem, nothing left in a queue, every total that of what silos drew, every silo at the last model."""
        for name, keeper in self.keepers.items():
            assert keeper.problem is None, f"{name}: {keeper.problem}"
        for name, agent in self.agents.items():
            assert agent.problem is None, f"{name}: {agent.problem}"
            assert agent.silo.version == self.done
        assert not any(self.queues.values())
        self.check_totals()

    def check_totals(self) -> None:
        """What the analyzer published is what the library computes from the releases that silos have on disk."""
        protocol = self.plan.protocol
        state = protocol.init_analyzer()
        for sync in range(self.done):
            stored = self._stored(sync)
            assert stored.cohort.all(), "totals are compared where everybody is in"
            drawn = [messages.decode(self._drawn(name, sync)) for name in self.agreement.silos]
            sent = tuple(np.stack(arrays) for arrays in zip(*drawn, strict=True))
            state, prefix = protocol.decode(state, protocol.passed_on(sent, ExactNoise()))
            assert np.allclose(stored.prefix, prefix, rtol=0, atol=1e-9 * max(1.0, float(np.abs(prefix).max())))

    def _drawn(self, name: str, sync: int) -> bytes:
        release = self.agents[name].silo.store.release(1, sync)
        assert release is not None
        assert release.drawn is not None
        return release.drawn


class _Carrier:
    """What one party publishes goes into the queues of those it is for."""

    def __init__(self, arena: Arena, name: str) -> None:
        self._arena, self._name = arena, name

    async def publish(self, subject: str, data: bytes, message_id: str) -> None:
        role, party = subject.split(".")[-2:]
        message = Crossed(self._name, party if role == "silo" else role, data)
        if self._arena.lost(message):
            return
        self._arena.crossed.append(message)
        self._arena.queues[message.receiver].append(data)

    async def read(self, consumer: object, handle: Callable[[list[bytes]], Awaitable[None]]) -> None:
        """Nothing to read: the arena hands messages on."""


@asynccontextmanager
async def arena(plan: Plan = PLAN, introduced: bool = True) -> AsyncIterator[Arena]:
    """A federation at its beginning, where stores are quick if there is such a place."""
    quick = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="fedbandit-attack-", dir=quick) as folder:
        found = Arena(Path(folder), plan)
        try:
            for name in found.homes:
                found.begin(name)
            if introduced:
                await found.greet()
            yield found
        finally:
            for name in list(found.homes):
                found.end(name)
