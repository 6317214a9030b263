"""SplitMix64, compiled: the one hash behind all random numbers that are made from a counter."""

from __future__ import annotations

from typing import Final

import numpy as np

from fedbandit._jit import njit

__all__ = ["GOLDEN", "mixed"]

_key = np.uint64
GOLDEN: Final = _key(0x9E3779B97F4A7C15)  # the step of a counter


@njit(cache=True)
def mixed(key: np.uint64) -> np.uint64:
    """The finaliser: a bijection of 64 bits in which every input bit flips each output bit half the time."""
    key = _key(key)
    key = (key ^ (key >> _key(30))) * _key(0xBF58476D1CE4E5B9)
    key = (key ^ (key >> _key(27))) * _key(0x94D049BB133111EB)
    return key ^ (key >> _key(31))
