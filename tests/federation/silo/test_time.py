"""Ticks by the public clock, clocks that are wrong, and calendars that count."""

import time
from dataclasses import replace

import numpy as np
import pytest

from fedbandit.federation.setup.agreement import check_live
from fedbandit.federation.silo.decisions.tickets import DecisionExpired
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.timing import (
    ClockJumped,
    Counted,
    MachineClocks,
    Reading,
    SteadyClock,
    TicksOverdue,
    Timed,
    Timing,
)
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.protocol.guarantee import PUBLIC_VISITS
from fedbandit.schedule import clock as by_clock
from fedbandit.schedule import every, growing
from tests.federation.clocks import HandClock
from tests.federation.small import small_plan

ACTIONS = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
PLAN = small_plan(schedule=by_clock(60.0), rounds=48, visits="private")


def opened(tmp_path, clock, plan=PLAN, **options):
    return Silo.open(tmp_path / "s.db", plan, timing=Timing(start=1000.0), clock=clock, **options)


# -- ticks -----------------------------------------------------------------------------------------------------


def test_by_the_clock_and_only_once(tmp_path):
    clock = HandClock()
    with opened(tmp_path, clock) as silo:
        assert silo.tick() == []
        clock.pass_time(60.0)
        assert silo.tick() == [0]
        assert silo.tick() == []
        clock.pass_time(240.0)
        assert silo.tick() == [1, 2, 3, 4]  # a process that was stopped for a while; their syncs can still be open


def test_a_growing_clock_ticks_ever_more_rarely(tmp_path):
    clock = HandClock()
    plan = small_plan(schedule=by_clock(60.0, ratio=2), rounds=10, visits="private")
    assert plan.times == (1, 2, 4, 8, 10)
    ticks = {}
    with opened(tmp_path, clock, plan) as silo:
        for minute in range(1, 12):
            clock.pass_time(60.0)
            ticks[minute] = silo.tick()
        assert silo.ended
    assert {minute: done for minute, done in ticks.items() if done} == {1: [0], 2: [1], 4: [2], 8: [3], 10: [4]}


def test_who_asks_moves_nothing_on_a_clock(tmp_path):
    """A calendar that counts requests shifted every later batch by one person's extra request."""
    batches = []
    for extra in (0, 3):
        clock = HandClock()
        (tmp_path / str(extra)).mkdir()
        with opened(tmp_path / str(extra), clock) as silo:
            for _ in range(extra):
                silo.decide(ACTIONS, user="alice")
            for number in range(12):
                clock.pass_time(20.0)
                silo.tick()
                silo.reward(silo.decide(ACTIONS, user=f"user {number}").id, 0.5)
            clock.pass_time(60.0)
            silo.tick()
            batches.append([release.users for release in silo.store.releases(1)])
    assert batches[0] == batches[1]


def test_settling_is_counted_from_the_public_time(tmp_path):
    clock = HandClock()
    timing = Timing(start=1000.0, settle=5.0)
    with Silo.open(tmp_path / "s.db", PLAN, timing=timing, clock=clock) as silo:
        clock.pass_time(64.0)
        assert silo.tick() == []
        clock.pass_time(1.0)
        assert silo.tick() == [0]


@pytest.mark.parametrize("people", [0, 5])
def test_releases_leave_at_fixed_moments_however_many_people_came(tmp_path, people):
    clock = HandClock()
    with opened(tmp_path, clock) as silo:
        for number in range(people):
            silo.reward(silo.decide(ACTIONS, user=str(number)).id, 0.5)
        clock.pass_time(60.0)
        silo.tick()
        clock.pass_time(0.01 + 0.03 * people)  # drawing takes longer when many came
        assert clock.wall + silo.ticker.wait_to_send(0) == pytest.approx(1060.6)  # a pace is a hundredth of the period


def test_every_batch_ends_where_the_calendar_says():
    hand = HandClock(0.0)
    steady = SteadyClock(hand)
    counted = Counted(every(5).times(12), Timing())
    assert [counted.due(n, steady) for n in (0, 4, 5, 9, 10, 11, 12, 99)] == [0, 0, 1, 1, 2, 2, 3, 3]
    timed, found = Timed(100.0, 10.0, (1, 2, 4), Timing(settle_last=1.0)), []
    for now in (0.0, 100.0, 109.9, 110.0, 120.0, 130.0, 140.0, 141.0):
        hand.pass_time(now - hand.wall)
        found.append(timed.due(0, steady))
    assert found == [0, 0, 0, 1, 2, 2, 2, 3]


