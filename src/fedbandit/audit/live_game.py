"""The audited run on the live path: real stores, silos, sealed messages, mixer, analyzer and live noise.

The parties' own code runs, unmodified, in this process. Instead of a broker, a `RecordingCarrier` takes bytes from one
party, passes them to the next and keeps a record. The audit scores and tests what crossed: the messages, opened with
the keys of their receivers. Users have one action each, so what every silo adds is known. The clock is moved by hand,
from tick to tick if the plan has a clock.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from fedbandit import _validate
from fedbandit._arrays import Floats, Integers, Numbers
from fedbandit._validate import ArgumentError
from fedbandit.audit.calendar_game import Retraced, Scored, adversaries_of, remembered
from fedbandit.audit.cases import Case, claim_of, fewer_silos, in_few_dimensions, of_plan, returning_within
from fedbandit.audit.residuals import Recorder
from fedbandit.audit.times_and_sizes import Envelope
from fedbandit.audit.worlds import User, background_users, people, telling_pair, visits
from fedbandit.bandit.statistics import contributions
from fedbandit.federation.setup import founding
from fedbandit.federation.setup.agreement import check_live
from fedbandit.federation.setup.home import Home
from fedbandit.federation.setup.party import Party
from fedbandit.federation.silo.agent import Agent
from fedbandit.federation.silo.outgoing import Sealer
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.store import SyncStore, open_engine
from fedbandit.federation.syncs.analyzer import Analyzer
from fedbandit.federation.syncs.keeper import SyncKeeper
from fedbandit.federation.syncs.mixer import Mixer
from fedbandit.federation.timing import Reading, Timing
from fedbandit.federation.wire import messages, parcels
from fedbandit.federation.wire.link import Link
from fedbandit.federation.wire.parcels import Mixed, Parcel, SignedOutcome
from fedbandit.federation.wire.subjects import Consumer
from fedbandit.plan import Plan
from fedbandit.presets import NAMES, plan_for
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.noise import NoiseSource
from fedbandit.protocol.adversaries import Adversary, Moment
from fedbandit.protocol.base import Message
from fedbandit.schedule import Clock, Every

__all__ = ["LIVE", "LiveGame", "RecordingCarrier", "live_case", "live_game", "live_reduced"]

LIVE = ("silo", "secure-sum", "central", "sdp-vector-sum")  # one per live trust model that works with few silos
SILOS, SYNCS, BATCH, DIM = 3, 8, 2, 3
PERIOD = 60.0  # seconds between ticks; nothing depends on it
TRIALS = 40  # of each world: too few to prove much about epsilon, enough to see whether the noise is as claimed
RUNS = 10  # one after another in one process
MEMORY = Path("/dev/shm")  # stores are fast here, if it exists
USER = "the user"  # the key of the user in whom the worlds differ


class RecordingCarrier:
    """Replaces the link to the broker: every party publishes here, and published messages can be taken and read."""

    def __init__(self) -> None:
        self.crossed: list[tuple[str, bytes]] = []
        self._waiting: deque[tuple[str, bytes]] = deque()

    async def publish(self, subject: str, data: bytes, message_id: str) -> None:
        """Record a message and queue it."""
        self.crossed.append((subject, data))
        self._waiting.append((subject, data))

    async def read(self, consumer: Consumer, handle: Callable[[list[bytes]], Awaitable[None]]) -> None:
        """Do nothing: messages are delivered one by one by `_Federation`."""

    def take(self) -> tuple[str, bytes] | None:
        """The oldest message that has not been delivered yet, or None."""
        return self._waiting.popleft() if self._waiting else None


class _Comer(NamedTuple):
    """Somebody who comes to a silo, with the key under which the application knows them."""

    key: str
    data: User


Batches = tuple[tuple[tuple[_Comer, ...], ...], ...]  # by sync, by silo: who comes


class _HandClock:
    """A clock that is moved by hand, so that no release has to wait for its time to leave and nothing is late."""

    def __init__(self, start: float) -> None:
        self._start = self._now = start

    def read(self) -> Reading:
        return Reading(self._now, self._now - self._start, "")

    def wall(self) -> float:
        return self._now

    def pass_to(self, moment: float) -> None:
        self._now = moment


class _Sync(NamedTuple):
    """One sync of one run, as seen on the wire."""

    sent: Message  # (silos, width) each
    held: Message


@dataclass(frozen=True)
class LiveGame:
    """A plan on the live path, and two worlds to tell apart."""

    plan: Plan
    worlds: tuple[Batches, Batches]
    adversaries: tuple[Adversary, ...]

    chunk = RUNS
    planned: Envelope = ()  # not predicted: sizes of sealed messages only have to be the same in every run

    @property
    def silos(self) -> int:
        """The number of silos; all of them are played."""
        return self.plan.silos

    def play(self, world: int, trials: int, noise: NoiseSource) -> Scored:
        """Run the federation `trials` times. `noise` is not used: live parties have their own source."""
        quick = MEMORY if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) else None
        with tempfile.TemporaryDirectory(prefix="fedbandit-audit-", dir=quick) as folder:
            names = [f"silo-{number}" for number in range(self.plan.silos)]
            start = float(int(time.time()))  # a whole number, so that sums of times are exact
            homes = founding.local(Path(folder) / "homes", self.plan, names, Timing(start=start))
            federation = _Federation(self.plan, {home.settings.name: home for home in homes})
            runs = asyncio.run(federation.runs(Path(folder), self.worlds[world], trials))
        envelopes = tuple(federation.envelope(run) for run in runs)
        return self._scored(world, [federation.seen(run) for run in runs], envelopes)

    def _scored(self, world: int, runs: Sequence[Sequence[_Sync]], envelopes: tuple[Envelope, ...]) -> Scored:
        protocol = self.plan.protocol
        memories = tuple(Retraced(protocol.encoder, self.silos, protocol.width) for _ in self.worlds)
        scores = np.zeros((len(self.adversaries), len(runs)))
        recorder = Recorder(1)
        sent: list[Message] = []
        for sync, batches in enumerate(zip(*self.worlds, strict=True)):
            low, high = (
                memory.release(sync, self._sums(batch)[None]) for memory, batch in zip(memories, batches, strict=True)
            )
            now = tuple(np.stack(parts) for parts in zip(*(run[sync].sent for run in runs), strict=True))
            held = tuple(np.stack(parts) for parts in zip(*(run[sync].held for run in runs), strict=True))
            sent = remembered(self.adversaries, sent, now)
            moment = Moment(sync, len(batches[0][0]), (low, high), sent, held)
            for row, adversary in zip(scores, self.adversaries, strict=True):
                row += adversary.score(protocol, moment)
                recorder.add(adversary.residuals(protocol, moment, world))
        return Scored(scores, envelopes, recorder.tallies())

    def _sums(self, batch: Sequence[Sequence[_Comer]]) -> Integers:
        """What the users of each silo add, (silos, width)."""
        plan, sums = self.plan, np.zeros((len(batch), self.plan.protocol.width), dtype=np.int64)
        for row, comers in zip(sums, batch, strict=True):
            for comer in comers:
                row += contributions(comer.data.x, comer.data.y, plan.bits, plan.centre)
        return sums


def live_game(plan: Plan) -> LiveGame:
    """The live game of the plan's worst neighbours, who come to as many silos and as often as the promise allows."""
    low, high = (_world(plan, user) for user in telling_pair(plan))
    return LiveGame(plan, (low, high), adversaries_of(plan))


