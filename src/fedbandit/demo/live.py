"""Plays users against a live federation on this machine."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np

from fedbandit._arrays import Integers
from fedbandit.demo.clients import SiloClient, Visits
from fedbandit.demo.ending import Ending
from fedbandit.demo.processes import NotUp, Processes, seconds_to_start, url
from fedbandit.demo.verify import Verification, check
from fedbandit.demo.visitors import Visitors
from fedbandit.federation.setup import founding
from fedbandit.federation.setup.home import SETTINGS, Home
from fedbandit.federation.timing import Timing
from fedbandit.federation.wire import broker
from fedbandit.plan import Plan

__all__ = ["Live", "play_live"]

DEADLINE = 90.0  # seconds: longer than a killed silo needs to come back, even on a busy machine
SETTLE, SETTLE_LAST = 0.1, 5.0  # rewards come right after decisions here
PATIENCE = (2.0, 6.0, 18.0)  # all must be up after this many times the start of one process, times their number
BACK = 3.0  # the same factor for a killed process, which must be back before the last batch closes


class Live(NamedTuple):
    """The outcome of a live federation."""

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
    ending: Ending | None = None,
) -> Live:
    """Set up a federation under `path`, start it, let the users come, stop it, and check what is on disk."""
    ending = ending or Ending()
    with _running(path, plan, ending) as (processes, start):
        began = time.monotonic()
        started(processes)
        visits, statuses = ending.run(_play(processes, users, plan, start, progress))
        seconds, restarts = time.monotonic() - began, processes.restarts
        homes = processes.homes
    actions = np.array([one.actions for one in visits])
    found = check(plan, users, actions, visits, homes)
    return Live(actions, visits, statuses, found, restarts, seconds)


@contextmanager
def _running(path: Path, plan: Plan, ending: Ending) -> Iterator[tuple[Processes, float]]:
    """The federation's processes, and when their clock starts.

    The clock must not start before all silos are up, because a silo that comes up when several ticks are overdue draws
    nothing. If other work slows the machine down while the processes start, the federation is founded again, with a
    clock that starts later.
    """
    with ExitStack() as running:
        for patience in PATIENCE:
            homes, start = _founded(path, plan, patience, ending)
            try:
                processes = running.enter_context(Processes(path, homes, start, ending))
                break
            except NotUp:
                if patience == PATIENCE[-1]:
                    raise
                shutil.rmtree(path)
        yield processes, start


def _founded(path: Path, plan: Plan, patience: float, ending: Ending) -> tuple[list[Home], float]:
    """A federation under `path`, and when its clock starts, which depends on how long one process takes to start."""
    names = [f"silo-{number:03}" for number in range(1, plan.silos + 1)]  # in the order of the users' silos
    each = seconds_to_start(ending)
    settle_last = max(SETTLE_LAST, BACK * each * (os.cpu_count() or 1))
    start = time.time() + patience * (plan.silos + 3) * each
    timing = Timing(max(DEADLINE, 2 * settle_last), SETTLE, settle_last, start)
    return [_with_page(home) for home in founding.local(path, plan, names, timing)], start


def _with_page(home: Home) -> Home:
    """The party, with a port for its page if it is the mixer or the analyzer; silos have one anyway."""
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
