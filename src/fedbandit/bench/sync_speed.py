"""One sync of many silos, from the tick to every silo holding the new model; and what it costs the central parties."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import uvloop

from fedbandit.federation.setup import founding
from fedbandit.federation.setup.agreement import Agreement
from fedbandit.federation.setup.home import FEDERATION, Home
from fedbandit.federation.setup.party import Party
from fedbandit.federation.silo.agent import Agent
from fedbandit.federation.silo.outgoing import Sealer
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.timing import Timing
from fedbandit.federation.wire import broker
from fedbandit.federation.wire.link import Link
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import Clock, clock

__all__ = ["SyncCost", "sync_cost", "sync_figures"]

SMALL, LARGE = (100, 57), (1000, 20)  # silos, features
BATCH, SYNCS = 4, 4
PERIOD, LEAD = 10.0, 0.25  # seconds between two ticks of the public clock, and for each silo until the first begins
AT_ONCE = 8  # silos that are opened at the same time
LIMIT = 600.0


class SyncCost(NamedTuple):
    """Seconds that a sync takes, and milliseconds of CPU that it costs each central party per silo (None where the
    machine does not tell)."""

    seconds: float
    central_ms: dict[str, float | None]


def sync_figures() -> dict[str, float | None]:
    """`round_s_100_silos`: a sync of 100 silos with 57 features; `round_s_1000_silos`: of 1,000 with 20 features.
    `analyzer_ms_per_silo` and its like are what a sync of the 1,000 costs each central party per silo."""
    small, large = sync_cost(*SMALL), sync_cost(*LARGE, period=3 * PERIOD)
    return {
        "round_s_100_silos": small.seconds,
        "round_s_1000_silos": large.seconds,
        **{f"{name}_ms_per_silo": cost for name, cost in large.central_ms.items()},
    }


def sync_cost(silos: int, dim: int, period: float = PERIOD) -> SyncCost:
    """The median of a few syncs, from the tick of the public clock on. The silos are tasks of this process, each with a
    store of its own; broker, mixer and analyzer are processes."""
    plan = Plan(silos, SYNCS, dim, Privacy(1.0, 1e-5), schedule=clock(period))
    with tempfile.TemporaryDirectory() as folder:
        return uvloop.run(_syncs(Path(folder), plan))


async def _syncs(path: Path, plan: Plan) -> SyncCost:
    names = [f"silo-{number:04}" for number in range(plan.silos)]
    timing = Timing(LIMIT, start=time.time() + 10.0 + LEAD * plan.silos)
    homes = founding.local(path, plan, names, timing)
    keepers = [home for home in homes if home.settings.role != "silo"]
    with (
        broker.BrokerProcess(path / founding.BROKER_CONFIG, path / "broker.log") as running,
        _processes(keepers) as ids,
    ):
        await founding.provision(path)
        agents = await _agents(path, [home for home in homes if home.settings.role == "silo"], timing)
        tasks = [asyncio.create_task(agent.run(link)) for agent, link in agents]
        try:
            async with asyncio.timeout(LIMIT):
                silos = [agent.silo for agent, _ in agents]
                await _sync(silos, timing, 0)  # in the first everybody connects
                central = {"broker": running.pid, **ids}
                before = {name: _cpu_seconds(process) for name, process in central.items()}
                seconds = [await _sync(silos, timing, sync) for sync in range(1, len(plan.times))]
                after = {name: _cpu_seconds(process) for name, process in central.items()}
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for agent, link in agents:
                await link.close()
                agent.silo.close()
    each = 1000 / (len(seconds) * plan.silos)
    return SyncCost(float(np.median(seconds)), {name: _spent(before[name], after[name], each) for name in central})


def _spent(before: float | None, after: float | None, each: float) -> float | None:
    return None if before is None or after is None else each * (after - before)


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


async def _agents(path: Path, homes: list[Home], timing: Timing) -> list[tuple[Agent, Link]]:
    """The silos, some at a time. They share the agreement, which each of them would read for itself."""
    agreement, found = Agreement.load(path / FEDERATION), list[tuple[Agent, Link]]()
    for at in range(0, len(homes), AT_ONCE):
        found += await asyncio.gather(*(_agent(home, agreement, timing) for home in homes[at : at + AT_ONCE]))
    return found


async def _agent(home: Home, agreement: Agreement, timing: Timing) -> tuple[Agent, Link]:
    party = Party.member(agreement, home.keys, home.settings.name, home.settings.role)
    plan, sealer = agreement.plan, Sealer(party)
    link = await Link.connect(home.broker(agreement), party.name, home.keys.broker)

    def opened() -> Silo:
        store, secret = home.store(plan.hash), home.keys.seeds["salt"]
        return Silo.open(store, plan, name=party.name, secret=secret, timing=timing, sealer=sealer)

    return Agent(await asyncio.to_thread(opened), party, sealer), link


def _cpu_seconds(process: int) -> float | None:
    """What a process has used so far."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _processes(homes: Sequence[Home]) -> Iterator[dict[str, int]]:
    """Mixer and analyzer, each a process, by name; ended when the block is left."""
    started = {
        home.settings.name: subprocess.Popen(
            [sys.executable, "-m", "fedbandit.federation", str(home.path)], stderr=subprocess.DEVNULL
        )
        for home in homes
    }
    try:
        yield {name: process.pid for name, process in started.items()}
    finally:
        for process in started.values():
            process.terminate()
        for process in started.values():
            process.wait(20)
