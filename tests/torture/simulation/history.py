"""One seed, one history: a federation at work, what happens to it, and what must hold all the time."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache
from typing import NamedTuple, cast

from fedbandit.federation.setup.editions import Edition
from fedbandit.federation.setup.party import Party
from fedbandit.federation.setup.roll import Roll
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.store.rewards import UNLIMITED
from fedbandit.federation.wire.link import Link
from tests.torture.simulation.broker import Alter, Broker, SimulatedLink
from tests.torture.simulation.clients import Client
from tests.torture.simulation.faults import Faults, weather
from tests.torture.simulation.liars import OneSided, TwoStories, honest
from tests.torture.simulation.loop import SimulatedLoop
from tests.torture.simulation.machine import Clock, Disk, Process
from tests.torture.simulation.members import changes, lists, newcomer, with_a_free_seat
from tests.torture.simulation.models import THOROUGH, modelled
from tests.torture.simulation.node import Node
from tests.torture.simulation.oracle import ObservedParty, Oracle
from tests.torture.simulation.settings import NAMES, PERIOD, setting
from tests.torture.simulation.terms import SecondTerm

__all__ = ["History", "play"]

BEATS = (2.0, 4.0, 4.0)  # seconds: all sleepers wake at whole beats
LEAVING = 0.15  # the share of histories in which a silo is dismissed, where the plan's cohort allows it
CHANGING = 0.4  # below which, and above that, several things about the members change
JOINING = 0.5  # the share of these in which a silo joins, where there can be a free seat
RENEWING = 0.5  # the share of the others in which a second term follows, if nobody lies and no store was put back
PATIENCE = 240.0  # seconds after which a federation that is well again must have come to its end
ACCIDENTS = ("kill", "kill", "kill", "cut_power", "fill_disk", "break_sync", "cut_off", "set_clock", "reboot")
ATTACKS = ("replay", "talk_nonsense", "alter", "forge", "send_early", "send_garbage")


class History(NamedTuple):
    """What happened."""

    seed: int
    lines: list[str]
    violations: list[str]


@cache
def _begin() -> None:
    """What is loaded by now stays: the collector has less to look through."""
    gc.collect()
    gc.freeze()


def play(seed: int) -> History:
    """The history of this seed, always the same."""
    _begin()
    chance = random.Random(seed)
    loop = SimulatedLoop(chance, chance.choice(BEATS))  # type: ignore[abstract]
    thorough = seed % THOROUGH == 0
    logging.disable(logging.CRITICAL)
    try:
        with nullcontext() if thorough else modelled():
            world = _World(loop, chance, seed, thorough)
            loop.run_until_complete(world.run())
        return History(seed, world.lines, world.oracle.violations)
    finally:
        logging.disable(logging.NOTSET)
        loop.close()


class _World:
    def __init__(self, loop: SimulatedLoop, chance: random.Random, seed: int, thorough: bool) -> None:
        self.lines: list[str] = []
        self._patience = PATIENCE
        self._loop, self._chance = loop, chance
        self._leaver: str | None = None  # a silo that is dismissed
        self._found_by = 0.0  # when all editions are in somebody's directory
        name = chance.choice(NAMES)
        self._members = random.Random(f"{seed} members")  # apart: the course of all other histories is as it was
        drawn = self._members.random()
        self._leaves, self._changes = drawn < LEAVING, LEAVING <= drawn < CHANGING
        self._renewal = random.Random(f"{seed} renewal")
        self._renews = self._renewal.random() < RENEWING
        self._roll: Roll | None = None  # the members with all changes of this history
        self._setting = setting(name, real_keys=thorough)
        if self._changes and self._members.random() < JOINING:
            self._setting = with_a_free_seat(self._setting) or self._setting
        self._joins = newcomer(self._setting)
        self.say(f"seed {seed}: {name}{f', {self._joins} may join' if self._joins else ''}")
        plan = self._setting.plan
        cap = plan.privacy.participations if plan.privacy else UNLIMITED
        silos = (*self._setting.agreement.silos, *([self._joins] if self._joins else ()))
        self.oracle = Oracle(plan, silos, lambda name: self._nodes[name].disk, cap, self.say, loop.time)
        names, oracle = list(self._setting.parties), self.oracle
        self._broker = Broker(loop, chance, weather(chance), names, oracle.crossed, oracle.done_with)
        self._deceiver: TwoStories | None = None
        self._alter: dict[str, Alter] = {}
        self._nodes = {name: self._node(name) for name in self._setting.parties}
        self._faults = Faults(
            self._setting, self._nodes, self._broker, self.oracle, chance, self.say, self._choose_liar()
        )

    def _choose_liar(self) -> str | None:
        """In some histories a silo is an attacker's, in a few the analyzer; returns the silo."""
        agreement, chance = self._setting.agreement, self._chance
        drawn, silo = chance.random(), chance.choice(agreement.silos)
        if drawn < 0.04 and self._setting.plan.protocol.has_mixer:
            since = chance.randrange(len(self._setting.plan.times))
            self.say(f"the analyzer tells {silo} other models than the rest from model {since} on")
            self._deceiver = TwoStories(self._setting.parties["analyzer"], self.oracle, silo, since, self.say)
            self._alter["analyzer"] = self._deceiver
            self.oracle.lying.add("analyzer")
            self._broker.weather.clear()
        elif drawn < 0.2:
            self.say(f"{silo} is an attacker's")
            self.oracle.lying.add(silo)
            if chance.random() < 0.5:
                self._alter[silo] = OneSided(self.oracle, chance.choice(["analyzer", "mixer"]))
            return silo
        return None

    def say(self, text: str) -> None:
        self.lines.append(f"{self._loop.time():7.0f}  {text}")

    def _node(self, name: str) -> Node:
        party, oracle = self._setting.parties[name], self.oracle

        spare = (self._setting.spare[name],) if self._changes else ()

        def observed(editions: Sequence[Edition]) -> Party:
            return ObservedParty(party, spare, editions, oracle)

        disk = Disk(lambda disk, statements: oracle.wrote(name, disk, statements))

        def connect(process: Process) -> Link:
            alter = self._alter.get(name, honest)

            def leaves(envelope: bytes) -> None:
                oracle.leaves(self._nodes[name].party, envelope)

            return cast(Link, SimulatedLink(self._broker, name, process, alter, leaves))

        return Node(observed, Clock(self._loop.time), disk, connect, self.say, oracle.fail)

    def _plan_dismissal(self) -> None:
        """In some histories a silo is dismissed: the analyzer finds the operator's word in its directory."""
        chance, plan, charter = self._members, self._setting.plan, self._setting.agreement
        honest_ones = [name for name in charter.silos if name not in self.oracle.lying]
        enough = len(charter.silos) > plan.smallest_cohort
        if not self._leaves or not enough or self._deceiver is not None or not honest_ones:
            return
        self._leaver, since = chance.choice(honest_ones), chance.randrange(1, len(plan.times))
        edition = Roll(charter).next(Edition(1, "", since, "dismiss", self._leaver), self._setting.operator.signer)
        at = chance.uniform(0.0, 1.2 * since * PERIOD)
        self._roll, self._found_by = Roll(charter, [edition]), at
        self.say(f"{self._leaver} is dismissed from sync {since} on, at {at:.0f}")
        self._nodes["analyzer"].file = []
        self._loop.call_later(at, lambda: setattr(self._nodes["analyzer"], "file", [edition]))
        rest = tuple(name for name in charter.silos if name != self._leaver)
        self.oracle.members = lambda name, sync: (
            rest if sync >= since and self._nodes[name].party.roll.number else charter.silos
        )

    def _plan_changes(self) -> None:
        """In others silos join and leave, and parties and the operator get new keys, by several editions that somebody
        finds in their directory: perhaps long after they should have held."""
        if not self._changes or self._deceiver is not None:
            return
        made = changes(self._members, self._setting, sorted(self.oracle.lying))
        rolls = lists(self._setting.agreement, made)
        self._roll = rolls[-1]
        self.oracle.members = lambda name, sync: rolls[self._nodes[name].party.roll.number].at(sync).silos
        for node in self._nodes.values():
            node.file = []
        for count, change in enumerate(made, 1):
            self.say(str(change))
            finders = [change.finder]
            if change.edition.change == "admit":
                finders.append(change.edition.name)
                self.oracle.since[change.edition.name] = change.edition.from_sync
            for finder in finders:
                self._loop.call_later(change.at, self._find, self._nodes[finder], [one.edition for one in made[:count]])
            self._found_by = max(self._found_by, change.at)
        if self._joins is not None:
            self._nodes[self._joins].absent = True

    def _find(self, node: Node, editions: list[Edition]) -> None:
        """Somebody has put a file into a party's directory, and has started it if it was still to join."""
        if node.file is None or len(node.file) < len(editions):
            node.file = editions
        if node.absent:
            node.absent = False
            node.start()

    async def run(self) -> None:
        self._plan_dismissal()
        self._plan_changes()
        for node in self._nodes.values():
            node.start()
        clients = [
            Client(self._nodes[name], self.oracle, self._chance, number)
            for number, name in enumerate(self.oracle.silos)
        ]
        kinds, end = self._choose()
        running = {client.node.name: self._loop.create_task(client.run()) for client in clients}
        tasks = [*running.values(), self._loop.create_task(self._faults.run(kinds, end))]
        await self._until(lambda: self._loop.time() >= end)
        self._faults.heal()
        early = self._renewable and self._renewal.random() < 0.5
        await self._until(self._all_drawn if early else self._over)
        if self._renewable and not self.oracle.violations:
            tasks += await self._renew(clients, running)
        for node in self._nodes.values():
            node.kill()
        for task in tasks:
            task.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        for node in self._nodes.values():
            node.disk.scrap()

    @property
    def _renewable(self) -> bool:
        """Whether this history has a second term, for which all must be what the others take them for."""
        put_back = [node for node in self._nodes.values() if node.restored and node.silo]
        behind = any(node.name not in self.oracle.forwarded for node in put_back)
        astray = behind or any(node.refuses for node in self._nodes.values()) or self.oracle.told_twice
        return self._renews and not self.oracle.lying and not astray and self._faults.evil is None

    def _all_drawn(self) -> bool:
        """Whether every silo has made its last release; some models may be still to come."""
        silos = [self._nodes[name].silo for name in self.oracle.silos]
        return all(silo is not None and silo.ended for silo in silos) or self._over()

    async def _renew(self, clients: list[Client], running: dict[str, asyncio.Task[None]]) -> list[asyncio.Task[None]]:
        """The second term, to its end."""
        term = SecondTerm(
            self._renewal,
            self._setting,
            self._nodes,
            self._broker,
            self._roll or Roll(self._setting.agreement),
            self.oracle,
            self.say,
        )
        term.begin({client.node.name: client for client in clients}, running)
        self._patience = self._loop.time() + 2 * PATIENCE  # it begins late, and one who counts visits waits for them
        await self._until(lambda: not term.waiting or self._loop.time() > self._patience)
        self._setting, self.oracle, self._faults = term.setting, term.oracle, term.faults
        kinds = term.kinds()
        end = self._loop.time() + len(self._setting.plan.times) * PERIOD if kinds else 0.0
        self.say(f"faults until {end:.0f}: {', '.join(kinds) or 'none'}")
        tasks = [self._loop.create_task(self._faults.run(kinds, end))]
        await self._until(lambda: self._loop.time() >= end)
        self._faults.heal()
        await self._until(self._over)
        return [*term.tasks, *tasks]

    def _choose(self) -> tuple[tuple[str, ...], float]:
        """The kinds of faults of this history, and when it is healed."""
        chance = self._chance
        if self._deceiver is not None:
            return (), PERIOD  # nothing else goes wrong, so that it must be noticed
        kinds = chance.sample(ACCIDENTS, chance.randint(0, 3))
        if chance.random() < 0.3 or self._faults.evil is not None:
            kinds += chance.sample(ATTACKS, chance.randint(1, 4))
        if self._faults.evil is not None:
            kinds.append("send_early")
        if chance.random() < 0.25:
            kinds.append("restore")
        end = chance.uniform(0.5, 1.3) * PERIOD * len(self._setting.plan.times) if kinds else PERIOD
        self.say(f"faults until {end:.0f}: {', '.join(kinds) or 'none'}; {self._broker.weather}")
        return tuple(kinds), end

    async def _until(self, reached: Callable[[], bool]) -> None:
        while not self.oracle.violations and not reached():
            await asyncio.sleep(BEATS[0])

    def _over(self) -> bool:
        """Whether everybody has come to the end; too late is a violation."""
        for node in self._nodes.values():
            self._operate(node)
        if self._loop.time() < self._found_by + BEATS[0]:
            return False
        if any(node.restored and node.keeper is not None and node.problem for node in self._nodes.values()):
            return True  # it refuses and says why; without it nobody comes further
        if self._deceiver is not None and self._nodes["mixer"].problem:
            return True  # it was noticed, and the analyzer gets nothing more
        if self.oracle.told_twice and any(node.refuses and not node.restored for node in self._nodes.values()):
            return True  # whoever got both has noticed
        if not any(self._takes_part(name) for name in self.oracle.silos) or not self._begins():
            return True  # without a silo that sends anything no sync begins
        unfinished = [node.name for node in self._nodes.values() if not self._finished(node)]
        if not unfinished and self._deceiver is None:
            self.oracle.ledgers()
            self.oracle.one_story([node.name for node in self._nodes.values() if node.silo and not node.refuses])
            return True
        if self._loop.time() > self._patience and not unfinished and self._deceiver is not None:
            self.oracle.fail(f"nobody noticed that {self._deceiver.deceived} was told other models than the rest")
        elif self._loop.time() > self._patience:
            self.oracle.fail("no progress: " + "; ".join(self._nodes[name].describe() for name in unfinished))
        return False

    def _begins(self) -> bool:
        """Whether the next sync ever does: a silo of those that are its members sends something, or as many as make a
        cohort are further. Those who refuse send nothing, nor does one that was brought forward over this sync, and one
        who joins later is no member of it yet."""
        analyzer, plan = self._nodes["analyzer"], self._setting.plan
        stranded = any(node.stranded for node in self._nodes.values())
        if stranded and analyzer.keeper is not None and not analyzer.keeper.answered:
            return False  # those who are left are too few to answer it
        senders = {name for name in self.oracle.silos if self._sends(self._nodes[name])}
        if analyzer.keeper is None or not analyzer.up or len(senders) >= plan.smallest_cohort:
            return True
        sync = analyzer.keeper.store.next_sync()
        senders = {name for name in senders if not self._nodes[name].gave_up(sync)}
        return sync == len(plan.times) or not senders.isdisjoint(self.oracle.members("analyzer", sync))

    def _sends(self, node: Node) -> bool:
        return node.name not in self.oracle.lying and not (node.is_out or node.refuses)

    def _takes_part(self, silo: str) -> bool:
        node = self._nodes[silo]
        if node.is_out:
            return False
        return silo not in self.oracle.lying and not (node.restored and node.problem)

    def _operate(self, node: Node) -> None:
        """What people do whose clock is right: they say so."""
        if node.up and node.held and not node.has_left:
            self.say(f"{node.name} is told that its clock is right")
            node.kill()
            node.start(catch_up=True)

    def _finished(self, node: Node) -> bool:
        syncs = len(self._setting.plan.times)
        if node.name == self._faults.evil or (node.restored and node.problem) or node.is_out:
            return True
        if not node.up:
            return False
        if node.keeper is not None:
            return node.keeper.store.next_sync() == syncs
        assert node.silo is not None
        return self._settled(node.silo)

    def _settled(self, silo: Silo) -> bool:
        """Whether the silo knows of every release what became of it, and has every model. The model of a sync that the
        analyzer has given up may never have reached it, and nobody else has it. One that was brought forward is sent
        the newest model again, and not those before."""
        term, syncs, analyzer = silo.term.number, len(self._setting.plan.times), self._nodes["analyzer"]
        releases, had = silo.store.releases(term), {sync for sync, _ in silo.store.models(term)}
        if len(releases) < syncs or not all(release.state.settled for release in releases):
            return False
        lost = {sync for sync in range(syncs) if analyzer.gave_up(sync)} - had
        there = [sync for sync in range(syncs) if sync not in lost]
        up_to_date = not there or silo.version > there[-1]
        models = len(had) + len(lost) + self.oracle.since.get(silo.name, 0)  # whoever joins has none of long before
        return up_to_date and (models >= syncs or silo.name in self.oracle.forwarded)
