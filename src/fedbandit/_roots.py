"""Where a function crosses zero. Importing scipy.optimize for this alone would take longer than making most plans."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["falling_root", "positive_root"]

PRECISION = 1e-14  # relative width of the interval that is left
MOST_STEPS = 200


def falling_root(function: Callable[[float], float], low: float, high: float, precision: float = PRECISION) -> float:
    """Where a falling function crosses zero between `low` and `high`.

    The function is not positive at the point returned: rounding errs to that side. The method is regula falsi with the
    Illinois rule (an end that stays in place gets half its weight), and a bisection at every third step.
    """
    left, right = function(low), function(high)
    if left < 0 or right > 0:
        raise ValueError(f"no root of a falling function between {low:g} ({left:g}) and {high:g} ({right:g})")
    stayed = 0  # which end was not moved by the last step: -1 low, 1 high
    for step in range(MOST_STEPS):
        if high - low <= precision * max(abs(low), abs(high)):
            break
        middle = (low + high) / 2
        guess = (low * right - high * left) / (right - left) if left != right else middle
        x = guess if step % 3 and low < guess < high else middle
        value = function(x)
        if value > 0:
            low, left, right, stayed = x, value, right / 2 if stayed == 1 else right, 1
        else:
            high, right, left, stayed = x, value, left / 2 if stayed == -1 else left, -1
    return high


def positive_root(function: Callable[[float], float]) -> float:
    """Where a falling function crosses zero at a positive argument, found from 1 by doubling and halving."""
    high = 1.0
    while function(high) > 0:
        high *= 2
    while function(high / 2) < 0:
        high /= 2
    return falling_root(function, high / 2, high)
