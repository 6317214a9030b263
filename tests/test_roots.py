"""Roots of falling functions, against functions whose roots are known."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbandit._roots import falling_root, positive_root


@given(st.floats(1e-9, 1e9), st.sampled_from([1, 3, 9]))
def test_powers(root: float, power: int) -> None:
    found = falling_root(lambda x: root**power - x**power, 0.0, 2 * root)
    assert found == pytest.approx(root, rel=1e-12)
    assert found**power >= root**power * (1 - 1e-15)  # on the side where the function is not positive


@given(st.floats(1e-9, 1e9), st.sampled_from([1, 3, 9]))
def test_positive_roots_are_found_from_one(root: float, power: int) -> None:
    found = positive_root(lambda x: root**power - x**power)
    assert found == pytest.approx(root, rel=1e-12)
    assert found**power >= root**power * (1 - 1e-15)


@pytest.mark.parametrize("rate", [1e-3, 1.0, 50.0])
def test_steep_and_flat_functions(rate: float) -> None:
    calls: list[float] = []

    def function(x: float) -> float:
        calls.append(x)
        return math.exp(-rate * x) - 0.25

    assert falling_root(function, 0.0, 10 / rate) == pytest.approx(math.log(4) / rate, rel=1e-12)
    assert len(calls) < 60  # what bisection alone would take


def test_a_jump_is_found() -> None:
    assert falling_root(lambda x: 1.0 if x < math.pi else -1.0, 0.0, 10.0) == pytest.approx(math.pi, rel=1e-13)


@pytest.mark.parametrize("function", [lambda x: 1.0, lambda x: -1.0])
def test_without_a_root_it_says_so(function) -> None:
    with pytest.raises(ValueError, match="no root"):
        falling_root(function, 0.0, 1.0)
