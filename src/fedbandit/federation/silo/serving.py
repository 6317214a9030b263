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
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import repeat
from pathlib import Path
from random import SystemRandom
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
from fedbandit.federation.silo.actions import ActionSet, Appraisal, Chooser, QuickAppraisal
from fedbandit.federation.silo.counter import DecisionCounter
from fedbandit.federation.silo.outgoing import Sealer
from fedbandit.federation.silo.seats import Seats
from fedbandit.federation.silo.silo_status import silo_status
from fedbandit.federation.silo.terms import check_secret, open_term, own_secret
from fedbandit.federation.silo.ticker import CLOCK, Ticker
from fedbandit.federation.silo.tickets import DecisionExpired, DecisionIds, UnknownDecision
from fedbandit.federation.states import DecisionState
from fedbandit.federation.store import Reward, SiloStore, Verdict, open_engine
from fedbandit.federation.store.decision_log import DecisionLog
from fedbandit.federation.store.rewards import NOWHERE, UNLIMITED, UNSHARED
from fedbandit.federation.timing import DAY, Clocks, MachineClocks, Reading, SteadyClock, TicksHeld, Timing
from fedbandit.federation.wire import messages
from fedbandit.federation.wire.keys import party_name
from fedbandit.federation.wire.parcels import Outcome
from fedbandit.knowledge import PublicModel, nothing_public, public_model
from fedbandit.plan import Plan
from fedbandit.privacy.ledger import LedgerError
from fedbandit.problem.frames import Columns, columns_of, is_table, length_of
from fedbandit.problem.records import Actions, Records, as_json

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

CHANCE = SystemRandom().random  # what a policy draws by: nobody can foresee a choice, or draw it again


log = logging.getLogger(__name__)


class Decision(NamedTuple):
    """An answer: `id` to reward it with, the `action` chosen (its index), the version of the model that chose it, and
    the probability with which it did; None where the application chose and did not say. `name` is what the action is
    called, where actions have names."""

    id: str
    action: int
    model: int
    propensity: float | None = 1.0
    name: str | None = None


class _Made(NamedTuple):
    """A decision, and what it was made from."""

    decision: Decision
    appraisal: Appraisal | QuickAppraisal
    allowed: Sequence[int] | None


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


