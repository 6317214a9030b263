"""A party as a process: `run(home)` works until it is told to stop, and stops by itself if plans differ."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import logging
import socket
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import uvicorn
import uvloop

from fedbandit._validate import ArgumentError
from fedbandit.federation.http.app import App, create_app
from fedbandit.federation.http.families import Machine
from fedbandit.federation.http.keeper_service import KeeperService, create_keeper_app
from fedbandit.federation.http.metrics import WorkerTally
from fedbandit.federation.http.service import Service
from fedbandit.federation.http.straight import StraightProtocol
from fedbandit.federation.leaving import ended, heed, until_stopped
from fedbandit.federation.membership import Membership, Worker
from fedbandit.federation.setup.agreement import Agreement
from fedbandit.federation.setup.certificates import check_pair
from fedbandit.federation.setup.editions import Edition
from fedbandit.federation.setup.home import FEDERATION, MEMBERS, Home, rolls_of
from fedbandit.federation.setup.party import Party, PlanMismatch
from fedbandit.federation.setup.roll import binding_key, read_editions
from fedbandit.federation.silo.agent import Agent
from fedbandit.federation.silo.outgoing import Sealer
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.store import Engine, SyncStore, open_engine, read_engine
from fedbandit.federation.store.database import remember
from fedbandit.federation.store.decision_log import DecisionLog
from fedbandit.federation.store.opening import begun, claim
from fedbandit.federation.store.seen import EARLIER, SeenStore
from fedbandit.federation.syncs.analyzer import Analyzer
from fedbandit.federation.syncs.keeper import SyncKeeper
from fedbandit.federation.syncs.mixer import Mixer
from fedbandit.federation.telemetry import logs, traces
from fedbandit.federation.telemetry.logs import Style
from fedbandit.federation.telemetry.troubles import Troubles
from fedbandit.federation.wire.link import Link
from fedbandit.federation.wire.refused import Refused

__all__ = [
    "REFUSED",
    "SERVER",
    "Orders",
    "beside",
    "bind",
    "claimed",
    "holding",
    "listening",
    "rehearse",
    "remember_terms",
    "run",
    "settle",
    "take_over",
]

log = logging.getLogger(__name__)
SERVER: dict[str, Any] = {
    "http": StraightProtocol,
    "loop": "uvloop",
    "access_log": False,
    "proxy_headers": False,
    "server_header": False,
    "date_header": False,
}
BACKLOG = 2048  # connections that may wait to be accepted
REFUSED = 3  # exit code: this party refuses to work
MEMBERS_LOOK = 1.0  # seconds between checks of the members' file
QUICKEN = 1.0  # seconds after which a silo loads compiled code that makes decisions faster
# Seconds for which a thread may keep the interpreter from another one. While the event loop is busy, a thread that
# writes rewards to a database waits that long for every answer, and others wait for the lock that it holds.
TURN = 0.0005


@dataclass(frozen=True)
class Orders:
    """Options for starting a party, in addition to the settings in its directory."""

    new_term: bool = False
    catch_up: bool = False  # the clock is right: draw what is overdue
    broker_ca: str = ""  # replaces the one in the party's settings
    log: Style | None = None  # replaces the one in the party's settings
    stay: bool = False  # if others work under another plan, keep running and report it instead of exiting


def run(
    path: Path,
    orders: Orders = Orders(),  # noqa: B008 (frozen)
    listen: Callable[[], socket.socket] | None = None,
    tally: WorkerTally | None = None,
) -> int:
    """Run the party of this directory until SIGTERM or SIGINT, and return the exit code. A worker of a silo is told how
    to `listen` once it can answer, and where to count what it does."""
    home = _begun(path, orders)
    settings, party = home.settings, home.party()
    stop = traces.set_up(settings.traces, party=party.name, role=settings.role) if settings.traces else None
    work = serve(home, party, orders, listen, tally) if settings.role == "silo" else keep(home, party, orders)
    try:
        uvloop.run(work)
    except PlanMismatch as mismatch:
        log.error("refusing to work: %s", mismatch)
        return REFUSED
    finally:
        if stop is not None:
            stop()
        faulthandler.cancel_dump_traceback_later()
    return 0


def rehearse(path: Path, orders: Orders) -> None:
    """Begin as every worker of a silo does, and end before anything is served. What keeps the silo from starting is
    raised here, once, and a new store or term begins here, where no other worker begins it at the same time."""
    home = _begun(path, orders)
    party = home.party()
    home.broker(party.agreement)
    _check_certificate(home)
    _open_silo(home, party, orders, Sealer(party)).close()


def _begun(path: Path, orders: Orders) -> Home:
    """The directory of a party that starts with these orders; its log lines begin to look as they ask."""
    home = Home.load(path)
    settings = home.settings
    logs.set_up(orders.log or settings.log, party=settings.name, role=settings.role)
    return replace(home, settings=replace(settings, broker_ca=orders.broker_ca)) if orders.broker_ca else home


def bind(engine: Engine, agreement: Agreement) -> None:
    """Tie a store to the agreement that it began with: in a term, keys, members and times do not change. (The broker's
    address may.)"""
    found = remember(engine, binding_key(agreement.plan.hash), agreement.bond.encode()).decode()
    if found != agreement.bond:
        raise ArgumentError(
            "federation", "must be the file that this term began with: keys, members or times in it have changed since"
        )


def claimed(home: Home, agreement: Agreement) -> str:
    """The place of the party's store. Another party's store is refused before anything is written to it."""
    place = home.store(agreement.plan.hash)
    engine = open_engine(place)
    try:
        claim(engine, home.owner)
    finally:
        engine.close()
    return place


def remember_terms(home: Home, store: SyncStore) -> None:
    """Copy into the store of a mixer or an analyzer what it has seen of the silos in earlier terms."""
    newest, *earlier = (roll.charter for roll in rolls_of(home.path / FEDERATION))
    gone = []
    for last in earlier:
        plan = last.plan.hash
        try:
            place = home.store_of(plan)
            if place == home.store(newest.plan.hash) or not begun(place):
                gone.append(plan[:16])
                continue
            engine = read_engine(place)
            try:
                take_over(store, newest, SyncStore(engine), last)
            finally:
                engine.close()
        except Exception as error:  # a damaged store must not prevent all later terms: others have seen the silos too
            log.error("what was seen of the silos in the term with plan %s cannot be read: %s", plan[:16], error)
    if gone and len(gone) == len(earlier):
        log.warning("no store of an earlier term is there, so what was seen in them is not known: %s", ", ".join(gone))


def take_over(store: SyncStore, agreed: Agreement, earlier: SyncStore, last: Agreement) -> None:
    """Copy the heads of the silos' ledgers from the store of an earlier term, `last`, into that of the new one, and
    note there that the earlier term is over.

    A ledger continues from term to term. Without this, a silo that loses its store or goes back to an old copy between
    two terms would begin the new one as if it had never spent anything, and would count people who must not count
    again. Whether a ledger continues is what the new term's file says, and nothing else: keys also change while it
    does. The heads of silos that are no members now are kept, because they may join again.
    """
    store.end(last.plan.hash)
    keepers = {party.name for party in last.parties if party.role != "silo"}
    seen = SeenStore(earlier.engine, "").heads()
    going_on = [silo for silo in seen if silo not in keepers and agreed.ledger(silo).since <= last.term]
    SeenStore(store.engine, EARLIER).note([(silo, 0, seen[silo]) for silo in going_on])


async def keep(home: Home, party: Party, orders: Orders) -> None:
    """Run a mixer or an analyzer and, if it has a port for that, the HTTP service that reports its state."""
    party.agreement.check_keys()
    engine = open_engine(claimed(home, party.agreement))
    bind(engine, party.roll.charter)
    home.note_store(party.agreement.plan.hash)
    worker = _Keeping(party, SyncStore(engine))
    remember_terms(home, worker.store)
    member = _membership(home, party, worker, orders)
    address = home.broker(party.agreement).url
    log.info("%s of federation %s has begun; its broker is %s", party.name, party.agreement.id, address)
    service = KeeperService(worker, party, worker.store, member, Machine.of(home))
    try:
        async with _served(home, service) as serving:
            await until_stopped(_taking_part(home, party, member, worker.adopt), serving)
    finally:
        engine.close()


class _Keeping:
    """Makes a new keeper for each connection, over one store. Each asks the others again which state they saw last."""

    def __init__(self, party: Party, store: SyncStore) -> None:
        self.party, self.store = party, store
        self.keeper: SyncKeeper | None = None
        self.refused = Refused()  # of all keepers together

    async def run(self, link: Link) -> None:
        kind: type[SyncKeeper] = Mixer if self.party.public.role == "mixer" else Analyzer
        self.keeper = kind(self.party, self.store, link, refused=self.refused)
        await self.keeper.run()

    async def adopt(self, editions: Sequence[Edition]) -> None:
        while self.keeper is None:
            await asyncio.sleep(MEMBERS_LOOK)
        await self.keeper.adopt(editions)

    @property
    def troubles(self) -> Troubles:
        return {} if self.keeper is None else self.keeper.troubles


@contextlib.asynccontextmanager
async def _served(home: Home, service: KeeperService) -> AsyncIterator[asyncio.Task[None] | None]:
    """Serve a keeper's state on its port, if it has one."""
    settings = home.settings
    if not settings.health_port:
        yield None
        return
    home.make_token()
    server = _BackgroundServer(_config(home, create_keeper_app(service, home.token())))
    serving = asyncio.create_task(server.serve(listening(home)))
    log.info("%s %s serves its state on %s port %d", settings.role, settings.name, settings.host, settings.health_port)
    try:
        yield serving
    finally:
        server.should_exit = True
        await serving


