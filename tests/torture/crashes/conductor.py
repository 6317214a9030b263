"""A federation of processes on one machine, in lock step: hands on messages, lets users come, restarts what dies.

The conductor is the broker and the applications: what it was told (messages published, rewards acknowledged) is the
world that the parties' stores are held against. A message counts as read when its receiver has said so; until then it
is given to the receiver again. A request that was not answered is made again.
"""

from __future__ import annotations

import multiprocessing
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fedbandit._arrays import Floats, Integers
from fedbandit.federation.setup import founding
from fedbandit.federation.setup.home import Home
from fedbandit.federation.timing import Timing
from fedbandit.plan import Plan
from fedbandit.schedule import Clock
from tests.torture.crashes import actor
from tests.torture.crashes.plans import USERS
from tests.torture.crashes.points import Stop, after_the_stop

__all__ = ["START", "Conductor", "Crash", "Message", "Served", "Stalled", "found"]

START = 1_000_000.0  # the time at which every played federation begins
NOT_AGAIN = Stop()
ARMS = 2
MOST_DEATHS = 3

_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(["tests.torture.crashes.actor", "tests.torture.crashes.plans"])


class Stalled(AssertionError):
    """The federation does not go on."""


class Crash(NamedTuple):
    """Who stops where, and whether all others are killed at the same moment; `again` for a stop while recovering."""

    party: str
    stop: Stop
    everybody: bool = False
    again: Stop = NOT_AGAIN


class Message(NamedTuple):
    subject: str
    data: bytes
    id: str
    sender: str


@dataclass
class Served:
    """One user: what was decided and rewarded, and in which batch the silo said that it counts; in none if it said that
    the reward came too late."""

    silo: str
    decision: str
    features: Floats
    reward: float
    batches: list[int] = field(default_factory=list)  # one per acknowledgement


class _Actor:
    """A process that plays one party now, and another one in the next run if it lives that long."""

    idle: ClassVar[dict[str, list[_Actor]]] = defaultdict(list)  # by the bug that is planted in them

    def __init__(self, planted: str) -> None:
        self.planted = planted
        self.connection, theirs = _server.Pipe()
        self.reads = False
        self._process = _server.Process(target=actor.act, args=(theirs, planted), daemon=True)
        self._process.start()
        theirs.close()

    def kill(self) -> int | None:
        """kill -9, if it is still there; its exit code."""
        self._process.kill()
        self._process.join()
        self.connection.close()
        return self._process.exitcode

    def done(self) -> None:
        """Its part is over."""
        self.reads = False
        self.idle[self.planted].append(self)

    @classmethod
    def free(cls, planted: str) -> _Actor:
        """One that has nothing to do, or a new one."""
        return cls.idle[planted].pop() if cls.idle[planted] else cls(planted)


def found(path: Path, plan: Plan) -> dict[str, Home]:
    """The homes of a federation, to be used by many runs."""
    names = [f"silo-{number}" for number in range(plan.silos)]
    homes = founding.local(path, plan, names, Timing(start=START))
    return {home.settings.name: home for home in homes}


