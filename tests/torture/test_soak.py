"""A federation at full speed for a long time: memory stays flat, files stay bounded, every invariant holds at the end.

All parties are in this process, each with its own store and its own clock, so that ten thousand ticks take minutes. In
place of the broker is a queue that forgets what it has handed on.
"""

import asyncio
import gc
import os
import tempfile
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import pytest

from fedbandit.federation.setup import founding
from fedbandit.federation.setup.home import Home
from fedbandit.federation.silo import book
from fedbandit.federation.silo.agent import Agent
from fedbandit.federation.silo.outgoing import Sealer
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.states import ReleaseState, SyncState
from fedbandit.federation.store import SyncStore, open_engine
from fedbandit.federation.syncs.analyzer import Analyzer
from fedbandit.federation.syncs.keeper import SyncKeeper
from fedbandit.federation.syncs.mixer import Mixer
from fedbandit.federation.timing import Reading, Timing
from fedbandit.federation.wire.link import Link
from fedbandit.federation.wire.subjects import Consumer
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import clock
from tests.torture.conftest import Size, Tally

pytestmark = pytest.mark.fire
START = 1_000_000.0
SILOS = 10
HOUR = 3600.0  # from tick to tick
WINDOW = 50 * HOUR  # how long a decision waits for its reward
LOG = 2**22  # bytes: SQLite empties its log into the file when it has 1,000 pages
QUICK = Path("/dev/shm")  # where a sync costs nothing, if there is such a place
TIDY = 5  # ticks between two times of tidying up, as on a busy machine


class Clock:
    """It is set at every tick."""

    now = START

    def read(self) -> Reading:
        return Reading(self.now, self.now, "one machine")


class Queue:
    """A link for everybody: what is published waits, and is gone when it was handed on."""

    def __init__(self) -> None:
        self._waiting: list[tuple[str, bytes]] = []

    async def publish(self, subject: str, data: bytes, message_id: str) -> None:
        self._waiting.append((subject, data))

    async def read(self, consumer: Consumer, handle: Callable[[list[bytes]], Awaitable[None]]) -> None:
        """Nothing to read: messages are handed on."""

    def take(self) -> dict[str, list[bytes]]:
        """What waits, by receiver, each with all of its messages, as a broker gives them out."""
        bundles: dict[str, list[bytes]] = defaultdict(list)
        for subject, data in self._waiting:
            role, name = subject.split(".")[-2:]
            bundles[name if role == "silo" else role].append(data)
        self._waiting.clear()
        return bundles


