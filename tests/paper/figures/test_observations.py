"""Verdicts on made-up runs: right, wrong, and too close to tell."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from fedbandit.paper.figures.observations import Below, Falling, Observed, ordered
from fedbandit.paper.figures.summary import conclusion, verdict
from fedbandit.plan import Plan
from fedbandit.simulator.result import Estimate, Result

PLAN = Plan(2, 100, 3, trust="none")


def result(**curves) -> Result:
    """Runs with these time-averaged regrets: {name: (runs, 3)} at rounds 1, 10 and 100."""
    rows = [
        {"name": name, "run": run, "round": round_, "regret": value * round_}
        for name, values in curves.items()
        for run, line in enumerate(values)
        for round_, value in zip((1, 10, 100), line, strict=True)
    ]
    plans = dict.fromkeys(curves, PLAN)
    return Result(plans, pl.DataFrame(rows), pl.DataFrame(), dict.fromkeys(curves, 0), len(rows), 0)


def runs(start: float, end: float, spread: float = 0.0, count: int = 6) -> np.ndarray:
    noise = spread * np.random.default_rng(0).standard_normal((count, 1))
    return np.array([[start, start, end]]) + noise


def test_an_order_is_told_run_by_run():
    found = Below("a", "b").check(result(a=runs(2, 1, 0.5), b=runs(2, 1.1, 0.5)))
    assert found.holds is True  # the same users: their spread cancels
    assert found.difference.mean == pytest.approx(0.1)
    assert Below("b", "a").check(result(a=runs(2, 1, 0.5), b=runs(2, 1.1, 0.5))).holds is False


def test_what_is_too_close_or_has_a_single_run_is_not_told():
    # differences of mean 1 and standard error 0.6: 1.67 standard errors, while t(2) asks for 4.30 and t(24) for 2.06
    differences = np.array([1.0, 1.0, 1.0]) + 0.6 * np.sqrt(3) * np.array([-1, 0, 1])
    lines = np.array([[2, 2, 5 + difference] for difference in differences])
    close = result(a=runs(2, 5, count=3), b=lines)
    assert Below("a", "b").check(close).difference == pytest.approx((1.0, 0.6))
    assert Below("a", "b").check(close).holds is None
    many = result(a=runs(2, 5, count=27), b=np.tile(lines, (9, 1)))
    assert Below("a", "b").check(many).holds is True
    single = result(a=runs(2, 1, count=1), b=runs(2, 9, count=1))
    assert Below("a", "b").check(single).holds is None
    equal = result(a=runs(2, 1), b=runs(2, 1))
    assert Below("a", "b").check(equal).holds is None


def test_falling_compares_the_end_with_a_tenth_of_the_rounds():
    assert Falling("a").check(result(a=runs(2, 1, 0.1))).holds is True
    assert Falling("a").check(result(a=runs(1, 2, 0.1))).holds is False
    assert Falling("a").check(result(a=runs(2, 2, 0.1))).holds is None


def test_ordered_pairs_neighbours():
    assert ordered("a", "b", "c") == (Below("a", "b"), Below("b", "c"))


def finding(holds: bool | None) -> Observed:
    return Observed("", holds, Estimate(0.0, 0.0))


def test_a_verdict_needs_every_check():
    assert verdict([finding(True), finding(True)], complete=True) is True
    assert verdict([finding(True), finding(None)], complete=True) is None
    assert verdict([finding(None), finding(False)], complete=True) is False
    assert verdict([finding(True)], complete=False) is None  # a curve was left out
    assert verdict([], complete=True) is None


def test_what_two_versions_say_together():
    assert conclusion({"as_proven": True, "as_simulated": True}) == "The observation holds in both versions."
    only = conclusion({"as_proven": False, "as_simulated": True})
    assert only.startswith("The observed order appears only with the published simulation's constants")
    mixed = conclusion({"as_proven": True, "as_simulated": None})
    cannot = "these runs cannot tell whether the observation holds"
    assert mixed == f"as_proven: the observation holds; as_simulated: {cannot}."
    assert conclusion({"as_proven": None, "as_simulated": True}).startswith(f"as_proven: {cannot}; as_simulated: ")
    assert conclusion({"as_proven": False, "as_simulated": False}) == "The observation holds in neither version."
    assert conclusion({"as_proven": None, "as_simulated": None}).startswith("In neither version can these runs tell")
