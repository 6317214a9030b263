"""The paper's pseudo-code on the engine's own users, with the engine's own noise or with noise of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedbandit.bandit.statistics import is_diagonal, unpack
from fedbandit.paper.reference import NonPrivate, Run, dubey, private_fedlinucb, private_fedlinucb_lazy
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import Adaptive, every
from fedbandit.simulator.kernels import contexts_of
from fedbandit.simulator.randomness import REWARD, uniform, user_key
from fedbandit.simulator.simulated import runs_noise
from fedbandit.simulator.tasks import Synthetic, Tabled, synthetic
from tests.simulator.kernels.cases import set_of

SEED, SILOS, ROUNDS, DIM, ARMS = 5, 3, 40, 3, 6

FINE = 36  # bits: the reference does not round, so neither should the engine, to speak of

TASK = synthetic(DIM, ARMS)


class SameUsers:
    """The users that the engine draws, one by one, in float64."""

    def __init__(self, task: Synthetic | Tabled, run: int, silos: int = SILOS) -> None:
        self.task, self.run = task, run
        self.table = task.source(SEED, (run,), silos) if isinstance(task, Tabled) else None
        self.theta = task.table.theta if isinstance(task, Tabled) else task.theta(SEED, run)
        self.met: dict[tuple[int, int], np.ndarray] = {}

    def contexts(self, t: int, i: int) -> np.ndarray:
        if (t, i) not in self.met:
            self.met[t, i] = self._drawn(t, i).astype(float)
        return self.met[t, i]

    def _drawn(self, t: int, i: int) -> np.ndarray:
        if isinstance(self.task, Tabled):
            assert self.table is not None
            chosen = set_of(SEED, self.run, i, t, self.table)
            first, last = self.task.table.offsets[chosen : chosen + 2]
            return self.task.table.features[first:last]
        if self.task.contexts == "fixed":  # one set per silo, that of its users of round 0
            return contexts_of(SEED, 0, i, 0, ARMS, DIM)
        return contexts_of(SEED, self.run, i, t, ARMS, DIM)

    def mean(self, t: int, i: int, a: int) -> float:
        return float(self.contexts(t, i)[a] @ self.theta)

    def reward(self, t: int, i: int, a: int) -> float:
        key = np.uint64(user_key(np.uint64(SEED), self.run, i, t, REWARD))
        return float(uniform(key) < self.mean(t, i, a))


class SameNoise:
    """What the engine's pooled federation adds, drawn in the same order and given to the first silo."""

    def __init__(self, plan: Plan, name: str, run: int) -> None:
        self.plan, self.protocol = plan, plan.protocol.pooled()
        self.source = runs_noise(SEED, (run,), name)
        self.releases: dict[int, np.ndarray] = {}
        self.rounds: dict[int, np.ndarray] = {}
        cell = np.where(is_diagonal(plan.dim), 1.0, math.sqrt(0.5))[plan.dim :]
        self.schedule_scales = cell * plan.schedule_sigma * 2.0**plan.bits

    def release(self, k: int) -> np.ndarray:
        if k not in self.releases:
            drawn = self.protocol.draw(self.source, (1, 1))[0, 0]
            self.releases[k] = drawn * 2.0**-self.protocol.release_bits
        return self.releases[k]

    def bias(self, k: int, i: int) -> np.ndarray:
        return unpack(self.release(k), self.plan.dim)[0] * (i == 0)

    def covariance(self, k: int, i: int) -> np.ndarray:
        return unpack(self.release(k), self.plan.dim)[1] * (i == 0)

    def schedule(self, t: int, i: int) -> np.ndarray:
        """The private rule's noise: of all silos at once, in every round."""
        if t not in self.rounds:
            self.rounds[t] = self.source.gaussian(self.schedule_scales, (1, self.plan.silos))[0] * 2.0**-self.plan.bits
        packed = np.concatenate([np.zeros(self.plan.dim), self.rounds[t][i]])
        return unpack(packed, self.plan.dim)[1]


class OwnNoise(SameNoise):
    """Fresh noise of every silo with the deviations that the plan promises, from numpy's own normals."""

    def __init__(self, plan: Plan, run: int, factor: float = 1.0) -> None:
        super().__init__(plan, "", run)
        self.generator, self.factor = np.random.default_rng([77, run]), factor
        self.each: dict[tuple[int, int], np.ndarray] = {}

    def of(self, k: int, i: int) -> np.ndarray:
        if (k, i) not in self.each:
            scales = self.plan.protocol.scales.packed(self.plan.dim)
            self.each[k, i] = self.generator.normal(size=scales.size) * scales
        return self.each[k, i] * self.factor

    def bias(self, k: int, i: int) -> np.ndarray:
        return unpack(self.of(k, i), self.plan.dim)[0]

    def covariance(self, k: int, i: int) -> np.ndarray:
        return unpack(self.of(k, i), self.plan.dim)[1]

    def schedule(self, t: int, i: int) -> np.ndarray:
        cell = self.generator.normal(size=self.schedule_scales.size) * self.schedule_scales * 2.0**-self.plan.bits
        return unpack(np.concatenate([np.zeros(self.plan.dim), cell]), self.plan.dim)[1]


class NoisyPrefix(NonPrivate):
    """Exact sums, and the given noise of prefix k: stands for mechanisms that the paper does not have."""

    def __init__(self, noise: Sequence[np.ndarray]) -> None:
        super().__init__()
        self.noise = iter(noise)

    def analyze(self, messages: Sequence[np.ndarray]) -> np.ndarray:
        return np.asarray(super().analyze(messages) + next(self.noise))


def radius_of(plan: Plan, factor: float = 1.0) -> Callable[[int], float]:
    """beta_t: acting lazily, that of the last sync, whose statistics V holds."""
    if plan.acting == "eager" or isinstance(plan.schedule, Adaptive):
        return lambda t: factor * plan.radius(t)
    return lambda t: factor * plan.radius(max([0, *(time for time in plan.times if time < t)]))


def transcription(plan: Plan, users: SameUsers, protocols: tuple[Any, Any], factor: float = 1.0, **fields: Any) -> Run:
    """The paper's pseudo-code for this plan."""
    arguments = {
        "silos": plan.silos,
        "rounds": plan.rounds,
        "dim": plan.dim,
        "regulariser": plan.regulariser,
        "radius": radius_of(plan, factor),
        "contexts": users.contexts,
        "reward": users.reward,
        "mean": users.mean,
        "bias_protocol": protocols[0],
        "covariance_protocol": protocols[1],
    }
    if isinstance(plan.schedule, Adaptive):
        return dubey(threshold=plan.schedule.threshold, **fields, **arguments)
    algorithm = private_fedlinucb if plan.acting == "eager" else private_fedlinucb_lazy
    return algorithm(batch=plan.times, **arguments)


def plan(trust: str = "silo", mechanism: str = "tree", **fields: Any) -> Plan:
    chosen = {"schedule": every(7), "bits": FINE, "privacy": Privacy(20.0, 0.1), **fields}
    chosen["privacy"] = None if trust == "none" else chosen["privacy"]
    return Plan(SILOS, ROUNDS, DIM, trust=trust, mechanism=mechanism, **chosen)
