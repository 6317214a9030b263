"""The one loop over silos and rounds, compiled anew for every source of contexts and every way of acting."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from fedbandit._arrays import Integers
from fedbandit.simulator.kernels.contexts import best_of, mean_of, meet, open_source, room_for
from fedbandit.simulator.kernels.deciding import choose, enter_silo, learn, open_desk
from fedbandit.simulator.kernels.layout import Beliefs, Fresh, Local, Rewards, Table, Tally, Users
from fedbandit.simulator.kernels.outcomes import CHUNK, add_chunk, close_book, noise_of, open_book, respond
from fedbandit.simulator.randomness import CONTEXT, REWARD, user_key

__all__ = ["drive", "task_bounds"]


@njit(cache=True, parallel=True)
def drive(users: Users, source: Fresh | Table, rewards: Rewards, model: Beliefs | Local, tally: Tally) -> None:
    """See :func:`fedbandit.simulator.kernels.play`. Tasks for threads are groups of runs times shards of silos."""
    groups = _group_bounds(users.context_runs)
    tasks = np.arange((groups.size - 1) * tally.regret.shape[2])
    for i in prange(tasks.size):
        _play_task(users, source, rewards, model, tally, groups, tasks[i])


@njit(cache=True)
def _play_task(
    users: Users,
    source: Fresh | Table,
    rewards: Rewards,
    model: Beliefs | Local,
    tally: Tally,
    groups: Integers,
    task: int,
) -> None:
    protocols, dim = tally.regret.shape[0], tally.points.shape[4] - 1
    shard, first_run, last_run, first_silo, last_silo = task_bounds(task, groups, tally.regret.shape[2], users.silos)
    runs = last_run - first_run
    contexts = open_source(source)
    desk = open_desk(model, room_for(contexts, first_silo, last_silo), first_run, last_run)
    book = open_book(protocols * runs, dim)
    for silo in range(first_silo, last_silo):
        enter_silo(desk, silo, first_run, last_run)
        for start in range(0, users.rounds, CHUNK):
            count = min(CHUNK, users.rounds - start)
            for u in range(count):
                now = users.first_round + start + u
                key = user_key(users.seed, users.context_runs[first_run], silo, now, CONTEXT)
                x, arms, index = meet(contexts, key, silo)
                for r in range(runs):
                    run = first_run + r
                    best = best_of(contexts, x, index, run)
                    noise = noise_of(rewards.kind, user_key(users.seed, users.runs[run], silo, now, REWARD))
                    for q in range(protocols):
                        model_, who = q * runs + r, (q, run, silo, start + u)
                        arm = choose(desk, x, arms, index, who, model_)
                        mean = mean_of(contexts, x, arm, index, run)
                        book.regret[model_] += best - mean
                        reward = respond(x, arm, mean, noise, rewards, who, u, book.chosen[model_], tally)
                        learn(desk, x, arm, reward, who, model_)
            add_chunk(book, count, first_run, shard, tally)
    close_book(book, first_run, shard, tally)


@njit(cache=True)
def _group_bounds(context_runs: Integers) -> Integers:
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
