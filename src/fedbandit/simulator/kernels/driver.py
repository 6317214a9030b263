"""The single loop over silos and rounds, for every source of contexts and every way of acting."""

from __future__ import annotations

import numpy as np
from numba import prange

from fedbandit._arrays import Integers
from fedbandit._jit import njit
from fedbandit.simulator.kernels.contexts import best_mean, draw, mean_of, open_contexts, pick_set, set_block, sets_of
from fedbandit.simulator.kernels.deciding import enter_silo, learn, open_eager, open_lazy, survey
from fedbandit.simulator.kernels.exploring import WORK_ROWS, explore, is_certain
from fedbandit.simulator.kernels.layout import Beliefs, Fresh, Kept, Local, Rewards, Table, Tally, Users
from fedbandit.simulator.kernels.outcomes import (
    CHUNK,
    add_chunk,
    add_columns,
    add_regret,
    noise_of,
    open_book,
    respond,
)
from fedbandit.simulator.kernels.remembering import enter_memory, open_memory, recall, remember
from fedbandit.simulator.kernels.scoring import MEANS, best_arm, project, square_widths
from fedbandit.simulator.randomness import CHOICE, CONTEXT, REWARD, VISIT, uniform, user_key

__all__ = ["drive", "task_bounds"]


@njit(cache=True, parallel=True)
def drive(
    users: Users,
    fresh: Fresh | None,
    table: Table | None,
    rewards: Rewards,
    beliefs: Beliefs | None,
    local: Local | None,
    kept: Kept | None,
    tally: Tally,
) -> None:
    """See :func:`fedbandit.simulator.kernels.play`. A thread's task is a group of runs in a shard of silos."""
    groups = _group_bounds(users.context_runs)
    tasks = np.arange((groups.size - 1) * tally.regret.shape[2])
    for i in prange(tasks.size):
        _play_task(users, fresh, table, rewards, beliefs, local, kept, tally, groups, tasks[i])


