"""The broker and the network around it: durable streams, at least once, in order unless the weather says otherwise."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from fedbandit.federation.post_office import receiver_of
from fedbandit.federation.wire import subjects
from tests.torture.simulation.machine import Process

__all__ = ["Alter", "Broker", "SimulatedLink", "Weather"]

RETRY = 0.5  # seconds until what failed is tried again
HOLDERS = {"mixer": "mixer", "analyzer": "analyzer"}  # by role, who reads what is for it
Alter = Callable[[bytes], bytes | None]  # what a liar sends in place of a message; None: nothing
ACK_WAIT = 3.0  # seconds until what was taken and not acknowledged is given out again
MOST = 8  # messages taken at a time


@dataclass
class Weather:
    """What the network does to messages, as probabilities, and whom it cuts off."""

    lost: float = 0.0  # a message on its way to the broker
    unanswered: float = 0.0  # the broker has it, the sender does not learn of it
    late: float = 0.0
    overtaken: float = 0.0
    unacknowledged: float = 0.0  # the broker does not learn that it was taken
    window: float = 600.0  # seconds in which the broker recognises a repeated id
    cut_off: set[str] = field(default_factory=set)

    def clear(self) -> None:
        """Fine again; the broker recognises no more than before."""
        self.lost = self.unanswered = self.late = self.overtaken = self.unacknowledged = 0.0
        self.cut_off.clear()


class _Stored(NamedTuple):
    number: int
    ready: float
    data: bytes


class _Queue:
    """What waits for one party: new messages, and those it took and did not acknowledge."""

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        self.waiting: list[_Stored] = []
        self.taken: dict[int, tuple[float, _Stored]] = {}

    def take(self, now: float, most: int, overtake: bool) -> list[_Stored]:
        again = [stored for at, stored in self.taken.values() if at <= now][:most]
        fresh: list[_Stored] = []
        for stored in self.waiting:
            if len(again) + len(fresh) >= most:
                break
            if stored.ready <= now:
                fresh.append(stored)
            elif not overtake:
                break
        for stored in fresh:
            self.waiting.remove(stored)
        for stored in (*again, *fresh):
            self.taken[stored.number] = (now + ACK_WAIT, stored)
        return again + fresh


class Broker:
    """Takes messages for good, each id once within its window, and hands them out until they are acknowledged."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        chance: random.Random,
        weather: Weather,
        names: list[str],
        crossed: Callable[[bytes], None],
        done_with: Callable[[str, bytes], None],
    ) -> None:
        self.weather, self.crossed, self.done_with = weather, crossed, done_with
        self.kept: list[tuple[str, bytes]] = []  # receiver and envelope, all that ever came
        self._loop, self._chance = loop, chance
        self._queues = {name: _Queue() for name in names}
        self._ids: dict[tuple[str, str, bytes], float] = {}
        self._count = 0

    def store(self, subject: str, data: bytes, message_id: str) -> None:
        """A message of a party. Like a real link's, its id stands for these bytes alone."""
        receiver = receiver_of(subject, HOLDERS)
        now, last = self._loop.time(), self._ids.get((receiver, message_id, data))
        self.crossed(data)
        if last is not None and now - last < self.weather.window:
            return
        self._ids[receiver, message_id, data] = now
        self.slip_in(receiver, data)

    def slip_in(self, receiver: str, data: bytes) -> None:
        """A message that is there, wherever it came from: the broker is trusted with nothing."""
        now, queue = self._loop.time(), self._queues[receiver]
        late = self._chance.randint(1, 6) if self.weather.late and self._chance.random() < self.weather.late else 0
        self.kept.append((receiver, data))
        self._count += 1
        queue.waiting.append(_Stored(self._count, now + late, data))
        self._wake(queue, now + late)

    def take(self, name: str) -> list[_Stored]:
        """The next messages for a party."""
        if name in self.weather.cut_off:
            return []
        weather, chance, now = self.weather, self._chance, self._loop.time()
        overtake = bool(weather.overtaken) and chance.random() < weather.overtaken
        taken = self._queues[name].take(now, chance.randint(1, MOST), overtake)
        if taken:
            self._wake(self._queues[name], now + ACK_WAIT)
        return taken

    def acknowledge(self, name: str, stored: _Stored) -> None:
        weather = self.weather
        self.done_with(name, stored.data)
        if not (weather.unacknowledged and self._chance.random() < weather.unacknowledged):
            self._queues[name].taken.pop(stored.number, None)

    async def wait(self, name: str) -> None:
        """Until there may be something for a party."""
        await self._queues[name].wake.wait()
        self._queues[name].wake.clear()

    def wake_all(self) -> None:
        for queue in self._queues.values():
            queue.wake.set()

    def _wake(self, queue: _Queue, at: float) -> None:
        if at <= self._loop.time():
            queue.wake.set()
        else:
            self._loop.call_at(at, queue.wake.set)

    async def reach(self, name: str) -> None:
        """Until a message of this party gets through."""
        while name in self.weather.cut_off or (self.weather.lost and self._chance.random() < self.weather.lost):
            await asyncio.sleep(RETRY)

    def answers(self) -> bool:
        return not (self.weather.unanswered and self._chance.random() < self.weather.unanswered)


class SimulatedLink:
    """One process's connection to the broker: the part of a `Link` that parties use."""

    def __init__(
        self, broker: Broker, name: str, process: Process, alter: Alter, leaves: Callable[[bytes], None]
    ) -> None:
        self._broker, self._name, self._process, self._alter = broker, name, process, alter
        self._leaves = leaves

    async def publish(self, subject: str, data: bytes, message_id: str) -> None:
        self._leaves(data)
        sent = self._alter(data)
        if sent is None:
            return
        data = sent
        while True:
            self._process.point()
            await self._broker.reach(self._name)
            self._process.point()
            self._broker.store(subject, data, message_id)
            self._process.point()
            if self._broker.answers():
                return
            await asyncio.sleep(RETRY)

    async def read(self, consumer: subjects.Consumer, handle: Callable[[list[bytes]], Awaitable[None]]) -> None:
        while True:
            self._process.point()
            taken = self._broker.take(self._name)
            if not taken:
                await self._broker.wait(self._name)
                continue
            await handle([stored.data for stored in taken])
            self._process.point()
            for stored in taken:
                self._broker.acknowledge(self._name, stored)
