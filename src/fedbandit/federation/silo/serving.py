"""A silo: decides for its users, keeps their rewards, releases noisy sums at the ticks, learns from the federation.

Rules that hold at every instant, whatever is killed:
- a reward that was acknowledged is in exactly one batch, once;
- release k is drawn once and is on disk, with the budget it spends, before anybody sees it;
- nothing about a user's data changes when a release happens or how long it is;
- whoever may be released is decided for by the public model alone, and whoever was not is never released.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from fedbandit import _validate
from fedbandit._arrays import Floats
from fedbandit._validate import ArgumentError
from fedbandit.bandit import linucb
from fedbandit.federation.own_knowledge import LocalModel, OwnKnowledge, summed
from fedbandit.federation.setup.agreement import check_live
from fedbandit.federation.silo import actions as choosing
from fedbandit.federation.silo import book
from fedbandit.federation.silo.actions import ActionSet
from fedbandit.federation.silo.counter import DecisionCounter
from fedbandit.federation.silo.outgoing import Sealer
from fedbandit.federation.silo.seats import Seats
from fedbandit.federation.silo.silo_status import silo_status
from fedbandit.federation.silo.terms import check_secret, open_term, own_secret
from fedbandit.federation.silo.ticker import CLOCK, Ticker
from fedbandit.federation.silo.tickets import DecisionExpired, DecisionIds, UnknownDecision
from fedbandit.federation.states import DecisionState
from fedbandit.federation.store import Reward, SiloStore, Verdict, open_engine
from fedbandit.federation.store.rewards import NOWHERE, UNLIMITED, UNSHARED
from fedbandit.federation.timing import DAY, Clocks, MachineClocks, Reading, SteadyClock, TicksHeld, Timing
from fedbandit.federation.wire import messages
from fedbandit.federation.wire.keys import party_name
from fedbandit.federation.wire.parcels import Outcome
from fedbandit.knowledge import PublicModel, nothing_public, public_model
from fedbandit.plan import Plan
from fedbandit.privacy.ledger import LedgerError

__all__ = [
    "Acknowledgement",
    "Decision",
    "DecisionExpired",
    "OutcomeConflict",
    "RewardConflict",
    "Silo",
    "TermEnded",
    "UnknownActionSet",
    "UnknownDecision",
    "acknowledged",
]


log = logging.getLogger(__name__)


class Decision(NamedTuple):
    """An answer: `id` to reward it with, the `action` chosen (its index), the version of the model that chose it."""

    id: str
    action: int
    model: int


class Acknowledgement(NamedTuple):
    """A reward that is on disk. `counted` is False for a user who has opted out or reached the participation cap."""

    counted: bool
    batch: int
    repeated: bool


class RewardConflict(ValueError):
    """The decision has another reward already."""


class UnknownActionSet(LookupError):
    """No action set was registered under this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"actions must be a registered set, got {name!r}")
        self.name = name


class TermEnded(ValueError):
    """The last batch was released; rewards count no more."""


class OutcomeConflict(ValueError):
    """There is one model k; somebody sent a second one."""


class _Way(NamedTuple):
    """How somebody is served: a place outside all batches (None: whoever counts takes one), and what decides unless it
    is the public model."""

    place: int | None
    local: LocalModel | None


