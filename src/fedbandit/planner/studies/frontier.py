"""Regret against epsilon: every protocol at every budget on the same users, and how far below the paper's each lies.

Excess regret is the time-averaged group regret minus the regret of non-private FedLinUCB on the same users, schedule
and radii. The yardstick is the excess of the paper's LDP protocol as proven (lazy), with a sync every 25 rounds.

The floor of a curve is its regret if every prefix sum had the noise of a single release: no mechanism can have less.

Where rewards are centred, the constant entry of a row has nothing left to explain, so it gets only little of the row's
length (`light`). Noise is scaled to the length of a whole row, so this leaves more to the entries that matter. Users,
their actions, the expected rewards and the promise stay the same. A schema does the same with its `weights`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from fedbandit import _validate, presets
from fedbandit.bandit.directions import PAPERS_SHARE
from fedbandit.plan import Plan
from fedbandit.planner.prediction import ARMS
from fedbandit.planner.tuning import CENTRE, CONSTANT_SHARE, TUNED, tuned, with_best_mechanism
from fedbandit.presets import NAMES, plan_for
from fedbandit.privacy.accounting import gaussian_epsilon, gaussian_sigma
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import Every, Schedule
from fedbandit.simulator.engine import Progress
from fedbandit.simulator.result import Estimate, Result
from fedbandit.simulator.runner import simulate
from fedbandit.simulator.tasks import Synthetic, Task

__all__ = [
    "BUDGETS",
    "CURVES",
    "EVERY",
    "FLOOR",
    "PRACTICAL",
    "QUICK_CURVES",
    "REFERENCES",
    "YARDSTICK",
    "Frontier",
    "Point",
    "at_floor",
    "baseline",
    "baseline_name",
    "curve_plan",
    "excess",
    "excess_ratio",
    "frontier",
    "is_light",
    "light",
    "played",
]

BUDGETS = ((0.2, 0.1), (1.0, 0.1), (5.0, 0.1), (1.0, 1e-5))
YARDSTICK = "ldp"
PRACTICAL = " practical"  # ends the name of a curve with practical radii
FLOOR = " floor"  # ends the name of a curve with the noise of a single release in every prefix sum
EVERY = " every-25"  # ends the name of a curve on the paper's schedule instead of a growing one
CURVES = (
    YARDSTICK,
    "local",
    "sdp-amplified",
    "sdp-vector-sum",
    *TUNED,
    *(name + EVERY for name in TUNED[:2]),
    *(name + PRACTICAL for name in TUNED),
    *(name + PRACTICAL + FLOOR for name in TUNED[:2]),
)
QUICK_CURVES = (YARDSTICK, "silo", "secure-sum", *(name + PRACTICAL for name in TUNED[:2]))
REFERENCES = ("fed-lin-ucb", "isolated", "isolated" + PRACTICAL)  # curves without a budget


@dataclass(frozen=True)
class Point:
    """One protocol at one budget; the budget is None without privacy."""

    name: str
    epsilon: float | None
    delta: float | None
    regret: Estimate
    excess: Estimate | None  # over non-private FedLinUCB on the same users, schedule and radii
    excess_ratio_to_paper: float | None  # how many times smaller than the yardstick's excess
    plan: Plan

    def as_dict(self) -> dict[str, Any]:
        """The point as plain data."""
        return {
            "name": self.name,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "regret": self.regret._asdict(),
            "excess": None if self.excess is None else self.excess._asdict(),
            "excess_ratio_to_paper": self.excess_ratio_to_paper,
            "schedule": str(self.plan.schedule),
            "mechanism": self.plan.mechanism,
            "syncs": self.plan.syncs,
        }


@dataclass(frozen=True)
class Frontier:
    """All points, and the reasons why some curves are missing at some budgets."""

    points: tuple[Point, ...]
    left_out: Mapping[str, str]


def frontier(
    task: Task,
    base: Plan,
    budgets: Sequence[tuple[float, float]] = BUDGETS,
    curves: Sequence[str] = CURVES,
    runs: int = 10,
    seed: int = 0,
    *,
    centred: bool = True,
    progress: Progress | None = None,
) -> Frontier:
    """Simulate every curve at every budget; `base` gives silos, rounds, dimension and adjacency.

    With `centred`, the practical curves of the protocols in `TUNED` centre their rewards, which the task's features
    must allow (see `tuning.tuned`). The others keep the setting of the theorems.
    """
    share = PAPERS_SHARE if light(task) is task else CONSTANT_SHARE
    arms = task.arms if isinstance(task, Synthetic) else ARMS
    plans, left_out = _planned(base, budgets, curves, centred, share, arms)
    labelled = {_label(*which): plan for which, plan in plans.items()}
    references = {name: _with_radii(name, base) for name in REFERENCES}
    baselines = {baseline_name(plan): baseline(plan) for plan in plans.values()}
    result = played(task, {**references, **baselines, **labelled}, runs, seed, progress)
    unbudgeted = references | dict(sorted(baselines.items()))
    points = [Point(name, None, None, result.regret(name), None, None, plan) for name, plan in unbudgeted.items()]
    points += [_point(*which, result) for which in plans]
    return Frontier(tuple(points), left_out)


def curve_plan(curve: str, base: Plan, centred: bool, constant_share: float = CONSTANT_SHARE, arms: int = ARMS) -> Plan:
    """The plan behind a curve's name. `constant_share` is the constant's share of a row if rewards are centred."""
    if curve.endswith(FLOOR):
        return at_floor(curve_plan(curve.removesuffix(FLOOR), base, centred, constant_share, arms))
    if curve.endswith(EVERY):
        return with_best_mechanism(_with_radii(curve, base, Every(min(presets.BATCH, base.rounds))), arms)
    plan, centre = _with_radii(curve, base), centred and curve.endswith(PRACTICAL)
    if _protocol(curve) not in TUNED:
        return plan
    return tuned(plan, centre, arms, constant_share if centre else PAPERS_SHARE)


def _with_radii(curve: str, base: Plan, schedule: Schedule | None = None) -> Plan:
    """The plan of a curve's protocol, with the radii that the curve's name gives."""
    radii = base.changed(confidence="practical" if curve.endswith(PRACTICAL) else "theory")
    return plan_for(_protocol(curve), radii, schedule)


def light(task: Task) -> Task:
    """The same users, with a small constant in their rows; data that are given as rows do not change."""
    return replace(task, constant_share=CONSTANT_SHARE) if isinstance(task, Synthetic) and not task.basis else task


def played(
    task: Task,
    plans: Mapping[str, Plan],
    runs: int,
    seed: int,
    progress: Progress | None = None,
    as_given: Sequence[str] = (),
) -> Result:
    """Simulate all plans on the same users.

    Private plans with centred rewards use `light` rows, unless their name is in `as_given`; all others use the task's
    own rows.
    """
    lighter = {name: plan for name, plan in plans.items() if is_light(plan) and name not in as_given}
    others = {name: plan for name, plan in plans.items() if name not in lighter}
    first = len(others) / len(plans)

    def part(start: float, share: float) -> Progress | None:
        return None if progress is None else lambda done: progress(start + share * done)

    results = [
        simulate(rows, some, runs, seed, progress=part(start, share))
        for rows, some, start, share in ((task, others, 0.0, first), (light(task), lighter, first, 1 - first))
        if some
    ]
    return reduce(Result.joined, results)


def is_light(plan: Plan) -> bool:
    """Whether a plan should be played with a small constant in its rows."""
    return plan.privacy is not None and plan.centre == CENTRE


def at_floor(plan: Plan) -> Plan:
    """The same plan with a larger budget, at which its worst prefix sum has the noise of one release at its own budget.

    It promises only that larger budget: it is a line to compare with, not a plan for the smaller one. Noise is
    inversely proportional to mu, so mu grows by the factor by which the worst prefix sum is noisier than one release.
    """
    assert plan.privacy is not None
    single = plan.changed(schedule=Every(plan.rounds), mechanism="batches")
    larger = plan.noise_std / single.noise_std / gaussian_sigma(plan.privacy.epsilon, plan.privacy.delta)
    epsilon = gaussian_epsilon(larger, plan.privacy.delta)
    return plan.changed(privacy=replace(plan.privacy, epsilon=epsilon))


def _protocol(curve: str) -> str:
    return curve.removesuffix(FLOOR).removesuffix(PRACTICAL).removesuffix(EVERY)


def baseline(plan: Plan) -> Plan:
    """Non-private FedLinUCB on the schedule and with the radii of `plan`."""
    return presets.fed_lin_ucb(plan, schedule=plan.schedule)


def baseline_name(plan: Plan) -> str:
    """The name of the curve of `baseline(plan)`."""
    return f"fed-lin-ucb {plan.schedule}{'' if plan.confidence == 'theory' else f' {plan.confidence}'}"


def excess_ratio(result: Result, name: str, yardstick: str) -> float | None:
    """How many times smaller the excess of `name` is than the yardstick's; None if it is not above zero."""
    mine, paper = excess(result, name), excess(result, yardstick)
    return paper.mean / mine.mean if mine.mean > 0 else None


