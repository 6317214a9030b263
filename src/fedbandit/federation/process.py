"""A party as a process: `run(home)` works until it is told to stop, and stops by itself when plans differ."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import time
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import uvicorn
import uvloop

from fedbandit._validate import ArgumentError
from fedbandit.federation.http.app import create_app
from fedbandit.federation.http.metrics import WorkerTally
from fedbandit.federation.http.service import Service
from fedbandit.federation.http.straight import StraightProtocol
from fedbandit.federation.setup.agreement import Agreement
from fedbandit.federation.setup.home import Home
from fedbandit.federation.setup.party import Party, PlanMismatch
from fedbandit.federation.silo.agent import Agent
from fedbandit.federation.silo.outgoing import Sealer
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.store import Engine, SyncStore, open_engine
from fedbandit.federation.store.database import remember
from fedbandit.federation.store.decision_log import DecisionLog
from fedbandit.federation.syncs.analyzer import Analyzer
from fedbandit.federation.syncs.keeper import SyncKeeper
from fedbandit.federation.syncs.mixer import Mixer
from fedbandit.federation.wire.link import Link

__all__ = ["REFUSED", "SERVER", "Orders", "bind", "run"]

log = logging.getLogger(__name__)
SERVER: dict[str, Any] = {
    "http": StraightProtocol,
    "loop": "uvloop",
    "access_log": False,
    "proxy_headers": False,
    "server_header": False,
    "date_header": False,
}
REFUSED = 3  # exit code: this party refuses to work
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0  # seconds until a silo tries again to take part
QUICKEN = 1.0  # seconds after the start of a silo until it loads what makes decisions faster
STEADY = 2.0  # seconds without an error after which a silo takes part again


@dataclass(frozen=True)
class Orders:
    """What somebody says when a party is started, beside what is in its directory."""

    new_term: bool = False
    catch_up: bool = False  # the clock is right: draw what is overdue
    broker_ca: str = ""  # instead of the one in the party's settings


def run(
    path: Path,
    orders: Orders = Orders(),  # noqa: B008 (frozen)
    listen: socket.socket | None = None,
    tally: WorkerTally | None = None,
) -> int:
    """Run the party of this directory in its role until SIGTERM or SIGINT; returns the exit code. A worker of a silo
    is given the socket and the tally that it shares with the others."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    home = Home.load(path)
    if orders.broker_ca:
        home = replace(home, settings=replace(home.settings, broker_ca=orders.broker_ca))
    party = home.party()
    work = serve(home, party, orders, listen, tally) if home.settings.role == "silo" else keep(home, party)
    try:
        uvloop.run(work)
    except ExceptionGroup as group:
        mismatch = group.subgroup(PlanMismatch)
        if mismatch is None:
            raise
        log.error("refusing to work: %s", mismatch.exceptions[0])
        return REFUSED
    return 0


def bind(engine: Engine, agreement: Agreement) -> None:
    """Tie a store to the agreement it began with: keys, members and times do not change in a term. (Where the broker
    is may.)"""
    bound = replace(agreement, broker="").fingerprint
    found = remember(engine, f"agreement {agreement.plan.hash}", bound.encode()).decode()
    if found != bound:
        raise ArgumentError(
            "federation", "must be the file that this term began with: keys, members or times in it have changed since"
        )


async def keep(home: Home, party: Party) -> None:
    """Mixer or analyzer."""
    party.agreement.check_keys()
    kind: type[SyncKeeper] = Mixer if home.settings.role == "mixer" else Analyzer
    engine = open_engine(home.store(party.agreement.plan.hash))
    bind(engine, party.agreement)
    link = await _connect(home, party)
    try:
        await _until_stopped(kind(party, SyncStore(engine), link).run())
    finally:
        await link.close()
        engine.close()


