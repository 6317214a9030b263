"""A silo: decides for its users, keeps their rewards, releases noisy sums at the ticks, learns from the federation.

Rules that hold at every instant, whatever is killed:
- a reward that was acknowledged is in exactly one batch, once;
- release k is drawn once and is on disk, with the budget it spends, before anybody sees it;
- when a release happens and how long it is do not depend on any user's data;
- a person whose data may be released is served by the public model alone, and once a person was served by anything
  else, no further data of theirs are released.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import repeat
from operator import ge, le
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from numpy.typing import ArrayLike

from fedbandit import _validate
from fedbandit._arrays import Floats
from fedbandit._validate import ArgumentError
from fedbandit.federation.own_knowledge import summed
from fedbandit.federation.setup.agreement import check_live
from fedbandit.federation.silo import book
from fedbandit.federation.silo.decisions.apart import Apart
from fedbandit.federation.silo.decisions.counter import DecisionCounter
from fedbandit.federation.silo.decisions.decider import CHANCE, Asked, Decider, Decision, Shared
from fedbandit.federation.silo.decisions.seats import Seats
from fedbandit.federation.silo.decisions.tickets import DecisionExpired, DecisionIds, issuer_of
from fedbandit.federation.silo.earnings import RewardTrend
from fedbandit.federation.silo.forwarding import begin_at
from fedbandit.federation.silo.outgoing import Sealer
from fedbandit.federation.silo.releasing import own_sums, planned_sizes
from fedbandit.federation.silo.silo_status import silo_status
from fedbandit.federation.silo.terms import check_secret, open_term, own_secret
from fedbandit.federation.silo.ticker import Ticker, clock_of
from fedbandit.federation.states import DecisionState
from fedbandit.federation.store import Reward, SiloStore, Verdict, open_engine
from fedbandit.federation.store.database import Sql
from fedbandit.federation.store.decision_log import DecisionLog
from fedbandit.federation.store.rewards import NOWHERE, OPEN_BATCH, UNLIMITED, RewardColumns, runs
from fedbandit.federation.store.silo_store import OWN_RELEASE
from fedbandit.federation.timing import DAY, Clocks, MachineClocks, TicksHeld, Timing
from fedbandit.federation.wire.keys import party_name
from fedbandit.federation.wire.parcels import Outcome
from fedbandit.knowledge import PublicModel, nothing_public, personal_model, public_model
from fedbandit.plan import Plan
from fedbandit.problem.fields import as_number
from fedbandit.problem.frames import Columns, columns_of, is_table
from fedbandit.problem.records import Actions

__all__ = [
    "Acknowledgement",
    "OutcomeConflict",
    "RewardConflict",
    "Silo",
    "TermEnded",
    "acknowledged",
]


class Acknowledgement(NamedTuple):
    """A reward that is on disk. `counted` is False for a user who has opted out, has reached the participation cap, or
    is back sooner than visits count."""

    counted: bool
    batch: int
    repeated: bool


class RewardConflict(ValueError):
    """The decision already has a different reward."""


class TermEnded(ValueError):
    """The last batch of the term was released; rewards no longer count."""


class OutcomeConflict(ValueError):
    """There is only one model k, and somebody sent a second one."""


class Silo:
    """One silo, in this process. Safe to use from several threads.

    >>> import tempfile
    >>> import fedbandit as fb
    >>> plan = fb.Plan(silos=2, rounds=30, dim=2, privacy=fb.Privacy(1.0, 1e-6), schedule=fb.clock(86_400))
    >>> with tempfile.TemporaryDirectory() as folder, fb.Silo.open(f"{folder}/silo.db", plan) as silo:
    ...     decision = silo.decide([[1.0, 0.0], [0.0, 1.0]], user="patient 4711")
    ...     silo.reward(decision.id, 0.7)
    ...     silo.reward(decision.id, 0.7)
    Acknowledgement(counted=True, batch=0, repeated=False)
    Acknowledgement(counted=True, batch=0, repeated=True)
    """

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
        since: int = 0,
    ) -> None:
        self.store, self.plan, self.name = store, plan, party_name(name)
        check_live(plan)
        check_secret(store, secret)
        book.kept(store)
        began = clock.read().wall if timing.start is None else timing.start
        self.term = open_term(store, plan, began, new_term, self.name)
        self._own_release = (self.term.number, OWN_RELEASE)
        self._fitted: tuple[tuple[int, bytes], PublicModel] | None = None  # the prefix sum last fitted, and its model
        if since > self.term.open_sync and not store.releases(self.term.number):
            self.term = begin_at(store, plan, self.term, since, clock.read().wall)
        self.ids = DecisionIds(secret, f"{plan.hash}/{self.term.number}", plan.dim)
        self.syncs = len(plan.ticks)
        self._cap = plan.privacy.participations if plan.privacy else UNLIMITED
        self._spacing = plan.privacy.apart if plan.privacy else 0
        self._sizes = planned_sizes(plan)
        self._window = timing.reward_window
        self._issuers = store.issuers(self.term.number, self.ids.issuer)
        self._strangers: frozenset[bytes] = frozenset()  # processes that are known to have begun before that
        self._expired_before = store.expired_before(self.term.number)
        self._counter = DecisionCounter(counts, self.term.number, self.term.decisions, self.term.unkeyed)
        self._seats = Seats(store, plan, self.term, self._cap)
        self._clock = clock_of(store, self.term.number, clock, catch_up)
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
            signer=(lambda sync: book.own_signer(secret)) if sealer is None else sealer.signer,
        )
        public = nothing_public(plan)
        self._apart = Apart(store, plan, self.term.number, self._cap, public)
        self._decider = Decider(
            store,
            plan,
            public=public,
            ids=self.ids,
            seats=self._seats,
            counter=self._counter,
            apart=self._apart,
            clock=self._clock,
            strict=strict,
            chance=chance,
            log=log,
        )
        self.earnings = RewardTrend(store, self.term.number, self.term.started)
        self._log = log
        if log is not None:
            log.expire(self._clock.expected)
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
        since: int = 0,
    ) -> Self:
        """Open a silo's store (a path, or a postgresql:// URL) under a plan; a new store is created.

        A store that began under another plan is refused. With `new_term`, and once the old term's ticks are over, the
        new plan begins a new term on the same ledger. `secret` seals decision ids and salts user keys; by default it
        is kept in a file next to the store. `timing` is what the federation agreed on, and `sealer` turns releases
        into sealed messages; a silo on its own needs neither. `clock` tells the time, by default the machine's. Raw
        rows are deleted when their batch is released unless `keep_raw`. With `catch_up` the caller vouches for the
        clock: all overdue ticks are done, however many there are. With `strict`, a record with a value that is
        missing, out of range or unknown is an error. With a `log` every decision is kept there, for evaluation in this
        silo. `since` is the first sync that the silo is a member of; nothing is released for earlier syncs.
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
                since=since,
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
        then `context` is the person's record, `actions` are tables with an `id` and `features`, or are left out if the
        schema names them, and `allowed` and `chosen` may hold ids instead of indices.

        `user` is the application's key of the person, kept only as a salted hash, for the participation cap. Without
        it, the decision counts as one for a person who comes once: the guarantee then rests on the application.

        Under a plan with `apprentice` the application may say which action it has `chosen` itself, and with which
        `propensity` if it knows. That action is played and learnt from. The guarantee says what such a choice may
        depend on.

        Unless `shared`, the person opts out: what counted before stays counted, and none of the person's later data
        leave the silo in this term. People who opt out or are over the cap are served by all that the silo knows,
        unless the plan says otherwise.
        """
        return self._decider.decide(Asked(actions, context, user, allowed, chosen, propensity, shared))

    def rank(
        self,
        actions: Any = None,
        *,
        context: Mapping[str, Any],
        user: str | None = None,
        allowed: Sequence[Any] | None = None,
    ) -> tuple[Decision, list[float]]:
        """A decision for a record, and the probability of each action."""
        return self._decider.rank(Asked(actions, context, user, allowed))

    @property
    def odd_values(self) -> dict[str, dict[str, int]]:
        """How often a value of a record was missing, clamped or unknown, per field, since this process began. For this
        silo only: nobody else is told."""
        return self._decider.odd_values

    def decide_many(
        self,
        contexts: Any,
        users: Sequence[str] | str | None = None,
        actions: Actions | None = None,
        *,
        shared: Shared = True,
    ) -> list[Decision]:
        """Decisions for many people at once: `contexts` is (people, arms, dim), `users` the people's keys.

        Under a plan with a schema `contexts` can be a table of records, one per person: a frame of polars or pandas, an
        Arrow table, a list of records. `actions` are then the actions that everybody is offered, by default those that
        the schema names, and `users` may be the name of the column that holds the keys. Unless `shared`, all of them
        opt out; it may also be a list of true and false, one per person, or the name of the column that holds them.
        """
        return self._decider.decide_many(contexts, users, actions, shared)

    @property
    def now(self) -> float:
        """The time by the silo's clock."""
        return self._clock.expected

    @property
    def reward_window(self) -> float:
        """Seconds that a decision waits for its reward."""
        return self._window

    def deciding_writes(self, user: str | None) -> bool:
        """Whether a decision for a person who shares writes to the store (takes a place, or sets the person apart), and
        so may have to wait."""
        return self._seats.counted or (user is not None and self._apart.writes(self.ids.person(user)))

    def quicken(self) -> None:
        """Load what makes decisions faster. This takes a while, and decisions go on meanwhile: call it in a thread."""
        self._decider.quicken()

    def register(self, name: str, actions: ArrayLike) -> None:
        """Keep an action set under a name; the set of a name never changes."""
        self._decider.register(name, actions)

    def action_sets(self) -> dict[str, int]:
        """The number of actions of each registered set, by name."""
        return self._decider.action_sets()

    # -- rewards ----------------------------------------------------------------------------------------------------

    def reward(self, decision: str, reward: float) -> Acknowledgement:
        """Count a reward in the open batch. It is on disk when this returns. A repeat is acknowledged again."""
        return acknowledged(self.reward_many([self.read(decision, reward)])[0])

    def reward_all(self, rewards: Any) -> list[Acknowledgement]:
        """Count many rewards in one transaction: pairs of a decision's id and its reward, or a table with the columns
        `decision` and `reward`. If one is refused, none is counted; only a conflict with an earlier reward is raised
        once all others are on disk."""
        pairs = _rewards_of(columns_of(rewards)) if is_table(rewards) else list(rewards)
        told = list[Acknowledgement]()
        for verdict, part in runs(self.reward_many(self._read_all(pairs))):
            told += repeat(acknowledged(verdict), part.stop - part.start)
        return told

    def read(self, decision: str, reward: float) -> Reward:
        """Check a reward and open its decision id, without storing anything."""
        return self._read(decision, reward, self._oldest)

    @property
    def _oldest(self) -> float:
        """The earliest time of a decision whose reward is still accepted. It never moves back: with a clock that is
        behind, a reward that was counted and then forgotten would be counted again."""
        return max(self._clock.expected - self._window, self._expired_before)

    def _read_all(self, pairs: Sequence[tuple[str, float]]) -> RewardColumns:
        """Check many rewards: in one go if their decisions were made together and all rewards are plain numbers."""
        oldest, values = self._oldest, [reward for _, reward in pairs]
        made = self.ids.read_together([decision for decision, _ in pairs])
        if made is None or not _plain(values) or made.issued < oldest:
            return RewardColumns.of([self._read(decision, reward, oldest) for decision, reward in pairs])
        digests = self.ids.digests(made.nonces, values)
        return RewardColumns(made.nonces, made.people, made.features, values, digests, made.places)

    def _read(self, decision: str, reward: float, oldest: float) -> Reward:
        value = _validate.reward("reward", reward)
        nonce, person, features, place, issued = self.ids.read(decision)
        if issued < oldest:
            raise DecisionExpired(f"decision has expired: its reward was waited for {self._window / DAY:g} days")
        return Reward(nonce, person, features, value, self.ids.digest(nonce, value), place)

    def _since_forward(self, rewards: RewardColumns) -> RewardColumns:
        """If this store was brought forward, rewards of earlier decisions have no place in a batch: they may have
        counted in one of the lost store, and must count once. An issuer is on disk before its first decision, so
        whoever is not there will not be."""
        if self._issuers is None:
            return rewards
        made_by = [issuer_of(nonce) for nonce in rewards.nonces]
        if new := set(made_by) - self._issuers - self._strangers:
            self._issuers = self.store.issuers(self.term.number, self.ids.issuer) or self._issuers
            self._strangers |= new - self._issuers
        both = zip(rewards.places, made_by, strict=True)
        return replace(
            rewards,
            places=[NOWHERE if place == OPEN_BATCH and by in self._strangers else place for place, by in both],
        )

    def reward_many(self, rewards: Sequence[Reward], durable: bool = True) -> list[Verdict]:
        """Store rewards that `read` has checked, all in one transaction. Unless `durable`, `store.engine.harden` must
        follow before anybody is told."""
        columns = self._since_forward(RewardColumns.of(rewards))
        self._apart.settle()
        with self._counter.take() as pending:
            verdicts = self.store.count(
                self.term.number,
                columns,
                *pending,
                cap=self._cap,
                syncs=self.syncs,
                apart=self._spacing,
                sizes=self._sizes,
                durable=durable,
                adding=partial(summed, self.plan),
                by_sync=self.plan.forget < 1,
            )
        self._apart.note(columns, verdicts, durable)
        self.earnings.note(columns, verdicts)
        if self._log is not None:
            self._log.rewarded(columns, verdicts, self._clock.expected)
        return verdicts

    @property
    def unwritten(self) -> bool:
        """Whether `flush` may have something to write."""
        return self._log is not None or self._counter.waiting.decisions > 0 or self._apart.unwritten

    def flush(self) -> None:
        """Write to disk how many decisions were answered since the last time, who opted out, earnings, and the log."""
        if self._counter.waiting.decisions or self._apart.unwritten:
            self.reward_many([])
        self.earnings.flush(self._clock.expected)
        if self._log is not None:
            self._log.expire(self._clock.expected)
            self._log.flush()

    # -- releases ---------------------------------------------------------------------------------------------------

    def tick(self) -> list[int]:
        """Do all that is due: close batches, draw their releases, make raw rows unreadable. Returns the syncs."""
        released = self.ticker.release()
        if released:
            self.ticker.tidy()
        return released

    # -- models -----------------------------------------------------------------------------------------------------

    def learn(
        self, sync: int, outcome: Outcome, included: bool, also: Callable[[Sql], object] = lambda sql: None
    ) -> None:
        """Store the outcome of a sync, with what `also` writes, and then decide by its model. A different outcome of
        the same sync is refused: there is only one model k."""
        if not self.store.outcome(self.term.number, sync, included, outcome.encode(), also):
            raise OutcomeConflict(f"sync {sync} already has an outcome, and this is a different one")
        self.refresh()

    def refresh(self) -> None:
        """Read models that have come since the last time, e.g. through another worker of this silo."""
        version, public = self._decider.current
        newest = None
        for sync, value in self.store.models(self.term.number, version - 1):
            outcome = Outcome.decode(value, self.plan)
            version = sync + 1
            newest = newest if outcome.skipped else (sync, outcome.prefix)
        if newest is not None:
            public = self.fitted(*newest)
            if self.plan.personal:  # the silo's own part rests only on what it has released to itself
                public = personal_model(self.plan, public, own_sums(self.plan, self.store.state(*self._own_release)))
        self._decider.use(version, public)
        if self._log is not None:
            self._log.model(version, public.model, self.plan)
        if newest is not None:
            self._apart.refresh(public)

    def fitted(self, sync: int, prefix: Floats) -> PublicModel:
        """The model of the prefix sum of a sync. It is kept, so that a check and `refresh` fit it only once."""
        of, known = (sync, prefix.tobytes()), self._fitted  # read once: another thread may fit a model meanwhile
        if known is None or known[0] != of:
            known = self._fitted = (of, public_model(self.plan, sync, prefix, self.plan.ticks[sync]))
        return known[1]

    @property
    def version(self) -> int:
        """The number of syncs that the deciding model has learnt from."""
        return self._decider.current.version

    @property
    def public(self) -> PublicModel:
        """The public model, which serves people who count."""
        return self._decider.current.public

    def model(self) -> tuple[int, list[float]]:
        """Version and parameter vector of the model that decides now."""
        version, public = self._decider.current
        return version, [float(value) for value in public.model.theta]

    # -- what it is doing -------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Where the term stands. The numbers of people are exact, without noise, so they are for the silo only."""
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
        """Whether the last release of the term was made; serving goes on with the last model."""
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


