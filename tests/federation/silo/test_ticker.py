"""Ticks of a silo: when the next is due, when its release leaves, how many people fit, what waits for a word."""

import copy

import numpy as np
import pytest

from fedbandit.federation.silo import book
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.silo.ticker import LOOK_AGAIN, SumsFull
from fedbandit.federation.states import ReleaseState
from fedbandit.federation.timing import COUNTED_PACE, TicksOverdue, Timing
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import clock as by_clock
from tests.federation.clocks import HandClock
from tests.federation.small import small_plan

ACTIONS = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
PLAN = small_plan(schedule=by_clock(60.0), rounds=48, visits="private")


@pytest.fixture
def hand():
    return HandClock()


def opened(tmp_path, hand, plan=PLAN, **options):
    return Silo.open(tmp_path / "s.db", plan, timing=Timing(start=1000.0), clock=hand, **options)


def come(silo, people):
    for _ in range(people):
        silo.reward(silo.decide(ACTIONS).id, 1.0)


# -- when ------------------------------------------------------------------------------------------------------


def test_the_next_tick_is_known_beforehand_until_it_is_due(tmp_path, hand):
    plan = PLAN.changed(rounds=2)
    with opened(tmp_path, hand, plan) as silo:
        waits = []
        for seconds in (0.0, 45.0, 14.5, 0.5):
            hand.pass_time(seconds)
            waits.append(silo.ticker.look_in())
        assert waits == [60.0, 15.0, 0.5, None]
        silo.tick()
        assert silo.ticker.look_in() == 60.0
        hand.pass_time(60.0)
        silo.tick()
        assert silo.ended
        assert silo.ticker.look_in() is None  # nothing comes after the last


def test_a_calendar_that_counts_knows_no_time_beforehand(tmp_path, hand):
    with opened(tmp_path, hand, small_plan()) as silo:
        assert silo.ticker.look_in() is None


def test_a_look_at_the_calendar_is_due_after_a_start_and_at_a_tick(tmp_path, hand):
    with opened(tmp_path, hand) as silo:
        assert silo.ticker.due()  # a crash may have left something to do
        silo.tick()
        assert not silo.ticker.due()
        hand.pass_time(10 * LOOK_AGAIN)
        assert not silo.ticker.due()  # nobody else counts here
        hand.pass_time(60.0)
        assert silo.ticker.due()
        assert silo.tick() == [0]
        assert not silo.ticker.due()


def test_where_others_count_too_a_look_is_due_now_and_then(tmp_path, hand, monkeypatch):
    with opened(tmp_path, hand) as silo:
        silo.tick()
        monkeypatch.setattr(type(silo.store.engine), "shared", True)
        assert not silo.ticker.due()
        hand.pass_time(0.5)
        assert not silo.ticker.due()
        hand.pass_time(0.1)
        assert silo.ticker.due()


def test_releases_of_a_counted_calendar_leave_at_whole_paces_after_their_tick(tmp_path, hand):
    with opened(tmp_path, hand, small_plan()) as silo:
        hand.pass_time(0.7 * COUNTED_PACE)
        come(silo, 5)
        assert silo.tick() == [0]
        assert silo.ticker.wait_to_send(0) == 0.0
        for seconds, wait in ((0.25, 0.75), (0.5, 0.25), (0.5, 0.75)):
            hand.pass_time(seconds * COUNTED_PACE)
            assert silo.ticker.wait_to_send(0) == pytest.approx(wait * COUNTED_PACE)
        assert silo.ticker.wait_to_send(1) == 0.0  # of a tick that this process has not seen, nothing is known
        come(silo, 5)
        assert silo.tick() == [1]
        hand.pass_time(0.5 * COUNTED_PACE)
        for sync, wait in ((0, 0.25), (1, 0.5)):  # each after its own tick, whichever came since
            assert silo.ticker.wait_to_send(sync) == pytest.approx(wait * COUNTED_PACE)


def test_what_a_killed_process_had_closed_leaves_at_whole_paces_too(tmp_path, hand, monkeypatch):
    """It left as soon as it was drawn, and drawing takes longer when many came."""

    def killed(*_, **named):
        raise KeyboardInterrupt

    with opened(tmp_path, hand, small_plan()) as silo, monkeypatch.context() as patched:
        come(silo, 5)
        patched.setattr(type(silo.store), "draw", killed)
        with pytest.raises(KeyboardInterrupt):
            silo.tick()
    with opened(tmp_path, hand, small_plan()) as silo:
        draw = silo.store.draw

        def slowly(*arguments, **named):
            hand.pass_time(0.3 * COUNTED_PACE)
            draw(*arguments, **named)

        monkeypatch.setattr(silo.store, "draw", slowly)
        assert silo.tick() == [0]
        assert silo.ticker.wait_to_send(0) == pytest.approx(0.7 * COUNTED_PACE)


