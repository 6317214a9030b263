"""Divides runs into jobs that can be played anywhere, in any order, with the same results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import numpy as np

from fedbandit import _validate
from fedbandit._arrays import Floats, Integers
from fedbandit._progress import progress_or_bar
from fedbandit._validate import ArgumentError
from fedbandit.plan import Plan
from fedbandit.schedule import Adaptive
from fedbandit.simulator.acting import Manner, Precision
from fedbandit.simulator.attendance import EVERYBODY, Attendance
from fedbandit.simulator.engine import Played, Progress, play_differing, play_together
from fedbandit.simulator.engine_adaptive import play_adaptive
from fedbandit.simulator.population import AT_ONCE, Delays, Population
from fedbandit.simulator.result import Result, collected
from fedbandit.simulator.tasks import Synthetic, Tabled, Task

__all__ = [
    "RUNS_AT_ONCE",
    "Executor",
    "Job",
    "Way",
    "check",
    "check_attendance",
    "divided",
    "play_here",
    "recorded_rounds",
    "simulate",
]

# How silos act; or that the data decide when they synchronise; or that silos differ or have their own models.
Way = Manner | Literal["adaptive", "differing"]
RECORDED = 100  # rounds at which regret is recorded
RUNS_AT_ONCE = 5
STATE_BUDGET = 256e6  # most bytes of statistics that one job may hold


@dataclass(frozen=True)
class Job:
    """Some plans that are played in the same way, in some runs: the unit of work."""

    task: Task
    plans: Mapping[str, Plan]
    runs: tuple[int, ...]
    seed: int
    way: Way
    record: tuple[int, ...]
    precision: Precision
    attendance: Attendance = field(default=EVERYBODY, kw_only=True)
    delays: Delays = field(default=AT_ONCE, kw_only=True)
    before: int = field(default=0, kw_only=True)  # rounds of earlier terms
    priors: Mapping[str, Floats] = field(default_factory=dict, kw_only=True)  # (runs, width), by plan
    pooled: bool = field(default=True, kw_only=True)  # whether protocols take their shortcut

    @property
    def weight(self) -> float:
        """How much work the job is, in runs times plans."""
        return len(self.runs) * len(self.plans)

    def play(self, progress: Progress = lambda share: None) -> dict[str, Played]:
        """Play the job in this process."""
        with _one_blas_thread():
            return self._play(progress)

    def _play(self, progress: Progress) -> dict[str, Played]:
        if self.way == "differing":
            assert isinstance(self.task, Synthetic), "`check` has refused others"
            return play_differing(
                self.task, self.plans, self.runs, self.seed, self.record, progress, self.precision, self.pooled
            )
        silos = next(iter(self.plans.values())).silos
        population = Population(self.task, silos, self.runs, self.seed, self.delays, self.before)
        if self.way != "adaptive":
            return play_together(
                population,
                self.plans,
                self.way,
                self.record,
                progress,
                self.precision,
                self.pooled,
                attendance=self.attendance,
                priors=self.priors,
            )
        ((name, plan),) = self.plans.items()
        return {name: play_adaptive(population, name, plan, self.record, progress, self.precision, self.pooled)}


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    """Limit matrix libraries to one thread.

    A model is a small matrix: their threads would wait for each other ten times as long as they compute, and its last
    digits would depend on the number of threads.
    """
    from threadpoolctl import threadpool_limits  # imported here: it inspects the libraries that are loaded by now

    with threadpool_limits(limits=1, user_api="blas"):
        yield


Executor = Callable[[list[Job], Progress], Iterator[tuple[Job, dict[str, Played]]]]


def simulate(
    task: Task,
    plans: Mapping[str, Plan],
    runs: int = 25,
    seed: int = 0,
    *,
    attendance: Attendance = EVERYBODY,
    precision: Precision = "float32",
    progress: Progress | None = None,  # by default a bar, once it takes a while
    executor: Executor | None = None,  # where jobs are played; by default in this process
    delays: Delays = AT_ONCE,  # of rewards, for plans whose silos act lazily
    after: Result | None = None,  # the result of an earlier term
    pooled: bool = True,  # whether one silo stands for all; False: every silo releases, as it would live
) -> Result:
    """Play every plan on the same users, `runs` times; the result is group regret by round, plan and run.

    `attendance` says how often people come and who agrees to be counted. A plan counts a person as often as its budget
    allows. Visits that are not counted are served as the plan's `uncounted` says, and nothing about them is released.

    With `after`, the result of an earlier term, the users are those who come after its users in the same runs. A plan
    with a prior (`Result.prior`) then begins each run with what the plan of the same name knew at the end of that run.

    `pooled` takes the shortcut `Protocol.pooled`, which is equal in law for every trust model of the library. Without
    it every silo draws its own noise, as is right for a trust model whose shortcut nobody has tested.

    The same seed gives the same numbers on any number of cores. When it is interrupted (Ctrl-C), it returns the runs
    that are finished.

    >>> import fedbandit as fb
    >>> plan = fb.Plan(silos=4, rounds=100, dim=3, privacy=fb.Privacy(epsilon=5.0, delta=0.1))
    >>> plans = {"ours": plan, "non-private": fb.paper.fed_lin_ucb(plan)}
    >>> result = fb.simulate(fb.tasks.synthetic(dim=3, arms=5), plans, runs=3, seed=0)
    >>> result.names
    ('ours', 'non-private')
    >>> result.syncs("non-private")  # every 25 rounds
    4.0
    """
    check(task, plans, runs, seed, precision)
    check_attendance(plans, attendance)
    if _differ(task, plans):
        _check_differing(task, plans, attendance, delays)
        if after is not None:
            raise ArgumentError("after", "must be left out where silos differ, or plans have personal columns")
    if delays != AT_ONCE:
        _check_delays(plans, attendance, delays)
    rounds = next(iter(plans.values())).rounds
    record = recorded_rounds(plans, rounds)
    at_once = divided(task, plans, runs, seed, record, precision, attendance)
    before = 0 if after is None else _check_after(after, plans, runs, seed)
    jobs = [replace(job, delays=delays, before=before, priors=_priors(job, after), pooled=pooled) for job in at_once]
    finished: list[tuple[Job, dict[str, Played]]] = []
    try:
        with progress_or_bar(progress, "simulating") as report:
            for done in (executor or play_here)(jobs, report):
                finished.append(done)
    except KeyboardInterrupt:
        if not finished:
            raise
    return collected(plans, record, runs, seed, ((job.runs, played) for job, played in finished), before)


def _check_after(after: Result, plans: Mapping[str, Plan], runs: int, seed: int) -> int:
    """The rounds played before. A result of other users is refused, or one that lacks what a plan begins with."""
    if after.seed != seed or any(len(known) < runs for known in after.known.values()):
        raise ArgumentError("after", f"must be the finished result of seed {seed} and of at least {runs} runs")
    for name, plan in plans.items():
        if plan.prior is not None and name not in after.known:
            raise ArgumentError("after", f"must hold what plan {name!r} begins with; it has {', '.join(after.known)}")
    return after.before + next(iter(after.plans.values())).rounds


def _priors(job: Job, after: Result | None) -> dict[str, Floats]:
    """What the runs of a job begin with."""
    if after is None:
        return {}
    starts = [name for name, plan in job.plans.items() if plan.prior is not None]
    return {name: np.stack([after.known[name][run] for run in job.runs]) for name in starts}


def play_here(jobs: list[Job], progress: Progress) -> Iterator[tuple[Job, dict[str, Played]]]:
    """Play one job after another in this process, with the kernels on all cores."""
    total, before = sum(job.weight for job in jobs), 0.0
    for job in jobs:
        yield job, job.play(_part_of(progress, before / total, job.weight / total))
        before += job.weight


def _part_of(progress: Progress, before: float, share: float) -> Progress:
    """Report the progress of a job as progress of the whole."""
    return lambda done: progress(before + share * done)


def divided(
    task: Task,
    plans: Mapping[str, Plan],
    runs: int,
    seed: int,
    record: tuple[int, ...],
    precision: Precision,
    attendance: Attendance = EVERYBODY,
) -> list[Job]:
    """Jobs of a few runs each, ordered by runs, so that an interrupted simulation has complete runs of all plans."""
    together: dict[Way, dict[str, Plan]] = {"lazy": {}, "eager": {}, "partly": {}, "differing": {}}
    adaptive = {name: plan for name, plan in plans.items() if isinstance(plan.schedule, Adaptive)}
    for name, plan in plans.items():
        if name not in adaptive:
            together["differing" if _differ(task, plans) else _way(plan, attendance)][name] = plan
    at_once = min(RUNS_AT_ONCE, max(1, int(STATE_BUDGET / _state_bytes(plans, attendance))))
    jobs = []
    for first in range(0, runs, at_once):
        some = tuple(range(first, min(runs, first + at_once)))
        for way, group in together.items():
            if group:
                jobs.append(Job(task, group, some, seed, way, record, precision, attendance=attendance))
        for name, plan in adaptive.items():
            jobs += [Job(task, {name: plan}, (run,), seed, "adaptive", record, precision) for run in some]
    return jobs


def _differ(task: Task, plans: Mapping[str, Plan]) -> bool:
    """Whether silos have their own theta* or model. Then all plans are played in this way, on the same users."""
    return bool(isinstance(task, Synthetic) and task.own) or any(plan.personal for plan in plans.values())


def _way(plan: Plan, attendance: Attendance) -> Manner:
    """How the silos of a plan act on these visits."""
    return "partly" if plan.acting == "lazy" and not attendance.all_counted(plan) else plan.acting


def _state_bytes(plans: Mapping[str, Plan], attendance: Attendance) -> float:
    """The bytes of sums, and of silos' own models if there are any, that one run of these plans holds."""
    rows = sum(16 * plan.protocol.width for plan in plans.values())
    for plan in plans.values():
        way = _way(plan, attendance)
        own = 0 if way == "lazy" else plan.dim**2 + (3 * plan.protocol.width if way == "partly" else 0)
        rows += plan.silos * own
    return 8.0 * rows


