"""A federation whose parties are tasks of the test, over a real broker."""

import asyncio
import time
from contextlib import asynccontextmanager

import numpy as np

from fedbandit.bandit.statistics import contributions
from fedbandit.federation.setup import founding
from fedbandit.federation.silo.agent import Agent
from fedbandit.federation.silo.outgoing import Sealer
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.store import SyncStore, open_engine
from fedbandit.federation.syncs.analyzer import Analyzer
from fedbandit.federation.syncs.mixer import Mixer
from fedbandit.federation.timing import Timing
from fedbandit.federation.wire import broker
from fedbandit.federation.wire.link import Link
from fedbandit.federation.wire.parcels import Outcome

LIMIT = 60.0


class Harness:
    """Start, cut off, kill and restart parties; let users come."""

    def __init__(self, path, plan, deadline):
        self.path, self.plan = path, plan
        names = [f"silo-{n:02}" for n in range(plan.silos)]
        homes = founding.local(path, plan, names, Timing(deadline, start=time.time()))
        self.homes = {home.settings.name: home for home in homes}
        self.silos = {n: h for n, h in self.homes.items() if h.settings.role == "silo"}
        self.server: broker.BrokerProcess | None = None
        self.running, self.sealers, self.links, self.tasks = {}, {}, {}, {}
        self.random = np.random.default_rng(5)
        self.sums = np.zeros((plan.silos, len(plan.times), plan.protocol.width), dtype=np.int64)

    async def start(self, name):
        home = self.homes[name]
        party = home.party()
        link = await Link.connect(home.broker(party.agreement), name, home.keys.broker)
        store = home.store(self.plan.hash)
        if home.settings.role == "silo":
            silo = self.running[name].silo if name in self.running else None
            sealer = self.sealers[name] if silo else Sealer(party)
            silo = silo or Silo.open(store, self.plan, name=name, secret=home.keys.seeds["salt"], sealer=sealer)
            self.running[name], self.sealers[name] = Agent(silo, party, sealer), sealer
            work = self.running[name].run(link)
        else:
            kind = Mixer if home.settings.role == "mixer" else Analyzer
            self.running[name] = kind(party, SyncStore(open_engine(store)), link)
            work = self.running[name].run()
        self.links[name], self.tasks[name] = link, asyncio.create_task(work)

    async def start_and_wait(self, name):
        """Start a party, and wait until the others have said how far they have seen it come: it then works at once."""
        await self.start(name)
        party = self.running[name]
        await self.until(lambda: party.problem is None if isinstance(party, Agent) else party.ready)

    async def cut_off(self, name):
        """The party's network goes away; a silo goes on serving and ticking."""
        self.tasks[name].cancel()
        await asyncio.gather(self.tasks[name], return_exceptions=True)
        await self.links[name].close()

    async def stop(self, name):
        """The party's process ends; what is on disk stays."""
        await self.cut_off(name)
        party = self.running.pop(name)
        party.silo.close() if isinstance(party, Agent) else party.store.engine.close()

    async def batch(self, sync, absent=()):
        """The users of one batch come to every silo, then its tick is done."""
        first, last = (0, *self.plan.times)[sync : sync + 2]
        for number, name in enumerate(self.silos):
            silo = self.running[name].silo
            contexts = self.random.normal(size=(last - first, 3, self.plan.dim))
            contexts /= np.linalg.norm(contexts, axis=-1, keepdims=True)
            decisions = silo.decide_many(contexts)
            rewards = self.random.random(last - first)
            answers = silo.reward_all([(d.id, r) for d, r in zip(decisions, rewards, strict=True)])
            for context, decision, reward, answer in zip(contexts, decisions, rewards, answers, strict=True):
                self.sums[number, answer.batch] += contributions(context[decision.action], reward, self.plan.bits)
            if name in absent:
                silo.tick()

    async def until(self, holds, limit=None):
        """Until something holds; errors of any party come out here."""
        end = time.monotonic() + (limit or LIMIT)
        while not holds():
            for task in self.tasks.values():
                if task.done() and not task.cancelled():
                    task.result()
            assert time.monotonic() < end, "it did not come to hold in time"
            await asyncio.sleep(0.02)

    async def wait(self, version, names=None, limit=None):
        """Until these silos hold the model; errors of any party come out here."""
        silos = [self.running[n].silo for n in (names or self.silos) if not self.tasks[n].done()]
        end = time.monotonic() + (limit or LIMIT)
        while any(silo.version < version for silo in silos):
            for task in self.tasks.values():
                if task.done() and not task.cancelled():
                    task.result()
            assert time.monotonic() < end, f"model {version} did not come: {[silo.version for silo in silos]}"
            await asyncio.sleep(0.02)

    async def sync(self, sync):
        await self.batch(sync)
        await self.wait(sync + 1)

    def outcome(self, sync):
        return Outcome.decode(self.running["analyzer"].store.at(sync).value, self.plan)

    def exact_prefix(self, sync):
        """The prefix sum of all silos' batches, without noise."""
        return self.sums[:, : sync + 1].sum(axis=(0, 1)) * 2.0**-self.plan.bits


@asynccontextmanager
async def federation(path, plan, deadline=LIMIT, absent=()):
    """A running federation; some parties may be started later."""
    harness = Harness(path, plan, deadline)
    with broker.BrokerProcess(path / founding.BROKER_CONFIG, path / "broker.log") as server:
        harness.server = server
        await founding.provision(path)
        for name in harness.homes:
            if name not in absent:
                await harness.start(name)
        try:
            yield harness
        finally:
            for name in list(harness.running):
                await harness.stop(name)
