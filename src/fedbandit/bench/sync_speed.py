"""One sync of many silos: the time from the tick until all have the new model, and its cost to the central parties."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import uvloop

from fedbandit.bench.load import cpu_seconds
from fedbandit.federation.setup import founding
from fedbandit.federation.setup.agreement import Agreement
from fedbandit.federation.setup.home import FEDERATION, Home
from fedbandit.federation.setup.party import Party
from fedbandit.federation.silo.agent import Agent
from fedbandit.federation.silo.outgoing import Sealer
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.timing import Timing, pace
from fedbandit.federation.wire import broker
from fedbandit.federation.wire.link import Link
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import Clock, clock

__all__ = ["SyncCost", "sync_cost", "sync_figures"]

SMALL, LARGE = (100, 57), (1000, 20)  # silos, features
BATCH, SYNCS = 4, 4
PERIOD, LEAD = 10.0, 0.25  # seconds between two ticks of the public clock, and per silo before the clock starts
AT_ONCE = 8  # silos that are opened at the same time
LIMIT = 600.0
PROCESSES = os.cpu_count() or 1  # over which the silos are spread


class SyncCost(NamedTuple):
    """The cost of a sync."""

    seconds: float  # from the tick until all silos have the model
    pace: float  # the part of them in which releases wait to leave, which hides how long drawing them took
    central_ms: dict[str, float | None]  # CPU time per silo, by central party; None if the machine does not tell


def sync_figures() -> dict[str, float | None]:
    """How long a sync takes, and what it costs.

    `round_s_100_silos`: seconds of a sync of 100 silos with 57 features; `round_s_1000_silos`: of 1,000 silos with 20
    features. `round_pace_s`: the fixed wait before releases leave, in which they are drawn (the longer of the two).
    `analyzer_ms_per_silo` and so on: the CPU time per silo that a sync of the 1,000 costs each central party.
    """
    small, large = sync_cost(*SMALL), sync_cost(*LARGE, period=3 * PERIOD)
    return {
        "round_s_100_silos": small.seconds,
        "round_s_1000_silos": large.seconds,
        "round_pace_s": max(small.pace, large.pace),
        **{f"{name}_ms_per_silo": cost for name, cost in large.central_ms.items()},
    }


def sync_cost(silos: int, dim: int, period: float = PERIOD) -> SyncCost:
    """The median of a few syncs, from the tick of the public clock on.

    The silos, each with its own store, are spread over as many processes as there are cores. Broker, mixer and analyzer
    each run in their own process.
    """
    plan = Plan(silos, SYNCS, dim, Privacy(1.0, 1e-5), schedule=clock(period))
    with tempfile.TemporaryDirectory() as folder:
        return _cost(Path(folder), plan)


def _cost(path: Path, plan: Plan) -> SyncCost:
    names = [f"silo-{number:04}" for number in range(plan.silos)]
    timing = Timing(LIMIT, start=time.time() + 10.0 + LEAD * plan.silos)
    homes = founding.local(path, plan, names, timing)
    keepers = [home for home in homes if home.settings.role != "silo"]
    silos = [home.path for home in homes if home.settings.role == "silo"]
    with (
        broker.BrokerProcess(path / founding.BROKER_CONFIG, path / "broker.log") as running,
        _processes(keepers) as ids,
        ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as pool,
    ):
        uvloop.run(founding.provision(path))
        groups = [silos[at::PROCESSES] for at in range(min(PROCESSES, len(silos)))]
        playing = [pool.submit(_play, path, group, timing) for group in groups]
        central = {"broker": running.pid, **ids}
        time.sleep(max(0.0, _tick(plan, timing, 1) - 1.0 - time.time()))  # in the first sync everybody connects
        before = {name: cpu_seconds(process) for name, process in central.items()}
        moments = np.array([one.result() for one in playing])  # (processes, syncs)
        after = {name: cpu_seconds(process) for name, process in central.items()}
    ticks = [_tick(plan, timing, sync) for sync in range(len(plan.times))]
    seconds = (moments.max(axis=0) - ticks)[1:]
    each = 1000 / (len(seconds) * plan.silos)
    spent = {name: _spent(before[name], after[name], each) for name in central}
    return SyncCost(float(np.median(seconds)), pace(plan, timing), spent)


def _tick(plan: Plan, timing: Timing, sync: int) -> float:
    """When the public clock makes a sync due."""
    assert isinstance(plan.schedule, Clock)
    assert timing.start is not None
    return timing.start + (sync + 1) * plan.schedule.period


def _play(path: Path, homes: list[Path], timing: Timing) -> list[float]:
    """Run some of the silos in this process; return when all of them had the model of each sync."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a silo has some ten files open
    return uvloop.run(_syncs(path, [Home.load(home) for home in homes], timing))


async def _syncs(path: Path, homes: list[Home], timing: Timing) -> list[float]:
    agents = await _agents(path, homes, timing)
    tasks = [asyncio.create_task(agent.run(link)) for agent, link in agents]
    silos = [agent.silo for agent, _ in agents]
    try:
        async with asyncio.timeout(LIMIT):
            return [await _sync(silos, timing, sync) for sync in range(silos[0].syncs)]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for agent, link in agents:
            await link.close()
            agent.silo.close()


def _spent(before: float | None, after: float | None, each: float) -> float | None:
    return None if before is None or after is None else each * (after - before)


async def _sync(silos: list[Silo], timing: Timing, sync: int) -> float:
    """Let users come to every silo, wait for the tick and the model; return the moment when all silos have it."""
    actions = np.eye(silos[0].plan.dim)[:2]
    for silo in silos:
        decisions = [silo.decide(actions) for _ in range(BATCH)]
        await asyncio.to_thread(silo.reward_all, [(decision.id, 0.5) for decision in decisions])
    await asyncio.sleep(_tick(silos[0].plan, timing, sync) - time.time())
    while any(silo.version <= sync for silo in silos):
        await asyncio.sleep(0.005)
    return time.time()


async def _agents(path: Path, homes: list[Home], timing: Timing) -> list[tuple[Agent, Link]]:
    """Open the silos, some at a time. They share the agreement, which each silo would otherwise read itself."""
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


@contextmanager
def _processes(homes: Sequence[Home]) -> Iterator[dict[str, int]]:
    """The process ids of mixer and analyzer, by name; both are stopped when the block is left."""
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
