"""How the simulated silos of several plans act between syncs.

They act lazily, or eagerly, or, if some visits do not count, lazily for visits that count and by all that the silo
knows for the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

import numpy as np

from fedbandit._arrays import Floats, Integers
from fedbandit.bandit.linucb import Model
from fedbandit.bandit.statistics import unpack
from fedbandit.knowledge import OwnData, PublicModel, local_knowledge
from fedbandit.simulator.attendance import EVERYBODY, Attendance
from fedbandit.simulator.kernels import Beliefs, Kept, Local, Tally, policy_row
from fedbandit.simulator.kernels.layout import Scores
from fedbandit.simulator.population import Population
from fedbandit.simulator.simulated import SimulatedFederation

__all__ = [
    "ActingSilos",
    "EagerSilos",
    "LazySilos",
    "Manner",
    "PartlySilos",
    "Precision",
    "Uncounted",
    "acting_silos",
    "beliefs_of",
    "inverse_of",
    "scores_of",
]

Manner = Literal["lazy", "eager", "partly"]  # partly: lazily for visits that count, by local knowledge for the others

Precision = Literal["float32", "float64"]  # of scores


class Uncounted(NamedTuple):
    """The visits that are not counted, and their regret, run by run."""

    visits: Integers  # (runs,)
    regret: Floats  # (runs,)


class ActingSilos(Protocol):
    """All silos of several plans, in all runs of a population."""

    def play(self, first: int, end: int, tally: Tally) -> None:
        """Play the rounds first + 1 .. end, which no sync interrupts."""
        ...

    def synchronised(self, index: int, sums: Integers) -> None:
        """Take note that plan `index` has a new model; `sums` (runs, shards, width) were in its last batch."""
        ...

    def uncounted(self, index: int) -> Uncounted | None:
        """The visits that plan `index` does not count, and their regret; None if all visits count."""
        ...


def acting_silos(
    manner: Manner,
    population: Population,
    federations: Sequence[SimulatedFederation],
    precision: Precision,
    attendance: Attendance = EVERYBODY,
) -> ActingSilos:
    """Silos that act in this way, before the first round."""
    if manner == "partly":
        return PartlySilos(population, federations, precision, attendance)
    kind: type[LazySilos | EagerSilos] = LazySilos if manner == "lazy" else EagerSilos
    return kind(population, federations, precision)


class LazySilos:
    """Silos that decide from synchronised statistics only (Priv-FedLinUCB-Lazy)."""

    def __init__(
        self, population: Population, federations: Sequence[SimulatedFederation], precision: Precision
    ) -> None:
        self._population, self._federations, self._precision = population, federations, precision
        self._policies = np.array([policy_row(federation.plan.policy) for federation in federations])

    def play(self, first: int, end: int, tally: Tally) -> None:
        beliefs = beliefs_of([federation.public for federation in self._federations], self._policies, self._precision)
        self._population.play(first + 1, end - first, beliefs, tally)

    def synchronised(self, index: int, sums: Integers) -> None:
        """Nothing is remembered between syncs."""

    def uncounted(self, index: int) -> None:
        """Everybody counts."""


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
            self._start_again(index)

    def play(self, first: int, end: int, tally: Tally) -> None:
        plans = [federation.plan for federation in self._federations]
        radius = np.array([[plan.radius(round_) for round_ in range(first + 1, end + 1)] for plan in plans])
        in_runs = np.broadcast_to(radius[:, None, :], (len(plans), len(self._population.runs), end - first))
        local = Local(self._inverse, self._bias, scores_of(in_runs, self._precision))
        self._population.play(first + 1, end - first, local, tally)

    def synchronised(self, index: int, sums: Integers) -> None:
        """All silos of the plan start again from the synchronised statistics."""
        self._start_again(index)

    def uncounted(self, index: int) -> None:
        """Everybody counts."""

    def _start_again(self, index: int) -> None:
        federation = self._federations[index]
        self._inverse[index] = inverse_of(federation.public.model)[:, None]
        self._bias[index] = unpack(federation.prefix, federation.plan.dim)[0][:, None]


class PartlySilos:
    """Silos where only some visits count.

    Visits that count are served by the public model. The others are served by local knowledge, which grows with every
    visit, or by the public model too, as the plan says.
    """

    def __init__(
        self,
        population: Population,
        federations: Sequence[SimulatedFederation],
        precision: Precision,
        attendance: Attendance,
    ) -> None:
        self._population, self._federations, self._precision = population, federations, precision
        self._attendance = attendance
        self._policies = np.array([policy_row(federation.plan.policy) for federation in federations])
        plans = [federation.plan for federation in federations]
        lead, dim = (len(plans), len(population.runs), population.silos), plans[0].dim
        width = plans[0].protocol.width
        self._released = np.zeros((*lead, width), dtype=np.int64)
        self._kept = np.zeros((*lead, width), dtype=np.int64)
        self._squares = np.zeros(lead)
        self._known = np.zeros(len(plans))  # visits to a silo at the last sync, as far as they are remembered
        self._before = self._kept.copy(), self._squares.copy()  # both as they were at the last sync
        self._visits, self._regret = np.zeros(lead, dtype=np.int64), np.zeros(lead)  # of visits that are not counted
        self._inverse, self._bias = np.zeros((*lead, dim, dim)), np.zeros((*lead, dim))
        self._beyond = np.zeros(lead[:2])  # the number of visits that the other silos' data are worth
        self._locally = np.array([plan.serves_uncounted == "local" for plan in plans])
        for index in range(len(plans)):
            self._learn(index)

    def play(self, first: int, end: int, tally: Tally) -> None:
        rounds, plans = end - first, [federation.plan for federation in self._federations]
        coming = self._attendance
        share = np.stack([coming.counted(plan.cap, first + 1, rounds, coming.every(plan)) for plan in plans])
        kept = Kept(share, self._locally, self._kept, self._squares, self._visits, self._regret)
        beliefs = beliefs_of([federation.public for federation in self._federations], self._policies, self._precision)
        local = Local(self._inverse, self._bias, scores_of(self._radii(first, end), self._precision))
        self._population.play_partly(first + 1, rounds, beliefs, local, kept, tally)

    def synchronised(self, index: int, sums: Integers) -> None:
        self._forget(index)
        self._released[index] += sums
        self._known[index] = self._federations[index].plan.remembered(self._federations[index].round)
        self._learn(index)

    def _forget(self, index: int) -> None:
        """Reduce the weight of what came before the batch that is synchronised now."""
        forget, (kept, squares) = self._federations[index].plan.forget, self._before
        if forget < 1:
            for now, before in ((self._released[index], self._released[index]), (self._kept[index], kept[index])):
                now -= before - np.rint(forget * before).astype(np.int64)
            self._squares[index] -= (1 - forget) * squares[index]
        kept[index], squares[index] = self._kept[index], self._squares[index]

    def uncounted(self, index: int) -> Uncounted:
        return Uncounted(self._visits[index].sum(axis=-1), self._regret[index].sum(axis=-1))

    def _learn(self, index: int) -> None:
        """Compute every silo's local knowledge from all its visits, kept and released."""
        federation, released, visits = self._federations[index], self._released[index], float(self._known[index])
        lead = released.shape[:-1]
        own = OwnData(released + self._kept[index], self._squares[index], np.full(lead, visits), released)
        known = local_knowledge(federation.plan, own, federation.public)
        self._inverse[index] = np.linalg.inv(known.precision)
        self._bias[index] = known.bias
        self._beyond[index] = (known.visits - visits).mean(axis=-1)

    def _radii(self, first: int, end: int) -> Floats:
        """The radii (plans, runs, rounds) of silos that know all their visits before a round and the others' data."""
        rounds = range(first, end)
        return np.array(
            [
                [[one.plan.radius_alone(one.plan.remembered(seen) + more) for seen in rounds] for more in beyond]
                for one, beyond in zip(self._federations, self._beyond.tolist(), strict=True)
            ]
        )


def beliefs_of(known: Sequence[PublicModel], policies: Floats, precision: Precision) -> Beliefs:
    """The models that serve visits that count: public ones and nothing else."""
    models = [public.model for public in known]
    return Beliefs(
        np.stack([model.theta for model in models]),
        np.stack([model.root for model in models]),
        scores_of(np.stack([model.radius for model in models]), precision),
        policies,
    )


def scores_of(values: Floats, precision: Precision) -> Scores:
    return np.ascontiguousarray(values, np.float32) if precision == "float32" else np.ascontiguousarray(values)


def inverse_of(model: Model) -> Floats:
    """V^-1."""
    return np.asarray(model.root @ np.swapaxes(model.root, -1, -2))