@dataclass(frozen=True)
class _Offered:
    """Actions to choose from: their rows as they came, what they are called, and the registered set that they are."""

    rows: Any
    dim: int
    names: tuple[str, ...] = ()
    known: ActionSet | None = None

    @cached_property
    def features(self) -> Floats:
        """The rows, checked."""
        return self.rows if self.known is not None else choosing.checked(self.rows, self.dim)


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
        strict: bool = False,
        chance: Callable[[], float] = CHANCE,
        log: DecisionLog | None = None,
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
        self._chooser = Chooser(plan.dim)
        self._plain = plan.policy.certain and log is None  # the best action, and no questions asked
        self._chance, self._log = chance, log
        self._records = None if plan.schema is None else Records(plan.schema, strict=strict, lock=threading.Lock())
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
        strict: bool = False,
        log: DecisionLog | None = None,
    ) -> Self:
        """Open a silo's store (a path, or a postgresql:// URL) under a plan, or begin one.

        A store that began under another plan is refused; with `new_term`, and once the old term's ticks are over, the
        new plan begins a new term on the same ledger. `secret` seals decision ids and salts user keys; by default it
        is kept in a file beside the store. `timing` is what the federation agreed on, `sealer` what turns releases
        into sealed messages; a silo on its own needs neither. `clock` tells the time, by default the machine's. Raw
        rows are deleted when their batch is released unless `keep_raw`. With `catch_up` somebody vouches for the
        clock: all ticks that are overdue are done, however many there are. With `strict`, a record with a value
        that is missing, out of range or unknown is an error. With a `log` every decision is kept there, for evaluation
        in this silo.
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
                strict=strict,
                log=log,
            )
        except BaseException:
            engine.close()
            raise

    # -- decisions --------------------------------------------------------------------------------------------------

    def decide(
        self,
        actions: Any = None,
        *,
        context: Mapping[str, Any] | None = None,
        user: str | None = None,
        allowed: Sequence[Any] | None = None,
        chosen: int | str | None = None,
        propensity: float | None = None,
        shared: bool = True,
    ) -> Decision:
        """Choose among `actions`, restricted to `allowed` if given.

        Actions are rows, (arms, dim), or the name of a registered set. Under a plan with a schema they can be records:
        then `context` is the person's, `actions` are tables with an `id` and `features`, or left out where the schema
        names them, and `allowed` and `chosen` may speak of ids instead of indices.

        `user` is the application's key of the person, kept only as a salted hash, for the participation cap. Without
        it the decision is taken to be for a person who comes once: the guarantee then rests on the application.

        Under a plan with `apprentice` the application may say what it has `chosen` itself, and with which `propensity`
        if it knows: that is played and learnt from. The guarantee says what such a choice may depend on.

        Unless `shared`, the person opts out: what counted before stays counted, and nothing that comes of them from now
        on leaves the silo in this term. They and whoever is over the cap are served by all that the silo knows, unless
        the plan says otherwise.
        """
        return self._made(actions, context, user, allowed, chosen, propensity, shared=shared).decision

    def rank(
        self,
        actions: Any = None,
        *,
        context: Mapping[str, Any],
        user: str | None = None,
        allowed: Sequence[Any] | None = None,
    ) -> tuple[Decision, list[float]]:
        """A decision for a record, and the probability that each of the actions had."""
        made = self._made(actions, context, user, allowed, ranked=True)
        assert isinstance(made.appraisal, Appraisal)
        return made.decision, made.appraisal.likely(made.allowed).tolist()

    def _made(
        self,
        actions: Any,
        context: Mapping[str, Any] | None,
        user: str | None,
        allowed: Sequence[Any] | None,
        chosen: int | str | None = None,
        propensity: float | None = None,
        *,
        shared: bool = True,
        ranked: bool = False,
    ) -> _Made:
        version, public = self._current
        person = None if user is None else self.ids.person(user)
        place, local = self._way(person, shared)
        offered = self._offered(context, actions)
        quick = self._plain and chosen is None and not ranked
        appraisal = self._for_counted(offered, public, quick) if local is None else self._for_others(offered, local)
        names = offered.names
        if allowed is not None:
            allowed = choosing.numbered("allowed", allowed, names)
        likely = None if propensity is None else _propensity(propensity, chosen)
        if chosen is None:
            action, likely = appraisal.choose(allowed, self._chance)
        else:
            (number,) = choosing.numbered("chosen", [chosen], names)
            action = self._own_choice(number, allowed, len(offered.features))
        if place is None:
            (place,) = self._seats.take([person])
        decision = self.ids.issue_one(appraisal.row(action), person, place, self._clock.expected)
        if self._log is not None and isinstance(appraisal, Appraisal):
            self._log.decided(
                decision,
                self._clock.expected,
                version,
                offered.features,
                action,
                likely,
                appraisal.likely(allowed),
                allowed,
                own=chosen is not None,
                record=None if context is None else as_json(context, names, actions),
            )
        self._counter.add(1, keyed=user is not None)
        made = Decision(decision, action, version, likely, names[action] if names else None)
        return _Made(made, appraisal, allowed)

    @property
    def _recorded(self) -> Records:
        """What turns records into rows, under a plan with a schema."""
        if self._records is None:
            raise ArgumentError("context", "must be left out: the plan has no schema, so actions are rows of numbers")
        return self._records

    @property
    def odd_values(self) -> dict[str, dict[str, int]]:
        """How often a value of a record was missing, clamped or unknown, by field, since this process began. For this
        silo's own eyes: nobody else is told."""
        return {} if self._records is None else self._records.odd

    def _own_choice(self, chosen: int, allowed: Sequence[int] | None, arms: int) -> int:
        """What the application has chosen, if the plan lets it choose."""
        if not self.plan.apprentice:
            raise ArgumentError("chosen", "must be left out: under this plan the model chooses, see `apprentice`")
        (action,) = choosing.subset_of([chosen], arms)
        if allowed is not None and action not in choosing.subset_of(allowed, arms):
            raise ArgumentError("chosen", f"must be one of the actions allowed, got {chosen}")
        return int(action)

    def decide_many(
        self,
        contexts: Any,
        users: Sequence[str] | str | None = None,
        actions: Actions | None = None,
        *,
        shared: bool = True,
    ) -> list[Decision]:
        """Decisions for many at once: `contexts` is (people, arms, dim), `users` their keys.

        Under a plan with a schema `contexts` can be a table of records, one per person: a frame of polars or pandas, an
        Arrow table, a list of records. `actions` are then what all of them are offered, by default the schema's named
        ones, and `users` may be the name of the column that holds the keys. Unless `shared`, all of them opt out.
        """
        if is_table(contexts):
            return self._decide_table(columns_of(contexts), users, actions, shared)
        if actions is not None:
            raise ArgumentError("actions", "must be left out: contexts are rows, of every action")
        return self._decide_rows(np.asarray(contexts, dtype=np.float64), users, shared)

    def _decide_table(
        self, columns: Columns, users: Sequence[str] | str | None, actions: Actions | None, shared: bool
    ) -> list[Decision]:
        total, made = length_of(columns), list[Decision]()
        if isinstance(users, str):
            if users not in columns:
                raise ArgumentError("users", f"must be keys, or the name of a column, got {users!r}")
            users = columns.pop(users)
        if users is not None and len(users) != total:
            raise ArgumentError("users", f"must be as many as contexts, {total}, got {len(users)}")
        for rows, names in self._recorded.many(columns, actions):
            keys = None if users is None else users[len(made) : len(made) + len(rows)]
            people = range(len(made), len(made) + len(rows))
            records = (
                as_json({name: column[one] for name, column in columns.items()}, names, actions) for one in people
            )
            decided = self._decide_rows(rows, keys, shared, records if self._log is not None else None)
            made += [one._replace(name=names[one.action]) for one in decided]
        return made

    def _decide_rows(
        self,
        contexts: Floats,
        users: Sequence[str] | str | None,
        shared: bool,
        records: Iterable[str] | None = None,
    ) -> list[Decision]:
        if users is not None and len(users) != len(contexts):
            raise ArgumentError("users", f"must be as many as contexts, {len(contexts)}, got {len(users)}")
        people = [None] * len(contexts) if users is None else [self.ids.person(user) for user in users]
        if self._plain and shared and not self._apart.intersection(people):
            made = self._decide_plainly(contexts, people)
        else:
            ways = [self._way(person, shared) for person in people]
            made = self._decide_one_by_one(contexts, people, ways, records)
        self._counter.add(len(made), keyed=users is not None)
        return made

    def _decide_plainly(self, contexts: Floats, people: Sequence[bytes | None]) -> list[Decision]:
        """The best action for each, by the public model: all of them count."""
        version, public = self._current
        chosen, rows = self._chooser.many(contexts, public.model)
        ids = self.ids.issue(rows, people, self._seats.take(people), self._clock.expected)
        return list(map(Decision, ids, chosen.tolist(), repeat(version)))

    def _decide_one_by_one(
        self,
        contexts: Floats,
        people: Sequence[bytes | None],
        ways: Sequence[_Way],
        records: Iterable[str] | None,
    ) -> list[Decision]:
        version, public = self._current
        features = choosing.checked_many(contexts, self.plan.dim)
        flat = linucb.scores(features.reshape(-1, self.plan.dim), public.model)  # one large product
        means, spreads = (part.reshape(features.shape[:2]) for part in flat)
        for number, (_, local) in enumerate(ways):
            if local is not None:
                means[number], spreads[number] = linucb.scores(features[number], local.model)
        chosen, propensities = choosing.choose_many(means, spreads, self.plan.policy, self._chance)
        seats = iter(self._seats.take([person for person, way in zip(people, ways, strict=True) if way.place is None]))
        places = [next(seats) if way.place is None else way.place for way in ways]
        rows = choosing.inside(features[np.arange(len(features)), chosen])
        ids = self.ids.issue(rows, people, places, self._clock.expected)
        made = [
            Decision(one, action, version, propensity)
            for one, action, propensity in zip(ids, chosen.tolist(), propensities.tolist(), strict=True)
        ]
        if self._log is not None:
            likely = self.plan.policy.probabilities(means, spreads)
            known = [None] * len(made) if records is None else records
            for decision, offered, probabilities, record in zip(made, features, likely, known, strict=True):
                self._log.decided(
                    decision.id,
                    self._clock.expected,
                    version,
                    offered,
                    decision.action,
                    decision.propensity,
                    probabilities,
                    record=record,
                )
        return made

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

    def _offered(self, context: Mapping[str, Any] | None, actions: Any) -> _Offered:
        """Actions from records, a registered set or rows."""
        if context is not None:
            features, names = self._recorded.one(context, actions)
            return _Offered(features, self.plan.dim, names)
        if isinstance(actions, str):
            known = self._set(actions)
            return _Offered(known.features, self.plan.dim, known=known)
        return _Offered(actions, self.plan.dim)

    def _for_counted(self, offered: _Offered, public: PublicModel, quick: bool) -> Appraisal | QuickAppraisal:
        """What the public model makes of the actions: the only way to serve those who are released."""
        if offered.known is not None:
            return offered.known.score(public.model, self.plan.policy)
        if quick:
            return QuickAppraisal(self._chooser, offered.rows, public.model)
        return Appraisal.of(offered.features, public.model, self.plan.policy)

    def _for_others(self, offered: _Offered, local: LocalModel) -> Appraisal:
        """The same by all that the silo knows, for those who are not."""
        return Appraisal.of(offered.features, local.model, self.plan.policy)

    @property
    def now(self) -> float:
        """The time by the silo's clock."""
        return self._clock.expected

    @property
    def reward_window(self) -> float:
        """Seconds that a decision waits for its reward."""
        return self._window

    @property
    def deciding_writes(self) -> bool:
        """Whether a decision takes a place in the store, and so may wait for it."""
        return self._seats.counted

    def quicken(self) -> None:
        """Load what makes decisions faster. It takes a while, beside which decisions go on: call it in a thread."""
        self._chooser.quicken()

    def register(self, name: str, actions: ArrayLike) -> None:
        """Keep an action set under a name; a name means one set for good."""
        features = choosing.inside(choosing.checked(actions, self.plan.dim))
        self.store.register(party_name(name), messages.encode([features]))
        self._sets.setdefault(name, ActionSet(features))

    def action_sets(self) -> dict[str, int]:
        """Registered sets and how many actions each has."""
        return {name: len(known.features) for name, known in self._sets.items()}

    # -- rewards ----------------------------------------------------------------------------------------------------

    def reward(self, decision: str, reward: float) -> Acknowledgement:
        """Count a reward in the open batch; on disk when this returns. The same again is acknowledged again."""
        return acknowledged(self.reward_many([self.read(decision, reward)])[0])

    def reward_all(self, rewards: Any) -> list[Acknowledgement]:
        """Count many rewards in one transaction: pairs of a decision's id and its reward, or a table with the columns
        `decision` and `reward`. One that is refused is refused before any is counted, except for a conflict with an
        earlier reward, which is raised when all others are on disk."""
        pairs = _rewards_of(columns_of(rewards)) if is_table(rewards) else rewards
        oldest = self._clock.expected - self._window
        return [acknowledged(v) for v in self.reward_many([self._read(one, reward, oldest) for one, reward in pairs])]

    def read(self, decision: str, reward: float) -> Reward:
        """Check a reward and open its decision id, without storing anything."""
        return self._read(decision, reward, self._clock.expected - self._window)

    def _read(self, decision: str, reward: float, oldest: float) -> Reward:
        value = _validate.reward("reward", reward)
        nonce, person, features, place, issued = self.ids.read(decision)
        if issued < oldest:
            raise DecisionExpired(f"decision has expired: its reward was waited for {self._window / DAY:g} days")
        return Reward(nonce, person, features, value, self.ids.digest(nonce, value), place)

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
        if self._log is not None:
            self._log.rewarded(rewards, verdicts, self._clock.expected)
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
        if self._log is not None:
            self._log.flush()

    # -- releases ---------------------------------------------------------------------------------------------------

    def tick(self) -> list[int]:
        """Do all that is due: close batches, draw their releases, make raw rows unreadable. Steps released now."""
        released = self.ticker.release()
        if released:
            self.ticker.tidy()
        if released and self._log is not None:
            self._log.expire(self._clock.expected)
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
        if self._log is not None:
            self._log.model(version, self._current[1].model, self.plan)
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
        if self._log is not None:
            self._log.close()
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


def _propensity(value: float, chosen: int | str | None) -> float:
    if chosen is None:
        raise ArgumentError("propensity", "must be left out unless the application has chosen: the policy has its own")
    if not _validate.reward("propensity", value) > 0:
        raise ArgumentError("propensity", "must be above 0: the action was chosen")
    return float(value)


def _rewards_of(columns: Columns) -> list[tuple[str, float]]:
    for name in ("decision", "reward"):
        if name not in columns:
            raise ArgumentError("rewards", f"must have a column {name!r}, got {', '.join(columns)}")
    return list(zip(columns["decision"], columns["reward"], strict=True))


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
    return choosing.inside(choosing.checked(features, features.shape[-1]))


def acknowledged(verdict: Verdict) -> Acknowledgement:
    """The answer to the caller, or the reason why there is none."""
    if verdict.conflict:
        raise RewardConflict("reward differs from the one that was acknowledged for this decision")
    if verdict.state is DecisionState.EXPIRED:
        raise TermEnded("decision has expired: the last batch of the term was released")
    counted = verdict.state not in (DecisionState.LEFT_OUT, DecisionState.KEPT)
    return Acknowledgement(counted, verdict.sync, verdict.repeated)
