"""Not in the paper: warfarin dosing, where contexts are patients, actions three doses and silos parts of the file."""

from __future__ import annotations

from pathlib import Path

from fedbandit.paper.figures.instances import fed_lin_ucb, ldp
from fedbandit.paper.figures.observations import ordered
from fedbandit.paper.figures.panel import Curve, Panel, Setting, Sources
from fedbandit.planner.catalogue import plan_for
from fedbandit.simulate import tasks

BUDGET = (1.0, 1e-4)


def _path(sources: Sources) -> Path:
    assert sources.warfarin is not None  # Panel.can_run
    return sources.warfarin


def _ours(name: str, family: str, private: bool = True) -> Curve:
    return Curve(family, lambda plan, _: plan_for(name, plan), *BUDGET, private=private)


POOLED, ALONE = fed_lin_ucb(), _ours("isolated", "each silo alone (non-private)", private=False)
SECURE, SILO, PAPER = _ours("secure-sum", "secure-sum (ours)"), _ours("silo", "silo (ours)"), ldp(*BUDGET)

PANEL = Panel(
    name="warfarin",
    title="Not in the paper: warfarin dosing, M = 10",
    settings=(
        Setting(
            "linear",
            "warfarin",
            "linear: rewards drawn from the best linear fit",
            "as_proven",
            lambda sources: tasks.warfarin(_path(sources)),
        ),
        Setting(
            "outcomes",
            "warfarin",
            "outcomes: a dose is right or wrong as the data say",
            "as_proven",
            lambda sources: tasks.warfarin(_path(sources), outcomes=True),
        ),
    ),
    silos=10,
    rounds=5_000,
    runs=10,
    curves=(POOLED, SECURE, ALONE, SILO, PAPER),
    observed="privacy costs regret, least with secure-sum and most with the paper's LDP",
    observer="Expected",
    observations=ordered(POOLED.label, SECURE.label, SILO.label, PAPER.label),
    needs="warfarin",
)
