"""Rows from the values of records, compiled: one pass over them, by the operations of `encoding.py`, bit for bit.

Importing this module loads a compiler, and compiles if no cache is there: a silo does so beside its work.
"""

from __future__ import annotations

import numpy as np
from numba import types

from fedbandit._arrays import Floats, Indices
from fedbandit._jit import njit

__all__ = ["rows_of_actions"]

_FLOATS, _TABLE = (types.Array(types.float64, sides, "C", readonly=True) for sides in (1, 2))
_PLACES, _PICKS = (types.Array(types.int64, sides, "C", readonly=True) for sides in (1, 2))
_ROWS = types.Array(types.float64, 2, "C")


@njit(
    _ROWS(_TABLE, _TABLE, _PLACES, _PICKS, types.int64, _PLACES, _FLOATS), cache=True, nogil=True, error_model="numpy"
)
def rows_of_actions(
    numbers: Floats,
    ranges: Floats,
    places: Indices,
    picks: Indices,
    width: int,
    of_action: Indices,
    scaled: Floats,
) -> Floats:
    """Column j of an action's row is `scaled[j]` times column `of_action[j]` of the action, (actions, columns).

    An action's own columns, `width` of them, are a 1, its straight `numbers` (fields, actions) at their `places` by
    their `ranges` (fields; low, high, span), and a 1 at each of its `picks` (fields, actions). No rows at all come of a
    number that is outside of its range.
    """
    actions = picks.shape[1]
    rows, columns = np.empty((actions, len(of_action))), np.zeros(width)
    columns[0] = 1.0
    for action in range(actions):
        for field in range(len(places)):
            value, low, high = numbers[field, action] + 0.0, ranges[field, 0], ranges[field, 1]
            if not low <= value <= high:  # not so for what is not a number
                return np.empty((0, 0))
            columns[places[field]] = ((value - low) - (high - value)) / ranges[field, 2]
        for field in range(picks.shape[0]):
            columns[picks[field, action]] = 1.0
        for column in range(len(of_action)):
            rows[action, column] = columns[of_action[column]] * scaled[column]
        for field in range(picks.shape[0]):
            columns[picks[field, action]] = 0.0
    return rows
