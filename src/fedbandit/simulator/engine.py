"""Plays some runs of a task with several plans on the same users, block by block between syncs.

Plans that act in the same way are played together in one pass, so that contexts are drawn once for all of them. A plan
whose schedule depends on the data is played by itself (`engine_adaptive`). Regret is recorded at fixed rounds; T is
never a dimension of an array of contexts.

Kernels serve all silos of a run by one model, and have one theta* for them. So silos that differ, or that have their
own models, are each played as a run with one silo (`play_differing`): silo i of run r is the kernels' run r M + i. Its
sums then go through the protocol together with those of the other silos of run r. Plans that are compared there meet
the same users as each other, but not the users of silos that are alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from fedbandit._arrays import Flags, Floats, Integers, Singles
from fedbandit.bandit.linucb import Model
from fedbandit.bandit.statistics import contributions
from fedbandit.knowledge import PublicModel
from fedbandit.plan import Plan
from fedbandit.simulator.acting import Manner, Precision, Uncounted, acting_silos, beliefs_of
from fedbandit.simulator.attendance import EVERYBODY, Attendance
from fedbandit.simulator.kernels import Tally, policy_row
from fedbandit.simulator.population import AT_ONCE, NEVER, Population
from fedbandit.simulator.simulated import RunsNoise, SimulatedFederation, runs_noise
from fedbandit.simulator.tasks import SilosAsRuns, Synthetic

__all__ = ["Collector", "DelayedCollector", "Played", "Progress", "play_differing", "play_together"]

Progress = Callable[[float], None]  # called with the share of this pass that is done
LATE_AT_ONCE = 1 << 15  # late users that are summed at a time
SHARDS = 16  # rows into which a run's users are summed; fixed, so that results do not depend on the number of cores


@dataclass(frozen=True)
class Played:
    """The outcome of one plan in some runs."""

    regret: Floats  # (runs, recorded rounds), cumulative group regret
    syncs: Integers  # (runs,)
    repaired: int
    uncounted: Uncounted | None = None  # the part of visits and regret that is not counted; None if everybody counts
    known: Floats | None = None  # (runs, width): the sums behind each run's last model


def play_together(
    population: Population,
    plans: Mapping[str, Plan],
    manner: Manner,
    record: Sequence[int],
    progress: Progress,
    precision: Precision = "float32",
    pooled: bool = True,
    attendance: Attendance = EVERYBODY,
    priors: Mapping[str, Floats] = MappingProxyType({}),
) -> dict[str, Played]:
    """Play plans with public schedules that all act in the same way, on the same users.

    `priors` holds what the runs of a plan begin with, (runs, width), if it is not the plan's own prior.
    """
    silos = population.silos
    federations = [
        SimulatedFederation(plan, _noise(population, name), pooled, priors.get(name)) for name, plan in plans.items()
    ]
    calendars = [set(plan.times) for plan in plans.values()]
    shards = min(SHARDS, silos) if pooled and manner != "partly" else silos
    kind = Collector if population.delays == AT_ONCE else DelayedCollector
    collector = kind(population, list(plans.values()), record, shards)
    playing = acting_silos(manner, population, federations, precision, attendance)
    for first, end in _blocks([*calendars, population.changes(record[-1])], record):
        playing.play(first, end, collector.open(end - first))
        collector.close(end)
        for index, federation in enumerate(federations):
            if end in calendars[index]:
                playing.synchronised(index, collector.hand_over(index, federation, end))
        progress(end / record[-1])
    return {
        name: collector.played(index, federations[index], playing.uncounted(index)) for index, name in enumerate(plans)
    }


def _noise(population: Population, name: str) -> RunsNoise:
    """The noise of a protocol, which differs from term to term."""
    salted = f"{name} after {population.before} rounds" if population.before else name
    return runs_noise(population.seed, population.runs, salted)


def _blocks(calendars: Iterable[set[int]], record: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The blocks of rounds, each as (end of the last block, end of this one).

    A block lasts from one sync, change or recorded round to the next.
    """
    ends = sorted(set(record).union(*calendars))
    yield from zip([0, *ends[:-1]], ends, strict=True)