def recorded_rounds(plans: Mapping[str, Plan], rounds: int) -> tuple[int, ...]:
    """About RECORDED rounds, evenly spread; they are moved to syncs that are near, to save stops."""
    wanted = np.linspace(1, rounds, min(RECORDED, rounds))
    public = [plan.times for plan in plans.values() if plan.syncs is not None]
    stops = np.unique(np.concatenate([np.array(times) for times in public])) if public else np.array([], dtype=int)
    spacing = rounds / len(wanted)
    moved = {round(t) if stops.size == 0 else _nearest(stops, t, spacing) for t in wanted}
    return tuple(sorted(moved | {rounds}))


def _nearest(stops: Integers, wanted: float, spacing: float) -> int:
    """The stop nearest to the wanted round, or that round itself if no stop is near."""
    stop = int(stops[np.abs(stops - wanted).argmin()])
    return stop if abs(stop - wanted) <= spacing else round(wanted)


def check(task: Task, plans: Mapping[str, Plan], runs: int, seed: int, precision: Precision) -> None:
    """Refuse arguments that cannot be simulated, before anything is done."""
    if not isinstance(task, (Synthetic, Tabled)):
        raise ArgumentError("task", f"must be made by fedbandit.tasks, got {type(task).__name__}")
    if isinstance(plans, Plan) or not isinstance(plans, Mapping):
        raise ArgumentError("plans", f"must be plans by name, such as {{'ours': plan}}, got {type(plans).__name__}")
    if not plans:
        raise ArgumentError("plans", "must name at least one plan, got none")
    for name, plan in plans.items():
        if not isinstance(plan, Plan):
            raise ArgumentError("plans", f"must hold a Plan under every name, got {type(plan).__name__} for {name!r}")
    _validate.count("runs", runs)
    _validate.count("seed", seed, least=0)
    _validate.one_of("precision", precision, get_args(Precision))
    for name in ("silos", "rounds", "dim", "bits"):
        values = {getattr(plan, name) for plan in plans.values()}
        if len(values) > 1:
            raise ArgumentError(name, f"must be the same in all compared plans, got {sorted(values)}")
    dim = next(iter(plans.values())).dim
    if task.dim != dim:
        raise ArgumentError("dim", f"must be {task.dim}, the task's, in all plans, got {dim}")


