"""Playing some runs of a task with several plans on the same users, block by block between synchronisations.

Three ways of acting, each with its own loop: lazy plans together in one pass (contexts are drawn once for all),
eager plans together in another (`engine_eager`), and each plan whose schedule the data decide on its own
(`engine_adaptive`). Regret is recorded at fixed rounds; T is never a dimension of an array of contexts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedbandit.plan import Plan
from fedbandit.simulate.federation import Federation, runs_noise
from fedbandit.simulate.kernels.layout import Beliefs, Tally
from fedbandit.simulate.world import World

Floats = NDArray[np.float64]
Progress = Callable[[float], None]  # called with the share of this pass that is done
SHARDS = 16  # rows that a run's users are added up in; fixed, so that results do not depend on the number of cores
PRECISIONS = {"float32": np.float32, "float64": np.float64}


@dataclass(frozen=True)
class Played:
    """What came of one plan in some runs."""

    regret: Floats  # (runs, recorded rounds), cumulative group regret
    synchronisations: NDArray[np.int64]  # (runs,)
    repaired: int


def play_lazy(
    world: World,
    plans: Mapping[str, Plan],
    record: Sequence[int],
    progress: Progress,
    precision: str = "float32",
    pooled: bool = True,
) -> dict[str, Played]:
    """Plans that decide from synchronised statistics only (Priv-FedLinUCB-Lazy)."""
    federations = {
        name: Federation(plan, runs_noise(world.seed, world.runs, name), pooled) for name, plan in plans.items()
    }
    calendars = {name: set(plan.times) for name, plan in plans.items()}
    last = dict.fromkeys(plans, 0)
    ledger = Ledger(world, plans, record, shards=world.silos if not pooled else min(SHARDS, world.silos))
    for first, end in blocks(calendars.values(), record):
        models = [federation.model for federation in federations.values()]
        beliefs = Beliefs(
            np.stack([model.theta for model in models]),
            np.stack([model.root for model in models]),
            np.stack([model.radius for model in models]).astype(PRECISIONS[precision]),
        )
        tally = ledger.open(end - first)
        world.play_lazy(first + 1, end - first, beliefs, tally)
        ledger.close(end)
        for index, (name, federation) in enumerate(federations.items()):
            if end in calendars[name]:
                ledger.hand_over(index, federation, end - last[name], end)
                last[name] = end
        progress(end / record[-1])
    return {name: ledger.played(index, federation) for index, (name, federation) in enumerate(federations.items())}


def blocks(calendars: Iterable[set[int]], record: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(end of the last block, end of this one): from one synchronisation or recorded round of anybody to the next."""
    ends = sorted(set(record).union(*calendars))
    yield from zip([0, *ends[:-1]], ends, strict=True)


class Ledger:
    """Sums, regret and recorded points of Q plans in R runs, between synchronisations."""

    def __init__(self, world: World, plans: Mapping[str, Plan], record: Sequence[int], shards: int) -> None:
        count, runs = len(plans), len(world.runs)
        any_plan = next(iter(plans.values()))
        bits = {plan.bits for plan in plans.values()}
        if len(bits) > 1:
            raise ValueError(f"bits must be the same in all compared plans, got {sorted(bits)}")
        self._world = world
        self._record = {round_: column for column, round_ in enumerate(record)}
        self._sums = np.zeros((count, runs, shards, any_plan.protocol.width), dtype=np.int64)
        self._running = np.zeros((count, runs, shards))
        self._regret = np.zeros((count, runs, len(record)))
        self._centre = np.array([plan.centre for plan in plans.values()])
        self._bits = any_plan.bits
        wants_points = [plan.protocol.needs_points for plan in plans.values()]
        self._slot = np.where(wants_points, np.cumsum(wants_points) - 1, -1).astype(np.int64)
        self._dim = any_plan.dim
        self._points: NDArray[np.float32] = np.empty(0, dtype=np.float32)
        self._waiting: dict[int, list[NDArray[np.float32]]] = {i: [] for i, wants in enumerate(wants_points) if wants}

    def open(self, rounds: int) -> Tally:
        """Where the kernels add up the next `rounds` rounds."""
        recorded = len(self._waiting)
        shape = (recorded, len(self._world.runs), self._world.silos, rounds, self._dim + 1)
        self._points = np.empty(shape, dtype=np.float32)
        return Tally(self._sums, self._running, self._centre, self._bits, self._slot, self._points)

    def close(self, round_: int) -> None:
        """A block has been played up to this round."""
        if round_ in self._record:
            self._regret[:, :, self._record[round_]] = self._running.sum(axis=-1)
        for index, waiting in self._waiting.items():
            waiting.append(self._points[self._slot[index]])

    def hand_over(self, index: int, federation: Federation, users: int, round_: int) -> None:
        """What plan `index` has gathered since its last synchronisation (`users` a silo) goes through the protocol."""
        if federation.protocol.needs_points:
            federation.synchronise_points(self._take_points(index), round_)
        else:
            federation.synchronise(self._take(index), users, round_)

    def _take(self, index: int) -> NDArray[np.int64]:
        """The batch sums of plan `index` since its last synchronisation: (runs, shards, width)."""
        sums = np.array(self._sums[index])
        self._sums[index] = 0
        return sums

    def _take_points(self, index: int) -> NDArray[np.float32]:
        """The users of plan `index` since its last synchronisation: (runs, silos, users, dim + 1)."""
        points = np.concatenate(self._waiting[index], axis=2)
        self._waiting[index] = []
        return points

    def played(self, index: int, federation: Federation) -> Played:
        """What came of plan `index`."""
        runs = len(self._world.runs)
        synchronisations = np.full(runs, federation.synchronisations, dtype=np.int64)
        return Played(self._regret[index], synchronisations, federation.repaired)
