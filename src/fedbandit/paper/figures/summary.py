"""The summary of a panel, computed from its runs: numbers, verdicts, and the sentences under the picture."""

from __future__ import annotations

from typing import Any

from fedbandit.paper.figures.observations import Falling, Observed
from fedbandit.paper.figures.panel import Panel
from fedbandit.paper.figures.running import Drawn
from fedbandit.simulator.tasks import Tabled

__all__ = ["HOLDS", "SAYS", "conclusion", "summarise", "verdict"]

HOLDS = {True: "holds", False: "does not hold", None: "cannot be told"}
SAYS = {
    True: "the observation holds",
    False: "the observation does not hold",
    None: "these runs cannot tell whether the observation holds",
}
TOGETHER = {
    True: "The observation holds in both versions.",
    False: "The observation holds in neither version.",
    None: "In neither version can these runs tell whether the observation holds.",
}


def summarise(panel: Panel, drawn: list[Drawn], quick: bool) -> dict[str, Any]:
    """Everything that the caption says, and the numbers behind it, as plain data."""
    versions = {one.setting.name: _version(panel, one) for one in drawn}
    return {
        "name": panel.name,
        "title": panel.title,
        "observed": f"{panel.observer}: “{panel.observed}”",
        "quick": quick,
        "silos": panel.silos,
        "versions": versions,
        "conclusion": conclusion({name: version["holds"] for name, version in versions.items()}),
    }


def conclusion(holds: dict[str, bool | None]) -> str:
    """What the versions say together about the paper's observation."""
    if len(set(holds.values())) == 1:
        return TOGETHER[next(iter(holds.values()))]
    if holds == {"as_proven": False, "as_simulated": True}:
        return (
            "The observed order appears only with the published simulation's constants; with the theorem's it does "
            "not hold."
        )
    return "; ".join(f"{name}: {SAYS[held]}" for name, held in holds.items()) + "."


def verdict(findings: list[Observed], complete: bool) -> bool | None:
    """The verdict of all checks: False if one fails, True if all hold and none was left out, otherwise None."""
    if any(finding.holds is False for finding in findings):
        return False
    return True if complete and findings and all(finding.holds for finding in findings) else None


def _version(panel: Panel, drawn: Drawn) -> dict[str, Any]:
    result = drawn.result
    labels = [curve.label for curve in panel.curves if curve.label in result.plans]
    possible = [one for one in panel.observations if set(one.labels) <= set(labels)]
    findings = [one.check(result) for one in possible]
    any_plan = result.plans[labels[0]]
    return {
        "heading": drawn.setting.heading,
        "rounds": any_plan.rounds,
        "dim": any_plan.dim,
        "runs": min(len(result.final(label)) for label in labels),
        "runs_asked": result.runs,
        "seed": result.seed,
        "data": drawn.task.table.description if isinstance(drawn.task, Tabled) else None,
        "chance": drawn.chance,
        "curves": {label: _curve(drawn, label) for label in labels},
        "left_out": drawn.left_out,
        "findings": [_plain(finding) for finding in findings],
        "holds": verdict(findings, complete=len(possible) == len(panel.observations)),
    }


def _curve(drawn: Drawn, label: str) -> dict[str, Any]:
    result, plan = drawn.result, drawn.result.plans[label]
    return {
        "regret": result.regret(label)._asdict(),
        "falls": Falling(label).check(result).holds,
        "noise_std": plan.noise_std,
        "regulariser": plan.regulariser,
        "guarantee": plan.guarantee.statement,
        "repaired": result.repaired[label],
        "bound": _bound(drawn, label),
    }


def _bound(drawn: Drawn, label: str) -> dict[str, Any] | None:
    """The regret bound at T per round, and what it says; None if no theorem covers the curve."""
    bounds = drawn.bounds(label)
    if not bounds:
        return None
    last = bounds[max(bounds)]
    return {"per_round": last.per_round, "says": last.says(drawn.chance)}


def _plain(finding: Observed) -> dict[str, Any]:
    return {"text": str(finding), "holds": finding.holds, "difference": finding.difference._asdict()}
