"""Makes a silo's decisions: from an application's request to the id that the reward refers to.

A person whose data may be released is served by the public model alone. Once a person was served by anything else, no
further data of theirs are released.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import repeat
from random import SystemRandom
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike

from fedbandit import _validate
from fedbandit._arrays import Floats
from fedbandit._validate import ArgumentError
from fedbandit.bandit import linucb
from fedbandit.federation.own_knowledge import LocalModel
from fedbandit.federation.silo.decisions import actions as choosing
from fedbandit.federation.silo.decisions.actions import ActionSet, Appraisal, Chooser, QuickAppraisal
from fedbandit.federation.silo.decisions.apart import Apart, Way
from fedbandit.federation.silo.decisions.counter import DecisionCounter
from fedbandit.federation.silo.decisions.seats import Seats
from fedbandit.federation.silo.decisions.tickets import DecisionIds
from fedbandit.federation.store import SiloStore
from fedbandit.federation.store.decision_log import DecisionLog
from fedbandit.federation.timing import SteadyClock
from fedbandit.federation.wire import messages
from fedbandit.federation.wire.keys import party_name
from fedbandit.knowledge import PublicModel
from fedbandit.plan import Plan
from fedbandit.problem.frames import Columns, columns_of, is_table, records_in
from fedbandit.problem.records import Actions, Records, as_json

__all__ = ["CHANCE", "Asked", "Current", "Decider", "Decision", "Shared", "UnknownActionSet"]

CHANCE = SystemRandom().random  # the chance of a policy: nobody can foresee a choice or repeat its draw


class Decision(NamedTuple):
    """The answer to an application: the `id` that the reward must come with, the index of the chosen `action`, and the
    version of the `model` that chose it. `propensity` is the probability with which it was chosen, None if the
    application chose and did not give one. `name` is the name of the action, where actions have names."""

    id: str
    action: int
    model: int
    propensity: float | None = 1.0
    name: str | None = None


# Makes a `Decision` from a tuple of all its fields, as `Decision(...)` does but without a Python call per decision.
_decision = cast(Callable[[tuple[Any, ...]], Decision], partial(tuple.__new__, Decision))


class UnknownActionSet(LookupError):
    """No action set was registered under this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"actions must be a registered set, got {name!r}")
        self.name = name


Shared = bool | Sequence[bool] | str  # one for everybody, one per person, or the name of the column that has them


class Asked(NamedTuple):
    """An application's request, with the arguments of `Silo.decide`."""

    actions: Any
    context: Mapping[str, Any] | None
    user: str | None
    allowed: Sequence[Any] | None
    chosen: int | str | None = None
    propensity: float | None = None
    shared: bool = True


class _Made(NamedTuple):
    """A decision, and what it was made from."""

    decision: Decision
    appraisal: Appraisal | QuickAppraisal
    allowed: Sequence[int] | None


@dataclass(frozen=True)
class _Offered:
    """Actions to choose from: their rows as they came, their names, and the registered set, if they are one."""

    rows: Any
    dim: int
    names: tuple[str, ...] = ()
    known: ActionSet | None = None

    @cached_property
    def features(self) -> Floats:
        """The rows, checked."""
        return self.rows if self.known is not None else choosing.checked(self.rows, self.dim)


class Current(NamedTuple):
    """What decides now. The two are replaced together, so no decision names another model than its own."""

    version: int
    public: PublicModel


