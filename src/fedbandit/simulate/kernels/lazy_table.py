"""Lazy acting on action sets from a table.

The model is fixed during a call, so a set's best action is the same at every visit: it is found at the first visit and
remembered, and a visit costs no more than its contribution.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from fedbandit.simulate.kernels.contexts import pick_set, set_block
from fedbandit.simulate.kernels.layout import Beliefs, Integers, Rewards, Table, Tally, Users
from fedbandit.simulate.kernels.outcomes import (
    CHUNK,
    add_chunk,
    close_book,
    noise_of,
    open_book,
    respond,
)
from fedbandit.simulate.kernels.scoring import MEANS, ROWS, best_arm, fold_beliefs, project, square_widths
from fedbandit.simulate.kernels.shards import group_bounds, task_bounds
from fedbandit.simulate.randomness import CONTEXT, REWARD, user_key


@njit(cache=True)
def _play_task(
    users: Users, table: Table, rewards: Rewards, beliefs: Beliefs, tally: Tally, groups: Integers, task: int
) -> None:
    protocols, _, dim = beliefs.theta.shape
    shard, first_run, last_run, first_silo, last_silo = task_bounds(task, groups, tally.regret.shape[2], users.silos)
    runs = last_run - first_run
    thetas, triangles = fold_beliefs(beliefs, first_run, last_run, table.height)
    first_set, last_set = table.ranges[first_silo, 0], table.ranges[first_silo, 1]
    for silo in range(first_silo, last_silo):
        first_set, last_set = min(first_set, table.ranges[silo, 0]), max(last_set, table.ranges[silo, 1])
    memo = np.zeros((protocols * runs, last_set - first_set), dtype=np.int32)  # 1 + the best action, 0 if not yet known
    board = np.empty((ROWS, table.room), thetas.dtype)
    book = open_book(protocols * runs, dim)
    for silo in range(first_silo, last_silo):
        for start in range(0, users.rounds, CHUNK):
            count = min(CHUNK, users.rounds - start)
            for u in range(count):
                now = users.first_round + start + u
                key = user_key(users.seed, users.context_runs[first_run], silo, now, CONTEXT)
                index = pick_set(key, table.ranges[silo, 0], table.ranges[silo, 1])
                x = set_block(table, index)
                arms = table.offsets[index + 1] - table.offsets[index]
                for r in range(runs):
                    run = first_run + r
                    noise = noise_of(rewards.kind, user_key(users.seed, users.runs[run], silo, now, REWARD))
                    for q in range(protocols):
                        arm = memo[q * runs + r, index - first_set] - 1
                        if arm < 0:
                            project(x, thetas, q * runs + r, MEANS, board)
                            square_widths(x, triangles, q * runs + r, True, board)
                            arm = best_arm(board, beliefs.radius[q, run], arms)
                            memo[q * runs + r, index - first_set] = arm + 1
                        mean = table.means[table.offsets[index] + arm]
                        book.regret[q * runs + r] += table.best[index] - mean
                        who = (q, run, silo, start + u)
                        respond(x, arm, mean, noise, rewards, who, u, book.chosen[q * runs + r], tally)
            add_chunk(book, count, first_run, shard, tally)
    close_book(book, first_run, shard, tally)


@njit(cache=True, parallel=True)
def play(users: Users, table: Table, rewards: Rewards, beliefs: Beliefs, tally: Tally) -> None:
    """See :func:`fedbandit.simulate.kernels.play_lazy_table`."""
    groups = group_bounds(users.context_runs)
    tasks = np.arange((groups.size - 1) * tally.regret.shape[2])
    for i in prange(tasks.size):
        _play_task(users, table, rewards, beliefs, tally, groups, tasks[i])
