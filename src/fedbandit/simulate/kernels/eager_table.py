"""Eager acting (Algorithm 1) on action sets from a table."""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange

from fedbandit.simulate.kernels.contexts import pick_set, set_block
from fedbandit.simulate.kernels.eager import enter_silo, learn_from, open_bench, survey
from fedbandit.simulate.kernels.layout import Integers, Local, Rewards, Table, Tally, Users
from fedbandit.simulate.kernels.outcomes import (
    CHUNK,
    add_chunk,
    close_book,
    noise_of,
    open_book,
    respond,
)
from fedbandit.simulate.kernels.scoring import best_arm
from fedbandit.simulate.kernels.shards import group_bounds, task_bounds
from fedbandit.simulate.randomness import CONTEXT, REWARD, user_key


@njit(cache=True)
def _play_task(
    users: Users, table: Table, rewards: Rewards, local: Local, tally: Tally, groups: Integers, task: int
) -> None:
    protocols, dim = local.bias.shape[0], local.bias.shape[3]
    shard, first_run, last_run, first_silo, last_silo = task_bounds(task, groups, tally.regret.shape[2], users.silos)
    runs = last_run - first_run
    bench = open_bench(local, protocols * runs, table.height, table.room)
    book = open_book(protocols * runs, dim)
    for silo in range(first_silo, last_silo):
        enter_silo(local, silo, first_run, last_run, bench.theta)
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
                        inverse, theta = local.inverse[q, run, silo], bench.theta[q * runs + r]
                        survey(x, inverse, theta, bench)
                        arm = best_arm(bench.board, local.radius[q, run, start + u], arms)
                        mean = table.means[table.offsets[index] + arm]
                        book.regret[q * runs + r] += table.best[index] - mean
                        who = (q, run, silo, start + u)
                        reward = respond(x, arm, mean, noise, rewards, who, u, book.chosen[q * runs + r], tally)
                        gain, _ = learn_from(x, arm, reward, inverse, local.bias[q, run, silo], theta, bench)
                        local.log_det_gain[q, run, silo] += math.log1p(gain)
            add_chunk(book, count, first_run, shard, tally)
    close_book(book, first_run, shard, tally)


@njit(cache=True, parallel=True)
def play(users: Users, table: Table, rewards: Rewards, local: Local, tally: Tally) -> None:
    """See :func:`fedbandit.simulate.kernels.play_eager_table`."""
    groups = group_bounds(users.context_runs)
    tasks = np.arange((groups.size - 1) * tally.regret.shape[2])
    for i in prange(tasks.size):
        _play_task(users, table, rewards, local, tally, groups, tasks[i])
