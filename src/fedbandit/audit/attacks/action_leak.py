"""The leak of `schedule_leak` against Fed-DP, which protects only what the actions of silo j reveal: they leak too.

After a sync, silo j decides by sums that carry everybody's noise; without one, it decides by its own user alone. So its
action in round 2 is either random or predictable for an onlooker, and which of the two depends on the norm of silo i's
first user.
"""

from __future__ import annotations

import numpy as np

from fedbandit._arrays import Flags, Indices
from fedbandit.audit.attacks import RIGHT_GUESSES, Attack, Measured, best_guess, right
from fedbandit.audit.attacks.schedule_leak import asks, leaky_plan
from fedbandit.bandit import linucb
from fedbandit.bandit.statistics import contributions
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.noise import NoiseSource, SimulatedNoise
from fedbandit.protocol import composition

__all__ = ["ATTACK"]

ARMS = 60
BUDGET = Privacy(1.0, 1e-5)


def run(trials: int, rng: np.random.Generator) -> Measured:
    """Alice has norm 1 or 0; the onlooker sees the action of silo j in round 2 and says which."""
    plan, noise = leaky_plan(BUDGET), SimulatedNoise(rng)
    alice = rng.random(trials) < 0.5
    never, always = np.zeros(trials, dtype=bool), np.ones(trials, dtype=bool)
    known = _second_action(plan, alice, never, noise)[0]
    leaky = _second_action(plan, alice, asks(plan, alice.astype(float), noise), noise)
    calendar = _second_action(plan, alice, always, noise)
    guesses = [right(actions != known, alice) for actions in (leaky, calendar)]
    return Measured(RIGHT_GUESSES, guesses[0], guesses[1], best_guess(BUDGET), trials)


def _second_action(plan: Plan, alice: Flags, synchronised: Flags, noise: NoiseSource) -> Indices:
    """Silo j's action in round 2 of each trial; `synchronised` says whether there was a sync after round 1."""
    first = np.eye(plan.dim)[0]
    x = np.stack([alice[:, None] * first, np.broadcast_to(first, (len(alice), plan.dim))], axis=1)
    batch = contributions(x, np.ones(x.shape[:2]), plan.bits)  # (trials, silos, width)
    state = composition.step(plan.protocol, composition.init(plan.protocol, (len(alice),)), batch, noise)
    sums = np.where(synchronised[:, None], state.prefix, batch[:, 1] * 2.0**-plan.bits)
    model = plan.fit(sums, 2).model
    angles = 2 * np.pi * np.arange(ARMS) / ARMS
    arms = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return np.asarray(np.argmax(linucb.upper_bounds(arms[None], model), axis=-1))


ATTACK = Attack(
    title="The leak against Fed-DP: the actions of silo j reveal Alice's norm",
    adversary="anybody who sees what silo j recommends to its second user",
    learns="whether the first user of silo i has norm 1 or 0",
    defence="a calendar: silo j synchronises after round 1 whoever Alice is, so only noise is left to see",
    remains="what the noise of one release allows, the plan's own (epsilon, delta)",
    run=run,
    trials=2000,
)
