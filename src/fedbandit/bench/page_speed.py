"""What an analyzer's page costs it while somebody looks: a hundred silos, most of a year of syncs.

Store, service and server are those of an analyzer, in their own process. New syncs are closed in its store as an
analyzer would close them, without any silos that send releases.
"""

from __future__ import annotations

import http.client
import multiprocessing
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import numpy as np
import uvicorn

from fedbandit.bench.http_speed import up
from fedbandit.bench.load import cpu_seconds
from fedbandit.federation.http.keeper_service import KeeperService, create_keeper_app
from fedbandit.federation.http.service import UNCONNECTED
from fedbandit.federation.process import SERVER
from fedbandit.federation.setup import founding
from fedbandit.federation.setup.home import Home
from fedbandit.federation.states import SyncEvent
from fedbandit.federation.store import SyncStore, open_engine
from fedbandit.federation.syncs.keeper import SyncKeeper
from fedbandit.federation.timing import Timing
from fedbandit.federation.wire.broker import free_port
from fedbandit.federation.wire.heads import Head
from fedbandit.federation.wire.parcels import Outcome
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import clock

__all__ = ["close_syncs", "page_figures", "year_of_a_hundred"]

SILOS, SYNCS, DONE, DIM = 100, 365, 300, 10
DAY = 86_400.0
PACE = 2.0  # seconds between two requests of a page, as in operations.js
LOOKS, EVENTS, IDLE = 10, 10, 10.0  # requests at that pace, new syncs, seconds without requests
TOKEN = "bench"
AWAY = 0.02  # the share of silos that a sync misses


class _Nobody(NamedTuple):
    """An analyzer without a broker, which has no keeper."""

    keeper: SyncKeeper | None = None


def page_figures() -> dict[str, float | None]:
    """The cost of the page of an analyzer with 100 silos, after 300 of 365 syncs.

    `page_update_ms`: how long the first request after a sync takes, to the last byte. `page_update_cpu_ms`: the CPU
    time that this costs the analyzer. `page_core_share`: the share of one core that an open page costs it at the page's
    own pace. CPU times are None if the machine does not tell.
    """
    with tempfile.TemporaryDirectory() as folder, _analyzer(Path(folder)) as (port, process, order):
        page = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        tag = _look(page, "")
        page.close()  # the server would close it before the next request
        idle = _spent(process, lambda: time.sleep(IDLE))

        def looks() -> None:
            for _ in range(LOOKS):
                _look(page, tag)
                time.sleep(PACE)

        looking = _spent(process, looks)
        took, cost = list[float](), list[float | None]()
        for _ in range(EVENTS):
            order.send(1)
            order.recv()
            cost.append(_spent(process, lambda: took.append(_timed(page, tag))))
        page.close()
    known = [each for each in cost if each is not None]
    share = None if idle is None or looking is None else max(0.0, looking / (LOOKS * PACE) - idle / IDLE)
    return {
        "page_update_ms": 1000 * float(np.median(took)),
        "page_update_cpu_ms": 1000 * float(np.median(known)) if known else None,
        "page_core_share": share,
    }


def year_of_a_hundred(folder: Path) -> Home:
    """The directory of an analyzer with a hundred silos, some of which are away at times, after most of a year."""
    plan = Plan(SILOS, SYNCS, DIM, Privacy(1.0, 1e-6), schedule=clock(DAY), people=20)
    names = [f"hospital-{number:03}" for number in range(SILOS)]
    home = founding.local(folder, plan, names, Timing(start=time.time() - (DONE + 0.5) * DAY))[0]
    engine = open_engine(home.store(plan.hash))
    close_syncs(SyncStore(engine), plan, names, range(DONE))
    engine.close()
    return home


def close_syncs(store: SyncStore, plan: Plan, names: list[str], syncs: range) -> None:
    """Close syncs as an analyzer does. One silo is away in the last nineteen of the first three hundred."""
    constant = np.eye(plan.dim)[np.triu_indices(plan.dim)]
    for sync in syncs:
        random = np.random.default_rng(sync)
        present = [name for at, name in enumerate(names) if random.random() > AWAY and not (at == 17 and sync > 280)]
        prefix = np.concatenate([np.full(plan.dim, 3.0 * sync), constant * 40.0 * (sync + 1)])
        outcome = Outcome(prefix + random.normal(size=prefix.shape), np.array([int(name in present) for name in names]))
        store.receive([(sync, present[0], b"")])
        store.close(sync, SyncEvent.DEADLINE_ENOUGH, present, outcome.encode(), Head(sync + 1, bytes(32), bytes(64)))
        store.published(sync)


@contextmanager
def _analyzer(folder: Path) -> Iterator[tuple[int, int, Connection]]:
    """An analyzer that runs until the block is left: its port, its process, and a pipe to order a sync."""
    home, port = year_of_a_hundred(folder), free_port()
    context = multiprocessing.get_context("spawn")
    order, ordered = context.Pipe()
    process = context.Process(target=_serve, args=(port, str(home.path), ordered), daemon=True)
    process.start()
    try:
        up(port)
        assert process.pid is not None
        yield port, process.pid, order
    finally:
        process.terminate()
        process.join(10)


def _serve(port: int, path: str, ordered: Connection) -> None:
    home = Home.load(Path(path))
    party = home.party()
    plan = party.agreement.plan
    store = SyncStore(open_engine(home.store(plan.hash)))

    def close() -> None:
        for sync in range(DONE, SYNCS):
            ordered.recv()
            close_syncs(store, plan, list(party.agreement.silos), range(sync, sync + 1))
            ordered.send(1)

    threading.Thread(target=close, daemon=True).start()
    app = create_keeper_app(KeeperService(_Nobody(), party, store, UNCONNECTED), TOKEN)
    uvicorn.run(app, port=port, log_level="error", **SERVER)


def _look(page: http.client.HTTPConnection, tag: str) -> str:
    """Send the page's own request, and return the tag of the answer."""
    page.request("GET", "/v1/board", headers={"Authorization": f"Bearer {TOKEN}", "If-None-Match": tag})
    answer = page.getresponse()
    answer.read()
    if answer.status not in (200, 304):
        raise RuntimeError(f"the page was not served: {answer.status}")
    return answer.headers["etag"]


def _timed(page: http.client.HTTPConnection, tag: str) -> float:
    began = time.perf_counter()
    _look(page, tag)
    return time.perf_counter() - began


def _spent(process: int, work: Callable[[], object]) -> float | None:
    """The CPU seconds that a process uses during `work`."""
    before = cpu_seconds(process)
    work()
    after = cpu_seconds(process)
    return None if before is None or after is None else after - before
