"""Runs divided into parts that can be played anywhere, in any order, with the same numbers coming out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedbandit import _validate
from fedbandit.plan import Plan
from fedbandit.schedule import Adaptive
from fedbandit.simulate.engine import PRECISIONS, Played, Progress, play_lazy
from fedbandit.simulate.engine_adaptive import play_adaptive
from fedbandit.simulate.engine_eager import play_eager
from fedbandit.simulate.result import Result, collected
from fedbandit.simulate.tasks import Synthetic, Tabled, Task
from fedbandit.simulate.world import World

RECORDED = 100  # rounds at which regret is recorded
RUNS_AT_ONCE = 5
STATE_BUDGET = 256e6  # bytes of statistics that one part may hold


@dataclass(frozen=True)
class Part:
    """Some plans in some runs: the unit of work. `way` is how the plans act: lazy, eager or adaptive."""

    task: Task
    plans: Mapping[str, Plan]
    runs: tuple[int, ...]
    seed: int
    way: str
    record: tuple[int, ...]
    precision: str

    @property
    def weight(self) -> float:
        """Work in it, in runs times plans."""
        return len(self.runs) * len(self.plans)

    def play(self, progress: Progress = lambda share: None) -> dict[str, Played]:
        """Play it here."""
        silos = next(iter(self.plans.values())).silos
        world = World(self.task, silos, self.runs, self.seed)
        if self.way == "adaptive":
            ((name, plan),) = self.plans.items()
            return {name: play_adaptive(world, name, plan, self.record, progress, self.precision)}
        play = play_lazy if self.way == "lazy" else play_eager
        return play(world, self.plans, self.record, progress, self.precision)


Executor = Callable[[list[Part], Progress], Iterator[tuple[Part, dict[str, Played]]]]


def simulate(
    task: Task,
    plans: Mapping[str, Plan],
    runs: int = 25,
    seed: int = 0,
    *,
    precision: str = "float32",
    progress: Progress = lambda share: None,
    executor: Executor | None = None,  # where parts are played; None: here
) -> Result:
    """Play every plan on the same users, `runs` times; group regret by round, plan and run.

    The same seed gives the same numbers on any number of cores. Interrupted (Ctrl-C), it returns what was finished.
    """
    check(task, plans, runs, seed, precision)
    rounds = next(iter(plans.values())).rounds
    record = recorded_rounds(plans, rounds)
    parts = divided(task, plans, runs, seed, record, precision)
    finished: list[tuple[Part, dict[str, Played]]] = []
    try:
        for done in (executor or play_here)(parts, progress):
            finished.append(done)
    except KeyboardInterrupt:
        if not finished:
            raise
    return collected(plans, record, runs, seed, ((part.runs, played) for part, played in finished))


def recorded_rounds(plans: Mapping[str, Plan], rounds: int) -> tuple[int, ...]:
    """About RECORDED rounds, evenly spread; moved to synchronisations where these are dense, to save stops."""
    wanted = np.linspace(1, rounds, min(RECORDED, rounds))
    public = [plan.times for plan in plans.values() if plan.synchronisations is not None]
    stops = np.unique(np.concatenate([np.array(times) for times in public])) if public else np.array([], dtype=int)
    spacing = rounds / len(wanted)
    moved = {round(t) if stops.size == 0 else _nearest(stops, t, spacing) for t in wanted}
    return tuple(sorted(moved | {rounds}))


def _nearest(stops: NDArray[np.int64], wanted: float, spacing: float) -> int:
    """The stop nearest to the wanted round, or that round itself where no stop is near."""
    stop = int(stops[np.abs(stops - wanted).argmin()])
    return stop if abs(stop - wanted) <= spacing else round(wanted)


def play_here(parts: list[Part], progress: Progress) -> Iterator[tuple[Part, dict[str, Played]]]:
    """One part after another in this process, the kernels on all cores."""
    total, before = sum(part.weight for part in parts), 0.0
    for part in parts:
        played = part.play(lambda share, part=part, before=before: progress((before + share * part.weight) / total))  # type: ignore[misc]
        before += part.weight
        yield part, played


def divided(
    task: Task, plans: Mapping[str, Plan], runs: int, seed: int, record: tuple[int, ...], precision: str
) -> list[Part]:
    """Parts of a few runs each; runs come first, so that an interrupted simulation has whole runs of all plans."""
    ways: dict[str, dict[str, Plan]] = {"lazy": {}, "eager": {}}
    adaptive = {name: plan for name, plan in plans.items() if isinstance(plan.schedule, Adaptive)}
    for name, plan in plans.items():
        if name not in adaptive:
            ways[plan.acting][name] = plan
    at_once = min(RUNS_AT_ONCE, max(1, int(STATE_BUDGET / _state_bytes(plans))))
    parts = []
    for first in range(0, runs, at_once):
        some = tuple(range(first, min(runs, first + at_once)))
        for way, group in ways.items():
            if group:
                parts.append(Part(task, group, some, seed, way, record, precision))
        for name, plan in adaptive.items():
            parts += [Part(task, {name: plan}, (run,), seed, "adaptive", record, precision) for run in some]
    return parts


def _state_bytes(plans: Mapping[str, Plan]) -> float:
    """Bytes of sums (and, eagerly, of inverses) that one run of these plans holds."""
    eager = [plan for plan in plans.values() if plan.acting == "eager"]
    rows = sum(16 * plan.protocol.width for plan in plans.values())
    return 8.0 * (rows + sum(plan.silos * plan.dim**2 for plan in eager))


def check(task: Task, plans: Mapping[str, Plan], runs: int, seed: int, precision: str) -> None:
    """Refuse what cannot be simulated, before anything is done."""
    if not isinstance(task, (Synthetic, Tabled)):
        raise ValueError(f"task must be made by fedbandit.tasks, got {type(task).__name__}")
    if not plans:
        raise ValueError("plans must name at least one plan, got none")
    _validate.count("runs", runs)
    _validate.count("seed", seed, least=0)
    _validate.one_of("precision", precision, PRECISIONS)
    for name in ("silos", "rounds", "dim"):
        values = {getattr(plan, name) for plan in plans.values()}
        if len(values) > 1:
            raise ValueError(f"{name} must be the same in all compared plans, got {sorted(values)}")
    dim = next(iter(plans.values())).dim
    if task.dim != dim:
        raise ValueError(f"dim must be {task.dim}, the task's, in all plans, got {dim}")
