"""Bars are there for people who wait, and for nobody else."""

from __future__ import annotations

import io
import sys
import warnings

import pytest
from rich.console import Console

from fedbandit._progress import PATIENCE, late_bar, progress_or_bar


def shown(at: list[float], terminal: bool = True) -> str:
    """What is printed if the share is reported at these times."""
    written = io.StringIO()
    times = iter([0.0, *at])
    with late_bar("waiting", Console(file=written, force_terminal=terminal), lambda: next(times)) as report:
        for number in range(len(at)):
            report(number / len(at))
    return written.getvalue()


def test_what_is_quick_shows_nothing() -> None:
    assert shown([0.1, PATIENCE - 0.01]) == ""


def test_what_takes_two_seconds_shows_a_bar() -> None:
    assert "waiting" in shown([1.0, PATIENCE])


def test_where_nobody_looks_nothing_is_shown() -> None:
    assert shown([PATIENCE, 100.0], terminal=False) == ""


def test_a_notebook_that_has_no_widgets_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without them rich shows no bar but a warning, with a path of the machine in it, for every bar."""
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    times = iter([0.0, PATIENCE, PATIENCE])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with late_bar("waiting", Console(force_jupyter=True), lambda: next(times)) as report:
            report(0.5)


def test_a_bar_ends_with_an_error() -> None:
    written, times = io.StringIO(), iter([0.0, 3.0])

    def failing() -> None:
        with late_bar("waiting", Console(file=written, force_terminal=True), lambda: next(times)) as report:
            report(0.5)
            raise ValueError("so")

    with pytest.raises(ValueError, match="so"):
        failing()
    assert "\x1b[?25h" in written.getvalue(), "the cursor is back"


def test_whoever_has_a_bar_of_their_own_gets_no_second_one() -> None:
    told: list[float] = []
    with progress_or_bar(told.append, "waiting") as report:
        report(0.5)
    assert told == [0.5]
    with progress_or_bar(None, "waiting") as report:
        report(0.5)