def listening(home: Home) -> list[socket.socket]:
    """Listeners on the port that a party serves, IPv4 first. They are opened here because, if the port is taken, the
    server would exit with code 3, which means another plan."""
    return _opened(home, lambda family, address: socket.create_server(address, family=family, backlog=BACKLOG))


def holding(home: Home) -> socket.socket:
    """A socket that keeps the port of a silo for its workers and accepts nothing: see `beside`."""
    return _opened(home, _held)[0]


def beside(held: socket.socket) -> socket.socket:
    """A worker's own listener on the port that is held. The kernel divides connections among such listeners, and begins
    and ends to do so when a worker begins to listen and ends, even if it is killed."""
    listener = socket.create_server(held.getsockname(), family=held.family, backlog=BACKLOG, reuse_port=True)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
    return listener


def _held(family: int, address: Any) -> socket.socket:
    held = socket.socket(family, socket.SOCK_STREAM)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, True)
    if family == socket.AF_INET6:
        held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, True)
    try:
        held.bind(address)
    except OSError:
        held.close()
        raise
    # Only now, so that another silo's port cannot be joined by mistake. From here on nobody else can bind this one, but
    # for listeners of the same user that ask to share it.
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, False)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, True)
    return held


def _opened(home: Home, opening: Callable[[int, Any], socket.socket]) -> list[socket.socket]:
    """A socket for each address of the port that a party serves, IPv4 first."""
    settings, port = home.settings, home.served_on
    field = "port" if settings.role == "silo" else "health_port"
    found: list[socket.socket] = []
    try:
        kinds = socket.getaddrinfo(settings.host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, address in sorted(set(kinds)):
            listener = opening(family, address)
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)  # connections inherit it
            found.append(listener)
    except OSError as error:
        for listener in found:
            listener.close()
        says = f"must be free: port {port} of {settings.host} cannot be opened ({error.strerror})"
        raise ArgumentError(field, f"{says}; stop the program that uses it, or change party.json") from None
    return found


