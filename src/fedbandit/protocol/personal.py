"""Silos that differ: a few coordinates of theta are each silo's own, learnt from a release that nobody else is sent.

All silos share theta; silo i's people respond by theta + delta_i, where delta_i is non-zero in `columns` alone. For
people who count, the silo may use neither its raw sums nor its share of a secure sum, whose noise is only a fraction of
what would cover it. Otherwise their actions would depend on data that were not released, and these actions show in
later releases. So at every sync a silo also draws a release for itself. It has the encoded sums of just those numbers
that delta_i is learnt from, the bias of `columns` and their rows of the covariance, with noise that is enough for the
silo alone, as under trust `silo`.

Formal guarantee: that release is (reach * shift / sigma_own)-GDP for each of the silo's users, against everybody, even
if all other releases are known. For its numbers are some of the numbers of a whole release, so they move no further,
and its noise is drawn anew and is the silo's own. This release and the shared ones are drawn one after the other from
the same batches, so they compose in squares: with `share` of mu^2 for the one and the rest for the others, all of them
together are mu-GDP, and so is whatever follows from them, people's actions included. The proof treats the silo's own
release as public; that it stays in the silo is more than the proof needs. A user of several silos is in the own release
of each of them. Those compose in squares, too, and `Request.own_scales` counts them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fedbandit._arrays import Flags
from fedbandit.bandit.statistics import upper_triangle

__all__ = ["Personal", "own_entries"]


class Personal(NamedTuple):
    """The features whose weights are each silo's own, and the share of mu^2 that learning them may spend."""

    columns: tuple[int, ...]
    share: float


@lru_cache(maxsize=32)
def own_entries(dim: int, columns: tuple[int, ...]) -> Flags:
    """For each packed number, whether it is in a silo's own release (width,).

    >>> own_entries(2, (0,)).tolist()  # bias 0 and 1, then the matrix: (0, 0), (0, 1), (1, 1)
    [True, False, True, True, False]
    """
    rows, others = upper_triangle(dim)
    return np.concatenate([np.isin(np.arange(dim), columns), np.isin(rows, columns) | np.isin(others, columns)])
