"""A whole federation in one process, for tests of applications and for first steps.

Silos, mixer and analyzer are those of a live federation, with their own keys, stores, ledgers and exact noise, and
their messages are sealed and signed. Only the broker is a queue in memory, and the clock stands still until it is told
to tick. So an application that works here works with a silo of a real federation. But one process sees everything:
nobody is protected from the person who runs it.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from fedbandit import _validate
from fedbandit._validate import ArgumentError
from fedbandit.federation.post_office import PostOffice
from fedbandit.federation.process import bind, claimed
from fedbandit.federation.setup import founding
from fedbandit.federation.setup.home import Home
from fedbandit.federation.silo.agent import Agent
from fedbandit.federation.silo.outgoing import Sealer
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.store import SyncStore, open_engine
from fedbandit.federation.syncs.analyzer import Analyzer
from fedbandit.federation.syncs.keeper import SyncKeeper
from fedbandit.federation.syncs.mixer import Mixer
from fedbandit.federation.timing import Reading, Timing, calendar
from fedbandit.federation.wire.link import Link
from fedbandit.plan import Plan

__all__ = ["Federation", "StillClock"]

START = 1_000_000_000.0  # unix time at which a federation in one process begins
Result = TypeVar("Result")


class StillClock:
    """Clocks that only move when they are told to."""

    def __init__(self, now: float = START) -> None:
        self.now = now

    def read(self) -> Reading:
        return Reading(self.now, self.now, "one process")

    def steady(self) -> float:
        return self.now


class Federation:
    """Silos by name, and `tick`, after which all of them have the next model.

    >>> import fedbandit as fb
    >>> plan = fb.Plan(silos=2, rounds=30, dim=2, privacy=fb.Privacy(1.0, 1e-6), schedule=fb.clock(86_400))
    >>> with fb.Federation.local(plan, ["hospital-a", "hospital-b"]) as federation:
    ...     for silo in federation.silos.values():
    ...         decision = silo.decide([[1.0, 0.0], [0.0, 1.0]], user="patient 4711")
    ...         answer = silo.reward(decision.id, 0.7)
    ...     federation.tick(), federation.silos["hospital-a"].version, answer.counted
    ([0], 1, True)
    """

    def __init__(self, plan: Plan, names: Sequence[str], folder: Path, timing: Timing, resources: ExitStack) -> None:
        self.plan, self.folder, self.clock = plan, folder, StillClock(START)
        self._resources = resources
        homes = founding.local(folder, plan, list(names), timing)
        agreement = homes[0].agreement()
        self.post = PostOffice(agreement)
        self._calendar = calendar(plan, START, timing)
        self._handlers: dict[str, Callable[[list[bytes]], Coroutine[Any, Any, None]]] = {}
        self._keepers: list[SyncKeeper] = []
        self._agents: dict[str, Agent] = {}
        # The event loop runs in a separate thread: the caller's may already have one, as in a notebook.
        thread = self._thread = resources.enter_context(ThreadPoolExecutor(1, thread_name_prefix="federation"))
        runner = self._runner = asyncio.Runner()
        resources.callback(lambda: thread.submit(runner.close).result())
        for home in homes:
            self._furnish(home, timing)
        self._run(self._meet())

    @classmethod
    def local(
        cls,
        plan: Plan,
        silos: Sequence[str] | None = None,
        *,
        folder: str | Path | None = None,
        timing: Timing | None = None,
    ) -> Self:
        """Found a federation in this process.

        `silos` are names, by default silo-00 and so on. `timing` may set anything but the start. Each party has a
        directory in `folder`, which must be new or empty; `fedbandit status` and `ledger` can read these directories.
        Without a `folder` they are deleted when the federation is closed.
        """
        names = [f"silo-{number:02}" for number in range(plan.silos)] if silos is None else list(silos)
        if len(names) != plan.silos:
            raise ArgumentError("silos", f"must be the names of the plan's {plan.silos} silos, got {len(names)}")
        agreed = timing or Timing()
        if agreed.start is not None:
            raise ArgumentError("timing", "must not have a start: a federation in one process begins when it is made")
        with ExitStack() as resources:
            where = (
                Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="fedbandit-")))
                if folder is None
                else Path(folder)
            )
            made = cls(plan, names, where, replace(agreed, start=START), resources)
            made._resources = resources.pop_all()
            return made

    @property
    def silos(self) -> dict[str, Silo]:
        """The silos by name."""
        return {name: agent.silo for name, agent in self._agents.items()}

    @property
    def analyzer(self) -> SyncKeeper:
        return next(keeper for keeper in self._keepers if isinstance(keeper, Analyzer))

    @property
    def mixer(self) -> SyncKeeper | None:
        """The mixer; None if the plan's trust model has none."""
        return next((keeper for keeper in self._keepers if isinstance(keeper, Mixer)), None)

    def tick(self, times: int = 1) -> list[int]:
        """Move the clock to the next tick, `times` times, and complete each sync; return the syncs that were done.

        A calendar that counts decisions ignores the clock: then only due syncs are done. After the end of the term
        the list is empty.
        """
        done = []
        for _ in range(_validate.count("times", times)):
            done += self._run(self._sync())
        return done

    def pass_time(self, seconds: float) -> None:
        """Let time pass; nothing ticks until `tick` is called."""
        self.clock.now += _validate.positive("seconds", seconds)

    def close(self) -> None:
        self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- inside -----------------------------------------------------------------------------------------------------

    def _furnish(self, home: Home, timing: Timing) -> None:
        """Start a party from its directory."""
        party, clock = home.party(), self.clock
        store = claimed(home, party.agreement)
        if home.settings.role == "silo":
            sealer = Sealer(party)
            secret = home.salt
            since = party.roll.since(party.name)
            silo = Silo.open(
                store, self.plan, name=party.name, secret=secret, timing=timing, clock=clock, sealer=sealer, since=since
            )
            self._resources.callback(silo.close)
            bind(silo.store.engine, party.agreement)
            agent = self._agents[party.name] = Agent(silo, party, sealer, steady=clock.steady)
            self._handlers[party.name] = agent.handle
        else:
            engine = open_engine(store)
            self._resources.callback(engine.close)
            bind(engine, party.agreement)
            kind: type[SyncKeeper] = Mixer if home.settings.role == "mixer" else Analyzer
            keeper = kind(party, SyncStore(engine), self.post, clock=lambda: clock.now, steady=clock.steady)
            self._keepers.append(keeper)
            self._handlers[party.name] = keeper.handle

    async def _meet(self) -> None:
        """Let every party ask the others which state of it they saw last, as at every start."""
        for agent in self._agents.values():
            agent.link = self._link
        for keeper in self._keepers:
            await keeper.greet()
        await self._deliver()
        for agent in self._agents.values():
            await agent.introduce(self._link)
        await self._deliver()
        for agent in self._agents.values():
            await agent.judge()

    async def _sync(self) -> list[int]:
        silos = list(self.silos.values())
        before = min(silo.version for silo in silos)
        opened = silos[0].ticker.open_sync
        if opened >= len(self.plan.ticks):
            return []
        self.clock.now = max(self.clock.now, self._calendar.moment(opened) or self.clock.now)
        for agent in self._agents.values():
            await agent.tick()
            if agent.problem is not None:
                raise RuntimeError(f"{agent.party.name} does not tick: {agent.problem}")
            await agent.send(self._link)
        await self._deliver()
        for silo in silos:
            silo.ticker.tidy()
        return list(range(before, min(silo.version for silo in silos)))

    async def _deliver(self) -> None:
        """Deliver messages until there are none."""
        while waiting := [name for name, queue in self.post.queues.items() if queue]:
            for name in waiting:
                await self._handlers[name](self.post.take(name))

    @property
    def _link(self) -> Link:
        return cast(Link, self.post)  # an agent uses only those methods of a link that a carrier has

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._thread.submit(self._runner.run, work).result()
