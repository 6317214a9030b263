"""Running panels: those with the same users are simulated together, so a curve that they share is played once."""

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
POINTS = 4.0  # about how many times as much a protocol costs that must see every user, not just their sums


@dataclass(frozen=True)
class PanelSize:
    """How much of a panel to run; by default what the paper says."""

    quick: bool = False
    runs: int | None = None

    def of(self, panel: Panel) -> tuple[int, int]:
        """Rounds and runs."""
        runs = self.runs or (QUICK_RUNS if self.quick else panel.runs)
        return (panel.quick_rounds if self.quick else panel.rounds), runs


@dataclass
class SharedSimulation:
    """One simulation: all curves of some panels in one setting."""

    setting: Setting
    task: Task
    silos: int
    rounds: int
    runs: int
    plans: dict[str, Plan] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)  # curves whose theorem does not reach, and why

    def add(self, panel: Panel) -> None:
        """Build the panel's plans; a plan outside its theorem is left out with its reason."""
        for curve in panel.curves:
            try:
                self.plans[curve.label] = curve.plan(self.silos, self.rounds, self.task.dim, self.setting)
            except ValueError as error:
                self.left_out[curve.label] = str(error)

    @property
    def weight(self) -> float:
        """How much work it is, up to a constant: scoring an action takes dim^2 operations."""
        actions = _actions_per_user(self.task, self.silos, next(iter(self.plans.values())))
        costs = sum(POINTS if plan.protocol.needs_points else 1.0 for plan in self.plans.values())
        return self.silos * self.rounds * self.runs * costs * self.task.dim**2 * actions

    @property
    def precision(self) -> Precision:
        """Of scores. Rows of real data can be so alike that float32 takes one for the other, which moves the regret by
        up to a per cent; the directions of synthetic users are not."""
        return "float32" if isinstance(self.task, Synthetic) else "float64"

    def play(self, seed: int, progress: Progress) -> Result:
        """Simulate it."""
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
        """What acting at random loses per round, all silos together."""
        return chance(self.task, next(iter(self.result.plans.values())).silos, self.result.seed)

    def bounds(self, label: str) -> dict[int, RegretBound]:
        """The regret bound of a curve by recorded round; none where no theorem stands behind its constants."""
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
    """Every panel with its settings, as soon as all of them are simulated; stops early if interrupted."""
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
    """Turn the progress of a part into that of the whole."""
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
    """Actions scored for one user; acting lazily on a table, a set is scored once per sync."""
    if isinstance(task, Synthetic):
        return task.arms
    users = silos * plan.rounds / max(1, plan.syncs or plan.rounds)
    repeated = min(1.0, task.table.sets / users) if plan.acting == "lazy" else 1.0
    return repeated * len(task.table.means) / task.table.sets
