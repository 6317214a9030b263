"""What is printed of a budget: exactly what was asked for, and never less than what was computed."""

from __future__ import annotations

import math
import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedbandit as fb
from fedbandit.privacy.accounting import gaussian_epsilon, gaussian_sigma
from fedbandit.privacy.budget import Privacy, at_most, exactly

ODD = Privacy(epsilon=1.00000049, delta=1.00000049e-5)  # `:g` prints (1, 1e-05), which is a smaller promise


@given(st.floats(min_value=1e-300, max_value=1e300), st.integers(1, 8))
def test_a_computed_number_is_rounded_up_and_by_less_than_a_digit(number: float, digits: int) -> None:
    printed = Decimal(at_most(number, digits))
    exact = Decimal(number)
    assert printed >= exact * (1 - Decimal("1.01e-12"))  # all but the last digits of a float
    assert printed - exact <= Decimal(10) ** (exact.adjusted() - digits + 1)


@pytest.mark.parametrize(
    ("number", "digits", "text"),
    [(1.23441, 4, "1.235"), (0.99991, 4, "1"), (1.0 + 1e-9, 4, "1.001"), (1.2345e-7, 4, "1.235e-07"), (0.0, 4, "0")],
)
def test_few_digits(number: float, digits: int, text: str) -> None:
    assert at_most(number, digits) == text


def test_a_sum_of_floats_is_not_made_larger_by_its_last_digits() -> None:
    assert 0.1 + 0.2 > 0.3
    assert at_most(0.1 + 0.2) == "0.3"


def test_no_bound_is_no_number() -> None:
    assert at_most(math.inf) == "infinity"
    assert at_most(1.23441) == "1.235"  # four digits where nothing else is said


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_a_budget_reads_back_as_it_was_asked_for(number: float) -> None:
    assert float(exactly(number)) == number


@pytest.mark.parametrize("trust", ["secure-sum", "silo", "central"])
def test_a_promise_is_printed_with_the_budget_it_was_made_for(trust: str) -> None:
    plan = fb.Plan(5, 100, 3, ODD, trust=trust)
    assert f"{ODD.pair}-differentially private" in plan.guarantee.statement
    assert plan.guarantee.pair == ODD.pair == "(1.00000049, 1.00000049e-05)"


def test_nothing_is_promised_without_a_budget() -> None:
    assert fb.Plan(5, 100, 3, trust="none").guarantee.pair == "nothing"


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 3.0, 4.0, 7.0])
def test_the_weaker_promise_of_colluders_is_never_smaller_than_it_is(epsilon: float) -> None:
    """Mixer and analyzer together see each silo with its own noise, 1/sqrt(honest) of that of the sum."""
    plan = fb.Plan(9, 100, 3, Privacy(epsilon, 1e-5), trust="secure-sum")
    real = gaussian_epsilon(math.sqrt(8) / gaussian_sigma(epsilon, 1e-5), 1e-5)
    printed = re.findall(r"own noise still gives \(([0-9.]+), 1e-05\)", plan.guarantee.statement)
    assert len(printed) == 1
    assert real <= float(printed[0]) <= real * 1.001
    answer = dict(plan.guarantee.answers)["If parties collude"]
    assert f"mixer and analyzer together, even with all other silos: epsilon = {printed[0]};" in answer
    one_more = gaussian_epsilon(math.sqrt(8 / 7) / gaussian_sigma(epsilon, 1e-5), 1e-5)
    assert one_more <= float(answer.rsplit("one of the two: epsilon = ", 1)[1]) <= one_more * 1.001


@pytest.mark.parametrize(("name", "least"), [("epsilon", 1e-100), ("delta", 1e-300)])
def test_a_budget_is_refused_below_what_can_be_computed_and_not_above(name: str, least: float) -> None:
    asked = {"epsilon": 1.0, "delta": 1e-5}
    assert getattr(Privacy.from_dict(asked | {name: least}), name) == least
    with pytest.raises(ValueError, match=rf"^{name} must be at least {least:g}"):
        Privacy.from_dict(asked | {name: least * (1 - 1e-9)})


def test_what_is_asked_for_unless_somebody_says_otherwise() -> None:
    asked = {"adjacency": "replace-one", "participations": 1, "silos_per_user": 1}
    assert Privacy(2.0).as_dict() == {"epsilon": 2.0, "delta": 1e-5, **asked}
    assert Privacy(2.0).apart == 0