def _check_differing(task: Task, plans: Mapping[str, Plan], attendance: Attendance, delays: Delays) -> None:
    """Refuse arguments that are not supported if silos differ or have their own models."""
    if not isinstance(task, Synthetic) or task.one_set_per_silo or task.changes(2**31) or task.same_in_all_runs:
        raise ArgumentError("task", "must be synthetic, with fresh contexts and a theta* that does not change")
    if delays != AT_ONCE:
        raise ArgumentError("delays", "must be left out where silos differ, or plans have personal columns")
    for name, plan in plans.items():
        lazy = plan.acting == "lazy" and not isinstance(plan.schedule, Adaptive) and not plan.protocol.needs_points
        if not lazy or not attendance.all_counted(plan):
            raise ArgumentError(
                "plans", f"must act lazily, on a calendar, and count everybody where silos differ; {name!r} does not"
            )


def _check_delays(plans: Mapping[str, Plan], attendance: Attendance, delays: Delays) -> None:
    """Refuse late rewards for plans that do not define what becomes of them."""
    if not isinstance(delays, Delays):
        raise ArgumentError("delays", f"must be Delays(...) of fedbandit.simulator.population, got {delays!r}")
    for name, plan in plans.items():
        if plan.acting == "eager" or isinstance(plan.schedule, Adaptive):
            raise ArgumentError("delays", f"must be left out for {name!r}: its silos act on every user at once")
        if plan.protocol.needs_points or not plan.trusting.live:
            raise ArgumentError("delays", f"must be left out for {name!r}: its protocol depends on who comes when")
        if not attendance.all_counted(plan):
            raise ArgumentError("delays", "must be left out where some visits do not count")


def check_attendance(plans: Mapping[str, Plan], attendance: Attendance) -> None:
    """Refuse plans whose silos cannot treat visits that count and others differently.

    A lone silo is allowed: it releases nothing before the horizon, and learns from all its visits, counted or not.
    """
    for name, plan in plans.items():
        blind = isinstance(plan.schedule, Adaptive) or (plan.acting == "eager" and plan.syncs != 1)
        if blind and not attendance.all_counted(plan):
            raise ArgumentError(
                "attendance", f"must count every visit for plan {name!r}, whose silos act or synchronise on raw data"
            )