def excess(result: Result, name: str) -> Estimate:
    """The regret of `name` above its own baseline, run by run on the same users."""
    return result.excess(name, over=baseline_name(result.plans[name]))


def _label(curve: str, epsilon: float, delta: float) -> str:
    """The name of a curve at one budget."""
    return f"{curve} {Privacy(epsilon, delta).pair}"


def _planned(
    base: Plan, budgets: Sequence[tuple[float, float]], curves: Sequence[str], centred: bool, share: float, arms: int
) -> tuple[dict[tuple[str, float, float], Plan], dict[str, str]]:
    """The plan of every curve at every budget where its theorem applies, always with the yardstick.

    The second value gives the reasons why others are missing.
    """
    adjacency = "replace-one" if base.privacy is None else base.privacy.adjacency
    for curve in curves:
        _validate.one_of("curves", _protocol(curve), (name for name in NAMES if name not in REFERENCES))
    plans: dict[tuple[str, float, float], Plan] = {}
    left_out = {}
    for epsilon, delta in budgets:
        asked = base.changed(privacy=Privacy(epsilon, delta, adjacency))
        for curve in dict.fromkeys((YARDSTICK, *curves)):
            try:
                whole = plans.get((curve.removesuffix(FLOOR), epsilon, delta)) if curve.endswith(FLOOR) else None
                plan = curve_plan(curve, asked, centred, share, arms) if whole is None else at_floor(whole)
                plans[curve, epsilon, delta] = plan
            except ValueError as error:
                left_out[_label(curve, epsilon, delta)] = str(error)
    return plans, left_out


def _point(curve: str, epsilon: float, delta: float, result: Result) -> Point:
    name = _label(curve, epsilon, delta)
    ratio = excess_ratio(result, name, _label(YARDSTICK, epsilon, delta))
    return Point(curve, epsilon, delta, result.regret(name), excess(result, name), ratio, result.plans[name])
