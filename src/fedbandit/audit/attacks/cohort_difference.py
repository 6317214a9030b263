"""Differencing two cohorts of a secure sum: the same sync is opened with silo 0 and without it.

All silos contribute to the noise of a secure sum. Two totals of one sync share all of it except silo 0's part, so their
difference is silo 0's release with a hundredth of the noise variance that hides it in the sum.
"""

from __future__ import annotations

import numpy as np

from fedbandit.audit.attacks import RIGHT_GUESSES, Attack, Measured, best_guess, right
from fedbandit.audit.worlds import worst_pair
from fedbandit.bandit.statistics import contributions
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.noise import SimulatedNoise
from fedbandit.protocol import composition
from fedbandit.protocol.adversaries import gaussian_score

__all__ = ["ATTACK"]

SILOS = 100
BUDGET = Privacy(1.0, 1e-5)


def run(trials: int, rng: np.random.Generator) -> Measured:
    """The analyzer says which of two users is in silo 0: from two totals of a sync, or from the only one it may see."""
    plan = Plan(silos=SILOS, rounds=1, dim=2, privacy=BUDGET, trust="secure-sum")
    protocol, noise = plan.protocol, SimulatedNoise(rng)
    pair = worst_pair(plan.dim, BUDGET.adjacency, plan.centre, plan.ratio)
    users = np.stack([contributions(user.x, user.y, plan.bits) for user in pair])
    truth = rng.random(trials) < 0.5
    batch = np.zeros((trials, SILOS, protocol.width), dtype=np.int64)
    batch[:, 0] = users[truth.astype(int)]
    _, (sent, held) = composition.send(protocol, composition.init(protocol, (trials,)), batch, noise)
    everybody = protocol.total(held)
    without = protocol.total(protocol.passed_on(tuple(array[:, 1:] for array in sent), noise))
    expected = (users[0] << plan.encoder.fraction_bits, users[1] << plan.encoder.fraction_bits)
    own = protocol.release_scales(users=1)
    difference = gaussian_score(everybody - without, expected, own, axes=(-1,))
    one_total = gaussian_score(everybody, expected, own * np.sqrt(SILOS), axes=(-1,))
    return Measured(
        RIGHT_GUESSES,
        right(np.asarray(difference > 0), truth),
        right(np.asarray(one_total > 0), truth),
        best_guess(BUDGET),
        trials,
    )


ATTACK = Attack(
    title="Differencing two cohorts of a secure sum",
    adversary="the analyzer, with a mixer that opens a sync twice, with and without one silo",
    learns="which of two users is in that silo",
    defence="the mixer never publishes more than one total per sync; no sync is reopened, and a late silo is left out",
    remains="a mixer that breaks the rule: each silo then has only its own noise; the guarantee states that epsilon",
    run=run,
    trials=2000,
)