def play_differing(
    task: Synthetic,
    plans: Mapping[str, Plan],
    runs: tuple[int, ...],
    seed: int,
    record: Sequence[int],
    progress: Progress,
    precision: Precision = "float32",
    pooled: bool = True,
) -> dict[str, Played]:
    """Play plans with public schedules whose silos act lazily and differ, on the same users."""
    silos = next(iter(plans.values())).silos
    numbers = tuple(run * silos + silo for run in runs for silo in range(silos))
    population = Population(SilosAsRuns(task, silos), 1, numbers, seed)
    federations = [SimulatedFederation(plan, runs_noise(seed, runs, name), pooled) for name, plan in plans.items()]
    policies = np.array([policy_row(plan.policy) for plan in plans.values()])
    collector = _SiloCollector(population, list(plans.values()), record, silos)
    calendars = [set(plan.times) for plan in plans.values()]
    for start, end in _blocks(calendars, record):
        models = [_of_each_silo(federation.served, len(runs), silos) for federation in federations]
        population.play(start + 1, end - start, beliefs_of(models, policies, precision), collector.open(end - start))
        collector.close(end)
        for index, federation in enumerate(federations):
            if end in calendars[index]:
                collector.hand_over(index, federation, end)
        progress(end / record[-1])
    return {name: collector.played(index, federations[index]) for index, name in enumerate(plans)}


def _of_each_silo(served: PublicModel, runs: int, silos: int) -> PublicModel:
    """The models of all silos, stacked: (runs * silos, ...)."""
    model = served.model
    if model.theta.ndim == 2:  # one for all silos of a run
        each = Model(*(np.repeat(np.asarray(field), silos, axis=0) for field in model))
    else:
        each = Model(*(np.asarray(field).reshape(runs * silos, *np.shape(field)[2:]) for field in model))
    return served._replace(fit=served.fit._replace(model=each))


class Collector:
    """Collects sums, regret and recorded points of Q plans in R runs, from one sync to the next."""

    keeps_points = False  # whether kernels record every user of every plan

    def __init__(self, population: Population, plans: Sequence[Plan], record: Sequence[int], shards: int) -> None:
        count, self._runs, self._silos = len(plans), len(population.runs), population.silos
        self._dim, self._bits = plans[0].dim, plans[0].bits
        self._column = {round_: column for column, round_ in enumerate(record)}
        self._sums = np.zeros((count, self._runs, shards, plans[0].protocol.width), dtype=np.int64)
        self._running = np.zeros((count, self._runs, shards))
        self._regret = np.zeros((count, self._runs, len(record)))
        self._centre = np.array([plan.centre for plan in plans])
        wants_points = [self.keeps_points or plan.protocol.needs_points for plan in plans]
        self._slot = np.where(wants_points, np.cumsum(wants_points) - 1, -1).astype(np.int64)
        self._points: Singles = np.empty(0, dtype=np.float32)
        self._waiting: dict[int, list[Singles]] = {i: [] for i, wants in enumerate(wants_points) if wants}

    def open(self, rounds: int) -> Tally:
        """The tally to which kernels add the next `rounds` rounds."""
        shape = (len(self._waiting), self._runs, self._silos, rounds, self._dim + 1)
        self._points = np.empty(shape, dtype=np.float32)
        return Tally(self._sums, self._running, self._centre, self._bits, self._slot, self._points)

    def close(self, round_: int) -> None:
        """Record what is due after a block that was played up to this round."""
        if round_ in self._column:
            self._regret[:, :, self._column[round_]] = self._running.sum(axis=-1)
        for index, waiting in self._waiting.items():
            waiting.append(self._points[self._slot[index]])

    def hand_over(self, index: int, federation: SimulatedFederation, round_: int) -> Integers:
        """Send what plan `index` has collected since its last sync through the protocol, and return its sums."""
        sums = self._take(index)
        if federation.protocol.needs_points:
            federation.synchronise_points(self._take_points(index), round_)
        else:
            federation.synchronise(sums, round_)
        return sums

    def played(self, index: int, federation: SimulatedFederation, uncounted: Uncounted | None = None) -> Played:
        """The outcome of plan `index`."""
        syncs = np.full(self._runs, federation.syncs, dtype=np.int64)
        return Played(self._regret[index], syncs, federation.repaired, uncounted, federation.public.prefix)

    def _take(self, index: int) -> Integers:
        """The batch sums of plan `index` since its last sync: (runs, shards, width)."""
        sums = np.array(self._sums[index])
        self._sums[index] = 0
        return sums

    def _take_points(self, index: int) -> Singles:
        """The users of plan `index` since its last sync: (runs, silos, users, dim + 1)."""
        points = np.concatenate(self._waiting[index], axis=2)
        self._waiting[index] = []
        return points


