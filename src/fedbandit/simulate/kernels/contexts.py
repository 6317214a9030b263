"""The actions a user brings: drawn fresh, or picked from a table."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numba import njit

from fedbandit.simulate.kernels.layout import DEPTH, LANES, Singles, Table, padded
from fedbandit.simulate.kernels.packs import broadcast, fma, load, over, square_root, store, times
from fedbandit.simulate.randomness import CONTEXT, fill_normals, integer_below, user_key

_ZERO: Final = np.float32(0.0)
_HALF: Final = np.float32(0.5)
_ROOT_HALF: Final = np.float32(math.sqrt(0.5))


@njit(cache=True)
def empty_contexts(arms: int, dim: int) -> Singles:
    """Room for one user's actions, coordinate by coordinate: (dim padded with zero rows, arms padded)."""
    return np.zeros((-(-dim // DEPTH) * DEPTH, -(-arms // LANES) * LANES), dtype=np.float32)


@njit(cache=True, error_model="numpy")
def draw_contexts(key: np.uint64, arms: int, dim: int, basis: bool, out: Singles) -> None:
    """Write one user's fresh actions to ``out`` from :func:`empty_contexts`; columns from ``arms`` on are filler.

    Coordinates 0 .. dim - 2 are a uniformly random direction of norm 1/sqrt 2 (normals, scaled), the last is
    1/sqrt 2, so the norm is 1. With ``basis`` the first min(dim, arms) actions are the standard basis vectors.
    """
    free = dim - 1
    fill_normals(key, out[:free].reshape(-1))
    for a in range(0, out.shape[1], LANES):
        square = broadcast(_ZERO)
        for j in range(free):
            square = fma(load(out, j, a, _ZERO), load(out, j, a, _ZERO), square)
        scale = square_root(over(broadcast(_HALF), square))
        for j in range(free):
            store(out, j, a, times(load(out, j, a, _ZERO), scale))
        store(out, free, a, broadcast(_ROOT_HALF))
    if basis:
        for j in range(dim):
            for a in range(min(dim, arms)):
                out[j, a] = np.float32(a == j)


@njit(cache=True)
def pick_set(key: np.uint64, first: int, last: int) -> np.int64:
    """The action set of one user, uniform in first .. last - 1."""
    return first + integer_below(key, last - first)


@njit(cache=True)
def set_block(table: Table, index: np.int64) -> Singles:
    """One action set of a table: (height, padded arms)."""
    arms = table.offsets[index + 1] - table.offsets[index]
    size = table.height * (-(-arms // LANES) * LANES)
    start = table.starts[index]
    return table.blocks[start : start + size].reshape(table.height, -1)


def contexts_of(seed: int, run: int, silo: int, round_: int, arms: int, dim: int, basis: bool = False) -> Singles:
    """The fresh actions (arms, dim) that kernels give to one user; run 0 if all runs share their contexts."""
    out = np.zeros((padded(dim, DEPTH), padded(arms, LANES)), dtype=np.float32)
    draw_contexts(_context_key(seed, run, silo, round_), arms, dim, basis, out)
    return np.ascontiguousarray(out[:dim, :arms].T)


def set_of(seed: int, run: int, silo: int, round_: int, table: Table) -> int:
    """The action set that kernels give to one user of a table; run 0 if all runs share their contexts."""
    first, last = table.ranges[silo]
    return int(pick_set(_context_key(seed, run, silo, round_), int(first), int(last)))


def _context_key(seed: int, run: int, silo: int, round_: int) -> np.uint64:
    return np.uint64(user_key(np.uint64(seed % 2**64), run, silo, round_, CONTEXT))
