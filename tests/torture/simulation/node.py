"""A party on its machine: the real objects, started, killed, put back and started again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from fedbandit._validate import ArgumentError
from fedbandit.federation.http.group import GroupCommit
from fedbandit.federation.membership import FIRST_WAIT, LONGEST_WAIT
from fedbandit.federation.process import bind, take_over
from fedbandit.federation.recovery import old_copy
from fedbandit.federation.setup.agreement import Agreement
from fedbandit.federation.setup.editions import Edition
from fedbandit.federation.setup.party import Party, PlanMismatch
from fedbandit.federation.silo.agent import Agent
from fedbandit.federation.silo.forwarding import bring_forward
from fedbandit.federation.silo.outgoing import Sealer
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.silo.terms import end_term
from fedbandit.federation.states import ReleaseState, SyncState
from fedbandit.federation.store import SiloStore, SyncStore
from fedbandit.federation.syncs.analyzer import Analyzer
from fedbandit.federation.syncs.keeper import SyncKeeper
from fedbandit.federation.syncs.mixer import Mixer
from fedbandit.federation.timing import SteadyClock, TicksHeld
from fedbandit.federation.wire.link import Link
from tests.torture.simulation.machine import Clock, Disk, Process, SimulatedEngine

__all__ = ["Node"]

AGAIN = 2.0  # seconds until a process that could not start is started again
LONGER = 6.0  # seconds until one is that ended because others work under another plan


class Node:
    """One party: what is on its disk outlives its processes."""

    def __init__(
        self,
        party: Callable[[Sequence[Edition]], Party],
        clock: Clock,
        disk: Disk,
        connect: Callable[[Process], Link],
        say: Callable[[str], None],
        fail: Callable[[str], None],
    ) -> None:
        self.party, self.clock, self.disk = party(()), clock, disk
        self.absent = False  # whether it is still to join
        self.file: list[Edition] | None = None  # editions of the members in its directory, if any will be put there
        self._as_party = party
        self.process: Process | None = None
        self.silo: Silo | None = None
        self.group: GroupCommit | None = None
        self.agent: Agent | None = None
        self.keeper: SyncKeeper | None = None
        self.restored = False
        self.forwarded = False  # whether it was brought forward, or never can be: nobody tries again
        self.stranded = False  # whether what was put back cannot begin the term, and somebody has given it up
        self.renewing = False  # whether others may work under another plan for a while
        self.before: tuple[Disk, Agreement] | None = None  # of a mixer or an analyzer: its store of the term before
        self._new_term = False
        self._connect, self._say, self._fail = connect, say, fail
        self._task: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return self.party.name

    @property
    def up(self) -> bool:
        return self.process is not None and self.process.alive

    @property
    def problem(self) -> str | None:
        """Why it refuses to go on, if it says so."""
        at_work = self.agent or self.keeper
        return None if at_work is None else at_work.problem

    @property
    def refuses(self) -> bool:
        """Whether it goes no further because of what others have seen or sent."""
        if self.agent is not None:
            return self.agent._sealer.halted is not None
        return self.keeper is not None and self.keeper.problem is not None

    @property
    def held(self) -> bool:
        """Whether the time is in doubt, so that somebody must say that the clock is right."""
        try:
            if self.silo is not None:
                self.silo.ticker.check()
        except TicksHeld:
            return True
        return False

    @property
    def has_left(self) -> bool:
        """Whether it is a member no more, and has heard of it."""
        return self.agent is not None and self.party.agreement.member(self.name) is None

    @property
    def is_out(self) -> bool:
        """Whether it is no member any more or not yet, or cannot begin the term."""
        return self.has_left or self.absent or self.stranded

    def gave_up(self, sync: int) -> bool:
        """Whether it was brought forward over this sync; nobody can look while it is down."""
        if not self.up:
            return False
        if self.keeper is not None:
            return any(one.sync == sync and one.state is SyncState.GIVEN_UP for one in self.keeper.store.all())
        releases = [] if self.silo is None else self.silo.store.releases(self.silo.term.number)
        return any(one.sync == sync and one.state is ReleaseState.GIVEN_UP for one in releases)

    def describe(self) -> str:
        """Where it stands, for whoever has to find out why it does not go on."""
        if self.silo is None:
            syncs = [] if self.keeper is None else [(one.sync, one.state.value) for one in self.keeper.store.all()]
            return f"{self.name} up: {self.up}, {self.problem}, {syncs}"
        states = [release.state.value for release in self.silo.store.releases(self.silo.term.number)]
        models = [sync for sync, _ in self.silo.store.models(self.silo.term.number)]
        return f"{self.name} up: {self.up}, {self.problem}, releases {states}, models {models}"

    def start(self, catch_up: bool = False) -> None:
        """Begin a life on what is on disk; a start that fails is tried again."""
        if self.up or self.absent:
            return
        process = self.process = Process()
        self.party = self._as_party(self.file or ())  # it knows of its members what its disk knows
        engine = SimulatedEngine(self.disk, process)
        try:
            work = (
                self._silo(engine, process, catch_up)
                if self.party.public.role == "silo"
                else self._keeper(engine, process)
            )
        except Exception as error:
            self._say(f"{self.name} does not start: {type(error).__name__}: {error}")
            process.alive = False
            if self.restored and isinstance(error, ArgumentError) and error.field in ("new_term", "prior"):
                self.stranded = not self._end_term(error.field)
            asyncio.get_running_loop().call_later(AGAIN, self.start, catch_up)
            return
        self._task = asyncio.get_running_loop().create_task(work)

    def _end_term(self, field: str) -> bool:
        """End the term that a store was put back to, as `accept --end-term` does it; False if that is of no help."""
        if field == "new_term":
            end_term(SiloStore(SimulatedEngine(self.disk, Process())))
        return field == "new_term"

    def accept(self, party: Callable[[Sequence[Edition]], Party], disk: Disk) -> None:
        """Be a party of the next term, with this disk, from the next start on."""
        self._as_party, self.disk, self._new_term = party, disk, True

    async def forward(self) -> None:
        """Bring its store forward over what others have seen, as the command does, and start it again."""
        agent, keeper = self.agent, self.keeper
        if agent is not None and (answers := await agent.greetings.answers()):
            copy = old_copy(agent, answers)
            self.kill()
            copy = copy._replace(store=SiloStore(SimulatedEngine(self.disk, Process())))
            try:
                given_up = bring_forward(copy, at=self.clock.read().wall)
            except ArgumentError as error:
                self._say(f"{self.name} cannot be brought forward: {error}")
                self.forwarded = True
                self.start()
                return
        elif keeper is not None and keeper.ahead is not None:
            given_up = keeper.give_up()
            self.kill()
        else:
            return
        self._say(f"{self.name} gives up the syncs {given_up}")
        self.forwarded = bool(given_up)
        self.start()

    def kill(self) -> None:
        """kill -9."""
        if self.process is not None:
            self.process.alive = False
        if self._task is not None:
            self._task.cancel()
        self.silo = self.group = self.agent = self.keeper = self._task = None

    # -- lives ------------------------------------------------------------------------------------------------------

    def _silo(self, engine: SimulatedEngine, process: Process, catch_up: bool) -> Coroutine[Any, Any, None]:
        sealer, agreement = Sealer(self.party), self.party.agreement
        silo = Silo(
            SiloStore(engine),
            agreement.plan,
            name=self.name,
            secret=self.party.keys.seeds["salt"],
            timing=agreement.timing,
            clock=self.clock,
            sealer=sealer,
            new_term=self._new_term,
            keep_raw=False,
            catch_up=catch_up,
            counts=None,
            since=self.party.roll.since(self.name),
        )
        bind(engine, self.party.roll.charter)
        self.silo, self.group = silo, GroupCommit(silo)
        self.agent = Agent(silo, self.party, sealer, steady=self.clock.steady)
        return self._take_part(self.agent, process)

    def _keeper(self, engine: SimulatedEngine, process: Process) -> Coroutine[Any, Any, None]:
        kind: type[SyncKeeper] = Mixer if self.party.public.role == "mixer" else Analyzer
        now, steady = SteadyClock(self.clock).now, self.clock.steady
        bind(engine, self.party.roll.charter)
        store = SyncStore(engine)
        if self.before is not None:
            disk, last = self.before
            take_over(store, self.party.roll.charter, SyncStore(SimulatedEngine(disk, process)), last)
        self.keeper = kind(self.party, store, self._connect(process), clock=now, steady=steady)
        return self._keep(self.keeper, process)

    async def _take_part(self, agent: Agent, process: Process) -> None:
        """As a silo does: whatever went wrong, it joins again."""
        wait = FIRST_WAIT
        while True:
            try:
                if self.file is None:
                    await agent.run(self._connect(process))
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(agent.run(self._connect(process)))
                    tasks.create_task(self._watch(agent))
            except Exception as error:
                if isinstance(error, ExceptionGroup) and error.subgroup(PlanMismatch):
                    self._refuse(error)
                    return
                self._say(f"{self.name} joins again: {_reason(error)}")
            except BaseException:
                if process.alive:
                    raise
                return
            await asyncio.sleep(wait)
            wait = min(LONGEST_WAIT, 2 * wait)

    async def _keep(self, keeper: SyncKeeper, process: Process) -> None:
        try:
            if self.file is None:
                await keeper.run()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(keeper.run())
                tasks.create_task(self._watch(keeper))
        except Exception as error:
            self._refuse(error)
        except BaseException:
            if process.alive:
                raise

    def _refuse(self, error: Exception) -> None:
        """The process has ended by itself; while a term is renewed, somebody starts it again."""
        mismatch = isinstance(error, ExceptionGroup) and error.subgroup(PlanMismatch)
        if not (self.renewing and mismatch):
            self._fail(f"{self.name} ended: {_reason(error)}")
            return
        self._say(f"{self.name} ends: others work under another plan")  # whose hash depends on noise
        loop, process = asyncio.get_running_loop(), self.process
        loop.call_soon(lambda: self.kill() if self.process is process else None)
        loop.call_later(LONGER, self.start)

    async def _watch(self, party: SyncKeeper | Agent) -> None:
        """Take in the editions that somebody puts into the directory."""
        while True:
            await asyncio.sleep(1.0)
            if self.file and party.party.roll.number < len(self.file):
                await party.adopt(self.file)


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
