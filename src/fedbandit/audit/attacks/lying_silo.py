"""A silo that lies about its norms: what it can do to the model, and what clipping at the silo does not prevent.

The silo that serves a user checks features and rewards, and a lying silo does not check. It can send any numbers at all
and control the model. Under trust `silo` the analyzer sees each silo's noisy sums and can refuse sums that no users
could have caused; then the liar is left with lies that look like users. Under `secure-sum` nobody sees a single silo,
and nothing short of a zero-knowledge proof would help: there silos must be honest, as the plan assumes. The privacy of
others is never at risk: they add their own noise.
"""

from __future__ import annotations

import numpy as np

from fedbandit._arrays import Floats, Integers
from fedbandit.audit.attacks import Attack, Measured
from fedbandit.bandit.statistics import contributions
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.noise import SimulatedNoise
from fedbandit.protocol import composition
from fedbandit.protocol.base import SILOS
from fedbandit.schedule import Every

__all__ = ["ATTACK", "LIE", "largest_bias"]

NOISE_ALLOWANCE = 6.0  # standard deviations by which a sum may exceed what its users could have caused
LIE = 1e5  # users' worth of bias in a batch


def run(trials: int, rng: np.random.Generator) -> Measured:
    """Nine honest silos have users who like the first axis, and one pushes the second: how far it turns the model."""
    plan = Plan(silos=10, rounds=2000, dim=2, privacy=Privacy(1.0, 1e-5), trust="silo", schedule=Every(250))
    honest = _honest_sums(plan, rng)
    push = np.zeros((plan.encoder.size, plan.protocol.width))
    push[:, 1] = 1.0
    wild = push * LIE
    sly = push * np.diff(largest_bias(plan), prepend=0.0)[:, None]  # at the edge of what the analyzer accepts
    turned = [_turned(plan, honest, lie, trials, rng) for lie in (wild, sly)]
    noiseless = honest.sum(axis=(0, 1)) * 2.0**-plan.bits + sly.sum(axis=0)
    limit = _cosine(plan.fit(noiseless, plan.rounds).model.theta)
    return Measured("cosine of the model with the liar's direction", turned[0], turned[1], float(limit), trials)


def largest_bias(plan: Plan) -> Floats:
    """The largest entry of a silo's noisy bias sum that the analyzer accepts after each sync."""
    noise = NOISE_ALLOWANCE * plan.protocol.scales.bias * plan.encoder.prefix_norms
    return np.asarray(np.array(plan.times) + noise)


def _honest_sums(plan: Plan, rng: np.random.Generator) -> Integers:
    """Batch sums (syncs, honest silos, width) of users rewarded along the first axis."""
    x = rng.standard_normal((plan.encoder.size, plan.silos - 1, plan.times[0], plan.dim))
    x /= np.linalg.norm(x, axis=-1, keepdims=True)
    return np.asarray(contributions(x, np.maximum(0.0, x[..., 0]), plan.bits).sum(axis=-2))


def _turned(plan: Plan, honest: Integers, lie: Floats, trials: int, rng: np.random.Generator) -> float:
    """Mean cosine of the last model with the second axis; the liar adds no noise to its made-up sums."""
    protocol, noise = plan.protocol, SimulatedNoise(rng)
    state = composition.init(protocol, (trials,), silos=honest.shape[1])
    liar = protocol.init((1,))
    for sums, lies in zip(honest, lie, strict=True):
        state, transcript = composition.send(protocol, state, np.broadcast_to(sums, (trials, *sums.shape)), noise)
        liar, made_up = protocol.encoder.step(liar, np.rint(lies * 2.0**plan.bits).astype(np.int64)[None])
        added = np.broadcast_to(made_up, (trials, *made_up.shape))
        held = tuple(np.concatenate([array, added], axis=SILOS) for array in transcript.held)
        state = composition.receive(protocol, state, transcript._replace(held=held))
    return float(np.mean(_cosine(plan.fit(state.prefix, plan.rounds).model.theta)))


def _cosine(theta: Floats) -> Floats:
    return np.asarray(theta[..., 1] / np.linalg.norm(theta, axis=-1))


ATTACK = Attack(
    title="A silo that lies about its norms",
    adversary="one of ten silos, which sends whatever it likes",
    learns="nothing; instead it steers everybody's recommendations",
    defence="under trust `silo` the analyzer refuses sums that no users within bounds could have caused",
    remains="invented users within bounds, as many as the silo may have; and under `secure-sum`, any lie at all",
    run=run,
    trials=200,
)