# -- clocks that are wrong -------------------------------------------------------------------------------------


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
def test_a_clock_that_jumps_is_not_believed(tmp_path, jump):
    clock = HandClock()
    with opened(tmp_path, clock) as silo:
        clock.pass_time(61.0)
        clock.set_to(1061.0 + jump)
        with pytest.raises(ClockJumped, match="jumped"):
            silo.tick()
        assert silo.store.releases(1) == []
        assert silo.decide(ACTIONS).action in range(3)
        assert "jumped" in silo.status()["held"]
        clock.set_to(1061.0)
        assert silo.tick() == [0]
        assert silo.status()["held"] is None


def test_starting_again_does_not_make_a_wrong_clock_right(tmp_path):
    """A restart with the clock a day ahead drew all 48 releases of the term."""
    clock = HandClock()
    with opened(tmp_path, clock) as silo:
        clock.pass_time(60.0)
        assert silo.tick() == [0]
    clock.set_to(clock.wall + 86_400.0)
    with opened(tmp_path, clock) as silo:
        with pytest.raises(ClockJumped):
            silo.tick()
        assert len(silo.store.ledger()) == 1
    clock.set_to(clock.wall - 86_400.0)
    clock.pass_time(60.0)
    with opened(tmp_path, clock) as silo:
        assert silo.tick() == [1]


def test_after_a_reboot_many_overdue_ticks_are_not_drawn_without_a_word(tmp_path):
    clock = HandClock()
    with opened(tmp_path, clock) as silo:
        clock.pass_time(60.0)
        assert silo.tick() == [0]
    clock.reboot()
    clock.set_to(clock.wall + 86_400.0)
    with opened(tmp_path, clock) as silo:
        for _ in range(2):
            with pytest.raises(TicksOverdue, match="47 ticks are overdue") as held:
                silo.tick()
        assert "restart" not in str(held.value)
        assert "overdue" in silo.status()["held"]
        assert len(silo.store.ledger()) == 1
    with opened(tmp_path, clock, catch_up=True) as silo:
        assert silo.tick() == list(range(1, 48))


def test_a_silo_that_was_away_too_long_asks_before_it_spends(tmp_path):
    clock = HandClock()
    opened(tmp_path, clock).close()
    clock.pass_time(180.0)  # away for three ticks, whose syncs can still be open
    with opened(tmp_path, clock) as silo:
        assert silo.tick() == [0, 1, 2]
    clock.pass_time(3600.0 + 180.0)  # beyond the deadline of the oldest
    with opened(tmp_path, clock) as silo, pytest.raises(TicksOverdue):
        silo.tick()


def test_one_overdue_tick_after_a_reboot_is_drawn(tmp_path):
    clock = HandClock()
    opened(tmp_path, clock).close()
    clock.reboot()
    clock.pass_time(61.0)
    with opened(tmp_path, clock) as silo:
        assert silo.tick() == [0]


def test_the_machines_own_clocks():
    before, after = MachineClocks().read(), MachineClocks().read()
    assert before.boot == after.boot
    assert before.steady <= after.steady
    assert abs(after.wall - time.time()) < 5


# -- calendars that count --------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", [every(5), growing()], ids=str)
def test_a_counted_calendar_needs_an_explicit_word(schedule):
    counted = Plan(3, 20, 2, Privacy(1.0, 0.1), schedule=schedule)
    with pytest.raises(ValueError, match=r"schedule must be a clock.*visits"):
        check_live(counted)
    check_live(counted.changed(visits="public"))
    check_live(counted.changed(schedule=by_clock(60.0, ratio=1.1)))
    add_remove = counted.changed(privacy=Privacy(1.0, 0.1, adjacency="add-remove"))
    with pytest.raises(ValueError, match=r"schedule must be a clock.*add-remove"):
        check_live(add_remove)
    with pytest.raises(ValueError, match=r"visits must be 'private' under add-remove"):
        add_remove.changed(visits="public")
    with pytest.raises(ValueError, match="visits must be one of"):
        counted.changed(visits="whatever")


def test_public_visits_stand_in_the_guarantee_and_the_status(tmp_path):
    assert PUBLIC_VISITS in small_plan().guarantee.assumes
    assert "it is public that somebody asks, when and how often they ask" in str(small_plan().guarantee)
    assert "how often they ask, and whether they share." in str(small_plan().guarantee)
    assert PUBLIC_VISITS not in PLAN.guarantee.assumes
    with Silo.open(tmp_path / "s.db", small_plan()) as silo:
        assert silo.status()["visits"] == "public"


def test_requests_over_the_cap_and_refused_ones_move_no_calendar(tmp_path):
    with Silo.open(tmp_path / "s.db", small_plan()) as silo:
        for _ in range(20):
            silo.decide(ACTIONS, user="alice")
            with pytest.raises(ValueError, match="norm"):
                silo.decide(ACTIONS * 2)
        assert silo.tick() == []
        for number in range(4):
            silo.decide(ACTIONS, user=f"user {number}")
        assert silo.tick() == [0]
        assert silo.status()["decisions"] == 24
    with Silo.open(tmp_path / "s.db", small_plan()) as silo:
        silo.decide(ACTIONS, user="alice")  # a restart forgets nobody
        assert silo.store.term(1).seated == 5