def _plain(rewards: Sequence[Any]) -> bool:
    """Whether all of these are Python floats from 0 to 1."""
    return (
        {*map(type, rewards)} <= {float} and all(map(partial(le, 0.0), rewards)) and all(map(partial(ge, 1.0), rewards))
    )


def _rewards_of(columns: Columns) -> list[tuple[str, float]]:
    for name in ("decision", "reward"):
        if name not in columns:
            raise ArgumentError("rewards", f"must have a column {name!r}, got {', '.join(columns)}")
    return [(made, _number_of(one)) for made, one in zip(columns["decision"], columns["reward"], strict=True)]


def _number_of(reward: Any) -> Any:
    """A truth value or a decimal from a table, as a number. Anything else is returned unchanged, and refused later."""
    number = as_number(reward)
    return reward if number is None else number


def acknowledged(verdict: Verdict) -> Acknowledgement:
    """The answer to the caller; raises if the reward was refused."""
    if verdict.conflict:
        raise RewardConflict("reward differs from the one that was acknowledged for this decision")
    if verdict.state is DecisionState.EXPIRED:
        raise TermEnded("decision has expired: the last batch of the term was released")
    counted = verdict.state not in (DecisionState.LEFT_OUT, DecisionState.KEPT)
    return Acknowledgement(counted, verdict.sync, verdict.repeated)
