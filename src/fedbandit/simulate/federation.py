"""A simulated federation: the protocol objects of the plan, for all silos of several runs at once.

Only totals reach the analyzer, so by default the protocol is `pooled`: one silo with everybody's users, equal in law.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedbandit.bandit import linucb
from fedbandit.bandit.linucb import Model
from fedbandit.bandit.statistics import contributions
from fedbandit.plan import Plan
from fedbandit.privacy.noise import Integers, SimulatedNoise, Words
from fedbandit.protocol.base import Protocol
from fedbandit.protocol.encoder import Stream


@dataclass(frozen=True)
class RunsNoise:
    """Noise for several runs side by side (the first axis of every draw), each from a generator of its own.

    So a run's noise is the same whichever runs it is played with.
    """

    sources: tuple[SimulatedNoise, ...]

    def gaussian(self, scales: NDArray[np.float64], lead: tuple[int, ...] = ()) -> Integers:
        return np.stack([source.gaussian(scales, lead[1:]) for source in self.sources])

    def binomial(self, trials: int, probability: float, shape: tuple[int, ...]) -> Integers:
        return np.stack([source.binomial(trials, probability, shape[1:]) for source in self.sources])

    def rounded_total(self, values: NDArray[np.float64]) -> Integers:
        return np.stack([source.rounded_total(one) for source, one in zip(self.sources, values, strict=True)])

    def words(self, shape: tuple[int, ...]) -> Words:
        return np.stack([source.words(shape[1:]) for source in self.sources])

    def permutation(self, size: int) -> NDArray[np.intp]:
        return self.sources[0].permutation(size)


def runs_noise(seed: int, runs: tuple[int, ...], name: str) -> RunsNoise:
    """The noise of the protocol called `name` in these runs."""
    salt = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    return RunsNoise(tuple(SimulatedNoise(np.random.default_rng([seed, run, salt])) for run in runs))


class Federation:
    """One plan in R runs: batches go in, a model comes out after every synchronisation.

    `pooled` plays the exact shortcut of the protocol; without it every silo's R, S and A are run one by one.
    """

    def __init__(self, plan: Plan, noise: RunsNoise, pooled: bool = True) -> None:
        self.plan = plan
        self.noise = noise
        self.protocol: Protocol = plan.protocol.pooled() if pooled else plan.protocol
        runs = len(noise.sources)
        self._silos: Stream = self.protocol.init((runs, self.protocol.silos))
        self._analyzer: Stream = self.protocol.init_analyzer((runs,))
        self.prefix = np.zeros((runs, self.protocol.width))  # what the analyzer last decoded
        self.repaired = 0
        self.synchronisations = 0
        self.model = self._fit(0)

    def synchronise(self, sums: Integers, users: int, round_: int) -> Model:
        """A batch of `users` users a silo, as sums (runs, silos or shards, width), goes through R, S and A."""
        rows = sums.sum(axis=1, keepdims=True) if self.protocol.silos == 1 else sums
        batch = self.protocol.privatise(rows, users * self.plan.silos // self.protocol.silos, self.noise)
        return self._through(batch, round_)

    def synchronise_points(self, points: NDArray[np.float32], round_: int) -> Model:
        """The same for protocols that need every user: points (runs, silos, users, dim + 1), features then reward."""
        runs, silos, users, _ = points.shape
        packed = contributions(points[..., :-1], points[..., -1], self.plan.bits, self.plan.centre)
        merged = packed.reshape(runs, self.protocol.silos, silos * users // self.protocol.silos, -1)
        return self._through(self.protocol.collect(self._silos, merged, self.noise), round_)

    def _through(self, batch: Integers, round_: int) -> Model:
        self._silos, messages = self.protocol.release(self._silos, batch, self.noise)
        mixed = self.protocol.mix(messages, self.noise)
        self._analyzer, self.prefix = self.protocol.decode(self._analyzer, mixed)
        self.synchronisations += 1
        self.model = self._fit(round_)
        return self.model

    def _fit(self, round_: int) -> Model:
        learner = self.plan.learner
        fitted = linucb.fit(self.prefix, self.plan.dim, learner.regulariser, learner.floor, self.plan.radius(round_))
        self.repaired += fitted.repaired
        return fitted.model
