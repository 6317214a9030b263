"""What each improvement is worth: the tuned plan with one of them taken back at a time, on the same users."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from fedbandit.paper import presets
from fedbandit.plan import Plan
from fedbandit.planner.catalogue import plan_for
from fedbandit.planner.frontier import baseline, baseline_name, excess_ratio
from fedbandit.planner.prediction import noise_energy
from fedbandit.planner.tuning import tuned, with_best_mechanism
from fedbandit.schedule import Every, Growing
from fedbandit.simulate.result import Estimate
from fedbandit.simulate.runner import simulate
from fedbandit.simulate.tasks import Task

TRUSTS = ("silo", "secure-sum")
LOST_SILOS = 10  # of a hundred: colluding and missing, each


@dataclass(frozen=True)
class Ablated:
    """A plan without one improvement."""

    trust: str
    without: str  # "" for the whole
    regret: Estimate
    excess: Estimate
    times_excess: float  # of the whole's
    excess_ratio_to_paper: float | None

    def as_dict(self) -> dict[str, Any]:
        """The row as plain data."""
        row = {name: getattr(self, name) for name in ("trust", "without", "times_excess", "excess_ratio_to_paper")}
        return {**row, "regret": self.regret._asdict(), "excess": self.excess._asdict()}


def switched_off(whole: Plan) -> dict[str, Plan]:
    """Each improvement taken back in turn; "" is the whole."""
    trust, lost = whole.trust, max(1, whole.silos * LOST_SILOS // 100)
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
    if trust == "silo":
        plans["exact joint calibration (the theorem's instead)"] = whole.changed(calibration="paper", ratio=1.0)
    if trust == "secure-sum":
        plans[f"all silos honest ({lost} may collude instead)"] = whole.changed(colluding=lost)
        plans[f"all silos present ({lost} may be missing instead)"] = whole.changed(cohort=whole.silos - lost)
    return {what: plan for what, plan in plans.items() if what == "" or plan != whole}


def ablation(
    task: Task,
    base: Plan,
    runs: int = 10,
    seed: int = 0,
    *,
    confidence: str = "practical",
    centred: bool = True,
    progress: Callable[[float], None] = lambda share: None,
) -> tuple[Ablated, ...]:
    """Simulate the tuned plan of each trust model and all its ablations; `base` holds the budget.

    `confidence` are the radii of the whole; rewards are centred with the practical ones alone.
    """
    yardstick = presets.ldp(base.changed(confidence="theory"))
    plans = {"ldp": yardstick}
    for trust in TRUSTS:
        whole = tuned(plan_for(trust, base.changed(confidence=confidence)), centred and confidence == "practical")
        plans |= {_label(trust, what): plan for what, plan in switched_off(whole).items()}
    baselines = {baseline_name(plan): baseline(plan) for plan in plans.values()}
    result = simulate(task, {**baselines, **plans}, runs, seed, progress=progress)
    rows = []
    for name, plan in plans.items():
        trust, _, what = name.partition(": ")
        if name == "ldp":
            continue
        excess = result.excess(name, over=baseline_name(plan))
        whole_name = _label(trust, "")
        whole_excess = result.excess(whole_name, over=baseline_name(plans[whole_name]))
        ratio = excess_ratio(result, name, "ldp")
        rows.append(Ablated(trust, what, result.regret(name), excess, excess.mean / whole_excess.mean, ratio))
    return tuple(rows)


def unsymmetric_noise_factor(plan: Plan) -> float:
    """How many times larger the noise's share of the squared error is if every number on and above the diagonal gets
    the diagonal's noise, instead of noise only where the symmetric matrix has freedom. Computed, not simulated: there
    is no such plan."""
    law, reward_bound = plan.noise_law, max(plan.centre, 1 - plan.centre)
    flat = replace(law, off_diagonal=law.diagonal)
    return float((noise_energy(flat, plan.dim, reward_bound) / noise_energy(law, plan.dim, reward_bound)).max())


def _label(trust: str, what: str) -> str:
    return f"{trust}: {what}"
