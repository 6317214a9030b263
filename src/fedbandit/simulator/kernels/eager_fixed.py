"""Eager acting (Algorithm 1) when every silo has one fixed action set: O(arms d) per user instead of O(arms d^2).

All users of a silo bring the same set, so only one board has to be remembered. It is updated with each user by the
identities of `remembering`, and computed from scratch at the start of a call and every REFRESH users, which costs
O(arms d^2 / REFRESH) per user.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from fedbandit._arrays import Integers
from fedbandit._jit import njit
from fedbandit.simulator.kernels.contexts import set_block
from fedbandit.simulator.kernels.deciding import copy, learn, open_eager, survey, times
from fedbandit.simulator.kernels.driver import task_bounds
from fedbandit.simulator.kernels.layout import Local, Rewards, Table, Tally, Users
from fedbandit.simulator.kernels.outcomes import CHUNK, add_contributions, noise_of, respond
from fedbandit.simulator.kernels.remembering import REFRESH, follow
from fedbandit.simulator.kernels.scoring import best_arm
from fedbandit.simulator.randomness import REWARD, user_key

__all__ = ["drive_fixed"]


@njit(cache=True, parallel=True)
def drive_fixed(users: Users, table: Table, rewards: Rewards, local: Local, tally: Tally) -> None:
    """See :func:`fedbandit.simulator.kernels.play_fixed`."""
    runs = np.arange(users.runs.size + 1)
    tasks = np.arange(users.runs.size * tally.regret.shape[2])
    for i in prange(tasks.size):
        _play_task(users, table, rewards, local, tally, runs, tasks[i])


@njit(cache=True)
def _play_task(
    users: Users, table: Table, rewards: Rewards, local: Local, tally: Tally, runs: Integers, task: int
) -> None:
    protocols, dim = local.bias.shape[0], local.bias.shape[3]
    shard, run, _, first_silo, last_silo = task_bounds(task, runs, tally.regret.shape[2], users.silos)
    thetas, weights, folded, board, feature, direction = open_eager(local, 1, table.height, table.room)
    theta, precision = thetas[0], board.dtype.type
    chosen = np.empty((dim + 1, CHUNK))
    for silo in range(first_silo, last_silo):
        index = table.ranges[silo, 0]
        x = set_block(table, index)
        set_means = table.means[table.offsets[index] : table.offsets[index + 1]]
        for q in range(protocols):
            inverse, bias = local.inverse[q, run, silo], local.bias[q, run, silo]
            times(inverse, bias, theta)
            regret = 0.0
            for start in range(0, users.rounds, CHUNK):
                if start % REFRESH == 0:
                    survey(x, inverse, theta, weights, folded, board)
                count = min(CHUNK, users.rounds - start)
                for u in range(count):
                    now = users.first_round + start + u
                    noise = noise_of(rewards.kind, user_key(users.seed, users.runs[run], silo, now, REWARD))
                    arm = best_arm(board, local.radius[q, run, start + u], set_means.size)
                    who = (q, run, silo, start + u)
                    reward = respond(x, arm, set_means[arm], noise, rewards, who, u, chosen, True, tally)
                    gained = reward + tally.centre[q] if rewards.realised else set_means[arm]
                    regret += table.best[index] - gained
                    gain, step = learn(x, arm, reward, inverse, bias, theta, feature, direction)
                    copy(direction, weights)
                    follow(x, weights, 0, precision(step), precision(-1.0 / (1.0 + gain)), board)
                add_contributions(chosen, count, tally.bits, tally.sums[q, run, shard])
            tally.regret[q, run, shard] += regret
