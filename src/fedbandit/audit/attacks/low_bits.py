"""Recovering a value from the low bits of floating-point Gaussian noise.

A float64 sampler multiplies a standard normal z by sigma. Not every float is such a product: in part of each binade
products are sparser than floats. Noise added to zero is always a product; noise added to another value is rounded again
and often is not. So the last bits tell whether there was a value, however large sigma is.
"""

from __future__ import annotations

import numpy as np

from fedbandit._arrays import Flags, Floats
from fedbandit.audit.attacks import RIGHT_GUESSES, Attack, Measured, right
from fedbandit.bandit.statistics import contributions
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.noise import SimulatedNoise

__all__ = ["ATTACK"]


def run(trials: int, rng: np.random.Generator) -> Measured:
    """One release of a silo that had one user or none; the adversary looks at the last bits and says which."""
    plan = Plan(silos=2, rounds=1, dim=10, privacy=Privacy(1.0, 1e-5), trust="silo")
    protocol, scales = plan.protocol, plan.protocol.scales.packed(plan.dim)
    x = rng.standard_normal((trials, plan.dim))
    x /= np.linalg.norm(x, axis=-1, keepdims=True)
    present = rng.random(trials) < 0.5
    users = contributions(x * present[:, None], rng.random(trials), plan.bits)
    floating = users * 2.0**-plan.bits + scales * rng.standard_normal(users.shape)
    _, (integers,) = protocol.release(protocol.init((trials,)), users, SimulatedNoise(rng))
    on_grid = integers * 2.0**-protocol.release_bits
    guesses = [np.asarray(~_is_product(released, scales).all(axis=-1)) for released in (floating, on_grid)]
    return Measured(RIGHT_GUESSES, right(guesses[0], present), right(guesses[1], present), 0.5, trials)


def _is_product(released: Floats, scales: Floats) -> Flags:
    """Whether some float z has scales * z == released, exactly."""
    near = released / scales
    candidates = [near, np.nextafter(near, np.inf), np.nextafter(near, -np.inf)]
    return np.asarray(np.any([scales * z == released for z in candidates], axis=0))


ATTACK = Attack(
    title="Reading the low bits of floating-point noise",
    adversary="anybody who sees every bit of one release",
    learns="whether a user was there at all",
    defence="sums are integers and noise is drawn on the same grid (exactly, when live): every integer can be noise",
    remains="no leak of this kind",
    run=run,
    trials=2000,
)