class Decider:
    """Decides by the model that was last passed to `use`. Safe to use from several threads."""

    def __init__(
        self,
        store: SiloStore,
        plan: Plan,
        *,
        public: PublicModel,
        ids: DecisionIds,
        seats: Seats,
        counter: DecisionCounter,
        apart: Apart,
        clock: SteadyClock,
        strict: bool,
        chance: Callable[[], float],
        log: DecisionLog | None,
    ) -> None:
        self.current = Current(0, public)
        self._store, self._plan, self._ids = store, plan, ids
        self._seats, self._counter, self._apart = seats, counter, apart
        self._clock, self._chance, self._log = clock, chance, log
        self._sets = _action_sets(store)
        self._chooser = Chooser(plan.dim)
        self._plain = plan.policy.certain and log is None  # always the best action, and nothing is logged
        self._records = None if plan.schema is None else Records(plan.schema, strict=strict, lock=threading.Lock())

    def use(self, version: int, public: PublicModel) -> None:
        """Decide by this model from now on."""
        self.current = Current(version, public)

    def quicken(self) -> None:
        """Load what makes decisions faster."""
        self._chooser.quicken()
        if self._records is not None:
            self._records.quicken()

    @property
    def odd_values(self) -> dict[str, dict[str, int]]:
        """How often a value of a record was missing, clamped or unknown, per field."""
        return {} if self._records is None else self._records.odd

    # -- one at a time ----------------------------------------------------------------------------------------------

    def decide(self, asked: Asked) -> Decision:
        """A decision: the policy's choice, or the application's own."""
        return self._made(asked).decision

    def rank(self, asked: Asked) -> tuple[Decision, list[float]]:
        """A decision, and the probability of each action."""
        made = self._made(asked, ranked=True)
        assert isinstance(made.appraisal, Appraisal)
        return made.decision, made.appraisal.likely(made.allowed).tolist()

    def _made(self, asked: Asked, ranked: bool = False) -> _Made:
        version, public = self.current
        person = None if asked.user is None else self._ids.person(asked.user)
        place, local = self._apart.way(person, _flag(asked.shared))
        offered = self._offered(asked.context, asked.actions)
        quick = self._plain and asked.chosen is None and not ranked
        appraisal = self._for_counted(offered, public, quick) if local is None else self._for_others(offered, local)
        names, allowed = offered.names, asked.allowed
        if allowed is not None:
            allowed = choosing.numbered("allowed", allowed, names)
        likely = None if asked.propensity is None else _propensity(asked.propensity, asked.chosen)
        if asked.chosen is None:
            action, likely = appraisal.choose(allowed, self._chance)
        else:
            (number,) = choosing.numbered("chosen", [asked.chosen], names)
            action = self._own_choice(number, allowed, len(offered.features))
        if place is None:
            (place,) = self._seats.take([person])
        decision = self._ids.issue_one(appraisal.row(action), person, place, self._clock.expected)
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
                own=asked.chosen is not None,
                record=None if asked.context is None else as_json(asked.context, names, asked.actions),
            )
        self._counter.add(1, keyed=asked.user is not None)
        made = Decision(decision, action, version, likely, names[action] if names else None)
        return _Made(made, appraisal, allowed)

    def _offered(self, context: Mapping[str, Any] | None, actions: Any) -> _Offered:
        """Actions from records, a registered set or rows."""
        if context is not None:
            features, names = self._recorded.one(context, actions)
            return _Offered(features, self._plan.dim, names)
        if isinstance(actions, str):
            known = self._set(actions)
            return _Offered(known.features, self._plan.dim, known=known)
        return _Offered(actions, self._plan.dim)

    @property
    def _recorded(self) -> Records:
        """The object that turns records into rows; ArgumentError if the plan has no schema."""
        if self._records is None:
            raise ArgumentError("context", "must be left out: the plan has no schema, so actions are rows of numbers")
        return self._records

    def _for_counted(self, offered: _Offered, public: PublicModel, quick: bool) -> Appraisal | QuickAppraisal:
        """The actions scored by the public model: the only way to serve people whose data are released."""
        if offered.known is not None:
            return offered.known.score(public.model, self._plan.policy)
        if quick:
            return QuickAppraisal(self._chooser, offered.rows, public.model)
        return Appraisal.of(offered.features, public.model, self._plan.policy)

    def _for_others(self, offered: _Offered, local: LocalModel) -> Appraisal:
        """The actions scored by all that the silo knows, for people whose data are not released."""
        return Appraisal.of(offered.features, local.model, self._plan.policy)

    def _own_choice(self, chosen: int, allowed: Sequence[int] | None, arms: int) -> int:
        """The action that the application has chosen, if the plan lets it choose."""
        if not self._plan.apprentice:
            raise ArgumentError("chosen", "must be left out: under this plan the model chooses, see `apprentice`")
        (action,) = choosing.subset_of([chosen], arms, "chosen")
        if allowed is not None and action not in choosing.subset_of(allowed, arms):
            raise ArgumentError("chosen", f"must be one of the actions allowed, got {chosen}")
        return int(action)

    # -- many at once -----------------------------------------------------------------------------------------------

    def decide_many(
        self, contexts: Any, users: Sequence[str] | str | None, actions: Actions | None, shared: Shared
    ) -> list[Decision]:
        """Decisions for rows (people, arms, dim), or for a table of records."""
        if is_table(contexts):
            return self._decide_table(contexts, users, actions, shared)
        if actions is not None:
            raise ArgumentError("actions", "must be left out: contexts already hold a row per action")
        rows = _as_rows(contexts)
        return self._decide_rows(rows, users, _flags(shared, len(rows)))

    def _decide_table(
        self, table: Any, users: Sequence[str] | str | None, actions: Actions | None, shared: Shared
    ) -> list[Decision]:
        columns, made = columns_of(table), list[Decision]()
        total = records_in(table, columns)
        named = {name for name in (users, shared) if isinstance(name, str)}
        users = _column(columns, "users", "keys", users) if isinstance(users, str) else users
        shared = _column(columns, "shared", "true or false", shared) if isinstance(shared, str) else shared
        columns = {name: column for name, column in columns.items() if name not in named}
        if users is not None and len(users) != total:
            raise ArgumentError("users", f"must be as many as contexts, {total}, got {len(users)}")
        flags = _flags(shared, total)
        for rows, names in self._recorded.many(columns, total, actions):
            people = range(len(made), len(made) + len(rows))
            part = slice(people.start, people.stop)
            keys = None if users is None else users[part]
            records = (
                as_json({name: column[one] for name, column in columns.items()}, names, actions) for one in people
            )
            decided = self._decide_rows(rows, keys, flags[part], records if self._log is not None else None)
            made += [one._replace(name=names[one.action]) for one in decided]
        return made

    def _decide_rows(
        self,
        contexts: Floats,
        users: Sequence[str] | str | None,
        shared: Sequence[bool],
        records: Iterable[str] | None = None,
    ) -> list[Decision]:
        if users is not None and len(users) != len(contexts):
            raise ArgumentError("users", f"must be as many as contexts, {len(contexts)}, got {len(users)}")
        people = [None] * len(contexts) if users is None else [self._ids.person(user) for user in users]
        if self._plain and all(shared) and not self._apart.holds_any(people):
            made = self._decide_plainly(contexts, people)
        else:
            made = self._decide_one_by_one(contexts, people, self._apart.ways(people, shared), records)
        self._counter.add(len(made), keyed=users is not None)
        return made

    def _decide_plainly(self, contexts: Floats, people: Sequence[bytes | None]) -> list[Decision]:
        """The best action for each person, by the public model; all of them count."""
        version, public = self.current
        chosen, rows = self._chooser.many(contexts, public.model)
        ids = self._ids.issue(rows, people, self._seats.take(people), self._clock.expected)
        return list(map(_decision, zip(ids, chosen.tolist(), repeat(version), repeat(1.0), repeat(None))))

    def _decide_one_by_one(
        self,
        contexts: Floats,
        people: Sequence[bytes | None],
        ways: Sequence[Way],
        records: Iterable[str] | None,
    ) -> list[Decision]:
        version, public = self.current
        features = choosing.checked_many(contexts, self._plan.dim)
        flat = linucb.scores(features.reshape(-1, self._plan.dim), public.model)  # one large product
        means, spreads = (part.reshape(features.shape[:2]) for part in flat)
        for number, (_, local) in enumerate(ways):
            if local is not None:
                means[number], spreads[number] = linucb.scores(features[number], local.model)
        chosen, propensities = choosing.choose_many(means, spreads, self._plan.policy, self._chance)
        seats = iter(self._seats.take([person for person, way in zip(people, ways, strict=True) if way.place is None]))
        places = [next(seats) if way.place is None else way.place for way in ways]
        rows = choosing.inside(features[np.arange(len(features)), chosen])
        ids = self._ids.issue(rows, people, places, self._clock.expected)
        made = [
            Decision(one, action, version, propensity)
            for one, action, propensity in zip(ids, chosen.tolist(), propensities.tolist(), strict=True)
        ]
        if self._log is not None:
            likely = self._plan.policy.probabilities(means, spreads)
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

    # -- registered sets --------------------------------------------------------------------------------------------

    def register(self, name: str, actions: ArrayLike) -> None:
        """Keep an action set under a name; the set of a name never changes."""
        features = choosing.inside(choosing.checked(actions, self._plan.dim))
        self._store.register(party_name(name), messages.encode([features]))
        self._sets.setdefault(name, ActionSet(features))

    def action_sets(self) -> dict[str, int]:
        """The number of actions of each registered set, by name."""
        return {name: len(known.features) for name, known in self._sets.items()}

    def _set(self, name: str) -> ActionSet:
        if name not in self._sets:  # another worker may have registered it
            self._sets = {**_action_sets(self._store), **self._sets}
        try:
            return self._sets[name]
        except KeyError:
            raise UnknownActionSet(name) from None