def test_no_reward_takes_the_place_of_another(tmp_path):
    """Where batches have a planned size, rewards took the places in the order in which they came: a late reward of one
    person displaced another one at the limit."""
    plan = small_plan(trust="vector-sum", mechanism="tree", calibration="paper")

    def batches(late):
        clock = HandClock()
        folder = tmp_path / late
        folder.mkdir()
        found = {}
        with Silo.open(folder / "s.db", plan, clock=clock) as silo:
            ids = [silo.decide(ACTIONS, user=str(number)).id for number in range(5)]
            if late == "in time":
                found[0] = silo.reward(ids[0], 0.5)
            silo.tick()
            ids += [silo.decide(ACTIONS, user=str(number)).id for number in range(5, 10)]
            if late == "late":
                found[0] = silo.reward(ids[0], 0.5)
            for number in range(5, 10):
                found[number] = silo.reward(ids[number], 0.5)
            assert silo.tick() == [1]
        return found

    in_time, late, never = (batches(when) for when in ("in time", "late", "never"))
    assert in_time[0][:2] == (True, 0)
    assert not late[0].counted
    assert [in_time[n] for n in range(5, 10)] == [late[n] for n in range(5, 10)] == [never[n] for n in range(5, 10)]
    assert all(never[n][:2] == (True, 1) for n in range(5, 10))


def test_places_that_a_store_gives_out_twice_do_not_stop_the_silo(tmp_path):
    """A store that was put back has forgotten which places it gave out. If rewards came for both decisions of such a
    place, the batch had more people than planned, and could never be drawn."""
    plan = small_plan(trust="vector-sum", mechanism="tree", calibration="paper")
    with Silo.open(tmp_path / "s.db", plan) as silo:
        kept = [silo.decide(ACTIONS, user=f"kept {number}").id for number in range(3)]
        assert silo.reward(kept[0], 0.5).counted
    copy = (tmp_path / "s.db").read_bytes()
    with Silo.open(tmp_path / "s.db", plan) as silo:
        lost = [silo.decide(ACTIONS, user=f"lost {number}").id for number in range(3)]
    (tmp_path / "s.db").write_bytes(copy)
    with Silo.open(tmp_path / "s.db", plan) as silo:
        again = [silo.decide(ACTIONS, user=f"again {number}").id for number in range(2)]
        told = silo.reward_all([(one, 0.5) for one in (*kept[1:], *again, *lost)])
        assert [one.counted for one in told] == [True] * 4 + [False, False, True]  # the last has a place in batch 1
        assert not silo.reward(lost[0], 0.5).counted  # for good: it was judged
        assert silo.tick() == [0]
        later = [silo.decide(ACTIONS, user=f"later {number}").id for number in range(5)]
        assert [silo.reward(one, 0.5).counted for one in later] == [True] * 4 + [False]
        assert silo.tick() == [1]


def test_batches_of_a_planned_size_need_a_calendar_that_counts():
    with pytest.raises(ValueError, match="schedule must count rounds, not time, for trust 'vector-sum'"):
        small_plan(trust="vector-sum", mechanism="tree", calibration="paper", schedule=by_clock(60.0))


# -- ids -------------------------------------------------------------------------------------------------------


def test_an_id_is_good_for_the_reward_window_and_then_forgotten(tmp_path):
    clock = HandClock()
    timing = Timing(start=1000.0, reward_window=600.0)
    with Silo.open(tmp_path / "s.db", PLAN, timing=timing, clock=clock) as silo:
        decision = silo.decide(ACTIONS)
        assert silo.reward(decision.id, 0.5).counted
        clock.pass_time(60.0)
        silo.tick()
        clock.pass_time(500.0)
        silo.tick()
        assert silo.reward(decision.id, 0.5).repeated
        clock.pass_time(200.0)
        with pytest.raises(DecisionExpired, match="has expired"):
            silo.reward(decision.id, 0.5)
        silo.ticker.tidy()
        with silo.store.engine.read() as sql:
            assert sql.all("SELECT count(*) FROM rewarded") == [(0,)]


@pytest.mark.parametrize("start", ["0", float("nan"), float("inf"), 1e300, True, [0]])
def test_a_start_is_a_time(start):
    """A federation's file says it; a text or NaN was taken, and failed at every party's first tick."""
    with pytest.raises(ValueError, match="start must be a unix time"):
        Timing(10.0, start=start)


