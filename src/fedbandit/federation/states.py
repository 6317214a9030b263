"""The lives of a decision, of a release and of a sync, as tables; no socket and no database in here.

Whatever is killed and restarted, a thing's state is what is on disk, and only the events listed for that state can
happen to it. An event that is not listed is a bug or an attack and raises; events that repeat (a network delivers
twice, a client retries) lead from a state to itself and are listed as such.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, TypeVar

__all__ = [
    "DECISION",
    "RELEASE",
    "SYNC",
    "DecisionEvent",
    "DecisionState",
    "IllegalEvent",
    "ReleaseEvent",
    "ReleaseState",
    "SyncEvent",
    "SyncState",
    "advance",
]


class DecisionState(StrEnum):
    ISSUED = "issued"  # the caller holds it; the silo keeps nothing of it
    COUNTED = "counted"  # its reward is in the open batch
    LEFT_OUT = "left out"  # its user has reached the participation cap; answered, never counted
    RELEASED = "released"  # its batch was released; raw values are deleted
    EXPIRED = "expired"


class DecisionEvent(StrEnum):
    REWARD = "reward"
    REWARD_OVER_CAP = "reward over the cap"
    SAME_REWARD = "the same reward again"
    RELEASE = "batch released"
    EXPIRE = "reward window over"


class ReleaseState(StrEnum):
    OPEN = "open"  # rewards enter the batch
    CLOSED = "closed"  # the tick has passed; nothing enters any more
    DRAWN = "drawn"  # noise drawn, budget spent, on disk: all in one transaction
    SEALED = "sealed"  # the bytes to be sent are on disk; these and no others are ever sent
    SENT = "sent"  # the broker has them
    INCLUDED = "included"  # the outcome of the sync counts this silo in
    MISSED = "missed"  # the outcome of the sync does not; the release stays unsent or unused for good

    @property
    def settled(self) -> bool:
        """Whether it is known if the release counts."""
        return self in (ReleaseState.INCLUDED, ReleaseState.MISSED)


class ReleaseEvent(StrEnum):
    TICK = "tick"
    DRAW = "draw"
    SEAL = "seal"
    ACKNOWLEDGED = "acknowledged by the broker"
    OUTCOME_WITH = "outcome with this silo"
    OUTCOME_WITHOUT = "outcome without this silo"


class SyncState(StrEnum):
    WAITING = "waiting"  # no release has come
    COLLECTING = "collecting"  # the first has come, the deadline runs
    CLOSED = "closed"  # the cohort is fixed and its result is on disk
    SKIPPED = "skipped"  # deadline with less than the smallest cohort: nothing was computed, nothing will be
    PUBLISHED = "published"

    @property
    def final(self) -> bool:
        """Whether the sync has its result, for good."""
        return self not in (SyncState.WAITING, SyncState.COLLECTING)


class SyncEvent(StrEnum):
    RELEASE = "a release"
    COMPLETE = "all silos are in"
    DEADLINE_ENOUGH = "deadline, cohort large enough"
    DEADLINE_SHORT = "deadline, cohort too small"
    ACKNOWLEDGED = "acknowledged by the broker"


DECISION: Final[dict[DecisionState, dict[DecisionEvent, DecisionState]]] = {
    DecisionState.ISSUED: {
        DecisionEvent.REWARD: DecisionState.COUNTED,
        DecisionEvent.REWARD_OVER_CAP: DecisionState.LEFT_OUT,
        DecisionEvent.EXPIRE: DecisionState.EXPIRED,
    },
    DecisionState.COUNTED: {
        DecisionEvent.SAME_REWARD: DecisionState.COUNTED,
        DecisionEvent.RELEASE: DecisionState.RELEASED,
    },
    DecisionState.LEFT_OUT: {DecisionEvent.SAME_REWARD: DecisionState.LEFT_OUT},
    DecisionState.RELEASED: {DecisionEvent.SAME_REWARD: DecisionState.RELEASED},
    DecisionState.EXPIRED: {},
}

RELEASE: Final[dict[ReleaseState, dict[ReleaseEvent, ReleaseState]]] = {
    ReleaseState.OPEN: {ReleaseEvent.TICK: ReleaseState.CLOSED},
    ReleaseState.CLOSED: {ReleaseEvent.DRAW: ReleaseState.DRAWN},
    ReleaseState.DRAWN: {
        ReleaseEvent.SEAL: ReleaseState.SEALED,
        ReleaseEvent.OUTCOME_WITHOUT: ReleaseState.MISSED,
    },
    ReleaseState.SEALED: {
        ReleaseEvent.ACKNOWLEDGED: ReleaseState.SENT,
        # An acknowledgement can be lost although the broker has the bytes.
        ReleaseEvent.OUTCOME_WITH: ReleaseState.INCLUDED,
        ReleaseEvent.OUTCOME_WITHOUT: ReleaseState.MISSED,
    },
    ReleaseState.SENT: {
        ReleaseEvent.ACKNOWLEDGED: ReleaseState.SENT,
        ReleaseEvent.OUTCOME_WITH: ReleaseState.INCLUDED,
        ReleaseEvent.OUTCOME_WITHOUT: ReleaseState.MISSED,
    },
    ReleaseState.INCLUDED: {
        ReleaseEvent.ACKNOWLEDGED: ReleaseState.INCLUDED,
        ReleaseEvent.OUTCOME_WITH: ReleaseState.INCLUDED,
    },
    ReleaseState.MISSED: {
        ReleaseEvent.ACKNOWLEDGED: ReleaseState.MISSED,
        ReleaseEvent.OUTCOME_WITHOUT: ReleaseState.MISSED,
    },
}

SYNC: Final[dict[SyncState, dict[SyncEvent, SyncState]]] = {
    SyncState.WAITING: {
        SyncEvent.RELEASE: SyncState.COLLECTING,
        SyncEvent.DEADLINE_SHORT: SyncState.SKIPPED,  # nobody came, and a later sync has begun
    },
    SyncState.COLLECTING: {
        SyncEvent.RELEASE: SyncState.COLLECTING,
        SyncEvent.COMPLETE: SyncState.CLOSED,
        SyncEvent.DEADLINE_ENOUGH: SyncState.CLOSED,
        SyncEvent.DEADLINE_SHORT: SyncState.SKIPPED,
    },
    # A late release changes nothing: no old sync is ever reopened.
    SyncState.CLOSED: {SyncEvent.RELEASE: SyncState.CLOSED, SyncEvent.ACKNOWLEDGED: SyncState.PUBLISHED},
    SyncState.SKIPPED: {
        SyncEvent.RELEASE: SyncState.SKIPPED,
        SyncEvent.ACKNOWLEDGED: SyncState.PUBLISHED,
    },
    SyncState.PUBLISHED: {
        SyncEvent.RELEASE: SyncState.PUBLISHED,
        SyncEvent.ACKNOWLEDGED: SyncState.PUBLISHED,
    },
}

State = TypeVar("State", bound=StrEnum)
Event = TypeVar("Event", bound=StrEnum)


class IllegalEvent(RuntimeError):
    """An event that cannot happen in this state."""


def advance(table: dict[State, dict[Event, State]], state: State, event: Event) -> State:
    """The state after the event; IllegalEvent if the table has no such row."""
    try:
        return table[state][event]
    except KeyError:
        raise IllegalEvent(f"{type(state).__name__} {state.value!r} does not allow {event.value!r}") from None
