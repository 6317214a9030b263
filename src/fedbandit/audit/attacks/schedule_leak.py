"""Example "Privacy leakage" of the paper: whether there is a sync tells silo j about Alice's norm.

Alice is the first user of silo i. Under Dubey & Pentland's rule silo i asks for a sync after round 1 exactly if
log det(I + x x^T / lambda) > D, that is, if ||x||^2 > lambda (e^D - 1). Silo j knows lambda and D and sees whether it
was asked. Noise on the messages does not change that.
"""

from __future__ import annotations

import math

import numpy as np

from fedbandit import presets
from fedbandit._arrays import Flags, Floats
from fedbandit.audit.attacks import RIGHT_GUESSES, Attack, Measured, right
from fedbandit.bandit.statistics import contributions, width
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.noise import NoiseSource, SimulatedNoise
from fedbandit.schedule import Adaptive, Every

__all__ = ["ATTACK", "asks", "leaky_plan"]

SECRET = 0.5  # does Alice's norm exceed this?


def run(trials: int, rng: np.random.Generator) -> Measured:
    """Alice's norm is uniform in [0, 1]; silo j says whether it is above one half."""
    plan = leaky_plan(Privacy(1.0, 1e-5))
    norms = rng.random(trials)
    asked = asks(plan, norms, SimulatedNoise(rng))
    always = np.full(trials, 1 in Every(1).times(plan.rounds))  # a calendar asks after round 1, whoever Alice is
    return Measured(RIGHT_GUESSES, right(asked, norms > SECRET), right(always, norms > SECRET), 0.5, trials)


def leaky_plan(budget: Privacy) -> Plan:
    """Dubey & Pentland's algorithm, with the threshold that a first user of norm SECRET just reaches."""
    base = Plan(silos=2, rounds=100, dim=2, privacy=budget)
    return presets.dubey(base, schedule=Adaptive(math.log1p(SECRET**2 / presets.dubey(base).regulariser)))


def asks(plan: Plan, norms: Floats, noise: NoiseSource) -> Flags:
    """Whether silo i asks for a sync after round 1, for each norm of its first user."""
    rule = plan.rule
    alice = contributions(norms[:, None] * np.eye(plan.dim)[0], np.ones(len(norms)), plan.bits)
    root = plan.fit(np.zeros(width(plan.dim)), 1).model.root
    return rule.step(rule.init(norms.shape), alice[:, plan.dim :], root, noise)[1]


ATTACK = Attack(
    title='Example "Privacy leakage": the schedule reveals Alice\'s norm',
    adversary="silo j, which sees only whether a sync takes place",
    learns="whether the first user of silo i has ||x|| > 1/2",
    defence="a calendar: synchronise at times that are fixed before the first user comes",
    remains="no leak through the schedule; noise hides what is sent",
    run=run,
    trials=2000,
)
