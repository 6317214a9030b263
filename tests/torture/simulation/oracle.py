"""What must hold in every history, checked at every change of a disk, at every message and at every answer.

The oracle sees what each party writes, what it says before that is sealed, and what the applications are told. It knows
nothing of how the parties work.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fedbandit._arrays import Integers
from fedbandit.bandit.statistics import contributions
from fedbandit.federation.setup.editions import Edition
from fedbandit.federation.setup.party import Party
from fedbandit.federation.setup.roll import Roll
from fedbandit.federation.silo import book
from fedbandit.federation.silo.decisions.tickets import DIGEST_BYTES
from fedbandit.federation.silo.serving import Acknowledgement
from fedbandit.federation.states import DecisionState, ReleaseState, SyncState
from fedbandit.federation.store.silo_store import SiloStore
from fedbandit.federation.timing import JUMP
from fedbandit.federation.wire.envelopes import OVERHEAD, Kind, resigned
from fedbandit.federation.wire.heads import NO_QUESTION, Greeting
from fedbandit.federation.wire.keys import PartyKeys, PublicKeys, Role
from fedbandit.federation.wire.parcels import Holds, Mixed, Outcome, Parcel, SignedOutcome
from fedbandit.plan import Plan
from fedbandit.schedule import Clock
from tests.torture.simulation.machine import Disk, Process, SimulatedEngine, Statement, Written
from tests.torture.simulation.settings import DEADLINE, PERIOD

__all__ = ["ObservedParty", "Oracle", "Said"]

_REWARD = struct.Struct("<d")
_SYNCS = struct.Struct("<I")
UNSIGNED = OVERHEAD - 1136  # where in an envelope that begins which no signature changes
NOT_YET = 10**9  # a place in the log of a disk that nothing has


class Said(NamedTuple):
    sender: str
    kind: Kind
    receiver: str
    sync: int
    plain: bytes


class ObservedParty(Party):
    """A party whose words are overheard before they are sealed."""

    def __init__(self, party: Party, spare: Sequence[PartyKeys], editions: Sequence[Edition], oracle: Oracle) -> None:
        charter = party.roll.charter
        super().__init__(charter, party.keys, party.public, spare, Roll(charter, editions))
        self.oracle = oracle

    def seal(self, kind: Kind, receiver: PublicKeys, sync: int, plain: bytes) -> bytes:
        envelope = super().seal(kind, receiver, sync, plain)
        self.oracle.said(envelope, Said(self.name, kind, receiver.name, sync, plain))
        return envelope

    def resigned(self, sync: int, envelope: bytes) -> bytes:
        signed = super().resigned(sync, envelope)
        if signed != envelope and (said := self.oracle.overheard(envelope)) is not None:
            self.oracle.said(signed, said)
        return signed


class _Row(NamedTuple):
    """A reward in a batch, and the place of its transaction."""

    sync: int
    features: bytes
    at: int
    given_up: bool = False  # whether it is never released


@dataclass
class _Memory:
    """What a party has on disk, as far as rules are about it; everything with the place of its transaction."""

    rows: dict[float, _Row] = field(default_factory=dict)
    rewarded: dict[bytes, tuple[str, int, int]] = field(default_factory=dict)  # state, sync, place
    times: dict[int, int] = field(default_factory=dict)
    closed: dict[int, int] = field(default_factory=dict)
    drawn: dict[int, tuple[bytes, int]] = field(default_factory=dict)
    sealed: dict[int, tuple[bytes, int]] = field(default_factory=dict)
    results: dict[int, tuple[bytes, int]] = field(default_factory=dict)  # of a mixer or an analyzer
    models: dict[int, tuple[bytes, int]] = field(default_factory=dict)
    acknowledged: dict[bytes, tuple[bool, int]] = field(default_factory=dict)
    opted_out: dict[bytes, int] = field(default_factory=dict)
    results_of: dict[tuple[str, int], int] = field(default_factory=dict)  # of another party, releases too: seen here
    came: dict[int, dict[str, float]] = field(default_factory=dict)  # by sync: when each sender's message was taken in

    def forget(self, kept: int) -> None:
        """Only so many transactions are left."""
        self.rows = {reward: row for reward, row in self.rows.items() if row.at < kept}
        self.rewarded = {nonce: known for nonce, known in self.rewarded.items() if known[-1] < kept}
        for name in ("closed", "opted_out", "results_of"):
            setattr(self, name, {key: at for key, at in getattr(self, name).items() if at < kept})
        for name in ("drawn", "sealed", "results", "models"):
            setattr(self, name, {sync: one for sync, one in getattr(self, name).items() if one[1] < kept})


class Oracle:
    """Raises nothing: what it finds is in `violations`, and the history ends."""

    def __init__(
        self,
        plan: Plan,
        silos: tuple[str, ...],
        disk_of: Callable[[str], Disk],
        cap: int,
        say: Callable[[str], None],
        now: Callable[[], float],
    ) -> None:
        self.plan, self.silos, self.cap = plan, silos, cap
        self.violations: list[str] = []
        self.members: Callable[[str, int], Sequence[str]] = lambda name, sync: silos  # of a sync, as a party knows them
        self.since: dict[str, int] = {}  # by silo that joins: its first sync
        self.earlier: dict[str, int] = {}  # by silo: entries of its ledger from a term before
        self.lying: set[str] = set()  # parties whose words are no longer held to the rules
        self.put_back: set[str] = set()  # whose store was replaced by an old copy
        self.forwarded: set[str] = set()  # who is brought forward, so that decisions of before may count for nothing
        self.told_twice: set[tuple[str, int]] = set()  # by whom: two results of one sync, as nobody could know better
        self.forged: set[tuple[str, int, bytes]] = set()  # what nobody may ever take in
        self.cohorts: dict[int, int] = {}
        self.clocks_right = True  # whether all clocks have been right so far
        self._disk_of, self._say, self._now = disk_of, say, now
        self._receivers = [role for role in ("analyzer", "mixer") if any(p.reader == role for p in plan.protocol.parts)]
        self._memories: dict[str, _Memory] = {}
        self._said: dict[bytes, Said] = {}
        self._crossed: dict[tuple[str, str, int, str], bytes] = {}
        self._held: dict[int, set[str]] = {}  # by sync: the silos that the analyzer has said to hold
        self._questions: dict[str, bytes] = {}  # the last of each party
        self._answers: dict[bytes, tuple[bytes, int]] = {}  # by envelope: the question, how many results were seen
        self._heard: dict[str, int] = {}  # how many of its results those had seen who have answered a party put back
        self._told: dict[str, dict[str, int]] = {}  # the same, by who has answered
        self._released: dict[tuple[str, float], int] = {}  # by silo and reward: the release that somebody got
        self._unshared: set[float] = set()
        self._people: dict[float, bytes | None] = {}  # by reward

    def memory(self, name: str) -> _Memory:
        if name not in self._memories:
            self._memories[name] = _Memory()
        return self._memories[name]

    def fail(self, text: str) -> None:
        self.violations.append(text)

    # -- disks ------------------------------------------------------------------------------------------------------

    def wrote(self, name: str, disk: Disk, statements: Written) -> None:
        """A transaction was committed."""
        memory, at = self.memory(name), len(disk.written) - 1
        for statement in statements:
            look = _LOOKS.get(statement.query[:24])
            if look is not None:
                look(self, name, memory, statement, at)

    def lost(self, name: str, kept: int, on_purpose: bool) -> None:
        """The disk was set back to its first transactions: by a power cut, or by somebody who restores a copy."""
        memory = self.memory(name)
        memory.forget(kept)
        if on_purpose:
            memory.acknowledged.clear()
            self.put_back.add(name)
            self._heard[name], self._told[name] = self._certain_to_answer(name), {}
        self._still_there(name, memory)

    def _certain_to_answer(self, name: str) -> int:
        """How many results of a party are with those who must all have answered before it goes on: every silo, if it is
        an analyzer that draws the noise."""
        if name != "analyzer" or self.plan.protocol.has_mixer or not self.plan.protocol.mixer_draws:
            return 0
        return max((sync + 1 for silo in self.silos for _, sync in self.memory(silo).results_of), default=0)

    def found(self, name: str, disk: Disk) -> None:
        """A transaction that had failed is there after a power cut."""
        self.wrote(name, disk, disk.written[-1])

    def _still_there(self, name: str, memory: _Memory) -> None:
        for nonce in memory.acknowledged:
            if nonce not in memory.rewarded:
                self.fail(f"{name} has lost a reward that it acknowledged")

    def _reward(self, name: str, memory: _Memory, statement: Statement, at: int) -> None:
        _, sync, users, features, rewards = statement.values
        size = len(features) // users
        for place, (reward,) in enumerate(_REWARD.iter_unpack(rewards)):
            if reward in memory.rows:
                self.fail(f"{name} counts the reward {reward} twice: in batches {memory.rows[reward].sync} and {sync}")
            memory.rows[reward] = _Row(sync, features[size * place : size * (place + 1)], at)
            if reward in self._unshared or self._people.get(reward) in memory.opted_out:
                self.fail(f"{name} counts the reward {reward} of a person who has opted out")
        if sync in memory.closed:
            self.fail(f"{name} counts a reward in batch {sync}, which is closed")

    def _given_up(self, name: str, memory: _Memory, statement: Statement, at: int) -> None:
        """What waits in later batches than those given up is not released either."""
        if "sync > ?" in statement.query:
            for reward, row in memory.rows.items():
                memory.rows[reward] = row._replace(given_up=row.given_up or row.sync > statement.values[1])

    def _rewarded(self, name: str, memory: _Memory, statement: Statement, at: int) -> None:
        """Decisions that were issued one after the other are one row, with the first nonce and all digests."""
        if "VALUES" in statement.query:
            first, _, sync, state, digests = statement.values
            numbers = range(int.from_bytes(first), int.from_bytes(first) + len(digests) // DIGEST_BYTES)
            nonces = [number.to_bytes(len(first)) for number in numbers]
        else:
            _, joined, size, _, _, sync, state, *_ = statement.values
            nonces = [joined[start : start + size] for start in range(0, len(joined), size)]
        memory.rewarded.update(dict.fromkeys(nonces, (state, sync, at)))

    def _participants(self, name: str, memory: _Memory, statement: Statement, at: int) -> None:
        for _, _, times in statement.values:
            if times > self.cap:
                self.fail(f"{name} counts a person {times} times, more than {self.cap}")

    def _opted_out(self, name: str, memory: _Memory, statement: Statement, at: int) -> None:
        memory.opted_out.setdefault(statement.values[1], at)

    def _close(self, name: str, memory: _Memory, statement: Statement, at: int) -> None:
        _, sync, _, users, _ = statement.values
        there = sum(row.sync == sync and not row.given_up for row in memory.rows.values())
        if users != there:
            self.fail(f"{name} closes batch {sync} with {users} users, {there} were counted")
        if sync in memory.closed:
            self.fail(f"{name} closes batch {sync} twice")
        memory.closed[sync] = at
        self._say(f"{name} closes batch {sync} with {users} users")

    def _draw(self, name: str, memory: _Memory, statement: Statement, at: int) -> None:
        _, sync, drawn = statement.values
        if sync in memory.drawn:
            self.fail(f"{name} draws release {sync} twice")
        memory.drawn[sync] = (drawn, at)
        if sync < self.since.get(name, 0):
            return  # it gives it up, which costs nothing
        connection = self._disk_of(name).connection
        undone = "SELECT max(sync) FROM releases WHERE term = ? AND state = ?"
        ((given_up,),) = connection.execute(undone, (statement.values[0], ReleaseState.GIVEN_UP)).fetchall()
        gives_up = given_up is not None and sync <= given_up
        if gives_up and sync < given_up:
            return  # what it has given up together is looked at together
        self._say(f"{name} {'gives up' if gives_up else 'draws'} release {sync}")
        ((left,),) = connection.execute("SELECT count(*) FROM raw_rows WHERE sync = ?", (sync,)).fetchall()
        if left:
            self.fail(f"{name} keeps raw rows of batch {sync} after its release")
        ((entries,),) = connection.execute("SELECT count(*) FROM ledger").fetchall()
        drawn_here = len(memory.drawn) - self.since.get(name, 0) + self.earlier.get(name, 0)
        if self.plan.privacy is not None and entries != drawn_here:
            self.fail(f"{name} has {entries} entries in its ledger for {drawn_here} releases")

    def _seal(self, name: str, memory: _Memory, statement: Statement, at: int) -> None:
        sealed, sync = statement.values[1], statement.values[3]
        if sync in memory.sealed and memory.sealed[sync][0] != sealed:
            self.fail(f"{name} seals release {sync} twice")
        memory.sealed[sync] = (sealed, at)

    def _model(self, name: str, memory: _Memory, statement: Statement, at: int) -> None:
        _, sync, value = statement.values
        for other in self.silos:
            known = self.memory(other).models.get(sync)
            if known is not None and known[0] != value and not self._may_differ(sync):
                self.fail(f"{name} and {other} have different models {sync}")
        memory.models[sync] = (value, at)
        memory.results_of["analyzer", sync] = at
        self._say(f"{name} has model {sync}")

    def _may_differ(self, sync: int) -> bool:
        return "analyzer" in self.lying or ("analyzer", sync) in self.told_twice

    def one_story(self, silos: Sequence[str]) -> None:
        """These silos have gone on to the end, so that they have the same models, whatever the analyzer has said."""
        for sync in range(len(self.plan.times)):
            if len({self.memory(name).models[sync][0] for name in silos if sync in self.memory(name).models}) > 1:
                self.fail(f"silos have different models {sync}, and nobody has noticed")

    def _inbox(self, name: str, memory: _Memory, statement: Statement, at: int) -> None:
        sync, sender, value = statement.values
        if (sender, sync, value) in self.forged:
            self.fail(f"{name} takes in a message that {sender} has not signed")
        early = PERIOD * (sync + 1) - self._now()
        if isinstance(self.plan.schedule, Clock) and self.clocks_right and early > JUMP:
            self.fail(f"{name} takes in a message for sync {sync} that is {early:.0f} s early")
        memory.came.setdefault(sync, {}).setdefault(sender, self._now())
        if sender == "mixer":
            memory.results_of["mixer", sync] = at
        elif name == "mixer" and sender in self.silos:
            models = Parcel.decode(value, self.plan.protocol, "mixer").models.length
            memory.results_of.setdefault(("analyzer", models - 1), at)

    def _seen(self, name: str, memory: _Memory, statement: Statement, at: int) -> None:
        """How far a mixer or an analyzer has seen a silo come, which it says when it is asked."""
        what, value = statement.values[-2:]
        kind, _, silo = what.rpartition(" ")
        if kind.startswith("seen") and silo in self.silos:
            (syncs,) = _SYNCS.unpack(value[: _SYNCS.size])
            memory.results_of.setdefault((silo, syncs - 1), at)

    def _waited(self, name: str, sync: int) -> bool:
        """Whether a sync may be closed without some silo: its deadline runs from the first message for it, or from when
        a cohort of silos is further."""
        came, members = self.memory(name).came, self.members(name, sync)
        if set(members) <= set(came.get(sync, ())):
            return True
        further: dict[str, float] = {}
        for later in sorted(key for key in came if key > sync):
            for sender, when in came[later].items():
                further[sender] = min(when, further.get(sender, when))
        silos = sorted(when for sender, when in further.items() if sender in self.silos)
        begun = [*came.get(sync, {}).values(), *silos[self.plan.smallest_cohort - 1 :]]
        begun += [when for sender, when in further.items() if sender not in self.silos]
        return bool(begun) and self._now() - min(begun) >= DEADLINE

    def _state(self, name: str, memory: _Memory, statement: Statement, at: int) -> None:
        state, _, sync = statement.values
        everywhere = len(self._reached(name, sync)) == len(self._receivers)
        if state == ReleaseState.SENT and name not in self.lying and not everywhere:
            self.fail(f"{name} notes that release {sync} was sent before it was")

    def _result(self, name: str, memory: _Memory, statement: Statement, at: int) -> None:
        if len(statement.values) < 4:
            kind = "mixed" if name == "mixer" else "model"
            told = any(key[:3] == (name, kind, statement.values[0]) for key in self._crossed)
            if statement.values[1] == SyncState.PUBLISHED and not told and name not in self.lying:
                self.fail(f"{name} notes that the result of sync {statement.values[0]} was sent before it was")
            return
        sync, state, cohort, value = statement.values
        self._say(f"{name}: sync {sync} is {state}, {cohort}")
        strangers = set(json.loads(cohort)) - set(self.members(name, sync))
        if strangers:
            self.fail(f"{name} counts {sorted(strangers)} in sync {sync}, who are no members of it")
        if sync in memory.results:
            self.fail(f"{name} closes sync {sync} twice")
        memory.results[sync] = (value, at)
        if name == "analyzer" and not self.plan.protocol.has_mixer and not self._waited(name, sync):
            self.fail(f"{name} closes sync {sync} without some silo, before its deadline")

    def ledgers(self) -> None:
        """Every chain holds."""
        for name in self.silos:
            rows = SiloStore(SimulatedEngine(self._disk_of(name), Process())).ledger()
            try:
                book.entries(rows)
            except ValueError as error:
                self.fail(f"{name}: the ledger does not hold: {error}")

    # -- messages ---------------------------------------------------------------------------------------------------

    def overheard(self, envelope: bytes) -> Said | None:
        """What is in an envelope, if a party of this history has sealed it."""
        return self._said.get(envelope)

    def said(self, envelope: bytes, said: Said) -> None:
        self._said[envelope] = said
        if said.kind == "greeting":
            greeting = Greeting.decode(said.plain)
            if greeting.question != NO_QUESTION:
                self._questions[said.sender] = greeting.question
            seen = [sync for name, sync in self.memory(said.sender).results_of if name == said.receiver]
            self._answers[envelope] = (greeting.answer, max(seen, default=-1) + 1)

    def done_with(self, name: str, envelope: bytes) -> None:
        """A party has handled a message. If it was put back and this answers its question, it knows better now."""
        answer, seen = self._answers.get(envelope, (NO_QUESTION, 0))
        if name in self._heard and answer != NO_QUESTION and answer == self._questions.get(name):
            self._heard[name] = max(seen, self._heard[name])
            self._told[name][self._said[envelope].sender] = seen

    def leaves(self, party: Party, envelope: bytes) -> None:
        """A party begins to send a message: it must be signed with the keys that count for its sync, as far as this
        party knows. Signatures of one message under one key are alike."""
        said = self._said.get(envelope)
        if said is None or said.kind in ("greeting", "members") or len(party.roll.keys_of(party.name)) == 1:
            return
        if resigned(envelope, party.keys_at(said.sync).signer) != envelope:
            self.fail(f"{party.name} sends {said.kind!r} of sync {said.sync} under keys that were replaced")

    def crossed(self, envelope: bytes) -> None:
        """The broker has a message; those that no honest party has sealed are not looked at."""
        said = self._said.get(envelope)
        if said is None or said.sender in self.lying or said.kind in ("greeting", "members"):
            return
        sender, kind, receiver, sync, plain = said
        self._say(f"{sender} sends {receiver} {kind!r} of sync {sync}")
        told = (sender, kind, sync, "everybody" if kind == "model" else receiver)
        known = self._crossed.setdefault(told, plain)
        if known != plain and not (kind == "release" and self._sealed_anew(sender, receiver, known, plain)):
            self._differs(sender, kind, sync)
            self._crossed[told] = plain if kind == "release" else known  # a third release is one too many
        disk, memory = self._disk_of(sender), self.memory(sender)
        if kind == "holds" and not self._waited(sender, sync):
            self.fail(f"{sender} says what it holds of sync {sync} without some silo, before its deadline")
        if kind == "release":
            sealed, at = memory.sealed.get(sync, (b"", NOT_YET))
            if at >= disk.durable or envelope[UNSIGNED:] not in sealed:
                self.fail(f"{sender} sends release {sync}, which is not on its disk")
            self._leave(sender, sync)
        elif kind in ("mixed", "model"):
            if memory.results.get(sync, (b"", NOT_YET))[1] >= disk.durable:
                self.fail(f"{sender} sends the result of sync {sync}, which is not on its disk")
            self._check_cohort(kind, sender, sync, plain)
        elif kind == "holds":
            self._held.setdefault(sync, set()).update(self._names(Holds.decode(plain, self.plan).cohort))

    def _leave(self, silo: str, sync: int) -> None:
        """A reward leaves with one release, also if the store was put back, and did not know any more that it had. Of
        a release that nobody could tell it of, it cannot know."""
        for reward, row in self.memory(silo).rows.items():
            if row.sync != sync or row.given_up:
                continue
            before = self._released.setdefault((silo, reward), sync)
            if before != sync and not self._nobody_knows(silo, before):
                self.fail(f"{silo} releases the reward {reward} twice: with syncs {before} and {sync}")

    def _sealed_anew(self, silo: str, receiver: str, known: bytes, plain: bytes) -> bool:
        """Whether a silo that was put back to between draw and seal sends what it sent: the very numbers that it had
        drawn, with the heads that it has now. Two draws differ in their numbers, so that this excuses none."""
        if silo not in self.put_back or not self.plan.protocol.waits:
            return False
        role: Role = "mixer" if receiver == "mixer" else "analyzer"
        first, again = (Parcel.decode(one, self.plan.protocol, role) for one in (known, plain))
        return again._replace(ledger=first.ledger, models=first.models).encode() == known

    def _reached(self, silo: str, sync: int) -> set[str]:
        """Whom a release was sent to."""
        return {to for sender, kind, of, to in self._crossed if (sender, kind, of) == (silo, "release", sync)}

    def _nobody_knows(self, silo: str, sync: int) -> bool:
        """Whether no one could tell a silo that was put back that it had sent this release. All that it sends to are
        asked: each had not seen it when it answered (the broker was late), or was put back too, to before it had."""
        reached = self._reached(silo, sync)
        return silo in self.put_back and all(self._does_not_know(name, silo, sync) for name in reached)

    def _does_not_know(self, name: str, silo: str, sync: int) -> bool:
        answered = self._told.get(silo, {})
        if name in answered:
            return answered[name] <= sync
        seen = [of for who, of in self.memory(name).results_of if who == silo]
        return name in self.put_back and max(seen, default=-1) < sync

    def _differs(self, sender: str, kind: Kind, sync: int) -> None:
        """Another message than before. A party that was put back cannot know what it has said unless somebody has it
        on disk and answers; what it holds of a sync it can say anew, since the mixer makes one total all the same."""
        excused = sender in self.put_back and sync >= self._heard[sender]
        if excused and kind in ("mixed", "model"):
            self._say(f"{sender}, put back, tells another result of sync {sync}")
            self.told_twice.add((sender, sync))
        elif kind == "release" and self._nobody_knows(sender, sync):
            self._say(f"{sender}, put back, sends another release {sync}: nobody could tell it that there was one")
        elif not (kind == "holds" and sender in self.put_back):
            self.fail(f"{sender} has sent two different messages {kind!r} of sync {sync}")

    def _names(self, cohort: Integers) -> list[str]:
        seats = (*self.silos, *["nobody"] * (len(cohort) - len(self.silos)))
        return [name for name, there in zip(seats, cohort, strict=True) if there]

    def _check_cohort(self, kind: str, sender: str, sync: int, plain: bytes) -> None:
        if kind == "mixed":
            cohort = Mixed.decode(plain, self.plan).cohort
            if "analyzer" in self._receivers and "analyzer" not in self.lying:
                strangers = set(self._names(cohort)) - self._held.get(sync, set())
                if strangers:
                    self.fail(f"{sender} counts {sorted(strangers)} in sync {sync}, which the analyzer does not hold")
        else:
            outcome = SignedOutcome.decode(plain, self.plan).outcome
            cohort = outcome.cohort
            self._check_sum(sync, outcome)
        size = int(cohort.sum())
        if 0 < size < self.plan.smallest_cohort:
            self.fail(f"{sender} closes sync {sync} with {size} silos")

    def _check_sum(self, sync: int, outcome: Outcome) -> None:
        """In the clear, model k holds each counted reward once, if no silo missed a sync."""
        self.cohorts[sync] = int(outcome.cohort.sum())
        full = all(self.cohorts.get(earlier) == len(self.silos) for earlier in range(sync + 1))
        if self.plan.privacy is not None or not full or self.lying or self.put_back:
            return
        rows = [
            (row.features, reward)
            for name in self.silos
            for reward, row in self.memory(name).rows.items()
            if row.sync <= sync
        ]
        x = np.frombuffer(b"".join(features for features, _ in rows)).reshape(len(rows), self.plan.dim)
        y = np.array([reward for _, reward in rows])
        total = contributions(x, y, self.plan.bits, self.plan.centre).sum(axis=0)
        if not np.array_equal(outcome.prefix * 2.0**self.plan.bits, total):
            self.fail(f"model {sync} is not the sum of the {len(rows)} rewards that were counted")

    def knows(self, name: str, nonce: bytes) -> bool:
        """Whether a reward of this decision was acknowledged, and not lost with a store that was put back."""
        return nonce in self.memory(name).acknowledged

    # -- answers ----------------------------------------------------------------------------------------------------

    def decided(self, name: str, version: int) -> None:
        """An application was told which model chose."""
        newest = max(self.memory(name).models, default=-1) + 1
        if version != newest:
            self.fail(f"{name} decides by model {version}, its disk has {newest}")

    def issued(self, name: str, reward: float, person: bytes | None, shared: bool) -> None:
        """An application has a decision, and will send this reward."""
        self._people[reward] = person
        if not shared:
            self._unshared.add(reward)

    def answered(self, name: str, nonce: bytes, reward: float, answer: Acknowledgement, once: bool) -> None:
        """An application was told that its reward is on disk; `once` if it is that of somebody who comes once, and does
        not opt out."""
        memory, disk = self.memory(name), self._disk_of(name)
        state, sync, at = memory.rewarded.get(nonce, ("nowhere", -1, NOT_YET))
        if at >= disk.durable:
            self.fail(f"{name} acknowledges a reward that is {state} and not on its disk")
            return
        told = (answer.counted, answer.batch)
        if memory.acknowledged.setdefault(nonce, told) != told:
            self.fail(f"{name} acknowledges a reward as {told}, and did as {memory.acknowledged[nonce]}")
        if answer.counted != (state == DecisionState.COUNTED) or answer.batch != sync:
            self.fail(f"{name} acknowledges a reward as {told}, on disk it is {state} in batch {sync}")
        if answer.counted and (reward not in memory.rows or memory.rows[reward].sync != sync):
            self.fail(f"{name} acknowledges the reward {reward}, which is in no batch")
        placed = isinstance(self.plan.schedule, Clock) or not disk.refused  # without a store a decision has no place
        placed &= name not in self.forwarded
        if not answer.counted and once and placed and not self.plan.protocol.needs_points:
            self.fail(f"{name} leaves out a person who came once")


_LOOKS = {
    "INSERT INTO raw_rows (te": Oracle._reward,
    "DELETE FROM raw_rows WHE": Oracle._given_up,
    "INSERT INTO rewarded (no": Oracle._rewarded,
    "INSERT INTO participants": Oracle._participants,
    "INSERT INTO opted_out (t": Oracle._opted_out,
    "INSERT INTO releases (te": Oracle._close,
    "INSERT INTO contents (te": Oracle._draw,
    "UPDATE contents SET sent": Oracle._seal,
    "INSERT INTO models (term": Oracle._model,
    "INSERT INTO syncs (sync,": Oracle._result,
    "INSERT INTO inbox (sync,": Oracle._inbox,
    "UPDATE releases SET stat": Oracle._state,
    "INSERT INTO states (term": Oracle._seen,
}
