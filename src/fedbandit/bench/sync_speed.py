"""One sync of a hundred silos, from the tick to every silo holding the new model."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from fedbandit.federation.setup import founding
from fedbandit.federation.setup.home import Home
from fedbandit.federation.silo.agent import Agent
from fedbandit.federation.silo.outgoing import Sealer
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.timing import Timing
from fedbandit.federation.wire import broker
from fedbandit.federation.wire.link import Link
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import every

__all__ = ["sync_figures", "sync_seconds"]

SILOS, DIM, BATCH, SYNCS = 100, 57, 4, 4
LIMIT = 120.0


def sync_figures() -> dict[str, float | None]:
    """`sync_s_100_silos`: a sync of 100 silos with 57 features."""
    return {"sync_s_100_silos": sync_seconds(SILOS, DIM)}


def sync_seconds(silos: int, dim: int) -> float:
    """The median of a few syncs. The silos are tasks of this process, each with a store of its own; broker, mixer and
    analyzer are processes."""
    plan = Plan(silos, BATCH * SYNCS, dim, Privacy(1.0, 1e-5), schedule=every(BATCH))
    with tempfile.TemporaryDirectory() as folder:
        seconds = asyncio.run(_syncs(Path(folder), plan))
    return float(np.median(seconds[1:]))  # in the first everybody connects


async def _syncs(path: Path, plan: Plan) -> list[float]:
    names = [f"silo-{number:03}" for number in range(plan.silos)]
    homes = founding.local(path, plan, names, Timing(LIMIT, start=time.time()))
    keepers = [home.path for home in homes if home.settings.role != "silo"]
    with broker.BrokerProcess(path / founding.BROKER_CONFIG, path / "broker.log"), _processes(keepers):
        await founding.provision(path)
        agents = [await _agent(home) for home in homes if home.settings.role == "silo"]
        tasks = [asyncio.create_task(agent.run(link)) for agent, link in agents]
        try:
            async with asyncio.timeout(LIMIT):
                return [await _sync([agent.silo for agent, _ in agents], sync) for sync in range(len(plan.times))]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for agent, link in agents:
                await link.close()
                agent.silo.close()


async def _sync(silos: list[Silo], sync: int) -> float:
    """Users come, all but the last of every silo; then the last, which makes the tick due; then wait."""
    actions = np.eye(silos[0].plan.dim)[:2]
    for silo in silos:
        decisions = [silo.decide(actions) for _ in range(BATCH - 1)]
        silo.reward_all([(decision.id, 0.5) for decision in decisions])
    # Between two ticks a silo draws the noise of its next release; here all do on one machine.
    await asyncio.gather(*(asyncio.to_thread(silo.ticker.prepare) for silo in silos))
    await asyncio.sleep(1)
    began = time.perf_counter()
    for silo in silos:
        silo.decide(actions)
    while any(silo.version <= sync for silo in silos):
        await asyncio.sleep(0.005)
    return time.perf_counter() - began


async def _agent(home: Home) -> tuple[Agent, Link]:
    party, sealer = home.party(), Sealer(home.party())
    link = await Link.connect(home.broker(party.agreement), party.name, home.keys.broker)
    plan = party.agreement.plan
    silo = Silo.open(home.store(plan.hash), plan, name=party.name, secret=home.keys.seeds["salt"], sealer=sealer)
    return Agent(silo, party, sealer), link


@contextmanager
def _processes(homes: list[Path]) -> Iterator[None]:
    """Mixer and analyzer, each a process; ended when the block is left."""
    started = [
        subprocess.Popen([sys.executable, "-m", "fedbandit.federation", str(home)], stderr=subprocess.DEVNULL)
        for home in homes
    ]
    try:
        yield
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(20)