class Soak:
    """The parties."""

    def __init__(self, folder: Path, plan: Plan, stack: ExitStack) -> None:
        self.plan, self.folder, self.clock = plan, folder, Clock()
        self._queue, self._random = Queue(), np.random.default_rng(3)
        timing = Timing(start=START, reward_window=WINDOW)
        homes = founding.local(folder / "homes", plan, [f"silo-{number}" for number in range(plan.silos)], timing)
        self.agents: dict[str, Agent] = {}
        self.keepers: dict[str, SyncKeeper] = {}
        self.acknowledged = 0
        for home in homes:
            if home.settings.role == "silo":
                self.agents[home.settings.name] = self._agent(home, timing, stack)
            else:
                self.keepers[home.settings.name] = self._keeper(home, stack)

    async def begin(self) -> None:
        for keeper in self.keepers.values():
            await keeper.greet()
        for agent in self.agents.values():
            await agent.introduce(cast(Link, self._queue))
        await self._deliver()
        for agent in self.agents.values():
            await agent.judge()

    async def tick(self, sync: int) -> None:
        """One person comes to every silo; then the sync is due."""
        for agent in self.agents.values():
            actions = self._random.normal(size=(2, self.plan.dim))
            actions /= np.linalg.norm(actions, axis=-1, keepdims=True)
            decision = agent.silo.decide(actions)
            assert agent.silo.reward(decision.id, float(self._random.random())).batch == sync
            self.acknowledged += 1
        self.clock.now = START + self.plan.times[sync] * HOUR
        for agent in self.agents.values():
            assert agent.silo.ticker.release() == [sync]
            await agent.send(cast(Link, self._queue))
        await self._deliver()
        if sync % TIDY == 0:
            assert all(agent.silo.ticker.tidy() for agent in self.agents.values())

    def check(self) -> None:
        """Nothing was lost on the way."""
        count, models = len(self.plan.times), None
        for name, agent in self.agents.items():
            store = agent.silo.store
            releases = store.releases(1)
            assert [release.state for release in releases] == [ReleaseState.INCLUDED] * count, name
            assert [release.users for release in releases] == [1] * count, name
            assert len(book.entries(store.ledger())) == count
            assert agent.refused.count == 0
            models = models or store.models(1)
            assert store.models(1) == models, f"{name} has other models than the first silo"
        for keeper in self.keepers.values():
            assert [sync.state for sync in keeper.store.all()] == [SyncState.PUBLISHED] * count
            assert (keeper.refused.count, keeper.problem) == (0, None)
        assert self.acknowledged == count * self.plan.silos

    async def _deliver(self) -> None:
        while bundles := self._queue.take():
            for receiver, bundle in bundles.items():
                await (self.agents[receiver] if receiver in self.agents else self.keepers[receiver]).handle(bundle)

    def _agent(self, home: Home, timing: Timing, stack: ExitStack) -> Agent:
        party = home.party()
        sealer, path = Sealer(party), self.folder / f"{party.name}.db"
        secret = home.keys.seeds["salt"]
        silo = Silo.open(
            path, self.plan, name=party.name, secret=secret, timing=timing, clock=self.clock, sealer=sealer
        )
        return Agent(stack.enter_context(silo), party, sealer)

    def _keeper(self, home: Home, stack: ExitStack) -> SyncKeeper:
        party, engine = home.party(), open_engine(self.folder / f"{home.settings.name}.db")
        stack.callback(engine.close)
        kind: type[SyncKeeper] = Mixer if home.settings.role == "mixer" else Analyzer
        queue = cast(Link, self._queue)
        return kind(party, SyncStore(engine), queue, clock=lambda: self.clock.now, steady=lambda: self.clock.now)


class Measured(NamedTuple):
    memory: int  # bytes
    files: dict[str, int]
    logs: int


def measured(folder: Path) -> Measured:
    gc.collect()
    with open("/proc/self/statm") as file:
        memory = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    files = {path.name: path.stat().st_size for path in folder.glob("*.db")}
    return Measured(memory, files, max(path.stat().st_size for path in folder.glob("*.db-wal")))


def test_ten_silos_at_full_speed(tmp_path: Path, size: Size, tally: Tally) -> None:
    """Memory may not grow in the second half by more than 24 MB: what is kept there on purpose (the moment of each
    tick, bounded caches) is a tenth of that, and one leaked message of 1 kB per silo and tick would be twice as much.

    Files grow by what is kept for good, a release, a model and a ledger entry per tick, and by nothing else: as much
    in the second half as in the first, give or take one log of 4 MB that is emptied into the file now or later.
    """
    ticks = size(100, 10_000)
    plan = Plan(
        SILOS, ticks, 2, Privacy(1.0, 0.1), trust="secure-sum", mechanism="tree", schedule=clock(HOUR), visits="private"
    )
    quick = QUICK if QUICK.is_dir() and os.access(QUICK, os.W_OK) else tmp_path
    with tempfile.TemporaryDirectory(dir=quick) as folder, ExitStack() as stack:
        soak = Soak(Path(folder), plan, stack)
        # After a tenth, which warms up, after the half and at the end.
        marks = asyncio.run(soaked(soak, ticks, (ticks // 10, ticks // 2 + ticks // 20, ticks)))
        soak.check()
    early, middle, late = marks
    assert late.memory - middle.memory < 24 * 2**20, marks
    for name in late.files:
        first, second = middle.files[name] - early.files[name], late.files[name] - middle.files[name]
        assert second < 1.6 * first + LOG, f"{name} grows faster and faster: {marks}"
    assert late.logs < 2 * LOG, marks
    tally("soaked ticks", ticks)


async def soaked(soak: Soak, ticks: int, marks: tuple[int, ...]) -> list[Measured]:
    """What is in use after each of these ticks."""
    await soak.begin()
    found = []
    for sync in range(ticks):
        await soak.tick(sync)
        if sync + 1 in marks:
            found.append(measured(soak.folder))
    return found