class DelayedCollector(Collector):
    """A collector that holds users back until their reward has come: a batch has the rewards that came meanwhile."""

    keeps_points = True

    def __init__(self, population: Population, plans: Sequence[Plan], record: Sequence[int], shards: int) -> None:
        super().__init__(population, plans, record, shards)
        self._population, self._plans = population, plans
        self._last = [0] * len(plans)  # the round of each plan's last sync
        self._late = [_nobody(self._dim)] * len(plans)

    def _take(self, index: int) -> Integers:
        shape = super()._take(index).shape
        points = self._take_points(index)
        first = self._last[index] + 1
        waits = self._population.waits(first, points.shape[2])
        self._last[index] += points.shape[2]
        late = self._late[index].joined(points, waits, first)
        come = late.comes <= self._last[index]
        self._late[index] = late.only(~come)
        return late.only(come).sums(shape, self._silos, self._plans[index])


class _SiloCollector(Collector):
    """A collector for silos that are played as runs: it hands them over, and counts them, as silos of their runs."""

    def __init__(self, population: Population, plans: Sequence[Plan], record: Sequence[int], silos: int) -> None:
        super().__init__(population, plans, record, shards=1)
        self._per_run = silos

    def played(self, index: int, federation: SimulatedFederation, uncounted: Uncounted | None = None) -> Played:
        regret = self._regret[index].reshape(-1, self._per_run, self._regret.shape[-1]).sum(axis=1)
        syncs = np.full(len(regret), federation.syncs, dtype=np.int64)
        return Played(regret, syncs, federation.repaired, uncounted)

    def _take(self, index: int) -> Integers:
        sums = super()._take(index)
        return sums.reshape(-1, self._per_run, sums.shape[-1])


@dataclass(frozen=True)
class _Late:
    """Users, one per row, and the rounds in which their rewards come."""

    run: Integers
    silo: Integers
    comes: Integers  # the round
    points: Singles  # (users, dim + 1), features then reward

    def joined(self, points: Singles, waits: Integers, first: int) -> _Late:
        """These users and those of the rounds from `first` on whose rewards come at all.

        `points` is (runs, silos, rounds, dim + 1), and `waits` (runs, silos, rounds).
        """
        run, silo, place = np.nonzero(waits < NEVER)
        new = _Late(run, silo, first + place + waits[run, silo, place], points[run, silo, place])
        return _Late(*(np.concatenate([getattr(self, name), getattr(new, name)]) for name in vars(new)))

    def only(self, chosen: Flags) -> _Late:
        return _Late(self.run[chosen], self.silo[chosen], self.comes[chosen], self.points[chosen])

    def sums(self, shape: tuple[int, ...], silos: int, plan: Plan) -> Integers:
        """Sums by run and shard, (runs, shards, width); shard s holds the silos s M // S .. (s + 1) M // S - 1."""
        runs, shards, width = shape
        shard = np.searchsorted(np.arange(1, shards + 1) * silos // shards, self.silo, side="right")
        sums = np.zeros((runs * shards, width), dtype=np.int64)
        for first in range(0, len(shard), LATE_AT_ONCE):
            some = slice(first, first + LATE_AT_ONCE)
            rows = contributions(self.points[some, :-1], self.points[some, -1], plan.bits, plan.centre)
            np.add.at(sums, self.run[some] * shards + shard[some], rows)
        return sums.reshape(shape)


def _nobody(dim: int) -> _Late:
    empty = np.zeros(0, dtype=np.int64)
    return _Late(empty, empty, empty, np.zeros((0, dim + 1), dtype=np.float32))
