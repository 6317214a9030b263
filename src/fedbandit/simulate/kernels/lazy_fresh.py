"""Lazy acting on fresh contexts: all silos decide from one model that stays fixed during the call."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from fedbandit.simulate.kernels.contexts import draw_contexts, empty_contexts
from fedbandit.simulate.kernels.layout import Beliefs, Fresh, Integers, Rewards, Tally, Users
from fedbandit.simulate.kernels.outcomes import (
    CHUNK,
    add_chunk,
    best_mean,
    close_book,
    mean_of,
    noise_of,
    open_book,
    respond,
)
from fedbandit.simulate.kernels.scoring import MEANS, ROWS, best_arm, fold_beliefs, fold_truth, project, square_widths
from fedbandit.simulate.kernels.shards import group_bounds, task_bounds
from fedbandit.simulate.randomness import CONTEXT, REWARD, user_key


@njit(cache=True)
def _play_task(
    users: Users, fresh: Fresh, rewards: Rewards, beliefs: Beliefs, tally: Tally, groups: Integers, task: int
) -> None:
    protocols, _, dim = beliefs.theta.shape
    shard, first_run, last_run, first_silo, last_silo = task_bounds(task, groups, tally.regret.shape[2], users.silos)
    runs = last_run - first_run
    x = empty_contexts(fresh.arms, dim)
    thetas, triangles = fold_beliefs(beliefs, first_run, last_run, x.shape[0])
    truth = fold_truth(fresh.theta, x.shape[0])
    board, rough = np.empty((ROWS, x.shape[1]), thetas.dtype), np.empty((1, x.shape[1]), np.float32)
    book = open_book(protocols * runs, dim)
    for silo in range(first_silo, last_silo):
        for start in range(0, users.rounds, CHUNK):
            count = min(CHUNK, users.rounds - start)
            for u in range(count):
                now = users.first_round + start + u
                key = user_key(users.seed, users.context_runs[first_run], silo, now, CONTEXT)
                draw_contexts(key, fresh.arms, dim, fresh.basis, x)
                for r in range(runs):
                    run = first_run + r
                    best = best_mean(x, fresh.arms, fresh.theta, truth, run, rough)
                    noise = noise_of(rewards.kind, user_key(users.seed, users.runs[run], silo, now, REWARD))
                    for q in range(protocols):
                        project(x, thetas, q * runs + r, MEANS, board)
                        square_widths(x, triangles, q * runs + r, True, board)
                        arm = best_arm(board, beliefs.radius[q, run], fresh.arms)
                        mean = mean_of(x, arm, fresh.theta, run)
                        book.regret[q * runs + r] += best - mean
                        who = (q, run, silo, start + u)
                        respond(x, arm, mean, noise, rewards, who, u, book.chosen[q * runs + r], tally)
            add_chunk(book, count, first_run, shard, tally)
    close_book(book, first_run, shard, tally)


@njit(cache=True, parallel=True)
def play(users: Users, fresh: Fresh, rewards: Rewards, beliefs: Beliefs, tally: Tally) -> None:
    """See :func:`fedbandit.simulate.kernels.play_lazy_fresh`."""
    groups = group_bounds(users.context_runs)
    tasks = np.arange((groups.size - 1) * tally.regret.shape[2])
    for i in prange(tasks.size):
        _play_task(users, fresh, rewards, beliefs, tally, groups, tasks[i])