def _flag(shared: Any) -> bool:
    """Whether a person shares. Only true and false are accepted, because people who share count."""
    if not isinstance(shared, (bool, np.bool_)):
        raise ArgumentError("shared", f"must be true or false, got {shared!r}")
    return bool(shared)


def _flags(shared: Shared, people: int) -> list[bool]:
    """Whether each of many people shares."""
    if isinstance(shared, (bool, np.bool_)):
        return [bool(shared)] * people
    if isinstance(shared, str) or not hasattr(shared, "__len__") or len(shared) != people:
        raise ArgumentError("shared", f"must be true or false, or one of them for each of {people} people")
    return [_flag(one) for one in shared]


def _column(columns: Columns, field: str, values: str, name: str) -> Sequence[Any]:
    if name not in columns:
        raise ArgumentError(field, f"must be {values}, or the name of a column, got {name!r}")
    return columns[name]


def _as_rows(contexts: Any) -> Floats:
    try:
        return np.asarray(contexts, dtype=np.float64)
    except (TypeError, ValueError):
        raise ArgumentError("contexts", "must be rows, (people, arms, dim), or a table of records") from None


def _propensity(value: float, chosen: int | str | None) -> float:
    if chosen is None:
        raise ArgumentError("propensity", "must be left out unless the application has chosen: the policy has its own")
    if not _validate.reward("propensity", value) > 0:
        raise ArgumentError("propensity", "must be above 0: the action was chosen")
    return float(value)


def _action_sets(store: SiloStore) -> dict[str, ActionSet]:
    return {name: ActionSet(_stored_set(value)) for name, value in store.action_sets().items()}


def _stored_set(value: bytes) -> Floats:
    features = np.asarray(messages.decode(value)[0], dtype=np.float64)
    return choosing.inside(choosing.checked(features, features.shape[-1]))
