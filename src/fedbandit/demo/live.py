"""Play users against a live federation on this machine."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np

from fedbandit._arrays import Integers
from fedbandit.demo.clients import SiloClient, Visits
from fedbandit.demo.processes import Processes, seconds_to_start, url
from fedbandit.demo.verify import Verification, check
from fedbandit.demo.visitors import Visitors
from fedbandit.federation.setup import founding
from fedbandit.federation.setup.home import SETTINGS, Home
from fedbandit.federation.timing import Timing
from fedbandit.federation.wire import broker
from fedbandit.plan import Plan

__all__ = ["Live", "play_live"]

DEADLINE = 90.0  # longer than a killed silo needs to come back, on a busy machine too
SETTLE, SETTLE_LAST = 0.1, 5.0  # rewards come right after decisions here
PATIENCE = 2.0  # times as long as one process takes to start, for each of them: until then all are up
BACK = 3.0  # the same for one that was killed: it must be back before the last batch closes, on a busy machine too


class Live(NamedTuple):
    """What came of a live federation."""

    actions: Integers  # (silos, rounds)
    visits: list[Visits]
    statuses: list[dict[str, Any]]
    check: Verification
    restarts: int
    seconds: float


def play_live(
    path: Path,
    plan: Plan,
    users: Visitors,
    progress: Callable[[int], None],
    started: Callable[[Processes], None] = lambda processes: None,
) -> Live:
    """Set up under `path`, start everything, let the users come, stop everything, check what is on disk."""
    names = [f"silo-{number:03}" for number in range(1, plan.silos + 1)]  # in the order of the users' silos
    each = seconds_to_start()
    start = time.time() + PATIENCE * (plan.silos + 3) * each
    timing = Timing(DEADLINE, SETTLE, max(SETTLE_LAST, BACK * each * (os.cpu_count() or 1)), start)
    homes = [_with_page(home) for home in founding.local(path, plan, names, timing)]
    with Processes(path, homes) as processes:
        began = time.monotonic()
        started(processes)
        visits, statuses = asyncio.run(_play(processes, users, plan, start, progress))
        seconds, restarts = time.monotonic() - began, processes.restarts
    actions = np.array([one.actions for one in visits])
    found = check(plan, users, actions, visits, homes)
    return Live(actions, visits, statuses, found, restarts, seconds)


def _with_page(home: Home) -> Home:
    """Mixer and analyzer have a port, too, on which they can be looked at."""
    if home.settings.role == "silo":
        return home
    watched = replace(home, settings=replace(home.settings, health_port=broker.free_port()))
    watched.settings.save(home.path / SETTINGS)
    watched.make_token()
    return watched


async def _play(
    processes: Processes, users: Visitors, plan: Plan, start: float, progress: Callable[[int], None]
) -> tuple[list[Visits], list[dict[str, Any]]]:
    clients = [SiloClient(home, users, number, plan, start) for number, home in enumerate(processes.silos)]
    visits = list(await asyncio.gather(*(client.run(progress) for client in clients)))
    statuses = []
    async with httpx.AsyncClient() as http:
        for home in processes.silos:
            token = {"Authorization": f"Bearer {home.token()}"}
            statuses.append((await http.get(f"{url(home)}/v1/status", headers=token)).json())
    return visits, statuses
