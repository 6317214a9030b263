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
from fedbandit.schedule import Clock, clock

__all__ = ["sync_figures", "sync_seconds"]

SILOS, DIM, BATCH, SYNCS = 100, 57, 4, 4
PERIOD, LEAD = 10.0, 0.2  # seconds between two ticks of the public clock, and for each silo until the first begins
LIMIT = 180.0


def sync_figures() -> dict[str, float | None]:
    """`sync_s_100_silos`: a sync of 100 silos with 57 features."""
    return {"sync_s_100_silos": sync_seconds(SILOS, DIM)}


def sync_seconds(silos: int, dim: int, period: float = PERIOD) -> float:
    """The median of a few syncs, from the tick of the public clock on. The silos are tasks of this process, each with a
    store of its own; broker, mixer and analyzer are processes."""
    plan = Plan(silos, SYNCS, dim, Privacy(1.0, 1e-5), schedule=clock(period))
    with tempfile.TemporaryDirectory() as folder:
        seconds = asyncio.run(_syncs(Path(folder), plan))
    return float(np.median(seconds[1:]))  # in the first everybody connects


async def _syncs(path: Path, plan: Plan) -> list[float]:
    names = [f"silo-{number:03}" for number in range(plan.silos)]
    timing = Timing(LIMIT, start=time.time() + 10.0 + LEAD * plan.silos)
    homes = founding.local(path, plan, names, timing)
    keepers = [home.path for home in homes if home.settings.role != "silo"]
    with broker.BrokerProcess(path / founding.BROKER_CONFIG, path / "broker.log"), _processes(keepers):
        await founding.provision(path)
        agents = [await _agent(home, timing) for home in homes if home.settings.role == "silo"]
        tasks = [asyncio.create_task(agent.run(link)) for agent, link in agents]
        try:
            async with asyncio.timeout(LIMIT):
                silos = [agent.silo for agent, _ in agents]
                return [await _sync(silos, timing, sync) for sync in range(len(plan.times))]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for agent, link in agents:
                await link.close()
                agent.silo.close()


async def _sync(silos: list[Silo], timing: Timing, sync: int) -> float:
    """Users come to every silo, the tick comes, and then the model."""
    actions, schedule = np.eye(silos[0].plan.dim)[:2], silos[0].plan.schedule
    assert isinstance(schedule, Clock)
    assert timing.start is not None
    for silo in silos:
        decisions = [silo.decide(actions) for _ in range(BATCH)]
        await asyncio.to_thread(silo.reward_all, [(decision.id, 0.5) for decision in decisions])
    tick = timing.start + (sync + 1) * schedule.period
    await asyncio.sleep(tick - time.time())
    while any(silo.version <= sync for silo in silos):
        await asyncio.sleep(0.005)
    return time.time() - tick


async def _agent(home: Home, timing: Timing) -> tuple[Agent, Link]:
    party, sealer = home.party(), Sealer(home.party())
    link = await Link.connect(home.broker(party.agreement), party.name, home.keys.broker)
    plan, secret = party.agreement.plan, home.keys.seeds["salt"]
    silo = Silo.open(home.store(plan.hash), plan, name=party.name, secret=secret, timing=timing, sealer=sealer)
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