async def serve(
    home: Home,
    party: Party,
    orders: Orders,
    listen: Callable[[], socket.socket] | None,
    tally: WorkerTally | None,
) -> None:
    """Run a silo: its HTTP service, and its part in the federation."""
    agreement, settings, sealer = party.roll.charter, home.settings, Sealer(party)
    silo = _open_silo(home, party, orders, sealer)
    with contextlib.ExitStack() as resources:
        resources.callback(_close, silo)
        agent = Agent(silo, party, sealer)
        member = _membership(home, party, agent, orders)
        service = Service(silo, member, tally, timing=agreement.timing, machine=Machine.of(home))
        resources.callback(service.close)
        server = _StoppableServer(_config(home, create_app(service, home.token())))
        sockets = [listen()] if listen else listening(home)
        federation = asyncio.create_task(_taking_part(home, party, member, agent.adopt))
        quickening = asyncio.create_task(_quicken(silo))
        federation.add_done_callback(lambda _: setattr(server, "should_exit", True))
        sys.setswitchinterval(TURN)
        gc.freeze()  # imported objects stay for good: no garbage collection visits them again
        log.info("silo %s serves on %s port %d", silo.name, settings.host, settings.port)
        try:
            await server.serve(sockets)
        finally:
            quickening.cancel()
            await ended(federation)


