"""One party in a process of its own: it does what it is told over a pipe, and may stop itself at any durable operation.

The party's own code runs on its own store. In place of the broker is the pipe: a message counts as published when the
conductor has taken it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, cast

from fedbandit._arrays import Floats, Integers
from fedbandit.federation.exact.exact_noise import ExactNoise
from fedbandit.federation.http.group import GroupCommit
from fedbandit.federation.process import bind
from fedbandit.federation.setup.home import Home
from fedbandit.federation.silo.agent import Agent
from fedbandit.federation.silo.outgoing import Sealer
from fedbandit.federation.silo.serving import Acknowledgement, Silo, TermEnded, acknowledged
from fedbandit.federation.store import SyncStore, open_engine
from fedbandit.federation.syncs.analyzer import Analyzer
from fedbandit.federation.syncs.keeper import SyncKeeper
from fedbandit.federation.syncs.mixer import Mixer
from fedbandit.federation.timing import Reading, TicksHeld
from fedbandit.federation.wire.link import Link
from fedbandit.federation.wire.subjects import Consumer
from tests.torture.crashes import plants
from tests.torture.crashes.points import Points, Stop, replace

__all__ = ["Role", "act"]


class Role(NamedTuple):
    """Who the process is."""

    home: Path
    store: Path
    stop: Stop


class Played:
    """The clocks of a machine, as the conductor sets them."""

    def __init__(self) -> None:
        self.now = 0.0

    def read(self) -> Reading:
        return Reading(self.now, self.now, "one machine")


class Pipe:
    """A link that ends at the conductor."""

    def __init__(self, connection: Connection, points: Points) -> None:
        self._connection, self._points = connection, points

    async def publish(self, subject: str, data: bytes, message_id: str) -> None:
        self._points.passed(f"publish {message_id.split('.')[0]}")
        self._connection.send(("publish", subject, data, message_id))
        self._connection.recv()

    async def read(self, consumer: Consumer, handle: Callable[[list[bytes]], Awaitable[None]]) -> None:
        """The conductor hands messages on itself."""


def act(connection: Connection, planted: str) -> None:
    """Be one party after the other, as told, until a stop; with a planted bug, if one is named."""
    logging.disable(logging.CRITICAL)
    points, clocks = Points(), Played()
    points.watch_engines()
    plants.plant(planted)
    _tell_noise(connection)
    with asyncio.Runner() as runner:
        party: _SiloActor | _KeeperActor | None = None
        while True:
            clocks.now, command, *arguments = connection.recv()
            answer: Any = None
            if command == "open":
                (role,) = arguments
                points.begin(role.stop, role.store)
                party = _opened(role, clocks, Pipe(connection, points))
            else:
                assert party is not None
                answer = runner.run(getattr(party, command)(*arguments))
            points.passed(f"answer to {command}")
            connection.send(("done", points.names, answer))


def _tell_noise(connection: Connection) -> None:
    """Tell the conductor each Gaussian vector that is drawn, so that it can take it off a release."""
    gaussian = ExactNoise.gaussian

    def told(noise: ExactNoise, scales: Floats, lead: tuple[int, ...] = ()) -> Integers:
        drawn = gaussian(noise, scales, lead)
        connection.send(("noise", drawn))
        return drawn

    replace(ExactNoise, "gaussian", told)


def _opened(role: Role, clocks: Played, pipe: Pipe) -> _SiloActor | _KeeperActor:
    home = Home.load(role.home)
    return (_SiloActor if home.settings.role == "silo" else _KeeperActor)(home, role.store, clocks, pipe)


class _SiloActor:
    def __init__(self, home: Home, store: Path, clocks: Played, pipe: Pipe) -> None:
        party = home.party()
        self._sealer, self._link, agreement = Sealer(party), cast(Link, pipe), party.agreement
        self._silo = Silo.open(
            store,
            agreement.plan,
            name=party.name,
            secret=home.keys.seeds["salt"],
            timing=agreement.timing,
            clock=clocks,
            sealer=self._sealer,
        )
        bind(self._silo.store.engine, agreement)
        self._agent = Agent(self._silo, party, self._sealer)

    async def introduce(self) -> None:
        await self._agent.introduce(self._link)

    async def judge(self) -> None:
        await self._agent.judge()

    async def handle(self, envelope: bytes) -> None:
        await self._agent.handle([envelope])

    async def decide(self, actions: Floats) -> tuple[str, int]:
        decision = self._silo.decide(actions)
        return decision.id, decision.action

    async def seated(self) -> int:
        return self._silo.store.term(self._silo.term.number).seated

    async def reward(self, decision: str, value: float, grouped: bool) -> Acknowledgement | None:
        """As an application of the library does, or as the HTTP service does for several callers at once; None if the
        last batch of the term is closed."""
        group = GroupCommit(self._silo) if grouped else None
        try:
            if group is None:
                return self._silo.reward(decision, value)
            (verdict,) = await group.put([self._silo.read(decision, value)])
            return acknowledged(verdict)
        except TermEnded:
            return None
        finally:
            if group is not None:
                group.close()

    async def tick(self) -> None:
        with contextlib.suppress(TicksHeld):  # the agent says so and waits
            if self._silo.ticker.due():
                self._silo.ticker.release()

    async def send(self) -> None:
        if self._sealer.held is None:
            await self._agent.send(self._link)

    async def tidy(self) -> bool:
        return self._silo.ticker.tidy()

    async def problem(self) -> str | None:
        return self._agent.problem

    async def close(self) -> None:
        self._silo.close()


class _KeeperActor:
    def __init__(self, home: Home, store: Path, clocks: Played, pipe: Pipe) -> None:
        party = home.party()
        engine = open_engine(store)
        bind(engine, party.agreement)
        kind: type[SyncKeeper] = Mixer if party.public.role == "mixer" else Analyzer
        self._engine = engine
        self._keeper = kind(party, SyncStore(engine), pipe, clock=lambda: clocks.now, steady=lambda: clocks.now)

    async def introduce(self) -> None:
        await self._keeper.greet()

    async def handle(self, envelope: bytes) -> None:
        await self._keeper.handle([envelope])

    async def advance(self) -> None:
        await self._keeper.advance()

    async def problem(self) -> str | None:
        return self._keeper.problem

    async def close(self) -> None:
        self._engine.close()
