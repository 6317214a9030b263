"""A simulated federation: the plan's protocol objects, for all silos of several runs at once.

Only totals reach the analyzer. So by default the protocol is `pooled`: one silo with all users, which is equal in law.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from fedbandit._arrays import Floats, Indices, Integers, Singles, Words
from fedbandit.bandit.statistics import contributions
from fedbandit.knowledge import PublicModel, nothing_public, personal_model, public_model
from fedbandit.plan import Plan
from fedbandit.privacy.noise import SimulatedNoise
from fedbandit.protocol import composition
from fedbandit.protocol.base import Protocol

__all__ = ["RunsNoise", "SimulatedFederation", "runs_noise"]


@dataclass(frozen=True)
class RunsNoise:
    """Noise for several runs side by side (the first axis of every draw), with one generator per run.

    So a run's noise is the same whichever other runs are played with it.
    """

    sources: tuple[SimulatedNoise, ...]

    def gaussian(self, scales: Floats, lead: tuple[int, ...] = ()) -> Integers:
        return np.stack([source.gaussian(scales, lead[1:]) for source in self.sources])

    def binomial(self, trials: int, probability: float, shape: tuple[int, ...]) -> Integers:
        return np.stack([source.binomial(trials, probability, shape[1:]) for source in self.sources])

    def rounded_total(self, values: Floats) -> Integers:
        return np.stack([source.rounded_total(one) for source, one in zip(self.sources, values, strict=True)])

    def words(self, shape: tuple[int, ...]) -> Words:
        return np.stack([source.words(shape[1:]) for source in self.sources])

    def permutation(self, size: int) -> Indices:
        return self.sources[0].permutation(size)


def runs_noise(seed: int, runs: tuple[int, ...], name: str) -> RunsNoise:
    """The noise of the protocol called `name` in these runs."""
    salt = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    return RunsNoise(tuple(SimulatedNoise(np.random.default_rng([seed, run, salt])) for run in runs))


class SimulatedFederation:
    """One plan in R runs: batches go in, and a model comes out after every sync.

    `pooled` uses the protocol's shortcut, which is equal in law; without it, R, S and A are run for every silo. `prior`
    (runs, width) is what each run begins with, instead of the sums in the plan's own prior.
    """

    def __init__(self, plan: Plan, noise: RunsNoise, pooled: bool = True, prior: Floats | None = None) -> None:
        self.plan, self._prior = plan, prior
        self.noise = noise
        self.protocol: Protocol = plan.protocol.pooled() if pooled and not plan.personal else plan.protocol
        self.syncs = 0
        self.round = 0  # of the last sync
        self._state = composition.init(self.protocol, (len(noise.sources),))
        self.public: PublicModel = nothing_public(plan, (len(noise.sources),), prior)
        self.repaired = self.public.fit.repaired
        own = (len(noise.sources), plan.silos, self.protocol.width) if plan.personal else (0,)
        self._own_decoder, self._own = self.protocol.encoder.init_decoder(own), np.zeros(own)  # for silos' own releases

    @property
    def prefix(self) -> Floats:
        """The prefix sums that the analyzer decoded last: (runs, width)."""
        return self._state.prefix

    @property
    def served(self) -> PublicModel:
        """The model that serves visits that count.

        It is the public model, or, in plans with personal columns, each silo's own with leading axes (runs, silos).
        """
        return personal_model(self.plan, self.public, self._own) if self.plan.personal else self.public

    def synchronise(self, sums: Integers, round_: int) -> None:
        """Send the batch of all rounds up to `round_` through R, S and A; sums are (runs, silos or shards, width)."""
        rows = sums.sum(axis=1, keepdims=True) if self.protocol.silos == 1 else sums
        users = (round_ - self.round) * self.plan.silos // self.protocol.silos
        self._step(self.protocol.privatise(rows, users, self.noise), round_)

    def synchronise_points(self, points: Singles, round_: int) -> None:
        """`synchronise` for protocols that need every user.

        `points` is (runs, silos, users, dim + 1): features, then the reward.
        """
        runs, silos, users, _ = points.shape
        packed = contributions(points[..., :-1], points[..., -1], self.plan.bits, self.plan.centre)
        merged = packed.reshape(runs, self.protocol.silos, silos * users // self.protocol.silos, -1)
        self._step(self.protocol.collect(self._state.silos, merged, self.noise), round_)

    def _step(self, batch: Integers, round_: int) -> None:
        self._state, transcript = composition.send(self.protocol, self._state, batch, self.noise)
        self._state = composition.receive(self.protocol, self._state, transcript)
        if self.plan.personal:
            self._own_decoder, own = self.protocol.encoder.decode_step(self._own_decoder, transcript.sent[-1])
            self._own = own * 2.0**-self.plan.bits
        self.round = round_
        self.public = public_model(self.plan, self.syncs, self.prefix, round_, self._prior)
        self.repaired += self.public.fit.repaired
        self.syncs += 1