class Conductor:
    """One run, in a folder of its own."""

    def __init__(
        self, folder: Path, plan: Plan, homes: dict[str, Home], crash: Crash | None = None, planted: str = ""
    ) -> None:
        folder.mkdir()
        self.folder, self.plan, self.homes = folder, plan, homes
        self.silos = [name for name, home in homes.items() if home.settings.role == "silo"]
        self.keepers = [name for name in homes if name not in self.silos]
        self.crossed: list[Message] = []
        self.served: list[Served] = []
        self.noises: dict[str, list[Integers]] = defaultdict(list)
        self.operations: dict[str, list[str]] = {}  # by name, of the process that runs a party now
        self.remains: list[str] = []  # files that held raw data when they should not
        self.deaths = 0
        self._changed: set[str] = set()  # whose store may be another: its batches are what that one says
        self.met = False  # whether the way in which a process was stopped made a difference
        self._crash, self._planted = crash, planted
        self._stops = {} if crash is None else {crash.party: [crash.stop, crash.again]}
        self._waiting: list[Message] = []
        self._running: dict[str, _Actor] = {}
        self._closed: set[str] = set()  # at the end; whoever dies over it must find the others there again
        self._now = START
        self._random = np.random.default_rng(1)

    def store(self, name: str) -> Path:
        return self.folder / f"{name}.db"

    def run(self) -> None:
        """The whole term; then every party is closed."""
        try:
            self.begin()
            for sync in range(len(self.plan.times)):
                self.sync(sync)
            while still_open := [name for name in self.homes if name not in self._closed]:
                self.ask(still_open[0], "close")
                self._closed.add(still_open[0])
        except BaseException:
            self.stop()
            raise
        for running in self._running.values():
            running.done()

    def stop(self) -> None:
        """kill -9 for everybody."""
        for running in self._running.values():
            running.kill()

    def restart(self, name: str, change: Callable[[], None]) -> None:
        """Kill a party, change something on its machine, and start it again."""
        self._running.pop(name).kill()
        change()
        self._changed.add(name)
        self._open(name)
        self._recover([name])

    # -- the term ---------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        for name in self.homes:
            self._open(name)
        for name in self.homes:
            self._introduce(name)
        self._deliver()
        for name in self.silos:
            self.ask(name, "judge")

    def sync(self, sync: int) -> None:
        for name in self.silos:
            self._batch(name, sync)
        if isinstance(self.plan.schedule, Clock):
            self._now = START + self.plan.times[sync] * self.plan.schedule.period
        for command in ("tick", "send"):
            for name in self.silos:
                self.ask(name, command)
        self._deliver()
        for name in self.silos:
            self.ask(name, "tidy")
            self.remains += self._remains(name, sync)

    def _remains(self, name: str, sync: int) -> list[str]:
        """Files of a silo in which features of its people can be read, although their batches, up to that of this sync,
        were released, or they are in none."""
        files = {path: path.read_bytes() for path in self.folder.glob(f"{name}.db*") if path.suffix != ".on-disk"}
        gone = [user for user in self.served if user.silo == name and all(batch <= sync for batch in user.batches)]
        users = [user.features.tobytes() for user in gone]
        return [path.name for path, content in files.items() if any(features in content for features in users)]

    @property
    def _counted(self) -> bool:
        """Whether batches are full when so many have come, whatever the time."""
        return not isinstance(self.plan.schedule, Clock)

    def _batch(self, name: str, sync: int) -> None:
        """The users of one batch; where they are counted, until all of its places are taken."""
        number = 0
        while self._room(name, sync) if self._counted else number < USERS:
            self._serve(name, sync, grouped=bool(number % 2), twice=number == 0)
            number += 1

    def _room(self, name: str, sync: int) -> bool:
        """Whether a batch that counts its users has a place left."""
        return bool(self.ask(name, "seated") < self.plan.times[sync])

    def _serve(self, name: str, sync: int, *, grouped: bool, twice: bool) -> None:
        actions = self._random.normal(size=(ARMS, self.plan.dim))
        actions /= np.linalg.norm(actions, axis=-1, keepdims=True)
        decision, action = self.ask(name, "decide", actions)
        deaths, place = self.deaths, self.ask(name, "seated") if self._counted else 0
        user = Served(name, decision, actions[action], float(self._random.random()))
        self.served.append(user)
        for _ in range(1 + twice):
            answer = self.ask(name, "reward", decision, user.reward, grouped)
            batch = None if answer is None or not answer.counted else answer.batch
            allowed = self._allowed(sync, place, died=self.deaths > deaths)
            if batch not in allowed and name not in self._changed:
                raise AssertionError(f"a reward of {name} counts in batch {batch}, it belongs in one of {allowed}")
            if batch is not None:
                user.batches.append(batch)

    def _allowed(self, sync: int, place: int, *, died: bool) -> set[int | None]:
        """The batches that the reward of a decision with this place may count in, if the silo died or not since; None
        for none of them.

        Where users are counted, a silo that starts again with all places of a batch taken closes it: its tick is due. A
        reward that had not been stored by then comes late. So does the one of a decision that was made twice, since the
        answer to the first was lost, with the last place of the batch. Late rewards count in the next batch, if there
        is one; where batches have a planned size, only those that have a place in it.
        """
        late = sync + 1 if sync + 1 < len(self.plan.times) else None
        if not self._counted or place < self.plan.times[sync]:
            return {sync}
        if place > self.plan.times[sync]:
            return {late}
        return {sync, None if self.plan.protocol.needs_points else late} if died else {sync}

    def _deliver(self) -> None:
        """Hand on what waits, and let mixer and analyzer do what is left to do, until nothing is."""
        while True:
            while (message := self._next()) is not None:
                self.ask(self._receiver(message), "handle", message.data)
                self._waiting = [other for other in self._waiting if other is not message]
            for name in self.keepers:
                if name in self._running and self._running[name].reads:
                    self.ask(name, "advance")
            if self._next() is None:
                return

    def _next(self) -> Message | None:
        ready = (m for m in self._waiting if (r := self._running.get(self._receiver(m))) is not None and r.reads)
        return next(ready, None)

    def _receiver(self, message: Message) -> str:
        role, name = message.subject.split(".")[-2:]
        return name if role == "silo" else role

    # -- processes --------------------------------------------------------------------------------------------------

    def _open(self, name: str) -> None:
        stops = self._stops.get(name, [])
        how = self._crash.stop.how if self._crash is not None else "before"
        stop = stops.pop(0) if stops else Stop(0, how)
        self._running[name] = _Actor.free(self._planted)
        self.ask(name, "open", actor.Role(self.homes[name].path, self.store(name), stop))

    def _introduce(self, name: str) -> None:
        """The party reads messages from now on."""
        self.ask(name, "introduce")
        self._running[name].reads = True

    def ask(self, name: str, command: str, *arguments: Any) -> Any:
        """The answer; from a party that dies over it, once it is back."""
        while True:
            try:
                return self._asked(name, command, *arguments)
            except (EOFError, ConnectionError):
                self._died(name)
                if command == "open":
                    return None

    def _asked(self, name: str, command: str, *arguments: Any) -> Any:
        connection = self._running[name].connection
        connection.send((self._now, command, *arguments))
        while True:
            match connection.recv():
                case ("publish", subject, data, message_id):
                    message = Message(subject, data, message_id, name)
                    self.crossed.append(message)
                    self._waiting.append(message)
                    connection.send(None)
                case ("noise", drawn):
                    self.noises[name].append(drawn)
                case ("done", operations, answer):
                    self.operations[name] = operations
                    return answer

    def _died(self, name: str) -> None:
        self.deaths += 1
        code = self._running.pop(name).kill()
        if code != -9 or self.deaths > MOST_DEATHS:
            raise Stalled(f"{name} ended by itself with exit code {code}")
        assert self._crash is not None
        fallen = [name, *self._running] if self._crash.everybody else [name]
        for other in fallen:
            if other != name:
                self._running.pop(other).kill()
            self.met |= after_the_stop(self.store(other), self._crash.stop.how)
        for other in sorted(self._closed - set(fallen)):
            self._running.pop(other).done()
            fallen.append(other)
        self._closed.clear()
        for other in fallen:
            self._open(other)
        self._recover(fallen)

    def _recover(self, fallen: Sequence[str]) -> None:
        """What a party does by itself after its start."""
        for name in fallen:
            self._introduce(name)
        self._deliver()
        for command in ("judge", "tick", "send", "tidy"):
            for name in fallen:
                if name in self.silos:
                    self.ask(name, command)
