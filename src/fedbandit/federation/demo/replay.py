"""What other protocols would have done with the same users, by the library's own R, S, A and LinUCB."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedbandit.bandit import linucb
from fedbandit.bandit.linucb import Model
from fedbandit.bandit.statistics import contributions, width
from fedbandit.federation.demo.users import Floats, Indices, Users
from fedbandit.plan import Plan
from fedbandit.privacy.noise import SimulatedNoise


def replay(users: Users, plan: Plan, seed: int) -> Indices:
    """Actions (silos, rounds) of a federation under this plan."""
    return _play(users, plan, seed, alone=False)


def replay_alone(users: Users, plan: Plan, seed: int) -> Indices:
    """Actions of silos that never talk: each learns from its own users, under the plan of a single silo."""
    if plan.silos != 1:
        raise ValueError(f"plan must be for one silo, got {plan.silos}")
    return _play(users, plan, seed, alone=True)


def _play(users: Users, plan: Plan, seed: int, alone: bool) -> Indices:
    """Silos as an axis of one federation, or (`alone`) as so many federations of one."""
    silos, rounds = users.luck.shape
    lead: tuple[int, ...] = (silos, 1) if alone else (silos,)
    noise, protocol = SimulatedNoise(np.random.default_rng(seed)), plan.protocol
    state, decoder = protocol.init(lead), protocol.init_analyzer(lead[:-1])
    prefix = np.zeros((*lead[:-1], width(plan.dim)))
    actions = np.zeros((silos, rounds), dtype=np.int64)
    for first, last in zip((0, *plan.times[:-1]), plan.times, strict=True):
        model = _model(plan, prefix, first)
        x = users.contexts[:, first:last]
        actions[:, first:last] = np.argmax(linucb.upper_bounds(x, model), axis=-1)
        points = _points(users, actions, first, last, plan).reshape(*lead, last - first, width(plan.dim))
        state, message = protocol.release(state, protocol.collect(state, points, noise), noise)
        decoder, prefix = protocol.decode(decoder, protocol.mix(message, noise))
    return actions


def _model(plan: Plan, prefix: Floats, round_: int) -> Model:
    """One model for all silos, or one each, shaped to decide for (silos, rounds) at once."""
    learner = plan.learner
    model = linucb.fit(prefix, plan.dim, learner.regulariser, learner.floor, plan.radius(round_)).model
    return Model(model.theta[..., None, :], model.root[..., None, :, :], model.radius[..., None])


def _points(users: Users, actions: Indices, first: int, last: int, plan: Plan) -> NDArray[np.int64]:
    chosen = np.take_along_axis(users.contexts, actions[..., None, None], axis=2)[:, first:last, 0]
    return contributions(chosen, users.rewards(actions)[:, first:last], plan.bits, plan.centre)
