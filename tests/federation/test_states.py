"""The tables of states and events."""

import pytest

from fedbandit.federation.states import (
    DECISION,
    RELEASE,
    SYNC,
    DecisionEvent,
    DecisionState,
    IllegalEvent,
    ReleaseEvent,
    ReleaseState,
    SyncEvent,
    SyncState,
    advance,
)

TABLES = [
    (DECISION, DecisionState, DecisionEvent),
    (RELEASE, ReleaseState, ReleaseEvent),
    (SYNC, SyncState, SyncEvent),
]


@pytest.mark.parametrize("table, states, events", TABLES)
def test_every_pair_of_a_state_and_an_event_is_decided(table, states, events):
    assert set(table) == set(states)
    for state, row in table.items():
        assert set(row) == set(events), state
    assert {event for row in table.values() for event in row if row[event] is not None} == set(events)


@pytest.mark.parametrize("table, states, events", TABLES)
def test_every_state_can_be_reached_from_the_first(table, states, events):
    reached, waiting = set(), [next(iter(states))]
    while waiting:
        state = waiting.pop()
        if state not in reached:
            reached.add(state)
            waiting += [after for after in table[state].values() if after is not None]
    assert reached == set(states)


def walk(table, state, *events):
    for event in events:
        state = advance(table, state, event)
    return state


def test_the_life_of_a_release():
    e = ReleaseEvent
    usual = (e.TICK, e.DRAW, e.SEAL, e.ACKNOWLEDGED, e.OUTCOME_WITH)
    assert walk(RELEASE, ReleaseState.OPEN, *usual) is ReleaseState.INCLUDED
    assert walk(RELEASE, ReleaseState.OPEN, e.TICK, e.DRAW, e.OUTCOME_WITHOUT) is ReleaseState.MISSED


def test_a_release_is_drawn_once_and_sealed_once():
    for state in ReleaseState:
        if state is not ReleaseState.CLOSED:
            with pytest.raises(IllegalEvent):
                advance(RELEASE, state, ReleaseEvent.DRAW)
        if state not in (ReleaseState.DRAWN, ReleaseState.MISSED):
            with pytest.raises(IllegalEvent):
                advance(RELEASE, state, ReleaseEvent.SEAL)
    assert advance(RELEASE, ReleaseState.MISSED, ReleaseEvent.SEAL) is ReleaseState.MISSED  # its sync is over


def test_nothing_is_sent_before_it_is_sealed():
    for state in (ReleaseState.OPEN, ReleaseState.CLOSED, ReleaseState.DRAWN):
        with pytest.raises(IllegalEvent):
            advance(RELEASE, state, ReleaseEvent.ACKNOWLEDGED)


def test_a_model_that_comes_before_the_release_is_drawn_changes_nothing():
    for state in (ReleaseState.OPEN, ReleaseState.CLOSED):
        assert advance(RELEASE, state, ReleaseEvent.OUTCOME_WITHOUT) is state
        with pytest.raises(IllegalEvent):
            advance(RELEASE, state, ReleaseEvent.OUTCOME_WITH)


def test_an_outcome_is_final():
    with pytest.raises(IllegalEvent):
        advance(RELEASE, ReleaseState.MISSED, ReleaseEvent.OUTCOME_WITH)
    with pytest.raises(IllegalEvent):
        advance(RELEASE, ReleaseState.INCLUDED, ReleaseEvent.OUTCOME_WITHOUT)


def test_no_sync_is_reopened():
    for state in (SyncState.CLOSED, SyncState.SKIPPED, SyncState.PUBLISHED):
        assert advance(SYNC, state, SyncEvent.RELEASE) is state
        with pytest.raises(IllegalEvent):
            advance(SYNC, state, SyncEvent.COMPLETE)


def test_a_reward_counts_once():
    counted = advance(DECISION, DecisionState.ISSUED, DecisionEvent.REWARD)
    with pytest.raises(IllegalEvent):
        advance(DECISION, counted, DecisionEvent.REWARD)
    assert advance(DECISION, counted, DecisionEvent.SAME_REWARD) is counted
