"""A party as a process: `run(home)` works until it is told to stop, and stops by itself when plans differ."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import uvicorn

from fedbandit.federation.http.app import create_app
from fedbandit.federation.http.service import Service
from fedbandit.federation.setup.home import Home
from fedbandit.federation.setup.party import Party, PlanMismatch
from fedbandit.federation.silo.agent import Agent
from fedbandit.federation.silo.outgoing import Sealer
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.store import SyncStore, open_engine
from fedbandit.federation.syncs.analyzer import Analyzer
from fedbandit.federation.syncs.keeper import SyncKeeper
from fedbandit.federation.syncs.mixer import Mixer
from fedbandit.federation.wire.link import Link

__all__ = ["REFUSED", "run"]

log = logging.getLogger(__name__)
SERVER: dict[str, Any] = {"access_log": False, "server_header": False, "date_header": False}
REFUSED = 3  # exit code: this party refuses to work


def run(path: Path, *, new_term: bool = False, listen: socket.socket | None = None) -> int:
    """Run the party of this directory in its role until SIGTERM or SIGINT; returns the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    home = Home.load(path)
    party = home.party()
    work = serve(home, party, new_term, listen) if home.settings.role == "silo" else keep(home, party)
    try:
        asyncio.run(work)
    except ExceptionGroup as group:
        mismatch = group.subgroup(PlanMismatch)
        if mismatch is None:
            raise
        log.error("refusing to work: %s", mismatch.exceptions[0])
        return REFUSED
    return 0


async def keep(home: Home, party: Party) -> None:
    """Mixer or analyzer."""
    kind: type[SyncKeeper] = Mixer if home.settings.role == "mixer" else Analyzer
    engine = open_engine(home.store(party.agreement.plan.hash))
    link = await _connect(home, party)
    try:
        await _until_stopped(kind(party, SyncStore(engine), link).run())
    finally:
        await link.close()
        engine.close()


async def serve(home: Home, party: Party, new_term: bool, listen: socket.socket | None) -> None:
    """A silo: its HTTP service, and its side of the federation beside it."""
    agreement, settings, sealer = party.agreement, home.settings, Sealer(party)
    silo = Silo.open(
        home.store(agreement.plan.hash),
        agreement.plan,
        name=settings.name,
        secret=home.keys.seeds["salt"],
        timing=agreement.timing,
        sealer=sealer,
        new_term=new_term,
        keep_raw=settings.keep_raw,
    )
    agent = Agent(silo, party, sealer)
    service = Service(silo, agent)
    server = _StoppableServer(_config(home, service))
    federation = asyncio.create_task(_join(home, party, agent))
    federation.add_done_callback(lambda _: setattr(server, "should_exit", True))
    log.info("silo %s serves on %s port %d", silo.name, settings.host, settings.port)
    try:
        await server.serve([listen] if listen else None)
    finally:
        federation.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await federation
        service.close()
        silo.close()


class _StoppableServer(uvicorn.Server):
    """Stops on SIGTERM and SIGINT and then returns, so that the silo can be closed in order."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, setattr, self, "should_exit", True)
        yield


async def _join(home: Home, party: Party, agent: Agent) -> None:
    link = await _connect(home, party)
    try:
        await agent.run(link)
    finally:
        await link.close()


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