class Silo:
    """One silo, in this process. Safe to use from several threads."""

    def __init__(
        self,
        store: SiloStore,
        plan: Plan,
        *,
        name: str,
        secret: bytes,
        timing: Timing,
        clock: Clocks,
        sealer: Sealer | None,
        new_term: bool,
        keep_raw: bool,
        catch_up: bool,
        counts: Path | None,
    ) -> None:
        self.store, self.plan, self.name = store, plan, party_name(name)
        check_live(plan)
        check_secret(store, secret)
        _check_ledger(store)
        began = clock.read().wall if timing.start is None else timing.start
        self.term = open_term(store, plan, began, new_term)
        self.ids = DecisionIds(secret, f"{plan.hash}/{self.term.number}", plan.dim)
        self.syncs = len(plan.times)
        self._cap = plan.privacy.participations if plan.privacy else UNLIMITED
        self._window = timing.reward_window
        self._counter = DecisionCounter(counts, self.term.number, self.term.decisions, self.term.unkeyed)
        self._seats = Seats(store, plan, self.term, self._cap)
        self._clock = _steady(store, self.term.number, clock, catch_up)
        self.ticker = Ticker(
            store,
            plan,
            self.term,
            self._counter,
            self._seats,
            silo=name,
            timing=timing,
            clock=self._clock,
            keep_raw=keep_raw,
            sealer=sealer,
            catch_up=catch_up,
            signer=book.own_signer(secret) if sealer is None else sealer.signer,
        )
        self._sets = _action_sets(store)
        self._current = (0, nothing_public(plan))  # version and model, swapped together
        self._own = OwnKnowledge(store, plan, self.term.number, self._current[1])
        self._apart = store.apart(self.term.number, self._cap)
        self._setting_apart = threading.Lock()
        self._soon_apart: list[bytes] = []  # they have counted for the last time, and it may not be on disk yet
        if plan.serves_uncounted == "local":
            self._own.refresh(self._current[1])
        self.refresh()

    @classmethod
    def open(
        cls,
        store: str | Path,
        plan: Plan,
        *,
        name: str = "silo",
        secret: bytes | None = None,
        timing: Timing | None = None,
        clock: Clocks | None = None,
        sealer: Sealer | None = None,
        new_term: bool = False,
        keep_raw: bool = False,
        catch_up: bool = False,
    ) -> Self:
        """Open a silo's store (a path, or a postgresql:// URL) under a plan, or begin one.

        A store that began under another plan is refused; with `new_term`, and once the old term's ticks are over, the
        new plan begins a new term on the same ledger. `secret` seals decision ids and salts user keys; by default it
        is kept in a file beside the store. `timing` is what the federation agreed on, `sealer` what turns releases
        into sealed messages; a silo on its own needs neither. `clock` tells the time, by default the machine's. Raw
        rows are deleted when their batch is released unless `keep_raw`. With `catch_up` somebody vouches for the
        clock: all ticks that are overdue are done, however many there are.
        """
        engine = open_engine(store)
        try:
            return cls(
                SiloStore(engine),
                plan,
                name=name,
                secret=own_secret(store) if secret is None else secret,
                timing=timing or Timing(),
                clock=clock or MachineClocks(),
                sealer=sealer,
                new_term=new_term,
                keep_raw=keep_raw,
                catch_up=catch_up,
                counts=None if "://" in str(store) else Path(f"{store}.count"),
            )
        except BaseException:
            engine.close()
            raise

    # -- decisions --------------------------------------------------------------------------------------------------

    def decide(
        self,
        actions: ArrayLike | str,
        *,
        user: str | None = None,
        allowed: Sequence[int] | None = None,
        shared: bool = True,
    ) -> Decision:
        """Choose among `actions`, (arms, dim) or the name of a registered set, restricted to `allowed` if given.

        `user` is the application's key of the person, kept only as a salted hash, for the participation cap. Without
        it the decision is taken to be for a person who comes once: the guarantee then rests on the application.

        Unless `shared`, the person opts out: what counted before stays counted, and nothing that comes of them from now
        on leaves the silo in this term. They and whoever is over the cap are served by all that the silo knows, unless
        the plan says otherwise.
        """
        version, public = self._current
        person = None if user is None else self.ids.person(user)
        place, local = self._way(person, shared)
        if place is None:
            features, action = self._for_counted(actions, public, allowed)
            (place,) = self._seats.take([person])
        elif local is None:
            features, action = self._for_counted(actions, public, allowed)
        else:
            features, action = self._for_others(actions, local, allowed)
        (decision,) = self.ids.issue(features[action], [person], [place], self._clock.expected)
        self._counter.add(1, keyed=user is not None)
        return Decision(decision, action, version)

    def decide_many(
        self, contexts: ArrayLike, users: Sequence[str] | None = None, *, shared: bool = True
    ) -> list[Decision]:
        """Decisions for many at once: `contexts` is (people, arms, dim), `users` their keys."""
        features = choosing.checked_many(contexts, self.plan.dim)
        if users is not None and len(users) != len(features):
            raise ArgumentError("users", f"must be as many as contexts, {len(features)}, got {len(users)}")
        version, public = self._current
        people = [None] * len(features) if users is None else [self.ids.person(user) for user in users]
        ways = [self._way(person, shared) for person in people]
        bounds = linucb.upper_bounds(features.reshape(-1, self.plan.dim), public.model)  # one large product
        chosen = np.argmax(bounds.reshape(features.shape[:2]), axis=-1)
        for number, (_, local) in enumerate(ways):
            if local is not None:
                chosen[number] = linucb.decide(features[number], local.model)
        seats = iter(self._seats.take([person for person, way in zip(people, ways, strict=True) if way.place is None]))
        places = [next(seats) if way.place is None else way.place for way in ways]
        ids = self.ids.issue(features[np.arange(len(features)), chosen], people, places, self._clock.expected)
        self._counter.add(len(ids), keyed=users is not None)
        return [Decision(made, action, version) for made, action in zip(ids, chosen.tolist(), strict=True)]

    def _way(self, person: bytes | None, shared: bool) -> _Way:
        """How a person is served. Local knowledge only serves people of whom it is on disk that nothing more of them is
        released, or whom nobody will recognise: what they do later may depend on it."""
        if shared and (person is None or person not in self._apart):
            return _Way(None, None)
        place = NOWHERE if shared else UNSHARED
        known = person is None or person in self._apart or self._opt_out(person)
        return _Way(place, self._own.model() if known and self.plan.serves_uncounted == "local" else None)

    def _opt_out(self, person: bytes) -> bool:
        """Whether it is on disk now; without a store decisions go on, by the public model."""
        try:
            self.store.opt_out(self.term.number, person)
        except Exception as error:
            log.error("somebody who opts out is served by the public model: the store does not work: %s", error)
            return False
        self._apart.add(person)
        return True

    def _for_counted(
        self, actions: ArrayLike | str, public: PublicModel, allowed: Sequence[int] | None
    ) -> tuple[Floats, int]:
        """Features, and the action chosen by the public model: the only way to serve those who are released."""
        if isinstance(actions, str):
            known = self._set(actions)
            return known.features, known.choose(public.model, allowed)
        features = choosing.checked(actions, self.plan.dim)
        return features, choosing.choose(features, public.model, allowed)

    def _for_others(
        self, actions: ArrayLike | str, local: LocalModel, allowed: Sequence[int] | None
    ) -> tuple[Floats, int]:
        """The same by all that the silo knows, for those who are not."""
        features = self._set(actions).features if isinstance(actions, str) else choosing.checked(actions, self.plan.dim)
        return features, choosing.choose(features, local.model, allowed)

    @property
    def deciding_writes(self) -> bool:
        """Whether a decision takes a place in the store, and so may wait for it."""
        return self._seats.counted

    def register(self, name: str, actions: ArrayLike) -> None:
        """Keep an action set under a name; a name means one set for good."""
        features = choosing.checked(actions, self.plan.dim)
        self.store.register(party_name(name), messages.encode([features]))
        self._sets.setdefault(name, ActionSet(features))

    def action_sets(self) -> dict[str, int]:
        """Registered sets and how many actions each has."""
        return {name: len(known.features) for name, known in self._sets.items()}

    # -- rewards ----------------------------------------------------------------------------------------------------

    def reward(self, decision: str, reward: float) -> Acknowledgement:
        """Count a reward in the open batch; on disk when this returns. The same again is acknowledged again."""
        return acknowledged(self.reward_many([self.read(decision, reward)])[0])

    def reward_all(self, rewards: Sequence[tuple[str, float]]) -> list[Acknowledgement]:
        """Count many rewards in one transaction. One that is refused is refused before any is counted, except for a
        conflict with an earlier reward, which is raised when all others are on disk."""
        return [acknowledged(v) for v in self.reward_many([self.read(*reward) for reward in rewards])]

    def read(self, decision: str, reward: float) -> Reward:
        """Check a reward and open its decision id, without storing anything."""
        value = _validate.reward("reward", reward)
        ticket = self.ids.read(decision)
        if self._clock.expected - ticket.issued > self._window:
            raise DecisionExpired(f"decision has expired: its reward was waited for {self._window / DAY:g} days")
        digest = self.ids.digest(ticket.nonce, value)
        return Reward(ticket.nonce, ticket.person, ticket.features, value, digest, ticket.place)

    def reward_many(self, rewards: Sequence[Reward], durable: bool = True) -> list[Verdict]:
        """Store rewards that `read` has checked, all in one transaction. Unless `durable`, `store.engine.harden` must
        follow before anybody is told."""
        with self._counter.take() as pending:
            verdicts = self.store.count(
                self.term.number,
                rewards,
                *pending,
                cap=self._cap,
                syncs=self.syncs,
                durable=durable,
                adding=partial(summed, self.plan),
            )
        self._note(list(zip(rewards, verdicts, strict=True)), durable)
        return verdicts

    def _note(self, judged: Sequence[tuple[Reward, Verdict]], durable: bool) -> None:
        """What the silo knows grows. Who has counted for the last time is set apart once that is on disk: with the next
        call at the latest, which comes when the disk has caught up with this one."""
        new = [one for one in judged if one[1].stays or (one[1].state is DecisionState.COUNTED and not one[1].repeated)]
        if self.plan.serves_uncounted == "local" and new:
            self._own.add([(reward.features, reward.reward) for reward, verdict in new if not verdict.conflict])
        with self._setting_apart:
            self._apart.update(self._soon_apart)
            self._soon_apart = [one.person for one, verdict in judged if verdict.last and one.person is not None]
            if durable:
                self._apart.update(self._soon_apart)

    def flush(self) -> None:
        """Write down how many decisions were answered since the last time."""
        if self._counter.waiting.decisions:
            self.reward_many([])

    # -- releases ---------------------------------------------------------------------------------------------------

    def tick(self) -> list[int]:
        """Do all that is due: close batches, draw their releases, make raw rows unreadable. Steps released now."""
        released = self.ticker.release()
        if released:
            self.ticker.tidy()
        return released

    # -- models -----------------------------------------------------------------------------------------------------

    def learn(self, sync: int, outcome: Outcome, included: bool) -> None:
        """Take the outcome of a sync: once it is on disk the model decides. Another outcome of the same sync is
        refused: there is one model k."""
        if not self.store.outcome(self.term.number, sync, included, outcome.encode()):
            raise OutcomeConflict(f"sync {sync} has an outcome already, and this is another one")
        self.refresh()

    def refresh(self) -> None:
        """Read models that have come since, e.g. through another worker of this silo."""
        version, public = self._current
        newest = None
        for sync, value in self.store.models(self.term.number, version - 1):
            outcome = Outcome.decode(value, self.plan)
            version = sync + 1
            newest = newest if outcome.skipped else (sync, outcome.prefix, self.plan.times[sync])
        self._current = (version, public if newest is None else public_model(self.plan, *newest))
        if newest is not None and self.plan.serves_uncounted == "local":
            self._own.refresh(self._current[1])
            if self.store.engine.shared:  # other workers set people apart, too
                self._apart |= self.store.apart(self.term.number, self._cap)

    @property
    def version(self) -> int:
        """Syncs that the deciding model has learnt from."""
        return self._current[0]

    def model(self) -> tuple[int, list[float]]:
        """Version and parameter vector of the model that decides now."""
        version, public = self._current
        return version, [float(value) for value in public.model.theta]

    # -- what it is doing -------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Where the term stands, in public numbers."""
        known = silo_status(self.store, self.plan, self.store.term(self.term.number))
        known["held"] = self._held()
        waiting = self._counter.waiting
        known["decisions"] += waiting.decisions
        known["without_user_key"] += waiting.unkeyed
        return {"silo": self.name, **known}

    def _held(self) -> str | None:
        try:
            self.ticker.check()
        except TicksHeld as error:
            return str(error)
        return None

    @property
    def ended(self) -> bool:
        """Whether the last release of the term was made: serving goes on with the last model."""
        return self.ticker.open_sync >= self.syncs

    def close(self) -> None:
        self.flush()
        self._counter.close()
        self.store.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _set(self, name: str) -> ActionSet:
        if name not in self._sets:  # another worker may have registered it
            self._sets = {**_action_sets(self.store), **self._sets}
        try:
            return self._sets[name]
        except KeyError:
            raise UnknownActionSet(name) from None


