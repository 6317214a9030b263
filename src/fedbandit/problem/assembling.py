"""Rows from the values of records, compiled: one pass with the same operations as `encoding.py`, bit for bit.

Importing this module loads a compiler, and compiles if there is no cache. So a silo imports it in the background.
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
    """The rows of actions, (actions, columns): column j is `scaled[j]` times the action's column `of_action[j]`.

    An action's own `width` columns are a 1, its straight `numbers` (fields, actions) at their `places`, scaled by their
    `ranges` (fields; low, high, span), and a 1 at each of its `picks` (fields, actions). If a number is outside its
    range, no rows are returned.
    """
    actions = picks.shape[1]
    rows, columns = np.empty((actions, len(of_action))), np.zeros(width)
    columns[0] = 1.0
    for action in range(actions):
        for field in range(len(places)):
            value, low, high = numbers[field, action] + 0.0, ranges[field, 0], ranges[field, 1]
            if not low <= value <= high:  # refuses NaN too
                return np.empty((0, 0))
            columns[places[field]] = ((value - low) - (high - value)) / ranges[field, 2]
        for field in range(picks.shape[0]):
            columns[picks[field, action]] = 1.0
        for column in range(len(of_action)):
            rows[action, column] = columns[of_action[column]] * scaled[column]
        for field in range(picks.shape[0]):
            columns[picks[field, action]] = 0.0
    return rows
