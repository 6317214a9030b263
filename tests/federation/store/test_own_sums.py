"""What never leaves a silo, on both databases: kept with the reward or not at all, and in no batch."""

import numpy as np
import pytest

from fedbandit.federation.own_knowledge import summed
from fedbandit.federation.states import DecisionState
from fedbandit.federation.store import Reward, SiloStore, own_sums
from fedbandit.federation.store.own_sums import NO_SUMS, PartSums
from fedbandit.federation.store.rewards import NOWHERE, OPEN_BATCH, UNSHARED
from tests.federation.small import small_plan

PLAN = small_plan()
FEATURES = np.array([0.6, 0.8]).tobytes()


@pytest.fixture
def silo(engine):
    store = SiloStore(engine)
    store.begin_term("plan-1", "{}", 100.0)
    return store


def reward(number, value=0.5, person=None, place=OPEN_BATCH):
    return Reward(bytes([number] * 12), person, FEATURES, value, bytes([number, int(value * 100)]), place)


def adding(rows):
    return summed(PLAN, rows)


def count(store, *rewards, cap=1):
    return store.count(1, rewards, cap=cap, syncs=4, adding=adding)


def expected(*values):
    return summed(PLAN, [(FEATURES, value) for value in values])


def test_rewards_that_stay_are_in_the_sums_and_in_no_batch(silo):
    verdicts = count(silo, reward(1, 0.25, place=UNSHARED), reward(2, 0.5, b"a"), reward(3, 0.75, b"a"))
    assert [verdict.state for verdict in verdicts] == [
        *(DecisionState.KEPT, DecisionState.COUNTED, DecisionState.LEFT_OUT)
    ]
    assert [verdict.stays for verdict in verdicts] == [True, False, True]
    assert [verdict.last for verdict in verdicts] == [False, True, False]
    assert [row.reward for row in silo.batch(1, 0)] == [0.5]
    assert silo.own(1)[0] == {UNSHARED: expected(0.25), NOWHERE: expected(0.75)}


def test_repeats_and_conflicts_add_nothing(silo):
    for _ in range(3):
        (same, other) = count(silo, reward(1, 0.25, place=UNSHARED), reward(1, 0.5, place=UNSHARED))
        assert (same.state, other.conflict) == (DecisionState.KEPT, True)
        assert not other.stays
    assert silo.own(1)[0] == {UNSHARED: expected(0.25)}


def test_sums_add_up_over_transactions(silo):
    values = [number / 64 for number in range(20)]
    for number, value in enumerate(values, 1):
        count(silo, reward(number, value, place=UNSHARED))
    found, whole = silo.own(1)[0][UNSHARED], expected(*values)
    assert (found.visits, found.value) == (whole.visits, whole.value)
    assert found.squares == pytest.approx(whole.squares)


def test_a_transaction_that_fails_keeps_nothing(silo, monkeypatch):
    def fails(*asked):
        raise OSError("the disk is full")

    monkeypatch.setattr(own_sums, "put", fails)
    with pytest.raises(OSError, match="full"):
        count(silo, reward(1, place=UNSHARED), reward(2))
    monkeypatch.undo()
    assert silo.own(1)[0] == {}
    assert silo.batch(1, 0) == []
    assert not count(silo, reward(1, place=UNSHARED))[0].repeated


def test_whoever_has_opted_out_counts_no_more(silo):
    assert silo.apart(1, cap=2) == (set(), set())
    count(silo, reward(1, person=b"a"), cap=2)
    silo.opt_out(1, [b"a"])
    silo.opt_out(1, [b"a"])
    assert silo.apart(1, cap=2) == ({b"a"}, set())
    (verdict,) = count(silo, reward(2, person=b"a"), cap=2)
    assert verdict.state is DecisionState.LEFT_OUT
    assert len(silo.batch(1, 0)) == 1


def test_no_cap_is_so_large_that_it_counts_somebody_who_opted_out(silo):
    silo.opt_out(1, [b"a"])
    (verdict,) = count(silo, reward(1, person=b"a"), cap=10**9)
    assert verdict.state is DecisionState.LEFT_OUT


def test_only_the_last_visit_that_counts_is_the_last(silo):
    verdicts = count(silo, reward(1, person=b"a"), reward(2, person=b"a", place=UNSHARED), reward(3), cap=2)
    assert [verdict.last for verdict in verdicts] == [False, False, False]
    assert not count(silo, reward(1, person=b"a"), cap=2)[0].last  # it had come before
    assert count(silo, reward(4, person=b"a"), cap=2)[0].last
    assert not count(silo, reward(5, person=b"a"), cap=2)[0].last  # over the cap


def test_a_place_after_the_last_batch_is_in_none(silo):
    """Who asks when all places of a calendar are taken has one beyond it."""
    before, after = count(silo, reward(1, place=3), reward(2, place=4))
    assert (before.state, after.state) == (DecisionState.COUNTED, DecisionState.LEFT_OUT)


def test_each_row_of_a_batch_has_its_own_features(silo):
    features = [np.array([0.6, number / 10]).tobytes() for number in range(4)]
    count(silo, *(reward(number, number / 10)._replace(features=one) for number, one in enumerate(features)))
    assert sorted(silo.batch(1, 0), key=lambda row: row.reward) == [(one, n / 10) for n, one in enumerate(features)]


def test_whoever_has_counted_as_often_as_they_may_is_apart(silo):
    first, last = count(silo, reward(1, person=b"a"), reward(2, person=b"a"), cap=2)
    assert (first.last, last.last) == (False, True)
    count(silo, reward(3, person=b"b"), cap=2)
    assert silo.apart(1, cap=2) == ({b"a"}, set())


def test_a_batch_that_is_released_leaves_its_sums(silo):
    count(silo, reward(1, 0.25), reward(2, 0.75))
    parts, waiting = silo.own(1)
    assert parts == {}
    assert sorted(row.reward for row in waiting) == [0.25, 0.75]
    silo.tick(1, 0, 0, lambda seated: 1, at=100.0, clock=("a clock", b""))
    count(silo, reward(3, 1.0))
    silo.draw(1, 0, b"drawn", b"encoder", None, keep_raw=True, own=expected(0.25, 0.75))
    parts, waiting = silo.own(1)
    assert parts == {0: expected(0.25, 0.75)}
    assert [row.reward for row in waiting] == [1.0]


def test_a_new_term_knows_nobody_but_who_is_out_for_good(silo):
    count(silo, reward(1, place=UNSHARED), reward(2, person=b"c"))
    silo.opt_out(1, [b"a"])
    silo.opt_out(1, [b"b"], for_good=True)
    assert silo.apart(1, cap=1) == ({b"a", b"b", b"c"}, {b"b"})
    silo.begin_term("plan-2", "{}", 200.0)
    for term in (1, 2):
        assert silo.own(term) == ({}, [])
        assert silo.apart(term, cap=1) == ({b"b"}, {b"b"})
    out, back = (silo.count(2, [reward(n, person=who)], cap=1, syncs=4)[0] for n, who in ((3, b"b"), (4, b"a")))
    assert (out.state, back.state) == (DecisionState.LEFT_OUT, DecisionState.COUNTED)


def test_sums_without_values_are_numbers_of_visits():
    public = small_plan(uncounted="public")
    assert summed(public, [(FEATURES, 0.5)] * 3) == PartSums(3, 0.0, b"")
    assert NO_SUMS.plus(PartSums(3, 0.0, b"")).plus(NO_SUMS) == PartSums(3, 0.0, b"")