@njit(cache=True)
def _play_task(
    users: Users,
    fresh: Fresh | None,
    table: Table | None,
    rewards: Rewards,
    beliefs: Beliefs | None,
    local: Local | None,
    kept: Kept | None,
    tally: Tally,
    groups: Integers,
    task: int,
) -> None:
    """Play one task. Contexts are drawn `fresh` or come from a `table`; silos decide from `beliefs` or `local` models.

    The other of each pair is None, unless there is `kept`: then some visits are decided from `beliefs` and some from
    `local`. Numba compiles every combination separately and leaves out code that depends on a None, so a test for None
    costs nothing in the loop. Arrays are taken out of their tuples before the loop, because counting their references
    each time would cost a few per cent.
    """
    protocols, dim = tally.regret.shape[0], tally.points.shape[4] - 1
    shard, first_run, last_run, first_silo, last_silo = task_bounds(task, groups, tally.regret.shape[2], users.silos)
    runs = last_run - first_run
    centre = tally.centre
    chosen, regret = open_book(protocols * runs, dim)
    if fresh is not None:
        arms, theta, constant = fresh.arms, fresh.theta, fresh.constant_share
        x, truth, rough = open_contexts(arms, theta)
        height, room = x.shape
    elif table is not None:
        ranges, offsets, means, bests = table.ranges, table.offsets, table.means, table.best
        height, room = table.height, table.room
        first_set, sets = sets_of(ranges, first_silo, last_silo)
    if beliefs is not None:
        thetas, triangles, board = open_lazy(beliefs, first_run, last_run, height, room)
        radius, policies = beliefs.radius, beliefs.policies
        work = np.empty((WORK_ROWS, room))
        if table is not None:
            # Models are fixed during a call, so a set's best action is the same at every visit.
            memo = np.zeros((protocols * runs, sets), dtype=np.int32)  # 1 + the best action, 0 if not yet known
    if local is not None:
        estimates, weights, folded, board, feature, direction = open_eager(local, protocols * runs, height, room)
        inverses, biases, radii = local.inverse, local.bias, local.radius
        if table is not None:
            memory = open_memory(local, protocols * runs, min(sets, users.rounds), height, room)
    if kept is not None:
        withheld, _ = open_book(protocols * runs, dim)
        columns, others = np.zeros(protocols * runs, dtype=np.int64), np.zeros(protocols * runs, dtype=np.int64)
        share, locally, squares = kept.share, kept.locally, kept.squares
        uncounted, uncounted_regret = kept.visits, kept.regret
    for silo in range(first_silo, last_silo):
        if local is not None:
            enter_silo(local, silo, first_run, last_run, estimates)
            if table is not None:
                enter_memory(memory)
        for start in range(0, users.rounds, CHUNK):
            count = min(CHUNK, users.rounds - start)
            for u in range(count):
                now = users.first_round + start + u
                key = user_key(users.seed, users.context_runs[first_run], silo, now, CONTEXT)
                if fresh is not None:
                    draw(key, dim, constant, x)
                elif table is not None:
                    index = pick_set(key, ranges[silo, 0], ranges[silo, 1])
                    x, arms = set_block(table, index), offsets[index + 1] - offsets[index]
                for r in range(runs):
                    run = first_run + r
                    if fresh is not None:
                        best = best_mean(x, arms, theta, truth, run, rough)
                    elif table is not None:
                        best = bests[index]
                    noise = noise_of(rewards.kind, user_key(users.seed, users.runs[run], silo, now, REWARD))
                    if kept is not None:
                        coming = uniform(user_key(users.seed, users.runs[run], silo, now, VISIT))
                    for q in range(protocols):
                        model, who = q * runs + r, (q, run, silo, start + u)
                        counted = public = True
                        if kept is not None:
                            counted = coming < share[q, start + u]
                            public = counted or not locally[q]
                        if beliefs is not None and public:
                            arm, certain = -1, is_certain(policies, q)
                            if table is not None and certain:
                                arm = memo[model, index - first_set] - 1
                            if arm < 0:
                                project(x, thetas, model, MEANS, board)
                                square_widths(x, triangles, model, True, board)
                                if certain:
                                    arm = best_arm(board, radius[q, run], arms)
                                else:
                                    chance = uniform(user_key(users.seed, users.runs[run], silo, now, CHOICE))
                                    arm = explore(board, radius[q, run], arms, policies[q], chance, work)
                                if table is not None and certain:
                                    memo[model, index - first_set] = arm + 1
                        elif local is not None:
                            inverse, estimate = inverses[q, run, silo], estimates[model]
                            if table is not None:
                                recalled = recall(x, index, model, inverse, estimate, weights, folded, memory)
                                arm = best_arm(recalled, radii[q, run, start + u], arms)
                            else:
                                survey(x, inverse, estimate, weights, folded, board)
                                arm = best_arm(board, radii[q, run, start + u], arms)
                        if fresh is not None:
                            mean = mean_of(x, arm, theta, run)
                        elif table is not None:
                            mean = means[offsets[index] + arm]
                        if kept is None:
                            reward = respond(x, arm, mean, noise, rewards, who, u, chosen[model], True, tally)
                        elif counted:
                            at = columns[model]
                            reward = respond(x, arm, mean, noise, rewards, who, at, chosen[model], True, tally)
                            columns[model] += 1
                        else:
                            at = others[model]
                            reward = respond(x, arm, mean, noise, rewards, who, at, withheld[model], False, tally)
                            others[model] += 1
                        lost = best - (reward + centre[q] if rewards.realised else mean)
                        regret[model] += lost
                        if kept is not None:
                            squares[q, run, silo] += reward * reward
                            if not counted:
                                uncounted[q, run, silo] += 1
                                uncounted_regret[q, run, silo] += lost
                        if local is not None:
                            inverse, estimate = inverses[q, run, silo], estimates[model]
                            bias = biases[q, run, silo]
                            gain, step = learn(x, arm, reward, inverse, bias, estimate, feature, direction)
                            if table is not None:
                                remember(direction, gain, step, model, memory)
            if kept is None:
                add_chunk(chosen, count, first_run, shard, tally)
            else:
                add_columns(chosen, columns, first_run, silo, tally.bits, tally.sums)
                add_columns(withheld, others, first_run, silo, tally.bits, kept.sums)
    add_regret(regret, first_run, shard, tally)


@njit(cache=True)
def _group_bounds(context_runs: Integers) -> Integers:
    """The first runs of groups of consecutive runs with the same contexts, then the number of runs."""
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
    """The shard of a task, its first run and one past the last, its first silo and one past the last."""
    group, shard = task // shards, task % shards
    return shard, groups[group], groups[group + 1], shard * silos // shards, (shard + 1) * silos // shards
