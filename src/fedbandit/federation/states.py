"""The lives of a decision, of a release and of a sync, as tables without sockets or databases.

Whatever is killed and restarted, the state of each is what is on disk. The tables decide every pair of a state and an
event. An event leads to another state; or it changes nothing, because it is a repetition (a network delivers twice, a
client retries) or comes at an odd time; or it is REFUSED, a bug or an attack, and raises.
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
    ISSUED = "issued"  # the caller has it; the silo stores nothing of it
    COUNTED = "counted"  # its reward is in the open batch
    LEFT_OUT = "left out"  # its user came too often or too soon; its data stay in the silo and never count
    KEPT = "kept"  # its user has opted out; its data stay in the silo and never count
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
    CLOSED = "closed"  # the tick has passed; no more rewards enter
    DRAWN = "drawn"  # noise is drawn and budget spent, on disk, in one transaction
    SEALED = "sealed"  # the bytes to be sent are on disk; no others are ever sent
    SENT = "sent"  # the broker has the bytes
    INCLUDED = "included"  # the outcome of the sync includes this silo
    MISSED = "missed"  # the outcome of the sync does not include this silo; the release is never used
    GIVEN_UP = "given up"  # spent; the store that drew it, or the outcome of its sync, was lost: nothing comes of it

    @property
    def settled(self) -> bool:
        """Whether the fate of the release is final."""
        return self in (ReleaseState.INCLUDED, ReleaseState.MISSED, ReleaseState.GIVEN_UP)


class ReleaseEvent(StrEnum):
    TICK = "tick"
    DRAW = "draw"
    SEAL = "seal"
    ACKNOWLEDGED = "acknowledged by the broker"
    OUTCOME_WITH = "outcome with this silo"
    OUTCOME_WITHOUT = "outcome without this silo"
    SEEN_ELSEWHERE = "others have seen a release that is not in this store"
    NO_OUTCOME = "the analyzer has lost the outcome, and there will be no other"


class SyncState(StrEnum):
    WAITING = "waiting"  # no release has come
    COLLECTING = "collecting"  # the first release has come, and the deadline is running
    CLOSED = "closed"  # the cohort is fixed, and its result is on disk
    SKIPPED = "skipped"  # too few silos at the deadline: nothing was or will be computed
    PUBLISHED = "published"
    GIVEN_UP = "given up"  # others have seen a result that is not in this store: there will be no second one

    @property
    def final(self) -> bool:
        """Whether the sync has its final result."""
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
        # An outcome before the tick: the others' clocks are ahead, and the release, when it is drawn, comes too late.
        _RE.OUTCOME_WITH: REFUSED,  # it includes a release that was never drawn here: this store is an old copy
        _RE.OUTCOME_WITHOUT: _R.OPEN,
        _RE.SEEN_ELSEWHERE: REFUSED,
        _RE.NO_OUTCOME: _R.OPEN,  # nobody has asked yet: when it is sent, the analyzer says so again
    },
    _R.CLOSED: {
        _RE.TICK: REFUSED,
        _RE.DRAW: _R.DRAWN,
        _RE.SEAL: REFUSED,
        _RE.ACKNOWLEDGED: REFUSED,
        _RE.OUTCOME_WITH: REFUSED,  # as above
        _RE.OUTCOME_WITHOUT: _R.CLOSED,  # this silo was away and has not drawn yet
        _RE.SEEN_ELSEWHERE: _R.GIVEN_UP,
        _RE.NO_OUTCOME: _R.CLOSED,  # as above
    },
    _R.DRAWN: {
        _RE.TICK: REFUSED,
        _RE.DRAW: REFUSED,  # a release is drawn once
        _RE.SEAL: _R.SEALED,
        _RE.ACKNOWLEDGED: REFUSED,
        _RE.OUTCOME_WITH: REFUSED,  # it was never sent
        _RE.OUTCOME_WITHOUT: _R.MISSED,
        _RE.SEEN_ELSEWHERE: REFUSED,
        _RE.NO_OUTCOME: _R.DRAWN,  # as above
    },
    _R.SEALED: {
        _RE.TICK: REFUSED,
        _RE.DRAW: REFUSED,
        _RE.SEAL: REFUSED,  # the bytes are fixed
        _RE.ACKNOWLEDGED: _R.SENT,
        # The broker's acknowledgement may have been lost.
        _RE.OUTCOME_WITH: _R.INCLUDED,
        _RE.OUTCOME_WITHOUT: _R.MISSED,
        _RE.SEEN_ELSEWHERE: REFUSED,
        _RE.NO_OUTCOME: _R.GIVEN_UP,
    },
    _R.SENT: {
        _RE.TICK: REFUSED,
        _RE.DRAW: REFUSED,
        _RE.SEAL: REFUSED,
        _RE.ACKNOWLEDGED: _R.SENT,
        _RE.OUTCOME_WITH: _R.INCLUDED,
        _RE.OUTCOME_WITHOUT: _R.MISSED,
        _RE.SEEN_ELSEWHERE: REFUSED,
        _RE.NO_OUTCOME: _R.GIVEN_UP,
    },
    _R.INCLUDED: {
        _RE.TICK: REFUSED,
        _RE.DRAW: REFUSED,
        _RE.SEAL: REFUSED,
        _RE.ACKNOWLEDGED: _R.INCLUDED,
        _RE.OUTCOME_WITH: _R.INCLUDED,
        _RE.OUTCOME_WITHOUT: REFUSED,  # there is only one outcome
        _RE.SEEN_ELSEWHERE: REFUSED,
        _RE.NO_OUTCOME: _R.INCLUDED,
    },
    _R.MISSED: {
        _RE.TICK: REFUSED,
        _RE.DRAW: REFUSED,
        _RE.SEAL: _R.MISSED,  # its sync ended before its message was made, which is no longer needed
        _RE.ACKNOWLEDGED: _R.MISSED,
        _RE.OUTCOME_WITH: REFUSED,
        _RE.OUTCOME_WITHOUT: _R.MISSED,
        _RE.SEEN_ELSEWHERE: REFUSED,
        _RE.NO_OUTCOME: _R.MISSED,
    },
    _R.GIVEN_UP: {
        _RE.TICK: REFUSED,
        _RE.DRAW: REFUSED,
        _RE.SEAL: REFUSED,
        _RE.ACKNOWLEDGED: _R.GIVEN_UP,  # it was on its way again when the analyzer said that the outcome is lost
        # The lost store may or may not have sent it in time, or the outcome that the analyzer lost was on its way: the
        # models after it leave the release out.
        _RE.OUTCOME_WITH: _R.GIVEN_UP,
        _RE.OUTCOME_WITHOUT: _R.GIVEN_UP,
        _RE.SEEN_ELSEWHERE: REFUSED,
        _RE.NO_OUTCOME: _R.GIVEN_UP,
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
        _SE.DEADLINE_SHORT: _S.SKIPPED,  # nobody came for this sync, but a cohort of silos is further
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
    # There is nothing to publish: others have the result.
    _S.GIVEN_UP: {_SE.RELEASE: _S.GIVEN_UP, **_OVER, _SE.ACKNOWLEDGED: REFUSED},
}

State = TypeVar("State", bound=StrEnum)
Event = TypeVar("Event", bound=StrEnum)


class IllegalEvent(RuntimeError):
    """An event that cannot happen in this state."""


def advance(table: dict[State, dict[Event, State | None]], state: State, event: Event) -> State:
    """The state after the event; IllegalEvent if the event is refused in this state."""
    after = table[state][event]
    if after is None:
        raise IllegalEvent(f"{type(state).__name__} {state.value!r} does not allow {event.value!r}")
    return after
