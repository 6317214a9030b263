"""Plays plans whose schedule depends on the data: Dubey & Pentland's determinant rule, also on noisy covariances.

Rounds are played one by one, and each run synchronises at its own times: all silos together, or each silo alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedbandit._arrays import Integers
from fedbandit.bandit.linucb import Model
from fedbandit.bandit.statistics import unpack
from fedbandit.plan import Plan
from fedbandit.schedule import Adaptive
from fedbandit.simulator.acting import Precision, acting_silos, inverse_of, scores_of
from fedbandit.simulator.engine import Collector, Played, Progress
from fedbandit.simulator.kernels import Local, Tally
from fedbandit.simulator.population import Population
from fedbandit.simulator.simulated import SimulatedFederation, runs_noise

__all__ = ["play_adaptive"]

REPORTED = 100  # rounds between two reports of progress


def play_adaptive(
    population: Population,
    name: str,
    plan: Plan,
    record: Sequence[int],
    progress: Progress,
    precision: Precision = "float32",
    pooled: bool = True,
) -> Played:
    """Play one plan with an adaptive schedule, in the population's single run. All silos synchronise at the end."""
    assert isinstance(plan.schedule, Adaptive)
    if plan.schedule.alone:
        return _play_alone(population, name, plan, record, progress, precision)
    lead = (1, population.silos)  # the first axis of every draw of noise is the runs'
    federation = SimulatedFederation(plan, runs_noise(population.seed, population.runs, name), pooled)
    collector = Collector(population, [plan], record, shards=population.silos)
    playing = acting_silos(plan.acting, population, [federation], precision)
    waiting = plan.rule.init(lead)
    for round_ in range(1, record[-1] + 1):
        tally = collector.open(1)
        covariances = tally.sums[0, ..., plan.dim :]  # (1, silos, entries) since the last sync
        before = covariances.copy()
        playing.play(round_ - 1, round_, tally)
        collector.close(round_)
        root = federation.public.model.root[:, None]
        waiting, asking = plan.rule.step(waiting, covariances - before, root, federation.noise)
        if asking.any() or round_ == record[-1]:
            playing.synchronised(0, collector.hand_over(0, federation, round_))
            waiting = plan.rule.init(lead)
        if round_ % REPORTED == 0:
            progress(round_ / record[-1])
    return collector.played(0, federation)


def _play_alone(
    population: Population, name: str, plan: Plan, record: Sequence[int], progress: Progress, precision: Precision
) -> Played:
    """Play one plan in which a silo that asks synchronises by itself, silos in the order of their numbers.

    A silo decides by the model that it fetched last, whatever the others have sent since. So all silos of a round can
    be played at once, and then ask one after the other. There is no sync at the end.
    """
    federation = SimulatedFederation(plan, runs_noise(population.seed, population.runs, name))
    collector = Collector(population, [plan], record, shards=population.silos)
    silos = _SilosAlone(population, federation, precision)
    for round_ in range(1, record[-1] + 1):
        tally = collector.open(1)
        silos.play(round_, tally)
        collector.close(round_)
        silos.synchronise(round_, tally.sums[0, 0])
        if round_ % REPORTED == 0:
            progress(round_ / record[-1])
    return collector.played(0, federation)


class _SilosAlone:
    """Silos that each have their own model: the one that the silo fetched last."""

    def __init__(self, population: Population, federation: SimulatedFederation, precision: Precision) -> None:
        self._population, self._federation, self._precision = population, federation, precision
        plan, silos = federation.plan, population.silos
        lead = (1, 1, silos)  # plan, run, silo, as kernels have them
        self._inverse, self._bias = np.zeros((*lead, plan.dim, plan.dim)), np.zeros((*lead, plan.dim))
        self._root = np.zeros((silos, plan.dim, plan.dim))
        self._radius = np.zeros(silos)
        for silo in range(silos):
            self._fetch(silo)

    def play(self, round_: int, tally: Tally) -> None:
        """Play one user of every silo.

        Kernels update the models that they are given, so they get copies: a silo must not learn before it asks. They
        take one radius for all silos, which is the largest.
        """
        learning = Local(
            self._inverse.copy(), self._bias.copy(), scores_of(self._radius.max().reshape(1, 1, 1), self._precision)
        )
        self._population.play(round_, 1, learning, tally)

    def synchronise(self, round_: int, sums: Integers) -> None:
        """Let every silo that asks send what it has collected since its last sync, and fetch the model.

        `sums` is (silos, width).
        """
        plan = self._federation.plan
        asking = plan.rule.asks(sums[:, plan.dim :], self._root, waited=1)
        for silo in np.flatnonzero(asking):
            self._federation.synchronise(sums[silo].reshape(1, 1, -1), round_)
            sums[silo] = 0
            self._fetch(int(silo))

    def _fetch(self, silo: int) -> None:
        model: Model = self._federation.public.model
        self._inverse[0, 0, silo] = inverse_of(model)[0]
        self._bias[0, 0, silo] = unpack(self._federation.prefix, self._federation.plan.dim)[0][0]
        self._root[silo], self._radius[silo] = model.root[0], model.radius[0]
