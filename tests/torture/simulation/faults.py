"""What goes wrong, and who attacks: each fault is one method, and the seed says which of them a history has."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from fedbandit.federation.wire import envelopes
from fedbandit.federation.wire.envelopes import KINDS, Context
from fedbandit.federation.wire.parcels import Parcel
from tests.torture.simulation.broker import Broker, Weather
from tests.torture.simulation.node import Node
from tests.torture.simulation.oracle import Oracle
from tests.torture.simulation.settings import DEADLINE, PERIOD, Setting

__all__ = ["Faults", "weather"]

FORWARD = 0.5  # the share of stores that were put back, and are brought forward if they are behind
LOOK = 4.0  # seconds between looks at whether they are
NONSENSE = (b"", b"FBE2", b"[" * 6_000, b"FBE2" + b"[" * 6_000, b"FBE2" + bytes(5_000), b"FBE2" + b"\xff" * 9_000)


def weather(chance: random.Random) -> Weather:
    """Half of the histories have a good network."""
    if chance.random() < 0.5:
        return Weather()

    def perhaps(most: float) -> float:
        return chance.random() * most if chance.random() < 0.5 else 0.0

    return Weather(
        lost=perhaps(0.4),
        unanswered=perhaps(0.3),
        late=perhaps(0.5),
        overtaken=perhaps(0.5),
        unacknowledged=perhaps(0.3),
        window=chance.choice((600.0, 600.0, 4.0, 0.0)),
    )


@dataclass
class Faults:
    """Does what the seed says until the history is healed."""

    setting: Setting
    nodes: dict[str, Node]
    broker: Broker
    oracle: Oracle
    chance: random.Random
    say: Callable[[str], None]
    evil: str | None = None  # a silo whose keys an attacker has
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def run(self, kinds: tuple[str, ...], end: float) -> None:
        """One fault after the other, of these kinds."""
        loop = asyncio.get_running_loop()
        while kinds:
            await asyncio.sleep(self.chance.randint(1, 7))
            if loop.time() >= end:
                return
            getattr(self, self.chance.choice(kinds))()

    def heal(self) -> None:
        """Everything is as it should be, and everybody is up."""
        self.say("healed")
        self.broker.weather.clear()
        self.broker.wake_all()
        for node in self.nodes.values():
            node.disk.full = node.disk.failing = False
            node.clock.wrong = 0.0
            node.start()

    # -- crashes ----------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """kill -9, between any two operations."""
        node = self._anyone()
        points = self.chance.randint(1, 30)
        if node.up and node.process is not None:
            self.say(f"{node.name} will be killed in {points} operations")
            node.process.die_at(points, lambda: self._killed(node))

    def cut_power(self) -> None:
        node = self._anyone()
        self.say(f"the power of {node.name} is cut")
        node.kill()
        self._lose(node)
        self._start_later(node)

    def _killed(self, node: Node) -> None:
        self.say(f"{node.name} is killed")
        loop = asyncio.get_running_loop()
        loop.call_soon(node.kill)
        if self.chance.random() < 0.3:
            loop.call_soon(self._lose, node)
        self._start_later(node)

    def _lose(self, node: Node) -> None:
        """What a power cut takes away."""
        if node.disk.cut_power(self.chance):
            self.oracle.found(node.name, node.disk)
        self.oracle.lost(node.name, len(node.disk.written), on_purpose=False)
        node.clock.reboot()

    def _start_later(self, node: Node) -> None:
        catch_up = self.chance.random() < 0.1
        asyncio.get_running_loop().call_later(self.chance.choice((1, 2, 5, 15)), node.start, catch_up)

    # -- disks ------------------------------------------------------------------------------------------------------

    def fill_disk(self) -> None:
        node = self._anyone()
        self.say(f"the disk of {node.name} is {'no longer ' if node.disk.full else ''}full")
        node.disk.full = not node.disk.full

    def break_sync(self) -> None:
        node = self._anyone()
        self.say(f"the disk of {node.name} {'syncs again' if node.disk.failing else 'does not sync'}")
        node.disk.failing = not node.disk.failing

    def restore(self) -> None:
        """Old copies of stores take the place of the newest: once per history, when there is something to lose."""
        if self.oracle.put_back or asyncio.get_running_loop().time() < 1.2 * PERIOD:
            return
        keepers = [node for node in self.nodes.values() if node.party.public.role != "silo"]
        node = self.chance.choice(keepers) if self.chance.random() < 0.3 else self._anyone()
        for one in (node, *self._too(node)):
            self._put_back(one)

    def _too(self, node: Node) -> list[Node]:
        """Who is put back together with a party: as many as still leave somebody who has seen what each of them did."""
        if self.chance.random() < 0.6:
            return []
        silos = [one for one in self.nodes.values() if one is not node and one.party.public.role == "silo"]
        keeper = node.party.public.role != "silo"
        if keeper and len(self.setting.agreement.subjects.receivers) < 2:
            return []  # it alone hears the silos
        return self.chance.sample(silos, self.chance.randint(1, max(1, len(silos) - keeper)))

    def _put_back(self, node: Node) -> None:
        kept = self.chance.choice((0, self.chance.randint(0, len(node.disk.written)), len(node.disk.written)))
        self.say(f"{node.name} is put back to {kept} of {len(node.disk.written)} transactions")
        node.kill()
        node.disk.put_back(kept)
        node.restored = True
        self.oracle.lost(node.name, kept, on_purpose=True)
        self._start_later(node)
        if self.chance.random() < FORWARD:
            late = node.party.public.role == "silo" and self.chance.random() < 0.5
            wait = self.chance.uniform(LOOK, 1.5 * PERIOD) if late else LOOK  # until somebody notices
            asyncio.get_running_loop().call_later(wait, self._bring_forward, node)

    def _bring_forward(self, node: Node) -> None:
        """Somebody looks from time to time whether it says that it is behind."""
        if node.forwarded:
            return
        loop = asyncio.get_running_loop()
        if node.up and node.refuses:
            self.oracle.forwarded.add(node.name)
            self._tasks.append(loop.create_task(node.forward()))
        loop.call_later(LOOK, self._bring_forward, node)

    # -- network and clocks -----------------------------------------------------------------------------------------

    def cut_off(self) -> None:
        name = self._anyone().name
        off = self.broker.weather.cut_off
        self.say(f"{name} is {'connected again' if name in off else 'cut off'}")
        (off.remove if name in off else off.add)(name)
        self.broker.wake_all()

    def set_clock(self) -> None:
        node = self._anyone()
        node.clock.wrong = self.chance.choice((0.0, 0.0, 3.0, -3.0, PERIOD, -PERIOD, 4 * PERIOD, -100.0, 86_400.0))
        self.oracle.clocks_right &= not node.clock.wrong
        self.say(f"the clock of {node.name} is off by {node.clock.wrong:g} s")

    def reboot(self) -> None:
        """The machine starts again, perhaps with a wrong clock."""
        node = self._anyone()
        if self.chance.random() < 0.5:
            node.clock.wrong = self.chance.choice((0.0, DEADLINE, PERIOD, 4 * PERIOD, -100.0))
        self.oracle.clocks_right &= not node.clock.wrong
        self.say(f"{node.name} is rebooted, its clock is off by {node.clock.wrong:g} s")
        node.kill()
        self._lose(node)
        self._start_later(node)

    # -- attackers --------------------------------------------------------------------------------------------------

    def replay(self) -> None:
        """Something that once crossed, again, to whom it was for or to another party."""
        if self.broker.kept:
            receiver, data = self.chance.choice(self.broker.kept)
            receiver = receiver if self.chance.random() < 0.7 else self._anyone().name
            self.say(f"a message is replayed to {receiver}")
            self.broker.slip_in(receiver, data)

    def talk_nonsense(self) -> None:
        receiver = self._anyone().name
        self.say(f"nonsense for {receiver}")
        self.broker.slip_in(receiver, self.chance.choice(NONSENSE))

    def alter(self) -> None:
        """A message with one byte changed."""
        if self.broker.kept:
            receiver, data = self.chance.choice(self.broker.kept)
            place = self.chance.randrange(max(1, len(data)))
            self.say(f"an altered message for {receiver}")
            self.broker.slip_in(receiver, data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :] if data else b"")

    def forge(self) -> None:
        """A message in somebody else's name, signed by the attacker; it would change the course if it were taken."""
        liar = self.setting.parties[self.evil or self.setting.agreement.silos[0]]
        receiver = self.chance.choice([node for node in self.nodes.values() if node.party.public.role != "silo"])
        sender = self.chance.choice([name for name in self.setting.agreement.silos if name != liar.name])
        sync = self.chance.randrange(len(self.setting.plan.times))
        context = Context(self.setting.agreement.id, self.setting.plan.hash, "release", sender, receiver.name, sync)
        plain = self._parcel(receiver)
        self.say(f"a forged release {sync} of {sender} for {receiver.name}")
        sealed = envelopes.seal(plain, context, receiver.party.public.sealing, liar.keys.signer)
        self.oracle.forged.add((sender, sync, plain))
        self.broker.slip_in(receiver.name, sealed)

    def send_early(self) -> None:
        """A release of the attacker's silo for a sync that is still to come, or for any other."""
        if self.evil is None:
            return
        syncs = len(self.setting.plan.times)
        sync = self.chance.choice((*range(syncs), *range(1, syncs), syncs + 1))
        for receiver in self.nodes.values():
            if receiver.party.public.role != "silo":
                self.say(f"{self.evil} sends release {sync} to {receiver.name}")
                plain = self._parcel(receiver)
                sealed = self.setting.parties[self.evil].seal("release", receiver.party.public, sync, plain)
                self.broker.slip_in(receiver.name, sealed)

    def send_garbage(self) -> None:
        """Anything at all, in an envelope of the attacker's silo."""
        if self.evil is not None:
            receiver, kind = self._anyone(), self.chance.choice(KINDS)
            plain = self.chance.choice((b"", bytes(300), b"FBM1" + b"\xff" * 40, b"[" * 500))
            self.say(f"{self.evil} sends {receiver.name} garbage as {kind!r}")
            sealed = self.setting.parties[self.evil].seal(kind, receiver.party.public, self.chance.randrange(3), plain)
            self.broker.slip_in(receiver.name, sealed)

    def _parcel(self, receiver: Node) -> bytes:
        protocol, role = self.setting.plan.protocol, receiver.party.public.role
        arrays = tuple(
            np.full(protocol.width, self.chance.randrange(1000), dtype=part.dtype)
            for part in protocol.parts
            if part.reader == role and not part.blind
        )
        carried = tuple(b"x" * 1500 for part in protocol.parts if part.blind) if role == "mixer" else ()
        return Parcel(arrays, carried).encode()

    def _anyone(self) -> Node:
        return self.chance.choice(list(self.nodes.values()))