async def serve(
    home: Home, party: Party, orders: Orders, listen: socket.socket | None, tally: WorkerTally | None
) -> None:
    """A silo: its HTTP service, and its side of the federation beside it."""
    agreement, settings, sealer = party.agreement, home.settings, Sealer(party)
    silo = Silo.open(
        home.store(agreement.plan.hash),
        agreement.plan,
        name=settings.name,
        secret=home.keys.seeds["salt"],
        timing=agreement.timing,
        sealer=sealer,
        new_term=orders.new_term,
        catch_up=orders.catch_up,
        keep_raw=settings.keep_raw,
        strict=settings.strict,
        log=DecisionLog(home.decision_log, settings.log_days) if settings.log_days else None,
    )
    bind(silo.store.engine, agreement)
    member = _Member(home, party, Agent(silo, party, sealer))
    service = Service(silo, member, tally)
    server = _StoppableServer(_config(home, service))
    federation = asyncio.create_task(member.run())
    quickening = asyncio.create_task(_quicken(silo))
    federation.add_done_callback(lambda _: setattr(server, "should_exit", True))
    gc.freeze()  # what was imported stays: no collection looks at it again
    log.info("silo %s serves on %s port %d", silo.name, settings.host, settings.port)
    try:
        await server.serve([listen] if listen else None)
    finally:
        quickening.cancel()
        federation.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await federation
        service.close()
        silo.close()


async def _quicken(silo: Silo) -> None:
    """Make decisions faster, once the silo serves."""
    await asyncio.sleep(QUICKEN)
    try:
        await asyncio.to_thread(silo.quicken)
    except Exception as error:  # no compiler, no place for its cache: decisions go on as they are
        log.warning("decisions stay slower than they could be: %s: %s", type(error).__name__, error)


class _StoppableServer(uvicorn.Server):
    """Stops on SIGTERM and SIGINT and then returns, so that the silo can be closed in order."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, setattr, self, "should_exit", True)
        yield


class _Member:
    """A silo in its federation: it joins, and joins again after whatever went wrong. Decisions go on meanwhile."""

    def __init__(self, home: Home, party: Party, agent: Agent) -> None:
        self._home, self._party, self._agent = home, party, agent
        self._trouble: str | None = None

    @property
    def connected(self) -> bool:
        return self._agent.connected

    @property
    def problem(self) -> str | None:
        """What keeps the silo from ticking, if anything does."""
        if self._agent.link is None and self._trouble is None:
            return f"the broker at {self._party.agreement.broker} has not answered yet: nothing ticks until it does"
        link = self._agent.link
        unavailable = link.trouble if link is not None and self.connected else None
        return self._trouble or unavailable or self._agent.problem

    async def run(self) -> None:
        wait = FIRST_WAIT
        while True:
            began = time.monotonic()
            try:
                await self._take_part()
            except Exception as error:
                if isinstance(error, ExceptionGroup) and error.subgroup(PlanMismatch):
                    raise
                self._trouble = f"taking part failed: {_reason(error)}"
                log.error("%s; trying again in %g s", self._trouble, wait, exc_info=error)
            wait = FIRST_WAIT if time.monotonic() - began > LONGEST_WAIT else wait
            await asyncio.sleep(wait)
            wait = min(LONGEST_WAIT, 2 * wait)

    async def _take_part(self) -> None:
        link = await _connect(self._home, self._party)
        working = asyncio.create_task(self._agent.run(link))
        try:
            done, _ = await asyncio.wait({working}, timeout=STEADY)
            if not done:
                self._trouble = None
            await working
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            await link.close()


def _reason(error: BaseException) -> str:
    """The first of the errors that belong together, in words."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


def _config(home: Home, service: Service) -> uvicorn.Config:
    settings = home.settings
    return uvicorn.Config(
        create_app(service, home.token()),
        host=settings.host,
        port=settings.port,
        ssl_certfile=settings.tls_certificate or None,
        ssl_keyfile=settings.tls_key or None,
        log_level="warning",
        timeout_graceful_shutdown=5,
        **SERVER,
    )


async def _connect(home: Home, party: Party) -> Link:
    return await Link.connect(home.broker(party.agreement), party.name, home.keys.broker)


async def _until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Run until SIGTERM or SIGINT."""
    task = asyncio.create_task(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task
