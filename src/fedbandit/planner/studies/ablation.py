"""What each improvement is worth: the tuned plan on the same users, with one improvement at a time taken back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from fedbandit import presets
from fedbandit.bandit.confidence import Radii
from fedbandit.bandit.directions import PAPERS_SHARE
from fedbandit.plan import Plan
from fedbandit.planner.prediction import noise_variance
from fedbandit.planner.studies.frontier import (
    YARDSTICK,
    baseline,
    baseline_name,
    excess,
    excess_ratio,
    is_light,
    light,
    played,
)
from fedbandit.planner.tuning import CONSTANT_SHARE, tuned, with_best_mechanism
from fedbandit.presets import plan_for
from fedbandit.schedule import Every, Growing
from fedbandit.simulator.engine import Progress
from fedbandit.simulator.result import Estimate, Result
from fedbandit.simulator.tasks import Task

__all__ = ["ABLATED", "HEAVY", "Ablated", "ablation", "switched_off", "unsymmetric_noise_factor"]

ABLATED = ("silo", "secure-sum")  # the presets that are taken apart
HEAVY = "light constant (half of a row's squared length instead)"
LOST_SILOS = 10  # of a hundred: how many may collude, and how many may be missing


@dataclass(frozen=True)
class Ablated:
    """A plan without one improvement."""

    trust: str  # the preset's name
    without: str  # the improvement that is taken back; "" for the whole plan
    regret: Estimate
    excess: Estimate
    times_excess: float  # how many times the whole plan's excess
    excess_ratio_to_paper: float | None

    def as_dict(self) -> dict[str, Any]:
        """The row as plain data."""
        row = {name: getattr(self, name) for name in ("trust", "without", "times_excess", "excess_ratio_to_paper")}
        return {**row, "regret": self.regret._asdict(), "excess": self.excess._asdict()}


def switched_off(whole: Plan) -> dict[str, Plan]:
    """The plan with each improvement taken back in turn, by name; "" is the whole plan."""
    lost = max(1, whole.silos * LOST_SILOS // 100)
    plans = {
        "": whole,
        "optimal encoder (toeplitz instead)": whole.changed(mechanism="toeplitz"),
        "optimal encoder (the paper's tree instead)": whole.changed(mechanism="tree"),
        "planned growth (growing(1.1) instead)": with_best_mechanism(whole.changed(schedule=Growing())),
        "growing schedule (every(25) instead)": with_best_mechanism(
            whole.changed(schedule=Every(min(presets.BATCH, whole.rounds)))
        ),
        "split of the budget (equal noise instead)": whole.changed(ratio=1.0),
        "centred rewards": whole.changed(centre=0.0, ratio=1.0),
        f"{whole.confidence} radii (theory's instead)": whole.changed(confidence="theory"),
        f"{whole.confidence} radii (the proof's instead)": whole.changed(confidence="proof"),
        "lambda from the noise's law (published one instead)": whole.changed(confidence="published"),
    }
    if "paper" in whole.trusting.calibrations:
        plans["exact joint calibration (the theorem's instead)"] = whole.changed(calibration="paper", ratio=1.0)
    if whole.trusting.shares_noise:
        plans[f"one silo may collude ({lost} instead)"] = whole.changed(colluding=lost)
        plans[f"all silos present ({lost} may be missing instead)"] = whole.changed(cohort=whole.silos - lost)
    return {what: plan for what, plan in plans.items() if what == "" or plan != whole}


def ablation(
    task: Task,
    base: Plan,
    runs: int = 10,
    seed: int = 0,
    *,
    confidence: Radii = "practical",
    centred: bool = True,
    progress: Progress | None = None,
) -> tuple[Ablated, ...]:
    """Simulate the tuned plan of each preset in ABLATED and all its ablations, at the budget of `base`.

    `confidence` names the radii of the whole plan; rewards are centred only with practical radii.
    """
    centre = centred and confidence == "practical"
    share = CONSTANT_SHARE if centre and light(task) is not task else PAPERS_SHARE
    asked = base.changed(confidence=confidence)
    wholes = {preset: tuned(plan_for(preset, asked), centre, constant_share=share) for preset in ABLATED}
    ablated = {(preset, what): plan for preset in ABLATED for what, plan in switched_off(wholes[preset]).items()}
    heavy = {(preset, HEAVY): whole for preset, whole in wholes.items() if share != PAPERS_SHARE and is_light(whole)}
    ablated |= heavy
    plans = {YARDSTICK: plan_for(YARDSTICK, base.changed(confidence="theory"))}
    plans |= {_label(*which): plan for which, plan in ablated.items()}
    baselines = {baseline_name(plan): baseline(plan) for plan in plans.values()}
    as_given = [_label(*which) for which in heavy]
    result = played(task, {**baselines, **plans}, runs, seed, progress, as_given)
    return tuple(_row(preset, without, result) for preset, without in ablated)


def _row(preset: str, without: str, result: Result) -> Ablated:
    name = _label(preset, without)
    mine, whole = excess(result, name), excess(result, _label(preset, ""))
    ratio = excess_ratio(result, name, YARDSTICK)
    return Ablated(preset, without, result.regret(name), mine, mine.mean / whole.mean, ratio)


def unsymmetric_noise_factor(plan: Plan) -> float:
    """How many times larger the noise's share of the squared error would be without using symmetry.

    Every number on and above the diagonal would then have the diagonal's noise, instead of what a symmetric matrix
    needs. This is computed, not simulated: there is no such plan.
    """
    law = plan.noise_law
    flat = replace(law, off_diagonal=law.diagonal)
    return float((noise_variance(flat, plan.centre) / noise_variance(law, plan.centre)).max())


def _label(preset: str, without: str) -> str:
    return f"{preset}: {without}"
