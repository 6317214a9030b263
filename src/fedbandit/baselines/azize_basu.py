"""Azize & Basu 2024: AdaC-OFUL, which protects rewards and nothing else.

Contexts and actions are public. When the determinant of V has doubled, the agent begins a new phase: it sums x y over
the last phase, adds Gaussian noise, and decides by the new estimate from then on. A reward belongs to one phase, so one
draw of noise protects it, and there are few phases.
"""

from __future__ import annotations

from fedbandit.bandit.literature import DOUBLED
from fedbandit.baselines.sequential import one_by_one
from fedbandit.plan import Plan
from fedbandit.protocol.guarantee import Calibration
from fedbandit.schedule import Adaptive

__all__ = ["PAPER", "PROMISE", "plan"]

PAPER = "Azize & Basu, Concentrated Differential Privacy for Bandits, SaTML 2024"
PROMISE = "rewards alone: everybody"


def plan(asked: Plan, calibration: Calibration = "exact") -> Plan:
    """AdaC-OFUL for as many users as `asked` has, at the rho of a Gaussian mechanism that meets the budget."""
    return one_by_one(
        asked,
        trust="public-contexts",
        mechanism="batches",
        schedule=Adaptive(DOUBLED, alone=True),
        calibration=calibration,
        confidence="azize-basu",
    )
