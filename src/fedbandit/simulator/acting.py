"""How the simulated silos of several plans act between syncs: lazily or eagerly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np

from fedbandit._arrays import Floats
from fedbandit.bandit.linucb import Model
from fedbandit.bandit.statistics import unpack
from fedbandit.protocol.guarantee import Acting
from fedbandit.simulator.kernels import Beliefs, Local, Tally, policy_row
from fedbandit.simulator.kernels.layout import Scores
from fedbandit.simulator.population import Population
from fedbandit.simulator.simulated import SimulatedFederation

__all__ = ["ActingSilos", "EagerSilos", "LazySilos", "Precision", "acting_silos"]

Precision = Literal["float32", "float64"]  # of scores


class ActingSilos(Protocol):
    """All silos of several plans, in all runs of a population."""

    def play(self, first: int, end: int, tally: Tally) -> None:
        """Rounds first + 1 .. end, which no sync interrupts."""
        ...

    def synchronised(self, index: int) -> None:
        """The federation of plan `index` has a new model."""
        ...


def acting_silos(
    acting: Acting, population: Population, federations: Sequence[SimulatedFederation], precision: Precision
) -> ActingSilos:
    """Silos that act in this way, before the first round."""
    kind: type[LazySilos | EagerSilos] = LazySilos if acting == "lazy" else EagerSilos
    return kind(population, federations, precision)


class LazySilos:
    """Silos that decide from synchronised statistics only (Priv-FedLinUCB-Lazy)."""

    def __init__(
        self, population: Population, federations: Sequence[SimulatedFederation], precision: Precision
    ) -> None:
        self._population, self._federations, self._precision = population, federations, precision
        self._policies = np.array([policy_row(federation.plan.policy) for federation in federations])

    def play(self, first: int, end: int, tally: Tally) -> None:
        models = [federation.model for federation in self._federations]
        beliefs = Beliefs(
            np.stack([model.theta for model in models]),
            np.stack([model.root for model in models]),
            _scores(np.stack([model.radius for model in models]), self._precision),
            self._policies,
        )
        self._population.play(first + 1, end - first, beliefs, tally)

    def synchronised(self, index: int) -> None:
        """Nothing is remembered between syncs."""


class EagerSilos:
    """Algorithm 1 as printed: silos also act on the raw data of the current batch."""

    def __init__(
        self, population: Population, federations: Sequence[SimulatedFederation], precision: Precision
    ) -> None:
        self._population, self._federations, self._precision = population, federations, precision
        lead, dim = (len(federations), len(population.runs), population.silos), federations[0].plan.dim
        self._inverse = np.zeros((*lead, dim, dim))
        self._bias = np.zeros((*lead, dim))
        for index in range(len(federations)):
            self.synchronised(index)

    def play(self, first: int, end: int, tally: Tally) -> None:
        plans = [federation.plan for federation in self._federations]
        radius = np.array([[plan.radius(round_) for round_ in range(first + 1, end + 1)] for plan in plans])
        in_runs = np.broadcast_to(radius[:, None, :], (len(plans), len(self._population.runs), end - first))
        local = Local(self._inverse, self._bias, _scores(in_runs, self._precision))
        self._population.play(first + 1, end - first, local, tally)

    def synchronised(self, index: int) -> None:
        """All silos of the plan start again from the synchronised statistics."""
        federation = self._federations[index]
        self._inverse[index] = _inverse(federation.model)[:, None]
        self._bias[index] = unpack(federation.prefix, federation.plan.dim)[0][:, None]


def _scores(values: Floats, precision: Precision) -> Scores:
    return np.ascontiguousarray(values, np.float32) if precision == "float32" else np.ascontiguousarray(values)


def _inverse(model: Model) -> Floats:
    """V^-1."""
    return np.asarray(model.root @ np.swapaxes(model.root, -1, -2))