@pytest.mark.parametrize(
    "data", [b"", b"[1.0, 2.0]", b"[1, 2, 3]", b'[NaN, 1.0, "x"]', b"{}", b"null", b"[" * 100_000, b"\xff"]
)
def test_what_is_no_reading_of_the_clocks_is_refused(data):
    with pytest.raises(ValueError, match="clock"):
        Reading.decode(data)


def test_a_clock_that_jumped_is_reported_by_a_calendar_that_counts_too(tmp_path):
    """Nothing ticked, and the status did not say so."""
    clock = HandClock()
    with opened(tmp_path, clock, small_plan()) as silo:
        clock.set_to(1000.0 + 3600.0)
        assert "jumped" in silo.status()["held"]
        with pytest.raises(ClockJumped, match="jumped"):
            silo.tick()


@pytest.mark.parametrize("believed", [False, True])
def test_a_reward_that_was_counted_and_forgotten_does_not_count_again_by_a_clock_that_is_behind(tmp_path, believed):
    """After a reboot the clock is 40 minutes slow: an id that had expired is not good again."""
    plan, timing = small_plan(schedule=by_clock(600.0), rounds=48, visits="private"), Timing(reward_window=3600.0)
    clock = HandClock()
    with Silo.open(tmp_path / "s.db", plan, timing=timing, clock=clock) as silo:
        decision = silo.decide(ACTIONS)
        assert silo.reward(decision.id, 1.0).counted
        for _ in range(9):
            clock.pass_time(600.0)
            silo.tick()
        with pytest.raises(DecisionExpired):
            silo.reward(decision.id, 1.0)
    clock.wall, clock.boot = clock.wall - 2400.0, "another boot"
    with Silo.open(tmp_path / "s.db", plan, timing=timing, clock=clock, catch_up=believed) as silo:
        with pytest.raises(DecisionExpired):
            silo.reward(decision.id, 1.0)
        assert silo.reward(silo.decide(ACTIONS).id, 1.0).counted
        if not believed:
            with pytest.raises(ClockJumped, match="-2400"):
                silo.tick()


def test_a_clock_that_was_ahead_for_a_while_has_spoilt_no_rewards(tmp_path):
    """Between two ticks that lie far apart nothing shows that it is ahead. What the silo then forgot was said to reach
    up to the wrong time: every reward of the next weeks was refused, and so were decisions that nobody had rewarded."""
    day = 86_400.0
    plan, timing = small_plan(schedule=by_clock(30 * day), rounds=6, visits="private"), Timing(reward_window=day)
    clock = HandClock(0.0)
    timing = replace(timing, start=0.0)
    with Silo.open(tmp_path / "s.db", plan, timing=timing, clock=clock) as silo:
        early = silo.decide(ACTIONS)
        silo.reward(early.id, 0.5)
        clock.pass_time(30 * day)
        assert silo.tick() == [0]
        clock.pass_time(5 * day)
        decision = silo.decide(ACTIONS)
    clock.reboot()
    clock.set_to(clock.wall + 20 * day)
    with Silo.open(tmp_path / "s.db", plan, timing=timing, clock=clock) as silo:
        silo.ticker.tidy()
        with pytest.raises(DecisionExpired):
            silo.reward(decision.id, 0.5)
    clock.set_to(clock.wall - 20 * day)
    with Silo.open(tmp_path / "s.db", plan, timing=timing, clock=clock, catch_up=True) as silo:
        assert silo.reward(decision.id, 0.5).counted
        clock.set_to(0.0)  # however far behind it is, what was forgotten is not good again
    clock.reboot()
    with Silo.open(tmp_path / "s.db", plan, timing=timing, clock=clock, catch_up=True) as silo:
        with pytest.raises(DecisionExpired):
            silo.reward(early.id, 0.5)
        assert silo.reward(decision.id, 0.5).repeated


@pytest.mark.parametrize("off", [60.0, -300.0])
def test_a_clock_that_has_jumped_is_noticed_at_the_start_of_a_new_term(tmp_path, off):
    """The new term knew no reading of the clock, so its first release was drawn at once, of nobody."""
    clock, following = HandClock(), small_plan(schedule=by_clock(60.0), rounds=3, visits="private")
    with opened(tmp_path, clock, following.changed(rounds=2)) as silo:
        for _ in range(2):
            clock.pass_time(60.0)
            silo.tick()
    timing = Timing(start=clock.wall)
    clock.set_to(clock.wall + off)
    for _ in range(2):  # a restart does not make it right
        with Silo.open(tmp_path / "s.db", following, timing=timing, clock=clock, new_term=True) as silo:
            with pytest.raises(ClockJumped):
                silo.tick()
            assert silo.store.releases(2) == []
    clock.set_to(clock.wall - off)
    with Silo.open(tmp_path / "s.db", following, timing=timing, clock=clock, new_term=True) as silo:
        assert silo.tick() == []
        clock.pass_time(60.0)
        assert silo.tick() == [0]
