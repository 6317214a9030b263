"""Runs panels. Panels with the same users are simulated together, so a curve that they share is played once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fedbandit.paper.figures.panel import Panel, Setting, Sources
from fedbandit.paper.regret_bounds import RegretBound, bound
from fedbandit.plan import Plan
from fedbandit.simulator.acting import Precision
from fedbandit.simulator.engine import Progress
from fedbandit.simulator.result import Result
from fedbandit.simulator.runner import simulate
from fedbandit.simulator.tasks import Synthetic, Task, chance

__all__ = ["Drawn", "PanelSize", "run"]

QUICK_RUNS = 3
POINTS = 4.0  # about how much more a protocol costs if it needs every user's data, not just their sums


@dataclass(frozen=True)
class PanelSize:
    """How much of a panel to run; by default as much as the paper."""

    quick: bool = False
    runs: int | None = None

    def of(self, panel: Panel) -> tuple[int, int]:
        """The panel's rounds and runs at this size."""
        runs = self.runs or (QUICK_RUNS if self.quick else panel.runs)
        return (panel.quick_rounds if self.quick else panel.rounds), runs


@dataclass
class SharedSimulation:
    """One simulation: all curves of the panels that share a setting."""

    setting: Setting
    task: Task
    silos: int
    rounds: int
    runs: int
    plans: dict[str, Plan] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)  # curves outside their theorem's range, and why

    def add(self, panel: Panel) -> None:
        """Build the panel's plans; a plan outside its theorem's range is left out, and the reason is kept."""
        for curve in panel.curves:
            try:
                self.plans[curve.label] = curve.plan(self.silos, self.rounds, self.task.dim, self.setting)
            except ValueError as error:
                self.left_out[curve.label] = str(error)

    @property
    def weight(self) -> float:
        """The amount of work, up to a constant: scoring an action takes dim^2 operations."""
        actions = _actions_per_user(self.task, self.silos, next(iter(self.plans.values())))
        costs = sum(POINTS if plan.protocol.needs_points else 1.0 for plan in self.plans.values())
        return self.silos * self.rounds * self.runs * costs * self.task.dim**2 * actions

    @property
    def precision(self) -> Precision:
        """The precision of scores. Rows of real data can be so alike that float32 confuses them, which moves the regret
        by up to one per cent. Directions of synthetic users are not that close."""
        return "float32" if isinstance(self.task, Synthetic) else "float64"

    def play(self, seed: int, progress: Progress) -> Result:
        """Run the simulation."""
        return simulate(self.task, self.plans, self.runs, seed, precision=self.precision, progress=progress)


@dataclass(frozen=True)
class Drawn:
    """One setting of a panel, simulated."""

    setting: Setting
    task: Task
    result: Result
    left_out: dict[str, str]

    @property
    def chance(self) -> float:
        """What all silos together lose per round by acting at random."""
        return chance(self.task, next(iter(self.result.plans.values())).silos, self.result.seed)

    def bounds(self, label: str) -> dict[int, RegretBound]:
        """The regret bound of a curve at each recorded round; empty if no theorem covers the setting's constants."""
        plan = self.result.plans[label]
        if self.setting.constants != "as_proven":
            return {}
        return {round_: bound(plan, round_) for round_ in self.result.curve(label)["round"]}


def run(
    panels: Sequence[Panel],
    sources: Sources,
    size: PanelSize,
    seed: int,
    progress: Progress,
) -> Iterator[tuple[Panel, list[Drawn]]]:
    """Yield every panel as soon as all of its settings are simulated; stop early if a simulation is interrupted."""
    jobs = _jobs(panels, sources, size)
    total, before = sum(job.weight for job in jobs.values()), 0.0
    results: dict[tuple[object, ...], Result] = {}
    waiting = list(panels)
    for key, job in jobs.items():
        results[key] = job.play(seed, _part_of(progress, before / total, job.weight / total))
        before += job.weight
        ready = [panel for panel in waiting if all(k in results for k in _keys(panel, size))]
        for panel in ready:
            waiting.remove(panel)
            yield panel, [_drawn(panel, jobs[k], results[k]) for k in _keys(panel, size)]
        if min(len(results[key].final(name)) for name in job.plans) < job.runs:
            return


def _part_of(progress: Progress, start: float, share: float) -> Progress:
    """Convert the progress of a part into progress of the whole."""
    return lambda done: progress(start + done * share)


def _jobs(panels: Sequence[Panel], sources: Sources, size: PanelSize) -> dict[tuple[object, ...], SharedSimulation]:
    jobs: dict[tuple[object, ...], SharedSimulation] = {}
    for panel in panels:
        for setting, key in zip(panel.settings, _keys(panel, size), strict=True):
            if key not in jobs:
                jobs[key] = SharedSimulation(setting, setting.task(sources), panel.silos, *size.of(panel))
            jobs[key].add(panel)
    return jobs


def _keys(panel: Panel, size: PanelSize) -> list[tuple[object, ...]]:
    return [(setting.instance, setting.name, panel.silos, *size.of(panel)) for setting in panel.settings]


def _drawn(panel: Panel, job: SharedSimulation, result: Result) -> Drawn:
    labels = {curve.label for curve in panel.curves}
    return Drawn(job.setting, job.task, result, {k: why for k, why in job.left_out.items() if k in labels})


def _actions_per_user(task: Task, silos: int, plan: Plan) -> float:
    """The mean number of actions scored per user. Acting lazily on a table, each action set is scored once per sync."""
    if isinstance(task, Synthetic):
        return task.arms
    users = silos * plan.rounds / max(1, plan.syncs or plan.rounds)
    repeated = min(1.0, task.table.sets / users) if plan.acting == "lazy" else 1.0
    return repeated * len(task.table.means) / task.table.sets
