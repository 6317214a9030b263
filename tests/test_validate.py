"""Checks of what enters the library: what passes comes back as a plain value, what does not is named in the error."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedbandit import _validate
from fedbandit._validate import ArgumentError


def test_an_argument_error_carries_its_data_and_is_a_value_error() -> None:
    error = ArgumentError("epsilon", "must be a finite number > 0, got -1.0")
    assert isinstance(error, ValueError)
    assert (error.field, error.message) == ("epsilon", "must be a finite number > 0, got -1.0")
    assert str(error) == "epsilon must be a finite number > 0, got -1.0"


@pytest.mark.parametrize("again", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy], ids=["pickle", "copy"])
def test_an_argument_error_survives_on_its_way_from_another_process(again: Callable[[Any], Any]) -> None:
    error = ArgumentError("batch", "must be smaller")
    received = again(error)
    assert type(received) is ArgumentError
    assert (received.field, received.message, str(received)) == ("batch", "must be smaller", "batch must be smaller")


@pytest.mark.parametrize(
    ("check", "value", "expected"),
    [
        (lambda v: _validate.positive("x", v), 2, 2.0),
        (lambda v: _validate.positive("x", v), np.float32(0.5), 0.5),
        (lambda v: _validate.within("x", v, 0, 1), 0.5, 0.5),
        (lambda v: _validate.within("x", v, 1, math.inf), np.int64(2), 2.0),
        (lambda v: _validate.count("x", v), np.int32(3), 3),
        (lambda v: _validate.count("x", v, least=0), 0, 0),
        (lambda v: _validate.reward("x", v), 1, 1.0),
        (lambda v: _validate.reward("x", v), np.float64(0.25), 0.25),
        (lambda v: _validate.one_of("x", v, ("a", "b")), "b", "b"),
    ],
)
def test_what_passes_comes_back_as_a_plain_value(check: Callable[[Any], Any], value: object, expected: object) -> None:
    found = check(value)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("check", "values", "message"),
    [
        (
            lambda v: _validate.positive("x", v),
            [0, -1.5, math.inf, math.nan, True, "1", None, 1j, 10**400],
            "x must be a finite number > 0, got {!r}",
        ),
        (
            lambda v: _validate.within("x", v, 0, 1),
            [0, 1, -1, math.nan, True, "0.5", None],
            "x must lie strictly between 0 and 1, got {!r}",
        ),
        (
            lambda v: _validate.count("x", v, least=2),
            [1, -3, 2.0, True, math.nan, "2", None],
            "x must be a whole number >= 2, got {!r}",
        ),
        (lambda v: _validate.reward("x", v), [-0.1, 1.1, math.nan, True, "1", None], "x must lie in [0, 1], got {!r}"),
        (lambda v: _validate.one_of("x", v, ("a", "b")), ["c", "", None, 1, []], "x must be one of a, b; got {!r}"),
    ],
)
def test_what_does_not_pass_is_named(check: Callable[[Any], Any], values: list[object], message: str) -> None:
    for value in values:
        with pytest.raises(ArgumentError) as error:
            check(value)
        assert error.value.field == "x"
        assert str(error.value) == message.format(value)


def test_a_number_that_no_float_holds_is_refused_everywhere() -> None:
    with pytest.raises(ArgumentError, match=r"^x must lie strictly between 1 and inf, got 10{400}$"):
        _validate.within("x", 10**400, 1, math.inf)
    with pytest.raises(ArgumentError, match=r"^x must be at most 9,223,372,036,854,775,807, got more$"):
        _validate.count("x", 2**63)
    assert _validate.count("x", 2**63 - 1) == 2**63 - 1


def test_names_that_nothing_reads_and_names_that_are_missing() -> None:
    _validate.known_keys("plan", ["a"], ["a", "b"], required=["a"])
    with pytest.raises(ArgumentError, match=r"^plan does not know 'round' \(did you mean 'rounds'\?\); it"):
        _validate.known_keys("plan", ["round"], ["rounds", "silos"])
    with pytest.raises(ArgumentError, match=r"^plan does not know 'r+'; it takes rounds$"):
        _validate.known_keys("plan", ["r" * 1_000_000], ["rounds"])  # no time is lost on what somebody sends
    with pytest.raises(ArgumentError, match=r"^plan does not know 'c', 'd'; it takes a, b$") as error:
        _validate.known_keys("plan", ["d", "a", "c"], ["b", "a"])
    assert error.value.field == "plan"
    with pytest.raises(ArgumentError, match=r"^plan must give 'b', 'a'$"):
        _validate.known_keys("plan", [], ["a", "b"], required=["b", "a"])
