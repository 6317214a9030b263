"""Averaging redrawn releases: a silo that draws new noise after every crash releases the same sum many times.

The average of R copies with independent noise has the noise of one copy divided by sqrt(R).
"""

from __future__ import annotations

import numpy as np

from fedbandit._arrays import Flags, Integers
from fedbandit.audit.attacks import RIGHT_GUESSES, Attack, Measured, best_guess, right
from fedbandit.audit.worlds import worst_pair
from fedbandit.bandit.statistics import contributions
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.noise import SimulatedNoise
from fedbandit.protocol.adversaries import gaussian_score

__all__ = ["ATTACK"]

CRASHES = 200
BUDGET = Privacy(1.0, 1e-5)


def run(trials: int, rng: np.random.Generator) -> Measured:
    """The analyzer receives release 1 of a silo again after every crash, and says which of two users is in it."""
    plan = Plan(silos=2, rounds=1, dim=2, privacy=BUDGET, trust="silo")
    pair = worst_pair(plan.dim, BUDGET.adjacency, plan.centre, plan.ratio)
    users = np.stack([contributions(user.x, user.y, plan.bits) for user in pair])
    truth = rng.random(trials) < 0.5
    batch, protocol, noise = users[truth.astype(int)], plan.protocol, SimulatedNoise(rng)

    def receive() -> Integers:
        return protocol.release(protocol.init((trials,)), batch, noise)[1][0]

    redrawn = [receive() for _ in range(CRASHES)]
    kept = [receive()] * CRASHES  # drawn once and stored before it is sent, so every copy has the same bytes
    expected = users * 2**plan.encoder.fraction_bits
    scales = protocol.release_scales(users=1)

    def guess(received: list[Integers]) -> Flags:
        average = np.mean(received, axis=0)
        return np.asarray(gaussian_score(average, (expected[0], expected[1]), scales, axes=(-1,)) > 0)

    return Measured(RIGHT_GUESSES, right(guess(redrawn), truth), right(guess(kept), truth), best_guess(BUDGET), trials)


ATTACK = Attack(
    title="Averaging releases that were redrawn after a crash",
    adversary="the analyzer, which asks again whenever the silo comes back",
    learns="which of two users is in the batch",
    defence="a release is drawn once and stored before it is sent; if asked again, a silo sends the same bytes",
    remains="what one release allows: the plan's own (epsilon, delta)",
    run=run,
    trials=2000,
)