# -- whom the sums hold ----------------------------------------------------------------------------------------


def with_people(silo, sync, people):
    with silo.store.engine.transaction() as sql:
        sql.all("UPDATE releases SET users = ? WHERE sync = ?", (people, sync))


@pytest.fixture
def narrow():
    return Plan(2, 4, 2, Privacy(1.0, 1e-5), "silo", "batches", by_clock(60.0))


@pytest.mark.parametrize("drawn", [1, 2])
def test_people_of_earlier_batches_count_whoever_drew_them(tmp_path, hand, narrow, drawn):
    """A process that begins after some syncs looks up how many people they had."""
    with opened(tmp_path, hand, narrow) as silo:
        for _ in range(drawn):
            hand.pass_time(60.0)
            silo.tick()
        with_people(silo, 0, narrow.capacity // 2)
    with opened(tmp_path, hand, narrow) as silo:
        come(silo, 1)
        hand.pass_time(60.0)
        with pytest.raises(SumsFull):
            silo.tick()


def test_people_of_a_batch_that_another_worker_drew_count(tmp_path, hand, narrow):
    with opened(tmp_path, hand, narrow) as silo:
        hand.pass_time(60.0)
        assert silo.tick() == [0]
        other = copy.copy(silo.ticker)
        hand.pass_time(60.0)
        assert other.release() == [1]
        with_people(silo, 1, narrow.capacity // 2)
        come(silo, 1)
        hand.pass_time(60.0)
        with pytest.raises(SumsFull):
            silo.tick()


def test_the_first_batch_may_fill_the_sums_and_no_more(tmp_path, hand, narrow, monkeypatch):
    with opened(tmp_path, hand, narrow) as silo:
        come(silo, 3)
        hand.pass_time(60.0)
        monkeypatch.setattr(silo.ticker, "_capacity", 2)
        with pytest.raises(SumsFull):
            silo.tick()
        assert silo.ticker.due()  # a batch is closed and not drawn
        monkeypatch.setattr(silo.ticker, "_capacity", 3)
        assert silo.tick() == [0]
        come(silo, 1)
        hand.pass_time(60.0)
        with pytest.raises(SumsFull, match=r"would hold 4 people,"):
            silo.tick()


def test_without_an_end_a_release_holds_the_last_batches_and_no_more(tmp_path, hand, narrow):
    plan = narrow.changed(endless=True, forget=0.5, mechanism="toeplitz")
    touches = plan.encoder.touches
    with opened(tmp_path, hand, plan) as silo:
        for sync in range(touches + 2):
            hand.pass_time(60.0)
            assert silo.tick() == [sync]
        with_people(silo, 1, plan.capacity // 2)  # the next release has the batches from 2 on
        come(silo, 1)
        hand.pass_time(60.0)
        assert silo.tick() == [touches + 2]
        with_people(silo, 3, plan.capacity // 2)
        come(silo, 1)
        hand.pass_time(60.0)
        with pytest.raises(SumsFull):
            silo.tick()


# -- who else draws, and who may not ---------------------------------------------------------------------------


class Word:
    """What the others say: until when the silo takes part, and whether it may draw; and what it shows them."""

    def __init__(self, until=10**6, held=None):
        self.until, self.held, self.shown = until, held, []

    def takes_part(self, sync):
        return sync < self.until

    def at_once(self, sync, message, ledger):
        self.shown.append((sync, ledger))


def test_batches_of_a_silo_that_was_dismissed_stay_open(tmp_path, hand, monkeypatch):
    with opened(tmp_path, hand) as silo:
        monkeypatch.setattr(silo.ticker, "_sealer", Word(until=2))
        hand.pass_time(60.0)
        assert silo.tick() == [0]
        hand.pass_time(120.0)
        assert silo.tick() == [1]
        assert silo.ticker.open_sync == 2
        assert silo.store.release(1, 2) is None


def test_nothing_is_drawn_before_the_others_have_said_how_far_they_saw_the_silo_come(tmp_path, hand, monkeypatch):
    with opened(tmp_path, hand) as silo:
        word = Word(held="unasked")
        monkeypatch.setattr(silo.ticker, "_sealer", word)
        hand.pass_time(60.0)
        assert silo.tick() == []
        assert silo.store.in_state(1, ReleaseState.CLOSED) == [0]
        assert silo.store.ledger() == []
        word.held = None
        assert silo.tick() == [0]
        assert len(silo.store.ledger()) == 1


def test_each_release_shows_the_ledger_with_its_own_entry(tmp_path, hand, monkeypatch):
    with opened(tmp_path, hand) as silo:
        word = Word()
        monkeypatch.setattr(silo.ticker, "_sealer", word)
        for sync in range(3):
            hand.pass_time(60.0)
            assert silo.tick() == [sync]
            assert word.shown[-1] == (sync, book.head(silo.store.last_entry()))
            assert word.shown[-1][1].length == sync + 1


@pytest.mark.parametrize("sees", [True, False], ids=["before drawing", "at the disk"])
def test_what_another_worker_has_drawn_is_not_drawn_again(tmp_path, hand, monkeypatch, sees):
    """Both took themselves for the leader, and the other was faster: before this one looks, or while it draws."""
    with opened(tmp_path, hand) as silo:
        hand.pass_time(60.0)
        assert silo.tick() == [0]
        drawn = silo.store.release(1, 0)
        monkeypatch.setattr(silo.store, "in_state", lambda term, state: [0])
        if not sees:
            monkeypatch.setattr(silo.store, "encoder", lambda term: None)
        assert silo.tick() == []
        assert silo.store.release(1, 0) == drawn
        assert len(silo.store.ledger()) == 1


def test_after_a_release_the_files_are_clear_unless_raw_rows_are_kept(tmp_path, hand, monkeypatch):
    with opened(tmp_path, hand) as silo:
        for cleared in (True, False):  # False: a reader is in the way
            monkeypatch.setattr(silo.store.engine, "forget", lambda cleared=cleared: cleared)
            assert silo.ticker.tidy() is cleared
        monkeypatch.setattr(silo.ticker, "_keep_raw", True)
        assert silo.ticker.tidy()  # there is nothing to clear


# -- what waits for a word -------------------------------------------------------------------------------------


def test_a_process_that_saw_one_tick_pass_is_believed_afterwards(tmp_path, hand):
    opened(tmp_path, hand).close()
    hand.reboot()
    hand.pass_time(61.0)
    with opened(tmp_path, hand) as silo:
        assert silo.tick() == [0]
        hand.pass_time(120.0)
        assert silo.tick() == [1, 2]


def test_before_it_saw_one_pass_two_are_too_many(tmp_path, hand):
    opened(tmp_path, hand).close()
    hand.reboot()
    hand.pass_time(121.0)
    with opened(tmp_path, hand) as silo, pytest.raises(TicksOverdue, match=r"^2 ticks"):
        silo.tick()


def test_a_process_that_slept_beyond_the_deadline_asks_too(tmp_path, hand):
    with opened(tmp_path, hand) as silo:
        hand.pass_time(60.0)
        assert silo.tick() == [0]
        hand.pass_time(3600.0 + 180.0)
        with pytest.raises(TicksOverdue):
            silo.tick()


@pytest.mark.parametrize("late, held", [(3600.0, False), (3601.0, True)])
def test_it_is_the_second_overdue_tick_whose_sync_must_still_be_open(tmp_path, hand, late, held):
    """The oldest may be over: one overdue tick is always drawn."""
    with opened(tmp_path, hand) as silo:
        hand.pass_time(1.0)
        silo.tick()
        hand.pass_time(119.0 + late)
        if held:
            with pytest.raises(TicksOverdue):
                silo.tick()
        else:
            assert silo.tick()[:2] == [0, 1]


def test_a_word_that_the_clock_is_right_lasts_until_the_ticks_are_drawn_and_no_longer(tmp_path, hand):
    opened(tmp_path, hand).close()
    hand.reboot()
    hand.pass_time(121.0)
    with opened(tmp_path, hand, catch_up=True) as silo:
        silo.status()  # a look is no draw
        assert silo.status()["held"] is None
        assert silo.tick() == [0, 1]
        assert silo.tick() == []
        hand.pass_time(3600.0 + 180.0)
        with pytest.raises(TicksOverdue):
            silo.tick()


def test_a_look_at_two_overdue_ticks_does_not_use_the_word_up(tmp_path, hand):
    plan = PLAN.changed(schedule=by_clock(7200.0))
    opened(tmp_path, hand, plan).close()
    hand.reboot()
    hand.pass_time(2 * 7200.0 + 3601.0)  # the second is late as well
    with opened(tmp_path, hand, plan) as silo:
        assert silo.status()["held"] is not None
    with opened(tmp_path, hand, plan, catch_up=True) as silo:
        for _ in range(2):
            assert silo.status()["held"] is None
        assert silo.tick() == [0, 1]