def _steady(store: SiloStore, term: int, clocks: Clocks, believe: bool) -> SteadyClock:
    """The clock of a silo, compared with what the silo last knew of it."""
    stored = store.state(term, CLOCK)
    clock = SteadyClock(clocks, None if stored is None else Reading.decode(stored))
    if believe:
        clock.believe()
    with suppress(TicksHeld):  # a clock that has jumped is not written down
        store.set_state(term, CLOCK, clock.reading().encode())
    return clock


def _check_ledger(store: SiloStore) -> None:
    """A ledger that was changed is not added to."""
    try:
        book.entries(store.ledger())
    except LedgerError as error:
        raise ArgumentError(
            "store", f"holds a ledger that cannot be believed ({error}): put the newest whole copy in its place"
        ) from error


def _action_sets(store: SiloStore) -> dict[str, ActionSet]:
    return {name: ActionSet(_stored_set(value)) for name, value in store.action_sets().items()}


def _stored_set(value: bytes) -> Floats:
    features = np.asarray(messages.decode(value)[0], dtype=np.float64)
    return choosing.checked(features, features.shape[-1])


def acknowledged(verdict: Verdict) -> Acknowledgement:
    """The answer to the caller, or the reason why there is none."""
    if verdict.conflict:
        raise RewardConflict("reward differs from the one that was acknowledged for this decision")
    if verdict.state is DecisionState.EXPIRED:
        raise TermEnded("decision has expired: the last batch of the term was released")
    counted = verdict.state not in (DecisionState.LEFT_OUT, DecisionState.KEPT)
    return Acknowledgement(counted, verdict.sync, verdict.repeated)