def _world(plan: Plan, user: User) -> Batches:
    assert plan.privacy is not None
    coming = visits(plan)
    counts, visited = people(plan, coming), plan.privacy.silos_per_user
    return tuple(
        tuple(_batch(plan, sync, count, user, own if silo < visited else 0) for silo in range(plan.silos))
        for sync, (count, own) in enumerate(zip(counts, coming, strict=True))
    )


def _batch(plan: Plan, sync: int, count: int, user: User, own: int) -> tuple[_Comer, ...]:
    """Who comes: the user `own` times (unless `user` stands for nobody), and others up to `count` in all."""
    others = [_Comer(f"{sync}/{number}", other) for number, other in enumerate(background_users(plan, count))]
    return (*([_Comer(USER, user)] * own if user.x.any() else ()), *others[own:])


def live_case(name: str, epsilon: float, delta: float) -> Case:
    """The live case of the protocol `name` at this budget; refused if it cannot run live."""
    _validate.one_of("name", name, NAMES)
    base = Plan(SILOS, SYNCS * BATCH, DIM, Privacy(epsilon, delta), trust="none")
    return _case_of(name, plan_for(name, base, Every(BATCH)), Privacy(epsilon, delta))


def live_reduced(plan: Plan) -> Case:
    """The live case of a plan, at a size that can be run many times."""
    if plan.privacy is None:
        raise ArgumentError("plan", "must have a privacy budget to be audited, got none")
    small = in_few_dimensions(plan).changed(schema=None, **_calendar(plan), **_silos(plan))
    return of_plan(_case_of("plan", small, plan.privacy), plan)


def _calendar(plan: Plan) -> dict[str, Any]:
    """A short schedule: a few ticks of a clock, or batches large enough for all visits of a user."""
    assert plan.privacy is not None
    if isinstance(plan.schedule, Clock):
        return {"schedule": Clock(PERIOD), "rounds": SYNCS, "privacy": returning_within(plan, SYNCS)}
    batch = max(BATCH, min(plan.privacy.participations, plan.rounds))
    return {"schedule": Every(batch), "rounds": SYNCS * batch}


