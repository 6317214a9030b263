"""The lives of a decision, of a release and of a sync, as tables; no socket and no database in here.

Whatever is killed and restarted, a thing's state is what is on disk. Every pair of a state and an event is decided on
purpose: it leads to another state; or to the same one, because it repeats (a network delivers twice, a client retries)
or comes at an odd time and changes nothing; or it is REFUSED, a bug or an attack, and raises.
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
    LEFT_OUT = "left out"  # its user came too often or too soon; it stays in the silo, and never counts
    KEPT = "kept"  # its user has opted out; it stays in the silo, and never counts
    RELEASED = "released"  # its batch was released; raw values are deleted
    EXPIRED = "expired"


class DecisionEvent(StrEnum):
    REWARD = "reward"
    REWARD_OVER_CAP = "reward over the cap"
    REWARD_UNSHARED = "reward of somebody who opted out"
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
    GIVEN_UP = "given up"  # drawn by a store that is lost, and seen by others: spent, and not drawn again

    @property
    def settled(self) -> bool:
        """Whether nothing more can come of the release."""
        return self in (ReleaseState.INCLUDED, ReleaseState.MISSED, ReleaseState.GIVEN_UP)


class ReleaseEvent(StrEnum):
    TICK = "tick"
    DRAW = "draw"
    SEAL = "seal"
    ACKNOWLEDGED = "acknowledged by the broker"
    OUTCOME_WITH = "outcome with this silo"
    OUTCOME_WITHOUT = "outcome without this silo"
    SEEN_ELSEWHERE = "others have seen a release that is not in this store"


class SyncState(StrEnum):
    WAITING = "waiting"  # no release has come
    COLLECTING = "collecting"  # the first has come, the deadline runs
    CLOSED = "closed"  # the cohort is fixed and its result is on disk
    SKIPPED = "skipped"  # deadline with less than the smallest cohort: nothing was computed, nothing will be
    PUBLISHED = "published"
    GIVEN_UP = "given up"  # its result is not in this store, but others have seen one: there will be no second

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
    SEEN_ELSEWHERE = "others have seen a result that is not in this store"


_D, _DE, _R, _RE, _S, _SE = DecisionState, DecisionEvent, ReleaseState, ReleaseEvent, SyncState, SyncEvent
REFUSED: Final = None  # the event cannot happen in this state: a bug, or an attack

DECISION: Final[dict[DecisionState, dict[DecisionEvent, DecisionState | None]]] = {
    _D.ISSUED: {
        _DE.REWARD: _D.COUNTED,
        _DE.REWARD_OVER_CAP: _D.LEFT_OUT,
        _DE.REWARD_UNSHARED: _D.KEPT,
        _DE.SAME_REWARD: REFUSED,
        _DE.RELEASE: REFUSED,
        _DE.EXPIRE: _D.EXPIRED,
    },
    _D.COUNTED: {
        _DE.REWARD: REFUSED,  # a reward counts once
        _DE.REWARD_OVER_CAP: REFUSED,
        _DE.REWARD_UNSHARED: REFUSED,
        _DE.SAME_REWARD: _D.COUNTED,
        _DE.RELEASE: _D.RELEASED,
        _DE.EXPIRE: REFUSED,
    },
    _D.LEFT_OUT: {
        _DE.REWARD: REFUSED,
        _DE.REWARD_OVER_CAP: REFUSED,
        _DE.REWARD_UNSHARED: REFUSED,
        _DE.SAME_REWARD: _D.LEFT_OUT,
        _DE.RELEASE: REFUSED,  # it is in no batch
        _DE.EXPIRE: REFUSED,
    },
    _D.KEPT: {
        _DE.REWARD: REFUSED,
        _DE.REWARD_OVER_CAP: REFUSED,
        _DE.REWARD_UNSHARED: REFUSED,
        _DE.SAME_REWARD: _D.KEPT,
        _DE.RELEASE: REFUSED,  # it is in no batch
        _DE.EXPIRE: REFUSED,
    },
    _D.RELEASED: {
        _DE.REWARD: REFUSED,
        _DE.REWARD_OVER_CAP: REFUSED,
        _DE.REWARD_UNSHARED: REFUSED,
        _DE.SAME_REWARD: _D.RELEASED,
        _DE.RELEASE: REFUSED,
        _DE.EXPIRE: REFUSED,
    },
    _D.EXPIRED: dict.fromkeys(DecisionEvent, REFUSED),
}

RELEASE: Final[dict[ReleaseState, dict[ReleaseEvent, ReleaseState | None]]] = {
    _R.OPEN: {
        _RE.TICK: _R.CLOSED,
        _RE.DRAW: REFUSED,
        _RE.SEAL: REFUSED,
        _RE.ACKNOWLEDGED: REFUSED,
        # The others' clocks are ahead. It is held against the release when that is drawn: it comes too late.
        _RE.OUTCOME_WITH: REFUSED,  # a release that was never drawn counts nowhere: this store was put back
        _RE.OUTCOME_WITHOUT: _R.OPEN,
        _RE.SEEN_ELSEWHERE: REFUSED,
    },
    _R.CLOSED: {
        _RE.TICK: REFUSED,
        _RE.DRAW: _R.DRAWN,
        _RE.SEAL: REFUSED,
        _RE.ACKNOWLEDGED: REFUSED,
        _RE.OUTCOME_WITH: REFUSED,  # as above
        _RE.OUTCOME_WITHOUT: _R.CLOSED,  # a silo that was away and has not drawn yet
        _RE.SEEN_ELSEWHERE: _R.GIVEN_UP,
    },
    _R.DRAWN: {
        _RE.TICK: REFUSED,
        _RE.DRAW: REFUSED,  # a release is drawn once
        _RE.SEAL: _R.SEALED,
        _RE.ACKNOWLEDGED: REFUSED,
        _RE.OUTCOME_WITH: REFUSED,  # nothing of it was ever sent
        _RE.OUTCOME_WITHOUT: _R.MISSED,
        _RE.SEEN_ELSEWHERE: REFUSED,
    },
    _R.SEALED: {
        _RE.TICK: REFUSED,
        _RE.DRAW: REFUSED,
        _RE.SEAL: REFUSED,  # the bytes are fixed
        _RE.ACKNOWLEDGED: _R.SENT,
        # An acknowledgement can be lost although the broker has the bytes.
        _RE.OUTCOME_WITH: _R.INCLUDED,
        _RE.OUTCOME_WITHOUT: _R.MISSED,
        _RE.SEEN_ELSEWHERE: REFUSED,
    },
    _R.SENT: {
        _RE.TICK: REFUSED,
        _RE.DRAW: REFUSED,
        _RE.SEAL: REFUSED,
        _RE.ACKNOWLEDGED: _R.SENT,
        _RE.OUTCOME_WITH: _R.INCLUDED,
        _RE.OUTCOME_WITHOUT: _R.MISSED,
        _RE.SEEN_ELSEWHERE: REFUSED,
    },
    _R.INCLUDED: {
        _RE.TICK: REFUSED,
        _RE.DRAW: REFUSED,
        _RE.SEAL: REFUSED,
        _RE.ACKNOWLEDGED: _R.INCLUDED,
        _RE.OUTCOME_WITH: _R.INCLUDED,
        _RE.OUTCOME_WITHOUT: REFUSED,  # there is one outcome
        _RE.SEEN_ELSEWHERE: REFUSED,
    },
    _R.MISSED: {
        _RE.TICK: REFUSED,
        _RE.DRAW: REFUSED,
        _RE.SEAL: _R.MISSED,  # its sync was over before its message could be made: it needs none any more
        _RE.ACKNOWLEDGED: _R.MISSED,
        _RE.OUTCOME_WITH: REFUSED,
        _RE.OUTCOME_WITHOUT: _R.MISSED,
        _RE.SEEN_ELSEWHERE: REFUSED,
    },
    _R.GIVEN_UP: {
        _RE.TICK: REFUSED,
        _RE.DRAW: REFUSED,
        _RE.SEAL: REFUSED,
        _RE.ACKNOWLEDGED: REFUSED,
        # The store that is lost may have sent it in time or not: both change nothing here.
        _RE.OUTCOME_WITH: _R.GIVEN_UP,
        _RE.OUTCOME_WITHOUT: _R.GIVEN_UP,
        _RE.SEEN_ELSEWHERE: REFUSED,
    },
}

_OVER: Final[dict[SyncEvent, SyncState | None]] = {
    _SE.COMPLETE: REFUSED,  # a sync has one result
    _SE.DEADLINE_ENOUGH: REFUSED,
    _SE.DEADLINE_SHORT: REFUSED,
    _SE.ACKNOWLEDGED: _S.PUBLISHED,
    _SE.SEEN_ELSEWHERE: REFUSED,
}

SYNC: Final[dict[SyncState, dict[SyncEvent, SyncState | None]]] = {
    _S.WAITING: {
        _SE.RELEASE: _S.COLLECTING,
        _SE.COMPLETE: REFUSED,
        _SE.DEADLINE_ENOUGH: REFUSED,
        _SE.DEADLINE_SHORT: _S.SKIPPED,  # nobody came, and a cohort of silos is further
        _SE.ACKNOWLEDGED: REFUSED,
        _SE.SEEN_ELSEWHERE: _S.GIVEN_UP,
    },
    _S.COLLECTING: {
        _SE.RELEASE: _S.COLLECTING,
        _SE.COMPLETE: _S.CLOSED,
        _SE.DEADLINE_ENOUGH: _S.CLOSED,
        _SE.DEADLINE_SHORT: _S.SKIPPED,
        _SE.ACKNOWLEDGED: REFUSED,
        _SE.SEEN_ELSEWHERE: _S.GIVEN_UP,
    },
    # A late release changes nothing: no old sync is ever reopened.
    _S.CLOSED: {_SE.RELEASE: _S.CLOSED, **_OVER},
    _S.SKIPPED: {_SE.RELEASE: _S.SKIPPED, **_OVER},
    _S.PUBLISHED: {_SE.RELEASE: _S.PUBLISHED, **_OVER},
    # There is nothing to publish: the result is where it was seen.
    _S.GIVEN_UP: {_SE.RELEASE: _S.GIVEN_UP, **_OVER, _SE.ACKNOWLEDGED: REFUSED},
}

State = TypeVar("State", bound=StrEnum)
Event = TypeVar("Event", bound=StrEnum)


class IllegalEvent(RuntimeError):
    """An event that cannot happen in this state."""


def advance(table: dict[State, dict[Event, State | None]], state: State, event: Event) -> State:
    """The state after the event; IllegalEvent if it is refused there."""
    after = table[state][event]
    if after is None:
        raise IllegalEvent(f"{type(state).__name__} {state.value!r} does not allow {event.value!r}")
    return after