def _open_silo(home: Home, party: Party, orders: Orders, sealer: Sealer) -> Silo:
    """The silo of this directory, with its store; refused if the store began with another agreement."""
    agreement, settings = party.roll.charter, home.settings
    silo = Silo.open(
        claimed(home, agreement),
        agreement.plan,
        name=settings.name,
        secret=home.salt,
        timing=agreement.timing,
        sealer=sealer,
        new_term=orders.new_term,
        catch_up=orders.catch_up,
        keep_raw=settings.keep_raw,
        strict=settings.strict,
        log=DecisionLog(home.decision_log, settings.log_days) if settings.log_days else None,
        since=party.roll.since(party.name),
    )
    try:
        bind(silo.store.engine, agreement)
    except BaseException:
        _close(silo)
        raise
    return silo


def _close(silo: Silo) -> None:
    """Close a silo. If its store does not work now, it loses what `kill -9` loses, and the silo ends as it was told."""
    try:
        silo.close()
    except Exception as error:  # e.g. a full disk, or a database that is away
        says = "decisions since the last second are not in its figures, nor in the log"
        log.warning("the store did not work when the silo ended (%s: %s): %s", type(error).__name__, error, says)


async def _quicken(silo: Silo) -> None:
    """Make decisions faster, when the silo is already serving. The event loop waits at its end for threads that it
    started itself, and compiling takes a while: this thread is left alone."""
    await asyncio.sleep(QUICKEN)
    threading.Thread(target=_quickened, args=(silo,), name="quicken", daemon=True).start()


def _quickened(silo: Silo) -> None:
    try:
        settle(silo)
    except Exception as error:  # e.g. no compiler or no place for its cache: decisions go on as before
        log.warning("decisions stay slower than they could be: %s: %s", type(error).__name__, error)


def settle(silo: Silo) -> None:
    """Load compiled code that makes decisions faster, and exempt all present objects from garbage collection: a
    collection would hold up every request for some fifty milliseconds, and one request in a hundred would meet one."""
    silo.quicken()
    gc.freeze()


class _StoppableServer(uvicorn.Server):
    """Stops on SIGTERM and SIGINT and then returns, so that the silo can be closed in order."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        heed(lambda: setattr(self, "should_exit", True))
        yield


class _BackgroundServer(uvicorn.Server):
    """A server that leaves signals to the party that runs it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _check_certificate(home: Home) -> None:
    if home.settings.tls_certificate:
        check_pair(home.settings.tls_certificate, home.settings.tls_key)


def _config(home: Home, app: App) -> uvicorn.Config:
    settings = home.settings
    _check_certificate(home)
    return uvicorn.Config(
        app,
        host=settings.host,
        port=home.served_on,
        ssl_certfile=settings.tls_certificate or None,
        ssl_keyfile=settings.tls_key or None,
        log_config=None,  # its lines are formatted like all others
        log_level="warning",
        timeout_graceful_shutdown=5,
        **SERVER,
    )


def _membership(home: Home, party: Party, worker: Worker, orders: Orders) -> Membership:
    address = home.broker(party.agreement)

    async def connect() -> Link:
        party.add_keys(home.later_keys())
        return await Link.connect_with(address, party.name, [keys.broker for keys in party.keyring])

    return Membership(worker, connect, address.url, stay=orders.stay)


Adopt = Callable[[Sequence[Edition]], Awaitable[None]]


async def _taking_part(home: Home, party: Party, member: Membership, adopt: Adopt) -> None:
    """Take part in the federation, and adopt editions of the members and new keys that appear in the party's directory.

    This is not a task group, because a group would wrap the PlanMismatch that ends the party, whose exit code matters.
    """
    watching = asyncio.create_task(_watch(home, party, adopt))
    try:
        await member.run()
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def _watch(home: Home, party: Party, adopt: Adopt) -> None:
    file, known, keys = home.path / MEMBERS, None, 1
    while True:
        try:
            if (found := len(home.key_files())) > keys:
                party.add_keys(home.later_keys())
                keys = found
            written = file.stat().st_mtime_ns if file.exists() else None
            if written not in (None, known):
                await adopt(read_editions(file))
            known = written
        except Exception as error:  # e.g. a file that is still being written, or a full disk: it is tried again
            log.error("cannot take in what is new in %s: %s: %s", home.path, type(error).__name__, error)
        await asyncio.sleep(MEMBERS_LOOK)
