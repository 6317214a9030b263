"""How a call is divided into tasks for threads: groups of runs that share contexts, times shards of silos."""

from __future__ import annotations

import numpy as np
from numba import njit

from fedbandit.simulate.kernels.layout import Integers


@njit(cache=True)
def group_bounds(context_runs: Integers) -> Integers:
    """Where groups of consecutive runs with the same contexts begin, and the number of runs at the end."""
    bounds = np.zeros(context_runs.size + 1, dtype=np.int64)
    groups = 0
    for r in range(1, context_runs.size):
        if context_runs[r] != context_runs[r - 1]:
            groups += 1
            bounds[groups] = r
    bounds[groups + 1] = context_runs.size
    return bounds[: groups + 2]


@njit(cache=True)
def task_bounds(task: int, groups: Integers, shards: int, silos: int) -> tuple[int, int, int, int, int]:
    """Of one task: its shard, its first run and one past the last, its first silo and one past the last."""
    group, shard = task // shards, task % shards
    return shard, groups[group], groups[group + 1], shard * silos // shards, (shard + 1) * silos // shards
