"""The same leak against Fed-DP, which only protects what silo j's actions tell: they tell it too.

After a synchronisation silo j decides by sums that carry everybody's noise; without one by its own user alone. So the
action it takes in round 2 is one that an onlooker can predict, or a random one: and which of the two depends on the
norm of silo i's first user.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fedbandit.audit.attacks import RIGHT_GUESSES, Attack, Measured, best_guess, right
from fedbandit.bandit import linucb
from fedbandit.bandit.statistics import contributions
from fedbandit.paper import presets
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.noise import SimulatedNoise
from fedbandit.schedule import Adaptive

Bits = NDArray[np.bool_]
ARMS = 60
BUDGET = Privacy(1.0, 1e-5)


def run(trials: int, rng: np.random.Generator) -> Measured:
    """Alice has norm 1 or 0; the onlooker sees the action of silo j in round 2 and says which."""
    base = Plan(silos=2, rounds=100, dim=2, privacy=BUDGET)
    plan = presets.dubey(base, schedule=Adaptive(math.log1p(0.25 / presets.dubey(base).regulariser)))
    alice = rng.random(trials) < 0.5
    known = _second_action(plan, alice, np.zeros(trials, dtype=bool), rng)[0]  # without a synchronisation
    leaky = _second_action(plan, alice, alice, rng)
    calendar = _second_action(plan, alice, np.ones(trials, dtype=bool), rng)
    return Measured(
        RIGHT_GUESSES, right(leaky != known, alice), right(calendar != known, alice), best_guess(BUDGET), trials
    )


def _second_action(plan: Plan, alice: Bits, synchronised: Bits, rng: np.random.Generator) -> NDArray[np.intp]:
    """Silo j's action in round 2; `synchronised` says where there was a synchronisation after round 1."""
    first = np.eye(plan.dim)[0]
    x = np.stack([alice[:, None] * first, np.broadcast_to(first, (len(alice), plan.dim))], axis=1)
    batch = contributions(x, np.ones(x.shape[:2]), plan.bits)  # (trials, silos, width)
    protocol, noise = plan.protocol, SimulatedNoise(rng)
    _, message = protocol.release(protocol.init(batch.shape[:2]), batch, noise)
    _, prefix = protocol.decode(protocol.init_analyzer((len(alice),)), protocol.mix(message, noise))
    own = batch[:, 1] * 2.0**-plan.bits
    sums = np.where(synchronised[:, None], prefix, own)
    model = linucb.fit(sums, plan.dim, plan.regulariser, plan.learner.floor, plan.radius(2)).model
    angles = 2 * np.pi * np.arange(ARMS) / ARMS
    arms = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return np.asarray(np.argmax(linucb.upper_bounds(arms[None], model), axis=-1))


ATTACK = Attack(
    title="The leak against Fed-DP: the actions of silo j tell Alice's norm",
    adversary="anybody who sees what silo j recommends to its second user",
    learns="whether the first user of silo i has norm 1 or 0",
    defence="a calendar: silo j synchronises after round 1 whoever Alice is, and only noise is left to look at",
    remains="what the noise of one release allows, the plan's own (epsilon, delta)",
    run=run,
    trials=2000,
)
