"""Example "Privacy leakage" of the paper: silo j learns Alice's norm from whether there is a synchronisation.

Alice is the first user of silo i. Under Dubey & Pentland's rule silo i asks for a synchronisation after round 1 exactly
if log det(I + x x^T / lambda) > D, that is if ||x||^2 > lambda (e^D - 1). Silo j knows lambda and D and sees whether it
was asked. No noise on what is sent changes that.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fedbandit.audit.attacks import RIGHT_GUESSES, Attack, Measured, right
from fedbandit.bandit.linucb import fit
from fedbandit.bandit.statistics import contributions, unpack
from fedbandit.paper import presets
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import Adaptive, Every

SECRET = 0.5  # does Alice's norm exceed this?


def run(trials: int, rng: np.random.Generator) -> Measured:
    """Alice's norm is uniform in [0, 1]; silo j says whether it is above one half."""
    base = Plan(silos=2, rounds=100, dim=2, privacy=Privacy(1.0, 1e-5))
    lam = presets.dubey(base).regulariser
    leaky = presets.dubey(base, schedule=Adaptive(math.log1p(SECRET**2 / lam)))
    norms = rng.random(trials)
    guesses = signals(leaky, norms)
    calendar = Every(1)  # asks after round 1 whoever Alice is
    always = np.full(trials, 1 in calendar.times(base.rounds))
    return Measured(RIGHT_GUESSES, right(guesses, norms > SECRET), right(always, norms > SECRET), 0.5, trials)


def signals(plan: Plan, norms: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether silo i asks for a synchronisation after round 1, for each norm of its first user."""
    assert isinstance(plan.schedule, Adaptive)
    alice = contributions(norms[:, None] * np.eye(plan.dim)[0], np.ones(len(norms)), plan.bits)
    covariance = unpack(np.asarray(alice * 2.0**-plan.bits), plan.dim)[1]
    root = fit(np.zeros(alice.shape[-1]), plan.dim, plan.regulariser, plan.learner.floor, 0.0).model.root
    gain = np.linalg.slogdet(np.eye(plan.dim) + root.T @ covariance @ root)[1]
    return np.asarray(gain > plan.schedule.threshold)


ATTACK = Attack(
    title='Example "Privacy leakage": the schedule tells Alice\'s norm',
    adversary="silo j, which sees only whether a synchronisation takes place",
    learns="whether the first user of silo i has ||x|| > 1/2",
    defence="a calendar: synchronise at times fixed before the first user",
    remains="nothing of the schedule; what is sent is hidden by noise",
    run=run,
    trials=2000,
)
