"""When to synchronise: calendars that end at the horizon, and a rule that has none."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbandit import schedule
from fedbandit._validate import ArgumentError
from fedbandit.schedule import adaptive, at, clock, every, growing

ALL = [
    *(every(7), growing(1.25), growing(1.25, first=4), at(3, 9), clock(0.5), clock(0.5, ratio=1.5)),
    *(clock(0.5, 1.5, first=3), adaptive(3.0), adaptive(3.0, private=True), adaptive(3.0, alone=True)),
]


def test_every() -> None:
    assert every(5).times(20) == (5, 10, 15, 20)
    assert every(6).times(20) == (6, 12, 18, 20)  # a shorter last batch
    assert every(20).times(20) == (20,)
    assert every(1).times(4) == (1, 2, 3, 4)
    with pytest.raises(ArgumentError, match=r"^batch must be at most the horizon of 20 rounds, got 21$") as error:
        every(21).times(20)
    assert error.value.field == "batch"


def test_growing_is_logarithmic_and_waits_as_long_as_the_ratio_says() -> None:
    assert 76 <= len(growing(1.1).times(10_000)) <= 80
    assert growing(2.0).times(100) == (1, 2, 4, 8, 16, 32, 64, 100)
    assert growing(1.1).times(1) == (1,)
    assert len(growing(1.1).times(10**9)) < 250


def test_a_first_sync_can_wait() -> None:
    assert growing(2.0, first=5).times(100) == (5, 10, 20, 40, 80, 100)
    assert growing(2.0, first=100).times(100) == (100,)
    assert clock(60, first=3).times(5) == (3, 4, 5)
    assert clock(60, 2.0, first=3).times(20) == (3, 6, 12, 20)
    for late in (growing(2.0, first=6), clock(60, first=6), clock(60, 2.0, first=6)):
        with pytest.raises(ArgumentError, match=r"^first must be at most the horizon of 5 (rounds|periods), got 6$"):
            late.times(5)
    with pytest.raises(ArgumentError, match=r"^first must be a whole number >= 1, got 0$"):
        growing(2.0, first=0)


def test_a_schedule_written_before_it_could_wait_is_the_same_one() -> None:
    assert schedule.as_dict(growing(1.1)) == {"kind": "growing", "ratio": 1.1}
    assert schedule.from_dict({"kind": "clock", "period": 60.0, "ratio": 1.0}) == clock(60.0)
    assert schedule.as_dict(growing(1.1, first=2))["first"] == 2


def test_a_calendar_of_ones_own() -> None:
    assert at(7, 30, 365).times(365) == (7, 30, 365)
    assert (str(at(7, 30)), str(at(7, 30, 60, 90))) == ("at(7, 30)", "at(7, ..., 90)")
    with pytest.raises(ArgumentError, match=r"^rounds must end with the horizon of 30 rounds, got 365$"):
        at(7, 365).times(30)
    for wrong in ((), (3, 3), (5, 4)):
        with pytest.raises(ArgumentError, match=r"^rounds must rise from sync to sync"):
            at(*wrong)


@given(st.integers(1, 5000), st.one_of(st.builds(every, st.integers(1, 5000)), st.builds(growing, st.floats(1.001, 9))))
def test_a_calendar_rises_to_the_horizon(rounds: int, planned: schedule.Every | schedule.Growing) -> None:
    if isinstance(planned, schedule.Every) and planned.batch > rounds:
        with pytest.raises(ArgumentError, match="batch must be at most the horizon"):
            planned.times(rounds)
        return
    times = planned.times(rounds)
    assert times[-1] == rounds
    assert times[0] >= 1
    gaps = [b - a for a, b in pairwise(times)]
    assert all(gap >= 1 for gap in gaps)
    if isinstance(planned, schedule.Growing):
        assert all(b <= max(a + 1, math.ceil(a * planned.ratio)) for a, b in pairwise(times))


def test_silos_that_come_alone_are_said_and_have_no_private_rule() -> None:
    assert schedule.as_dict(adaptive(3.0)) == {"kind": "adaptive", "threshold": 3.0, "private": False}
    assert schedule.as_dict(adaptive(3.0, alone=True))["alone"] is True
    with pytest.raises(ValueError, match=r"^alone must be false for a private rule"):
        adaptive(3.0, private=True, alone=True)
    with pytest.raises(ValueError, match=r"^alone must be true or false, got 1"):
        adaptive(3.0, alone=1)  # type: ignore[arg-type]


def test_every_tick_of_a_clock_is_a_sync_and_the_data_decide_an_adaptive_one() -> None:
    assert clock(60).times(3) == (1, 2, 3)
    assert clock(60, ratio=1.25).times(100) == growing(1.25).times(100)
    with pytest.raises(ArgumentError, match=r"^schedule must be public to have a calendar") as error:
        adaptive(1.0).times(10)
    assert error.value.field == "schedule"


@pytest.mark.parametrize("period", [1e-9, 0.0009, 3.2e9, 1e300])
def test_a_clock_that_nobody_could_tick_by_is_refused(period: float) -> None:
    with pytest.raises(ArgumentError, match=r"^period must lie between 0\.001 and 3\.16224e\+09 seconds"):
        schedule.clock(period)


def test_a_clock_ticks_from_a_millisecond_to_a_hundred_years() -> None:
    century = 100 * 366 * 24 * 60 * 60.0
    for period in (0.001, century):
        assert clock(period).period == period
    for period in (0.00099, century * 1.001):
        with pytest.raises(ArgumentError, match=r"^period must lie between"):
            clock(period)


def test_what_is_not_said_of_a_schedule() -> None:
    """Plans that were written without these keep their meaning."""
    assert schedule.from_dict({"kind": "every"}) == every(25)
    assert schedule.from_dict({"kind": "growing"}) == growing() == growing(1.1, 1)
    assert schedule.from_dict({"kind": "clock", "period": 60.0}) == clock(60.0) == clock(60.0, 1.0, 1)
    assert schedule.from_dict({"kind": "adaptive", "threshold": 3.0}) == adaptive(3.0) == adaptive(3.0, False)


@pytest.mark.parametrize("private", ["no", "yes", 1, None])
def test_whether_a_rule_is_private_is_said_by_true_or_false(private: object) -> None:
    with pytest.raises(ArgumentError, match=r"^private must be true or false, got"):
        schedule.from_dict({"kind": "adaptive", "threshold": 3, "private": private})


@pytest.mark.parametrize("planned", ALL, ids=str)
def test_as_data_and_back(planned: schedule.Schedule) -> None:
    assert schedule.from_dict(schedule.as_dict(planned)) == planned


def test_texts() -> None:
    assert [str(planned) for planned in ALL] == [
        "every(7)",
        "growing(1.25)",
        "growing(1.25, first=4)",
        "at(3, 9)",
        "clock(0.5)",
        "clock(0.5, 1.5)",
        "clock(0.5, 1.5, first=3)",
        "adaptive(3)",
        "adaptive(3, private)",
        "adaptive(3, alone)",
    ]


@pytest.mark.parametrize(
    ("make", "value", "message"),
    [
        (every, 0, "batch must be a whole number >= 1, got 0"),
        (every, -2, "batch must be a whole number >= 1, got -2"),
        (every, 2.5, "batch must be a whole number >= 1, got 2.5"),
        (every, True, "batch must be a whole number >= 1, got True"),
        (growing, 1.0, "ratio must lie strictly between 1 and inf, got 1.0"),
        (growing, math.nan, "ratio must lie strictly between 1 and inf, got nan"),
        (growing, math.inf, "ratio must lie strictly between 1 and inf, got inf"),
        (growing, "2", "ratio must lie strictly between 1 and inf, got '2'"),
        (clock, 0.0, "period must be a finite number > 0, got 0.0"),
        (adaptive, -1.0, "threshold must be a finite number > 0, got -1.0"),
        (adaptive, math.nan, "threshold must be a finite number > 0, got nan"),
    ],
)
def test_bad_input(make: object, value: object, message: str) -> None:
    with pytest.raises(ArgumentError) as error:
        make(value)  # type: ignore[operator]
    assert str(error.value) == message
    assert message.startswith(f"{error.value.field} ")


def test_unknown_names_in_data_are_refused() -> None:
    kinds = "every, growing, at, clock, adaptive"
    assert ", ".join(get_args(schedule.Kind)) == kinds
    unknown: list[object] = ["often", "", None, [], 3]
    for kind in unknown:
        with pytest.raises(ArgumentError) as error:
            schedule.from_dict({"kind": kind})
        assert str(error.value) == f"schedule kind must be one of {kinds}; got {kind!r}"
    with pytest.raises(ArgumentError, match=f"^schedule kind must be one of {kinds}; got ''$"):
        schedule.from_dict({"batch": 3})
    with pytest.raises(ValueError, match=r"^schedule does not know 'period'; it takes batch"):
        schedule.from_dict({"kind": "every", "batch": 3, "period": 1.0})
    with pytest.raises(ValueError, match=r"^schedule must give 'threshold'$"):
        schedule.from_dict({"kind": "adaptive", "private": True})
    assert schedule.from_dict({"kind": "growing"}) == growing(1.1)


@pytest.mark.parametrize("rounds", [(5, 3, 7), (1, 2, 2), (3, 2)])
def test_a_calendar_that_goes_back_anywhere_is_refused(rounds: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"^rounds must rise from sync to sync, got"):
        schedule.at(*rounds)


def test_a_calendar_names_its_own_end_and_all_that_is_short() -> None:
    with pytest.raises(ValueError, match=r"^rounds must end with the horizon of 30 rounds, got 20$"):
        schedule.at(5, 10, 20).times(30)
    assert [str(schedule.at(*range(1, last))) for last in (3, 4, 5)] == ["at(1, 2)", "at(1, 2, 3)", "at(1, ..., 4)"]


def test_a_clock_may_tick_once_at_the_very_end() -> None:
    assert schedule.clock(60.0, first=4).times(4) == (4,)
    with pytest.raises(ValueError, match=r"^first must be at most the horizon of 4 periods, got 5"):
        schedule.clock(60.0, first=5).times(4)