def _silos(plan: Plan) -> dict[str, Any]:
    """Few silos, all of them in every sync; if they share the noise, as many as in the smallest sync."""
    assert plan.privacy is not None
    if plan.trusting.shares_noise:
        fewer = fewer_silos(plan)
        return {"silos": fewer.smallest_cohort, "colluding": fewer.colluders, "cohort": None}
    return {"silos": min(plan.silos, max(SILOS, plan.privacy.silos_per_user + 1)), "cohort": None}


def _case_of(name: str, plan: Plan, privacy: Privacy) -> Case:
    if not isinstance(plan.schedule, Clock) and privacy.adjacency == "replace-one":
        plan = plan.changed(visits="public")  # batches have a fixed size
    check_live(plan)
    if plan.personal:
        raise ArgumentError(
            "plan", "must have no personal features to be audited live: no message carries what silos release of them"
        )
    budget = (privacy.epsilon, privacy.delta)
    return Case(name, plan, (live_game(plan),), claim_of(name, plan, budget), budget, TRIALS, live=True)


class _Federation:
    """All parties of a federation, with the keys that open the messages sent to them."""

    def __init__(self, plan: Plan, homes: dict[str, Home]) -> None:
        self._plan, self._homes = plan, homes
        self._parties: dict[str, Party] = {name: home.party() for name, home in homes.items()}
        self._agreement = self._parties["analyzer"].agreement
        start = self._agreement.timing.start
        assert start is not None
        self._start, self._clock = start, _HandClock(start)

    async def runs(self, folder: Path, batches: Batches, trials: int) -> list[list[tuple[str, bytes]]]:
        """Run the federation several times, one run after another; return what crossed in each."""
        return [await self.run(folder / str(trial), batches) for trial in range(trials)]

    async def run(self, folder: Path, batches: Batches) -> list[tuple[str, bytes]]:
        """Run the federation once, on new stores; return all messages in order. Half way, every silo is closed and
        opened again: its noise must not start over."""
        folder.mkdir()
        self._clock.pass_to(self._start)
        carrier, half = RecordingCarrier(), len(batches) // 2
        link = cast(Link, carrier)  # the parties use only those methods of a link that a carrier has
        with ExitStack() as stack:
            others = [name for name in self._parties if name not in self._agreement.silos]
            keepers = {name: self._keeper(folder, name, link, stack) for name in others}
            for keeper in keepers.values():
                await keeper.greet()
            numbered = tuple(enumerate(batches))
            for part in (numbered[:half], numbered[half:]):
                await self._part(folder, part, carrier, keepers)
        return carrier.crossed

    async def _part(
        self,
        folder: Path,
        batches: Sequence[tuple[int, tuple[tuple[_Comer, ...], ...]]],
        carrier: RecordingCarrier,
        keepers: dict[str, SyncKeeper],
    ) -> None:
        """Open all silos, let them serve these batches, and close them again."""
        link = cast(Link, carrier)
        with ExitStack() as stack:
            agents = {name: self._agent(folder, name, stack) for name in self._agreement.silos}
            for agent in agents.values():
                await agent.introduce(link)
            await self._deliver(carrier, agents, keepers)
            for agent in agents.values():
                await agent.judge()
            for sync, batch in batches:
                for agent, comers in zip(agents.values(), batch, strict=True):
                    _serve(agent.silo, comers)
                self._pass(sync)
                for agent in agents.values():
                    agent.silo.tick()
                for agent in agents.values():
                    await agent.send(link)
                await self._deliver(carrier, agents, keepers)

    def _pass(self, sync: int) -> None:
        """Move the clock to the tick of this sync, if the plan has a clock."""
        if isinstance(self._plan.schedule, Clock):
            self._clock.pass_to(self._start + self._plan.times[sync] * self._plan.schedule.period)

    def _agent(self, folder: Path, name: str, stack: ExitStack) -> Agent:
        party, sealer = self._parties[name], Sealer(self._parties[name])
        secret, timing = self._homes[name].keys.seeds["salt"], self._agreement.timing
        silo = Silo.open(
            folder / f"{name}.db",
            self._plan,
            name=name,
            secret=secret,
            timing=timing,
            sealer=sealer,
            clock=self._clock,
        )
        return Agent(stack.enter_context(silo), party, sealer)

    def _keeper(self, folder: Path, name: str, link: Link, stack: ExitStack) -> SyncKeeper:
        engine = open_engine(folder / f"{name}.db")
        stack.callback(engine.close)
        kind: type[SyncKeeper] = Mixer if name == "mixer" else Analyzer
        return kind(self._parties[name], SyncStore(engine), link, clock=self._clock.wall)

    async def _deliver(
        self, carrier: RecordingCarrier, agents: dict[str, Agent], keepers: dict[str, SyncKeeper]
    ) -> None:
        """Deliver messages until none is waiting."""
        while (message := carrier.take()) is not None:
            subject, data = message
            receiver = self._receiver(subject)
            await (agents[receiver] if receiver in agents else keepers[receiver]).handle([data])

    def _receiver(self, subject: str) -> str:
        """The party that reads a subject: the named silo, or else the party with that role."""
        role, name = subject.split(".")[-2:]
        return name if role == "silo" else role

    # -- what was seen ----------------------------------------------------------------------------------------------

    def envelope(self, crossed: Sequence[tuple[str, bytes]]) -> Envelope:
        """What everybody can see of the messages: their order, subjects and sizes."""
        return tuple((f"message {number} on {subject}", len(data)) for number, (subject, data) in enumerate(crossed))

    def seen(self, crossed: Sequence[tuple[str, bytes]]) -> list[_Sync]:
        """The syncs of one run, with each message opened by its receiver."""
        opened: dict[tuple[str, int, str, str], bytes] = {}
        for subject, data in crossed:
            receiver = self._receiver(subject)
            context, payload = self._parties[receiver].open(data)
            key = (context.kind, context.sync, context.sender, receiver)
            if key in opened and context.kind in ("release", "mixed", "model"):
                raise ValueError(f"{context.sender} sent its {context.kind} of sync {context.sync} twice")
            opened[key] = payload
        syncs: list[_Sync] = []
        totals: list[Floats] = []
        for sync in range(len(self._plan.times)):
            syncs.append(self._sync(sync, opened, totals))
        return syncs

    def _sync(self, sync: int, opened: dict[tuple[str, int, str, str], bytes], totals: list[Floats]) -> _Sync:
        protocol, silos = self._plan.protocol, self._agreement.silos
        own = [self._parcel(opened, sync, name, "analyzer") for name in silos]
        through = [self._parcel(opened, sync, name, "mixer") for name in silos]
        direct, read = iter(zip(*(p.arrays for p in own))), iter(zip(*(p.arrays for p in through)))  # noqa: B905
        blind = iter(zip(*(self._carried(sync, p.carried) for p in through)))  # noqa: B905
        sent = tuple(
            np.stack(next(blind if part.blind else read if part.reader == "mixer" else direct))
            for part in protocol.parts
        )
        if protocol.has_mixer:
            mixed = Mixed.decode(opened["mixed", sync, "mixer", "analyzer"], self._plan)
            carried = self._carried(sync, mixed.carried)
            return _Sync(sent, parcels.held_by_analyzer(protocol, mixed.arrays, carried, own))
        if protocol.mixer_draws:
            return _Sync(sent, (self._published(sync, opened, totals),))
        return _Sync(sent, sent)

    def _parcel(self, opened: dict[tuple[str, int, str, str], bytes], sync: int, silo: str, role: str) -> Parcel:
        payload = opened.get(("release", sync, silo, role))
        if payload is None:
            return Parcel(())
        return Parcel.decode(payload, self._plan.protocol, "mixer" if role == "mixer" else "analyzer")

    def _carried(self, sync: int, ciphertexts: Sequence[bytes]) -> list[Numbers]:
        analyzer = self._parties["analyzer"]
        return [messages.decode(analyzer.open_anonymous("release", sync, sealed))[0] for sealed in ciphertexts]

    def _published(self, sync: int, opened: dict[tuple[str, int, str, str], bytes], totals: list[Floats]) -> Integers:
        """The noisy total behind the model that the analyzer sent to the first silo, by inverting the decoder."""
        first = self._agreement.silos[0]
        outcome = SignedOutcome.decode(opened["model", sync, "analyzer", first], self._plan).outcome
        protocol = self._plan.protocol
        row = protocol.encoder.decoder_row(sync)
        known = sum(
            (weight * total for weight, total in zip(row, totals, strict=False)), start=np.zeros(protocol.width)
        )
        totals.append(np.rint((outcome.prefix * 2.0**protocol.release_bits - known) / row[sync]))
        return totals[-1].astype(np.int64)[None]


def _serve(silo: Silo, comers: Sequence[_Comer]) -> None:
    """Serve everybody who comes, and report their rewards."""
    if comers:
        decisions = silo.decide_many(np.array([[comer.data.x] for comer in comers]), [comer.key for comer in comers])
        silo.reward_all([(decision.id, comer.data.y) for decision, comer in zip(decisions, comers, strict=True)])
