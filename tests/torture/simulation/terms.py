"""A second term in some histories: the operator renews, everybody accepts when it suits them, stores and ledgers go on.

What must hold over both terms: whoever was served by raw data counts in no later one, ledgers hold and have both terms,
nobody takes in what was said in the first term, no reward of it counts in the second, and a silo whose ledger was lost
between the two draws nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from fedbandit._validate import ArgumentError
from fedbandit.federation.renewal import begun_from
from fedbandit.federation.setup.agreement import Agreement
from fedbandit.federation.setup.editions import Edition
from fedbandit.federation.setup.party import Party
from fedbandit.federation.setup.roll import Roll
from fedbandit.federation.silo import book
from fedbandit.federation.silo.decisions.tickets import UnknownDecision
from fedbandit.federation.silo.terms import check_begins
from fedbandit.federation.states import SyncState
from fedbandit.federation.store import SiloStore, SyncStore
from fedbandit.federation.store.rewards import FOR_GOOD
from fedbandit.federation.store.seen import SeenStore
from fedbandit.federation.wire.parcels import Outcome, SignedOutcome
from fedbandit.schedule import Clock
from tests.torture.simulation.broker import Broker
from tests.torture.simulation.clients import Client
from tests.torture.simulation.faults import Faults
from tests.torture.simulation.machine import START, Crash, Disk, Process, SimulatedEngine, Statement, Written
from tests.torture.simulation.node import Node
from tests.torture.simulation.oracle import ObservedParty, Oracle
from tests.torture.simulation.settings import PERIOD, Setting

__all__ = ["SecondTerm"]

LEAD = 1.5 * PERIOD  # seconds until the clock of the new term begins to count
LATEST = 2.5 * PERIOD  # seconds until the last party is told
AGAIN = 4.0  # seconds until a silo that cannot accept yet tries again
ANEW = 0.25  # the share of these in which the new term's file says that it begins a new ledger
LOST = 0.3  # the share of renewals in which a silo loses its store between the terms
KILLED = 0.4  # the share of parties that are killed soon after they have accepted
ACCIDENTS = ("kill", "kill", "cut_power", "fill_disk", "break_sync", "cut_off", "replay", "reboot", "set_clock")
RESTORED = 0.3  # the share of second terms in which stores are put back, perhaps to a moment of the first term


class _BothTerms(Oracle):
    """The same rules in the second term, and those over both."""

    def __init__(self, first: Oracle, agreed: Agreement, begins: float) -> None:
        disks, say = first._disk_of, first._say
        super().__init__(agreed.plan, agreed.silos, disks, first.cap, say, lambda: first._now() - begins)
        self.violations, self.clocks_right = first.violations, first.clocks_right
        self.bereft: set[str] = set()  # silos that have nothing of the first term any more
        self.anew: set[str] = set()  # those of them that may begin a new ledger
        self._first = first
        self._begun: dict[str, int] = {}  # by silo: transactions on its disk when it accepted

    def begins(self, name: str, disk: Disk) -> None:
        """A silo accepts: what its disk says of people, and of what was spent, must go on."""
        connection, at = disk.connection, len(disk.written) - 1
        rows = connection.execute("SELECT person FROM opted_out WHERE term = ?", (FOR_GOOD,)).fetchall()
        self.memory(name).opted_out |= {bytes(person): at for (person,) in rows}
        ((entries,),) = connection.execute("SELECT count(*) FROM ledger").fetchall()
        self.earlier[name], self._begun[name] = int(entries), len(disk.written)

    def lost(self, name: str, kept: int, on_purpose: bool) -> None:
        """A silo that is put back into the first term must have all of the ledger that others have seen; of a release
        that never left it nobody can know."""
        super().lost(name, kept, on_purpose)
        if on_purpose and kept < self._begun.get(name, 0):
            ((entries,),) = self._disk_of(name).connection.execute("SELECT count(*) FROM ledger").fetchall()
            keepers = [self._first.memory(keeper).results_of for keeper in ("analyzer", "mixer")]
            seen = max((sync + 1 for of in keepers for silo, sync in of if silo == name), default=0)
            released = seen - self._first.since.get(name, 0) if self.plan.privacy else 0
            self.earlier[name] = max(int(entries), released)

    def wrote(self, name: str, disk: Disk, statements: Written) -> None:
        super().wrote(name, disk, statements)
        for statement in statements:
            if statement.query.startswith("INSERT INTO inbox (sync,"):
                self._of_this_term(name, statement)
            elif statement.query.startswith("INSERT INTO models (term"):
                self._model_of_this_term(name, statement)
        if name in self.bereft - self.anew and self.memory(name).drawn:
            self.fail(f"{name} draws although its ledger of the term before is lost")

    def _of_this_term(self, name: str, statement: Statement) -> None:
        sync, sender, value = statement.values
        if any((one.sender, one.sync, one.plain) == (sender, sync, value) for one in self._said.values()):
            return
        self.fail(f"{name} takes in for sync {sync} what {sender} has not said in this term")

    def _model_of_this_term(self, name: str, statement: Statement) -> None:
        _, sync, value = statement.values
        told = [said.plain for said in self._said.values() if (said.kind, said.sync) == ("model", sync)]
        if not any(SignedOutcome.decode(plain, self.plan).outcome.encode() == value for plain in told):
            self.fail(f"{name} takes in a model {sync} that nobody has sent in this term")

    def ledgers(self) -> None:
        """Every chain holds, and has what was spent in both terms."""
        super().ledgers()
        if self.plan.privacy is None or self.violations:
            return
        for name in self.silos:
            spent = book.spending(SiloStore(SimulatedEngine(self._disk_of(name), Process())).ledger())
            released = {term.term: term.released for term in spent.terms}
            before = len(self._first.memory(name).drawn) - self._first.since.get(name, 0)
            wanted = {1: before, 2: len(self.memory(name).drawn)}
            wanted = {term: drawn for term, drawn in wanted.items() if drawn}  # of one who was away for a whole term
            if name not in self.bereft | self.put_back and released != wanted:
                self.fail(f"{name} has drawn {wanted} releases by term, and its ledger says {released}")
            if any(term.redrawn or term.epsilon > self.plan.privacy.epsilon * (1 + 1e-9) for term in spent.terms):
                self.fail(f"{name} has spent more than its plan allows, by its ledger")


@dataclass
class SecondTerm:
    """From the first term to the second, one party after the other."""

    chance: random.Random
    setting: Setting  # of the first term; of the second one once it was made
    nodes: dict[str, Node]
    broker: Broker
    members: Roll  # of the first term, with all that has changed
    first: Oracle
    say: Callable[[str], None]
    waiting: set[str] = field(default_factory=set)  # who has not accepted yet
    clients: dict[str, Client] = field(default_factory=dict)  # of the first term
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def begin(self, clients: dict[str, Client], running: dict[str, asyncio.Task[None]]) -> None:
        """The operator renews, and everybody is told sooner or later."""
        loop = asyncio.get_running_loop()
        now, analyzer = loop.time(), self.nodes["analyzer"]
        lost = self._lost()
        anew = [name for name in lost if self.chance.random() < ANEW]
        agreed = self.members.next_term((), anew)
        self.setting = _renewed(self.chance, self.setting, agreed, analyzer.disk, now)
        self.oracle = _BothTerms(self.first, self.setting.agreement, now + LEAD)
        for name in [name for name in self.nodes if name not in self.setting.parties]:
            running[name].cancel()
            self.nodes.pop(name).kill()  # it was dismissed
        self.say(f"renewed, with {'a' if self.setting.plan.prior else 'no'} prior")
        self.broker.crossed, self.broker.done_with = self._crossed, self._done_with
        self.faults = Faults(self.setting, self.nodes, self.broker, self.oracle, self.chance, self.say)
        self.clients, self._running, self.waiting = clients, running, set(self.nodes)
        self.oracle.bereft.update(lost)
        self.oracle.anew.update(anew)
        for name in lost:
            self.nodes[name].restored = name not in anew  # whoever may not draw comes to no end
        for node in self.nodes.values():
            node.renewing = True
            loop.call_later(self.chance.uniform(0.0, LATEST), self._accept, node)

    def _crossed(self, envelope: bytes) -> None:
        self.first.crossed(envelope)
        self.oracle.crossed(envelope)

    def _done_with(self, name: str, envelope: bytes) -> None:
        self.first.done_with(name, envelope)
        self.oracle.done_with(name, envelope)

    def _lost(self) -> list[str]:
        """The silo that loses its store between the terms, if one does: one whose keys were replaced, if there is one,
        because its ledger goes on all the same."""
        if self.setting.plan.privacy is None or not self.chance.random() < LOST or not (seen := self._seen()):
            return []
        return [self.chance.choice([name for name in seen if len(self.members.keys_of(name)) > 1] or seen)]

    def _seen(self) -> list[str]:
        """Silos of which a mixer or an analyzer has a release on disk. If nobody has, nobody can tell that a ledger was
        lost (docs/reliability.md)."""
        silos = self.members.newest.silos
        keepers = [node for name, node in self.nodes.items() if node.party.public.role != "silo"]
        stores = [SeenStore(SimulatedEngine(keeper.disk, Process()), "") for keeper in keepers]
        return [name for name in silos if any(store.of(name).syncs > 0 for store in stores)]

    def _accept(self, node: Node) -> None:
        """As `federation accept --new-term` and a start do it; a silo tries again until its last term is over."""
        loop, disk, plan = asyncio.get_running_loop(), node.disk, self.setting.plan
        silo, name = node.party.public.role == "silo", node.name
        if silo and name not in self.oracle.bereft:
            try:
                check_begins(SiloStore(SimulatedEngine(disk, Process())), plan, name)
            except ArgumentError as error:
                self.say(f"{name} cannot accept yet: {error}")
                loop.call_later(AGAIN, self._accept, node)
                return
        node.kill()
        self.say(f"{name} accepts the new term")
        observe = self.oracle

        def wrote(disk: Disk, statements: Written) -> None:
            observe.wrote(name, disk, statements)

        if silo:
            self._running[name].cancel()
            if name in self.oracle.bereft:
                disk.put_back(0)
            disk.announce_to(wrote)
            observe.begins(name, disk)
        else:
            node.before, disk = (disk, self.members.charter), Disk(wrote)
        node.file = None
        node.accept(self._party(name), disk)
        self.waiting.discard(name)
        node.start()
        if silo:
            number = len(self.first.silos) + self.first.silos.index(name)
            self.tasks.append(loop.create_task(Client(node, observe, self.chance, number).run()))
            self.tasks.append(loop.create_task(self._reward_late(node, self.clients[name])))
        if self.chance.random() < KILLED and node.up and node.process is not None:
            self.say(f"{name} will be killed soon")
            node.process.die_at(self.chance.randint(1, 12), lambda: self.faults._killed(node))

    def _party(self, name: str) -> Callable[[Sequence[Edition]], Party]:
        party, spare = self.setting.parties[name], (self.setting.spare[name],)
        return lambda editions: ObservedParty(party, spare, editions, self.oracle)

    async def _reward_late(self, node: Node, client: Client) -> None:
        """Applications reward decisions of the first term: they are unknown now."""
        for asked in (*client.waiting, *client.answered):
            await asyncio.sleep(self.chance.randint(1, 5))
            if node.silo is None or not node.up:
                continue
            try:
                node.silo.reward(asked.decision, asked.reward)
            except (UnknownDecision, Crash):
                continue
            self.oracle.fail(f"{node.name} takes a reward of a decision of the term before")

    def kinds(self) -> tuple[str, ...]:
        """What goes wrong in the second term."""
        kinds = self.chance.sample(ACCIDENTS, self.chance.randint(0, 3))
        return (*kinds, "restore") if self.chance.random() < RESTORED else tuple(kinds)


def _renewed(chance: random.Random, setting: Setting, agreed: Agreement, analyzer: Disk, now: float) -> Setting:
    """The federation's next term: the same members and keys, another plan, and mostly what the last one has learnt."""
    last = setting.plan
    offered = last.changed(rounds=last.rounds + last.rounds // len(last.times))
    store = SyncStore(SimulatedEngine(analyzer, Process()))
    sent = (one for one in store.all() if one.state is SyncState.PUBLISHED and one.value is not None)
    found = [(one.sync, Outcome.decode(one.value or b"", last)) for one in sent]
    learnt = [(sync, outcome) for sync, outcome in found if not outcome.skipped]
    if learnt and chance.random() < 0.8:
        offered = begun_from(last, offered, *learnt[-1], weight=chance.choice((1.0, 0.5)))
    start = START + now + LEAD if isinstance(last.schedule, Clock) else agreed.timing.start
    following: Agreement = replace(agreed, plan=offered, timing=replace(agreed.timing, start=start))
    members = [(one, setting.parties[one.name]) for one in following.parties]
    parties = {one.name: Party(following, party.keys, one) for one, party in members}
    return setting._replace(plan=offered, parties=parties)
