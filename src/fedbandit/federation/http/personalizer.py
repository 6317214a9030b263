"""The protocol of Azure Personalizer, version 1.0: rank, reward, activate.

An application written for it works with a silo once its endpoint and its key are changed; docs/schema.md says what
differs.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, ClassVar

from msgspec import Meta, Struct

from fedbandit.federation.http.group import GroupCommit, in_thread
from fedbandit.federation.http.metrics import Metrics
from fedbandit.federation.http.refusals import Refusal
from fedbandit.federation.http.schemas import Answer, Problem
from fedbandit.federation.silo.decisions.actions import MAX_ARMS
from fedbandit.federation.silo.decisions.decider import Decision
from fedbandit.federation.silo.serving import RewardConflict, Silo, acknowledged
from fedbandit.federation.store.events import Event, EventStore
from fedbandit.problem.encoding import ActionRecord
from fedbandit.problem.fields import text_of

__all__ = ["EventId", "Personalizer", "PersonalizerProblems", "RankRequest", "RankResponse", "ValueRequest"]

EventId = Annotated[str, Meta(min_length=1, max_length=256)]
Objects = list[dict[str, Any]] | dict[str, Any] | None
USER_KEY = "userKey"  # this entry of the context is the application's key for the person, not a feature
DEEPEST = 8  # levels of nested objects in which features are looked for
CODES = {400: "BadRequest", 404: "ResourceNotFound", 422: "BadRequest"}


class RankableAction(Struct, frozen=True):
    """An action to choose from."""

    id: EventId
    features: Annotated[Objects, Meta(description="Objects with features; those within objects have dotted names.")] = (
        None
    )


class RankRequest(Struct, frozen=True, rename="camel"):
    """A person or a moment, and the actions to choose from. Other fields are ignored."""

    actions: Annotated[list[RankableAction], Meta(min_length=1, max_length=MAX_ARMS)]
    context_features: Objects = None
    excluded_actions: Annotated[list[str] | None, Meta(description="Ids of actions that must not be chosen.")] = None
    event_id: EventId | None = None
    defer_activation: Annotated[
        bool | None, Meta(description="Whether the reward is to count only once the event is activated.")
    ] = False


class RankedAction(Struct, frozen=True):
    """An action, and the probability with which it was chosen."""

    id: str
    probability: float


class RankResponse(Answer, frozen=True, rename="camel"):
    """The actions, the chosen one first; excluded actions keep their places."""

    STATUS: ClassVar[int] = 201

    ranking: list[RankedAction]
    event_id: str
    reward_action_id: str


class ValueRequest(Struct, frozen=True):
    """The reward of an event."""

    value: Annotated[float, Meta(ge=0, le=1)]


class Done(Answer, frozen=True):
    """An answer without a body."""

    STATUS: ClassVar[int] = 204


class PersonalizerProblem(Struct, frozen=True):
    """What is wrong."""

    code: str
    message: str
    target: str


class PersonalizerProblems(Struct, frozen=True):
    """Why a request was refused, as the client expects to be told."""

    error: PersonalizerProblem

    @classmethod
    def about(cls, status: int, problem: Problem, request: str = "") -> PersonalizerProblems:
        """The problem in the client's format, which has no place for the id of the request: it is in the header."""
        code = CODES.get(status, "InternalServerError")
        return cls(PersonalizerProblem(code, f"{problem.field} {problem.message}", problem.field))


class Personalizer:
    """The three calls, for a silo whose plan has a schema."""

    def __init__(self, silo: Silo, group: GroupCommit, metrics: Metrics) -> None:
        self._silo, self._group, self._metrics = silo, group, metrics
        self._events = EventStore(silo.store.engine, silo.term.number, silo.reward_window)

    async def rank(self, asked: RankRequest) -> RankResponse:
        """Rank actions for a person."""
        event = asked.event_id or secrets.token_hex(16)
        context = _flat(asked.context_features)
        user = _person(context)
        decision, likely = await in_thread(partial(self._decide, asked, context, user, event))
        self._metrics.decided()
        ids, excluded = [one.id for one in asked.actions], set(asked.excluded_actions or ())
        order = _order(ids, decision.action, likely, excluded)
        ranking = [RankedAction(ids[number], likely[number]) for number in order]
        return RankResponse(ranking, event, ids[decision.action])

    async def reward_event(self, event_id: EventId, asked: ValueRequest) -> Done:
        """Reward an event; only its first reward counts, once the event is active."""
        event = _known(await in_thread(partial(self._events.hold, event_id, asked.value)))
        if event.active and event.decision:
            await self._count(event_id, event.decision, asked.value)
        return Done()

    async def activate_event(self, event_id: EventId) -> Done:
        """Activate an event that was deferred: the person has seen its decision."""
        event = _known(await in_thread(partial(self._events.activate, event_id)))
        if event.reward is not None and event.decision:
            await self._count(event_id, event.decision, event.reward)
        return Done()

    def _decide(
        self, asked: RankRequest, context: dict[str, Any], user: str | None, event: str
    ) -> tuple[Decision, list[float]]:
        actions = [ActionRecord(one.id, _flat(one.features)) for one in asked.actions]
        excluded = set(asked.excluded_actions or ())
        allowed = [number for number, one in enumerate(actions) if one.id not in excluded] if excluded else None
        decision, likely = self._silo.rank(actions, context=context, user=user, allowed=allowed)
        self._events.put(event, decision.id, not asked.defer_activation, self._silo.now)
        return decision, likely

    async def _count(self, event: str, decision: str, value: float) -> None:
        reward = self._silo.read(decision, value)
        (verdict,) = await self._group.put([reward])
        self._metrics.rewarded(verdict, reward.place)
        with suppress(RewardConflict):  # the first reward stays
            acknowledged(verdict)
        await in_thread(partial(self._events.done, event, decision))


def _person(context: dict[str, Any]) -> str | None:
    """Take the person's key out of the context. An invalid key is refused: a person who is not recognised would count
    more often than the guarantee allows."""
    user = context.pop(USER_KEY, None)
    nested = any(name.startswith(f"{USER_KEY}.") for name in context)
    key = user if isinstance(user, str) else text_of(user) if isinstance(user, (int, float)) else None
    if nested or (user is not None and not key):
        raise Refusal(400, USER_KEY, "must be a text or a number")
    return key


def _known(event: Event | None) -> Event:
    if event is None:
        raise Refusal(404, "eventId", "is unknown to this silo, or was forgotten")
    return event


def _order(ids: Sequence[str], chosen: int, likely: Sequence[float], excluded: set[str]) -> list[int]:
    """The indices in ranked order: the chosen action, then the likeliest ones; excluded actions keep their places."""
    ranked = sorted(
        (number for number, name in enumerate(ids) if name not in excluded),
        key=lambda number: (number != chosen, -likely[number]),
    )
    waiting = iter(ranked)
    return [number if name in excluded else next(waiting) for number, name in enumerate(ids)]


def _flat(objects: Objects) -> dict[str, Any]:
    """Features by their dotted names, from nested objects."""
    found: dict[str, Any] = {}
    waiting = [("", one, 0) for one in reversed(objects if isinstance(objects, list) else [objects or {}])]
    while waiting:
        name, value, depth = waiting.pop()
        if isinstance(value, Mapping) and depth < DEEPEST:
            inner = [(f"{name}.{key}" if name else key, one, depth + 1) for key, one in value.items()]
            waiting += reversed(inner)
        elif name:
            found[name] = value
    return found
